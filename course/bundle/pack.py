"""Packs what students get, and no more, in build/student-bundle and a zip file of it.

The folder is a course of its own: `make lab` works there, without the teacher's half. What is in it
stands in PUBLIC; the files that name the other half as well are cut down to what students need.
"""

import re
import shutil
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import leaks
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PUBLIC = (
    "AGENTS.md",
    "LICENSE",
    "postBuild",
    "start",
    "release/**/*",
    "lib/*.py",
    "lib/*.mk",
    "lib/pyproject.toml",
    "lib/distlab/**/*",
    "lib/jupyter/**/*",
    "course/chapters/*.md",
    "course/figures/*.svg",
    "course/glossary.md",
    "course/measured.md",
)
NEVER = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}
IN_ZIP = "distributed-training"  # the folder that unpacking makes
DAY = (2026, 1, 1, 0, 0, 0)  # of every file in the zip: the same files make the same bytes

MAKEFILE = "# `make` alone lists the commands.\n\ninclude lib/labs.mk\n"
IGNORED = ".venv/\nwork/\n__pycache__/\n*.egg-info/\n.ipynb_checkpoints/\n.DS_Store\n"
CONDA_NAMES = {"pytorch-cpu": "torch", "matplotlib-base": "matplotlib"}


class Refused(Exception):
    """The bundle can't be made; the text is one sentence for each reason."""


def public_files(root: Path) -> list[Path]:
    """Returns the files that go into the bundle as they are."""
    found = {path for pattern in PUBLIC for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in found if not NEVER & set(path.relative_to(root).parts))


def wishes(root: Path) -> list[Requirement]:
    """Returns what the library asks for by itself, and what it is built with."""
    text = (root / "lib" / "pyproject.toml").read_text("utf-8")
    return [Requirement(line) for line in re.findall(r'"([A-Za-z0-9_.-]+==[^"]+)"', text)]


def needed(todo: list[Requirement]) -> set[str]:
    """Returns the names of all packages to which these lead."""
    todo, done = list(todo), set()
    while todo:
        wish = todo.pop()
        key = (canonicalize_name(wish.name), frozenset(wish.extras))
        if key in done:
            continue
        done.add(key)
        for line in metadata.requires(wish.name) or ():
            need = Requirement(line)
            extras = wish.extras or {""}
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in extras):
                todo.append(need)
    return {name for name, _ in done}


def lock(text: str, names: set[str]) -> str:
    """Returns the lock file with the packages of these names alone."""
    lines = text.splitlines(keepends=True)
    kept = (x for x in lines if x[0] == "#" or canonicalize_name(x.partition("==")[0]) in names)
    return "".join(kept)


def conda(text: str, names: set[str]) -> str:
    """Returns the list for conda and Binder with the packages of these names alone."""
    kept = []
    for line in text.splitlines(keepends=True):
        pin = re.match(r"\s+- ([a-z0-9_-]+)=", line)
        if line.startswith("  - pip:"):
            break  # what conda doesn't carry: the grader's confinement
        if pin and canonicalize_name(CONDA_NAMES.get(pin[1], pin[1])) not in names | {"python"}:
            continue
        if not line.lstrip().startswith("#"):
            kept.append(line)
    return "".join(kept)


def fill(root: Path, folder: Path) -> None:
    """Puts everything that students get into an empty folder."""
    for path in public_files(root):
        copy = folder / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    ours = wishes(root)
    made = {
        "README.md": (HERE / "README.md").read_text("utf-8"),
        "Makefile": MAKEFILE,
        ".gitignore": IGNORED,
        ".gitattributes": "* text=auto eol=lf\n",
        "requirements.lock": lock((root / "requirements.lock").read_text("utf-8"), needed(ours)),
        "environment.yml": conda(
            (root / "environment.yml").read_text("utf-8"), {canonicalize_name(w.name) for w in ours}
        ),
    }
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    cut_links(folder)


def cut_links(folder: Path) -> None:
    """Leaves a page's link to a file that is not in the folder as words, as the site does."""

    def cut(found: re.Match) -> str:
        text, target = found[1], found[2].partition("#")[0]
        lost = target and "://" not in target and not (page.parent / target).exists()
        return text if lost else found[0]

    for page in folder.rglob("*.md"):
        text = page.read_text("utf-8")
        page.write_text(re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", cut, text), "utf-8")


def pack(folder: Path, target: Path) -> None:
    """Writes the folder as a zip file."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(f"{IN_ZIP}/{path.relative_to(folder).as_posix()}", DAY)
            entry.external_attr = (0o755 if path.stat().st_mode & 0o100 else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def build(root: Path, folder: Path) -> list[Path]:
    """Makes the bundle, folder and zip file, anew; returns its files.

    Raises Refused, and leaves none, where it would give away what students must not have.
    """
    target = folder.with_suffix(".zip")
    target.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fill(root, folder)
    told = list(leaks.given_away(folder, leaks.of_course(root)))
    if told:
        shutil.rmtree(folder)
        raise Refused("\n".join(told))
    pack(folder, target)
    return sorted(p for p in folder.rglob("*") if p.is_file())


def main() -> int:
    """Makes the bundle in build/ and says what was made."""
    folder = ROOT / "build" / "student-bundle"
    if not (ROOT / "source").is_dir():
        print("There is no source/ here: only the whole course can be packed.", file=sys.stderr)
        return 2
    try:
        files = build(ROOT, folder)
    except Refused as problem:
        print(problem, file=sys.stderr)
        print("So the bundle was not made: students would get what they must not.", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in files)
    zipped = folder.with_suffix(".zip").stat().st_size
    print(
        f"{len(files)} files, {size / 1e6:.1f} MB: {folder.relative_to(ROOT)}, and "
        f"{zipped / 1e6:.1f} MB as {folder.with_suffix('.zip').relative_to(ROOT)}. "
        "No solution, hidden test or reference is in it."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
