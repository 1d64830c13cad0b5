"""True copies: each rank gets its own, as if it were a separate process.

A function is pickled by value with cloudpickle, so a copy shares no global, closure or class with
the others. Plain cloudpickle is not enough:

- it remembers dynamic classes per process, so class attributes would stay shared; we hide that
  memory while a copy is loaded, and use it to map a returned object back to the caller's class;
- it copies the storage of each tensor anew, so views would lose what they share with their base; we
  copy each storage once per rank, and large ones by copy-on-write;
- a function of an importable module goes by reference; the user's own modules go by value here;
- code loses its file name, and with it the source lines in tracebacks; code never changes, so here
  the ranks share it;
- for each function it goes through all loaded modules, a third of a small run's time; we look up
  those that the function names.
"""

import contextlib
import inspect
import io
import pickle
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, ModuleType
from typing import Any

import cloudpickle
import numpy as np
import torch
from cloudpickle import cloudpickle as _cp

from distlab import parcel
from distlab.errors import UncopyableError

LAZY_BYTES = 1 << 20  # storages from this size on are copied on write only
_COPY_LIMIT_BYTES = 4 << 30  # what all ranks' eager copies together may take
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LIBRARY_DIRS = tuple(
    {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class _Pickler(cloudpickle.Pickler):
    """Pickles by value; storages, arrays and code are left out as slots, each once."""

    proto = pickle.HIGHEST_PROTOCOL

    def __init__(self, file: io.BytesIO, slots: list, keep_grad: bool):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._slots = slots
        self._keep_grad = keep_grad  # whether what has a history goes over as a leaf, or without
        self._index: dict[tuple, int] = {}

    def _slot(self, key: tuple, value: Any) -> tuple[str, int]:
        if key not in self._index:
            self._index[key] = len(self._slots)
            self._slots.append(value)
        return ("slot", self._index[key])

    def persistent_id(self, obj: Any) -> tuple | None:
        if isinstance(obj, torch.storage.TypedStorage):
            # Storages are equal when their memory is; `_cdata` names the C++ object behind it.
            storage = obj._untyped_storage
            slot = self._slot(("storage", storage._cdata), storage)
            return ("typed", obj.dtype, slot[1])
        if isinstance(obj, torch.UntypedStorage):
            return self._slot(("storage", obj._cdata), obj)
        if type(obj) is np.ndarray and obj.base is None and not obj.dtype.hasobject:
            return self._slot(("array", id(obj)), obj)
        if type(obj) is CodeType:
            return self._slot(("code", id(obj)), obj)
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.grad_fn is not None:
            # The history stays behind, as it would between processes.
            return obj.detach().requires_grad_(self._keep_grad).__reduce_ex__(self.proto)
        if type(obj) is np.ndarray and not obj.dtype.hasobject:
            base = obj
            while isinstance(base.base, np.ndarray):
                base = base.base
            if type(base) is np.ndarray and base.base is None and base is not obj:
                offset = obj.__array_interface__["data"][0] - base.__array_interface__["data"][0]
                return _view, (base, obj.shape, obj.dtype, offset, obj.strides)
        if isinstance(obj, ModuleType) and obj.__name__ not in sys.modules:
            # A part of an extension module (torch._C._functions, which once_differentiable uses)
            # can't be imported by its name; by value, its types would be copied and break.
            parent, _, name = obj.__name__.rpartition(".")
            if getattr(sys.modules.get(parent), name, None) is obj:
                return _part_of, (parent, name)
        return super().reducer_override(obj)


def _part_of(parent: str, name: str) -> ModuleType:
    return getattr(sys.modules[parent], name)


def _view(base: np.ndarray, shape, dtype, offset: int, strides) -> np.ndarray:
    flat = base.ravel(order="K").view(np.uint8)
    return np.ndarray(shape, dtype, buffer=flat.data, offset=offset, strides=strides)


class _Unpickler(pickle.Unpickler):
    def __init__(self, payload: bytes, slot: Callable[[int], Any]):
        super().__init__(io.BytesIO(payload))
        self._slot = slot

    def persistent_load(self, pid: tuple) -> Any:
        if pid[0] == "typed":
            return torch.storage.TypedStorage(
                wrap_storage=self._slot(pid[2]), dtype=pid[1], _internal=True
            )
        return self._slot(pid[1])


class Snapshot:
    """A picture of objects, taken once, from which each rank loads a copy of its own.

    Cost: small storages are copied per load; storages from 1 MiB on are copied once, and per rank
    only where that rank writes. Raises UncopyableError, naming the variable, where pickling fails.
    """

    def __init__(self, fn: Callable, args: tuple, kwargs: dict, copies: int):
        self._slots: list = []
        try:
            self._payload = _dump((fn, args, kwargs), self._slots, fn)
        except Exception as error:
            raise _uncopyable(fn, args, kwargs, error) from error
        eager = sum(_size_bytes(s) for s in self._slots if not _is_lazy(s))
        if eager * copies > _COPY_LIMIT_BYTES:
            raise UncopyableError(
                f"{copies} ranks were asked for, and each would copy {eager / 1e9:.2f} GB of "
                "arrays that the function or its arguments hold; hand each rank its own part "
                "with per_rank([...]), or use torch tensors (copied only where written)."
            )
        # The caller's own storages must not become copy-on-write: arrays made of them would part.
        self._slots = [s.clone() if _is_lazy(s) else s for s in self._slots]

    def pack(self) -> bytes:
        """Returns the snapshot as bytes, from which another process loads its copy."""
        return parcel.seal(self._payload, self._slots)

    def names(self, word: str) -> bool:
        """Whether the function, or what it closes over, names `word` (as a module, say)."""
        return word.encode() in self._payload or any(
            isinstance(slot, CodeType) and word in slot.co_names for slot in self._slots
        )

    def load(self) -> tuple[Callable, tuple, dict]:
        """Returns a fresh copy of (fn, args, kwargs)."""
        return _load_copy(self._payload, self._slots)


def copy_value(value: Any, where: str) -> Any:
    """Returns a copy of one rank's argument; `where` names it in an error."""
    if isinstance(value, _PLAIN):
        return value
    if _is_shard(value):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return _load_copy(*_dump_argument(value, where))


def pack_value(value: Any, where: str) -> bytes:
    """Returns one rank's argument as bytes for its process; `where` names it in an error."""
    if _is_shard(value):
        value = value.detach().clone().requires_grad_(value.requires_grad)
    return parcel.seal(*_dump_argument(value, where))


def _dump_argument(value: Any, where: str) -> tuple[bytes, list]:
    slots: list = []
    try:
        return _dump(value, slots, None), slots
    except Exception as error:
        raise UncopyableError(
            f"{where} ({type(value).__name__}) can't be copied to a rank: {_reason(error)}."
        ) from error


def unpack(sealed: bytes, device: str = "cpu") -> Any:
    """Loads what another process packed, its tensors on `device`."""
    payload, slots = parcel.unseal(sealed, device)
    return _Unpickler(payload, slots.__getitem__).load()


def _is_shard(value: Any) -> bool:
    # A shard is often a view of a large matrix: only the shard itself is copied.
    return type(value) is torch.Tensor and value.layout is torch.strided


def carry_out(value: Any, rank: int) -> Any:
    """Returns what a rank returned, as the caller sees it: without history, with its own classes.

    Tensors keep their memory (nothing is copied), objects of classes that the caller defined come
    back as instances of the caller's class.
    """
    if isinstance(value, _PLAIN):
        return value
    if type(value) is torch.Tensor:
        return value.detach() if value.grad_fn is not None else value
    if type(value) in (tuple, list):
        return type(value)([carry_out(v, rank) for v in value])
    if type(value) is dict and all(isinstance(k, _PLAIN) for k in value):
        return {k: carry_out(v, rank) for k, v in value.items()}
    payload, slots = _dump_result(value, rank)
    return _Unpickler(payload, slots.__getitem__).load()


def pack_result(value: Any, rank: int) -> bytes:
    """Returns what a rank in a process of its own returned, as bytes for the caller."""
    return parcel.seal(*_dump_result(value, rank))


def _dump_result(value: Any, rank: int) -> tuple[bytes, list]:
    slots: list = []
    try:
        return _dump(value, slots, None, keep_grad=False), slots
    except Exception as error:
        raise UncopyableError(
            f"rank {rank} returned something ({type(value).__name__}) that can't leave its rank: "
            f"{_reason(error)}. Return tensors, numbers, or plain containers of them."
        ) from error


def caller_class(error: BaseException) -> BaseException:
    """Gives an exception of a rank's copied class the caller's class, so that `except` finds it."""
    tracker = _cp._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(type(error))
    original = _cp._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker) if tracker else None
    if original is not None and original is not type(error):
        with contextlib.suppress(TypeError):
            error.__class__ = original
    return error


def _dump(value: Any, slots: list, fn: Callable | None, *, keep_grad: bool = True) -> bytes:
    file = io.BytesIO()
    with _by_value(fn), _looking_submodules_up():
        _Pickler(file, slots, keep_grad).dump(value)
    return file.getvalue()


def _load_copy(payload: bytes, slots: list) -> Any:
    """Loads a payload with fresh storages, each copied once, and fresh classes."""
    copies: dict[int, Any] = {}

    def slot(index: int) -> Any:
        if index not in copies:
            copies[index] = _copy_slot(slots[index])
        return copies[index]

    with fresh_classes():
        return _Unpickler(payload, slot).load()


@contextlib.contextmanager
def _by_value(fn: Callable | None) -> Iterator[None]:
    """Pickles by value what stands in the module of `fn`, unless that is an installed library."""
    module = sys.modules.get(getattr(inspect.unwrap(_innermost(fn)), "__module__", None) or "")
    file = getattr(module, "__file__", None)
    own = file is not None and not file.startswith(_LIBRARY_DIRS) and not _is_ours(module)
    if not own or module.__name__ in _cp._PICKLE_BY_VALUE_MODULES:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


@contextlib.contextmanager
def _looking_submodules_up() -> Iterator[None]:
    _cp._find_imported_submodules = used_submodules
    try:
        yield
    finally:
        _cp._find_imported_submodules = search_submodules


search_submodules = _cp._find_imported_submodules


def used_submodules(code: CodeType, dependencies: Iterable[Any]) -> list:
    """Returns the loaded submodules whose names below a module are names in the code.

    The same modules as cloudpickle's own search finds (`search_submodules`).
    """
    found: list = []

    def look_below(prefix: str) -> None:
        for name in code.co_names:
            if (full := f"{prefix}.{name}") in sys.modules:
                found.append(sys.modules[full])
                look_below(full)

    for thing in dependencies:
        if isinstance(thing, ModuleType) and getattr(thing, "__package__", None):
            look_below(thing.__name__)
    return found


def _innermost(fn: Any) -> Any:
    while hasattr(fn, "func") and hasattr(fn, "keywords"):  # functools.partial
        fn = fn.func
    return fn


def _is_ours(module: Any) -> bool:
    return module.__name__.split(".")[0] == "distlab"


@contextlib.contextmanager
def fresh_classes() -> Iterator[None]:
    """Hides cloudpickle's memory of dynamic classes, so that loading makes new ones."""
    kept = _cp._DYNAMIC_CLASS_TRACKER_BY_ID
    _cp._DYNAMIC_CLASS_TRACKER_BY_ID = weakref.WeakValueDictionary()
    try:
        yield
    finally:
        _cp._DYNAMIC_CLASS_TRACKER_BY_ID = kept


def _size_bytes(slot: Any) -> int:
    if isinstance(slot, CodeType):
        return 0
    return slot.nbytes if isinstance(slot, np.ndarray) else slot.nbytes()


def _is_lazy(slot: Any) -> bool:
    return (
        isinstance(slot, torch.UntypedStorage)
        and slot.device.type == "cpu"
        and slot.nbytes() >= LAZY_BYTES
    )


def _copy_slot(slot: Any) -> Any:
    if isinstance(slot, CodeType):
        return slot
    if isinstance(slot, np.ndarray):
        return slot.copy(order="K")
    if _is_lazy(slot):
        whole = torch.empty(0, dtype=torch.uint8).set_(slot)
        return torch._lazy_clone(whole).untyped_storage()
    return slot.clone()


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__


def _uncopyable(fn: Callable, args: tuple, kwargs: dict, error: Exception) -> UncopyableError:
    """Finds the variable that can't be pickled, and names it."""
    name = getattr(_innermost(fn), "__name__", repr(fn))
    candidates = [(f"argument {i + 1} of {name}", value) for i, value in enumerate(args)]
    candidates += [(f"argument `{key}` of {name}", value) for key, value in kwargs.items()]
    candidates += _variables_of(_innermost(fn), name)
    for what, value in candidates:
        try:
            _dump(value, [], None)
        except Exception as cause:
            return UncopyableError(
                f"{what} ({type(value).__name__}) can't be copied: every rank gets its own copy, "
                f"as separate processes do, and Python says: {_reason(cause)}. "
                "Create it inside the function instead."
            )
    return UncopyableError(
        f"{name} can't be copied to the ranks ({type(error).__name__}: {_reason(error)}). Create "
        "what it uses (files, locks, generators) inside the function instead."
    )


def _variables_of(fn: Any, name: str, seen: frozenset = frozenset()) -> list[tuple[str, Any]]:
    """Lists the variables that a function uses from outside, those of its helpers first."""
    fn = getattr(fn, "__func__", fn)
    code = getattr(fn, "__code__", None)
    if code is None or fn in seen:
        return []
    seen = seen | {fn}
    found: list[tuple[str, Any]] = []
    with contextlib.suppress(ValueError):  # an empty cell
        cells = [c.cell_contents for c in fn.__closure__ or ()]
        found += list(zip(code.co_freevars, cells, strict=True))
    found += [(n, fn.__globals__[n]) for n in code.co_names if n in fn.__globals__]
    nested = [
        item
        for _, value in found
        if inspect.isfunction(value) and value.__module__ == fn.__module__
        for item in _variables_of(value, value.__name__, seen)
    ]
    return nested + [(f"variable `{n}` that {name} uses", value) for n, value in found]
