"""The set-up: restartable, alone in its folder, one sentence for each thing a machine may lack.

A shell script plays Python 3.11, venv and pip, so nothing is installed and seconds are not needed.
"""

import fcntl
import json
import os
import shutil
import sys
import threading
from types import SimpleNamespace

import pytest

import bootstrap
import bootstrap_packages as packages

STUB = """#!/bin/bash
here="$(dirname "$0")"
case "$1 $2" in
  "-m venv")
    echo venv >>"$STUB_LOG"
    [ -n "$STUB_VENV_SAYS" ] && { echo "$STUB_VENV_SAYS"; exit 1; }
    mkdir -p "$3/bin"; : >"$3/pyvenv.cfg"
    cp "$0" "$3/bin/python"; echo "#!$3/bin/python" >"$3/bin/pip" ;;
  "-m pip")
    echo "pip $*" >>"$STUB_LOG"
    [ -n "$STUB_PIP_SAYS" ] && { echo "$STUB_PIP_SAYS"; exit 1; }
    mkdir -p "$here/../lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info"
    exit 0 ;;
  *) exec "$STUB_REAL" "$@" ;;
esac
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small repository, and a stub that plays Python 3.11."""
    root = tmp_path / "a course"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "pyproject.toml").write_text("[project]\n")
    (root / "requirements.lock").write_text("# all\ntorch==2.13.0\n")
    stub = tmp_path / "python3.11"
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "calls"))
    monkeypatch.setenv("STUB_REAL", sys.executable)
    monkeypatch.setattr(bootstrap, "candidates", lambda root: [str(stub)])
    return root


def calls(root):
    """What was started, in order: venv and pip."""
    log = root.parent / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def fails(root, capsys):
    """Runs the set-up, which must refuse; returns its one sentence."""
    assert bootstrap.main(["setup"], root) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_fresh_machine_gets_everything_once(root, capsys):
    assert bootstrap.main(["setup"], root) == 0
    venv, lock, ours = calls(root)
    assert venv == "venv"
    assert lock.endswith("-r " + str(root / "requirements.lock"))
    assert "--no-deps --no-build-isolation -e " + str(root / "lib") in ours
    assert bootstrap.main(["setup"], root) == 0
    assert calls(root) == []


def test_an_interrupted_installation_is_gone_on_with(root, monkeypatch, capsys):
    monkeypatch.setenv("STUB_PIP_SAYS", "terminated")
    fails(root, capsys)
    monkeypatch.delenv("STUB_PIP_SAYS")
    calls(root)
    assert bootstrap.main(["setup"], root) == 0
    assert [line.split()[0] for line in calls(root)] == ["pip", "pip"]  # and no second venv


def test_a_package_that_was_removed_is_installed_again(root):
    bootstrap.main(["setup"], root)
    calls(root)
    (info,) = packages.site_of(root).glob("torch-*")
    info.rename(info.with_name("torch-2.12.0.dist-info"))
    assert packages.lacking(root) == ["torch"]
    assert bootstrap.main(["setup"], root) == 0
    assert calls(root)
    assert packages.lacking(root) == []


def test_a_repair_looks_again_where_a_setup_has_nothing_to_do(root):
    bootstrap.main(["setup"], root)
    calls(root)
    assert bootstrap.main(["setup"], root) == 0
    assert calls(root) == []
    assert bootstrap.main(["repair"], root) == 0
    assert [line.split()[0] for line in calls(root)] == ["pip", "pip"]


@pytest.mark.parametrize("name", ["requirements.lock", "lib/pyproject.toml"])
def test_a_changed_pin_is_installed(root, name):
    bootstrap.main(["setup"], root)
    calls(root)
    (root / name).write_text((root / name).read_text() + "# changed\n")
    assert bootstrap.main(["setup"], root) == 0
    assert len(calls(root)) == 2


def test_a_moved_environment_is_built_anew(root):
    bootstrap.main(["setup"], root)
    calls(root)
    moved = root.rename(root.parent / "moved")
    assert bootstrap.main(["setup"], moved) == 0
    assert calls(moved)[0] == "venv"


def test_a_broken_environment_is_built_anew(root):
    bootstrap.main(["setup"], root)
    calls(root)
    (root / ".venv" / "bin" / "python").write_text("#!/nowhere\n")
    assert bootstrap.main(["setup"], root) == 0
    assert calls(root)[0] == "venv"


def test_a_folder_that_is_no_environment_is_left_alone(root, capsys):
    (root / ".venv").mkdir()
    (root / ".venv" / "thesis.txt").write_text("ten years")
    assert "move it away" in fails(root, capsys)
    assert (root / ".venv" / "thesis.txt").exists()


def test_two_at_once_take_turns(root, capsys):
    other = os.open(root, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    codes = []
    second = threading.Thread(target=lambda: codes.append(bootstrap.main(["setup"], root)))
    second.start()
    second.join(1.0)
    assert calls(root) == []  # it has started nothing
    os.close(other)
    second.join()
    assert codes == [0]
    assert "waiting" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pip_says", "sentence"),
    [
        ("ERROR: [Errno 28] No space left on device", "not enough disk space"),
        (
            "WARNING: Retrying ... Temporary failure in name resolution\n"
            "ERROR: No matching distribution found for torch==2.13.0",
            "check the network",
        ),
        ("ReadTimeoutError: Read timed out.", "check the network"),
        ("ERROR: No matching distribution found for torch==2.13.0", "not offer torch==2.13.0"),
        ("PermissionError: [Errno 13] Permission denied: 'x'", "may not be written"),
        ("ERROR: something new", "its last line was: ERROR: something new"),
    ],
)
def test_a_failed_installation_is_one_sentence_and_names_the_log(
    root, monkeypatch, capsys, pip_says, sentence
):
    monkeypatch.setenv("STUB_PIP_SAYS", pip_says)
    said = fails(root, capsys)
    assert sentence in said
    log = root / ".venv" / "install.log"
    assert str(log) in said
    assert pip_says in log.read_text()


def test_debian_without_venv_is_told_which_package(root, monkeypatch, capsys):
    monkeypatch.setenv("STUB_VENV_SAYS", "ensurepip is not available.")
    assert "python3.11-venv" in fails(root, capsys)


def test_a_full_disk_is_seen_before_anything_is_written(root, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**9))
    assert "not enough disk space" in fails(root, capsys)
    assert calls(root) == []


def test_no_python_3_11_is_said(root, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "candidates", lambda root: ["/nowhere/python3.11"])
    assert "Python 3.11 was not found" in fails(root, capsys)


def test_windows_is_sent_to_wsl_or_binder(root, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "os", SimpleNamespace(name="nt"))
    said = fails(root, capsys)
    assert "WSL" in said
    assert "Binder" in said


def test_an_unknown_command_names_the_known_ones(root, capsys):
    assert bootstrap.main(["install"], root) == 1
    assert "setup | lab | reset" in capsys.readouterr().err


def python_that_prints(folder, name, version, *, venv):
    path = folder / name
    path.write_text(f'#!/bin/sh\ncase "$2" in *ensurepip*) {venv};; *) echo {version};; esac\n')
    path.chmod(0o755)
    return str(path)


def test_the_first_complete_python_3_11_is_taken(tmp_path):
    old = python_that_prints(tmp_path, "old", "3 10", venv="echo 1")
    new = python_that_prints(tmp_path, "new", "3 13", venv="echo 1")
    bare = python_that_prints(tmp_path, "bare", "3 11", venv="exit 1")
    good = python_that_prints(tmp_path, "good", "3 11", venv="echo 1")
    assert bootstrap.find_python([old, new, bare, good]) == good
    with pytest.raises(bootstrap.Refused, match=r"lacks its venv module"):
        bootstrap.find_python([old, bare])
    with pytest.raises(bootstrap.Refused, match=r"was not found"):
        bootstrap.find_python([old, new])


def test_python_is_not_sought_in_the_environment_to_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    found = bootstrap.candidates(tmp_path)
    assert found
    assert not [path for path in found if path.startswith(str(tmp_path))]


def install(root, name, files, *, record=True):
    """Writes a package as pip does: its files, and a list of them with sizes."""
    site = packages.site_of(root)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (site / file).write_text(text)
    if record:
        rows = [f"{file},,{len(text)}" for file, text in files.items()]
        (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,", ""]))


def test_half_installed_packages_are_seen_and_whole_ones_kept(tmp_path):
    site = packages.site_of(tmp_path)
    install(tmp_path, "whole", {"whole.py": "x = 1"})
    install(tmp_path, "unlisted", {"unlisted.py": "x = 1"}, record=False)
    install(tmp_path, "lost", {"lost.py": "x = 1"})
    (site / "lost.py").unlink()
    install(tmp_path, "cut", {"cut.py": "x = 1"})
    (site / "cut.py").write_text("x")
    (site / "~orch").mkdir()
    assert packages.mend(tmp_path) == ["cut-1.0", "lost-1.0", "unlisted-1.0"]
    assert [p.name for p in site.glob("*.dist-info")] == ["whole-1.0.dist-info"]
    assert not (site / "~orch").exists()


def test_the_stamp_is_of_this_place_and_this_lock(root):
    bootstrap.main(["setup"], root)
    stamp = json.loads((root / ".venv" / bootstrap.STAMP).read_text())
    assert stamp == {"fingerprint": bootstrap.fingerprint(root), "at": str(root)}
