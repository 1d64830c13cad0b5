"""What students get: nothing that gives an answer away, and every lab runs with it alone."""

import json
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import machine
import pytest
from packaging.utils import canonicalize_name

from distgrade.notebook import graded_cells, is_solution, read_notebook, solution_cells

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "course" / "bundle"))
import leaks  # noqa: E402
import pack  # noqa: E402 - beside what is packed, no package

LABS = sorted(path.parent.name for path in ROOT.glob("release/lab*/*.ipynb"))
GRADED_LATER = "the visible cases pass; hidden tests run when it is graded."
pytestmark = pytest.mark.xdist_group("bundle")


def whole(name):
    """A fixture that a group of tests makes once."""
    return pytest.fixture(scope="module", name=name)


@whole("secrets")
def secrets_():
    return leaks.of_course(ROOT)


@whole("bundle")
def bundle_(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "student-bundle"
    pack.build(ROOT, folder)
    return folder


# --- what is in it, and what is not -------------------------------------------------------------


def test_the_secrets_are_the_solutions_the_hidden_tests_and_the_rooms(secrets):
    assert len(secrets.lines) > 5_000
    assert len(secrets.runs) > 10_000
    for lab in LABS:
        solved = solution_cells(read_notebook(ROOT / "source" / lab / f"{lab}.ipynb"))
        given = solution_cells(read_notebook(ROOT / "release" / lab / f"{lab}.ipynb"))
        for name, cell in solved.items():
            lines = {line.strip() for line in cell.source.split("\n")}
            lines -= {line.strip() for line in given[name].source.split("\n")}
            telling = [x for x in lines if len(x) >= leaks.TELLING and "SOLUTION" not in x]
            assert not telling or secrets.lines & set(telling), (lab, name)


def test_nothing_in_the_bundle_gives_anything_away(bundle, secrets):
    assert list(leaks.given_away(bundle, secrets)) == []
    tops = {path.name for path in bundle.iterdir()}
    assert {"release", "lib", "course", "README.md", "AGENTS.md", "LICENSE", "Makefile"} <= tops
    assert not tops & {".git", ".distgrade", "gradebook.db", *leaks.TEACHERS}
    assert {path.name for path in (bundle / "course").iterdir()} == {
        *("chapters", "figures", "glossary.md", "measured.md")
    }
    assert not (bundle / "lib" / "tests").exists()  # they hold answers
    assert {path.parent.name for path in bundle.glob("release/lab*/*.ipynb")} == set(LABS)


def solution(lab: str, name: str) -> list[str]:
    """The lines between the marks of a solution cell, all of its regions in one list."""
    source = solution_cells(read_notebook(ROOT / "source" / lab / f"{lab}.ipynb"))[name].source
    inside, _ = leaks.parted([line.strip() for line in source.split("\n") if line.strip()])
    return max(inside, key=len)


def a_line():
    """A line that only a solution has."""
    return max(solution("lab03-tensor-parallel", "tp_mlp"), key=len) + "\n"


def five_lines():
    return "\n".join(solution("lab04-pipeline-bubbles", "run_pipeline")[: leaks.IN_A_ROW]) + "\n"


def four_lines():
    return five_lines().rpartition("\n")[0].rpartition("\n")[0] + "\n"


PLANTED = {
    "a line of a solution": ("course/x.md", a_line, True),
    "a solution in a notebook": ("release/lab03/x.ipynb", a_line, True),
    "five lines in the library": ("lib/distlab/x.py", five_lines, True),
    "four lines in the library": ("lib/distlab/x.py", four_lines, False),
    "references": ("course/x.safetensors", str, True),
    "a gradebook": ("gradebook.db", str, True),
    "the teacher's folder": ("source/x.md", str, True),
    "own cases": ("private/x.py", str, True),
    "the grader's name": ("course/x.md", lambda: "see distgrade\n", True),
    "a hidden test": ("release/x.md", lambda: "### BEGIN HIDDEN TESTS\n", True),
    "a word on ranks": ("course/x.md", lambda: "Ranks are simulated.\n", False),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_would_give_something_away_is_found_by_file(name, tmp_path, secrets):
    place, text, told = PLANTED[name]
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text()
    if path.suffix == ".ipynb":
        content = json.dumps({"cells": [{"source": content.splitlines(keepends=True)}]})
    path.write_text(content)
    found = list(leaks.given_away(tmp_path, secrets))
    assert [place in sentence for sentence in found] == [True] * told


@pytest.mark.slow
def test_a_bundle_that_would_give_something_away_is_not_made(tmp_path, monkeypatch):
    folder = tmp_path / "student-bundle"
    folder.with_suffix(".zip").write_text("an older one")
    monkeypatch.setattr(pack, "PUBLIC", (*pack.PUBLIC, "course/instructors/*.md"))
    with pytest.raises(pack.Refused, match=r"course/instructors/\w+\.md says"):
        pack.build(ROOT, folder)
    assert list(tmp_path.iterdir()) == []


def test_the_zip_holds_the_folder_and_is_the_same_each_time(bundle, tmp_path):
    archive = bundle.with_suffix(".zip")
    again = tmp_path / "again.zip"
    pack.pack(bundle, again)
    assert again.read_bytes() == archive.read_bytes()
    with zipfile.ZipFile(archive) as packed:
        names = {name.partition("/")[2] for name in packed.namelist()}
        assert {name.partition("/")[0] for name in packed.namelist()} == {pack.IN_ZIP}
        script = packed.getinfo(f"{pack.IN_ZIP}/postBuild")
    assert names == {str(p.relative_to(bundle)) for p in bundle.rglob("*") if p.is_file()}
    assert script.external_attr >> 16 & 0o100


def test_every_link_in_it_leads_to_a_file_in_it(bundle):
    links = []
    for path in bundle.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8")):
            if "://" not in target:
                links.append((path.name, (path.parent / unquote(target)).resolve()))
    assert len(links) > 50
    assert [(name, target) for name, target in links if not target.exists()] == []


def test_a_link_to_what_is_not_in_it_is_left_as_words(tmp_path):
    page, here = tmp_path / "a" / "page.md", tmp_path / "a" / "here.md"
    page.parent.mkdir()
    here.write_text("")
    page.write_text("[One](here.md#x), [two](../b/gone.md), ![three](no.svg), [four](https://x.y).")
    pack.cut_links(tmp_path)
    assert page.read_text() == "[One](here.md#x), two, ![three](no.svg), [four](https://x.y)."


def test_it_asks_for_no_package_that_only_teachers_or_tests_need(bundle):
    def pins(path):
        return dict(re.findall(r"^([\w.-]+)==(\S+)$", path.read_text("utf-8"), re.M))

    ours, theirs = pins(ROOT / "requirements.lock"), pins(bundle / "requirements.lock")
    assert theirs.items() <= ours.items()
    names = {canonicalize_name(name) for name in theirs}
    assert {"torch", "numpy", "jupyterlab", "nbgrader", "setuptools"} <= names
    assert not names & {"pytest", "sphinx", "playwright", "landlockpy", "pyseccomp", "safetensors"}
    conda = (bundle / "environment.yml").read_text("utf-8")
    listed = set(re.findall(r"^  - ([\w-]+)=", conda, re.M))
    asked = {canonicalize_name(wish.name) for wish in pack.wishes(ROOT)}
    assert {pack.CONDA_NAMES.get(n, n) for n in listed} == asked | {"python"}
    assert "landlock" not in conda


# --- a machine that has nothing else ------------------------------------------------------------


@whole("student")
def student_(bundle, tmp_path_factory) -> Iterator[Path]:
    """The zip unpacked on a machine of its own, set up there."""
    place = tmp_path_factory.mktemp("student")
    shutil.unpack_archive(bundle.with_suffix(".zip"), place)
    root = place / pack.IN_ZIP
    machine.prepare(root)
    done = machine.shell(root, "make setup")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "Installing our own: lib ..." in done.stdout
    yield root
    machine.clear(root)


def ran(root: Path, notebooks: list[Path]) -> dict[str, dict[str, dict]]:
    """What each cell of each notebook shows on that machine, by lab and cell."""
    script = Path(__file__).with_name("run_labs.py")
    words = " ".join(f"'{path}'" for path in notebooks)
    done = machine.shell(
        root, f"cd work && ../.venv/bin/python '{script}' {words}", MPLBACKEND="agg"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = json.loads(done.stdout)
    return {Path(p).stem: {cell["id"]: cell for cell in cells} for p, cells in shown.items()}


def checked_in(lab: str) -> list[str]:
    return list(graded_cells(read_notebook(ROOT / "release" / lab / f"{lab}.ipynb")))


@pytest.mark.slow
def test_the_machine_has_no_grader_and_all_is_well(student):
    lost = machine.shell(student, ".venv/bin/python -c 'import distgrade'")
    assert "No module named 'distgrade'" in lost.stderr
    assert not (student / ".venv" / "bin" / "distgrade").exists()
    done = machine.shell(student, "make doctor")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "All is well."), done.stdout
    again = machine.shell(student, "make setup && make reset LAB=lab03")
    assert again.stdout == "work/lab03-tensor-parallel is fresh.\n"
    plan = "distlab plan --model llama-3-70b --gpus 64 --batch 512 --seq 8192"
    assert machine.shell(student, f".venv/bin/{plan}").returncode == 0


@pytest.mark.slow
def test_every_lab_as_it_was_released_runs_to_its_end_with_calm_words(student):
    (student / "work").mkdir(exist_ok=True)
    shown = ran(student, sorted(student.glob("release/lab*/*.ipynb")))
    assert sorted(shown) == LABS
    for lab, cells in shown.items():
        wrong = {name: c["text"] for name, c in cells.items() if c["error"]}
        for name, text in wrong.items():
            first, *more = text.splitlines()
            calm = re.fullmatch(r"NotImplementedError: .* is not written yet .*", first)
            assert calm, (lab, name, text)
            assert len(more) <= 1, text  # a hint may be named
        assert set(checked_in(lab)) <= set(wrong)


@pytest.mark.slow
def test_every_lab_solved_runs_to_its_end_and_says_that_hidden_tests_come_later(student):
    solved = []
    for lab in LABS:
        nb = read_notebook(student / "release" / lab / f"{lab}.ipynb")
        answers = solution_cells(read_notebook(ROOT / "source" / lab / f"{lab}.ipynb"))
        for cell in nb.cells:
            if is_solution(cell):
                cell.source = answers[cell["id"]].source
        path = student / "work" / "solved" / f"{lab}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(nb), encoding="utf-8")
        solved.append(path)
    shown = ran(student, solved)
    for lab, cells in shown.items():
        assert {name: c["text"] for name, c in cells.items() if c["error"]} == {}, lab
        for test in checked_in(lab):
            assert cells[test]["text"].endswith(GRADED_LATER + "\n"), (lab, test)
    spent_s = sum(cell["cpu_s"] for cells in shown.values() for cell in cells.values())
    print(f"eight solved labs take {spent_s:.0f} s of computing")
    assert "left out" not in json.dumps(shown)  # real processes did start
