"""`distgrade report LAB`: how far a class is, and which mistakes it shares, from the kept verdicts.

Nothing is run: what `distgrade grade` found out is counted by exercise and by diagnosis. A mistake
that half of the class makes is one for the next lecture, not for feedback one by one.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from distgrade import verdicts
from distgrade.check import edition_for, read_release
from distgrade.course import Course, CourseError
from distgrade.notebook import (
    NotebookError,
    distlab_of,
    exercise_of,
    graded_cells,
    read_notebook,
)
from distgrade.rebuild import rebuild
from distgrade.rooms import room_of
from distgrade.verdicts import fingerprint
from distgrade.verify import Outcome
from distlab.files import write_whole

# status -> (the column it counts in); the order is that of a bar, from done to not begun
STANDINGS = {
    "passed": "passed",
    "partial": "partly right",
    "failed": "not right yet",
    "error": "not right yet",
    "timeout": "not right yet",
    "missing": "not right yet",
    "not-written": "not written",
}
COLUMNS = ("passed", "partly right", "not right yet", "not written")
CASE = re.compile(r"^Case “(.+?)” \(")
ERROR = re.compile(r"^(?:Seen: |.* stopped with )(\w+(?:Error|Exception|Interrupt|Exit))\b", re.M)


@dataclass(frozen=True)
class Mistake:
    """What several students got wrong in the same way: who, in which exercise, in one sentence."""

    exercise: str
    sentence: str
    students: tuple[str, ...]
    known: bool  # a diagnosis, not only where it was seen


@dataclass
class ClassReport:
    """A lab's class: each student's outcomes, and why others have none."""

    lab: str
    exercises: tuple[str, ...]
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def standing(self, exercise: str) -> Counter:
        """Returns how many students stand where, in one exercise."""
        return Counter(STANDINGS[found[exercise].status] for found in self.outcomes.values())

    def share(self, exercise: str) -> float | None:
        """Returns the share of an exercise's points that the class earned; None for practice."""
        found = [o[exercise] for o in self.outcomes.values()]
        most = sum(o.max_points for o in found)
        return sum(o.points for o in found) / most if most else None

    def mistakes(self) -> list[Mistake]:
        """Returns what was got wrong, the most frequent first; then in the lab's order."""
        who: dict[tuple[str, str, bool], list[str]] = {}
        for student, found in self.outcomes.items():
            for exercise in self.exercises:
                told = told_of(found[exercise])
                if told is not None:
                    who.setdefault((exercise, *told), []).append(student)
        found = [Mistake(e, s, tuple(names), known) for (e, s, known), names in who.items()]
        order = {name: place for place, name in enumerate(self.exercises)}
        return sorted(found, key=lambda m: (-len(m.students), order[m.exercise], m.sentence))


def told_of(outcome: Outcome) -> tuple[str, bool] | None:
    """Returns (a sentence for the mistake, whether it is a diagnosis); None where there is none."""
    if outcome.status in ("passed", "not-written"):
        return None
    if outcome.diagnosis:
        return outcome.diagnosis, True
    if outcome.status == "timeout":
        return "It takes too long, or never ends.", False
    if outcome.status == "missing":
        return "The name that was asked for is not defined.", False
    error = ERROR.search(outcome.message)
    if error:
        return f"It stops with {error[1]}.", False
    case = CASE.search(outcome.message)
    if case:
        return f"Something else, seen first in case “{case[1]}”.", False
    return "Something else.", False


def read_class(course: Course, lab: str) -> ClassReport:
    """Returns the report on all submissions of a lab.

    Raises CourseError where nobody handed in, or nothing of it is graded.
    """
    from distgrade.classroom.grading import Class

    klass = Class(course, lab)
    present = read_release(course, lab)
    exercises = tuple(exercise_of(test, lab) for test in graded_cells(present))
    report = ClassReport(lab, exercises)
    for student in klass.students():
        try:
            found = _outcomes(course, lab, klass.notebook(student))
        except NotebookError as error:
            report.missing[student] = str(error)
            continue
        if found is None or not set(exercises) <= set(found):
            report.missing[student] = "not graded yet, or by another grader"
        else:
            report.outcomes[student] = {name: found[name] for name in exercises}
    if not report.outcomes:
        what = "nothing of it is graded" if report.missing else "nobody has handed it in"
        raise CourseError(f"{lab}: {what}; run `distgrade grade {lab[:5]}` first.")
    return report


def _outcomes(course: Course, lab: str, path: Path) -> dict[str, Outcome] | None:
    """Returns the kept outcomes that today's grader stands for."""
    nb = read_notebook(path)
    built, _ = rebuild(nb, edition_for(course, lab, nb))
    kept = verdicts.read(course, lab, built)
    if kept is None:
        return None
    found = {}
    for test, cell in graded_cells(built).items():
        room = room_of(course, lab, built, test)
        outcome = kept.graded.outcomes.get(room.id)
        if outcome is None or kept.graders.get(room.id) != fingerprint(room):
            continue
        later = distlab_of(cell).get("later")  # than the edition it was made from: no mistake
        found[room.id] = replace(outcome, status="not-written") if later else outcome
    return found


# --- what a teacher reads --------------------------------------------------------------------


def of(count: int, whole: int) -> str:
    """Returns a count with its share: `12 of 30 (40 %)`."""
    return f"{count} of {whole} ({round(100 * count / whole)} %)"


def tables(report: ClassReport, most: int = 12) -> list[Table]:
    """Returns the report for a terminal: how far the class is, and what it shares."""
    whole = len(report.outcomes)
    stand = Table(title=f"{report.lab}: {whole} submissions", title_justify="left")
    for name in ("exercise", *COLUMNS, "points earned"):
        stand.add_column(name, justify="left" if name == "exercise" else "right")
    for exercise in report.exercises:
        counts, share = report.standing(exercise), report.share(exercise)
        earned = "practice" if share is None else f"{100 * share:.0f} %"
        stand.add_row(exercise, *(str(counts[c] or "–") for c in COLUMNS), earned)
    shared = Table(title="mistakes, the most frequent first", title_justify="left")
    shared.add_column("students", no_wrap=True)
    shared.add_column("exercise", no_wrap=True)
    shared.add_column("mistake", overflow="fold")
    mistakes = report.mistakes()
    for mistake in mistakes[:most]:
        words = Text(mistake.sentence, "" if mistake.known else "dim")
        shared.add_row(of(len(mistake.students), whole), mistake.exercise, words)
    left = len(mistakes) - most
    if left > 0:
        shared.add_row("", "", Text(f"and {left} more, in the page", "dim"))
    return [stand, shared]


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem }
img { max-width: 100%; height: auto }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
td, th { text-align: left; vertical-align: top; padding: .35rem .6rem; border-top: 1px solid #ddd }
td.n, th.n { text-align: right; white-space: nowrap }
summary { cursor: pointer; color: #5a5a5a } .quiet { color: #5a5a5a }
"""


def page(report: ClassReport, picture) -> str:
    """Returns the report as one page that needs nothing else; students' words are escaped."""
    whole, e = len(report.outcomes), html.escape
    rows, kinds = [], ("quiet", "known")
    for exercise in report.exercises:
        counts, share = report.standing(exercise), report.share(exercise)
        cells = "".join(f'<td class="n">{counts[c] or "–"}</td>' for c in COLUMNS)
        earned = "practice" if share is None else f"{100 * share:.0f} %"
        rows.append(f'<tr><td>{e(exercise)}</td>{cells}<td class="n">{earned}</td></tr>')
    heads = "".join(f'<th class="n">{c}</th>' for c in (*COLUMNS, "points earned"))
    shared = [
        f'<tr><td class="n">{of(len(m.students), whole)}</td><td>{e(m.exercise)}</td>'
        f"<td class={kinds[m.known]}>{e(m.sentence)}"
        f"<details><summary>who</summary>{e(', '.join(m.students))}</details></td></tr>"
        for m in report.mistakes()
    ]
    left = [f"<li>{e(name)}: {e(why)}</li>" for name, why in sorted(report.missing.items())]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{e(report.lab)}</title>",
        f"<style>{STYLE}</style><h1>{e(report.lab)}: {whole} submissions</h1>",
        picture._repr_mimebundle_()["text/html"],
        f"<h2>How far the class is</h2><table><tr><th>exercise</th>{heads}</tr>",
        *rows,
        "</table><h2>What it shares</h2>",
        "<table><tr><th class=n>students</th><th>exercise</th><th>mistake</th></tr>",
        *(shared or ["<tr><td>nothing</td></tr>"]),
        "</table>",
        f"<h2>Not counted</h2><ul>{''.join(left)}</ul>" if left else "",
    ]
    return "\n".join(parts) + "\n"


def short(exercise: str) -> str:
    """Returns an exercise's name without its lab: `lab03.row_linear` -> `row_linear`."""
    return exercise.partition(".")[2]


def pick(mistakes: Sequence[Mistake], most: int = 10) -> list[Mistake]:
    """Returns the mistakes worth a bar: shared by two at least, else the first few."""
    shared = [m for m in mistakes if len(m.students) > 1]
    return (shared or list(mistakes))[:most]


def write(report: ClassReport, folder: Path) -> Path:
    """Writes the page and the picture into a folder; returns it."""
    from distgrade.classroom.picture import draw

    picture = draw(report)
    try:
        write_whole(folder / "report.html", page(report, picture))
        picture.save(folder / "report.png")
    except OSError as error:
        raise CourseError(f"{folder} can't be written: {error.strerror or error}.") from None
    return folder
