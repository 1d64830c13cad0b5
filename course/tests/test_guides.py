"""What the instructors' guides say is so: pages, messages, minutes, every command they name."""

import ast
import re
from pathlib import Path

import pytest
from guides import GUIDES, named

from distgrade.cli import main as distgrade
from distgrade.notebook import nbgrader_of, read_notebook

ROOT = Path(__file__).parents[2]
PAGES = sorted(GUIDES.glob("*.md"))
LABS = sorted(path.parent.name for path in ROOT.glob("source/lab*/*.ipynb"))


def text_of(name: str) -> str:
    return (GUIDES / f"{name}.md").read_text("utf-8")


def test_the_index_names_every_page_and_the_readme_the_index():
    index = text_of("README")
    for page in PAGES:
        assert page.stem == "README" or f"]({page.name})" in index, page.name
    assert "course/instructors/README.md" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "README.md", ROOT / "AGENTS.md"], ids=lambda p: p.stem
)
def test_every_link_leads_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        assert path.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in heads}


def options_of(line: str) -> tuple[str, set[str]]:
    """The subcommand of a line and the options that it names."""
    words = line.split()
    return words[1], set(re.findall(r"(?<!\S)--[a-z-]+", line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_that_a_guide_names_exists_with_its_options(page):
    made = (ROOT / "Makefile").read_text("utf-8") + (ROOT / "lib" / "labs.mk").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", made, re.M))
    for line in named(page):
        program = line.split()[0]
        if program == "make":
            words = {w for w in line.split()[1:] if "=" not in w}
            assert words <= targets, line
        if program == "distgrade":
            name, options = options_of(line)
            assert name in distgrade.commands, line
            known = {o for p in distgrade.commands[name].params for o in p.opts}
            assert options <= known, line


# --- messages -----------------------------------------------------------------------------------


def strings_of(path: Path) -> set[str]:
    """The texts in a module, with a mark where a value is put in."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else "\0" for v in node.values]
            found.add("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(re.sub(r"\{\w*\}", "\0", node.value))
    return found


def quoted() -> list[str]:
    """The messages in the first column of the tables of symptoms."""
    rows = [line.split(" | ")[0] for line in text_of("troubleshooting").splitlines()]
    return [q for row in rows if row[:2] == "| " for q in re.findall(r"“(.+?)”(?= |$|,)", row)]


def test_every_message_that_is_quoted_is_said_by_the_code():
    ours = [*(ROOT / "lib").glob("*.py"), *(ROOT / "lib" / "distlab").rglob("*.py")]
    ours += (ROOT / "autograder" / "distgrade").rglob("*.py")
    said = set().union(*map(strings_of, ours))
    assert len(quoted()) > 60
    for message in quoted():
        pieces = [piece.strip() for piece in message.split("…") if len(piece.strip()) > 3]
        assert pieces, message
        assert any(all(piece in text for piece in pieces) for text in said), message


def test_a_message_that_nothing_says_would_be_found():
    said = strings_of(ROOT / "lib" / "bootstrap_work.py")
    assert any("has changed since you took your copy" in text for text in said)
    assert not any("has been changed since you took your copy" in text for text in said)


def test_every_row_of_symptoms_says_why_and_what_to_do():
    for line in text_of("troubleshooting").splitlines():
        if line.startswith("| ") and not line.startswith("| you see"):
            cells = line.strip("| ").split(" | ")
            assert len(cells) == 3, line
            assert all(cells), line


# --- pacing -------------------------------------------------------------------------------------


def minutes_and_points(lab: str) -> dict[str, int]:
    """What the notebook's own texts add up to."""
    sums = dict.fromkeys(("exercises", "challenges", "points", "challenge points"), 0)
    head = ""
    for cell in read_notebook(ROOT / "source" / lab / f"{lab}.ipynb").cells:
        if cell.cell_type == "markdown":
            head = (re.findall(r"^## (.+)$", cell.source, re.M) or [head])[-1]
            for told in re.findall(r"^\*\*\d+ points, about (\d+) minutes", cell.source, re.M):
                if not head.startswith("In your own words"):
                    sums["challenges" if head.startswith("Challenge") else "exercises"] += int(told)
        mine = nbgrader_of(cell)
        if mine.get("grade"):
            sums["points"] += mine["points"]
            sums["challenge points"] += mine["points"] * head.startswith("Challenge")
    return sums


@pytest.mark.parametrize("lab", LABS)
def test_the_minutes_and_points_of_a_lab_are_its_notebooks(lab):
    (row,) = re.findall(rf"^\| lab {int(lab[3:5])} \| (.+) \|$", text_of("pacing"), re.M)
    time, exercises, challenges, points, extra = row.split(" | ")
    title = read_notebook(ROOT / "source" / lab / f"{lab}.ipynb").cells[0].source
    assert f"**Time** {time}" in title

    def number(words: str) -> int:
        return 0 if words == "–" else int(words.split()[0])

    assert {
        "exercises": number(exercises),
        "challenges": number(challenges),
        "points": number(points),
        "challenge points": number(extra),
    } == minutes_and_points(lab)


def test_the_weeks_name_every_chapter_and_every_lab_once():
    weeks = text_of("pacing").partition("## Eight weeks")[2].partition("\n## ")[0]
    chapters = {path.name for path in (ROOT / "course" / "chapters").glob("*.md")}
    assert set(re.findall(r"chapters/([\w-]+\.md)", weeks)) == chapters
    tasks = " ".join(re.findall(r"^\| \d .*\| (.+) \|$", weeks, re.M))
    assert sorted(re.findall(r"lab (\d)", tasks)) == [str(n) for n in range(len(LABS))]


# --- what assistants are asked ------------------------------------------------------------------


def test_assistants_are_asked_to_tutor_and_what_they_are_told_of_exists():
    text = (ROOT / "AGENTS.md").read_text("utf-8")
    assert len(text.split()) < 500
    for place in ("release/", "source/", "autograder/", "course/chapters/", "course/glossary.md"):
        assert place in text
        assert (ROOT / place).exists()
    assert "Nothing enforces it" in text
    for magic in re.findall(r"`%(\w+)`", text):
        assert hasattr(__import__("distlab.learn", fromlist=["x"]), magic)
