"""`distgrade grade`: a class is graded whole and once, whatever breaks in between."""

import contextlib
import errno
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest
import workers
from click.testing import CliRunner
from nb_tools import LAB, ROOT, answered, normalised, released_lab, solutions, source_lab
from nbgrader.api import Gradebook
from rich.console import Console
from sqlalchemy import create_engine, text

from distgrade import cli
from distgrade.classroom import demo as class_demo
from distgrade.classroom import grading as classroom
from distgrade.classroom import parallel, register
from distgrade.classroom.crew import PROCESSES, early
from distgrade.classroom.grading import Class, Row, grade_class, patient
from distgrade.classroom.parallel import (
    Answer,
    Task,
    Worker,
    grade_all,
    kept_answer,
)
from distgrade.classroom.register import FULL, LOCKED, Register, alone, raise_if_general, unbroken
from distgrade.course import Course, CourseError
from distgrade.nbgrader.gradebook import ensure
from distgrade.notebook import canonical, read_notebook, stamped
from distgrade.publish import load_config
from distlab.files import write_whole

SLOW = pytest.mark.slow
CLASS = pytest.mark.xdist_group("classroom")
F, ROW = "lab03.f_and_g", "lab03.row_linear"
NAMES = ("anna", "ben", "cléo d'arc")
TOTAL = 8.0

# --- quick: workers that die, hang, or lose who asked -----------------------------------------


def worker(serve, tmp_path: Path, longest_s: float = 60.0) -> Worker:
    """A worker whose process does this; whenever one is started, it is noted."""
    noted = tmp_path / "starts"

    def host():
        with noted.open("a") as file:
            file.write("x")

    return Worker(partial(serve, noted), longest_s, host)


def starts(tmp_path: Path) -> int:
    return len((tmp_path / "starts").read_text())


def test_a_worker_that_dies_once_tries_again_and_twice_says_so(tmp_path):
    once = worker(workers.dies_once, tmp_path)
    assert once.grade(Task("anna", "x")) == Answer("anna", score=1.0)
    once.close()
    assert starts(tmp_path) == 2
    never = worker(workers.dies, tmp_path)
    answer = never.grade(Task("ben", "x"))
    assert answer.score is None
    assert "died 2 times" in answer.why
    never.close()
    assert starts(tmp_path) == 4


def test_half_an_answer_is_none(tmp_path):
    half = worker(workers.says_half, tmp_path)
    assert "died 2 times" in half.grade(Task("anna", "x")).why


def test_a_worker_that_hangs_is_ended_once_and_the_next_submission_is_graded(tmp_path):
    hung = worker(workers.hangs_over_anna, tmp_path, longest_s=0.5)
    answer = hung.grade(Task("anna", "x"))
    assert answer.score is None
    assert "it hung" in answer.why
    hung._longest_s = 60.0
    assert hung.grade(Task("ben", "x")).score == 2.0
    hung.close()
    assert starts(tmp_path) == 2  # what hangs is not tried again: it may be twenty minutes


def test_a_run_that_is_left_early_ends_its_workers_and_starts_none(tmp_path, monkeypatch):
    made = []

    def instead(serve, longest_s, host):
        made.append(worker(workers.answers_anna_only, tmp_path))
        return made[-1]

    class NoCrew:
        hosts = property(lambda self: self)
        another = close = lambda self: None

    monkeypatch.setattr(parallel, "Worker", instead)
    monkeypatch.setattr(parallel, "Crew", NoCrew)
    tasks = [Task(name, "x") for name in ("anna", *"bcdefgh")]
    found = grade_all(tmp_path, LAB, tasks, jobs=2, limits={"notebook_s": 1.0})
    assert next(found).student == "anna"
    running = [w._process for w in made]
    found.close()
    for process in filter(None, running):
        process.join(60)
        assert not process.is_alive()
    time.sleep(0.2)
    assert starts(tmp_path) == 2
    assert all(w._process is None for w in made)


def test_a_worker_ends_when_whoever_asked_is_gone_even_in_mid_submission(tmp_path):
    told, tells = PROCESSES.Pipe(duplex=False)
    busy = Worker(partial(workers.is_busy, tells, tmp_path), 60.0, lambda: None)
    asks = threading.Thread(target=busy.grade, args=(Task("anna", "x"),))
    asks.start()
    assert told.poll(60)
    assert told.recv() == "busy"
    process = busy._process
    busy.dismiss()
    assert told.poll(60)
    assert told.recv() == "tidy"
    process.join(60)
    assert process.exitcode == 0
    asks.join(60)
    busy.close()


def test_a_crew_starts_early_only_for_somebody_who_is_new(tmp_path, monkeypatch):
    class Made:
        def close(self):
            pass

    monkeypatch.setattr("distgrade.classroom.crew.Crew", Made)
    notebook = tmp_path / "submitted" / "anna" / LAB / f"{LAB}.ipynb"
    noted = tmp_path / ".distgrade" / "graded" / f"{LAB}.json"
    for path in (notebook, noted):
        path.parent.mkdir(parents=True)
    found = []
    steps = {noted: "no json"}, {notebook: "x"}, {noted: '{"anna": {}}'}, {noted: '{"anna": 3}'}
    for step in (*steps, {noted: '{"anna": {"what": "x"}}'}):
        for path, words in step.items():
            path.write_text(words)
        with early(tmp_path, LAB) as crew:
            found.append(crew is not None)
    assert found == [False, True, True, True, False]
    with early(tmp_path, LAB, surely=True) as crew:
        assert crew is not None


# --- quick: the sentences, the lock, the interrupt --------------------------------------------


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("(sqlite3.OperationalError) database is locked", LOCKED),
        ("(sqlite3.OperationalError) database or disk is full", FULL),
        (str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x")), FULL),
        (str(OSError(errno.EROFS, os.strerror(errno.EROFS), "x")), "read-only"),
        (str(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "x")), FULL),
        ("attempt to write a readonly database", "read-only"),
        ("file is not a database", "damaged"),
    ],
)
def test_the_whole_classs_trouble_is_one_sentence(said, sentence):
    with pytest.raises(CourseError, match=r"^[^A-Z].*[.]$") as caught:
        raise_if_general(said)
    assert sentence in str(caught.value)
    raise_if_general("ValueError: a student's own trouble")


def test_a_second_grade_says_so_and_a_killed_one_holds_nothing_up(tmp_path):
    program = f"""
        import time
        from pathlib import Path
        from distgrade.course import Course
        from distgrade.classroom.register import alone
        with alone(Course(Path({str(tmp_path)!r}))):
            print("in", flush=True)
            time.sleep(600)
    """
    first = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "in\n"
    course = Course(tmp_path)
    with pytest.raises(CourseError, match="another `distgrade grade` is at work"), alone(course):
        raise AssertionError
    first.kill()
    first.wait()
    with alone(course):
        pass
    with alone(course):
        pass


def test_an_interrupt_waits_until_a_student_is_written_a_second_one_does_not():
    done = []

    def write(interrupts):
        with unbroken():
            for _ in range(interrupts):
                signal.raise_signal(signal.SIGINT)
            done.append("written")
        done.append("after")

    for interrupts in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            write(interrupts)
        assert done == ["written"]
    with pytest.raises(KeyboardInterrupt):  # as it was before
        signal.raise_signal(signal.SIGINT)
    thread = threading.Thread(target=lambda: done.append(unbroken().__enter__()))
    thread.start()
    thread.join()
    assert done == ["written", None]  # only the main thread has signals


def test_only_sqlite_is_given_more_patience():
    assert patient("sqlite:////x/gradebook.db") == "sqlite:////x/gradebook.db?timeout=20"
    for other in ("sqlite:////x/gradebook.db?timeout=3", "postgresql://host/gradebook"):
        assert patient(other) == other


@pytest.mark.parametrize("damage", ["", "[1, 2]", '{"anna": 3}', '{"anna"', "\xff"])
def test_a_damaged_register_says_nothing(tmp_path, damage):
    path = tmp_path / "x.json"
    path.write_bytes(damage.encode("latin-1"))
    assert register._noted(path) == {}


ROWS = {
    0: [Row("anna", True, 8.0, 8.0), Row("ben", True, 3.0, 8.0, "f_and_g: it takes too long")],
    1: [Row("anna", True, 8.0, 8.0), Row("ben", False, why="ben.ipynb is not JSON: [/x] :smile:")],
}


@pytest.mark.parametrize("code", ROWS)
def test_exit_codes_and_the_table(monkeypatch, code):
    monkeypatch.setattr(classroom, "grade_class", lambda *_, **__: ROWS[code])
    monkeypatch.setenv("COLUMNS", "120")
    done = CliRunner().invoke(cli.main, ["grade", "lab03"])
    assert done.exit_code == code, done.output
    assert f"{2 - code} of 2" in done.output
    assert ROWS[code][1].why in done.output  # words of others are no markup
    assert ("look at" if code == 0 else "needs a human") in done.output


def test_an_interrupt_is_a_sentence(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(classroom, "grade_class", interrupted)
    done = CliRunner().invoke(cli.main, ["grade", "lab03"])
    assert done.exit_code == cli.INTERRUPTED
    assert "it goes on" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lab3"], "there is no lab 'lab3'"),
        (["lab03", "--exercise", "row_liner"], "Did you mean row_linear?"),
        (["lab03", "--exercise", "zzz"], "There are lab03.shards, "),
    ],
)
def test_what_is_not_there_is_named(arguments, sentence):
    done = CliRunner().invoke(cli.main, ["grade", *arguments])
    assert done.exit_code == cli.UNREADABLE
    assert sentence in done.output


# --- slow: a small class, graded once; each test breaks a copy of it --------------------------

KEPT = {
    "setup", "f_and_g-text", "f_and_g", "f_and_g-test", "row_linear-text", "row_linear",
    "row_linear-test", "written-text", "written",
}  # fmt: skip
WRONG = "def row_linear(comm, x_shard, w_shard, b, *, g):\n    return x_shard @ w_shard + b"


def small(nb):
    nb = normalised(nb)
    nb.cells = [cell for cell in nb.cells if cell["id"] in KEPT]
    return nb


def hand_in(root: Path, student: str, **answers: str) -> None:
    """A submission of its own: everybody's differs by a comment."""
    sources = solutions() | {"written": f"{student} says: it depends."} | answers
    sources["f_and_g"] += f"\n# {student}"
    release = stamped(small(released_lab()))
    path = root / "submitted" / student / LAB / f"{LAB}.ipynb"
    class_demo.write_raw(path, answered(sources, release))


def toy_course(root: Path) -> Path:
    """Lab 3 with two exercises and a written answer, and a class of three."""
    root.mkdir()
    shutil.copy(ROOT / "nbgrader_config.py", root)
    for kind, nb in (("source", small(source_lab())), ("release", stamped(small(released_lab())))):
        path = root / kind / LAB / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(canonical(nb))
    for student in NAMES:
        hand_in(root, student, **({"row_linear": WRONG} if student == "ben" else {}))
    return root


def grade(root: Path, **how) -> list[Row]:
    klass = Class(Course(root), LAB)
    return grade_class(klass, jobs=1, console=Console(file=io.StringIO()), **how)


def gradebook(root: Path) -> list[tuple]:
    """Everything of value that the gradebook holds, in order, without keys and times."""
    engine = create_engine(f"sqlite:///{root / 'gradebook.db'}")
    with engine.connect() as connection:
        rows = connection.execute(
            text("""
            select student.id, base_cell.name, grade_cells.max_score, grade.auto_score,
                grade.manual_score, grade.extra_credit, grade.needs_manual_grade
            from grade
            join submitted_notebook on submitted_notebook.id = grade.notebook_id
            join submitted_assignment on submitted_assignment.id = submitted_notebook.assignment_id
            join student on student.id = submitted_assignment.student_id
            join base_cell on base_cell.id = grade.cell_id
            join grade_cells on grade_cells.id = base_cell.id
            order by 1, 2
            """)
        ).all()
    engine.dispose()
    return [tuple(row) for row in rows]


def autograded(root: Path) -> dict[str, bytes]:
    folder = root / "autograded"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.ipynb"))}


def given(root: Path, student: str, cell: str) -> tuple:
    """(auto, manual, needs a look) of one cell."""
    return next((r[3], r[4], bool(r[6])) for r in gradebook(root) if r[:2] == (student, cell))


@contextlib.contextmanager
def the_grade(root: Path, student: str, cell: str):
    """A grade to change by hand, as formgrader does."""
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "distlab") as book:
        yield book.find_grade(cell, LAB, LAB, student)
        book.db.commit()


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    root = toy_course(tmp_path_factory.mktemp("class") / "course")
    ensure(f"sqlite:///{root / 'empty.db'}", "distlab")
    _an_empty_gradebook(root)
    rows = grade(root)
    assert [(r.student, r.graded, r.score, r.anew) for r in rows] == [
        ("anna", True, TOTAL, True),
        ("ben", True, TOTAL - 4, True),
        ("cléo d'arc", True, TOTAL, True),
    ]
    assert len(gradebook(root)) == 3 * len(NAMES)
    return root


@pytest.fixture
def course(graded, tmp_path):
    return Path(shutil.copytree(graded, tmp_path / "course"))


@pytest.fixture
def no_kernels(monkeypatch):
    """Nothing runs: every verdict is there already."""

    def none(*_, **__):
        raise AssertionError("a submission ran")

    monkeypatch.setattr(classroom, "grade_all", none)
    monkeypatch.setattr("distgrade.verdicts.run_notebook", none)


def edition(release) -> str:
    return release.metadata.distlab.release[:12]


def anew(rows: list[Row]) -> list[str]:
    return [row.student for row in rows if row.anew]


def test_a_class_that_handed_in_nothing_is_a_sentence(tmp_path):
    (tmp_path / "release").mkdir()
    shutil.copytree(ROOT / "release" / LAB, tmp_path / "release" / LAB)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    for _ in range(2):
        with pytest.raises(CourseError, match=f"nobody has handed in {LAB}"):
            grade(tmp_path)
        (tmp_path / "submitted").mkdir(exist_ok=True)


@SLOW
@CLASS
def test_an_empty_gradebook_of_ours_is_what_nbgrader_makes(graded, tmp_path):
    load_config(graded)  # it puts what nbgrader calls on the path
    with Gradebook(f"sqlite:///{tmp_path / 'theirs.db'}", "distlab"):
        pass
    ours, theirs = (
        sorted(sqlite3.connect(path).iterdump())
        for path in (graded / "empty.db", tmp_path / "theirs.db")
    )
    assert len(ours) > 15
    assert ours == theirs


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_what_is_graded_is_not_graded_again(graded):
    before = (gradebook(graded), (graded / "gradebook.db").read_bytes())
    rows = grade(graded)
    assert anew(rows) == []
    assert [(r.student, r.score, r.max_score) for r in rows] == [
        ("anna", TOTAL, TOTAL), ("ben", TOTAL - 4, TOTAL), ("cléo d'arc", TOTAL, TOTAL),
    ]  # fmt: skip
    assert (gradebook(graded), (graded / "gradebook.db").read_bytes()) == before


def _no_gradebook(root):
    (root / "gradebook.db").unlink()


def _an_empty_gradebook(root):
    shutil.copy(root / "empty.db", root / "gradebook.db")


def _no_register(root):
    shutil.rmtree(root / ".distgrade" / "graded")


def _no_autograded(root):
    shutil.rmtree(root / "autograded")


def _half_a_gradebook(root):  # as a killed run once left it: the lab has no cells
    _an_empty_gradebook(root)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "distlab") as book:
        book.update_or_create_notebook(LAB, book.add_assignment(LAB).name)


def _an_older_gradebook(root):  # put back from a copy: another score than was written last
    for student in NAMES:
        with the_grade(root, student, "f_and_g-test") as grade:
            grade.auto_score = 1.0


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize(
    "lost", [_no_gradebook, _no_register, _no_autograded, _half_a_gradebook, _an_older_gradebook]
)
def test_what_is_lost_is_written_again_without_running_anything(graded, course, lost):
    lost(course)
    assert anew(grade(course)) == list(NAMES)
    assert gradebook(course) == gradebook(graded)
    assert autograded(course) == autograded(graded)
    assert anew(grade(course)) == []


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_a_mark_by_hand_stays_and_rests_unless_the_answer_changed(course):
    for student in NAMES:
        with the_grade(course, student, "written") as mark:
            mark.manual_score, mark.needs_manual_grade = 3.0, False
    with the_grade(course, "ben", "row_linear-test") as mark:  # a mark overruled
        mark.manual_score, mark.needs_manual_grade = 2.0, False
    _no_register(course)
    path = course / "submitted" / "anna" / LAB / f"{LAB}.ipynb"
    noted = course / ".distgrade" / "graded"
    assert anew(grade(course)) == list(NAMES)
    # nobody knows what was there before: a person looks again
    assert given(course, "anna", "written") == (None, 3.0, True)
    for student in NAMES:
        for cell in ("written", "row_linear-test"):
            with the_grade(course, student, cell) as mark:
                mark.needs_manual_grade = False
    path.write_text(path.read_text("utf-8") + "\n", "utf-8")  # handed in again
    for file in noted.iterdir():  # and a grader of another make
        file.write_text(file.read_text("utf-8").replace('"what": "', '"what": "older'), "utf-8")
    assert anew(grade(course)) == list(NAMES)
    assert given(course, "anna", "written") == (None, 3.0, True)  # perhaps another answer
    assert given(course, "cléo d'arc", "written") == (None, 3.0, False)
    assert given(course, "ben", "row_linear-test") == (0.0, 2.0, False)


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_a_renamed_student_is_graded_under_the_new_name_and_the_old_one_is_told(course):
    (course / "submitted" / "anna").rename(course / "submitted" / "anne")
    rows = grade(course)
    assert anew(rows) == ["anne"]
    assert [row.student for row in rows] == ["anne", "ben", "cléo d'arc", "anna"]
    assert "was it renamed?" in rows[-1].why
    assert [r[3] for r in gradebook(course) if r[0] == "anne"] == [4.0, 4.0, None]
    assert [row.student for row in grade(course, students=["ben"])] == ["ben"]


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_rows_of_those_who_can_not_be_graded(course):
    others = course / "submitted"
    (others / "dora" / LAB).mkdir(parents=True)
    (others / "emil" / LAB).mkdir(parents=True)
    (others / "emil" / LAB / f"{LAB} (1).ipynb").write_text("{}")
    (others / "fred" / LAB).mkdir(parents=True)
    (others / "fred" / LAB / f"{LAB}.ipynb").write_text("no notebook")
    rows = {row.student: row for row in grade(course)}
    assert [name for name, row in rows.items() if row.graded] == list(NAMES)
    assert "there is no notebook in" in rows["dora"].why
    assert "rename the right one" in rows["emil"].why
    assert f"{LAB}.ipynb" in rows["fred"].why
    with pytest.raises(CourseError, match="zoe has not handed in"):
        grade(course, students=["zoe"])


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_a_release_of_other_points_is_told_until_the_gradebook_knows_it(course):
    source, release = (course / kind / LAB / f"{LAB}.ipynb" for kind in ("source", "release"))
    old = read_notebook(release)
    for path in (source, release):
        nb = read_notebook(path)
        next(c for c in nb.cells if c.id == "f_and_g-test").metadata.nbgrader.points = 5
        path.write_bytes(canonical(stamped(nb) if path == release else nb))
        if path == source:  # not released yet: the release and the gradebook agree
            assert anew(grade(course)) == []
    for path in (course / ".distgrade" / "verdicts" / LAB).iterdir():  # as if run once more
        path.rename(str(path).replace(edition(old), edition(read_notebook(release))))
    # Entered again, its submissions with it; the room gives 4 of 4, which is five of five here.
    assert anew(grade(course)) == list(NAMES)
    assert given(course, "anna", "f_and_g-test")[0] == 5.0
    nb.cells = [c for c in nb.cells if c.id != "f_and_g-test"]
    for path in (source, release):  # a cell less, while there are submissions: nbgrader refuses
        path.write_bytes(canonical(stamped(nb) if path == release else nb))
    with pytest.raises(CourseError, match="run `distgrade release`"):
        grade(course)


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_a_disk_that_fills_up_loses_nothing(graded, course, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _an_empty_gradebook(course)
    _no_register(course)
    written, real = [], register.write_whole

    def fills(path, text):
        written.append(path)
        if len(written) > 1:
            raise full
        real(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(register, "write_whole", fills)  # while it notes who is done
        with pytest.raises(CourseError, match="the disk is full"):
            grade(course)
    with monkeypatch.context() as patch:

        def no_room(*_, **__):
            raise full

        patch.setattr("nbconvert.writers.files.FilesWriter.write", no_room)  # in nbgrader
        with pytest.raises(CourseError, match="the disk is full"):
            grade(course)
    assert anew(grade(course)) == ["ben", "cléo d'arc"]
    assert gradebook(course) == gradebook(graded)
    assert autograded(course) == autograded(graded)


@SLOW
@CLASS
def test_verdicts_that_can_not_be_kept_stop_the_class_with_one_sentence(course, monkeypatch):
    shutil.rmtree(course / ".distgrade" / "verdicts")
    _an_empty_gradebook(course)
    answers = (Answer(name, why=f"{os.strerror(errno.ENOSPC)}: x", ours=True) for name in NAMES)
    monkeypatch.setattr(classroom, "grade_all", lambda *_, **__: answers)
    with pytest.raises(CourseError, match="the disk is full"):
        grade(course)


@contextlib.contextmanager
def mounted(folder: Path, size: str):
    """A small disk of its own, where this user may make one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@SLOW
@CLASS
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
@pytest.mark.usefixtures("no_kernels")
def test_a_real_full_disk_and_a_real_read_only_one(graded, tmp_path):
    with mounted(tmp_path / "disk", "4m") as disk:
        root = Path(shutil.copytree(graded, disk / "course"))
        shutil.rmtree(root / ".distgrade" / "graded")
        _no_gradebook(root)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(CourseError, match="read-only"):
            grade(root)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", 0) as file:
            while file.write(b"x" * 4096):
                pass
        for room in (0, 16_000, 100_000):  # for nothing, for a file or two, for half a gradebook
            os.truncate(filler, filler.stat().st_size - room)
            with pytest.raises(CourseError, match="the disk is full"):
                grade(root)
        filler.unlink()
        assert {row.graded for row in grade(root)} == {True}
        assert gradebook(root) == gradebook(graded)
        assert autograded(root) == autograded(graded)


HOLD = """
    import sqlite3, sys
    held = sqlite3.connect(sys.argv[1], isolation_level=None)
    held.execute("begin exclusive")
    print("held", flush=True)
    sys.stdin.readline()
    held.rollback()
"""


@contextlib.contextmanager
def held(root: Path):
    """The gradebook in another program's transaction; yields what ends it."""
    other = subprocess.Popen(
        [sys.executable, "-S", "-c", textwrap.dedent(HOLD), str(root / "gradebook.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert other.stdout.readline() == "held\n"
        yield other
    finally:
        other.communicate("\n")


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_a_locked_gradebook_is_waited_for_then_told_and_nothing_is_lost(
    graded, course, monkeypatch
):
    _no_register(course)
    with held(course), monkeypatch.context() as patch:
        patch.setattr(classroom, "WAIT_S", 0.2)
        with pytest.raises(CourseError, match="in use by another program"):
            grade(course)

    # It is locked in the middle of a student: nbgrader takes that student's notebook away.
    before, real = gradebook(course), Register._autograde
    with contextlib.ExitStack() as stack, monkeypatch.context() as patch:
        patch.setattr(classroom, "WAIT_S", 0.2)

        def locked(self, student):
            if student == "ben":
                stack.enter_context(held(course))
            return real(self, student)

        patch.setattr(Register, "_autograde", locked)
        noted = course / ".distgrade" / "graded" / f"{LAB}.json"
        with pytest.raises(CourseError, match="in use by another program"):
            grade(course)
        assert list(json.loads(noted.read_text("utf-8"))) == ["anna"]
    assert gradebook(course) == before

    # One that lets go in time costs nothing but the wait.
    with held(course) as other:
        threading.Timer(1.0, lambda: (other.stdin.write("\n"), other.stdin.flush())).start()
        assert anew(grade(course)) == ["ben", "cléo d'arc"]
    assert gradebook(course) == gradebook(graded)
    assert autograded(course) == autograded(graded)


@SLOW
@CLASS
@pytest.mark.usefixtures("no_kernels")
def test_ctrl_c_finishes_the_student_and_goes_on_with_the_next(graded, course, monkeypatch):
    _an_empty_gradebook(course)
    real = Register._autograde

    def interrupted(self, student):
        signal.raise_signal(signal.SIGINT)
        return real(self, student)

    with monkeypatch.context() as patch:
        patch.setattr(Register, "_autograde", interrupted)
        with pytest.raises(KeyboardInterrupt):
            grade(course)
    assert anew(grade(course)) == ["ben", "cléo d'arc"]
    assert gradebook(course) == gradebook(graded)


@SLOW
@CLASS
def test_one_exercise_is_run_anew_and_the_others_and_marks_by_hand_stay(course):
    """The correction of one room: what was kept by the old one is wrong in both exercises."""
    verdicts = course / ".distgrade" / "verdicts" / LAB
    for path in verdicts.iterdir():
        told = json.loads(path.read_text("utf-8"))
        for outcome in told["outcomes"].values():
            outcome |= {"points": 1.0, "status": "partial", "message": "an older grader's word"}
        path.write_text(json.dumps(told), "utf-8")
    _no_register(course)
    grade(course)
    for student in NAMES:
        assert given(course, student, "f_and_g-test")[0] == 1.0
        with the_grade(course, student, "written") as mark:
            mark.manual_score, mark.needs_manual_grade = 3.0, False
    with the_grade(course, "anna", "f_and_g-test") as mark:
        mark.manual_score, mark.needs_manual_grade = 2.5, False

    assert anew(grade(course, exercises=[F], students=["anna", "ben"])) == ["anna", "ben"]
    assert given(course, "ben", "f_and_g-test") == (4.0, None, False)
    assert given(course, "anna", "f_and_g-test") == (4.0, 2.5, True)  # overruled then: look again
    assert given(course, "cléo d'arc", "f_and_g-test")[0] == 1.0
    for student in NAMES:
        assert given(course, student, "row_linear-test")[0] == 1.0
        assert given(course, student, "written") == (None, 3.0, False)
    assert anew(grade(course)) == []


@SLOW
@CLASS
def test_verdicts_that_were_to_be_forgotten_are_forgotten_after_a_kill(course, monkeypatch):
    real, forgotten = register._forget, []

    def killed(*arguments):
        if forgotten:
            raise KeyboardInterrupt
        forgotten.append(real(*arguments))

    with monkeypatch.context() as patch:
        patch.setattr(register, "_forget", killed)
        with pytest.raises(KeyboardInterrupt):
            Register(Class(Course(course), LAB)).forget(NAMES)
    assert len(list(_verdicts(course).glob("*.json"))) == len(NAMES) - 1
    again = Register(Class(Course(course), LAB))
    assert not list(_verdicts(course).glob("*.json"))
    assert [again.standing(name) for name in NAMES] == [None] * len(NAMES)
    assert "forget" not in again._path.read_text("utf-8")


# --- slow: killed, at ten random moments ------------------------------------------------------


def _verdicts(root: Path) -> Path:
    return root / ".distgrade" / "verdicts" / LAB


def _grade_quickly(root: str, known: str) -> None:
    """Grades in a process of its own; running a submission is a nap and a file of verdicts."""

    def run_all(course, lab, tasks, **_):
        for task in tasks:
            time.sleep(0.2)
            for path in _verdicts(Path(known)).iterdir():
                write_whole(_verdicts(course) / path.name, path.read_text("utf-8"))
                if (answer := kept_answer(task, course, lab)) is not None:
                    break
            yield answer

    classroom.grade_all = run_all
    grade(Path(root))


@SLOW
@CLASS
@pytest.mark.skipif(sys.platform != "linux", reason="graders are forked from a server here")
def test_killed_at_ten_random_moments_it_ends_with_each_graded_exactly_once(graded, tmp_path):
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    # A server of an earlier test has other imports: it is left alone, till this process ends.
    vars(forkserver._forkserver).update(vars(forkserver.ForkServer()))
    context.set_forkserver_preload(
        ["test_classroom", "nbgrader.converters", "distgrade.nbgrader.execute"]
    )
    root = tmp_path / "course"

    def fresh() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(graded, root, ignore=shutil.ignore_patterns(
            "autograded", "verdicts", "graded"
        ))  # fmt: skip
        _an_empty_gradebook(root)

    def run(longest_s: float | None = None) -> int:
        """Runs the grader, for so long at most; returns its exit code."""
        before = {name: _when(root, name) for name in _noted(root)}
        process = context.Process(target=_grade_quickly, args=(str(root), str(graded)))
        process.start()
        process.join(longest_s)
        process.kill()
        process.join()
        assert {name: _when(root, name) for name in before} == before, "written twice"
        return process.exitcode

    def is_whole() -> None:
        assert gradebook(root) == gradebook(graded)
        assert autograded(root) == autograded(graded)
        assert len(list(_verdicts(root).glob("*.json"))) == len(NAMES)

    fresh()
    assert run() == 0  # the first loads what the server has not
    fresh()
    began = time.monotonic()
    assert run() == 0
    span_s = time.monotonic() - began
    is_whole()
    fresh()
    kills = 0
    while kills < 10:
        if run(moments.uniform(0.0, span_s)) == -signal.SIGKILL:
            kills += 1
        else:
            is_whole()
            fresh()
    assert run() == 0
    is_whole()


@SLOW
@CLASS
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who is left")
def test_killed_while_submissions_run_it_leaves_no_process_and_goes_on(graded, course):
    shutil.rmtree(_verdicts(course))
    _an_empty_gradebook(course)
    command = [sys.executable, "-m", "distgrade.cli", "grade", "lab03", "--jobs", "1"]
    grader = subprocess.Popen(command, cwd=course, stdout=subprocess.DEVNULL)
    us = psutil.Process(grader.pid)
    family = []
    while not list(_verdicts(course).glob("*.json")) and grader.poll() is None:
        family = us.children(recursive=True) or family
        time.sleep(0.02)
    grader.kill()
    grader.wait()
    assert len(family) >= 2  # a worker and its kernel host
    _, left = psutil.wait_procs(family, timeout=60)
    assert left == []
    kept = set(_verdicts(course).glob("*.json"))
    assert kept
    subprocess.run(command, cwd=course, stdout=subprocess.DEVNULL, check=True)
    assert gradebook(course) == gradebook(graded)
    assert len(set(_verdicts(course).glob("*.json"))) == len(NAMES)


def _noted(root: Path) -> dict:
    path = root / ".distgrade" / "graded" / f"{LAB}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _when(root: Path, student: str) -> int:
    path = root / "autograded" / student / LAB / f"{LAB}.ipynb"
    return path.stat().st_mtime_ns
