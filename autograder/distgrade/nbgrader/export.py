"""Marks out of nbgrader's gradebook as CSV: `distgrade marks`, or `nbgrader export --exporter=`.

nbgrader's own CSV gives 0 to whoever is not graded yet, does not say what still waits for a person,
and breaks at a comma in a name. Here an empty field is no mark, and `state` says why.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.plugins import ExportPlugin

from distlab.files import write_whole

GRADED, WAITS, AGAIN = "graded", "needs a human", "handed in again"
UNGRADED, NOTHING = "not graded", "nothing handed in"
ABOUT = ("assignment", "student_id", "last_name", "first_name", "email", "lms_user_id")
TOTALS = ("state", "handed_in", "score", "max_score", "late_penalty")


class Marks(ExportPlugin):
    """Exports a row for each student and assignment, with the points of each graded cell."""

    def export(self, gradebook: Gradebook) -> None:
        """Writes the file `to` (grades.csv), whole or not at all."""
        courses = CourseDirectory(parent=self.parent)
        named = [str(name) for name in self.assignment]
        rows = [
            row
            for assignment in gradebook.assignments
            if not named or assignment.name in named
            for row in marks(gradebook, courses, assignment.name, [str(s) for s in self.student])
        ]
        write_whole(Path(self.to or "grades.csv"), "\ufeff" + as_csv(rows))


def as_csv(rows: list[dict]) -> str:
    """Returns rows as CSV, the points of each cell last."""
    cells = dict.fromkeys(name for row in rows for name in row if name not in (*ABOUT, *TOTALS))
    text = io.StringIO()
    writer = csv.DictWriter(text, (*ABOUT, *TOTALS, *cells), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def marks(
    gradebook: Gradebook, courses: CourseDirectory, assignment: str, students: list[str] = ()
) -> Iterator[dict]:
    """Yields a row for each student of an assignment, by id: also for who is not in the gradebook.

    Raises MissingEntry for an assignment that the gradebook does not know.
    """
    known = gradebook.find_assignment(assignment)
    people = {student.id: student for student in gradebook.students}
    above = Path(courses.format_path(courses.submitted_directory, "x", assignment)).parents[1]
    folders = {p.name for p in above.glob("*") if (p / assignment).is_dir()}
    for name in sorted(folders | set(people)):
        if students and name not in students:
            continue
        student = people.get(name)
        row = {key: getattr(student, key, None) or "" for key in ABOUT[2:]}
        row |= {"assignment": assignment, "student_id": name, "max_score": _number(known.max_score)}
        try:
            submission = gradebook.find_submission(assignment, name)
        except MissingEntry:
            yield row | {"state": UNGRADED if name in folders else NOTHING}
            continue
        state = WAITS if submission.needs_manual_grade else GRADED
        if _is_newer(courses, name, assignment):
            state = AGAIN
        row |= {"state": state, "handed_in": submission.timestamp or ""}
        row |= {
            "score": _number(max(0.0, submission.score - submission.late_submission_penalty)),
            "late_penalty": _number(submission.late_submission_penalty),
        }
        for notebook in submission.notebooks:
            for grade in sorted(notebook.grades, key=lambda grade: grade.name):
                row[grade.name] = "" if grade.needs_manual_grade else _number(grade.score)
        yield row


def _is_newer(courses: CourseDirectory, student: str, assignment: str) -> bool:
    """Says whether a notebook was handed in after the one that was graded."""
    kinds = (courses.submitted_directory, courses.autograded_directory)
    folders = (Path(courses.format_path(kind, student, assignment)) for kind in kinds)
    given, graded = (
        max((p.stat().st_mtime for p in folder.glob("*.ipynb")), default=0.0) for folder in folders
    )
    return given > graded > 0


def _number(value: float) -> str:
    return f"{value:g}" if value else "0"
