"""The explorers of schedules and partitions: numbers against closed forms and against counting."""

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from fractions import Fraction

import pytest

from distlab.explorers import frame, partition, schedule
from distlab.explorers.partition import PartitionSettings, partition_numbers
from distlab.explorers.schedule import ScheduleSettings, schedule_numbers

SIZES = [(1, 1), (1, 6), (2, 3), (3, 7), (4, 8), (5, 2), (5, 20), (16, 64)]
TIMES = [(1, 2), (1, 1), (3, 1), (0.5, 4)]


def schedule_of(name, p, m, f, b, **more):
    chosen = ScheduleSettings(
        schedule=name, stages=p, microbatches=m, forward=f, backward=b, **more
    )
    return schedule_numbers(chosen)


# -- schedules: the numbers -----------------------------------------------------------------------


@pytest.mark.parametrize(("f", "b"), TIMES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_gpipe_and_1f1b_take_the_same_time_and_hold_what_they_hold(p, m, f, b):
    for name, peaks in (
        ("GPipe", [m] * p),
        ("1F1B", [min(m, p - s) for s in range(p)]),
        ("PipeDream, no flush", [min(m, p - s) for s in range(p)]),
    ):
        numbers = schedule_of(name, p, m, f, b)
        assert numbers.makespan == (m + p - 1) * (f + b)
        assert numbers.work == m * (f + b)
        assert numbers.bubble_fraction == pytest.approx((p - 1) / (m + p - 1), rel=1e-12)
        assert numbers.bubble_ratio == pytest.approx((p - 1) / m, rel=1e-12)
        assert list(numbers.peaks) == peaks
        kept = peaks if name.startswith("PipeDream") else [1] * p
        assert list(numbers.versions) == kept


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_naive_order_uses_one_rank_at_a_time(p, m):
    numbers = schedule_of("naive", p, m, 1, 2)
    assert numbers.makespan == 3 * m * p
    assert numbers.bubble_fraction == pytest.approx(1 - 1 / p)
    assert set(numbers.peaks) == {1}


@pytest.mark.parametrize("delay", [0.25, 1, 8])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_gpipe_pays_a_delay_once_each_way(p, m, delay):
    numbers = schedule_of("GPipe", p, m, 1, 2, delay=delay)
    assert numbers.makespan == (m + p - 1) * 3 + 2 * (p - 1) * delay


@pytest.mark.parametrize("v", [1, 2, 3, 4])
@pytest.mark.parametrize(("p", "m"), [(1, 5), (2, 4), (3, 9), (4, 8), (16, 32)])
@pytest.mark.parametrize(("f", "b"), TIMES)
def test_chunks_divide_the_bubble(p, m, v, f, b):
    for name in schedule.CHUNKED:
        numbers = schedule_of(name, p, m, f, b, chunks=v)
        whole = m + Fraction(p - 1, v)
        assert numbers.makespan == pytest.approx(float(whole) * (f + b), rel=1e-12)
        assert numbers.work == pytest.approx(m * (f + b), rel=1e-12)
        assert numbers.bubble_ratio == pytest.approx((p - 1) / (m * v), rel=1e-12)
        assert numbers.sends == (2 * (p * v - 1) if p > 1 else 0)
    held = schedule_of("interleaved 1F1B", p, m, f, b, chunks=v).peaks
    first = [p - s if v == 1 else (2 * (p - 1 - s) + (v - 1) * p + 1) / v for s in range(p)]
    assert list(held) == pytest.approx([min(m, peak) for peak in first])
    assert set(schedule_of("looped BFS", p, m, f, b, chunks=v).peaks) == {m}


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (5, 9), (8, 20)])
@pytest.mark.parametrize(("f", "b", "w"), [(1, 2, 1), (1, 2, 0.5), (1, 3, 1), (2, 3, 2), (1, 1, 1)])
def test_zero_bubble_orders_follow_their_laws(p, m, f, b, w):
    i = b - w  # the input's gradient alone
    h1 = schedule_of("ZB-H1", p, m, f, b, weight_grad=w)
    assert h1.makespan == m * (f + b) + (p - 1) * max(f + i - w, f, i)
    assert set(h1.peaks) == {p}
    if m >= 2 * p - 1:
        h2 = schedule_of("ZB-H2", p, m, f, b, weight_grad=w)
        assert h2.makespan == m * (f + b) + (p - 1) * max(f + i - 2 * w, f, i - f)
        assert set(h2.peaks) == {2 * p - 1}
    if (f, b, w) == (1, 2, 1) and m >= 2 * p - 1:
        assert h2.longest_span == m * (f + b)  # "zero bubble", as papers count


@pytest.mark.parametrize(("p", "m"), [(1, 1), (3, 5), (4, 8)])
def test_what_runs_again_is_work(p, m):
    numbers = schedule_of("GPipe, recomputing", p, m, 1, 2)
    assert numbers.work == 4 * m
    # Ranks recompute the first microbatch while they wait; the last rank has nothing to wait for.
    assert numbers.makespan == (m + p - 1) * 3 + m
    assert set(numbers.peaks) == {m}


@pytest.mark.parametrize("name", schedule.SCHEDULES)
def test_every_rank_runs_every_op_once_one_at_a_time(name):
    chosen = ScheduleSettings(schedule=name, stages=3, microbatches=6, chunks=2, delay=0.5)
    numbers = schedule_numbers(chosen)
    v = schedule.chunks_used(chosen)
    kinds = {"ZB-H1": "FBW", "ZB-H2": "FBW", "GPipe, recomputing": "FRB"}.get(name, "FB")
    for rank in numbers.ranks:
        assert sorted(rank.ops) == sorted(itertools.product(kinds, range(6), range(v)))
        for end, start in zip(rank.ends, rank.starts[1:], strict=False):
            assert start >= end
    for before, after in itertools.pairwise(numbers.ranks):
        done = dict(zip(before.ops, before.ends, strict=True))
        for op, start in zip(after.ops, after.starts, strict=True):
            if op[0] == "F":
                assert start >= done[op] + 0.5


def test_the_pipeline_says_what_can_not_be():
    cases = (
        (
            ScheduleSettings(schedule="interleaved 1F1B", stages=4, microbatches=10),
            "p = 4 does not divide m = 10. Choose 8 or 12 microbatches, or looped BFS.",
        ),
        (
            ScheduleSettings(schedule="interleaved 1F1B", stages=8, microbatches=5),
            "Choose 8 microbatches",
        ),
        (ScheduleSettings(schedule="ZB-H1", weight_grad=3), "3, is a part of backward, which"),
        (ScheduleSettings(schedule="2F2B"), "'2F2B' is no schedule here; there are naive;"),
        (ScheduleSettings(stages=0), "stages is at least 1, not 0."),
        (ScheduleSettings(forward=0), "forward must be more than 0, not 0."),
        (ScheduleSettings(delay=-1), "delay is 0 or more, not -1."),
    )
    for chosen, sentence in cases:
        with pytest.raises(frame.Impossible) as reason:
            schedule_numbers(chosen)
        assert sentence in str(reason.value)
    one_chunk = ScheduleSettings(schedule="interleaved 1F1B", stages=4, microbatches=10, chunks=1)
    assert schedule_numbers(one_chunk).makespan == 13 * 3  # 1F1B, which asks for no groups
    assert schedule_numbers(ScheduleSettings(weight_grad=8)) == schedule_numbers(ScheduleSettings())


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (ScheduleSettings(), "take 33, of which 27.3\u00a0% is bubble, 37.5\u00a0% of the work."),
        (ScheduleSettings(), "In flight at most, by rank: 4, 3, 2, 1."),
        (ScheduleSettings(stages=16, microbatches=64), "by rank: 16, 15, …, 2, 1."),
        (ScheduleSettings(microbatches=1), "1 microbatch on 4 stages takes 12,"),
        (ScheduleSettings(schedule="interleaved 1F1B"), "is sent 14 times, not 6 as without"),
        (ScheduleSettings(schedule="ZB-H2"), "no rank takes more than 24. In flight at most, by"),
        (ScheduleSettings(schedule="GPipe, recomputing"), "all 8, all but one as inputs alone."),
        (ScheduleSettings(schedule="PipeDream, no flush"), "rank 0 keeps 4 versions of its"),
    ],
)
def test_the_sentence_names_what_the_schedule_costs(chosen, words):
    assert words in schedule.schedule_sentence(chosen)


# -- partitions: the numbers ----------------------------------------------------------------------


def every_partition(layers, p):
    for cuts in itertools.combinations(range(1, layers), p - 1):
        yield (0, *cuts, layers)


def load(times, i, j, transfer, cost):
    work, sides = sum(times[i:j]), (i > 0) + (j < len(times))
    if transfer == "exposed":
        return work + sides * cost
    return max(work, cost) if transfer == "overlapped" and sides else work


PARTITIONED = [
    PartitionSettings(stages=p, transfer=transfer, transfer_time=cost, **profile)
    for p in (1, 3, 4)
    for transfer, cost in (("none", 1), ("exposed", 0.5), ("overlapped", 4))
    for profile in (
        {},
        {"profile": "random", "layers": 10, "seed": 3},
        {"profile": "growing", "layers": 8},
        {"profile": "equal, with ends", "layers": 12},
    )
]


@pytest.mark.parametrize("chosen", PARTITIONED)
@pytest.mark.parametrize("cap", [0, 0.9])
def test_best_is_the_best_of_all_and_ties_are_counted(chosen, cap):
    chosen = replace(chosen, cap=cap)
    layers = partition.profile_layers(chosen)
    found = []
    try:
        numbers = partition_numbers(chosen)
    except frame.Impossible:
        numbers = None
    uncapped = partition_numbers(replace(chosen, cap=0))
    most = math.inf if not cap else cap * max(uncapped.best.kept)
    for bounds in every_partition(len(layers.times), chosen.stages):
        spans = list(enumerate(itertools.pairwise(bounds)))
        kept = [
            sum(layers.weights[i:j])
            + min(chosen.microbatches, chosen.stages - s) * sum(layers.activations[i:j])
            for s, (i, j) in spans
        ]
        if max(kept) <= most * (1 + 1e-12):
            cost = chosen.transfer, chosen.transfer_time
            found.append(max(load(layers.times, i, j, *cost) for _, (i, j) in spans))
    if numbers is None:
        assert not found
        return
    assert numbers.best.slowest == pytest.approx(min(found), rel=1e-12)
    assert numbers.ties == sum(slowest <= min(found) * (1 + 1e-12) for slowest in found)
    assert numbers.below == 0
    assert numbers.all == math.comb(len(layers.times) - 1, chosen.stages - 1)
    assert max(numbers.best.kept) <= most * (1 + 1e-12)


def test_the_lectures_twelve_layers():
    numbers = partition_numbers(PartitionSettings())
    assert numbers.even.bounds == (0, 3, 6, 9, 12)
    assert numbers.even.loads == (5, 3, 3, 6)
    assert (numbers.best.slowest, numbers.mean, numbers.all) == (5, 4.25, 165)
    assert numbers.balanced_step == (8 + 3) * 4.25
    assert numbers.best.bounds == (0, 1, 5, 10, 12)  # not the book's 2 + 4 + 4 + 2, one of the ties
    assert numbers.ties == 15


@pytest.mark.parametrize("m", [1, 8, 64])
def test_equal_stages_take_1f1bs_time(m):
    chosen = PartitionSettings(profile="growing", layers=4, stages=1, microbatches=m)
    assert partition_numbers(chosen).best.step == pytest.approx(10 * m)
    chosen = PartitionSettings(profile="GPT-3 175B", stages=1, microbatches=m)
    numbers = partition_numbers(chosen)
    assert numbers.best.step == pytest.approx(numbers.balanced_step)


@pytest.mark.parametrize("name", partition.MODEL_PROFILES)
def test_a_models_head_is_as_long_as_its_share_of_the_parameters(name):
    from distlab.model import MODELS

    cfg = MODELS[name]
    h, wide, narrow = cfg.hidden, cfg.heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim
    matrices = 2 * h * wide + 2 * h * narrow + (3 if cfg.gated else 2) * h * cfg.ffn
    layers = partition.profile_layers(PartitionSettings(profile=name))
    assert len(layers.times) == cfg.layers + 2
    assert layers.times[0] == 0  # it looks up
    assert layers.times[-1] == pytest.approx(cfg.vocab * h / matrices, rel=0.005)
    assert layers.weights[0] == layers.weights[-1] == layers.times[-1]
    assert set(layers.activations) == {0, 0.5}


@pytest.mark.parametrize(("stages", "sizes"), [(4, [5, 4, 4, 5]), (5, [4, 3, 3, 3, 5]), (1, [18])])
def test_ends_come_on_top_of_an_even_split(stages, sizes):
    chosen = PartitionSettings(profile="equal, with ends", stages=stages)
    bounds = partition_numbers(chosen).even.bounds
    assert [j - i for i, j in itertools.pairwise(bounds)] == sizes


def test_a_cap_is_met_exactly_by_what_it_is_measured_by():
    chosen = PartitionSettings(profile="Llama 3 8B", stages=8)
    free, capped = partition_numbers(chosen), partition_numbers(replace(chosen, cap=1))
    assert capped.best == free.best
    tight = partition_numbers(replace(chosen, cap=0.9))
    assert max(tight.best.kept) <= tight.cap < max(free.best.kept)
    assert tight.best.slowest >= free.best.slowest


def test_the_partition_says_what_can_not_be():
    cases = (
        (PartitionSettings(stages=16), "16 stages of 12 layers: each stage needs one of its own."),
        (
            PartitionSettings(profile="random", layers=4, stages=8),
            "Choose fewer stages, or more layers.",
        ),
        (PartitionSettings(profile="equal, with ends", layers=4, stages=5), "5 stages of 4 layers"),
        (PartitionSettings(cap=0.5), "No partition into 4 stages keeps within 50\u00a0% of what"),
        (PartitionSettings(profile="GPT-9"), "'GPT-9' is no profile here; there are 3, ten"),
        (PartitionSettings(transfer="late"), "transfer is none, overlapped or exposed, not late."),
        (PartitionSettings(stages=0), "stages is at least 1, not 0."),
        (PartitionSettings(cap=-1), "transfer_time and cap are 0 or more."),
    )
    for chosen, sentence in cases:
        page = frame.page(chosen, partition.partition_view)
        assert "<svg" not in page
        assert sentence in ET.fromstring(page).text


def test_the_sentence_names_the_cuts_and_what_they_are_worth():
    said = partition.partition_view(PartitionSettings()).sentence
    assert said.startswith("Best: bounds 0, 1, 5, 10, 12, slowest stage 5. None of all 165")
    assert "15 tie." in said
    assert "1F1B takes 52 for 8 microbatches, 11.2\u00a0% more than equal stages would" in said
    assert said.endswith("the even split takes 59.")
    tight = partition.partition_view(
        PartitionSettings(profile="Llama 3.1 405B", stages=12, cap=0.9)
    ).sentence
    assert "2.2 × 10¹⁵ partitions is faster and fits;" in tight
    assert tight.endswith("but doesn't fit.")
    assert partition.many(999_999) == "999,999"


def paths(view):
    root = ET.fromstring(frame.page(None, lambda _: view)).find("{*}svg")
    return list(root.iter("{http://www.w3.org/2000/svg}path"))


def test_stages_are_as_high_as_their_layers():
    view = partition.partition_view(PartitionSettings(profile="growing", layers=8, stages=3))
    numbers = partition_numbers(PartitionSettings(profile="growing", layers=8, stages=3))
    heights = [
        float(high)
        for node in paths(view)
        for high in re.findall(r"M[\d.]+ [\d.]+h[\d.]+v([\d.]+)h-", node.get("d"))
    ][1:]  # the first is the key's
    times = numbers.layers.times
    assert len(heights) == 2 * len(times)
    scale = heights[0] / times[0]
    assert heights == pytest.approx([time * scale for time in times] * 2, abs=0.1)
