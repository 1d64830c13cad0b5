"""Compares what came back with the references, in the grader's own process, and gives a mark."""

from collections.abc import Sequence
from dataclasses import dataclass

from distgrade.engine import Observation
from distgrade.exercise import Exercise, GraderError


@dataclass(frozen=True)
class Outcome:
    """The mark of one exercise, with its reason.

    `status` is one of passed, partial, failed, not-written, error, timeout, missing.
    """

    id: str
    status: str
    points: float
    max_points: float
    message: str
    diagnosis: str


def grade(exercise: Exercise, observations: Sequence[Observation]) -> Outcome:
    """Return the mark that these observations earn."""
    raise GraderError("not written yet")
