"""All layouts of a job, as columns of a table: a million rows take no million objects.

Two tables come of it. `kept` has one row for each layout whose cost is worth asking. `refused` has
one row for each that breaks a rule, as far as it was filled in when it broke it: groups of t = 16
on nodes of 8 are refused once, not once for each microbatch size that they might have had.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from distlab.layout import Job, Layout
from distlab.planner.memory import RECOMPUTE  # a column holds the place in this tuple
from distlab.planner.rules import RULES
from distlab.planner.split import most_chunks

AXES = tuple(field.name for field in fields(Layout))


@dataclass(frozen=True)
class Columns:
    """Layouts as columns: `x.t[i]`, `x.p[i]`, … are those of layout `x[i]`.

    `recompute` is a column of places in RECOMPUTE.
    """

    t: np.ndarray
    p: np.ndarray
    d: np.ndarray
    v: np.ndarray
    microbatch: np.ndarray
    sequence_parallel: np.ndarray
    recompute: np.ndarray
    zero: np.ndarray
    context: np.ndarray

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, i: int) -> Layout:
        values = {name: getattr(self, name)[i].item() for name in AXES}
        return Layout(**values | {"recompute": RECOMPUTE[values["recompute"]]})

    def __iter__(self) -> Iterator[Layout]:
        return (self[i] for i in range(len(self)))

    def rows(self, which: Any) -> "Columns":
        """Returns the rows that a slice, a mask or an array of places names."""
        return Columns(**{name: getattr(self, name)[which] for name in AXES})


def columns(layouts: Sequence[Layout]) -> Columns:
    """Returns layouts as columns."""
    table = {name: np.array([getattr(x, name) for x in layouts]) for name in AXES}
    table["recompute"] = np.array([RECOMPUTE.index(x.recompute) for x in layouts])
    return _columns(table)


@dataclass(frozen=True)
class Space:
    """The layouts of a job: those kept, those refused, and the rule that each of these broke."""

    kept: Columns
    refused: Columns
    broken: np.ndarray  # the place in RULES


def space(job: Job, fixed: Mapping[str, Any] | None = None) -> Space:
    """Returns every layout of a job. `fixed` gives an axis one value: `{"t": 8, "zero": 1}`.

    t, p, d and context run over all divisors of the GPUs, microbatch over all divisors of a
    replica's share of the batch, v over all counts of chunks that hold layers. An option that
    changes nothing is not varied: sequence parallelism of one rank, ZeRO over one replica.

    Cost: O(layouts), about 30 bytes each.
    """
    fixed = dict(fixed or {})
    outer = _grid(_outer(job, fixed))
    bad = _first_broken(job, outer, [i for i, rule in enumerate(RULES) if rule.outer])
    middle = _grid(_middle(job, outer.rows(bad < 0), fixed))
    worse = _first_broken(job, middle, [i for i, rule in enumerate(RULES) if not rule.outer])
    inner = _inner(job, middle.rows(worse < 0), fixed)
    last = _first_broken(job, inner, [i for i, rule in enumerate(RULES) if not rule.outer])
    refused = [outer.rows(bad >= 0), middle.rows(worse >= 0), inner.rows(last >= 0)]
    return Space(
        inner.rows(last < 0),
        Columns(**{a: np.concatenate([getattr(x, a) for x in refused]) for a in AXES}),
        np.concatenate([bad[bad >= 0], worse[worse >= 0], last[last >= 0]]),
    )


def divisors(n: int) -> list[int]:
    """Returns the divisors of n, rising."""
    small = [i for i in range(1, int(n**0.5) + 1) if n % i == 0]
    return small + [n // i for i in reversed(small) if i * i != n]


def _outer(job: Job, fixed: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    """Returns t, p, d and context of every product that is the number of GPUs."""
    found = []
    for t in divisors(job.gpus):
        for context in divisors(job.gpus // t):
            for p in divisors(job.gpus // (t * context)):
                found.append((t, p, job.gpus // (t * context * p), context))
    names = ("t", "p", "d", "context")
    found = [x for x in found if all(fixed.get(a, x[i]) == x[i] for i, a in enumerate(names))]
    return dict(zip(names, zip(*found, strict=True), strict=True)) if found else {"t": ()}


def _middle(job: Job, outer: Columns, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the outer rows, each with every microbatch size and every number of chunks."""
    found = []
    most = most_chunks(job.model.layers)
    for row, (p, d) in enumerate(zip(outer.p.tolist(), outer.d.tolist(), strict=True)):
        sizes = [fixed["microbatch"]] if "microbatch" in fixed else divisors(job.batch // d)
        chunks = [fixed["v"]] if "v" in fixed else range(1, most // p + 1 if p > 1 else 2)
        found += [(row, microbatch, v) for microbatch in sizes for v in chunks]
    if not found:
        return {"t": ()}
    rows, microbatch, v = np.array(found).T
    axes = {a: getattr(outer, a)[rows] for a in ("t", "p", "d", "context")}
    return axes | {"microbatch": microbatch, "v": v}


def _inner(job: Job, middle: Columns, fixed: Mapping[str, Any]) -> Columns:
    """Returns the rows, each with every option that changes something."""
    parts = []
    shared = middle.d * middle.context > 1
    for sequence_parallel in _choices(fixed, "sequence_parallel", (False, True)):
        for zero in _choices(fixed, "zero", (0, 1, 2, 3)):
            where = np.ones(len(middle), bool)
            if sequence_parallel and "sequence_parallel" not in fixed:
                where &= middle.t > 1
            if zero and "zero" not in fixed:
                where &= shared
            for recompute in _choices(fixed, "recompute", RECOMPUTE):
                rows = middle.rows(where)
                n = len(rows)
                options = {
                    "sequence_parallel": np.full(n, sequence_parallel),
                    "recompute": np.full(n, RECOMPUTE.index(recompute), np.int8),
                    "zero": np.full(n, zero, np.int8),
                }
                parts.append(Columns(**{a: options.get(a, getattr(rows, a)) for a in AXES}))
    return Columns(**{a: np.concatenate([getattr(x, a) for x in parts]) for a in AXES})


def _choices(fixed: Mapping[str, Any], axis: str, usual: Sequence[Any]) -> Sequence[Any]:
    return [fixed[axis]] if axis in fixed else usual


def _first_broken(job: Job, x: Columns, rules: Sequence[int]) -> np.ndarray:
    """Returns the place of the first rule that each row breaks, -1 where it breaks none."""
    first = np.full(len(x), -1)
    for place in rules:
        first[(first < 0) & RULES[place].broken(job, x)] = place
    return first


def _grid(axes: Mapping[str, Any]) -> Columns:
    """Returns columns; axes that are not given have a layout's plainest value."""
    n = len(axes["t"])
    usual = {"v": 1, "microbatch": 1, "sequence_parallel": False, "recompute": 2, "zero": 0}
    return _columns({a: axes.get(a, np.full(n, usual.get(a, 1))) for a in AXES})


def _columns(axes: Mapping[str, Any]) -> Columns:
    kinds = {"sequence_parallel": bool, "recompute": np.int8, "zero": np.int8}
    return Columns(**{a: np.asarray(axes[a]).astype(kinds.get(a, np.int64)) for a in AXES})
