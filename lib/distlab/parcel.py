"""Pickled objects as bytes that another process can open, storages and code included."""

import linecache
import marshal
import os
import pickle
from types import CodeType
from typing import Any

import numpy as np
import torch


def seal(payload: bytes, slots: list) -> bytes:
    """Returns a payload and its slots (storages, arrays, code) as bytes.

    The source text of code that stands in no file (notebook cells) goes along for tracebacks.
    """
    sources = {}
    for slot in slots:
        if isinstance(slot, CodeType) and not os.path.exists(slot.co_filename):
            sources[slot.co_filename] = linecache.getlines(slot.co_filename)
    return pickle.dumps((payload, [_encoded(slot) for slot in slots], sources), protocol=5)


def unseal(sealed: bytes, device: str) -> tuple[bytes, list]:
    """Returns (payload, slots) of a parcel, storages on `device`."""
    payload, encoded, sources = pickle.loads(sealed)
    for name, lines in sources.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    return payload, [_decoded(kind, value, device) for kind, value in encoded]


def _encoded(slot: Any) -> tuple[str, Any]:
    if isinstance(slot, CodeType):
        return "code", marshal.dumps(slot)
    if isinstance(slot, np.ndarray):
        return "array", slot
    whole = torch.empty(0, dtype=torch.uint8).set_(slot.cpu())
    return "storage", whole.numpy()


def _decoded(kind: str, value: Any, device: str) -> Any:
    if kind == "code":
        return marshal.loads(value)
    if kind == "array":
        return value
    storage = torch.from_numpy(value.copy() if not value.flags.writeable else value)
    return storage.untyped_storage() if device == "cpu" else storage.to(device).untyped_storage()
