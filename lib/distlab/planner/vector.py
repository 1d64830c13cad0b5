"""Many layouts priced at once: the same formulas as `estimate`, over columns of numbers.

`estimate` asks every stage of a layout for its memory. Here only those are asked that can be the
worst: the first, the last, and in between the first of each number of layers, for of stages alike
the earliest has the most in flight.

Columns are worked through in pieces that stay in a processor's cache.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from types import SimpleNamespace
from typing import Any

import numpy as np

from distlab.layout import Job
from distlab.planner import memory, seconds
from distlab.planner.counts import Counts, counts
from distlab.planner.space import AXES, Columns
from distlab.planner.split import stage_layers
from distlab.planner.stack import Stack

PIECE = 16384  # rows: a column of them is 131 kB


@dataclass(frozen=True, eq=False)
class Costs:
    """What each of many layouts needs: a column of bytes and one of seconds."""

    memory_bytes: np.ndarray
    step_time_s: np.ndarray


@lru_cache(maxsize=4096)
def worst_stages(layers: int, p: int, v: int) -> tuple[int, ...]:
    """Returns the stages of which one needs the most memory, whatever the microbatches.

    Example: of 126 layers on 16 stages, 7, 8, …, 8, 7, the stages 0, 1 and 15.
    """
    held = stage_layers(layers, p, v)
    found, most = [0], held[0]
    for stage in range(1, p - 1):  # one after an earlier one with as many layers has less in flight
        if held[stage] > most:
            found.append(stage)
            most = held[stage]
    return tuple(dict.fromkeys([*found, p - 1]))


def evaluate(job: Job, x: Columns, stack: Stack) -> Costs:
    """Returns memory of the worst stage and step time of each layout.

    The layouts must keep the rules (`distlab.planner.rules`).

    Cost: about a microsecond a layout on one core, three hundred times less than `estimate`.

    Example: `evaluate(job, columns([Layout(8, 8, 16)]), stack).step_time_s[0]` equals
    `estimate(job, Layout(8, 8, 16), stack).step_time_s` but for the last bits.
    """
    c = counts(job.model)
    stages = _Stages(job.model.layers, x)
    sizes, times = np.empty(len(x)), np.empty(len(x))
    for start in range(0, len(x), PIECE):
        piece = slice(start, start + PIECE)
        some = _as_floats(x.rows(piece))
        sizes[piece] = _memory_bytes(c, job, some, stack, stages)
        times[piece] = _step_time_s(c, job, some, stack, stages)
    return Costs(sizes, times)


def _memory_bytes(c: Counts, job: Job, x: Any, stack: Stack, stages: "_Stages") -> np.ndarray:
    """Returns the memory of the worst stage: candidates run down a table, layouts across."""
    which = stages.pair(x)
    place, layers = stages.place.take(which, axis=1), stages.layers.take(which, axis=1)
    first, last = np.zeros((len(place), 1)), np.zeros(place.shape)
    first[0], last[0], last[-1] = 1, x.p == 1, 1
    ends = {"first": first, "last": last}
    parts = memory.memory_bytes(c, job, x, stack, layers=layers, stage=place, **ends)
    first_one, *others = sum(parts.values())
    return reduce(np.maximum, others, first_one)


def _step_time_s(c: Counts, job: Job, x: Any, stack: Stack, stages: "_Stages") -> np.ndarray:
    which = stages.pair(x)
    ends = {f"{name}_layers": column.take(which) for name, column in stages.held.items()}
    return sum(seconds.step_seconds(c, job, x, stack, **ends).values())


class _Stages:
    """What each pair (p, v) of a table of layouts makes of the layers: a column for each pair."""

    def __init__(self, layers: int, x: Columns):
        there = np.zeros((x.p.max(initial=0) + 1, x.v.max(initial=0) + 1), bool)
        there[x.p, x.v] = True
        pairs = np.argwhere(there).tolist()
        self._column = np.zeros(there.shape, np.intp)
        self._column[there] = range(len(pairs))
        held = [stage_layers(layers, p, v) for p, v in pairs]
        between = [[s for s in worst_stages(layers, p, v) if 0 < s < p - 1] for p, v in pairs]
        deep = max(map(len, between), default=0)
        # The first stage, those between (where there are fewer, the first again), the last.
        asked = [[0, *some, *[0] * (deep - len(some)), p - 1]
                 for some, (p, _) in zip(between, pairs, strict=True)]  # fmt: skip
        sizes = [[row[s] for s in some] for row, some in zip(held, asked, strict=True)]
        self.place = np.array(asked, float).reshape(len(pairs), deep + 2).T.copy()
        self.layers = np.array(sizes, float).reshape(len(pairs), deep + 2).T.copy()
        self.held = {
            "first": np.array([layers[0] for layers in held], float),
            "most": np.array([max(layers) for layers in held], float),
            "last": np.array([layers[-1] for layers in held], float),
        }

    def pair(self, x: Any) -> np.ndarray:
        """Returns which pair each row has."""
        return self._column[x.p.astype(np.intp), x.v.astype(np.intp)]


def _as_floats(x: Columns) -> Any:
    """Returns the columns as the formulas like them: numbers that need no conversion each time."""
    table = {axis: getattr(x, axis).astype(float) for axis in AXES if axis != "sequence_parallel"}
    return SimpleNamespace(**table, sequence_parallel=x.sequence_parallel)
