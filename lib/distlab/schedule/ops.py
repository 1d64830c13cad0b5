"""What a pipeline's ranks run: ops, and the orders they run them in.

An order is one list of ops per rank. Plain tuples serve as well: `("F", 0)` is `Op("F", 0)`.

| kind | what it is |
|------|------------|
| F    | the forward pass of a microbatch through one chunk of layers |
| B    | its backward pass: the whole, or the input's gradient alone where the order has W too |
| W    | the gradient of the weights, in orders that split the backward pass |
| R    | the forward pass once more, in orders that recompute activations before B |

Ranks, microbatches and chunks count from 0. A rank holds v chunks; chunk c of rank s is virtual
stage c·p + s, so a microbatch goes round the ranks v times.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from distlab.errors import OrderError

KINDS = ("F", "B", "W", "R")
MOST_PASSES = (
    10_000_000  # p · m · v: beyond, a count is a slip, and the order would fill the memory
)


class Op(NamedTuple):
    """One piece of work of one rank: `Op("B", 3)` is the backward pass of microbatch 3."""

    kind: str
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f" of chunk {self.chunk}" if self.chunk else "")


Entry = Op | tuple[Any, ...]  # an op, or ops that run as one: (Op("F", 4), Op("B", 0))
Orders = Sequence[Sequence[Entry]]


def make_ops(kind: str, m: int, chunk: int = 0) -> list[Op]:
    """Returns the ops of one kind for m microbatches: `make_ops("F", 2)` is [F0, F1].

    Ranks share them: an op doesn't say whose it is.
    """
    check_counts(1, m)
    return [Op(kind, i, chunk) for i in range(m)]


def check_counts(p: int, m: int, v: int = 1) -> None:
    """Raises OrderError unless there are ranks, microbatches and chunks, in whole numbers."""
    for count, what in ((p, "ranks"), (m, "microbatches"), (v, "chunks")):
        if count != int(count) or count < 1:
            raise OrderError(f"A pipeline has a whole number of {what}, 1 or more, not {count}.")
    if p * m * v > MOST_PASSES:
        raise OrderError(f"{p} ranks x {m} microbatches x {v} chunks are too many for one order.")


def split_at(order: Sequence[Entry]) -> list[tuple[Op, ...]]:
    """Returns an order's entries as groups: one op, or the ops of an entry that run as one.

    Raises: OrderError for what is neither.
    """
    return [_group(entry) for entry in order]


def _group(entry: Entry) -> tuple[Op, ...]:
    members = entry if isinstance(entry, tuple) and entry and _is_tuple(entry[0]) else (entry,)
    return tuple(_op(member) for member in members)


def _is_tuple(thing: object) -> bool:
    return isinstance(thing, tuple)


def _op(entry: Any) -> Op:
    try:
        op = Op(*entry)
        good = op.kind in KINDS and all(n == int(n) and n >= 0 for n in op[1:])
    except (TypeError, ValueError):
        good = False
    if not good:
        raise OrderError(f"{entry!r} is no op; ops look like ('F', 0) or ('B', 3), kinds F B W R.")
    return op


class Coding:
    """Numbers the ops of a set of orders, kind by kind, chunk by chunk, microbatch by microbatch.

    All ranks run the same set of ops; rank 0's says which kinds, chunks and microbatches there are.
    `ops` lists them by number, `of` maps each, as a tuple of two or of three, to its number.
    """

    def __init__(self, orders: Orders):
        """Raises OrderError where rank 0 lacks an op."""
        lengths = [len(order) for order in orders]
        if not lengths:
            raise OrderError("There is no order: a pipeline needs one list of ops per rank.")
        if 0 in lengths:
            raise OrderError(f"Rank {lengths.index(0)}'s order is empty.")
        first = _distinct(orders[0])
        self.p = len(orders)
        self.m = 1 + max(op.microbatch for op in first)
        self.v = 1 + max(op.chunk for op in first)
        present = {op.kind for op in first} | {"F", "B"}
        self.kinds = tuple(kind for kind in KINDS if kind in present)
        self.size = len(self.kinds) * self.v * self.m
        every = (
            Op(kind, i, c) for kind in self.kinds for c in range(self.v) for i in range(self.m)
        )
        if len(first) < self.size:
            lacking = next(op for op in every if op not in first)
            raise OrderError(f"Rank 0's order has no {lacking}.")
        self.ops = list(every)
        self.of: dict[tuple, int] = {op: number for number, op in enumerate(self.ops)}
        self.of |= {op[:2]: number for op, number in self.of.items() if op.chunk == 0}

    def block(self, kind: str, chunk: int) -> slice:
        """Returns the numbers of the ops of a kind and chunk, in order of their microbatches."""
        start = (self.kinds.index(kind) * self.v + chunk) * self.m
        return slice(start, start + self.m)

    def raise_first_mistake(self, orders: Orders) -> None:
        """Raises OrderError for the first op that is missing, repeated or unknown, if one is."""
        for rank, order in enumerate(orders):
            seen: set[Op] = set()
            for op in (op for group in split_at(order) for op in group):
                if op not in self.of:
                    raise OrderError(f"Rank {rank}'s order has {op}, which rank 0's has not.")
                if op in seen:
                    raise OrderError(f"Rank {rank}'s order has {op} twice.")
                seen.add(op)
            for op in self.ops:
                if op not in seen:
                    raise OrderError(f"Rank {rank}'s order has no {op}.")


def _distinct(order: Sequence[Entry]) -> set[Op]:
    with suppress(OrderError, TypeError):  # groups, lists in place of tuples, or no ops at all
        return {op if type(op) is Op else _op(op) for op in set(order)}
    return {op for group in split_at(order) for op in group}
