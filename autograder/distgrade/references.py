"""Reads, writes and checks the frozen references: one safetensors file beside each room.

The file holds the inputs and the right answer of every case, for seed 0. Its metadata hold the
trees, a checksum of all of it, and a fingerprint of what it was made from, so that a file that is
missing, changed by hand or out of date is an error and never a mark.
"""

import hashlib
import json
import struct

from distgrade.codec import CodecError, decode, encode
from distgrade.exercise import Exercise, GraderError

FROZEN_SEED = 0


class ReferenceFileError(GraderError):
    """The frozen references of an exercise are missing, damaged or out of date."""


def path(exercise: Exercise):
    """Return where the frozen references of an exercise lie."""
    return exercise.path.with_suffix(".safetensors")


def fingerprint(exercise: Exercise) -> str:
    """Return a hash of everything that the references depend on."""
    parts = [exercise.id, exercise.given_source, exercise.oracle_source]
    cases = exercise.frozen_cases
    parts += [repr((c.name, c.group, str(c.expects), sorted(c.params()))) for c in cases]
    parts += [repr(sorted(c.params().items())) for c in cases]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def expected(exercise: Exercise, index: int, seed: int):
    """Return the right answer of one case by the oracle, through the codec.

    Raises: GraderError if the oracle fails, or gives nothing that could tell right from wrong.
    """
    case = exercise.cases[index]
    if case.expects is not None:
        return {"raises": case.expects.__name__}
    try:
        tree = decode(*encode(exercise.oracle(case, exercise.given(case, seed))))
    except Exception as error:
        raise GraderError(
            f"{exercise.id}: the oracle failed on case {case.name!r} "
            f"({type(error).__name__}: {str(error)[:200]})."
        ) from error
    telling(exercise, case.name, tree)
    return tree


def telling(exercise: Exercise, case_name: str, tree) -> None:
    """Raise GraderError if a reference has no leaf, or nothing but zeros in its tensors."""
    import torch

    leaves = list(_leaves(tree))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not leaves or all(leaf is None for leaf in leaves):
        raise GraderError(f"{exercise.id}: the reference of case {case_name!r} is empty.")
    if tensors and not any(t.numel() and bool(t.any()) for t in tensors):
        raise GraderError(f"{exercise.id}: the reference of case {case_name!r} is all zeros.")


def telling_together(exercise: Exercise, trees) -> None:
    """Raise GraderError if the numbers in the right answers of all cases are nothing but zeros."""
    import torch

    numbers = [x for x in _leaves(list(trees)) if not isinstance(x, bool | str | None)]
    if numbers and not any(
        bool(x.any()) if isinstance(x, torch.Tensor) else bool(x) for x in numbers
    ):
        raise GraderError(f"{exercise.id}: the right answers of all cases are zeros.")


def _leaves(tree):
    if isinstance(tree, dict | list | tuple):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(branch)
    else:
        yield tree


def render(exercise: Exercise) -> bytes:
    """Return the bytes of the reference file, computed anew: the same bytes every time."""
    record = [
        {
            "case": case.name,
            "given": None if case.expects else exercise.given(case, FROZEN_SEED),
            "expected": expected(exercise, index, FROZEN_SEED),
        }
        for index, case in enumerate(exercise.frozen_cases)
    ]
    tree, data = encode(record)
    header, body = _split(data)
    text = json.dumps(tree)
    header["__metadata__"] = {
        "exercise": exercise.id,
        "made_from": fingerprint(exercise),
        "tree": text,
        "sha256": _checksum(text, header, body),
    }
    return _join(header, body)


def write(exercise: Exercise) -> bool:
    """Write the frozen references; return whether the file changed."""
    target, data = path(exercise), render(exercise)
    if target.exists() and target.read_bytes() == data:
        return False
    target.write_bytes(data)
    return True


def read(exercise: Exercise) -> list:
    """Return the frozen right answer of every case.

    Raises: ReferenceFileError for a file that is missing, damaged or out of date.
    """
    return [entry["expected"] for entry in read_all(exercise)]


def read_all(exercise: Exercise) -> list[dict]:
    """Return every case's entry: its name, its inputs, its right answer."""
    source = path(exercise)
    if not source.exists():
        raise ReferenceFileError(f"{exercise.id}: no frozen references; run `make refs`.")
    damaged = ReferenceFileError(f"{exercise.id}: the frozen references are damaged.")
    data = source.read_bytes()
    try:
        header, body = _split(data)
        about = header.pop("__metadata__")
        if about["sha256"] != _checksum(about["tree"], header, body):
            raise damaged
        record = decode(json.loads(about["tree"]), _join(header, body))
    except (CodecError, ValueError, KeyError, TypeError, struct.error) as error:
        raise damaged from error
    if about["exercise"] != exercise.id or about["made_from"] != fingerprint(exercise):
        raise ReferenceFileError(
            f"{exercise.id}: the frozen references are out of date; run `make refs`."
        )
    if [entry["case"] for entry in record] != [case.name for case in exercise.frozen_cases]:
        raise damaged
    for entry in record:
        telling(exercise, entry["case"], entry["expected"])
    return record


def _split(data: bytes) -> tuple[dict, bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _join(header: dict, body: bytes) -> bytes:
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def _checksum(tree: str, header: dict, body: bytes) -> str:
    contents = {k: v for k, v in header.items() if k != "__metadata__"}
    text = tree + json.dumps(contents, sort_keys=True)
    return hashlib.sha256(text.encode() + body).hexdigest()
