"""Looks at the installation and the course folder; each problem comes with what mends it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distgrade.course import Course, CourseError, find_course

SETUP = "make setup"


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what it is, what was found and, if it is wrong, what mends it."""

    what: str
    found: str
    mend: str = ""

    @property
    def well(self) -> bool:
        """Says whether there is nothing to mend."""
        return not self.mend


def report(console: Console, course: Course | None = None) -> int:
    """Prints every finding; returns 0 when all is well, else 1."""
    findings = list(examine(course))
    table = Table(show_header=False, box=None, pad_edge=False)
    for finding in findings:
        mark = Text("ok", "green") if finding.well else Text("--", "bold red")
        found = Text(finding.found)
        if finding.mend:
            found.append(f"\n  mend: {finding.mend}", "bold")
        table.add_row(mark, finding.what, found)
    console.print(table)
    bad = sum(not f.well for f in findings)
    console.print(Text(f"{bad} to mend." if bad else "All is well."))
    return 1 if bad else 0


def examine(course: Course | None = None) -> Iterator[Finding]:
    """Yields every finding; a check that fails in itself is a finding too."""
    yield from _guarded("Python", lambda: python())
    if course is None:
        try:
            course = find_course()
        except CourseError as error:
            yield Finding("course folder", str(error), "cd into your clone of the course")
            return
    for what, check in CHECKS:
        yield from _guarded(what, lambda check=check: check(course))


def _guarded(what: str, check: Callable[[], Finding | list[Finding]]) -> Iterator[Finding]:
    try:
        found = check()
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield Finding(what, f"could not be looked at ({text})", SETUP)
        return
    yield from [found] if isinstance(found, Finding) else found


def python() -> Finding:
    """The interpreter is a Python 3.11."""
    version = ".".join(map(str, sys.version_info[:3]))
    wrong = sys.version_info[:2] != (3, 11)
    return Finding("Python", version, "install Python 3.11, then: make setup" if wrong else "")


def lock(course: Course) -> Finding:
    """Every pinned package is installed in its pinned version."""
    path = course.root / "requirements.lock"
    if not path.is_file():
        return Finding("packages", "requirements.lock is missing", "git checkout requirements.lock")
    wrong = []
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, wanted = line.split("#")[0].split(";")[0].strip().partition("==")
        if not wanted:
            continue
        try:
            got = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if got.split("+")[0] != wanted.split("+")[0]:  # torch's build suffix may differ
            wrong.append(f"{name} is {got} and not {wanted}")
    if wrong:
        return Finding("packages", "; ".join(wrong[:5]) + ("; ..." if wrong[5:] else ""), SETUP)
    return Finding("packages", "as pinned in requirements.lock")


def own_packages(course: Course) -> Finding:
    """Distlab and distgrade are this clone's, not another's."""
    for name, half in (("distlab", "lib"), ("distgrade", "autograder")):
        home = Path(import_module(name).__file__).resolve()
        if (course.root / half).resolve() not in home.parents:
            return Finding("own packages", f"{name} comes from {home}", SETUP)
    return Finding("own packages", "distlab and distgrade are this clone's")


def torch_works(course: Course) -> Finding:
    """Torch can be imported and multiplies."""
    import torch

    right = float(torch.ones(2) @ torch.ones(2)) == 2.0
    return Finding("torch", torch.__version__, "" if right else SETUP)


def programs(course: Course) -> Finding:
    """The programs that nbgrader calls by name lie beside this Python."""
    here = os.path.dirname(sys.executable)
    missing = [n for n in ("nbgrader", "alembic", "jupyter") if not shutil.which(n, path=here)]
    if missing:
        return Finding("programs", f"{' and '.join(missing)} not found in {here}", SETUP)
    return Finding("programs", "nbgrader, alembic and jupyter are there")


def lab_extension(course: Course) -> Finding:
    """JupyterLab has nbgrader's Validate button and formgrader."""
    path = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "@jupyter" / "nbgrader"
    if not path.is_dir():
        return Finding("JupyterLab", "nbgrader's extension is missing", SETUP)
    return Finding("JupyterLab", "nbgrader's extension is there")


def kernelspec(course: Course) -> Finding:
    """The kernel `python3` that notebooks ask for runs this Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    mend = f"{_command('python')} -m ipykernel install --sys-prefix"
    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        return Finding("kernel", "there is no kernel python3", mend)
    program = shutil.which(spec.argv[0], path=os.path.dirname(sys.executable)) or spec.argv[0]
    if os.path.dirname(os.path.abspath(program)) != os.path.dirname(sys.executable):
        return Finding("kernel", f"python3 runs {program}, not this Python", mend)
    return Finding("kernel", "python3 runs this Python")


def kernel_starts(course: Course) -> Finding:
    """A kernel for grading starts and answers."""
    from distgrade.running.kernel import Kernel

    with Kernel() as kernel:
        end = kernel.execute("1 + 1", lambda *_: None, timeout_s=30.0)
    if not end.ran:
        return Finding("grading kernel", f"it does not answer ({end.state})", SETUP)
    return Finding("grading kernel", "starts and answers")


def isolation(course: Course) -> Finding:
    """What a student's code can't do while it is graded here. Less than all is no fault to mend."""
    from distgrade.running.kernels import protection

    return Finding("isolation", str(protection()))


def rooms(course: Course) -> Finding:
    """Every exercise can be loaded, and its frozen references are in date."""
    from distgrade import references
    from distgrade.exercise import all_exercises

    exercises = all_exercises()
    for exercise in exercises:
        try:
            references.read(exercise)
        except Exception as error:
            return Finding("exercises", f"{exercise.id}: {error}", "distgrade refs")
    return Finding("exercises", f"{len(exercises)}, references in date")


def notebooks(course: Course) -> Finding:
    """The source notebooks are canonical."""
    from distgrade.publish import not_canonical

    found = not_canonical(course)
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
    again = "mv gradebook.db gradebook.old.db, then: nbgrader generate_assignment LAB"
    if not path.exists():
        return Finding("gradebook", "none yet: the first grading makes it")
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            tables = {row[0] for row in db.execute("select name from sqlite_master")}
            if not {"alembic_version", "assignment", "grade_cells"} <= tables:
                return Finding("gradebook", "only half of it was made", again)
            known = {row[0] for row in db.execute("select name from assignment")}
            cells = {row[0] for row in db.execute("select name from base_cell")}
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


def fonts(course: Course) -> Finding:
    """Matplotlib finds its font, so pictures have letters."""
    from matplotlib import font_manager

    try:
        font_manager.findfont("DejaVu Sans", fallback_to_default=False)
    except ValueError:
        return Finding("fonts", "matplotlib can't find DejaVu Sans", SETUP)
    return Finding("fonts", "matplotlib finds its own")


def _command(name: str) -> str:
    return os.path.join(os.path.dirname(sys.executable), name)


CHECKS: tuple[tuple[str, Callable[[Course], Finding]], ...] = (
    ("packages", lock),
    ("own packages", own_packages),
    ("torch", torch_works),
    ("programs", programs),
    ("JupyterLab", lab_extension),
    ("kernel", kernelspec),
    ("grading kernel", kernel_starts),
    ("isolation", isolation),
    ("fonts", fonts),
    ("exercises", rooms),
    ("source notebooks", notebooks),
    ("release", release),
    ("gradebook", gradebook),
)
