"""Several processes grade submissions at once; one that dies takes only its submission along, once.

Each worker is a process of its own with a kernel host of its own, both forked from a `crew`. It
gets one task at a time and answers with one. What it finds out it keeps (`verdicts`), so a run that
is broken off goes on where it stopped. Python's own pools end as a whole when one process is
killed, by the kernel's memory guard for example; here it is started again. One that hangs is ended,
and when whoever asked is gone, however that came, its workers end too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socket

from distgrade import quickly  # noqa: F401 (before what imports nbformat)
from distgrade.classroom.crew import PROCESSES, Crew, starting
from distgrade.running.kernels import adopt, close_idle

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
    """One process that grades what it is given, each within `longest_s` seconds.

    `serve(tasks, answers, wire)` runs in it, on two one-way connections and the wire to a kernel
    host, which `host` gives, or None.
    """

    def __init__(self, serve: Callable, longest_s: float, host: Callable[[], socket | None]):
        self._serve, self._longest_s, self._host = serve, longest_s, host
        self._process = None
        self._tasks: Connection | None = None
        self._answers: Connection | None = None
        self._over = False

    def grade(self, task: Task) -> Answer:
        """Returns the answer to a task; starts the process again if it dies over it."""
        for _ in range(TRIES):
            try:
                self._start()
            except OSError as error:
                return Answer(task.student, why=f"no process could be started: {error}", ours=True)
            late = False
            try:
                self._tasks.send(task)
                if self._answers.poll(self._longest_s):
                    return self._answers.recv()
                late = True
                self._process.kill()
            except (OSError, EOFError):  # it is dead; or closed here, because the run ends
                pass
            self._close()
            if self._over:
                break
            if late:
                return Answer(task.student, why=f"stopped after {self._longest_s:g} s: it hung")
        return Answer(
            task.student, why=f"the process that graded it died {TRIES} times (out of memory?)"
        )

    def _start(self) -> None:
        if self._process is not None:
            return
        wire = self._host()
        theirs, self._tasks = PROCESSES.Pipe(duplex=False)
        self._answers, ours = PROCESSES.Pipe(duplex=False)
        with starting(), theirs, ours, wire or contextlib.nullcontext():
            process = PROCESSES.Process(target=self._serve, args=(theirs, ours, wire), daemon=True)
            process.start()
        self._process = process

    def dismiss(self) -> None:
        """Tells the process to end, even in the middle of a submission, and starts no other."""
        self._over = True
        tasks = self._tasks
        if tasks is not None:
            with contextlib.suppress(OSError):
                tasks.close()

    def close(self) -> None:
        """Ends the process, for good; its kernel host ends with it."""
        self.dismiss()
        self._close()

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._tasks.close()
            process.join(GRACE_S)
            process.kill()
            process.join()
            self._answers.close()


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
    crew: Crew | None = None,
) -> Iterator[Answer]:
    """Yields an answer to each task, as they come. Ended early, it ends its processes.

    They come from `crew`, or from one of its own.
    """
    if longest_s is None:
        longest_s = limits["notebook_s"] + SLACK_S
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    done: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    own = Crew() if crew is None else None
    hosts = (own or crew).hosts
    serve = partial(serve_tasks, root, lab, limits, dict(os.environ))
    workers = [Worker(serve, longest_s, hosts.another) for _ in range(min(jobs, len(tasks)))]

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
        if own is not None:
            own.close()


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


def serve_tasks(
    root: Path,
    lab: str,
    limits: dict,
    environment: dict[str, str],
    tasks: Connection,
    answers: Connection,
    wire: socket | None,
) -> None:
    """Answers tasks until nobody asks any more; its words go to the log, at their full length."""
    os.environ.clear()
    os.environ.update(environment)  # of whoever asks; the process this is a fork of may be older
    with contextlib.suppress(OSError):
        os.setsid()  # an interrupt is for the command, which ends this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = root / ".distgrade"
    with contextlib.suppress(OSError):  # on a full disk there is none, and the answers say so
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "grading.log").open("ab") as log:
            for fd in (1, 2):
                os.dup2(log.fileno(), fd)
    _one_thread()
    asked: queue.SimpleQueue[Task] = queue.SimpleQueue()

    def read() -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                asked.put(tasks.recv())
        os.kill(os.getpid(), signal.SIGINT)  # in the middle of a submission: its kernel ends too
        threading.Event().wait(GRACE_S)
        os._exit(1)

    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        if wire is not None:
            adopt(wire)
        threading.Thread(target=read, daemon=True).start()
        while True:
            answers.send(answer(asked.get(), root, lab, limits))
    close_idle()


def _one_thread() -> None:
    """Keeps torch to one thread: tensors are tiny, and other workers have the other cores."""
    import torch

    torch.set_num_threads(1)
