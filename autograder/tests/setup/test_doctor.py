"""The doctor of the machine: each thing that may be wrong is named with the command that mends it.

It must run where nothing else does, so each is broken here and looked at by itself.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest

import bootstrap
import bootstrap_doctor as doctor
import bootstrap_inside as inside
from bootstrap_doctor import Finding


def test_no_python_names_what_to_install_and_then_to_type(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "candidates", lambda root: [])
    found = doctor.python(tmp_path)
    assert "Python 3.11 was not found" in found.found
    assert "sudo apt install python3.11-venv" in found.mend
    assert found.mend.endswith("make setup")


def test_without_make_the_set_up_starts_by_itself(tmp_path, monkeypatch):
    assert not doctor.make(tmp_path).mend
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt install make" in doctor.make(tmp_path).mend
    assert "python3 lib/bootstrap.py setup" in doctor.make(tmp_path).mend


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    assert not doctor.room(tmp_path).mend
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4e8))
    assert doctor.room(tmp_path) == (
        "disk",
        "0.4 GB free",
        f"make room on the disk of {tmp_path}",
        "",
    )


def test_a_folder_that_cant_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    assert not doctor.writable(tmp_path).mend
    monkeypatch.setattr(doctor, "written", lambda place: place.name != "work")
    found = doctor.writable(tmp_path)
    assert found.mend == f"sudo chown -R $USER {tmp_path / 'work'}"


def test_whether_a_folder_can_be_written_is_tried(tmp_path):
    assert doctor.written(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not doctor.written(tmp_path / "none")


def test_a_folder_for_temporary_files_is_there_and_its_path_short(tmp_path, monkeypatch):
    assert (
        "export TMPDIR=/tmp" in doctor.temporary(tmp_path).mend or len(tempfile.gettempdir()) < 61
    )
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "long" * 20)
    assert doctor.temporary(tmp_path).mend == "export TMPDIR=/tmp"

    def none():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert "export TMPDIR" in doctor.temporary(tmp_path).mend


def test_a_home_that_cant_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not doctor.home(tmp_path).mend
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert "HOME" in doctor.home(tmp_path).mend


@pytest.mark.parametrize("name", doctor.ASTRAY)
def test_a_variable_that_leads_elsewhere_is_to_be_unset(tmp_path, monkeypatch, name):
    for each in doctor.ASTRAY:
        monkeypatch.delenv(each, raising=False)
    assert not doctor.variables(tmp_path).mend
    monkeypatch.setenv(name, "off")
    assert doctor.variables(tmp_path).mend == f"unset {name}"


def test_a_machine_that_cant_reach_itself_is_named(tmp_path, monkeypatch):
    assert not doctor.loopback(tmp_path).mend

    def refuses(*_):
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuses)
    found = doctor.loopback(tmp_path)
    assert "Cannot assign requested address" in found.found
    assert "ip link set lo up" in found.mend


def test_an_environment_that_is_absent_or_broken_is_set_up(tmp_path):
    assert doctor.environment(tmp_path).mend == "make setup"
    (tmp_path / ".venv").mkdir()
    found = doctor.environment(tmp_path)
    assert ("was moved" in found.found, found.mend) == (True, "make setup")
    assert doctor.finished(tmp_path) is None


def test_a_set_up_that_did_not_end_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "usable", lambda root: True)
    monkeypatch.setattr(bootstrap, "stamped", lambda root: False)
    assert doctor.finished(tmp_path).mend == "make setup"
    monkeypatch.setattr(bootstrap, "stamped", lambda root: True)
    assert not doctor.finished(tmp_path).mend


def test_every_finding_is_a_line_and_what_is_to_mend_is_counted(tmp_path, monkeypatch, capsys):
    def broken(root):
        raise OSError("disk gone\nand more")

    checks = (
        ("one", lambda root: Finding("one", "fine")),
        ("two", lambda root: Finding("two", "bad", "make two")),
        ("three", lambda root: Finding("three", "meagre", better="buy more")),
        ("four", broken),
    )
    monkeypatch.setattr(doctor, "MACHINE", checks)
    assert doctor.report(tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok one: fine",
        "-- two: bad",
        "     mend: make two",
        "ok three: meagre",
        "     better: buy more",
        "-- four: could not be looked at (disk gone)",
        "     mend: make repair",
        f"-- environment: there is none yet in {tmp_path / '.venv'}",
        "     mend: make setup",
        "3 to mend.",
    ]


def test_a_check_that_dies_in_the_environment_is_a_finding(tmp_path):
    program = 'print(\'["a", "b", "", ""]\'); import nowhere_to_be_found'
    first, second = doctor.asked([sys.executable, "-c", program], "environment", tmp_path)
    assert first == ("a", "b", "", "")
    assert "No module named 'nowhere_to_be_found'" in second.found
    assert second.mend == "make repair"


# --- what the environment's Python tells of itself ----------------------------------------------


@pytest.fixture
def root(tmp_path):
    (tmp_path / "requirements.lock").write_text("# all\n")
    return tmp_path


def test_a_package_that_lacks_or_has_another_version_is_named(root):
    assert not inside.versions(root).mend
    (root / "requirements.lock").write_text("torch==0.1\nnosuchthing==1.0\n# pip\n")
    found = inside.versions(root)
    assert "torch is" in found.found
    assert "nosuchthing is missing" in found.found
    assert found.mend == "make setup"
    (root / "requirements.lock").unlink()
    assert inside.versions(root).mend == "git checkout requirements.lock"


def test_lost_files_are_named(root, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    info = root / ".venv/lib/python3.11/site-packages/thing-1.0.dist-info"
    info.mkdir(parents=True)
    found = inside.files(root)
    assert "thing-1.0" in found.found
    assert found.mend == "make repair"
    shutil.rmtree(info)
    assert not inside.files(root).mend


def test_packages_of_another_folder_are_named(root, repository):
    assert not inside.own(repository).mend
    (root / "lib").mkdir()
    shutil.copy(repository / "lib" / "pyproject.toml", root / "lib")
    found = inside.own(root)
    assert str(repository) in found.found
    assert found.mend == "make repair"


def test_programs_and_the_button_are_looked_for_beside_this_python(root, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(root / "bin" / "python"))
    monkeypatch.setattr(sys, "prefix", str(root))
    assert inside.programs(root).mend == "make repair"
    assert inside.validate(root).mend == "make repair"
    for name in inside.PROGRAMS:
        (root / "bin").mkdir(exist_ok=True)
        (root / "bin" / name).write_text("#!/bin/sh\n")
        (root / "bin" / name).chmod(0o755)
    (root / "share/jupyter/labextensions/@jupyter/nbgrader").mkdir(parents=True)
    assert not inside.programs(root).mend
    assert not inside.validate(root).mend


def test_a_kernel_of_the_same_name_that_runs_another_python_is_to_be_removed(root, monkeypatch):
    assert not inside.kernel(root).mend
    spec = root / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = {
        "argv": ["/usr/bin/env", "-m", "ipykernel_launcher"],
        "display_name": "x",
        "language": "p",
    }
    (spec / "kernel.json").write_text(json.dumps(argv))
    monkeypatch.setenv("JUPYTER_PATH", str(root))
    found = inside.kernel(root)
    assert "python3 runs /usr/bin/env" in found.found
    assert found.mend == f"rm -r '{spec}'"


def test_little_memory_is_a_hint_and_no_fault(root, monkeypatch):
    monkeypatch.setattr(inside, "LITTLE_MEMORY_BYTES", 10**15)
    found = inside.memory(root)
    assert found is None or (not found.mend and "close other programs" in found.better)


def test_ranks_that_cant_work_together_are_named(root, monkeypatch):
    assert not inside.simulated(root).mend
    monkeypatch.setattr(inside, "_add", lambda comm, x: 1 / 0)
    found = inside.simulated(root)
    assert "can't work together" in found.found
    assert found.mend == "make repair"


def test_it_runs_by_itself_with_no_package_of_ours(repository, tmp_path):
    """From a bare Python, as on a machine where the set-up broke off."""
    shutil.copytree(repository / "lib", tmp_path / "lib", ignore=shutil.ignore_patterns("distlab"))
    (tmp_path / "requirements.lock").write_text("")
    command = [sys.executable, "-S", str(tmp_path / "lib" / "bootstrap.py"), "doctor"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("     mend: make setup\n1 to mend.\n"), done.stdout
