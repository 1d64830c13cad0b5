"""Runs an exercise's cases against a student's objects: in any kernel, or in this process."""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from distgrade import codec
from distgrade.codec import MAX_BYTES, CodecError, decode
from distgrade.exercise import Exercise

MIME = "application/vnd.distgrade+json"
MAX_MESSAGE = 4_000
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class ObservedError:
    """What stopped a case: a kind (`ValueError`, `missing`, `forbidden`, `timeout`) and where."""

    kind: str
    message: str = ""
    where: str = ""
    kinds: tuple[str, ...] = ()  # the names of the exception's classes, its bases included


@dataclass(frozen=True)
class Observation:
    """What one case gave with one seed: a tree of raw answers, or an error."""

    case_index: int
    seed: int
    tree: object = None
    error: ObservedError | None = None


def harness_source(exercise: Exercise, seeds: Sequence[int], nonce: str) -> str:
    """Return the text of a cell that runs every case in the kernel that holds the student's names.

    It needs no distgrade there, leaves no name behind, and publishes one record per (case, seed).
    """
    payload = json.dumps(_payload(exercise, seeds, nonce) | {"codec": _text_of("codec")})
    boot = _text_of("harness")
    return (
        f"exec(compile({boot!r}, '<distgrade harness>', 'exec'), "
        f"{{'__name__': '__main__', 'PAYLOAD': {payload!r}, 'SPACE': globals()}})"
    )


def _payload(exercise: Exercise, seeds: Sequence[int], nonce: str, only: int | None = None) -> dict:
    return {
        "nonce": nonce,
        "mime": MIME,
        "exercise": exercise.id,
        "names": list(exercise.names),
        "forbid": list(exercise.forbid),
        "only": only,
        "cases": [
            repr(case.params()) if only in (None, index) else ""
            for index, case in enumerate(exercise.cases)
        ],
        "seeds": [int(seed) for seed in seeds],
        "given": exercise.given_source,
        "observe": exercise.observe_source,
    }


@cache
def _text_of(module: str) -> str:
    return (_HERE / f"{module}.py").read_text(encoding="utf-8")


def observe_here(
    exercise: Exercise, objects: Sequence, seeds: Sequence[int] = (0,), only: int | None = None
) -> list[Observation]:
    """Run every case in this process and return what was observed, through the same wall.

    `only` is the index of the one case to run. Raises: KeyboardInterrupt if the user interrupts.
    """
    if len(objects) != len(exercise.names):
        raise ValueError(f"{exercise.id} is about {', '.join(exercise.names)}, in this order.")
    records, interrupted = [], []
    _harness()["main"](
        json.loads(json.dumps(_payload(exercise, seeds, "here", only))),
        dict(zip(exercise.names, objects, strict=True)),
        lambda data: records.append(json.loads(json.dumps(data))),
        interrupted.append,
    )
    if interrupted:
        raise KeyboardInterrupt
    return parse_records(exercise, seeds, "here", records, only)


@cache
def _harness() -> dict:
    """Return the namespace of the shipped half, run once: it keeps nothing of what it observes."""
    space = {"__name__": "__main__", "CODEC": vars(codec)}
    exec(compile(_text_of("harness"), "<distgrade harness>", "exec"), space)
    return space


def parse_records(
    exercise: Exercise,
    seeds: Sequence[int],
    nonce: str,
    messages: Iterable[dict],
    only: int | None = None,
) -> list[Observation]:
    """Return exactly one observation per (case, seed) from published mime bundles.

    A message is a mime bundle (`{MIME: record}`). Records of another nonce or exercise are ignored;
    a record that is missing, doubled or malformed becomes an error of its case, never a pass.
    """
    found: dict[tuple[int, int], list] = {}
    for message in messages:
        record = message.get(MIME) if isinstance(message, dict) else None
        if not isinstance(record, dict) or record.get("nonce") != nonce:
            continue
        key = (record.get("case"), record.get("seed"))
        if record.get("exercise") == exercise.id and all(type(k) is int for k in key):
            found.setdefault(key, []).append(record)
    return [
        _observation(index, int(seed), found.get((index, int(seed)), []))
        for index in range(len(exercise.cases))
        if only in (None, index)
        for seed in seeds
    ]


def _observation(index: int, seed: int, records: list[dict]) -> Observation:
    if not records:
        return _failed(index, seed, "no-record", "Nothing came back from this case.")
    if len(records) > 1:
        return _failed(index, seed, "doubled", "More than one record came back from this case.")
    (record,) = records
    try:
        if "error" in record:
            return Observation(index, seed, error=_error(record["error"]))
        text = record["b64"]
        if type(text) is not str or len(text) > 3 * MAX_BYTES:
            raise CodecError("The record's tensor part is too large.")
        data = base64.b64decode(text, validate=True)
        return Observation(index, seed, tree=decode(record["tree"], data))
    except (CodecError, KeyError, TypeError, binascii.Error, ValueError):
        return _failed(index, seed, "malformed", "What came back from this case can't be read.")


def _failed(index: int, seed: int, kind: str, message: str) -> Observation:
    return Observation(index, seed, error=ObservedError(kind, message))


def _error(body: dict) -> ObservedError:
    if not isinstance(body, dict):
        raise CodecError("An error of the record is malformed.")
    texts = [body.get(key, "") for key in ("kind", "message", "where")]
    kinds = body.get("kinds", [])
    if not all(type(t) is str for t in [*texts, *kinds]) or not texts[0]:
        raise CodecError("An error of the record is malformed.")
    kind, message, where = (text[:MAX_MESSAGE] for text in texts)
    return ObservedError(kind[:100], message, where[:500], tuple(k[:100] for k in kinds[:20]))
