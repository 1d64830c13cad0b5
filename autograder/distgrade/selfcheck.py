"""Grades in the running process: the check button of a self-learner, and stock nbgrader's cells.

The same cases, the same wall and the same verdict as `distgrade check`; only the fresh seed is a
fixed one, so that asking twice gives the same answer.
"""

from collections.abc import Sequence
from fractions import Fraction

from distgrade.engine import Observation, observe_here
from distgrade.exercise import Exercise, load
from distgrade.learning import version
from distgrade.patience import TookTooLong, bounded
from distgrade.references import FROZEN_SEED
from distgrade.verify import Outcome
from distgrade.verify import grade as verdict

CHECK_SEED = 1_307


def check(exercise_id: str, objects: Sequence) -> None:
    """Grade the objects in full and print one line: the entry point of `distlab.checker`.

    Raises: distlab.errors.CheckFailed, three calm lines at most, on less than full marks.
    """
    from distlab.errors import CheckFailed
    from distlab.learn.records import note

    try:
        with bounded(exercise_id):
            outcome, observations = _graded(exercise_id, objects)
    except TookTooLong as error:
        note(exercise_id, objects, "timeout", grader=version(exercise_id))
        raise CheckFailed(f"{exercise_id}: {error}") from None
    points = {"points": outcome.points, "max_points": outcome.max_points}
    note(exercise_id, objects, outcome.status, **points, grader=version(exercise_id))
    if outcome.status != "passed":
        raise CheckFailed("\n".join(outcome.lines))
    print(f"{exercise_id}: {outcome.message}{_measured(load(exercise_id), observations)}")


def grade(exercise_id: str, *objects) -> float:
    """Return the points as a plain float, for the hidden region of a test cell.

    Writes to stdout only, since stock nbgrader takes all marks for a word on stderr.
    Raises: distlab.errors.CheckFailed where no point is earned, and practice is not passed.
    """
    from distlab.errors import CheckFailed

    outcome, _ = _graded(exercise_id, objects)
    if outcome.points <= 0 and outcome.status != "passed":
        raise CheckFailed("\n".join(outcome.lines))
    print("\n".join(outcome.lines))
    return float(outcome.points)


def _graded(exercise_id: str, objects: Sequence) -> tuple[Outcome, list[Observation]]:
    exercise = load(exercise_id)
    observations = observe_here(exercise, tuple(objects), (FROZEN_SEED, CHECK_SEED))
    return verdict(exercise, observations), observations


def _measured(exercise: Exercise, observations: Sequence[Observation]) -> str:
    """Return what the last case measured of bytes sent, as a sentence, or ""."""
    last = observations[-1]
    if not isinstance(last.tree, dict):
        return ""
    for key, sent in last.tree.items():
        if "ring_bytes" in key and isinstance(sent, list):
            numbers = [s for s in sent if isinstance(s, Fraction | int)]
            if numbers and max(numbers):
                n = len(sent)
                return f" On {n} ranks, each sends at most {float(max(numbers)):,.10g} bytes."
    return ""
