"""Every mechanical mutant of a solution loses points, unless its room says why it is equivalent."""

import pytest
from corpus import imports_text, lost_groups, objects_of, solution_text
from mutants import mutants

from distgrade.exercise import all_exercises, cell_objects

EXERCISES = {e.id: e for e in all_exercises()}
MUTANTS = {
    f"{e.id} {name}": (e, name, text)
    for e in EXERCISES.values()
    for name, text in mutants(solution_text(e))
}
# Right answers by other methods have mutants too: they reach further into the cases.
COUSINS = {
    f"{e.id} {a.name} {name}": (e, f"{a.name} {name}", text)
    for e in EXERCISES.values()
    for a in e.also_right
    for name, text in mutants(a.source)
}


def survives(exercise, text) -> bool:
    try:
        objects = objects_of(exercise, text)
    except Exception:  # a mutant whose cell fails is dead
        return False
    return not lost_groups(exercise, objects)


@pytest.mark.parametrize(("exercise", "name", "text"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_solution_dies_unless_equivalent(exercise, name, text):
    assert survives(exercise, text) == (name in exercise.equivalent), text


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "name", "text"), COUSINS.values(), ids=COUSINS)
def test_a_mutant_of_another_right_answer_dies_unless_equivalent(exercise, name, text):
    assert survives(exercise, text) == (name in exercise.equivalent), text


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_what_is_called_equivalent_is_a_mutant_and_has_a_reason(exercise):
    known = {name for e, name, _ in (*MUTANTS.values(), *COUSINS.values()) if e is exercise}
    assert set(exercise.equivalent) <= known
    assert all(len(reason.split()) >= 4 for reason in exercise.equivalent.values())


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
