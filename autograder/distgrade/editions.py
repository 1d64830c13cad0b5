"""Earlier releases of a lab: a submission made from one is rebuilt on it and graded by it.

A release carries the hash of its content, a submission the hash of the release it was made from.
Earlier ones are found in `.distgrade/editions/`, where `distgrade release` keeps each, else in the
repository's history. What belongs to an edition: its notebook, and the rooms of the exercises whose
cells (the given code, the visible tests) differ from today's. An exercise whose cells are the same
is graded by today's room, so a corrected room reaches everybody. Today's gradebook is the measure:
an exercise counts what it counts today, one that is gone counts nothing.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

from nbformat import NotebookNode

from distgrade import exercise as contract
from distgrade.course import Course
from distgrade.exercise import Exercise, RoomError
from distgrade.notebook import (
    NotebookError,
    distlab_of,
    exercise_of,
    grade_id,
    graded_cells,
    is_solution,
    nbgrader_of,
    read_notebook,
    solution_cells,
    strip_hidden,
)

DIGEST = re.compile(r"[0-9a-f]{64}")
GIT_S = 60.0  # seconds that one git command may take


@dataclass(frozen=True)
class Edition:
    """One earlier release of a lab: its folder has the notebook and the package of its rooms."""

    lab: str
    digest: str
    folder: Path

    def release(self) -> NotebookNode:
        """Returns the notebook that was released."""
        return read_notebook(self.folder / f"{self.lab}.ipynb")

    @property
    def rooms(self) -> Path:
        """The folder of the rooms that graded it."""
        return self.folder / self.lab.replace("-", "_")

    @property
    def name(self) -> str:
        """What people call it: the day it was released, or the head of its hash."""
        try:
            return json.loads((self.folder / "about.json").read_text("utf-8"))["day"]
        except (OSError, ValueError, KeyError):
            return self.digest[:12]


def digest_of(nb: NotebookNode) -> str:
    """Returns the hash of the release that a notebook was made from, or ""."""
    told = distlab_of(nb).get("release")
    return told if isinstance(told, str) and DIGEST.fullmatch(told) else ""


def edition_of(course: Course, lab: str, nb: NotebookNode, present: NotebookNode) -> Edition | None:
    """Returns the earlier edition that a notebook was made from; None if today's, or unknown."""
    digest = digest_of(nb)
    if not digest or digest == digest_of(present):
        return None
    return _found(course, lab, digest)


@cache
def _found(course: Course, lab: str, digest: str) -> Edition | None:
    edition = Edition(lab, digest, _above(course, lab) / digest)
    if not edition.folder.is_dir():
        commit = _history(course, lab).get(digest)
        if commit is None or not _from_git(course, edition, commit):
            return None
    try:
        return edition if digest_of(edition.release()) == digest else None
    except NotebookError:
        return None


def _above(course: Course, lab: str) -> Path:
    return course.root / ".distgrade" / "editions" / lab


# --- where editions come from ----------------------------------------------------------------


def keep(course: Course, lab: str, day: str) -> None:
    """Keeps today's release of a lab with today's rooms, for the submissions made from it."""
    digest = digest_of(read_notebook(course.release(lab)))
    if digest:
        rooms = contract.LABS / lab.replace("-", "_")
        _put(Edition(lab, digest, _above(course, lab) / digest), course.release(lab), rooms, day)


def _put(edition: Edition, notebook: Path, rooms: Path, day: str) -> None:
    """Fills an edition's folder, whole or not at all."""
    edition.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=edition.folder.parent) as folder:
        fresh = Path(folder) / "fresh"
        fresh.mkdir()
        shutil.copy(notebook, fresh / notebook.name)
        if rooms.is_dir():
            noise = shutil.ignore_patterns("__pycache__")
            shutil.copytree(rooms, fresh / rooms.name, ignore=noise)
        day = edition.name if edition.folder.is_dir() else day  # the first time it was released
        (fresh / "about.json").write_text(json.dumps({"day": day}), encoding="utf-8")
        if edition.folder.is_dir():
            edition.folder.rename(Path(folder) / "old")
        fresh.rename(edition.folder)


@cache
def _history(course: Course, lab: str) -> dict[str, tuple[str, str]]:
    """Returns (the last commit with it, the day of the first) for each edition in git's history."""
    path = f"release/{lab}/{lab}.ipynb"
    log = _git(course, "log", "--first-parent", "--format=%H %cs", "--", path)
    found: dict[str, tuple[str, str]] = {}
    last = ""  # the newest commit that still has the release of the one before
    for line in (log or b"").decode().splitlines():
        commit, day = line.split()
        text = _git(course, "show", f"{commit}:./{path}") or b""
        told = re.search(rb'"release": "([0-9a-f]{64})"', text)
        if told:
            digest = told[1].decode()
            newest = found[digest][0] if digest in found else last or commit
            found[digest] = (newest, day)
        last = f"{commit}^"
    return found


def _from_git(course: Course, edition: Edition, found: tuple[str, str]) -> bool:
    commit, day = found
    notebook = f"release/{edition.lab}/{edition.lab}.ipynb"
    rooms = f"autograder/distgrade/labs/{edition.rooms.name}"
    data = _git(course, "archive", commit, notebook, rooms)
    data = data or _git(course, "archive", commit, notebook)
    if not data:
        return False
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            _take_files(archive, Path(folder))
        _put(edition, Path(folder) / notebook, Path(folder) / rooms, day)
    return True


def _take_files(archive: tarfile.TarFile, folder: Path) -> None:
    """Writes an archive's files; git names them from the top, so none can lie outside."""
    for member in archive:
        if member.isfile():
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.extractfile(member).read())


def _git(course: Course, *arguments: str) -> bytes | None:
    """Returns what git answers in the course folder, or None: no git, no repository, no such."""
    try:
        done = subprocess.run(
            ["git", "-C", str(course.root), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


# --- an edition within today's gradebook -----------------------------------------------------


def fitted(edition: Edition, present: NotebookNode) -> NotebookNode:
    """Returns an edition's notebook with the graded cells and the points of today's gradebook.

    Cells that are graded today and were not there stand at the end; cells that are graded no more
    are left out, and what students wrote in them stays.
    """
    release = deepcopy(edition.release())
    today = {grade_id(c): c for c in present.cells if nbgrader_of(c).get("grade")}
    wanted = {grade_id(c): c for c in present.cells if grade_id(c) in today or is_solution(c)}
    kept = []
    for cell in release.cells:
        meta = nbgrader_of(cell)
        if meta.get("grade") and grade_id(cell) in today:
            meta["points"] = nbgrader_of(today[grade_id(cell)]).get("points")
        elif meta.get("grade") and not is_solution(cell):
            continue
        kept.append(cell)
    there = {grade_id(cell) for cell in kept}
    for cell in (deepcopy(c) for name, c in wanted.items() if name not in there):
        cell.metadata["distlab"] = {"later": True}
        kept.append(cell)
    release.cells = kept
    release.metadata.distlab["edition"] = edition.name
    return release


def forget_strangers(built: NotebookNode, present: NotebookNode) -> None:
    """Takes nbgrader's marks off solution cells that today's gradebook does not know."""
    known = set(solution_cells(present))
    for cell in built.cells:
        if is_solution(cell) and grade_id(cell) not in known:
            del cell.metadata["nbgrader"]
            cell.metadata["distlab"] = {"student": True}  # still the student's, still hashed


def same_task(old: NotebookNode, present: NotebookNode, test: str, lab: str) -> bool:
    """Says whether an exercise's cells are in both: its given code and its visible tests."""
    name = exercise_of(test, lab).partition(".")[2]

    def cells(nb):
        found = (solution_cells(nb).get(name), graded_cells(nb).get(test))
        return [strip_hidden(c.source).strip() if c is not None else None for c in found]

    return cells(old) == cells(present)


@cache
def room(edition: Edition, exercise_id: str) -> Exercise | None:
    """Returns an exercise as its edition's room declares it; None without such a room.

    Raises RoomError if today's grader can't read it.
    """
    name = exercise_id.partition(".")[2]
    path = edition.rooms / f"{name}.py"
    if not path.is_file():
        return None
    try:
        with _package(edition.rooms) as package:
            module = importlib.import_module(f"{package}.{name}")
        return contract.read_room(module, path, exercise_id)
    except Exception as error:
        raise RoomError(
            f"{exercise_id}: its room of {edition.name} can't be read ({type(error).__name__})."
        ) from error


@contextmanager
def _package(folder: Path) -> Iterator[str]:
    """Lets imports from a lab's package find an edition's files, for as long as this lasts."""
    package = f"distgrade.labs.{folder.name}"
    mine = {n: m for n, m in sys.modules.items() if n == package or n.startswith(package + ".")}
    labs = importlib.import_module("distgrade.labs")
    there = getattr(labs, folder.name, None)
    for name in mine:
        del sys.modules[name]
    before, written = list(labs.__path__), sys.dont_write_bytecode
    labs.__path__[:] = [str(folder.parent)]
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield package
    finally:
        labs.__path__[:], sys.dont_write_bytecode = before, written
        for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
            del sys.modules[name]
        sys.modules.update(mine)
        if there is not None:
            setattr(labs, folder.name, there)
        importlib.invalidate_caches()
