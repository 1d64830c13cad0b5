"""The engine: whatever a student's objects do, each case ends in exactly one bounded record."""

import json
import subprocess
import sys
import warnings

import pytest
import torch
from corpus import toy_room

from distgrade.engine import (
    MIME,
    harness_source,
    observe_here,
    parse_records,
)
from distgrade.exercise import all_exercises
from distgrade.verify import grade


@pytest.fixture
def toy(tmp_path):
    from distgrade import references

    exercise = toy_room(tmp_path)
    references.write(exercise)
    return exercise


def errors(toy, double):
    return [o.error for o in observe_here(toy, (double,))]


def right(x):
    if not x.numel():
        raise ValueError("nothing to double")
    return 2 * x


def test_every_case_and_seed_gives_one_observation(toy):
    observations = observe_here(toy, (right,), (0, 7))
    assert [(o.case_index, o.seed) for o in observations] == [
        (0, 0), (0, 7), (1, 0), (1, 7), (2, 0), (2, 7)
    ]  # fmt: skip
    assert not torch.equal(observations[0].tree["y"], observations[1].tree["y"])
    assert observations[4].error.kind == "ValueError"
    assert grade(toy, observations).status == "passed"


def test_an_error_tells_its_kind_message_and_the_students_line(toy):
    def double(x):
        def inner(y):
            return y.nothing_like_it

        return inner(x)

    error = errors(toy, double)[0]
    assert error.kind == "AttributeError"
    assert "nothing_like_it" in error.message
    assert "return y.nothing_like_it" in error.where
    assert "in `inner`" in error.where
    assert "Exception" in error.kinds


def test_an_error_inside_a_library_is_placed_at_the_students_line(toy):
    def double(x):
        return torch.cat([x, torch.ones(7, 7, 7)])

    error = errors(toy, double)[0]
    assert error.kind == "RuntimeError"
    assert "torch.cat" in error.where


class Grumpy(Exception):
    def __str__(self):
        raise SystemExit


class Wordy(Exception):
    def __str__(self):
        return "x" * 10**7


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (SystemExit(0), "SystemExit"),
        (GeneratorExit(), "GeneratorExit"),
        (Grumpy(), "Grumpy"),
        (Wordy(), "Wordy"),
        (MemoryError(), "MemoryError"),
        (NotImplementedError("later"), "NotImplementedError"),
    ],
)
def test_nothing_that_is_raised_escapes(toy, raised, kind):
    def double(x):
        raise raised

    found = errors(toy, double)
    assert [e.kind for e in found] == [kind] * 3
    assert all(len(e.message) <= 2_000 for e in found)


def test_an_exception_whose_class_lies_is_still_recorded(toy):
    class EvilMeta(type):
        def __getattribute__(cls, name):
            raise KeyboardInterrupt

    class Weird(Exception, metaclass=EvilMeta):
        pass

    def double(x):
        raise Weird

    assert all(e is not None for e in errors(toy, double))


def test_endless_recursion_is_one_error(toy):
    def double(x):
        return double(x)

    assert errors(toy, double)[0].kind == "RecursionError"


def test_torchs_own_not_implemented_is_no_untouched_stub(toy):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    def double(x):
        y = Half.apply(x.requires_grad_())
        y.sum().backward()
        return y

    assert {e.kind for e in errors(toy, double)} == {"unimplemented"}
    assert grade(toy, observe_here(toy, (double,))).status == "error"


def test_output_and_warnings_are_swallowed(toy, capfd):
    def double(x):
        print("y" * 10**6)
        print("complaint", file=sys.stderr)
        warnings.warn("beware", stacklevel=1)
        sys.stderr.close()
        return right(x)

    assert grade(toy, observe_here(toy, (double,))).status == "passed"
    assert capfd.readouterr() == ("", "")


def test_replacing_stdout_is_undone(toy):
    before = sys.stdout, sys.stderr

    def double(x):
        sys.stdout = sys.stderr = None
        return right(x)

    observe_here(toy, (double,))
    assert (sys.stdout, sys.stderr) == before


class LyingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__repr__:
            raise SystemExit
        return True


class Anything:
    def __eq__(self, other):
        return True

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return self

    __hash__ = None
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __eq__


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x.as_subclass(LyingTensor),
        lambda x: Anything(),
        lambda x: None,
        lambda x: float("nan"),
        lambda x: x.float() * 2,
        lambda x: x * float("nan"),
        lambda x: (x * 2).to("meta"),
        lambda x: (x * 2).to_sparse(),
        lambda x: (x * 2).numpy(),
        lambda x: [x * 2],
        lambda x: {"y": x * 2},
        lambda x: (x * 2)[None],
        lambda x: x.expand(10**9, *x.shape),
        lambda x: print,
        lambda x: [[]] * 10**7,
    ],
)
def test_no_answer_of_a_wrong_kind_passes_or_breaks_the_grader(toy, answer):
    outcome = grade(toy, observe_here(toy, (answer,)))
    assert outcome.points == 0
    assert outcome.status in ("failed", "error")
    assert 2 <= len(outcome.lines) <= 3


def test_an_interrupt_ends_the_run_and_reaches_the_user(toy):
    def double(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        observe_here(toy, (double,))


def harness_records(toy, space, nonce="n", seeds=(0,)):
    """Run the shipped cell as a kernel would, its publisher replaced."""
    sent = []
    text = harness_source(toy, seeds, nonce).replace(
        "'SPACE': globals()", "'SPACE': globals(), 'PUBLISH': SENT.append"
    )
    space = {"__name__": "__main__", "SENT": sent, **space}
    before = set(space) | {"__builtins__"}
    exec(text, space)
    assert set(space) == before
    return sent


def test_an_interrupted_kernel_tells_of_the_case_and_of_those_not_reached(toy):
    def double(x):
        if x.dim() == 1:
            raise KeyboardInterrupt
        return right(x)

    found = parse_records(toy, (0,), "n", harness_records(toy, {"double": double}))
    assert [o.error and o.error.kind for o in found] == [None, "timeout", "timeout"]
    assert grade(toy, found).status == "timeout"


def test_a_simulated_run_out_of_time_costs_one_timeout(toy):
    class RankTimeoutError(Exception):
        pass

    calls = []

    def double(x):
        calls.append(1)
        raise RankTimeoutError("the run took too long")

    outcome = grade(toy, observe_here(toy, (double,)))
    assert outcome.status == "timeout"
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("space", "kind", "status"),
    [({}, "missing", "missing"), ({"double": 3}, "wrong-type", "error")],
)
def test_a_missing_name_or_one_of_another_kind_is_told(toy, space, kind, status):
    found = parse_records(toy, (0,), "n", harness_records(toy, space))
    assert {o.error.kind for o in found} == {kind}
    outcome = grade(toy, found)
    assert outcome.status == status
    assert "`double`" in outcome.message


def test_records_of_another_run_doubled_missing_or_damaged_never_pass(toy):
    good = harness_records(toy, {"double": right})
    assert grade(toy, parse_records(toy, (0,), "n", good)).status == "passed"

    def kinds(messages, nonce="n"):
        found = parse_records(toy, (0,), nonce, messages)
        assert len(found) == 3
        if grade(toy, found).status == "passed":
            return None
        return {o.error.kind for o in found if o.error is not None} - {"ValueError"}

    assert kinds([]) == {"no-record"}
    assert kinds(good, nonce="other") == {"no-record"}
    assert kinds(good[1:]) == {"no-record"}
    assert kinds([good[0], *good]) == {"doubled"}
    assert kinds(["noise", {"text/plain": "x"}, {MIME: 3}, *good]) is None
    for damage in (
        {"b64": "!"},
        {"b64": None},
        {"tree": {"tensor": "t0"}, "b64": ""},
        {"error": 3},
        {"error": {"kind": ""}},
        {"error": {"kind": "x", "message": 3}},
        {"error": {"kind": "x", "kinds": [1]}},
    ):
        assert kinds([{MIME: good[0][MIME] | damage}, *good[1:]]) == {"malformed"}
    renamed = [{MIME: m[MIME] | {"exercise": "lab99.other"}} for m in good]
    assert kinds(renamed) == {"no-record"}


FORBIDDEN = '''
def tool(x):
    """The answer itself."""
    return 2 * x

def closed():
    offset = 0
    def inner(x):
        return 2 * x + offset
    return inner

closed_tool = closed()

class Tool:
    def __call__(self, x):
        return 2 * x
'''


@pytest.fixture
def shelf(monkeypatch):
    import types

    module = types.ModuleType("toy_shelf")
    exec(FORBIDDEN, module.__dict__)
    monkeypatch.setitem(sys.modules, "toy_shelf", module)
    return module


def with_forbid(toy, *names):
    from dataclasses import replace

    return replace(toy, forbid=names)


def test_a_forbidden_tool_is_no_answer_itself_or_renamed_wrapped_or_called(toy, shelf):
    from functools import partial

    def checked(answer):
        def double(x):
            return answer(x) if x.numel() else right(x)

        return double

    tools = ("toy_shelf.tool", "toy_shelf.closed_tool", "toy_shelf.Tool")
    room = with_forbid(toy, *tools)
    for answer in (
        shelf.tool,
        partial(shelf.tool),
        checked(shelf.tool),
        checked(shelf.closed_tool),
        checked(shelf.Tool()),
    ):
        outcome = grade(room, observe_here(room, (answer,)))
        assert (outcome.points, outcome.status) == (0, "error"), outcome.lines
        assert "yourself" in outcome.message
    assert grade(room, observe_here(room, (right,))).status == "passed"
    x = torch.ones(2)
    assert torch.equal(shelf.tool(x), 2 * x)
    assert torch.equal(shelf.closed_tool(x), 2 * x)
    assert torch.equal(shelf.Tool()(x), 2 * x)


def test_a_forbidden_name_that_does_not_exist_is_the_graders_fault(toy, shelf):
    from distgrade.exercise import GraderError

    room = with_forbid(toy, "toy_shelf.gone")
    with pytest.raises(GraderError):
        grade(room, observe_here(room, (right,)))


STUDENT_KERNEL = """
import importlib.abc, json, sys, types

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("distgrade", "safetensors", "nbgrader", "nbformat"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
sent = []
shell = types.ModuleType("IPython.core.interactiveshell")
class InteractiveShell:
    @classmethod
    def instance(cls):
        return cls()
    class display_pub:
        publish = staticmethod(lambda data, metadata: sent.append(data))
shell.InteractiveShell = InteractiveShell
sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython.core"] = types.ModuleType("IPython.core")
sys.modules["IPython.core.interactiveshell"] = shell
for source, harness in json.load(sys.stdin):
    exec(source, globals())
    exec(harness, globals())
print(json.dumps(sent))
"""


@pytest.mark.slow  # thirteen seconds: every room, in a process of its own
def test_given_and_observe_run_where_distgrade_is_not_installed():
    exercises = all_exercises()
    jobs = [
        (e.also_right[0].source, harness_source(e, (0, 5), f"nonce of {e.id}")) for e in exercises
    ]
    done = subprocess.run(
        [sys.executable, "-c", STUDENT_KERNEL],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    messages = json.loads(done.stdout)
    for exercise in exercises:
        found = parse_records(exercise, (0, 5), f"nonce of {exercise.id}", messages)
        assert grade(exercise, found).status == "passed"


def test_the_harness_carries_nothing_secret():
    for exercise in all_exercises():
        text = harness_source(exercise, (0,), "n")
        assert exercise.oracle_source not in text
        assert "def oracle" not in text
        assert not any(answer.sentence in text for answer in exercise.wrong)
