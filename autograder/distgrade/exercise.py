"""The contract of one exercise: what a room file under `labs/` declares, read and checked here."""

import ast
import importlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

LABS = Path(__file__).parent / "labs"


class GraderError(RuntimeError):
    """The grader itself can't reach a verdict. Never a pass, never the student's fault."""


class RoomError(GraderError):
    """A room file breaks the contract of an exercise."""


@dataclass(frozen=True)
class Exact:
    """Every value must be equal: the inputs are small integers, so sums are exact."""

    rtol: float = 0.0
    why: str = "small integers in float64: every sum is exact"


@dataclass(frozen=True)
class Close:
    """Differences up to `rtol` times the largest expected value are allowed, and `why`."""

    rtol: float
    why: str

    def __post_init__(self):
        if not 0 < self.rtol <= 1e-3 or not self.why.strip():
            raise RoomError("Close needs a tolerance in (0, 1e-3] and a reason.")


@dataclass(frozen=True)
class ErrorExpected:
    """What is right for a size without meaning: an error of this kind."""

    kind: type[Exception]


class Case(SimpleNamespace):
    """One row of the table of sizes: a name, the group it earns points in, and its parameters.

    Parameters are plain literals, read as attributes (`case.n`). `expects=ValueError` marks a size
    that has no meaning.
    """

    def __init__(self, name: str, group: str, *, expects: type[Exception] | None = None, **params):
        super().__init__(**params)
        self.name, self.group, self.expects = name, group, expects
        try:
            literal = ast.literal_eval(repr(params)) == params
        except (ValueError, SyntaxError):
            literal = False
        if not literal:
            raise RoomError(f"case {name!r}: parameters must be plain literals.")

    def params(self) -> dict:
        """Return what travels to the student's kernel: literals only."""
        return {k: v for k, v in vars(self).items() if k not in ("group", "expects")}


@dataclass(frozen=True)
class Answer:
    """A named answer of the corpora, right or wrong, with the text of a solution cell."""

    name: str
    sentence: str
    right: bool
    source: str
    names: tuple[str, ...]
    filename: str

    def objects(self) -> tuple:
        """Return the objects that the solution cell defines, from a fresh namespace."""
        return cell_objects(self.source, self.names, self.filename)


@dataclass(frozen=True)
class _Marked:
    name: str
    sentence: str
    right: bool
    edits: tuple[tuple[str, str], ...] = ()  # to the text of the answer called `name`


def wrong(sentence: str):
    """Mark a function as a plausible wrong answer; `sentence` helps the student who gave it."""
    return lambda function: _Marked(function.__name__, sentence, False)


def also_right(sentence: str):
    """Mark a function as a right answer by another method; `sentence` names the method."""
    return lambda function: _Marked(function.__name__, sentence, True)


def slip(answer: _Marked, sentence: str, *edits: tuple[str, str]) -> _Marked:
    """Return a wrong answer that is `answer` but for edits (old, new), each in one place.

    Example: `twice = slip(closed_form, "A tied head is there once.", ("2 - cfg.tied", "2"))`.
    """
    return _Marked(answer.name, sentence, False, edits)


@dataclass(frozen=True, eq=False)  # an exercise is itself only: it can be a key of a cache
class Exercise:
    """One exercise, as its room declares it."""

    id: str
    lab: str
    doc: str
    names: tuple[str, ...]
    forbid: tuple[str, ...]
    cases: tuple[Case, ...]
    credit: dict[str, int]
    tolerance: Exact | Close
    given: Callable
    observe: Callable
    oracle: Callable
    judge: Callable | None
    wrong: tuple[Answer, ...]
    also_right: tuple[Answer, ...]
    equivalent: dict[str, str]
    measured: tuple[str, ...]
    path: Path
    given_source: str
    observe_source: str
    oracle_source: str
    own: int = 0  # how many of the last cases are a teacher's own (`private`): none is frozen

    @property
    def frozen_cases(self) -> tuple[Case, ...]:
        """The room's own cases, whose right answers are frozen in a file."""
        return self.cases[: len(self.cases) - self.own]

    @property
    def points(self) -> int:
        """The most points this exercise earns."""
        return sum(self.credit.values())

    @property
    def name(self) -> str:
        """The nbgrader grade id of the solution cell."""
        return self.id.partition(".")[2]


def cell_objects(source: str, names: tuple[str, ...], filename: str) -> tuple:
    """Run the text of a solution cell in a fresh namespace and return what it defines."""
    import linecache

    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)
    space = {"__name__": "__main__"}
    exec(compile(source, filename, "exec"), space)
    return tuple(space[name] for name in names)


def _segment(text: str, node: ast.FunctionDef) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[node.lineno - 1 : node.end_lineno])


def _cell_text(text: str, node: ast.FunctionDef) -> str:
    """Return the statements between the docstring and the final return, as a cell of their own."""
    body = list(node.body)
    if ast.get_docstring(node) is not None:
        body = body[1:]
    if not body or not isinstance(body[-1], ast.Return) or len(body) < 2:
        raise RoomError(f"{node.name}: an answer defines its objects and returns them.")
    start = 1 + max(node.body[0].end_lineno if body is not node.body else 0, node.lineno)
    start = min(start, _first_line(body[0]))
    lines = text.splitlines(keepends=True)[start - 1 : body[-1].lineno - 1]
    return textwrap.dedent("".join(lines)).strip() + "\n"


def _edited(text: str, edits: tuple[tuple[str, str], ...], name: str) -> str:
    for old, new in edits:
        if text.count(old) != 1:
            raise RoomError(f"{name}: {old!r} stands {text.count(old)} times in the answer.")
        text = text.replace(old, new)
    return text


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _lab_folders() -> list[Path]:
    return sorted(p for p in LABS.glob("lab[0-9][0-9]_*") if p.is_dir())


def _id_of(path: Path) -> str:
    return f"{path.parent.name.partition('_')[0]}.{path.stem}"


def _rooms() -> dict[str, Path]:
    files = (f for d in _lab_folders() for f in sorted(d.glob("*.py")))
    return {_id_of(f): f for f in files if not f.name.startswith("_")}


def room_path(exercise_id: str) -> Path:
    """Return the file of an exercise's room. Raises: LookupError for an unknown id."""
    path = _rooms().get(exercise_id)
    if path is None:
        raise LookupError(f"There is no exercise {exercise_id!r}.")
    return path


@lru_cache
def load(exercise_id: str) -> Exercise:
    """Return the exercise with this id (`lab03.row_linear`).

    Raises: LookupError for an unknown id; RoomError if the room breaks the contract.
    """
    path = room_path(exercise_id)
    module = importlib.import_module(f"distgrade.labs.{path.parent.name}.{path.stem}")
    return read_room(module, path, exercise_id)


def all_exercises() -> tuple[Exercise, ...]:
    """Return every exercise found by folder, ordered by id."""
    return tuple(load(exercise_id) for exercise_id in _rooms())


def lab_exercises(lab: str) -> tuple[Exercise, ...]:
    """Return the exercises of one lab, named as its notebook (`lab03-tensor-parallel`)."""
    return tuple(e for e in all_exercises() if e.lab == lab)


def read_room(module, path: Path, exercise_id: str) -> Exercise:
    """Return the exercise that a room module declares, its contract checked."""
    text = path.read_text(encoding="utf-8")
    nodes = {n.name: n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    for name in ("NAMES", "CASES", "CREDIT", "TOLERANCE", "given", "observe", "oracle"):
        if not hasattr(module, name):
            raise RoomError(f"{exercise_id}: the room has no {name}.")
    answers = [
        Answer(
            name,
            marked.sentence,
            marked.right,
            _edited(_cell_text(text, nodes[marked.name]), marked.edits, name),
            tuple(module.NAMES),
            f"<{exercise_id} {name}>",
        )
        for name, marked in vars(module).items()
        if isinstance(marked, _Marked)
    ]
    exercise = Exercise(
        id=exercise_id,
        lab=path.parent.name.replace("_", "-"),
        doc=(module.__doc__ or "").strip(),
        names=tuple(module.NAMES),
        forbid=tuple(getattr(module, "FORBID", ())),
        cases=tuple(module.CASES),
        credit=dict(module.CREDIT),
        tolerance=module.TOLERANCE,
        given=module.given,
        observe=module.observe,
        oracle=module.oracle,
        judge=getattr(module, "judge", None),
        wrong=tuple(a for a in answers if not a.right),
        also_right=tuple(a for a in answers if a.right),
        equivalent=dict(getattr(module, "EQUIVALENT", {})),
        measured=tuple(getattr(module, "MEASURED", ())),
        path=path,
        given_source=_segment(text, nodes["given"]),
        observe_source=_segment(text, nodes["observe"]),
        oracle_source=_segment(text, nodes["oracle"]),
    )
    _check(exercise)
    return exercise


def _check(exercise: Exercise) -> None:
    groups = {case.group for case in exercise.cases}
    worthless = [
        g for g in groups if all(getattr(c, "n", 2) == 1 for c in exercise.cases if c.group == g)
    ]
    laws = {
        "it has cases": bool(exercise.cases),
        "every group of cases has points, and every points row has cases": groups
        == set(exercise.credit),
        "points are positive, or all 0 (practice)": all(p > 0 for p in exercise.credit.values())
        or set(exercise.credit.values()) == {0},
        "no group consists of n = 1 alone": not worthless,
        "case names differ": len({c.name for c in exercise.cases}) == len(exercise.cases),
        "what is measured is a group": groups >= set(exercise.measured),
        "it declares a tolerance": isinstance(exercise.tolerance, Exact | Close),
        "it names what the student defines": bool(exercise.names),
    }
    for law, holds in laws.items():
        if not holds:
            raise RoomError(f"{exercise.id}: the contract wants that {law}.")
