"""Progress is told by content: what a check said belongs to the answer that it was said of."""

import json
import linecache

import pytest

from distlab.learn import page, progress, records
from distlab.learn.records import Kept, Record

LAB = "lab03-tensor-parallel"
EXERCISE = "lab03.shards"
STUB = 'def shards():\n    raise NotImplementedError("shards is not written yet")'
HEAD = (
    "# Lab 3 · Tensor parallelism\n\nOne layer.\n\n**Time** 60 to 90 minutes. **You need** PyTorch "
    "basics: tensors, `backward()`. No GPU."
)


def cell(kind: str, source: str, name: str = "", **meta) -> dict:
    nbgrader = {"grade_id": name, "grade": False, "solution": False} | meta if name else {}
    metadata = {"nbgrader": nbgrader} if nbgrader else {}
    return {"cell_type": kind, "id": name or "x", "metadata": metadata, "source": source}


def notebook(answer: str) -> str:
    cells = [
        cell("markdown", HEAD),
        cell("markdown", "Before.\n\n## Exercise 1 · One part\n\n**3 points**", "shards-text"),
        cell("code", answer, "shards", solution=True),
        cell("code", "check('lab03.shards', shards)", "shards-test", grade=True, points=3),
        cell("markdown", "## Challenge · More\n\nText", "more-text"),
        cell("code", STUB.replace("shards", "more"), "more", solution=True),
        cell("code", "check('lab03.more', more)", "more-test", grade=True, points=2),
        cell("markdown", "words", "written", grade=True, solution=True, points=4),
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def work(tmp_path):
    """A work folder with one lab, beside what was released."""
    for top in ("release", "work"):
        (tmp_path / top / LAB).mkdir(parents=True)
        (tmp_path / top / LAB / f"{LAB}.ipynb").write_text(notebook(STUB))
    (tmp_path / "work" / records.MARK).write_text("{}")
    return tmp_path / "work"


def write(work, answer: str) -> None:
    (work / LAB / f"{LAB}.ipynb").write_text(notebook(answer))


def first(work, **more):
    (lab,) = progress.read_labs(work, **more)
    return lab.exercises[0]


def note(work, answer: str, status: str, points: float = 0.0, grader: str = "") -> None:
    kept = Kept(status, points, 3.0, grader, "2026-11-30T12:00:00+00:00")
    records.shelf_at(work).note(EXERCISE, records.digest(answer), kept)


def test_a_lab_tells_its_own_time_and_needs(work):
    (lab,) = progress.read_labs(work)
    assert (lab.number, lab.title, lab.time) == (3, "Tensor parallelism", "60 to 90 minutes")
    assert lab.need == "PyTorch basics: tensors, `backward()`"
    assert [e.title for e in lab.exercises] == ["Exercise 1 · One part", "Challenge · More"]
    assert [e.challenge for e in lab.exercises] == [False, True]
    assert lab.max_points == 5  # a written answer is not counted


@pytest.mark.parametrize("status", ["passed", "partial", "failed", "visible"])
def test_a_result_holds_for_the_answer_it_was_of_and_comes_back_with_it(work, status):
    write(work, "def shards(): 1")
    assert first(work).state == "unchecked"
    note(work, "def shards(): 1\n", status, 2)
    assert (first(work).state, first(work).points) == (status, 2)
    write(work, "def shards(): 2")
    now = first(work)
    assert (now.state, now.before, now.points) == ("stale", status, 0)
    write(work, "def shards(): 1   \n\n")
    assert (first(work).state, first(work).points) == (status, 2)


def test_a_result_of_another_grader_is_an_old_one(work):
    write(work, "def shards(): 1")
    note(work, "def shards(): 1", "passed", 3, grader="a")
    assert first(work, grader_of=lambda exercise: "a").state == "passed"
    assert first(work, grader_of=lambda exercise: "b").state == "stale"
    assert first(work).state == "passed"  # no grader is here to differ


def test_stubs_and_lost_cells_are_told(work):
    assert first(work).state == "unwritten"
    nb = json.loads(notebook(STUB))
    nb["cells"] = nb["cells"][:2]
    (work / LAB / f"{LAB}.ipynb").write_text(json.dumps(nb))
    assert first(work).state == "missing"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', '{"cells": [7]}', "\udce4"])
def test_a_notebook_that_cannot_be_read_is_said_and_stops_nothing(work, text):
    path = work / LAB / f"{LAB}.ipynb"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    (lab,) = progress.read_labs(work)
    assert f"{LAB}.ipynb can't be read" in lab.problem
    assert {e.state for e in lab.exercises} == {"missing"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"form": 1}', '{"form": 9, "exercise": "lab03.shards"}', "{" * 5000],
)
def test_a_damaged_record_is_as_good_as_none(work, text):
    (work / records.FOLDER).mkdir()
    (work / records.FOLDER / f"{EXERCISE}.json").write_text(text)
    assert records.read_record(work, EXERCISE) == Record(EXERCISE)
    assert first(work).state == "unwritten"


def test_results_of_nonsense_are_refused():
    told = Record(EXERCISE, {"a": Kept("passed")}).as_json()
    told["results"]["a"]["status"] = "<b>great</b>"
    with pytest.raises(ValueError, match="no record"):
        records.record_of(told, EXERCISE)


def test_a_disk_that_takes_nothing_stops_nobody(work, monkeypatch):
    def full(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    note(work, "def shards(): 1", "passed")


def test_a_working_folder_that_is_gone_stops_nobody(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert records.work_folder() is None
    monkeypatch.chdir(tmp_path)


def test_two_records_of_one_exercise_become_one():
    mine = Record(EXERCISE, {"a": Kept("passed", 3, 3)}, ["b"], 1, 1)
    old = Record(EXERCISE, {"a": Kept("failed"), "c": Kept("partial")}, ["c", "b"], 2, 2, True)
    both = records.merged(mine, old)
    assert both.results == {"a": Kept("passed", 3, 3), "c": Kept("partial")}
    assert (both.tried, both.opened, both.revealed) == (["c", "b"], 2, True)


def test_what_is_kept_is_bounded(work, monkeypatch):
    monkeypatch.setattr(records, "MOST", 5)
    for number in range(8):
        note(work, f"def shards(): {number}", "failed")
    record = records.read_record(work, EXERCISE)
    assert len(record.results) == len(record.tried) == 5


def test_an_answer_is_known_by_its_cell_for_functions_and_classes():
    text = "class F:\n    @staticmethod\n    def forward(x):\n        return x\n\n\ndef g(): 0\n"
    linecache.cache["<a cell>"] = (len(text), None, text.splitlines(keepends=True), "<a cell>")
    space = {}
    exec(compile(text, "<a cell>", "exec"), space)
    assert records.answer_of([space["F"], space["g"]]) == records.digest(text)
    assert records.answer_of([space["F"], 3]) == ""  # nobody knows where 3 was written
    assert records.answer_of([]) == ""


# --- the start page ----------------------------------------------------------------------------


@pytest.fixture
def graded(monkeypatch):
    """A grader is installed."""

    class Offer:
        @staticmethod
        def load():
            return lambda exercise: "g"

    monkeypatch.setattr(page, "entry_points", lambda group, name: [Offer])


@pytest.fixture
def ungraded(monkeypatch):
    monkeypatch.setattr(page, "entry_points", lambda group, name: [])


def test_the_page_is_a_notebook_that_can_be_read_before_it_is_run(work, graded):
    import nbformat

    assert page.write_page(work) is None
    nb = nbformat.read(work / page.NAME, as_version=4)
    nbformat.validate(nb)
    labs = nb.cells[1].outputs[0]["data"]["text/markdown"]
    assert f"[3 · Tensor parallelism]({LAB}/{LAB}.ipynb)" in labs
    assert "60 to 90 minutes" in labs
    assert "Begin with" in labs
    assert page.UNGRADED not in labs
    for cell in nb.cells:
        if cell.cell_type == "code":
            compile(cell.source, cell.id, "exec")


def test_the_page_shows_what_passes_and_what_comes_next(work, graded):
    write(work, "def shards(): 1")
    note(work, "def shards(): 1", "partial", 2, grader="g")
    text = page.describe(work)
    assert "| ◐\N{NO-BREAK SPACE}0/1 |" in text
    assert "| 2/5 |" in text
    assert "**Next:**" in text
    assert "Exercise 1 · One part (partly right)" in text
    note(work, "def shards(): 1", "passed", 3, grader="g")
    assert "All exercises pass" in page.describe(work)


def test_without_a_grader_the_page_says_in_a_sentence_what_it_knows(work, ungraded):
    write(work, "def shards(): 1")
    note(work, "def shards(): 1", "visible")
    text = page.describe(work)
    assert page.UNGRADED in text
    assert "| ●\N{NO-BREAK SPACE}1/1 |" in text
    assert "| 5 |" in text  # the points there are, not those earned: nobody knows them


def test_a_page_with_fresh_outputs_is_written_anew_and_an_edited_one_is_kept(work, graded):
    page.write_page(work)
    nb = json.loads((work / page.NAME).read_text())
    nb["cells"][1]["outputs"], nb["cells"][1]["execution_count"] = [], 7
    nb["metadata"]["language_info"] = {"name": "python"}
    (work / page.NAME).write_text(json.dumps(nb))
    assert page.write_page(work) is None
    nb["cells"].append(cell("markdown", "my notes"))
    (work / page.NAME).write_text(json.dumps(nb))
    aside = page.write_page(work)
    assert aside.name == "start.mine-1.ipynb"
    assert "my notes" in aside.read_text()
    assert "my notes" not in (work / page.NAME).read_text()


def test_outside_of_a_work_folder_the_page_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page.start_page()
    assert "make lab" in capsys.readouterr().out


def test_an_empty_work_folder_has_a_page(tmp_path, graded):
    (tmp_path / records.MARK).write_text("{}")
    page.write_page(tmp_path)
    assert "There are no labs" in (tmp_path / page.NAME).read_text()
