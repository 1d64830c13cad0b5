"""`distgrade grade LAB`: a whole class, several submissions at once, into nbgrader's gradebook.

Several processes run the submissions and keep the verdicts (`parallel`, `verdicts`). As these come,
nbgrader's own autograde, one submission at a time, writes the marks: it finds the verdicts kept and
starts no kernel. So the gradebook has one writer, and formgrader, feedback and export see
what they always see. Each submission that is written is noted down: a run that was broken off goes
on where it stopped, and one that is done is not done again.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from traitlets.config import Config

from distgrade import private
from distgrade.classroom.crew import Crew
from distgrade.classroom.parallel import Answer, Task, grade_all, kept_answer
from distgrade.classroom.register import Register, alone, raise_if_general
from distgrade.course import Course, CourseError
from distgrade.exercise import GraderError
from distgrade.notebook import distlab_of, exercise_of, graded_cells
from distgrade.publish import load_config
from distgrade.rooms import room_of
from distgrade.verdicts import anything_kept, fingerprint

WAIT_S = 20  # for a gradebook that another program writes to


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
        self.config.CourseDirectory.db_url = patient(self.coursedir().db_url)
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

    def exercise(self, name: str) -> str:
        """Returns the id of this lab's exercise of that name, with or without `labNN.`."""
        known = [exercise_of(test, self.lab) for test in graded_cells(self.release)]
        for wanted in known:
            if name in (wanted, wanted.partition(".")[2]):
                return wanted
        near = difflib.get_close_matches(name, [i.partition(".")[2] for i in known], 1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
        raise CourseError(f"{self.lab} has no exercise {name}. {hint}")

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


def patient(db_url: str) -> str:
    """Returns the gradebook's address with a longer wait for other programs than SQLite's 5 s.

    Not in `nbgrader_config.py`: `nbgrader db upgrade` takes the address for a file's name.
    """
    if db_url.startswith("sqlite:///") and "?" not in db_url:
        return f"{db_url}?timeout={WAIT_S}"
    return db_url


def grade_class(
    klass: Class,
    *,
    jobs: int,
    students: Sequence[str] = (),
    again: bool = False,
    exercises: Sequence[str] = (),
    console: Console,
    crew: Crew | None = None,
) -> list[Row]:
    """Grades who is not graded yet, shows how far it is, returns a row for each submission.

    `again` runs every one of these submissions anew, `exercises` (ids) only these parts of them.
    Raises CourseError when nothing can go on.
    """
    with alone(klass.course):
        names = _chosen(klass, students)
        register = Register(klass)
        if again or exercises:
            register.forget(names, () if again else exercises)
        rows = {name: row for name in names if (row := register.standing(name)) is not None}
        todo = [name for name in names if name not in rows]
        with _progress(console) as bar:
            # Written as they come: the gradebook has one writer, and others run meanwhile.
            with closing(_run(klass, todo, jobs, bar, crew)) as found:
                for answer in found:
                    if answer.ours:
                        raise_if_general(answer.why)
                    rows[answer.student] = register.write(answer)
        for name in todo:
            rows.setdefault(name, Row(name, False, why=_no_notebook(klass, name)))
        gone = () if students else sorted(set(register.in_gradebook) - set(names))
        return [rows[name] for name in names] + [_gone(klass, name) for name in gone]


def _gone(klass: Class, student: str) -> Row:
    where = klass.folder("submitted", student)
    why = f"has marks in the gradebook, but there is no folder {where} any more: was it renamed?"
    return Row(student, True, why=why, anew=False)


def _chosen(klass: Class, students: Sequence[str]) -> list[str]:
    known = klass.students()
    if not known:
        where = klass.folder("submitted", "STUDENT")
        raise CourseError(f"nobody has handed in {klass.lab}: there is no folder {where}.")
    unknown = [name for name in students if name not in known]
    if unknown:
        raise CourseError(f"{unknown[0]} has not handed in {klass.lab}.")
    return [name for name in known if not students or name in students]


def _run(
    klass: Class, names: Iterable[str], jobs: int, bar: Progress, crew: Crew | None
) -> Iterator[Answer]:
    tasks = []
    kept_any = anything_kept(klass.course, klass.lab)  # of a new class nothing: it is quickly told
    for name in names:
        task = Task(name, str(klass.notebook(name)))
        if not klass.notebook(name).is_file():
            continue
        if kept_any and (kept := kept_answer(task, klass.course.root, klass.lab)) is not None:
            yield kept
        else:
            tasks.append(task)
    if tasks:
        how = {"jobs": jobs, "limits": klass.limits(), "crew": crew}
        found = grade_all(klass.course.root, klass.lab, tasks, **how)
        with closing(found):  # an end of this one ends the processes
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
        whys = [row.why] if row.why else []
        whys += [note for note in row.notes if note.startswith("made from")]  # another edition
        if whys:
            state = Text("look at", "yellow") if row.graded else Text("needs a human", "red")
            points = "–" if row.score is None else f"{row.score:g}/{row.max_score:g}"
            table.add_row(state, Text(row.student), points, Text("; ".join(whys)))
    return table
