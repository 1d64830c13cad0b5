"""The course's text for translators: catalogues out of it, and notebooks with a translation in it.

    python course/site/text.py                 every catalogue, into build/text
    python course/site/text.py update zh_CN    begins that language's catalogues, or renews them
    python course/site/text.py apply zh_CN     its notebooks of source/, into build/text/zh_CN

A catalogue lies where its page or notebook does, in one of two halves: `students` is for everybody,
`teachers` has what students may not read: solutions of written answers, pages for instructors.
Pages are taken apart by Sphinx. A notebook is taken apart here, from source/, and only Markdown
cells are: code, fences and formulas aren't text. Whatever has no translation stays English.
"""

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import build
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

ROOT = build.ROOT
OUT = ROOT / "build" / "text"
KEPT = {  # where a language's catalogues are kept, below locale/<language>/LC_MESSAGES
    "students": ROOT / "course" / "locale",
    "teachers": ROOT / "course" / "instructors" / "locale",
}
NOTEBOOKS = "source/*/*.ipynb"
MARKDOWN = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
REGION = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS)")
FIXED = re.compile(r"`+[^`]+`+|\$[^$]+\$|(?<=\]\()[^)\s]+")  # code, formulas, where links lead


class Block(NamedTuple):
    """A paragraph, heading, item or table cell of a Markdown cell."""

    begin: int  # in the cell's text
    end: int
    margin: str  # what its further lines begin with: "> " in a quotation
    text: str  # without the margin
    of_teachers: bool

    def with_words(self, words: str) -> str:
        """Returns what stands in its place with these words."""
        return words.replace("\n", f"\n{self.margin}")


@cache
def blocks(cell: str) -> tuple[Block, ...]:
    """Returns the blocks of a cell's text that have words, in order."""
    lines = cell.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found, hidden, read = [], False, [0] * len(lines)  # how far a table's row has been read
    inside_table = False
    for token in MARKDOWN.parse(cell):
        inside_table = token.type == "table_open" or (inside_table and token.type != "table_close")
        if token.type != "inline" or not token.content:
            continue
        if mark := REGION.fullmatch(token.content):
            hidden = mark[1] == "BEGIN"
            continue
        at = []  # for each of its lines, where the words begin
        for number, words in enumerate(token.content.split("\n"), start=token.map[0]):
            line = lines[number].rstrip()
            where = (
                line.find(words, read[number])
                if inside_table
                else len(line) - len(words.rstrip())
                if line.endswith(words.rstrip())
                else -1
            )
            if where < 0:
                raise ValueError(f"“{words}” can't be found again in its line; write it plainer")
            read[number] = where + len(words)
            at.append(where)
        first, last = token.map[0], token.map[0] + len(at) - 1
        begin, end = starts[first] + at[0], starts[last] + read[last]
        margin = lines[first + 1][: at[1]] if len(at) > 1 else ""
        if re.search(r"[^\W\d_]", FIXED.sub("", token.content)):
            found.append(Block(begin, end, margin, token.content, hidden))
    if hidden:
        raise ValueError("a region for teachers begins and doesn't end")
    return tuple(found)


def text_cells(notebook: dict) -> Iterator[tuple[dict, str]]:
    """Yields the Markdown cells, each with its text."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            yield cell, "".join(cell["source"])


def catalogues(path: Path) -> dict[str, Catalog]:
    """Returns a notebook's text in both halves; a message's places are cells, by their ids."""
    halves = {half: Catalog(project=path.stem) for half in KEPT}
    for cell, text in text_cells(json.loads(path.read_text("utf-8"))):
        for block in blocks(text):
            half = halves["teachers" if block.of_teachers else "students"]
            place = f"{path.relative_to(path.parents[2])}#{cell['id']}"
            half.add(block.text, locations=[(place, None)])
    return halves


def lost(text: str, words: str) -> list[str]:
    """Returns the code, formulas and links that a translation lacks or has beyond its original."""
    have, want = (Counter(FIXED.findall(side)) for side in (words, text))
    return sorted((have - want) + (want - have))


def shape(cell: str) -> list[str]:
    """Returns what a cell's Markdown is made of: headings, lists, paragraphs."""
    return [token.type for token in MARKDOWN.parse(cell)]


def translate(notebook: dict, say: Callable[[str], str | None]) -> list[str]:
    """Puts what `say` returns in the place of each block; returns what is wrong with it."""
    wrong = []
    for cell, text in text_cells(notebook):
        done = text
        for block in reversed(blocks(text)):
            words = say(block.text) or block.text
            if odd := lost(block.text, words):
                wrong.append(f"{cell['id']}: “{words}” must keep as they are: {', '.join(odd)}")
            done = done[: block.begin] + block.with_words(words) + done[block.end :]
        if shape(done) != shape(text):
            wrong.append(f"{cell['id']}: a translation makes other paragraphs, lists or headings")
        cell["source"] = done.splitlines(keepends=True)
    return wrong


def written(notebook: dict) -> str:
    """Returns a notebook as its file has it, in canonical form."""
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write(catalogue: Catalog, path: Path) -> None:
    """Writes a catalogue, its messages as they stand in the text."""
    for message in catalogue:  # "5 % of it" looks like a format to Babel, and isn't one
        message.flags -= {"python-format", "python-brace-format"}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        write_po(file, catalogue, width=100)


def load(path: Path) -> Catalog:
    """Returns a catalogue that was written."""
    with path.open("rb") as file:
        return read_po(file)


def extract(out: Path) -> int:
    """Writes every catalogue, those of the pages as Sphinx makes them; returns how many."""
    for half in KEPT:  # a page may be gone since
        shutil.rmtree(out / half, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder, "pages")
        done = build.build("gettext", pages)
        if done.returncode:
            raise ValueError(f"Sphinx could not read the pages:\n{done.stderr}")
        for path in pages.rglob("*.pot"):
            name = path.relative_to(pages)
            if name.parts[0] != "release":  # made of source/, whose notebooks come below
                half = "teachers" if "instructors" in name.parts else "students"
                write(load(path), out / half / name)
    for path in sorted(ROOT.glob(NOTEBOOKS)):
        for half, catalogue in catalogues(path).items():
            if len(catalogue):
                write(catalogue, out / half / path.relative_to(ROOT).with_suffix(".pot"))
    return len(list(out.rglob("*.pot")))


def home(half: str, language: str) -> Path:
    """Returns where a language's catalogues of that half are kept."""
    return KEPT[half] / language / "LC_MESSAGES"


def update(language: str, out: Path) -> tuple[int, int]:
    """Brings a language's catalogues up to the text; returns how many messages are done, of all."""
    done = everything = 0
    for half in KEPT:
        for template in sorted((out / half).rglob("*.pot")):
            path = home(half, language) / template.relative_to(out / half).with_suffix(".po")
            catalogue = load(path) if path.is_file() else Catalog()
            catalogue.locale = language
            catalogue.update(load(template))
            write(catalogue, path)
            done += sum(bool(m.string) and not m.fuzzy for m in catalogue if m.id)
            everything += len(catalogue)
    return done, everything


def apply(language: str, out: Path) -> int:
    """Writes the notebooks of source/ in a language; returns how many, or raises what is wrong."""
    wrong, made = [], 0
    for path in sorted(ROOT.glob(NOTEBOOKS)):
        name = path.relative_to(ROOT)
        found = [home(half, language) / name.with_suffix(".po") for half in KEPT]
        said = {m.id: m.string for po in found if po.is_file() for m in load(po) if not m.fuzzy}
        notebook = json.loads(path.read_text("utf-8"))
        wrong += [f"{name}#{sentence}" for sentence in translate(notebook, said.get)]
        copy = out / language / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(written(notebook), "utf-8")
        made += 1
    if wrong:
        raise ValueError("\n".join(wrong))
    return made


def main(action: str = "extract", language: str = "") -> int:
    """Does one of the three, and says what came of it."""
    if action not in ("extract", "update", "apply") or (action == "extract") == bool(language):
        print(__doc__.partition("\n\n")[2].partition("\n\n")[0], file=sys.stderr)
        return 2
    try:
        if action == "apply":
            if not any(home(half, language).is_dir() for half in KEPT):
                raise ValueError(f"There is no translation to {language!r} yet: `update` begins it")
            made = apply(language, OUT)
            print(f"{made} notebooks: {(OUT / language).relative_to(ROOT)}")
            return 0
        print(f"{extract(OUT)} catalogues: {OUT.relative_to(ROOT)}")
        if action == "update":
            done, everything = update(language, OUT)
            print(f"{language}: {done} of {everything} messages are translated")
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
