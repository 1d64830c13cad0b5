"""Translation: what may be read by whom, and that a notebook with other words is else the same."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "course" / "site"))
import build  # noqa: E402 - beside the pages, no package
import text  # noqa: E402

NOTEBOOKS = sorted(ROOT.glob(text.NOTEBOOKS))
NOT_WORDS = r"(?s)⟦[^⟧]*⟧|\$\$.*?\$\$|```.*?```|### (BEGIN|END) SOLUTION"
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def pseudo(words: str) -> str:
    """Returns a translation into no language: brackets around it, other letters but in code."""
    parts = re.split(f"({text.FIXED.pattern})", words)
    other = [part if i % 2 else part.replace("e", "ë") for i, part in enumerate(parts)]
    return f"⟦{''.join(other)}⟧"


def messages(path: Path, half: str) -> set[str]:
    return {message.id for message in text.catalogues(path)[half] if message.id}


def notebook(*cells: str) -> dict:
    kinds = [{"cell_type": "markdown", "id": f"cell{i}", "source": c} for i, c in enumerate(cells)]
    return {"cells": [cell | {"metadata": {}} for cell in kinds]}


def test_notebooks_are_found():
    assert len(NOTEBOOKS) >= 8


@every_notebook
def test_a_translation_into_itself_changes_no_byte(path):
    copy = read(path)
    assert text.translate(copy, lambda words: words) == []
    assert text.written(copy) == path.read_text("utf-8")


@every_notebook
def test_other_words_reach_every_block_and_nothing_else(path):
    before, after = read(path), read(path)
    assert text.translate(after, pseudo) == []
    for old, new in zip(before.pop("cells"), after.pop("cells"), strict=True):
        was, now = ("".join(cell.pop("source")) for cell in (old, new))
        assert old == new  # kind, id, metadata with nbgrader's grade_id and points
        if old["cell_type"] != "markdown":
            assert was == now
            continue
        said = [block.text for block in text.blocks(now)]
        assert said == [pseudo(block.text) for block in text.blocks(was)]
        left = text.FIXED.sub("", re.sub(NOT_WORDS, "", now))
        assert not re.search("[a-z]", left, re.IGNORECASE), left
    assert before == after


@every_notebook
def test_the_public_catalogue_is_what_students_are_given(path):
    """What the release has, and only that: no solution, nothing from a hidden region."""
    given = ROOT / "release" / path.relative_to(ROOT / "source")
    assert messages(given, "teachers") == set()
    stub = {words for words in messages(given, "students") if "YOUR ANSWER" in words}
    assert messages(path, "students") == messages(given, "students") - stub
    assert bool(messages(path, "teachers")) == bool(stub)


@every_notebook
def test_messages_are_words_with_the_cells_they_stand_in(path):
    ids = {cell["id"] for cell in read(path)["cells"] if cell["cell_type"] == "markdown"}
    for catalogue in text.catalogues(path).values():
        for message in catalogue:
            places = [place.partition(".ipynb#")[2] for place, _ in message.locations]
            assert set(places) <= ids
            assert "```" not in message.id
            assert "SOLUTION" not in message.id
            assert not message.id.startswith(("$$", "#", "> ", "- "))


CELL = """\
## A title

- an item, with `code` and $x^2$;
- another
  that goes on

> A quotation
> of two lines, [a link](to/somewhere.md).

1. 1

$$\\frac12$$

```text
not for translators
```

| head | `x` |
|---|---|
| head | $y$ |

### BEGIN SOLUTION
The answer.
### END SOLUTION
"""


def test_a_cell_is_taken_apart_as_markdown_is():
    found = text.blocks(CELL)
    assert [block.text for block in found] == [
        "A title",
        "an item, with `code` and $x^2$;",
        "another\nthat goes on",
        "A quotation\nof two lines, [a link](to/somewhere.md).",
        "head",
        "head",
        "The answer.",
    ]
    assert [block.of_teachers for block in found] == [False] * 6 + [True]
    assert [block.margin for block in found if block.margin] == ["  ", "> "]
    copy = notebook(CELL)
    assert (
        text.translate(
            copy,
            {
                "A quotation\nof two lines, [a link](to/somewhere.md).": "Q,\n"
                "two [links](to/somewhere.md).",
                "head": "tête",
            }.get,
        )
        == []
    )
    (cell,) = copy["cells"]
    after = "".join(cell["source"])
    assert "> Q,\n> two [links](to/somewhere.md).\n" in after
    assert after.count("| tête | ") == 2
    assert after.count("another\n  that goes on") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("Take `x`.", "Nimm x."),
        ("Sum $a+b$.", "Summe $a + b$."),
        ("See [there](a.md).", "Siehe [dort](b.md)."),
        ("One.", "One.\n\nTwo."),
        ("One.", "# One."),
    ],
)
def test_a_translation_that_breaks_a_cell_is_named(words, said):
    (wrong,) = text.translate(notebook("Fine.", words), {words: said}.get)
    assert wrong.startswith("cell1: ")


def test_a_region_that_does_not_end_is_no_secret():
    with pytest.raises(ValueError, match="doesn't end"):
        text.blocks("### BEGIN SOLUTION\nThe answer.")


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """One lab, and an empty place for translations."""
    monkeypatch.setattr(text, "ROOT", tmp_path)
    monkeypatch.setattr(text, "OUT", tmp_path / "build" / "text")
    monkeypatch.setattr(text, "KEPT", {half: tmp_path / half for half in text.KEPT})
    path = tmp_path / NOTEBOOKS[1].relative_to(ROOT)
    path.parent.mkdir(parents=True)
    path.write_bytes(NOTEBOOKS[1].read_bytes())
    for half, catalogue in text.catalogues(path).items():
        text.write(catalogue, text.OUT / half / path.relative_to(tmp_path).with_suffix(".pot"))
    return path


def test_a_language_is_begun_renewed_and_applied(elsewhere, capsys):
    done, everything = text.update("de", text.OUT)
    assert (done, everything) == (
        0,
        len(messages(elsewhere, "students") | messages(elsewhere, "teachers")),
    )
    po = text.home("students", "de") / elsewhere.relative_to(text.ROOT).with_suffix(".po")
    language = text.load(po)
    language["Sixteen bytes"].string = "Sechzehn Byte"
    doubtful = language["Arithmetic"]
    doubtful.string, doubtful.flags = "Rechnen", {"fuzzy"}
    text.write(language, po)
    assert text.update("de", text.OUT) == (1, everything)
    assert "format" not in po.read_text("utf-8")
    assert text.main("apply", "de") == 0
    assert "1 notebooks" in capsys.readouterr().out
    made = (text.OUT / "de" / elsewhere.relative_to(text.ROOT)).read_text("utf-8")
    before = elsewhere.read_text("utf-8")
    assert made == before.replace('"## Sixteen bytes\\n"', '"## Sechzehn Byte\\n"')
    assert made != before


def test_a_broken_translation_is_not_taken(elsewhere, capsys):
    text.update("de", text.OUT)
    po = text.home("students", "de") / elsewhere.relative_to(text.ROOT).with_suffix(".po")
    language = text.load(po)
    language["Sixteen bytes"].string = "Sechzehn\n\nByte"
    text.write(language, po)
    assert text.main("apply", "de") == 1
    assert f"{elsewhere.name}#idea: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["apply", "tlh"], "no translation to 'tlh' yet"),
        (["apply"], "text.py apply zh_CN"),
        (["x"], "text.py"),
    ],
)
def test_what_cannot_be_done_is_said(words, says, capsys):
    assert text.main(*words) != 0
    assert says in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_every_page_and_every_notebook_has_a_catalogue(tmp_path):
    text.write(text.Catalog(), tmp_path / "students" / "gone.pot")
    assert text.extract(tmp_path) == len(list(tmp_path.rglob("*.pot")))
    assert not (tmp_path / "students" / "gone.pot").exists()
    pages = [
        path.relative_to(ROOT)
        for pattern in build.ON_THE_SITE
        for path in ROOT.glob(pattern)
        if path.suffix in (".md", ".ipynb") and "release" not in path.parts
    ]
    assert len(pages) > 15
    for path in pages:
        half = "teachers" if "instructors" in path.parts else "students"
        words = [m.id for m in text.load(tmp_path / half / path.with_suffix(".pot")) if m.id]
        assert len(words) > 3, path
        if path.suffix == ".md":
            title = (ROOT / path).read_text("utf-8").partition("\n")[0].removeprefix("# ")
            assert title in words
        else:
            code = [
                "".join(c["source"]) for c in read(ROOT / path)["cells"] if c["cell_type"] == "code"
            ]
            assert not [cell for cell in code if any(cell in word for word in words)], path
    for path in NOTEBOOKS:
        template = tmp_path / "students" / path.relative_to(ROOT).with_suffix(".pot")
        assert {m.id for m in text.load(template) if m.id} == messages(path, "students")
    public = {path.name for path in (tmp_path / "students").iterdir()}
    assert {"course", "source", "index.pot", "pipeline-explorer.pot"} <= public
    assert "release" not in public  # it is made of source/
    assert not list((tmp_path / "students").rglob("instructors"))
