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
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
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
    """Kernels from a host on Linux. Raises OSError where the host does not start or is gone."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(theirs.fileno())],
            env=environment(),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        theirs.close()
        ours.settimeout(START_S)
        self._wire, self._answers = ours, ours.makefile("rb")
        self._owner = os.getpid()
        self.user = user_for(self._process.pid)
        try:
            self._answer()
        except BaseException:
            self.close()
            raise
        self.pid = 0
        self._code: int | None = None

    def _answer(self) -> dict:
        line = self._answers.readline()
        if not line:
            raise OSError("the process that starts kernels has ended")
        return json.loads(line)

    def ask(self, **question) -> dict:
        """Returns the host's answer."""
        self._wire.sendall(json.dumps(question).encode() + b"\n")
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
        return self._owner == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        """Ends the host, and with it whatever descends from it."""
        if self._owner != os.getpid():
            return
        self._answers.close()
        self._wire.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


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
