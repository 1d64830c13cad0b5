"""No public callable of distlab passes as an answer, in any place of any exercise."""

import functools
import importlib
import inspect
import pkgutil
import types

import pytest
from corpus import Hunt, frozen, objects_of, solution_text

import distlab
from distgrade.engine import observe_here
from distgrade.exercise import all_exercises
from distgrade.harness import functions_of, resolve
from distgrade.verify import symptoms_of

EXERCISES = {e.id: e for e in all_exercises()}

every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


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


class Misfit:
    """Stands for every tool whose signature fits no call: refuses, and keeps the calls' shapes.

    A tool that fits none of the calls kept here raises TypeError at the same calls, so the same
    happens with it up to the next call, and at that one again: it loses the same cases.
    """

    def __init__(self):
        self.calls = set()

    def __call__(self, *args, **kwargs):
        self.calls.add((len(args), tuple(sorted(kwargs))))
        raise TypeError("this takes other arguments")

    def __reduce__(self):
        return "MISFIT"  # by name: the ranks of a run share this one


MISFIT = Misfit()


def misfits(tools: dict, calls: set, exercise) -> set[str]:
    """Return the names of the tools that surely raise TypeError at every one of these calls."""
    functions = {name: tool for name, tool in tools.items() if type(tool) is types.FunctionType}
    if not any(name[:1].isupper() for name in exercise.names):  # where a class is wanted, it counts
        functions |= {
            name: tool.__init__
            for name, tool in tools.items()
            if type(tool) is type
            and tool.__new__ is object.__new__
            and type(tool.__init__) is types.FunctionType
        }
    barred = {f for dotted in exercise.forbid for f in functions_of(resolve(dotted))}
    return {
        name
        for name, function in functions.items()
        if not vars(function)  # no decorator's trace: its signature is the code's
        and function not in barred
        and not any(fits(function, call, tools[name] is not function) for call in calls)
    }


def fits(function, call: tuple, is_method: bool) -> bool:
    count, names = call
    try:
        inspect.signature(function).bind(*[None] * (count + is_method), **dict.fromkeys(names))
    except TypeError:
        return False
    return True


class Place:
    """One place of an exercise, or all of them, in which tools are put: right answers elsewhere."""

    def __init__(self, exercise, place: int):
        self.exercise = exercise
        self.solution = objects_of(exercise, solution_text(exercise))
        self.place = place
        self.alone = place == len(self.solution)
        self.hunt = Hunt(exercise)
        self.enough = len(self.hunt.groups) if self.alone else 1

    def __str__(self):
        return f"{self.exercise.id}, {'alone' if self.alone else self.exercise.names[self.place]}"

    def filled(self, tool) -> list:
        return [tool if self.alone or i == self.place else s for i, s in enumerate(self.solution)]

    def earns_nothing(self, tool) -> bool:
        """Say whether a tool loses a group in this place, and every group where it is alone."""
        return len(self.hunt.lost(self.filled(tool), self.enough)) == self.enough

    def settled(self) -> set[str]:
        """Return the names of the tools whose verdict is that of MISFIT."""
        MISFIT.calls.clear()
        assert self.earns_nothing(MISFIT), f"{self}: what can't be called passes"
        return misfits(CALLABLES, MISFIT.calls, self.exercise)


def places(exercise) -> list[Place]:
    """In one place, right answers in the others; then in every place, which is all if it's one."""
    count = len(exercise.names)
    return [Place(exercise, place) for place in range(count + 1) if place or count > 1]


@pytest.mark.slow
@every_exercise
def test_no_tool_of_distlab_is_an_answer(exercise):
    for place in places(exercise):
        settled = place.settled()
        for name in CALLABLES.keys() - settled:
            assert place.earns_nothing(CALLABLES[name]), f"{name} passes: {place}"


@pytest.mark.slow
@every_exercise
def test_a_tool_that_fits_no_call_loses_what_its_stand_in_loses(exercise):
    for place in places(exercise):
        MISFIT.calls.clear()
        stand_in = observe_here(exercise, place.filled(MISFIT))
        settled = sorted(misfits(CALLABLES, MISFIT.calls, exercise))
        for name in settled[:: len(settled) // 3 + 1]:
            seen = observe_here(exercise, place.filled(CALLABLES[name]))
            for one, other in zip(seen, stand_in, strict=True):
                right = frozen(exercise)[one.case_index]
                verdicts = [bool(symptoms_of(exercise, o, right)) for o in (one, other)]
                assert verdicts[0] == verdicts[1], f"{name}: {place}"


def test_signatures_that_fit_are_told_from_those_that_do_not():
    exercise = EXERCISES["lab03.row_linear"]

    class Pair:
        def __init__(self, a, b):
            pass

    tools = {
        "one": lambda a: a,
        "two": lambda a, b: a,
        "any": lambda *args, **kwargs: args,
        "named": lambda a, *, b=1: a,
        "Pair": Pair,
        "built in": print,
        "decorated": functools.wraps(len)(lambda a: a),
        "barred": functions_of(resolve(exercise.forbid[0])).__next__() if exercise.forbid else len,
    }
    assert misfits(tools, {(2, ())}, exercise) == {"one", "named"}
    assert misfits(tools, {(3, ()), (2, ())}, exercise) == {"one", "named"}
    assert misfits(tools, {(3, ())}, exercise) == {"one", "two", "named", "Pair"}
    assert misfits(tools, {(1, ("b",))}, exercise) == {"one"}
    assert "Pair" not in misfits(tools, {(3, ())}, EXERCISES["lab03.f_and_g"])
