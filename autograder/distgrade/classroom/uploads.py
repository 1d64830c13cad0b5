"""What lies in an upload: a folder, a zip from an LMS, zips within. Nothing is unpacked by name.

Notebooks are handed on as bytes, with the path they claim, bounded in size and number. So no path
can lead out of a folder and no zip can fill a disk; those that try are refused, and told.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from distgrade.course import CourseError
from distgrade.notebook import MAX_BYTES

MIB = 2**20
MAX_FILES = 20_000  # in one zip
MAX_READ_BYTES = 8 * 2**30  # of notebooks in a whole upload
MAX_INNER_BYTES = 128 * MIB  # of a zip within a zip
STAMP, MAX_STAMP_BYTES = "timestamp.txt", 200
MAX_DEPTH = 3  # the LMS's zip, a student's zip, what a tool zipped once more

NOISE = {"__MACOSX", ".ipynb_checkpoints", "__pycache__", ".git", ".venv", "node_modules"}
DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, OSError)


@dataclass(frozen=True)
class Found:
    """A notebook of an upload: where it says it lies, what is in it, when it was changed.

    A zip is a part of the path, as a folder is. `data` is None when it was refused, `why` says why.
    `stamp` is what nbgrader's `timestamp.txt` beside it says, or "".
    """

    parts: tuple[str, ...]
    data: bytes | None
    modified: datetime | None = None
    why: str = ""
    stamp: str = ""

    @property
    def path(self) -> str:
        """The path in one piece, as people read it."""
        return "/".join(self.parts)


class Refused(Exception):
    """An archive that is not opened; the text says why."""


@dataclass
class _Budget:
    left: int = field(default_factory=lambda: MAX_READ_BYTES)

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise CourseError(
                f"the upload holds more than {MAX_READ_BYTES >> 30} GiB of notebooks; nothing was"
                " taken: collect it in parts."
            )


def notebooks(path: Path) -> Iterator[Found]:
    """Yields every notebook in a folder, a zip, or a single file.

    Raises CourseError if the upload as a whole can't be used.
    """
    budget = _Budget()
    if path.is_dir():
        yield from _in_folder(path, budget)
    elif path.suffix.lower() == ".zip":
        try:
            with path.open("rb") as file:
                yield from _in_zip(file, (), 1, budget)
        except Refused as refused:
            raise CourseError(f"{path.name} {refused}; nothing was taken.") from None
        except OSError as error:
            raise CourseError(f"{path.name} can't be read: {error.strerror or error}.") from None
    elif path.suffix.lower() == ".ipynb":
        yield _file(path, (path.name,), budget)
    elif not path.exists():
        raise CourseError(f"there is no file or folder {path}.")
    else:
        raise CourseError(f"{path.name} is neither a folder, nor a zip, nor a notebook.")


def _in_folder(top: Path, budget: _Budget) -> Iterator[Found]:
    def broken(error: OSError) -> None:
        raise CourseError(f"{error.filename} can't be read: {error.strerror}.")

    for folder, below, names in os.walk(top, onerror=broken):
        below[:] = sorted(n for n in below if n not in NOISE)  # links are not followed
        for name in sorted(names):
            path = Path(folder) / name
            parts = _clean(path.relative_to(top).as_posix())
            if path.is_symlink() or name.startswith("._"):
                continue
            if name.lower().endswith(".ipynb"):
                yield _file(path, parts, budget)
            elif name.lower().endswith(".zip"):
                try:
                    with path.open("rb") as file:
                        yield from _in_zip(file, parts, 2, budget)
                except (Refused, OSError) as error:
                    yield Found(parts, None, why=_said(error))


def _file(path: Path, parts: tuple[str, ...], budget: _Budget) -> Found:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        modified = datetime.fromtimestamp(path.stat().st_mtime)
    except OSError as error:
        return Found(parts, None, why=_said(error))
    budget.take(len(data))
    stamp = b""
    with contextlib.suppress(OSError), (path.parent / STAMP).open("rb") as file:
        stamp = file.read(MAX_STAMP_BYTES)
    return _bounded(parts, data, modified, stamp)


def _in_zip(file, above: tuple[str, ...], depth: int, budget: _Budget) -> Iterator[Found]:
    try:
        archive = zipfile.ZipFile(file)
    except DAMAGED:
        raise Refused("is not a zip, or is damaged") from None
    with archive:
        entries = [(_name(entry), entry) for entry in archive.infolist()]
        if len(entries) > MAX_FILES:
            raise Refused(f"holds more than {MAX_FILES:,} files")
        for name, entry in entries:
            if _leads_out(name):
                raise Refused(f"holds a file that would be written outside ({_short(name)})")
            if stat.S_ISLNK(entry.external_attr >> 16) and _wanted(name):
                raise Refused(f"holds a link ({_short(name)})")
        for name, entry in entries:
            parts = (*above, *_clean(name))
            if entry.is_dir() or NOISE & set(parts) or parts[-1].startswith("._"):
                continue
            if name.lower().endswith(".ipynb"):
                yield _entry(archive, entry, parts, budget)
            elif name.lower().endswith(".zip"):
                yield from _inner(archive, entry, parts, depth, budget)


def _inner(archive, entry, parts, depth, budget) -> Iterator[Found]:
    if depth >= MAX_DEPTH:
        yield Found(parts, None, why="is one zip in another too many")
        return
    try:
        data = _read(archive, entry, MAX_INNER_BYTES)
        budget.take(len(data))
        if len(data) > MAX_INNER_BYTES:
            raise Refused(f"is larger than {MAX_INNER_BYTES // MIB} MiB")
        yield from _in_zip(io.BytesIO(data), parts, depth + 1, budget)
    except Refused as refused:
        yield Found(parts, None, why=str(refused))


def _entry(archive, entry, parts, budget) -> Found:
    try:
        data = _read(archive, entry, MAX_BYTES)
    except Refused as refused:
        return Found(parts, None, why=str(refused))
    budget.take(len(data))
    try:
        modified = datetime(*entry.date_time)
    except ValueError:
        modified = None
    stamp = b""
    with contextlib.suppress(KeyError, Refused):  # KeyError: there is none
        beside = archive.getinfo(entry.filename.rpartition("/")[0] + f"/{STAMP}")
        stamp = _read(archive, beside, MAX_STAMP_BYTES)
    return _bounded(parts, data, modified, stamp)


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """Returns an entry's bytes, `most` and one more at most, whatever its header says."""
    if entry.flag_bits & 1:
        raise Refused("is locked with a password")
    try:
        with archive.open(entry) as file:
            return file.read(most + 1)
    except DAMAGED:
        raise Refused("is damaged in its zip") from None


def _bounded(parts, data: bytes, modified, stamp: bytes) -> Found:
    if len(data) > MAX_BYTES:
        return Found(parts, None, modified, f"is larger than {MAX_BYTES // MIB} MiB")
    return Found(parts, data, modified, stamp=stamp.decode("utf-8", "replace").strip())


def _name(entry: zipfile.ZipInfo) -> str:
    """Returns an entry's name. macOS writes UTF-8 without saying so; zipfile then reads CP437."""
    name = entry.filename
    if not entry.flag_bits & 0x800:
        with contextlib.suppress(UnicodeEncodeError, UnicodeDecodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def _wanted(name: str) -> bool:
    return name.lower().endswith((".ipynb", ".zip"))


def _leads_out(name: str) -> bool:
    return name.startswith("/") or bool(re.match(r"[A-Za-z]:", name)) or ".." in name.split("/")


def _clean(name: str) -> tuple[str, ...]:
    """Returns a path's parts, letters composed (macOS takes them apart), nothing unprintable."""
    text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8"))
    parts = ("".join(c for c in part if c.isprintable()) for part in text.split("/"))
    return tuple(part for part in parts if part not in ("", ".")) or ("?",)


def _short(name: str) -> str:
    text = "/".join(_clean(name))
    return text if len(text) <= 60 else "…" + text[-59:]


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"can't be read: {error.strerror or error}"
    return str(error)
