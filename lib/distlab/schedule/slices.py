"""TeraPipe: a pipeline whose microbatches are slices of tokens of one sequence.

A causal model's slice attends to the slices before it, so its F needs theirs on the same rank; and
since the gradients of keys and values flow to earlier slices, backward passes run last slice first.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from distlab.errors import OrderError
from distlab.schedule.ops import Op, check_counts
from distlab.schedule.orders import Order

# Rooms that ask for the best slices put `best_slices` on FORBID.


class Slicing(NamedTuple):
    """How a sequence is cut, what each slice takes on a rank, and the time of the pipeline."""

    lengths: tuple[int, ...]
    times: tuple[Any, ...]
    latency: Any


def terapipe(p: int, sequences: int, slices: int) -> list[Order]:
    """Returns TeraPipe's order: all forward, then sequence by sequence backward, last slice first.

    Microbatch n is slice n mod slices of sequence n // slices. Simulate it with `slices=`.

    Example: `terapipe(2, 1, 3)[0]` is F0 F1 F2 B2 B1 B0.
    Source: Li et al. (2021), TeraPipe, section 3.
    """
    check_counts(p, sequences * slices)
    order = [Op("F", n) for n in range(sequences * slices)]
    for first in range(0, sequences * slices, slices):
        order += [Op("B", n) for n in reversed(range(first, first + slices))]
    return [order[:] for _ in range(p)]


def best_slices(tokens: int, p: int, time: Callable[[int, int], Any]) -> Slicing:
    """Returns the cut of a sequence whose forward passes leave p equal stages soonest.

    `time(length, context)` is what a stage takes for a slice of so many tokens that attends to so
    many before it. Slices that take t₁, t₂, … leave after Σ tᵢ + (p − 1) max tᵢ.

    For a cap on the longest slice, dynamic programming finds the least sum in O(tokens²); the caps
    go down from none, each just below the longest slice of the cut before.

    Example: `best_slices(10, 4, lambda length, context: 2 + 3 * length).latency == 64`, five of 2.
    Source: Li et al. (2021), TeraPipe, section 3.3.
    """
    check_counts(p, tokens)
    take = [[time(end - start, start) for start in range(end)] for end in range(tokens + 1)]
    if any(t < 0 for row in take for t in row):
        raise OrderError("A slice can't take a negative time.")
    best, cap = None, None
    while (cut := _least_sum(take, cap)) is not None:
        times = tuple(take[end][start] for start, end in pairwise(cut))
        latency = sum(times) + (p - 1) * max(times)
        if best is None or latency < best.latency:
            lengths = tuple(end - start for start, end in pairwise(cut))
            best = Slicing(lengths, times, latency)
        elif sum(times) >= best.latency:  # with a lower cap the sum only grows
            break
        cap = max(times)
    return best


def _least_sum(take: list[list[Any]], cap: Any) -> list[int] | None:
    """Returns the cut points of the least sum with every slice below the cap, if there is one."""
    least: list[Any] = [0]
    before = [0]
    for end in range(1, len(take)):
        sums = [
            (least[start] + t, start)
            for start, t in enumerate(take[end])
            if least[start] is not None and (cap is None or t < cap)
        ]
        total, start = min(sums, default=(None, 0))
        least.append(total)
        before.append(start)
    if least[-1] is None:
        return None
    cut = [len(take) - 1]
    while cut[-1]:
        cut.append(before[cut[-1]])
    return cut[::-1]
