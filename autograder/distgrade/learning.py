"""What the grader offers to somebody who learns alone: a solution, and what grades an exercise.

`distlab.learn` finds both through the entry points `distlab.learning`, where this is installed.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache

from distgrade.course import find_course
from distgrade.exercise import room_path
from distgrade.notebook import read_notebook, solution_cells

_MARK = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.M)


def solution(exercise: str) -> str:
    """Returns the text of a solution cell as `source/` has it.

    Raises LookupError for an exercise that is not there, NotebookError or CourseError.
    """
    lab = room_path(exercise).parent.name.replace("_", "-")
    cells = solution_cells(read_notebook(find_course().source(lab)))
    return _MARK.sub("", cells[exercise.partition(".")[2]].source)


@cache
def version(exercise: str) -> str:
    """Returns what stands for an exercise's room, or "" where there is none: read, not imported."""
    try:
        room = room_path(exercise)
    except LookupError:
        return ""
    frozen = room.with_suffix(".safetensors")
    found = hashlib.sha256()
    for path in (room, frozen, *sorted(room.parent.glob("_*.py"))):
        if path.is_file():
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:20]
