"""For somebody who learns alone: hints for every exercise, solutions after a try, progress."""

import json
import re
import shutil
from functools import cache

import pytest
from click.testing import CliRunner
from nb_tools import ROOT

from distgrade import learning, progress, selfcheck
from distgrade.check import check_notebook
from distgrade.cli import main
from distgrade.course import Course
from distgrade.exercise import all_exercises
from distgrade.notebook import exercise_of, graded_cells, read_notebook, solution_cells
from distlab.learn import records
from distlab.learn.hints import exercises_with_hints, hints_of

COURSE = Course(ROOT)
EXERCISES = {e.id: e for e in all_exercises()}
REGION = re.compile(r"### BEGIN SOLUTION\n(.*?)\s*### END SOLUTION", re.S)
LAB = "lab05-layer-partitioning"

every_exercise = pytest.mark.parametrize("exercise", EXERCISES)


@cache
def notebook(half: str, lab: str):
    """A lab's notebook as it is in `source` or `release`."""
    return read_notebook(getattr(COURSE, half)(lab))


def bare(text: str) -> str:
    """A text without the white space that a reader doesn't see."""
    return re.sub(r"\s+", "", text)


def solution_of(exercise: str) -> str:
    """What only the solution has: the text between its marks, comments apart."""
    room = EXERCISES[exercise]
    source = solution_cells(notebook("source", room.lab))[room.name].source
    lines = "\n".join(REGION.findall(source)).splitlines()
    return "\n".join(line for line in (line.partition("  #")[0] for line in lines) if line.strip())


def test_every_exercise_has_hints_and_nothing_else_has():
    assert set(exercises_with_hints()) == set(EXERCISES)


@every_exercise
def test_hints_come_in_two_steps_at_least(exercise):
    assert len(hints_of(exercise)) >= 2


@every_exercise
def test_no_hint_holds_a_line_of_the_solution(exercise):
    lines = {bare(line) for line in solution_of(exercise).splitlines()}
    lines = {line for line in lines if len(line) >= 12}
    text = bare("".join(text for _, text in hints_of(exercise)))
    assert not {line for line in lines if line in text}


@every_exercise
def test_code_in_a_hint_is_given_to_the_student_anyway(exercise):
    room = EXERCISES[exercise]
    released = bare("".join(c.source for c in notebook("release", room.lab).cells))
    solution = bare(solution_of(exercise))
    for _, text in hints_of(exercise):
        for code in map(bare, re.findall(r"`([^`]+)`", text)):
            name = re.fullmatch(r"[\w.]+", code)  # a tool may be named
            told = name or len(code) < 12 or code in released or code not in solution
            assert told, f"`{code}` is a part of the solution"


# --- solutions -------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", {e.partition(".")[0]: e for e in EXERCISES}.values())
def test_the_solution_that_is_shown_is_the_sources_without_marks(exercise):
    text = learning.solution(exercise)
    compile(text, exercise, "exec")
    assert bare(solution_of(exercise).splitlines()[0]) in bare(text)
    assert "###" not in text


def test_no_solution_of_what_is_not_there():
    with pytest.raises(LookupError, match=r"no exercise 'lab03\.nothing'"):
        learning.solution("lab03.nothing")


def test_another_room_is_another_grader(tmp_path, monkeypatch):
    versions = {learning.version(exercise) for exercise in EXERCISES}
    assert len(versions) == len(EXERCISES)
    assert learning.version("lab03.nothing") == ""


# --- checks leave results ----------------------------------------------------------------------


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A learner's work folder with one lab, in which one exercise is solved."""
    (tmp_path / "nbgrader_config.py").write_text("")
    for top in ("release", "work"):
        (tmp_path / top / LAB).mkdir(parents=True)
        shutil.copy(COURSE.release(LAB), tmp_path / top / LAB)
    (tmp_path / "source").symlink_to(ROOT / "source")
    (tmp_path / "work" / records.MARK).write_text("{}")
    monkeypatch.chdir(tmp_path / "work" / LAB)
    monkeypatch.setenv("COLUMNS", "100")
    write(tmp_path / "work", {"even_split": learning.solution("lab05.even_split")})
    return tmp_path / "work"


def write(work, answers: dict[str, str]) -> None:
    path = work / LAB / f"{LAB}.ipynb"
    nb = json.loads(path.read_text())
    for cell in nb["cells"]:
        cell["source"] = answers.get(cell["id"], cell["source"])
    path.write_text(json.dumps(nb))


def told(*arguments: str) -> dict:
    done = CliRunner().invoke(main, ["progress", "--json", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (lab,) = json.loads(done.stdout)["labs"]
    return {e["id"]: e for e in lab["exercises"]}


def test_a_check_in_the_notebook_is_seen_by_progress(work, capsys):
    import linecache

    text = learning.solution("lab05.even_split")
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    space = {}
    exec(compile(text, "<cell>", "exec"), space)
    assert told()["lab05.even_split"]["state"] == "unchecked"
    selfcheck.check("lab05.even_split", (space["even_split"],))
    found = told()["lab05.even_split"]
    assert (found["state"], found["points"], found["max_points"]) == ("passed", 3, 3)
    write(work, {"even_split": text + "\n# changed"})
    found = told()["lab05.even_split"]
    assert (found["state"], found["before"], found["points"]) == ("stale", "passed", 0)


def test_a_changed_room_makes_a_result_an_old_one(work, monkeypatch):
    text = learning.solution("lab05.even_split")
    kept = records.Kept("passed", 3, 3, "another", "then")
    records.shelf_at(work).note("lab05.even_split", records.digest(text), kept)
    assert told()["lab05.even_split"]["state"] == "stale"


def test_progress_lists_all_exercises_of_the_lab_in_order(work):
    tests = graded_cells(notebook("release", LAB))
    assert list(told()) == [exercise_of(test, LAB) for test in tests]
    assert sum(e["max_points"] for e in told().values()) == sum(
        room.points for room in EXERCISES.values() if room.lab == LAB
    )


def test_progress_for_people_is_a_table_and_says_what_to_do(work):
    done = CliRunner().invoke(main, ["progress"])
    assert done.exit_code == 0
    for words in ("lab05.even_split", "not checked yet", "not written yet", "0/39", "--again"):
        assert words in done.output


@pytest.mark.slow
def test_again_grades_what_was_never_checked_and_check_notes_it_too(work):
    answers = {
        "even_split": learning.solution("lab05.even_split"),
        "min_max_partition": "def min_max_partition(costs, stages):\n    return [0]",
    }
    write(work, answers)
    found = told("--again")
    assert (found["lab05.even_split"]["state"], found["lab05.even_split"]["points"]) == (
        "passed",
        3,
    )
    assert found["lab05.min_max_partition"]["state"] in ("failed", "error")
    assert found["lab05.count_optimal"]["state"] == "unwritten"
    assert told() == found  # kept: nothing is run this time
    shutil.rmtree(work / records.FOLDER)
    CliRunner().invoke(main, ["check", str(work / LAB / f"{LAB}.ipynb")])
    now = told()
    assert {k: e["state"] for k, e in now.items()} == {k: e["state"] for k, e in found.items()}


@pytest.mark.slow
def test_asking_for_hints_costs_no_mark(work):
    path = work / LAB / f"{LAB}.ipynb"
    nb = json.loads(path.read_text())
    place = next(i for i, cell in enumerate(nb["cells"]) if cell["id"] == "even_split-test")
    for line in ("%hint", "%reveal lab05.even_split", "%hint lab05.even_split"):
        asked = {"cell_type": "code", "id": line[1:5] + str(len(line)), "metadata": {}}
        nb["cells"].insert(place, asked | {"source": line, "outputs": [], "execution_count": None})
    path.write_text(json.dumps(nb))
    report = check_notebook(path)
    found = {outcome.id: outcome.points for outcome in report.exercises}
    assert found["lab05.even_split"] == 3


def test_a_notebook_that_lies_elsewhere_leaves_no_result(work, tmp_path):
    report = type("Report", (), {"lab": LAB, "exercises": ()})()
    for place in (tmp_path / f"{LAB}.ipynb", work / LAB / "copy.ipynb"):
        shutil.copy(work / LAB / f"{LAB}.ipynb", place)
        progress.remember(place, report)
    assert not (work / records.FOLDER).exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["."], "holds no labs"),
    ],
)
def test_a_folder_that_is_none_is_one_sentence(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["progress", *arguments])
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
