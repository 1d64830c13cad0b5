"""No public callable of distlab passes as an answer, in any place of any exercise."""

import importlib
import inspect
import itertools
import pkgutil

import pytest
from corpus import lost_groups, objects_of, solution_text

import distlab
from distgrade.exercise import all_exercises

EXERCISES = {e.id: e for e in all_exercises()}


def modules():
    yield distlab
    for found in pkgutil.walk_packages(distlab.__path__, "distlab."):
        # worker is what a process of its own runs: called here, it would end the test's.
        if not found.name.rpartition(".")[2].startswith("_") and found.name != "distlab.worker":
            yield importlib.import_module(found.name)


def public_callables() -> dict[str, object]:
    """Return every public function, class and method that distlab itself defines."""
    found = {}
    for module in modules():
        for name, thing in vars(module).items():
            home = getattr(thing, "__module__", "") or ""
            if name.startswith("_") or not callable(thing) or not home.startswith("distlab"):
                continue
            found.setdefault(f"{home}.{getattr(thing, '__qualname__', name)}", thing)
            if inspect.isclass(thing):
                for method_name, method in vars(thing).items():
                    if not method_name.startswith("_") and callable(method):
                        found[f"{home}.{thing.__qualname__}.{method_name}"] = method
    return found


CALLABLES = public_callables()


def test_the_walk_finds_distlabs_tools():
    assert {"distlab.launch.run", "distlab.seeds.integers", "distlab.notebook.check"} <= set(
        CALLABLES
    )
    assert any(name.endswith(".all_reduce") for name in CALLABLES)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_no_tool_of_distlab_is_an_answer(exercise):
    solution = objects_of(exercise, solution_text(exercise))
    for (name, tool), place in itertools.product(CALLABLES.items(), range(len(exercise.names) + 1)):
        # in one place, the right answer in the others; then in every place
        mixed = [tool if place in (i, len(solution)) else s for i, s in enumerate(solution)]
        alone = place == len(solution)
        every_group = {case.group for case in exercise.cases}
        lost = lost_groups(exercise, mixed, enough=len(every_group) if alone else 1)
        assert lost, f"{name} passes as an answer to {exercise.id}"
        assert lost == every_group or not alone, f"{name} earns points in {exercise.id}"
