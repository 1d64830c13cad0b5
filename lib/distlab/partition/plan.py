"""Partitions: where the stages begin, what each costs, and why none is better."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from distlab.canvas import Picture
from distlab.partition.certificate import Certificate, certify
from distlab.partition.picture import Column, columns, draw, draw_svg
from distlab.partition.problem import Memory, Problem
from distlab.partition.solver import optimum


@dataclass(frozen=True)
class Plan:
    """A partition with the smallest possible bottleneck.

    Stage s holds the layers bounds[s] .. bounds[s+1] - 1. `value` is the optimum: no partition's
    longest load, in floating point as defined in `Problem.load`, is smaller. This plan's own
    longest load equals it up to the rounding of sums.
    """

    problem: Problem
    bounds: tuple[int, ...]
    value: float

    @property
    def stages(self) -> int:
        """The number of stages."""
        return self.problem.stages

    @property
    def cuts(self) -> tuple[int, ...]:
        """The first layer of every stage but the first."""
        return self.bounds[1:-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of layers of each stage."""
        return tuple(j - i for _, i, j in self._spans)

    @cached_property
    def loads(self) -> tuple[float, ...]:
        """The time of each stage, in the unit of the layers' times."""
        return tuple(float(self.problem.load(*span)) for span in self._spans)

    @cached_property
    def memory_bytes(self) -> tuple[float, ...]:
        """What each stage keeps, of `memory=Memory(...)`."""
        return tuple(float(self.problem.memory_bytes(*span)) for span in self._spans)

    @cached_property
    def certificate(self) -> Certificate:
        """The proof that nothing is below `value`; `check_certificate` checks it."""
        return certify(self.problem, self.value)

    @property
    def balance(self) -> float:
        """The mean load over the longest: the share of time that alike stages work."""
        return sum(self.loads) / self.stages / max(self.loads) if max(self.loads) else 1.0

    @property
    def _spans(self) -> list[tuple[int, int, int]]:
        return list(zip(range(self.stages), self.bounds, self.bounds[1:], strict=False))

    def __str__(self):
        rows = [f"{self.stages} stages, the slowest takes {self.value:.6g}"]
        for (stage, i, j), load in zip(self._spans, self.loads, strict=True):
            held = f"layer {i}" if j == i + 1 else f"layers {i}–{j - 1}"
            rows.append(f"  stage {stage}: {held}, {load:.6g}")
        return "\n".join(rows)

    def picture(self, *, title: str = "") -> Picture:
        """Draws the stages as bars of their layers, with a line at the slowest."""
        return draw(self._columns, title)

    def svg(self, *, title: str = "") -> str:
        """Returns the same picture as SVG, quick enough to be drawn at every step of a slider."""
        return draw_svg(self._columns, title)

    @property
    def _columns(self) -> list[Column]:
        p = self.problem
        return columns(p.times, self.bounds, p.overlapped, p.exposed, p.speeds)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.svg(), "text/plain": str(self)}


def min_max(
    layer_times: Sequence[float],
    stages: int,
    *,
    overlapped: Sequence[float] | None = None,
    exposed: Sequence[float] | None = None,
    speeds: Sequence[float] | None = None,
    memory: Memory | None = None,
    first: float = 0.0,
    last: float = 0.0,
) -> Plan:
    """Returns a partition of layers into contiguous stages whose slowest stage is fastest. Exact.

    Every stage holds at least one layer. `overlapped` and `exposed` give the transfer at each of
    the L - 1 places between layers, for both of its neighbours: an overlapped one runs beside the
    computing (a stage takes the longer of the two), an exposed one is work of the stage, added to
    its layers'. A stage of speed 2 works twice as fast. `first` and `last` are added to the first
    and the last layer: the embedding, the head. `memory` caps what a stage may keep.

    Cost: alike stages O(L + p log L) for each of about 10 limits; with speeds, caps or overlapped
    transfers O(p L) each; with exposed ones O(p L^2) at once.

    Raises: ValueError for more stages than layers and for times that are none; InfeasibleError, a
    ValueError, when no partition keeps within the caps.

    Example: `min_max([3, 1, 1, 1, 1, 4], 3).value == 4.0`.
    """
    problem = Problem(layer_times, stages, overlapped, exposed, speeds, memory, first, last)
    value, bounds = optimum(problem)
    return Plan(problem, tuple(bounds), value)
