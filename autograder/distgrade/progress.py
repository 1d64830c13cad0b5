"""`distgrade progress`: how far somebody is, from what checks have left; run anew only if asked."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from distgrade.course import Course, CourseError, find_course
from distgrade.learning import version
from distgrade.notebook import NotebookError, read_notebook, solution_cells
from distlab.learn import records
from distlab.learn.progress import STATES, Exercise, Lab, read_labs

COLOURS = {"passed": "green", "partial": "yellow", "stale": "yellow", "visible": "cyan"}
NOTHING = {"unwritten", "missing"}


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--again", is_flag=True, help="Grade every lab of the folder anew first.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def progress(folder: Path | None, again: bool, as_json: bool) -> None:
    """Show which exercises of the labs in FOLDER [work/] pass, and the points they earn.

    From what checks in notebooks and `distgrade check` have found: a result of an answer that has
    changed since is shown as an old one. Exit code 0: shown; 2: there is no such folder.
    """
    work = _folder(folder)
    if again:
        _again(work, quiet=as_json)
    labs = read_labs(work, version)
    if as_json:
        click.echo(json.dumps(_as_json(work, labs), indent=2, ensure_ascii=False))
    else:
        console = Console()
        console.print(_table(labs))
        for text in _notes(labs):
            console.print(Text(text))


def _folder(asked: Path | None) -> Path:
    """Returns the work folder that is meant. Raises CourseError, with what to do."""
    if asked is None:
        found = records.work_folder() or find_course().root / "work"
        if not (found / records.MARK).is_file():
            raise CourseError(f"there is no work folder {found}: `make lab` makes it.")
        return found
    if not asked.is_dir():
        raise CourseError(f"there is no folder {asked}.")
    if not read_labs(asked):
        raise CourseError(f"{asked} holds no labs (a folder such as lab03-tensor-parallel).")
    return asked


def _again(work: Path, *, quiet: bool) -> None:
    """Grades each lab in which something is written, and notes what came out."""
    from distgrade.check import check_notebook

    for lab in read_labs(work):
        if all(e.state in NOTHING for e in lab.exercises):
            continue
        if not quiet:
            click.echo(f"grading {lab.name} ...", err=True)
        try:
            remember(work / lab.notebook, check_notebook(work / lab.notebook, course=_course(work)))
        except NotebookError as error:
            click.echo(f"distgrade: {error}", err=True)


def _course(work: Path) -> Course:
    try:
        return find_course(work)
    except CourseError:  # a work folder that lies elsewhere
        return find_course()


def remember(path: Path, report) -> None:
    """Notes the results of a graded notebook, if it lies in a work folder."""
    work = records.work_folder(path.parent)
    if work is None or path.resolve() != (work / report.lab / f"{report.lab}.ipynb").resolve():
        return
    shelf = records.shelf_at(work)
    answers = solution_cells(read_notebook(path))
    for outcome in report.exercises:
        answer = answers.get(outcome.id.partition(".")[2])
        if answer is None or outcome.status not in records.STATUSES:
            continue
        numbers = (float(outcome.points), float(outcome.max_points))
        kept = records.Kept(outcome.status, *numbers, version(outcome.id), records.now())
        shelf.note(outcome.id, records.digest(answer.source), kept)


def _table(labs: tuple[Lab, ...]) -> Table:
    table = Table(title="Progress", title_justify="left")
    table.add_column("exercise", no_wrap=True)
    table.add_column("state", min_width=18)
    table.add_column("points", justify="right", no_wrap=True)
    for lab in labs:
        done = sum(e.state == "passed" for e in lab.exercises)
        begun = any(e.state not in NOTHING for e in lab.exercises)
        told = f"{done} of {len(lab.exercises)} pass" if begun else "not begun"
        state = Text(lab.problem, "red") if lab.problem else Text(told, "bold" if begun else "dim")
        table.add_section()
        table.add_row(Text(lab.name, "bold"), state, _points(lab.points, lab.max_points))
        for e in lab.exercises if begun else ():
            table.add_row(f"  {e.id}", _state(e), _points(e.points, e.max_points))
    return table


def _state(e: Exercise) -> Text:
    text = STATES[e.state]
    if e.before:
        text += f" ({STATES[e.before]} then)"
    if e.revealed:
        text += ", solution seen"
    return Text(text, COLOURS.get(e.state, "dim" if e.state in NOTHING else "red"))


def _points(points: float, most: float) -> str:
    return f"{points:g}/{most:g}" if most else "–"


def _notes(labs: tuple[Lab, ...]) -> list[str]:
    notes = [
        f"{sum(lab.points for lab in labs):g} of {sum(lab.max_points for lab in labs):g} points; "
        "written answers are not counted."
    ]
    states = {e.state for lab in labs for e in lab.exercises}
    if states & {"stale", "unchecked"}:
        notes.append("`distgrade progress --again` grades what has changed or was never checked.")
    return notes


def _as_json(work: Path, labs: tuple[Lab, ...]) -> dict:
    return {
        "folder": str(work),
        "points": sum(lab.points for lab in labs),
        "max_points": sum(lab.max_points for lab in labs),
        "labs": [
            {
                "lab": lab.name,
                "title": lab.title,
                "points": lab.points,
                "max_points": lab.max_points,
                "problem": lab.problem,
                "exercises": [asdict(e) | {"challenge": e.challenge} for e in lab.exercises],
            }
            for lab in labs
        ],
    }
