"""What lies in .venv: packages in the versions of the lock file, whole or not.

Standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import re
import shutil
from importlib import metadata
from pathlib import Path

WANTED = (3, 11)


def site_of(root: Path) -> Path:
    """The folder into which pip installs."""
    return root / ".venv" / "lib" / "python{}.{}".format(*WANTED) / "site-packages"


def pinned(root: Path) -> list[str]:
    """The packages of the lock file, each as name==version."""
    lines = (root / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if "==" in line and not line.startswith("#")]


def lacking(root: Path) -> list[str]:
    """What the lock file names and the environment has not, or in another version."""
    have = set()
    for info in site_of(root).glob("*.dist-info"):
        name, _, version = info.name[: -len(".dist-info")].rpartition("-")
        have.add((plain(name), version.partition("+")[0]))  # torch's build may differ
    wanted = (line.partition("==") for line in pinned(root))
    return [name for name, _, version in wanted if (plain(name), version) not in have]


def plain(name: str) -> str:
    """A package's name in the one form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def damaged(root: Path) -> list[Path]:
    """The descriptions of packages of which files are lost or cut short.

    An interrupted pip leaves some of a package's files, or a description without a list of files.
    """
    found = []
    for info in sorted(site_of(root).glob("*.dist-info")):
        files = metadata.PathDistribution(info).files if (info / "METADATA").is_file() else None
        paths = [(Path(str(f.locate())), f.size) for f in files or () if f.suffix != ".pyc"]
        if not paths or not all(p.is_file() and s in (None, p.stat().st_size) for p, s in paths):
            found.append(info)
    return found


def mend(root: Path) -> list[str]:
    """Makes damaged packages look absent, so that pip installs them; returns their names."""
    for left in site_of(root).glob("~*"):  # moved aside by an upgrade that did not end
        shutil.rmtree(left, ignore_errors=True)
    found = damaged(root)
    for info in found:
        shutil.rmtree(info)
    return [info.name[: -len(".dist-info")] for info in found]
