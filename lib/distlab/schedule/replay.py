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
from distlab.schedule.durations import Number, Times, by_microbatch, durations_by_rank, is_number
from distlab.schedule.ops import Coding, Op, Orders, split_at
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
    coding = Coding(orders)
    flat, fused = _flatten(orders, coding)
    places = _Places(coding, stages)
    _check_order(flat, coding, places, slices)
    times = durations_by_rank(
        coding, forward=forward, backward=backward, weight_grad=weight_grad, sizes=sizes
    )
    starts, lengths = _run(flat, fused, times, delay, coding, places)
    return PipelineTimeline(coding, flat, starts, lengths, places.stages)


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

    def inputs(self, rank: int) -> np.ndarray:
        """Returns for each op of a rank which output it needs from another rank; -1 for none.

        Outputs are numbered rank · size + op.
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
                first, then = coding.op(int(after[i])), coding.op(int(before[i]))
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
    delay: Number | Sequence[Number],
    coding: Coding,
    places: _Places,
) -> tuple[list[list[Number]], list[list[Number]]]:
    """Returns the starts and the durations of each rank's ops, in the rank's order."""
    p, size = coding.p, coding.size
    # When each output arrives where it is needed; the last entry is -1, "needs none".
    arrival: list[Any] = [None] * (p * size) + [0]
    lags = by_microbatch(delay, coding.m, "delay") * (size // coding.m)
    ranks: list[Generator[int, None, None]] = []
    starts: list[list[Number]] = [[] for _ in range(p)]
    lengths: list[list[Number]] = []
    for rank, order in enumerate(flat):
        numbers = order.tolist()
        needs = places.inputs(rank)[order].tolist()
        outputs = (order + rank * size).tolist()
        length = list(map(times[rank].__getitem__, numbers))
        lag = repeat(delay) if is_number(delay) else map(lags.__getitem__, numbers)
        lengths.append(length)
        rows = zip(needs, outputs, length, lag, strict=False)
        counts = fused[rank]
        if counts is None:
            ranks.append(_rank(rows, arrival, starts[rank]))
        else:
            ranks.append(_fused_rank(iter(rows), counts, arrival, starts[rank], length))
    stuck = _take_turns(ranks, arrival, size)
    if stuck:
        raise OrderDeadlockError(_circle(stuck, flat, starts, coding))
    return starts, lengths


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
            while arrival[needs] is None:
                yield needs
            now = max(now, arrival[needs])
        length = sum(row[2] for row in group)
        done = len(starts)
        starts += [now] * count
        lengths[done : done + count] = [length] * count
        now += length
        for _, output, _, lag in group:
            arrival[output] = now + lag


def _take_turns(ranks: list[Generator[int, None, None]], arrival: list, size: int) -> dict:
    """Lets each rank run as far as it gets, until nobody can; returns what each is stuck on."""
    turns = deque(range(len(ranks)))
    waiting: list[dict[int, int]] = [{} for _ in ranks]  # by whom it waits for: who, for what
    while turns:
        rank = turns.popleft()
        needs = next(ranks[rank], None)
        if needs is not None:
            waiting[needs // size][rank] = needs
        for other, output in list(waiting[rank].items()):
            if arrival[output] is not None:
                del waiting[rank][other]
                turns.append(other)
    return {who: needs for others in waiting for who, needs in others.items()}


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
        at = coding.op(int(flat[waits][len(starts[waits])]))
        owner, number = divmod(stuck[waits], coding.size)
        links.append(f"rank {waits} at {at} waits for rank {owner}'s {coding.op(number)}")
    if len(links) > 4:
        links[3:-1] = ["…"]
    return f"Deadlock: {', '.join(links)}, a circle."


def v_stages(p: int) -> list[list[int]]:
    """Returns the places of 2p virtual stages on p ranks that run down and back up, as a V.

    Example: `v_stages(2) == [[0, 3], [1, 2]]`.
    Source: Qi et al. (2024), Pipeline Parallelism with Controllable Memory (ZB-V).
    """
    return [[rank, 2 * p - 1 - rank] for rank in range(p)]


__all__ = ["Op", "simulate", "v_stages"]
