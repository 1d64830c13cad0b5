"""Partitions: exact, the same in every unit, proved, refused in words where there is none."""

import csv
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from random import Random
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab import partition, schedule
from distlab.errors import InfeasibleError
from distlab.partition import Memory, check_certificate, interleaved, min_max, replicated

DATA = Path(__file__).parent / "data"  # brute force over all partitions: see data/README.md
LECTURE = [3.0] + [1.0] * 10 + [4.0]

times = st.floats(0, 1e3) | st.sampled_from([0.1, 0.2, 0.3, 1.0, 2.0])
ticks = st.integers(0, 12)


@st.composite
def cases(draw, numbers=times, most=8):
    layer_times = draw(st.lists(numbers, min_size=1, max_size=most))
    return layer_times, draw(st.integers(1, len(layer_times)))


@st.composite
def rich_cases(draw):
    """Everything at once, in quarters, so that the order of adding can't matter."""
    layer_times, stages = draw(cases(ticks, most=7))
    layers = len(layer_times)

    def some(low, high, count):
        numbers = st.integers(low, high).map(lambda n: n / 4)
        return draw(st.none() | st.lists(numbers, min_size=count, max_size=count))

    caps = some(8, 120, stages)
    sizes = [draw(st.lists(ticks, min_size=layers, max_size=layers)) for _ in range(2)]
    speeds = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=stages, max_size=stages)
    return (layer_times, stages), {
        "overlapped": some(0, 40, layers - 1),
        "exposed": some(0, 8, layers - 1),
        "speeds": draw(st.none() | speeds),
        "memory": None if caps is None else Memory(*sizes, caps),
        "first": draw(ticks),
        "last": draw(ticks),
    }


def rows(name):
    with (DATA / name).open() as file:
        return list(csv.reader(file))[1:]


def floats(text):
    return [float(number) for number in text.split()]


def all_bounds(layers, stages):
    return ((0, *cuts, layers) for cuts in combinations(range(1, layers), stages - 1))


def brute_force(layer_times, stages):
    sums = [0.0, *accumulate(map(float, layer_times))]
    found = all_bounds(len(layer_times), stages)
    return min(max(sums[j] - sums[i] for i, j in pairwise(bounds)) for bounds in found)


def brute_force_of_all(layer_times, stages, *, overlapped, exposed, speeds, memory, first, last):
    """Stage by stage in plain words, sharing nothing with the solver."""
    best, layers = float("inf"), len(layer_times)
    for bounds in all_bounds(layers, stages):
        loads = []
        for stage, (i, j) in enumerate(pairwise(bounds)):
            inner = [place - 1 for place in (i, j) if 0 < place < layers]
            work = sum(layer_times[i:j]) + first * (i == 0) + last * (j == layers)
            work += sum(exposed[place] for place in inner) if exposed else 0
            work /= speeds[stage] if speeds else 1
            loads.append(max([work, *(overlapped[place] for place in inner if overlapped)]))
            if memory:
                kept = sum(memory.weight_bytes[i:j])
                kept += (stages - stage) * sum(memory.activation_bytes[i:j])
                if kept > memory.cap_bytes[stage]:
                    loads.append(float("inf"))
        best = min(best, max(loads))
    return best


def assert_proved(plan):
    assert check_certificate(plan.problem, plan.certificate) == plan.value
    assert plan.bounds[0] == 0
    assert plan.bounds[-1] == plan.problem.layers
    assert all(i < j for i, j in pairwise(plan.bounds))
    assert max(plan.loads) == pytest.approx(plan.value, rel=1e-12)  # rounding of a few sums


# ---- the tables ----


@pytest.mark.parametrize("row", rows("partition_bruteforce.csv"), ids=lambda row: row[0])
def test_plain_partitions_equal_brute_force_bit_for_bit(row):
    plan = min_max(floats(row[2]), int(row[1]))
    assert plan.value == float(row[3]) == max(plan.loads)
    assert_proved(plan)


@pytest.mark.parametrize("row", rows("partition_constrained_bruteforce.csv"), ids=lambda r: r[0])
def test_constrained_partitions_equal_brute_force_bit_for_bit(row):
    layer_times, acts, weights, cut_costs, speeds, caps, in_flight = map(floats, row[2:9])
    memory = Memory(weights, acts, caps, in_flight)
    arguments = {"exposed": cut_costs, "speeds": speeds, "memory": memory}
    if row[9] == "inf":
        with pytest.raises(InfeasibleError, match="No partition into"):
            min_max(layer_times, int(row[1]), **arguments)
        return
    plan = min_max(layer_times, int(row[1]), **arguments)
    assert plan.value == float(row[9].removeprefix("np.float64(").rstrip(")")) == max(plan.loads)
    assert all(kept <= cap for kept, cap in zip(plan.memory_bytes, caps, strict=True))
    assert_proved(plan)


@pytest.mark.parametrize("row", rows("partition_replicated_bruteforce.csv"), ids=lambda r: r[0])
def test_replicated_partitions_equal_brute_force_bit_for_bit(row):
    machines, rate, layer_times, weights = int(row[1]), float(row[2]), *map(floats, row[3:5])
    plan = replicated(layer_times, machines, weight_bytes=weights, rate_bytes_per_s=rate)
    assert plan.value == float(row[5]) == max(plan.loads)
    assert sum(plan.replicas) <= machines
    assert partition.check_fewest(plan) == plan.value


# ---- laws ----


@given(cases())
def test_no_partition_is_better_bit_for_bit(case):
    plan = min_max(*case)
    assert plan.value == brute_force(*case)
    assert_proved(plan)


@settings(max_examples=300)
@given(rich_cases())
def test_no_partition_is_better_with_everything_at_once(case):
    (layer_times, stages), costs = case
    best = brute_force_of_all(layer_times, stages, **costs)
    if best == float("inf"):
        with pytest.raises(InfeasibleError):
            min_max(layer_times, stages, **costs)
    else:
        plan = min_max(layer_times, stages, **costs)
        assert plan.value == best
        assert_proved(plan)


@given(cases(st.integers(0, 10**7), most=30), st.sampled_from([1e3, 1e6, 1e9, 3.0, 7e-5]))
def test_the_cuts_are_the_same_in_every_unit_ties_included(case, unit):
    layer_times, stages = case
    whole = min_max(layer_times, stages)
    scaled = min_max([time / unit for time in layer_times], stages)
    assert scaled.bounds == whole.bounds
    assert scaled.value == pytest.approx(whole.value / unit, rel=1e-12)


@given(cases(st.integers(0, 50), most=12), st.randoms(use_true_random=False))
def test_transfers_and_speeds_keep_their_cuts_in_every_unit(case, random):
    layer_times, stages = case
    costs = [random.randint(0, 9) for _ in layer_times[1:]]
    speeds = [random.choice([1, 2, 3]) for _ in range(stages)]
    for name in ("overlapped", "exposed"):
        whole = min_max(layer_times, stages, speeds=speeds, **{name: costs})
        inputs = {name: [cost / 1e9 for cost in costs], "speeds": speeds}
        assert min_max([t / 1e9 for t in layer_times], stages, **inputs).bounds == whole.bounds


@given(cases(st.integers(1, 9), most=7))
def test_alike_stages_asked_for_as_unlike_ones_get_the_same_cuts(case):
    layer_times, stages = case
    plain, free = min_max(*case), [0] * (len(layer_times) - 1)
    assert min_max(*case, speeds=[1] * stages).bounds == plain.bounds
    assert min_max(*case, exposed=free).bounds == plain.bounds
    roomy = Memory(layer_times, layer_times, 1e9)
    assert min_max(*case, memory=roomy, overlapped=free).bounds == plain.bounds


@given(st.lists(ticks, min_size=4, max_size=9), st.sampled_from([(2, 2), (2, 1), (1, 3), (4, 1)]))
def test_chunks_lie_between_their_lower_bound_and_v_times_the_longest_chunk(layer_times, shape):
    ranks, chunks = shape
    plan = interleaved(layer_times, ranks, chunks)
    sums = [0, *accumulate(layer_times)]
    everything = all_bounds(len(layer_times), ranks * chunks)
    loads = [[sums[j] - sums[i] for i, j in pairwise(bounds)] for bounds in everything]
    best = min(max(sum(each[r::ranks]) for r in range(ranks)) for each in loads)
    assert plan.lower_bound <= best <= plan.value <= chunks * min(map(max, loads))
    assert sum(plan.rank_loads) == sum(layer_times)
    if chunks == 1:
        assert plan.value == best == plan.lower_bound


@pytest.mark.parametrize(("ranks", "chunks"), [(3, 2), (4, 2), (4, 4), (8, 2)])
def test_the_slowest_ranks_sum_sets_an_interleaved_pace(ranks, chunks):
    random, to_sum, to_longest = Random(0), [], []
    for _ in range(10):
        times = [[random.randint(50, 150) for _ in range(chunks)] for _ in range(ranks)]
        few, many = (
            schedule.simulate(
                schedule.interleaved(ranks, microbatches, chunks),
                forward=times,
                backward=[[2 * time for time in row] for row in times],
            ).makespan
            for microbatches in (8 * ranks, 16 * ranks)
        )
        pace = (many - few) / (8 * ranks) / 3  # forward 1, backward 2
        to_sum.append(pace / max(map(sum, times)))
        to_longest.append(chunks * max(map(max, times)) / pace)
    assert 0.99 < mean(to_sum) < 1.03
    assert mean(to_longest) > 1.1


def test_moving_single_layers_evens_the_ranks():
    layer_times = [5, 1, 1, 1, 1, 3, 1, 1, 1, 1]
    plan = interleaved(layer_times, 2, 2)
    chunks = min_max(layer_times, 4).loads
    assert plan.value < max(sum(chunks[0::2]), sum(chunks[1::2]))


def test_the_lectures_twelve_layers():
    plan = min_max(LECTURE, 4)
    assert plan.value == 5
    assert str(plan).startswith("4 stages, the slowest takes 5")
    as_good = [
        bounds
        for bounds in all_bounds(12, 4)
        if max(sum(LECTURE[i:j]) for i, j in pairwise(bounds)) == 5
    ]
    assert (len(as_good), len(list(all_bounds(12, 4)))) == (15, 165)
    assert plan.bounds == min(as_good)  # every stage begins as early as it can


def test_the_textbooks_table_has_the_lectures_cuts():
    table = partition.table(LECTURE, 4)
    assert table.bounds == (0, 2, 6, 10, 12)
    assert table.best[4][12] == 5
    assert [table.best[k][k - 1] for k in (1, 2)] == [float("inf")] * 2


def test_large_problems_stay_exact():
    layer_times = np.random.default_rng(0).uniform(0.5, 1.5, 1000)
    rates = np.random.default_rng(1).uniform(0.5, 2.0, 64)
    costs = np.random.default_rng(2).uniform(0.0, 1.0, 999)
    table = partition.table(layer_times[:200], 12)
    assert min_max(layer_times[:200], 12).value == table.best[12][200]
    for costs_of in ({}, {"speeds": rates}, {"overlapped": costs}, {"exposed": costs[:999]}):
        assert_proved(min_max(layer_times, 64, **costs_of))


# ---- proofs can fail ----


@pytest.mark.parametrize(
    "change",
    [
        lambda value, ends: (value * 1.01, ends),
        lambda value, ends: (value, ends[:-1]),
        lambda value, ends: (value, (((1, 1),), *ends[1:])),
        lambda value, ends: (value, ((), *ends[1:])),
    ],
    ids=["value too high", "a stage left out", "a place left out", "a stage without places"],
)
@pytest.mark.parametrize("costs", [{}, {"exposed": [0.5] * 11}, {"overlapped": [1.0] * 11}])
def test_a_certificate_with_a_gap_is_refused(change, costs):
    plan = min_max(LECTURE, 4, **costs)
    value, ends = change(plan.certificate.value, plan.certificate.ends)
    with pytest.raises(ValueError, match="certificate"):
        check_certificate(plan.problem, partition.Certificate(value, ends))


def test_nothing_is_certified_that_can_be_beaten():
    with pytest.raises(ValueError, match="gap: stage 3"):
        partition.certify(min_max(LECTURE, 4).problem, 5.5)


def test_a_place_that_only_a_costly_transfer_reaches_hides_no_gap():
    problem = partition.Problem([1.0, 1.0, 1.0, 1.0], 2, overlapped=[1.0, 9.0, 1.0])
    assert min_max([1.0] * 4, 2, overlapped=[1.0, 9.0, 1.0]).value == 3
    everything = partition.Certificate(4.0, (((1, 3),),))
    with pytest.raises(ValueError, match="gap"):
        check_certificate(problem, everything)


def test_a_count_of_machines_with_a_gap_is_refused():
    plan = replicated([1, 2, 3], 3, weight_bytes=[1, 1, 1], rate_bytes_per_s=8)
    for fewest in ((0, 0, 0, 0), (0, 9, 9, 9), (1, 2, 3, 4)):
        wrong = partition.ReplicatedPlan(
            plan.problem, plan.bounds, plan.replicas, plan.value, fewest
        )
        with pytest.raises(ValueError, match="proof"):
            partition.check_fewest(wrong)
