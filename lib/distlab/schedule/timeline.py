"""What a simulated pipeline did: when each op ran, what it cost, what it held."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from operator import add
from typing import Any, NamedTuple

import numpy as np

from distlab import timeline as events
from distlab.schedule.ops import Coding, Op

Number = Any
ROLES = {"F": "activations", "B": "gradients", "W": "weights", "R": "activations"}


class Span(NamedTuple):
    """When one op ran."""

    op: Op
    start: Number
    end: Number


@dataclass(frozen=True, eq=False)
class PipelineTimeline:
    """When each op of a pipeline ran, and the measures of it. `simulate` makes it.

    Times are in the unit that went in. Idle time counts from 0 to the makespan on every rank.
    """

    coding: Coding
    stages: Sequence[Sequence[int]]  # of each rank and chunk
    numbers: Sequence[np.ndarray]  # which op, rank by rank in its order; so are starts and lengths
    starts: Sequence[Sequence[Number]]
    lengths: Sequence[Sequence[Number]]
    times: Sequence[Sequence[Number]]  # of each rank's ops by number, each for itself
    lags: Sequence[Number]  # of each microbatch on its way to another rank

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.coding.p

    @property
    def microbatches(self) -> int:
        """How many microbatches there are."""
        return self.coding.m

    @property
    def chunks(self) -> int:
        """How many chunks of layers each rank has."""
        return self.coding.v

    def of(self, rank: int) -> list[Span]:
        """Returns a rank's ops in its order, each with its start and end."""
        ops = map(self.coding.ops.__getitem__, self.numbers[rank].tolist())
        return list(map(Span, ops, self.starts[rank], self.ends[rank]))

    @cached_property
    def ends(self) -> list[list[Number]]:
        """When each op ends, rank by rank."""
        return [
            list(map(add, starts, lengths))
            for starts, lengths in zip(self.starts, self.lengths, strict=True)
        ]

    # -- time -------------------------------------------------------------------------------------

    @cached_property
    def makespan(self) -> Number:
        """The time from 0 to the end of the last op."""
        return max(s[-1] + n[-1] for s, n in zip(self.starts, self.lengths, strict=True))

    def span(self, rank: int) -> Number:
        """Returns the time from a rank's first start to its last end."""
        return self.starts[rank][-1] + self.lengths[rank][-1] - self.starts[rank][0]

    @property
    def longest_span(self) -> Number:
        """The longest rank's span: what papers on zero bubbles call the time of a step."""
        return max(map(self.span, range(self.ranks)))

    @cached_property
    def busy(self) -> list[Number]:
        """How long each rank works."""
        return [sum(row) for row in self.times]

    @property
    def idle(self) -> list[Number]:
        """How long each rank stands idle between 0 and the makespan."""
        return [self.makespan - busy for busy in self.busy]

    @property
    def bubble_fraction(self) -> Number:
        """Idle time over makespan, of all ranks together: a Fraction where times are exact."""
        return _ratio(sum(self.idle), self.ranks * self.makespan)

    @property
    def bubble_ratio(self) -> Number:
        """Idle time over ideal time, which is the time that ranks work."""
        return _ratio(sum(self.idle), sum(self.busy))

    @property
    def lower_bound(self) -> Number:
        """The least makespan that any order of this work on these ranks could have.

        The longest of two kinds of chain: one microbatch's way through all stages and back; and per
        rank, the shortest way of a microbatch to it, all its work, and the shortest way back from
        it (none where the backward pass is split: the rank's last W may end the step).
        """
        there, back = self._ways("F"), self._ways("B")
        alone = [sum(way) for way in zip(there[-1], back[-1], strict=True)]
        bounds = [max(alone)]
        split = "W" in self.coding.kinds
        for rank, busy in enumerate(self.busy):
            first = min(self.stages[rank])
            bounds.append(min(there[first]) + busy + (0 if split else min(back[first])))
        return max(bounds)

    def _ways(self, kind: str) -> list[list[Number]]:
        """Returns what the ops of a kind take before each virtual stage, and in all, by microbatch.

        Sending between ranks counts. Going back takes as long as coming, so the way from a stage to
        the first is summed up from the first.
        """
        place = {k: (s, c) for s, row in enumerate(self.stages) for c, k in enumerate(row)}
        ways: list[list[Number]] = [[0] * self.microbatches]
        for k in range(len(place)):
            rank, chunk = place[k]
            work = self.times[rank][self.coding.block(kind, chunk)]
            sent = k + 1 in place and place[k + 1][0] != rank
            lags = self.lags if sent else [0] * self.microbatches
            ways.append([sum(parts) for parts in zip(ways[-1], work, lags, strict=True)])
        return ways

    # -- activations ------------------------------------------------------------------------------

    def in_flight(self, rank: int) -> list[tuple[Number, int]]:
        """Returns how many microbatches a rank holds, as steps: (from when, how many).

        A microbatch of one chunk counts from the start of its F to the end of its backward pass: of
        B, or of W where the order has one. Divide by the number of chunks for whole stages. Where
        the order recomputes (R), all that is held before R is the microbatch's input.

        Example: `simulate(naive(1, 1)).in_flight(0) == [(0, 1), (3, 0)]`.
        """
        counts, steps = self._held(rank, self._last_kind), []
        for change, count, start, end in zip(
            self._changes(rank, self._last_kind), counts, self.starts[rank], self.ends[rank],
            strict=True,
        ):  # fmt: skip
            if change:
                when = start if change > 0 else end
                if steps and steps[-1][0] == when:
                    steps.pop()
                steps.append((when, int(count)))
        return steps

    @property
    def peak_in_flight(self) -> list[int]:
        """The most microbatches that each rank holds at once, until W where the order has one."""
        return [int(self._held(r, self._last_kind).max()) for r in range(self.ranks)]

    @property
    def peak_until_b(self) -> list[int]:
        """The same, released at the end of B: what W still needs is left out."""
        return [int(self._held(r, "B").max()) for r in range(self.ranks)]

    @property
    def _last_kind(self) -> str:
        return "W" if "W" in self.coding.kinds else "B"

    def _changes(self, rank: int, release: str) -> np.ndarray:
        kinds, one = self.coding.kinds, self.coding.v * self.coding.m
        kind = self.numbers[rank] // one
        return (kind == 0).astype(int) - (kind == kinds.index(release))

    def _held(self, rank: int, release: str) -> np.ndarray:
        return np.cumsum(self._changes(rank, release))

    # -- elsewhere --------------------------------------------------------------------------------

    def events(self, *, unit_s: float = 1.0) -> events.Timeline:
        """Returns the course's `Timeline`, which has a picture and a trace for Perfetto.

        `unit_s` is how many seconds your unit of time has.
        """
        unit = events.exact(unit_s)
        return events.Timeline(
            (
                events.Event(
                    rank, "compute", str(op), op.kind, events.exact(start) * unit,
                    events.exact(end) * unit, role=ROLES[op.kind],
                )
                for rank in range(self.ranks)
                for op, start, end in self.of(rank)
            ),
            self.ranks,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        from distlab.schedule.drawing import gantt_svg

        return gantt_svg(self)

    def __repr__(self) -> str:
        return (
            f"{self.ranks} ranks, {self.microbatches} microbatches: makespan {self.makespan}, "
            f"bubble {float(self.bubble_fraction):.1%}, in flight at most "
            f"{' / '.join(map(str, self.peak_in_flight[:16]))}{' …' if self.ranks > 16 else ''}"
        )


def _ratio(part: Number, whole: Number) -> Number:
    if not whole:  # no op takes any time
        return 0
    exact = isinstance(part, Rational) and isinstance(whole, Rational)
    return Fraction(part) / Fraction(whole) if exact else part / whole
