"""Ranks as real processes on torch.distributed: gloo on CPUs, NCCL with one GPU per rank.

Processes come from a forkserver that has torch loaded already, never from a fork of the caller:
a forked copy of a process whose OpenMP has run hangs. Ranks find each other through a file, talk
over the loopback interface, and end with the run: however it ends, none is left.
"""

import contextlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from distlab import forkserver, isolate, rankstate, reports, worker
from distlab.board import Board
from distlab.diagnosis import Watcher
from distlab.errors import DistError, RankDiedError, RankExitedError
from distlab.job import Job
from distlab.ledger import Entry, Ledger
from distlab.prints import LabelledLines
from distlab.result import Result

MAX_PROCESSES = 64
_LOOK_S = 0.02  # how often the board is looked at while nobody reports
_GRACE_S = 0.3  # how long reports of other ranks are collected after the first failure
_CONNECTION_WORDS = ("connection", "Connection", "gloo", "Socket", "socket", "NCCL")


def run(
    fn: Callable,
    n: int,
    args: tuple,
    kwargs: dict,
    *,
    backend: str,
    timeout_s: float,
    echo: bool,
) -> Result:
    """Runs `fn` on n processes; see `distlab.launch.run`."""
    __tracebackhide__ = True
    _check_machine(n, backend)
    job = Job(fn, n, args, kwargs)
    with _folder() as folder:
        team = _Team(n, folder, echo)
        try:
            team.start(job, backend, timeout_s)
            failure = team.watch(timeout_s)
        except KeyboardInterrupt as error:
            error.add_note(reports.others(*team.watcher.pending(), ()))
            raise
        finally:
            team.end()
        if failure is not None:
            raise isolate.caller_class(failure)
        return team.result()


def _check_machine(n: int, backend: str) -> None:
    if backend == "nccl":
        gpus = torch.cuda.device_count()
        if gpus < n:
            raise ValueError(
                f"engine='nccl' needs one GPU per rank: {n} were asked for, this machine has "
                f"{gpus}; use engine='gloo' on a CPU, or the simulator."
            )
    if n > MAX_PROCESSES:
        raise ValueError(
            f"engine={backend!r} starts a process per rank, at most {MAX_PROCESSES} of them; {n} "
            "ranks run on the simulator."
        )


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"distlab-{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Team:
    """The processes of one run."""

    def __init__(self, n: int, folder: Path, echo: bool):
        self._n = n
        self._folder = folder
        self._out = LabelledLines(n, sys.stdout, echo)
        self._err = LabelledLines(n, sys.stderr, echo)
        self._processes: list = []
        self._mail: list[Connection] = []
        self._reports: dict[int, tuple] = {}
        self._dead: dict[int, int] = {}  # rank -> exit code, of those that died without a report
        Board.create(folder / "board", n)
        self._board = Board(folder / "board", n)
        self.watcher = Watcher(self._board)

    # -- start ------------------------------------------------------------------------------------

    def start(self, job: Job, backend: str, timeout_s: float) -> None:
        """Starts all ranks."""
        shared, own = job.pack()
        orders = worker.Orders(
            n=self._n,
            backend=backend,
            timeout_s=timeout_s,
            folder=self._folder,
            sys_path=list(sys.path),
            cwd=os.getcwd(),
            threads=max(1, (os.cpu_count() or 1) // self._n),
            torch_state=torch.get_rng_state(),
            library_states=rankstate.read_libraries() if job.names_random else None,
            context=rankstate.CallerContext(),
            shared=shared,
        )
        file = self._folder / "orders"
        file.write_bytes(pickle.dumps(orders))
        with forkserver.context() as context:
            for rank in range(self._n):
                here, there = context.Pipe()
                process = context.Process(
                    target=worker.main, args=(rank, file, own[rank], there), daemon=True
                )
                process.start()
                there.close()
                self._processes.append(process)
                self._mail.append(here)

    # -- watch ------------------------------------------------------------------------------------

    def watch(self, timeout_s: float) -> BaseException | None:
        """Waits until all ranks have reported; returns what went wrong, if anything did."""
        deadline = time.monotonic() + timeout_s
        while len(self._reports) < self._n:
            failed = self._collect(_LOOK_S)
            if failed:
                self._grace()
                return self._root_cause()
            if time.monotonic() > deadline:
                return self._timeout(timeout_s)
            stuck = self.watcher.look()
            if stuck is not None:
                return stuck
        return None

    def _collect(self, timeout_s: float) -> bool:
        """Reads what ranks say; returns whether one of them has failed."""
        waiting = [r for r in range(self._n) if r not in self._reports and r not in self._dead]
        sources = {self._mail[r]: r for r in waiting}
        for source in wait(list(sources), timeout_s):  # a line that closes counts as readable
            self._read(sources[source])
        return bool(self._dead) or any(r[0] != worker.VALUE for r in self._reports.values())

    def _read(self, rank: int) -> None:
        mail = self._mail[rank]
        try:
            while mail.poll():
                kind, *content = mail.recv()
                if kind == worker.OUT:
                    self._out.add(rank, content[0])
                elif kind == worker.ERR:
                    self._err.add(rank, content[0])
                else:
                    self._reports[rank] = (kind, *content)
        except (EOFError, OSError):  # its end of the line is closed: it is gone
            if rank not in self._reports:
                process = self._processes[rank]
                process.join(_GRACE_S)
                self._dead[rank] = process.exitcode

    def _grace(self) -> None:
        """Gives other ranks a moment to report: the first to do so may be a mere witness."""
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and len(self._reports) + len(self._dead) < self._n:
            self._collect(_LOOK_S)

    def _root_cause(self) -> BaseException:
        """Picks, among all that failed, the rank that failed first by itself."""
        pending, finished = self.watcher.pending()
        bad = {r: report for r, report in self._reports.items() if report[0] != worker.VALUE}
        witnesses = {
            r for r, (kind, *rest) in bad.items() if kind == worker.RAISED and _is_witness(rest[1])
        }
        for rank in self._dead:
            error: BaseException = RankDiedError(_how_it_died(rank, self._dead[rank]))
            break
        else:
            rank = next((r for r in sorted(bad) if r not in witnesses), min(bad))
            kind, *content = bad[rank]
            if kind == worker.EXITED:
                error = RankExitedError(content[0])
            else:
                error = _rebuilt(rank, self._n, *content)
        note = reports.others(pending, finished, {rank})
        if note:
            error.add_note(note)
        return error

    def _timeout(self, timeout_s: float) -> DistError:
        pending, finished = self.watcher.pending()
        running = {}
        for rank in range(self._n):
            if pending[rank] is None and not finished[rank]:
                running[rank] = self._place_of(rank)
        return reports.timeout(timeout_s, running, pending, finished, ())

    def _place_of(self, rank: int) -> str:
        """Asks a process where it is: works inside C calls too."""
        path = self._folder / f"stack-{rank}"
        with contextlib.suppress(OSError):
            os.kill(self._processes[rank].pid, signal.SIGUSR1)
            deadline = time.monotonic() + 1
            while not path.read_text().endswith("\n") and time.monotonic() < deadline:
                time.sleep(0.01)
            return reports.place_in_stack(path.read_text())
        return ""

    # -- end --------------------------------------------------------------------------------------

    def end(self) -> None:
        """Ends every process: those that are done say goodbye, the others are killed."""
        self._out.close()
        self._err.close()
        done = len(self._reports) == self._n and not self._dead
        for rank, process in enumerate(self._processes):
            if done:
                with contextlib.suppress(OSError):
                    self._mail[rank].send("goodbye")
                process.join(5)
            if process.is_alive():
                _kill(process)
        for process, mail in zip(self._processes, self._mail, strict=True):
            process.join()
            process.close()
            mail.close()
        self._board.close()

    def result(self) -> Result:
        """Returns what the ranks returned."""
        values: list[Any] = []
        entries: list[Entry] = []
        for rank in range(self._n):
            _, sealed, booked = self._reports[rank]
            values.append(isolate.unpack(sealed))
            entries += booked
        return Result(values, Ledger(entries), self._out.texts())


def _kill(process) -> None:
    """Kills a rank and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # in case it had no group of its own yet


def _how_it_died(rank: int, code: int) -> str:
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"rank {rank} was killed by {name}{hint}; its process is gone."
    return (
        f"rank {rank} ended its process with exit code {code} instead of returning; look for "
        "os._exit, or for a crash in a library."
    )


def _is_witness(summary: str) -> bool:
    """Whether an error is only the echo of another rank's end."""
    return summary.startswith(("RuntimeError", "torch.distributed", "DistBackendError")) and any(
        word in summary for word in _CONNECTION_WORDS
    )


def _rebuilt(rank: int, n: int, packed: bytes | None, summary: str, text: str) -> BaseException:
    """The error that a rank raised, with its own traceback as a note."""
    error: BaseException | None = None
    if packed is not None:
        with contextlib.suppress(Exception):
            error = isolate.unpack(packed)
    if not isinstance(error, BaseException):
        error = DistError(f"rank {rank} raised {summary}")
    error.add_note(f"[raised on rank {rank} of {n}, in a process of its own]\n{text}")
    return error
