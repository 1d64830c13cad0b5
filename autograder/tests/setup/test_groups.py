"""Tests of one group run in one worker; pytest, or the order of hooks, can break it in silence."""

import subprocess
import sys

import pytest

from distgrade.exercise import Exercise, all_exercises

FILE = """
import os, pathlib, pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(6))
def test_one(number):
    here = pathlib.Path(__file__).parent
    (here / f"{pathlib.Path(__file__).stem}-{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


@pytest.mark.slow
def test_a_group_stays_in_one_worker(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in ("test_a", "test_b"):
        (tmp_path / f"{name}.py").write_text(FILE)
    options = ["-q", "-n", "2", "--dist", "loadgroup", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    workers = [path.read_text() for path in tmp_path.glob("test_[ab]-*")]
    assert len(workers) == 12
    assert len(set(workers)) == 1, workers


@pytest.mark.parametrize("exercise", all_exercises()[:1], ids=lambda exercise: exercise.id)
def test_tests_of_an_exercise_are_a_group(exercise: Exercise, request, worker_id):
    assert request.node.get_closest_marker("xdist_group").args == (exercise.id,)
    if worker_id != "master":  # what xdist will go by
        assert request.node.nodeid.endswith(f"@{exercise.id}")
