"""Compares what came back with the references, in the grader's own process, and gives a mark.

A verdict that can't be reached is a GraderError, never a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from distgrade import diagnose, references
from distgrade.compare import Symptom, compare, structure
from distgrade.engine import Observation, ObservedError
from distgrade.exercise import Case, Exercise, GraderError

MAX_LINE = 300
# Kinds of errors that are the harness's words, with what the student reads.
SAID = {
    "no-record": "nothing came back: the kernel ended, or the cell before this one failed.",
    "doubled": "more than one answer came back for one case.",
    "malformed": "what came back can't be read.",
}


@dataclass(frozen=True)
class Outcome:
    """The mark of one exercise, with its reason.

    `status` is one of passed, partial, failed, not-written, error, timeout, missing.
    `message` says what was asked and what was seen; `diagnosis` where to look, or "".
    """

    id: str
    status: str
    points: float
    max_points: float
    message: str
    diagnosis: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The calm lines, three at most."""
        return tuple((self.message + "\n" + self.diagnosis).strip().splitlines()[:3])


@dataclass(frozen=True)
class _Failure:
    """A case that did not pass with one seed."""

    case: Case
    observation: Observation
    symptoms: tuple[Symptom, ...]
    expected: object


def grade(exercise: Exercise, observations: Sequence[Observation]) -> Outcome:
    """Return the mark that these observations earn.

    Raises: GraderError where no verdict can be reached: references missing or damaged, an oracle or
    judge that fails, observations that do not cover every case once per seed.
    """
    seeds = _seeds(exercise, observations)
    frozen = references.read(exercise)
    if any(o.error is not None and o.error.kind == "grader" for o in observations):
        raise GraderError(f"{exercise.id}: a case could not be set up.")
    whole = _not_an_answer(exercise, observations)
    if whole is not None:
        return whole
    failures = []
    for o in sorted(observations, key=lambda o: (o.case_index, seeds.index(o.seed))):
        is_frozen = o.seed == references.FROZEN_SEED
        expected = (
            frozen[o.case_index]
            if is_frozen
            else references.expected(exercise, o.case_index, o.seed)
        )
        case = exercise.cases[o.case_index]
        symptoms = _symptoms(exercise, case, o, expected)
        if symptoms:
            failures.append(_Failure(case, o, tuple(symptoms), expected))
    return _outcome(exercise, observations, failures)


def _seeds(exercise: Exercise, observations: Sequence[Observation]) -> list[int]:
    """Return the seeds, the frozen one first, once every case is there exactly once for each."""
    seeds = sorted({o.seed for o in observations}, key=lambda s: (s != references.FROZEN_SEED, s))
    if not seeds or seeds[0] != references.FROZEN_SEED or not exercise.cases:
        raise GraderError(f"{exercise.id}: there are no observations of the frozen cases.")
    seen = sorted((o.case_index, o.seed) for o in observations)
    wanted = sorted((index, seed) for index in range(len(exercise.cases)) for seed in seeds)
    if seen != wanted:
        raise GraderError(f"{exercise.id}: the observations do not cover every case exactly once.")
    return seeds


def _not_an_answer(exercise: Exercise, observations: Sequence[Observation]) -> Outcome | None:
    """Return the outcome where there is no answer to compare: untouched, missing, forbidden."""
    errors = [o.error for o in observations]
    kinds = {None if e is None else e.kind for e in errors}
    names = " and ".join(f"`{name}`" for name in exercise.names)
    if kinds == {"NotImplementedError"}:
        verb = "are" if len(exercise.names) > 1 else "is"
        return _zero(exercise, "not-written", f"{names} {verb} not written yet.")
    for kind, status in (("missing", "missing"), ("wrong-type", "error"), ("forbidden", "error")):
        if kind in kinds:
            message = next(e.message for e in errors if e is not None and e.kind == kind)
            return _zero(exercise, status, _line(message))
    return None


def _zero(exercise: Exercise, status: str, message: str) -> Outcome:
    return Outcome(exercise.id, status, 0.0, float(exercise.points), message)


def _symptoms(exercise: Exercise, case: Case, o: Observation, expected) -> list[Symptom]:
    if case.expects is not None:
        kinds = () if o.error is None else (o.error.kind, *o.error.kinds)
        if case.expects.__name__ in kinds:
            return []
        wants = f"a size without meaning should raise {case.expects.__name__}"
        if o.error is None:
            return [Symptom("error", "the call", f"{wants}, and an answer came back")]
        return [Symptom("error", "the call", f"{wants}, and {_said(o.error)}")]
    if o.error is not None:
        return [Symptom("error", "the call", _said(o.error))]
    n = getattr(case, "n", None)
    if exercise.judge is None:
        return compare(o.tree, expected, rtol=exercise.tolerance.rtol, n=n)
    wrong = structure(o.tree, expected, n=n)
    if wrong:
        return wrong
    try:
        symptoms = exercise.judge(o.tree, expected, case)
    except Exception as error:
        raise GraderError(
            f"{exercise.id}: the judge failed on case {case.name!r} ({type(error).__name__})."
        ) from error
    if not isinstance(symptoms, list) or not all(isinstance(s, Symptom) for s in symptoms):
        raise GraderError(f"{exercise.id}: the judge of case {case.name!r} gave no verdict.")
    return symptoms


def _said(error: ObservedError) -> str:
    """Return one line about an error: its kind, its first line, the student's own line."""
    head = error.message.strip().partition("\n")[0].strip()
    if error.kind in SAID:
        return SAID[error.kind]
    if error.kind in ("timeout", "too-large"):
        return head
    if error.kind == "NotImplementedError":
        return f"not written yet{f' ({error.where})' if error.where else ''}"
    kind = "NotImplementedError" if error.kind == "unimplemented" else error.kind
    text = f"{kind}: {head}" if head else kind
    return f"{_line(text)[:180]} ({error.where})" if error.where else text


def _outcome(exercise: Exercise, observations: Sequence[Observation], failures) -> Outcome:
    lost = {f.case.group for f in failures}
    points = float(sum(p for group, p in exercise.credit.items() if group not in lost))
    most = float(exercise.points)
    if not failures:
        return Outcome(exercise.id, "passed", points, most, f"{points:g} of {most:g} points.")
    first = failures[0]
    message = "\n".join((_asked(exercise, first), _line(_seen(first))))
    diagnosis = diagnose.known_wrong(exercise, observations) or _diagnosis(exercise, failures)
    status = "partial" if points else _status(failures)
    return Outcome(exercise.id, status, points, most, message, _line(diagnosis))


def _status(failures) -> str:
    errors = [f.observation.error for f in failures]
    if any(e is not None and e.kind == "timeout" for e in errors):
        return "timeout"
    return "error" if errors[0] is not None and failures[0].case.expects is None else "failed"


def _asked(exercise: Exercise, failure: _Failure) -> str:
    return _line(f"Case “{failure.case.name}” ({failure.case.group}): {failure.symptoms[0].what}.")


def _seen(failure: _Failure) -> str:
    text = failure.symptoms[0].seen
    return f"Seen: {text}" if text.endswith((".", ")")) else f"Seen: {text}."


def _diagnosis(exercise: Exercise, failures) -> str:
    for failure in failures:
        if failure.observation.error is None:
            sentence = diagnose.symptom_sentence(
                failure.case,
                failure.symptoms,
                failure.observation.tree,
                failure.expected,
                exercise.tolerance.rtol,
            )
            if sentence:
                return sentence
    return ""


def _line(text: str) -> str:
    """Return a text as one bounded line without control characters."""
    text = " ".join(text.split())
    text = "".join(c for c in text if c.isprintable())
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"
