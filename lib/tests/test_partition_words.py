"""Partitions: what has no answer is refused in words, and every plan draws itself."""

import pytest

from distlab import partition
from distlab.errors import InfeasibleError
from distlab.partition import Memory, interleaved, min_max, replicated

LECTURE = [3.0] + [1.0] * 10 + [4.0]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], 1), "no layers"),
        (([1.0], 0), "0 stages can hold no layer"),
        (([1.0], -2), "-2 stages"),
        (([1.0, 2.0], 3), "3 stages of 2 layers.*at most 2 stages"),
        (([1.0, -2.0], 1), r"layer_times\[1\] is -2.0"),
        (([NAN, 2.0], 1), r"layer_times\[0\] is nan"),
        (([1.0, INF], 2), r"layer_times\[1\] is inf"),
        (([1e308, 1e308], 1), "add up to more"),
    ],
)
def test_what_can_not_be_cut_is_refused_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        min_max(*arguments)


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({"exposed": [1.0]}, "exposed holds 1 numbers for 2 places"),
        ({"overlapped": [1.0, NAN]}, r"overlapped\[1\] is nan"),
        ({"speeds": [1.0, 0.0]}, "speed of stage 1 is 0"),
        ({"speeds": [1.0]}, "speeds holds 1 numbers for 2 stages"),
        ({"first": -1.0}, r"first\[0\] is -1.0"),
        ({"memory": Memory([1, 1], [1, 1, 1], 9)}, "weight_bytes holds 2 numbers for 3 layers"),
        ({"memory": Memory([1, 1, 1], [1, 1, 1], [9])}, "cap_bytes holds 1"),
        ({"memory": Memory([1, 1, 1], [1, 1, 1], 9, [1])}, "in_flight holds 1"),
    ],
)
def test_costs_that_are_none_are_refused_in_words(costs, words):
    with pytest.raises(ValueError, match=words):
        min_max([1.0, 2.0, 3.0], 2, **costs)


def test_a_number_of_stages_is_a_whole_number():
    for stages in (2.0, "2", True):
        with pytest.raises(TypeError, match="whole number"):
            min_max([1.0, 2.0], stages)


def test_memory_that_never_fits_names_the_stage_and_the_lack():
    memory = Memory([10e9] * 4, [2e9] * 4, 27e9)
    with pytest.raises(InfeasibleError) as caught:
        min_max([1.0] * 4, 2, memory=memory)
    assert str(caught.value) == (
        "No partition into 2 stages fits into memory. The one that lacks least puts layers 0–1 on "
        "stage 0: with 2 microbatches in flight they need 28 GB of 27 GB, 1 GB too much."
    )
    exact_fit = Memory([10e9] * 4, [2e9] * 4, 28e9)
    assert min_max([1.0] * 4, 2, memory=exact_fit).bounds == (0, 2, 4)


def test_1f1b_keeps_fewer_microbatches_on_later_stages():
    memory = Memory([0] * 6, [1] * 6, 6)
    assert min_max([1] * 6, 2, memory=memory).sizes == (3, 3)
    assert min_max([1] * 6, 2, memory=Memory([0] * 6, [1] * 6, 4)).sizes == (2, 4)
    alike = Memory([0] * 6, [1] * 6, 4, in_flight=[1, 1])
    assert min_max([1] * 6, 2, memory=alike).sizes == (3, 3)


# ---- pictures ----


def test_a_plan_draws_itself():
    plan = min_max(LECTURE, 4, exposed=[0.5] * 11)
    picture, svg = plan.picture(title="Cut"), plan.svg(title="Cut")
    assert "stage 3 5.5" in picture.alt
    assert picture.alt in svg
    bars = [patch.get_height() for patch in picture.figure.axes[0].patches]
    assert sum(bars) == pytest.approx(sum(plan.loads))
    assert svg.count("<rect") == len(bars) == 12 + 6  # layers, and two transfers at each cut
    assert plan._repr_mimebundle_()["text/html"] == plan.svg()


def test_the_other_plans_draw_themselves():
    for plan in (
        interleaved(LECTURE, 2, 2),
        replicated(LECTURE, 6, weight_bytes=LECTURE, rate_bytes_per_s=100),
    ):
        assert "slowest takes" in plan.picture().alt
        assert f"{plan.value:.4g}" in plan.svg()
        assert "the slowest takes" in str(plan)
    table = partition.table(LECTURE, 4)
    cells = [patch for patch in table.picture().figure.axes[0].patches]
    assert len(cells) == 1 + 12 + 11 + 10 + 9


def test_any_partition_can_be_drawn_but_no_bounds_that_fall():
    from distlab import plot

    assert "stage 1 0" in plot.stage_loads([1, 2, 3], [0, 2, 2, 3]).alt
    with pytest.raises(ValueError, match="rise from 0"):
        plot.stage_loads([1, 2, 3], [0, 2, 1])
