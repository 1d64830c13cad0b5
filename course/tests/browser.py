"""A browser and a JupyterLab for tests, and what a person does in them.

Waits have no opinion on how fast the machine is: each ends when what it waits for is there, or with
a clear failure after minutes.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from distlab.explorers.buckets import BUCKET_CONTROLS, BucketSettings, bucket_view
from distlab.explorers.frame import Impossible, in_words
from distlab.explorers.layouts import LAYOUT_CONTROLS, LayoutSettings, layout_view
from distlab.explorers.memory import MEMORY_CONTROLS, MemorySettings, memory_sentence
from distlab.explorers.partition import PARTITION_CONTROLS, PartitionSettings, partition_view
from distlab.explorers.schedule import SCHEDULE_CONTROLS, ScheduleSettings, schedule_sentence

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "lib"))
import bootstrap_work  # noqa: E402 - what `make lab` runs, no package

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
QUIET = (  # nothing that Chromium does of its own accord
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
# What JupyterLab says of a busy machine.
SLOW = re.compile(r"(took [\d.]+ms|is taking too long) to activate")
LIMIT_S = 240  # for what takes seconds on a quiet machine


def sync_api() -> Any:
    """Playwright's module; the test is skipped, saying so, where it is not installed."""
    return pytest.importorskip("playwright.sync_api", reason="no playwright here")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium; the test is skipped, saying so, where there is none."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install one (Debian: apt install chromium)")
    with sync_api().sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and all that was wrong on it: errors, lost files, requests to other machines."""

    def __init__(self, browser: Any, address: str, width: int = 1280, **more: Any):
        self.address, self.wrong = address, []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, **more)
        self.page.set_default_timeout(LIMIT_S * 1000)
        self.page.on("pageerror", self._thrown)
        self.page.on("console", self._heard)
        self.page.on("response", lambda got: got.status < 400 or self.wrong.append(got.url))
        self.page.on("request", self._asked)

    def _thrown(self, error: Any) -> None:
        places = re.findall(r"https?://\S+", error.stack or "")
        if not places or not all("/static/lab/" in place for place in places):
            self.wrong.append(str(error))  # else it is JupyterLab alone

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and not SLOW.search(message.text):
            self.wrong.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(request.url)


# --- JupyterLab ----------------------------------------------------------------------------------


@contextlib.contextmanager
def jupyterlab(folder: Path, state: Path, settings: Path | None = None) -> Iterator[str]:
    """JupyterLab as `make lab` starts it, in that folder: its address, with a token.

    What it writes of its own goes to `state`. Without `settings` it has Jupyter's own.
    """
    env = own_places(state)
    if settings:
        env["JUPYTER_CONFIG_PATH"] = str(settings)
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    program, *options = bootstrap_work.lab_command({"OPEN": "no"})
    command = [str(Path(sys.executable).with_name(program)), *options]
    command += [f"--port={_free_port()}", "--expose-app-in-browser"]
    with serving(command, state, env, folder) as note:
        yield bootstrap_work.address(note)


def own_places(state: Path, without: tuple[str, ...] = ("JUPYTER",)) -> dict[str, str]:
    """Variables by which a server keeps its own things in `state`; `without` are left out."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    for kind in ("CONFIG", "DATA", "RUNTIME"):
        env[f"JUPYTER_{kind}_DIR"] = str(state / kind.lower())
    for kind in ("SETTINGS", "WORKSPACES"):
        env[f"JUPYTERLAB_{kind}_DIR"] = str(state / kind.lower())
    return env


@contextlib.contextmanager
def serving(
    command: list[str], state: Path, env: dict[str, str], folder: Path | None = None
) -> Iterator[Path]:
    """A Jupyter server that answers, of `own_places`; the file in which it notes its address."""
    log = state / "server.log"
    state.mkdir(parents=True, exist_ok=True)
    with log.open("w") as out:
        server = subprocess.Popen(
            command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT
        )
    note = state / "runtime" / f"jpserver-{server.pid}.json"
    try:
        end_s = time.monotonic() + LIMIT_S
        while not note.exists():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end_s, f"the server did not start:\n{log.read_text()}"
            time.sleep(0.1)
        yield note
    finally:
        server.terminate()
        server.wait(LIMIT_S)


def _free_port() -> int:
    """A port to begin the search at: JupyterLab takes the next one where it is taken meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


OPEN = """async path => {
  await window.jupyterapp.commands.execute("docmanager:open", { path });
}"""
OPENED = """async ([path, limit_s]) => {
  const end = performance.now() + 1000 * limit_s;
  const later = () => new Promise((done, give_up) => performance.now() < end
    ? setTimeout(done, 100) : give_up(new Error(`${path} has no kernel after ${limit_s} s`)));
  const panel = () => window.jupyterapp?.shell?.currentWidget;
  while (panel()?.context?.path !== path) await later();
  const { context, content } = panel();
  while (!context.isReady || !context.sessionContext.isReady) await later();
  while (context.sessionContext.session?.kernel?.status !== "idle") await later();
  for (const cell of content.widgets) cell.node.dataset.cell = cell.model.id;
}"""
RUN = """async ([ids, limit_s]) => {
  const notebook = window.jupyterapp.shell.currentWidget.content, found = {};
  for (const [place, cell] of notebook.widgets.entries()) {
    if (ids && !ids.includes(cell.model.id)) continue;
    notebook.activeCellIndex = place;
    const late = new Promise((_, give_up) => setTimeout(
      () => give_up(new Error(`${cell.model.id} ran for ${limit_s} s`)), 1000 * limit_s));
    await Promise.race([window.jupyterapp.commands.execute("notebook:run-cell"), late]);
    found[cell.model.id] = cell.model.toJSON().outputs ?? [];
  }
  return found;
}"""
GO_TO = """async id => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const place = notebook.widgets.findIndex(cell => cell.model.id === id);
  notebook.activeCellIndex = place;
  await notebook.scrollToItem(place, "center");
}"""
CLOSE = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.save();
  await panel.sessionContext.shutdown();
  panel.dispose();
}"""


class Desk:
    """JupyterLab in a browser, one page for all notebooks; a fresh one after a test that failed."""

    def __init__(self, browser: Any, address: str):
        """`address` is the server's, with its token."""
        self.browser, self.watched = browser, None
        self.start, self.token = address.split("lab?", 1)

    @contextlib.contextmanager
    def notebook(self, path: str) -> Iterator["OpenNotebook"]:
        """A notebook, opened and with a kernel; in the end it is saved and its kernel shut down."""
        if self.watched is None:
            self.watched = Watched(self.browser, self.start)
            self.watched.page.goto(f"{self.start}lab/tree/{path}?reset&{self.token}")
        else:
            self.watched.page.evaluate(OPEN, path)
        page = self.watched.page
        try:
            page.evaluate(OPENED, [path, LIMIT_S])
            yield OpenNotebook(page)
            page.evaluate(CLOSE)
            assert self.watched.wrong == [], self.watched.wrong
        except BaseException:
            self.watched = None
            page.close()
            raise


class OpenNotebook:
    """A notebook in JupyterLab: a student's hands and eyes."""

    def __init__(self, page: Any):
        """`page` is JupyterLab's, with the notebook in front."""
        self.page = page

    def run(self, *ids: str) -> dict[str, list[dict]]:
        """Runs those cells, or all, one after the other like Shift-Enter; their outputs by id."""
        return self.page.evaluate(RUN, [list(ids) or None, LIMIT_S])

    def cell(self, name: str) -> Any:
        """The cell on the page, in sight."""
        self.page.evaluate(GO_TO, name)
        return self.page.locator(f"[data-cell='{name}']")

    def write(self, name: str, source: str) -> None:
        """Replaces what stands in a cell, in its editor, and runs it."""
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(source)
        assert self.run(name)[name] == []

    def reads(self, name: str) -> str:
        """What a reader sees below a cell."""
        return "\n".join(self.cell(name).locator(".jp-OutputArea-output").all_inner_texts())

    def validate(self) -> str:
        """Presses nbgrader's Validate; returns what its dialog says."""
        self.page.get_by_role("button", name="Validate").click()
        dialog = self.page.locator(".jp-Dialog")
        dialog.wait_for()
        said = dialog.locator(".jp-Dialog-content").inner_text()
        dialog.locator("button.jp-mod-accept").click()
        dialog.wait_for(state="detached")
        return said


# --- explorers -----------------------------------------------------------------------------------


EXPLORERS = {  # what each starts with, offers and says
    "bucket_explorer": (BucketSettings, BUCKET_CONTROLS, lambda s: bucket_view(s).sentence),
    "layout_explorer": (LayoutSettings, LAYOUT_CONTROLS, lambda s: layout_view(s).sentence),
    "memory_explorer": (MemorySettings, MEMORY_CONTROLS, memory_sentence),
    "partition_explorer": (
        PartitionSettings,
        PARTITION_CONTROLS,
        lambda s: partition_view(s).sentence,
    ),
    "schedule_explorer": (ScheduleSettings, SCHEDULE_CONTROLS, schedule_sentence),
}
ROLES = {"slider": "slider", "menu": "combobox", "tick": "checkbox"}


class OpenExplorer:
    """An explorer on a page, in a notebook or on the site, held against what distlab says."""

    def __init__(self, place: Any, name: str, **start: Any):
        """`place` is a locator of what is around it; `start` is what it begins with."""
        kind, self.controls, sentence = EXPLORERS[name]
        self.place, self.settings = place, kind(**start)
        self.sentence = cache(sentence)
        self.says = partial(in_words, sentence=self.sentence)
        self.status, self.picture = place.get_by_role("status"), place.locator("svg[role=img]")
        self.shows()

    def shows(self) -> None:
        """Waits until it says what distlab says; its picture has the same words."""
        words = self.says(self.settings)
        sync_api().expect(self.status).to_have_text(words, timeout=1000 * LIMIT_S)
        if self.picture.count():
            assert self.picture.get_attribute("aria-label") == words

    def walk(self) -> None:
        """Moves every control until the picture changes, as a reader would: sliders by keys."""
        left = list(self.controls)
        while left:
            moves = ((control, self._telling(control, self.settings)) for control in left)
            move = next((move for move in moves if move[1] is not None), None)
            if move is None:  # those left matter only beside other settings
                self.move(*self._room_for(left[0]))
                continue
            before = self._drawn()
            self.move(*move)
            assert self._drawn() != before, f"{move[0].name} does not change the picture"
            left.remove(move[0])

    def move(self, control: Any, value: Any) -> None:
        """Sets a control as a reader would, and waits for what it shows then."""
        values = [offered for _, offered in control.options]
        here, there = values.index(getattr(self.settings, control.name)), values.index(value)
        handle = self.handle(control)
        if control.kind == "tick":
            handle.set_checked(value)
        elif control.kind == "menu":
            handle.select_option(control.options[there][0])
        else:
            for _ in range(abs(there - here)):
                handle.press("ArrowRight" if there > here else "ArrowLeft")
            assert handle.get_attribute("aria-valuetext") == control.options[there][0]
        self.settings = replace(self.settings, **{control.name: value})
        self.shows()
        for other in self.controls:
            assert self.handle(other).is_enabled() == other.matters(self.settings), other.name

    def handle(self, control: Any) -> Any:
        """The slider, menu or box of a control, by its name."""
        return self.place.get_by_role(ROLES[control.kind], name=control.label, exact=True)

    def fits(self, width: int) -> None:
        """In a window of that width, all words are within the picture, and it within the page."""
        page = self.place.page
        before = page.viewport_size
        page.set_viewport_size(before | {"width": width})
        end_s = time.monotonic() + LIMIT_S
        while self._right_edge() > width:
            assert time.monotonic() < end_s, f"{self._right_edge()} px in a window of {width}"
            time.sleep(0.1)  # JupyterLab lays its panels out when it comes to it
        box = self.picture.bounding_box()
        words = self.picture.locator("text").evaluate_all(
            "all => all.map(t => t.getBoundingClientRect())"
        )
        assert words
        for word in words:
            assert box["x"] - 1 <= word["left"]
            assert word["right"] <= box["x"] + box["width"] + 1
        page.set_viewport_size(before)

    def _right_edge(self) -> float:
        box = self.picture.bounding_box()
        return box["x"] + box["width"]

    def _drawn(self) -> str:
        return self.picture.evaluate("svg => svg.outerHTML") if self.picture.count() else ""

    def _telling(self, control: Any, settings: Any) -> Any:
        """The nearest value of a control that has another sentence; None where none has."""
        values = [value for _, value in control.options]
        now = values.index(getattr(settings, control.name))
        if control.matters(settings):
            for value in sorted(values, key=lambda value: abs(values.index(value) - now)):
                other = replace(settings, **{control.name: value})
                if self.says(other) != self.says(settings) and self._possible(other):
                    return value
        return None

    def _possible(self, settings: Any) -> bool:
        try:
            return bool(self.sentence(settings))
        except Impossible:
            return False

    def _room_for(self, control: Any) -> tuple[Any, Any]:
        """Another control and a value of it, beside which this one has something to say."""
        for other in self.controls:
            for _, value in other.options:
                settings = replace(self.settings, **{other.name: value})
                reachable = other.matters(self.settings) and self._possible(settings)
                if reachable and self._telling(control, settings) is not None:
                    return other, value
        raise AssertionError(f"beside no other setting does {control.name} say anything")
