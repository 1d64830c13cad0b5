"""What the simulator takes, what it refuses in one sentence, and what its timeline tells."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from distlab.errors import DeadlockError, OrderDeadlockError, OrderError
from distlab.schedule import (
    Op,
    Span,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    newest_versions,
    one_f_one_b,
    simulate,
    terapipe,
    v_stages,
    zb_h1,
    zb_h2,
)
from distlab.schedule import double_buffered_versions as double_buffered
from schedule_data import torch_orders

ORDERS = one_f_one_b(2, 3)  # F0 F1 B0 F2 B1 B2 on rank 0, F0 B0 F1 B1 F2 B2 on rank 1


# -- what is refused ------------------------------------------------------------------------------

MISTAKES = {
    "an op lacks on rank 0": (
        [ORDERS[0][:-1], ORDERS[1]],
        "Rank 0's order has no B2.",
    ),
    "an op lacks on another rank": (
        [ORDERS[0], ORDERS[1][:-1]],
        "Rank 1's order has no B2.",
    ),
    "a microbatch lacks on every rank": (
        [[("F", 0), ("F", 2), ("B", 0), ("B", 2)]],
        "Rank 0's order has no F1.",
    ),
    "a microbatch far away": (
        [[("F", 0), ("B", 0), ("F", 10**12), ("B", 10**12)]],
        "Rank 0's order has no F1.",
    ),
    "an op twice on rank 0": (
        [[*ORDERS[0], ("F", 0)], ORDERS[1]],
        "Rank 0's order has F0 twice.",
    ),
    "an op twice in the place of another": (
        [ORDERS[0], [*ORDERS[1][:-1], ("F", 0)]],
        "Rank 1's order has F0 twice.",
    ),
    "an op that rank 0 has not": (
        [ORDERS[0], [*ORDERS[1], ("F", 3)]],
        "Rank 1's order has F3, which rank 0's has not.",
    ),
    "W on one rank alone": (
        [ORDERS[0], [*ORDERS[1], ("W", 0)]],
        "Rank 1's order has W0, which rank 0's has not.",
    ),
    "W for one microbatch alone": (
        [[("F", 0), ("F", 1), ("B", 0), ("B", 1), ("W", 0)]],
        "Rank 0's order has no W1.",
    ),
    "B before F on one rank": (
        [ORDERS[0], [("B", 0), ("F", 0), *ORDERS[1][2:]]],
        "Rank 1 runs B0 before F0, which it needs.",
    ),
    "W before B": (
        [[("F", 0), ("W", 0), ("B", 0)]],
        "Rank 0 runs W0 before B0, which it needs.",
    ),
    "recomputed after it is needed": (
        [[("F", 0), ("B", 0), ("R", 0)]],
        "Rank 0 runs B0 before R0, which it needs.",
    ),
    "chunks of one rank in the wrong order": (
        [[("F", 0, 1), ("F", 0, 0), ("B", 0, 1), ("B", 0, 0)]],
        "Rank 0 runs F0 of chunk 1 before F0, which it needs.",
    ),
    "not an op": (
        [[("F", 0), ("X", 0)]],
        "('X', 0) is no op; ops look like ('F', 0) or ('B', 3), kinds F B W R.",
    ),
    "a word for an op": (
        [["F0", "B0"]],
        "'F0' is no op; ops look like ('F', 0) or ('B', 3), kinds F B W R.",
    ),
    "a negative microbatch": (
        [[("F", -1), ("B", -1)]],
        "('F', -1) is no op; ops look like ('F', 0) or ('B', 3), kinds F B W R.",
    ),
    "an idle slot": (
        [[("F", 0), None, ("B", 0)]],
        "None is no op; ops look like ('F', 0) or ('B', 3), kinds F B W R.",
    ),
    "no rank": ([], "There is no order: a pipeline needs one list of ops per rank."),
    "an empty rank": (
        [ORDERS[0], []],
        "Rank 1's order is empty.",
    ),
}


@pytest.mark.parametrize(("orders", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_an_order_is_named(orders, sentence):
    with pytest.raises(OrderError) as caught:
        simulate(orders)
    assert str(caught.value) == sentence
    assert not isinstance(caught.value, OrderDeadlockError)


def test_a_deadlock_names_the_circle():
    late = [("F", 1), ("B", 1), ("F", 2), ("B", 2), ("F", 0), ("B", 0)]
    with pytest.raises(OrderDeadlockError) as caught:
        simulate([ORDERS[0], late])
    assert isinstance(caught.value, DeadlockError)
    assert str(caught.value) == (
        "Deadlock: rank 0 at B0 waits for rank 1's B0, "
        "rank 1 at F2 waits for rank 0's F2, a circle."
    )


def test_ranks_that_wait_for_a_circle_are_not_part_of_it():
    late = [("F", 1), ("B", 1), ("F", 2), ("B", 2), ("F", 0), ("B", 0)]
    orders = [*gpipe(3, 3)[:1], ORDERS[0], late]
    with pytest.raises(OrderDeadlockError, match=r"^Deadlock: rank 1 at B0 .* rank 2 at F2 "):
        simulate(orders)


def test_a_long_circle_is_told_short():
    # Rank 0 wants microbatch 0 back for its second chunk before it sends 1; rank 8 starts with 1.
    there, back = [("F", 0), ("F", 0, 1), ("F", 1), ("F", 1, 1)], [("B", 1, 1), ("B", 0, 1)]
    orders = [there + back + [("B", 1), ("B", 0)]] * 8
    orders.append([("F", 1), ("F", 0), *there[1::2], *back, ("B", 1), ("B", 0)])
    for s in range(1, 8):
        orders[s] = [("F", 0), ("F", 1), *orders[8][2:]]
    with pytest.raises(OrderDeadlockError) as caught:
        simulate(orders)
    assert len(str(caught.value)) < 220
    assert str(caught.value).count("waits for") == 4


@pytest.mark.slow  # importing torch's pipelines takes some seconds
def test_pytorchs_1f1b_is_refused_for_its_last_rank():
    # torch 2.13: get_schedule_ops("1F1B", ...) counts the last rank's forward passes from 1, so
    # F0 is never there and one microbatch too many is.
    theirs = torch_orders("1F1B", 4, 8)
    assert theirs[3][:3] == [Op("F", 1), Op("B", 0), Op("F", 2)]
    with pytest.raises(OrderError, match=r"^Rank 3's order has F8, which rank 0's has not\.$"):
        simulate(theirs)
    theirs[3] = [Op("F", op.microbatch - 1) if op.kind == "F" else op for op in theirs[3]]
    assert theirs == one_f_one_b(4, 8)


ARGUMENTS = {
    "forward has 3 entries for 2 ranks.": {"forward": [1, 2, 3]},
    "backward has 2 entries for 1 chunks.": {"backward": [[1, 2], [3, 4]]},
    "forward has 2 entries for 3 microbatches.": {"forward": [[[1, 2]], [[3, 4]]]},
    "sizes has 4 entries for 3 microbatches.": {"sizes": [1, 2, 3, 4]},
    "delay has 1 entries for 3 microbatches.": {"delay": [1]},
    "forward holds -1; times and sizes are numbers of at least 0.": {"forward": -1},
    "backward holds nan; times and sizes are numbers of at least 0.": {"backward": float("nan")},
    "delay holds inf; times and sizes are numbers of at least 0.": {"delay": float("inf")},
    "3 microbatches are no whole number of 2 slices.": {"slices": 2},
    "stages must place each of 0 to 1 once, 1 on each rank.": {"stages": [[0], [0]]},
}


@pytest.mark.parametrize(("sentence", "arguments"), ARGUMENTS.items(), ids=ARGUMENTS)
def test_a_wrong_argument_is_named(sentence, arguments):
    with pytest.raises(OrderError) as caught:
        simulate(ORDERS, **arguments)
    assert str(caught.value) == sentence


def test_w_can_not_take_longer_than_the_whole_backward_pass():
    assert simulate(zb_h1(2, 3), backward=3, weight_grad=3).makespan > 0
    with pytest.raises(OrderError, match=r"^weight_grad is the part of backward that W takes"):
        simulate(zb_h1(2, 3), backward=3, weight_grad=4)
    assert simulate(ORDERS, backward=3, weight_grad=4).makespan == 4 * (1 + 3)


COUNTS = [
    (lambda: gpipe(0, 4), "ranks, 1 or more, not 0"),
    (lambda: one_f_one_b(4, 0), "microbatches, 1 or more, not 0"),
    (lambda: looped_bfs(2, 2, 0), "chunks, 1 or more, not 0"),
    (lambda: naive(2.5, 1), "ranks, 1 or more, not 2.5"),
    (lambda: zb_h2(-1, 1), "ranks, 1 or more, not -1"),
    (lambda: gpipe(7_500_000_000, 64), "too many for one order"),
    (lambda: terapipe(2, 1, 0), "microbatches, 1 or more, not 0"),
    (lambda: interleaved(4, 6, 2), "6 is no multiple of 4"),
]


@pytest.mark.parametrize(("make", "part"), COUNTS)
def test_an_order_needs_sensible_counts(make, part):
    with pytest.raises(OrderError) as caught:
        make()
    assert part in str(caught.value)


def test_token_slices_need_those_before_forward_and_those_after_backward():
    assert simulate(terapipe(2, 1, 3), slices=3).makespan == 4 * 3
    with pytest.raises(OrderError, match=r"^Rank 0 runs B0 before B1, which it needs\.$"):
        simulate(gpipe(2, 3), slices=3)
    swapped = [[("F", 1), ("F", 0), ("B", 1), ("B", 0)]]
    with pytest.raises(OrderError, match=r"^Rank 0 runs F1 before F0, which it needs\.$"):
        simulate(swapped, slices=2)
    assert simulate(gpipe(2, 3), slices=1).makespan == 4 * 3


def test_weight_versions_are_told_where_they_have_a_meaning():
    with pytest.raises(OrderError, match="one chunk per rank"):
        newest_versions(interleaved(2, 2, 2))
    with pytest.raises(OrderError, match="F and B"):
        newest_versions(zb_h1(2, 2))
    with pytest.raises(OrderError, match=r"^Rank 0 needs version 1 for F4 but has made only 0"):
        double_buffered(one_f_one_b(4, 12), every=2)
    assert double_buffered(one_f_one_b(4, 16), every=4).kept == (2, 2, 2, 2)


# -- what is taken --------------------------------------------------------------------------------


def test_plain_tuples_lists_and_ops_are_the_same():
    plain = [[tuple(op) for op in order] for order in ORDERS]
    short = [[(op.kind, op.microbatch) for op in order] for order in ORDERS]
    listed = [[[op.kind, op.microbatch] for op in order] for order in ORDERS]
    from_numpy = [[(op.kind, np.int64(op.microbatch)) for op in order] for order in ORDERS]
    spans = [simulate(ORDERS).of(rank) for rank in (0, 1)]
    for orders in (plain, short, listed, from_numpy, tuple(map(tuple, short))):
        assert [simulate(orders).of(rank) for rank in (0, 1)] == spans


def test_starts_and_ends_by_hand():
    timeline = simulate(ORDERS, forward=[1, 2], backward=[3, 4], delay=1)
    assert timeline.of(1) == [
        Span(Op("F", 0), 2, 4),
        Span(Op("B", 0), 4, 8),
        Span(Op("F", 1), 8, 10),
        Span(Op("B", 1), 10, 14),
        Span(Op("F", 2), 14, 16),
        Span(Op("B", 2), 16, 20),
    ]
    assert timeline.of(0) == [
        Span(Op("F", 0), 0, 1),
        Span(Op("F", 1), 1, 2),
        Span(Op("B", 0), 9, 12),
        Span(Op("F", 2), 12, 13),
        Span(Op("B", 1), 15, 18),
        Span(Op("B", 2), 21, 24),
    ]
    assert timeline.makespan == 24
    assert timeline.busy == [12, 18]
    assert timeline.idle == [12, 6]
    assert (timeline.span(0), timeline.span(1), timeline.longest_span) == (24, 18, 24)
    assert timeline.bubble_fraction == Fraction(18, 48)
    assert timeline.bubble_ratio == Fraction(18, 30)
    assert timeline.in_flight(0) == [(0, 1), (1, 2), (12, 2), (18, 1), (24, 0)]


def test_times_by_rank_chunk_and_microbatch():
    orders = looped_bfs(2, 3, 2)
    by_chunk = simulate(orders, forward=[[1, 2], [3, 4]], backward=1)
    nested = [[[1, 1, 1], [2, 2, 2]], [[3, 3, 3], [4, 4, 4]]]
    assert by_chunk.of(1) == simulate(orders, forward=nested, backward=1).of(1)
    assert by_chunk.busy == [3 * (1 + 2) + 6, 3 * (3 + 4) + 6]
    nested[1][0][2] = 5
    assert simulate(orders, forward=nested, backward=1).busy == [15, 27 + 2]
    assert simulate(orders, forward=np.array([[1, 2], [3, 4]]), backward=1).busy == by_chunk.busy


def test_microbatches_of_unequal_size_scale_all_their_times():
    timeline = simulate(zb_h1(2, 3), forward=2, backward=5, weight_grad=2, sizes=[1, 3, 2])
    durations = {
        (span.op.kind, span.op.microbatch): span.end - span.start for span in timeline.of(1)
    }
    assert durations == {
        (kind, i): t * size
        for kind, t in (("F", 2), ("B", 3), ("W", 2))
        for i, size in enumerate([1, 3, 2])
    }


def test_a_delay_by_microbatch_reaches_that_microbatch_alone():
    timeline = simulate(gpipe(2, 3), delay=[0, 5, 0])
    assert timeline.starts[1][:3] == [1, 7, 8]


def test_exact_times_stay_exact_and_floats_stay_floats():
    third = Fraction(1, 3)
    exact = simulate(one_f_one_b(3, 4), forward=third, backward=2 * third, delay=third / 7)
    assert isinstance(exact.makespan, Fraction)
    assert (
        exact.makespan
        == simulate(one_f_one_b(3, 4), forward=7, backward=14, delay=1).makespan * third / 7
    )
    assert type(simulate(ORDERS).makespan) is int
    timeline = simulate(ORDERS, forward=0.1, backward=0.2)
    assert timeline.makespan == pytest.approx(1.2)
    assert timeline.bubble_fraction == pytest.approx(1 / 4)


def test_ops_that_run_as_one_start_and_end_together():
    orders = [
        [("F", 0), ("F", 1), ("B", 0), ("B", 1)],
        [("F", 0), (("F", 1), ("B", 0)), ("B", 1)],
    ]
    timeline = simulate(orders)
    assert timeline.of(1) == [
        Span(Op("F", 0), 1, 2),
        Span(Op("F", 1), 2, 5),
        Span(Op("B", 0), 2, 5),
        Span(Op("B", 1), 5, 7),
    ]
    assert timeline.starts[0] == [0, 1, 5, 7]
    assert timeline.busy == [6, 6]


def test_virtual_stages_can_lie_in_a_v():
    # Down the ranks with chunk 0, up with chunk 1: the last rank hands over to itself.
    orders = [[("F", 0), ("F", 0, 1), ("B", 0, 1), ("B", 0)]] * 2
    folded = simulate(orders, stages=v_stages(2), delay=1)
    assert folded.starts == [[0, 5, 6, 14], [2, 3, 9, 11]]
    looped = simulate(orders, delay=1)
    assert looped.starts == [[0, 4, 10, 16], [2, 6, 7, 13]]


@pytest.mark.slow  # importing torch's pipelines takes some seconds
def test_the_same_order_in_the_hands_of_pytorch():
    assert torch_orders("GPipe", 3, 5) == gpipe(3, 5)
    assert torch_orders("Interleaved1F1B", 4, 8, 2) == interleaved(4, 8, 2)
    assert torch_orders("Interleaved1F1B", 2, 6, 3) == interleaved(2, 6, 3)
    theirs = simulate(torch_orders("LoopedBFS", 4, 8, 2))
    ours = simulate(looped_bfs(4, 8, 2))
    assert theirs.makespan == ours.makespan
    assert theirs.peak_in_flight == ours.peak_in_flight


def test_schedules_need_neither_torch_nor_matplotlib():
    heavy = "{'torch', 'matplotlib'} & set(sys.modules)"
    code = f"import sys, distlab.schedule; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_timeline_prints_itself_in_a_line():
    assert repr(simulate(one_f_one_b(4, 8))) == (
        "4 ranks, 8 microbatches: makespan 33, bubble 27.3%, in flight at most 4 / 3 / 2 / 1"
    )
