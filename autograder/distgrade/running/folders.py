"""A folder that a student's code wrote into: how large it is, and its removal, whatever lies there.

A path has a longest length and a program a deepest recursion; folders in folders know neither.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

FILE_BYTES = 4096  # what a file or a folder takes at the least: a million empty ones are many


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
