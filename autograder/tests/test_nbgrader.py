"""Stock nbgrader with our settings: from release to feedback, honest work and all kinds of bad."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nb_tools import LAB, ROOT, answered, code, released_lab, solutions, worth
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import determine_grade
from traitlets.config import Config

from distgrade import verdicts
from distgrade.check import check_submission
from distgrade.classroom import demo as class_demo
from distgrade.course import Course
from distgrade.engine import observe_here
from distgrade.exercise import GraderError, load
from distgrade.nbgrader.release import name_stubs
from distgrade.nbgrader.verify import NOT_RUN, Verify, verdict
from distgrade.notebook import exercise_of, graded_cells
from distgrade.publish import load_config
from distgrade.running.runner import Run
from distgrade.verdicts import FAULT, fault, verdict_on
from distgrade.verify import Outcome

SLOW = pytest.mark.slow
F, ROW = "lab03.f_and_g", "lab03.row_linear"


def nbgrader(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    """A stock command with nothing activated: no environment's programs on PATH."""
    program = os.path.join(os.path.dirname(sys.executable), "nbgrader")
    kept = {k: v for k, v in os.environ.items() if k not in ("PATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [program, *arguments],
        cwd=root,
        env=kept | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def clone(root: Path) -> Path:
    """A fresh clone as nbgrader sees it: source, release and settings, no gradebook."""
    for part in ("source", "release"):
        shutil.copytree(ROOT / part / LAB, root / part / LAB)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    return root


def hand_in(root: Path, student: str, nb) -> None:
    class_demo.write_raw(root / "submitted" / student / LAB / f"{LAB}.ipynb", nb)


def points(root: Path, student: str) -> dict:
    return {k: m.points for k, m in class_demo.marks(root, LAB, student).items()}


# --- quick: what Verify writes is what nbgrader reads -----------------------------------------


def outcome(earned, status="failed", message="Seen: nothing.", top=4.0):
    return Outcome(F, status, earned, top, message, "Look here.")


def graded_cell():
    return graded_cells(released_lab())["f_and_g-test"]


@pytest.mark.parametrize("earned", [0.0, 0.5, 1.0, 3.0, 4.0])
def test_nbgrader_reads_the_points_that_verify_writes(earned):
    cell = graded_cell()
    cell.outputs = verdict(outcome(earned), cell, ["a note"])
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))
    assert determine_grade(cell) == (earned, 4.0)
    text = json.dumps(cell.outputs)
    assert text.count("Seen: nothing.") == text.count("Look here.") == text.count("a note") == 1


@pytest.mark.parametrize("bad", [None, outcome(4.0, top=0.0), outcome(float("nan")), outcome(-3.0)])
def test_no_verdict_is_no_points(bad):
    cell = graded_cell()
    cell.outputs = verdict(bad, cell, [])
    assert determine_grade(cell) == (0, 4.0)


def test_more_than_the_cell_is_worth_is_what_the_cell_is_worth():
    cell = graded_cell()
    cell.outputs = verdict(outcome(9.0), cell, [])
    assert determine_grade(cell) == (4.0, 4.0)


@pytest.mark.parametrize(("status", "passes"), [("passed", True), ("failed", False)])
def test_practice_passes_or_fails_without_points(status, passes):
    cell = graded_cell()
    cell.metadata.nbgrader["points"] = 0
    cell.outputs = verdict(outcome(0.0, status, top=0.0), cell, [])
    assert determine_grade(cell) == (0.0, 0.0)
    assert (cell.outputs[0].output_type != "error") == passes
    assert ("PASS" if passes else "FAIL") + " (practice)" in json.dumps(cell.outputs)


def test_students_words_in_a_verdict_carry_no_controls():
    cell = graded_cell()
    cell.outputs = verdict(outcome(0.0, message="\x1b[31m\x00bad\ud800" + "x" * 10**6), cell, [])
    text = cell.outputs[0].traceback[0]
    text.encode("utf-8")
    assert "\x1b" not in text
    assert len(text) < 5_000


def verify_step(resources):
    courses = CourseDirectory(root=str(ROOT))
    step = Verify(parent=Autograde(coursedir=courses))
    nb = released_lab()
    return step.preprocess(nb, {"nbgrader": {"assignment": LAB, "notebook": LAB}} | resources)[0]


def test_a_notebook_that_was_not_executed_earns_nothing():
    for cell in graded_cells(verify_step({})).values():
        assert determine_grade(cell)[0] == 0
        assert NOT_RUN in cell.outputs[0].traceback[0]


def test_a_fault_of_the_grader_earns_nothing_and_says_so(monkeypatch):
    cells = graded_cells(released_lab())
    rooms = {test: load(exercise_of(test, LAB)) for test in cells}
    right = {room.id: room.also_right[0] for room in rooms.values()}
    seeds = (0, 5)
    run = Run({r.id: observe_here(r, right[r.id].objects(), seeds) for r in rooms.values()})
    assert {verdict_on(room, room.id, run).status for room in rooms.values()} == {"passed"}

    def broken(exercise, observations):
        raise GraderError("references missing")

    monkeypatch.setattr(verdicts, "grade", broken)
    assert [verdict_on(room, room.id, run) for room in rooms.values()] == [None] * len(rooms)
    for room in (None, rooms["row_linear-test"]):  # no such room; no result
        assert verdict_on(room, F, Run()) is None
    faults = {exercise_of(test, LAB): fault(test, cell) for test, cell in cells.items()}
    for cell in graded_cells(verify_step({"distgrade": faults})).values():
        assert determine_grade(cell)[0] == 0
        assert FAULT in cell.outputs[0].traceback[0]
    for cell in graded_cells(verify_step({"distgrade": {}})).values():  # no verdict at all
        assert determine_grade(cell)[0] == 0


def test_stubs_say_the_name_of_what_is_to_be_written():
    stub = 'raise NotImplementedError("this is not written yet")'
    text = f"class Box:\n    def get(self):\n        {stub}\n\ndef f():\n    {stub}\n"
    named = name_stubs(text)
    assert '"Box is not written yet"' in named
    assert '"f is not written yet"' in named


# --- slow: the commands -----------------------------------------------------------------------


@SLOW
def test_the_demo_class_gets_the_scores_and_reasons_it_must_get(tmp_path):
    class_ = class_demo.build(Course(ROOT), LAB, tmp_path)
    assert len(class_) >= 8
    done = nbgrader(tmp_path, "autograde", LAB, "--Execute.exercise_timeout=30")
    assert done.returncode == 0, done.stderr[-3000:]
    for submission in class_:
        marks = class_demo.marks(tmp_path, LAB, submission.student)
        assert set(marks) == set(submission.earns)
        for name, wanted in submission.earns.items():
            mark = marks[name]
            got = (submission.student, name, mark.points, mark.reason)
            if wanted == "full":
                assert mark.points == mark.max_points, got
            elif wanted == "none":
                assert mark.points == 0, got
            else:
                assert mark.points < mark.max_points, got
            assert submission.says.get(name, "") in mark.reason, got

    done = nbgrader(tmp_path, "generate_feedback", LAB)
    assert done.returncode == 0, done.stderr[-3000:]
    for submission in class_:
        folder = tmp_path / "feedback" / submission.student / LAB
        page = html.unescape((folder / f"{LAB}.html").read_text(encoding="utf-8"))
        page = re.sub(r"<[^>]*>", "", page)
        assert "HIDDEN TESTS" not in page
        assert "distgrade" not in page
        for name, sentence in submission.says.items():
            asked = [s for n, s in submission.says.items() if s == sentence and n == name]
            assert page.count(sentence) >= len(asked), (submission.student, sentence)
        autograded = tmp_path / "autograded" / submission.student / LAB / f"{LAB}.ipynb"
        assert "HIDDEN TESTS" not in autograded.read_text(encoding="utf-8")
    wrong = next(s for s in class_ if "wrong" in s.student)
    page = (tmp_path / "feedback" / wrong.student / LAB / f"{LAB}.html").read_text(encoding="utf-8")
    page = re.sub(r"<[^>]*>", "", html.unescape(page))
    for sentence in wrong.says.values():
        assert page.count(sentence) == 1


@SLOW
def test_ours_and_stock_nbgrader_agree_on_honest_work(tmp_path):
    """Stock preprocessors, the hidden region executed in the kernel by `distgrade.grade`."""
    shutil.copytree(ROOT / "source" / LAB, tmp_path / "source" / LAB)
    (tmp_path / "nbgrader_config.py").write_text(
        f"c = get_config()\nc.CourseDirectory.root = {str(tmp_path)!r}\n"
        "c.Execute.timeout = 120\nc.Execute.shutdown_kernel = 'immediate'\n"
        f"import os; os.environ['PATH'] = {os.path.dirname(sys.executable)!r} + ':/usr/bin:/bin'\n"
        "os.environ['DISTLAB_CHECK'] = 'off'\n"
        "c.CourseDirectory.course_id = 'distlab'\n"
    )
    done = nbgrader(tmp_path, "generate_assignment", LAB)
    assert done.returncode == 0, done.stderr[-3000:]
    # Every kind of honest work once: a wrong answer makes the kernel run its whole corpus.
    kinds = ("01-perfect", "03-half-done", "04-wrong", "07-another-way")
    honest = [s for s in class_demo.submissions(Course(ROOT), LAB) if s.student in kinds]
    assert len(honest) == len(kinds)
    for submission in honest:
        hand_in(tmp_path, submission.student, submission.notebook)
    done = nbgrader(tmp_path, "autograde", LAB)
    assert done.returncode == 0, done.stderr[-3000:]
    for submission in honest:
        ours = check_submission(
            submission.notebook, released_lab(), LAB, course=Course(tmp_path / "state")
        )
        stock = points(tmp_path, submission.student)
        for outcome in ours.exercises:
            # Stock nbgrader also runs the visible cases, and one that fails costs the whole cell:
            # where we give part of the points for a wrong answer, it may give none.
            allowed = {outcome.points}
            if submission.earns[outcome.id] == "less":
                allowed.add(0.0)
            assert stock[outcome.id] in allowed, (submission.student, outcome)


@SLOW
def test_in_a_fresh_clone_generate_assignment_changes_nothing_and_fills_the_gradebook(tmp_path):
    root = clone(tmp_path)
    before = (root / "release" / LAB / f"{LAB}.ipynb").read_bytes()
    done = nbgrader(root, "generate_assignment", LAB)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (root / "release" / LAB / f"{LAB}.ipynb").read_bytes() == before
    from distgrade.doctor import gradebook
    from distgrade.nbgrader.gradebook import knows

    assert knows(f"sqlite:///{root / 'gradebook.db'}", "distlab", LAB)
    assert gradebook(Course(root)).found == "knows 1 assignment(s)"


@SLOW
def test_validate_passes_right_answers_and_stops_at_wrong_ones(tmp_path):
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    right, wrong = tmp_path / "right.ipynb", tmp_path / "wrong.ipynb"
    class_demo.write_raw(right, answered(solutions()))
    partial = "def row_linear(comm, x_shard, w_shard, b, *, g):\n    return x_shard @ w_shard"
    class_demo.write_raw(wrong, answered(solutions() | {"row_linear": partial}))
    assert "Success!" in nbgrader(tmp_path, "validate", right.name).stdout
    done = nbgrader(tmp_path, "validate", wrong.name)
    assert "VALIDATION FAILED ON 1 CELL(S)!" in done.stdout.replace("\n", " ")
    blank = nbgrader(tmp_path, "validate", str(ROOT / "release" / LAB / f"{LAB}.ipynb"))
    # the exercises, and what is graded by hand: an empty written answer
    graded = [c for c in released_lab().cells if c.metadata.get("nbgrader", {}).get("grade")]
    assert len(graded) > len(worth())
    assert f"VALIDATION FAILED ON {len(graded)} CELL(S)!" in blank.stdout.replace("\n", " ")


@SLOW
def test_an_assignment_that_is_none_of_ours_is_left_to_nbgrader(tmp_path):
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    nb = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "P"}}
    )
    nb.cells = [
        code("### BEGIN SOLUTION\nx = 1\n### END SOLUTION", "x", solution=True),
        code("assert x == 1\n### BEGIN HIDDEN TESTS\nassert x < 2\n### END HIDDEN TESTS", "x-test"),
    ]
    nb.cells[1].metadata.nbgrader.update(grade=True, locked=True, points=3)
    class_demo.write_raw(tmp_path / "source" / "ps1" / "ps1.ipynb", nb)
    assert nbgrader(tmp_path, "generate_assignment", "ps1").returncode == 0
    for student, text in (("right", "x = 1"), ("wrong", "x = 2")):
        nb.cells[0].source = text
        class_demo.write_raw(tmp_path / "submitted" / student / "ps1" / "ps1.ipynb", nb)
    done = nbgrader(tmp_path, "autograde", "ps1")
    assert done.returncode == 0, done.stderr[-3000:]
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}", "distlab") as book:
        scores = {s: book.find_submission("ps1", s).score for s in ("right", "wrong")}
    assert scores == {"right": 3, "wrong": 0}


def test_the_settings_load_and_name_things_that_exist(tmp_path):
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    config = load_config(tmp_path)
    assert isinstance(config, Config)
    assert config.CourseDirectory.root == str(tmp_path)
    assert (tmp_path / ".distgrade" / "exchange").is_dir()
    from traitlets.utils.importstring import import_item

    lists = (
        config.GenerateAssignment.preprocessors,
        config.Autograde.sanitize_preprocessors,
        config.Autograde.autograde_preprocessors,
    )
    for name in (name for names in lists for name in names):
        assert isinstance(import_item(name), type)
