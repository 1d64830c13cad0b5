"""Says what is wrong with this machine and this folder, and for each the command that mends it.

Standard library only, syntax of Python 3.8: it must run where nothing else does. What only the
environment's own Python can tell is asked of it: bootstrap_inside.py, and a package's own doctor.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import bootstrap

SETUP = "make setup"
REPAIR = "make repair"
LITTLE_ROOM_BYTES = 10**9  # pictures, copies, a gradebook; the environment is there already
LONGEST_TMPDIR = 60  # a socket's path ends at 104 characters on macOS, and kernels add to it
DEADLINE_S = 300

ASTRAY = {  # variables that lead our programs elsewhere, and what they do
    "PYTHONPATH": "Python looks for packages there first",
    "PYTHONHOME": "Python looks for its own library there",
    "DISTLAB_CHECK": "the check of an exercise does nothing",
}


class Finding(NamedTuple):
    """One thing looked at: what was found, what mends it, or what would only be better."""

    what: str
    found: str
    mend: str = ""
    better: str = ""


def report(root: Path, python: str | None = None) -> int:
    """Prints every finding; returns 0 where nothing is to mend, else 1."""
    bad = 0
    for finding in examine(root, python):
        bad += bool(finding.mend)
        print("--" if finding.mend else "ok", f"{finding.what}: {finding.found}", flush=True)
        for word, text in (("mend", finding.mend), ("better", finding.better)):
            if text:
                print(f"     {word}: {text}", flush=True)
    print(f"{bad} to mend." if bad else "All is well.")
    return 1 if bad else 0


def examine(root: Path, python: str | None = None) -> Iterator[Finding]:
    """Yields every finding; a check that fails in itself is a finding too.

    `python` is the environment's interpreter, .venv's if it isn't given.
    """
    for what, check in MACHINE:
        yield from guarded(what, check, root)
    inside = python or str(root / ".venv" / "bin" / "python")
    broken = environment(root) if python is None else None
    if broken:
        yield broken
        return
    script = Path(__file__).with_name("bootstrap_inside.py")
    yield from asked([inside, str(script), str(root)], "environment", root)
    for path in root.glob("*/*/doctor.py"):  # a package that has one of its own
        name = path.parent.name
        yield from asked([inside, "-P", "-m", f"{name}.doctor", str(root)], name, root)


def guarded(what: str, check: Callable[[Path], Finding | None], root: Path) -> Iterator[Finding]:
    """Yields what a check finds; that it fails in itself is worth a line, and no more."""
    try:
        found = check(root)
    except Exception as problem:
        text = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        found = Finding(what, f"could not be looked at ({text})", REPAIR)
    if found:
        yield found


def asked(command: list[str], what: str, root: Path) -> Iterator[Finding]:
    """Yields the findings that a program prints, one JSON list a line, as they come."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        with subprocess.Popen(
            command,
            cwd=root,
            env=bootstrap.environment(root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as child:
            for line in child.stdout or ():
                if line.startswith("["):
                    yield Finding(*json.loads(line))
        if child.returncode:
            said.seek(0)
            lines = [line.strip() for line in said if line.strip()]
            last = lines[-1][:200] if lines else f"exit code {child.returncode}"
            yield Finding(what, f"its check broke off ({last})", REPAIR)


# --- the machine -------------------------------------------------------------------------------


def python(root: Path) -> Finding:
    """A Python 3.11 that can make an environment."""
    try:
        path = bootstrap.find_python(bootstrap.candidates(root))
    except bootstrap.Refused as problem:
        found, _, mend = str(problem).partition("; ")
        return Finding("Python", found, f"{mend.rstrip('.')}: {SETUP}")
    return Finding("Python", path)


def make(root: Path) -> Finding:
    """Make, by whose commands all else is mended."""
    if shutil.which("make"):
        return Finding("make", "is there")
    mend = "sudo apt install make (macOS: xcode-select --install); till then, "
    return Finding("make", "is not installed", mend + "python3 lib/bootstrap.py setup")


def room(root: Path) -> Finding:
    """Room on the disk of this folder."""
    free = shutil.disk_usage(root).free
    found = f"{free / 1e9:.1f} GB free"
    mend = f"make room on the disk of {root}" if free < LITTLE_ROOM_BYTES else ""
    return Finding("disk", found, mend)


def writable(root: Path) -> Finding:
    """This folder and those in it belong to who runs this."""
    below = sorted(path for path in root.iterdir() if path.is_dir() and path.name != ".git")
    for place in (root, *below):
        if not written(place):
            return Finding("folder", f"{place} can't be written", f"sudo chown -R $USER {place}")
    return Finding("folder", f"{root} can be written")


def written(place: Path) -> bool:
    """Whether a file can be made there."""
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def temporary(root: Path) -> Finding:
    """A folder for temporary files, with a path short enough for sockets."""
    try:
        place = tempfile.gettempdir()
    except OSError as problem:
        return Finding("temporary files", str(problem), "export TMPDIR=/tmp, then make it yours")
    if len(place) > LONGEST_TMPDIR:
        found = f"{place} is too long a path: kernels could not be reached"
        return Finding("temporary files", found, "export TMPDIR=/tmp")
    return Finding("temporary files", place)


def home(root: Path) -> Finding:
    """The home folder, where Jupyter and Matplotlib keep settings."""
    place = Path(os.path.expanduser("~"))
    if not place.is_dir() or not written(place):
        found = f"{place} can't be written, and Jupyter keeps its settings there"
        return Finding("home", found, "export HOME=a folder of yours")
    return Finding("home", f"{place} can be written")


def variables(root: Path) -> Finding:
    """No variable leads elsewhere."""
    for name, does in ASTRAY.items():
        if os.environ.get(name) and (name != "DISTLAB_CHECK" or os.environ[name] == "off"):
            found = f"{name} is set to {os.environ[name]}: {does}"
            return Finding("variables", found, f"unset {name}")
    return Finding("variables", "none leads elsewhere")


def loopback(root: Path) -> Finding:
    """Programs of this machine can talk to each other: JupyterLab to kernels, ranks to ranks."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()[:2], timeout=10).close()
    except OSError as problem:
        found = f"nothing can be reached at 127.0.0.1 ({problem.strerror or problem})"
        return Finding("network", found, "sudo ip link set lo up, or let your firewall pass lo")
    return Finding("network", "127.0.0.1 answers; no other address is used")


def environment(root: Path) -> Finding | None:
    """What keeps .venv from being asked, if anything does."""
    venv = root / ".venv"
    if not venv.exists():
        return Finding("environment", f"there is none yet in {venv}", SETUP)
    if not bootstrap.usable(root):
        found = f"{venv} was moved, or its Python is gone"
        return Finding("environment", found, SETUP)
    return None


def finished(root: Path) -> Finding | None:
    """The last set-up came to its end, and what it installed from has not changed since."""
    if not bootstrap.usable(root):
        return None  # told by itself
    if not bootstrap.stamped(root):
        found = "the last set-up did not end, or something was removed or changed since"
        return Finding("set-up", found, SETUP)
    return Finding("set-up", "came to its end")


MACHINE: tuple[tuple[str, Callable[[Path], Finding | None]], ...] = (
    ("Python", python),
    ("make", make),
    ("disk", room),
    ("folder", writable),
    ("temporary files", temporary),
    ("home", home),
    ("variables", variables),
    ("network", loopback),
    ("set-up", finished),
)
