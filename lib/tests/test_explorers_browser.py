"""An explorer in JupyterLab: a key on a slider changes the picture, through a live kernel."""

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
READY = """async () => {
  while (!window.jupyterapp?.shell?.currentWidget?.context)
    await new Promise(done => setTimeout(done, 100));
  const session = window.jupyterapp.shell.currentWidget.context.sessionContext;
  await session.ready;
  await session.session.kernel.info;
  await window.jupyterapp.commands.execute("notebook:run-all-cells");
}"""
SAYS = "words => document.querySelector('figure svg[role=img]')?.ariaLabel.includes(words)"


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
    cell = {
        "cell_type": "code",
        "id": "explore",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": "from distlab.explorers import memory_explorer\nmemory_explorer(pp=1)",
    }
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4}
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


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_key_on_a_slider_changes_the_picture_in_jupyterlab(lab):
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page(viewport={"width": 800, "height": 1000})
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(lab)
        page.locator(".jp-NotebookPanel").wait_for(timeout=60_000)
        page.evaluate(READY)
        page.wait_for_function(SAYS, arg="TP 1 × PP 1 × DP 64", timeout=60_000)

        handles = page.locator(".widget-slider", has_text="TP").locator("[role=slider]")
        handles.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(SAYS, arg="TP 2 × PP 1 × DP 32")

        page.get_by_label("GPU type").select_option("H200 SXM 141 GB")  # a label, a control
        page.wait_for_function(SAYS, arg="of 141 GB")

        figure = page.locator("figure")
        words = figure.locator("text").evaluate_all(
            "all => all.map(t => t.getBoundingClientRect())"
        )
        picture = figure.locator("svg").bounding_box()
        left, right = picture["x"], picture["x"] + picture["width"]
        inside = [left - 1 <= w["left"] and w["right"] <= right + 1 for w in words]
        assert words
        assert all(inside)
        assert right <= 800

        handles = page.locator(".widget-slider", has_text="PP").locator("[role=slider]")
        handles.focus()
        page.keyboard.press("End")
        page.get_by_text("GPT 7.5B has 36 layers: not enough for 128 stages.").wait_for()
        assert wrong == []
        browser.close()
