"""Every mechanical mutant of a solution loses points, unless its room says why it is equivalent.

One test per exercise, not per mutant: there are thousands, and naming them all takes longer than
most need to die.
"""

import contextlib
import signal
from functools import cache

import pytest
from corpus import Hunt, imports_text, objects_of, solution_text
from mutants import mutants

from distgrade.exercise import all_exercises, cell_objects

EXERCISES = {e.id: e for e in all_exercises()}
LIMIT_S = 30  # of computing, not of waiting: a mutant that loops for ever is dead

pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of a mutant's text

every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


@cache
def of_solution(exercise) -> dict[str, str]:
    return dict(mutants(solution_text(exercise)))


@cache
def of_cousins(exercise) -> dict[str, str]:
    """Mutants of right answers by other methods: they reach further into the cases."""
    return {
        f"{answer.name} {name}": text
        for answer in exercise.also_right
        for name, text in mutants(answer.source)
    }


@contextlib.contextmanager
def limited():
    """Interrupts what computes for too long."""

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@cache
def hunt(exercise) -> Hunt:
    return Hunt(exercise)


def survives(exercise, text) -> bool:
    try:
        with limited():
            return not hunt(exercise).lost(objects_of(exercise, text))
    except (Exception, KeyboardInterrupt):  # a mutant whose cell fails, or never ends, is dead
        return False


def unexpected(exercise, found: dict[str, str]) -> list[str]:
    """Mutants that live without a reason, or die although the room calls them equivalent."""
    return [
        f"{name}\n{text}"
        for name, text in found.items()
        if survives(exercise, text) != (name in exercise.equivalent)
    ]


@pytest.mark.slow
@every_exercise
def test_mutants_of_the_solution_die_unless_equivalent(exercise):
    assert unexpected(exercise, of_solution(exercise)) == []


@pytest.mark.slow
@every_exercise
def test_mutants_of_other_right_answers_die_unless_equivalent(exercise):
    assert unexpected(exercise, of_cousins(exercise)) == []


@every_exercise
def test_what_is_called_equivalent_is_a_mutant_and_has_a_reason(exercise):
    known = {*of_solution(exercise), *of_cousins(exercise)} if exercise.equivalent else set()
    assert set(exercise.equivalent) <= known
    assert all(len(reason.split()) >= 4 for reason in exercise.equivalent.values())


def test_a_mutant_that_never_ends_is_dead(monkeypatch):
    monkeypatch.setattr("test_mutants.LIMIT_S", 0.3)
    exercise = EXERCISES["lab03.row_linear"]
    assert not survives(exercise, "while True:\n    pass")
    endless = "def row_linear(*args, **kwargs):\n    while True:\n        pass"
    assert not survives(exercise, endless)


def test_the_mutants_do_what_they_say():
    text = "def f(comm, a, b):\n    c = a + 2 * b\n    return comm.all_reduce(c, op='sum'), a\n"
    found = dict(mutants(text))
    assert "f: a + 2 * b -> a" in found
    assert "f: a + 2 * b -> a - 2 * b" in found
    assert "f: 2 -> 3" in found
    assert "f: c = a + 2 * b -> pass" in found
    assert "f: comm.all_reduce(c, op='sum') -> c" in found
    assert len(found) >= 12
    assert cell_objects(imports_text("lab03-tensor-parallel") + text, ("f",), "<f>")
