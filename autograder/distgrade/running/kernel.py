"""One kernel process for one submission: start, execute with deadlines, kill, leave nothing.

What a student's code may do to it is bounded here: time, output, files, death. What it may read and
reach is bounded by the sandbox that the process is put into (`sandbox`, `kernelhost`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import zmq
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from distgrade.exercise import GraderError
from distgrade.outputs import plain
from distgrade.running import folders
from distgrade.running.kernels import (
    GRACE_S,
    START_S,
    Source,
    borrow,
    environment,
    give_back,
    rules_for,
)

MAX_MESSAGE_BYTES = 64 * 2**20  # one message larger than this is not taken from the socket
MAX_WAITING = 8  # messages held here unread: with the size of one, what a flood costs in memory
MAX_VALUES = 1_000_000  # in a message: an empty list is two characters of text, 64 bytes here
MAX_CELL_BYTES = 256 * 2**20  # a cell that publishes more is stopped
MAX_FOLDER_BYTES = 512 * 2**20  # a cell whose files in its folder are larger in all is stopped
MAX_WRITTEN_BYTES = 2 * 2**30  # a kernel that writes more is stopped: a file without a name counts
MUTE_S = 0.3  # how long iopub is waited for where it has not come before
PATIENCE = 3  # times the limit may pass on a busy machine, as long as little of it was computing


@dataclass(frozen=True)
class End:
    """How an execution ended: ok, error, timeout, flood (too much output) or died."""

    state: str
    name: str = ""
    text: str = ""

    @property
    def ran(self) -> bool:
        """Says whether the kernel finished the cell (perhaps with an exception)."""
        return self.state in ("ok", "error")


class Kernel:
    """A fresh kernel in an empty folder of its own. Use as a context manager.

    `source` says where it comes from; by default from a host that is ready (`kernels.borrow`).
    """

    def __init__(self, source: Callable[[], Source] = borrow):
        self._folder, self._lock = folders.make()
        self._new_source = source
        self._source: Source | None = None
        self._client: BlockingKernelClient | None = None
        self._ended = False
        self._patience_s = GRACE_S  # with iopub, once the reply is here

    def __enter__(self) -> Kernel:
        try:
            self._start()
        except BaseException as error:
            self.close()
            if isinstance(error, Exception):
                raise GraderError(f"the kernel could not be started: {error}") from error
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Says whether the process runs."""
        return self._source is not None and not self._ended and self._source.code() is None

    @property
    def pid(self) -> int:
        """The process id of the kernel."""
        return self._source.pid

    def _start(self) -> None:
        for name in ("work", "home", "tmp"):
            (self._folder / name).mkdir()
        connection = str(self._folder / "kernel.json")
        # Sockets in its own folder: nothing listens on a network, and none is needed.
        write_connection_file(connection, transport="ipc", ip=str(self._folder / "kernel"))
        self._source = self._new_source()
        self._source.start(
            {
                "connection": connection,
                "work": str(self._folder / "work"),
                "environment": self._environment(),
                "rules": vars(rules_for(str(self._folder), self._source.user)),
            }
        )
        self._client = BlockingKernelClient(connection_file=connection)
        self._client.load_connection_file()
        self._client.context.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._client.context.setsockopt(zmq.RCVHWM, MAX_WAITING)
        self._wait_for_sockets()
        self._client.start_channels(stdin=False, hb=False)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:  # until iopub is heard, its messages would be lost
            end = self.execute("pass", lambda *_: None, timeout_s=START_S, silent=True)
            if end.text == "heard":
                return
            if end.state == "died":
                raise RuntimeError(end.text)
        raise RuntimeError("it does not answer on iopub")

    def _wait_for_sockets(self) -> None:
        """Waits until the kernel listens, so that no connection is tried again a moment later."""
        ports = (self._client.shell_port, self._client.iopub_port, self._client.control_port)
        waited = time.monotonic() + START_S
        for look in itertools.count(1):
            if all(os.path.exists(f"{self._folder / 'kernel'}-{port}") for port in ports):
                return
            if (look % 20 == 0 and not self.alive) or time.monotonic() > waited:
                raise RuntimeError(self._obituary())
            time.sleep(0.005)

    def _environment(self) -> dict[str, str]:
        return environment() | {
            "DISTLAB_CHECK": "off",  # the visible check would grade a second time
            "HOME": str(self._folder / "home"),
            "TMPDIR": str(self._folder / "tmp"),
            "IPYTHONDIR": str(self._folder / "home"),  # no start-up files of the grader's user
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }

    def execute(
        self,
        code: str,
        take: Callable[[str, dict], None],
        *,
        timeout_s: float,
        silent: bool = False,
    ) -> End:
        """Runs code and gives each of its iopub messages to `take(kind, content)`.

        On a time-out the kernel is interrupted; if that does not help within GRACE_S it is killed.
        """
        if not self.alive:
            return End("died", text=self._obituary())
        message = self._client.execute(
            code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=False
        )
        waiting = _Waiting(message, take)
        poller = zmq.Poller()
        for channel in (self._client.shell_channel, self._client.iopub_channel):
            poller.register(channel.socket, zmq.POLLIN)
        started, computed = time.monotonic(), self._own_cpu_s()
        deadline, stopped, looked = started + timeout_s, "", started
        while not waiting.finished:
            ready = poller.poll(100)
            for socket, _ in ready:
                self._receive(socket, waiting)
            now = time.monotonic()
            if not ready and not self.alive:  # whoever talks is alive
                self._drain(poller, waiting)
                return End("died", text=self._obituary())
            late = not stopped and deadline < now < started + PATIENCE * timeout_s
            if late and self._cpu_s() - computed < 0.8 * timeout_s:
                deadline = now + 0.5  # others had the processor: no fault of this cell's
            if waiting.size > MAX_CELL_BYTES:
                self.kill()  # nobody reads on until it listens
                return End("flood")
            flood = False
            if now > looked + 1.0:
                looked, flood = now, self._fills_the_disk()
            if not stopped and (now > deadline or flood):
                stopped = "flood" if flood else "timeout"
                deadline = now + GRACE_S
                with contextlib.suppress(OSError):
                    os.kill(self.pid, signal.SIGINT)
            elif stopped and now > deadline:
                self.kill()
                return End(stopped)
            if waiting.reply is not None and now > waiting.replied + self._patience_s:
                self._patience_s = MUTE_S
                break  # the reply is here; what is still missing of iopub won't come
        else:
            self._patience_s = GRACE_S
        if stopped:
            return End(stopped)
        return waiting.end()

    def _own_cpu_s(self) -> float:
        """Returns the seconds the kernel's process has computed so far."""
        with contextlib.suppress(psutil.Error):
            return _computed_s(psutil.Process(self.pid))
        return 0.0

    def _cpu_s(self) -> float:
        """Returns the same with what it started, where it can: all processes are looked through."""
        total = self._own_cpu_s()
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children(recursive=True):
                total += _computed_s(child)
        return total

    def _receive(self, socket, waiting: _Waiting) -> None:
        for _ in range(100):
            if waiting.size > MAX_CELL_BYTES:
                return
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            waiting.size += sum(len(f) for f in frames)
            if sum(f.count(mark) for f in frames for mark in (b",", b"[", b"{")) > MAX_VALUES:
                continue
            try:
                _, frames = self._client.session.feed_identities(frames)
                waiting.handle(self._client.session.deserialize(frames))
            except Exception:  # forged or damaged: whatever it was, it is no message
                continue

    def _drain(self, poller, waiting: _Waiting) -> None:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            ready = poller.poll(50)
            if not ready:
                return
            for socket, _ in ready:
                self._receive(socket, waiting)

    def _fills_the_disk(self) -> bool:
        """Says whether its files, or all that it ever wrote, are too large."""
        with contextlib.suppress(psutil.Error, AttributeError):  # not on every system
            written = psutil.Process(self.pid).io_counters()
            if max(written.write_bytes, written.write_chars) > MAX_WRITTEN_BYTES:
                return True
        return folders.size_of(self._folder, MAX_FOLDER_BYTES) > MAX_FOLDER_BYTES

    def _obituary(self) -> str:
        code = self._source.code() if self._source is not None else None
        if code is None:
            return "the kernel stopped"
        if code < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
                hint = ", perhaps out of memory" if name == "SIGKILL" else ""
                return f"the kernel was ended by {name}{hint}"
        return f"the kernel ended with exit code {code}"

    def kill(self) -> None:
        """Ends the kernel and every process that descends from it, at once."""
        if self._source is not None and not self._ended:
            self._ended = True
            try:
                self._source.end()
            except OSError:  # its host is gone, which took everything with it
                self._source.close()

    def close(self) -> None:
        """Kills the kernel and removes its folder. May be called twice."""
        self.kill()
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.stop_channels()
            self._client = None
        if self._source is not None:
            give_back(self._source)
            self._source = None
        folders.remove(self._folder)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _computed_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class _Waiting:
    """Collects the messages that belong to one request."""

    def __init__(self, message: str, take: Callable[[str, dict], None]):
        self.message, self.take = message, take
        self.reply: dict | None = None
        self.replied = 0.0
        self.idle = False
        self.size = 0

    @property
    def finished(self) -> bool:
        return self.reply is not None and self.idle

    def handle(self, message: dict) -> None:
        if message.get("parent_header", {}).get("msg_id") != self.message:
            return
        kind, content = message.get("msg_type"), message.get("content")
        if not isinstance(content, dict):
            return
        if kind == "execute_reply":
            if self.reply is None:
                self.reply, self.replied = content, time.monotonic()
        elif kind == "status":
            self.idle = self.idle or content.get("execution_state") == "idle"
        else:
            self.take(kind, content)

    def end(self) -> End:
        reply = self.reply or {}
        payloads = reply.get("payload")
        for payload in payloads if isinstance(payloads, list) else []:
            if isinstance(payload, dict) and payload.get("source") == "ask_exit":
                return End("died", text="it called exit()")  # the kernel follows in a moment
        if reply.get("status") != "ok":
            return End("error", plain(reply.get("ename"), 200), plain(reply.get("evalue"), 2000))
        return End("ok", text="heard" if self.idle else "")
