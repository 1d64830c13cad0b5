"""Laws that hold for any order: checked on random ones, against a second simulator."""

import re
from collections import Counter
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.errors import OrderDeadlockError, OrderError
from distlab.schedule import (
    Op,
    flushed,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
    simulate,
    stashed_versions,
    v_stages,
    zb_h1,
    zb_h2,
)

# The same examples every time; no deadline, since machines may be busy.
law = settings(derandomize=True, deadline=None, max_examples=120)

COUNTS = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))  # p, m, v
TIMES = st.integers(0, 9)


def takes(rank, op, stages):
    """Whose results an op takes, as {(rank, op)}. Written down from the definition."""
    place = {k: (s, c) for s, row in enumerate(stages) for c, k in enumerate(row)}
    k, i = stages[rank][op.chunk], op.microbatch
    if op.kind == "W":
        return {(rank, Op("B", i, op.chunk))}
    own = {(rank, Op("F", i, op.chunk))} if op.kind == "B" else set()
    neighbour = place.get(k - 1 if op.kind == "F" else k + 1)
    if neighbour is None:
        return own
    return own | {(neighbour[0], Op(op.kind, i, neighbour[1]))}


def second_simulator(orders, stages, took, delay):
    """The start of each (rank, op), by the longest path through the graph of needs."""
    graph, start = {}, {}
    for rank, order in enumerate(orders):
        for before, op in zip([None, *order], order, strict=False):
            waits = {(rank, before)} if before else set()
            graph[rank, op] = waits | takes(rank, op, stages)
    for node in TopologicalSorter(graph).static_order():
        start[node] = max(
            (
                start[other] + took(*other) + (delay if other[0] != node[0] else 0)
                for other in graph[node]
            ),
            default=0,
        )
    return start


@st.composite
def pipelines(draw):
    """Stages, orders that can run, the time of each op, a delay: whatever is possible."""
    p, m, v = draw(COUNTS)
    split = draw(st.booleans())
    loop = [[c * p + s for c in range(v)] for s in range(p)]
    stages = draw(st.sampled_from([loop, v_stages(p)])) if v == 2 else loop
    kinds = "FBW" if split else "FB"
    every = [Op(kind, i, c) for kind in kinds for i in range(m) for c in range(v)]
    taken = {(rank, op): takes(rank, op, stages) for rank in range(p) for op in every}
    orders, done = [[] for _ in range(p)], set()
    while len(done) < len(taken):
        free = [node for node in taken if node not in done and taken[node] <= done]
        rank, op = draw(st.sampled_from(free))
        orders[rank].append(op)
        done.add((rank, op))
    grid = {
        kind: [[draw(st.lists(TIMES, min_size=m, max_size=m)) for _ in range(v)] for _ in range(p)]
        for kind in kinds
    }
    return stages, orders, grid, draw(st.integers(0, 3))


def run(stages, orders, grid, delay, scale=1):
    def scaled(kind):
        return [[[scale * t for t in row] for row in rows] for rows in grid[kind]]

    backward = scaled("B")
    if "W" in grid:
        pairs = zip(backward, scaled("W"), strict=True)
        backward = [
            [[b + w for b, w in zip(*row, strict=True)] for row in zip(*both, strict=True)]
            for both in pairs
        ]
    return simulate(
        orders,
        forward=scaled("F"),
        backward=backward,
        weight_grad=scaled("W") if "W" in grid else 0,
        delay=scale * delay,
        stages=stages,
    )


@given(pipelines())
@law
def test_any_order_that_can_run_runs_as_the_longest_path_says(pipeline):
    stages, orders, grid, delay = pipeline

    def took(rank, op):
        return grid[op.kind][rank][op.chunk][op.microbatch]

    timeline = run(*pipeline)
    start = second_simulator(orders, stages, took, delay)
    for rank, order in enumerate(orders):
        assert [span.op for span in timeline.of(rank)] == order
        assert [span.start for span in timeline.of(rank)] == [start[rank, op] for op in order]
        assert [span.end for span in timeline.of(rank)] == [
            start[rank, op] + took(rank, op) for op in order
        ]
    assert timeline.makespan == max(span.end for r in range(len(orders)) for span in timeline.of(r))
    assert timeline.makespan >= timeline.lower_bound
    assert sum(timeline.busy) + sum(timeline.idle) == len(orders) * timeline.makespan


@given(pipelines(), st.integers(1, 10**9), st.integers(1, 1000))
@law
def test_a_timeline_scales_with_its_times(pipeline, k, n):
    scale = Fraction(k, n)
    once, scaled = run(*pipeline), run(*pipeline, scale)
    assert scaled.starts == [[scale * t for t in starts] for starts in once.starts]
    assert scaled.makespan == scale * once.makespan
    assert scaled.lower_bound == scale * once.lower_bound
    assert scaled.peak_in_flight == once.peak_in_flight
    if once.makespan:
        assert scaled.bubble_fraction == once.bubble_fraction


def fate(orders, delay=0):
    """Runs orders and checks that what happens is right; returns what happened."""
    early = [
        (rank, i)
        for rank, order in enumerate(orders)
        for i in range(len(order) // 2)
        if order.index(Op("B", i)) < order.index(Op("F", i))
    ]
    if early:
        sentences = [f"Rank {r} runs B{i} before F{i}, which it needs." for r, i in early]
        with pytest.raises(OrderError, match="|".join(map(re.escape, sentences))):
            simulate(orders, delay=delay)
        return "early"
    stages = [[rank] for rank in range(len(orders))]
    try:
        start = second_simulator(orders, stages, lambda rank, op: 1 + (op.kind == "B"), delay)
    except CycleError:
        with pytest.raises(OrderDeadlockError, match=r"^Deadlock: rank \d"):
            simulate(orders, delay=delay)
        return "deadlock"
    timeline = simulate(orders, delay=delay)
    assert timeline.starts == [[start[r, op] for op in o] for r, o in enumerate(orders)]
    assert timeline.makespan >= timeline.lower_bound
    return "runs"


@given(st.integers(1, 4), st.integers(1, 4), TIMES, st.data())
@law
def test_a_shuffled_order_runs_or_is_refused_for_the_right_reason(p, m, delay, data):
    order = gpipe(1, m)[0]
    fate([data.draw(st.permutations(order)) for _ in range(p)], delay)
    forward, backward = order[:m], order[m:]
    fate(
        [
            data.draw(st.permutations(forward)) + data.draw(st.permutations(backward))
            for _ in range(p)
        ],
        delay,
    )


def test_two_ops_of_1f1b_exchanged_meet_all_three_fates():
    fates = Counter()
    for rank, (i, j) in product(range(3), combinations(range(6), 2)):
        orders = one_f_one_b(3, 3)
        orders[rank][i], orders[rank][j] = orders[rank][j], orders[rank][i]
        fates[fate(orders)] += 1
    assert fates == {"early": 26, "runs": 16, "deadlock": 3}


@given(st.integers(1, 12), st.integers(1, 24))
@law
def test_1f1b_holds_no_more_than_the_rest_of_the_pipeline_is_deep(p, m):
    timeline = simulate(one_f_one_b(p, m))
    assert timeline.peak_in_flight == [min(m, p - s) for s in range(p)]
    if m >= 2 * p:  # long enough that all microbatches in flight have versions of their own
        assert stashed_versions(one_f_one_b(p, m)).kept == tuple(timeline.peak_in_flight)
    for rank in range(p):
        counts = [count for _, count in timeline.in_flight(rank)]
        assert max(counts) == min(m, p - rank)
        assert counts[-1] == 0


@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 3), st.data())
@law
def test_every_generated_order_runs_on_any_times(p, m, v, data):
    made = data.draw(
        st.sampled_from(
            [
                naive(p, m),
                gpipe(p, m),
                gpipe(p, m, reverse=True),
                gpipe(p, m, recompute=True),
                one_f_one_b(p, m),
                looped_bfs(p, m, v),
                interleaved(p, m * p, v),
                zb_h1(p, m),
                zb_h2(p, m),
                flushed(one_f_one_b(p, m), 2),
            ]
        )
    )
    times = data.draw(st.lists(st.integers(1, 9), min_size=p, max_size=p))
    timeline = simulate(
        made,
        forward=times,
        backward=[2 * t for t in times],
        weight_grad=times,
        delay=data.draw(TIMES),
    )
    assert timeline.makespan >= timeline.lower_bound
    peaks = timeline.peak_in_flight
    assert all(1 <= peak <= timeline.microbatches * timeline.chunks for peak in peaks)
