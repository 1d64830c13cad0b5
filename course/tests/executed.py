"""Solved notebooks as a reader leaves them: every cell run, pictures and processes included.

A kernel starts once per lab and test session: tests that read what it printed carry `of(lab)`,
which puts them into one worker, and `executed` keeps what that worker has run.
"""

import json
import os
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from distgrade.notebook import read_notebook, strip_hidden

ROOT = Path(__file__).parents[2]
LABS = sorted(path.name for path in (ROOT / "source").iterdir() if path.name.startswith("lab"))


def of(lab: str):
    """Returns a test's parameter: the lab's name, slow, in the worker that runs this lab."""
    return pytest.param(lab, marks=[pytest.mark.slow, pytest.mark.xdist_group(f"executed {lab}")])


def solved(lab: str) -> nbformat.NotebookNode:
    """Returns the lab with its solutions and without what only the grader runs."""
    nb = read_notebook(ROOT / "source" / lab / f"{lab}.ipynb")
    for cell in nb.cells:
        cell.source = strip_hidden(cell.source)
    return nb


@cache
def executed(lab: str) -> nbformat.NotebookNode:
    """Returns the solved lab with its outputs; a cell that fails leaves its error there."""
    nb = solved(lab)
    client = NotebookClient(nb, timeout=300, allow_errors=True)
    client.execute(env=os.environ | {"DISTLAB_CHECK": "off"})  # graders have their own tests
    return nb


def printed(cell: nbformat.NotebookNode) -> str:
    """Returns what a reader sees of a cell: its text, or what its code prints and shows."""
    if cell.cell_type == "markdown":
        return cell.source
    return "\n".join(map(_shown, cell.outputs))


def _shown(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    data = output.get("data", {})
    return data.get("text/plain", "") if "image" not in json.dumps(list(data)) else ""
