"""The simulator: runs the orders of a pipeline's ranks and says when each op starts and ends.

Each rank runs its ops one at a time, in its order, each as soon as what it needs is there:

- F needs F of the same microbatch on the virtual stage before;
- B needs B on the virtual stage after; on the last stage its own F, earlier in the order;
- W needs its own B, and R its own F, earlier in the order.

What goes to another rank arrives `delay` after the op has ended, while the sender goes on. So every
op has a single input from elsewhere, and a rank runs until that is missing. Cost: O(ops).
"""

from collections import deque
from collections.abc import Generator, Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from distlab.errors import OrderDeadlockError, OrderError
from distlab.look import end_at_the_callers_line
from distlab.schedule.durations import Number, Times, by_microbatch, durations_by_rank
from distlab.schedule.ops import Coding, Orders, check_counts, split_at
from distlab.schedule.timeline import PipelineTimeline

# Rooms that ask for a simulator put `simulate` on FORBID.


def simulate(
    orders: Orders,
    *,
    forward: Times = 1,
    backward: Times = 2,
    weight_grad: Times = 1,
    delay: Number | Sequence[Number] = 0,
    sizes: Sequence[Number] | None = None,
    slices: int = 1,
    stages: Sequence[Sequence[int]] | None = None,
) -> PipelineTimeline:
    """Returns when each op of a pipeline's orders starts and ends.

    `forward` and `backward` are the times of F and of the *whole* backward pass; in orders with W,
    W takes `weight_grad` of it and B the rest. So the same times fit every schedule. Each is a
    number or one per rank; a rank's entry is a number or one per chunk; a chunk's entry is a number
    or one per microbatch. R takes as long as F. `sizes` multiplies all times of a microbatch.
    `delay` is what a tensor takes to the next rank, one way: a number or one per microbatch.

    `slices` cuts each sequence into token slices (`terapipe`): microbatch n is then slice
    n mod slices, whose F needs the slices before it and whose B needs those after it.
    `stages[rank][chunk]` places the virtual stages elsewhere than at chunk · p + rank. An entry of
    an order may hold several ops, `(Op("F", 4), Op("B", 0))`: they run as one, for the sum of
    their times.

    Integers and Fractions stay exact. The unit of time is yours.

    Raises: OrderError for an op that is missing, repeated, unknown or before what it needs;
    OrderDeadlockError where ranks wait for each other in a circle.

    Example: `simulate(one_f_one_b(4, 8)).makespan == 33`.
    """
    try:
        coding = Coding(orders)
        flat, fused = _flatten(orders, coding)
        places = _Places(coding, stages)
        _check_order(flat, coding, places, slices)
        times = durations_by_rank(
            coding, forward=forward, backward=backward, weight_grad=weight_grad, sizes=sizes
        )
        lags = by_microbatch(delay, coding.m, "delay")
        starts, lengths = _run(flat, fused, times, lags, coding, places)
    except OrderError as error:  # the orders are the caller's: so is the line to look at
        end_at_the_callers_line(error)
        raise
    return PipelineTimeline(coding, places.stages, flat, starts, lengths, times, lags)


class _Places:
    """Which rank and chunk each virtual stage lies on, and so where each op's input comes from."""

    def __init__(self, coding: Coding, stages: Sequence[Sequence[int]] | None):
        p, v = coding.p, coding.v
        self.coding = coding
        self.stages = [[int(k) for k in row] for row in stages] if stages is not None else [
            [chunk * p + rank for chunk in range(v)] for rank in range(p)
        ]  # fmt: skip
        self.at = {k: (s, c) for s, row in enumerate(self.stages) for c, k in enumerate(row)}
        if sorted(self.at) != list(range(p * v)) or {len(row) for row in self.stages} != {v}:
            raise OrderError(f"stages must place each of 0 to {p * v - 1} once, {v} on each rank.")

    def source(self, kind: str, rank: int, chunk: int) -> tuple[int, int] | None:
        """Returns the rank and chunk whose op of this kind an F or B needs first, if there is one.

        Example: with two ranks and one chunk, `source("B", 0, 0) == (1, 0)`.
        """
        step = {"F": -1, "B": 1}.get(kind)
        return None if step is None else self.at.get(self.stages[rank][chunk] + step)

    def receivers(self) -> list[list[int]]:
        """Returns for each rank to whom it sends."""
        to: list[set[int]] = [set() for _ in self.stages]
        for k, (rank, _) in self.at.items():
            to[rank] |= {self.at[n][0] for n in (k - 1, k + 1) if n in self.at} - {rank}
        return [sorted(others) for others in to]

    def inputs(self, rank: int) -> np.ndarray:
        """Returns for each op of a rank which op of another rank it needs, as rank · size + op.

        -1 stands for none.
        """
        inputs = np.full(self.coding.size, -1)
        for kind in "FB":
            for chunk in range(self.coding.v):
                source = self.source(kind, rank, chunk)
                if source is not None and source[0] != rank:
                    theirs = self.coding.block(kind, source[1])
                    base = source[0] * self.coding.size
                    inputs[self.coding.block(kind, chunk)] = base + np.arange(
                        theirs.start, theirs.stop
                    )
        return inputs


def _flatten(orders: Orders, coding: Coding) -> tuple[list[np.ndarray], list[list[int] | None]]:
    """Returns each rank's ops by number, and how many each entry holds where some hold several."""
    flat: list[np.ndarray] = []
    fused: list[list[int] | None] = []
    for order in orders:
        counts = None
        try:
            numbers = np.fromiter(map(coding.of.__getitem__, order), np.int64, len(order))
        except (KeyError, TypeError):  # ops that run as one, lists in place of tuples, or mistakes
            groups = split_at(order)
            counts = [len(group) for group in groups]
            found = [coding.of.get(op, -1) for group in groups for op in group]
            numbers = np.array(found, np.int64)
        position = np.full(coding.size, -1)
        if numbers.size == coding.size:
            position[numbers] = 0
        if (position < 0).any() or (numbers < 0).any():
            coding.raise_first_mistake(orders)
        flat.append(numbers)
        fused.append(counts if counts and max(counts) > 1 else None)
    return flat, fused


def _check_order(flat: list[np.ndarray], coding: Coding, places: _Places, slices: int) -> None:
    """Raises OrderError where a rank runs an op before another of its own that the op needs."""
    if slices < 1 or coding.m % slices:
        raise OrderError(f"{coding.m} microbatches are no whole number of {slices} slices.")
    chain = [kind for kind in "FRBW" if kind in coding.kinds]
    numbers = np.arange(coding.size)
    for rank, order in enumerate(flat):
        position = np.empty_like(order)
        position[order] = numbers

        def check(before: np.ndarray, after: np.ndarray, rank=rank, position=position) -> None:
            late = position[before] > position[after]
            if late.any():
                i = int(np.argmax(late))
                first, then = coding.ops[after[i]], coding.ops[before[i]]
                raise OrderError(f"Rank {rank} runs {first} before {then}, which it needs.")

        for chunk in range(coding.v):
            ours = {kind: numbers[coding.block(kind, chunk)] for kind in coding.kinds}
            for before, after in pairwise(chain):
                check(ours[before], ours[after])
            for kind in "FB":
                source = places.source(kind, rank, chunk)
                if source is not None and source[0] == rank:
                    check(numbers[coding.block(kind, source[1])], ours[kind])
            if slices > 1:
                f, b = (ours[kind].reshape(-1, slices) for kind in "FB")
                check(f[:, :-1].ravel(), f[:, 1:].ravel())
                check(b[:, 1:].ravel(), b[:, :-1].ravel())


def _run(
    flat: list[np.ndarray],
    fused: list[list[int] | None],
    times: list[list[Number]],
    lags: list[Number],
    coding: Coding,
    places: _Places,
) -> tuple[list[list[Number]], list[list[Number]]]:
    """Returns the starts and the durations of each rank's ops, in the rank's order."""
    p, size = coding.p, coding.size
    # Outputs are numbered as they come: rank · size + place in the rank's order.
    number = np.full(p * size + 1, -1)
    for rank, order in enumerate(flat):
        number[rank * size + order] = np.arange(rank * size, (rank + 1) * size)
    # When each arrives where it is needed; the last entry is that of -1, "needs none".
    arrival: list[Any] = [None] * (p * size) + [0]
    lags = lags * (size // coding.m)
    uniform = len(set(lags)) == 1
    ranks: list[Generator[int, None, None]] = []
    starts: list[list[Number]] = [[] for _ in range(p)]
    lengths: list[list[Number]] = []
    for rank, order in enumerate(flat):
        needs = number[places.inputs(rank)[order]].tolist()
        outputs = range(rank * size, (rank + 1) * size)
        lengths.append(_take(times[rank], order))
        lag = repeat(lags[0]) if uniform else _take(lags, order)
        rows = zip(needs, outputs, lengths[rank], lag, strict=False)
        counts = fused[rank]
        if counts is None:
            ranks.append(_rank(rows, arrival, starts[rank]))
        else:
            ranks.append(_fused_rank(rows, counts, arrival, starts[rank], lengths[rank]))
    stuck = _take_turns(ranks, arrival, places.receivers())
    if stuck:
        raise OrderDeadlockError(_circle(stuck, flat, starts, coding))
    return starts, lengths


def _take(values: list[Any], order: np.ndarray) -> list[Any]:
    """Returns the very objects of a list in another order, faster than a loop."""
    return np.array(values, object)[order].tolist()


def _rank(rows: Any, arrival: list, starts: list) -> Generator[int, None, None]:
    """Runs a rank's ops; yields the output that it needs where that has no time yet."""
    now = 0
    for needs, output, length, lag in rows:
        ready = arrival[needs]
        if ready is None:
            yield needs
            ready = arrival[needs]
        if ready > now:
            now = ready
        starts.append(now)
        now += length
        arrival[output] = now + lag


def _fused_rank(
    rows: Any, counts: list[int], arrival: list, starts: list, lengths: list
) -> Generator[int, None, None]:
    """The same for a rank with entries of several ops: together they start, and together end."""
    now = 0
    for count in counts:
        group = [next(rows) for _ in range(count)]
        for needs, *_ in group:
            if arrival[needs] is None:
                yield needs
            now = max(now, arrival[needs])
        length = sum(row[2] for row in group)
        done = len(starts)
        starts += [now] * count
        lengths[done : done + count] = [length] * count
        now += length
        for _, output, _, lag in group:
            arrival[output] = now + lag


def _take_turns(
    ranks: list[Generator[int, None, None]], arrival: list, receivers: list[list[int]]
) -> dict[int, int]:
    """Lets each rank run as far as it gets, until nobody can; returns what each is stuck on."""
    turns = deque(range(len(ranks)))
    stuck = [-1] * len(ranks)
    while turns:
        rank = turns.popleft()
        stuck[rank] = next(ranks[rank], -1)
        for other in receivers[rank]:
            needs = stuck[other]
            if needs >= 0 and arrival[needs] is not None:
                stuck[other] = -1
                turns.append(other)
    return {rank: needs for rank, needs in enumerate(stuck) if needs >= 0}


def _circle(
    stuck: dict[int, int], flat: list[np.ndarray], starts: list[list], coding: Coding
) -> str:
    """Returns the sentence on a deadlock: who waits at which op for which op of whom."""
    rank, path = next(iter(stuck)), []
    while rank not in path:
        path.append(rank)
        rank = stuck[rank] // coding.size
    links = []
    for waits in path[path.index(rank) :]:
        at = coding.ops[flat[waits][len(starts[waits])]]
        owner, place = divmod(stuck[waits], coding.size)
        needed = coding.ops[flat[owner][place]]
        links.append(f"rank {waits} at {at} waits for rank {owner}'s {needed}")
    if len(links) > 4:
        links[3:-1] = ["…"]
    return f"Deadlock: {', '.join(links)}, a circle."


def v_stages(p: int) -> list[list[int]]:
    """Returns the places of 2p virtual stages on p ranks that run down and back up, as a V.

    Example: `v_stages(2) == [[0, 3], [1, 2]]`.
    Source: Qi et al. (2024), Pipeline Parallelism with Controllable Memory (ZB-V).
    """
    check_counts(p, 1)
    return [[rank, 2 * p - 1 - rank] for rank in range(p)]
