"""The instructors' guides, walked from end to end: their commands as they stand, in a fresh copy.

The copy is a course of its own, with its own environment and history. A line is typed only if the
guide has it, and a guide's walk ends with every line of its shell blocks typed.
"""

import csv
import getpass
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import machine
import pytest
from guides import GUIDES, blocks, named

from distgrade.notebook import is_solution, read_notebook, solution_cells

ROOT = Path(__file__).parents[2]
LAB = "lab03-tensor-parallel"
WHO = {f"GIT_{role}_{what}": "a" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
NEVER = {".git", ".venv", ".distgrade", ".hypothesis", "build", "work", "submitted", "autograded"}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("walked")]


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Iterator[Path]:
    """A copy of the course as a clone gives it, set up there as class.md begins."""
    root = tmp_path_factory.mktemp("teacher") / "course"
    for path in files():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    typed(root, "git init -q && git add -A && git commit -q -m 'as it was cloned'")
    machine.prepare(root)
    first = blocks(GUIDES / "class.md")[0][0]
    assert first == "make setup"
    typed(root, first)
    yield root
    machine.clear(root)


def files() -> list[Path]:
    """What git would clone, with what is not committed yet; without git, what lies here."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [Path(x) for x in done.stdout.split("\0") if x and (ROOT / x).is_file()]
    found = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
    return [p for p in found if not NEVER & set(p.parts) and p.suffix not in (".pyc", ".db")]


def typed(folder: Path, line: str, code: int = 0, **more: str) -> str:
    """Runs a line in that folder and returns what it prints; it must end with this code."""
    done = machine.shell(folder, line, COLUMNS="200", **WHO, **more)
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{line}\n{said[-3000:]}"
    return said


class Walk:
    """Somebody who types what a guide says, in a folder, with the environment activated."""

    def __init__(self, page: str, course: Path):
        self.page, self.course = GUIDES / f"{page}.md", course
        self.left = [line for block in blocks(self.page) for line in block]

    def __call__(self, line: str, code: int = 0, at: Path | None = None, **put: str) -> str:
        assert line in self.left or line in named(self.page), f"{self.page.name} has no `{line}`"
        self.left = [other for other in self.left if other != line]
        for word, value in put.items():
            line = line.replace(word, value)
        activate = f"source '{self.course}/.venv/bin/activate'"
        return typed(at or self.course, f"{activate} && {line}", code)

    def ends(self) -> None:
        """Every line of the guide's shell blocks was typed; what it says is not run has `bash`."""
        assert self.left == []


def solved(answers: dict[str, str] | None = None) -> str:
    """A notebook as a student hands it in: the release with solutions, or with these answers."""
    nb = read_notebook(ROOT / "release" / LAB / f"{LAB}.ipynb")
    right = solution_cells(read_notebook(ROOT / "source" / LAB / f"{LAB}.ipynb"))
    for cell in nb.cells:
        if is_solution(cell):
            cell.source = (answers or {}).get(cell["id"], right[cell["id"]].source)
    return json.dumps(nb)


WRONG = "def row_linear(comm, x_shard, w_shard, b, *, g):\n    return x_shard @ w_shard\n"


def marks_in(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


def test_the_exchange_from_handing_out_to_feedback(course, tmp_path):
    """jupyterhub.md, with one account in place of many."""
    walk = Walk("jupyterhub", course)
    text = walk.page.read_text("utf-8")
    place, home, me = tmp_path / "exchange", tmp_path / "home", getpass.getuser()
    place.mkdir()
    home.mkdir()
    theirs, ours = re.findall(r"```python\n(.*?)```", text, re.S)[:2]
    assert "/srv/nbgrader/exchange" in theirs
    assert "/srv/nbgrader/exchange" in ours
    (home / "nbgrader_config.py").write_text(
        theirs.replace("/srv/nbgrader/exchange", str(place))
        + f"c.Exchange.cache = {str(home / 'cache')!r}\n"
    )
    settings = course / "nbgrader_config.py"
    before = settings.read_text()
    settings.write_text(before + ours.replace("/srv/nbgrader/exchange", str(place)))
    walk(f"nbgrader generate_assignment {LAB}")
    walk(f"nbgrader release_assignment {LAB}")
    assert LAB in walk("nbgrader list", at=home)
    walk(f"nbgrader fetch_assignment {LAB}", at=home)
    fetched = home / LAB / f"{LAB}.ipynb"
    assert fetched.read_bytes() == (course / "release" / LAB / f"{LAB}.ipynb").read_bytes()
    assert (place / "distlab" / "inbound").stat().st_mode & 0o777 == 0o733

    fetched.write_text(solved({"row_linear": WRONG}))
    walk(f"nbgrader submit {LAB}", at=home)
    walk(f"nbgrader collect {LAB} --update")
    assert (course / "submitted" / me / LAB / "timestamp.txt").is_file()
    assert "1 of 1" in walk("distgrade grade lab03")
    walk(f"nbgrader generate_feedback {LAB}")
    walk(f"nbgrader release_feedback {LAB}")
    walk("distgrade marks lab03 --to marks.csv", code=1)  # the written answer waits
    row = marks_in(course / "marks.csv")[me]
    assert (row["state"], row["row_linear-test"]) == ("needs a human", "0")
    walk(f"nbgrader fetch_feedback {LAB}", at=home)
    (page,) = (home / LAB / "feedback").rglob("*.html")
    assert "HIDDEN TESTS" not in page.read_text("utf-8")
    assert "row_linear" in page.read_text("utf-8")
    settings.write_text(before)
    shutil.rmtree(course / "submitted")
    walk.ends()


def test_a_class_from_an_upload_to_marks(course):
    """class.md: two uploads, one of them by mail, and all that is done with marks."""
    walk = Walk("class", course)
    walk("make setup")
    (course / "class.csv").write_text(
        "Username,First name,Surname\nada,Ada,Lovelace\nben,Ben,Roe\ncem,Cem,Öz\n"
    )
    with zipfile.ZipFile(course / "submissions.zip", "w") as archive:
        name = "Ada Lovelace_101_assignsubmission_file_/lab03 (1).ipynb"
        archive.writestr(name, solved())
    (course / "FILE.ipynb").write_text(solved({"row_linear": WRONG}))
    assert "3 students, 3 of them new." in walk("distgrade roster class.csv")
    assert "ada" in walk("distgrade collect lab03 submissions.zip")
    walk("distgrade collect lab03 FILE --student ID", FILE="FILE.ipynb", ID="ben")
    walk("distgrade grade lab03")
    said = walk("distgrade report lab03")
    assert "1 of 2 (50 %)" in said
    assert (course / "build" / "report" / LAB / "report.html").is_file()
    walk("distgrade marks lab03 --to marks.csv", code=1)
    rows = marks_in(course / "marks.csv")
    waits = "needs a human"
    states = {name: row["state"] for name, row in rows.items() if name != getpass.getuser()}
    assert states == {"ada": waits, "ben": waits, "cem": "nothing handed in"}
    assert float(rows["ada"]["score"]) - float(rows["ben"]["score"]) == 4.0
    walk("make solutions LAB=lab03")
    solution = course / "solution" / LAB / f"{LAB}.ipynb"
    assert "HIDDEN" not in solution.read_text("utf-8")
    (deadline,) = [line for line in walk.left if line.startswith("nbgrader db assignment add")]
    walk(deadline)
    walk("distgrade solutions lab03 --early")
    walk(f"nbgrader generate_feedback {LAB}")
    assert len(list((course / "feedback").glob(f"*/{LAB}/*.html"))) >= 2
    walk("nbgrader export")
    assert (course / "grades.csv").is_file()
    own = course / "private" / LAB / "column_linear.py"
    own.parent.mkdir(parents=True)
    (code,) = re.findall(r"```python\n(.*?)```", walk.page.read_text("utf-8"), re.S)
    own.write_text(code)
    assert "fails" in walk("distgrade cases")
    shutil.rmtree(course / "private")
    walk.ends()


def test_a_correction_after_marks_were_given(course):
    """updating.md, in the class of the test before."""
    rows = marks_in(course / "marks.csv")
    update = Walk("updating", course)
    update("distgrade refs lab03.row_linear")
    assert "0 of them now" in update("distgrade grade lab03")
    update("distgrade marks lab03 --to before.csv", code=1)
    update("distgrade grade lab03 --exercise row_linear")
    assert marks_in(course / "before.csv")["ben"]["score"] == rows["ben"]["score"]
    source = course / "source" / LAB / f"{LAB}.ipynb"
    source.write_text(source.read_text("utf-8").replace("One layer of a", "A layer of a"), "utf-8")
    assert f"release/{LAB}: changed" in update("make canon release")
    (commit,) = [line for line in update.left if line.startswith("git add")]
    update(commit)
    update.ends()


def test_the_public_half_as_a_repository_of_its_own(course):
    """publishing.md."""
    walk = Walk("publishing", course)
    assert "No solution, hidden test or reference is in it." in walk("make student-bundle")
    copy, start = blocks(walk.page)[1]
    walk(copy)
    walk(start)
    there = course.parent / "course-for-students"
    listed = typed(there, "git ls-files && git log --oneline")
    assert f"release/{LAB}/{LAB}.ipynb" in listed
    assert "source/" not in listed
    assert os.access(there / "postBuild", os.X_OK)
    walk.ends()
