"""A trace of storages: which ones appear while code runs, and when the last tensor lets go of them.

A storage is the memory behind tensors; a view has none of its own. A trace tells what happened, one
event after another, and adds nothing up: what was there at a time, and the most that ever was, is
the students' work in lab 1. Storages are followed on every device, on meta too, where a model of
any size leaves its trace without its memory. PyTorch is imported only when something is recorded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Literal, NamedTuple
from weakref import finalize

Kind = Literal["allocate", "view", "free"]


class Event(NamedTuple):
    """What happened to a storage.

    "allocate": it appears. "view": another tensor looks at `size_bytes` of it; no memory is added.
    "free": it goes, and its number may come back for another storage.

    Example: `Event("allocate", storage=3, size_bytes=1_024)`.
    """

    kind: Kind
    storage: int
    size_bytes: int


@dataclass
class Trace:
    """Events in their order, and the storages that were there before them, as {number: bytes}.

    `marks` has, by name, how many events had happened when a mark was set.
    """

    before: dict[int, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        """Notes under a name how many events there are so far."""
        self.marks[name] = len(self.events)


@contextmanager
def recording() -> Iterator[Trace]:
    """Gives a trace that fills while the `with` block runs.

    Each result of an operation is an "allocate", or a "view" where it lies in a storage that is
    there already (a transpose, an addition in place); "free" comes when nothing holds the storage
    any more. What an operation reads and the block didn't make was there before. Not seen: storages
    that no operation touches, and what a kernel needs for itself while it runs.

    Example: `with recording() as trace: torch.ones(2).exp()` leaves 2 "allocate" and 2 "free".
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    trace = Trace()
    book = _Book(trace)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            for x in _tensors((args, kwargs)):
                storage = x.untyped_storage()
                if book.number(storage) is None:
                    # Met late, but there from the start: no event so far may have its number.
                    trace.before[book.enter(storage, next(book.unused))] = storage.nbytes()
            result = func(*args, **(kwargs or {}))
            for x in _tensors(result):
                storage = x.untyped_storage()
                if (number := book.number(storage)) is not None:
                    trace.events.append(Event("view", number, x.nbytes))
                else:
                    number = book.enter(storage)
                    trace.events.append(Event("allocate", number, storage.nbytes()))
            return result

    try:
        with Watch():
            yield trace
    finally:
        book.close()


class _Book:
    """Numbers the storages that are alive, and writes "free" when one of them dies."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.alive: dict[int, tuple[int, finalize]] = {}  # by address: unique while alive
        self.returned: list[int] = []
        self.unused = count()

    def number(self, storage: Any) -> int | None:
        """Returns a storage's number; None for one that was never met."""
        return self.alive[storage._cdata][0] if storage._cdata in self.alive else None

    def enter(self, storage: Any, number: int | None = None) -> int:
        """Gives a storage a number: the smallest that is free, unless the caller names one."""
        if number is None:
            number = heappop(self.returned) if self.returned else next(self.unused)
        # PyTorch keeps one Python object per storage, which dies with the last tensor's hold on it.
        watch = finalize(storage, self.leave, storage._cdata, storage.nbytes())
        watch.atexit = False
        self.alive[storage._cdata] = number, watch
        return number

    def leave(self, address: int, size_bytes: int) -> None:
        """Writes down that a storage is gone."""
        number, _ = self.alive.pop(address)
        heappush(self.returned, number)
        self.trace.events.append(Event("free", number, size_bytes))

    def close(self) -> None:
        """Stops watching: what dies from now on is not part of the trace."""
        for _, watch in self.alive.values():
            watch.detach()


def _tensors(tree: Any) -> list[Any]:
    """Returns the tensors among the arguments or results of an operation."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]
