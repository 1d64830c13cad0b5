"""What the ranks of a run are given: the function and the arguments, for each rank its own."""

import pickle
from collections.abc import Callable
from typing import Any

from distlab import isolate
from distlab.result import per_rank


class Job:
    """The function and the arguments of a run, from which each rank takes its copy."""

    def __init__(self, fn: Callable, n: int, args: tuple, kwargs: dict):
        def shared(value: Any) -> Any:  # what is handed out by rank is copied by rank
            return None if isinstance(value, per_rank) else value

        self._n, self._args, self._kwargs = n, args, kwargs
        self._snapshot = isolate.Snapshot(
            fn, tuple(map(shared, args)), {k: shared(v) for k, v in kwargs.items()}, copies=n
        )
        self.names_random = self._snapshot.names("random")

    def load(self, rank: int) -> tuple[Callable, list, dict]:
        """Returns this rank's own (fn, args, kwargs)."""
        fn, args, kwargs = self._snapshot.load()
        args = [
            isolate.copy_value(given.values[rank], f"rank {rank}'s argument {i + 1}")
            if isinstance(given, per_rank)
            else value
            for i, (given, value) in enumerate(zip(self._args, args, strict=True))
        ]
        for key, given in self._kwargs.items():
            if isinstance(given, per_rank):
                kwargs[key] = isolate.copy_value(given.values[rank], f"rank {rank}'s `{key}`")
        return fn, args, kwargs

    def pack(self) -> tuple[bytes, list[bytes]]:
        """Returns what all ranks get, and what each rank gets besides, to cross into processes."""
        marked = [(i, given) for i, given in enumerate(self._args) if isinstance(given, per_rank)]
        marked += [(k, given) for k, given in self._kwargs.items() if isinstance(given, per_rank)]
        own = []
        for rank in range(self._n):
            parts = {}
            for key, given in marked:
                what = f"argument {key + 1}" if isinstance(key, int) else f"`{key}`"
                parts[key] = isolate.pack_value(given.values[rank], f"rank {rank}'s {what}")
            own.append(pickle.dumps(parts))
        return self._snapshot.pack(), own


def unpack(shared: bytes, own: bytes, device: str) -> tuple[Callable, list, dict]:
    """Returns a rank's (fn, args, kwargs) in its own process."""
    fn, args, kwargs = isolate.unpack(shared, device)
    args = list(args)
    for key, part in pickle.loads(own).items():
        (args if isinstance(key, int) else kwargs)[key] = isolate.unpack(part, device)
    return fn, args, kwargs
