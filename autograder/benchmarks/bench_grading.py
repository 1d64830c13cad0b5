"""Grades the same class with stock nbgrader and with `distgrade grade`, in one run.

Stock: nbgrader's own preprocessors and its own kernels, one submission after the other, the hidden
cells as students' machines run them. Ours: parallel, warm, confined. Prints seconds, their ratio,
where they go, the marks that differ (none may), memory, and what 300 students would take. Run it
with `make bench`, or `python bench_grading.py STUDENTS`. Seconds on the clock move with the
machine's load, which is printed; those of computing hardly do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from distgrade.classroom import demo as class_demo
from distgrade.classroom.parallel import cores
from distgrade.course import Course, find_course
from distgrade.notebook import exercise_of, graded_cells, read_notebook
from distgrade.running.kernel import Kernel

try:
    import pyprctl
except Exception:  # not Linux
    pyprctl = None

LAB = "lab03-tensor-parallel"
KINDS = ("01-perfect", "03-half-done", "07-another-way")  # honest work that both must agree on
STUDENTS = 30
CLASS = 300
STOCK = """
import os
c = get_config()
c.CourseDirectory.root = {root!r}
c.CourseDirectory.course_id = "distlab"
c.Execute.timeout = 300
os.environ["PATH"] = {programs!r} + os.pathsep + os.environ["PATH"]
os.environ["DISTLAB_CHECK"] = "off"
"""


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds on the clock and of computing, and bytes at the most.

    `by_kind` has the seconds of computing of each kind of process, and `began_s` the time of day.
    """

    wall_s: float
    cpu_s: float
    memory_bytes: int
    by_kind: dict[str, float]
    began_s: float


def main(students: int) -> int:
    """Runs both and prints what they took; returns 1 if a mark differs."""
    console = Console()
    course = find_course()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ours, stock = Path(folder) / "ours", Path(folder) / "stock"
        for root in (ours, stock):
            hand_in(course, root, students)
        shutil.copytree(course.root / "release" / LAB, ours / "release" / LAB)
        shutil.copy(course.root / "nbgrader_config.py", ours)
        (stock / "nbgrader_config.py").write_text(
            STOCK.format(root=str(stock), programs=os.path.dirname(sys.executable))
        )
        loads = [os.getloadavg()[0]]
        costs = {}
        grade = [sys.executable, "-m", "distgrade.cli", "grade", LAB]
        costs["distgrade grade"] = cost_of(grade, ours)
        loads.append(os.getloadavg()[0])
        nbgrader = [sys.executable, "-m", "nbgrader"]
        cost_of([*nbgrader, "generate_assignment", LAB], stock)
        costs["nbgrader autograde"] = cost_of([*nbgrader, "autograde", LAB], stock)
        loads.append(os.getloadavg()[0])
        console.print(table(costs, students))
        console.print(phases(ours, costs["distgrade grade"]))
        told = (f"{k} {cpu_s:.0f}" for k, cpu_s in costs["distgrade grade"].by_kind.items())
        console.print(f"Its CPU s: {', '.join(told)}.")
        told = ", ".join(f"{load:.1f}" for load in loads)
        console.print(f"{cores()} cores; load before, between and after: {told}.")
        console.print(f"One kernel: {kernel_memory()}.")
        console.print(outlook(costs, students))
        wrong = differing(ours, stock)
    console.print(f"Marks that differ: {', '.join(wrong) or 'none'}.")
    return bool(wrong)


def hand_in(course: Course, root: Path, students: int) -> None:
    """Writes the source of the lab and a class of honest submissions, each one's code its own."""
    shutil.copytree(course.root / "source" / LAB, root / "source" / LAB)
    kinds = [s for s in class_demo.submissions(course, LAB) if s.student in KINDS]
    for number in range(students):
        nb = deepcopy(kinds[number % len(kinds)].notebook)
        cell = next(c for c in nb.cells if c.cell_type == "code" and "def " in c.source)
        cell.source += f"\n# student {number}"
        class_demo.write_raw(root / "submitted" / f"s{number:03}" / LAB / f"{LAB}.ipynb", nb)


def cost_of(command: list[str], root: Path) -> Cost:
    """Returns what a command took, with all that it started."""
    if pyprctl is not None:
        pyprctl.set_child_subreaper(True)  # whoever is left ends as a child of ours, and is counted
    before, began, began_s = os.times(), time.monotonic(), time.time()
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    watch = Watch(process.pid)
    said = process.communicate()[1]
    wall_s = time.monotonic() - began
    watch.stop()
    collect_orphans()
    after = os.times()
    if process.returncode:
        sys.exit(f"{' '.join(command[1:])} failed:\n{said[-3000:]}")
    waited_s = after.children_user - before.children_user
    waited_s += after.children_system - before.children_system
    cpu_s = max(waited_s, sum(watch.cpu_s.values()))
    seen = {kind: watch.cpu_s[kind] for kind in ("command", "workers") if watch.cpu_s[kind]}
    kinds = seen | {"kernels and the rest": cpu_s - sum(seen.values())}
    return Cost(wall_s, cpu_s, watch.most_bytes, kinds, began_s)


def collect_orphans() -> None:
    """Waits for what the command left behind and is about to end, half a minute at most."""
    deadline = time.monotonic() + 30
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)


class Watch(threading.Thread):
    """Looks at a family of processes every second: what they hold and have computed."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self._family = psutil.Process(pid)
        self._over = threading.Event()
        self._times: dict[int, tuple[str, float]] = {}
        self.most_bytes = 0
        self.start()

    @property
    def cpu_s(self) -> Counter:
        """The seconds computed by kind; a process that lived between two looks is not seen."""
        found = Counter()
        for kind, cpu_s in self._times.values():
            found[kind] += cpu_s
        return found

    def run(self) -> None:
        """Looks until it is stopped."""
        while not self._over.wait(1.0):
            held = 0
            for process in self._everyone():
                try:
                    held += process.memory_full_info().pss  # shared pages are counted once
                    times = process.cpu_times()
                    kind = self._times.get(process.pid) or (self._kind(process), 0.0)
                    self._times[process.pid] = (kind[0], times.user + times.system)
                except psutil.Error:
                    continue
            self.most_bytes = max(self.most_bytes, held)

    def _kind(self, process: psutil.Process) -> str:
        if process == self._family:
            return "command"
        return "workers" if "multiprocessing" in " ".join(process.cmdline()) else "kernels"

    def _everyone(self) -> list[psutil.Process]:
        try:
            return [self._family, *self._family.children(recursive=True)]
        except psutil.Error:
            return []

    def stop(self) -> None:
        """Ends it."""
        self._over.set()
        self.join()


def kernel_memory() -> str:
    """Returns what one kernel holds after its imports: by itself, and shared with its host."""
    with Kernel() as kernel:
        kernel.execute("import torch, distlab", lambda *_: None, timeout_s=60)
        memory = psutil.Process(kernel.pid).memory_full_info()
        own, all_of_it = memory.uss / 2**20, memory.rss / 2**20
        return f"{own:.0f} MiB of its own, {all_of_it:.0f} MiB with what it shares"


def table(costs: dict[str, Cost], students: int) -> Table:
    """Returns the costs, and how many times less ours is."""
    shown = Table(title=f"{students} submissions of {LAB}", title_justify="left")
    for name in ("", "wall s", "s each", "CPU s", "MiB at most"):
        shown.add_column(name, justify="right" if name else "left")
    for name, cost in costs.items():
        shown.add_row(
            name,
            f"{cost.wall_s:.0f}",
            f"{cost.wall_s / students:.2f}",
            f"{cost.cpu_s:.0f}",
            f"{cost.memory_bytes / 2**20:.0f}",
        )
    ours, stock = costs["distgrade grade"], costs["nbgrader autograde"]
    walls, cpus = stock.wall_s / ours.wall_s, stock.cpu_s / ours.cpu_s
    shown.add_row("ratio", f"{walls:.1f}", "", f"{cpus:.1f}", "")
    return shown


def phases(ours: Path, cost: Cost) -> str:
    """Returns how long each phase of our grading took, by when its files were written."""
    verdicts, autograded = ours / ".distgrade" / "verdicts" / LAB, ours / "autograded"
    runs = sorted(p.stat().st_mtime - cost.began_s for p in verdicts.glob("*.json"))
    written = max(p.stat().st_mtime for p in autograded.rglob("*.ipynb")) - cost.began_s
    return (
        f"distgrade grade: {runs[0]:.1f} s until the first verdict, then {len(runs) - 1} more in "
        f"{runs[-1] - runs[0]:.1f} s, while marks are written; the last marks "
        f"{max(written - runs[-1], 0):.1f} s later; {cost.wall_s - max(written, runs[-1]):.1f} s "
        "until the end."
    )


def outlook(costs: dict[str, Cost], students: int) -> str:
    """Returns what a large class would take on this machine, by proportion."""
    told = []
    for name, cost in costs.items():
        hours, gib = cost.wall_s / students * CLASS / 3600, cost.memory_bytes / 2**30
        told.append(f"{name} {hours:.2f} h and {gib:.1f} GiB")
    return f"{CLASS} students here: {'; '.join(told)}."


def differing(ours: Path, stock: Path) -> list[str]:
    """Returns the student and exercise of each mark on which the two gradebooks differ."""
    tests = graded_cells(read_notebook(ours / "release" / LAB / f"{LAB}.ipynb"))
    names = [exercise_of(test, LAB) for test in tests]
    found = []
    for path in sorted((ours / "submitted").iterdir()):
        a, b = (class_demo.marks(root, LAB, path.name) for root in (ours, stock))
        found += [f"{path.name} {n}" for n in names if a[n].points != b[n].points]
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else STUDENTS))
