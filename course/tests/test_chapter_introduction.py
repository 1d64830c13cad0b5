"""Every number of the introduction, computed again; and what it says of labs and chapters."""

import re
from pathlib import Path

import pytest
from chapter import CHAPTERS, Chapter

CHAPTER = Chapter("introduction")
ROOT = Path(__file__).parents[2]

peak = 989e12  # FLOP/s, H100, dense BF16
params, tokens = 70e9, 15e12
flop = 6 * params * tokens
network, nvlink = 400e9 / 8, 900e9 / 2  # bytes/s, one way
arithmetic_s = 72 * 2048 * 12_288**2 / 8 / (0.4 * peak)  # a GPT-3 layer on 8 ranks, as in lab 3
sent = 4 * 2 * 7 / 8 * 2 * 2048 * 12_288

SAID = {
    "state": f"70 billion parameters take {16 * params / 1e9:,.0f} GB",
    "operations": "are " + f"{flop:.1e}".replace("e+24", " · 10²⁴").replace("e+", "?") + " of them",
    "years": f"one H100 at 40 % of its peak would need "
    f"{flop / (0.4 * peak) / 86_400 / 365:.0f} years",
    "per byte": f"it could do {peak / network:,.0f} operations",
    "links": f"NVLink's advertised 900 GB/s are {nvlink / 1e9:.0f} GB/s here, and 400 Gb/s of a "
    f"network adapter are {network / 1e9:.0f} GB/s",
    "tensor": f"costs {sent / nvlink / arithmetic_s:.2f} of the arithmetic over NVLink and "
    f"{sent / network / arithmetic_s:.2f} over the network",
}
QUOTED = {"80 GB", "989 TFLOP/s"}


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert CHAPTER.unproved(SAID.values()) <= QUOTED, CHAPTER.unproved(SAID.values())


def test_every_chapter_is_named():
    named = {path.name for path in CHAPTER.links()}
    there = {path.name for path in CHAPTERS.glob("*.md")} - {"introduction.md"}
    assert there <= named, there - named


def test_labs_take_as_long_as_they_say():
    said = {}
    for path in sorted(ROOT.glob("source/*/*.ipynb")):
        found = re.search(
            r"\*\*Time\*\* (?:about )?([\w ]+?(?:minutes|hours))", path.read_text("utf-8")
        )
        said[path.stem[3:5]] = found[1]
    first_page = (ROOT / "course/site/index.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d) · .*\| ([\w ]+) \|$", first_page, re.MULTILINE)
    assert {f"0{lab}": time for lab, time in rows} == said
    assert said["00"] == "20 minutes"
    assert {said[lab] for lab in ("01", "02", "03")} == {"60 to 90 minutes"}
    assert {said[lab] for lab in ("04", "05", "06", "07")} <= {"two hours", "three hours"}
