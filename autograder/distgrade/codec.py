"""What crosses the wall: a JSON tree with tensor slots, bounded in depth, items and bytes.

This file is also shipped, as text, into the student's kernel, where distgrade may be missing. So
it imports the standard library, numpy and torch only, and trusts no method of what it is given.
Tensors travel in the safetensors format (8 bytes of header length, a JSON header, raw bytes).
"""

import json
import math
import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

MAX_DEPTH = 24
MAX_ITEMS = 100_000
MAX_TEXT = 20_000
MAX_KEYS = 5_000  # of all dicts together: keys can be chosen so that a dict takes their square
MAX_BITS = 2_048  # of an integer
MAX_BYTES = 32_000_000

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class CodecError(ValueError):
    """A value is too large to cross the wall, or what arrived is malformed."""


@dataclass(frozen=True)
class Elsewhere:
    """A tensor that is not in CPU memory: what is known of it without its values."""

    device: str
    dtype: str
    shape: tuple


@dataclass(frozen=True)
class Other:
    """Any object that is none of the tree's types: only the name of its type crossed."""

    name: str


def encode(value) -> tuple[object, bytes]:
    """Return (JSON tree, safetensors bytes) of a value.

    Raises: CodecError where a bound is exceeded.
    """
    writer = _Writer()
    tree = writer.node(value, 0)
    return tree, writer.to_bytes()


def type_name(value) -> str:
    """Return the name of a value's type, whatever its metaclass answers."""
    try:
        return str.__str__(type.__getattribute__(type(value), "__name__"))[:100]
    except BaseException:
        return "object"


class _Writer:
    def __init__(self):
        self.items, self.keys, self.size, self.slots = 0, 0, 0, []

    def node(self, value, depth):
        self.items += 1
        if self.items > MAX_ITEMS or depth > MAX_DEPTH:
            raise CodecError("The answer holds too many values, or values nested too deeply.")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            if value.bit_length() > MAX_BITS:
                raise CodecError("An integer of the answer is too long.")
            return {"int": str(value)}
        if kind is float:
            return {"float": value.hex()}
        if kind is str:
            if len(value) > MAX_TEXT:
                raise CodecError("A text of the answer is too long.")
            return {"str": value.encode("utf-8", "backslashreplace").decode("utf-8")}
        if kind is Fraction:
            parts = (value.numerator, value.denominator)
            return {"fraction": [self.node(part, depth + 1)["int"] for part in parts]}
        if issubclass(kind, list):
            return {"list": [self.node(v, depth + 1) for v in list.__iter__(value)]}
        if issubclass(kind, tuple):
            return {"tuple": [self.node(v, depth + 1) for v in tuple.__iter__(value)]}
        if issubclass(kind, dict):
            pairs = dict.items(value)
            self.keys += len(pairs)
            if self.keys > MAX_KEYS:
                raise CodecError("The dicts of the answer hold too many keys.")
            return {"dict": [[self.node(k, depth + 1), self.node(v, depth + 1)] for k, v in pairs]}
        if issubclass(kind, torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():
                return self.tensor(value)
        if issubclass(kind, np.ndarray | np.generic):
            return self.array(value)
        return {"other": type_name(value)}

    def tensor(self, value):
        dtype = torch.Tensor.dtype.__get__(value)
        shape = [int(n) for n in torch.Tensor.size(value)]
        device = str(torch.Tensor.device.__get__(value))
        layout = torch.Tensor.layout.__get__(value)
        if layout is not torch.strided:
            device = f"{device} ({layout})"
        if device != "cpu" or dtype not in _NAMES:
            return {"elsewhere": [device[:100], str(dtype)[:100], shape]}
        self.grow(math.prod(shape) * dtype.itemsize)
        plain = torch.Tensor.detach(value).as_subclass(torch.Tensor).resolve_conj().resolve_neg()
        raw = plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return {"tensor": self.slot(_NAMES[dtype], shape, raw)}

    def array(self, value):
        plain = np.asarray(value).view(np.ndarray)
        name = _NAMES.get(_torch_dtype(plain.dtype))
        if name is None:
            return {"other": f"array of {str(plain.dtype)[:50]}"}
        self.grow(plain.size * plain.dtype.itemsize)
        raw = np.ascontiguousarray(plain).astype(plain.dtype.newbyteorder("<")).tobytes()
        return {"numpy": self.slot(name, list(plain.shape), raw)}

    def grow(self, size):
        self.size += size
        if self.size > MAX_BYTES:
            raise CodecError("The tensors of the answer are too large.")

    def slot(self, dtype, shape, raw):
        self.slots.append((dtype, shape, raw))
        return f"t{len(self.slots) - 1}"

    def to_bytes(self):
        header, at = {}, 0
        for i, (dtype, shape, raw) in enumerate(self.slots):
            ends = [at, at + len(raw)]
            header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": ends}
            at = ends[1]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in self.slots)


def _torch_dtype(dtype):
    try:
        return torch.from_numpy(np.empty(0, dtype=dtype.newbyteorder("="))).dtype
    except (TypeError, ValueError):
        return None


def decode(tree, data: bytes):
    """Return the value that `encode` wrote.

    Raises: CodecError for what `encode` would not have written. Runs no code of the sender.
    """
    try:
        return _Reader(data).node(tree, 0)
    except CodecError:
        raise
    except Exception as error:  # whatever a forged record provokes becomes the one named error
        raise CodecError(f"The record is malformed ({type(error).__name__}).") from None


class _Reader:
    def __init__(self, data):
        self.items = self.keys = 0
        if type(data) is not bytes or not 8 <= len(data) <= 2 * MAX_BYTES:
            raise CodecError("The record has no tensor part, or one that is too large.")
        (length,) = struct.unpack("<Q", data[:8])
        if length > min(len(data) - 8, 200 * MAX_ITEMS):
            raise CodecError("The tensor part is cut short.")
        self.header = json.loads(data[8 : 8 + length])
        self.data = data[8 + length :]
        if type(self.header) is not dict:
            raise CodecError("The tensor part has no table of contents.")

    def node(self, tree, depth):
        self.items += 1
        if self.items > MAX_ITEMS or depth > MAX_DEPTH:
            raise CodecError("The record holds too many values, or values nested too deeply.")
        if tree is None or type(tree) is bool:
            return tree
        if type(tree) is not dict or len(tree) != 1:
            raise CodecError("The record holds a node of no known kind.")
        ((kind, body),) = tree.items()
        if kind in ("int", "float", "str", "other", "tensor", "numpy"):
            if type(body) is not str or len(body) > MAX_TEXT:
                raise CodecError("A leaf of the record is not a text of bounded length.")
            return getattr(self, f"read_{kind}")(body)
        if type(body) is not list:
            raise CodecError("A branch of the record is not a list.")
        if kind == "fraction":
            numerator, denominator = (self.read_int(part) for part in body)
            return Fraction(numerator, denominator)
        if kind == "elsewhere":
            device, dtype, shape = body
            return Elsewhere(self.read_str(device)[:100], self.read_str(dtype)[:100], _shape(shape))
        if kind == "list":
            return [self.node(v, depth + 1) for v in body]
        if kind == "tuple":
            return tuple(self.node(v, depth + 1) for v in body)
        if kind == "dict":
            self.keys += len(body)
            if self.keys > MAX_KEYS:
                raise CodecError("The dicts of the record hold too many keys.")
            pairs = [(self.node(k, depth + 1), self.node(v, depth + 1)) for k, v in body]
            if any(isinstance(k, torch.Tensor | np.ndarray) for k, _ in pairs):
                raise CodecError("A key of the record is a tensor.")
            return dict(pairs)
        raise CodecError("The record holds a node of no known kind.")

    def read_int(self, body):
        if type(body) is not str or len(body) > MAX_BITS:
            raise CodecError("An integer of the record is too long.")
        return int(body)

    def read_float(self, body):
        return float.fromhex(body)

    def read_str(self, body):
        if type(body) is not str:
            raise CodecError("A leaf of the record is not a text.")
        return body

    def read_other(self, body):
        return Other(body[:200])

    def read_numpy(self, body):
        return self.read_tensor(body).numpy()

    def read_tensor(self, body):
        entry = self.header[body]
        if type(entry) is not dict or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise CodecError("A tensor of the record is not described.")
        dtype, shape = DTYPES[entry["dtype"]], _shape(entry["shape"])
        start, end = entry["data_offsets"]
        if type(start) is not int or type(end) is not int or not 0 <= start <= end:
            raise CodecError("A tensor of the record has no place.")
        if end > len(self.data) or end - start != math.prod(shape) * dtype.itemsize:
            raise CodecError("A tensor of the record has another size than it claims.")
        if start == end:
            return torch.empty(shape, dtype=dtype)
        raw = bytearray(self.data[start:end])
        if dtype is torch.bool and raw.translate(None, b"\0\1"):
            raise CodecError("A truth value of the record is neither 0 nor 1.")
        return torch.frombuffer(raw, dtype=dtype).reshape(shape)


def _shape(body):
    if type(body) is not list or len(body) > 64:
        raise CodecError("A shape of the record is not a list.")
    if not all(type(n) is int and 0 <= n < 2**62 for n in body):
        raise CodecError("A shape of the record is not made of sizes.")
    return tuple(body)
