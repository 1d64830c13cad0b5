"""PipeDream's partition: a stage may have several machines, each taking its share of the batches.

m replicas of a stage finish m microbatches in the time of one, but must sum their gradients. In an
all-reduce every machine sends and receives 2 (m-1)/m of the stage's weights, so per microbatch

    time(m) = (compute + 4 (m-1) weights / (rate m)) / m

One m is not always better than another, but a limit still asks each stage one question: how few
machines keep you below it? The fewest machines for the first j layers follow by dynamic
programming, and the limit by the same bisection as without replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from distlab.canvas import Picture
from distlab.partition.picture import Column, draw, draw_svg
from distlab.partition.problem import Problem, numbers
from distlab.partition.solver import narrow


@dataclass(frozen=True)
class Replication:
    """Layers, machines, and what replicas cost; refuses what has no meaning."""

    layer_times: Sequence[float]
    machines: int
    weight_bytes: Sequence[float]
    rate_bytes_per_s: float

    def __post_init__(self):
        if self.machines < 1:
            raise ValueError(f"{self.machines} machines can hold no layer: give at least 1.")
        if not 0 < self.rate_bytes_per_s < np.inf:
            raise ValueError(f"A link of {self.rate_bytes_per_s} bytes/s moves nothing.")
        _ = self.times, self.weights

    @cached_property
    def times(self) -> np.ndarray:
        """Returns prefix sums of the layers' times."""
        return Problem(self.layer_times, 1).prefix

    @cached_property
    def weights(self) -> np.ndarray:
        """Returns prefix sums of the layers' weights."""
        each = numbers(self.weight_bytes, "weight_bytes", len(self.layer_times), "layers")
        return np.concatenate(([0.0], np.cumsum(each)))

    def load(self, i, j, m):
        """Returns the time per microbatch of the layers i .. j-1 on m machines."""
        moved = 4 * (m - 1) * (self.weights[j] - self.weights[i])
        return (self.times[j] - self.times[i] + moved / (self.rate_bytes_per_s * m)) / m


@dataclass(frozen=True)
class ReplicatedPlan:
    """Stages with their numbers of machines, with the smallest possible bottleneck `value`.

    `fewest[j]` proves it: below `value`, the first j layers need at least so many machines, and all
    layers need more than there are.
    """

    problem: Replication
    bounds: tuple[int, ...]
    replicas: tuple[int, ...]
    value: float
    fewest: tuple[float, ...]

    @property
    def loads(self) -> tuple[float, ...]:
        """The time per microbatch of each stage."""
        spans = zip(self.bounds, self.bounds[1:], self.replicas, strict=False)
        return tuple(float(self.problem.load(i, j, m)) for i, j, m in spans)

    def __str__(self):
        used = sum(self.replicas)
        rows = [
            f"{len(self.replicas)} stages on {used} machines, the slowest takes {self.value:.6g}"
        ]
        for stage, (m, load) in enumerate(zip(self.replicas, self.loads, strict=True)):
            held = f"layers {self.bounds[stage]}–{self.bounds[stage + 1] - 1}"
            rows.append(f"  stage {stage}: {held} on {m} machine{'s' * (m > 1)}, {load:.6g}")
        return "\n".join(rows)

    def picture(self, *, title: str = "") -> Picture:
        """Draws the stages as bars, with their machines, and a line at the slowest."""
        return draw(self._columns, title)

    def svg(self, *, title: str = "") -> str:
        """Returns the same picture as SVG."""
        return draw_svg(self._columns, title)

    @property
    def _columns(self) -> list[Column]:
        return [
            Column(f"stage {s} × {m}", ((f"{i}–{j - 1}", load, "weights"),))
            for s, (i, j, m, load) in enumerate(
                zip(self.bounds, self.bounds[1:], self.replicas, self.loads, strict=False)
            )
        ]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.svg(), "text/plain": str(self)}


def replicated(
    layer_times: Sequence[float],
    machines: int,
    *,
    weight_bytes: Sequence[float],
    rate_bytes_per_s: float,
) -> ReplicatedPlan:
    """Returns stages and machines for each, at most `machines` in all, with the least bottleneck.

    Exact. `layer_times` are in seconds here, as the rate is per second. The number of stages is
    free: all layers on one stage with every machine is data parallelism.

    Cost: O(machines L^2) for each of about 20 limits.

    Source: the formula and the task, PipeDream (SOSP 2019), section 3.1; the search is our own.

    Example: `replicated([2, 2], 4, weight_bytes=[0, 0], rate_bytes_per_s=1).value == 1.0`.
    """
    problem = Replication(layer_times, machines, weight_bytes, rate_bytes_per_s)
    places = np.arange(len(problem.times))
    i, j = places[:, None], places[None, :]
    counts = np.arange(1, machines + 1)
    loads = np.stack([np.where(i < j, problem.load(i, j, int(m)), np.inf) for m in counts])

    def probe(limit: float) -> tuple[bool, float]:
        fewest, starts, need = _fewest_machines(loads, limit)
        if fewest[-1] > machines:
            return False, float(loads[loads > limit].min())
        bounds = _bounds(starts)
        return True, max(loads[m - 1, i, j] for i, j, m in _stages(bounds, need))

    # All machines together are no faster than their number; one machine holds everything.
    low = float(problem.times[-1]) / machines * (1 - 2.0**-40)
    value = float(narrow(probe, low, float(loads[0, 0, -1])))
    _, starts, need = _fewest_machines(loads, value)
    bounds = _bounds(starts)
    replicas = tuple(m for _, _, m in _stages(bounds, need))
    below, *_ = _fewest_machines(loads, float(np.nextafter(value, -np.inf)))
    return ReplicatedPlan(problem, tuple(bounds), replicas, value, tuple(below.tolist()))


def check_fewest(plan: ReplicatedPlan) -> float:
    """Returns the lower bound that `plan.fewest` proves, after checking every step of it.

    With any stage that takes less than the value, layers i .. j-1 on m machines, the count may
    grow by no more than m from place i to place j.

    Raises: ValueError that names the first stage for which the proof has a gap.
    """
    problem, fewest, value = plan.problem, np.asarray(plan.fewest), plan.value
    if len(fewest) != len(problem.times) or fewest[0] != 0:
        raise ValueError("A proof gives a number of machines for every place, 0 for the first.")
    for m in range(1, problem.machines + 1):
        for i in range(len(fewest) - 1):
            ends = np.arange(i + 1, len(fewest))
            gaps = (problem.load(i, ends, m) < value) & (fewest[ends] > fewest[i] + m)
            if gaps.any():
                j = int(ends[np.argmax(gaps)])
                raise ValueError(
                    f"The proof has a gap: layers {i}–{j - 1} on {m} machines take less than "
                    f"{value:.6g}, yet it counts more than {m} for them."
                )
    if not fewest[-1] > problem.machines:
        raise ValueError(f"The proof asks for {fewest[-1]:g} machines, and there are that many.")
    return value


def _fewest_machines(loads: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns by place the fewest machines that keep below the limit, where their last stage
    begins, and by pair of places the fewest machines of such a stage.
    """
    holds = loads <= limit
    first = holds.argmax(axis=0)  # 0 as well where no number of machines is enough
    enough = np.take_along_axis(holds, first[None], axis=0)[0]
    need = np.where(enough, first + 1.0, np.inf)
    fewest, starts = np.zeros(len(need)), np.zeros(len(need), dtype=int)
    for j, column in enumerate(np.ascontiguousarray(need.T)):
        if j:
            totals = fewest[:j] + column[:j]
            starts[j] = start = totals.argmin()
            fewest[j] = totals[start]
    return fewest, starts, need


def _bounds(starts: np.ndarray) -> list[int]:
    bounds = [len(starts) - 1]
    while bounds[-1]:
        bounds.append(int(starts[bounds[-1]]))
    return bounds[::-1]


def _stages(bounds: list[int], need: np.ndarray) -> list[tuple[int, int, int]]:
    return [(i, j, int(need[i, j])) for i, j in pairwise(bounds)]
