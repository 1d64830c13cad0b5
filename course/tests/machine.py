"""A machine for one course folder: its own .venv, its own set-up, and nothing from the network.

What pip would have fetched comes from the environment that runs the tests, by hard links where the
disk is the same: the packages of the folder's requirements.lock and no other. `make setup` then
finds them and adds the folder's own packages. pip is told to fetch nothing, so it replaces nothing.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
ASTRAY = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "DISTLAB_CHECK", "DISTGRADE_SECRET")
BARE = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))


def prepare(root: Path) -> None:
    """Makes root/.venv, with the packages of the lock file and pip in it."""
    venv = root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    lock = (root / "requirements.lock").read_text("utf-8")
    for name in ["pip", *re.findall(r"^([^#\s=]+)==", lock, re.M)]:
        bring(metadata.distribution(name), site, venv)
    here = Path(sys.prefix)
    for folder in ("share", "etc"):  # JupyterLab's extensions, the kernel
        if (here / folder).is_dir() and not (venv / folder).exists():
            (venv / folder).symlink_to(here / folder)


def bring(package: metadata.Distribution, site: Path, venv: Path) -> None:
    """Puts one installed package into another environment: files of its own, its programs anew."""
    for path in package.files:
        if path.parts[0] == "..":
            continue  # in bin/ or share/
        source, target = Path(str(package.locate_file(path))), site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "RECORD" and len(path.parts) == 2:
            kept = [x for x in source.read_text("utf-8").splitlines() if x[:3] != "../"]
            target.write_text("\n".join(kept) + "\n", "utf-8")
        elif source.is_file():
            copy(source, target)
    for command in package.entry_points.select(group="console_scripts"):
        program = venv / "bin" / command.name
        first = command.attr.partition(".")[0]
        program.write_text(
            f"#!{venv}/bin/python\nimport sys\nfrom {command.module} import {first}\n"
            f"sys.exit({command.attr}())\n"
        )
        program.chmod(0o755)


def copy(source: Path, target: Path) -> None:
    """Makes a file appear at another place; without a copy of its bytes where the disk allows."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)  # the time as well: what is compiled goes by it


def clear(root: Path) -> None:
    """Removes the environment, so that no test leaves a gigabyte behind."""
    shutil.rmtree(root / ".venv", ignore_errors=True)


def variables(**more: str) -> dict[str, str]:
    """Returns the variables of a person who has activated nothing and has no network."""
    kept = {name: value for name, value in os.environ.items() if name not in ASTRAY}
    return kept | OFFLINE | {"PATH": path_of_bare(), "OPEN": "no"} | more


def path_of_bare() -> str:
    """Returns the programs of the system and of a Python 3.11, without those of this .venv."""
    return os.pathsep.join([os.path.dirname(os.path.realpath(sys.executable)), BARE])


def shell(root: Path, line: str, **more: str) -> subprocess.CompletedProcess:
    """Runs one line as a person types it, in that folder."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=root,
        env=variables(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
