"""The start page: the labs, what they take, how far somebody is. Markdown, so it needs no trust."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

from distlab.files import write_whole
from distlab.learn import records
from distlab.learn.progress import STATES, Lab, read_labs

NAME = "start.ipynb"
DOTS = {"passed": "●", "partial": "◐", "stale": "◌"}  # every other state is an empty circle
LEGEND = "● passes, ◐ partly right, ◌ changed since it was checked, ○ not yet"

HEAD = (
    "# Start here\n\n"
    "Open a lab in the table and work from top to bottom: **predict, write, look, check.** The "
    "check below each exercise says at once what is right and what isn't.\n\n"
    "- **Stuck?** After a try that failed, run `%hint` in a cell of its own: first a nudge, after "
    "another try the idea, then an outline.\n"
    "- **Still stuck?** `%reveal` shows a solution, where you learn by yourself.\n"
    "- **A word, a why?** See the [glossary](course/glossary.md), and each lab's chapter in "
    "`course/chapters/`; its [introduction](course/chapters/introduction.md) comes first.\n"
    "- **Up to date?** Click the cell below and press Shift-Enter: it reads your *saved* notebooks."
)
KEEP = (
    "## Take your work with you\n\n"
    "What you save lies in this folder, on the machine that runs this page. A Binder session "
    "forgets all of it when it ends, so download it before. In your next session, or elsewhere, "
    "restore it from that file: your answers, and what the checks said of them. "
    "Nothing is ever written over: a file that differs is kept beside the restored one."
)
UNGRADED = (
    "No grader is installed here, so this shows the visible cases of each exercise only; hidden "
    "tests run when your work is graded."
)
PLAIN = "<IPython.core.display.Markdown object>"

CELLS = (
    ("start", "markdown", HEAD),
    ("labs", "code", "from distlab.learn import start_page\n\nstart_page()"),
    ("keep-text", "markdown", KEEP),
    ("keep", "code", "from distlab.learn.buttons import keep_work\n\nkeep_work()"),
)
NO_BUTTONS = (
    "Click this cell and press Shift-Enter: two buttons appear, to download and to restore."
)


def start_page(work: str | os.PathLike | None = None) -> None:
    """Shows the labs of a work folder (the one around this notebook), and how far you are."""
    folder = records.work_folder(None if work is None else Path(work))
    text = describe(folder) if folder else "This is no work folder: `make lab` makes one, in work/."
    if getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)() is None:
        print(text)
        return
    from IPython.display import Markdown, display

    display(Markdown(text))


def describe(work: Path) -> str:
    """Returns the labs of a work folder as Markdown: a table, its signs, what to do next."""
    offered = list(entry_points(group="distlab.learning", name="version"))
    version = offered[0].load() if offered else None
    labs = read_labs(work, version) if version else read_labs(work)
    rows = ["| lab | exercises | challenges | points | time | you need |"]
    rows.append("|:--|:--|:--|--:|:--|:--|")
    rows += [_row(lab, graded=bool(version)) for lab in labs]
    parts = ["\n".join(rows), LEGEND]
    if not version:
        parts.append(UNGRADED)
    parts += [lab.problem for lab in labs if lab.problem]
    return "\n\n".join([_next(labs), *parts])


def _row(lab: Lab, *, graded: bool) -> str:
    def dots(challenges: bool) -> str:
        of = [e for e in lab.exercises if e.challenge == challenges]
        signs = "".join(DOTS.get(_sign(e.state), "○") for e in of)
        done = sum(_sign(e.state) == "passed" for e in of)
        return f"{signs}\N{NO-BREAK SPACE}{done}/{len(of)}" if of else "–"

    points = f"{lab.points:g}/{lab.max_points:g}" if graded else f"{lab.max_points:g}"
    points = points if lab.max_points else "–"
    name = f"[{lab.number} · {lab.title}]({lab.notebook})"
    cells = (name, dots(False), dots(True), points, lab.time, lab.need)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sign(state: str) -> str:
    """Returns the state that a sign stands for: without a grader there are visible cases alone."""
    return "passed" if state == "visible" else state


def _next(labs: tuple[Lab, ...]) -> str:
    """Returns one line: the first exercise, challenges apart, that doesn't pass."""
    if any(e.state not in ("unwritten", "unchecked") for lab in labs for e in lab.exercises):
        for lab in labs:
            for e in lab.exercises:
                if not e.challenge and _sign(e.state) != "passed":
                    where = f"[lab {lab.number}, {lab.title}]({lab.notebook})"
                    return f"**Next:** {where}: {e.title} ({STATES[e.state]})"
        return "**All exercises pass.** Challenges are what is left."
    if not labs:
        return "There are no labs in this folder yet."
    return f"**Begin with** [lab {labs[0].number}, {labs[0].title}]({labs[0].notebook})"


def write_page(work: Path) -> Path | None:
    """Writes the start page into a work folder, drawn; returns where an edited one went.

    A page that somebody has written into is kept beside it, never lost.
    """
    place, aside = work / NAME, None
    if os.path.lexists(place) and not _ours(place):
        from distlab.learn.keep import put_aside

        aside = put_aside(place)
    write_whole(place, json.dumps(_notebook(work), indent=1, ensure_ascii=False), 0o644)
    return aside


def _notebook(work: Path) -> dict:
    shown = {"labs": describe(work), "keep": NO_BUTTONS}
    cells = []
    for name, kind, source in CELLS:
        locked = {"editable": False, "deletable": False} if kind == "markdown" else {}
        cell = {"cell_type": kind, "id": name, "metadata": locked, "source": source}
        if kind == "code":
            data = {
                "text/markdown": shown[name],
                "text/plain": PLAIN,
            }
            output = {"output_type": "display_data", "data": data, "metadata": {}}
            cell |= {"execution_count": None, "outputs": [output]}
        cells.append(cell)
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    sources = _stamp([source for _, _, source in CELLS])
    metadata = {"kernelspec": kernel, "distlab": {"page": sources}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _stamp(sources: list[str]) -> str:
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def _ours(place: Path) -> bool:
    """Says whether a start page is as some version of this module wrote it, outputs apart."""
    try:
        nb = json.loads(place.read_text(encoding="utf-8"))
        sources = ["".join(cell["source"]) for cell in nb["cells"]]
        return nb["metadata"]["distlab"]["page"] == _stamp(sources)
    except (OSError, ValueError, KeyError, TypeError):
        return False
