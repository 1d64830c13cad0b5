"""The communicator of the simulator: see `distlab.comm.Comm` for what each operation means."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distlab import reports
from distlab.checkedcomm import CheckedComm, check_sizes, groups_of
from distlab.reduction import reduce
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


class SimComm(CheckedComm):
    """One rank's handle on its group, on the simulator."""

    __slots__ = ("_group", "_me", "_number", "_world")

    def __init__(self, world: "World", group: Group, rank: int):
        super().__init__(rank, group.ranks)
        self._world = world
        self._group = group
        self._number = 0
        self._me = group.ranks[rank]

    def _new_row(self, op: str) -> list[int]:
        return self._world.row(self._me, op, self.ranks)

    # -- collectives ------------------------------------------------------------------------------

    def _all_reduce(self, x: Tensor, op: str) -> Tensor:
        def combine(inputs: list[Tensor]) -> list[Tensor]:
            total = reduce(inputs, op, self._world.order)
            return [total, *(total.clone() for _ in inputs[1:])]

        return self._meet("all_reduce", x, (op,), combine)

    def _all_gather(self, x: Tensor, dim: int) -> Tensor:
        return self._meet(
            "all_gather", x, (f"dim {dim}",), lambda xs: [torch.cat(xs, dim) for _ in xs]
        )

    def _reduce_scatter(self, x: Tensor, dim: int, op: str) -> Tensor:
        def combine(inputs: list[Tensor]) -> list[Tensor]:
            total = reduce(inputs, op, self._world.order)
            return [part.clone() for part in total.chunk(self.size, dim)]

        return self._meet("reduce_scatter", x, (op, f"dim {dim}"), combine)

    def _broadcast(self, x: Tensor, src: int, sent_bytes: int) -> Tensor:
        return self._meet(
            "broadcast",
            x,
            (f"src {src}",),
            lambda xs: [xs[src].clone() for _ in xs],
            direct_bytes=sent_bytes,
        )

    def _all_to_all(self, x: Tensor, send: tuple, recv: tuple, sent_bytes: int) -> Tensor:
        def combine(inputs: list[tuple]) -> list[Tensor]:
            parts = [row.split(list(sends)) for row, sends, _ in inputs]
            check_sizes([(sends, recvs) for _, sends, recvs in inputs])
            return [torch.cat([parts[i][j] for i in range(self.size)]) for j in range(self.size)]

        return self._meet(
            "all_to_all",
            (x, send, recv),
            (),
            combine,
            shape=(x.dtype, ("rows", *x.shape[1:])),
            payload=x.nbytes,
            direct_bytes=sent_bytes,
        )

    def _barrier(self) -> None:
        self._meet("barrier", None, (), lambda xs: xs, shape=None, payload=0)

    def _split(self, color: int | None, key: int | None) -> "SimComm | None":
        def combine(wishes: list[tuple]) -> list[tuple[Group, int] | None]:
            places: list[tuple[Group, int] | None] = [None] * self.size
            for members in groups_of(wishes):
                group = Group(tuple(self.ranks[r] for r in members))
                for index, member in enumerate(members):
                    places[member] = (group, index)
            return places

        place = self._meet("split", (color, key), (), combine, shape=None, payload=0)
        return None if place is None else SimComm(self._world, *place)

    # -- messages ---------------------------------------------------------------------------------

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
