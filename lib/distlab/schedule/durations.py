"""How long each op takes: a number for all, or one per rank, chunk and microbatch."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

from distlab.errors import OrderError
from distlab.schedule.ops import Coding, check_counts

Number = Any  # int, Fraction or float: what goes in comes out, so exact times stay exact
Times = Any  # a number, or a sequence over ranks; its entries may be sequences over chunks; theirs,
# over microbatches


def durations_by_rank(
    coding: Coding,
    *,
    forward: Times,
    backward: Times,
    weight_grad: Times,
    sizes: Sequence[Number] | None,
) -> list[list[Number]]:
    """Returns for each rank how long its ops take, in the order of their numbers.

    Raises: OrderError for a wrong number of entries, a negative time, or a W longer than its whole.
    """
    sizes = None if sizes is None else by_microbatch(sizes, coding.m, "sizes")
    split = "W" in coding.kinds
    result = []
    for rank in range(coding.p):
        of_kind: dict[str, list[Number]] = {kind: [] for kind in coding.kinds}
        for chunk in range(coding.v):
            place = (rank, chunk)
            f = _row(forward, "forward", place, coding, sizes)
            b = _row(backward, "backward", place, coding, sizes)
            if split:
                w = _row(weight_grad, "weight_grad", place, coding, sizes)
                b = [whole - part for whole, part in zip(b, w, strict=True)]
                if min(b) < 0:
                    raise OrderError("weight_grad is the part of backward that W takes, not more.")
                of_kind["W"] += w
            of_kind["F"] += f
            of_kind["B"] += b
            if "R" in of_kind:
                of_kind["R"] += f
        result.append([time for kind in coding.kinds for time in of_kind[kind]])
    return result


def by_microbatch(times: Any, m: int, name: str) -> list[Number]:
    """Returns m numbers: one for each microbatch, or the one number m times."""
    check_counts(1, m)
    one = is_number(times)
    row = [times] if one else as_list(times)
    if not one and len(row) != m:
        raise OrderError(f"{name} has {len(row)} entries for {m} microbatches.")
    bad = [time for time in row if not is_number(time) or not 0 <= time < float("inf")]
    if bad:
        raise OrderError(f"{name} holds {bad[0]!r}; times and sizes are numbers of at least 0.")
    return row * m if one else row


def is_number(thing: object) -> bool:
    """Returns whether something is one number and not several."""
    return isinstance(thing, Real)


def as_list(things: Any) -> list:
    """Returns a sequence, an array or a tensor as a list of Python numbers."""
    return things.tolist() if hasattr(things, "tolist") else list(things)


def _row(
    times: Times, name: str, place: tuple[int, int], coding: Coding, sizes: list[Number] | None
) -> list[Number]:
    for index, count, what in zip(place, (coding.p, coding.v), ("ranks", "chunks"), strict=True):
        if is_number(times):
            break
        times = as_list(times)
        if len(times) != count:
            raise OrderError(f"{name} has {len(times)} entries for {count} {what}.")
        times = times[index]
    row = by_microbatch(times, coding.m, name)
    return row if sizes is None else [t * size for t, size in zip(row, sizes, strict=True)]
