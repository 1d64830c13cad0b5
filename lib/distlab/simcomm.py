"""The communicator of the simulator: see `distlab.comm.Comm` for what each operation means."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distlab import reports
from distlab.checkedcomm import CheckedComm, check_sizes, groups_of
from distlab.clock import Meeting, Part
from distlab.comm import Handle
from distlab.reduction import reduce
from distlab.reports import Call

if TYPE_CHECKING:
    from distlab.simulator import World


class _Slot:
    """Where the ranks of a group meet for one collective."""

    __slots__ = ("arrived", "calls", "inputs", "meeting", "outputs", "running")

    def __init__(self, size: int):
        self.calls: list[Call | None] = [None] * size
        self.inputs: list[Any] = [None] * size
        self.outputs: Sequence[Any] | None = None
        self.arrived = 0
        self.running: set[int] | tuple = ()  # global ranks that launched it and don't wait for it
        self.meeting: Meeting | None = None  # with a clock


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

    __slots__ = ("call", "open", "part", "rank", "received")

    def __init__(self, rank: int, call: Call, parts: int):
        self.rank = rank
        self.call = call
        self.open = parts
        self.part: Part | None = None  # with a clock
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

    def _compute(self, work_flop, time_s, name: str, role: str) -> None:
        self._world.check_alive()
        if self._world.clock is not None:
            self._world.clock.compute(self._me, work_flop, time_s, name, role)

    # -- collectives ------------------------------------------------------------------------------

    def _all_reduce(self, x: Tensor, op: str, async_op: bool) -> Tensor | Handle:
        def combine(inputs: list[Tensor]) -> list[Tensor]:
            total = reduce(inputs, op, self._world.order)
            return [total, *(total.clone() for _ in inputs[1:])]

        return self._meet("all_reduce", x, (op,), combine, async_op)

    def _all_gather(self, x: Tensor, dim: int, async_op: bool) -> Tensor | Handle:
        return self._meet(
            "all_gather", x, (f"dim {dim}",), lambda xs: [torch.cat(xs, dim) for _ in xs], async_op
        )

    def _reduce_scatter(self, x: Tensor, dim: int, op: str, async_op: bool) -> Tensor | Handle:
        def combine(inputs: list[Tensor]) -> list[Tensor]:
            total = reduce(inputs, op, self._world.order)
            return [part.clone() for part in total.chunk(self.size, dim)]

        return self._meet("reduce_scatter", x, (op, f"dim {dim}"), combine, async_op)

    def _broadcast(self, x: Tensor, src: int, sent_bytes: int, async_op: bool) -> Tensor | Handle:
        return self._meet(
            "broadcast",
            x,
            (f"src {src}",),
            lambda xs: [xs[src].clone() for _ in xs],
            async_op,
            direct_bytes=sent_bytes,
        )

    def _all_to_all(
        self, x: Tensor, send: tuple, recv: tuple, sent_bytes: int, async_op: bool
    ) -> Tensor | Handle:
        def combine(inputs: list[tuple]) -> list[Tensor]:
            parts = [row.split(list(sends)) for row, sends, _ in inputs]
            check_sizes([(sends, recvs) for _, sends, recvs in inputs])
            return [torch.cat([parts[i][j] for i in range(self.size)]) for j in range(self.size)]

        return self._meet(
            "all_to_all",
            (x, send, recv),
            (),
            combine,
            async_op,
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
        if world.clock is not None:
            mine.part = Part(self._me, op, f"{op} {peers}", shown.nbytes, mine.open)
            self._wake(world.clock.launch(mine.part))
        if x is not None:
            self._post(mine, (self.rank, dst, tag), x, is_send=True)
        if like is not None:
            self._post(mine, (src, self.rank, tag), like, is_send=False)
        if world.clock is not None:
            self._sit_through(mine.part, call)
        elif mine.open:
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
        if self._world.clock is not None:
            self._time(sender, receiver, source.nbytes)
        elif other is not mine and not other.open:
            self._world.complete([self.ranks[other.rank]])

    # -- shared -----------------------------------------------------------------------------------

    def _meet(
        self,
        op: str,
        given: Any,
        detail: tuple,
        combine: Callable[[list], Sequence[Any]],
        async_op: bool = False,
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
        if payload is None:
            payload = given.nbytes
        self._book(op, payload, direct_bytes)
        slot = group.slots.get(number)
        if slot is None:
            slot = group.slots[number] = _Slot(self.size)
        slot.calls[self.rank] = call
        slot.inputs[self.rank] = _snapshot(given) if async_op else given
        slot.arrived += 1
        if async_op:
            slot.running = {self._me, *slot.running}
            world.open_calls[self._me][call] = None
        if slot.arrived == self.size:
            del group.slots[number]
            if any(
                other.op != op or other.shape != shape or other.detail != detail
                for other in slot.calls
            ):
                world.pending[self._me] = call
                world.fail(reports.mismatch(slot.calls, self.ranks))
            slot.outputs = combine(slot.inputs)
            slot.inputs = []
            if world.clock is None:
                world.complete([r for r in self.ranks if r != self._me and r not in slot.running])
        part = None if world.clock is None else self._launch(slot, call, given, payload)
        if async_op:
            return SimHandle(self, slot, call, part)
        if part is not None:
            self._sit_through(part, call)
        elif slot.outputs is None:
            world.wait(self._me, call)
        return slot.outputs[self.rank]

    # -- with a clock -----------------------------------------------------------------------------

    def _launch(self, slot: _Slot, call: Call, given: Any, payload_bytes: int) -> Part:
        size_bytes = payload_bytes
        if call.op == "all_to_all":
            x, *sizes = given
            row_bytes = x.element_size() * math.prod(x.shape[1:])
            size_bytes = row_bytes * max(sum(rows) - rows[self.rank] for rows in sizes)
        if slot.meeting is None:
            slot.meeting = Meeting(call.op, self.ranks, self.size)
        part = Part(self._me, call.op, f"{call.op} #{call.number + 1}", payload_bytes)
        self._wake(self._world.clock.launch(part, slot.meeting, size_bytes))
        return part

    def _time(self, sender: _Transfer, receiver: _Transfer, size_bytes: int) -> None:
        ranks = sender.part.rank, receiver.part.rank
        if sender is receiver:
            ranks = ranks[:1]
        meeting = Meeting("message", ranks, 2, size_bytes)
        self._wake(self._world.clock.join((sender.part, receiver.part), meeting))

    def _sit_through(self, part: Part, call: Call) -> None:
        """Holds this rank, and its compute stream, until a part of a call has ended."""
        if not part.done:
            part.waiting = True
            self._world.wait(self._me, call)
        self._world.clock.hold(part)

    def _wake(self, done: Sequence[Part]) -> None:
        """Lets the ranks go on that wait for what has got its end now."""
        self._world.complete(sorted(part.rank for part in done if part.waiting))


class SimHandle(Handle):
    """A collective that was launched on the simulator."""

    __slots__ = ("_call", "_comm", "_part", "_slot")

    def __init__(self, comm: SimComm, slot: _Slot, call: Call, part: Part | None):
        self._comm, self._slot, self._call, self._part = comm, slot, call, part

    def __repr__(self) -> str:
        return f"Handle({self._call})"

    def __reduce__(self):
        raise TypeError("a handle belongs to its rank and its run")

    def wait(self) -> Tensor:
        """Returns the collective's tensor once every rank has launched it."""
        comm, slot = self._comm, self._slot
        world, me = comm._world, comm._me
        world.check_alive()
        world.open_calls[me].pop(self._call, None)
        if self._part is not None:
            call = self._call if self._part.done else self._call.waited_for()
            comm._sit_through(self._part, call)
        elif slot.outputs is None:
            slot.running.discard(me)
            world.wait(me, self._call.waited_for())
        return slot.outputs[comm.rank]


def _snapshot(given: Any) -> Any:
    """Returns an input as it is now: its rank goes on and may change it."""
    if isinstance(given, tuple):  # an all_to_all's: (x, sizes to send, sizes to receive)
        return given[0].clone(), *given[1:]
    return given.clone()
