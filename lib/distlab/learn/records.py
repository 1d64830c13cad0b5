"""What is known of a learner's tries at an exercise, kept in `work/.progress` by content.

A result belongs to the text of the answer that earned it. So a notebook whose answer has changed
since shows that its result is an old one, and an answer that is put back has its result again.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import linecache
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from distlab.files import write_whole

FOLDER = ".progress"  # in the work folder, hidden from JupyterLab's file list
MARK = ".released.json"  # the note of what was copied into a work folder makes it one
EXERCISE = re.compile(r"lab\d\d\.[a-z][a-z0-9_]*")
FORM = 1
MOST = 200  # answers of one exercise whose results are remembered
STATUSES = ("passed", "partial", "failed", "error", "timeout", "missing", "visible")


@dataclass(frozen=True)
class Kept:
    """The result of one answer; `visible`: the visible cases pass, and nobody graded the rest."""

    status: str
    points: float = 0.0
    max_points: float = 0.0
    grader: str = ""  # what graded it: another one may decide otherwise
    when: str = ""

    def __post_init__(self):
        numbers = (self.points, self.max_points)
        if self.status not in STATUSES or not all(isinstance(n, int | float) for n in numbers):
            raise ValueError("no result")


@dataclass
class Record:
    """One exercise: results by answer, answers that failed, hints opened, solution shown."""

    exercise: str
    results: dict[str, Kept] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    opened: int = 0  # steps of hints
    tries_then: int = 0  # answers that had failed when the last step was opened
    revealed: bool = False

    def as_json(self) -> dict:
        """Returns what is written to the file."""
        return {"form": FORM, **asdict(self)}


def read_record(folder: Path, exercise: str) -> Record:
    """Returns what a work folder keeps of an exercise; what can't be read is as good as nothing."""
    try:
        told = json.loads((folder / FOLDER / f"{exercise}.json").read_text(encoding="utf-8"))
        return record_of(told, exercise)
    except (OSError, ValueError):
        return Record(exercise)


def record_of(told: object, exercise: str) -> Record:
    """Returns the record that this JSON tells. Raises ValueError where it is none."""
    if not isinstance(told, dict) or told.get("form") != FORM or told.get("exercise") != exercise:
        raise ValueError(f"this is no record of {exercise}")
    try:
        results = {str(code): Kept(**kept) for code, kept in told["results"].items()}
        tried = [str(code) for code in told["tried"]]
        opened, then = max(0, int(told["opened"])), max(0, int(told["tries_then"]))
        return Record(exercise, results, tried, opened, then, told["revealed"] is True)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"this is no record of {exercise}") from error


def write_record(folder: Path, record: Record) -> None:
    """Writes a record so that it is there whole or not at all. Raises OSError."""
    record.results = dict(list(record.results.items())[-MOST:])
    record.tried = record.tried[-MOST:]
    text = json.dumps(record.as_json(), indent=1)
    write_whole(folder / FOLDER / f"{record.exercise}.json", text)


def merged(one: Record, other: Record) -> Record:
    """Returns what both records know; where both know of one answer, `one` is believed."""
    tried = list(dict.fromkeys(other.tried + one.tried))
    return Record(
        one.exercise,
        other.results | one.results,
        tried,
        max(one.opened, other.opened),
        min(max(one.tries_then, other.tries_then), len(tried)),
        one.revealed or other.revealed,
    )


def work_folder(start: Path | None = None) -> Path | None:
    """Returns the work folder around `start` (the working folder), or None."""
    try:
        place = Path.cwd() if start is None else start.resolve()
    except OSError:  # the folder is gone
        return None
    return next((folder for folder in (place, *place.parents) if (folder / MARK).is_file()), None)


def digest(text: str) -> str:
    """Returns what stands for an answer: its text, blank ends apart."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()[:20]


def text_of(objects: Iterable[Any]) -> str:
    """Returns the text of the cells that define these objects, or "" where one isn't known."""
    texts = dict.fromkeys(map(_cell_of, objects))
    return "" if "" in texts else "\n".join(texts)


def answer_of(objects: Iterable[Any]) -> str:
    """Returns the digest of the cells that define these objects, or "" where one isn't known."""
    text = text_of(objects)
    return digest(text) if text else ""


def _cell_of(thing: Any) -> str:
    """Returns the text of the cell that a function or class was defined in, or ""."""
    inside = vars(thing).values() if inspect.isclass(thing) else (thing,)
    for part in inside:
        code = getattr(inspect.unwrap(getattr(part, "__func__", part)), "__code__", None)
        if code is not None:
            return "".join(linecache.getlines(code.co_filename))
    return ""


class Shelf:
    """The records of one place: a work folder, or this process's memory where there is none."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.failed_last = ""  # the exercise of the last test cell that failed
        self._memory: dict[str, Record] = {}

    def get(self, exercise: str) -> Record:
        """Returns what is known of an exercise."""
        if self.folder is None:
            return self._memory.get(exercise, Record(exercise))
        return read_record(self.folder, exercise)

    def put(self, record: Record) -> None:
        """Keeps a record; on a disk that takes nothing, learning goes on without."""
        if self.folder is None:
            self._memory[record.exercise] = record
        else:
            with contextlib.suppress(OSError):
                write_record(self.folder, record)

    def note(self, exercise: str, answer: str, kept: Kept) -> None:
        """Notes the result of an answer; one that isn't right is a try."""
        if not answer or not EXERCISE.fullmatch(exercise):
            return
        record = self.get(exercise)
        record.results.pop(answer, None)  # the newest stand last
        record.results[answer] = kept
        if kept.status not in ("passed", "visible") and answer not in record.tried:
            record.tried.append(answer)
        self.put(record)


@cache
def shelf_at(folder: Path | None) -> Shelf:
    """Returns the one shelf of a place."""
    return Shelf(folder)


def shelf() -> Shelf:
    """Returns the shelf of the place where this runs."""
    return shelf_at(work_folder())


def note(
    exercise: str,
    objects: Iterable[Any],
    status: str,
    *,
    points: float = 0.0,
    max_points: float = 0.0,
    grader: str = "",
) -> None:
    """Notes the result of the answer that these objects are: what a grader calls after a check."""
    if status in STATUSES:  # "not written yet" is no try
        kept = Kept(status, float(points), float(max_points), grader, now())
        shelf().note(exercise, answer_of(objects), kept)


def now() -> str:
    """Returns the present time, to the second, with its zone."""
    return datetime.now(UTC).isoformat(timespec="seconds")
