"""What workers and their kernels are forked from: two processes that import everything, once.

They start at once and import in the background. Where forking is unsafe there are none, and each
worker is a new process.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

from distgrade.running.kernels import CAN_FORK, Hosts
from distlab.forkserver import no_main_module, quiet_helpers

PROCESSES = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
# Importing is all that may happen before a fork.
PRELOADED = ["distgrade.quickly", "distgrade.check", "torch.fx.experimental.symbolic_shapes"]


_one_at_a_time = threading.Lock()


@contextmanager
def starting() -> Iterator[None]:
    """Has processes of `PROCESSES` start without the script that asks for them, one at a time."""
    with _one_at_a_time, no_main_module(), quiet_helpers():
        yield


class Crew:
    """The two, for as long as somebody grades."""

    def __init__(self):
        self.hosts = Hosts()
        if CAN_FORK:
            PROCESSES.set_forkserver_preload(PRELOADED)
            with starting():
                forkserver.ensure_running()

    def close(self) -> None:
        """Ends the kernel hosts; the other one ends with this process, as it may serve others."""
        self.hosts.close()


def register_of(root: Path, lab: str) -> Path:
    """Returns the file in which `register` notes whose marks are written."""
    return root / ".distgrade" / "graded" / f"{lab}.json"


@contextmanager
def early(root: Path, lab: str, *, surely: bool = False) -> Iterator[Crew | None]:
    """Gives a crew if somebody's submission will surely run: it starts while the rest is imported.

    Told from names alone, so it may be None where there is work: whoever needs one makes one.
    """
    try:
        noted = json.loads(register_of(root, lab).read_text("utf-8"))
        graded = {name for name, about in noted.items() if "what" in about}
    except (OSError, ValueError, AttributeError, TypeError):
        graded = set()
    handed_in = {path.parents[1].name for path in root.glob(f"submitted/*/{lab}/{lab}.ipynb")}
    crew = Crew() if handed_in - graded or (handed_in and surely) else None
    try:
        yield crew
    finally:
        if crew is not None:
            crew.close()
