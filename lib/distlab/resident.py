"""Memory that is held while code runs: the bytes of all storages alive, and the most there were.

A rank's function measures itself: what it was given is named, what it makes is found. Views add
nothing, and a storage counts until the last tensor lets go of it, autograd's own included. Not
counted: tensors on meta, which have no memory, and what a collective needs inside. PyTorch is
imported only when something is measured.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ref


@dataclass
class Resident:
    """What was held, in bytes: at first, and after each operation."""

    curve_bytes: list[int] = field(default_factory=list)

    @property
    def peak_bytes(self) -> int:
        """The most that was held after any operation."""
        return max(self.curve_bytes, default=0)


@contextmanager
def resident(*held: Any) -> Iterator[Resident]:
    """Gives a record that fills while the `with` block runs, on this thread, backward included.

    `held` are tensors, or lists, tuples and dicts of them, that are there from the start: a rank's
    arguments. Another one counts from the first operation that reads it.

    Example: `with resident(x) as memory: y = x.exp()` has a peak of x's and y's bytes.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    book = _Book()

    class Watch(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls):
            return False  # nothing is compiled here, and importing the compiler takes seconds

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            book.note((args, kwargs, result))
            return result

    book.note(held)
    try:
        with Watch():
            yield book.memory
    finally:
        book.storages.clear()


class _Book:
    """The storages that are alive, by address, with their sizes, and the sum of these."""

    def __init__(self):
        self.memory = Resident()
        self.storages: dict[int, tuple[ref, int]] = {}
        self.total = self.most = 0

    def note(self, tree: Any) -> None:
        """Notes what is held now, after an operation with these arguments and results."""
        for x in _tensors(tree):
            self.enter(x.untyped_storage())
        if self.total > self.most:  # one that nobody has touched may have been emptied by resize_
            for reference, _ in list(self.storages.values()):
                if (storage := reference()) is not None:
                    self.enter(storage)
            self.most = max(self.most, self.total)
        self.memory.curve_bytes.append(self.total)

    def enter(self, storage: Any) -> None:
        """Notes a storage that is new, or the present size of one that is known."""
        address, size_bytes = storage._cdata, storage.nbytes()
        known = self.storages.get(address)
        if known is None:
            reference = ref(storage, lambda _: self.leave(address))
            self.storages[address] = reference, size_bytes
            self.total += size_bytes
        elif known[1] != size_bytes:
            self.storages[address] = known[0], size_bytes
            self.total += size_bytes - known[1]

    def leave(self, address: int) -> None:
        """Notes that a storage is gone."""
        _, size_bytes = self.storages.pop(address)
        self.total -= size_bytes


def _tensors(tree: Any) -> Iterator[Any]:
    """Yields the tensors of a tree that have memory."""
    import torch

    if isinstance(tree, torch.Tensor):
        if not tree.is_meta:
            yield tree
    elif isinstance(tree, list | tuple):
        for branch in tree:
            yield from _tensors(branch)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
