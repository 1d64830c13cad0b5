"""From symptom to one sentence: the known wrong answers first, then patterns found in the data."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch

from distgrade.compare import Pair, Symptom, as_double, differing, equal, pairs, ratio_of
from distgrade.engine import Observation, ObservedError, observe_here
from distgrade.exercise import Case, Exercise
from distgrade.references import FROZEN_SEED

ROUNDING = 1e-9  # of the largest value: as far as two ways to make one mistake may round apart
HEAD = 40  # characters of an error message that tell what it is about


def known_wrong(
    exercise: Exercise, observations: Sequence[Observation], lost: set[str], symptom: Callable
) -> str:
    """Return the sentence of the wrong answer that gives these very observations, or "".

    Where none does, of one that fails just so (`same_failure`); `symptom` gives an observation's
    first symptom, or None. `lost` are the groups that failed. If others than MEASURED are among
    them, the measured ones may differ: what is measured there depends on how an answer is written.
    """
    measured = set(exercise.measured)
    frozen = {o.case_index: o for o in observations if o.seed == FROZEN_SEED}
    spares = [set(), measured] if measured and lost - measured else [set()]
    for alike in (same_observation, partial(same_failure, symptom=symptom)):
        for spare in spares:
            for sentence, theirs in wrong_observations(exercise):
                theirs = [o for o in theirs if exercise.cases[o.case_index].group not in spare]
                pairs_of_both = ((frozen.get(other.case_index), other) for other in theirs)
                if all(alike(exercise, one, other) for one, other in pairs_of_both):
                    return sentence
    return ""


@lru_cache(maxsize=512)  # all rooms of a course, with room to spare
def wrong_observations(exercise: Exercise) -> tuple[tuple[str, tuple[Observation, ...]], ...]:
    """Return (sentence, observations on the frozen cases) of every known wrong answer."""
    return tuple(
        (answer.sentence, tuple(observe_here(exercise, answer.objects())))
        for answer in exercise.wrong
    )


def same_observation(exercise: Exercise, one: Observation | None, other: Observation) -> bool:
    """Say whether two observations are the same answer: equal trees, or the same error."""
    if one is None or (one.error is None) != (other.error is None):
        return False
    case = exercise.cases[one.case_index]
    if one.error is not None:
        # Where an error is asked for, any text is right: only the kind counts.
        asked = case.expects.__name__ if case.expects else None
        right = [asked in (e.kind, *e.kinds) for e in (one.error, other.error)]
        return all(right) or _same_error(one.error, other.error)
    return _equal(one.tree, other.tree, exercise.tolerance.rtol)


def same_failure(
    exercise: Exercise, one: Observation | None, other: Observation, symptom: Callable
) -> bool:
    """Say whether two observations pass, or fail alike: the same values of what is told of them.

    What is not told of may differ: bytes that a case doesn't count, how sums were rounded.
    """
    if one is None:
        return False
    mine, theirs = symptom(one), symptom(other)
    if mine is None or theirs is None:
        return mine is theirs
    if one.error is not None or other.error is not None:
        return same_observation(exercise, one, other)
    key = _subject(mine)
    trees = [
        tree[key] if isinstance(tree, dict) and key in tree else tree
        for tree in (one.tree, other.tree)
    ]
    return _subject(theirs) == key and _equal(*trees, max(exercise.tolerance.rtol, ROUNDING))


def _equal(one, other, rtol: float) -> bool:
    try:
        return equal(one, other, rtol=rtol)
    except TypeError:  # a leaf that no reference can hold, such as a foreign object
        return False


def _same_error(one: ObservedError, other: ObservedError) -> bool:
    heads = [(e.kind, e.message.partition("\n")[0][:HEAD]) for e in (one, other)]
    return heads[0] == heads[1]


def common_sentence(failures: Sequence[tuple[Case, Symptom, object, object]], rtol: float) -> str:
    """Return a sentence for a pattern that truly holds in every failure, or "".

    A failure is (case, its first symptom, the answer's tree, the expected tree).
    """
    common: list[str] | None = None
    for case, symptom, got, expected in failures:
        found = patterns(symptom, got, expected, getattr(case, "n", None), rtol)
        common = found if common is None else [s for s in common if s in found]
    return common[0] if common else ""


def patterns(symptom: Symptom, got, expected, n: int | None, rtol: float) -> list[str]:
    """Return every sentence that is true of the tensors under a symptom's name."""
    try:
        leaves = [p for p in pairs(got, expected) if p.path and _key(p) == _subject(symptom)]
    except (TypeError, KeyError, ValueError):
        return []
    if not leaves or not all(map(_tensor_pair, leaves)):
        return []
    return [sentence for pattern in PATTERNS for sentence in pattern(leaves, n, rtol)]


def _subject(symptom: Symptom) -> str:
    return symptom.what.partition(" on rank ")[0].partition("[")[0]


def _tensor_pair(leaf: Pair) -> bool:
    return isinstance(leaf.got, torch.Tensor) and isinstance(leaf.expected, torch.Tensor)


def _key(leaf: Pair) -> str:
    return ", ".join(p for p in leaf.path if isinstance(p, str))


def _doubles(leaf: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    return as_double(leaf.got), as_double(leaf.expected)


def _is_right(leaf: Pair, rtol: float) -> bool:
    got, expected = _doubles(leaf)
    return got.shape == expected.shape and not differing(got, expected, rtol).any()


def _bad(leaves: list[Pair], rtol: float) -> list[Pair]:
    return [leaf for leaf in leaves if not _is_right(leaf, rtol)]


def _transposed(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    def turned(leaf: Pair) -> bool:
        got, expected = _doubles(leaf)
        if got.dim() < 2 or got.mT.shape != expected.shape:
            return False
        return not differing(got.mT, expected, rtol).any()

    bad = _bad(leaves, rtol)
    if bad and all(map(turned, bad)):
        return ["The values are right but transposed: the last two dims are swapped."]
    return []


def _single_precision(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    for leaf in (bad := _bad(leaves, rtol)):
        if leaf.got.dtype != torch.float64 or leaf.got.shape != leaf.expected.shape:
            return []
        far = (leaf.got - leaf.expected).abs().max().item()
        if not ROUNDING < far / (leaf.expected.abs().max().item() or 1.0) < 1e-6:
            return []
    return ["Right to seven digits or so: something on the way is float32."] if bad else []


def _scaled(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    ratios = {ratio_of(*_doubles(leaf)) for leaf in _bad(leaves, rtol)}
    if None in ratios or len({round(r, 9) for r in ratios}) != 1:
        return []
    ratio = ratios.pop()
    if f"{ratio:.6g}" == "1":
        return []
    sentences = {
        n: "Too large by exactly the world size: something counts once per rank.",
        n and 1 / n: "Too small by exactly the world size: a mean in place of a sum?",
        n and n * n: "Too large by the world size squared: a sum over ranks is taken twice.",
        -1: "The values are right but for their sign.",
    }
    found = [
        sentence
        for factor, sentence in sentences.items()
        if factor is not None and factor != 1 and math.isclose(ratio, factor, rel_tol=1e-9)
    ]
    whatever = ", whatever the number of ranks" if n else ""
    return [*found, f"Every value is multiplied by {ratio:.6g}{whatever}."]


def _zeros(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    bad = _bad(leaves, rtol)
    if bad and all(not leaf.got.any() and leaf.expected.any() for leaf in bad):
        return ["Nothing but zeros arrived here: a value or its gradient was lost on the way."]
    return []


def _one_per_rank(leaves: list[Pair], n: int | None) -> bool:
    return (
        n is not None
        and n > 1
        and len(leaves) == n
        and all(isinstance(leaf.path[-1], int) for leaf in leaves)
    )


def _not_reduced(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    if not _one_per_rank(leaves, n) or len({leaf.got.shape for leaf in leaves}) != 1:
        return []
    total = sum(_doubles(leaf)[0] for leaf in leaves)
    slack = max(rtol, 1e-12)
    for leaf in leaves:
        expected = _doubles(leaf)[1]
        if total.shape != expected.shape or differing(total, expected, slack).any():
            return []
    if not _bad(leaves, slack):
        return []
    return ["Each rank holds one part, and the parts add up to the right answer: sum over ranks."]


def _other_ranks_values(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    if not _one_per_rank(leaves, n):
        return []
    owners = []
    for leaf in leaves:
        found = [s for s, e in enumerate(leaves) if _is_right(Pair((), leaf.got, e.expected), rtol)]
        owners.append(found[0] if len(found) == 1 else -1)
    if sorted(owners) == list(range(n)) and owners != list(range(n)):
        return ["The right values on the wrong ranks: look at the order of the ranks."]
    return []


def _one_rank_only(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    if not _one_per_rank(leaves, n):
        return []
    right = [_is_right(leaf, rtol) for leaf in leaves]
    found = []
    if sum(right) == n - 1:
        rank = right.index(False)
        if rank == n - 1:
            found.append("Wrong on the last rank only: what is special about that rank?")
        found.append(f"Wrong on rank {rank} only: what is special about that rank?")
    if sum(right) == 1:
        rank = right.index(True)
        found.append(f"Right on rank {rank} only: the other ranks need the same treatment.")
    return found


def _tail(leaves: list[Pair], n: int | None, rtol: float) -> list[str]:
    bad = _bad(leaves, rtol)
    if n is None or n < 2 or not bad:
        return []
    for leaf in bad:
        got, expected = _doubles(leaf)
        if got.shape != expected.shape or got.numel() < 2 * n or got.numel() % n == 0:
            return []
        wrong = differing(got, expected, rtol).reshape(-1)
        if wrong[: got.numel() - got.numel() % n].any():
            return []
    return ["Only what is left over after equal parts is wrong: the ranks do not divide the size."]


PATTERNS = (
    _transposed,
    _single_precision,
    _scaled,
    _zeros,
    _not_reduced,
    _other_ranks_values,
    _one_rank_only,
    _tail,
)
