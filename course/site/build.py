"""Builds the site into build/site, offline; any warning is an error.

The pages are copied first: Sphinx then sees those of the repository that are on the site and no
other, under the paths that they have there, and index.md on top.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ON_THE_SITE = (
    "course/*.md",
    "course/chapters/*.md",
    "course/instructors/[!r]*.md",  # not the rubrics: they hold answers, and a search finds them
    "course/figures/*.svg",
    "course/examples/*.ipynb",
    "release/*/*.ipynb",
)


def stage(source: Path) -> None:
    """Fills an empty folder with everything that is on the site."""
    for pattern in ON_THE_SITE:
        for path in sorted(ROOT.glob(pattern)):
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    for path in HERE.glob("*.md"):
        shutil.copyfile(path, source / path.name)


def sphinx(builder: str, source: Path, out: Path) -> subprocess.CompletedProcess:
    """Runs Sphinx from nothing, as only then it repeats its warnings."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        builder,
        "-q",
        "-W",
        "--keep-going",
        "-E",
        "-a",
    ]
    folders = ["-c", HERE, "-d", f"{out}.doctrees", source, out]
    return subprocess.run(
        [*command, *map(str, folders)], cwd=source, capture_output=True, text=True, check=False
    )


def pages(out: Path) -> list[Path]:
    """Returns the built pages."""
    return sorted(path for path in out.rglob("*.html") if "_static" not in path.parts)


class Needs(HTMLParser):
    """The files that a page makes a browser load: styles, scripts, pictures."""

    def __init__(self, page: Path):
        super().__init__()
        self.files: set[Path] = {page}
        self.folder = page.parent
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        """Notes what this element loads."""
        have = dict(attrs)
        loads = have.get("src") if tag in ("script", "img") else None
        if tag == "link" and have.get("rel") in ("stylesheet", "preload"):
            loads = have.get("href")
        if loads and "//" not in loads:
            self.add((self.folder / loads.partition("?")[0]).resolve())

    def add(self, file: Path) -> None:
        """Notes a file, and those that a module imports."""
        self.files.add(file)
        if file.suffix == ".mjs":
            for name in re.findall(r'from "\./(\S+)";', file.read_text("utf-8")):
                self.add(file.with_name(name))


def weight_bytes(page: Path) -> int:
    """Returns what a first visit to that page loads, uncompressed; KaTeX's fonts come on top."""
    return sum(path.stat().st_size for path in Needs(page).files if path.is_file())


def build(builder: str, out: Path) -> subprocess.CompletedProcess:
    """Builds everything into `out`, from nothing: pages ("html") or their text ("gettext")."""
    source = Path(f"{out}.source")
    for old in (out, source, Path(f"{out}.doctrees")):
        shutil.rmtree(old, ignore_errors=True)
    source.mkdir(parents=True)
    stage(source)
    return sphinx(builder, source, out)


def main() -> int:
    """Builds, and says how long it took and how heavy the pages are."""
    begin_s = time.monotonic()
    out = ROOT / "build" / "site"
    done = build("html", out)
    print(done.stderr.replace(f"{out}.source/", ""), end="", file=sys.stderr)
    if done.returncode:
        print("The site was not built: see the warnings above.", file=sys.stderr)
        return 1
    took = f"in {time.monotonic() - begin_s:.1f} s"
    weights = {page: weight_bytes(page) for page in pages(out)}
    heaviest = max(weights, key=weights.__getitem__)
    whole = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(
        f"{len(weights)} pages {took}, {whole / 1e6:.1f} MB in all: "
        f"{(out / 'index.html').relative_to(ROOT)}\n"
        f"A first visit loads {weights[out / 'index.html'] / 1e6:.2f} MB for the first page, "
        f"{weights[heaviest] / 1e6:.2f} MB for the heaviest ({heaviest.relative_to(out)}), "
        "uncompressed."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
