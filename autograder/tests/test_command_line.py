"""What `distgrade` says, and the exit codes that scripts rely on."""

import importlib.util
import json
import shutil

import pytest
from click.testing import CliRunner
from nb_tools import LAB, ROOT, answered, released_lab, solutions, worth

from distgrade import exercise
from distgrade.classroom.demo import write_raw
from distgrade.cli import main
from distgrade.course import Course, CourseError, find_course
from distgrade.notebook import canonical, graded_cells, read_notebook, solution_cells
from distgrade.scaffold import new_exercise

STATUSES = {"passed", "partial", "failed", "not-written", "error", "timeout", "missing"}


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def copy(tmp_path):
    """A course folder with the lab alone, to be written in."""
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    for part in ("source", "release"):
        shutil.copytree(ROOT / part / LAB, tmp_path / part / LAB)
    return Course(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no json", b"{}", b'{"nbformat": 4, "cells": []}'])
def test_a_file_that_cant_be_graded_is_exit_code_2_and_one_sentence(tmp_path, content):
    path = tmp_path / "homework.ipynb"
    path.write_bytes(content)
    for arguments in (("check", path), ("check", path, "--json")):
        done = run(*arguments)
        assert done.exit_code == 2
        assert done.output.startswith("distgrade: ")
        assert done.output.count("\n") == 1


def test_a_missing_file_and_an_unknown_lab_are_exit_code_2(tmp_path):
    assert run("check", tmp_path / "none.ipynb").exit_code == 2
    nb = released_lab()
    nb.metadata["distlab"] = {"lab": "lab98-nothing"}
    path = tmp_path / "x.ipynb"
    write_raw(path, nb)
    done = run("check", path)
    assert done.exit_code == 2
    assert "there is no lab lab98-nothing" in done.output


@pytest.mark.slow
def test_check_gives_full_marks_to_the_solved_and_none_to_the_released_notebook(tmp_path):
    path = tmp_path / "work.ipynb"
    write_raw(path, answered(solutions()))
    done = run("check", path, "--json")
    assert done.exit_code == 0
    report = json.loads(done.output)
    assert report["score"] == report["max_score"] == sum(worth().values())
    assert {e["status"] for e in report["exercises"]} == {"passed"}

    done = run("check", ROOT / "release" / LAB / f"{LAB}.ipynb", "--json")
    assert done.exit_code == 1
    report = json.loads(done.output)
    assert set(report) == {"lab", "score", "max_score", "exercises"}
    assert (report["lab"], report["score"], report["max_score"]) == (LAB, 0, sum(worth().values()))
    for found in report["exercises"]:
        assert set(found) == {"id", "status", "points", "max_points", "message", "diagnosis"}
        assert found["status"] == "not-written"
        assert "not written yet" in found["message"]


@pytest.mark.slow
def test_the_table_gives_the_reason_for_each_lost_point(tmp_path):
    path = tmp_path / "work.ipynb"
    wrong_id = "lab03.row_linear"
    wrong = exercise.load(wrong_id).wrong[0]
    write_raw(path, answered(solutions() | {"row_linear": wrong.source}))
    done = CliRunner(env={"COLUMNS": "400"}).invoke(main, ["check", str(path)])
    assert done.exit_code == 1
    assert wrong.sentence in done.output
    top = sum(worth().values())
    assert f"{top - worth()[wrong_id]:g} of {top:g} points" in done.output


def test_unknown_names_get_the_near_match():
    done = run("refs", "lab03.rowlinear")
    assert done.exit_code == 2
    assert "did you mean lab03.row_linear?" in done.output
    assert "distgrade check" in run("chek").output


def test_refs_check_changes_nothing_and_says_what_differs(tmp_path, monkeypatch):
    from distgrade import references

    assert run("refs", "lab03.row_linear", "--check").exit_code == 0
    monkeypatch.setattr(references, "render", lambda exercise: b"something else")
    done = run("refs", "lab03.row_linear", "--check")
    assert done.exit_code == 1
    assert "lab03.row_linear: differs" in done.output


def test_canon_restores_a_notebook_and_check_only_tells(copy):
    path = copy.source(LAB)
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"nbformat_minor": 5', b'"nbformat_minor": 4'))
    dirty = path.read_bytes()
    assert run("canon", path, "--check").exit_code == 1
    assert path.read_bytes() == dirty
    assert run("canon", path).exit_code == 0
    assert path.read_bytes() == before
    assert run("canon", path, "--check").exit_code == 0


def test_find_course_says_where_it_looked(tmp_path):
    with pytest.raises(CourseError, match="no course"):
        find_course(tmp_path)
    assert find_course(ROOT / "source" / LAB).root == ROOT


def test_a_new_exercise_is_a_room_that_loads_and_a_section_full_of_todos(copy):
    room, notebook, hints = new_exercise(copy, "lab03.all_mine")
    text = room.read_text(encoding="utf-8")
    assert text.count("TODO") >= 5
    assert "{" + "name}" not in text
    spec = importlib.util.spec_from_file_location("all_mine", room)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = exercise.read_room(module, room, "lab03.all_mine")
    assert found.names == ("all_mine",)
    assert found.given(found.cases[2], 0)["x"]
    with pytest.raises(NotImplementedError, match="TODO"):
        found.oracle(found.cases[0], {})
    nb = read_notebook(notebook)
    assert notebook.read_bytes() == canonical(nb)
    assert "TODO" in solution_cells(nb)["all_mine"].source
    test = graded_cells(nb)["all_mine-test"]
    assert test.metadata.nbgrader.points == found.points
    assert 'grade("lab03.all_mine", all_mine)' in test.source
    assert hints.name == "lab03.md"
    assert "## all_mine\n\n### Nudge\n\nTODO" in hints.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("row_linear", "not an exercise id"),
        ("lab03.Row", "not an exercise id"),
        ("lab42.thing", "no lab lab42"),
        ("lab03.row_linear", "there already"),
    ],
)
def test_a_new_exercise_with_a_bad_name_changes_nothing(copy, name, says):
    before = copy.source(LAB).read_bytes()
    with pytest.raises(CourseError, match=says):
        new_exercise(copy, name)
    assert copy.source(LAB).read_bytes() == before
    assert not (copy.root / "autograder").exists()
