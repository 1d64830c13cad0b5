"""Who is in the class: a CSV into nbgrader's gradebook, and who is meant by a name in an upload."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from distgrade.course import Course, CourseError
from distgrade.publish import load_config

MAX_ID = 64
# What LMSs call the columns, as `_key` writes it -> ours. The first that is there counts.
COLUMNS = {
    "id": ("studentid", "id", "sisloginid", "username", "loginid", "userid", "login", "idnumber"),
    "first_name": ("firstname", "givenname", "vorname", "prenom", "nombre"),
    "last_name": ("lastname", "surname", "familyname", "nachname", "nom", "apellidos"),
    "email": ("email", "emailaddress", "mail"),
    "lms_user_id": ("lmsuserid", "canvasuserid", "moodleid"),
}


@dataclass(frozen=True)
class Student:
    """One row of the roster; all but the id may be missing."""

    id: str
    first_name: str | None = None
    last_name: str | None = None
    email: str | None = None
    lms_user_id: str | None = None


def read_roster(path: Path) -> list[Student]:
    """Returns the students of a CSV file with a head line.

    Raises CourseError, one sentence that names the line, for a file that can't be used whole.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{path} can't be read: {error.strerror or error}.") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CourseError(f"{path.name} is not UTF-8: save it as “CSV UTF-8”.") from None
    head = text.partition("\n")[0]
    mark = max(",;\t", key=head.count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=mark)
    try:
        names = rows.fieldnames or []
        found = _columns(names)
        if "id" not in found:
            raise CourseError(
                f"{path.name} has no column for the student's id: call it `id` (seen: "
                f"{', '.join(map(str, names)) or 'nothing'})."
            )
        students = [
            _student(row, found, path.name, rows.line_num) for row in rows if any(row.values())
        ]
    except csv.Error as error:
        raise CourseError(f"{path.name} is not CSV ({error}).") from None
    if not students:
        raise CourseError(f"{path.name} names no student.")
    seen: set[str] = set()
    for student in students:
        if student.id in seen:
            raise CourseError(f"{path.name} names {student.id} twice; nothing was entered.")
        seen.add(student.id)
    return students


def _columns(names: Iterable[str]) -> dict[str, str]:
    by_key = {_key(name): name for name in reversed([n for n in names if n])}
    found = {}
    for ours, theirs in COLUMNS.items():
        column = next((by_key[key] for key in theirs if key in by_key), None)
        if column is not None:
            found[ours] = column
    return found


def _student(row: dict, columns: dict[str, str], name: str, line: int) -> Student:
    told = {ours: (row.get(theirs) or "").strip() or None for ours, theirs in columns.items()}
    if told["id"] is None or told["id"] != as_id(told["id"]):
        seen = "is missing" if told["id"] is None else f"is {told['id']!r}"
        raise CourseError(
            f"{name}, line {line}: the id {seen}; it names a folder, so letters, digits, "
            "`.`, `_`, `@`, `-`, starting with a letter or digit. Nothing was entered."
        )
    return Student(**told)


def enter(course: Course, students: Iterable[Student]) -> int:
    """Puts students into nbgrader's gradebook, or brings them up to date; returns how many are new.

    What a row leaves open stays as it is; nobody is removed.
    """
    from distgrade.classroom.register import told_plainly

    new = 0
    with told_plainly(), _gradebook(course) as gradebook:
        known = {student.id for student in gradebook.students}
        for student in students:
            told = {k: v for k, v in vars(student).items() if k != "id" and v is not None}
            gradebook.update_or_create_student(student.id, **told)
            new += student.id not in known
    return new


def students_of(course: Course) -> list[Student]:
    """Returns who is in the gradebook, by id; nobody where there is none."""
    from distgrade.classroom.register import told_plainly

    file = Path(_courses(course).db_url.removeprefix("sqlite:///"))
    if _courses(course).db_url.startswith("sqlite:///") and not file.is_file():
        return []
    with told_plainly(), _gradebook(course) as gradebook:
        return [
            Student(s.id, s.first_name, s.last_name, s.email, s.lms_user_id)
            for s in sorted(gradebook.students, key=lambda s: s.id)
        ]


def _courses(course: Course):
    from nbgrader.coursedir import CourseDirectory

    return CourseDirectory(config=load_config(course.root))


def _gradebook(course: Course):
    from nbgrader.api import Gradebook

    from distgrade.nbgrader.gradebook import ensure

    courses = _courses(course)
    ensure(courses.db_url, courses.course_id)
    return Gradebook(courses.db_url, courses.course_id)


# --- who is meant ----------------------------------------------------------------------------


class Roster:
    """The class as a book of names: an id, an address, a whole name either way round, an LMS id."""

    def __init__(self, students: Iterable[Student]):
        self.students = list(students)
        meant: dict[str, set[str]] = {}
        for student in self.students:
            for name in _names(student):
                if _key(name):
                    meant.setdefault(_key(name), set()).add(student.id)
        self._meant = meant

    @property
    def told(self) -> bool:
        """Says whether a teacher gave it: students whom only grading entered have no names."""
        return any(s.first_name or s.last_name or s.email for s in self.students)

    def who(self, name: str) -> str | None:
        """Returns the one student whom a name means, or None."""
        found = self._meant.get(_key(name), set())
        return next(iter(found)) if len(found) == 1 else None


def _names(student: Student) -> list[str]:
    first, last = student.first_name or "", student.last_name or ""
    names = [student.id, student.lms_user_id or "", student.email or ""]
    names.append((student.email or "").partition("@")[0])
    if first and last:
        names += [f"{first} {last}", f"{last} {first}"]
    return names


def _key(name: str) -> str:
    """Returns what stays of a name whoever writes it: letters and digits, no case, no accents."""
    apart = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in apart if c.isalnum())


def as_id(name: str) -> str:
    """Returns a student id made of a name: `Zoë  Müller` -> `Zoë-Müller`; "" if nothing is left.

    It names a folder and stands in a spreadsheet: no separators, no wildcards, no leading sign.
    """
    text = unicodedata.normalize("NFC", name).strip()
    text = re.sub(r"[^\w.@-]+", "-", text)
    return re.sub(r"^[\W_]+", "", text)[:MAX_ID].rstrip(".-")
