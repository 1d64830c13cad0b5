"""`distgrade collect LAB PATH`: what an LMS hands out becomes nbgrader's `submitted/` folder.

nbgrader's own zip_collect unpacks whatever a zip says, asks for one pattern that fits every name,
stops at two attempts of one student, and empties a student's folder before it copies. Here a file
is read, never unpacked; notebooks say themselves which lab they are; the latest attempt counts;
and what lies in `submitted/` is replaced in one step, the old one kept. What can't be told is left
to a person, with the reason; the rest is taken. The result is what zip_collect would have made,
`timestamp.txt` included, and its `FileNameCollectorPlugin.named_regexp` is used where it is set.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rich.table import Table
from rich.text import Text

from distgrade.classroom.roster import Roster, as_id, students_of
from distgrade.classroom.uploads import Found, notebooks
from distgrade.classroom.whose import (
    MOODLE,
    Claim,
    claim_of,
    is_nbgraders,
    lab_named,
    lab_told,
    pattern_of,
    shared_folders,
)
from distgrade.course import Course, CourseError
from distgrade.notebook import (
    NotebookError,
    grade_id,
    parse_notebook,
    read_notebook,
    solution_cells,
)
from distgrade.publish import load_config

FEW = 20  # rows of a table that shows everybody
TAKEN, SAME, LEFT, OTHER = "taken", "as it was", "left", "another lab"


@dataclass(frozen=True)
class Taken:
    """What became of a student's files, or of a file that is nobody's.

    `state` is TAKEN, SAME, OTHER (a notebook of another lab), or LEFT for a person to look at.
    `why` is a sentence, for LEFT always.
    """

    student: str
    path: str
    state: str
    why: str = ""


@dataclass(frozen=True)
class _Attempt:
    """One notebook of the upload, set down beside `submitted/` until it is known which counts."""

    found: Found
    claim: Claim
    lab: str | None
    staged: Path | None
    digest: str
    problem: str

    def age(self) -> tuple:
        when = self.claim.when or self.found.modified or datetime.min
        return (self.claim.when is not None, when, self.claim.attempt)


def collect(
    course: Course,
    lab: str,
    path: Path,
    *,
    student: str = "",
    pattern: str = "",
    dry: bool = False,
) -> list[Taken]:
    """Takes a lab's submissions out of an upload; returns what became of each.

    `student` says whose all of it is. With `dry` nothing is written. Raises CourseError, one
    sentence, when the upload can't be used or the disk not written; running it again goes on.
    """
    if student and student != as_id(student):
        raise CourseError(f"{student!r} can't be a student's id: it names a folder.")
    state = course.root / ".distgrade"
    try:
        state.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=state, prefix="intake-") as folder:
            attempts = _attempts(course, lab, path, student, pattern, Path(folder))
            return list(_decided(course, lab, attempts, dry))
    except OSError as error:
        raise CourseError(
            f"{error.filename or course.root} can't be written: {error.strerror or error}. "
            "The upload is as it was: see to the disk, then run it again."
        ) from None


def _attempts(course, lab, path, student, pattern, folder: Path) -> list[_Attempt]:
    ids = {name: _grade_ids(course, name) for name in course.released_labs()}
    roster = Roster(students_of(course))
    named = pattern_of(pattern or _configured_pattern(course))
    kept: list[tuple[Found, str | None, Path | None, str, str]] = []
    for found in notebooks(path):
        told, problem = None, found.why
        if found.data is not None:
            try:
                told = lab_told(parse_notebook(found.data, found.parts[-1]), ids)
            except NotebookError as error:
                problem = str(error)
        told = told or lab_named(found.parts[-1], tuple(ids))
        told = told or (lab if problem else lab_named(found.path, tuple(ids)))
        staged = None
        if told == lab and found.data is not None:
            staged = folder / f"{len(kept)}.ipynb"
            staged.write_bytes(found.data)
        digest = hashlib.sha256(found.data or b"").hexdigest()
        bare = replace(found, data=None)  # the bytes are on disk now
        kept.append((bare, told, staged, digest, problem))
    if not kept:
        raise CourseError(f"there is no notebook in {path}.")
    claims = _claims([found.parts for found, *_ in kept], tuple(ids), roster, named)
    attempts = []
    for (found, told, staged, digest, problem), claim in zip(kept, claims, strict=True):
        if claim.when is None and is_nbgraders(found.parts, claim.student, lab):
            claim = replace(claim, when=_stamped(found.stamp))
        if student:
            claim = replace(claim, student=student, known=True)
        attempts.append(_Attempt(found, claim, told, staged, digest, problem))
    return attempts


def _claims(paths, labs, roster: Roster, named) -> list[Claim]:
    """Returns whose each file is; folders around all of them tell it only if nothing else does."""
    for shared in range(shared_folders(paths, labs, roster), -1, -1):
        claims = [claim_of(path[shared:], labs, roster, named) for path in paths]
        if any(claim.student for claim in claims):
            break
    return claims


def _grade_ids(course: Course, lab: str) -> frozenset[str]:
    cells = solution_cells(read_notebook(course.release(lab))).values()
    return frozenset(grade_id(cell) for cell in cells)


def _configured_pattern(course: Course) -> str:
    told = load_config(course.root).FileNameCollectorPlugin
    return str(told.get("named_regexp", "") or "")


def _decided(course: Course, lab: str, attempts: Sequence[_Attempt], dry: bool) -> Iterable[Taken]:
    theirs: dict[str, list[_Attempt]] = {}
    for attempt in attempts:
        path, whose = attempt.found.path, attempt.claim.student
        if attempt.lab is None:
            yield Taken(whose, path, LEFT, "no lab of this course is told by it")
        elif attempt.lab != lab:
            yield Taken(whose, path, OTHER, attempt.lab)
        elif not whose:
            yield Taken("", path, LEFT, "whose it is, its path doesn't tell: give --student")
        elif not attempt.claim.known:
            yield Taken(whose, path, LEFT, f"{whose} is not in the roster: give --student")
        else:
            theirs.setdefault(whose, []).append(attempt)
    for whose in sorted(theirs):
        yield _latest(course, lab, whose, theirs[whose], dry)


def _latest(course: Course, lab: str, student: str, attempts: list[_Attempt], dry: bool) -> Taken:
    ordered = sorted(attempts, key=_Attempt.age)
    readable = [a for a in ordered if a.staged and not a.problem]
    there = [a for a in ordered if a.staged]
    if not there:
        last = ordered[-1]
        return Taken(student, last.found.path, LEFT, f"it {last.problem}")
    chosen = (readable or there)[-1]
    whose_names = {_sender(a) for a in attempts} - {""}
    if len(whose_names) > 1:
        names = " and ".join(sorted(whose_names))
        why = f"two people have this name ({names}): tell them apart in the roster"
        return Taken(student, chosen.found.path, LEFT, why)
    rivals = [a for a in (readable or there) if a.age() == chosen.age()]
    if len({a.digest for a in rivals}) > 1:
        names = " or ".join(a.found.path for a in rivals)
        return Taken(student, chosen.found.path, LEFT, f"which is the later one, {names}?")
    said = []
    if len(attempts) > 1:
        said.append(f"the latest of {len(attempts)} attempts")
    if chosen.problem:
        said.append(f"it can't be read: {chosen.problem}")
    elif ordered[-1] is not chosen:
        said.append(f"a later file can't be used: {ordered[-1].found.path}")
    state, more = _place(course, lab, student, chosen, dry)
    said += [more] if more else []
    return Taken(student, chosen.found.path, state, "; ".join(said))


def _sender(attempt: _Attempt) -> str:
    """Returns the number that Moodle gives a person for one assignment, or ""."""
    found = (MOODLE.fullmatch(part) for part in attempt.found.parts)
    return next((f"{m['name']}, {m['number']}" for m in found if m), "")


def _place(course, lab, student, attempt: _Attempt, dry: bool) -> tuple[str, str]:
    """Puts a notebook into `submitted/`, whole or not at all; keeps the one that was there."""
    from nbgrader.coursedir import CourseDirectory

    courses = CourseDirectory(config=load_config(course.root))
    folder = Path(courses.format_path(courses.submitted_directory, student, lab))
    target, stamp = folder / f"{lab}.ipynb", folder / "timestamp.txt"
    when = _utc(attempt.claim.when)
    old = target.read_bytes() if target.is_file() else None
    if old is not None and hashlib.sha256(old).hexdigest() == attempt.digest:
        if when is not None and not stamp.is_file() and not dry:  # broken off right before it
            _write_stamp(stamp, when)
        return SAME, ""
    before = _utc(courses.get_existing_timestamp(str(folder))) if stamp.is_file() else None
    if old is not None and when and before and before > when:
        return SAME, f"what is there was handed in later ({before:%Y-%m-%d %H:%M})"
    if dry:
        return TAKEN, "in place of an earlier one" if old is not None else ""
    if old is not None:
        kept = course.root / ".distgrade" / "replaced" / lab / student
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target, kept / f"{hashlib.sha256(old).hexdigest()[:12]}.ipynb")
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    os.replace(attempt.staged, target)
    if when is not None:
        _write_stamp(stamp, when)
    return TAKEN, "in place of an earlier one, which is kept" if old is not None else ""


def _write_stamp(path: Path, when: datetime) -> None:
    path.write_text(when.isoformat(" "), encoding="utf-8")  # as nbgrader's zip_collect does


def _stamped(text: str) -> datetime | None:
    """Returns the moment in a `timestamp.txt`, as nbgrader reads it; None if it says none."""
    from nbgrader.utils import parse_utc

    try:
        return parse_utc(text) if text else None
    except (ValueError, OverflowError):
        return None


def _utc(when: datetime | None) -> datetime | None:
    from nbgrader.utils import parse_utc

    return parse_utc(when) if when else None


def summary(taken: Sequence[Taken], lab: str, *, dry: bool = False) -> Table:
    """Returns the table of what was taken, and of what a person must look at."""
    table = Table(title=f"{lab}{' (nothing is written)' * dry}", title_justify="left")
    table.add_column("state", no_wrap=True)
    table.add_column("student", overflow="fold")
    table.add_column("file", overflow="fold")
    table.add_column("why", overflow="fold")
    colours = {TAKEN: "green", SAME: "dim", LEFT: "red", OTHER: "dim"}
    whole = [row for row in taken if row.state in (TAKEN, SAME)]
    new = sum(row.state == TAKEN for row in whole)
    told = f"{new} of them now" if new else "nothing new"
    table.add_row(Text(TAKEN, "green"), f"{len(whole)} of {len(_students(taken))}", "", told)
    others: dict[str, int] = {}
    for row in taken:
        if row.state == OTHER:
            others[row.why] = others.get(row.why, 0) + 1
        elif row.why or len(taken) <= FEW:
            state = Text("needs a human" if row.state == LEFT else row.state, colours[row.state])
            table.add_row(state, Text(row.student), Text(row.path), Text(row.why))
    for other, count in sorted(others.items()):
        files = f"{count} file{'s' * (count != 1)}"
        table.add_row(Text(OTHER, "dim"), "", files, Text(f"of {other}: collect that lab too"))
    return table


def _students(taken: Sequence[Taken]) -> set[str]:
    """Returns who handed this lab in; a file that is nobody's counts as somebody."""
    return {row.student or row.path for row in taken if row.state != OTHER}
