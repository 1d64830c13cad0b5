"""Makes `release/` from `source/` with nbgrader's generate_assignment, and says what is stale."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import date
from pathlib import Path

from traitlets.config import Config

from distgrade import editions
from distgrade.course import MARK, Course, CourseError
from distgrade.notebook import canonical, read_notebook

IGNORED = {".ipynb_checkpoints", "__pycache__", ".DS_Store"}


def load_config(root: Path) -> Config:
    """Returns the settings in a course's `nbgrader_config.py`."""
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader(MARK, path=str(root)).load_config()


def publish(course: Course, labs: tuple[str, ...] | None = None) -> dict[str, bool]:
    """Writes `release/` and the gradebook; returns for each lab whether its release changed.

    A lab that did not change keeps its files, so whoever reads them meanwhile finds them whole.
    """
    from distgrade.nbgrader.gradebook import ensure

    changed = {}
    with tempfile.TemporaryDirectory(dir=_state(course)) as folder:
        config = load_config(course.root)
        ensure(config.CourseDirectory.db_url, config.CourseDirectory.course_id)
        config.CourseDirectory.release_directory = folder
        for lab in labs or course.labs():
            _generate(config, lab)
            fresh, there = Path(folder) / lab, course.root / "release" / lab
            changed[lab] = _files(fresh) != _files(there)
            if changed[lab]:
                shutil.rmtree(there, ignore_errors=True)
                there.parent.mkdir(exist_ok=True)
                fresh.rename(there)
            editions.keep(course, lab, f"{date.today():%Y-%m-%d}")
    if labs is None:
        for lab in set(course.released_labs()) - set(course.labs()):
            shutil.rmtree(course.root / "release" / lab)
            changed[lab] = True
    return changed


def _state(course: Course) -> Path:
    """Returns the folder of what is not committed, on the same disk as `release/`."""
    folder = course.root / ".distgrade"
    folder.mkdir(exist_ok=True)
    return folder


def stale(course: Course) -> list[str]:
    """Returns a sentence for each released file that differs from what `source/` gives now."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "release"
        for lab in course.labs():
            generate(course, lab, fresh)
        new, old = _files(fresh), _files(course.root / "release")
        for name in sorted(set(new) | set(old)):
            if name not in old:
                found.append(f"release/{name} is missing.")
            elif name not in new:
                found.append(f"release/{name} comes from nothing in source/.")
            elif new[name] != old[name]:
                found.append(f"release/{name} is not what source/ gives now.")
    return found


def generate(course: Course, lab: str, folder: Path) -> None:
    """Writes the release of a lab into another folder, without a gradebook, so quickly."""
    config = load_config(course.root)
    config.CourseDirectory.release_directory = str(folder)
    config.GenerateAssignment.no_database = True
    steps = config.GenerateAssignment.preprocessors
    config.GenerateAssignment.preprocessors = [s for s in steps if "SaveCells" not in s]
    _generate(config, lab)


def _generate(config: Config, lab: str) -> None:
    from nbgrader.converters import GenerateAssignment
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory

    config = deepcopy(config)
    config.CourseDirectory.assignment_id = lab
    converter = GenerateAssignment(coursedir=CourseDirectory(config=config), config=config)
    with errors_of(converter.log) as errors:
        try:
            converter.start()
        except (NbGraderException, SystemExit):
            said = "\n".join(errors)
            if "there are submissions associated" in said:
                raise CourseError(
                    f"{lab} gained or lost graded cells, but the gradebook holds submissions of it:"
                    " move gradebook.db aside, release, and grade again."
                ) from None
            raise CourseError(f"nbgrader could not release {lab}: {reason_in(said)}") from None


def reason_in(said: str) -> str:
    """Returns the line of nbgrader's log that names the error, or its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((x for x in reversed(lines) if "Error" in x), lines[-1] if lines else "")


@contextmanager
def errors_of(logger: logging.Logger) -> Iterator[list[str]]:
    """Keeps what nbgrader logs as an error; the rest of its log is noise here."""
    errors: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record):
            errors.append(record.getMessage())

    handler, level, propagate = Keep(logging.ERROR), logger.level, logger.propagate
    others = list(logger.handlers)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.ERROR)
    try:
        yield errors
    finally:
        logger.handlers, logger.propagate = others, propagate
        logger.setLevel(level)


def _files(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != ".gitkeep" and not IGNORED & set(p.parts)
    }


def not_canonical(course: Course) -> list[Path]:
    """Returns the source notebooks that are not in their canonical form."""
    paths = (course.source(lab) for lab in course.labs())
    return [p for p in paths if p.read_bytes() != canonical(read_notebook(p))]
