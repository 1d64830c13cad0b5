"""A machine for one course folder: its own .venv, its own set-up, and nothing from the network.

What pip would have fetched is linked from the environment that runs the tests: the packages of the
folder's requirements.lock and no other. `make setup` then finds them there and adds the folder's
own packages, as on a machine whose owner has run it before. pip is told to fetch nothing, so it can
replace nothing either.
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
        link(metadata.distribution(name), site, venv)
    here = Path(sys.prefix)
    for folder in ("share", "etc"):  # JupyterLab's extensions, the kernel
        if (here / folder).is_dir() and not (venv / folder).exists():
            (venv / folder).symlink_to(here / folder)


def link(package: metadata.Distribution, site: Path, venv: Path) -> None:
    """Puts one installed package into another environment."""
    for top in {path.parts[0] for path in package.files} - {"..", "__pycache__"}:
        source, target = Path(str(package.locate_file(top))), site / top
        if top.endswith(".dist-info"):
            shutil.copytree(source, target)  # a copy: what belongs to bin/ and share/ isn't there
            record = (target / "RECORD").read_text("utf-8").splitlines()
            kept = [line for line in record if not line.startswith("../")]
            (target / "RECORD").write_text("\n".join(kept) + "\n", "utf-8")
        elif source.exists() and not target.exists():
            target.symlink_to(source)
    for command in package.entry_points.select(group="console_scripts"):
        program = venv / "bin" / command.name
        first = command.attr.partition(".")[0]
        program.write_text(
            f"#!{venv}/bin/python\nimport sys\nfrom {command.module} import {first}\n"
            f"sys.exit({command.attr}())\n"
        )
        program.chmod(0o755)


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
