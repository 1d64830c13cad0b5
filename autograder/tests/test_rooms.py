"""What every exercise promises, found by folder."""

import builtins
import types

import pytest
import torch
from corpus import (
    SEEDS,
    cell,
    cell_objects,
    checks,
    frozen,
    objects_of,
    seen_of,
    solution_text,
    solved,
    stub_text,
)

from distgrade import references
from distgrade.compare import compare
from distgrade.diagnose import same_observation
from distgrade.engine import observe_here
from distgrade.exercise import all_exercises, lab_exercises, load
from distgrade.verify import grade, symptoms_of

EXERCISES = {e.id: e for e in all_exercises()}
WRONG = {f"{e.id} {a.name}": (e, a) for e in EXERCISES.values() for a in e.wrong}
RIGHT = {f"{e.id} {a.name}": (e, a) for e in EXERCISES.values() for a in e.also_right}

every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


def test_exercises_are_found_by_folder():
    assert {"lab03.f_and_g", "lab03.row_linear"} <= set(EXERCISES)
    assert load("lab03.row_linear") in lab_exercises("lab03-tensor-parallel")
    with pytest.raises(LookupError, match="no exercise"):
        load("lab03.nothing")


@every_exercise
def test_the_notebooks_solution_earns_all_points(exercise):
    outcome = grade(exercise, solved(exercise))
    assert (outcome.status, outcome.points) == ("passed", exercise.points), outcome.lines


@every_exercise
def test_the_stub_is_told_as_not_written(exercise):
    outcome = grade(exercise, observe_here(exercise, objects_of(exercise, stub_text(exercise))))
    assert (outcome.status, outcome.points) == ("not-written", 0)
    assert "not written yet" in outcome.message
    assert outcome.message.startswith(f"`{exercise.names[0]}")


@every_exercise
def test_two_runs_of_the_solution_agree_to_the_last_bit(exercise):
    first = [o for o in solved(exercise) if o.seed == 0]
    again = observe_here(exercise, objects_of(exercise, solution_text(exercise)))
    for one, other in zip(first, again, strict=True):
        assert not compare(one.tree, other.tree, rtol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "answer"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_fails_with_its_own_sentence(exercise, answer):
    seen = seen_of(exercise, answer)
    fails_with_its_sentence(exercise, answer, seen)
    failed = next(o for o in seen if symptoms_of(exercise, o, frozen(exercise)[o.case_index]))
    (again,) = observe_here(exercise, answer.objects(), only=failed.case_index)
    if not same_observation(exercise, again, failed):  # it answers anew each time: judge it anew
        fails_with_its_sentence(exercise, answer, observe_here(exercise, answer.objects()))


def fails_with_its_sentence(exercise, answer, observations):
    outcome = grade(exercise, observations)
    assert outcome.status != "passed"
    assert outcome.diagnosis == answer.sentence
    assert len(outcome.lines) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "answer"), RIGHT.values(), ids=RIGHT)
def test_a_right_answer_by_another_method_passes(exercise, answer):
    outcome = grade(exercise, observe_here(exercise, answer.objects(), SEEDS))
    assert (outcome.status, outcome.points) == ("passed", exercise.points), outcome.lines


@every_exercise
def test_the_corpora_are_large_enough_and_their_sentences_differ(exercise):
    assert len(exercise.wrong) >= 5
    assert len(exercise.also_right) >= 2
    assert len({a.sentence for a in exercise.wrong}) == len(exercise.wrong)
    assert all(len(a.sentence) <= 120 for a in exercise.wrong)


@pytest.mark.parametrize(
    ("exercise", "answer"), [*WRONG.values(), *RIGHT.values()], ids=[*WRONG, *RIGHT]
)
def test_an_answers_text_is_a_solution_cell_of_its_own(exercise, answer):
    objects = cell_objects(answer.source, exercise.names, "<alone>")
    assert [o.__name__ for o in objects] == list(exercise.names)
    assert "return" not in answer.source.splitlines()[-1].split("#")[0][:6]
    assert not answer.source.startswith((" ", "@"))


@every_exercise
def test_the_frozen_references_recompute_to_zero_difference(exercise):
    assert references.path(exercise).read_bytes() == references.render(exercise)
    for index, right in enumerate(frozen(exercise)):
        assert not compare(right, references.expected(exercise, index, 0), rtol=0.0)


@every_exercise
def test_every_ranks_inputs_differ_and_none_is_zero(exercise):
    for entry in references.read_all(exercise):
        for value in (entry["given"] or {}).values():
            tensors = (
                [t for t in value if isinstance(t, torch.Tensor)] if type(value) is list else []
            )
            assert all(bool(t.all()) for t in tensors)
            for i, one in enumerate(tensors):
                assert not any(torch.equal(one, other) for other in tensors[:i])


@every_exercise
def test_the_cases_have_every_small_world_size(exercise):
    sizes = {c.n for c in exercise.cases if hasattr(c, "n")}
    assert not sizes or {1, 2, 3, 4, 5} <= sizes


@every_exercise
def test_given_and_observe_use_no_name_of_their_module(exercise):
    for text in (exercise.given_source, exercise.observe_source):
        assert global_names(compile(text, "<room>", "exec").co_consts) <= set(dir(builtins))


def global_names(consts) -> set[str]:
    import dis

    found = set()
    for code in (c for c in consts if isinstance(c, types.CodeType)):
        found |= {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
        found |= global_names(code.co_consts)
    return found - {"__name__"}


@every_exercise
def test_the_notebook_agrees_with_the_room(exercise):
    solution, test = (cell(exercise.lab, f"{exercise.name}{ending}") for ending in ("", "-test"))
    assert test["metadata"]["nbgrader"]["points"] == exercise.points
    assert test["metadata"]["nbgrader"]["locked"]
    assert not solution["metadata"]["nbgrader"]["grade"]
    region = (
        "### BEGIN HIDDEN TESTS\nfrom distgrade import grade\n"
        f'grade("{exercise.id}", {", ".join(exercise.names)})\n### END HIDDEN TESTS'
    )
    text = "".join(test["source"])
    assert text.endswith(region)
    assert text.count("HIDDEN TESTS") == 2
    assert checks(text, exercise)
