"""The communicator of the simulator: see `distlab.comm.Comm` for what each operation means."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distlab import reports
from distlab.comm import REDUCTIONS, Comm
from distlab.errors import CommArgumentError
from distlab.reduction import check_dtype, reduce
from distlab.reports import Call

if TYPE_CHECKING:
    from distlab.simulator import World


class _Slot:
    """Where the ranks of a group meet for one collective."""

    __slots__ = ("arrived", "calls", "inputs", "outputs")

    def __init__(self, size: int):
        self.calls: list[Call | None] = [None] * size
        self.inputs: list[Any] = [None] * size
        self.outputs: Sequence[Any] = ()
        self.arrived = 0


class Group:
    """What the ranks of one group share."""

    __slots__ = ("channels", "ranks", "slots")

    def __init__(self, ranks: tuple[int, ...]):
        self.ranks = ranks
        self.slots: dict[int, _Slot] = {}
        # (src, dst, tag) -> (sends that wait, receives that wait)
        self.channels: dict[tuple[int, int, int], tuple[deque, deque]] = {}


class _Transfer:
    """One side of a message: its rank, its call, and what it holds or gets."""

    __slots__ = ("call", "open", "rank", "received")

    def __init__(self, rank: int, call: Call, parts: int):
        self.rank = rank
        self.call = call
        self.open = parts
        self.received: Tensor | None = None


class SimComm(Comm):  # inherits the operations' docstrings
    """One rank's handle on its group, on the simulator."""

    __slots__ = ("_group", "_me", "_number", "_rows", "_world", "rank", "ranks", "size")

    def __init__(self, world: "World", group: Group, rank: int):
        self._world = world
        self._group = group
        self._number = 0
        self._rows: dict[str, list[int]] = {}
        self._me = group.ranks[rank]
        self.rank = rank
        self.ranks = group.ranks
        self.size = len(group.ranks)

    def __repr__(self) -> str:
        return f"Comm(rank={self.rank}, size={self.size})"

    def __reduce__(self):
        raise TypeError("a communicator belongs to its rank and its run")

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        x = _tensor(x, "all_reduce")
        _reduction(op, x, "all_reduce")

        def combine(inputs: list[Tensor]) -> list[Tensor]:
            total = reduce(inputs, op, self._world.order)
            return [total, *(total.clone() for _ in inputs[1:])]

        return self._meet("all_reduce", x, (op,), combine)

    def all_gather(self, x: Tensor, dim: int = 0) -> Tensor:
        x = _tensor(x, "all_gather")
        dim = _dim(x, dim, "all_gather")
        return self._meet(
            "all_gather", x, (f"dim {dim}",), lambda xs: [torch.cat(xs, dim) for _ in xs]
        )

    def reduce_scatter(self, x: Tensor, dim: int = 0, op: str = "sum") -> Tensor:
        x = _tensor(x, "reduce_scatter")
        dim = _dim(x, dim, "reduce_scatter")
        _reduction(op, x, "reduce_scatter")
        if x.shape[dim] % self.size:
            raise CommArgumentError(
                f"reduce_scatter cuts dim {dim} into {self.size} equal parts, but x has shape "
                f"{list(x.shape)} and {x.shape[dim]} is no multiple of {self.size}; pad x first."
            )

        def combine(inputs: list[Tensor]) -> list[Tensor]:
            total = reduce(inputs, op, self._world.order)
            return [part.clone() for part in total.chunk(self.size, dim)]

        return self._meet("reduce_scatter", x, (op, f"dim {dim}"), combine)

    def broadcast(self, x: Tensor, src: int = 0) -> Tensor:
        x = _tensor(x, "broadcast")
        src = self._member(src, "broadcast", "src")
        # As a chain from src on: every rank but the last passes the tensor on.
        last = self.rank == (src - 1) % self.size
        return self._meet(
            "broadcast",
            x,
            (f"src {src}",),
            lambda xs: [xs[src].clone() for _ in xs],
            direct_bytes=0 if last else x.nbytes,
        )

    def all_to_all(
        self,
        x: Tensor,
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
    ) -> Tensor:
        x = _tensor(x, "all_to_all")
        send, recv = self._sizes(x, send_sizes, recv_sizes)
        rest = tuple(x.shape[1:])
        row_bytes = x.nbytes // x.shape[0] if x.shape[0] else 0

        def combine(inputs: list[tuple]) -> list[Tensor]:
            parts = [row.split(list(sends)) for row, sends, _ in inputs]
            for j, (_, _, recvs) in enumerate(inputs):
                for i, (_, sends, _) in enumerate(inputs):
                    if sends[j] != recvs[i]:
                        raise CommArgumentError(
                            f"all_to_all: rank {i} sends {sends[j]} rows to rank {j}, which "
                            f"expects {recvs[i]} from it; send_sizes and recv_sizes must agree."
                        )
            return [torch.cat([parts[i][j] for i in range(self.size)]) for j in range(self.size)]

        return self._meet(
            "all_to_all",
            (x, send, recv),
            (),
            combine,
            shape=(x.dtype, ("rows", *rest)),
            payload=x.nbytes,
            direct_bytes=row_bytes * (sum(send) - send[self.rank]),
        )

    def barrier(self) -> None:
        self._meet("barrier", None, (), lambda xs: xs, shape=None, payload=0)

    def split(self, color: int | None, key: int | None = None) -> "SimComm | None":
        for name, value in (("color", color), ("key", key)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise CommArgumentError(f"split needs a whole number as {name}, got {value!r}.")

        def combine(wishes: list[tuple]) -> list[tuple[Group, int] | None]:
            places: list[tuple[Group, int] | None] = [None] * self.size
            for shade in sorted({c for c, _ in wishes if c is not None}):
                members = [r for r, (c, _) in enumerate(wishes) if c == shade]
                members.sort(key=lambda r: (r if wishes[r][1] is None else wishes[r][1], r))
                group = Group(tuple(self.ranks[r] for r in members))
                for index, member in enumerate(members):
                    places[member] = (group, index)
            return places

        place = self._meet("split", (color, key), (), combine, shape=None, payload=0)
        return None if place is None else SimComm(self._world, *place)

    # -- messages ---------------------------------------------------------------------------------

    def send(self, x: Tensor, dst: int, tag: int = 0) -> None:
        x = _tensor(x, "send")
        dst = self._member(dst, "send", "dst")
        if dst == self.rank:
            raise CommArgumentError(
                f"rank {dst} sends to itself, and would wait for ever; keep the tensor instead."
            )
        self._exchange("send", x, dst, None, None, tag, f"to rank {dst}")

    def recv(self, like: Tensor, src: int, tag: int = 0) -> Tensor:
        like = _tensor(like, "recv")
        src = self._member(src, "recv", "src")
        if src == self.rank:
            raise CommArgumentError(f"rank {src} receives from itself; keep the tensor instead.")
        return self._exchange("recv", None, None, like, src, tag, f"from rank {src}")

    def sendrecv(self, x: Tensor, dst: int, src: int, like: Tensor | None = None) -> Tensor:
        x = _tensor(x, "sendrecv")
        like = x if like is None else _tensor(like, "sendrecv")
        dst = self._member(dst, "sendrecv", "dst")
        src = self._member(src, "sendrecv", "src")
        return self._exchange("sendrecv", x, dst, like, src, 0, f"to rank {dst}, from rank {src}")

    def _exchange(self, op, x, dst, like, src, tag, peers) -> Tensor | None:
        """Posts the sending and the receiving half of a message, and waits for both."""
        world = self._world
        world.check_alive()
        shown = x if x is not None else like
        detail = (f"tag {tag}",) if tag else ()
        call = Call(op, self.ranks, None, (shown.dtype, tuple(shown.shape)), detail, peers)
        sent = 0 if x is None or dst == self.rank else x.nbytes
        self._book(op, shown.nbytes, sent)
        mine = _Transfer(self.rank, call, (x is not None) + (like is not None))
        if x is not None:
            self._post(mine, (self.rank, dst, tag), x, is_send=True)
        if like is not None:
            self._post(mine, (src, self.rank, tag), like, is_send=False)
        if mine.open:
            world.wait(self._me, call)
        return mine.received

    def _post(self, mine: _Transfer, route: tuple, x: Tensor, *, is_send: bool) -> None:
        channels = self._group.channels
        if route not in channels:
            channels[route] = (deque(), deque())
        here, there = channels[route] if is_send else channels[route][::-1]
        if not there:
            here.append((mine, x))
            return
        other, y = there.popleft()
        source, like = (x, y) if is_send else (y, x)
        sender, receiver = (mine, other) if is_send else (other, mine)
        if source.dtype != like.dtype or source.shape != like.shape:
            self._world.pending[self._me] = mine.call
            ranks = [self.ranks[sender.rank], self.ranks[receiver.rank]]
            self._world.fail(
                reports.mismatch_of_message(sender.call, receiver.call, source, like, ranks)
            )
        receiver.received = source.clone()
        for side in (mine, other):
            side.open -= 1
        if other is not mine and not other.open:
            self._world.complete([self.ranks[other.rank]])

    # -- shared -----------------------------------------------------------------------------------

    def _meet(
        self,
        op: str,
        given: Any,
        detail: tuple,
        combine: Callable[[list], Sequence[Any]],
        *,
        shape: Any = (),
        payload: int | None = None,
        direct_bytes: int = 0,
    ) -> Any:
        """Waits until all ranks of the group are here; the last to come combines the inputs."""
        world, group = self._world, self._group
        world.check_alive()
        if shape == ():
            shape = (given.dtype, tuple(given.shape))
        number = self._number
        self._number = number + 1
        call = Call(op, self.ranks, number, shape, detail)
        self._book(op, given.nbytes if payload is None else payload, direct_bytes)
        slot = group.slots.get(number)
        if slot is None:
            slot = group.slots[number] = _Slot(self.size)
        slot.calls[self.rank] = call
        slot.inputs[self.rank] = given
        slot.arrived += 1
        if slot.arrived < self.size:
            world.wait(self._me, call)
        else:
            del group.slots[number]
            if any(
                other.op != op or other.shape != shape or other.detail != detail
                for other in slot.calls
            ):
                world.pending[self._me] = call
                world.fail(reports.mismatch(slot.calls, self.ranks))
            slot.outputs = combine(slot.inputs)
            slot.inputs = []
            world.complete([rank for rank in self.ranks if rank != self._me])
        return slot.outputs[self.rank]

    def _book(self, op: str, payload_bytes: int, direct_bytes: int) -> None:
        row = self._rows.get(op)
        if row is None:
            row = self._rows[op] = self._world.row(self._me, op, self.ranks)
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


def _tensor(x: Any, op: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise CommArgumentError(f"{op} needs a tensor, got {type(x).__name__}.")
    return x.detach()


def _dim(x: Tensor, dim: int, op: str) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int) or not -x.dim() <= dim < x.dim():
        raise CommArgumentError(f"{op} got dim={dim!r} for a tensor of shape {list(x.shape)}.")
    return dim % x.dim()


def _reduction(op: str, x: Tensor, call: str) -> None:
    if op not in REDUCTIONS:
        raise CommArgumentError(f"{call} got op={op!r}; it can be {', '.join(REDUCTIONS)}.")
    check_dtype(x, op, call)
