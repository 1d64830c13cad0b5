"""What the tests of all chapters need: a chapter's words, quantities, pictures and links."""

import re
from collections.abc import Iterable
from pathlib import Path

CHAPTERS = Path(__file__).parents[1] / "chapters"
UNITS = "billion|million|[kKMGT]i?B/s|[kKMGT]i?B|Gb/s|TFLOP/s|FLOP per byte|ms|μs|s|%"
QUANTITY = re.compile(rf"[\d,.]*\d (?:{UNITS})(?!\w)")


class Chapter:
    """The text of `course/chapters/<name>.md`."""

    def __init__(self, name: str):
        self.path = CHAPTERS / f"{name}.md"
        self.text = self.path.read_text("utf-8")
        self.words = " ".join(self.text.split())

    def quantities(self) -> set[str]:
        """Returns every number that has a unit, as it is written."""
        return set(QUANTITY.findall(self.words))

    def unproved(self, computed: Iterable[str]) -> set[str]:
        """Returns the quantities that stand in none of these texts, which tests compute."""
        known = set(QUANTITY.findall(" | ".join(computed)))
        return self.quantities() - known

    def pictures(self) -> list[tuple[str, Path]]:
        """Returns each picture's alternative text and file."""
        found = re.findall(r"!\[(.*?)\]\((.*?)\)", self.text)
        return [(alt, self.path.parent / path) for alt, path in found]

    def links(self) -> list[Path]:
        """Returns what the links inside the repository lead to."""
        found = re.findall(r"(?<!!)\[[^\]]+\]\((?!http)([^)]+)\)", self.text)
        return [self.path.parent / path.partition("#")[0] for path in found]
