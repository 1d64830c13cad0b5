"""Each released lab in JupyterLab, as a student does it: run, play, answer, read, validate."""

import ast
import re
import shutil

import pytest
from browser import EXPLORERS, ROOT, Desk, OpenExplorer, chromium, jupyterlab

from distgrade.exercise import load
from distgrade.notebook import graded_cells, read_notebook, solution_cells

LABS = sorted(path.stem for path in (ROOT / "release").glob("lab*/lab*.ipynb"))
WRONG = {  # an exercise, and a mistake that only its hidden tests find
    "lab00": ("mean_of_all", "divided_by_four"),
    "lab01": ("model_state_bytes", "always_a_master"),
    "lab02": ("make_buckets", "excess_carried"),
    "lab03": ("traffic", "microbatches_ignored"),
    "lab04": ("measures", "first_run_only"),
    "lab05": ("even_split", "last_takes_the_rest"),
    "lab06": ("zero_bytes", "gradients_at_stage_1"),
    "lab07": ("pareto", "those_before"),
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """JupyterLab over fresh copies of the labs, as `make lab` opens it."""
    home = tmp_path_factory.mktemp("student")
    shutil.copytree(ROOT / "release", home / "work")
    settings = ROOT / "lib" / "jupyter"
    with jupyterlab(home / "work", home / "state", settings) as address, chromium() as browser:
        yield Desk(browser, address)


def explorer_of(source: str) -> tuple[str, dict] | None:
    """The explorer that a cell shows, and what it starts with; None for a cell without one."""
    match ast.parse(source).body[-1:]:
        case [ast.Expr(ast.Call(func=ast.Name(name), keywords=given))] if name in EXPLORERS:
            return name, {word.arg: ast.literal_eval(word.value) for word in given}
    return None


def in_groups(lab: str):
    """The lab as a parameter; half of the labs share a server and a browser."""
    group = pytest.mark.xdist_group(f"labs in a browser {LABS.index(lab) % 2}")
    return pytest.param(lab, marks=[pytest.mark.slow, group])


def look_at(found, tests):
    """With nothing written, each test cell says so in one line, and nothing else fails."""
    for name, outputs in found.items():
        errors = [output for output in outputs if output["output_type"] == "error"]
        assert [output["text"] for output in outputs if output.get("name") == "stderr"] == [], name
        if name not in tests:
            assert errors == [], name
            continue
        (error,) = errors
        (line,) = error["traceback"]
        assert re.fullmatch(r"NotImplementedError: .* is not written yet \(line .*\)\.", line)


@pytest.mark.parametrize("lab", [in_groups(lab) for lab in LABS])
def test_a_student_runs_the_lab_plays_answers_and_validates(lab, desk):
    released = read_notebook(ROOT / "release" / lab / f"{lab}.ipynb")
    solved = solution_cells(read_notebook(ROOT / "source" / lab / f"{lab}.ipynb"))
    tests = graded_cells(released)
    with desk.notebook(f"{lab}/{lab}.ipynb") as notebook:
        look_at(notebook.run(), tests)
        for cell in released.cells:
            if cell.cell_type == "code" and (found := explorer_of(cell.source)):
                name, start = found
                shown = OpenExplorer(notebook.cell(cell.id), name, **start)
                shown.fits(800)
                shown.walk()

        name, mistake = WRONG[lab.partition("-")[0]]
        room = load(f"{lab.partition('-')[0]}.{name}")
        wrong = next(answer for answer in room.wrong if answer.name == mistake)
        notebook.write(name, wrong.source)
        notebook.run(f"{name}-test")
        assert wrong.sentence in notebook.reads(f"{name}-test")

        notebook.write(name, solved[name].source)
        notebook.run(f"{name}-test")
        full = sum(room.credit.values())
        passed = f"{full} of {full} points" if full else "passed (practice, no points)"
        assert notebook.reads(f"{name}-test").startswith(f"{room.id}: {passed}.")

        said, mine = notebook.validate(), f"{name}-test"
        for test, cell in tests.items():
            assert (cell.source in said) == (test != mine), f"Validate of {test}:\n{said}"
        assert ("Success!" in said) == (list(tests) == [mine]), said
        assert ("YOUR ANSWER HERE" in said) == any(c.id == "written" for c in released.cells)
