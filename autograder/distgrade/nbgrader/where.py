"""What a preprocessor needs to know about its surroundings: the course and the release."""

from __future__ import annotations

from pathlib import Path

from nbformat import NotebookNode

from distgrade.course import Course
from distgrade.notebook import NotebookError, distlab_of, lab_of, read_release_file


def course_dir(preprocessor):
    """Returns nbgrader's CourseDirectory, found on the converter that runs the preprocessor."""
    above = preprocessor
    while above is not None:
        found = getattr(above, "coursedir", None)
        if found is not None:
            return found
        above = getattr(above, "parent", None)
    raise NotebookError("this preprocessor runs outside of nbgrader's converters.")


def course_of(preprocessor) -> Course:
    """Returns the course that is being worked on."""
    return Course(Path(course_dir(preprocessor).root))


def release_of(preprocessor, resources: dict) -> tuple[str, NotebookNode] | None:
    """Returns (lab, released notebook), or None when the assignment is none of ours.

    Decided by the release and never by the submission. Raises NotebookError without a release:
    nbgrader then leaves the submission ungraded, says so, and goes on with the class.
    """
    courses = course_dir(preprocessor)
    about = resources["nbgrader"]
    folder = courses.format_path(courses.release_directory, ".", about["assignment"])
    path = Path(folder) / f"{about['notebook']}.ipynb"
    if not path.is_file():
        raise NotebookError(
            f"{about['assignment']} was not released: run `distgrade release`, then grade again."
        )
    release = read_release_file(path)
    if not isinstance(distlab_of(release).get("lab"), str):
        return None
    return lab_of(release, path), release
