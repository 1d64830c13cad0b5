"""Every solution that runs on ranks gives the same on the simulator and on real processes.

Found by folder: a new exercise joins by existing. What an exercise observes holds its values and
its ledgers, so equal trees mean equal values and equal bytes.
"""

import functools
import re

import pytest
from corpus import objects_of, solution_text, solved

import distlab
from distgrade.compare import compare
from distgrade.engine import observe_here
from distgrade.exercise import all_exercises

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]

ON_RANKS = {e.id: e for e in all_exercises() if re.search(r"\brun\(", e.observe_source)}
SIZES = (2, 3)


def chosen_cases(exercise) -> list[int]:
    """The first case of each small world size: processes are slow to start."""
    first = {}
    for index, case in enumerate(exercise.cases):
        if getattr(case, "n", None) in SIZES and case.expects is None:
            first.setdefault(case.n, index)
    return list(first.values())


def test_exercises_that_run_on_ranks_are_found():
    assert {"lab03.f_and_g", "lab03.row_linear"} <= set(ON_RANKS)


@pytest.mark.parametrize("exercise", ON_RANKS.values(), ids=ON_RANKS)
def test_a_solution_observes_the_same_on_both_engines(exercise, monkeypatch):
    objects = objects_of(exercise, solution_text(exercise))
    cases = chosen_cases(exercise)
    assert cases, "no case has 2 or 3 ranks"
    for index in cases:
        simulated = next(o for o in solved(exercise) if (o.case_index, o.seed) == (index, 0))
        with monkeypatch.context() as patch:
            real_run = functools.partial(distlab.run, engine="gloo")
            patch.setattr(distlab, "run", real_run)
            (real,) = observe_here(exercise, objects, only=index)
        assert simulated.error is None, simulated.error
        assert real.error is None, real.error
        symptoms = compare(real.tree, simulated.tree, rtol=exercise.tolerance.rtol)
        assert not symptoms, symptoms
