"""What a teacher gets out: a roster in the gradebook, marks as CSV, the class report, solutions."""

import csv
import io
import os
import re
import shutil
import zipfile
from datetime import UTC, datetime, timedelta

import nbformat
import pytest
from click.testing import CliRunner
from nb_tools import LAB, ROOT, answered, released_lab, solutions, worth
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from test_editions import earlier, handed_in

from distgrade import editions, verdicts
from distgrade.classroom import marks as marks_module
from distgrade.classroom import report as classreport
from distgrade.classroom.demo import write_raw
from distgrade.classroom.picture import draw
from distgrade.classroom.report import ClassReport, Mistake, told_of
from distgrade.classroom.roster import Student, enter, read_roster, students_of
from distgrade.cli import main
from distgrade.course import Course, CourseError
from distgrade.exercise import load
from distgrade.nbgrader.export import AGAIN, GRADED, NOTHING, UNGRADED, WAITS
from distgrade.notebook import exercise_of, graded_cells, read_notebook
from distgrade.private import try_out
from distgrade.publish import load_config
from distgrade.rebuild import rebuild
from distgrade.rooms import room_of
from distgrade.verify import Outcome

F, ROW = "lab03.f_and_g", "lab03.row_linear"


@pytest.fixture
def course(tmp_path):
    root = tmp_path / "course"
    shutil.copytree(ROOT / "release" / LAB, root / "release" / LAB)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    return Course(root)


def run(course, *arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def hand_in(course, student, nb):
    path = course.root / "submitted" / student / LAB / f"{LAB}.ipynb"
    write_raw(path, nb)
    return path


# --- roster and marks -------------------------------------------------------------------------


def fill(course):
    """A gradebook with one exercise and a written answer, as nbgrader leaves it after grading."""
    url = f"sqlite:///{course.root / 'gradebook.db'}"
    with Gradebook(url, "distlab") as book:
        book.add_assignment(LAB)
        book.add_notebook(LAB, LAB)
        for name, points, kind in (("f_and_g-test", 4, "code"), ("written", 3, "markdown")):
            book.add_grade_cell(name, LAB, LAB, max_score=points, cell_type=kind)
        for student, manual in (("zm1", 2.5), ("wl", None), ("new", None)):
            book.update_or_create_student(student)
            book.add_submission(LAB, student)
            for name, auto in (("f_and_g-test", 3.0), ("written", None)):
                grade = book.find_grade(name, LAB, LAB, student)
                grade.auto_score = auto
                grade.manual_score = manual if auto is None else None
                grade.needs_manual_grade = auto is None and manual is None
        book.db.commit()


@pytest.mark.slow
def test_marks_of_a_class_with_every_state(course, monkeypatch, tmp_path):
    monkeypatch.chdir(course.root)
    done = run(course, "marks", "lab03")
    assert done.exit_code == 2
    assert "run `distgrade grade lab03`" in done.output
    assert not (course.root / "gradebook.db").exists()
    assert students_of(course) == []

    path = tmp_path / "class.csv"
    path.write_text('id,last_name,first_name\nzm1,Müller,Zoë\nabs,"Doe, Jr.",Jane\n')
    done = run(course, "roster", path)
    assert (done.exit_code, "2 students, 2 of them new" in done.output) == (0, True)
    assert enter(course, [Student("zm1", email="z@x")]) == 0  # what a row leaves open stays
    assert students_of(course)[1] == Student("zm1", "Zoë", "Müller", "z@x")
    assert "no marks" in run(course, "marks", "lab03").output

    fill(course)
    for student in ("zm1", "wl", "new", "late"):
        given = hand_in(course, student, released_lab())
        if student != "late":
            graded = course.root / "autograded" / student / LAB / f"{LAB}.ipynb"
            write_raw(graded, released_lab())
            hours = 1 if student == "new" else -1
            os.utime(given, (graded.stat().st_mtime + 3600 * hours,) * 2)
    rows, text = marks_module.read(course, LAB)
    states = {row["student_id"]: row["state"] for row in rows}
    assert states == {"abs": NOTHING, "late": UNGRADED, "new": AGAIN, "wl": WAITS, "zm1": GRADED}
    table = {row["student_id"]: row for row in csv.DictReader(io.StringIO(text))}
    assert (table["zm1"]["score"], table["zm1"]["max_score"]) == ("5.5", "7")
    assert (table["zm1"]["f_and_g-test"], table["zm1"]["written"]) == ("3", "2.5")
    assert (table["wl"]["score"], table["wl"]["written"]) == ("3", "")
    assert table["abs"]["last_name"] == "Doe, Jr."
    assert table["abs"]["score"] == table["late"]["score"] == ""  # no mark, not 0
    out = tmp_path / "marks.csv"
    done = run(course, "marks", "lab03", "--to", out)
    assert done.exit_code == 1
    assert "1 handed in again, 1 needs a human, 1 not graded" in done.output
    assert out.read_text("utf-8-sig") == text
    done = run(course, "marks", "lab03", "--to", tmp_path / "course" / "nbgrader_config.py" / "x")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)


# --- report -----------------------------------------------------------------------------------


def outcome(name, status, message="", diagnosis=""):
    room = load(name)
    points = {"passed": room.points, "partial": 1}.get(status, 0)
    return Outcome(name, status, float(points), float(room.points), message, diagnosis)


SWAPPED = outcome(F, "failed", "Case “two ranks” (f): x.\nSeen: 3.", "The two are swapped.")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (outcome(F, "passed"), None),
        (outcome(F, "not-written"), None),
        (SWAPPED, ("The two are swapped.", True)),
        (outcome(F, "timeout", "…"), ("It takes too long, or never ends.", False)),
        (
            outcome(F, "error", "Case “a” (f): using `f`.\nSeen: ValueError: x (line 3)."),
            ("It stops with ValueError.", False),
        ),
        (
            outcome(F, "error", "The cell `f_and_g` stopped with SyntaxError: bad."),
            ("It stops with SyntaxError.", False),
        ),
        (
            outcome(F, "failed", "Case “two ranks” (f): x.\nSeen: 3."),
            ("Something else, seen first in case “two ranks”.", False),
        ),
    ],
)
def test_a_verdict_tells_a_mistake_in_one_sentence(found, told):
    assert told_of(found) == told


def report_of(*pairs):
    report = ClassReport(LAB, (F, ROW))
    for number, (one, two) in enumerate(pairs):
        report.outcomes[f"s{number}"] = {F: one, ROW: two}
    return report


def test_the_report_counts_students_by_exercise_and_by_mistake():
    done, open_ = outcome(F, "passed"), outcome(ROW, "not-written")
    odd = outcome(ROW, "error", "Case “a” (v): using `r`.\nSeen: KeyError: '<script>'.")
    report = report_of((SWAPPED, odd), (SWAPPED, open_), (done, open_))
    assert report.standing(F) == {"not right yet": 2, "passed": 1}
    assert report.standing(ROW) == {"not right yet": 1, "not written": 2}
    assert report.share(F) == pytest.approx(1 / 3)
    assert report.mistakes() == [
        Mistake(F, "The two are swapped.", ("s0", "s1"), True),
        Mistake(ROW, "It stops with KeyError.", ("s0",), False),
    ]
    assert classreport.of(2, 3) == "2 of 3 (67 %)"


def test_the_page_needs_nothing_else_and_escapes_what_students_wrote(tmp_path):
    bad = outcome(F, "failed", "x", "<script>steal()</script>")
    report = report_of((bad, outcome(ROW, "passed")))
    report.missing["<b>eve"] = "x.ipynb is not valid JSON."
    folder = classreport.write(report, tmp_path / "r")
    text = (folder / "report.html").read_text("utf-8")
    assert "<script>" not in text
    assert "<b>eve" not in text
    assert "1 of 1 (100 %)" in text
    assert text.count("src=") == text.count('src="data:image/png;base64,') == 1
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(CourseError, match="can't be written"):
        classreport.write(report, blocked / "r")


def test_the_picture_says_in_words_what_it_shows():
    report = report_of((SWAPPED, outcome(ROW, "passed")), (SWAPPED, outcome(ROW, "passed")))
    picture = draw(report)
    assert "2 f_and_g: The two are swapped." in picture.alt
    assert "row_linear 2" in picture.alt
    nothing = report_of((outcome(F, "passed"), outcome(ROW, "passed")))
    assert draw(nothing).alt.endswith("Mistakes: none.")


def test_the_report_reads_the_kept_verdicts_of_todays_grader(course, monkeypatch):
    monkeypatch.chdir(course.root)
    done = run(course, "report", "lab03")
    assert (done.exit_code, "nobody has handed it in" in done.output) == (2, True)
    for student, text in (("anna", "# a"), ("bob", "# b"), ("old", "# c")):
        path = hand_in(course, student, answered(solutions() | {"f_and_g": text}))
        built, _ = rebuild(read_notebook(path), released_lab())
        rooms = [room_of(course, LAB, built, test) for test in graded_cells(built)]
        found = {r.id: outcome(r.id, "passed") for r in rooms} | {F: SWAPPED}
        by = {r.id: verdicts.fingerprint(r) if student != "old" else "x" for r in rooms}
        verdicts.write(course, LAB, built, verdicts.Graded(found, {}), by)
    hand_in(course, "carol", released_lab())
    broken = course.root / "submitted" / "dave" / LAB / f"{LAB}.ipynb"
    broken.parent.mkdir(parents=True)
    broken.write_text("no json")
    report = classreport.read_class(course, LAB)
    assert set(report.outcomes) == {"anna", "bob"}
    assert set(report.missing) == {"carol", "dave", "old"}
    assert report.exercises == tuple(exercise_of(t, LAB) for t in graded_cells(released_lab()))
    assert report.mistakes()[0].students == ("anna", "bob")
    done = run(course, "report", "lab03")
    assert done.exit_code == 1
    assert "2 of 2 (100 %)" in done.output
    assert (course.root / "build" / "report" / LAB / "report.png").is_file()


# --- the teacher's guide ----------------------------------------------------------------------

GUIDE = (ROOT / "course" / "instructors" / "class.md").read_text("utf-8")


def test_the_guide_names_commands_states_and_columns_that_exist(tmp_path):
    named = set(re.findall(r"`?distgrade ([a-z-]+)", GUIDE))
    assert {"collect", "roster", "grade", "marks", "report", "cases", "solutions"} <= named
    assert named <= set(main.commands)
    for state in (GRADED, WAITS, AGAIN, UNGRADED, NOTHING):
        assert f"| `{state}` |" in GUIDE
    (row,) = re.findall(r"^\| `id` \|(.*)$", GUIDE, re.M)
    for name in re.findall(r"`([^`]+)`", row):
        path = tmp_path / "class.csv"
        path.write_text(f"{name}\na1\n")
        assert read_roster(path) == [Student("a1")]


def test_the_guides_own_case_passes_every_right_answer(course):
    text = GUIDE[GUIDE.index("from distgrade.exercise") : GUIDE.index("A case has the form")]
    path = course.root / "private" / LAB / "column_linear.py"
    path.parent.mkdir(parents=True)
    path.write_text(text.partition("```")[0])
    (tried,) = try_out(course, LAB)
    assert (tried.refused, len(tried.caught) > 5) == ((), True)


# --- own cases and solutions ------------------------------------------------------------------


def test_own_cases_are_tried_by_a_command(course, monkeypatch):
    monkeypatch.chdir(course.root)
    done = run(course, "cases")
    assert (done.exit_code, "no own cases" in done.output) == (0, True)
    path = course.root / "private" / LAB / "f_and_g.py"
    path.parent.mkdir(parents=True)
    path.write_text("CASES = 1")
    done = run(course, "cases", "lab03")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    path.rename(path.with_name("f_und_g.py"))
    assert "there is no exercise lab03.f_und_g" in run(course, "cases").output


@pytest.mark.slow
def test_solutions_wait_for_the_deadline_and_hold_no_hidden_test(course, monkeypatch):
    monkeypatch.chdir(course.root)
    assert run(course, "solutions", "lab03").exit_code == 2  # there is no source here
    shutil.copytree(ROOT / "source" / LAB, course.root / "source" / LAB)
    done = run(course, "solutions", "lab03")
    assert done.exit_code == 0, done.output
    assert "no deadline is set" in done.output
    text = (course.root / "solution" / LAB / f"{LAB}.ipynb").read_text("utf-8")
    for word in ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN", "distgrade", "NotImplementedError("):
        assert word not in text
    solved = read_notebook(course.root / "solution" / LAB / f"{LAB}.ipynb")
    assert [c.source for c in answered({}, solved).cells]
    with Gradebook(f"sqlite:///{course.root / 'gradebook.db'}", "distlab") as book:
        soon = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
        book.update_or_create_assignment(LAB, duedate=soon)
    shutil.rmtree(course.root / "solution")
    done = run(course, "solutions", "lab03")
    assert (done.exit_code, "--early" in done.output) == (2, True)
    assert not (course.root / "solution").exists()
    assert run(course, "solutions", "lab03", "--early").exit_code == 0


@pytest.mark.slow
def test_from_an_upload_to_marks_with_an_edition_and_own_cases(course, monkeypatch, tmp_path):
    """The whole way, and stock nbgrader gives the same marks."""
    monkeypatch.chdir(course.root)
    shutil.copytree(ROOT / "source" / LAB, course.root / "source" / LAB)
    write_raw(course.release(LAB), earlier())
    editions.keep(course, LAB, "2026-10-03")
    shutil.copy(ROOT / "release" / LAB / f"{LAB}.ipynb", course.release(LAB))
    own = course.root / "private" / LAB / "column_linear.py"
    own.parent.mkdir(parents=True)
    own.write_text(
        "from distgrade.exercise import Case\n"
        "CASES = [Case('seven ranks', 'values', n=7, batch=(2,), widths=(1,) * 7, d_in=3,"
        " turned=True)]\n"
    )
    not_seven = solutions()["column_linear"] + (
        "\n_apply = ColumnLinear.apply\n"
        "ColumnLinear.apply = staticmethod(lambda x, w, b, comm: _apply(x, w, b, comm)"
        " * (2 if comm.size == 7 else 1))\n"
    )
    class_ = {
        "zoë": answered(solutions()),
        "narrow": answered(solutions() | {"column_linear": not_seven}),
        "early": handed_in(),
    }
    with zipfile.ZipFile(tmp_path / "lms.zip", "w") as archive:
        for name, nb in class_.items():
            text = nbformat.v4.writes(nb)
            archive.writestr(f"{name}_1_assignsubmission_file_/lab03 (1).ipynb", text)
    assert run(course, "collect", "lab03", tmp_path / "lms.zip").exit_code == 0
    done = run(course, "grade", "lab03", "--jobs", "1")
    assert done.exit_code == 0, done.output
    assert "2026-10-03" in done.output

    def marks():
        table = csv.DictReader(io.StringIO(marks_module.read(course, LAB)[1]))
        return {row["student_id"]: row for row in table}

    found = marks()
    assert set(found) == set(class_)
    full = {f"{name.partition('.')[2]}-test": points for name, points in worth().items()}
    values = load("lab03.column_linear").credit["values"]
    expected = {
        "zoë": full,
        "narrow": full | {"column_linear-test": full["column_linear-test"] - values},
        "early": full | {"row_linear-test": 0.0},
    }
    for student, points in expected.items():
        assert {name: float(found[student][name]) for name in points} == points
    report = classreport.read_class(course, LAB)
    assert report.standing(ROW) == {"passed": 2, "not written": 1}

    shutil.rmtree(course.root / ".distgrade" / "verdicts")
    config = load_config(course.root)
    api = NbGraderAPI(CourseDirectory(config=config), config=config)
    for student in ("early", "narrow"):
        assert api.autograde(LAB, student)["success"]
    assert marks() == found
