"""Work to take along: a work folder as one zip file, and back, without writing over anything."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path, PurePosixPath

from distlab.files import write_whole
from distlab.learn import records

LIST = "distlab-work.json"  # in the zip: what is in it, with digests
FORM = 1
MOST_FILES = 2_000
MOST_FILE_BYTES = 32 * 2**20  # as much as the grader reads of a notebook
MOST_BYTES = 256 * 2**20
NAME = re.compile(r"my-work-\d{4}-\d\d-\d\d(-\d+)?\.zip")
TEXTS = "course"  # in a work folder: chapters and glossary, copies that `make lab` makes
_LEFT_OUT = (".ipynb_checkpoints", "__pycache__")


class Refused(Exception):
    """One sentence: why a file can't be restored from, or nothing can be packed."""


@dataclass(frozen=True)
class Restored:
    """What became of each file of a zip."""

    new: tuple[str, ...]
    same: tuple[str, ...]
    replaced: dict[str, str]  # file -> where the one that was there is now

    def __str__(self) -> str:
        """Says it in one or a few lines."""
        count = len(self.new) + len(self.replaced)
        lines = [f"{count} file{'s' * (count != 1)} restored, {len(self.same)} were the same."]
        for name, aside in self.replaced.items():
            lines.append(f"Yours is kept: {name} is now {PurePosixPath(aside).name}.")
        return "\n".join(lines)


def pack(work: Path) -> bytes:
    """Returns a zip of a work folder: its files, and what the checks said. Raises Refused."""
    files = {name: path for name, path in _files(work)}
    if not files:
        raise Refused(f"there is nothing to keep in {work.name}/ yet.")
    if len(files) > MOST_FILES:
        raise Refused(f"{work.name}/ has more than {MOST_FILES} files: move away what is no lab's.")
    data = io.BytesIO()
    listed, total = {}, 0
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            total += len(content)
            if len(content) > MOST_FILE_BYTES or total > MOST_BYTES:
                raise Refused(
                    f"{name} is too large to keep ({len(content) / 1e6:,.0f} MB): "
                    "clear its outputs or move it away."
                )
            listed[name] = hashlib.sha256(content).hexdigest()
            _add(archive, name, content)
        _add(archive, LIST, json.dumps({"form": FORM, "files": listed}, indent=1).encode())
    return data.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Adds a file without its time, so that the same work gives the same zip."""
    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def _files(work: Path):
    """Yields (name, path) of what belongs to the work: no links, checkpoints or hidden files."""
    for folder, folders, names in os.walk(work):
        here = Path(folder).relative_to(work)
        top = here == Path()
        folders[:] = sorted(
            f
            for f in folders
            if f not in _LEFT_OUT
            and not (top and f == TEXTS)
            and (not f.startswith(".") or (top and f == records.FOLDER))
        )
        for name in names:
            path = Path(folder) / name
            if name.startswith(".") or (top and (name.endswith(".zip") or name == "start.ipynb")):
                continue
            if path.is_file() and not path.is_symlink():
                yield (here / name).as_posix(), path


def save(work: Path) -> Path:
    """Writes a zip of a work folder into it, under a name of its own; returns where it is.

    Raises Refused or OSError.
    """
    data = pack(work)
    number = 1
    while True:
        more = f"-{number}" if number > 1 else ""
        place = work / f"my-work-{date.today():%Y-%m-%d}{more}.zip"
        try:
            with place.open("xb") as file:
                file.write(data)
            return place
        except FileExistsError:
            if place.read_bytes() == data:
                return place
            number += 1


def restore(work: Path, data: bytes) -> Restored:
    """Puts the files of a zip made by `pack` into a work folder; a file that differs is put aside.

    Everything is read and looked at before anything is written. Raises Refused or OSError.
    """
    contents = _contents(data)
    for name in contents:
        _refuse_way_out(work, name)
    records_of_both = {
        name: _with_mine(work, name, content)
        for name, content in contents.items()
        if name.startswith(records.FOLDER + "/")
    }
    for name, content in records_of_both.items():
        write_whole(work / name, content, 0o644)
    new, same, replaced = [], [], {}
    for name, content in contents.items():
        target = work / name
        if name in records_of_both:
            continue
        if not os.path.lexists(target):
            new.append(name)
        elif target.is_file() and target.read_bytes() == content:
            same.append(name)
            continue
        else:
            replaced[name] = put_aside(target).relative_to(work).as_posix()
        write_whole(target, content, 0o644)
    return Restored(tuple(new), tuple(same), replaced)


def _contents(data: bytes) -> dict[str, bytes]:
    """Returns the files of a zip by name, all of them listed, known and within bounds."""
    foreign = "this is no file that the start page has made: {}"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if len(infos) > MOST_FILES + 1:
                raise Refused(f"the zip holds more than {MOST_FILES} files.")
            names = [info.filename for info in infos]
            if len(set(names)) != len(names):
                raise Refused("the zip holds a file twice.")
            listed = _listed(_read(archive, LIST)) if LIST in names else None
            if listed is None:
                raise Refused(foreign.format(f"it has no {LIST}."))
            contents, total = {}, 0
            for info in infos:
                if info.filename == LIST:
                    continue
                _refuse_name(info)
                if info.filename not in listed:
                    raise Refused(foreign.format(f"{_short(info.filename)} is not in its list."))
                content = _read(archive, info.filename)
                total += len(content)
                if total > MOST_BYTES:
                    raise Refused(f"the zip unpacks to more than {MOST_BYTES >> 20} MiB.")
                if hashlib.sha256(content).hexdigest() != listed[info.filename]:
                    raise Refused(f"{_short(info.filename)} was changed since the zip was made.")
                contents[info.filename] = content
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError):
        raise Refused("this is no zip file, or a damaged one.") from None
    missing = sorted(set(listed) - set(contents))
    if missing:
        raise Refused(f"{_short(missing[0])} is missing from the zip.")
    return contents


def _listed(content: bytes) -> dict[str, str] | None:
    try:
        told = json.loads(content)
        files = told["files"]
        if told["form"] != FORM or not all(isinstance(v, str) for v in files.values()):
            return None
        return dict(files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    """Returns a file of the zip, however large it claims to be: never more than the bound."""
    with archive.open(name) as file:
        content = file.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise Refused(f"{_short(name)} is larger than {MOST_FILE_BYTES >> 20} MiB.")
    return content


def _refuse_name(info: zipfile.ZipInfo) -> None:
    """Raises Refused for a name that could lead out of the folder, or to a hidden file."""
    name = info.filename
    parts = PurePosixPath(name).parts
    kind = info.external_attr >> 28  # 10 is a link, where the zip knows of such
    bad = (
        info.is_dir()
        or kind not in (0, 8)
        or name != "/".join(parts)
        or name.startswith("/")
        or any(c in name for c in "\\:\0")
        or not name.isprintable()
        or len(name) > 300
        or ".." in parts
        or any(part in _LEFT_OUT or len(part.encode()) > 200 for part in parts)
    )
    if parts[:1] == (records.FOLDER,):
        exercise, _, ending = parts[-1].rpartition(".")
        known = ending == "json" and records.EXERCISE.fullmatch(exercise)
        bad = bad or len(parts) != 2 or not known
    else:
        bad = bad or any(part.startswith(".") for part in parts) or name == "start.ipynb"
    if bad:
        raise Refused(f"the zip holds a file that is none of a learner's: {_short(name)}.")


def _refuse_way_out(work: Path, name: str) -> None:
    """Raises Refused where a folder on a file's way is a link or a file."""
    place = work
    for part in PurePosixPath(name).parts[:-1]:
        place = place / part
        if place.is_symlink() or (os.path.lexists(place) and not place.is_dir()):
            raise Refused(f"{_short(name)} can't be restored: {part} here is no folder.")


def _with_mine(work: Path, name: str, content: bytes) -> bytes:
    """Returns the record of the zip together with what is known here."""
    exercise = PurePosixPath(name).stem
    try:
        theirs = records.record_of(json.loads(content), exercise)
    except ValueError:
        raise Refused(f"{_short(name)} is damaged.") from None
    both = records.merged(records.read_record(work, exercise), theirs)
    return json.dumps(both.as_json(), indent=1).encode()


def put_aside(path: Path) -> Path:
    """Renames lab.ipynb to lab.mine-1.ipynb, or the next free number; returns the new place."""
    number = 1
    while True:
        aside = path.with_name(f"{path.stem}.mine-{number}{path.suffix}")
        if not os.path.lexists(aside):
            os.rename(path, aside)
            return aside
        number += 1


def _short(name: str) -> str:
    """Returns a name from a stranger's zip, fit to be shown."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= 80 else text[:79] + "…"
