"""Compares what came back with the references, in the grader's own process, and gives a mark.

A verdict that can't be reached is a GraderError, never a pass.
"""

import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from distgrade import diagnose, references
from distgrade.compare import Symptom, compare, misformed, structure
from distgrade.engine import Observation, ObservedError, observe_here
from distgrade.exercise import Case, Exercise, GraderError

MAX_LINE = 300
# As the engines' reports quote a call; one that stands in a room's own text is not the student's.
PLACE = re.compile(r"^ *at (?!<lab\d\d\.).*?, (line \d+ in \S+: .*)")
INDENTED_PLACE = re.compile(r"^ *at .*, line \d+")
# Kinds of errors that are the harness's words, with what the student reads.
SAID = {
    "no-record": "nothing came back: the kernel ended, or the cell before this one failed.",
    "doubled": "more than one answer came back for one case.",
    "malformed": "what came back can't be read.",
    "grader": "the inputs can't be made: is a name of distlab or torch changed in this notebook?",
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
    for o in observations:
        if o.error is not None and o.error.kind == "grader":
            _set_up_here(exercise, o)
    whole = _not_an_answer(exercise, observations)
    if whole is not None:
        return whole
    failures, fresh = [], []
    for o in sorted(observations, key=lambda o: (o.case_index, seeds.index(o.seed))):
        expected, is_frozen = _expected(exercise, frozen, o)
        fresh += [] if is_frozen else [expected]
        symptoms = symptoms_of(exercise, o, expected)
        if symptoms:
            case = exercise.cases[o.case_index]
            failures.append(_Failure(case, o, tuple(symptoms), expected))
    references.telling_together(exercise, fresh)
    return _outcome(exercise, observations, failures, partial(_first, exercise, frozen))


def _expected(exercise: Exercise, frozen: Sequence, o: Observation) -> tuple[object, bool]:
    """Return the right answer of a case with a seed, and whether it is a frozen one."""
    if o.seed == references.FROZEN_SEED and o.case_index < len(frozen):
        return frozen[o.case_index], True
    return references.expected(exercise, o.case_index, o.seed), False


def _first(exercise: Exercise, frozen: Sequence, o: Observation) -> Symptom | None:
    """Return the first thing wrong with an observation, or None where its case passes."""
    return next(iter(symptoms_of(exercise, o, _expected(exercise, frozen, o)[0])), None)


def _set_up_here(exercise: Exercise, o: Observation) -> None:
    """Raise GraderError if a case that could not be set up there can't be set up here either.

    Where it can, names of distlab or torch were changed in the notebook, or somebody says so.
    """
    try:
        exercise.given(exercise.cases[o.case_index], o.seed)
        for dotted in exercise.forbid:
            pkgutil.resolve_name(dotted)
    except Exception as error:
        raise GraderError(f"{exercise.id}: a case could not be set up.") from error


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
    if kinds == {"NotImplementedError"}:
        found = re.search(r"in `([^`]+)`", errors[0].where)
        name = found[1] if found else exercise.names[0]
        return _zero(exercise, "not-written", f"`{_line(name)}` is not written yet.")
    for kind, status in (("missing", "missing"), ("wrong-type", "error"), ("forbidden", "error")):
        if kind in kinds:
            message = next(e.message for e in errors if e is not None and e.kind == kind)
            return _zero(exercise, status, _line(message))
    return None


def _zero(exercise: Exercise, status: str, message: str) -> Outcome:
    return Outcome(exercise.id, status, 0.0, float(exercise.points), message)


def symptoms_of(exercise: Exercise, o: Observation, expected) -> list[Symptom]:
    """Return what is wrong with one observation; nothing means that its case passes."""
    case = exercise.cases[o.case_index]
    if case.expects is not None:
        kinds = () if o.error is None else (o.error.kind, *o.error.kinds)
        if case.expects.__name__ in kinds:
            return []
        wants = f"no answer is right here, {case.expects.__name__} should be raised"
        came = "an answer came back" if o.error is None else _said(o.error)
        return [Symptom("error", _call(exercise), f"{wants}, and {came}")]
    if o.error is not None:
        return [Symptom("error", _call(exercise), _said(o.error), look=_advice(o.error))]
    n = getattr(case, "n", None)
    if exercise.judge is None:
        return compare(o.tree, expected, rtol=exercise.tolerance.rtol, n=n)
    wrong = structure(o.tree, expected, n=n)
    if wrong:
        return wrong
    try:
        symptoms = exercise.judge(o.tree, expected, case)
    except Exception as error:
        if _judges_a_right_answer(exercise, o, expected):  # so it trips over this one's form
            unlike = "an answer of a form that can't be judged"
            return misformed(o.tree, expected, n=n) or [Symptom("structure", "the answer", unlike)]
        raise GraderError(
            f"{exercise.id}: the judge failed on case {case.name!r} ({type(error).__name__})."
        ) from error
    if not isinstance(symptoms, list) or not all(isinstance(s, Symptom) for s in symptoms):
        raise GraderError(f"{exercise.id}: the judge of case {case.name!r} gave no verdict.")
    return symptoms


def _judges_a_right_answer(exercise: Exercise, o: Observation, expected) -> bool:
    """Return whether the judge is sound: it gives a verdict where a known right answer stands."""
    try:
        right = _right_observation(exercise, o.case_index, o.seed)
        verdict = exercise.judge(right.tree, expected, exercise.cases[o.case_index])
    except Exception:
        return False
    return right.error is None and isinstance(verdict, list)


@lru_cache(maxsize=2048)
def _right_observation(exercise: Exercise, case_index: int, seed: int) -> Observation:
    """Return what a known right answer gives in one case."""
    objects = exercise.also_right[0].objects()
    (right,) = observe_here(exercise, objects, (seed,), only=case_index)
    return right


def _call(exercise: Exercise) -> str:
    return "using " + " and ".join(f"`{name}`" for name in exercise.names)


def _said(error: ObservedError) -> str:
    """Return one line about an error: its kind, its message, the student's own line."""
    lines, where = error.message.strip().splitlines(), error.where
    head = lines[0].strip() if lines else ""
    if error.kind in SAID:
        return SAID[error.kind]
    if error.kind in ("timeout", "too-large"):
        return head
    if error.kind == "NotImplementedError":
        return f"not written yet{f' ({where})' if where else ''}"
    if "DistError" in error.kinds:  # the indented lines say what each rank waits for, and where
        places = [p[1] for line in lines[1:] if (p := PLACE.search(line))]
        where = where or (places[0] if places else "")
        waits = [
            line.strip()
            for line in lines[1:]
            if line[:1] == " " and not INDENTED_PLACE.search(line)
        ]
        head = f"{head} {'; '.join(waits)}".strip()
    kind = "NotImplementedError" if error.kind == "unimplemented" else error.kind
    text = _line(f"{kind}: {head}" if head else kind)
    if len(text) > 200:
        text = text[:199] + "…"
    return f"{text} ({where})" if where else text


def _advice(error: ObservedError) -> str:
    """Return the closing sentence of an engine's report, or ""."""
    lines = [line for line in error.message.splitlines() if line and line[0] != " "]
    return lines[-1] if "DistError" in error.kinds and len(lines) > 1 else ""


def _outcome(exercise: Exercise, observations: Sequence[Observation], failures, symptom) -> Outcome:
    lost = {f.case.group for f in failures}
    points = float(sum(p for group, p in exercise.credit.items() if group not in lost))
    most = float(exercise.points)
    if not failures:
        message = f"{points:g} of {most:g} points." if most else "passed (practice, no points)."
        return Outcome(exercise.id, "passed", points, most, message)
    first = failures[0]
    message = "\n".join((_asked(exercise, first), _line(_seen(first))))
    diagnosis = diagnose.known_wrong(exercise, observations, lost, symptom)
    diagnosis = diagnosis or _diagnosis(exercise, failures)
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
    return f"Seen: {text}" if text.endswith((".", ")", "…")) else f"Seen: {text}."


def _diagnosis(exercise: Exercise, failures) -> str:
    """Return what the failures have in common, as one sentence, or ""."""
    if failures[0].symptoms[0].look:  # of the case that is shown, not of another one
        return failures[0].symptoms[0].look
    compared = [
        (f.case, f.symptoms[0], f.observation.tree, f.expected)
        for f in failures
        if f.observation.error is None and f.case.expects is None
    ]
    return diagnose.common_sentence(compared, exercise.tolerance.rtol)


def _line(text: str) -> str:
    """Return a text as one bounded line without control characters."""
    text = " ".join(text.split())
    text = "".join(c for c in text if c.isprintable())
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"
