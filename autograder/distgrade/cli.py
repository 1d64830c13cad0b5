"""The command line `distgrade`. Every subcommand says what it did and fails with one sentence."""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from distgrade import quickly  # noqa: F401 (first)
from distgrade.classroom import commands as classroom_commands
from distgrade.course import CourseError, find_course, full_name
from distgrade.notebook import NotebookError, canonical, read_notebook, write_canonical
from distgrade.progress import progress, remember

FULL, NOT_FULL, UNREADABLE = 0, 1, 2
INTERRUPTED = 130

WORDS = {  # status -> (what people read, colour)
    "passed": ("passed", "green"),
    "partial": ("partly right", "yellow"),
    "failed": ("not right yet", "red"),
    "not-written": ("not written yet", "dim"),
    "error": ("error", "red"),
    "timeout": ("took too long", "red"),
    "missing": ("missing", "red"),
}


class _Group(click.Group):
    """Turns our errors into one sentence, and names near matches of an unknown command."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except (CourseError, NotebookError) as error:
            click.echo(f"distgrade: {error}", err=True)
            sys.exit(UNREADABLE)

    def resolve_command(self, ctx, args):
        if args and self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f" Did you mean `distgrade {near[0]}`?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Grades the course's notebooks, and keeps its exercises in order."""


@main.command()
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def check(notebook: Path, as_json: bool) -> None:
    """Grade one NOTEBOOK. Exit code 0: full marks; 1: not; 2: it can't be read."""
    from distgrade.check import check_notebook
    from distgrade.exercise import GraderError

    try:
        report = check_notebook(notebook)
    except GraderError as error:
        raise CourseError(str(error)) from None
    remember(notebook, report)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(report)
    sys.exit(FULL if report.full else NOT_FULL)


def _show(report) -> None:
    console = Console()
    table = Table(title=report.lab, title_justify="left", show_lines=True)
    table.add_column("exercise", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for outcome in report.exercises:
        word, colour = WORDS.get(outcome.status, (outcome.status, "red"))
        lines = [] if outcome.status == "passed" else [outcome.message, outcome.diagnosis]
        table.add_row(
            outcome.id,
            _text(word, colour),
            f"{outcome.points:g}/{outcome.max_points:g}" if outcome.max_points else "–",
            _text("\n".join(dict.fromkeys(line for line in lines if line))),
        )
    console.print(table)
    for note in report.notes:
        where = f"{note.grade_id}: " if note.grade_id else ""
        console.print(_text(f"note: {where}{note.text}", "dim"))
    marks = f"{report.score:g} of {report.max_score:g} points"
    console.print(_text(marks if report.max_score else "practice: no points"))


def _text(text: str, style: str = ""):
    from rich.text import Text

    return Text(
        text, style=style
    )  # a Text is not read as markup: students' words may hold brackets


@main.command()
@click.argument("lab")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Submissions at a time [cores].")
@click.option("--student", "-s", multiple=True, help="Only this student; may be repeated.")
@click.option("--exercise", "-e", multiple=True, help="Only run this one anew; may be repeated.")
@click.option("--again", is_flag=True, help="Grade also what is graded and has not changed.")
def grade(
    lab: str, jobs: int | None, student: tuple[str, ...], exercise: tuple[str, ...], again: bool
) -> None:
    """Grade all submissions of LAB into the gradebook.

    Broken off, it goes on where it stopped; what has not changed is not graded again; marks given
    by hand stay. Exit code 0: all are graded; 1: somebody must look; 2: it can't go on.
    """
    from distgrade.classroom.crew import early

    course = find_course()
    console = Console()
    lab = full_name(lab, course.released_labs())
    try:
        with early(course.root, lab, surely=again or bool(exercise)) as crew:
            from distgrade.classroom.grading import Class, grade_class, summary
            from distgrade.classroom.parallel import cores

            klass = Class(course, lab)
            rows = grade_class(
                klass,
                jobs=jobs or cores(),
                students=student,
                again=again,
                exercises=[klass.exercise(name) for name in exercise],
                console=console,
                crew=crew,
            )
    except KeyboardInterrupt:
        click.echo("distgrade: stopped. Run `distgrade grade` again: it goes on.", err=True)
        sys.exit(INTERRUPTED)
    console.print(summary(rows, klass))
    sys.exit(0 if all(row.graded for row in rows) else 1)


@main.command()
@click.argument("exercises", nargs=-1)
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if any differs.")
def refs(exercises: tuple[str, ...], only_check: bool) -> None:
    """Write the frozen reference values of EXERCISES (all, without arguments)."""
    from distgrade import references
    from distgrade.exercise import GraderError

    stale = failed = 0
    for exercise in _exercises(exercises):
        try:
            if only_check:
                path = references.path(exercise)
                old = path.read_bytes() if path.is_file() else b""
                changed = references.render(exercise) != old
            else:
                changed = references.write(exercise)
        except GraderError as error:
            click.echo(f"{exercise.id}: {error}", err=True)
            failed += 1
            continue
        stale += changed
        verb = "differs" if only_check else "written"
        click.echo(f"{exercise.id}: {verb if changed else 'as it was'}")
    if only_check and stale:
        click.echo(
            "Run `distgrade refs` and look at the difference before you commit it.", err=True
        )
    sys.exit(1 if failed or (only_check and stale) else 0)


def _exercises(ids: tuple[str, ...]) -> list:
    from distgrade.exercise import GraderError, all_exercises

    try:
        everything = {e.id: e for e in all_exercises()}
    except GraderError as error:
        raise CourseError(str(error)) from None
    for wanted in ids:
        if wanted not in everything:
            near = difflib.get_close_matches(wanted, everything, 1, 0.4)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise CourseError(f"there is no exercise {wanted}{hint}")
    return [everything[i] for i in ids] if ids else list(everything.values())


@main.command()
@click.argument("notebooks", nargs=-1, type=click.Path(path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if any differs.")
def canon(notebooks: tuple[Path, ...], only_check: bool) -> None:
    """Put NOTEBOOKS (all of source/, without arguments) into their canonical form."""
    if not notebooks:
        course = find_course()
        notebooks = tuple(course.source(lab) for lab in course.labs())
    differing = 0
    for path in notebooks:
        nb = read_notebook(path)
        differs = path.read_bytes() != canonical(nb)
        changed = differs if only_check else write_canonical(path, nb)
        differing += changed
        verb = "is not canonical: run `distgrade canon`" if only_check else "rewritten"
        click.echo(f"{path}: {verb if changed else 'as it was'}")
    sys.exit(1 if only_check and differing else 0)


@main.command("new-exercise")
@click.argument("exercise")
def new_exercise(exercise: str) -> None:
    """Write room, notebook section and hints of a new EXERCISE, such as lab03.row_linear."""
    from distgrade import scaffold

    course = find_course()
    room, notebook, hints = scaffold.new_exercise(course, exercise)
    click.echo(f"{room.relative_to(course.root)}: the grader's room, with TODOs")
    click.echo(f"{notebook.relative_to(course.root)}: a section at its end, with TODOs")
    click.echo(f"{hints.relative_to(course.root)}: its hints, with TODOs")
    click.echo("Fill the TODOs, then: distgrade refs, distgrade release, make check.")


@main.command()
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if any differs.")
def release(only_check: bool) -> None:
    """Make release/ (what students get) from source/, with nbgrader."""
    from distgrade import publish

    course = find_course()
    if only_check:
        stale = publish.stale(course)
        for sentence in stale:
            click.echo(sentence)
        click.echo("Run `distgrade release`." if stale else "release/ is up to date.")
        sys.exit(1 if stale else 0)
    for lab, changed in publish.publish(course).items():
        click.echo(f"release/{lab}: {'changed' if changed else 'as it was'}")


@main.command()
def doctor() -> None:
    """Look for what is wrong with this installation, and say how to mend it."""
    from distgrade import doctor as doctor_module

    sys.exit(doctor_module.start())


@main.command("class-demo")
@click.option("--feedback/--no-feedback", default=True, help="Also make the feedback pages.")
def class_demo(feedback: bool) -> None:
    """Make a class of sample submissions, grade it with nbgrader, show scores and reasons."""
    from distgrade.classroom import demo

    sys.exit(demo.main(find_course(), Console(), feedback=feedback))


main.add_command(progress)
for command in classroom_commands.COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main()
