"""A folder for a student's code to write into: made, measured, and removed whatever lies there.

Whoever makes one holds a lock on it, which ends with the process, however that ends. So folders of
graders that were killed are known, and the next grader removes them. As for removing: a path has a
longest length and a program a deepest recursion; folders in folders know neither.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

from distgrade.running.sandbox import FIRST_USER

FILE_BYTES = 4096  # what a file or a folder takes at the least: a million empty ones are many
PREFIX = "distgrade-"
LEFT_S = 600.0  # a folder is younger than this, or it is locked, or nobody needs it


def make() -> tuple[Path, int | None]:
    """Returns a new folder, and the file to close when it is no longer needed."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    return folder, _held(folder)


def _held(folder: Path) -> int | None:
    """Returns an open file that locks the folder, or None where somebody holds it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or a disk without locks
        os.close(fd)
        return None
    return fd


@cache
def sweep() -> None:
    """Removes what graders that were killed have left behind; once in a process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            ours = about.st_uid == os.geteuid() or (
                os.geteuid() == 0 and about.st_uid >= FIRST_USER
            )
            if ours and time.time() - about.st_mtime > LEFT_S:
                fd = _held(folder)
                if fd is not None:
                    remove(folder)
                    os.close(fd)


def size_of(folder: Path, enough: int) -> int:
    """Returns the bytes that a folder takes on the disk; stops counting beyond `enough`."""
    total, todo = 0, [str(folder)]
    while todo and total <= enough:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    blocks = entry.stat(follow_symlinks=False).st_blocks
                    total += max(blocks * 512, FILE_BYTES)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
    return total


def remove(folder: Path) -> None:
    """Removes a folder. What lies deeper than one level is moved up before."""
    moved = 0
    for top in _folders_in(folder):
        todo = [top]
        while todo:
            at = todo.pop()
            for below in _folders_in(at):
                moved += 1
                lifted = folder / f".{moved}"
                with contextlib.suppress(OSError):
                    os.rename(below, lifted)
                    todo.append(lifted)
    shutil.rmtree(folder, ignore_errors=True)


def _folders_in(folder: Path) -> list[Path]:
    try:
        os.chmod(folder, 0o700)  # one that can't be read can't be emptied
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
