"""A class in small: submissions of every kind, graded by nbgrader, with the reason for each mark.

The submissions are made from the release and the rooms' corpora, so a new exercise joins by itself.
They live in the ignored `build/class-demo/`, a course folder of its own with the same settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode
from rich.console import Console
from rich.table import Table
from rich.text import Text

from distgrade.course import MARK, Course, CourseError
from distgrade.exercise import load
from distgrade.notebook import (
    exercise_of,
    graded_cells,
    is_test,
    nbgrader_of,
    normalised,
    read_notebook,
    solution_cells,
    text_of,
)

# One endless loop is enough to wait for; an exercise takes a second or two.
EXERCISE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Submission:
    """One student of the demo: what they handed in, and what each exercise must earn.

    `earns` has "full", "none" or "less" (right in part at most) for each exercise id, and `says` a
    sentence that must stand in the reason.
    """

    student: str
    notebook: NotebookNode
    earns: Mapping[str, str]
    says: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """What nbgrader holds about one exercise of one student."""

    points: float | None
    max_points: float
    reason: str


def submissions(course: Course, lab: str) -> list[Submission]:
    """Returns the class of one lab."""
    release = read_notebook(course.release(lab))
    rooms = [load(exercise_of(test, lab)) for test in graded_cells(release)]
    solved = {
        name: cell.source
        for name, cell in solution_cells(read_notebook(course.source(lab))).items()
    }
    full = {room.id: "full" for room in rooms}
    none = {room.id: "none" for room in rooms}

    def handed_in(answers: Mapping[str, str]) -> NotebookNode:
        nb = normalised(release)
        for name, cell in solution_cells(nb).items():
            cell.source = answers.get(name, cell.source)
        return nb

    half = rooms[: (len(rooms) + 1) // 2]
    found = [
        Submission("01-perfect", handed_in(solved), full),
        Submission("02-blank", handed_in({}), none, {r.id: "not written yet" for r in rooms}),
        Submission(
            "03-half-done",
            handed_in({r.name: solved[r.name] for r in half}),
            none | {r.id: "full" for r in half},
            {r.id: "not written yet" for r in rooms if r not in half},
        ),
    ]
    for number in range(3):
        wrong = {r: r.wrong[number % len(r.wrong)] for r in rooms}
        found.append(
            Submission(
                f"0{4 + number}-wrong",
                handed_in({r.name: answer.source for r, answer in wrong.items()}),
                {r.id: "less" for r in rooms},
                {r.id: answer.sentence for r, answer in wrong.items()},
            )
        )
    right = {r.name: r.also_right[0].source for r in rooms}
    found.append(Submission("07-another-way", handed_in(right), full))
    last = next((r for r in reversed(rooms) if r.names[0].islower()), None)
    if last is not None:
        for student, body, says in (
            ("08-crash", "import os; os._exit(1)", "the kernel ended"),
            ("09-endless-loop", "while True: pass", ""),
        ):
            broken = "\n".join(f"def {n}(*args, **kwargs):\n    {body}\n" for n in last.names)
            found.append(
                Submission(
                    student,
                    handed_in(solved | {last.name: broken}),
                    full | {last.id: "none"},
                    {last.id: says},
                )
            )
    found.append(Submission("10-test-deleted", _edited(handed_in(solved), _delete), full))
    found.append(Submission("11-cells-copied", _edited(handed_in(solved), _copy), full))
    return found


def _edited(nb: NotebookNode, edit: Callable[[NotebookNode], list[NotebookNode]]) -> NotebookNode:
    nb.cells = [kept for cell in nb.cells for kept in edit(cell)]
    return nb


def _delete(cell: NotebookNode) -> list[NotebookNode]:
    return [] if is_test(cell) else [cell]


def _copy(cell: NotebookNode) -> list[NotebookNode]:
    if not nbgrader_of(cell).get("grade_id"):
        return [cell]
    copied = normalised({"cells": [cell], "metadata": {}}).cells[0]  # JupyterLab keeps the metadata
    copied["id"] = f"copy-of-{cell.id}"[:64]
    return [cell, copied]


# --- the course folder of the demo ------------------------------------------------------------


def build(course: Course, lab: str, root: Path) -> list[Submission]:
    """Makes a course folder with the lab and its class of submissions; returns the class."""
    shutil.rmtree(root, ignore_errors=True)
    for part in ("source", "release"):
        shutil.copytree(course.root / part / lab, root / part / lab)
    shutil.copy(course.root / MARK, root / MARK)
    class_ = submissions(course, lab)
    for submission in class_:
        write_raw(
            root / "submitted" / submission.student / lab / f"{lab}.ipynb", submission.notebook
        )
    return class_


def write_raw(path: Path, nb: NotebookNode) -> None:
    """Writes a submission as a student's tool would: nothing is put in order."""
    import nbformat

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.v4.writes(nb) + "\n", encoding="utf-8")


def nbgrader(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Runs a stock nbgrader command in a course folder, without an activated environment."""
    program = os.path.join(os.path.dirname(sys.executable), "nbgrader")
    return subprocess.run(
        [program, *arguments], cwd=root, capture_output=True, text=True, check=False
    )


def marks(root: Path, lab: str, student: str) -> dict[str, Mark]:
    """Returns what the gradebook and the autograded notebook say, by exercise id."""
    from nbgrader.api import Gradebook, MissingEntry

    path = root / "autograded" / student / lab / f"{lab}.ipynb"
    reasons = {}
    if path.is_file():
        for name, cell in graded_cells(read_notebook(path)).items():
            reasons[name] = reason_of(cell)
    found = {}
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "distlab") as gradebook:
        try:
            submission = gradebook.find_submission(lab, student)
        except MissingEntry:
            return {}
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                if grade.cell.cell_type == "markdown":
                    continue  # a written answer: graded by hand
                found[exercise_of(grade.name, lab)] = Mark(
                    grade.auto_score, grade.max_score, reasons.get(grade.name, "")
                )
    return dict(sorted(found.items(), key=lambda item: list(found).index(item[0])))


def reason_of(cell: NotebookNode) -> str:
    """Returns the text that Verify wrote into a test cell."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(text_of(output.get("text")))
        elif output.output_type == "error":
            parts.extend(output.get("traceback", []))
    return "\n".join(parts).strip()


def main(course: Course, console: Console, *, feedback: bool = True) -> int:
    """Makes, grades and shows a class for every released lab; returns the exit code."""
    labs = [lab for lab in course.labs() if lab in course.released_labs()]
    if not labs:
        raise CourseError("there is no released lab: run `distgrade release`.")
    failed = 0
    for lab in labs:
        root = course.root / "build" / "class-demo" / lab
        with console.status(f"{lab}: making submissions"):
            class_ = build(course, lab, root)
        with console.status(f"{lab}: nbgrader autograde, {len(class_)} submissions"):
            done = nbgrader(
                root, "autograde", lab, f"--Execute.exercise_timeout={EXERCISE_TIMEOUT_S}"
            )
        if done.returncode:
            console.print(Text(done.stderr[-3000:], "red"))
            failed += 1
        table = Table(title=lab, title_justify="left", show_lines=True)
        for column in ("student", "score", "why not more"):
            table.add_column(column, overflow="fold", no_wrap=column != "why not more")
        for submission in class_:
            table.add_row(submission.student, *_row(marks(root, lab, submission.student)))
        console.print(table)
        if feedback:
            with console.status(f"{lab}: nbgrader generate_feedback"):
                done = nbgrader(root, "generate_feedback", lab)
            if done.returncode:
                console.print(Text(done.stderr[-3000:], "red"))
                failed += 1
            else:
                page = root / "feedback" / class_[0].student / lab / f"{lab}.html"
                console.print(Text(f"feedback, for example: {page.relative_to(course.root)}"))
    return 1 if failed else 0


def _row(found: Mapping[str, Mark]) -> tuple[str, Text]:
    if not found:
        return "none", Text("not graded: see the messages of nbgrader")
    score = sum(mark.points or 0.0 for mark in found.values())
    top = sum(mark.max_points for mark in found.values())
    lines = []
    for name, mark in found.items():
        practised = mark.max_points or mark.reason.startswith("PASS")
        if mark.points is None or mark.points < mark.max_points or not practised:
            lost = re.sub(r"\n", "\n  ", mark.reason)
            lines.append(f"{name}: {lost}")
    return f"{score:g} of {top:g}" if top else "practice", Text("\n".join(lines))
