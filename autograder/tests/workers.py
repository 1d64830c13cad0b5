"""What test workers do in processes of their own. It imports little.

`starts` is a file with a letter for each process that was started.
"""

import contextlib
import os
import signal
import time

from distgrade.classroom import parallel
from distgrade.classroom.parallel import Answer


def dies_once(starts, tasks, answers, wire):
    task = tasks.recv()
    if len(starts.read_text()) > 1:
        answers.send(Answer(task.student, score=1.0))


def dies(starts, tasks, answers, wire):
    tasks.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def says_half(starts, tasks, answers, wire):
    tasks.recv()
    os.write(answers.fileno(), b"\0\0\1\0half")  # of the 256 bytes that it announces


def hangs_over_anna(starts, tasks, answers, wire):
    with contextlib.suppress(EOFError):
        while task := tasks.recv():
            if task.student == "anna":
                time.sleep(600)
            answers.send(Answer(task.student, score=2.0))


def answers_anna_only(starts, tasks, answers, wire):
    with contextlib.suppress(EOFError):
        while True:
            if tasks.recv().student == "anna":
                answers.send(Answer("anna", score=1.0))


def is_busy(told, root, tasks, answers, wire):
    """The true loop of a worker, but for what it does with a task."""

    def busy(*_):
        try:
            told.send("busy")
            time.sleep(600)
        finally:  # a kernel ends and its folder goes in such a place
            told.send("tidy")

    parallel.answer = busy
    parallel._one_thread = lambda: None
    parallel.serve_tasks(root, "lab", {}, dict(os.environ), tasks, answers, wire)
