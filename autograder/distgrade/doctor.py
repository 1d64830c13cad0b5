"""Looks at the grader's half of an installation; each problem comes with what mends it.

The machine and the packages are looked at by `lib/bootstrap_doctor.py`, which needs neither of them
whole, prints everything, and asks this module for its part: `python -m distgrade.doctor FOLDER`.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from distgrade import quickly  # noqa: F401 (first)
from distgrade.course import MARK, Course, CourseError, find_course

REPAIR = "make repair"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ROOMS = "autograder/distgrade/labs"
LOCKED_S = 2.0  # seconds that another program may hold the gradebook
ANEW = "put your copy of gradebook.db back; without one: mv gradebook.db gradebook.old.db, then "


class Finding(NamedTuple):
    """One thing looked at: what was found, what mends it, or what would only be better."""

    what: str
    found: str
    mend: str = ""
    better: str = ""

    @property
    def well(self) -> bool:
        """Says whether there is nothing to mend."""
        return not self.mend


def start() -> int:
    """Prints what is wrong with this course and this Python; returns 0 where nothing is."""
    root = Path(__file__).resolve().parents[2]
    try:
        root = find_course().root
    except CourseError:
        print("This is not the folder of a course; the one that distgrade comes from is looked at.")
    script = root / "lib" / "bootstrap.py"
    if not script.is_file():
        print(f"-- course folder: {script} is missing\n     mend: git checkout lib")
        return 1
    return subprocess.run([sys.executable, str(script), "doctor", sys.executable]).returncode


def examine(course: Course) -> Iterator[Finding]:
    """Yields every finding of the grader's half; a check that fails in itself is one too."""
    for what, check in CHECKS:
        try:
            yield check(course)
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            yield Finding(what, f"could not be looked at ({text})", REPAIR)


def settings(course: Course) -> Finding:
    """The settings of nbgrader can be read."""
    from distgrade.publish import load_config

    try:
        config = load_config(course.root)
        place = config.CourseDirectory.root
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Finding("settings", f"{MARK} can't be read ({text})", f"git checkout {MARK}")
    if Path(place).resolve() != course.root.resolve():
        found = f"{MARK} names {place} as the course"
        return Finding("settings", found, f"git checkout {MARK}")
    return Finding("settings", f"{MARK} can be read")


def kernel_starts(course: Course) -> Finding:
    """A kernel for grading starts and answers."""
    from distgrade.running.kernel import Kernel

    with Kernel() as kernel:
        end = kernel.execute("1 + 1", lambda *_: None, timeout_s=30.0)
    if not end.ran:
        return Finding("grading kernel", f"it does not answer ({end.state})", REPAIR)
    return Finding("grading kernel", "starts and answers")


def isolation(course: Course) -> Finding:
    """What a student's code can't do while it is graded here. Less than all is no fault to mend."""
    from distgrade.running.kernels import protection

    found = protection()
    better = "" if found.level == "full" else "course/instructors/grading.md says what to do"
    return Finding("isolation", str(found), better=better)


def rooms(course: Course) -> Finding:
    """Every exercise can be loaded, and its frozen references are in date."""
    from distgrade import references
    from distgrade.exercise import all_exercises

    try:
        exercises = all_exercises()
    except Exception as error:
        mend = f"correct it, or: git checkout {ROOMS}"
        return Finding("exercises", f"a room can't be loaded ({error})", mend)
    for exercise in exercises:
        try:
            references.read(exercise)
        except Exception as error:
            mend = f"git checkout {ROOMS}; after a change of the room: distgrade refs {exercise.id}"
            return Finding("exercises", str(error), mend)
    if not exercises:
        return Finding("exercises", f"{ROOMS} holds none", f"git checkout {ROOMS}")
    return Finding("exercises", f"{len(exercises)}, references in date")


def notebooks(course: Course) -> Finding:
    """Every lab has a source notebook, which can be read and is canonical."""
    from distgrade.notebook import NotebookError
    from distgrade.publish import not_canonical

    lost = sorted(set(course.released_labs()) - set(course.labs()))
    if lost:
        found = f"source/ lacks {', '.join(lost)}"
        return Finding("source notebooks", found, "git checkout source")
    try:
        found = not_canonical(course)
    except NotebookError as error:
        return Finding("source notebooks", str(error), "git checkout source")
    if found:
        names = ", ".join(p.stem for p in found)
        return Finding("source notebooks", f"not canonical: {names}", "distgrade canon")
    return Finding("source notebooks", f"{len(course.labs())}, canonical")


def release(course: Course) -> Finding:
    """release/ is there and is what source/ gives."""
    from distgrade.publish import stale

    found = stale(course)
    if found:
        return Finding("release", found[0], "distgrade release")
    return Finding("release", "up to date")


def gradebook(course: Course) -> Finding:
    """The gradebook is absent (a fresh clone) or whole and about the released cells."""
    path = course.root / "gradebook.db"
    again = ANEW + "distgrade grade LAB"
    if not path.exists():
        return Finding("gradebook", "none yet: the first grading makes it")
    if not os.access(path, os.R_OK | os.W_OK):
        return Finding("gradebook", f"{path} can't be written", f"sudo chown $USER {path}")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=LOCKED_S)) as db:
            tables = {row[0] for row in db.execute("select name from sqlite_master")}
            if not {"alembic_version", "assignment", "grade_cells"} <= tables:
                return Finding("gradebook", "only half of it was made", again)
            known = {row[0] for row in db.execute("select name from assignment")}
            cells = {row[0] for row in db.execute("select name from base_cell")}
            (whole,) = db.execute("pragma quick_check(1)").fetchone()
            if whole != "ok":
                return Finding("gradebook", f"it is damaged ({whole.splitlines()[0]})", again)
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            mend = "wait for it, or close it: formgrader, a grading run"
            return Finding("gradebook", "another program is writing to it", mend)
        return Finding("gradebook", f"can't be read ({error})", again)
    except sqlite3.Error as error:
        return Finding("gradebook", f"can't be read ({error})", again)
    from distgrade.notebook import graded_cells, read_notebook

    for lab in course.released_labs():
        if lab in known:
            lost = set(graded_cells(read_notebook(course.release(lab)))) - cells
            if lost:
                mend = f"nbgrader generate_assignment {lab}"
                return Finding("gradebook", f"it lacks {', '.join(sorted(lost))} of {lab}", mend)
    return Finding("gradebook", f"knows {len(known)} assignment(s)")


def secret(course: Course) -> Finding:
    """The secret from which fresh tests are drawn can be read by nobody else."""
    path = course.root / ".distgrade" / "secret"
    if os.environ.get("DISTGRADE_SECRET"):
        return Finding("secret", "DISTGRADE_SECRET gives it")
    if not path.exists():
        return Finding("secret", "none yet: the first grading makes it")
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        return Finding("secret", f"can't be read ({error.strerror})", f"sudo chown $USER {path}")
    if len(text) < 16:
        return Finding(
            "secret", "it is empty or cut short", f"rm {path}: the next grading makes one"
        )
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("secret", "others on this machine may read it", f"chmod 600 {path}")
    return Finding("secret", "yours alone")


def own_cases(course: Course) -> Finding:
    """A teacher's own cases can be read."""
    from distgrade import private
    from distgrade.exercise import RoomError, load

    try:
        labs = private.labs(course)
        count = 0
        for lab in labs:
            for exercise_id in private.files(course, lab):
                count += private.with_own_cases(course, load(exercise_id)).own
    except (CourseError, RoomError) as error:
        return Finding("own cases", str(error).rstrip("."), "correct it, then: distgrade cases")
    return Finding("own cases", f"{count} in private/" if count else "none")


def exchange(course: Course) -> Finding:
    """The folder through which nbgrader hands out and collects is there."""
    from distgrade.publish import load_config

    place = Path(load_config(course.root).Exchange.root)
    try:
        with tempfile.TemporaryFile(dir=place):
            return Finding("exchange", f"{place} can be written")
    except OSError as error:
        mend = f"mkdir -p {place} && chmod ugo+rwx {place}"
        return Finding("exchange", f"{place} can't be written ({error.strerror})", mend)


def programs(course: Course) -> Finding:
    """Alembic, which nbgrader starts by name, lies beside this Python; git is there."""
    here = os.path.dirname(sys.executable)
    if not shutil.which("alembic", path=here):
        return Finding("grader's programs", f"alembic not found in {here}", REPAIR)
    if not shutil.which("git"):
        better = "sudo apt install git: releases of an earlier day are found in its history"
        return Finding("grader's programs", "alembic is there, git is not", better=better)
    return Finding("grader's programs", "alembic and git are there")


def browser(course: Course) -> Finding:
    """A browser for the tests that need one."""
    if any(map(shutil.which, BROWSERS)):
        return Finding("browser", "Chromium is there")
    better = "sudo apt install chromium: without it the tests in a browser are left out"
    return Finding("browser", "there is no Chromium", better=better)


CHECKS: tuple[tuple[str, Callable[[Course], Finding]], ...] = (
    ("settings", settings),
    ("grader's programs", programs),
    ("grading kernel", kernel_starts),
    ("isolation", isolation),
    ("exercises", rooms),
    ("source notebooks", notebooks),
    ("release", release),
    ("gradebook", gradebook),
    ("secret", secret),
    ("own cases", own_cases),
    ("exchange", exchange),
    ("browser", browser),
)

if __name__ == "__main__":
    for finding in examine(Course(Path(sys.argv[1]))):
        print(json.dumps(finding), flush=True)
