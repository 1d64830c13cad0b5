"""What the lecture map names is there: sections, cells, exercises, and the words it quotes."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "course"
MAP = COURSE / "lecture-map.md"

PARTS = {"0": 3, "1": 3, "2": 0, "3": 5, "4": 5, "5": 2, "6": 4, "7": 0, "8": 0, "10": 0, "11": 0}
SECTIONS = [  # of lecture L; 9 are its exercises
    f"{section}.{part}" if parts else section
    for section, parts in PARTS.items()
    for part in range(1, max(parts, 1) + 1)
]
EXERCISES = ["1a", "1b", "1c", "2", "3", "4a", "4b", "4c", "5", "6"]
LOST = {  # tables and formulas that the texts' copies lack
    "L 1.1", "L 1.2", "L 3.5", "L 4.1", "L 4.3", "L 4.4", "L 5.1", "L 5.2", "L 6.1", "L 6.4",
    "Q 23", "Q 24", "Q 26",
}  # fmt: skip
TABLES = {  # each heading's first words, and what its rows must be
    "Lecture L, section by section": [f"L {section}" for section in SECTIONS],
    "Lecture L, exercises": [f"Exercise {part}" for part in EXERCISES],
    "Questions Q": [f"Q {k}" for k in range(1, 36)],
    "Corrections to Q": [f"W{k}" for k in range(1, 66)],
    "Corrections to L": [f"X{k}" for k in range(1, 19)],
}


def slug(heading: str) -> str:
    """Returns a heading's anchor, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def sections(path: Path) -> dict[str, str]:
    """Returns each section of a Markdown file by its anchor, its spaces made single."""
    parts = re.split(r"^#+ (.*)$", path.read_text("utf-8"), flags=re.MULTILINE)
    return {
        slug(head): " ".join(body.split())
        for head, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def rows(heading: str) -> dict[str, list[str]]:
    """Returns a table's rows by their first cell, which loses what follows a comma."""
    text = MAP.read_text("utf-8")
    (body,) = re.findall(rf"^## {heading}.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    found = {}
    for line in body.splitlines():
        if line.startswith("| ") and not line.startswith(("| no.", "| section", "| exercise |",
                                                          "| question")):  # fmt: skip
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            name = cells[0].partition(",")[0]
            assert name not in found, name
            found[name] = cells
    return found


ALL = {name: cells for heading in TABLES for name, cells in rows(heading).items()}


def links(text: str) -> list[tuple[Path, str]]:
    found = re.findall(r"\]\(([\w./-]+)#([\w-]+)\)", text)
    return [(COURSE / path, anchor) for path, anchor in found]


def places(text: str) -> list[str]:
    return re.findall(r"`(lab\d\d[./][\w-]+)`", text)


@cache
def notebook_cells(kind: str, lab: str) -> dict[str, dict]:
    (path,) = (ROOT / kind).glob(f"{lab}-*/*.ipynb")
    return {cell["id"]: cell for cell in json.loads(path.read_text("utf-8"))["cells"]}


def there(place: str) -> bool:
    """Whether `lab03/mlp` is a cell of both notebooks, or `lab03.tp_mlp` an exercise."""
    lab, sign, name = re.fullmatch(r"(lab\d\d)([./])([\w-]+)", place).groups()
    source, release = (notebook_cells(kind, lab).get(name) for kind in ("source", "release"))
    if not source or not release:
        return False
    if sign == "/":
        return True
    rooms = list((ROOT / "autograder/distgrade/labs").glob(f"{lab}_*/{name}.py"))
    return bool(source["metadata"].get("nbgrader", {}).get("solution")) and len(rooms) == 1


@pytest.mark.parametrize("heading", TABLES)
def test_nothing_is_missing(heading):
    assert list(rows(heading)) == TABLES[heading]


def test_what_was_lost_is_told():
    assert {name for name, cells in ALL.items() if "the lost " in cells[1]} == LOST


@pytest.mark.parametrize("name", ALL)
def test_a_row_leads_to_sections_cells_and_exercises(name):
    cells = ALL[name]
    found = links(" ".join(cells))
    assert found, "every subject stands in a chapter"
    for path, anchor in found:
        assert path.is_file(), path
        assert anchor in sections(path), (path.name, anchor)
    for place in places(" ".join(cells)):
        assert there(place), place
    named = re.findall(r"`([^`]+)`", cells[-1])
    assert places(cells[-1]) == named, "a place is lab03/cell or lab03.exercise"


@pytest.mark.parametrize("name", [name for name in ALL if name[0] in "WX"])
def test_a_correction_stands_where_it_is_said_to(name):
    _, _, quoted, where, _ = ALL[name]
    ((path, anchor),) = links(where)
    quotes = re.findall("“(.+?)”", quoted)
    assert quotes
    for quote in quotes:
        assert len(quote.split()) >= 4
        assert quote in sections(path)[anchor], quote


def test_names_that_are_not_there_are_not_found():
    assert there("lab03.tp_mlp")
    assert there("lab03/mlp")
    assert not there("lab03.mlp")  # a cell, but no exercise
    assert not there("lab03/tp_mpl")
    assert "what-it-cost" not in sections(COURSE / "chapters/lab03-tensor-parallel.md")


def test_anchors_in_chapters_lead_to_headings():
    checked = 0
    for path in COURSE.glob("chapters/*.md"):
        for file, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", path.read_text("utf-8")):
            target = path.parent / file if file else path
            assert anchor in sections(target), f"{path.name}: {file}#{anchor}"
            checked += 1
    assert checked > 10
