"""The short ways that the grader's tests take give what the long ways give."""

import pytest
from corpus import Hunt, fails, frozen, objects_of, seen_of, solution_text, solved
from mutants import mutants

from distgrade.diagnose import same_observation
from distgrade.engine import observe_here
from distgrade.exercise import all_exercises
from distgrade.verify import grade, symptoms_of

EXERCISES = {e.id: e for e in all_exercises()}
SMALL = ("lab01.model_state_bytes", "lab02.make_buckets", "lab03.shards", "lab05.even_split")

every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


def groups_lost_in(exercise, observations) -> set[str]:
    """The long way: every case is looked at, in its order."""
    lost = set()
    for o in observations:
        if symptoms_of(exercise, o, frozen(exercise)[o.case_index]):
            lost.add(exercise.cases[o.case_index].group)
    return lost


@pytest.mark.slow
@every_exercise
def test_a_hunt_finds_what_looking_at_every_case_finds(exercise):
    hunt = Hunt(exercise)
    for answer in exercise.wrong[::3]:
        whole = groups_lost_in(exercise, seen_of(exercise, answer))
        objects = answer.objects()
        found = hunt.lost(objects)
        assert len(found) == 1
        assert found <= whole
        assert hunt.lost(objects, enough=len(hunt.groups)) == whole
    assert groups_lost_in(exercise, [o for o in solved(exercise) if o.seed == 0]) == set()
    assert hunt.lost(objects_of(exercise, solution_text(exercise))) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_hunt_and_the_long_way_agree_on_mutants(name):
    exercise = EXERCISES[name]
    hunt = Hunt(exercise)
    for _, text in list(mutants(solution_text(exercise)))[::2]:
        try:
            objects = objects_of(exercise, text)
        except Exception:  # its cell fails: there is nothing to hunt for
            continue
        whole = groups_lost_in(exercise, observe_here(exercise, objects))
        assert bool(hunt.lost(objects)) == bool(whole)
        assert hunt.lost(objects, enough=len(hunt.groups)) == whole


@pytest.mark.slow
@every_exercise
def test_a_wrong_answer_observed_again_gets_the_mark_that_is_shared(exercise):
    answer = exercise.wrong[len(exercise.wrong) // 2]
    again = grade(exercise, observe_here(exercise, answer.objects()))
    shared = grade(exercise, seen_of(exercise, answer))
    assert (again.points, again.diagnosis) == (shared.points, answer.sentence)
    assert again == shared


@every_exercise
def test_a_case_observed_alone_gives_what_it_gives_among_the_others(exercise):
    objects = objects_of(exercise, solution_text(exercise))
    last = len(exercise.cases) - 1
    (alone,) = observe_here(exercise, objects, only=last)
    among = next(o for o in solved(exercise) if (o.case_index, o.seed) == (last, 0))
    assert (alone.case_index, alone.seed) == (last, 0)
    assert same_observation(exercise, alone, among)
    assert not fails(exercise, objects, last)


def test_a_hunt_tries_first_what_found_most_for_its_time(monkeypatch):
    exercise = EXERCISES["lab03.row_linear"]
    hunt, looked = Hunt(exercise), []

    def look(_exercise, _objects, index):
        looked.append(index)
        return index == 3

    monkeypatch.setattr("corpus.fails", look)
    for _ in range(5):
        assert hunt.lost(()) == {exercise.cases[3].group}
    assert looked[:4] == [0, 1, 2, 3]
    assert looked[-2:] == [3, 3]
