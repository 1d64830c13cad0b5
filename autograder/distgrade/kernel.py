"""One kernel process for one submission: start, execute with deadlines, kill, leave nothing.

What a student's code may do to it is bounded here: time, output, death. What it may read is not: it
runs as the user who grades (isolation is work to come, and the instructor's guide says so).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import zmq
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from distgrade.exercise import GraderError
from distgrade.outputs import plain

MAX_MESSAGE_BYTES = 64 * 2**20  # one message larger than this is dropped unread
MAX_CELL_BYTES = 256 * 2**20  # a cell that publishes more is stopped
START_S = 120.0  # a busy machine may need long to start a process; nobody waits this long otherwise
PATIENCE = 3  # times the limit may pass on a busy machine, as long as little of it was computing
GRACE_S = 5.0  # to answer an interrupt; to send what is still on its way

# The kernel sees these variables of ours and no other: the environment holds the course secret.
KEPT_ENVIRONMENT = (
    *("HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE"),
    *("MPLCONFIGDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CONDA_PREFIX"),
)


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
    """A fresh kernel in an empty folder of its own. Use as a context manager."""

    def __init__(self):
        self._folder = Path(tempfile.mkdtemp(prefix="distgrade-"))
        self._mark = os.urandom(8).hex()
        self._process: subprocess.Popen | None = None
        self._manager = self._client = None

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
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        work = self._folder / "work"
        work.mkdir()
        manager = KernelManager(connection_file=str(self._folder / "kernel.json"))
        manager._kernel_spec = KernelSpec(
            argv=[
                sys.executable,
                *("-m", "ipykernel_launcher", "-f", "{connection_file}"),
                "--HistoryManager.enabled=False",
            ],
            display_name="graded",
            language="python",
        )
        self._manager = manager
        manager.start_kernel(
            env=self._environment(),
            cwd=str(work),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._process = manager.provisioner.process
        self._client = manager.client()
        self._client.start_channels(stdin=False, hb=False)
        self._client.wait_for_ready(timeout=START_S)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:  # until iopub is heard, its messages would be lost
            if self.execute("pass", lambda *_: None, timeout_s=10.0, silent=True).text == "heard":
                return
        raise RuntimeError("it does not answer on iopub")

    def _environment(self) -> dict[str, str]:
        kept = {k: os.environ[k] for k in KEPT_ENVIRONMENT if k in os.environ}
        binaries = os.path.dirname(sys.executable)
        return kept | {
            "PATH": binaries + os.pathsep + os.environ.get("PATH", os.defpath),
            "DISTLAB_CHECK": "off",  # the visible check would grade a second time
            "DISTGRADE_RUN": self._mark,  # every descendant carries it: see close()
            "IPYTHONDIR": str(self._folder / "ipython"),  # no start-up files of the grader's user
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            # Tensors here are tiny, and one rank runs at a time: more threads only cost time.
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
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
        started, computed = time.monotonic(), self._cpu_s()
        deadline, stopped = started + timeout_s, ""
        while not waiting.finished:
            for socket, _ in poller.poll(100):
                self._receive(socket, waiting)
            now = time.monotonic()
            if not self.alive:
                self._drain(poller, waiting)
                return End("died", text=self._obituary())
            late = not stopped and deadline < now < started + PATIENCE * timeout_s
            if late and self._cpu_s() - computed < 0.8 * timeout_s:
                deadline = now + 0.5  # others had the processor: no fault of this cell's
            if not stopped and (now > deadline or waiting.size > MAX_CELL_BYTES):
                stopped = "timeout" if now > deadline else "flood"
                deadline = now + GRACE_S
                with contextlib.suppress(Exception):
                    self._manager.interrupt_kernel()
            elif stopped and now > deadline:
                self.kill()
                return End(stopped)
            if waiting.reply is not None and now > waiting.replied + GRACE_S:
                break  # the reply is here; what is still missing of iopub won't come
        if stopped:
            return End(stopped)
        return waiting.end()

    def _cpu_s(self) -> float:
        """Returns the seconds the kernel and what it started have computed so far."""
        total = 0.0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            for each in [process, *process.children(recursive=True)]:
                times = each.cpu_times()
                total += times.user + times.system
        return total

    def _receive(self, socket, waiting: _Waiting) -> None:
        for _ in range(100):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            size = sum(len(f) for f in frames)
            waiting.size += size
            if size > MAX_MESSAGE_BYTES:
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

    def _obituary(self) -> str:
        code = self._process.poll() if self._process is not None else None
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
        process = self._process
        if process is None:
            return
        family = []
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(process.pid).children(recursive=True)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
        with contextlib.suppress(OSError):
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        for child in [*family, *self._strays()]:
            with contextlib.suppress(psutil.Error):
                child.kill()

    def _strays(self) -> list[psutil.Process]:
        """Returns what left the family (fork and setsid) but still carries our mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get("DISTGRADE_RUN") == self._mark:
                    found.append(process)
        return found

    def close(self) -> None:
        """Kills the kernel and removes its folder. May be called twice."""
        self.kill()
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.stop_channels()
        if self._manager is not None:
            with contextlib.suppress(Exception):
                self._manager.cleanup_resources()
        self._client = self._manager = None
        shutil.rmtree(self._folder, ignore_errors=True)


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
