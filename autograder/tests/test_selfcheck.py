"""Grading in the running process: the check button and the hidden region."""

import os
import re
import subprocess
import sys
from functools import partial

import pytest

import distgrade
from distgrade import patience, selfcheck
from distgrade.exercise import load
from distgrade.running.runner import Limits
from distgrade.selfcheck import check
from distlab.errors import CheckFailed

ROW = load("lab03.row_linear")
PAIR = load("lab03.f_and_g")


def answer(exercise, name):
    (found,) = [a for a in (*exercise.wrong, *exercise.also_right) if a.name == name]
    return found.objects()


def test_success_is_one_quiet_line_with_what_was_measured(capfd):
    assert check(ROW.id, answer(ROW, "bias_on_one_rank")) is None
    out, err = capfd.readouterr()
    assert re.fullmatch(
        r"lab03\.row_linear: 4 of 4 points\. On 5 ranks, each sends at most [\d.]+ bytes\.\n", out
    )
    assert err == ""


def test_an_answer_without_an_end_is_told_and_stopped(capfd, monkeypatch):
    short = partial(patience.bounded, soon_s=0.2, limit_s=1.0)
    monkeypatch.setattr(selfcheck, "bounded", short)

    def forever(*args, **kwargs):
        while True:
            pass

    spec = load("lab01.count_params")
    with pytest.raises(CheckFailed, match=r"lab01\.count_params: stopped after 1 s: too slow"):
        check(spec.id, [forever] * len(spec.names))
    out, err = capfd.readouterr()
    assert "still runs after 0.2 s, and is stopped at 1 s, as in grading." in out
    assert err == ""
    assert Limits().exercise_s == patience.LIMIT_S


def test_a_students_own_interrupt_is_one_and_what_ends_in_time_says_nothing(capfd):
    with pytest.raises(KeyboardInterrupt), patience.bounded("it", soon_s=60.0):
        raise KeyboardInterrupt
    with patience.bounded("it", soon_s=60.0):
        pass
    assert capfd.readouterr() == ("", "")


def test_practice_passes_without_points(capfd):
    practice = load("lab00.mean_of_all")
    assert check(practice.id, answer(practice, "sum_and_count_apart")) is None
    assert "passed (practice, no points)." in capfd.readouterr().out
    assert distgrade.grade(practice.id, *answer(practice, "sum_and_count_apart")) == 0.0
    with pytest.raises(CheckFailed, match="mean of means"):
        distgrade.grade(practice.id, *answer(practice, "mean_of_means"))


@pytest.mark.parametrize(
    ("exercise", "name"), [(ROW, "bias_before_the_reduce"), (PAIR, "gathers_and_sums")]
)
def test_anything_less_is_three_calm_lines(exercise, name, capfd):
    with pytest.raises(CheckFailed) as raised:
        check(exercise.id, answer(exercise, name))
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("Case ")
    assert lines[1].startswith("Seen: ")
    assert lines[2] in {a.sentence for a in exercise.wrong}
    assert capfd.readouterr() == ("", "")


def test_the_hidden_region_gets_a_plain_float_or_an_error(capfd):
    assert repr(distgrade.grade(PAIR.id, *answer(PAIR, "in_place_on_a_copy"))) == "4.0"
    assert repr(distgrade.grade(PAIR.id, *answer(PAIR, "gathers_and_sums"))) == "3.0"
    with pytest.raises(CheckFailed, match="swapped"):
        distgrade.grade(PAIR.id, *answer(PAIR, "swapped"))
    assert capfd.readouterr().err == ""


def test_an_untouched_stub_is_told_as_such():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        raise NotImplementedError("row_linear is not written yet")

    with pytest.raises(CheckFailed, match=r"^`row_linear` is not written yet\.$"):
        check(ROW.id, (row_linear,))


def test_the_number_of_objects_is_checked():
    with pytest.raises(ValueError, match="CopyToRanks, ReduceFromRanks"):
        check(PAIR.id, answer(PAIR, "swapped")[:1])
    with pytest.raises(LookupError, match=r"lab03\.rowlinear"):
        check("lab03.rowlinear", ())


@pytest.mark.slow
def test_importing_distgrade_costs_no_torch():
    code = "import sys, distgrade; assert 'torch' not in sys.modules; distgrade.grade"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
    with pytest.raises(AttributeError, match="nothing_here"):
        distgrade.nothing_here  # noqa: B018
