"""Whatever a submission does in its kernel, each exercise ends in a state that says so."""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import pytest
from nb_tools import LAB, answered, code, place, released_lab, solutions, worth

from distgrade.check import check_submission
from distgrade.course import Course, fresh_seeds
from distgrade.outputs import Collector
from distgrade.running import folders
from distgrade.running.kernel import Kernel
from distgrade.running.runner import Limits

F, ROW = "lab03.f_and_g", "lab03.row_linear"
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return Course(tmp_path_factory.mktemp("course"))  # its own secret


@pytest.fixture
def graded(course):
    def grade(answers=None, *, before=None, after=None, limits=None, edit=None):
        """Outcomes of the solved notebook with changes: cells before or after given cells."""
        nb = answered(solutions() | (answers or {}))
        for name, source in (before or {}).items():
            nb.cells.insert(place(nb, name), code(source))
        for name, source in (after or {}).items():
            nb.cells.insert(place(nb, name) + 1, code(source))
        if edit is not None:
            edit(nb)
        report = check_submission(nb, released_lab(), LAB, course=course, limits=limits)
        assert report.as_json()["max_score"] == sum(worth().values())
        return {outcome.id: outcome for outcome in report.exercises}

    return grade


def test_seeds_follow_secret_exercise_and_submission_and_never_the_clock():
    one = fresh_seeds(b"s", F, "abc", 2)
    assert one == fresh_seeds(b"s", F, "abc", 2)
    others = [fresh_seeds(b"t", F, "abc"), fresh_seeds(b"s", ROW, "abc"), fresh_seeds(b"s", F, "d")]
    assert len({one[0], one[1], *(o[0] for o in others)}) == 5
    assert 0 not in one


def test_the_secret_is_minted_once_and_readable_by_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("DISTGRADE_SECRET", raising=False)
    course = Course(tmp_path)
    assert course.secret() == course.secret() != b""
    assert (tmp_path / ".distgrade" / "secret").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("DISTGRADE_SECRET", "from outside")
    assert course.secret() == b"from outside"


def test_outputs_keep_no_html_no_controls_and_no_flood():
    taken = Collector()
    taken.take("stream", {"name": "stderr", "text": "a\x00\x07b\ud800\n"})
    taken.take("stream", {"name": "stdout", "text": "y" * 10**6})
    taken.take("stream", {"name": "stdout", "text": "z"})
    data = {"text/html": "<script>", "image/svg+xml": "<svg>", "image/png": '"><script>'}
    taken.take("display_data", {"data": data})
    taken.take("execute_result", {"data": {"application/javascript": "x"}})
    taken.take("display_data", {"data": ["no dict"]})
    assert [o.output_type for o in taken.outputs] == ["stream"]
    text = taken.outputs[0].text
    assert taken.outputs[0].name == "stdout"
    assert text.startswith("ab?\nyyy")
    assert text.endswith("more was printed than is kept ...\n")
    assert len(text) < 110_000


def test_what_a_killed_grader_left_is_removed_and_what_a_living_one_holds_is_not(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders.sweep.cache_clear()
    held, lock = folders.make()
    left = Path(tempfile.mkdtemp(prefix=folders.PREFIX))
    fresh, other = (Path(tempfile.mkdtemp(prefix=p)) for p in (folders.PREFIX, "another-"))
    link = tmp_path / f"{folders.PREFIX}link"
    link.symlink_to(other)
    (left / "work").mkdir()
    (left / "work" / "file").write_text("x")
    for folder in (held, left, other):
        os.utime(folder, (1.0, 1.0))
    os.utime(link, (1.0, 1.0), follow_symlinks=False)
    folders.sweep()  # once in a process
    assert left.exists()
    folders.sweep.cache_clear()
    folders.sweep()
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in (held, fresh, other, link)}
    os.close(lock)
    folders.sweep.cache_clear()
    folders.sweep()
    assert not held.exists()


@SLOW
def test_harmless_noise_costs_nothing(graded):
    noise = """
import sys, warnings
from IPython.display import HTML, display
warnings.warn("careful")
print("to stderr", file=sys.stderr)
print("x" * 3_000_000)
display(HTML("<b>hello</b>"))
"""
    loud = solutions()["row_linear"].replace(
        "partial =", "print('now', file=__import__('sys').stderr)\n    partial ="
    )
    assert loud != solutions()["row_linear"]
    outcomes = graded(
        {"row_linear": loud},
        before={"f_and_g": noise, "f_and_g-test": "1 / 0", "row_linear": "input('name? ')"},
        after={"f_and_g": "raise SystemExit", "row_linear": "def broken(:"},
    )
    assert {o.status for o in outcomes.values()} == {"passed"}


@SLOW
def test_a_function_that_kills_the_kernel_costs_its_own_exercise_alone(graded):
    crash = "class CopyToRanks: apply = staticmethod(lambda *a: __import__('os')._exit(7))\n"
    crash += "class ReduceFromRanks(CopyToRanks): pass"
    outcomes = graded({"f_and_g": crash}, before={"row_linear": "import itertools"})
    assert outcomes[F].status == "error"
    assert outcomes[F].points == 0
    assert "exit code 7" in outcomes[F].message
    assert outcomes[ROW].status == "passed"


@SLOW
def test_a_cell_that_kills_the_kernel_is_left_out_and_the_rest_replayed(graded):
    deadly = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    outcomes = graded(
        {"row_linear": deadly}, before={"setup": "helper = 1", "f_and_g": "assert helper == 1"}
    )
    assert outcomes[F].status == "passed"
    assert outcomes[ROW].status == "error"
    assert "SIGKILL" in outcomes[ROW].message


@SLOW
def test_exit_ends_the_kernel_and_only_what_called_it(graded):
    outcomes = graded(after={"setup": "exit()"}, before={"row_linear": "quit()"})
    assert {o.status for o in outcomes.values()} == {"passed"}
    called = "def row_linear(*args, **kwargs):\n    exit()\n"
    outcomes = graded({"row_linear": called})
    assert outcomes[F].status == "passed"
    assert outcomes[ROW].points == 0


@SLOW
def test_endless_loops_are_stopped_and_the_others_are_graded(graded):
    swallow = """
while True:
    try:
        while True:
            pass
    except KeyboardInterrupt:
        pass
"""
    loop = "class CopyToRanks: apply = staticmethod(lambda *a: [0 for _ in iter(int, 1)])\n"
    loop += "class ReduceFromRanks(CopyToRanks): pass"
    limits = Limits(cell_s=10.0, exercise_s=8.0)
    outcomes = graded({"f_and_g": loop}, after={"f_and_g-test": swallow}, limits=limits)
    assert outcomes[F].status == "timeout"
    assert outcomes[F].points == 0
    assert outcomes[ROW].status == "passed"


@SLOW
def test_a_notebook_that_takes_too_long_as_a_whole_ends(graded):
    outcomes = graded(
        before={"setup": "while True: pass"}, limits=Limits(cell_s=60.0, notebook_s=8.0)
    )
    assert {o.status for o in outcomes.values()} == {"timeout"}


@SLOW
def test_missing_and_broken_cells_say_what_happened(graded):
    def delete(nb):
        del nb.cells[place(nb, "row_linear")]

    outcomes = graded({"f_and_g": "class CopyToRanks(:"}, edit=delete)
    assert outcomes[F].status == "error"
    assert "SyntaxError" in outcomes[F].message
    assert outcomes[ROW].status == "missing"


@SLOW
def test_later_cells_change_no_earlier_mark(graded):
    outcomes = graded(
        after={"f_and_g-test": "del CopyToRanks, ReduceFromRanks", "row_linear-test": "import os"}
    )
    assert {o.status for o in outcomes.values()} == {"passed"}


@SLOW
def test_it_runs_inside_a_servers_event_loop(graded):
    async def serve():
        return graded()

    assert {o.status for o in asyncio.run(serve()).values()} == {"passed"}


@SLOW
def test_a_limit_waits_for_a_busy_machine_and_not_for_a_busy_cell(monkeypatch):
    with Kernel() as kernel:
        computed = iter(range(0, 10**6, 100))
        monkeypatch.setattr(kernel, "_cpu_s", lambda: float(next(computed)))
        end = kernel.execute("while True: pass", lambda *_: None, timeout_s=1.0)
        assert end.state == "timeout"
        monkeypatch.setattr(kernel, "_cpu_s", lambda: 0.0)  # as if others had the processor
        start = time.monotonic()
        end = kernel.execute("import time; time.sleep(1.5)", lambda *_: None, timeout_s=1.0)
        assert end.state == "ok"
        end = kernel.execute("while True: pass", lambda *_: None, timeout_s=1.0)
        assert end.state == "timeout"
        assert time.monotonic() - start >= 4.0
