"""`distgrade marks LAB`: the gradebook's marks of one lab as CSV (see `nbgrader.export`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from distgrade.classroom.register import told_plainly
from distgrade.course import Course, CourseError
from distgrade.publish import load_config
from distlab.files import write_whole


def read(course: Course, lab: str) -> tuple[list[dict], str]:
    """Returns the rows of a lab's marks, and them as CSV.

    Raises CourseError where the gradebook has none.
    """
    from nbgrader.api import Gradebook, MissingEntry
    from nbgrader.coursedir import CourseDirectory

    from distgrade.nbgrader.export import as_csv, marks

    courses = CourseDirectory(config=load_config(course.root))
    url = courses.db_url
    none = CourseError(f"the gradebook has no marks of {lab}: run `distgrade grade {lab[:5]}`.")
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).is_file():
        raise none
    with told_plainly(), Gradebook(url, courses.course_id) as gradebook:
        try:
            rows = list(marks(gradebook, courses, lab))
        except MissingEntry:
            raise none from None
    return rows, as_csv(rows)


def write(path: Path, text: str) -> None:
    """Writes the file, whole or not at all; the mark in front lets Excel read its letters."""
    try:
        write_whole(path, "\ufeff" + text)
    except OSError as error:
        raise CourseError(f"{path} can't be written: {error.strerror or error}.") from None


def still_open(rows: Sequence[dict]) -> str:
    """Returns how many have no final mark although they handed in, by reason; "" if nobody."""
    from distgrade.nbgrader.export import GRADED, NOTHING

    counts = Counter(row["state"] for row in rows if row["state"] not in (GRADED, NOTHING))
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
