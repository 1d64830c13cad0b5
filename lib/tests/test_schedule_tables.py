"""The simulator reproduces every row of the tables, and the closed forms."""

from fractions import Fraction
from itertools import pairwise, product
from math import ceil

import pytest

from distlab.schedule import (
    best_slices,
    double_buffered_versions,
    flushed,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
    pipedream,
    simulate,
    stashed_versions,
    synced_versions,
    terapipe,
    v_stages,
    zb_h1,
    zb_h2,
)
from schedule_data import ints, rows, torch_orders

OURS = {
    "gpipe": lambda p, m, v: gpipe(p, m),
    "1f1b": lambda p, m, v: one_f_one_b(p, m),
    "interleaved-1f1b": interleaved,
    "looped-bfs": looped_bfs,
    "zb-h1": lambda p, m, v: zb_h1(p, m),
    "zb-h2": lambda p, m, v: zb_h2(p, m),
}
UNIFORM, UNEQUAL = rows("schedule_uniform.csv"), rows("schedule_unequal.csv")


def simulated(row, orders, **more):
    t_f, t_b, t_w, delay = (int(row[k]) for k in ("t_f", "t_b", "t_w", "p2p_delay"))
    return simulate(
        orders, forward=t_f, backward=t_b + t_w, weight_grad=t_w, delay=delay, **more
    )  # fmt: skip


def check_uniform(row, timeline):
    ideal = int(row["ideal"])
    assert timeline.makespan == int(row["makespan"]), row
    assert timeline.longest_span == int(row["max_rank_span"]), row
    assert set(timeline.busy) == {ideal}, row
    assert timeline.makespan - ideal == int(row["bubble_makespan"]), row
    assert timeline.bubble_fraction == Fraction(row["bubble_fraction_of_makespan"]), row
    assert timeline.bubble_ratio == Fraction(int(row["bubble_makespan"]), ideal), row
    assert timeline.peak_until_b == ints(row["peak_live_per_rank_release_at_B"]), row
    assert timeline.peak_in_flight == ints(row["peak_live_per_rank_release_at_W"]), row
    assert timeline.lower_bound <= timeline.makespan


@pytest.mark.parametrize("schedule", OURS)
def test_equal_stages(schedule):
    mine = [row for row in UNIFORM if row["schedule"] == schedule]
    assert len(mine) >= 19
    for row in mine:
        p, m, v = (int(row[k]) for k in "pmv")
        check_uniform(row, simulated(row, OURS[schedule](p, m, v)))


@pytest.mark.slow  # importing torch's pipelines takes some seconds
@pytest.mark.parametrize("schedule", ["InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"])
def test_torchs_split_orders(schedule):
    mine = [row for row in UNIFORM if row["schedule"] == f"torch:{schedule}"]
    assert len(mine) >= 9
    for row in mine:
        p, m, v = (int(row[k]) for k in "pmv")
        stages = None if schedule == "InterleavedZeroBubble" else v_stages(p)
        check_uniform(row, simulated(row, torch_orders(schedule, p, m, v), stages=stages))


def test_every_row_of_the_uniform_table_belongs_to_a_test():
    torchs = {f"torch:{name}" for name in ("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")}
    assert {row["schedule"] for row in UNIFORM} == set(OURS) | torchs


def test_unequal_stages():
    assert len(UNEQUAL) == 120
    for row in UNEQUAL:
        orders = OURS[row["schedule"]](int(row["p"]), int(row["m"]), 1)
        t_b, t_w = ints(row["t_b"]), ints(row["t_w"])
        timeline = simulate(
            orders,
            forward=ints(row["t_f"]),
            backward=[b + w for b, w in zip(t_b, t_w, strict=True)],
            weight_grad=t_w,
            delay=int(row["p2p_delay"]),
        )
        assert timeline.makespan == int(row["makespan"]), row
        assert timeline.busy == ints(row["busy_per_rank"]), row
        assert [ends[-1] for ends in timeline.ends] == ints(row["end_per_rank"]), row
        assert [starts[0] for starts in timeline.starts] == ints(row["start_per_rank"]), row
        assert timeline.peak_in_flight == ints(row["peak_live"]), row


def test_versions_of_an_asynchronous_pipeline():
    for row in rows("pipedream_async.csv"):
        p, s = int(row["p"]), int(row["stage(0-based)"])
        stream = pipedream(p, 6 * p)
        stash, sync = stashed_versions(stream), synced_versions(stream)
        assert stash.kept[s] == int(row["weight_versions_stashed=in_flight"])
        assert stash.kept[s] == simulate(stream).peak_in_flight[s]
        assert set(stash.gaps(s)[p:]) == {int(row["staleness_of_forward_updates=p-1-s"])}
        behind = [i - used for i, used in enumerate(sync.forward[s])]
        assert set(behind[p:]) == {int(row["vertical_sync_staleness=p-1"])}
        used = double_buffered_versions(stream, every=p).forward[s]
        assert most_used_in_flight(stream[s], used) == int(row["pipedream_2bw_versions"])


def most_used_in_flight(order, versions):
    held, most = [], 0
    for kind, i, _ in order:
        if kind == "F":
            held.append(versions[i])
        else:
            held.remove(versions[i])
        most = max(most, len(set(held)))
    return most


def test_best_slices():
    models = {
        "attn": lambda n, context: 4 + 3 * n + Fraction(n * (2 * context + n + 1), 2),
        "lin": lambda n, context: 2 + 3 * n,
    }
    for row in rows("terapipe_slicing.csv"):
        tokens, p, time = int(row["n_units"]), int(row["p"]), models[row["kind"]]
        best = best_slices(tokens, p, time)
        assert best.latency == int(row["optimal_latency"]), row
        assert sum(best.lengths) == tokens
        cuts = [sum(best.lengths[:k]) for k in range(len(best.lengths) + 1)]
        assert best.times == tuple(time(end - start, start) for start, end in pairwise(cuts))
        slices = len(best.lengths)
        orders = terapipe(p, 1, slices)
        timeline = simulate(orders, sizes=best.times, backward=0, slices=slices)
        assert timeline.makespan == best.latency


SIZES = list(product((1, 2, 3, 5), (1, 2, 3, 4, 7)))
TIMES = [(1, 2), (2, 3), (3, 1)]


@pytest.mark.parametrize(("f", "b"), TIMES)
def test_closed_forms_of_equal_stages(f, b):
    for p, m in SIZES:
        pipelined = (m + p - 1) * (f + b)
        assert simulate(naive(p, m), forward=f, backward=b).makespan == m * p * (f + b)
        for orders in (gpipe(p, m), gpipe(p, m, reverse=True), one_f_one_b(p, m)):
            timeline = simulate(orders, forward=f, backward=b)
            assert timeline.makespan == timeline.lower_bound == pipelined
            assert timeline.bubble_fraction == Fraction(p - 1, m + p - 1)
            assert timeline.bubble_ratio == Fraction(p - 1, m)
        assert simulate(gpipe(p, m)).peak_in_flight == [m] * p
        assert simulate(one_f_one_b(p, m)).peak_in_flight == [min(m, p - s) for s in range(p)]
        for c in (1, 4):
            late = {"forward": f, "backward": b, "delay": c}
            assert simulate(gpipe(p, m), **late).makespan == pipelined + 2 * c * (p - 1)
            waits = (p - 1) + (m - 1) - ceil((m - 1) / p)
            assert simulate(one_f_one_b(p, m), **late).makespan == pipelined + 2 * c * waits


@pytest.mark.parametrize(("f", "b"), TIMES)
def test_closed_forms_with_chunks(f, b):
    for p, m, v in product((1, 2, 3, 4), (1, 2, 3, 4, 6, 8), (1, 2, 3)):
        looped = simulate(looped_bfs(p, m, v), forward=f, backward=b)
        assert looped.makespan == ((v - 1) * max(m, p) + m + p - 1) * (f + b)
        assert looped.peak_in_flight == [m * v] * p
        if m % p == 0:
            turns = simulate(interleaved(p, m, v), forward=f, backward=b)
            assert turns.makespan == (m * v + p - 1) * (f + b)
            if v > 1:
                assert turns.peak_in_flight == [
                    min(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1) for s in range(p)
                ]
            if v > 1 and p > 1:
                c = min(f, b)  # the form holds while sending takes no longer than an op
                late = simulate(interleaved(p, m, v), forward=f, backward=b, delay=c)
                assert late.makespan == turns.makespan + 2 * c * (p * v - 1)


@pytest.mark.parametrize(
    "times", [(1, 1, 1), (2, 2, 1), (3, 4, 4), (2, 3, 2), (3, 2, 4), (1, 3, 1)]
)
def test_closed_forms_of_zero_bubble_orders(times):
    f, b, w = times
    for p, m in product((1, 2, 3, 4, 5), range(1, 12)):
        work, same = m * (f + b + w), {"forward": f, "backward": b + w, "weight_grad": w}
        if m >= p:
            h1 = simulate(zb_h1(p, m), **same)
            assert h1.makespan == work + (p - 1) * max(f + b - w, f, b)
            assert h1.longest_span == work + (p - 1) * max(f + b - w, b)
            assert h1.peak_in_flight == [p] * p
        if m >= 2 * p - 1:
            h2 = simulate(zb_h2(p, m), **same)
            assert h2.makespan == work + (p - 1) * max(f + b - 2 * w, f, b - f)
            assert h2.longest_span == work + (p - 1) * max(f + b - 2 * w, 0, b - f)
            assert h2.peak_in_flight == [2 * p - 1] * p


def test_recomputing_hides_behind_the_wait_for_the_gradient():
    # Derived: the last rank runs F m times, then R and B m times; the last B goes down p − 1 ranks,
    # and each has done its R meanwhile, where f <= b.
    for (p, m), (f, b) in product(SIZES, [(1, 2), (2, 2), (1, 3)]):
        timeline = simulate(gpipe(p, m, recompute=True), forward=f, backward=b)
        assert timeline.makespan == (m + p - 1) * f + m * (f + b) + (p - 1) * b
        assert set(timeline.busy) == {m * (2 * f + b)}


def test_a_flush_costs_the_bubble_every_step_and_a_stream_only_once():
    flush = simulate(flushed(one_f_one_b(4, 8), 3))
    assert flush.makespan == 3 * 33
    assert flush.bubble_fraction == Fraction(3, 11)
    assert simulate(pipedream(4, 24)).makespan == 24 * 3 + 9
    weights = stashed_versions(flushed(one_f_one_b(4, 8), 3), every=8)
    assert weights.kept == (1, 1, 1, 1)
    assert {gap for s in range(4) for gap in weights.gaps(s)} == {0}


def test_token_slices_shrink_the_bubble_as_the_lecture_says():
    fractions = [simulate(terapipe(4, 2, c), slices=c).bubble_fraction for c in (1, 2, 4, 8)]
    assert fractions == [Fraction(3, 2 * c + 3) for c in (1, 2, 4, 8)]
    assert [f"{float(x):.1%}" for x in fractions] == ["60.0%", "42.9%", "27.3%", "15.8%"]
