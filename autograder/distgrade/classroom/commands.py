"""The commands of `distgrade` for a class: from what was handed in to marks and a report."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from distgrade.course import CourseError, find_course, full_name

LOOK = 1  # exit code: somebody must look


@click.command()
@click.argument("lab")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--student", "-s", default="", help="Whose it is, where its name does not tell.")
@click.option("--pattern", default="", help="A regular expression with (?P<student_id>...).")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken.")
def collect(lab: str, path: Path, student: str, pattern: str, dry_run: bool) -> None:
    """Take the submissions of LAB out of PATH: a folder, a zip from an LMS, or one notebook.

    Exit code 0: all are taken; 1: somebody must look; 2: PATH can't be used.
    """
    from distgrade.classroom import intake

    course = find_course()
    name = full_name(lab, course.released_labs())
    taken = intake.collect(course, name, path, student=student, pattern=pattern, dry=dry_run)
    Console().print(intake.summary(taken, name, dry=dry_run))
    sys.exit(LOOK if any(row.state == intake.LEFT for row in taken) else 0)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def roster(file: Path) -> None:
    """Enter the students of a CSV FILE into nbgrader's gradebook, or bring them up to date."""
    from distgrade.classroom.roster import enter, read_roster

    students = read_roster(file)
    new = enter(find_course(), students)
    click.echo(f"{len(students)} students, {new} of them new.")


@click.command()
@click.argument("lab")
@click.option("--to", type=click.Path(path_type=Path), help="Write this file [standard output].")
def marks(lab: str, to: Path | None) -> None:
    """Print the marks of LAB as CSV, a row for each student. An empty field is no mark.

    Exit code 0: all who handed in are graded; 1: somebody must look; 2: there are no marks.
    """
    from distgrade.classroom import marks as marks_module

    course = find_course()
    rows, text = marks_module.read(course, full_name(lab, course.released_labs()))
    if to is None:
        click.echo(text, nl=False)
    else:
        marks_module.write(to, text)
    open_ = marks_module.still_open(rows)
    click.echo(f"{len(rows)} students{': ' + open_ if open_ else ', all graded'}.", err=True)
    sys.exit(LOOK if open_ else 0)


@click.command()
@click.argument("lab")
@click.option("--to", type=click.Path(path_type=Path), help="Folder [build/report/LAB].")
def report(lab: str, to: Path | None) -> None:
    """Show how far the class is in LAB and which mistakes it shares; write a page and a picture.

    From what `distgrade grade` has kept: nothing is run.
    """
    from distgrade.classroom import report as classreport

    course = find_course()
    name = full_name(lab, course.released_labs())
    found = classreport.read_class(course, name)
    console = Console()
    for table in classreport.tables(found):
        console.print(table)
    for student, why in sorted(found.missing.items()):
        console.print(Text(f"not counted: {student}: {why}", "yellow"))
    folder = classreport.write(found, to or course.root / "build" / "report" / name)
    click.echo(f"{folder}/report.html, {folder}/report.png")
    sys.exit(LOOK if found.missing else 0)


@click.command()
@click.argument("lab", required=False)
def cases(lab: str | None) -> None:
    """Try your own cases, in private/LAB/EXERCISE.py, on every right and wrong answer known here.

    Exit code 0: every right answer passes; 1: not; 2: a file can't be used.
    """
    from distgrade import private
    from distgrade.exercise import GraderError

    course = find_course()
    labs = [full_name(lab, course.released_labs())] if lab else private.labs(course)
    refused = count = 0
    try:
        for tried in (t for name in labs for t in private.try_out(course, name)):
            count += 1
            refused += bool(tried.refused)
            told = f"fails {len(tried.caught)} of {tried.of} wrong answers"
            if tried.refused:
                told = f"FAILS RIGHT ANSWERS: {', '.join(tried.refused)}"
            click.echo(f"{tried.exercise}: {tried.case}: {told}")
    except GraderError as error:
        raise CourseError(str(error)) from None
    if not count:
        click.echo("There are no own cases: private/LAB/EXERCISE.py would hold them.")
    sys.exit(LOOK if refused else 0)


@click.command()
@click.argument("lab")
@click.option("--early", is_flag=True, help="Also before the deadline.")
def solutions(lab: str, early: bool) -> None:
    """Make the solved notebook of LAB for students, in solution/, once its deadline is over."""
    from distgrade.classroom.solutions import make

    course = find_course()
    folder, deadline = make(course, full_name(lab, course.labs()), early=early)
    told = f"deadline {deadline:%Y-%m-%d %H:%M} UTC" if deadline else "no deadline is set"
    click.echo(f"{folder}: solved, without hidden tests ({told}).")


COMMANDS = (collect, roster, marks, report, cases, solutions)
