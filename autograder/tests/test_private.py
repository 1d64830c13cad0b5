"""A teacher's own cases: graded with the rest, never released, nothing without the folder."""

import shutil

import pytest
from corpus import objects_of, solution_text
from nb_tools import LAB, ROOT

from distgrade import private, references, verdicts
from distgrade.course import Course, CourseError
from distgrade.engine import harness_source, observe_here
from distgrade.exercise import Exercise, RoomError, load
from distgrade.private import try_out, with_own_cases
from distgrade.verify import grade

COLUMN = "lab03.column_linear"
GOOD = """
from distgrade.exercise import Case

CASES = (
    Case("seven ranks", "values", n=7, batch=(2,), widths=(1, 2) + (1,) * 5, d_in=3, turned=True),
)
"""


@pytest.fixture
def course(tmp_path):
    shutil.copytree(ROOT / "release" / LAB, tmp_path / "release" / LAB)
    return Course(tmp_path)


def own(course, text, name="column_linear", lab=LAB):
    path = course.root / "private" / lab / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def outcome(exercise: Exercise, source: str, seeds=(0, 5)):
    return grade(exercise, observe_here(exercise, objects_of(exercise, source), seeds))


def test_without_the_folder_nothing_changes(course):
    room = load(COLUMN)
    assert with_own_cases(course, room) is room
    assert private.labs(course) == []
    assert private.files(course, LAB) == {}


def test_own_cases_are_graded_with_the_rest(course):
    room = load(COLUMN)
    own(course, GOOD)
    whole = with_own_cases(course, room)
    assert [c.name for c in whole.cases[-1:]] == ["seven ranks"]
    assert whole.points == room.points
    assert references.read(whole)  # the frozen ones are still in date
    assert verdicts.fingerprint(whole) != verdicts.fingerprint(room)
    assert "seven ranks" in harness_source(whole, (0,), "nonce")
    right = outcome(whole, solution_text(room))
    assert (right.status, right.points) == ("passed", room.points)
    # who is right but for what only the own case asks for loses its group, and reads its name
    narrow = solution_text(room) + (
        "\n_apply = ColumnLinear.apply\n"
        "ColumnLinear.apply = staticmethod(lambda x, w, b, comm: _apply(x, w, b, comm)"
        " * (2 if comm.size == 7 else 1))\n"
    )
    assert outcome(room, narrow).status == "passed"
    lost = outcome(whole, narrow)
    assert lost.points == room.points - room.credit["values"]
    assert "seven ranks" in lost.message


def test_a_known_mistake_is_still_told(course):
    own(course, GOOD)
    whole = with_own_cases(course, load(COLUMN))
    wrong = whole.wrong[0]
    assert outcome(whole, wrong.source).diagnosis == wrong.sentence


def test_what_own_cases_are_worth_is_tried_on_the_known_answers(course):
    own(course, GOOD)
    (tried,) = try_out(course, LAB)
    assert tried.refused == ()
    assert 0 < len(tried.caught) <= tried.of
    assert "bias_forgotten" in tried.caught
    own(course, GOOD.replace("seven", "eight"), "row_linear")
    with pytest.raises(RoomError, match="needs the parameters"):
        list(try_out(course, LAB))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CASES = 3", "no CASES"),
        ("", "no CASES"),
        ("raise ValueError('x')", "ValueError: x"),
        ("CASES = (", "SyntaxError"),
        (GOOD.replace('"values"', '"speed"'), "no group"),
        (GOOD.replace("d_in=3, ", ""), "needs the parameters batch, d_in"),
        (GOOD.replace("seven ranks", "two ranks"), "one name"),
        (GOOD.replace("widths=(1, 2)", "widths=('x', 2)"), "could not|the oracle failed"),
    ],
)
def test_a_file_that_cant_be_used_is_one_sentence_that_names_it(course, text, says):
    own(course, text)
    with pytest.raises(RoomError, match=says) as caught:
        with_own_cases(course, load(COLUMN))
    assert str(caught.value).startswith(f"private/{LAB}/column_linear.py")
    assert "\n" not in str(caught.value)


def test_a_name_that_belongs_to_nothing_is_not_forgotten_in_silence(course):
    own(course, GOOD, "colum_linear")
    with pytest.raises(CourseError, match=r"there is no exercise lab03\.colum_linear"):
        private.files(course, LAB)
    own(course, GOOD, lab="lab03")
    with pytest.raises(CourseError, match="no such lab"):
        private.labs(course)


def test_the_folder_is_never_committed():
    assert "private/" in (ROOT / ".gitignore").read_text().splitlines()
