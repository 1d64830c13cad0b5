"""Where the course lies, which labs it has, and the secret from which fresh seeds are made."""

from __future__ import annotations

import difflib
import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

LAB_NAME = re.compile(r"lab\d\d-[a-z0-9]+(-[a-z0-9]+)*")
EXERCISE_ID = re.compile(r"lab\d\d\.[a-z][a-z0-9_]*")

MARK = "nbgrader_config.py"  # the file that makes a folder an nbgrader course root


class CourseError(Exception):
    """Something about the course folder is not as it must be; the text is one sentence."""


@dataclass(frozen=True)
class Course:
    """One course folder: `source/` for staff, `release/` for students, `.distgrade/` for state."""

    root: Path

    def source(self, lab: str) -> Path:
        """Returns the path of a lab's source notebook."""
        return self.root / "source" / lab / f"{lab}.ipynb"

    def release(self, lab: str) -> Path:
        """Returns the path of a lab's released notebook."""
        return self.root / "release" / lab / f"{lab}.ipynb"

    def labs(self) -> tuple[str, ...]:
        """Returns the names of all labs that have a source notebook, found by folder."""
        return _labs_below(self.root / "source")

    def released_labs(self) -> tuple[str, ...]:
        """Returns the names of all labs that have a released notebook, found by folder."""
        return _labs_below(self.root / "release")

    def secret(self) -> bytes:
        """Returns the course secret: $DISTGRADE_SECRET, or a file minted on first use."""
        given = os.environ.get("DISTGRADE_SECRET", "")
        if given:
            return given.encode()
        path = self.root / ".distgrade" / "secret"
        try:
            return path.read_bytes().strip()
        except FileNotFoundError:
            pass
        path.parent.mkdir(parents=True, exist_ok=True)
        try:  # two graders may start at once: only one of them mints
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_bytes().strip()
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        return path.read_bytes().strip()


def _labs_below(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    return tuple(
        sorted(
            p.name
            for p in folder.iterdir()
            if LAB_NAME.fullmatch(p.name) and (p / f"{p.name}.ipynb").is_file()
        )
    )


def find_course(start: Path | str | None = None) -> Course:
    """Returns the course around `start`, else around the working folder, else around this file.

    Raises CourseError when none of them lies inside a course.
    """
    places = [Path(start)] if start is not None else [Path.cwd(), Path(__file__)]
    for place in places:
        place = place.resolve()
        for folder in (place, *place.parents):
            if (folder / MARK).is_file() and (folder / "release").is_dir():
                return Course(folder)
    where = str(start) if start is not None else "the working folder"
    raise CourseError(f"no course (a folder with {MARK} and release/) was found around {where}.")


def full_name(lab: str, labs: tuple[str, ...]) -> str:
    """Returns a lab's whole name for its number, such as lab03.

    Raises CourseError, with the near match, where there is none.
    """
    found = [name for name in labs if name == lab or name.partition("-")[0] == lab]
    if found:
        return found[0]
    near = difflib.get_close_matches(lab, labs, 1)
    hint = f" Did you mean {near[0]}?" if near else f" There are {', '.join(labs)}."
    raise CourseError(f"there is no lab {lab!r}.{hint}")


def lab_prefix(lab: str) -> str:
    """Returns the prefix of a lab's exercise ids: `lab03-tensor-parallel` -> `lab03`."""
    return lab.split("-", 1)[0]


def fresh_seeds(
    secret: bytes, exercise_id: str, submission: str, count: int = 1
) -> tuple[int, ...]:
    """Returns seeds that nobody can guess and that a regrade of the same work finds again."""
    seeds = []
    for index in range(count):
        text = f"{exercise_id}\n{submission}\n{index}".encode()
        digest = hmac.new(secret, text, hashlib.sha256).digest()
        seeds.append(1 + int.from_bytes(digest[:6], "big"))  # never 0: that is the frozen seed
    return tuple(seeds)
