"""`distgrade grade LAB`: a whole class, several submissions at once, into nbgrader's gradebook.

Two steps. Several processes run the submissions and keep the verdicts (`parallel`, `verdicts`).
Then nbgrader's own autograde, one submission at a time, writes the marks: it finds the verdicts
kept and starts no kernel. So the gradebook has one writer, and formgrader, feedback and export see
what they always see. Each submission that is written is noted down: a run that was broken off goes
on where it stopped, and one that is done is not done again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from traitlets.config import Config

from distgrade import private
from distgrade.course import Course, CourseError
from distgrade.exercise import GraderError
from distgrade.notebook import distlab_of, graded_cells
from distgrade.parallel import Answer, Task, grade_all
from distgrade.publish import errors_of, load_config, reason_in
from distgrade.rooms import room_of
from distgrade.verdicts import fingerprint, write_whole

LOCKED = (
    "The gradebook is in use by another program (formgrader, perhaps). Nothing is lost: close it, "
    "then run the same command again."
)


@dataclass(frozen=True)
class Row:
    """What became of one submission. `why` says what a person must do; "" when nothing."""

    student: str
    graded: bool
    score: float | None = None
    max_score: float = 0.0
    why: str = ""
    notes: tuple[str, ...] = ()
    anew: bool = True


@dataclass
class Class:
    """One lab's submissions in a course folder, and the settings they are graded by."""

    course: Course
    lab: str
    config: Config = field(init=False)

    def __post_init__(self):
        from distgrade.check import read_release

        self.release = read_release(self.course, self.lab)
        self.config = load_config(self.course.root)
        self.graders = self._graders()

    def _graders(self) -> str:
        """Returns what stands for all that grades this lab: its release, its rooms, the core."""
        digest = hashlib.sha256(str(distlab_of(self.release).get("release")).encode())
        try:
            private.files(self.course, self.lab)
            for test in graded_cells(self.release):
                room = room_of(self.course, self.lab, self.release, test)
                digest.update(fingerprint(room).encode())
        except (LookupError, GraderError) as error:
            raise CourseError(str(error)) from None
        return digest.hexdigest()

    def coursedir(self):
        """Returns nbgrader's view of the folder."""
        from nbgrader.coursedir import CourseDirectory

        return CourseDirectory(config=self.config)

    def folder(self, kind: str, student: str) -> Path:
        """Returns the folder "submitted" or "autograded" of one student."""
        courses = self.coursedir()
        name = getattr(courses, f"{kind}_directory")
        return Path(courses.format_path(name, student, self.lab))

    def students(self) -> list[str]:
        """Returns whose folder has something for this lab, by name."""
        above = self.folder("submitted", "x").parents[1]
        if not above.is_dir():
            return []
        return sorted(p.name for p in above.iterdir() if (p / self.lab).is_dir())

    def notebook(self, student: str) -> Path:
        """Returns where the student's notebook must be."""
        return self.folder("submitted", student) / f"{self.lab}.ipynb"

    def limits(self) -> dict[str, float]:
        """Returns the time limits that nbgrader's configuration sets, in seconds."""
        from distgrade.nbgrader.execute import Execute

        return vars(Execute(config=self.config).limits())


def grade_class(
    klass: Class,
    *,
    jobs: int,
    students: Sequence[str] = (),
    again: bool = False,
    console: Console,
) -> list[Row]:
    """Grades who is not graded yet, shows how far it is, returns a row for each submission.

    `again` runs every one of these submissions anew. Raises CourseError when nothing can go on.
    """
    names = _chosen(klass, students)
    marks = Marks(klass)
    if again:
        marks.forget(names)
    todo = [name for name in names if not marks.stands(name)]
    rows = {name: Row(name, True, anew=False) for name in names if name not in todo}
    answers: dict[str, Answer] = {}
    with _progress(console) as bar:
        for found in _run(klass, todo, jobs, bar):
            answers[found.student] = found
        for name in bar.track(sorted(answers), description="into the gradebook"):
            rows[name] = marks.write(answers[name])
    for name in todo:
        rows.setdefault(name, Row(name, False, why=_no_notebook(klass, name)))
    return [rows[name] for name in names]


def _chosen(klass: Class, students: Sequence[str]) -> list[str]:
    known = klass.students()
    if not known:
        where = klass.folder("submitted", "STUDENT")
        raise CourseError(f"nobody has handed in {klass.lab}: there is no folder {where}.")
    unknown = [name for name in students if name not in known]
    if unknown:
        raise CourseError(f"{unknown[0]} has not handed in {klass.lab}.")
    return [name for name in known if not students or name in students]


def _run(klass: Class, names: Iterable[str], jobs: int, bar: Progress) -> Iterable[Answer]:
    tasks = [Task(n, str(p)) for n in names if (p := klass.notebook(n)).is_file()]
    if tasks:
        found = grade_all(klass.course.root, klass.lab, tasks, jobs=jobs, limits=klass.limits())
        yield from bar.track(found, total=len(tasks), description=f"running {klass.lab}")


def _no_notebook(klass: Class, student: str) -> str:
    folder = klass.folder("submitted", student)
    others = sorted(p.name for p in folder.glob("*.ipynb"))
    if others:
        return f"there is no {klass.lab}.ipynb, but {' and '.join(others)}: rename the right one"
    return f"there is no notebook in {folder}"


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console)


class Marks:
    """What has been written into the gradebook, and the writing of it, by nbgrader."""

    def __init__(self, klass: Class):
        from distgrade.nbgrader.gradebook import ensure_assignment

        self.klass = klass
        self._path = klass.course.root / ".distgrade" / "graded" / f"{klass.lab}.json"
        try:
            self._written = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            self._written = {}
        with told_plainly():
            ensure_assignment(assignment=klass.lab, config=klass.config)
            self._in_gradebook = self._students()

    def _students(self) -> set[str]:
        from nbgrader.api import Gradebook

        with Gradebook(self.klass.coursedir().db_url) as gradebook:
            return {s.student.id for s in gradebook.assignment_submissions(self.klass.lab)}

    def _what(self, student: str) -> str:
        """Returns what stands for a submission and for all that grades it."""
        try:
            text = self.klass.notebook(student).read_bytes()
        except OSError:
            text = b""
        return hashlib.sha256(text).hexdigest() + self.klass.graders

    def stands(self, student: str) -> bool:
        """Says whether the mark in the gradebook is the one this submission would get."""
        done = self.klass.folder("autograded", student) / f"{self.klass.lab}.ipynb"
        known = self._written.get(student) == self._what(student)
        return known and student in self._in_gradebook and done.is_file()

    def forget(self, students: Iterable[str]) -> None:
        """Has these submissions run and written again."""
        for name in students:
            self._written.pop(name, None)
        shutil.rmtree(
            self.klass.course.root / ".distgrade" / "verdicts" / self.klass.lab, ignore_errors=True
        )

    def write(self, answer: Answer) -> Row:
        """Has nbgrader write one submission's marks; returns what to tell of it."""
        student = answer.student
        row = partial(Row, student, notes=answer.notes)
        if answer.score is None:
            return row(False, why=answer.why)
        said = self._autograde(student)
        if said:
            raise_if_general(said)
            return row(False, why=reason_in(said)[:300])
        self._written[student] = self._what(student)
        write_whole(self._path, json.dumps(self._written, indent=0, sort_keys=True))
        unwell = answer.unwell or {}
        why = "; ".join(f"{name}: {text}" for name, text in unwell.items())
        faults = any("the grader's own fault" in text for text in unwell.values())
        return row(not faults, score=answer.score, max_score=answer.max_score, why=why)

    def _autograde(self, student: str) -> str:
        """Runs nbgrader's autograde on one submission; returns what it said if it failed."""
        from nbgrader.converters import Autograde
        from nbgrader.converters.base import NbGraderException
        from sqlalchemy.exc import SAWarning

        courses = self.klass.coursedir()
        courses.assignment_id, courses.student_id = self.klass.lab, student
        converter = Autograde(coursedir=courses, config=self.klass.config)
        converter.force = True  # `stands` knows what need not be written again
        with errors_of(converter.log) as errors, told_plainly(), warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # three of nbgrader's own a submission
            try:
                converter.start()
            except (NbGraderException, SystemExit):
                return "\n".join(errors) or "nbgrader gave no reason"
        return ""


GENERAL = {  # what concerns every submission: going on would say it three hundred times
    "database is locked": LOCKED,
    "No space left on device": "The disk is full. Nothing is lost: make room, then run it again.",
    "Read-only file system": "The course folder can't be written to: it is read-only.",
    "attempt to write a readonly database": "The gradebook can't be written to: it is read-only.",
    "Permission denied": "The course folder can't be written to: permission was denied.",
    "unable to open database file": "The gradebook can't be opened: see to its folder.",
}


def raise_if_general(text: str) -> None:
    """Raises CourseError if a failure's text speaks of the whole class's trouble."""
    for part, sentence in GENERAL.items():
        if part in text:
            raise CourseError(sentence)


@contextmanager
def told_plainly():
    """Turns what concerns every submission into one sentence."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise_if_general(str(error))
        text = reason_in(str(error))[:300]
        raise CourseError(f"The gradebook or a folder can't be used: {text}") from error


def summary(rows: Sequence[Row], klass: Class) -> Table:
    """Returns the table at the end: how many are graded, and who needs a person, and why."""
    table = Table(title=klass.lab, title_justify="left")
    table.add_column("state", no_wrap=True)
    table.add_column("student")
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    done = [row for row in rows if row.graded]
    anew = sum(row.anew for row in done)
    table.add_row(Text("graded", "green"), f"{len(done)} of {len(rows)}", "", f"{anew} of them now")
    for row in rows:
        if row.why:
            state = Text("look at", "yellow") if row.graded else Text("needs a human", "red")
            points = "–" if row.score is None else f"{row.score:g}/{row.max_score:g}"
            table.add_row(state, Text(row.student), points, Text(row.why))
    return table
