"""Binder's page as a learner meets it: see, open, fail, get a hint, pass, see it, take it along."""

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from browser import CHROMIUM, LIMIT_S, chromium, own_places, serving

from distgrade.learning import solution

ROOT = Path(__file__).parents[2]
LAB = "lab05-layer-partitioning"
NOTEBOOK = f"{LAB}/{LAB}.ipynb"
READY = """async () => {
  const later = () => new Promise(done => setTimeout(done, 100));
  while (!window.jupyterapp?.shell?.currentWidget?.context) await later();
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.context.sessionContext.ready;
  while (!panel.context.sessionContext.session?.kernel) await later();
  await panel.context.sessionContext.session.kernel.info;
}"""
# Runs the cell with this id, its text replaced if one is given; a new one below if there is none.
RUN = """async ([id, source]) => {
  const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
  const place = notebook.widgets.findIndex(cell => cell.model.id === id);
  if (place >= 0) notebook.activeCellIndex = place;
  else await app.commands.execute("notebook:insert-cell-below");
  if (source !== null) notebook.activeCell.model.sharedModel.setSource(source);
  const cell = notebook.activeCell;
  await app.commands.execute("notebook:run-cell");
  return cell.model.toJSON().outputs;
}"""
SAVE = "async () => await window.jupyterapp.commands.execute('docmanager:save')"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("start page in a browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]


@pytest.fixture
def root(tmp_path):
    """What Binder has of the course, with one lab."""
    root = tmp_path / "course"
    (root / "release").mkdir(parents=True)
    shutil.copytree(ROOT / "release" / LAB, root / "release" / LAB)
    shutil.copytree(ROOT / "lib" / "jupyter", root / "lib" / "jupyter")
    for script in (ROOT / "lib").glob("bootstrap_*.py"):
        shutil.copy(script, root / "lib")
    for name in ("start", "nbgrader_config.py"):
        shutil.copy(ROOT / name, root)
    (root / "source").symlink_to(ROOT / "source")
    (root / "course" / "instructors").mkdir(parents=True)  # staff: it stays out of sight
    shutil.copy(ROOT / "course" / "glossary.md", root / "course")
    return root


@pytest.fixture
def server(root, tmp_path):
    """The server, started as Binder starts it: its address and token."""
    env = own_places(tmp_path, without=("JUPYTER", "DISTLAB"))
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    options = ["--ip=127.0.0.1", "--port=0", "--no-browser", "--allow-root"]
    options.append("--LabApp.expose_app_in_browser=True")
    command = [str(root / "start"), "jupyter", "notebook", *options]
    with serving(command, tmp_path, env) as note:
        told = json.loads(note.read_text())
        yield told["url"], told["token"]


@pytest.fixture
def page(server):
    """A page of a browser at the server's address; errors and requests elsewhere fail the test."""
    url, token = server
    wrong = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda r: r.url.startswith((url, "data:", "blob:")) or wrong.append(r.url)
        )
        page.goto(f"{url}?token={token}")
        yield page
    assert wrong == []


def text_of(outputs) -> str:
    """What a reader sees of a cell's outputs."""
    parts = []
    for output in outputs:
        data = output.get("data", {})
        parts.append(output.get("text") or data.get("text/markdown") or data.get("text/plain", ""))
        parts += output.get("traceback", [])
    return "\n".join(parts)


def run(page, name: str = "", source: str | None = None) -> str:
    return text_of(page.evaluate(RUN, [name, source]))


def test_a_learner_on_binder_from_the_first_look_to_the_download(page, root):
    work = root / "work"
    # The page opens by itself, and can be read before anything is run.
    page.get_by_text("Begin with").wait_for()
    assert page.url.endswith("/lab/tree/start.ipynb")
    files = page.locator(".jp-DirListing-content .jp-DirListing-itemText").all_inner_texts()
    assert sorted(files) == ["course", LAB, "start.ipynb"]
    assert os.listdir(work / "course") == ["glossary.md"]

    # A word is looked up in the glossary, which opens as a page.
    page.get_by_role("link", name="glossary").click()
    page.locator(".jp-MarkdownViewer h1", has_text="Glossary").wait_for()
    page.locator(".lm-TabBar-tabLabel", has_text="start.ipynb").click()
    page.get_by_role("link", name="5 · Cutting layers into stages").click()
    shown = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    shown.locator("h1", has_text="Lab 5").wait_for()
    page.evaluate(READY)

    # Nothing of the grader is in the kernel before a check.
    run(page, "setup")
    loaded = run(page, source="import sys\n[m for m in sys.modules if m.startswith('distgrade')]")
    assert loaded == "[]"

    # A stub is no try; a wrong answer is one, and opens one step.
    run(page, "even_split")
    assert "is not written yet" in run(page, "even_split-test")
    assert "try it first" in run(page, source="%hint lab05.even_split")
    run(page, "even_split", "def even_split(layers, stages):\n    return [0, layers]")
    assert "Stuck? %hint lab05.even_split" in run(page, "even_split-test")
    told = run(page, source="%hint")
    assert "1 of 2 · Nudge" in told
    assert "Idea" not in told
    assert "def even_split" in run(page, source="%reveal")

    right = solution("lab05.even_split")
    run(page, "even_split", right)
    assert "lab05.even_split: 3 of 3 points." in run(page, "even_split-test")
    page.evaluate(SAVE)

    # The start page knows, when it is run again.
    page.get_by_role("tab", name="start.ipynb").click()
    page.evaluate(READY)
    told = run(page, "labs")
    assert "●○○○○○\N{NO-BREAK SPACE}1/6" in told
    assert "3/39" in told
    assert "Exercise 2" in told

    # Take it along, lose it, get it back.
    run(page, "keep")
    page.get_by_role("button", name="Pack my work").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="my-work-").click()
    kept = root.parent / "kept.zip"
    download.value.save_as(kept)
    with zipfile.ZipFile(kept) as archive:
        assert NOTEBOOK in archive.namelist()
    (work / NOTEBOOK).write_text("something else")
    shutil.rmtree(work / ".progress")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Restore from a file").click()
    chooser.value.set_files(kept)
    page.get_by_text("Yours is kept").wait_for()
    assert (work / LAB / f"{LAB}.mine-1.ipynb").read_text() == "something else"
    assert right.strip().splitlines()[-1] in (work / NOTEBOOK).read_text()
    assert "3/39" in run(page, "labs")
    page.screenshot(path=os.environ.get("START_SHOT", str(root / "shot.png")))
