"""Every animal of the zoo earns what it must, is told why, and leaves nothing behind."""

import json
import os
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import psutil
import pytest
import zoo
from nb_tools import LAB, ROOT, answered, code, place, released_lab, solutions, worth
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from test_nbgrader import clone, hand_in, nbgrader, points

from distgrade import diagnose
from distgrade.course import Course
from distgrade.nbgrader.pages import MAX_SOURCE, markdown
from distgrade.notebook import NotebookError, read_notebook
from distgrade.publish import load_config
from distgrade.rebuild import rebuild
from distgrade.running.kernels import close_idle
from distgrade.running.runner import Limits
from distgrade.verdicts import FAULT, grade_built

SLOW = pytest.mark.slow
LIMITS = Limits(cell_s=3.0, exercise_s=4.0)  # a loop is waited for this long
BEASTS = {beast.name: beast for beast in zoo.BEASTS}
# What only somebody who has seen a harness, or a page that shows one, could know.
HELD = ("def given", "def observe", "nonce", "five ranks, one column each")


def test_the_zoo_is_large_and_no_two_animals_share_a_name():
    assert len(BEASTS) == len(zoo.BEASTS)
    assert len(BEASTS) + len(zoo.FILES) >= 100


def test_what_is_not_proved_stands_in_the_guide():
    text = (ROOT / "course" / "instructors" / "grading.md").read_text("utf-8")
    limits = text.split("## Known limits", 1)[1]
    named = [beast for beast in zoo.BEASTS if beast.limit]
    assert named
    for beast in named:
        assert beast.limit in limits, beast.name


@pytest.mark.parametrize("name", zoo.FILES)
def test_a_file_that_is_no_notebook_is_told_from_one(name, tmp_path):
    data, says = zoo.FILES[name]
    path = tmp_path / "lab.ipynb"
    path.write_bytes(data)
    with pytest.raises(NotebookError, match=says):
        read_notebook(path)


def test_a_link_is_no_notebook(tmp_path):
    path = tmp_path / "lab.ipynb"
    path.symlink_to(ROOT / "release" / LAB / f"{LAB}.ipynb")
    with pytest.raises(NotebookError, match="a link to another file"):
        read_notebook(path)


@pytest.mark.parametrize(
    "text",
    ["[" * 9_999, ">" * 9_999, "![a](attachment:none.png)", "x" * (MAX_SOURCE + 1), "$" * 9_999],
)
def test_every_written_answer_has_a_page(text):
    assert markdown({}, text)


# --- in kernels -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return Course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def release():
    return zoo.release()


@pytest.fixture(scope="module")
def nothing_survives():
    """After all of them: no process more than before, no folder of a kernel, and the disk."""
    kept = Path(tempfile.gettempdir())
    before = {p.name for p in kept.glob("distgrade-*")}
    yield
    close_idle()
    assert not [p for p in psutil.Process().children(recursive=True) if "sleep" in p.name()]
    mine = {p.name for p in kept.glob("distgrade-*") if p.stat().st_uid >= 1_900_000_000}
    assert not mine - before
    assert not [p.pid for p in psutil.process_iter(["uids"]) if _is_students(p)]


def _is_students(process):
    uids = process.info["uids"]
    return os.geteuid() == 0 and uids is not None and uids.real >= 1_900_000_000


@SLOW
@pytest.mark.filterwarnings("ignore:Non-unique cell id")
@pytest.mark.usefixtures("nothing_survives")
@pytest.mark.parametrize("name", BEASTS)
def test_it_earns_what_it_must_and_is_told_why(name, course, release, monkeypatch):
    # What a mistake is called is the rooms' matter, and would run their whole corpus for each.
    monkeypatch.setattr(diagnose, "known_wrong", lambda *a: "")
    beast = BEASTS[name]
    built, notes = rebuild(beast.make(), release)
    graded = grade_built(built, LAB, course, limits=LIMITS)
    outcomes = graded.outcomes
    told = {o.id: f"{o.message} {o.diagnosis}" for o in outcomes.values()}
    assert {o.id: o.points for o in outcomes.values()} == dict(beast.earns), told
    assert beast.says in f"{told[zoo.ROW]} {[note.text for note in notes]}", told
    assert FAULT not in str(told)
    shown = json.dumps(list(graded.outputs.values()))
    assert len(shown) < 1_000_000
    assert not [secret for secret in HELD if secret in shown]


# --- in a class, by nbgrader's own commands -------------------------------------------------------


class Page(HTMLParser):
    """What a page would run or load: its scripts, handlers, frames, forms and addresses."""

    BAD = frozenset(("iframe", "object", "embed", "form", "svg", "math", "link", "base", "style"))

    def __init__(self, text):
        super().__init__()
        self.found, self.inside = [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "script"
        where = [
            v for k, v in attrs if k in ("href", "src", "srcdoc") and not f"{v}".startswith("#")
        ]
        handlers = [k for k, _ in attrs if k.startswith("on")]
        if tag in self.BAD | {"script"} or where or handlers:
            self.found.append((tag, *where, *handlers))

    def handle_data(self, data):
        if self.inside:
            self.found.append(("runs", data.strip()))

    def handle_endtag(self, tag):
        self.inside = False


@SLOW
@pytest.mark.filterwarnings("ignore:Non-unique cell id")
def test_no_submission_stops_the_class_or_leaves_a_script_on_a_page(tmp_path):
    root = clone(tmp_path)
    for student, (data, _) in zip(("00-bad", "01-bad"), list(zoo.FILES.values())[4:6], strict=True):
        path = root / "submitted" / student / LAB / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    hand_in(root, "02-link", answered(solutions()))
    (root / "submitted" / "02-link" / LAB / "leak.html").symlink_to("/etc/passwd")
    hand_in(root, "03-other-lab", read_notebook(next((ROOT / "release").glob("lab00-*/*.ipynb"))))
    hand_in(root, "04-blank", released_lab())
    honest = answered(solutions())
    zoo.written(honest)
    honest.cells.insert(place(honest, "row_linear"), code(zoo.PAGE))
    honest.cells += [code(zoo.PAGE), *answered(solutions()).cells]  # and everything copied
    for each in honest.cells:
        if "nbgrader" in each.metadata:
            each.metadata.nbgrader["schema_version"] = 99
    hand_in(root, "05-scripts", honest)
    shows = answered(solutions() | {"row_linear": zoo.KEEPS})
    zoo.kept(shows)
    hand_in(root, "06-shows", shows)

    done = nbgrader(root, "autograde", LAB)
    assert done.returncode == 1  # of those that can't be read, and only because of them
    assert done.stderr.count("There was an error processing assignment:") == 3, done.stderr[-3000:]
    nothing = dict.fromkeys(worth(), 0)
    for student in ("00-bad", "01-bad", "02-link"):
        assert points(root, student).get(zoo.F) is None
        assert not (root / "autograded" / student).is_dir() or not list(
            (root / "autograded" / student).rglob("*.html")
        )
    assert points(root, "03-other-lab") == points(root, "04-blank") == nothing
    assert points(root, "05-scripts") == worth()
    assert points(root, "06-shows") == worth() | {zoo.ROW: 0}

    assert nbgrader(root, "generate_feedback", LAB).returncode == 0
    pages = {
        path.parts[-3]: path.read_text(encoding="utf-8")
        for path in (root / "feedback").glob(f"*/{LAB}/*.html")
    }
    assert set(pages) == {"03-other-lab", "04-blank", "05-scripts", "06-shows"}
    calm = Page(pages["04-blank"]).found
    picture = ("img", f"data:image/png;base64,{zoo.PIXEL}")
    assert picture in Page(pages["05-scripts"]).found  # what is harmless is shown
    for student, text in pages.items():
        assert set(Page(text).found) <= {*calm, picture}, student
        assert len(text) < 3_000_000
        assert not [secret for secret in (*HELD, "HIDDEN TESTS") if secret in text]
    assert "Seen:" in pages["06-shows"]

    # formgrader's button calls the same, in its server's process
    config = load_config(root)
    api = NbGraderAPI(CourseDirectory(config=config), config=config)
    assert api.autograde(LAB, "05-scripts")["success"]
    assert points(root, "05-scripts") == worth()
