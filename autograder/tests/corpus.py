"""What the grader's tests share: solutions and stubs out of the source notebooks, a toy room."""

import importlib.util
import json
import linecache
import re
import shutil
from functools import cache
from pathlib import Path

from distgrade import references
from distgrade.engine import observe_here
from distgrade.exercise import Exercise, cell_objects, read_room
from distgrade.verify import symptoms_of

ROOT = Path(__file__).parents[2]
MARKED = re.compile(
    r"^(?P<indent>[ ]*)### BEGIN SOLUTION\n.*?^[ ]*### END SOLUTION\n?", re.MULTILINE | re.DOTALL
)


@cache
def notebook(lab: str) -> dict:
    path = ROOT / "source" / lab / f"{lab}.ipynb"
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(lab: str) -> list[dict]:
    return [c for c in notebook(lab)["cells"] if c["cell_type"] == "code"]


def grade_id(cell: dict) -> str | None:
    return cell["metadata"].get("nbgrader", {}).get("grade_id")


def cell(lab: str, wanted: str) -> dict:
    (found,) = [c for c in code_cells(lab) if grade_id(c) == wanted]
    return found


def checks(text: str, exercise) -> bool:
    """Tells whether a cell's text calls `check` for this exercise, on one line or several."""
    call = f'check("{exercise.id}",{",".join(exercise.names)})'
    return call in "".join(text.split()).replace(",)", ")")


def imports_text(lab: str) -> str:
    return "".join(code_cells(lab)[0]["source"]) + "\n"


def solution_text(exercise: Exercise) -> str:
    return "".join(cell(exercise.lab, exercise.name)["source"]) + "\n"


def stub_text(exercise: Exercise) -> str:
    text = solution_text(exercise)
    assert MARKED.search(text), "the solution cell has no marked region"
    return MARKED.sub(r'\g<indent>raise NotImplementedError("not written yet")\n', text)


def objects_of(exercise: Exercise, text: str) -> tuple:
    filename = f"<{exercise.id} cell {abs(hash(text))}>"
    return cell_objects(imports_text(exercise.lab) + text, exercise.names, filename)


@cache
def frozen(exercise: Exercise) -> list:
    return references.read(exercise)


def lost_groups(exercise: Exercise, objects: tuple, enough: int = 1) -> set[str]:
    """Return groups of cases that an answer loses, `enough` of them; looks no further than needed.

    As `grade` on the frozen cases, but most wrong answers already fail in the first one.
    """
    lost: set[str] = set()
    for index, case in enumerate(exercise.cases):
        if case.group in lost:
            continue
        (observation,) = observe_here(exercise, objects, only=index)
        if symptoms_of(exercise, observation, frozen(exercise)[index]):
            lost.add(case.group)
        if len(lost) >= enough:
            break
    return lost


TOY = '''
"""A toy: double a tensor."""
from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("double",)
FORBID = ()
TOLERANCE = Exact()
CREDIT = {"values": 2, "errors": 1}
CASES = (
    Case("a matrix", "values", n=3, shape=(2, 3)),
    Case("a vector", "values", n=2, shape=(5,)),
    Case("no size", "errors", n=2, shape=(0,), expects=ValueError),
)


def given(case, seed):
    from distlab.seeds import integers

    return {"x": integers(case.shape, "toy", case.name, seed)}


def observe(student, given):
    return {"y": student.double(given["x"])}


def oracle(case, given):
    return {"y": given["x"] + given["x"]}


@wrong("It is squared.")
def squared():
    def double(x):
        if not x.numel():
            raise ValueError("nothing to double")
        return x * x

    return double


@also_right("by two factors")
def by_factors():
    def double(x):
        if not x.numel():
            raise ValueError("nothing to double")
        return x.mul(2)

    return double
'''


def toy_room(folder: Path, text: str = TOY) -> Exercise:
    """Return an exercise read from a room file in a folder of the test's own."""
    folder = folder / "lab99_toys"
    folder.mkdir(exist_ok=True)
    path = folder / "double.py"
    path.write_text(text, encoding="utf-8")
    # Python tells versions of a file apart by size and whole seconds: too coarse for a test.
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location("toy_double", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return read_room(module, path, "lab99.double")
