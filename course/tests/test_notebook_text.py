"""What students read keeps its form: short texts, narrow code, plain Markdown."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(ROOT.glob("source/*/*.ipynb"))
MOST_WORDS = 120  # between two code cells
MOST_COLUMNS = 77  # what a page of 800 px shows without scrolling


def cells(path):
    return json.loads(path.read_text("utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def is_answer(cell):
    """A cell that students write."""
    return cell["metadata"].get("nbgrader", {}).get("solution", False)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return cells(request.param)


def test_texts_between_code_cells_are_short(notebook):
    words, where = 0, ""
    for cell in notebook:
        if cell["cell_type"] == "code" or is_answer(cell):
            words = 0
            continue
        words, where = words + len(source(cell).split()), cell["id"]
        assert words <= MOST_WORDS, f"{words} words up to the cell {where}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_fits_a_narrow_page(path):
    for cell in cells(path):
        shown = source(cell).partition("### BEGIN HIDDEN TESTS")[0]
        for line in shown.split("\n") if cell["cell_type"] == "code" else ():
            assert len(line) <= MOST_COLUMNS, f"{cell['id']}: {line}"


def test_markdown_is_plain(notebook):
    for cell in notebook:
        if cell["cell_type"] == "markdown":
            assert not re.search(r"^(:::|```\{|<\w)", source(cell), re.MULTILINE), cell["id"]


def test_every_exercise_has_its_rhythm(notebook):
    ids = [cell["id"] for cell in notebook]
    graded = [cell for cell in notebook if cell["metadata"].get("nbgrader", {}).get("grade")]
    assert graded
    for test in graded:
        if is_answer(test):  # a written answer, graded by hand: its text stands right before it
            text = source(notebook[ids.index(test["id"]) - 1])
            points = test["metadata"]["nbgrader"]["points"]
            assert f"**{points} points, about " in text, f"{test['id']}: points and minutes"
            assert "graded by hand" in text, test["id"]
            continue
        name = test["id"].removesuffix("-test")
        order = [ids.index(f"{name}{part}") for part in ("-text", "", "-look", "-test")]
        assert order == sorted(order), name
        text = source(notebook[order[0]])
        points = test["metadata"]["nbgrader"]["points"]
        assert f"**{points} points, about " in text, f"{name}: points and minutes"
        look, before = notebook[order[2]], notebook[order[2] - 1]
        assert "look" in look["metadata"]["tags"], name
        assert "with when_written():" in source(look), name
        assert "**Predict**" in source(before), f"{name}: predict before you look"


def made(statement):
    """The names that a statement at the top of a cell binds: (functions and imports, others)."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}, set()
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).partition(".")[0] for a in statement.names}, set()
    kept, others = set(), set()
    for part in ast.iter_child_nodes(statement):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            others.add(part.id)
        elif not isinstance(part, ast.comprehension | ast.Lambda):  # names of their own
            below = made(part)
            kept, others = kept | below[0], others | below[1]
    return kept, others


def test_no_cell_takes_the_name_of_an_earlier_function(notebook):
    """A student who goes back and runs an earlier cell again finds its functions."""
    owner = {}
    for cell in notebook:
        if cell["cell_type"] != "code":
            continue
        kept, others = made(ast.parse(source(cell)))
        for name in others - kept:
            assert name not in owner, f"{cell['id']} takes `{name}` from {owner[name]}"
        owner |= dict.fromkeys(kept, cell["id"])
