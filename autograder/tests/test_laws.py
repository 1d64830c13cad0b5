"""The laws of the house: who may import whom, and what may never reach a student."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import checks
from nb_tools import ROOT

from distgrade.course import LAB_NAME, Course
from distgrade.exercise import all_exercises
from distgrade.notebook import (
    exercise_of,
    grade_id,
    graded_cells,
    is_skipped,
    is_solution,
    is_test,
    nbgrader_of,
    read_notebook,
    solution_cells,
    strip_hidden,
)

COURSE = Course(ROOT)
LABS = COURSE.labs()
ASSETS = {".png", ".svg", ".csv"}  # what may lie beside a source notebook: students get it
STAFF = ("distgrade", "autograder", "nbgrader_config", "BEGIN SOLUTION", "HIDDEN TESTS", "oracle")


def imports(text: str) -> set[str]:
    """The top-level names that a Python text imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def modules(folder: Path) -> list[Path]:
    found = sorted(p for p in folder.rglob("*.py") if ".egg-info" not in str(p))
    assert found
    return found


def test_there_are_labs_and_every_lab_is_released():
    assert LABS
    assert COURSE.released_labs() == LABS


def test_distlab_imports_nothing_of_the_staffs():
    for path in modules(ROOT / "lib" / "distlab"):
        assert "distgrade" not in imports(path.read_text(encoding="utf-8")), path.name


def test_nothing_imports_a_notebook():
    for path in modules(ROOT / "lib" / "distlab") + modules(ROOT / "autograder" / "distgrade"):
        found = imports(path.read_text(encoding="utf-8"))
        bad = {n for n in found if re.match(r"lab\d\d|source$|release$|import_ipynb|nbimporter", n)}
        assert not bad, path.name


def test_importing_the_command_line_costs_no_torch():
    code = "import sys, distgrade.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("lab", LABS)
def test_notebooks_name_distgrade_only_inside_a_hidden_region(lab):
    for cell in read_notebook(COURSE.source(lab)).cells:
        assert "distgrade" not in strip_hidden(cell.source), grade_id(cell) or cell["id"]


def solved_by_code(nb) -> dict:
    """The solution cells that a test cell grades, by grade id: not those graded by hand."""
    cells = solution_cells(nb)
    return {name: cell for name, cell in cells.items() if not nbgrader_of(cell)["grade"]}


@pytest.mark.parametrize("lab", LABS)
def test_every_written_answer_has_points_and_a_rubric(lab):
    nb = read_notebook(COURSE.source(lab))
    for name in set(solution_cells(nb)) - set(solved_by_code(nb)):
        cell = solution_cells(nb)[name]
        assert cell.cell_type == "markdown"
        assert "### BEGIN SOLUTION" in cell.source
        rubrics = (ROOT / "course" / "instructors" / "rubrics.md").read_text(encoding="utf-8")
        section = rubrics.partition(f"## `{lab}` · `{name}`")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
        assert sum(map(int, rows)) == nbgrader_of(cell)["points"], "the rubric's points"


@pytest.mark.parametrize("lab", LABS)
def test_every_test_cell_has_its_room_its_points_and_the_one_hidden_statement(lab):
    nb = read_notebook(COURSE.source(lab))
    rooms = {room.id: room for room in all_exercises() if room.lab == lab}
    tests = graded_cells(nb)
    assert {exercise_of(name, lab) for name in tests} == set(rooms)
    assert {name.removesuffix("-test") for name in tests} == set(solved_by_code(nb))
    for name, cell in tests.items():
        room = rooms[exercise_of(name, lab)]
        assert nbgrader_of(cell)["points"] == room.points
        assert nbgrader_of(cell)["locked"]
        names = ", ".join(room.names)
        assert cell.source.endswith(
            f"### BEGIN HIDDEN TESTS\n"
            f"from distgrade import grade\n"
            f'grade("{room.id}", {names})\n'
            f"### END HIDDEN TESTS"
        )
        assert checks(strip_hidden(cell.source), room)


@pytest.mark.parametrize("lab", LABS)
def test_cells_of_an_exercise_stand_in_order_and_its_texts_are_locked(lab):
    nb = read_notebook(COURSE.source(lab))
    at = {grade_id(c): i for i, c in enumerate(nb.cells) if grade_id(c)}
    for name in solution_cells(nb):
        assert at[f"{name}-text"] < at[name]
        if name in solved_by_code(nb):
            assert at[name] < at[f"{name}-test"]
        assert nbgrader_of(nb.cells[at[f"{name}-text"]])["locked"]
    for cell in nb.cells:
        if is_skipped(cell):
            assert not is_solution(cell)
            assert not is_test(cell)


def bound(source: str) -> set[str]:
    """The names that a cell binds at its top level, imports left out (they mean the same)."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            stores = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            found |= {n.id for n in stores if isinstance(n.ctx, ast.Store)}
    return found


@pytest.mark.parametrize("lab", LABS)
def test_no_released_cell_overwrites_a_helper_that_an_answer_defines(lab):
    """Else a right answer breaks in the student's own kernel, and under stock nbgrader."""
    nb = read_notebook(COURSE.source(lab))
    ours = {}
    for cell in nb.cells:
        if cell.cell_type == "code" and not is_solution(cell):
            ours |= dict.fromkeys(bound(strip_hidden(cell.source)), cell["id"])
    for room in (room for room in all_exercises() if room.lab == lab):
        for answer in (*room.also_right, *room.wrong):
            for name in bound(answer.source) & set(ours):
                pytest.fail(f"{ours[name]} overwrites `{name}` of {room.id} {answer.name}")


def regions(source: str) -> tuple[set[str], set[str]]:
    """The lines inside of solution and hidden regions, and those outside."""
    inside, outside, deep = set(), set(), False
    for line in source.split("\n"):
        if re.search(r"BEGIN (SOLUTION|HIDDEN TESTS)", line):
            deep = True
        elif re.search(r"END (SOLUTION|HIDDEN TESTS)", line):
            deep = False
        elif line.strip():
            (inside if deep else outside).add(line.strip())
    return inside, outside


@pytest.mark.parametrize("lab", LABS)
def test_nothing_of_a_solution_or_a_hidden_test_is_released(lab):
    secret, open_ = set(), set()
    for cell in read_notebook(COURSE.source(lab)).cells:
        inside, outside = regions(cell.source)
        secret, open_ = secret | inside, open_ | outside
    assert secret, "a lab without solutions"
    released = read_notebook(COURSE.release(lab))
    lines = {line.strip() for cell in released.cells for line in cell.source.split("\n")}
    assert not (secret - open_) & lines


def test_nothing_released_names_the_staffs_half():
    files = [p for p in (ROOT / "release").rglob("*") if p.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        for word in STAFF:
            assert word.encode() not in data, f"{path.name} says {word!r}"


def test_release_holds_notebooks_and_what_lies_beside_them_in_source():
    for path in (ROOT / "release").rglob("*"):
        if path.is_file() and path.name != ".gitkeep":
            assert (ROOT / "source" / path.relative_to(ROOT / "release")).is_file(), path
            assert path.suffix == ".ipynb" or path.suffix in ASSETS


def test_source_holds_nothing_but_notebooks_and_public_assets():
    for path in (ROOT / "source").rglob("*"):
        if not path.is_file() or ".ipynb_checkpoints" in path.parts or path.name == ".gitkeep":
            continue
        lab = path.relative_to(ROOT / "source").parts[0]
        assert LAB_NAME.fullmatch(lab), path
        assert path.name == f"{lab}.ipynb" or path.suffix in ASSETS, path


def in_index(name: str) -> bytes | None:
    """What git's index holds of a file; None where there is no index to ask."""
    done = subprocess.run(["git", "show", f":{name}"], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def test_release_is_what_source_gives_to_the_byte():
    from distgrade.publish import stale

    assert stale(COURSE) == []
    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no git checkout: compared with the working folder alone")
    for path in sorted((ROOT / "release").rglob("*")):
        if path.is_file():
            name = str(path.relative_to(ROOT))
            assert in_index(name) == path.read_bytes(), f"{name} differs from git's index"
