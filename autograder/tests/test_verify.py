"""The verdict: what is compared in which order, what is said, and what a mark is made of."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from corpus import TOY, toy_room

from distgrade import references
from distgrade.codec import Elsewhere, Other
from distgrade.compare import Symptom, ceiling, compare, equal
from distgrade.diagnose import common_sentence, patterns, same_failure, same_observation
from distgrade.engine import Observation, ObservedError, observe_here
from distgrade.exercise import Case, GraderError
from distgrade.verify import grade

ONES = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(3, 4)


def first(got, expected, rtol=0.0, n=None) -> Symptom | None:
    found = compare(got, expected, rtol=rtol, n=n)
    assert equal(got, expected, rtol=rtol) == (not found)
    return next(iter(found), None)


def test_equal_trees_have_no_symptom():
    tree = {
        "y": [ONES, ONES.T],
        "n": 3,
        "f": 0.5,
        "q": Fraction(1, 3),
        "s": "x",
        "b": True,
        "e": None,
    }
    assert compare(tree, tree, rtol=0.0) == []
    assert compare(tree | {"y": (ONES.clone(), ONES.T)}, tree, rtol=0.0) == []


@pytest.mark.parametrize(
    ("got", "kind", "seen"),
    [
        (None, "structure", "None where a tensor is expected"),
        (Other("Dense"), "structure", "an object of type Dense"),
        (ONES.numpy(), "structure", "a numpy array where a tensor"),
        ([ONES], "structure", "a list where a tensor"),
        (ONES.reshape(4, 3), "shape", "shape (4, 3) where (3, 4) is expected"),
        (ONES.reshape(4, 3).float() * float("nan"), "shape", "shape (4, 3)"),
        (ONES.float(), "dtype", "dtype float32 where float64"),
        (ONES.float() * float("nan"), "dtype", "float32"),
        (Elsewhere("cuda:0", "torch.float64", (3, 4)), "device", "on cuda:0, not on cpu"),
        (Elsewhere("cuda:0", "torch.float64", (3, 5)), "shape", "shape (3, 5)"),
        (torch.where(ONES == 7, float("nan"), ONES), "finite", "not a finite number at [1, 2]"),
        (torch.where(ONES == 7, float("inf"), ONES), "finite", "at [1, 2]"),
        (torch.where(ONES == 7, 8.0, ONES), "values", "1 of 12 values differ, the first at [1, 2]"),
        (ONES * 3, "values", "every value is 3 times the right one"),
        (ONES * (1 + 3e-8), "values", "the largest difference is 3e-08 of the largest right value"),
        (ONES + 1, "values", "every value differs, the first at [0, 0]"),
    ],
)
def test_shape_then_dtype_then_device_then_finite_then_values(got, kind, seen):
    symptom = first({"y": [ONES, got]}, {"y": [ONES, ONES]}, n=2)
    assert symptom.kind == kind
    assert symptom.what == "y on rank 1"
    assert seen in symptom.seen


@pytest.mark.parametrize(
    ("got", "expected", "ok"),
    [
        (3, 3, True),
        (3, 4, False),
        (3.0, 3, False),
        (True, 1, False),
        (1, True, False),
        (3, 3.0, True),
        (Fraction(3), 3.0, True),
        (np.array(3), 3, True),
        (Fraction(1, 3), Fraction(1, 3), True),
        (1 / 3, Fraction(1, 3), False),
        (float("nan"), 1.0, False),
        (float("inf"), float("inf"), True),
        (float("nan"), float("nan"), False),
        (1.0, float("inf"), False),
        ("a", "a", True),
        ("a", "b", False),
        (None, 0, False),
        (0, None, False),
        (Other("int"), 3, False),
        (10**400, 3.0, False),
    ],
)
def test_numbers_and_texts(got, expected, ok):
    assert (first(got, expected) is None) == ok


def test_a_number_is_never_told_to_be_the_right_one_times_one():
    assert first(1.5, 0.5).seen == "3 times the right value"
    assert first(0.5 * (1 + 1e-8), 0.5).seen == "off by 1e-08 of the right value"
    assert first(True, False).seen == "yes, where no is right"
    assert first(False, True).seen == "no, where yes is right"


def test_branches_must_match():
    assert "2 entries where 3" in first([1, 2], [1, 2, 3]).seen
    assert "a whole number where a list" in first(1, [1]).seen
    assert "keys" in first({"a": 1, "b": 2}, {"a": 1}).seen
    assert "a dict where a whole number" in first({}, 1).seen


def test_a_tolerance_is_relative_to_the_largest_expected_value():
    expected = torch.tensor([1e6, 1e-6], dtype=torch.float64)
    assert first(expected + 1e-7, expected, rtol=1e-12) is None
    assert first(expected + 1e-5, expected, rtol=1e-12).kind == "values"
    assert first(expected + 1e-7, expected).kind == "values"
    assert first(torch.tensor([2**62 + 1]), torch.tensor([2**62]), rtol=1e-3).kind == "values"


def test_one_number_is_told_as_one():
    (symptom,) = compare(torch.tensor(5.0), torch.tensor(4.0), rtol=0.0)
    assert symptom.seen == "off by 0.25 of the right value"
    (symptom,) = compare(torch.tensor([5.0]), torch.tensor([0.0]), rtol=0.0)
    assert symptom.seen == "not the right value"


def test_infinities_and_empty_tensors_compare():
    inf = torch.tensor([float("-inf"), 1.0], dtype=torch.float64)
    assert first(inf, inf.clone(), rtol=1e-12) is None
    assert first(inf.abs(), inf, rtol=1e-12).kind == "values"
    assert first(torch.empty(0, 3), torch.empty(0, 3)) is None
    assert first(torch.tensor(True), torch.tensor(False)).kind == "values"


def test_a_ceiling_allows_less_and_tells_ratios_only():
    assert ceiling([Fraction(10), 12], [12, 12], "bytes") == []
    (symptom,) = ceiling([Fraction(36), 12], [12, 12], "bytes")
    assert (symptom.what, symptom.seen) == (
        "bytes on rank 0", "3 times the bytes that are needed"
    )  # fmt: skip
    assert "none are needed" in ceiling([1], [0], "bytes")[0].seen
    assert ceiling([Other("x")], [3], "bytes")[0].kind == "structure"


def sentences(got, expected, n):
    (symptom, *_) = compare({"y": got}, {"y": expected}, rtol=0.0, n=n)
    return patterns(symptom, {"y": got}, {"y": expected}, n, 0.0)


def common(*failures):
    described = []
    for got, expected, n in failures:
        (symptom, *_) = compare({"y": got}, {"y": expected}, rtol=0.0, n=n)
        described.append((Case("x", "values", n=n), symptom, {"y": got}, {"y": expected}))
    return common_sentence(described, 0.0)


RANKS = [ONES * (r + 1) + r * r for r in range(3)]
SUM = sum(RANKS)


@pytest.mark.parametrize(
    ("got", "expected", "says"),
    [
        ([SUM * 3] * 3, [SUM] * 3, "Too large by exactly the world size"),
        ([SUM / 3] * 3, [SUM] * 3, "Too small by exactly the world size"),
        ([SUM * 9] * 3, [SUM] * 3, "world size squared"),
        ([SUM * 5] * 3, [SUM] * 3, "multiplied by 5"),
        ([SUM * (1 + 3e-8)] * 3, [SUM] * 3, "float32"),
        ([SUM * (1 + 1e-3)] * 3, [SUM] * 3, "multiplied by 1.001"),
        ([-SUM] * 3, [SUM] * 3, "sign"),
        ([SUM * 0] * 3, [SUM] * 3, "zeros"),
        (RANKS, [SUM] * 3, "add up to the right answer"),
        ([SUM, *RANKS[1:]], [SUM] * 3, "Right on rank 0 only"),
        ([SUM, SUM, RANKS[2]], [SUM] * 3, "Wrong on the last rank only"),
        ([SUM, RANKS[2], SUM], [SUM] * 3, "Wrong on rank 1 only"),
        (RANKS[::-1], RANKS, "wrong ranks"),
        ([r.T for r in RANKS], RANKS, "transposed"),
        ([RANKS[1] + 1, RANKS[0], RANKS[2] - 1], RANKS, ""),
    ],
)
def test_a_symptom_fires_only_where_it_holds(got, expected, says):
    found = sentences(got, expected, 3)
    assert (says in found[0]) if says else found == []


def test_a_symptom_must_hold_in_every_case():
    two, three = ([SUM * 2] * 2, [SUM] * 2, 2), ([SUM * 3] * 3, [SUM] * 3, 3)
    assert "exactly the world size" in common(two, three)
    assert "multiplied by 2, whatever" in common(two, ([SUM * 2] * 3, [SUM] * 3, 3))
    assert "multiplied by 2, whatever" in common(([SUM * 2], [SUM], 1), two)
    assert common(two, ([SUM * 5] * 3, [SUM] * 3, 3)) == ""
    last_of_two, last_of_three = ([SUM, ONES], [SUM] * 2, 2), ([SUM, SUM, ONES], [SUM] * 3, 3)
    assert "last rank" in common(last_of_two, last_of_three)
    assert "Right on rank 0" in common(last_of_two, ([SUM, ONES, ONES], [SUM] * 3, 3))
    assert common() == ""


def test_the_last_part_alone_is_told_where_the_ranks_do_not_divide():
    good = torch.arange(1.0, 12.0, dtype=torch.float64)
    cut = torch.cat([good[:9], good[9:] * 5 + 1])
    assert "left over" in sentences([cut] * 3, [good] * 3, 3)[0]
    assert sentences([cut.flip(0)] * 3, [good.flip(0)] * 3, 3) == []


@pytest.fixture
def toy(tmp_path):
    exercise = toy_room(tmp_path)
    references.write(exercise)
    return exercise


def doubled(x):
    if not x.numel():
        raise ValueError
    return 2 * x


def careless(x):
    return 2 * x


def test_points_are_earned_by_whole_groups(toy):
    outcome = grade(toy, observe_here(toy, (doubled,), (0, 1)))
    assert (outcome.points, outcome.max_points, outcome.status) == (3.0, 3.0, "passed")
    assert outcome.lines == ("3 of 3 points.",)
    outcome = grade(toy, observe_here(toy, (careless,), (0, 1)))
    assert (outcome.points, outcome.status) == (2.0, "partial")
    assert "ValueError" in outcome.message

    def half(x):
        return doubled(x) if x.dim() == 2 else x

    outcome = grade(toy, observe_here(toy, (half,)))
    assert (outcome.points, outcome.status) == (0.0, "failed")


def test_a_size_without_meaning_wants_its_own_kind_of_error(toy):
    def double(x):
        if not x.numel():
            raise TypeError("no")
        return 2 * x

    class Narrower(ValueError):
        pass

    def narrower(x):
        if not x.numel():
            raise Narrower
        return 2 * x

    assert grade(toy, observe_here(toy, (double,))).points == 2.0
    assert grade(toy, observe_here(toy, (narrower,))).points == 3.0


def test_an_error_that_was_asked_for_may_have_any_text(toy):
    def double(x):  # the known wrong answer, with words of its own
        if not x.numel():
            raise ValueError("no numbers here")
        return x * x

    assert grade(toy, observe_here(toy, (double,))).diagnosis == "It is squared."


def test_a_known_wrong_answer_gets_its_sentence_and_a_cousin_does_not(toy):
    squared = toy.wrong[0].objects()
    assert grade(toy, observe_here(toy, squared)).diagnosis == "It is squared."

    def cubed(x):
        return squared[0](x) * x

    assert grade(toy, observe_here(toy, (cubed,))).diagnosis == ""


def test_a_known_wrong_answer_may_differ_in_what_its_cases_do_not_tell_of(toy):
    x = torch.arange(4.0, dtype=torch.float64)

    def symptom(o):
        right = o.error is None and torch.equal(o.tree["y"], x + x)
        return None if right else Symptom("values", "y on rank 0", "every value differs")

    squares = Observation(0, 0, tree={"y": x * x, "calls": 1})
    for tree, alike in (
        ({"y": x * x, "calls": 2}, True),
        ({"y": x * x * (1 + 1e-13), "calls": 1}, True),
        ({"y": x * x * (1 + 1e-6), "calls": 1}, False),
        ({"y": x + x, "calls": 1}, False),
    ):
        one = Observation(0, 0, tree=tree)
        assert not same_observation(toy, one, squares)
        assert same_failure(toy, one, squares, symptom) == alike
    failed = Observation(0, 0, error=ObservedError("ValueError", "no"))
    assert not same_failure(toy, failed, squares, symptom)
    assert not same_failure(toy, None, squares, symptom)


def test_a_wrong_answer_that_rounds_otherwise_gets_its_sentence_and_another_way_to_fail_none(toy):
    squared = toy.wrong[0].objects()[0]

    def rounded(x):
        return squared(x) * (1 + 1e-13)

    def squared_without_an_error(x):
        return x * x

    assert grade(toy, observe_here(toy, (rounded,))).diagnosis == "It is squared."
    assert grade(toy, observe_here(toy, (squared_without_an_error,))).diagnosis == ""


def test_what_is_measured_may_differ_from_a_known_wrong_answer_if_something_else_fails(toy):
    measures = replace(toy, measured=("errors",))

    def double(x):  # squared, but for what it does without numbers
        return x * x

    assert grade(toy, observe_here(toy, (double,))).diagnosis == ""
    assert grade(measures, observe_here(measures, (double,))).diagnosis == "It is squared."

    def right_elsewhere(x):
        return x + x

    assert grade(measures, observe_here(measures, (right_elsewhere,))).diagnosis == ""


def test_messages_are_bounded_printable_and_hold_no_expected_value(toy):
    text = "\x1b[31m" + "long " * 500 + "\nsecond line"

    def double(x):
        raise ValueError(text)

    outcome = grade(toy, observe_here(toy, (double,)))
    assert all(len(line) <= 300 and line.isprintable() for line in outcome.lines)
    assert "second line" not in outcome.message
    assert outcome.status == "partial"  # it does raise ValueError where one is due


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("timeout", "timeout"),
        ("no-record", "error"),
        ("doubled", "error"),
        ("malformed", "error"),
        ("grader", "error"),
        ("too-large", "error"),
        ("missing", "missing"),
        ("forbidden", "error"),
        ("wrong-type", "error"),
        ("NotImplementedError", "not-written"),
        ("unimplemented", "error"),
    ],
)
def test_every_kind_of_error_has_a_status_and_a_sentence(toy, kind, status):
    observations = [
        Observation(i, 0, error=ObservedError(kind, "It went wrong.")) for i in range(3)
    ]
    outcome = grade(toy, observations)
    assert (outcome.status, outcome.points) == (status, 0.0)
    assert outcome.lines


def test_a_case_that_cannot_be_set_up_here_either_is_our_fault(toy):
    def given(case, seed):
        raise ValueError

    observations = [Observation(i, 0, error=ObservedError("grader")) for i in range(3)]
    with pytest.raises(GraderError, match="could not be set up"):
        grade(replace(toy, given=given), observations)


def test_one_error_among_right_answers_names_its_case(toy):
    good = observe_here(toy, (doubled,))
    error = ObservedError("IndexError", "out of range", "line 3, in `double`: x[9]")
    outcome = grade(toy, [good[0], Observation(1, 0, error=error), good[2]])
    assert "a vector" in outcome.lines[0]
    assert outcome.lines[1] == "Seen: IndexError: out of range (line 3, in `double`: x[9])"
    assert (outcome.status, outcome.points) == ("partial", 1.0)


def test_an_engines_report_becomes_who_waits_for_what_and_what_to_do(toy):
    report = (
        "deadlock: no rank can go on.\n"
        "  rank 0 waits in all_reduce #1 (sum, float32[3])\n"
        "      at /tmp/cell.py, line 5 in double: y = comm.all_reduce(y)\n"
        "  ranks 1, 2 have returned\n"
        "All ranks of a group must make the same collective calls."
    )
    error = ObservedError("DeadlockError", report, "", ("DeadlockError", "DistError"))
    outcome = grade(toy, [Observation(i, 0, error=error) for i in range(3)])
    assert outcome.lines[1] == (
        "Seen: DeadlockError: deadlock: no rank can go on. rank 0 waits in all_reduce #1 "
        "(sum, float32[3]); ranks 1, 2 have returned "
        "(line 5 in double: y = comm.all_reduce(y))"
    )
    assert outcome.diagnosis == "All ranks of a group must make the same collective calls."


def test_a_judge_may_add_where_to_look(toy):
    told = replace(
        toy, judge=lambda got, expected, case: [Symptom("values", "y", "odd", look="Look there.")]
    )
    assert grade(told, observe_here(told, (doubled,))).diagnosis == "Look there."


def test_a_judge_that_trips_over_the_form_of_an_answer_is_no_fault_of_the_grader(toy):
    def strict(got, expected, case):
        assert torch.isfinite(got["y"]).all()
        return []

    told = replace(toy, judge=strict)
    right = observe_here(told, (doubled,))
    assert grade(told, right).status == "passed"
    texts = grade(told, observe_here(told, (lambda x: "text",)))
    assert "a text where" in texts.lines[1]
    assert texts.points == 0
    nothing = grade(told, observe_here(told, (lambda x: x * float("nan"),)))
    assert "not a finite number" in nothing.lines[1]

    def broken(got, expected, case):
        raise TypeError

    with pytest.raises(GraderError, match="the judge failed"):  # also on a right answer: ours
        grade(replace(toy, judge=broken), right)


def test_the_references_file_is_the_same_bytes_every_time(tmp_path):
    exercise = toy_room(tmp_path)
    assert references.write(exercise) is True
    assert references.write(exercise) is False
    data = references.path(exercise).read_bytes()
    import safetensors.torch

    assert len(safetensors.torch.load(data)) == 4
    changed = toy_room(tmp_path, TOY.replace("shape=(5,)", "shape=(6,)"))
    with pytest.raises(references.ReferenceFileError, match="out of date"):
        references.read(changed)
