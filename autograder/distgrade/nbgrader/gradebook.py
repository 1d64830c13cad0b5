"""Sees to a gradebook that knows the assignment, also in a fresh clone that has none."""

from __future__ import annotations

import logging
import tempfile
from copy import deepcopy
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from traitlets.config import Config

log = logging.getLogger("distgrade")


def knows(db_url: str, course_id: str, assignment: str) -> bool:
    """Says whether the gradebook has this assignment with at least one notebook."""
    with Gradebook(db_url, course_id) as gradebook:
        try:
            return bool(gradebook.find_assignment(assignment).notebooks)
        except MissingEntry:
            return False


def ensure_assignment(*, assignment: str, config: Config, **_) -> None:
    """Enters the assignment into the gradebook if it is not there; `release/` stays untouched.

    Autograde's pre-convert hook. `release/` is committed and the gradebook is not: without this,
    `nbgrader autograde` in a fresh clone would know no assignment.
    """
    from nbgrader.coursedir import CourseDirectory

    courses = CourseDirectory(config=config)
    if not knows(courses.db_url, courses.course_id, assignment):
        enter(assignment, config)


def enter(assignment: str, config: Config) -> None:
    """Enters an assignment as it is in `source/`; nbgrader raises if submissions stand against it.

    Nothing happens without a source: nbgrader's own message about an unknown assignment is right.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    config = deepcopy(config)  # a shallow copy would send everybody to the folder below
    courses = CourseDirectory(config=config)
    source = Path(courses.format_path(courses.source_directory, ".", assignment))
    if not source.is_dir():
        return
    with tempfile.TemporaryDirectory() as folder:
        config.CourseDirectory.release_directory = folder
        config.CourseDirectory.assignment_id = assignment
        converter = GenerateAssignment(coursedir=CourseDirectory(config=config), config=config)
        converter.log.setLevel(logging.ERROR)
        converter.start()
    log.info("the gradebook now knows %s", assignment)
