"""The process that graded kernels come from: it imports once, then forks, and leaves no survivor.

A kernel takes over a second to import torch. Here one process imports everything and does nothing
else; each kernel is a fork of it that is ready at once, confined before a student's code runs.

It is told what to do over a socket, a JSON object a line, and answers each with one:

- `{"start": {...}}`: forks a kernel; answers `{"pid": ...}`. One kernel at a time.
- `{"ended": true}`: answers `{"code": null}` while the kernel runs, then its exit code, or minus
  the signal that ended it.
- `{"end": true}`: kills the kernel and all that descends from it; answers when nothing is left.
- `{"host": true}`, with a socket beside it: forks another host, which serves that socket; answers
  when it is there. A host that has others starts no kernel itself.

When the socket closes, the grader is gone: everything is killed and the host ends. Orphans of a
kernel become the host's own children (a subreaper), so nothing escapes by leaving its family.

`python kernelhost.py --one REQUEST` is one kernel by itself; `--try RULES` prints what confinement
holds on this machine.

Only imports happen before a fork: a process that has used a pool of threads can't be forked. Run
by its path, `python kernelhost.py fd`: nothing of distgrade is in the process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import psutil
import sandbox  # the file beside this one

# What exercises and harnesses use; a name that is not installed is left out. torch imports sympy at
# the first backward pass, by `symbolic_shapes`: a second's work for each kernel, or once here.
PRELOADED = (
    *("torch", "numpy", "numpy.random", "comm", "pdb", "pydoc", "faulthandler"),
    *("ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "stringprep"),
    *("IPython.core.completer", "IPython.core.debugger", "IPython.core.completerlib"),
    *("IPython.extensions.storemagic", "tornado.platform.asyncio", "tornado.queues"),
    *("distlab", "distlab.launch", "distlab.simulator", "distlab.seeds", "distlab.notebook"),
    *("distlab.plot", "distlab.look", "distlab.layout", "encodings.idna"),
    *("torch.fx.experimental.symbolic_shapes", "torch.utils._device"),
)


class Host:
    """One end of the socket, and the kernel that runs now."""

    def __init__(self, wire: socket.socket):
        self.wire = wire
        self.kernel: int | None = None
        self.code: int | None = None

    def serve(self) -> None:
        """Says that it is there, then answers until the grader is gone, and leaves nothing."""
        if sandbox.pyprctl is not None:
            sandbox.pyprctl.set_child_subreaper(True)
        try:
            self.say({"host": os.getpid()})
            while (asked := self.hear()) is not None:
                self.say(self.answer(*asked))
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.end()

    def say(self, answer: dict) -> None:
        """Sends one line."""
        self.wire.sendall(json.dumps(answer).encode() + b"\n")

    def hear(self) -> tuple[dict, list[int]] | None:
        """Returns a request with the files that came beside it, or None when nobody asks."""
        line, files = b"", []
        while not line.endswith(b"\n"):
            part, more, _, _ = socket.recv_fds(self.wire, 1 << 16, 1)
            if not part:
                return None
            line, files = line + part, files + more
        return json.loads(line), files

    def answer(self, asked: dict, files: list[int]) -> dict:
        """Does what one request asks for."""
        if "host" in asked:
            self.split(*files)
            return {}
        if "start" in asked:
            self.end()
            self.code = None
            self.kernel = self.fork(asked["start"])
            return {"pid": self.kernel}
        if "end" in asked:
            self.end()
            return {"code": self.code}
        self.look()
        return {"code": self.code}

    def split(self, fd: int) -> None:
        """Forks a host for another socket."""
        if os.fork():
            os.close(fd)
            return
        try:
            self.wire.close()
            Host(socket.socket(fileno=fd)).serve()
        finally:
            os._exit(0)

    def fork(self, what: dict) -> int:
        """Returns the process id of a new kernel."""
        host = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            self.wire.close()
            become_kernel(what, host)
        finally:
            os._exit(70)  # never back into the host's loop

    def look(self) -> None:
        """Collects whoever has ended, the kernel's exit code among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.kernel:
                self.code = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Kills everything that descends from this process; returns when it is gone."""
        me = psutil.Process()
        while family := me.children(recursive=True):
            for stopped in (signal.SIGSTOP, signal.SIGKILL):  # first still, so that none forks on
                for process in family:
                    with contextlib.suppress(psutil.Error, OSError):
                        os.kill(process.pid, stopped)
            self.look()
            time.sleep(0.001)  # until they are gone, and their orphans are ours
        self.kernel = None


def rules_of(what: dict) -> sandbox.Rules:
    """Returns the sandbox rules that a request describes."""
    return sandbox.Rules(**{**what, "readable": tuple(what["readable"])})


def become_kernel(what: dict, host: int | None = None) -> None:
    """Turns this process into a confined kernel; returns when the kernel ends.

    `what`: connection (path of its file), work (its folder), environment, rules (of the sandbox).
    """
    os.chdir(what["work"])
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    os.closerange(3, 4096)
    os.environ.clear()
    os.environ.update(what["environment"])
    tempfile.tempdir = None
    _fresh_randomness()
    signal.signal(signal.SIGINT, signal.default_int_handler)

    from ipykernel import kernelapp

    sandbox.confine(rules_of(what["rules"]))
    if host is not None and sandbox.pyprctl is not None:
        sandbox.pyprctl.set_pdeathsig(signal.SIGKILL)  # after a change of user, which clears it
        if os.getppid() != host:
            return
    sys.modules["debugpy"] = None  # sixty modules and some threads that nobody here needs
    # Its pipe for output of forked processes would need a network socket.
    plain = kernelapp.IOPubThread
    kernelapp.IOPubThread = lambda socket, pipe, session: plain(socket, pipe=False, session=session)
    sys.argv = ["ipykernel"]
    app = kernelapp.IPKernelApp.instance()
    app.initialize(["-f", what["connection"], "--HistoryManager.enabled=False"])
    sandbox.seal()
    for name in ("sandbox", "kernelhost"):
        sys.modules.pop(name, None)
    app.start()


def _fresh_randomness() -> None:
    """Gives this process randomness of its own, as a new interpreter would have."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def try_deeds(rules: sandbox.Rules) -> list[str]:
    """Returns which forbidden deeds failed when a process confined by these rules tried them."""
    with tempfile.TemporaryDirectory(prefix="distgrade-") as outside:
        secret = Path(outside) / "secret"
        secret.write_bytes(b"not for students")
        return sorted(sandbox.probe(rules, str(secret)).held)


def main(fd: int) -> None:
    """Serves the socket with this file descriptor until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the grader's to handle
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    Host(socket.socket(fileno=fd)).serve()
    os._exit(0)  # to take apart all that it imported would take a while


if __name__ == "__main__":
    del sys.path[0]  # the grader's own folder
    if sys.argv[1] == "--one":  # where a process can't be forked: one kernel, then the end
        become_kernel(json.loads(sys.argv[2]))
    elif sys.argv[1] == "--try":
        print(json.dumps(try_deeds(rules_of(json.loads(sys.argv[2])))))
    else:
        main(int(sys.argv[1]))
