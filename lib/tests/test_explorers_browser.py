"""Explorers in JupyterLab, with a kernel and after it, and on a page that nbconvert makes."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
SERVER = Path(sys.executable).with_name("jupyter-lab")
RUN = """async () => {
  while (!window.jupyterapp?.shell?.currentWidget?.context)
    await new Promise(done => setTimeout(done, 100));
  const session = window.jupyterapp.shell.currentWidget.context.sessionContext;
  await session.ready;
  await session.session.kernel.info;
  await window.jupyterapp.commands.execute("notebook:run-all-cells");
}"""
LEAVE = """async () => {
  await window.jupyterapp.commands.execute("docmanager:save");
  await window.jupyterapp.shell.currentWidget.context.sessionContext.shutdown();
}"""
CELLS = "document.querySelectorAll('.jp-CodeCell').length"
SOURCES = (
    "from distlab.explorers import bucket_explorer, memory_explorer",
    "memory_explorer(pp=1)",
    "bucket_explorer()",
)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def lab(tmp_path):
    """JupyterLab, alone in a folder of its own: its address."""
    homes = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
    )
    env = os.environ | {name: str(tmp_path / ".jupyter" / name) for name in homes}
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{i}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for i, source in enumerate(SOURCES)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    (tmp_path / "n.ipynb").write_text(json.dumps(notebook | {"nbformat_minor": 5}))
    port = free_port()
    options = {
        "--ip": "127.0.0.1",
        "--port": port,
        "--ServerApp.port_retries": 0,
        "--IdentityProvider.token": "",
        "--ServerApp.password": "",
    }
    command = [str(SERVER), "--no-browser", "--allow-root", "--expose-app-in-browser"]
    with open(tmp_path / "server.log", "w") as log:
        server = subprocess.Popen(
            [*command, *(f"{name}={value}" for name, value in options.items())],
            cwd=tmp_path,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api")
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "server.log").read_text()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/tree/n.ipynb?reset"
    finally:
        server.terminate()
        server.wait(30)


class Watched:
    """A page of a browser, and all that was wrong on it."""

    def __init__(self, browser, address):
        self.page = browser.new_page(viewport={"width": 800, "height": 1000})
        self.page.set_default_timeout(120_000)
        self.wrong = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.goto(address)


def says(explorer, words):
    explorer.get_by_role("status").get_by_text(words).wait_for()


def stays_inside(explorer, width):
    """All words of the picture are within it, and it is within the page."""
    words = explorer.locator("svg text").evaluate_all(
        "all => all.map(t => t.getBoundingClientRect())"
    )
    picture = explorer.locator("svg").bounding_box()
    left, right = picture["x"], picture["x"] + picture["width"]
    assert words
    assert all(left - 1 <= word["left"] and word["right"] <= right + 1 for word in words)
    assert right <= width


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_keys_move_explorers_with_a_kernel_and_the_memory_explorer_without(lab, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        watched = Watched(browser, lab)
        page = watched.page
        page.locator(".jp-NotebookPanel").wait_for()
        page.evaluate(RUN)
        memory = page.locator("memory-explorer")
        says(memory, "TP 1 × PP 1 × DP 64")
        memory.get_by_label("TP", exact=True).press("ArrowRight")
        says(memory, "TP 2 × PP 1 × DP 32")
        for key in "ddax":  # JupyterLab would delete this cell, and put others above
            page.keyboard.press(key)
        assert page.evaluate(CELLS) == len(SOURCES)
        memory.get_by_label("GPU type").select_option("H200 SXM 141 GB")
        says(memory, "of 141 GB")
        stays_inside(memory, 800)

        buckets = page.locator(".kernel-explorer")
        says(buckets, "13 buckets of")
        buckets.get_by_role("slider", name="GPUs", exact=True).press("Home")  # one GPU
        says(buckets, "one GPU has nothing to send")
        buckets.get_by_role("slider", name="GPUs", exact=True).press("ArrowRight")
        says(buckets, "on the link")
        stays_inside(buckets, 800)

        page.evaluate(LEAVE)
        page.reload()
        memory.get_by_label("TP", exact=True).press("End")  # no cell was run, no kernel asked
        says(memory, "TP 16 × PP 1 × DP 4")
        assert watched.wrong == []
        page.close()

        export = [sys.executable, "-m", "nbconvert", "--to", "html", str(tmp_path / "n.ipynb")]
        subprocess.run(export, check=True, capture_output=True)
        context = browser.new_context(offline=True)
        page = context.new_page()
        page.goto((tmp_path / "n.html").as_uri(), wait_until="commit")
        memory = page.locator("memory-explorer")
        memory.get_by_label("TP", exact=True).press("ArrowRight")
        says(memory, "TP 2 × PP 1 × DP 32")
        assert page.locator("figure > svg[role=img]").count() == 1  # the buckets, as they began
        browser.close()
