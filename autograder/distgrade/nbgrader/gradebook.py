"""Sees to a gradebook that knows the assignment, also in a fresh clone that has none."""

from __future__ import annotations

import logging
import os
import tempfile
from copy import deepcopy
from pathlib import Path

from alembic.script import ScriptDirectory
from nbgrader import dbutil
from nbgrader.api import Gradebook, MissingEntry
from sqlalchemy import create_engine, text
from traitlets.config import Config

log = logging.getLogger("distgrade")


def ensure(db_url: str, course_id: str) -> None:
    """Makes the gradebook if there is none, in one step: half of one would never be mended."""
    address, mark, options = db_url.partition("?")
    path = Path(address.removeprefix("sqlite:///"))
    if not address.startswith("sqlite:///") or path.exists():
        return
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    _make(f"sqlite:///{part}{mark}{options}", course_id)
    os.replace(part, path)


def _make(db_url: str, course_id: str) -> None:
    """Makes an empty gradebook; nbgrader would ask a process for its newest form, for seconds."""
    engine = create_engine(db_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        head = ScriptDirectory(dbutil.ALEMBIC_DIR).get_current_head()
        connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": head})
    engine.dispose()
    with Gradebook(db_url, course_id):
        pass  # it adds its tables


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
