"""The exact smallest bottleneck: who can end where, if no stage may take longer than a limit?

Three ways to the same definition (`Problem.load`), by what makes a stage slow:
- all stages alike, cuts free: one greedy walk answers the question for a limit, by binary search
  in the prefix sums; the limit itself is found by bisection;
- stages that differ, memory caps, overlapped transfers: the same bisection over sets of places;
- exposed transfers: a longer stage may be the cheaper one, so no set grows steadily with the limit;
  dynamic programming over all pairs of places then, which asks for nothing but the definition.

A bisection over floats would stop at an epsilon. Ours ends on the optimum: a limit that fails is
raised to the smallest load that was just too long (below it, every decision would be the same), and
one that holds is lowered to the longest load that was used.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from distlab.errors import InfeasibleError
from distlab.memory import size_text
from distlab.partition.problem import Problem

_BLOCK = 1 << 21  # pairs of places looked at in one go: about 16 MB an array


def optimum(problem: Problem) -> tuple[float, list[int]]:
    """Returns the smallest possible bottleneck, and the bounds of one partition that has it.

    Of all partitions as good, up to the rounding of sums, the one whose stages begin earliest: in a
    pipeline the first stages hold most microbatches, so they had better hold few layers. Up to
    rounding, because a tie in milliseconds must be a tie in seconds.

    Raises: InfeasibleError when no partition keeps within the memory caps.
    """
    if problem.plain:
        sums = problem.prefix.tolist()  # reading one number of a list is quicker than of an array
        value = _least_limit(sums, problem.stages, float(np.diff(problem.prefix).max()))
        return value, _earliest(sums, problem.stages, value + problem.rounding)
    if problem.memory is not None:
        _refuse_what_never_fits(problem)
    if problem.transfers[1] is None:
        return _optimum_by_sets(problem)
    return _optimum_by_pairs(problem)


def _least_limit(sums: list[float], stages: int, longest: float) -> float:
    """Returns the least limit that the greedy walk meets with alike stages."""
    total = sums[-1]
    # No partition is below its longest layer, nor below the mean; the walk meets their sum, and if
    # rounding should deny that, one stage for all layers always holds.
    low = max(longest, total / stages)
    met, bound = _walk(sums, stages, total / stages + longest)
    return narrow(lambda limit: _walk(sums, stages, limit), low, bound if met else total)


def narrow(probe: Callable[[float], tuple[bool, float]], low: float, high: float) -> float:
    """Returns the least limit that holds, between one that may fail and one that holds.

    `probe` tells whether a limit holds, and a better bound: the load that was really reached, or
    the smallest one that was refused.
    """
    while low < high:
        limit = low + (high - low) / 2
        met, bound = probe(limit if limit < high else low)
        if met:
            high = bound
        else:
            low = bound
    return high


def _walk(sums: list[float], stages: int, limit: float) -> tuple[bool, float]:
    """Fills stage after stage up to the limit; returns (True, the longest load) if all layers fit,
    else (False, the smallest load that was too long).
    """
    last = len(sums) - 1
    start, used, missed = 0, 0.0, float("inf")
    for _ in range(stages):
        begin = sums[start]
        # The search only guesses: S[i] + limit is rounded, S[j] - S[i] <= limit is the rule.
        end = bisect_right(sums, begin + limit, start) - 1
        while end < last and sums[end + 1] - begin <= limit:
            end += 1
        while sums[end] - begin > limit:
            end -= 1
        if (load := sums[end] - begin) > used:
            used = load
        if end == last:
            return True, used
        if (load := sums[end + 1] - begin) < missed:
            missed = load
        start = end
    return False, missed


def _earliest(sums: list[float], stages: int, limit: float) -> list[int]:
    """Returns the bounds with every cut as early as the limit allows, for alike stages."""
    bounds = [len(sums) - 1]
    for stage in range(stages - 1, 0, -1):
        end = bounds[-1]
        start = bisect_left(sums, sums[end] - limit, 0, end)
        while sums[end] - sums[start] > limit:
            start += 1
        while start > 0 and sums[end] - sums[start - 1] <= limit:
            start -= 1
        bounds.append(max(start, stage))  # every earlier stage needs a layer
    return [0, *reversed(bounds)]


Rule = Callable[..., np.ndarray]  # (stage, i, j) -> loads, or whether they fit


def reachable(
    layers: int, stages: int, load: Rule, fits: Rule, limit: float
) -> tuple[list[np.ndarray], float]:
    """Returns for 0, 1, .. stages the places where they can end, and the smallest load refused.

    For loads that only grow with the stage (overlapped transfers aside, which forbid places as a
    whole). Then place j can be the end of a stage if and only if it can be with the shortest stage
    that ends there, so one candidate per place is enough.
    """
    ends, refused = [np.zeros(1, dtype=np.int64)], np.inf
    for stage in range(stages):
        before = ends[-1]
        if not before.size:
            break
        far = layers - (stages - 1 - stage)  # the later stages need a layer each
        near = before[0] + 1 if stage < stages - 1 else layers
        places = np.arange(near, far + 1)
        starts = before[np.searchsorted(before, places) - 1]
        loads, fit = load(stage, starts, places), fits(stage, starts, places)
        refused = min(refused, np.min(loads, initial=np.inf, where=(loads > limit) & fit))
        ends.append(places[(loads <= limit) & fit])
    return ends + [np.zeros(0, dtype=np.int64)] * (stages + 1 - len(ends)), refused


def _least_limit_by_sets(
    layers: int, stages: int, load: Rule, fits: Rule, guess: float = np.nan
) -> float:
    """Returns the least limit under which the last place is reachable; infinite if none is.

    `guess` is only tried, never trusted: a limit near the optimum spares a few others.
    """

    def probe(limit: float) -> tuple[bool, float]:
        ends, refused = reachable(layers, stages, load, fits, limit)
        if not ends[-1].size:
            return False, float(refused)
        bounds = _back(ends, lambda stage, i, j: fits(stage, i, j) & (load(stage, i, j) <= limit))
        return True, _longest(load, bounds)

    met, high = probe(np.inf)
    if not met:
        return np.inf
    low = probe(-np.inf)[1]
    if low < guess < high:
        met, bound = probe(guess)
        low, high = (low, bound) if met else (bound, high)
    return narrow(probe, low, high)


def _optimum_by_sets(problem: Problem) -> tuple[float, list[int]]:
    layers, stages, load, fits = problem.layers, problem.stages, problem.load, problem.fits
    together = stages if problem.rates is None else problem.rates.sum()
    guess = 1.25 * float(problem.prefix[-1] / together)
    value = _least_limit_by_sets(layers, stages, load, fits, guess)
    ends, _ = reachable(layers, stages, load, fits, value + problem.rounding)
    return value, _chain(ends, problem, value)


def _optimum_by_pairs(problem: Problem) -> tuple[float, list[int]]:
    """Dynamic programming over D[k][j], the least bottleneck of j layers on the first k stages:

    D[k+1][j] = min over i < j of max(D[k][i], load(k, i, j)).
    """
    widths = np.arange(1, _most_layers(problem) + 1)
    rows = max(1, _BLOCK // len(widths))
    best = [np.where(np.arange(problem.layers + 1) == 0, -np.inf, np.inf)]
    for stage in range(problem.stages):
        row = [np.array([np.inf])]
        for first in range(1, problem.layers + 1, rows):
            j = np.arange(first, min(first + rows, problem.layers + 1))[:, None]
            i = np.maximum(j - widths, 0)  # what lies before layer 0 is looked at as 0, once more
            loads = np.maximum(best[-1][i], problem.load(stage, i, j))
            row.append(np.where(problem.fits(stage, i, j), loads, np.inf).min(axis=1))
        best.append(np.concatenate(row))
    value = float(best[-1][-1])
    ends = [np.flatnonzero(row <= value + problem.rounding) for row in best]
    return value, _chain(ends, problem, value)


def _most_layers(problem: Problem) -> int:
    """Returns how many layers a stage can hold in a best partition, or a few more.

    Transfers left out, the problem is one of the quicker ones. Its answer is an answer to this one
    too, and no stage need hold more than could be computed in its longest load.
    """
    _, bounds = optimum(replace(problem, exposed=None))
    fastest = 1.0 if problem.rates is None else problem.rates.max()
    most = (_longest(problem.load, bounds) + 2 * problem.rounding) * fastest
    earliest = np.searchsorted(problem.prefix, problem.prefix - most)
    return int((np.arange(problem.layers + 1) - earliest).max())


def _chain(ends: Sequence[np.ndarray], problem: Problem, value: float) -> list[int]:
    """Returns bounds through the reachable places, from the end back, each as early as can be."""
    limit = value + problem.rounding

    def holds(stage, i, j):
        return problem.fits(stage, i, j) & (problem.load(stage, i, j) <= limit)

    return _back(ends, holds)


def _back(ends: Sequence[np.ndarray], holds: Rule) -> list[int]:
    bounds = [int(ends[-1][-1])]
    for stage in range(len(ends) - 2, -1, -1):
        starts = ends[stage][ends[stage] < bounds[-1]]
        bounds.append(int(starts[np.argmax(holds(stage, starts, bounds[-1]))]))
    return bounds[::-1]


def _longest(load: Rule, bounds: Sequence[int]) -> float:
    stages = range(len(bounds) - 1)
    return float(np.max([load(s, bounds[s], bounds[s + 1]) for s in stages]))


def _refuse_what_never_fits(problem: Problem) -> None:
    """Raises InfeasibleError with the stage that lacks least, if no partition fits."""

    def anything(stage, i, j):
        return np.True_

    layers, stages = problem.layers, problem.stages
    ends, _ = reachable(layers, stages, problem.over_bytes, anything, 0.0)
    if ends[-1].size:
        return
    lack = _least_limit_by_sets(layers, stages, problem.over_bytes, anything)
    ends, _ = reachable(layers, stages, problem.over_bytes, anything, lack)
    bounds = _back(ends, lambda s, i, j: problem.over_bytes(s, i, j) <= lack)
    over = [problem.over_bytes(s, bounds[s], bounds[s + 1]) for s in range(stages)]
    stage = int(np.argmax(over))
    first, last = bounds[stage], bounds[stage + 1] - 1
    held = f"layer {first}" if first == last else f"layers {first}–{last}"
    cap, flying = problem.kept[2][stage], problem.kept[3][stage]
    raise InfeasibleError(
        f"No partition into {stages} stages fits into memory. The one that lacks least puts {held} "
        f"on stage {stage}: with {flying:g} microbatches in flight they need "
        f"{_size(cap + over[stage])} of {_size(cap)}, {_size(over[stage])} too much."
    )


def _size(size_bytes: float) -> str:
    return size_text(size_bytes) if size_bytes >= 1e8 else f"{size_bytes:,.6g} B"
