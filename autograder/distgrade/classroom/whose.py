"""Whose a file of an upload is, and of which lab: told by its path and by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath

from nbformat import NotebookNode

from distgrade.classroom.roster import Roster, as_id
from distgrade.course import LAB_NAME, CourseError
from distgrade.notebook import distlab_of, grade_id

# How an LMS names what it hands out; each may be a folder, a zip or a notebook.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_[a-z]+(_(?P<file>.*))?")
CANVAS = re.compile(r"(?P<name>[^_]+)_(LATE_)?(?P<number>\d+)_\d+_(?P<file>.+)")
BLACKBOARD = re.compile(r".+?_(?P<name>[^_]+)_attempt_(?P<when>\d{4}(-\d\d){5})(_(?P<file>.+))?")
FORMS = (CANVAS, MOODLE, BLACKBOARD)  # by where the name stands: behind it, a student's own words
# The marks that copies get: `x (1)`, `x - Copy`, `x copy 2`, Canvas's `x-1`.
COPY = re.compile(
    r"( - Copy)?[ _]?\((?P<n>\d+)\)$| - Copy$|[ -]copy( (?P<m>\d+))?$|(?<!-)-(?P<c>\d{1,2})$"
)


@dataclass(frozen=True)
class Claim:
    """What a path says of a submission: whose, when, which attempt. `student` is "" if nothing."""

    student: str
    when: datetime | None = None
    attempt: int = 0
    known: bool = True  # by the roster, if there is one


def pattern_of(text: str) -> re.Pattern | None:
    """Returns a teacher's own pattern, as nbgrader's zip_collect takes it."""
    if not text:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise CourseError(f"the pattern {text!r} can't be read: {error}.") from None
    if "student_id" not in pattern.groupindex:
        raise CourseError(f"the pattern {text!r} needs a group (?P<student_id>...).")
    return pattern


def common_folders(paths: Sequence[tuple[str, ...]]) -> int:
    """Returns how many leading folders all paths share."""
    shared = 0
    for level in zip(*(path[:-1] for path in paths), strict=False):
        if len(set(level)) != 1:
            break
        shared += 1
    return shared


def claim_of(
    parts: tuple[str, ...], labs: Sequence[str], roster: Roster, pattern: re.Pattern | None = None
) -> Claim:
    """Returns what a path (shared folders left out) says."""
    stem = PurePosixPath(parts[-1]).stem
    attempt = copy_number(stem)
    if pattern is not None:
        found = pattern.match("/".join(parts))
        if found is None:
            return Claim("")
        told = found.groupdict()
        when = _time(told.get("timestamp") or "")
        return _claim([told["student_id"]], roster, when, attempt)
    plain = [_without_ending(part) for part in parts]
    for part in plain:  # the outermost first: what lies within is a student's own choice
        claim = _told_by(part, labs, roster)
        if claim is not None:
            return replace(claim, attempt=attempt)
    folders = [part for part in plain[:-1] if as_id(_beside_lab(part, labs))]
    name = folders[0] if folders else _beside_lab(stem, labs)
    return _claim([name], roster, attempt=attempt)


def _told_by(part: str, labs: Sequence[str], roster: Roster) -> Claim | None:
    """Returns what one part of a path says as an LMS writes it, or as the roster knows it."""
    for form in FORMS:
        found = form.fullmatch(part)
        if found is None:
            continue
        name = found["name"]
        if form is CANVAS:
            return _claim([name, found["number"]], roster, otherwise=f"{name}-{found['number']}")
        return _claim([name], roster, _time(found["when"] if form is BLACKBOARD else ""))
    for name in (part, _beside_lab(part, labs)):
        if name and roster.who(name):
            return _claim([name], roster)
    return None


def _claim(names: Sequence[str], roster: Roster, when=None, attempt=0, otherwise="") -> Claim:
    """Returns the claim of whom these names mean: nobody known, if they mean different people."""
    meant = {roster.who(name) for name in names} - {None}
    if len(meant) == 1:
        return Claim(meant.pop(), when, attempt)
    return Claim(as_id(otherwise or names[0]), when, attempt, known=not roster.told)


def shared_folders(paths: Sequence[tuple[str, ...]], labs: Sequence[str], roster: Roster) -> int:
    """Returns how many leading folders lie around everybody's files, and so tell nothing."""
    shared = common_folders(paths)
    for place, part in enumerate(paths[0][:shared]):
        if _told_by(_without_ending(part), labs, roster) is not None:
            return place
    one_folder = all(len(path) - 1 == shared for path in paths)
    stems = [COPY.sub("", PurePosixPath(path[-1]).stem) for path in paths]
    if one_folder and any(_beside_lab(stem, labs) in ("", stem) for stem in stems):
        shared = max(shared - 1, 0)  # one student's folder, unless its files name students
        while shared and not as_id(_beside_lab(paths[0][shared], labs)):
            shared -= 1
    return shared


def is_nbgraders(parts: tuple[str, ...], student: str, lab: str) -> bool:
    """Says whether a path is of nbgrader's own folders: then no student wrote its timestamp.txt."""
    if len(parts) < 3 or parts[-3:-1] != (student, lab):
        return False
    told = (form.fullmatch(part) for part in parts[:-1] for form in FORMS)
    return not any(told) and not any(part.lower().endswith(".zip") for part in parts)


def _without_ending(part: str) -> str:
    path = PurePosixPath(part)
    return path.stem if path.suffix.lower() in (".ipynb", ".zip") else part


def copy_number(stem: str) -> int:
    """Returns which copy of a file this is: `lab03 (2)` -> 2, `lab03` -> 0."""
    found = COPY.search(stem)
    if found is None:
        return 0
    return int(found["n"] or found["m"] or found["c"] or 1)


def _beside_lab(stem: str, labs: Sequence[str]) -> str:
    """Returns what a name holds beside the lab's own: `lab03_Zoë (1)` -> `Zoë`."""
    stem = COPY.sub("", stem)
    for lab in labs:
        words = lab.split("-")
        for end in range(len(words), 0, -1):
            whole = r"[-_ ]?".join(map(re.escape, words[:end]))
            rest, count = re.subn(rf"(?<![a-z0-9]){whole}(?![a-z0-9])", " ", stem, flags=re.I)
            if count:
                return re.sub(r"^[\W_]+|[\W_]+$", "", rest)
    return stem


def _time(text: str) -> datetime | None:
    """Returns the moment in a name; LMSs put signs of all kinds between its six numbers."""
    numbers = [int(n) for n in re.findall(r"\d+", text)[:6]]
    try:
        return datetime(*numbers) if len(numbers) >= 3 else None
    except ValueError:
        return None


def lab_told(nb: NotebookNode, labs: Mapping[str, frozenset[str]]) -> str | None:
    """Returns the lab that a notebook says it is: by its metadata, else by the cells it holds.

    `labs` has the grade ids of each released lab.
    """
    told = distlab_of(nb).get("lab")
    if isinstance(told, str) and LAB_NAME.fullmatch(told):
        return told
    own = {grade_id(cell) or cell.get("id") for cell in nb.cells}
    shares = sorted(((len(own & ids), lab) for lab, ids in labs.items()), reverse=True)
    if shares and shares[0][0] >= 2 and (len(shares) == 1 or shares[0][0] > shares[1][0]):
        return shares[0][1]
    return None


def lab_named(name: str, labs: Sequence[str]) -> str | None:
    """Returns the lab whose number stands in a file's name."""
    found = [lab for lab in labs if re.search(rf"(?<![a-z0-9]){lab[:5]}(?![0-9])", name, re.I)]
    return found[0] if len(found) == 1 else None
