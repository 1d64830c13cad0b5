"""A grader that was broken says so: no verdict is ever a pass by accident."""

from dataclasses import replace

import pytest
import torch
from corpus import SEEDS, TOY, seen_of, toy_room
from corpus import solved as observed

from distgrade import references, verify
from distgrade.engine import Observation, observe_here
from distgrade.exercise import GraderError, RoomError, all_exercises
from distgrade.references import ReferenceFileError
from distgrade.verify import grade

pytestmark = pytest.mark.slow

EXERCISES = {e.id: e for e in all_exercises()}


@pytest.fixture(params=EXERCISES.values(), ids=EXERCISES, scope="module")
def solved(request):
    """An exercise with the observations of a right answer."""
    return request.param, list(observed(request.param))


def zeros(tree):
    if isinstance(tree, dict):
        return {k: zeros(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [zeros(v) for v in tree]
    if tree is None:  # an error was observed here, as it should be
        return None
    return torch.zeros_like(tree) if isinstance(tree, torch.Tensor) else type(tree)(0)


def refuses(exercise, observations):
    with pytest.raises(GraderError):
        grade(exercise, observations)


def test_an_oracle_that_returns_zeros_gives_no_verdict(solved):
    exercise, observations = solved
    refuses(
        replace(exercise, oracle=lambda case, given: zeros(exercise.oracle(case, given))),
        observations,
    )


@pytest.mark.parametrize("answer", [None, {}, [], {"y": []}, {"y": None}])
def test_an_oracle_that_returns_nothing_gives_no_verdict(solved, answer):
    exercise, observations = solved
    refuses(replace(exercise, oracle=lambda case, given: answer), observations)


def test_an_oracle_that_fails_gives_no_verdict(solved):
    exercise, observations = solved
    refuses(replace(exercise, oracle=lambda case, given: 1 / 0), observations)


@pytest.mark.parametrize("verdict", [None, True, "", 0, ["fine"], ()])
def test_a_judge_that_gives_no_list_of_symptoms_gives_no_verdict(solved, verdict):
    exercise, observations = solved
    refuses(replace(exercise, judge=lambda got, expected, case: verdict), observations)


def test_a_judge_that_fails_gives_no_verdict(solved):
    exercise, observations = solved
    refuses(replace(exercise, judge=lambda got, expected, case: 1 / 0), observations)


def test_a_judge_that_always_agrees_would_let_the_wrong_answers_pass(solved):
    exercise, _ = solved
    blind = replace(exercise, judge=lambda got, expected, case: [])
    seen = seen_of(exercise, exercise.wrong[0])
    assert grade(blind, seen).status == "passed"
    assert grade(exercise, seen).status != "passed"


def test_missing_references_give_no_verdict(solved, tmp_path):
    exercise, observations = solved
    lost = replace(exercise, path=tmp_path / "room.py")
    with pytest.raises(ReferenceFileError, match="no frozen references"):
        grade(lost, observations)


def test_damaged_references_give_no_verdict(solved, tmp_path):
    exercise, observations = solved
    good = references.path(exercise).read_bytes()
    moved = replace(exercise, path=tmp_path / "room.py")
    target = references.path(moved)
    target.write_bytes(good)
    assert grade(moved, observations).status == "passed"
    flipped = bytearray(good)
    flipped[-5] ^= 64
    shorter = good[:-16]
    digit = good.replace(b'"shape": [2, 3]', b'"shape": [3, 2]', 1)
    for bad in (bytes(flipped), shorter, b"", b"{}", good[:100], digit):
        if bad == good:
            continue
        target.write_bytes(bad)
        with pytest.raises(ReferenceFileError, match="damaged"):
            grade(moved, observations)


def test_references_of_other_cases_or_another_oracle_give_no_verdict(solved):
    exercise, observations = solved
    for changed in (
        replace(exercise, oracle_source=exercise.oracle_source + "\n# changed"),
        replace(exercise, given_source=exercise.given_source + "\n# changed"),
        replace(exercise, cases=exercise.cases[:-1]),
    ):
        with pytest.raises(GraderError):
            grade(changed, observations)
    with pytest.raises(ReferenceFileError, match="out of date"):
        references.read(replace(exercise, cases=exercise.cases[:-1]))


def test_observations_that_do_not_cover_every_case_once_give_no_verdict(solved):
    exercise, observations = solved
    assert grade(exercise, observations).status == "passed"
    for bad in (
        [],
        observations[1:],
        observations[:-1],
        [*observations, observations[0]],
        [o for o in observations if o.seed != 0],
        [o for o in observations if o.case_index == 0],
        [*observations, Observation(len(exercise.cases), 0, tree={})],
        [*observations[:-1], replace(observations[-1], seed=98)],
    ):
        refuses(exercise, bad)


def test_an_empty_answer_fails(solved):
    exercise, observations = solved
    for tree in (None, {}, [], {"y": None}):
        outcome = grade(exercise, [replace(o, tree=tree) for o in observations])
        assert (outcome.points, outcome.status) == (0.0, "failed")


def test_zeros_fail(solved):
    exercise, observations = solved
    assert grade(exercise, [replace(o, tree=zeros(o.tree)) for o in observations]).points == 0


def test_a_fresh_seed_alone_can_fail_a_case(solved):
    exercise, observations = solved
    changed = [replace(o, tree=zeros(o.tree)) if o.seed == SEEDS[1] else o for o in observations]
    assert grade(exercise, changed).points == 0


def test_a_grader_that_cannot_make_its_inputs_blames_itself(solved):
    exercise, _ = solved
    broken = replace(exercise, given_source="def given(case, seed):\n    return 1 / 0\n")
    observations = observe_here(broken, exercise.also_right[0].objects())
    with pytest.raises(GraderError):
        verify.grade(broken, observations)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('CREDIT = {"values": 2, "errors": 1}', 'CREDIT = {"values": 2}', "points row"),
        ('"errors": 1}', '"errors": 1, "bytes": 1}', "points row"),
        ('"errors": 1}', '"errors": 0}', "positive"),
        ('"a vector"', '"a matrix"', "names differ"),
        ('"values", n=3', '"alone", n=1', "points row"),
        ("TOLERANCE = Exact()", "", "no TOLERANCE"),
        ("TOLERANCE = Exact()", "TOLERANCE = 0.1", "tolerance"),
        ("    return double\n\n\n@also", "\n\n@also", "returns them"),
        ("shape=(2, 3)", "shape=object()", "literals"),
    ],
)
def test_a_room_that_breaks_the_contract_is_refused(tmp_path, old, new, why):
    assert old in TOY
    with pytest.raises(RoomError, match=why):
        toy_room(tmp_path, TOY.replace(old, new, 1))


SLIP = """
from distgrade.exercise import slip

left_alone = slip(by_factors, "Nothing was doubled.", ("x.mul(2)", "x.mul(1)"))
"""


def test_a_slip_is_a_right_answer_with_one_place_changed(tmp_path):
    exercise = toy_room(tmp_path, TOY + SLIP)
    right, slipped = exercise.also_right[-1], exercise.wrong[-1]
    assert (slipped.name, slipped.right) == ("left_alone", False)
    assert slipped.source == right.source.replace("x.mul(2)", "x.mul(1)") != right.source
    (double,) = slipped.objects()
    assert double(torch.tensor([3])).item() == 3


@pytest.mark.parametrize("place", ["x.mul(3)", "x"])
def test_a_slip_whose_place_is_not_unique_is_refused(tmp_path, place):
    with pytest.raises(RoomError, match=r"left_alone: .* times"):
        toy_room(tmp_path, TOY + SLIP.replace("x.mul(2)", place))
