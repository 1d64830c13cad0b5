"""A submission made from an earlier release is rebuilt on it and graded by it."""

import shutil
import subprocess
import sys

import pytest
from nb_tools import LAB, answered, clone, code, released_lab, solutions

from distgrade import editions, rooms
from distgrade.check import edition_for
from distgrade.classroom.demo import write_raw
from distgrade.course import Course
from distgrade.editions import digest_of, edition_of, forget_strangers
from distgrade.exercise import LABS, load
from distgrade.notebook import (
    grade_id,
    graded_cells,
    is_solution,
    nbgrader_of,
    solution_cells,
    stamped,
)
from distgrade.rebuild import LATER, rebuild, submission_hash

COLUMN, ROW = "column_linear", "row_linear"


def earlier():
    """An earlier release: other given code, one exercise less, one more, other points."""
    nb = clone(released_lab())
    nb.cells = [c for c in nb.cells if grade_id(c) not in (ROW, f"{ROW}-test")]
    nb.cells.insert(1, code("HELPER = 'of the earlier release'"))
    nb.cells[1]["id"] = "helper"
    solution_cells(nb)[COLUMN].source += "\n# an earlier signature"
    graded_cells(nb)[f"{COLUMN}-test"].metadata.nbgrader["points"] = 99
    nb.cells += [
        code("def gone():\n    raise NotImplementedError", "gone", solution=True),
        code("gone()", "gone-test", grade=True, locked=True, points=7),
    ]
    return stamped(nb)


def put(course, nb):
    write_raw(course.release(LAB), nb)


@pytest.fixture
def course(tmp_path):
    course = Course(tmp_path)
    put(course, released_lab())
    return course


@pytest.fixture
def kept(course):
    put(course, earlier())
    editions.keep(course, LAB, "2026-10-03")
    put(course, released_lab())
    return course


def handed_in():
    return answered(solutions() | {"gone": "def gone():\n    return 1"}, earlier())


def test_todays_release_needs_no_edition(course):
    assert edition_of(course, LAB, released_lab(), released_lab()) is None
    assert edition_for(course, LAB, answered(solutions())) == released_lab()


def test_an_edition_that_is_nowhere_is_graded_by_todays_and_noted(course):
    submission = handed_in()
    release = edition_for(course, LAB, submission)
    assert release == released_lab()
    assert any("another edition" in note.text for note in rebuild(submission, release)[1])


@pytest.mark.parametrize("told", ["../../x", "0" * 64, "", 7, None])
def test_a_release_that_a_submission_makes_up_is_todays(kept, told):
    submission = answered(solutions())
    submission.metadata["distlab"]["release"] = told
    assert edition_for(kept, LAB, submission) == released_lab()


def test_a_submission_is_rebuilt_on_its_edition_within_todays_gradebook(kept):
    submission = handed_in()
    built, notes = rebuild(submission, edition_for(kept, LAB, submission))
    assert any(c.source.startswith("HELPER") for c in built.cells)
    assert "made from the edition of 2026-10-03, and graded by it." in [n.text for n in notes]
    assert [n.grade_id for n in notes if n.text == LATER] == [ROW]
    # graded is what is graded today, at today's worth
    today = {n: c.metadata.nbgrader.points for n, c in graded_cells(released_lab()).items()}
    assert {n: c.metadata.nbgrader.points for n, c in graded_cells(built).items()} == today
    written = {grade_id(c) for c in released_lab().cells if nbgrader_of(c).get("grade")}
    assert {grade_id(c) for c in built.cells if nbgrader_of(c).get("grade")} == written
    assert digest_of(built) == digest_of(earlier())
    # what students wrote where nothing is graded any more stays theirs, unknown to nbgrader
    before = submission_hash(built)
    forget_strangers(built, released_lab())
    assert submission_hash(built) == before
    assert {grade_id(c) for c in built.cells if is_solution(c)} <= set(
        solution_cells(released_lab())
    )
    assert any(c.source == "def gone():\n    return 1" for c in built.cells)


def test_only_what_was_asked_otherwise_is_graded_by_the_earlier_room(kept):
    submission = handed_in()
    built, _ = rebuild(submission, edition_for(kept, LAB, submission))
    folder = kept.root / ".distgrade" / "editions" / LAB / digest_of(earlier())
    assert rooms.room_of(kept, LAB, built, "f_and_g-test") is load("lab03.f_and_g")
    assert rooms.room_of(kept, LAB, built, f"{ROW}-test") is not None
    old = rooms.room_of(kept, LAB, built, f"{COLUMN}-test")
    assert old is not load("lab03.column_linear")
    assert folder in old.path.parents
    assert old.cases[0].name == load("lab03.column_linear").cases[0].name
    assert not list(folder.rglob("__pycache__"))


def test_an_earlier_room_finds_its_own_helpers_and_leaves_todays_alone(course):
    lab = "lab05-layer-partitioning"
    package = f"distgrade.labs.{lab.replace('-', '_')}"
    today = load("lab05.even_split")
    helper = sys.modules[f"{package}._bounds"]
    folder = course.root / "e" / lab.replace("-", "_")
    shutil.copytree(LABS / folder.name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "_bounds.py").open("a") as file:
        file.write("\nEARLIER = True\n")
    room = (folder / "even_split.py").read_text()
    room = room.replace("_bounds import invalid", "_bounds import EARLIER, invalid")
    (folder / "even_split.py").write_text(room)
    old = editions.room(editions.Edition(lab, "0" * 64, folder.parent), "lab05.even_split")
    assert old.oracle.__globals__["EARLIER"]
    assert old is not today
    assert sys.modules[f"{package}._bounds"] is helper
    assert not hasattr(helper, "EARLIER")
    assert load("lab05.even_split") is today


def git(root, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_an_edition_is_found_in_the_history_with_its_last_rooms(tmp_path):
    course = Course(tmp_path)
    labs = tmp_path / "autograder" / "distgrade" / "labs" / LAB.replace("-", "_")
    labs.mkdir(parents=True)
    shutil.copy(LABS / labs.name / "column_linear.py", labs)
    git(tmp_path, "init", "-q")
    for step, nb in enumerate((earlier(), None, released_lab())):
        if nb is not None:
            put(course, nb)
        (labs / "mark.txt").write_text(str(step))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", str(step))
    edition = edition_of(course, LAB, handed_in(), released_lab())
    assert edition is not None
    assert (edition.rooms / "mark.txt").read_text() == "1"  # corrected after the release
    assert edition.release() == earlier()
    assert editions.room(edition, "lab03.column_linear").id == "lab03.column_linear"
    assert editions.room(edition, "lab03.not_there") is None


def test_releasing_keeps_the_edition_and_its_first_day(kept):
    put(kept, earlier())
    editions.keep(kept, LAB, "2026-12-24")
    edition = editions.Edition(
        LAB, digest_of(earlier()), editions._above(kept, LAB) / digest_of(earlier())
    )
    assert edition.name == "2026-10-03"
    assert [p.name for p in edition.folder.parent.iterdir()] == [edition.digest]
