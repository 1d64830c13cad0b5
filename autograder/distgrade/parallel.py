"""Several processes grade submissions at once; one that dies takes only its submission along, once.

Each worker is a process of its own with a kernel host of its own. It gets one task at a time, a
JSON object on a line, and answers with one. What it finds out it keeps (`verdicts`), so a run that
is broken off goes on where it stopped. Python's own pools end as a whole when one process is
killed, by the kernel's memory guard for example; here it is started again.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from distgrade import quickly  # noqa: F401 (before what imports nbformat)

TRIES = 2


@dataclass(frozen=True)
class Task:
    """A submission to grade: whose, and the notebook's path."""

    student: str
    path: str


@dataclass(frozen=True)
class Answer:
    """What became of a task: points and the states of its exercises, or why there are none.

    `unwell` names exercises that a person should look at, with the reason.
    """

    student: str
    score: float | None = None
    max_score: float = 0.0
    why: str = ""
    unwell: dict[str, str] | None = None
    notes: tuple[str, ...] = ()


class Worker:
    """One process that grades what it is given."""

    def __init__(self, root: Path, lab: str, limits: dict):
        self._command = [sys.executable, "-m", "distgrade.parallel", str(root), lab]
        self._command.append(json.dumps(limits))
        self._process: subprocess.Popen | None = None

    def grade(self, task: Task) -> Answer:
        """Returns the answer to a task; starts the process again if it dies over it."""
        for _ in range(TRIES):
            process = self._started()
            try:
                process.stdin.write(json.dumps(vars(task)) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = ""
            if line:
                return Answer(**json.loads(line))
            self.close()
        return Answer(
            task.student, why=f"the process that graded it died {TRIES} times (out of memory?)"
        )

    def _started(self) -> subprocess.Popen:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # an interrupt is for the command, which ends its workers
            )
        return self._process

    def close(self) -> None:
        """Ends the process; its kernel host ends with it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def cores() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def grade_all(
    root: Path, lab: str, tasks: Sequence[Task], *, jobs: int, limits: dict
) -> Iterator[Answer]:
    """Yields an answer to each task, as they come. Ended early, it ends its processes."""
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    done: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    workers = [Worker(root, lab, limits) for _ in range(min(jobs, len(tasks)))]

    def work(worker: Worker) -> None:
        while True:
            try:
                task = todo.get_nowait()
            except queue.Empty:
                return
            done.put(worker.grade(task))

    threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            yield done.get()
    finally:
        while not todo.empty():
            todo.get_nowait()
        for worker in workers:
            worker.close()


def answer(task: Task, root: Path, lab: str, limits: dict) -> Answer:
    """Grades one submission and keeps the verdicts; every failure is a sentence."""
    from distgrade.check import edition_for
    from distgrade.course import Course, CourseError
    from distgrade.exercise import GraderError
    from distgrade.notebook import NotebookError, read_notebook
    from distgrade.rebuild import rebuild
    from distgrade.runner import Limits
    from distgrade.verdicts import FAULT, grade_built

    course = Course(root)
    try:
        submission = read_notebook(Path(task.path))
        built, notes = rebuild(submission, edition_for(course, lab, submission))
        graded = grade_built(built, lab, course, limits=Limits(**limits), keep=True)
    except (NotebookError, CourseError, GraderError) as error:
        return Answer(task.student, why=str(error))
    except OSError as error:
        return Answer(task.student, why=f"{error.strerror or error}: {error.filename or 'a file'}")
    except Exception as error:
        return Answer(task.student, why=f"a fault of the grader: {type(error).__name__}: {error}")
    outcomes = graded.outcomes.values()
    told = {
        o.id: "the grader's own fault" if o.message == FAULT else o.message.splitlines()[0]
        for o in outcomes
        if o.message == FAULT or o.status == "timeout"
    }
    return Answer(
        task.student,
        score=sum(o.points for o in outcomes),
        max_score=sum(o.max_points for o in outcomes),
        unwell=told,
        notes=tuple(note.text for note in notes),
    )


@click.command()
@click.argument("root", type=click.Path(path_type=Path))
@click.argument("lab")
@click.argument("limits")
def serve(root: Path, lab: str, limits: str) -> None:
    """Answer tasks from standard input until it closes."""
    out, sys.stdout = sys.stdout, sys.stderr  # nothing else may come between the answers
    for line in sys.stdin:
        found = answer(Task(**json.loads(line)), root, lab, json.loads(limits))
        out.write(json.dumps(vars(found)) + "\n")
        out.flush()


if __name__ == "__main__":
    serve()
