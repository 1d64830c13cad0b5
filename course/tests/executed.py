"""Solved notebooks as a reader leaves them: every cell run, pictures and processes included."""

import fcntl
import hashlib
import os
from itertools import groupby
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from distgrade.notebook import read_notebook, strip_hidden

ROOT = Path(__file__).parents[2]
LABS = sorted(path.name for path in (ROOT / "source").iterdir() if path.name.startswith("lab"))


def of(lab: str):
    """Returns the lab's name as a parameter: slow, with the other tests of this lab."""
    return pytest.param(lab, marks=[pytest.mark.slow, pytest.mark.xdist_group(f"executed {lab}")])


def solved(lab: str) -> nbformat.NotebookNode:
    """Returns the lab with its solutions and without what only the grader runs."""
    nb = read_notebook(ROOT / "source" / lab / f"{lab}.ipynb")
    for cell in nb.cells:
        cell.source = strip_hidden(cell.source)
    return nb


def executed_in(folder: Path, lab: str) -> nbformat.NotebookNode:
    """Returns the solved lab with its outputs; a cell that fails leaves its error there.

    It is run once for each content, whichever worker comes first: the others wait and read.
    """
    nb = solved(lab)
    key = hashlib.sha256(nbformat.writes(nb).encode()).hexdigest()[:16]
    path = folder / f"executed-{lab}-{key}.ipynb"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            client = NotebookClient(nb, timeout=300, allow_errors=True)
            client.execute(env=os.environ | {"DISTLAB_CHECK": "off"})  # graders have own tests
            nbformat.write(nb, path)
        return nbformat.read(path, as_version=4)


def printed(cell: nbformat.NotebookNode) -> str:
    """Returns what a reader sees of a cell: its text, or what its code prints and shows."""
    if cell.cell_type == "markdown":
        return cell.source
    parts = groupby(cell.outputs, lambda output: output.get("name"))  # only streams have one
    # A kernel may send one printed line in two pieces: those of a stream are joined as they are.
    return "\n".join(("" if name else "\n").join(map(_shown, part)) for name, part in parts)


def _shown(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return output.get("data", {}).get("text/plain", "")  # a picture's is its alternative text
