"""What has been written into nbgrader's gradebook, by whom it was graded, and the writing of it.

nbgrader's own autograde writes a submission's marks; a line in `.distgrade/graded/<lab>.json` then
says what stood for the submission and its graders, and what the gradebook held after it. Where
both still agree, nothing is written again. A run that is killed between the two writes the same
marks once more. nbgrader asks for another look at every mark given by hand when it writes; where
neither the answer nor its points have changed, that is taken back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distgrade.classroom.crew import register_of
from distgrade.classroom.parallel import OWN_FAULT, Answer
from distgrade.course import Course, CourseError
from distgrade.notebook import NotebookError, grade_id, nbgrader_of, read_notebook
from distgrade.publish import errors_of, reason_in
from distgrade.verdicts import read, where
from distlab.files import write_whole

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from distgrade.classroom.grading import Class, Row

LOCKED = (
    "the gradebook is in use by another program (formgrader, perhaps). Nothing is lost: close it, "
    "then run the same command again."
)
FULL = "the disk is full. Nothing is lost: make room, then run the same command again."
GENERAL = {  # what concerns every submission: going on would say it three hundred times
    "database is locked": LOCKED,
    "No space left on device": FULL,
    "database or disk is full": FULL,
    "Disk quota exceeded": FULL,
    "Read-only file system": "the course folder can't be written to: it is read-only.",
    "readonly database": "the gradebook can't be written to: it is read-only.",
    "Permission denied": "the course folder can't be written to: permission was denied.",
    "unable to open database file": "the gradebook can't be opened: see to its folder.",
    "file is not a database": "gradebook.db is damaged: put a copy of it in its place.",
    "disk image is malformed": "gradebook.db is damaged: put a copy of it in its place.",
}


def raise_if_general(text: str) -> None:
    """Raises CourseError if a failure's text speaks of the whole class's trouble."""
    for part, sentence in GENERAL.items():
        if part in text:
            raise CourseError(sentence)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turns what concerns every submission into one sentence."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise_if_general(str(error))
        text = reason_in(str(error))[:300]
        raise CourseError(f"the gradebook or a folder can't be used: {text}") from error


@contextmanager
def alone(course: Course) -> Iterator[None]:
    """Keeps a second `distgrade grade` of this course out; a killed one holds nothing up."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system: the gradebook's own must do
        yield
        return
    path = course.root / ".distgrade" / "grading.lock"
    with told_plainly():
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CourseError(
                "another `distgrade grade` is at work in this course: wait until it is done."
            ) from None
        except OSError:  # a network folder without locks
            pass
        yield


@contextmanager
def unbroken() -> Iterator[None]:
    """Puts off an interrupt until what was begun is done; a second one comes through."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []

    def note(number, frame):
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


class Register:
    """The marks of one lab in the gradebook, and what they were written from."""

    def __init__(self, klass: Class):
        self.klass = klass
        self._path = register_of(klass.course.root, klass.lab)
        self._written = _noted(self._path)
        with told_plainly():
            self._enter()
            self.in_gradebook = self._sums()
        self._forget_verdicts()  # if a run was broken off before it had

    # --- the gradebook ---------------------------------------------------------------------------

    @contextmanager
    def _gradebook(self):
        from nbgrader.api import Gradebook

        courses = self.klass.coursedir()
        with Gradebook(courses.db_url, courses.course_id) as gradebook:
            yield gradebook

    def _enter(self) -> None:
        """Sees to a gradebook that knows the lab as it was released."""
        from nbgrader.converters.base import NbGraderException

        from distgrade.nbgrader.gradebook import ensure, enter

        courses = self.klass.coursedir()
        ensure(courses.db_url, courses.course_id)
        wanted = {
            grade_id(cell): float(nbgrader_of(cell).get("points") or 0)
            for cell in self.klass.release.cells
            if nbgrader_of(cell).get("grade")
        }
        if self._cells() == wanted:
            return
        with contextlib.suppress(NbGraderException, SystemExit):
            enter(self.klass.lab, self.klass.config)
        if self._cells() != wanted:
            raise CourseError(
                f"the gradebook, release/ and source/ hold different editions of {self.klass.lab}: "
                "run `distgrade release`."
            )

    def _cells(self) -> dict[str, float]:
        from nbgrader.api import MissingEntry

        with self._gradebook() as gradebook:
            try:
                notebook = gradebook.find_notebook(self.klass.lab, self.klass.lab)
            except MissingEntry:
                return {}
            return {cell.name: cell.max_score for cell in notebook.grade_cells}

    def _sums(self) -> dict[str, float]:
        """Returns what the exercises earned by the gradebook, for everyone who is in it."""
        from nbgrader.api import Assignment, Grade, SubmittedAssignment, SubmittedNotebook

        with self._gradebook() as gradebook:  # one question: for each student it would be twenty
            found = (
                gradebook.db.query(SubmittedAssignment.student_id, Grade.auto_score)
                .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
                .join(SubmittedNotebook, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
                .join(Grade, Grade.notebook_id == SubmittedNotebook.id)
                .filter(Assignment.name == self.klass.lab)
                .order_by(Grade.id)
            )
            sums: dict[str, float] = {}
            for student, points in found:
                sums[student] = sums.get(student, 0.0) + (points or 0.0)
            return sums

    # --- what stands -----------------------------------------------------------------------------

    def _what(self, student: str) -> str:
        """Returns what stands for a submission and for all that grades it."""
        return self._text(student) + self.klass.graders

    def _text(self, student: str) -> str:
        try:
            text = self.klass.notebook(student).read_bytes()
        except OSError:
            text = b""
        return hashlib.sha256(text).hexdigest()

    def standing(self, student: str) -> Row | None:
        """Returns the row of a mark that is the one this submission would get, or None."""
        from distgrade.classroom.grading import Row

        noted = self._written.get(student, {})
        done = self.klass.folder("autograded", student) / f"{self.klass.lab}.ipynb"
        if (
            noted.get("what") != self._what(student)
            or noted.get("sum") != self.in_gradebook.get(student)
            or not done.is_file()
        ):
            return None
        return Row(
            student, True, noted.get("score"), noted.get("max_score", 0.0), noted.get("why", ""),
            anew=False,
        )  # fmt: skip

    def forget(self, students: Sequence[str], exercises: Sequence[str] = ()) -> None:
        """Has these submissions graded anew, or only some of their exercises; for good."""
        for name in students:
            noted = self._written.setdefault(name, {})
            noted.pop("what", None)
            noted["forget"] = list(exercises)
        with told_plainly():
            self._keep()
        self._forget_verdicts()

    def _forget_verdicts(self) -> None:
        """Removes the verdicts that are noted as to be forgotten."""
        from distgrade.check import edition_for
        from distgrade.rebuild import rebuild

        course, lab = self.klass.course, self.klass.lab
        waiting = [name for name, noted in self._written.items() if "forget" in noted]
        with told_plainly():
            for name in waiting:
                exercises = self._written[name].pop("forget")
                with contextlib.suppress(NotebookError):  # what can't be read has no verdicts
                    nb = read_notebook(self.klass.notebook(name))
                    _forget(course, lab, rebuild(nb, edition_for(course, lab, nb))[0], exercises)
            if waiting:
                self._keep()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, answer: Answer) -> Row:
        """Has nbgrader write one submission's marks; returns what to tell of it."""
        from distgrade.classroom.grading import Row

        student = answer.student
        row = partial(Row, student, notes=answer.notes)
        if answer.score is None:
            return row(False, why=answer.why)
        with unbroken(), told_plainly():
            text, what = self._text(student), self._what(student)  # a later change counts later
            same = text == self._written.get(student, {}).get("text")
            by_hand = self._given_by_hand(student) if same else {}
            said = self._autograde(student)
            if said:
                raise_if_general(said)
                return row(False, why=reason_in(said)[:300])
            total = self._after(student, by_hand)
            unwell = answer.unwell or {}
            why = "; ".join(f"{name}: {text}" for name, text in unwell.items())
            known = {"text": text, "sum": total, "score": answer.score, "why": why}
            known["max_score"] = answer.max_score
            faults = OWN_FAULT in unwell.values()
            if not faults:  # else the next run tries again
                known["what"] = what
            self._written[student] = known
            self._keep()
        return row(not faults, score=answer.score, max_score=answer.max_score, why=why)

    def _keep(self) -> None:
        write_whole(self._path, json.dumps(self._written, indent=0, sort_keys=True))

    def _given_by_hand(self, student: str) -> dict[str, float | None]:
        """Returns the cells whose mark a person gave, and nobody need look at: with auto scores."""
        if student not in self.in_gradebook:
            return {}
        with self._gradebook() as gradebook:
            return {
                grade.name: grade.auto_score
                for notebook in gradebook.find_submission(self.klass.lab, student).notebooks
                for grade in notebook.grades
                if grade.manual_score is not None and not grade.needs_manual_grade
            }

    def _after(self, student: str, by_hand: dict[str, float | None]) -> float:
        """Puts marks given by hand to rest where nothing changed; returns what exercises earned."""
        with self._gradebook() as gradebook:
            submission = gradebook.find_submission(self.klass.lab, student)
            grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
            for grade in grades:
                if grade.name in by_hand and by_hand[grade.name] == grade.auto_score:
                    grade.needs_manual_grade = False
            if by_hand:
                gradebook.db.commit()
            return sum(g.auto_score or 0.0 for g in sorted(grades, key=lambda g: g.id))

    def _autograde(self, student: str) -> str:
        """Runs nbgrader's autograde on one submission; returns what it said if it failed."""
        from nbgrader.converters import Autograde
        from nbgrader.converters.base import NbGraderException
        from sqlalchemy.exc import SAWarning

        courses = self.klass.coursedir()
        courses.assignment_id, courses.student_id = self.klass.lab, student
        converter = Autograde(coursedir=courses, config=self.klass.config)
        converter.force = True  # `standing` knows what need not be written again
        converter.pre_convert_hook = None  # the gradebook has been seen to
        with errors_of(converter.log) as errors, warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # three of nbgrader's own a submission
            try:
                converter.start()
            except (NbGraderException, SystemExit):
                return "\n".join(errors) or "nbgrader gave no reason"
        return ""


def _forget(course: Course, lab: str, built: NotebookNode, names: Sequence[str]) -> None:
    """Forgets the verdicts kept on these exercises of a submission; on all, without names."""
    path = where(course, lab, built)
    if not names or read(course, lab, built) is None:
        path.unlink(missing_ok=True)
        return
    told = json.loads(path.read_text("utf-8"))
    told["graders"] = {name: by for name, by in told["graders"].items() if name not in names}
    write_whole(path, json.dumps(told, ensure_ascii=False))


def _noted(path: Path) -> dict[str, dict]:
    """Returns what a register's file says; a damaged one says nothing, and all is written again."""
    try:
        told = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    told = told if isinstance(told, dict) else {}
    return {name: noted for name, noted in told.items() if isinstance(noted, dict)}
