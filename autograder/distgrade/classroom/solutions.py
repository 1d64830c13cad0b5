"""`distgrade solutions LAB`: the solved notebook for students, once its deadline is over.

nbgrader's generate_solution with this course's settings: `source/` without the hidden regions and
the marks around solutions, without outputs. It lands in nbgrader's `solution/` folder, which is not
committed; handing it out is the teacher's step.
"""

from __future__ import annotations

import shutil
import tempfile
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path

from distgrade.classroom.register import told_plainly
from distgrade.course import Course, CourseError
from distgrade.publish import errors_of, load_config, reason_in


def make(course: Course, lab: str, *, early: bool = False) -> tuple[Path, datetime | None]:
    """Writes the solved notebook, whole or not at all; returns its folder and the deadline.

    Raises CourseError before the deadline that the gradebook knows, unless `early`.
    """
    from nbgrader.converters import GenerateSolution
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory

    from distgrade.nbgrader.gradebook import ensure_assignment

    if lab not in course.labs():
        raise CourseError(f"there is no source/{lab}: solutions are made from it.")
    config = load_config(course.root)
    courses = CourseDirectory(config=config)
    with told_plainly():
        ensure_assignment(assignment=lab, config=config)
        deadline = _deadline(courses, lab)
    now = datetime.now(UTC).replace(tzinfo=None)  # as nbgrader keeps it
    if deadline is not None and now < deadline and not early:
        raise CourseError(
            f"the deadline of {lab} is {deadline:%Y-%m-%d %H:%M} UTC: wait for it, or add --early."
        )
    folder = Path(courses.format_path(courses.solution_directory, ".", lab))
    config = deepcopy(config)
    state = course.root / ".distgrade"
    with told_plainly(), tempfile.TemporaryDirectory(dir=state) as fresh:
        config.CourseDirectory.solution_directory = fresh
        config.CourseDirectory.assignment_id = lab
        converter = GenerateSolution(coursedir=CourseDirectory(config=config), config=config)
        with errors_of(converter.log) as errors:
            try:
                converter.start()
            except (NbGraderException, SystemExit):
                said = reason_in("\n".join(errors))
                raise CourseError(f"nbgrader could not make it: {said}") from None
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.is_dir():
            shutil.move(folder, Path(fresh) / "old")
        (Path(fresh) / lab).rename(folder)
    return folder, deadline


def _deadline(courses, lab: str) -> datetime | None:
    from nbgrader.api import Gradebook

    with Gradebook(courses.db_url, courses.course_id) as gradebook:
        return gradebook.find_assignment(lab).duedate
