"""The student's folder: work/, filled from release/, never over a student's file.

Standard library only, syntax of Python 3.8: it runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bootstrap_reading as reading

RECORD = ".released.json"  # in work/: what each copy was when it was taken
START = "start.ipynb"  # in work/: the labs, and how far one is; made by distlab.learn
LAB_LOG = "lab.log"  # in .venv: what JupyterLab and the kernels say


class Refused(Exception):
    """One sentence for the person at the keyboard."""


def digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def released(root: Path) -> list[str]:
    """Every file of release/, relative, without hidden ones (checkpoints)."""
    top = root / "release"
    found = (p.relative_to(top) for p in top.rglob("*") if p.is_file())
    return sorted(p.as_posix() for p in found if not any(s.startswith(".") for s in p.parts))


def read_record(work: Path) -> dict[str, str]:
    """What was copied when, as digests; empty where it was lost."""
    try:
        record = json.loads((work / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(work: Path, record: dict[str, str]) -> None:
    """Replaces the record in one step."""
    fresh = work / (RECORD + ".new")
    fresh.write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
    os.replace(fresh, work / RECORD)


def copy_new(source: Path, target: Path) -> bool:
    """Copies a file to a place where none is; returns whether it did. Whole or not at all."""
    if os.path.lexists(target):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    fd, part = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    os.close(fd)
    try:
        shutil.copyfile(source, part)
        os.chmod(part, 0o644)
        try:
            os.link(part, target)  # refuses an existing target, however late it came
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            if os.path.lexists(target):
                return False
            os.replace(part, target)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def fill(root: Path, say: Callable[[str], None]) -> None:
    """Adds to work/ what it lacks of release/, and texts to read beside; names what has changed."""
    work = root / "work"
    work.mkdir(exist_ok=True)
    record, added, stale = read_record(work), 0, []
    for name in released(root):
        source = root / "release" / name
        now = digest(source)
        if copy_new(source, work / name):
            record[name] = now
            added += 1
        elif record.setdefault(name, now) != now:
            stale.append(name)
    reading.refresh(root, record)
    write_record(work, record)
    if added:
        files = "1 new file" if added == 1 else f"{added} new files"
        say(f"Copied {files} to work/ (your own stay as they are).")
    for name in stale:
        lab = name.split("/")[0]
        say(
            f"{name} has changed since you took your copy; yours is kept. "
            f"`make reset LAB={lab}` takes the new one and keeps yours beside it."
        )


def find_lab(root: Path, key: str) -> str:
    """The one folder of release/ that is called, or starts with, the key.

    Raises: Refused, with a sentence.
    """
    labs = sorted(p.name for p in (root / "release").glob("*") if p.is_dir())
    fitting = [n for n in labs if n == key] or [n for n in labs if key and n.startswith(key)]
    if len(fitting) != 1:
        have = ", ".join(fitting or labs) or "none yet"
        raise Refused(f"Say which lab, as in `make reset LAB=lab03` (there are: {have}).")
    return fitting[0]


def put_aside(path: Path) -> Path:
    """Renames lab.ipynb to lab.mine-1.ipynb, or the next free number; returns the new place."""
    number = 1
    while True:
        aside = path.with_name(f"{path.stem}.mine-{number}{path.suffix}")
        if not os.path.lexists(aside):
            os.rename(path, aside)
            return aside
        number += 1


def reset(root: Path, key: str, say: Callable[[str], None]) -> None:
    """Takes a fresh copy of one lab's files; what the student changed is kept beside it.

    Raises: Refused where the key names no lab.
    """
    lab, work = find_lab(root, key), root / "work"
    work.mkdir(exist_ok=True)
    record = read_record(work)
    for name in released(root):
        if not name.startswith(lab + "/"):
            continue
        source, target = root / "release" / name, work / name
        if os.path.lexists(target) and not (target.is_file() and digest(target) == digest(source)):
            say(f"Your work/{name} is now {put_aside(target).name}.")
        copy_new(source, target)
        record[name] = digest(source)
    write_record(work, record)
    say(f"work/{lab} is fresh.")


def write_start_page(
    root: Path, python: str, env: dict[str, str], say: Callable[[str], None]
) -> None:
    """Writes the start page of work/ anew; without one the labs still open."""
    done = subprocess.run(
        [python, "-m", "distlab.learn", str(root / "work")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout if done.returncode == 0 else done.stderr).strip()
    if said:
        say(said.splitlines()[-1])


def wants_browser(env: dict[str, str]) -> bool:
    """Whether a browser should be opened: not when refused, and not where there is no screen."""
    refused = (env.get("OPEN", ""), env.get("BROWSER", ""))
    if any(value.lower() in ("no", "none", "0", "false") for value in refused):
        return False
    return sys.platform == "darwin" or any(env.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


def lab_command(env: dict[str, str]) -> list[str]:
    """The command for JupyterLab: this machine only, a free port, Ctrl-C stops it unasked."""
    command = [
        "jupyter-lab",
        "--ip=127.0.0.1",
        "--ServerApp.port_retries=100",
        "--ServerApp.answer_yes=True",
        "--Application.log_level=WARN",
    ]
    if not wants_browser(env):
        command.append("--no-browser")
    if os.geteuid() == 0:
        command.append("--allow-root")
    return command


def open_lab(root: Path, env: dict[str, str], say: Callable[[str], None]) -> int:
    """Starts JupyterLab in work/, prints its address once it listens; returns its exit code.

    Raises: Refused where it ends at once.
    """
    mine = str(root / "lib" / "jupyter")
    env["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, [mine, env.get("JUPYTER_CONFIG_PATH")])
    )
    env["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of .venv, not one of the same name elsewhere
    env.setdefault("DISTLAB_REVEAL", "on")  # who starts it is alone; a class sets it to off
    write_start_page(root, str(root / ".venv" / "bin" / "python"), env, say)
    runtime = Path(env.setdefault("JUPYTER_RUNTIME_DIR", str(root / ".venv" / "run")))
    say("Starting JupyterLab in work/ ...")
    log = root / ".venv" / LAB_LOG
    log.unlink(missing_ok=True)  # a JupyterLab that is still open goes on writing to its own
    command = lab_command(env)
    command[0] = str(root / ".venv" / "bin" / command[0])
    page = "lab/tree/" + START if (root / "work" / START).exists() else "lab"
    command.append("--LabApp.default_url=/" + page)
    with log.open("w", encoding="utf-8") as out:
        child = subprocess.Popen(
            command, cwd=root / "work", env=env, stdout=out, stderr=subprocess.STDOUT
        )
    # Ctrl-C reaches the child by itself; we only wait for it. A polite kill is passed on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: child.terminate())
    info = runtime / f"jpserver-{child.pid}.json"
    while child.poll() is None and not info.exists():
        time.sleep(0.1)
    if child.poll() is not None:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "nothing"
        raise Refused(f"JupyterLab did not start; its last line was: {last} (Log: {log})")
    say("")
    say("    JupyterLab is open at  " + address(info, page))
    say("")
    say(
        f"What you save is in work/. Ctrl-C here stops it; its own messages are in .venv/{LAB_LOG}."
    )
    code = child.wait()
    return 0 if code in (0, -signal.SIGTERM) else code


def address(info: Path, page: str = "lab") -> str:
    """The address a browser needs to open a page, the token in it, from the server's own note."""
    while True:
        try:
            server = json.loads(info.read_text(encoding="utf-8"))
        except ValueError:  # it is being written
            time.sleep(0.05)
            continue
        token = "?token=" + server["token"] if server["token"] else ""
        return server["url"] + page + token


if __name__ == "__main__":  # where the packages are there already: Binder starts with this
    here = Path(__file__).resolve().parent.parent
    fill(here, print)
    write_start_page(here, sys.executable, dict(os.environ), print)
