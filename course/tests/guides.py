"""The commands that the instructors' guides name, as they stand there."""

import re
from pathlib import Path

GUIDES = Path(__file__).parents[1] / "instructors"


def blocks(page: Path) -> list[list[str]]:
    """The lines of each shell block of a page, without comments."""
    found = re.findall(r"^ *```sh\n(.*?)```", page.read_text("utf-8"), re.S | re.M)
    return [[x.partition("  #")[0].strip() for x in b.splitlines() if x.strip()] for b in found]


def named(page: Path) -> set[str]:
    """Every command that a page names: lines of its shell blocks, and code within its text."""
    text = page.read_text("utf-8")
    lines = [line for block in blocks(page) for line in block]
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"\s*\n\s*", " ", prose))
    parts = [part.strip() for x in lines for part in x.partition("  #")[0].split("&&")]
    return {x for x in parts if re.match(r"(distgrade|nbgrader|make) [a-z]", x)}
