"""Notebooks as data: bounded reading, one canonical form, who owns which cell.

The grade id says what a cell is: `row_linear` is a solution cell, `row_linear-test` its test cell.
How a submission becomes a notebook that can be graded is told in `rebuild.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from distgrade.course import LAB_NAME

MAX_BYTES = 32 * 2**20  # a lab is 0.1 MB; pictures in a student's copy make it a few
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
SKIPPED_TAGS = frozenset({"look", "real"})  # `look` draws, `real` starts processes
TEST = "-test"

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python"}
_KEPT_CELL = ("deletable", "editable", "tags")
_KEPT_NBGRADER = ("grade", "grade_id", "locked", "points", "schema_version", "solution", "task")
_DERIVED_NBGRADER = (
    "cell_type",
    "checksum",
)  # nbgrader writes these on release: Validate needs them


class NotebookError(Exception):
    """A notebook can't be used; the text is one sentence that says why."""


def read_notebook(path: Path | str) -> NotebookNode:
    """Returns the notebook in a file, every cell in a known shape.

    Raises NotebookError for a file that is missing, a link, too large, not JSON or not a notebook.
    """
    path = Path(path)
    refuse_link(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotebookError(f"{path.name} can't be read: {error.strerror or error}.") from None
    if len(data) > MAX_BYTES:
        raise NotebookError(
            f"{path.name} is larger than {MAX_BYTES >> 20} MiB: clear its outputs and save again."
        )
    return parse_notebook(data, path.name)


def read_release_file(path: Path) -> NotebookNode:
    """Returns a released notebook, read once as long as its file stays. Nobody may change it."""
    try:
        about = path.stat()
    except OSError:
        return read_notebook(path)  # which says why it can't
    return _read_once(path, (about.st_mtime_ns, about.st_size, about.st_ino))


@lru_cache(maxsize=32)
def _read_once(path: Path, about: tuple[int, ...]) -> NotebookNode:
    return read_notebook(path)


def refuse_link(path: Path) -> None:
    """Raises NotebookError for a link: what it points to may be somebody else's, or the staff's."""
    if path.is_symlink():
        raise NotebookError(f"{path.name} is a link to another file: hand in the file itself.")


def parse_notebook(data: bytes, name: str = "the notebook") -> NotebookNode:
    """Returns the notebook in these bytes, every cell in a known shape."""
    try:
        raw = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise NotebookError(f"{name} is not UTF-8 text, so it is not a notebook.") from None
    except RecursionError:
        raise NotebookError(f"{name} is nested too deeply to be a notebook.") from None
    except ValueError as error:
        reason = str(error).splitlines()[0] if str(error) else "bad JSON"
        raise NotebookError(f"{name} is not valid JSON ({reason}).") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("nbformat"), int):
        raise NotebookError(f"{name} is JSON but not a notebook (it has no `nbformat`).")
    if raw["nbformat"] == 3:
        try:
            raw = nbformat.convert(nbformat.from_dict(raw), 4)
        except Exception:
            raise NotebookError(f"{name} is an old notebook that can't be converted.") from None
    if raw["nbformat"] != 4 or not isinstance(raw.get("cells"), list):
        raise NotebookError(f"{name} has notebook format {raw['nbformat']}; format 4 is needed.")
    return normalised(raw)


def normalised(nb: dict) -> NotebookNode:
    """Returns a copy with only well-formed cells: text sources, dict metadata, a known type.

    A notebook's JSON may hold anything; the rest of the package may rely on this shape.
    """
    try:
        nb = json.loads(json.dumps(nb))
    except (RecursionError, ValueError, TypeError):
        raise NotebookError("the notebook is nested too deeply.") from None
    cells = []
    for cell in nb.get("cells", []):
        if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
            continue
        kept = {
            "cell_type": cell["cell_type"],
            "metadata": cell["metadata"] if isinstance(cell.get("metadata"), dict) else {},
            "source": text_of(cell.get("source")),
        }
        if isinstance(cell.get("id"), str):
            kept["id"] = cell["id"]
        if isinstance(cell.get("attachments"), dict) and cell["cell_type"] == "markdown":
            kept["attachments"] = cell["attachments"]
        if cell["cell_type"] == "code":
            outputs = cell.get("outputs")
            kept["outputs"] = (
                [o for o in outputs if isinstance(o, dict)] if isinstance(outputs, list) else []
            )
            kept["execution_count"] = None
        cells.append(kept)
    metadata = nb.get("metadata")
    return nbformat.from_dict(
        {
            "cells": cells,
            "metadata": metadata if isinstance(metadata, dict) else {},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def text_of(value: object) -> str:
    """Returns text that UTF-8 can hold, from a string or a list of lines."""
    if isinstance(value, list):
        value = "".join(v for v in value if isinstance(v, str))
    if not isinstance(value, str):
        return ""
    value = value.replace("\r\n", "\n").replace("\r", "\n")
    return value.encode("utf-8", "replace").decode("utf-8")  # lone surrogates can't be written


# --- who owns a cell -------------------------------------------------------------------------


def nbgrader_of(cell: NotebookNode) -> dict:
    """Returns the cell's nbgrader metadata, or an empty dict."""
    found = cell.get("metadata", {}).get("nbgrader")
    return found if isinstance(found, dict) else {}


def grade_id(cell: NotebookNode) -> str | None:
    """Returns the cell's grade id, if it has one."""
    found = nbgrader_of(cell).get("grade_id")
    return found if isinstance(found, str) and CELL_ID.fullmatch(found) else None


def is_solution(cell: NotebookNode) -> bool:
    """Says whether students write this cell."""
    return bool(nbgrader_of(cell).get("solution")) and grade_id(cell) is not None


def is_test(cell: NotebookNode) -> bool:
    """Says whether this is a graded test cell: code that students do not write."""
    meta = nbgrader_of(cell)
    return bool(meta.get("grade")) and not meta.get("solution") and cell.cell_type == "code"


def is_skipped(cell: NotebookNode) -> bool:
    """Says whether grading leaves this cell out (it draws, or starts real processes)."""
    tags = cell.get("metadata", {}).get("tags")
    return isinstance(tags, list) and any(t in SKIPPED_TAGS for t in tags if isinstance(t, str))


def distlab_of(node: NotebookNode) -> dict:
    """Returns our own metadata of a notebook or a cell, or an empty dict."""
    found = node.get("metadata", {}).get("distlab")
    return found if isinstance(found, dict) else {}


def solution_cells(nb: NotebookNode) -> dict[str, NotebookNode]:
    """Returns the solution cells by grade id, in order; the first of each wins."""
    return _by_grade_id(c for c in nb.cells if is_solution(c))


def graded_cells(nb: NotebookNode) -> dict[str, NotebookNode]:
    """Returns the test cells by grade id, in order; the first of each wins."""
    return _by_grade_id(c for c in nb.cells if is_test(c))


def _by_grade_id(cells) -> dict[str, NotebookNode]:
    found: dict[str, NotebookNode] = {}
    for cell in cells:
        if grade_id(cell) is not None:
            found.setdefault(grade_id(cell), cell)
    return found


def exercise_of(test_id: str, lab: str) -> str:
    """Returns the exercise a test cell grades: `row_linear-test` -> `lab03.row_linear`."""
    return f"{lab.split('-', 1)[0]}.{test_id.removesuffix(TEST)}"


def lab_of(nb: NotebookNode, path: Path | str | None = None) -> str:
    """Returns the lab's name, from the notebook's own metadata, else from the file's name."""
    lab = distlab_of(nb).get("lab")
    if isinstance(lab, str) and LAB_NAME.fullmatch(lab):
        return lab
    if path is not None:
        found = LAB_NAME.match(Path(path).stem)
        if found:
            return found.group(0)
    name = Path(path).name if path is not None else "this notebook"
    raise NotebookError(f"{name} is not one of this course's labs (it does not say which).")


# --- the canonical form ----------------------------------------------------------------------


def canonical(nb: NotebookNode) -> bytes:
    """Returns the one form in which a notebook is stored: no outputs, known ids, fixed kernel.

    The same work gives the same bytes, whoever saved it with which tool.
    """
    nb = normalised(nb)
    ours = distlab_of(nb)
    kept = {k: ours[k] for k in ("lab", "release") if isinstance(ours.get(k), str)}
    nb.metadata = nbformat.from_dict(
        {"distlab": kept, "kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE)}
    )
    derived = _DERIVED_NBGRADER if "release" in kept else ()
    taken = {grade_id(cell) for cell in nb.cells} - {None}
    seen: set[str] = set()
    for index, cell in enumerate(nb.cells):
        cell.metadata = nbformat.from_dict(_minimal_metadata(cell, derived))
        cell.id = _cell_id(cell, index, taken, seen)
        seen.add(cell.id)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    text = nbformat.v4.writes(nb)
    return (text if text.endswith("\n") else text + "\n").encode()


def _minimal_metadata(cell: NotebookNode, derived: tuple[str, ...]) -> dict:
    meta = {k: cell.metadata[k] for k in _KEPT_CELL if k in cell.metadata}
    for flag in ("deletable", "editable"):
        if meta.get(flag, False) is not False:
            del meta[flag]  # true is the default
    tags = meta.pop("tags", None)
    if isinstance(tags, list) and tags:
        meta["tags"] = sorted({t for t in tags if isinstance(t, str)})
    nbgrader = nbgrader_of(cell)
    if nbgrader:
        meta["nbgrader"] = {k: nbgrader[k] for k in (*_KEPT_NBGRADER, *derived) if k in nbgrader}
    return meta


def _cell_id(cell: NotebookNode, index: int, taken: set[str], seen: set[str]) -> str:
    own = grade_id(cell)
    if own is not None and own not in seen:
        return own
    kept = cell.get("id")
    if isinstance(kept, str) and CELL_ID.fullmatch(kept) and kept not in seen | taken:
        return kept
    attempt = 0
    while True:
        text = f"{cell.cell_type}\n{cell.source}\n{index}\n{attempt}"
        minted = "cell-" + hashlib.sha256(text.encode()).hexdigest()[:10]
        if minted not in seen | taken:
            return minted
        attempt += 1


def write_canonical(path: Path, nb: NotebookNode) -> bool:
    """Writes the canonical form; returns whether the file changed."""
    data = canonical(nb)
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return True


def release_hash(nb: NotebookNode) -> str:
    """Returns the content hash of a release: everything but the stamp that holds the hash."""
    nb = normalised(nb)
    nb.metadata["distlab"] = {**distlab_of(nb), "release": ""}  # keeps the checksums in the form
    return hashlib.sha256(canonical(nb)).hexdigest()


def stamped(nb: NotebookNode) -> NotebookNode:
    """Returns the release in canonical form, with its own content hash in its metadata."""
    nb = normalised(nb)
    digest = release_hash(nb)
    nb.metadata["distlab"] = {**distlab_of(nb), "release": digest}
    return normalised(json.loads(canonical(nb)))


def strip_hidden(source: str) -> str:
    """Returns a test cell's source without its hidden region."""
    kept, hidden = [], False
    for line in source.split("\n"):
        if "BEGIN HIDDEN TESTS" in line:
            hidden = True
        elif "END HIDDEN TESTS" in line:
            hidden = False
        elif not hidden:
            kept.append(line)
    return "\n".join(kept)
