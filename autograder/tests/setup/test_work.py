"""work/ is the student's: filled from release/, never written over; JupyterLab opens there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import bootstrap_reading as reading
import bootstrap_work as work

ROOT = Path(__file__).parents[3]
LAB = "lab03-tensor-parallel"
NOTEBOOK = f"{LAB}/{LAB}.ipynb"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "release" / LAB).mkdir(parents=True)
    (tmp_path / "release" / NOTEBOOK).write_text("release 1")
    return tmp_path


@pytest.fixture
def said():
    return []


def fill(root, said):
    said.clear()
    work.fill(root, said.append)
    return "\n".join(said)


def test_the_first_copy_has_every_released_file_and_no_checkpoint(root, said):
    (root / "release" / LAB / "picture.svg").write_text("<svg/>")
    (root / "release" / LAB / ".ipynb_checkpoints").mkdir()
    (root / "release" / LAB / ".ipynb_checkpoints" / "old.ipynb").write_text("old")
    assert "2 new files" in fill(root, said)
    assert (root / "work" / NOTEBOOK).read_text() == "release 1"
    assert sorted(os.listdir(root / "work" / LAB)) == [f"{LAB}.ipynb", "picture.svg"]


@pytest.fixture
def course(root):
    (root / "course" / "chapters").mkdir(parents=True)
    (root / "course" / "instructors").mkdir()
    (root / "course" / "glossary.md").write_text("Words, also on [the web](https://example.org).")
    (root / "course" / "instructors" / "rubrics.md").write_text("for staff")
    (root / "course" / "chapters" / "three.md").write_text(
        "[Lab 3](../../release/lab03-tensor-parallel/lab03-tensor-parallel.ipynb#top), its "
        "[words](../glossary.md#a), [lab 9](../../release/lab09/lab09.ipynb), "
        "[a\nrubric](../instructors/rubrics.md), ![a picture](../figures/x.svg)"
    )
    return root


def test_chapters_and_glossary_lie_beside_the_labs_with_links_that_hold(course, said):
    assert "1 new file " in fill(course, said)  # texts are nothing that one has to do
    here = course / "work" / "course"
    assert sorted(os.listdir(here)) == ["chapters", "glossary.md"]
    assert (here / "glossary.md").read_text() == (course / "course" / "glossary.md").read_text()
    assert (here / "chapters" / "three.md").read_text() == (
        "[Lab 3](../../lab03-tensor-parallel/lab03-tensor-parallel.ipynb#top), its "
        "[words](../glossary.md#a), lab 9, a\nrubric, ![a picture](../figures/x.svg)"
    )


def test_a_text_follows_the_course_until_somebody_writes_into_it(course, said):
    fill(course, said)
    ours, theirs = (course / place / "course" / "glossary.md" for place in (".", "work"))
    ours.write_text("new words")
    fill(course, said)
    assert theirs.read_text() == "new words"
    theirs.write_text("new words, and my note")
    ours.write_text("newer words")
    assert fill(course, said) == ""
    assert theirs.read_text() == "new words, and my note"
    theirs.unlink()
    fill(course, said)
    assert theirs.read_text() == "newer words"
    assert not list(theirs.parent.glob(".*"))


def test_every_link_of_the_courses_own_texts_leads_somewhere_in_work():
    texts = reading.readings(ROOT)
    there = {*texts, *work.released(ROOT)}
    assert {"course/glossary.md", "course/chapters/introduction.md", "AGENTS.md"} <= set(texts)
    for name, data in texts.items():
        if not name.endswith(".md"):
            continue
        for target in re.findall(r"\]\(([^)\s#]+)", data.decode()):
            if not reading.ELSEWHERE.match(target):
                place = os.path.normpath(os.path.join(os.path.dirname(name), target))
                assert place in there, f"{name}: {target}"


def test_a_students_file_is_never_written_over(root, said):
    fill(root, said)
    (root / "work" / NOTEBOOK).write_text("my answers")
    (root / "work" / LAB / "notes.txt").write_text("mine")
    (root / "release" / LAB / "notes.txt").write_text("released later")
    fill(root, said)
    assert (root / "work" / NOTEBOOK).read_text() == "my answers"
    assert (root / "work" / LAB / "notes.txt").read_text() == "mine"


def test_a_new_lab_is_added_beside_the_old_one(root, said):
    fill(root, said)
    (root / "release" / "lab04").mkdir()
    (root / "release" / "lab04" / "lab04.ipynb").write_text("new")
    assert "1 new file " in fill(root, said)
    assert (root / "work" / "lab04" / "lab04.ipynb").read_text() == "new"


@pytest.mark.parametrize("mine", ["release 1", "my answers"])
def test_a_changed_release_is_named_and_the_copy_kept(root, said, mine):
    fill(root, said)
    (root / "work" / NOTEBOOK).write_text(mine)
    assert fill(root, said) == ""
    (root / "release" / NOTEBOOK).write_text("release 2")
    text = fill(root, said)
    assert NOTEBOOK in text
    assert f"make reset LAB={LAB}" in text
    assert (root / "work" / NOTEBOOK).read_text() == mine


def test_a_lost_record_costs_no_file(root, said):
    fill(root, said)
    (root / "work" / NOTEBOOK).write_text("my answers")
    (root / "work" / work.RECORD).write_text("{ half a rec")
    fill(root, said)
    assert (root / "work" / NOTEBOOK).read_text() == "my answers"


def test_reset_takes_the_new_copy_and_keeps_each_old_one(root, said):
    fill(root, said)
    for number, mine in enumerate(["first try", "second try"], start=1):
        (root / "work" / NOTEBOOK).write_text(mine)
        (root / "release" / NOTEBOOK).write_text(f"release {number + 1}")
        work.reset(root, "lab03", said.append)
        aside = root / "work" / LAB / f"{LAB}.mine-{number}.ipynb"
        assert aside.read_text() == mine
        assert any(aside.name in line for line in said)
        assert (root / "work" / NOTEBOOK).read_text() == f"release {number + 1}"
    assert fill(root, said) == ""  # the record knows the fresh copy


def test_reset_of_an_untouched_lab_leaves_no_copy(root, said):
    fill(root, said)
    work.reset(root, LAB, said.append)
    assert os.listdir(root / "work" / LAB) == [f"{LAB}.ipynb"]


@pytest.mark.parametrize("key", ["", "lab", "lab99"])
def test_reset_asks_which_lab_when_the_name_is_not_one(root, said, key):
    (root / "release" / "lab04").mkdir()
    with pytest.raises(work.Refused, match=f"LAB=lab03.*{LAB}"):
        work.reset(root, key, said.append)


@pytest.mark.parametrize("env", [{"OPEN": "no"}, {"BROWSER": "none"}, {"OPEN": "0"}])
def test_a_browser_can_be_refused(env):
    screen = {"DISPLAY": ":0"}
    assert work.wants_browser(screen)
    assert not work.wants_browser({**screen, **env})
    assert "--no-browser" in work.lab_command({**screen, **env})


def test_only_root_is_told_so_to_jupyter(monkeypatch):
    monkeypatch.setattr(work.os, "geteuid", lambda: 0)
    assert "--allow-root" in work.lab_command({})
    monkeypatch.setattr(work.os, "geteuid", lambda: 1000)
    assert "--allow-root" not in work.lab_command({})


def test_without_a_start_page_the_reason_is_one_line(root, said):
    fill(root, said)
    said.clear()
    program = root / "python"
    program.write_text(
        "#!/bin/sh\necho a long story >&2; echo No module named distlab >&2; exit 1\n"
    )
    program.chmod(0o755)
    work.write_start_page(root, str(program), {}, said.append)
    assert said == ["No module named distlab"]
    assert not (root / "work" / work.START).exists()


@pytest.mark.slow
def test_the_lab_opens_offline_shows_validate_alone_and_leaves_nothing_running(
    repository, root, tmp_path
):
    (root / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (root / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    (root / "lib").mkdir()
    (root / "lib" / "jupyter").symlink_to(repository / "lib" / "jupyter")
    program = (
        "import sys, pathlib, bootstrap, bootstrap_work as w; r = pathlib.Path(sys.argv[1])\n"
        "w.fill(r, bootstrap.say); sys.exit(w.open_lab(r, bootstrap.environment(r), bootstrap.say))"
    )
    env = {**os.environ, "OPEN": "no", "HOME": str(tmp_path), "PYTHONPATH": str(repository / "lib")}
    for name in [n for n in env if n.startswith("JUPYTER")]:
        del env[name]
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(root)], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        lines = iter(child.stdout.readline, "")
        url = next(m[0] for line in lines if (m := re.search(r"http://127\.0\.0\.1:\d+/\S+", line)))
        page = urllib.request.urlopen(url, timeout=60).read().decode()
        config = json.loads(
            re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.S)[1]
        )
        assert config["news"] == {"disabled": True}
        off = {
            name for name in config["disabledExtensions"] if name.startswith("@jupyter/nbgrader:")
        }
        parts = ("assignment-list", "course-list", "create-assignment", "formgrader", "menu")
        assert off == {f"@jupyter/nbgrader:{part}" for part in parts}
        base, token = url.split("lab/tree/start.ipynb?token=")
        request = urllib.request.Request(
            f"{base}api/contents/{NOTEBOOK}?content=0", headers={"Authorization": f"token {token}"}
        )
        assert json.load(urllib.request.urlopen(request, timeout=60))["name"] == f"{LAB}.ipynb"
        assert (root / "work" / work.START).exists()
    finally:
        child.send_signal(signal.SIGTERM)
        code = child.wait(timeout=60)
    assert code == 0
    deadline = time.monotonic() + 60
    while list((root / ".venv" / "run").glob("jpserver-*.json")):
        assert time.monotonic() < deadline, "the server's note is still there"
        time.sleep(0.1)
    with pytest.raises(OSError, match=r"refused"):
        urllib.request.urlopen(url, timeout=5)
