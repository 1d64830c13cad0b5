"""The search: every layout of a job priced, the best, the front of memory and time, and the rest.

    found = planner.plan(job)
    found.best, found.front, found.rejected[0].reason

Rows are priced by `evaluate`, a million a second; what is shown of a layout comes from `estimate`,
the same model as a readable function.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from distlab.breakdown import step_breakdown
from distlab.canvas import Picture
from distlab.errors import InfeasibleError
from distlab.layout import Job, Layout
from distlab.memory import size_text
from distlab.planner import table as tables
from distlab.planner.advice import advice
from distlab.planner.estimate import Estimate, estimate
from distlab.planner.rules import RULES, why_not
from distlab.planner.space import AXES, Space, space
from distlab.planner.stack import Stack
from distlab.planner.stacks import stack_of
from distlab.planner.vector import Costs, evaluate
from distlab.scatter import layout_scatter

# `best` and `front` belong to a plan with its own rules and costs: lab 7's search and Pareto front
# are functions of the student's layouts and points, which no name here takes.

TOO_BIG = "memory"  # beside the names of RULES, the reason that costs alone can give


@dataclass(frozen=True)
class Rejected:
    """A layout that is out, and why, in one sentence."""

    layout: Layout
    reason: str


@dataclass(frozen=True, eq=False)
class Plan:
    """What a search found. Everything in it is worked out when it is asked for.

    `limit_bytes` is what a GPU may hold: a layout that needs exactly that fits. `fixed` are the
    axes that were given one value.
    """

    job: Job
    stack: Stack
    fixed: Mapping[str, Any]
    limit_bytes: float
    space: Space = field(repr=False)
    costs: Costs = field(repr=False)

    @cached_property
    def fits(self) -> np.ndarray:
        """For each layout that was priced, whether a GPU holds it."""
        return self.costs.memory_bytes <= self.limit_bytes

    @property
    def considered(self) -> int:
        """How many layouts there were, refused ones counted as they were refused."""
        return len(self.space.kept) + len(self.space.refused)

    @property
    def best(self) -> Estimate:
        """The layout with the shortest step of those that fit; of equals, with the least memory.

        Raises: InfeasibleError, a ValueError, where none fits; it says what would.
        """
        if not len(self.order):
            raise InfeasibleError(advice(self))
        return self.estimate(self.order[0])

    @cached_property
    def order(self) -> np.ndarray:
        """Places in `space.kept` of the layouts that fit, the best first."""
        places = np.flatnonzero(self.fits)
        memory, time = self.costs.memory_bytes[places], self.costs.step_time_s[places]
        return places[np.lexsort((_rounded(memory), _rounded(time)))]

    @cached_property
    def front(self) -> list[Estimate]:
        """The layouts that no other beats in both memory and time, the fastest first."""
        memory = _rounded(self.costs.memory_bytes[self.order])
        before = np.minimum.accumulate(np.concatenate(([np.iinfo(np.int64).max], memory[:-1])))
        return [self.estimate(i) for i in self.order[memory < before[: len(memory)]]]

    @cached_property
    def shapes(self) -> list[Estimate]:
        """The best layout of each t × p × d × context that has one, the best shape first."""
        return self.first_shapes(len(self._shape_places))

    def first_shapes(self, most: int) -> list[Estimate]:
        """Returns the first of `shapes`, without working out the others."""
        return [self.estimate(i) for i in self._shape_places[:most]]

    @cached_property
    def too_big(self) -> list[Estimate]:
        """The smallest layout of each t × p × d × context of which none fits, smallest first."""
        places = np.argsort(_rounded(self.costs.memory_bytes), kind="stable")
        smallest = places[self._first_of_shape(places)]
        new = ~np.isin(self._shape_key(smallest), self._shape_key(self._shape_places))
        return [self.estimate(i) for i in smallest[new]]

    @cached_property
    def too_fast(self) -> list[Estimate]:
        """Of each shape the fastest layout, if it is too big and faster than all that fit."""
        places = np.argsort(_rounded(self.costs.step_time_s), kind="stable")
        fastest = places[self._first_of_shape(places)]
        return [self.estimate(i) for i in fastest[~self.fits[fastest]]]

    @cached_property
    def rejected_shapes(self) -> list[Rejected]:
        """Each t × p × d × context of which nothing fits, with the reason of what comes nearest."""
        kept = [Rejected(e.layout, self.why_not(e.layout)) for e in self.too_big]
        outer = [i for i, place in enumerate(self.space.broken) if RULES[place].outer]
        return kept + [self.rejected[i] for i in outer]

    @cached_property
    def rejected(self) -> Sequence[Rejected]:
        """Every layout that is out, each with its reason; sentences are made when they are read."""
        return _Rejections(self)

    @cached_property
    def reasons(self) -> Mapping[str, int]:
        """How many layouts are out for which kind of reason, the commonest first."""
        counts = Counter(RULES[place].name for place in self.space.broken.tolist())
        too_big = int((~self.fits).sum())
        return dict((counts + Counter({TOO_BIG: too_big})).most_common())

    def why_not(self, layout: Layout) -> str | None:
        """Returns why a layout is out, in one sentence; None where it fits.

        Example: "Needs 91.2 GB of 80 GB: activations 60.1 GB."
        """
        return why_not(self.job, layout) or _too_big(
            estimate(self.job, layout, self.stack), self.limit_bytes
        )

    def estimate(self, place: int) -> Estimate:
        """Returns the estimate of the layout at a place in `space.kept`."""
        return estimate(self.job, self.space.kept[int(place)], self.stack)

    def picture(self, *, title: str = "") -> Picture:
        """Draws step time against memory: the best layout of each shape, and all of the front.

        Crosses are too big: of each shape the fastest, where that would be faster than what fits.
        """
        fitting = [*self.shapes, *self.front]
        front = {estimate.layout for estimate in self.front}
        return layout_scatter(
            {e.layout: (e.memory_bytes, e.step_time_s) for e in [*fitting, *self.too_fast]},
            capacity=(self.job.cluster.gpu.name, self.limit_bytes),
            best=self.best.layout,
            names=[e.layout for e in self.shapes if e.layout in front],
            title=title or tables.short_title(self.job),
        )

    def breakdown(self, most: int = 6, *, title: str = "") -> Picture:
        """Draws what the steps of the best `most` shapes are made of."""
        shown = {_name(e.layout): e.times for e in self.first_shapes(most)}
        return step_breakdown(
            {name: {part.lower(): s for part, s in times.items()} for name, times in shown.items()},
            best=_name(self.best.layout),
            title=title or tables.short_title(self.job),
        )

    def table(self, most: int = 10) -> Any:
        """Returns the best `most` shapes as a table to print with `rich`."""
        return tables.terminal(self, most)

    def to_json(self, most: int = 10) -> str:
        """Returns the plan as JSON: job, counts, the best, the best `most` shapes, the front."""
        return tables.as_json(self, most)

    def to_csv(self, most: int = 10) -> str:
        """Returns the best `most` shapes as CSV, a line each, units in the names of columns."""
        return tables.as_csv(self.first_shapes(most))

    def __str__(self):
        return tables.text(self, 10) if len(self.order) else advice(self)

    def _repr_html_(self) -> str:
        return tables.page(self, 10) if len(self.order) else f"<p>{html.escape(advice(self))}</p>"

    @cached_property
    def _shape_places(self) -> np.ndarray:
        return self.order[self._first_of_shape(self.order)]

    def _shape_key(self, places: np.ndarray) -> np.ndarray:
        """Returns one number for each t × p × d × context: three of them give the fourth."""
        kept, most = self.space.kept, self.job.gpus + 1
        return (kept.t[places] * most + kept.p[places]) * most + kept.d[places]

    def _first_of_shape(self, places: np.ndarray) -> np.ndarray:
        """Returns where in `places` a shape comes for the first time, rising."""
        return np.sort(np.unique(self._shape_key(places), return_index=True)[1])


def plan(
    job: Job,
    stack: Stack | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    limit_bytes: float | None = None,
) -> Plan:
    """Returns the plan of a job: all its layouts, priced.

    `stack` holds the constants of hardware and software (that of the job's GPU unless given).
    `fixed` gives axes of `Layout` one value each, as `{"t": 8, "recompute": "selective"}`.
    `limit_bytes` is what one GPU may hold (its memory unless given; nothing of it is set aside for
    what a framework keeps for itself).

    Cost: about a microsecond a layout; 610,728 of them for GPT-3 on 1,024 GPUs.

    Raises: ValueError for an unknown axis and for a model that the cost model does not know.

    Example: `plan(job).best.layout.gpus == job.gpus`.
    """
    fixed = dict(fixed or {})
    unknown = [axis for axis in fixed if axis not in AXES]
    if unknown:
        raise ValueError(f"A layout has no {unknown[0]!r}; it has {', '.join(AXES)}.")
    stack = stack or stack_of(job.cluster.gpu)
    limit_bytes = float(job.cluster.gpu.memory_bytes if limit_bytes is None else limit_bytes)
    layouts = space(job, fixed)
    return Plan(job, stack, fixed, limit_bytes, layouts, evaluate(job, layouts.kept, stack))


class _Rejections(Sequence[Rejected]):
    """The layouts that are out: those that broke a rule, then those that are too big."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._too_big = np.flatnonzero(~plan.fits)

    def __len__(self) -> int:
        return len(self._plan.space.refused) + len(self._too_big)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[place] for place in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        i %= len(self)
        refused, plan = self._plan.space.refused, self._plan
        if i < len(refused):
            rule = RULES[plan.space.broken[i]]
            return Rejected(refused[i], rule.sentence(plan.job, refused[i]))
        layout = plan.space.kept[int(self._too_big[i - len(refused)])]
        return Rejected(layout, plan.why_not(layout))


def _name(layout: Layout) -> str:
    return f"{layout}, context {layout.context}" if layout.context > 1 else str(layout)


def _too_big(found: Estimate, limit_bytes: float) -> str | None:
    if found.memory_bytes <= limit_bytes:
        return None
    largest = max(found.memory, key=found.memory.get)
    return (
        f"Needs {size_text(found.memory_bytes)} of {size_text(limit_bytes)}: {largest} "
        f"{size_text(found.memory[largest])}."
    )


def _rounded(x: np.ndarray) -> np.ndarray:
    """Returns positive numbers as integers in the same order, those equal to 1e-12 as one.

    Two ways to one time differ in the last bits, which must not choose between layouts.
    """
    return np.ascontiguousarray(x, dtype=np.float64).view(np.int64) + (1 << 11) >> 12
