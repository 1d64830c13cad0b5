"""Chapters, glossary and figures beside the labs: copies in work/, for JupyterLab to show.

A copy that nobody has written into follows the course's text; one that somebody has stays as it is.
Standard library only, syntax of Python 3.8: it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from pathlib import Path

TEXTS = (
    "course/glossary.md",
    "course/measured.md",
    "course/chapters/*.md",
    "course/figures/*.svg",
    "AGENTS.md",  # assistants look for it where they are started
)
LINK = re.compile(
    r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)"
)  # [words](target#part), no picture
ELSEWHERE = re.compile(r"[a-z]+:")  # https:, mailto:


def readings(root: Path) -> dict[str, bytes]:
    """What is read beside the labs, by its name in work/, with links that hold there."""
    found = {
        path.relative_to(root).as_posix(): path
        for pattern in TEXTS
        for path in sorted(root.glob(pattern))
        if path.is_file()
    }
    texts = {name: path.read_bytes() for name, path in found.items()}
    for name, data in texts.items():
        if name.endswith(".md"):
            texts[name] = linked(name, data.decode("utf-8"), root, set(found)).encode("utf-8")
    return texts


def linked(name: str, text: str, root: Path, names: set[str]) -> str:
    """A text with links to labs as they lie in work/; what would lead nowhere is words alone."""

    def there(match: re.Match) -> str:
        words, target, part = match.groups()
        if ELSEWHERE.match(target):
            return match[0]
        here = posixpath.dirname(name)
        place = posixpath.normpath(posixpath.join(here, target))
        if place in names:
            return match[0]
        if place.startswith("release/") and (root / place).exists():
            lab = posixpath.relpath(place[len("release/") :], here)
            return f"[{words}]({lab}{part or ''})"
        return words

    return LINK.sub(there, text)


def refresh(root: Path, record: dict[str, str]) -> None:
    """Brings work/course up to date, and notes in the record what each copy was."""
    for name, data in readings(root).items():
        target, now = root / "work" / name, hashlib.sha256(data).hexdigest()
        try:
            mine = hashlib.sha256(target.read_bytes()).hexdigest()
        except FileNotFoundError:
            mine = None
        if mine not in (None, now, record.get(name)):
            continue  # somebody has written into it
        if mine != now:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name("." + target.name + ".part")
            part.write_bytes(data)
            os.replace(part, target)
        record[name] = now
