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

    memory, alive = Resident(), {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            _enter(alive, (args, kwargs, result))
            memory.curve_bytes.append(_total(alive))
            return result

    _enter(alive, held)
    memory.curve_bytes.append(_total(alive))
    with Watch():
        yield memory


def _enter(alive: dict[int, ref], tree: Any) -> None:
    """Notes the storages of all tensors in a tree, by their addresses."""
    import torch
    from torch.utils._pytree import tree_leaves

    for x in tree_leaves(tree):
        if isinstance(x, torch.Tensor) and x.device.type != "meta":
            storage = x.untyped_storage()
            known = alive.get(storage._cdata)
            if known is None or known() is None:  # an address may come back
                alive[storage._cdata] = ref(storage)


def _total(alive: dict[int, ref]) -> int:
    """Returns the bytes that are still held, at their present sizes, and forgets what is gone."""
    total = 0
    for address, reference in list(alive.items()):
        storage = reference()
        if storage is None:
            del alive[address]
        else:
            total += storage.nbytes()
    return total
