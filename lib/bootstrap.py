"""Builds the environment in .venv and opens the labs; needs Python alone.

    python3 lib/bootstrap.py setup          build or bring up to date
    python3 lib/bootstrap.py lab            setup, fill work/, open JupyterLab there
    python3 lib/bootstrap.py reset LAB      a fresh copy of one lab, the old one kept beside it
    python3 lib/bootstrap.py doctor         what is wrong here, and what mends it
    python3 lib/bootstrap.py repair         setup, after a look at every installed file

Everything may be stopped at any point and started again. The file keeps to the syntax of
Python 3.8, so that an old interpreter can still say what it lacks.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import bootstrap_work as work
from bootstrap_packages import WANTED, lacking, mend, pinned
from bootstrap_work import Refused

ROOM_BYTES = 3 * 10**9  # the environment takes 1.4 GB; pip unpacks beside it
STAMP = "course.json"
LOG = "install.log"

# Variables that would send pip or Python somewhere else than .venv.
UNWANTED = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")

NO_PYTHON = (
    "Python 3.11 was not found (this is {version}); install it (Debian/Ubuntu: "
    "sudo apt install python3.11-venv, macOS: brew install python@3.11) and start again."
)
NO_VENV = (
    "Python 3.11 is here ({path}) but lacks its venv module; install it "
    "(Debian/Ubuntu: sudo apt install python3.11-venv) and start again."
)
NO_ROOM = (
    "There is not enough disk space: the environment needs about 3 GB free in {place}; "
    "make room and start again."
)
NO_NETWORK = (
    "The package index could not be reached; check the network (or the proxy) and start again: "
    "what was already installed is kept."
)
NO_WINDOWS = (
    "On Windows, use WSL (wsl --install, then clone and run this inside it) "
    "or the Binder link in the README."
)

# First match wins: a lost connection also ends in "No matching distribution found".
SYMPTOMS = (
    (r"No space left on device|Errno 28\b|Disk quota exceeded", NO_ROOM),
    (r"ensurepip is not available|No module named '?(ensurepip|venv)\b", NO_VENV),
    (
        r"name resolution|Name or service not known|nodename nor servname|NewConnectionError"
        r"|Failed to establish a new connection|Network is unreachable|ConnectionError|ProxyError"
        r"|timed out|TimeoutError|SSLError|CERTIFICATE_VERIFY_FAILED|ConnectionResetError",
        NO_NETWORK,
    ),
    (
        r"No matching distribution found for (?P<what>\S+)",
        "The package index does not offer {what} for this machine and Python.",
    ),
    (
        r"Permission denied|Errno 13\b|Read-only file system",
        "Something in {place} may not be written by this user; "
        "make it yours (chown) and start again.",
    ),
    (
        r"MemoryError|Killed",
        "The machine ran out of memory; close other programs and start again.",
    ),
)


def say(text: str) -> None:
    """Prints one plain line at once, also into a pipe."""
    print(text, flush=True)


def environment(root: Path) -> dict[str, str]:
    """The variables our programs are started with: .venv first, nothing leading elsewhere."""
    env = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    env["PATH"] = os.pathsep.join([str(root / ".venv" / "bin"), env.get("PATH", os.defpath)])
    env["VIRTUAL_ENV"] = str(root / ".venv")
    return env


def packages(root: Path) -> list[Path]:
    """Our own installable folders, found: a copy of the repository may hold fewer of them."""
    return sorted(path.parent for path in root.glob("*/pyproject.toml"))


def fingerprint(root: Path) -> str:
    """A hash of everything that decides what is installed."""
    digest = hashlib.sha256()
    for path in [root / "requirements.lock", *(p / "pyproject.toml" for p in packages(root))]:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def answers(python: str, program: str) -> str | None:
    """What a tiny program prints under that interpreter, or None where it does not run."""
    try:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def candidates(root: Path) -> list[str]:
    """Interpreters worth asking, the one that runs us first; none from the .venv to be made."""
    home = os.path.expanduser("~")
    pyenv = os.environ.get("PYENV_ROOT", os.path.join(home, ".pyenv"))
    base = getattr(sys, "_base_executable", None)  # where .venv itself runs us
    found = [sys.executable, base, shutil.which("python3.11"), shutil.which("python3")]
    for pattern in (
        os.path.join(pyenv, "versions", "3.11*", "bin", "python3.11"),
        os.path.join(home, ".local", "share", "uv", "python", "cpython-3.11*", "bin", "python3.11"),
        "/opt/homebrew/bin/python3.11",
        "/usr/local/bin/python3.11",
        "/usr/bin/python3.11",
    ):
        found += sorted(glob.glob(pattern), reverse=True)
    inside = str(root / ".venv") + os.sep
    return list(dict.fromkeys(path for path in found if path and not path.startswith(inside)))


def find_python(paths: list[str]) -> str:
    """The first interpreter that is Python 3.11 and can make an environment with pip in it.

    Raises: Refused, saying whether the version or the venv module is what lacks.
    """
    bare = None
    for path in paths:
        if answers(path, "import sys; print(*sys.version_info[:2])") != "{} {}".format(*WANTED):
            continue
        if answers(path, "import venv, ensurepip; print(1)") == "1":
            return path
        bare = bare or path
    if bare:
        raise Refused(NO_VENV.format(path=bare))
    raise Refused(NO_PYTHON.format(version="Python " + sys.version.split()[0]))


def explain(text: str, returncode: int, root: Path) -> str:
    """One sentence for what a failed command wrote."""
    if returncode == -9:
        text += "\nKilled"
    for pattern, sentence in SYMPTOMS:
        match = re.search(pattern, text)
        if match:
            what = match.groupdict().get("what", "")
            return sentence.format(place=root, path=root / ".venv", what=what)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1][:200] if lines else "nothing"
    return f"The installation stopped with exit code {returncode}; its last line was: {last}"


def logged(command: list[str], root: Path, *, total: int = 0) -> None:
    """Runs a command into .venv/install.log, counting packages on a terminal.

    Raises: Refused, with the log's place.
    """
    log = root / ".venv" / LOG
    log.parent.mkdir(exist_ok=True)
    counted, tail = 0, []
    try:
        with log.open("a", encoding="utf-8") as out:
            out.write("\n$ " + " ".join(command) + "\n")
            with subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment(root),
                cwd=root,
            ) as child:
                for line in child.stdout or ():
                    out.write(line)
                    tail = [*tail[-199:], line]
                    if line.startswith(("Collecting ", "Requirement already satisfied: ")):
                        counted += 1
                        if total and sys.stdout.isatty():
                            print(f"\r  {min(counted, total)} of {total} found", end="", flush=True)
                    elif total and line.startswith("Installing collected packages"):
                        say(("\r" if sys.stdout.isatty() else "") + "  all found, unpacking ...")
    except OSError as problem:  # the log itself: no room, no permission
        raise Refused(explain(str(problem), 1, root)) from problem
    if child.returncode:
        reason = explain("".join(tail), child.returncode, root)
        raise Refused(f"{reason} (Log: {log})")


def usable(root: Path) -> bool:
    """Whether .venv is an environment of Python 3.11 that was made at this very place."""
    python = root / ".venv" / "bin" / "python"
    if answers(str(python), "import sys; print(*sys.version_info[:2])") != "{} {}".format(*WANTED):
        return False
    pip = root / ".venv" / "bin" / "pip"  # its first line names the folder it was made for
    try:
        first = pip.read_bytes().splitlines()[:3]
    except OSError:
        return False
    return any(str(root / ".venv").encode() in line for line in first)


def stamped(root: Path) -> bool:
    """Whether the last setup came to its end and nothing has changed since, or was removed."""
    try:
        stamp = json.loads((root / ".venv" / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp == {"fingerprint": fingerprint(root), "at": str(root)} and not lacking(root)


@contextlib.contextmanager
def alone(root: Path):
    """Lets one setup at a time work in this folder; freed by the system when we end, however."""
    import fcntl  # not on Windows, which was refused before

    fd = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another setup is running here; waiting for it ...")
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: as careful as it gets
        yield
    finally:
        os.close(fd)


def make_venv(root: Path) -> None:
    """Creates .venv, clearing away one that can't be used.

    Raises: Refused.
    """
    venv = root / ".venv"
    python = find_python(candidates(root))
    if venv.exists():
        if os.listdir(venv) and not any((venv / n).exists() for n in ("pyvenv.cfg", LOG)):
            raise Refused(f"{venv} is no Python environment; move it away and start again.")
        say("The environment in .venv was moved or is broken; building it anew.")
        shutil.rmtree(venv)
    if shutil.disk_usage(root).free < ROOM_BYTES:
        raise Refused(NO_ROOM.format(place=root))
    say(f"Creating .venv with {python} ...")
    logged([python, "-m", "venv", str(venv)], root)


def setup(root: Path) -> None:
    """Brings .venv to the state the lock file describes; returns at once when it is there.

    Raises: Refused.
    """
    with alone(root):
        if stamped(root) and usable(root):
            return
        if not usable(root):
            make_venv(root)
        (root / ".venv" / STAMP).unlink(missing_ok=True)
        lock, total = root / "requirements.lock", len(pinned(root))
        python = str(root / ".venv" / "bin" / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        say(f"Installing {total} packages (1.4 GB; the log is .venv/{LOG}) ...")
        for name in mend(root):
            say(f"  {name} was only half there; it is installed again")
        logged([*pip, "-r", str(lock)], root, total=total)
        ours = packages(root)
        say("Installing our own: " + ", ".join(path.name for path in ours) + " ...")
        editable = [part for path in ours for part in ("-e", str(path))]
        logged([*pip, "--no-deps", "--no-build-isolation", *editable], root)
        stamp = {"fingerprint": fingerprint(root), "at": str(root)}
        fresh = root / ".venv" / (STAMP + ".new")
        fresh.write_text(json.dumps(stamp), encoding="utf-8")
        os.replace(fresh, root / ".venv" / STAMP)
        say("The environment in .venv is ready.")


def repair(root: Path) -> None:
    """Brings .venv to its state even where the stamp says that it is there.

    Raises: Refused.
    """
    (root / ".venv" / STAMP).unlink(missing_ok=True)
    setup(root)


def main(arguments: list[str], root: Path) -> int:
    """Runs one command; returns the exit code, after at most one sentence on stderr."""
    try:
        if os.name == "nt":
            raise Refused(NO_WINDOWS)
        if sys.version_info < (3, 8):  # noqa: UP036 - the one line that an old Python is for
            raise Refused(NO_PYTHON.format(version="Python " + sys.version.split()[0]))
        command, *rest = arguments or ["setup"]

        if command == "setup" and not rest:
            setup(root)
        elif command == "lab" and not rest:
            setup(root)
            work.fill(root, say)
            return work.open_lab(root, environment(root), say)
        elif command == "reset" and len(rest) == 1:
            work.reset(root, rest[0], say)
        elif command == "repair" and not rest:
            repair(root)
        elif command == "doctor" and len(rest) <= 1:
            import bootstrap_doctor  # it imports us: only now are we whole

            return bootstrap_doctor.report(root, *rest)
        else:
            known = "setup | lab | reset LAB (such as lab03) | doctor | repair"
            raise Refused(f"Commands: {known}.")
    except Refused as problem:
        print(problem.args[0], file=sys.stderr, flush=True)
        return 1
    except OSError as problem:
        print(explain(str(problem), 1, root), file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("Stopped; start again to go on from here.", file=sys.stderr, flush=True)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent.parent))
