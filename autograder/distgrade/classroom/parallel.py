"""Several processes grade submissions at once; one that dies takes only its submission along, once.

Each worker is a process of its own with a kernel host of its own. It gets one task at a time, a
JSON object on a line, and answers with one. What it finds out it keeps (`verdicts`), so a run that
is broken off goes on where it stopped. Python's own pools end as a whole when one process is
killed, by the kernel's memory guard for example; here it is started again. One that hangs is ended,
and when whoever asked is gone, however that came, its workers end too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from distgrade import quickly  # noqa: F401 (before what imports nbformat)

OWN_FAULT = "the grader's own fault"  # what an answer says of an exercise that we can't grade
TRIES = 2
GRACE_S = 5.0
SLACK_S = 600.0  # what a notebook's own limit leaves out: kernels that start, the comparisons


@dataclass(frozen=True)
class Task:
    """A submission to grade: whose, and the notebook's path."""

    student: str
    path: str


@dataclass(frozen=True)
class Answer:
    """What became of a task: points and the states of its exercises, or why there are none.

    `unwell` names exercises that a person should look at, with the reason. `ours` says that `why`
    is about this machine, and not about the submission.
    """

    student: str
    score: float | None = None
    max_score: float = 0.0
    why: str = ""
    unwell: dict[str, str] | None = None
    notes: tuple[str, ...] = ()
    ours: bool = False


class Worker:
    """One process that grades what it is given, each within `longest_s` seconds."""

    def __init__(self, root: Path, lab: str, limits: dict, longest_s: float):
        self._command = [sys.executable, "-m", "distgrade.classroom.parallel", str(root), lab]
        self._command.append(json.dumps(limits))
        self._log = root / ".distgrade" / "grading.log"
        self._longest_s = longest_s
        self._process: subprocess.Popen | None = None
        self._over = False

    def grade(self, task: Task) -> Answer:
        """Returns the answer to a task; starts the process again if it dies over it."""
        for _ in range(TRIES):
            try:
                process = self._started()
            except OSError as error:
                return Answer(task.student, why=f"no process could be started: {error}", ours=True)
            late = threading.Event()
            watch = threading.Timer(self._longest_s, self._end, (process, late))
            watch.start()
            try:
                process.stdin.write(json.dumps(vars(task)) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except (OSError, ValueError):  # it is dead; or closed here, because the run ends
                line = ""
            finally:
                watch.cancel()
            if line.endswith("\n"):
                return Answer(**json.loads(line))
            self._close()
            if self._over:
                break
            if late.is_set():
                return Answer(task.student, why=f"stopped after {self._longest_s:g} s: it hung")
        return Answer(
            task.student, why=f"the process that graded it died {TRIES} times (out of memory?)"
        )

    @staticmethod
    def _end(process: subprocess.Popen, late: threading.Event) -> None:
        late.set()
        process.kill()

    def _started(self) -> subprocess.Popen:
        if self._process is None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log:  # what goes wrong in there, at its full length
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,  # an interrupt is for the command, which ends them
                )
        return self._process

    def dismiss(self) -> None:
        """Tells the process to end, even in the middle of a submission, and starts no other."""
        self._over = True
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def close(self) -> None:
        """Ends the process, for good; its kernel host ends with it."""
        self.dismiss()
        self._close()

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def cores() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def grade_all(
    root: Path,
    lab: str,
    tasks: Sequence[Task],
    *,
    jobs: int,
    limits: dict,
    longest_s: float | None = None,
) -> Iterator[Answer]:
    """Yields an answer to each task, as they come. Ended early, it ends its processes."""
    if longest_s is None:
        longest_s = limits["notebook_s"] + SLACK_S
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    done: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    workers = [Worker(root, lab, limits, longest_s) for _ in range(min(jobs, len(tasks)))]

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
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.close()


class NotKept(Exception):
    """A submission must run: no verdicts are kept, or not all."""


def kept_answer(task: Task, root: Path, lab: str) -> Answer | None:
    """Returns the answer to a task that needs no kernel, from what is kept, or None."""

    def none():
        raise NotKept

    with contextlib.suppress(NotKept):
        return answer(task, root, lab, {}, kernel=none)
    return None


def answer(task: Task, root: Path, lab: str, limits: dict, **how) -> Answer:
    """Grades one submission and keeps the verdicts; every failure is a sentence."""
    from distgrade.check import edition_for
    from distgrade.course import Course, CourseError
    from distgrade.exercise import GraderError
    from distgrade.notebook import NotebookError, read_notebook
    from distgrade.rebuild import rebuild
    from distgrade.running.runner import Limits
    from distgrade.verdicts import FAULT, grade_built

    course = Course(root)
    try:
        submission = read_notebook(Path(task.path))
        built, notes = rebuild(submission, edition_for(course, lab, submission))
        graded = grade_built(built, lab, course, limits=Limits(**limits), keep=True, **how)
    except NotKept:
        raise
    except (NotebookError, CourseError) as error:
        return Answer(task.student, why=str(error))
    except GraderError as error:
        return Answer(task.student, why=str(error), ours=True)
    except OSError as error:
        why = f"{error.strerror or error}: {error.filename or 'a file'}"
        return Answer(task.student, why=why, ours=True)
    except Exception as error:
        logging.getLogger("distgrade").exception("%s of %s", lab, task.student)
        return Answer(task.student, why=f"a fault of the grader: {type(error).__name__}: {error}")
    outcomes = graded.outcomes.values()
    told = {
        o.id: OWN_FAULT if o.message == FAULT else o.message.splitlines()[0]
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
    """Answer tasks from standard input until it closes: then whoever asked is gone."""
    out, sys.stdout = sys.stdout, sys.stderr  # nothing else may come between the answers
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            asked.put(line)
        os.kill(os.getpid(), signal.SIGINT)  # in the middle of a submission: its kernel ends too
        threading.Event().wait(GRACE_S)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        while True:
            found = answer(Task(**json.loads(asked.get())), root, lab, json.loads(limits))
            out.write(json.dumps(vars(found)) + "\n")
            out.flush()


if __name__ == "__main__":
    serve()
