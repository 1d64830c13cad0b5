"""The doctor of the grader's half: what may be wrong with a course, each with what mends it."""

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from click.testing import CliRunner
from nb_tools import LAB, ROOT

from distgrade import doctor, publish
from distgrade.cli import main
from distgrade.course import MARK, Course
from distgrade.exercise import load


@pytest.fixture
def copy(tmp_path):
    """A course folder with the lab alone, to be broken."""
    shutil.copy(ROOT / MARK, tmp_path)
    for part in ("source", "release"):
        shutil.copytree(ROOT / part / LAB, tmp_path / part / LAB)
    return Course(tmp_path)


def test_settings_that_cant_be_read_are_named(copy):
    assert doctor.settings(copy).well
    (copy.root / MARK).write_text("c = get_config(\n")
    found = doctor.settings(copy)
    assert "SyntaxError" in found.found or "never closed" in found.found
    assert found.mend == f"git checkout {MARK}"
    (copy.root / MARK).write_text("c = get_config()\nc.CourseDirectory.root = '/elsewhere'\n")
    assert "/elsewhere" in doctor.settings(copy).found


def test_a_room_that_cant_be_loaded_and_lost_references_are_named(copy, monkeypatch):
    from distgrade import references

    row = load("lab03.row_linear")
    monkeypatch.setattr("distgrade.exercise.all_exercises", lambda: (row,))
    assert doctor.rooms(copy).well
    monkeypatch.setattr(references, "path", lambda exercise: copy.root / "none.safetensors")
    found = doctor.rooms(copy)
    assert "lab03.row_linear: no frozen references" in found.found
    assert "git checkout autograder/distgrade/labs" in found.mend
    assert "distgrade refs lab03.row_linear" in found.mend

    def broken():
        raise SyntaxError("invalid syntax (row_linear.py, line 3)")

    monkeypatch.setattr("distgrade.exercise.all_exercises", broken)
    found = doctor.rooms(copy)
    assert "row_linear.py, line 3" in found.found
    assert "git checkout autograder/distgrade/labs" in found.mend


def test_source_notebooks_that_lack_or_are_broken_are_named(copy):
    path = copy.source(LAB)
    assert doctor.notebooks(copy).well
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n")
    assert doctor.notebooks(copy).mend == "distgrade canon"
    path.write_bytes(whole[:1000])
    found = doctor.notebooks(copy)
    assert "not valid JSON" in found.found
    assert found.mend == "git checkout source"
    shutil.rmtree(copy.root / "source")
    assert doctor.notebooks(copy) == (
        "source notebooks",
        f"source/ lacks {LAB}",
        "git checkout source",
        "",
    )


def test_a_stale_and_a_missing_release_are_named(copy, tmp_path_factory):
    fresh = tmp_path_factory.mktemp("fresh")
    publish.generate(copy, LAB, fresh)
    path = copy.release(LAB)
    shutil.copy(fresh / LAB / path.name, path)
    assert doctor.release(copy).well
    path.write_bytes(path.read_bytes().replace(b"Tensor parallelism", b"Parallel tensors"))
    assert doctor.release(copy).mend == "distgrade release"
    shutil.rmtree(path.parent)
    assert "missing" in doctor.release(copy).found


def test_a_gradebook_that_is_damaged_half_or_in_use_is_named(copy, monkeypatch):
    found = doctor.gradebook(copy)
    assert found.well  # a fresh clone has none, and needs none
    path = copy.root / "gradebook.db"
    path.write_bytes(b"not a database at all" * 100)
    assert "mv gradebook.db" in doctor.gradebook(copy).mend
    assert "put your copy" in doctor.gradebook(copy).mend
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("create table assignment (name text)")
    db.close()
    assert "only half" in doctor.gradebook(copy).found
    monkeypatch.setattr(doctor, "LOCKED_S", 0.0)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("begin exclusive")
    found = doctor.gradebook(copy)
    db.close()
    assert found == (
        "gradebook",
        "another program is writing to it",
        "wait for it, or close it: formgrader, a grading run",
        "",
    )


def test_a_secret_that_is_lost_short_or_open_to_others_is_named(copy, monkeypatch):
    monkeypatch.delenv("DISTGRADE_SECRET", raising=False)
    assert doctor.secret(copy).well
    assert len(copy.secret()) == 64
    assert doctor.secret(copy).well
    path = copy.root / ".distgrade" / "secret"
    path.chmod(0o644)
    assert doctor.secret(copy).mend == f"chmod 600 {path}"
    path.write_text("")
    assert doctor.secret(copy).mend.startswith(f"rm {path}")
    monkeypatch.setenv("DISTGRADE_SECRET", "x" * 32)
    assert doctor.secret(copy).well


def test_own_cases_that_cant_be_read_are_named(copy):
    assert doctor.own_cases(copy).found == "none"
    path = copy.root / "private" / LAB / "f_and_g.py"
    path.parent.mkdir(parents=True)
    path.write_text("CASES = 1")
    found = doctor.own_cases(copy)
    assert f"private/{LAB}/f_and_g.py: it has no CASES" in found.found
    assert found.mend == "correct it, then: distgrade cases"


def test_an_exchange_that_cant_be_written_is_named(copy):
    assert doctor.exchange(copy).well
    settings = (copy.root / MARK).read_text()
    place = copy.root / "file" / "exchange"
    (copy.root / "file").write_text("")
    (copy.root / MARK).write_text(settings + f"\nc.Exchange.root = {str(place)!r}\n")
    assert doctor.exchange(copy).mend == f"mkdir -p {place} && chmod ugo+rwx {place}"


def test_missing_programs_are_named_and_those_one_can_do_without_are_hints(copy, monkeypatch):
    assert doctor.programs(copy).well
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if path is None else name)
    assert "apt install git" in doctor.programs(copy).better
    assert doctor.browser(copy).well
    assert "apt install chromium" in doctor.browser(copy).better
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    assert doctor.programs(copy).mend == "make repair"


def test_a_check_that_fails_is_a_finding(monkeypatch):
    def broken(course):
        raise OSError("disk gone")

    monkeypatch.setattr(doctor, "CHECKS", (("something", broken),))
    (found,) = doctor.examine(Course(ROOT))
    assert (found.what, found.mend) == ("something", "make repair")
    assert "disk gone" in found.found


def test_the_grader_can_be_asked_and_answers_about_itself():
    quick = {name for name, _ in doctor.CHECKS} - {"release", "grading kernel", "exercises"}
    assert len(quick) >= 9
    checks = [(name, check) for name, check in doctor.CHECKS if name in quick]
    for name, check in checks:
        assert check(Course(ROOT)).what == name


def lacking(package, *arguments):
    """What `distgrade` says where a package can't be imported."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = {list(arguments)!r}\n"
        "from distgrade.__main__ import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )


@pytest.mark.parametrize("package", ["click", "rich", "nbformat"])
def test_a_missing_package_is_one_sentence(package):
    done = lacking(package, "check", "x.ipynb")
    assert done.returncode == 1
    assert done.stderr.startswith(f"distgrade: the package {package}")
    assert done.stderr.count("\n") == 1
    assert "make setup" in done.stderr


def test_doctor_starts_the_machines_doctor_with_this_python(monkeypatch, tmp_path):
    started = []

    def run(command):
        started.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.chdir(ROOT)
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 1
    assert started == [[sys.executable, str(ROOT / "lib/bootstrap.py"), "doctor", sys.executable]]
    assert os.path.isfile(started[0][1])
