"""Runs the explorers' ES modules on a test's settings: under node, or in a browser."""

import json
import shutil
import subprocess

import pytest

from distlab.explorers.web import MODULES, joined

NODE = shutil.which("node")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
RUN = """
import * as module from %s;
const given = JSON.parse(await new Response(process.stdin).text());
console.log(JSON.stringify((%s)(module, given)));
"""


def ask(name: str, program: str, given: object) -> object:
    """Returns program(module, given), a function in JavaScript, of the explorer of that name."""
    if NODE is None:
        return ask_browser(name, program, given)
    source = RUN % (json.dumps((MODULES / f"{name}.mjs").as_uri()), program)
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", source],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_browser(name: str, program: str, given: object) -> object:
    """The same in Chromium, of the one text that a notebook gets."""
    if CHROMIUM is None:
        pytest.skip("neither node nor Chromium is here to run an explorer's module")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page()
        asked = f"""async ([text, given]) => {{
          const file = new Blob([text], {{ type: "text/javascript" }});
          return ({program})(await import(URL.createObjectURL(file)), given);
        }}"""
        answer = page.evaluate(asked, [joined(name), given])
        browser.close()
    return answer
