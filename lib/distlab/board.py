"""The notice board of a run on real processes: what each rank is doing, in shared memory.

A rank announces each call and waits until its counterparts have announced theirs, with the same
shapes. Only then does it move data. So a mismatch never reaches the network, nothing hangs inside
a library, and whoever reads the board sees a deadlock as soon as it is one.

Each rank writes its own part only; the others read it. A part is a length, a checksum and a
marshalled `Notice`; a torn read fails the checksum and is read again.
"""

import marshal
import mmap
import os
import struct
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from distlab.reports import Call

_PART_BYTES = 1 << 16
_HEAD = struct.Struct("<III")  # version, length, checksum
RUNNING, WAITING, MOVING, RETURNED = "running", "waiting", "moving", "returned"


@dataclass
class Half:
    """One side of a message: the number-th send, or receive, on a route."""

    route: tuple  # (group id, src, dst, tag)
    is_send: bool
    number: int
    dtype: str
    shape: tuple[int, ...]


@dataclass
class Launched:
    """A collective that a rank has announced, and of which it has not yet seen that all agree."""

    group_id: str
    call: Call
    sizes: tuple | None = None  # all_to_all: (rows to each rank, rows from each rank)


@dataclass
class Notice:
    """What one rank tells the others."""

    state: str = RUNNING
    call: Call | None = None  # what the rank is waiting in
    group_id: str = ""
    launched: list[Launched] = field(default_factory=list)
    halves: list[Half] = field(default_factory=list)  # parts of a message still unmatched
    collectives: dict[str, int] = field(default_factory=dict)  # announced so far, by group
    messages: dict[tuple, int] = field(default_factory=dict)  # announced so far, by side of route

    def packed(self) -> bytes:
        """The notice as bytes."""
        halves = [(h.route, h.is_send, h.number, h.dtype, h.shape) for h in self.halves]
        call = self.call and self.call.packed()
        launched = [(one.group_id, one.call.packed(), one.sizes) for one in self.launched]
        return marshal.dumps(
            (self.state, call, self.group_id, launched, halves, self.collectives, self.messages)
        )

    @classmethod
    def unpacked(cls, data: bytes) -> "Notice":
        """The notice that another process packed."""
        state, call, group_id, launched, halves, collectives, messages = marshal.loads(data)
        return cls(
            state,
            call and Call.unpacked(call),
            group_id,
            [Launched(group, Call.unpacked(values), sizes) for group, values, sizes in launched],
            [Half(*half) for half in halves],
            collectives,
            messages,
        )

    def shown(self, group_id: str, number: int) -> Launched | None:
        """Returns the number-th collective of a group, while it is announced here."""
        for one in self.launched:
            if one.call.number == number and one.group_id == group_id:
                return one
        return None


class Board:
    """The board as one rank, or the launching process, sees it."""

    def __init__(self, path: Path, n: int):
        self.n = n
        file = os.open(path, os.O_RDWR)
        self._memory = mmap.mmap(file, n * _PART_BYTES)
        os.close(file)
        self._seen: list[tuple[int, Notice]] = [(-1, Notice())] * n

    @staticmethod
    def create(path: Path, n: int) -> None:
        """Makes the file behind a board of n ranks."""
        with path.open("wb") as file:
            file.truncate(n * _PART_BYTES)

    def post(self, rank: int, notice: Notice) -> None:
        """Shows a rank's notice to all."""
        data = notice.packed()
        if len(data) > _PART_BYTES - _HEAD.size:
            raise RuntimeError(
                f"rank {rank} takes part in too many groups, or has too many collectives open, "
                "for one run."
            )
        start = rank * _PART_BYTES
        version = _HEAD.unpack_from(self._memory, start)[0] + 1
        self._memory[start + _HEAD.size : start + _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._memory, start, version, len(data), _checksum(version, data))

    def read(self, rank: int) -> Notice:
        """Returns a rank's newest notice."""
        start = rank * _PART_BYTES
        while True:
            version, length, checksum = _HEAD.unpack_from(self._memory, start)
            if version == self._seen[rank][0] or version == 0:
                return self._seen[rank][1]
            data = self._memory[start + _HEAD.size : start + _HEAD.size + length]
            if _checksum(version, data) == checksum:
                notice = Notice.unpacked(data)
                self._seen[rank] = (version, notice)
                return notice
            time.sleep(0)

    def versions(self) -> list[int]:
        """Returns a number per rank that changes with each notice."""
        return [_HEAD.unpack_from(self._memory, r * _PART_BYTES)[0] for r in range(self.n)]

    def close(self) -> None:
        """Unmaps the board."""
        self._memory.close()


def _checksum(version: int, data: bytes) -> int:
    # Over the head as well: it is not written in one piece either.
    return zlib.crc32(data, zlib.crc32(f"{version} {len(data)}".encode()))


def agrees(mine: Call, other: Call) -> bool:
    """Whether two ranks' calls of one collective ask for the same thing."""
    return (mine.op, mine.shape, mine.detail) == (other.op, other.shape, other.detail)


def meets(call: Call, group_id: str, other: Notice) -> bool:
    """Whether `other` has announced the same collective of a group, or has passed it."""
    if other.collectives.get(group_id, -1) < call.number:
        return False
    theirs = other.shown(group_id, call.number)
    # Who no longer shows this call has found that all agree.
    return theirs is None or agrees(call, theirs.call)


def answers(half: Half, other: Notice) -> bool:
    """Whether `other` has announced the other side of a message, and it fits."""
    announced = other.messages.get((*half.route, not half.is_send), 0)
    if announced <= half.number:
        return False
    counterpart = _counterpart(half, other)
    # No longer among the unmatched halves: the other rank has already found that it fits.
    return counterpart is None or (counterpart.dtype, counterpart.shape) == (half.dtype, half.shape)


def _counterpart(half: Half, other: Notice) -> Half | None:
    for theirs in other.halves:
        if (theirs.route, theirs.is_send, theirs.number) == (
            half.route,
            not half.is_send,
            half.number,
        ):
            return theirs
    return None
