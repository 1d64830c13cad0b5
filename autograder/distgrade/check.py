"""Grades one notebook without nbgrader's database: what `distgrade check` and the tests call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from distgrade.course import Course, CourseError, find_course
from distgrade.editions import edition_of, fitted
from distgrade.notebook import NotebookError, lab_of, read_notebook, read_release_file
from distgrade.rebuild import Note, rebuild
from distgrade.running.kernel import Kernel
from distgrade.running.runner import Limits
from distgrade.verdicts import grade_built
from distgrade.verify import Outcome

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
    release = edition_for(course, lab, nb)
    return check_submission(nb, release, lab, course=course, limits=limits)


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
    graded = grade_built(built, lab, course, limits=limits, kernel=kernel, show=False)
    return Report(lab=lab, exercises=tuple(graded.outcomes.values()), notes=tuple(notes))


def edition_for(course: Course, lab: str, submission: NotebookNode) -> NotebookNode:
    """Returns the release that a submission is graded by: the one it was made from, if known."""
    present = read_release(course, lab)
    edition = edition_of(course, lab, submission, present)
    return present if edition is None else fitted(edition, present)


def read_release(course: Course, lab: str) -> NotebookNode:
    """Returns the released notebook of a lab; the error says what to run when there is none."""
    if lab not in course.released_labs():
        known = ", ".join(course.released_labs()) or "none"
        if lab in course.labs():
            raise CourseError(f"release/ has no {lab} yet: run `distgrade release`.")
        raise NotebookError(f"there is no lab {lab} in this course (released labs: {known}).")
    return read_release_file(course.release(lab))
