"""Hints in steps, one after each try, and a solution for those who learn by themselves."""

from __future__ import annotations

import difflib
import os
import re
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files

from distlab.learn import records
from distlab.learn.cells import graded_elsewhere

STEPS = ("Nudge", "Idea", "Outline")
_SECTION = re.compile(r"^## (\w+)$", re.M)
_STEP = re.compile(r"^### (\w+)$", re.M)

TRY_FIRST = (
    "{id}: try it first. Write something, even a line that you believe wrong, and run the test "
    "cell below it; then ask again."
)
TRY_AGAIN = "The next step opens after another try: change your answer and run its test cell."
CLOSED = (
    "Solutions are not shown here: only where somebody learns alone (`make lab` and Binder) and "
    "the grader is installed."
)


@cache
def hints_of(exercise: str) -> tuple[tuple[str, str], ...]:
    """Returns an exercise's hints, as pairs of (step, text in Markdown); () where there are none.

    They stand in `hints/labNN.md`: a section for each exercise, its steps below.
    """
    lab, _, name = exercise.partition(".")
    place = files("distlab.learn") / "hints" / f"{lab}.md"
    if not records.EXERCISE.fullmatch(exercise) or not place.is_file():
        return ()
    parts = _SECTION.split(place.read_text(encoding="utf-8"))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    _, *steps = _STEP.split(sections.get(name, ""))
    return tuple((step, text.strip()) for step, text in zip(steps[::2], steps[1::2], strict=True))


@cache
def exercises_with_hints() -> tuple[str, ...]:
    """Returns the ids of all exercises that have hints."""
    found = []
    for place in sorted((files("distlab.learn") / "hints").iterdir(), key=lambda p: p.name):
        if place.name.endswith(".md"):
            names = _SECTION.findall(place.read_text(encoding="utf-8"))
            found += [f"{place.name.removesuffix('.md')}.{name}" for name in names]
    return tuple(found)


def hint(exercise: str = "") -> None:
    """Shows the hints of an exercise that are open, and one more after each try that failed.

    Without an exercise: of the test cell that failed last. `%hint lab03.row_linear` does the same.
    """
    if graded_elsewhere():
        return
    shelf = records.shelf()
    exercise = exercise or shelf.failed_last
    steps = _known(exercise, "hint")
    if not steps:
        return
    record = shelf.get(exercise)
    passed = any(kept.status == "passed" for kept in record.results.values())
    if not record.tried and not passed:
        print(TRY_FIRST.format(id=exercise))
        return
    new = record.opened < len(steps) and (passed or len(record.tried) > record.tries_then)
    if new or not record.opened:
        record.opened += 1
        record.tries_then = len(record.tried)
        shelf.put(record)
    parts = [f"**Hints for {exercise}**"]
    for number, (step, text) in enumerate(steps[: record.opened], start=1):
        parts.append(f"**{number} of {len(steps)} · {step}**")
        parts.append(text)
    if record.opened < len(steps):
        parts.append(f"*{TRY_AGAIN}*")
    elif can_reveal():
        parts.append(f"*Still stuck? `%reveal {exercise}` shows a solution.*")
    _show("\n\n".join(parts))


def can_reveal() -> bool:
    """Says whether solutions may be shown here: $DISTLAB_REVEAL is on, and a grader has them."""
    return os.environ.get("DISTLAB_REVEAL") == "on" and bool(_offered("solution"))


def reveal(exercise: str = "") -> None:
    """Shows a solution of an exercise after a try, where somebody learns alone.

    Without an exercise: of the test cell that failed last. It is noted with the exercise.
    """
    if graded_elsewhere():
        return
    shelf = records.shelf()
    exercise = exercise or shelf.failed_last
    if not _known(exercise, "reveal"):
        return
    if not can_reveal():
        print(CLOSED)
        return
    record = shelf.get(exercise)
    if not record.tried and not record.results:
        print(TRY_FIRST.format(id=exercise))
        return
    text = _offered("solution")[0].load()(exercise)
    if not any(kept.status == "passed" for kept in record.results.values()):
        record.revealed = True
        shelf.put(record)
    _show(
        f"**A solution of {exercise}.** Others are as right. Close it, wait a little, and write "
        f"yours without looking.\n\n```python\n{text.strip()}\n```"
    )


def _offered(name: str) -> list:
    """Returns what an installed grader offers to learners under this name."""
    return list(entry_points(group="distlab.learning", name=name))


def _known(exercise: str, asked: str) -> tuple[tuple[str, str], ...]:
    """Returns an exercise's hints; says in one sentence what is wrong where there are none."""
    steps = hints_of(exercise)
    if steps:
        return steps
    known = exercises_with_hints()
    if not exercise:
        print(f"Say for which exercise: %{asked} {known[0]}")
        return ()
    near = difflib.get_close_matches(exercise, known, 1, 0.5)
    print(f"There is no exercise {exercise!r}.{f' Did you mean {near[0]}?' if near else ''}")
    return ()


def _show(text: str) -> None:
    """Shows Markdown in a notebook, as plain text elsewhere."""
    if getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)() is None:
        print(text)
        return
    from IPython.display import Markdown, display

    display(Markdown(text))
