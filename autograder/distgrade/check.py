"""Grades one notebook without nbgrader's database: what `distgrade check` and the tests call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from distgrade.course import Course, CourseError, find_course, fresh_seeds
from distgrade.exercise import Exercise, load
from distgrade.kernel import Kernel
from distgrade.notebook import (
    NotebookError,
    exercise_of,
    grade_id,
    graded_cells,
    lab_of,
    nbgrader_of,
    read_notebook,
)
from distgrade.rebuild import Note, rebuild, submission_hash
from distgrade.runner import Limits, Run, run_notebook
from distgrade.verify import Outcome, grade

log = logging.getLogger("distgrade")

FAULT = (
    "This exercise could not be graded: a fault of the grader, not of the answer. Tell the staff."
)


OUTCOME_KEYS = ("id", "status", "points", "max_points", "message", "diagnosis")


@dataclass(frozen=True)
class Report:
    """The marks of one notebook, with a reason for every lost point."""

    lab: str
    exercises: tuple[Outcome, ...]
    notes: tuple[Note, ...] = ()

    @property
    def score(self) -> float:
        """The points earned."""
        return sum(o.points for o in self.exercises)

    @property
    def max_score(self) -> float:
        """The points that could be earned."""
        return sum(o.max_points for o in self.exercises)

    @property
    def full(self) -> bool:
        """Says whether every point was earned (and there was one to earn)."""
        return bool(self.exercises) and all(o.status == "passed" for o in self.exercises)

    def as_json(self) -> dict:
        """Returns the report as `distgrade check --json` prints it."""
        return {
            "lab": self.lab,
            "score": self.score,
            "max_score": self.max_score,
            "exercises": [
                {key: getattr(outcome, key) for key in OUTCOME_KEYS} for outcome in self.exercises
            ],
        }


def check_notebook(
    path: Path | str, *, course: Course | None = None, limits: Limits | None = None
) -> Report:
    """Returns the report on a notebook file.

    Raises NotebookError or CourseError, each one sentence, when the file can't be graded.
    """
    course = course or find_course()
    nb = read_notebook(path)
    lab = lab_of(nb, path)
    return check_submission(nb, read_release(course, lab), lab, course=course, limits=limits)


def check_submission(
    nb: NotebookNode,
    release: NotebookNode,
    lab: str,
    *,
    course: Course,
    limits: Limits | None = None,
    kernel: Callable[[], Kernel] = Kernel,
) -> Report:
    """Returns the report on a submission of this release."""
    built, notes = rebuild(nb, release)
    exercises = lab_rooms(built, lab)
    run = run_notebook(
        built, lab, exercises, seeds_for=seeds_for(course, built), limits=limits, kernel=kernel
    )
    outcomes = outcomes_of(built, lab, exercises, run)
    return Report(lab=lab, exercises=tuple(outcomes.values()), notes=tuple(notes))


def read_release(course: Course, lab: str) -> NotebookNode:
    """Returns the released notebook of a lab; the error says what to run when there is none."""
    if lab not in course.released_labs():
        known = ", ".join(course.released_labs()) or "none"
        if lab in course.labs():
            raise CourseError(f"release/ has no {lab} yet: run `distgrade release`.")
        raise NotebookError(f"there is no lab {lab} in this course (released labs: {known}).")
    return read_notebook(course.release(lab))


def lab_rooms(nb: NotebookNode, lab: str) -> list[Exercise]:
    """Returns the exercises of the notebook's test cells; one that can't be loaded is left out."""
    rooms = []
    for test_id in graded_cells(nb):
        try:
            rooms.append(load(exercise_of(test_id, lab)))
        except Exception:
            log.exception("the room of %s can't be loaded", test_id)
    return rooms


def seeds_for(course: Course, built: NotebookNode) -> Callable[[Exercise], Sequence[int]]:
    """Returns the seeds of a submission: the frozen one, then one that is its own."""
    secret, digest = course.secret(), submission_hash(built)
    return lambda exercise: (0, *fresh_seeds(secret, exercise.id, digest))


def outcomes_of(
    nb: NotebookNode, lab: str, exercises: Sequence[Exercise], run: Run
) -> dict[str, Outcome]:
    """Returns an outcome for every test cell, by exercise id, whatever goes wrong in between."""
    known = {e.id: e for e in exercises}
    outcomes = {}
    for test_id, cell in graded_cells(nb).items():
        name = exercise_of(test_id, lab)
        result = run.results.get(name)
        if name not in known or result is None:
            outcomes[name] = fault(name, cell)
        elif isinstance(result, Outcome):
            outcomes[name] = result
        else:
            try:
                outcomes[name] = grade(known[name], result)
            except Exception:
                log.exception("%s can't be graded", name)
                outcomes[name] = fault(name, cell)
    return outcomes


def fault(name: str, cell: NotebookNode) -> Outcome:
    """Returns the outcome of a test cell that our own mistake keeps from being graded."""
    points = nbgrader_of(cell).get("points", 0)
    points = float(points) if isinstance(points, int | float) else 0.0
    log.error("no verdict on %s (cell %s)", name, grade_id(cell))
    return Outcome(
        id=name, status="error", points=0.0, max_points=points, message=FAULT, diagnosis=""
    )
