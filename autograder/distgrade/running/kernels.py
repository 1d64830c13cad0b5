"""Where graded kernels come from: forks of a host that has imported everything, or new processes.

On Linux a kernel is a fork of `kernelhost`, ready in a fraction of the time that a new one takes.
Elsewhere a process can't be forked once torch is in it, so each kernel is a process of its own.
Hosts are kept for the next kernel of this grader, one kernel at a time each, and end with it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol

import psutil

import distlab
from distgrade.running.sandbox import Protection, Rules, user_for

PROGRAM = Path(__file__).with_name("kernelhost.py")
START_S = 120.0  # a busy machine may need long to start a process; nobody waits this long otherwise
GRACE_S = 5.0

# A kernel sees these variables of ours and no other: the environment holds the course secret.
KEPT_ENVIRONMENT = (
    *("USER", "LOGNAME", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CONDA_PREFIX"),
)
# Read once, when the libraries are loaded. Tensors here are tiny, and one rank runs at a time: more
# threads would only cost time.
ONE_THREAD = {n: "1" for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


class Source(Protocol):
    """Starts one kernel at a time and says how it is."""

    pid: int
    user: int | None  # whom its kernels run as, where that is not the grader's user

    def start(self, what: Mapping) -> None:
        """Starts a kernel; `what` is described at `kernelhost.become_kernel`."""

    def code(self) -> int | None:
        """Returns None while the kernel runs, else its exit code, or minus a signal."""

    def end(self) -> None:
        """Kills the kernel and all that it started; returns when nothing is left."""

    def close(self) -> None:
        """Ends it, and what it has prepared for the next kernel."""


def environment() -> dict[str, str]:
    """Returns the variables that a kernel gets, whoever starts it."""
    kept = {k: os.environ[k] for k in KEPT_ENVIRONMENT if k in os.environ}
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    return kept | ONE_THREAD | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


class Forked:
    """Kernels from a host on Linux. Raises OSError where the host does not start or is gone.

    The host is a process that this one starts, or with `wire` one that is another's fork.
    """

    def __init__(self, wire: socket.socket | None = None):
        self._process: subprocess.Popen | None = None
        if wire is None:
            wire, theirs = socket.socketpair()
            with theirs:
                self._process = _host(theirs)
        wire.settimeout(START_S)
        self._wire, self._answers = wire, wire.makefile("rb")
        self._owner = os.getpid()
        self.pid = 0
        self._code: int | None = None

    @cached_property
    def host(self) -> int:
        """The host's process id; waits until it is there."""
        return self._answer()["host"]

    @cached_property
    def user(self) -> int | None:
        """Whom its kernels run as, where that is not the grader's user."""
        return user_for(self.host)

    def another(self) -> socket.socket:
        """Returns the wire to another host, a fork of this one, which is there in no time."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.ask(host=theirs)
        return ours

    def _answer(self) -> dict:
        line = self._answers.readline()
        if not line:
            raise OSError("the process that starts kernels has ended")
        return json.loads(line)

    def ask(self, **question) -> dict:
        """Returns the host's answer to a question, which may hold one socket."""
        assert self.host  # it speaks first
        sockets = [value for value in question.values() if isinstance(value, socket.socket)]
        text = json.dumps(question, default=lambda value: True).encode() + b"\n"
        socket.send_fds(self._wire, [text], [each.fileno() for each in sockets])
        return self._answer()

    def start(self, what: Mapping) -> None:
        """Forks a kernel."""
        self._code = None
        self.pid = self.ask(start=dict(what))["pid"]

    def code(self) -> int | None:
        """Returns None while the kernel runs, else its exit code, or minus a signal."""
        if self._code is None:
            self._code = self.ask(ended=True)["code"]
        return self._code

    def end(self) -> None:
        """Kills the kernel and all that descends from it."""
        code = self.ask(end=True)["code"]
        self._code = -signal.SIGKILL if code is None else code

    @property
    def usable(self) -> bool:
        """Says whether another kernel can come from here; none can in a fork of the owner."""
        return self._owner == os.getpid() and not select.select([self._wire], [], [], 0)[0]

    def close(self) -> None:
        """Ends the host, and with it whatever descends from it."""
        if self._owner != os.getpid():
            return
        try:
            self._wire.shutdown(socket.SHUT_WR)
            self._wire.settimeout(GRACE_S)
            while self._wire.recv(1 << 16):  # until it has ended, which closes its end
                pass
        except TimeoutError:
            self._kill()
        except OSError:  # it is gone
            pass
        self._answers.close()
        self._wire.close()
        if self._process is not None:
            self._process.wait()

    def _kill(self) -> None:
        """Kills a host that does not end; it may not have said its name yet."""
        host = self._process.pid if self._process is not None else vars(self).get("host")
        if host is not None:
            os.kill(host, signal.SIGKILL)


def _host(wire: socket.socket) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(wire.fileno())],
        env=environment(),
        pass_fds=[wire.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


class Spawned:
    """Kernels as processes of their own, where forking is not safe; slower to start."""

    user = None

    def __init__(self):
        self.pid = 0
        self._process: subprocess.Popen | None = None
        self._mark = ""

    def start(self, what: Mapping) -> None:
        """Starts a kernel."""
        self._mark = os.urandom(8).hex()  # each descendant carries it, even outside the family
        own = what["environment"] | {"DISTGRADE_RUN": self._mark}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "--one", json.dumps({**what, "environment": own})],
            env=own,
            cwd=what["work"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def code(self) -> int | None:
        """Returns None while the kernel runs, else its exit code, or minus a signal."""
        return self._process.poll() if self._process is not None else 0

    def end(self) -> None:
        """Kills the kernel, its family, and what left the family but still carries its mark."""
        if self._process is None:
            return
        family = []
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(self.pid).children(recursive=True)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)  # it leads a session of its own
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        for process in [*family, *self._strays()]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _strays(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get("DISTGRADE_RUN") == self._mark:
                    found.append(process)
        return found

    def close(self) -> None:
        """Ends the kernel; there is nothing else."""
        self.end()


class Hosts:
    """Hosts for other processes: forks of one that starts at once; none where forking is unsafe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._first = Forked() if CAN_FORK else None

    def another(self) -> socket.socket | None:
        """Returns the wire to a host that is forked now, for `adopt`."""
        with self._lock:
            if self._first is None:
                return None
            try:
                return self._first.another()
            except OSError:  # something ended the first one: once more
                self._first.close()
                self._first = Forked()
                return self._first.another()

    def close(self) -> None:
        """Ends the first host, and those forked of it that are left."""
        if self._first is not None:
            self._first.close()


CAN_FORK = sys.platform == "linux"
_idle: list[Forked] = []
_lock = threading.Lock()


def borrow() -> Source:
    """Returns a source that nobody uses: an idle one, or a new one."""
    if not CAN_FORK:
        return Spawned()
    with _lock:
        while _idle:
            source = _idle.pop()
            if source.usable:
                return source
            source.close()
    return Forked()


def adopt(wire: socket.socket) -> None:
    """Keeps a host that somebody else had forked for this process."""
    source = Forked(wire)
    assert source.host
    with _lock:
        _idle.append(source)


def give_back(source: Source) -> None:
    """Keeps a source for the next kernel, after its kernel has ended."""
    if isinstance(source, Forked) and source.usable:
        with _lock:
            _idle.append(source)
    else:
        source.close()


@atexit.register
def close_idle() -> None:
    """Ends the sources that nobody uses."""
    with _lock:
        while _idle:
            _idle.pop().close()


@cache
def protection() -> Protection:
    """Returns what protects this machine from a student's code: tried, not assumed.

    Cost: a few tenths of a second, once.
    """
    with tempfile.TemporaryDirectory(prefix="distgrade-") as folder:
        rules = rules_for(folder, user_for(os.getpid()))
        done = subprocess.run(
            [sys.executable, str(PROGRAM), "--try", json.dumps(vars(rules))],
            env=environment(),
            capture_output=True,
            check=False,
        )
    return Protection(frozenset(json.loads(done.stdout)) if done.returncode == 0 else frozenset())


def rules_for(folder: str, user: int | None) -> Rules:
    """Returns the rules of a kernel in this folder, which is handed to its user if it has one."""
    if user is not None:
        for path in (folder, *map(str, Path(folder).rglob("*"))):
            os.chown(path, user, user)
    return Rules(folder=folder, readable=tuple(map(str, distlab.__path__)), user=user)
