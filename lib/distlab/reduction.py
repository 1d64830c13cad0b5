"""Reductions over ranks, in a defined order of addition."""

from collections.abc import Sequence

import torch
from torch import Tensor

from distlab.errors import CommArgumentError

_PAIR = {"sum": Tensor.add_, "mean": Tensor.add_, "prod": Tensor.mul_}
_CHOICE = {"max": torch.maximum, "min": torch.minimum}


def reduce(inputs: Sequence[Tensor], op: str, order: str) -> Tensor:
    """Returns the reduction of the inputs, one per rank, as a new tensor.

    `order` "rank" adds rank 0, 1, 2, ... to each element; "ring" adds as gloo's ring does, where
    each chunk starts its way at another rank. Floating-point sums differ in the last bits.
    """
    if op in _CHOICE:
        total = inputs[0].clone()
        for x in inputs[1:]:
            total = _CHOICE[op](total, x)
        return total
    if order == "ring" and len(inputs) > 2:
        total = _ring(inputs, op)
    else:
        total = inputs[0].clone()
        combine = _PAIR[op]
        for x in inputs[1:]:
            combine(total, x)
    return total.div_(len(inputs)) if op == "mean" else total


def _ring(inputs: Sequence[Tensor], op: str) -> Tensor:
    """Adds chunk c in the order c-1, c-2, ..., c of the ranks (mod n), as gloo does."""
    n = len(inputs)
    flats = [x.reshape(-1) for x in inputs]
    total = torch.empty_like(flats[0])
    numel = total.numel()
    segments = max(2, -(-numel * total.element_size() // (n << 20)))
    chunk = segments * -(-numel // (n * segments))
    for c in range(n):
        part = slice(min(c * chunk, numel), min((c + 1) * chunk, numel))
        total[part] = flats[(c - 1) % n][part]
        for step in range(2, n + 1):
            _PAIR[op](total[part], flats[(c - step) % n][part])
    return total.reshape(inputs[0].shape)


def check_dtype(x: Tensor, op: str, call: str) -> None:
    """Raises CommArgumentError where a reduction has no meaning for the dtype of `x`."""
    if op == "mean" and not (x.is_floating_point() or x.is_complex()):
        raise CommArgumentError(
            f"{call} was asked for the mean of {x.dtype} numbers; use op='sum', or float numbers."
        )
    if x.dtype == torch.bool and op in _PAIR:
        raise CommArgumentError(
            f"{call} was asked for the {op} of booleans; convert them first, for example to int64."
        )
