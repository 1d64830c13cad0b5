"""Compares two trees leaf by leaf: shape, then dtype, device, finiteness, values."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch

from distgrade.codec import Elsewhere, Other

NOT_FINITE = "not a finite number"


@dataclass(frozen=True)
class Symptom:
    """One thing that is not as it should be.

    `what` names the leaf ("y on rank 2"), `seen` says what was seen there, without the right value.
    """

    kind: str  # structure, shape, dtype, device, finite, values, cost, error
    what: str
    seen: str
    look: str = ""


@dataclass(frozen=True)
class Pair:
    """A leaf of two trees of one structure."""

    path: tuple
    got: object
    expected: object


def compare(got, expected, *, rtol: float, n: int | None = None, path: tuple = ()) -> list[Symptom]:
    """Return what differs between two trees, in the order of the tree.

    `rtol` is relative to the largest expected value of a leaf. `n` is the world size: a list of n
    entries is read as one entry per rank.
    """
    wrong = structure(got, expected, n=n, path=path)
    if wrong:
        return wrong
    leaves = pairs(got, expected, path)
    return [s for leaf in leaves if (s := compare_leaf(leaf, rtol=rtol, n=n)) is not None]


def equal(got, expected, *, rtol: float) -> bool:
    """Return whether `compare` finds nothing; ends at the first difference."""
    if structure(got, expected):
        return False
    return all(compare_leaf(leaf, rtol=rtol) is None for leaf in pairs(got, expected))


def structure(got, expected, *, n: int | None = None, path: tuple = ()) -> list[Symptom]:
    """Return where the branches of two trees differ: lengths, keys, a leaf for a branch."""
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return [_kinds(path, got, expected, n)]
        if set(got) != set(expected):
            keys = ", ".join(sorted(map(str, set(got) ^ set(expected)))[:4])
            return [Symptom("structure", name(path, n), f"keys missing or not asked for: {keys}")]
        return [s for k in expected for s in structure(got[k], expected[k], n=n, path=(*path, k))]
    if isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple):
            return [_kinds(path, got, expected, n)]
        if len(got) != len(expected):
            seen = f"{len(got)} entries where {len(expected)} are expected"
            return [Symptom("structure", name(path, n), seen)]
        both = enumerate(zip(got, expected, strict=True))
        return [s for i, (g, e) in both for s in structure(g, e, n=n, path=(*path, i))]
    if isinstance(got, dict | list | tuple):
        return [_kinds(path, got, expected, n)]
    return []


def misformed(got, expected, *, n: int | None = None) -> list[Symptom]:
    """Return where an answer's leaves differ in form, whatever their values: types, not finite."""
    found = compare(got, expected, rtol=0.0, n=n)
    return [s for s in found if s.kind != "values" or s.seen == NOT_FINITE]


def pairs(got, expected, path: tuple = ()) -> Iterator[Pair]:
    """Yield the leaves of two trees of one structure."""
    if isinstance(expected, dict):
        for key in expected:
            yield from pairs(got[key], expected[key], (*path, key))
    elif isinstance(expected, list | tuple):
        for i, (g, e) in enumerate(zip(got, expected, strict=True)):
            yield from pairs(g, e, (*path, i))
    else:
        yield Pair(path, got, expected)


def name(path: tuple, n: int | None) -> str:
    """Return a leaf's name: `name(("y", 2), 4) == "y on rank 2"`."""
    keys = [p for p in path if isinstance(p, str)]
    numbers = [p for p in path if not isinstance(p, str)]
    rank = numbers.pop(0) if numbers and n is not None else None
    text = ", ".join(keys) or "the answer"
    text += "".join(f"[{i}]" for i in numbers)
    return text if rank is None else f"{text} on rank {rank}"


def kind_of(value) -> str:
    """Return in words what a value is, without its value."""
    if isinstance(value, torch.Tensor | Elsewhere):
        return "a tensor"
    if isinstance(value, np.ndarray):
        return "a numpy array"
    if isinstance(value, Other):
        return f"an object of type {value.name}"
    if value is None:
        return "None"
    words = {bool: "a truth value", int: "a whole number", float: "a float", str: "a text"}
    return words.get(type(value), f"a {type(value).__name__.lower()}")


def _kinds(path: tuple, got, expected, n: int | None) -> Symptom:
    return Symptom(
        "structure", name(path, n), f"{kind_of(got)} where {kind_of(expected)} is expected"
    )


def compare_leaf(leaf: Pair, *, rtol: float, n: int | None = None) -> Symptom | None:
    """Return the first thing wrong with a leaf, or None."""
    got, expected = leaf.got, leaf.expected
    if isinstance(expected, torch.Tensor | np.ndarray):
        if isinstance(got, Elsewhere) and isinstance(expected, torch.Tensor):
            if got.shape == tuple(expected.shape) and got.dtype == str(expected.dtype):
                return Symptom(
                    "device", name(leaf.path, n), f"a tensor on {got.device}, not on cpu"
                )
        elif type(got) is not type(expected):
            return _kinds(leaf.path, got, expected, n)
        return _compare_arrays(leaf, rtol, n)
    if isinstance(expected, bool | str | None):
        same = type(got) is type(expected) and got == expected
    elif isinstance(expected, int | float | Fraction):
        got = _number(got)
        allowed = {int: (int,), Fraction: (int, Fraction), float: (int, float, Fraction)}
        if type(got) not in allowed[type(expected)]:
            return _kinds(leaf.path, leaf.got, expected, n)
        same = _close(got, expected, rtol)
        if not same:
            return Symptom("values", name(leaf.path, n), _number_seen(got, expected))
    else:
        raise TypeError(f"a reference can't hold {type(expected).__name__}")
    if same:
        return None
    if type(got) is not type(expected):
        return _kinds(leaf.path, got, expected, n)
    if isinstance(got, bool):
        seen = "yes, where no is right" if got else "no, where yes is right"
        return Symptom("values", name(leaf.path, n), seen)
    return Symptom("values", name(leaf.path, n), f"{kind_of(got)} that is not the right one")


def told_as_changed(symptoms: list[Symptom]) -> list[Symptom]:
    """Return the symptoms; those of a leaf named "... afterwards" tell of a changed input."""
    return [
        replace(
            s,
            seen="this input was changed",
            look="Leave the inputs as they are: write results into a new tensor.",
        )
        if s.kind == "values" and " afterwards" in s.what
        else s
        for s in symptoms
    ]


def ceiling(got: list, expected: list, what: str) -> list[Symptom]:
    """Return where a rank spent more than its ceiling; what it needs is told as a ratio only."""
    symptoms = []
    for rank, (spent, most) in enumerate(zip(got, expected, strict=True)):
        where = name((what, rank), len(expected))
        if type(spent) not in (int, Fraction):
            symptoms.append(_kinds((what, rank), spent, most, len(expected)))
        elif spent > most and most:
            ratio = float(min(Fraction(spent) / Fraction(most), Fraction(10**9)))  # may be huge
            seen = f"{ratio:.3g} times the bytes that are needed"
            symptoms.append(Symptom("cost", where, seen))
        elif spent > most:
            symptoms.append(Symptom("cost", where, "bytes sent where none are needed"))
    return symptoms


def _number(value):
    """Return a numpy or 0-d scalar as the Python number it stands for."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    return value


def _close(got, expected, rtol: float) -> bool:
    if isinstance(got, float) and not math.isfinite(got):
        return isinstance(expected, float) and got == expected
    if isinstance(expected, float) and not math.isfinite(expected):
        return got == expected
    return abs(Fraction(got) - Fraction(expected)) <= Fraction(rtol) * abs(Fraction(expected))


def _number_seen(got, expected) -> str:
    if isinstance(got, float) and not math.isfinite(got):
        return NOT_FINITE
    if expected and got:
        ratio = Fraction(got) / Fraction(expected) if math.isfinite(expected) else None
        if ratio is not None and abs(ratio) < 10**9:
            times = f"{float(ratio):.6g}"
            off = f"off by {float(abs(ratio - 1)):.3g} of the right value"
            return off if times == "1" else f"{times} times the right value"
    return f"{kind_of(got)} that is not the right one"


def _compare_arrays(leaf: Pair, rtol: float, n: int | None) -> Symptom | None:
    got, expected, what = leaf.got, leaf.expected, name(leaf.path, n)
    if tuple(got.shape) != tuple(expected.shape):
        shapes = f"shape {tuple(got.shape)} where {tuple(expected.shape)} is expected"
        return Symptom("shape", what, shapes)
    if isinstance(got, Elsewhere) or got.dtype != expected.dtype:
        dtypes = f"dtype {_dtype(got)} where {_dtype(expected)} is expected"
        return Symptom("dtype", what, dtypes)
    got, expected = as_double(got), as_double(expected)
    if torch.equal(got, expected):  # as most are, and quickly told
        return None
    bad = ~torch.isfinite(got) & torch.isfinite(expected)
    if bad.any():
        return Symptom("finite", what, f"not a finite number at {first_index(bad)}")
    differs = differing(got, expected, rtol)
    if not differs.any():
        return None
    count, total = int(differs.sum()), differs.numel()
    scale = ratio_of(got, expected)
    if scale is not None and f"{scale:.6g}" != "1":
        return Symptom("values", what, f"every value is {scale:.6g} times the right one")
    largest = expected.abs().max().item()
    far = (got - expected).abs().max().item()
    share = f"{far / largest:.3g} of the" if largest and math.isfinite(far) else ""
    if total == 1:
        seen = f"off by {share} right value" if share else "not the right value"
        return Symptom("values", what, seen)
    some = "every value differs" if count == total else f"{count} of {total} values differ"
    seen = f"{some}, the first at {first_index(differs)}"
    if share:
        seen += f"; the largest difference is {share} largest right value"
    return Symptom("values", what, seen)


def _dtype(value) -> str:
    return str(value.dtype).removeprefix("torch.")


def as_double(value) -> torch.Tensor:
    """Return a tensor or array in double precision; whole numbers and truth values stay exact."""
    tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor).double()
    return tensor if tensor.dtype == torch.int64 else tensor.double()


def differing(got: torch.Tensor, expected: torch.Tensor, rtol: float) -> torch.Tensor:
    """Return where two tensors differ by more than `rtol` of the largest finite expected value."""
    if got.dtype == torch.int64 or rtol == 0 or not expected.numel():
        return (got != expected) & ~(torch.isnan(got) & torch.isnan(expected))
    finite = expected[torch.isfinite(expected)]
    limit = rtol * (finite.abs().max().item() if finite.numel() else 0.0)
    same = (got == expected) | ((got - expected).abs() <= limit)
    return ~(same | (torch.isnan(got) & torch.isnan(expected)))


def first_index(mask: torch.Tensor) -> list[int]:
    """Return the first index at which a mask holds."""
    return mask.nonzero()[0].tolist() if mask.dim() else []


def ratio_of(got: torch.Tensor, expected: torch.Tensor) -> float | None:
    """Return r if got = r · expected throughout, r neither 0 nor 1; None otherwise."""
    if not expected.numel() or got.dtype == torch.int64 or got.shape != expected.shape:
        return None
    at = expected.abs().argmax()
    top = expected.reshape(-1)[at].item()
    ratio = got.reshape(-1)[at].item() / top if top else 0.0
    if not ratio or not math.isfinite(ratio) or expected.numel() < 2:
        return None
    return None if differing(got, ratio * expected, 1e-11).any() else ratio
