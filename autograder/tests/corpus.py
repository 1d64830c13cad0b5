"""What the grader's tests share: solutions and stubs out of the source notebooks, a toy room."""

import importlib.util
import json
import linecache
import re
import shutil
import time
from functools import cache
from pathlib import Path

from distgrade import references
from distgrade.diagnose import wrong_observations
from distgrade.engine import Observation, observe_here
from distgrade.exercise import Answer, Exercise, cell_objects, read_room
from distgrade.verify import symptoms_of

ROOT = Path(__file__).parents[2]
SEEDS = (0, 271_828)
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


@cache
def solved(exercise: Exercise) -> tuple[Observation, ...]:
    """Return what the notebook's solution gives with both seeds, observed once for all tests."""
    return tuple(observe_here(exercise, objects_of(exercise, solution_text(exercise)), SEEDS))


def seen_of(exercise: Exercise, answer: Answer) -> tuple[Observation, ...]:
    """Return what a wrong answer gives on the frozen cases, as the diagnosis has observed it."""
    (found,) = (
        observations
        for other, (_, observations) in zip(
            exercise.wrong, wrong_observations(exercise), strict=True
        )
        if other is answer
    )
    return found


def fails(exercise: Exercise, objects: tuple, index: int) -> bool:
    """Tell whether an answer fails one frozen case."""
    (observation,) = observe_here(exercise, objects, only=index)
    return bool(symptoms_of(exercise, observation, frozen(exercise)[index]))


class Hunt:
    """Looks for the groups of cases that answers lose, in the order that has found most so far.

    A case is observed by itself and a group is lost with any case of it, so the order and the
    stop at what is enough spare time and change no verdict (test_corpus.py).
    """

    def __init__(self, exercise: Exercise):
        self.exercise = exercise
        self.groups = {case.group for case in exercise.cases}
        self.kills = [1] * len(exercise.cases)
        self.spent_s = [1e-3] * len(exercise.cases)  # so little that each is soon tried

    def lost(self, objects: tuple, enough: int = 1) -> set[str]:
        """Return groups that an answer loses: `enough` of them, or all that there are."""
        lost: set[str] = set()
        for index in sorted(range(len(self.kills)), key=self.seconds_a_kill):
            group = self.exercise.cases[index].group
            if group not in lost and self.kill(objects, index):
                lost.add(group)
            if len(lost) >= enough:
                break
        return lost

    def seconds_a_kill(self, index: int) -> float:
        return self.spent_s[index] / self.kills[index]

    def kill(self, objects: tuple, index: int) -> bool:
        start = time.process_time()
        try:
            failed = fails(self.exercise, objects, index)
            self.kills[index] += failed
        finally:
            self.spent_s[index] += time.process_time() - start
        return failed


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
