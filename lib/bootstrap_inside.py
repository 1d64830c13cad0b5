"""What only the environment's own Python can tell; bootstrap_doctor.py starts it there.

It prints one JSON list a line: what was looked at, what was found, what mends it. Everything but
the standard library is imported where it is looked at, as it may be what lacks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from pathlib import Path

import bootstrap_packages as packages
from bootstrap_doctor import REPAIR, SETUP, Finding, guarded

LITTLE_MEMORY_BYTES = 2 * 10**9
PROGRAMS = ("jupyter", "jupyter-lab", "nbgrader")


def versions(root: Path) -> Finding:
    """Every package of the lock file, in its version."""
    if not (root / "requirements.lock").is_file():
        return Finding("packages", "requirements.lock is missing", "git checkout requirements.lock")
    wrong = []
    for name, _, wanted in (line.partition("==") for line in packages.pinned(root)):
        try:
            got = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if got.partition("+")[0] != wanted:  # torch's build may differ
            wrong.append(f"{name} is {got} and not {wanted}")
    if wrong:
        return Finding("packages", "; ".join(wrong[:5]) + ("; ..." if wrong[5:] else ""), SETUP)
    return Finding("packages", "as pinned in requirements.lock")


def files(root: Path) -> Finding:
    """No package has lost a file."""
    if Path(sys.prefix) != root / ".venv":
        return Finding("files", "not looked at: conda keeps them")
    lost = [info.name[: -len(".dist-info")] for info in packages.damaged(root)]
    if lost:
        return Finding("files", f"some are lost or cut short: {', '.join(lost)}", REPAIR)
    return Finding("files", "none of a package's is lost")


def own(root: Path) -> Finding:
    """Our packages are those of this folder, not of another."""
    ours = {}
    for project in sorted(root.glob("*/pyproject.toml")):
        ours |= dict.fromkeys(
            re.findall(r'^name = "(\w+)"', project.read_text("utf-8"), re.M), project
        )
    for name, project in ours.items():
        home = Path(import_module(name).__file__).resolve()
        if project.parent.resolve() not in home.parents:
            return Finding("own packages", f"{name} comes from {home}", REPAIR)
    return Finding("own packages", f"{' and '.join(ours)} of this folder")


def torch(root: Path) -> Finding:
    """PyTorch can be imported, and multiplies."""
    import torch

    right = float(torch.ones(2) @ torch.ones(2)) == 2.0
    return Finding("torch", torch.__version__, "" if right else REPAIR)


def programs(root: Path) -> Finding:
    """The programs that are started by name lie beside this Python."""
    here = os.path.dirname(sys.executable)
    missing = [name for name in PROGRAMS if not shutil.which(name, path=here)]
    if missing:
        return Finding("programs", f"{' and '.join(missing)} not found in {here}", REPAIR)
    return Finding("programs", f"{', '.join(PROGRAMS)} are there")


def validate(root: Path) -> Finding:
    """JupyterLab has nbgrader's Validate button."""
    path = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "@jupyter" / "nbgrader"
    if not path.is_dir():
        return Finding("JupyterLab", "nbgrader's extension is missing", REPAIR)
    return Finding("JupyterLab", "nbgrader's extension is there")


def kernel(root: Path) -> Finding:
    """The kernel `python3` that notebooks ask for runs this Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        return Finding("kernel", "there is no kernel python3", REPAIR)
    program = spec.argv[0]
    if not os.path.isabs(program):
        program = shutil.which(program, path=os.path.dirname(sys.executable)) or program
    if not os.path.exists(program) or not os.path.samefile(
        os.path.dirname(program), os.path.dirname(sys.executable)
    ):
        mend = f"rm -r '{spec.resource_dir}'"
        if Path(sys.prefix) in Path(spec.resource_dir).parents:
            mend = f"{sys.executable} -m ipykernel install --sys-prefix"
        return Finding("kernel", f"python3 runs {program}, not this Python", mend)
    return Finding("kernel", "python3 runs this Python")


def fonts(root: Path) -> Finding:
    """Matplotlib finds its font, so pictures have letters."""
    from matplotlib import font_manager

    try:
        font_manager.findfont("DejaVu Sans", fallback_to_default=False)
    except ValueError:
        return Finding("fonts", "matplotlib can't find DejaVu Sans", REPAIR)
    return Finding("fonts", "matplotlib finds its own")


def memory(root: Path) -> Finding | None:
    """Enough memory is free for four ranks as processes."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            rows = dict(line.split(":") for line in lines)
        free = int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):  # not Linux
        return None
    little = free < LITTLE_MEMORY_BYTES
    found = f"{free / 1e9:.1f} GB free"
    return Finding("memory", found, better="close other programs" if little else "")


def simulated(root: Path) -> Finding:
    """Four simulated ranks add up their numbers."""
    return _sum_of_ranks("simulated ranks", "sim", 4)


def real(root: Path) -> Finding:
    """Two ranks as processes add up theirs: gloo, sockets, shared memory."""
    return _sum_of_ranks("real processes", "gloo", 2)


def _sum_of_ranks(what: str, engine: str, size: int) -> Finding:
    import torch

    from distlab import run

    try:
        sums = run(_add, size, torch.ones(1), engine=engine, timeout=60).values
    except Exception as problem:
        text = str(problem).strip().partition("\n")[0] or type(problem).__name__
        return Finding(what, f"{size} can't work together ({text})", REPAIR)
    right = [float(value) for value in sums] == [size] * size
    return Finding(what, f"{size} add up their numbers", "" if right else REPAIR)


def _add(comm, x):
    return comm.all_reduce(x)


CHECKS: tuple[tuple[str, Callable[[Path], Finding | None]], ...] = (
    ("packages", versions),
    ("files", files),
    ("own packages", own),
    ("torch", torch),
    ("programs", programs),
    ("JupyterLab", validate),
    ("kernel", kernel),
    ("fonts", fonts),
    ("memory", memory),
    ("simulated ranks", simulated),
    ("real processes", real),
)


def findings(root: Path) -> Iterator[Finding]:
    """Yields everything that was found."""
    for what, check in CHECKS:
        yield from guarded(what, check, root)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).resolve().parent))  # else distlab is found, installed or not
    for found in findings(Path(sys.argv[1])):
        print(json.dumps(found), flush=True)
