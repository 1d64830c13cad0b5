"""A teacher's own cases, in a folder that is never released: `private/<lab>/<exercise>.py`.

A public repository can't hide its tests; these are the ones a class has not seen. Such a file holds
`CASES`, a tuple of rows like those of the exercise's room, in groups that the room has: so no point
is added or moved, and a group is earned if the room's cases and these pass. The room makes the
inputs and its oracle the answers, at the moment of grading. Without the folder nothing changes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from distgrade import references
from distgrade.course import Course, CourseError, lab_prefix
from distgrade.engine import observe_here
from distgrade.exercise import Answer, Case, Exercise, GraderError, RoomError, load
from distgrade.verify import symptoms_of

FOLDER = "private"


def files(course: Course, lab: str) -> dict[str, Path]:
    """Returns the files of a lab's own cases by exercise id.

    Raises CourseError for one that belongs to no exercise: it would be forgotten in silence.
    """
    found = {}
    for path in sorted((course.root / FOLDER / lab).glob("*.py")):
        exercise_id = f"{lab_prefix(lab)}.{path.stem}"
        try:
            load(exercise_id)
        except LookupError:
            name = path.relative_to(course.root)
            raise CourseError(f"{name}: there is no exercise {exercise_id}.") from None
        found[exercise_id] = path
    return found


def labs(course: Course) -> list[str]:
    """Returns the labs that have own cases.

    Raises CourseError for a folder that is no lab's.
    """
    above = course.root / FOLDER
    names = sorted(p.parent.name for p in above.glob("*/*.py")) if above.is_dir() else []
    stray = [n for n in names if n not in course.released_labs()]
    stray += [p.name for p in above.glob("*.py")]
    if stray:
        raise CourseError(f"{FOLDER}/{stray[0]}: this course has no such lab.")
    return list(dict.fromkeys(names))


@cache
def with_own_cases(course: Course, exercise: Exercise) -> Exercise:
    """Returns the exercise with the teacher's cases after the room's; the same one without any.

    Raises RoomError, one sentence, for a file that can't be used.
    """
    path = course.root / FOLDER / exercise.lab / f"{exercise.name}.py"
    if not path.is_file():
        return exercise
    name = path.relative_to(course.root).as_posix()
    cases = _read(path, name)
    for case in cases:
        _fits(case, exercise, name)
    if len({c.name for c in (*exercise.cases, *cases)}) < len(exercise.cases) + len(cases):
        raise RoomError(f"{name}: two cases have one name, here or in the room.")
    whole = replace(exercise, cases=(*exercise.cases, *cases), own=len(cases))
    for index in range(len(exercise.cases), len(whole.cases)):
        try:
            references.expected(whole, index, references.FROZEN_SEED)
        except GraderError as error:
            raise RoomError(f"{name}: {error}") from None
    return whole


def _read(path: Path, name: str) -> tuple[Case, ...]:
    spec = importlib.util.spec_from_file_location(f"distgrade_private_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec"), vars(module))  # leaves no .pyc
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else ""
        raise RoomError(f"{name} can't be read: {type(error).__name__}: {said}") from None
    cases = getattr(module, "CASES", None)
    if not isinstance(cases, tuple | list) or not all(isinstance(c, Case) for c in cases):
        raise RoomError(f"{name}: it has no CASES, a tuple of Case(...).")
    return tuple(cases)


def _fits(case: Case, exercise: Exercise, name: str) -> None:
    """Raises RoomError if a case has no group, or other parameters than the room's."""
    if case.group not in exercise.credit:
        groups = ", ".join(exercise.credit)
        raise RoomError(f"{name}: case {case.name!r} is in no group of the room ({groups}).")
    shapes = [set(c.params()) for c in exercise.cases if c.group == case.group]
    if set(case.params()) not in shapes:
        wanted = ", ".join(sorted(shapes[0] - {"name"}))
        raise RoomError(f"{name}: case {case.name!r} needs the parameters {wanted}.")


# --- what own cases are worth -----------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """What one own case says of the answers that the room knows."""

    exercise: str
    case: str
    refused: tuple[str, ...]  # right answers that it wrongly fails
    caught: tuple[str, ...]  # wrong answers that it fails
    of: int  # wrong answers in all


def try_out(course: Course, lab: str) -> Iterator[Tried]:
    """Yields each own case of a lab with the known answers that it fails, right ones and wrong."""
    for exercise_id in files(course, lab):
        whole = with_own_cases(course, load(exercise_id))
        for index in range(len(whole.frozen_cases), len(whole.cases)):
            right = [a.name for a in whole.also_right if _fails(whole, index, a)]
            wrong = [a.name for a in whole.wrong if _fails(whole, index, a)]
            name = whole.cases[index].name
            yield Tried(whole.id, name, tuple(right), tuple(wrong), len(whole.wrong))


def _fails(exercise: Exercise, index: int, answer: Answer) -> bool:
    (seen,) = observe_here(exercise, answer.objects(), only=index)
    expected = references.expected(exercise, index, references.FROZEN_SEED)
    return bool(symptoms_of(exercise, seen, expected))
