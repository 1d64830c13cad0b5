"""What students must not be given, and where a file holds it: solutions, hidden tests, references.

A line of a solution, of a hidden test or of a room of the grader gives something away if it is long
enough to say something and stands in no part of a notebook that students see anyway. The library
is code as well, and some of its lines are anybody's: there it takes five in a row.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

TELLING = 25  # characters: `return x @ w` may well stand anywhere
IN_A_ROW = 5
BEGIN, END = (re.compile(f"### {word} (SOLUTION|HIDDEN TESTS)") for word in ("BEGIN", "END"))
TEACHERS = ("source", "autograder", "private", "submitted", "autograded", "feedback", "solution")
SUFFIXES = (".safetensors", ".db", ".pyc")
WORDS = ("distgrade", "BEGIN SOLUTION", "HIDDEN TESTS")


@dataclass(frozen=True)
class Secrets:
    """The lines that students must not read, and the runs of them."""

    lines: frozenset[str]
    runs: frozenset[tuple[str, ...]]


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a text or of a notebook's cells, without indents; bytes have none."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return []
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return [line.strip() for line in text.split("\n") if line.strip()]


def parted(lines: Iterable[str]) -> tuple[list[list[str]], list[str]]:
    """Returns the solutions and hidden tests of a notebook, each a list of lines, and the rest."""
    inside, outside = [], []
    deep = False
    for line in lines:
        if BEGIN.search(line) or END.search(line):
            deep = bool(BEGIN.search(line))
            inside.append([])
        else:
            (inside[-1] if deep else outside).append(line)
    return inside, outside


def runs(lines: list[str]) -> Iterator[tuple[str, ...]]:
    """Yields the lines in fives."""
    return zip(*(lines[k:] for k in range(IN_A_ROW)), strict=False)


def of_course(root: Path) -> Secrets:
    """Returns what would give an answer or a hidden test of this course away."""
    secret, open_ = [], []
    for path in root.glob("source/*/*.ipynb"):
        inside, outside = parted(lines_of(path))
        secret += inside
        open_.append(outside)
    secret += [lines_of(path) for path in root.glob("autograder/distgrade/labs/*/*.py")]
    known = set(chain(*open_))
    return Secrets(
        frozenset(line for line in chain(*secret) if len(line) >= TELLING) - known,
        frozenset(chain.from_iterable(map(runs, secret)))
        - frozenset(chain.from_iterable(map(runs, open_))),
    )


def given_away(folder: Path, secrets: Secrets) -> Iterator[str]:
    """Yields a sentence for each file in a folder that students must not be given, with why."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        place = path.relative_to(folder)
        if place.parts[0] in TEACHERS or path.suffix in SUFFIXES:
            yield f"{place} is the teacher's."
            continue
        lines = lines_of(path)
        told = [line for line in lines if any(word in line for word in WORDS)]
        if place.parts[0] == "lib" and path.suffix == ".py":
            told += [" / ".join(run) for run in runs(lines) if run in secrets.runs]
        else:
            told += [line for line in lines if line in secrets.lines]
        if told:
            yield f"{place} says {told[0]!r}."
