"""Why no partition is better: a proof that is easy to check and knows nothing of its solver.

Suppose every stage took less than `value`. Then stage 0 could only end at certain places; from
those, stage 1 only at certain others; and so on. If from all places that are left the last stage
takes `value` or longer, there is no such partition: `value` is a lower bound. A certificate lists
these places.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from distlab.partition.problem import Problem
from distlab.partition.solver import reachable


@dataclass(frozen=True)
class Certificate:
    """A claim, no partition is below `value`, and its proof.

    `ends[s]` holds ranges (first, last) of the places where stage s can end if it and every stage
    before it take less than `value`, for all stages but the last. Left out are places that don't
    leave a layer for each later stage.
    """

    value: float
    ends: tuple[tuple[tuple[int, int], ...], ...]

    def __str__(self):
        lines = [f"No partition takes less than {self.value:.6g}. If every stage did,"]
        for stage, ranges in enumerate(self.ends):
            where = ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in ranges)
            lines.append(f"  stage {stage} would end before layer {where or '(nowhere)'},")
        return (
            "\n".join(lines)
            + f"\n  and stage {len(self.ends)} would take {self.value:.6g} or more."
        )


def certify(problem: Problem, value: float) -> Certificate:
    """Returns the proof that no partition is below `value`.

    Raises: ValueError if one is.
    """
    below = float(np.nextafter(value, -np.inf))
    if problem.plain:
        ends = list(_furthest_ends(problem, below))
    elif problem.transfers[1] is None:
        sets, _ = reachable(problem.layers, problem.stages, problem.load, problem.fits, below)
        ends = [_ranges(places) for places in sets[1:-1]]
    else:
        ends = [_ranges(places) for places in _ends_by_pairs(problem, below)]
    certificate = Certificate(value, tuple(ends))
    check_certificate(problem, certificate)
    return certificate


def check_certificate(problem: Problem, certificate: Certificate) -> float:
    """Returns the lower bound that the certificate proves, after checking every step of it.

    A step holds if each stage that would leave the listed places takes `value` or longer, or does
    not fit into memory. Nothing of the solver is used, only what a stage costs.

    Raises: ValueError that names the first stage for which the proof has a gap.
    """
    value, layers, stages = certificate.value, problem.layers, problem.stages
    if len(certificate.ends) != stages - 1:
        raise ValueError(
            f"The certificate lists the ends of {len(certificate.ends)} stages; all but the last "
            f"of {stages} are needed."
        )
    overlapped, _ = problem.transfers
    cheap = True if overlapped is None else overlapped < value  # no other place is used below value
    listed = np.arange(layers + 1) == 0
    for stage in range(stages):
        before = np.flatnonzero(listed & cheap)
        listed = np.zeros(layers + 1, dtype=bool)
        far = layers - (stages - 1 - stage)  # the later stages need a layer each
        for first, last in certificate.ends[stage] if stage < stages - 1 else ():
            listed[first : last + 1] = True
        outside = np.flatnonzero(~listed[: far + 1]) if stage < stages - 1 else np.array([layers])
        for i, j in _steps(problem, before, outside):
            escapes = (problem.load(stage, i, j) < value) & problem.fits(stage, i, j)
            if escapes.any():
                at = int(np.argmax(escapes))
                i, j = int(i[at]), int(j[at])
                raise ValueError(
                    f"The certificate has a gap: stage {stage} with layers {i}–{j - 1} takes "
                    f"{float(problem.load(stage, i, j)):.6g}, less than {value:.6g}."
                )
    return value


def _steps(
    problem: Problem, before: np.ndarray, outside: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields every (start, end) that must be looked at to know that no stage leaves the list.

    Where a stage only grows costlier with its layers, the latest start before each end is enough.
    """
    if problem.transfers[1] is None:
        ends = outside[outside > before[0]] if before.size else outside[:0]
        yield before[np.searchsorted(before, ends) - 1], ends
    else:
        for start in before:
            ends = outside[outside > start]
            yield np.full(len(ends), start), ends


def _furthest_ends(problem: Problem, limit: float) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields one range per alike stage: from one layer each to as many as the limit allows."""
    sums, layers, start = problem.prefix.tolist(), problem.layers, 0
    for stage in range(problem.stages - 1):
        guess = bisect_right(sums, sums[start] + limit, start) - 1
        end = max(guess, start)
        while end < layers and sums[end + 1] - sums[start] <= limit:
            end += 1
        while end > start and sums[end] - sums[start] > limit:
            end -= 1
        start = min(end, layers - (problem.stages - 1 - stage))
        yield ((stage + 1, start),) if start > stage else ()


def _ends_by_pairs(problem: Problem, limit: float) -> Iterator[np.ndarray]:
    """Yields per stage the places where it can end under the limit, from the definition alone."""
    before = np.zeros(1, dtype=np.int64)
    for stage in range(problem.stages - 1):
        far = problem.layers - (problem.stages - 1 - stage)
        can_end = np.zeros(far + 1, dtype=bool)
        for start in before:
            ends = np.arange(start + 1, far + 1)
            fits = problem.fits(stage, start, ends)
            can_end[start + 1 :] |= (problem.load(stage, start, ends) <= limit) & fits
        before = np.flatnonzero(can_end)
        yield before


def _ranges(places: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Returns runs of neighbours: `_ranges([1, 2, 4])` is ((1, 2), (4, 4))."""
    if not len(places):
        return ()
    breaks = np.flatnonzero(np.diff(places) > 1)
    firsts = places[np.concatenate(([0], breaks + 1))]
    lasts = places[np.concatenate((breaks, [len(places) - 1]))]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
