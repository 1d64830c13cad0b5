"""The verdicts on one submission, reached once: by running it, or from what was kept of a run.

What is kept is keyed by content: the student's code, the release, and what graded it. A submission
that did not change is not run again; where one exercise's grader changed, only that one is. So a
class can be run by several processes, and nbgrader's own command then only writes the marks down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

import distlab
from distgrade.course import Course, fresh_seeds
from distgrade.exercise import Exercise
from distgrade.notebook import distlab_of, exercise_of, grade_id, graded_cells, nbgrader_of
from distgrade.rebuild import submission_hash
from distgrade.rooms import room_of
from distgrade.running.kernel import Kernel
from distgrade.running.runner import Limits, Run, run_notebook
from distgrade.verify import Outcome, grade
from distlab.files import write_whole

log = logging.getLogger("distgrade")

FORM = 1  # of what is kept; another form is not read
FAULT = (
    "This exercise could not be graded: a fault of the grader, not of the answer. Tell the staff."
)


@dataclass(frozen=True)
class Graded:
    """What one submission earned and showed: outcomes by exercise id, outputs by cell position."""

    outcomes: Mapping[str, Outcome]
    outputs: Mapping[int, list[NotebookNode]]


def grade_built(
    built: NotebookNode,
    lab: str,
    course: Course,
    *,
    limits: Limits | None = None,
    kernel: Callable[[], Kernel] = Kernel,
    keep: bool = False,
    show: bool = True,
) -> Graded:
    """Returns the verdicts on a rebuilt submission; with `keep`, from what is kept where it holds.

    Without `show` there are no outputs, and the cells run once less. Raises GraderError when no
    kernel can be started.
    """
    kept = read(course, lab, built) if keep else None
    rooms = _rooms(course, lab, built)
    todo = [test for test, room in rooms.items() if kept is None or not kept.has(room)]
    if kept is not None and not todo:
        return kept.graded
    left = {test: rooms[test] for test in todo}
    shown = kept is not None and len(left) < len(rooms)  # by this very grader
    how = {"limits": limits, "kernel": kernel, "show": show and not shown}
    run, found = _run(built, lab, course, left, **how)
    if kept is not None:
        found = {**kept.graded.outcomes, **found}
    order = [exercise_of(test, lab) for test in rooms]
    outputs = kept.graded.outputs if shown else run.outputs
    graded = Graded({name: found[name] for name in order}, outputs)
    if keep:
        write(course, lab, built, graded, {r.id: fingerprint(r) for r in rooms.values() if r})
    return graded


def _rooms(course: Course, lab: str, built: NotebookNode) -> dict[str, Exercise | None]:
    """Returns the room of each test cell, or None where it can't be loaded."""
    rooms: dict[str, Exercise | None] = {}
    for test in graded_cells(built):
        try:
            rooms[test] = room_of(course, lab, built, test)
        except Exception:
            log.exception("the room of %s can't be loaded", test)
            rooms[test] = None
    return rooms


def _run(built, lab, course, rooms, **how) -> tuple[Run, dict[str, Outcome]]:
    secret, digest = course.secret(), submission_hash(built)
    run = run_notebook(
        built,
        lab,
        [room for room in rooms.values() if room is not None],
        seeds_for=lambda exercise: (0, *fresh_seeds(secret, exercise.id, digest)),
        **how,
    )
    cells = graded_cells(built)
    found = {}
    for test, room in rooms.items():
        name = exercise_of(test, lab)
        found[name] = verdict_on(room, name, run) or fault(name, cells[test])
    return run, found


def verdict_on(room: Exercise | None, name: str, run: Run) -> Outcome | None:
    """Returns the outcome of one exercise, or None when there is none by our own mistake."""
    result = run.results.get(name)
    if room is None or result is None or isinstance(result, Outcome):
        return result if room is not None else None
    try:
        return grade(room, result)
    except Exception:
        log.exception("%s can't be graded", name)
        return None


def fault(name: str, cell: NotebookNode) -> Outcome:
    """Returns the outcome of a test cell that our own mistake keeps from being graded."""
    points = nbgrader_of(cell).get("points", 0)
    points = float(points) if isinstance(points, int | float) else 0.0
    log.error("no verdict on %s (cell %s)", name, grade_id(cell))
    return Outcome(
        id=name, status="error", points=0.0, max_points=points, message=FAULT, diagnosis=""
    )


# --- what is kept ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Verdicts of an earlier run, and what each was reached by."""

    graded: Graded
    graders: Mapping[str, str]  # exercise id -> fingerprint of what graded it

    def has(self, room: Exercise | None) -> bool:
        """Says whether the verdict on an exercise is what this room would say."""
        if room is None or room.id not in self.graded.outcomes:
            return False
        return self.graders.get(room.id) == fingerprint(room)


def anything_kept(course: Course, lab: str) -> bool:
    """Says whether there is any verdict on this lab."""
    return any(_folder(course, lab).glob("*.json"))


def _folder(course: Course, lab: str) -> Path:
    return course.root / ".distgrade" / "verdicts" / lab


def where(course: Course, lab: str, built: NotebookNode) -> Path:
    """Returns the file that keeps the verdicts on a rebuilt submission."""
    edition = str(distlab_of(built).get("release", ""))[:12]
    name = f"{submission_hash(built)}-{edition}.json"
    return _folder(course, lab) / name


def read(course: Course, lab: str, built: NotebookNode) -> Kept | None:
    """Returns what is kept of this submission, or None; a damaged file is as good as none."""
    try:
        told = json.loads(where(course, lab, built).read_text("utf-8"))
        if told["form"] != FORM:
            return None
        outputs = {
            int(place): [nbformat.from_dict(output) for output in shown]
            for place, shown in told["outputs"].items()
        }
        outcomes = {name: Outcome(**outcome) for name, outcome in told["outcomes"].items()}
        return Kept(Graded(outcomes, outputs), told["graders"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(
    course: Course, lab: str, built: NotebookNode, graded: Graded, graders: Mapping[str, str]
) -> None:
    """Keeps verdicts, but none that is the grader's own fault. Raises OSError on a full disk."""
    sound = {n: o for n, o in graded.outcomes.items() if o.message != FAULT}
    told = {
        "form": FORM,
        "graders": {name: graders[name] for name in sound},
        "outcomes": {name: asdict(outcome) for name, outcome in sound.items()},
        "outputs": graded.outputs,
    }
    write_whole(where(course, lab, built), json.dumps(told, ensure_ascii=False))


@cache
def _core() -> str:
    """Returns a fingerprint of the grader itself and of the library that answers run on."""
    digest = hashlib.sha256()
    for root in (Path(__file__).parent, *map(Path, distlab.__path__)):
        for path in sorted(root.rglob("*.py")):
            if "labs" not in path.relative_to(root).parts:
                digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def fingerprint(room: Exercise) -> str:
    """Returns what stands for an exercise's grader: its room, what its lab's rooms share, the core.

    Read once in a process, as the room is.
    """
    digest = hashlib.sha256(_core().encode())
    shared = sorted(room.path.parent.glob("_*.py"))
    for path in (room.path, room.path.with_suffix(".safetensors"), *shared):
        with contextlib.suppress(FileNotFoundError):
            digest.update(path.name.encode() + path.read_bytes())
    for case in room.cases[len(room.frozen_cases) :]:
        digest.update(repr((case.group, str(case.expects), sorted(case.params().items()))).encode())
    return digest.hexdigest()[:32]
