"""The communicator on torch.distributed: see `distlab.comm.Comm` for what each operation means.

What moves is torch.distributed's (gloo or NCCL); who may move it, and when, is settled on the
notice board first. Under torchrun, where ranks may sit on different hosts, there is no board, and
torch.distributed's own timeouts and messages apply.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from distlab.board import MOVING, RUNNING, WAITING, Half, answers
from distlab.checkedcomm import CheckedComm, groups_of
from distlab.comm import Handle
from distlab.desk import Desk, Launch
from distlab.reports import Call

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,  # divided afterwards: gloo knows no mean
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}


class DistHandle(Handle):
    """A collective that was launched on real processes."""

    __slots__ = ("_desk", "_launch", "_out", "_result")

    def __init__(self, desk: Desk, launch: Launch, result: Callable[[], Tensor]):
        self._desk, self._launch, self._result = desk, launch, result
        self._out: Tensor | None = None

    def __repr__(self) -> str:
        return f"Handle({self._launch.call})"

    def __reduce__(self):
        raise TypeError("a handle belongs to its rank and its run")

    def wait(self) -> Tensor:
        """Returns the collective's tensor once its data has moved."""
        if self._out is None:
            self._desk.open_calls.pop(self._launch.own_call, None)
            self._desk.sit_through(self._launch, self._launch.call.waited_for())
            self._out = self._result()
        return self._out


class DistComm(CheckedComm):
    """One rank's handle on its group, on real processes."""

    __slots__ = ("_desk", "_id", "_number", "_pg")

    def __init__(self, desk: Desk, rank: int, ranks: tuple[int, ...], pg, group_id: str = "w"):
        super().__init__(rank, ranks)
        self._desk = desk
        self._id = group_id
        self._number = -1
        self._pg = pg  # None: the whole world

    def _new_row(self, op: str) -> list[int]:
        return self._desk.books.setdefault((op, self.ranks), [0, 0, 0])

    # -- collectives ------------------------------------------------------------------------------

    def _all_reduce(self, x: Tensor, op: str, async_op: bool) -> Tensor | Handle:
        total = x.clone(memory_format=torch.contiguous_format)
        return self._collect(
            ("all_reduce", x, (op,)),
            lambda: dist.all_reduce(total, _OPS[op], group=self._pg, async_op=True),
            lambda: total.div_(self.size) if op == "mean" else total,
            async_op,
        )

    def _all_gather(self, x: Tensor, dim: int, async_op: bool) -> Tensor | Handle:
        mine = _own(x, async_op)
        parts = [torch.empty_like(mine) for _ in self.ranks] if self.size > 1 else [mine]
        return self._collect(
            ("all_gather", x, (f"dim {dim}",)),
            lambda: dist.all_gather(parts, mine, group=self._pg, async_op=True),
            lambda: torch.cat(parts, dim),
            async_op,
        )

    def _reduce_scatter(self, x: Tensor, dim: int, op: str, async_op: bool) -> Tensor | Handle:
        parts = [_own(part, async_op) for part in x.chunk(self.size, dim)]
        mine = parts[self.rank].clone()
        return self._collect(
            ("reduce_scatter", x, (op, f"dim {dim}")),
            lambda: dist.reduce_scatter(mine, parts, _OPS[op], group=self._pg, async_op=True),
            lambda: mine.div_(self.size) if op == "mean" else mine,
            async_op,
        )

    def _broadcast(self, x: Tensor, src: int, sent_bytes: int, async_op: bool) -> Tensor | Handle:
        out = x.clone(memory_format=torch.contiguous_format)
        return self._collect(
            ("broadcast", x, (f"src {src}",)),
            lambda: dist.broadcast(out, self.ranks[src], group=self._pg, async_op=True),
            lambda: out,
            async_op,
            direct_bytes=sent_bytes,
        )

    def _all_to_all(
        self, x: Tensor, send: tuple, recv: tuple, sent_bytes: int, async_op: bool
    ) -> Tensor | Handle:
        mine = _own(x, async_op)
        out = x.new_empty((sum(recv), *x.shape[1:])) if self.size > 1 else x.clone()
        return self._collect(
            ("all_to_all", x, ()),
            lambda: dist.all_to_all_single(
                out, mine, list(recv), list(send), group=self._pg, async_op=True
            ),
            lambda: out,
            async_op,
            shape=(x.dtype, ("rows", *x.shape[1:])),
            direct_bytes=sent_bytes,
            sizes=(send, recv),
        )

    def _barrier(self) -> None:
        # With a board, having met is all there is to it.
        meet = None
        if self._desk.board is None:
            meet = lambda: dist.barrier(group=self._pg, async_op=True)  # noqa: E731
        self._collect(("barrier", None, ()), meet, lambda: None, shape=None)

    def _split(self, color: int | None, key: int | None) -> "DistComm | None":
        return self._collect(("split", None, ()), None, lambda: self._join(color, key), shape=None)

    def _join(self, color: int | None, key: int | None) -> "DistComm | None":
        """Tells the others what this rank wants; makes the group that it joins."""
        mine = [color is not None, color or 0, key is not None, key or 0]
        rows = [torch.empty(4, dtype=torch.int64) for _ in self.ranks]
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        rows = [row.to(device) for row in rows]
        if self.size > 1:
            dist.all_gather(rows, torch.tensor(mine, device=device), group=self._pg)
        else:
            rows = [torch.tensor(mine)]
        wishes = [
            (c if has_color else None, k if has_key else None)
            for has_color, c, has_key, k in (row.tolist() for row in rows)
        ]
        for members in groups_of(wishes):
            if self.rank not in members:
                continue
            ranks = tuple(self.ranks[r] for r in members)
            # Only members make the group, and in their order, so that its rank 0 is ours.
            pg = dist.new_group(list(ranks), use_local_synchronization=True, sort_ranks=False)
            shade = wishes[self.rank][0]
            name = f"{self._id}/{self._number}.{shade}"
            return DistComm(self._desk, members.index(self.rank), ranks, pg, name)
        return None

    def _collect(
        self,
        what: tuple,
        move: Callable[[], Any] | None,
        result: Callable[[], Any],
        async_op: bool = False,
        *,
        shape: Any = (),
        direct_bytes: int = 0,
        sizes: tuple | None = None,
    ) -> Any:
        """Launches a collective, `what` being (op, x, detail); waits for it unless `async_op`."""
        op, x, detail = what
        if shape == ():
            shape = (x.dtype, tuple(x.shape))
        self._number += 1
        call = Call(op, self.ranks, self._number, shape, detail)
        self._book(op, 0 if x is None else x.nbytes, direct_bytes)
        desk = self._desk
        launch = Launch(self._id, call, sizes, move if self.size > 1 else None)
        desk.announce(launch)
        if async_op:
            desk.open_calls[call] = None
            desk.show(RUNNING)
            desk.progress()
            return DistHandle(desk, launch, result)
        desk.sit_through(launch, launch.call)
        return result()

    # -- messages ---------------------------------------------------------------------------------

    def _exchange(self, op, x, dst, like, src, tag, peers) -> Tensor | None:
        """Sends, receives or both; each half moves as soon as its other side is there."""
        shown = x if x is not None else like
        detail = (f"tag {tag}",) if tag else ()
        call = Call(op, self.ranks, None, (shown.dtype, tuple(shown.shape)), detail, peers)
        self._book(op, shown.nbytes, 0 if x is None or dst == self.rank else x.nbytes)
        if dst == self.rank and src == self.rank:  # a ring of one
            return x.clone()
        todo = []
        if x is not None:
            todo.append((self._half((self._id, self.rank, dst, tag), x, is_send=True), x))
        if like is not None:
            buffer = like.new_empty(like.shape)
            todo.append((self._half((self._id, src, self.rank, tag), like, is_send=False), buffer))
        desk = self._desk
        desk.notice.call, desk.notice.group_id = call, self._id
        desk.notice.halves = [half for half, _ in todo]
        desk.show(WAITING)
        moving = []
        while todo:
            desk.wait(lambda: desk.board is None or any(self._answered(h) for h, _ in todo))
            for item in [i for i in todo if desk.board is None or self._answered(i[0])]:
                todo.remove(item)
                moving.append(self._start(*item))
            desk.notice.halves = [half for half, _ in todo]
            desk.show(WAITING if todo else MOVING)
        for work in moving:
            work.wait()
        desk.notice.call = None
        desk.show(RUNNING)
        return buffer if like is not None else None

    def _half(self, route: tuple, x: Tensor, *, is_send: bool) -> Half:
        sides = self._desk.notice.messages
        number = sides.get((*route, is_send), 0)
        sides[(*route, is_send)] = number + 1
        return Half(route, is_send, number, str(x.dtype), tuple(x.shape))

    def _answered(self, half: Half) -> bool:
        _, src, dst, _ = half.route
        other = self.ranks[dst if half.is_send else src]
        return answers(half, self._desk.board.read(other))

    def _start(self, half: Half, x: Tensor):
        _, src, dst, tag = half.route
        if half.is_send:
            return dist.isend(x.contiguous(), self.ranks[dst], group=self._pg, tag=tag)
        return dist.irecv(x, self.ranks[src], group=self._pg, tag=tag)


def _own(x: Tensor, async_op: bool) -> Tensor:
    """Returns an input to send from; after a launch its rank goes on and may change it."""
    return x.clone(memory_format=torch.contiguous_format) if async_op else x.contiguous()
