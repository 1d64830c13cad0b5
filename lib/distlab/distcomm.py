"""The communicator on torch.distributed: see `distlab.comm.Comm` for what each operation means.

What moves is torch.distributed's (gloo or NCCL); who may move it, and when, is settled on the
notice board first. Under torchrun, where ranks may sit on different hosts, there is no board, and
torch.distributed's own timeouts and messages apply.
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from distlab.board import MOVING, RUNNING, WAITING, Board, Half, Notice, answers, meets
from distlab.checkedcomm import CheckedComm, check_sizes, groups_of
from distlab.ledger import Entry, ring_bytes
from distlab.reports import Call

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,  # divided afterwards: gloo knows no mean
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
_EAGER_LOOKS = 50  # looks at the board before a rank starts to sleep between two
_PAUSE_S = 0.0002


class Desk:
    """What all communicators of one rank share: its place on the board and its books."""

    def __init__(self, rank: int, board: Board | None):
        self.rank = rank
        self.board = board
        self.notice = Notice()
        # (op, ranks) -> [calls, payload bytes, direct bytes]
        self.books: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    def entries(self) -> list[Entry]:
        """Returns what this rank communicated."""
        return [
            Entry(self.rank, op, ranks, calls, size, ring_bytes(op, len(ranks), size, direct))
            for (op, ranks), (calls, size, direct) in self.books.items()
        ]

    def show(self, state: str) -> None:
        """Shows this rank's notice with a new state."""
        if self.board is not None:
            self.notice.state = state
            self.board.post(self.rank, self.notice)

    def wait(self, ready) -> None:
        """Waits until `ready()`; the launching process ends the run if that can never be."""
        looks = 0
        while not ready():
            looks += 1
            time.sleep(0 if looks < _EAGER_LOOKS else _PAUSE_S)


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

    def _all_reduce(self, x: Tensor, op: str) -> Tensor:
        self._meet("all_reduce", x, (op,))
        total = x.clone(memory_format=torch.contiguous_format)
        if self.size > 1:
            dist.all_reduce(total, _OPS[op], group=self._pg)
        return self._done(total.div_(self.size) if op == "mean" else total)

    def _all_gather(self, x: Tensor, dim: int) -> Tensor:
        self._meet("all_gather", x, (f"dim {dim}",))
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in self.ranks]
        if self.size > 1:
            dist.all_gather(parts, x, group=self._pg)
        else:
            parts = [x]
        return self._done(torch.cat(parts, dim))

    def _reduce_scatter(self, x: Tensor, dim: int, op: str) -> Tensor:
        self._meet("reduce_scatter", x, (op, f"dim {dim}"))
        parts = [part.contiguous() for part in x.chunk(self.size, dim)]
        mine = parts[self.rank].clone()
        if self.size > 1:
            dist.reduce_scatter(mine, parts, _OPS[op], group=self._pg)
        return self._done(mine.div_(self.size) if op == "mean" else mine)

    def _broadcast(self, x: Tensor, src: int, sent_bytes: int) -> Tensor:
        self._meet("broadcast", x, (f"src {src}",), direct_bytes=sent_bytes)
        out = x.clone(memory_format=torch.contiguous_format)
        if self.size > 1:
            dist.broadcast(out, self.ranks[src], group=self._pg)
        return self._done(out)

    def _all_to_all(self, x: Tensor, send: tuple, recv: tuple, sent_bytes: int) -> Tensor:
        shape = (x.dtype, ("rows", *x.shape[1:]))
        self._meet("all_to_all", x, (), shape=shape, direct_bytes=sent_bytes, sizes=(send, recv))
        out = x.new_empty((sum(recv), *x.shape[1:]))
        if self.size > 1:
            dist.all_to_all_single(out, x.contiguous(), list(recv), list(send), group=self._pg)
        else:
            out.copy_(x)
        return self._done(out)

    def _barrier(self) -> None:
        self._meet("barrier", None, (), shape=None)
        if self._desk.board is None:
            dist.barrier(group=self._pg)
        self._done(None)

    def _split(self, color: int | None, key: int | None) -> "DistComm | None":
        self._meet("split", None, (), shape=None)
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
        joined = None
        for members in groups_of(wishes):
            if self.rank not in members:
                continue
            ranks = tuple(self.ranks[r] for r in members)
            # Only members make the group, and in their order, so that its rank 0 is ours.
            pg = dist.new_group(list(ranks), use_local_synchronization=True, sort_ranks=False)
            shade = wishes[self.rank][0]
            name = f"{self._id}/{self._number}.{shade}"
            joined = DistComm(self._desk, members.index(self.rank), ranks, pg, name)
        return self._done(joined)

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
        return self._done(buffer if like is not None else None)

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

    # -- shared -----------------------------------------------------------------------------------

    def _meet(self, op, x, detail, *, shape=(), direct_bytes=0, sizes=None) -> None:
        """Announces a collective and waits until every rank of the group has."""
        if shape == ():
            shape = (x.dtype, tuple(x.shape))
        self._number += 1
        call = Call(op, self.ranks, self._number, shape, detail)
        self._book(op, 0 if x is None else x.nbytes, direct_bytes)
        desk = self._desk
        if desk.board is None:
            return
        notice = desk.notice
        # As another process will read it: dtypes by name.
        notice.call, notice.group_id = Call.unpacked(call.packed()), self._id
        notice.sizes, notice.halves = sizes, []
        notice.collectives[self._id] = self._number
        desk.show(WAITING)
        others = [rank for rank in self.ranks if rank != desk.rank]
        desk.wait(lambda: all(meets(notice, desk.board.read(rank)) for rank in others))
        if sizes is not None:
            self._check_sizes(sizes)
        desk.show(MOVING)

    def _check_sizes(self, sizes: tuple) -> None:
        """Checks an all_to_all's sizes against each rank that has not checked them itself."""
        mine = self._desk.notice
        table = []
        for rank in self.ranks:
            other = self._desk.board.read(rank) if rank != self._desk.rank else mine
            here = other.group_id == self._id and other.call and other.call.number == self._number
            if not here:
                return
            table.append(other.sizes)
        check_sizes(table)

    def _done(self, value):
        self._desk.notice.call = None
        self._desk.show(RUNNING)
        return value
