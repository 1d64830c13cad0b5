"""What both engines' communicators share: checked arguments and the books.

Every error of an argument is found here, before anything is sent, so it is the same sentence on the
simulator and on real processes.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from distlab.canvas import COLOURS
from distlab.comm import REDUCTIONS, Comm, Handle
from distlab.errors import CommArgumentError
from distlab.reduction import check_dtype


class CheckedComm(Comm):  # inherits the operations' docstrings
    """Checks what a rank asks for and books it; an engine does the work in the `_` methods."""

    __slots__ = ("_rows", "rank", "ranks", "size")

    def __init__(self, rank: int, ranks: tuple[int, ...]):
        self._rows: dict[str, list[int]] = {}
        self.rank = rank
        self.ranks = ranks
        self.size = len(ranks)

    def __repr__(self) -> str:
        return f"Comm(rank={self.rank}, size={self.size})"

    def __reduce__(self):
        raise TypeError("a communicator belongs to its rank and its run")

    def all_reduce(self, x: Tensor, op: str = "sum", *, async_op: bool = False) -> Tensor | Handle:
        x = _tensor(x, "all_reduce")
        _reduction(op, x, "all_reduce")
        return _apart(self._all_reduce, x, op, async_op)

    def all_gather(self, x: Tensor, dim: int = 0, *, async_op: bool = False) -> Tensor | Handle:
        x = _tensor(x, "all_gather")
        return _apart(self._all_gather, x, _dim(x, dim, "all_gather"), async_op)

    def reduce_scatter(
        self, x: Tensor, dim: int = 0, op: str = "sum", *, async_op: bool = False
    ) -> Tensor | Handle:
        x = _tensor(x, "reduce_scatter")
        dim = _dim(x, dim, "reduce_scatter")
        _reduction(op, x, "reduce_scatter")
        if x.shape[dim] % self.size:
            raise CommArgumentError(
                f"reduce_scatter cuts dim {dim} into {self.size} equal parts, but x has shape "
                f"{list(x.shape)} and {x.shape[dim]} is no multiple of {self.size}; pad x first."
            )
        return _apart(self._reduce_scatter, x, dim, op, async_op)

    def broadcast(self, x: Tensor, src: int = 0, *, async_op: bool = False) -> Tensor | Handle:
        x = _tensor(x, "broadcast")
        src = self._member(src, "broadcast", "src")
        # As a chain from src on: every rank but the last passes the tensor on.
        last = self.rank == (src - 1) % self.size
        return _apart(self._broadcast, x, src, 0 if last else x.nbytes, async_op)

    def all_to_all(
        self,
        x: Tensor,
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
        *,
        async_op: bool = False,
    ) -> Tensor | Handle:
        x = _tensor(x, "all_to_all")
        send, recv = self._sizes(x, send_sizes, recv_sizes)
        row_bytes = x.nbytes // x.shape[0] if x.shape[0] else 0
        sent_bytes = row_bytes * (sum(send) - send[self.rank])
        return _apart(self._all_to_all, x, send, recv, sent_bytes, async_op)

    def compute(
        self,
        work_flop: float | None = None,
        name: str = "compute",
        *,
        time_s: float | None = None,
        role: str = "activations",
    ) -> None:
        if (work_flop is None) == (time_s is None):
            raise CommArgumentError("compute needs either work_flop or time_s.")
        given, unit = (time_s, "time_s") if work_flop is None else (work_flop, "work_flop")
        if not isinstance(given, Real) or not 0 <= given < math.inf:
            raise CommArgumentError(f"compute needs a number of at least 0, got {unit}={given!r}.")
        if role not in COLOURS:
            raise CommArgumentError(f"compute got role={role!r}; it can be {', '.join(COLOURS)}.")
        self._compute(work_flop, time_s, str(name), role)

    def barrier(self) -> None:
        self._barrier()

    def split(self, color: int | None, key: int | None = None) -> "Comm | None":
        for name, value in (("color", color), ("key", key)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise CommArgumentError(f"split needs a whole number as {name}, got {value!r}.")
        return self._split(color, key)

    def send(self, x: Tensor, dst: int, tag: int = 0) -> None:
        x = _tensor(x, "send")
        dst = self._member(dst, "send", "dst")
        if dst == self.rank:
            raise CommArgumentError(
                f"rank {dst} sends to itself, and would wait for ever; keep the tensor instead."
            )
        _apart(self._exchange, "send", x, dst, None, None, tag, f"to rank {dst}")

    def recv(self, like: Tensor, src: int, tag: int = 0) -> Tensor:
        like = _tensor(like, "recv")
        src = self._member(src, "recv", "src")
        if src == self.rank:
            raise CommArgumentError(f"rank {src} receives from itself; keep the tensor instead.")
        return _apart(self._exchange, "recv", None, None, like, src, tag, f"from rank {src}")

    def sendrecv(self, x: Tensor, dst: int, src: int, like: Tensor | None = None) -> Tensor:
        x = _tensor(x, "sendrecv")
        like = x if like is None else _tensor(like, "sendrecv")
        dst = self._member(dst, "sendrecv", "dst")
        src = self._member(src, "sendrecv", "src")
        peers = f"to rank {dst}, from rank {src}"
        return _apart(self._exchange, "sendrecv", x, dst, like, src, 0, peers)

    # -- for engines ------------------------------------------------------------------------------

    def _compute(self, work_flop, time_s, name: str, role: str) -> None:
        """Lets simulated time pass, where there is a clock."""

    def _book(self, op: str, payload_bytes: int, direct_bytes: int) -> None:
        row = self._rows.get(op)
        if row is None:
            row = self._rows[op] = self._new_row(op)
        row[0] += 1
        row[1] += payload_bytes
        row[2] += direct_bytes

    def _member(self, rank: int, op: str, name: str) -> int:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self.size:
            raise CommArgumentError(
                f"{op} was called with {name}={rank!r}, but the ranks of this group are 0 to "
                f"{self.size - 1}."
            )
        return rank

    def _sizes(self, x, send_sizes, recv_sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if x.dim() == 0:
            raise CommArgumentError("all_to_all cuts dim 0, but x has no dims.")
        if send_sizes is None and recv_sizes is None:
            if x.shape[0] % self.size:
                raise CommArgumentError(
                    f"all_to_all cuts dim 0 into {self.size} equal parts, but x has shape "
                    f"{list(x.shape)}; pad x, or give send_sizes and recv_sizes."
                )
            sizes = (x.shape[0] // self.size,) * self.size
            return sizes, sizes
        if send_sizes is None or recv_sizes is None:
            raise CommArgumentError("all_to_all needs send_sizes and recv_sizes together.")
        send, recv = tuple(map(int, send_sizes)), tuple(map(int, recv_sizes))
        if len(send) != self.size or len(recv) != self.size or min(send + recv) < 0:
            raise CommArgumentError(
                f"all_to_all needs one size of at least 0 per rank ({self.size}), got "
                f"send_sizes={list(send)} and recv_sizes={list(recv)}."
            )
        if sum(send) != x.shape[0]:
            raise CommArgumentError(
                f"send_sizes add up to {sum(send)}, but x has {x.shape[0]} rows."
            )
        return send, recv


def _apart(call: Callable[..., Any], *args: Any) -> Any:
    """Makes a call out of sight of whoever records this thread's operations.

    What an engine needs inside is no rank's memory; what it gives is seen as one new tensor.
    """
    if not torch._C._len_torch_dispatch_stack():
        return call(*args)
    with _disable_current_modes():
        given = call(*args)
    if not isinstance(given, Tensor):
        return given
    seen = torch.empty(given.shape, dtype=given.dtype, device=given.device)
    with _disable_current_modes():
        return seen.copy_(given)


def _tensor(x: Any, op: str) -> Tensor:
    if not isinstance(x, Tensor):
        made = f"; torch.tensor({x}) makes one" if isinstance(x, int | float) else ""
        raise CommArgumentError(f"{op} needs a tensor, got {type(x).__name__}{made}.")
    return x.detach()


def _dim(x: Tensor, dim: int, op: str) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int) or not -x.dim() <= dim < x.dim():
        raise CommArgumentError(f"{op} got dim={dim!r} for a tensor of shape {list(x.shape)}.")
    return dim % x.dim()


def _reduction(op: str, x: Tensor, call: str) -> None:
    if op not in REDUCTIONS:
        raise CommArgumentError(f"{call} got op={op!r}; it can be {', '.join(REDUCTIONS)}.")
    check_dtype(x, op, call)


def groups_of(wishes: Sequence[tuple[int | None, int | None]]) -> list[list[int]]:
    """Returns the members of each new group of a split, from every rank's (color, key)."""
    groups = []
    for shade in sorted({color for color, _ in wishes if color is not None}):
        members = [r for r, (color, _) in enumerate(wishes) if color == shade]
        members.sort(key=lambda r: (r if wishes[r][1] is None else wishes[r][1], r))
        groups.append(members)
    return groups


def check_sizes(table: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
    """Raises CommArgumentError unless what each rank sends is what the other expects."""
    for j, (_, recvs) in enumerate(table):
        for i, (sends, _) in enumerate(table):
            if sends[j] != recvs[i]:
                raise CommArgumentError(
                    f"all_to_all: rank {i} sends {sends[j]} rows to rank {j}, which expects "
                    f"{recvs[i]} from it; send_sizes and recv_sizes must agree."
                )
