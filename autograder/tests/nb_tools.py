"""Small notebooks for tests, and edits that students' tools make."""

import copy
from pathlib import Path

import nbformat

from distgrade.notebook import (
    exercise_of,
    grade_id,
    graded_cells,
    normalised,
    read_notebook,
    solution_cells,
)

ROOT = Path(__file__).resolve().parents[2]
LAB = "lab03-tensor-parallel"


def source_lab():
    return read_notebook(ROOT / "source" / LAB / f"{LAB}.ipynb")


def released_lab():
    return read_notebook(ROOT / "release" / LAB / f"{LAB}.ipynb")


def worth():
    """The points of every exercise of the lab, by exercise id."""
    tests = graded_cells(released_lab())
    return {exercise_of(n, LAB): float(c.metadata.nbgrader.points) for n, c in tests.items()}


def solutions():
    return {name: cell.source for name, cell in solution_cells(source_lab()).items()}


def answered(answers, release=None):
    """A copy of the release with these sources in its solution cells."""
    nb = normalised(release if release is not None else released_lab())
    for name, cell in solution_cells(nb).items():
        cell.source = answers.get(name, cell.source)
    return nb


def meta(name, **changes):
    base = {
        "grade": False,
        "grade_id": name,
        "locked": False,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    return {"nbgrader": base | changes}


def code(source, name=None, **changes):
    cell = nbformat.v4.new_code_cell(source, metadata=meta(name, **changes) if name else {})
    if name:
        cell["id"] = name
    return cell


def tiny():
    """A release with two exercises, `one` and `two`, each with text, solution and test."""
    nb = nbformat.v4.new_notebook(metadata={"distlab": {"lab": "lab99-tiny", "release": "0" * 64}})
    nb.cells = [code("import math")]
    nb.cells[0]["id"] = "imports"
    for name in ("one", "two"):
        text = nbformat.v4.new_markdown_cell(f"Write {name}.", metadata=meta(name + "-text"))
        text.metadata.nbgrader["locked"] = True
        text["id"] = name + "-text"
        nb.cells += [
            text,
            code(f"def {name}():\n    raise NotImplementedError", name, solution=True),
            code(f"assert {name}() == 1", name + "-test", grade=True, locked=True, points=2),
        ]
    return nb


def place(nb, name):
    return next(i for i, c in enumerate(nb.cells) if grade_id(c) == name or c.get("id") == name)


def student_cells(nb):
    return [c.source for c in nb.cells if c.metadata.get("distlab", {}).get("student")]


def order(nb):
    return [grade_id(c) or c["id"] for c in nb.cells]


def clone(nb):
    return copy.deepcopy(nb)
