"""An instructor in formgrader: sees a submission and its marks, marks what waits for a person."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browser import ROOT, Watched, chromium, jupyterlab

from distgrade.classroom.demo import write_raw
from distgrade.notebook import grade_id, read_notebook, solution_cells

LAB = "lab01-memory-math"  # the quickest with a written answer
SOLVED = "model_state_bytes"
COMMENT = "Say where the other bytes are."
# nbgrader loads MathJax from elsewhere. Without it formulas stay TeX and shortcuts are off.
MATHJAX = re.compile("https://cdnjs[.]cloudflare[.]com/.*mathjax.*")
NBGRADERS_OWN = re.compile(
    f"{MATHJAX.pattern}|net::ERR_FAILED|^MathJax is not defined|allow-same-origin for its sandbox"
)


def submission():
    """One exercise solved, one answer written, the rest as it was released."""
    nb = read_notebook(ROOT / "release" / LAB / f"{LAB}.ipynb")
    solved = read_notebook(ROOT / "source" / LAB / f"{LAB}.ipynb")
    solution_cells(nb)[SOLVED].source = solution_cells(solved)[SOLVED].source
    written = next(cell for cell in nb.cells if grade_id(cell) == "written")
    written.source = "Anna's reasons, with $16 n$ bytes."
    return nb


@pytest.fixture
def course(tmp_path) -> Path:
    """A course folder with one lab, handed in by anna and graded."""
    root = tmp_path / "course"
    for part in ("source", "release"):
        shutil.copytree(ROOT / part / LAB, root / part / LAB)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    write_raw(root / "submitted" / "anna" / LAB / f"{LAB}.ipynb", submission())
    program = str(Path(sys.executable).with_name("distgrade"))
    done = subprocess.run(
        [program, "grade", LAB, "--jobs", "1"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return root


@pytest.mark.slow
def test_an_instructor_marks_a_written_answer(course, tmp_path):
    from nbgrader.api import Gradebook

    with jupyterlab(course, tmp_path / "state") as address, chromium() as browser:
        watched = Watched(browser, address.split("lab?")[0])
        page = watched.page
        page.route(MATHJAX, lambda route: route.abort())  # as without a network
        page.goto(address)
        page.get_by_role("menuitem", name="Nbgrader").click()
        page.get_by_role("menuitem", name="Formgrader").click()
        form = page.frame_locator("iframe[src*=formgrader]")
        row = form.locator("#main-table tr", has_text=LAB)
        assert row.locator(".num-submissions").inner_text() == "1"

        form.get_by_role("link", name="Manual Grading").click()
        form.locator("#main-table").get_by_role("link", name=LAB).click()
        form.locator(".breadcrumb .active", has_text=LAB).wait_for()
        form.locator("#main-table").get_by_role("link", name=LAB).click()
        row = form.locator("#main-table tr", has_text="Submission #1")
        assert row.locator(".code-score").inner_text() == "2 / 38"
        assert row.locator(".written-score").inner_text() == "0 / 4"
        assert row.locator(".needs-manual-grade .glyphicon-ok").count() == 1
        row.get_by_role("link", name="Submission #1").click()

        waits = form.locator("#written.needs_manual_grade")
        waits.wait_for()
        assert form.locator(".needs_manual_grade").count() == 1  # the rest has its mark
        assert form.locator(f"#{SOLVED}-test").get_attribute("placeholder") == "2"
        assert form.locator("#fitting-test").get_attribute("placeholder") == "0"
        form.get_by_text("`all_reduce_time_s` is not written yet").first.wait_for()
        form.get_by_text("Anna's reasons").wait_for()
        waits.fill("3")
        waits.press("Tab")
        form.locator("#written:not(.needs_manual_grade)").wait_for()
        comment = form.locator("#written-comment")
        comment.fill(COMMENT)
        with page.expect_response(lambda got: "/api/comment/" in got.url) as saved:
            comment.press("Tab")
        assert saved.value.ok
        ours = [said for said in watched.wrong if not NBGRADERS_OWN.search(said)]
        assert ours == []

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "distlab") as book:
        grade = book.find_grade("written", LAB, LAB, "anna")
        assert (grade.manual_score, grade.needs_manual_grade) == (3, False)
        assert book.find_comment("written", LAB, LAB, "anna").comment == COMMENT
        assert book.find_submission(LAB, "anna").score == 5
