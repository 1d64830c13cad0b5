"""How far somebody is: every exercise of the labs in a work folder, with what is known of it.

Read from notebooks and from what checks have left; nothing is run. The standard library is enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from distlab.learn import records

LAB = re.compile(r"lab\d\d-[a-z0-9-]+")
_TITLE = re.compile(r"^# Lab \d+ · (.+)$", re.M)
_TIME = re.compile(r"\*\*Time\*\* (.+?)\.(?=\s|$)")
_NEED = re.compile(r"\*\*You need\*\* (.+?)\.(?=\s|$)")
_HEADING = re.compile(r"^## ((?:Exercise \d+|Challenge|Practice) · .+)$", re.M)
_MOST_BYTES = 32 * 2**20

# What is known of an exercise, and in which words people read it.
STATES = {
    "passed": "passes",
    "partial": "partly right",
    "failed": "not right yet",
    "stale": "changed since it was checked",
    "visible": "visible cases pass",
    "unchecked": "not checked yet",
    "unwritten": "not written yet",
    "missing": "its cell is missing",
}


@dataclass(frozen=True)
class Exercise:
    """One exercise in somebody's notebook. `before`: the state of its latest, older answer."""

    id: str
    title: str
    state: str
    points: float
    max_points: float
    before: str = ""
    checked: str = ""  # when, in ISO form
    revealed: bool = False  # its solution was shown

    @property
    def challenge(self) -> bool:
        """Says whether the lab can be done without it."""
        return self.title.startswith("Challenge")


@dataclass(frozen=True)
class Lab:
    """One lab: its own words about time and needs, and its exercises in order."""

    name: str
    title: str
    time: str
    need: str
    exercises: tuple[Exercise, ...]
    problem: str = ""  # why its notebook can't be read

    @property
    def number(self) -> int:
        """The lab's number: 3 of lab03."""
        return int(self.name[3:5])

    @property
    def notebook(self) -> str:
        """The notebook's place in the work folder."""
        return f"{self.name}/{self.name}.ipynb"

    @property
    def points(self) -> float:
        """The points of all answers whose result is up to date."""
        return sum(e.points for e in self.exercises)

    @property
    def max_points(self) -> float:
        """The points that its checks can give; written answers are not counted."""
        return sum(e.max_points for e in self.exercises)

    def count(self, state: str, *, challenges: bool) -> int:
        """Returns how many exercises, or challenges, are in a state."""
        return sum(e.state == state and e.challenge == challenges for e in self.exercises)


def read_labs(work: Path, grader_of: Callable[[str], str] = lambda exercise: "") -> tuple[Lab, ...]:
    """Returns all labs of a work folder, in order.

    grader_of(exercise) is what would grade it now: a result by another one is an old result.
    Which exercises there are is told by `release/` beside the work folder, else by the copy itself.
    """
    names = {path.name for path in work.iterdir() if path.is_dir() and LAB.fullmatch(path.name)}
    return tuple(_read_lab(work, name, grader_of) for name in sorted(names))


def _read_lab(work: Path, name: str, grader_of: Callable[[str], str]) -> Lab:
    place = f"{name}/{name}.ipynb"
    problem = ""
    try:
        mine = _cells(work / place)
    except (OSError, ValueError) as error:
        mine, problem = [], f"{place} can't be read: {error}"
    try:
        whole = _cells(work.parent / "release" / place)
    except (OSError, ValueError):
        whole = mine
    head = "\n".join(text for _, _, text in whole[:2])
    texts = {name: text for name, _, text in reversed(whole) if name.endswith("-text")}
    answers = {name: text for name, _, text in reversed(mine)}
    lab = name.partition("-")[0]
    exercises = tuple(
        _read_exercise(
            work,
            f"{lab}.{test.removesuffix('-test')}",
            _found(_HEADING, texts.get(f"{test.removesuffix('-test')}-text", "")),
            answers.get(test.removesuffix("-test")),
            points,
            grader_of,
        )
        for test, points, _ in whole
        if points is not None and test.endswith("-test")
    )
    needs = _found(_NEED, head)
    return Lab(name, _found(_TITLE, head) or name, _found(_TIME, head), needs, exercises, problem)


def _read_exercise(work, exercise, title, answer, points, grader_of) -> Exercise:
    record = records.read_record(work, exercise)
    kept = record.results.get(records.digest(answer)) if answer is not None else None
    latest = list(record.results.values())[-1] if record.results else None
    before = checked = ""
    earned = 0.0
    if answer is None:
        state = "missing"
    elif kept is not None and kept.grader in ("", grader_of(exercise) or kept.grader):
        state = kept.status if kept.status in STATES else "failed"
        checked, earned = kept.when, min(kept.points, points)
    elif latest is not None:
        state, before = "stale", latest.status if latest.status in STATES else "failed"
        checked = latest.when
    else:
        state = "unwritten" if "is not written yet" in answer else "unchecked"
    return Exercise(
        exercise, title or exercise, state, earned, points, before, checked, record.revealed
    )


def _found(pattern: re.Pattern, text: str) -> str:
    match = pattern.search(text)
    return match[1].strip() if match else ""


def _cells(path: Path) -> list[tuple[str, float | None, str]]:
    """Returns (grade id, points of an automatic test or None, text) of a notebook's cells.

    Raises OSError or ValueError, with a few words, where the file is no notebook.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError("it is too large")
    try:
        nb = json.loads(path.read_text(encoding="utf-8"))
        return [_cell(cell) for cell in nb["cells"]]
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is no notebook") from None


def _cell(cell: dict) -> tuple[str, float | None, str]:
    meta = cell["metadata"].get("nbgrader", {})
    name, points = meta.get("grade_id", ""), None
    if meta.get("grade") and not meta.get("solution") and cell["cell_type"] == "code":
        points = float(meta.get("points", 0))
    source = cell["source"]
    return str(name), points, source if isinstance(source, str) else "".join(source)
