"""Runs a rebuilt notebook in a fresh kernel and brings back what each exercise's objects did.

First the cells run without their tests, and what they show is taken. Then, in another kernel, they
run again, and at each test cell's position the exercise's harness runs instead of the cell: no
later cell changes an earlier mark, and none can show what the harness holds. A cell that raises,
hangs or kills the kernel costs no more than itself: the kernel is started again and the cells above
are replayed without the one that killed it.

What student code in the kernel can fake, and what not. It shares the process with the harness, so
it may read the harness, patch torch, distlab or IPython, and publish records of its own; the nonce
only keeps records of earlier cells out. But all it can publish are raw answers: no reference and no
verdict is there, the fresh seeds are unknown until the harness runs, and the right values still
have to be computed. What can be forged is *how*: bytes in the ledger, unchanged inputs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nbformat import NotebookNode

from distgrade.engine import MIME, Observation, harness_source, parse_records
from distgrade.exercise import Exercise
from distgrade.notebook import exercise_of, grade_id, is_skipped, is_test
from distgrade.outputs import Collector, plain
from distgrade.rebuild import is_students
from distgrade.running.kernel import End, Kernel
from distgrade.verify import Outcome

MAX_STARTS = 12
MAX_RECORDS_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds. Generous: a class is graded on a busy machine."""

    cell_s: float = 30.0
    exercise_s: float = 90.0
    notebook_s: float = 1200.0


@dataclass
class Run:
    """What came back: per exercise observations or a reason, per cell what it showed."""

    results: dict[str, list[Observation] | Outcome] = field(default_factory=dict)
    outputs: dict[int, list[NotebookNode]] = field(default_factory=dict)


def run_notebook(
    nb: NotebookNode,
    lab: str,
    exercises: Sequence[Exercise],
    *,
    seeds_for: Callable[[Exercise], Sequence[int]],
    limits: Limits | None = None,
    kernel: Callable[[], Kernel] = Kernel,
    show: bool = True,
) -> Run:
    """Returns observations, or an Outcome that says why there are none, for every exercise.

    With `show` also what the cells showed. Raises GraderError when no kernel can be started at all.
    """
    known = {e.id: e for e in exercises}
    session = _Session(nb, lab, known, seeds_for, limits or Limits(), kernel, show)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return session.run()
    # Inside a server's event loop (formgrader): jupyter_client needs a thread without one.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(session.run).result()


class _Session:
    def __init__(self, nb, lab, exercises: Mapping[str, Exercise], seeds_for, limits, kernel, show):
        self.nb, self.lab, self.exercises = nb, lab, exercises
        self.seeds_for, self.limits, self.new_kernel, self.show = seeds_for, limits, kernel, show
        self.run_ = Run()
        self.ends: dict[int, End] = {}  # how each cell ended, by position
        self.deadly: set[int] = set()  # those that the kernel did not survive
        self.kernel: Kernel | None = None
        self.starts = 0
        self.deadline = time.monotonic() + limits.notebook_s

    def run(self) -> Run:
        try:
            if self.show:
                self._show()
            for place, cell in enumerate(self.nb.cells):
                if is_test(cell):
                    exercise = self.exercises.get(exercise_of(grade_id(cell) or "", self.lab))
                    if exercise is not None and exercise.id not in self.run_.results:
                        self.run_.results[exercise.id] = self._grade(exercise, place)
                elif self._runs(cell) and place not in self.deadly:
                    self._cell(place, Collector())
        finally:
            self._close()
        for exercise in self.exercises.values():
            self.run_.results.setdefault(
                exercise.id, _outcome(exercise, "missing", "The notebook has no test cell for it.")
            )
        return self.run_

    # --- cells -------------------------------------------------------------------------------

    @staticmethod
    def _runs(cell: NotebookNode) -> bool:
        code = cell.cell_type == "code" and not is_test(cell)
        return code and not is_skipped(cell) and bool(cell.source.strip())

    def _show(self) -> None:
        """Takes what the cells show, in a kernel that no harness was in: they could show it."""
        for place, cell in enumerate(self.nb.cells):
            if self._runs(cell):
                self.run_.outputs[place] = self._cell(place, Collector()).outputs
        self._close()
        self.starts = 0

    def _cell(self, place: int, collector: Collector) -> Collector:
        self.ends[place] = end = self._ready(place) or self._execute(place, collector)
        if not end.ran:
            collector.problem(*_told(end, self.limits.cell_s))
            if self.kernel is None or not self.kernel.alive:
                self.deadly.add(place)
        return collector

    def _execute(self, place: int, collector: Collector) -> End:
        end = self.kernel.execute(
            self.nb.cells[place].source, collector.take, timeout_s=self._time(self.limits.cell_s)
        )
        if end.state == "died":
            self._close()
        return end

    def _ready(self, place: int) -> End | None:
        """Sees to a kernel in which every cell above `place` ran; returns why there is none."""
        while self._time(1.0) > 0:
            if self.kernel is not None and self.kernel.alive:
                return None
            self._close()
            if self.starts >= MAX_STARTS:
                return End("died", text="the kernel was ended too often")
            self.starts += 1
            self.kernel = self.new_kernel().__enter__()
            for above in sorted(p for p, end in self.ends.items() if p < place and end.ran):
                end = self._execute(above, Collector())
                if not end.ran:  # it killed the kernel this time: leave it out from now on
                    self.ends[above] = end
                if self.kernel is None or not self.kernel.alive:
                    break
        return End("timeout")  # of the notebook as a whole

    def _time(self, wanted_s: float) -> float:
        return min(wanted_s, self.deadline - time.monotonic())

    def _close(self) -> None:
        if self.kernel is not None:
            self.kernel.close()
            self.kernel = None

    # --- exercises ---------------------------------------------------------------------------

    def _grade(self, exercise: Exercise, place: int) -> list[Observation] | Outcome:
        broken = self._ready(place)
        if broken is not None:
            return _outcome(exercise, _status(broken), _sentence(broken, "It was not reached"))
        seeds = tuple(self.seeds_for(exercise))
        nonce = secrets.token_hex(16)
        bundles: list[dict] = []
        size = 0

        def take(kind: str, content: dict) -> None:
            nonlocal size
            data = content.get("data")
            if kind == "display_data" and isinstance(data, dict) and MIME in data:
                size += len(repr(data))
                if size <= MAX_RECORDS_BYTES:
                    bundles.append(data)

        end = self.kernel.execute(
            harness_source(exercise, seeds, nonce),
            take,
            timeout_s=self._time(self.limits.exercise_s),
            silent=True,
        )
        if end.state == "died" and "exit()" not in end.text:
            self._close()
            return _outcome(
                exercise,
                "error",
                f"While {_names(exercise)} ran, {end.text}. Nothing can be graded.",
            )
        if not self.kernel.alive or end.state == "died":
            self._close()
        observations = parse_records(exercise, seeds, nonce, bundles)
        kinds = {o.error.kind for o in observations if o.error is not None}
        if end.state in ("timeout", "flood") and "no-record" in kinds:
            seconds = self.limits.exercise_s
            return _outcome(
                exercise, _status(end), _sentence(end, f"{_names(exercise)} was stopped", seconds)
            )
        if all(o.error is not None and o.error.kind == "missing" for o in observations):
            return self._why_missing(exercise, place) or observations
        return observations

    def _why_missing(self, exercise: Exercise, place: int) -> Outcome | None:
        """Returns the better reason, when the cell that should define the names did not finish."""
        cells = self.nb.cells
        own = [p for p in range(place) if grade_id(cells[p]) == exercise.name]
        before = max((p for p in range(place) if is_test(cells[p])), default=-1)
        added = [p for p in range(before + 1, place) if is_students(cells[p])]
        for at in [*own, *added]:
            end = self.ends.get(at)
            if end is not None and end.state != "ok":
                where = f"The cell `{exercise.name}`" if at in own else "A cell above the test"
                return _outcome(
                    exercise, _status(end), _sentence(end, where, self.limits.cell_s, cell=True)
                )
        return None


def _outcome(exercise: Exercise, status: str, message: str) -> Outcome:
    return Outcome(
        id=exercise.id,
        status=status,
        points=0.0,
        max_points=float(exercise.points),
        message=message,
        diagnosis="",
    )


def _status(end: End) -> str:
    return "timeout" if end.state == "timeout" else "error"


def _names(exercise: Exercise) -> str:
    return " and ".join(f"`{name}`" for name in exercise.names)


def _told(end: End, seconds: float) -> tuple[str, str]:
    if end.state == "timeout":
        return "TimeoutError", f"this cell ran for longer than {seconds:g} s and was stopped."
    if end.state == "flood":
        return "OutputError", "this cell printed far too much and was stopped."
    return "KernelDied", f"this cell was left out, because {end.text}."


def _sentence(end: End, what: str, seconds: float = 0.0, *, cell: bool = False) -> str:
    if end.state == "timeout":
        limit = f" after {seconds:g} s" if seconds else ""
        return f"{what}{' was stopped' if cell else ''}{limit}: it takes too long, or never ends."
    if end.state == "flood":
        return f"{what}{' was stopped' if cell else ''}: it prints far too much."
    if end.state == "died":
        return f"{what}{' was left out' if cell else ''}: {end.text}."
    text = plain(end.text.splitlines()[0] if end.text else "", 300)
    return f"{what} stopped with {end.name or 'an error'}{': ' + text if text else ''}."
