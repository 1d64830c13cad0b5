"""Ranks as threads of one process, of which exactly one runs at a time.

A rank runs until it must wait, then hands the baton to the next rank that can go on. So results,
prints and random numbers are the same in every run, sums are taken in rank order, and a deadlock
is a plain fact: somebody waits and nobody can run.

Cost: one hand-over per rank and collective (figures: lib/benchmarks).
"""

import contextlib
import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from distlab import isolate, reports
from distlab.clock import Clock
from distlab.errors import RankCancelled, RankExitedError
from distlab.hardware import Cluster
from distlab.job import Job
from distlab.ledger import Entry, Ledger, ring_bytes
from distlab.prints import RankStdout
from distlab.rankstate import CallerContext, RandomStates
from distlab.reports import Call
from distlab.result import Result
from distlab.simcomm import Group, SimComm

_UNWIND_S = 1.0  # how long the ranks of a failed run may take to unwind before they are given up


def run(
    fn: Callable,
    n: int,
    args: tuple,
    kwargs: dict,
    *,
    order: str,
    timeout_s: float,
    echo: bool,
    cluster: Cluster | None = None,
) -> Result:
    """Runs `fn` on n simulated ranks; see `distlab.launch.run`."""
    __tracebackhide__ = True
    job = Job(fn, n, args, kwargs)
    clock = None if cluster is None else Clock(n, cluster)
    world = World(n, order=order, libraries_too=job.names_random, clock=clock)
    everyone = Group(tuple(range(n)))

    def body(rank: int) -> Any:
        own_fn, own_args, own_kwargs = job.load(rank)
        value = own_fn(SimComm(world, everyone, rank), *own_args, **own_kwargs)
        if world.open_calls[rank]:
            raise reports.never_waited(rank, list(world.open_calls[rank]))
        return isolate.carry_out(value, rank)

    rank_of_thread: dict[int, int] = {}
    stdout = RankStdout(sys.stdout, rank_of_thread, n, echo)
    error: BaseException | None = None
    with stdout:
        try:
            world.start(body, rank_of_thread)
            if not world.wait_over(timeout_s):
                error = world.time_out(timeout_s)
        except KeyboardInterrupt as interrupt:  # the caller's, in the main thread
            error = interrupt
            error.add_note(reports.others(world.pending, world.finished, ()))
        finally:
            error = error or world.failure
            if error is not None or not world.over.is_set():
                world.cancel()
            world.restore_random_state()
    if error is not None:
        raise isolate.caller_class(error)
    timeline = None if clock is None else clock.timeline()
    return Result(world.values, Ledger(world.entries()), stdout.lines.texts(), timeline)


class World:
    """The ranks of one run and the baton that goes between them."""

    def __init__(self, n: int, *, order: str, libraries_too: bool, clock: Clock | None = None):
        self.n = n
        self.order = order
        self.clock = clock
        self.failure: BaseException | None = None
        self.running = 0  # the rank that holds the baton
        self.values: list[Any] = [None] * n
        self.pending: list[Call | None] = [None] * n
        self.finished = [False] * n
        # calls whose handles have not been waited for, by rank, in the order of their launch
        self.open_calls: list[dict[Call, None]] = [{} for _ in range(n)]
        self.over = threading.Event()
        self.threads: list[threading.Thread] = []
        self._cancelled = False
        # direct bytes: what is sent, for operations whose traffic is no fixed share of the payload
        self._books: dict[tuple[int, str, tuple[int, ...]], list[int]] = {}
        self._batons = [threading.Lock() for _ in range(n)]
        for baton in self._batons:
            baton.acquire()
        self._ready: deque[int] = deque(range(1, n))
        self._random = RandomStates(n, libraries_too)

    # -- what communicators call ------------------------------------------------------------------

    def wait(self, rank: int, call: Call) -> None:
        """Blocks `rank` in `call` until another rank completes it."""
        self.pending[rank] = call
        if not self._ready:
            self.fail(reports.deadlock(self.pending, self.finished))
        self._random.leave(rank)
        self._hand_over()
        self._batons[rank].acquire()
        self.check_alive()
        self._random.enter(rank)

    def complete(self, ranks: Sequence[int]) -> None:
        """Lets waiting ranks go on, after those that became ready before them."""
        for rank in ranks:
            self.pending[rank] = None
        self._ready.extend(ranks)

    def check_alive(self) -> None:
        """Unwinds the calling rank if the run has failed meanwhile."""
        if self.failure is not None or self._cancelled:
            raise RankCancelled

    def fail(self, error: BaseException) -> NoReturn:
        """Ends the run with `error` and unwinds the calling rank."""
        if self.failure is None:
            self.failure = error
        self.over.set()
        raise RankCancelled

    def row(self, rank: int, op: str, ranks: tuple[int, ...]) -> list[int]:
        """Returns the ledger's row to add to: [calls, payload bytes, direct bytes]."""
        return self._books.setdefault((rank, op, ranks), [0, 0, 0])

    def entries(self) -> list[Entry]:
        """Returns the ledger's rows."""
        return [
            Entry(rank, op, ranks, calls, size, ring_bytes(op, len(ranks), size, direct))
            for (rank, op, ranks), (calls, size, direct) in self._books.items()
        ]

    # -- the ranks' threads -----------------------------------------------------------------------

    def start(self, body: Callable[[int], Any], rank_of_thread: dict[int, int]) -> None:
        """Starts one thread per rank, noted in `rank_of_thread`; rank 0 runs first."""
        context = CallerContext()
        for rank in range(self.n):
            thread = threading.Thread(
                target=self._live, args=(rank, body, context), name=f"rank {rank}", daemon=True
            )
            self.threads.append(thread)
            thread.start()
            rank_of_thread[thread.ident] = rank
        self._batons[0].release()

    def _live(self, rank: int, body: Callable[[int], Any], context: "CallerContext") -> None:
        with contextlib.suppress(RankCancelled):
            self._batons[rank].acquire()
            try:
                self.check_alive()
                self._random.enter(rank)
                with context.entered():
                    self.values[rank] = body(rank)
            except RankCancelled:
                pass
            except SystemExit as error:
                self._record(rank, reports.exited(rank, error))
            except BaseException as error:
                self._record(rank, reports.without_our_frames(error))
            self._leave(rank)

    def _record(self, rank: int, error: BaseException) -> None:
        """Keeps the first failure, with what the other ranks were doing."""
        if self.failure is None and not self._cancelled:
            note = reports.others(self.pending, self.finished, {rank})
            if not isinstance(error, RankExitedError):
                note = f"[raised on rank {rank} of {self.n}]\n{note}"
            error.add_note(note.rstrip())
            self.failure = error

    def _leave(self, rank: int) -> None:
        self.finished[rank] = True
        everyone = all(self.finished) if not self._ready else False
        if self.failure is None and not self._cancelled and not self._ready and not everyone:
            self.failure = reports.deadlock(self.pending, self.finished)
        if self.failure is not None or everyone:
            self.over.set()
        elif not self._cancelled:
            self._random.leave(rank)
            self._hand_over()

    def _hand_over(self) -> None:
        self.running = following = self._ready.popleft()
        self._batons[following].release()

    # -- the end ----------------------------------------------------------------------------------

    def wait_over(self, timeout_s: float) -> bool:
        """Waits for the end of the run, in slices, so that an interrupt is always noticed."""
        deadline = time.monotonic() + timeout_s
        while not self.over.is_set() and (left_s := deadline - time.monotonic()) > 0:
            self.over.wait(min(left_s, 0.25))
        return self.over.is_set()

    def time_out(self, timeout_s: float) -> BaseException:
        """Stops a run that takes too long; returns the error that says where it was."""
        running, pending, finished = self.running, list(self.pending), list(self.finished)
        frame = sys._current_frames().get(self.threads[running].ident)
        if self.over.is_set():  # it ended meanwhile
            return self.failure
        places = {running: reports.outside(frame)}
        return reports.timeout(timeout_s, places, pending, finished, self.cancel())

    def cancel(self) -> list[int]:
        """Unwinds every rank that still lives; returns those that could not be stopped."""
        self._cancelled = True
        for baton in self._batons:
            if baton.locked():
                baton.release()
        alive = list(enumerate(self.threads))
        deadline = time.monotonic() + _UNWIND_S
        pause_s = 0.0 if self.failure is None else 0.05  # a failed run unwinds by itself at first
        while alive and time.monotonic() < deadline:
            for _, thread in alive:
                thread.join(pause_s)
            pause_s = 0.01
            alive = [(rank, thread) for rank, thread in alive if thread.is_alive()]
            for _, thread in alive:  # again and again: a bare `except:` may swallow it
                _raise_in(thread, RankCancelled)
        return [rank for rank, thread in alive if thread.is_alive()]

    def restore_random_state(self) -> None:
        """Gives the caller its random state back, as if the ranks had been processes."""
        self._random.restore()


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raises `error` in another thread, at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error)
    )
