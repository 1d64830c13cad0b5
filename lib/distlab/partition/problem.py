"""What is to be cut: layers in order, the stages they go to, and what each stage costs.

A place i is the gap before layer i, so a stage from place i to place j holds the layers i .. j-1,
and a partition is a list of places, `bounds = [0, .., L]`. A place costs a transfer, except the
first and the last: nothing is sent before layer 0 or after layer L-1.

What a stage costs is defined here and nowhere else. Times may have any unit, as long as all share
it; sums are differences of prefix sums, S[j] - S[i], which never falls when a stage grows, in
floating point too. That makes every comparison below exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Memory:
    """What layers keep on their stage, and how much a stage may keep.

    `weight_bytes` (per layer; optimiser states and gradients belong to it) is kept once,
    `activation_bytes` (per layer) once for every microbatch in flight. `cap_bytes` is one number
    for all stages or one per stage. `in_flight` is one number per stage; None means 1F1B with
    enough microbatches: stage s of p holds p - s.
    """

    weight_bytes: Sequence[float]
    activation_bytes: Sequence[float]
    cap_bytes: float | Sequence[float]
    in_flight: Sequence[int] | None = None


@dataclass(frozen=True)
class Problem:
    """Layers, stages, and all that `min_max` was told about them; refuses what has no meaning."""

    layer_times: Sequence[float]
    stages: int
    overlapped: Sequence[float] | None = None
    exposed: Sequence[float] | None = None
    speeds: Sequence[float] | None = None
    memory: Memory | None = None
    first: float = 0.0
    last: float = 0.0

    def __post_init__(self):
        layers = len(self.layer_times)
        if isinstance(self.stages, bool) or not isinstance(self.stages, int | np.integer):
            raise TypeError(f"The number of stages is {self.stages!r}: give a whole number.")
        if not layers:
            raise ValueError("There are no layers to cut.")
        if self.stages < 1:
            raise ValueError(f"{self.stages} stages can hold no layer: give at least 1.")
        if self.stages > layers:
            raise ValueError(
                f"{self.stages} stages of {layers} layers: each stage needs a layer of its own, "
                f"so give at most {layers} stages."
            )
        _ = self.prefix, self.transfers, self.rates, self.kept  # what is wrong shows up now

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.layer_times)

    @cached_property
    def times(self) -> np.ndarray:
        """Returns the layers' times; what comes first and last is part of those layers."""
        times = numbers(self.layer_times, "layer_times", self.layers, "layers").copy()
        if self.first or self.last:
            times[0] += _number(self.first, "first")
            times[-1] += _number(self.last, "last")
        return times

    @cached_property
    def prefix(self) -> np.ndarray:
        """Returns S of L + 1 places: the time of all layers before each."""
        sums = np.zeros(self.layers + 1)
        with np.errstate(over="ignore"):  # said below, in words
            np.cumsum(self.times, out=sums[1:])
        if not np.isfinite(sums[-1]):
            raise ValueError("The layers' times add up to more than a float can hold.")
        return sums

    @cached_property
    def transfers(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Returns the overlapped and the exposed cost of all L + 1 places; the ends cost 0."""
        return _at_places(self.overlapped, "overlapped", self.layers), _at_places(
            self.exposed, "exposed", self.layers
        )

    @cached_property
    def rates(self) -> np.ndarray | None:
        """Returns the stages' speeds."""
        if self.speeds is None:
            return None
        speeds = numbers(self.speeds, "speeds", self.stages, "stages")
        if not speeds.all():
            raise ValueError(f"The speed of stage {int(np.argmin(speeds))} is 0.")
        return speeds

    @cached_property
    def kept(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """Returns prefix sums of weights and activations, and by stage: caps, in flight."""
        if (memory := self.memory) is None:
            return None
        sums = []
        for name in ("weight_bytes", "activation_bytes"):
            each = numbers(getattr(memory, name), name, self.layers, "layers")
            sums.append(np.concatenate(([0.0], np.cumsum(each))))
        caps, flying = memory.cap_bytes, memory.in_flight
        if np.ndim(caps) == 0:
            caps = [caps] * self.stages
        if flying is None:
            flying = range(self.stages, 0, -1)
        caps = numbers(caps, "cap_bytes", self.stages, "stages")
        return *sums, caps, numbers(flying, "in_flight", self.stages, "stages")

    @property
    def plain(self) -> bool:
        """Whether all stages are alike and cuts are free: then the quick solver does it."""
        return self.memory is self.speeds is self.overlapped is self.exposed is None

    def load(self, stage, i, j):
        """Returns the time of a stage that holds the layers i .. j-1; numbers or arrays of them.

        (S[j] - S[i] + exposed_i + exposed_j) / speed, or an overlapped transfer if that is longer.
        """
        time = self.prefix[j] - self.prefix[i]
        overlapped, exposed = self.transfers
        if exposed is not None:
            time = time + exposed[i] + exposed[j]
        if self.rates is not None:
            time = time / self.rates[stage]
        if overlapped is not None:
            time = np.maximum(time, np.maximum(overlapped[i], overlapped[j]))
        return time

    def memory_bytes(self, stage, i, j):
        """Returns what a stage with the layers i .. j-1 keeps: weights + in flight x activations.

        Raises: ValueError where nothing was said about memory.
        """
        if self.kept is None:
            raise ValueError("This partition was made without memory=Memory(...).")
        weights, activations, _, in_flight = self.kept
        return weights[j] - weights[i] + in_flight[stage] * (activations[j] - activations[i])

    def fits(self, stage, i, j):
        """Returns whether a stage with the layers i .. j-1 keeps within its cap."""
        if self.kept is None:
            return np.True_
        return self.memory_bytes(stage, i, j) <= self.kept[2][stage]

    def over_bytes(self, stage, i, j):
        """Returns by how much a stage with the layers i .. j-1 exceeds its cap (< 0: fits)."""
        return self.memory_bytes(stage, i, j) - self.kept[2][stage]

    @property
    def rounding(self) -> float:
        """Returns a bound on what rounding adds to a load, whatever unit the times have.

        Each of L additions is off by at most 2^-53 of the total, twice for a difference, twice
        again for times that were converted from another unit; doubled once more for division.
        """
        total = self.prefix[-1]
        for costs in self.transfers:
            total = total + (0.0 if costs is None else 2 * costs.max())
        slowest = 1.0 if self.rates is None else self.rates.min()
        return float(self.layers * 2.0**-50 * total / slowest)


def numbers(values: Sequence[float], name: str, length: int, of: str) -> np.ndarray:
    """Returns the values as an array, or says which of them is no time (or size)."""
    if len(values) != length:
        raise ValueError(f"{name} holds {len(values)} numbers for {length} {of}.")
    try:
        numbers = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must hold numbers alone: {values!r:.60}.") from None
    if numbers.ndim != 1:
        raise ValueError(f"{name} is {numbers.ndim}-dimensional: give one number for each.")
    least, most = numbers.min(initial=0.0), numbers.max(initial=0.0)
    if not (least >= 0 and most < np.inf):  # a NaN makes both comparisons false
        wrong = ~((numbers >= 0) & (numbers < np.inf))
        where = int(np.argmax(wrong))
        raise ValueError(f"{name}[{where}] is {values[where]}: give a finite number, 0 or more.")
    return numbers


def _number(value: float, name: str) -> float:
    return float(numbers([value], name, 1, "value")[0])


def _at_places(costs: Sequence[float] | None, name: str, layers: int) -> np.ndarray | None:
    if costs is None:
        return None
    inner = numbers(costs, name, layers - 1, "places between layers")
    return np.concatenate(([0.0], inner, [0.0]))
