"""A submission rebuilt on the release it was made from: only the student's code is taken.

Taken: the source of solution cells, and code cells the student added. Everything else (metadata,
tags, order, locked cells, kernel) is the release's. So a deleted, copied, split, re-tagged or moved
cell neither helps nor hurts.

What is fair when a solution cell was copied: run from top to bottom, as students are told to, the
last definition above the test cell wins. The cell with the original id goes to its place, copies
stay where they stand, so the same definition wins here. A copy that is still the untouched stub is
no answer and is left out: it would only undo the student's work.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import nbformat
from nbformat import NotebookNode

from distgrade.notebook import (
    SKIPPED_TAGS,
    distlab_of,
    grade_id,
    is_skipped,
    is_solution,
    is_test,
    nbgrader_of,
    normalised,
    strip_hidden,
)
from distgrade.outputs import PICTURES, is_picture

MAX_EXTRA_CELLS = 300
MAX_SOURCE = 2 * 2**20  # characters of student code; a whole lab has 20,000
MAX_ATTACHED = 8_000_000  # base64 characters of pictures in a written answer

MISSING = "# This cell was not in the submission."
NOT_THERE = "this cell was not in the submission."
LATER = "this exercise came later than the edition that the submission was made from."


@dataclass(frozen=True)
class Note:
    """A sentence about what was found, for one exercise's cell or (None) for the notebook."""

    grade_id: str | None
    text: str


def rebuild(submission: NotebookNode, release: NotebookNode) -> tuple[NotebookNode, list[Note]]:
    """Returns the notebook to grade and notes on everything that was not as released."""
    submission, base = normalised(submission), normalised(release)  # copies
    index = _Index(base)
    notes: list[Note] = []
    places = [index.find(cell) for cell in submission.cells]
    originals = _originals(submission, places, base)
    anchors = _in_order(places, base)

    answers: dict[int, str] = {}
    pictures: dict[int, dict] = {}
    extras: dict[int, list[NotebookNode]] = {}
    used = count = 0
    anchor = -1
    for number, (cell, place) in enumerate(zip(submission.cells, places, strict=True)):
        if number in anchors and number >= originals[place]:  # a copy above is no landmark
            anchor = place
        released = base.cells[place] if place is not None else None
        source = cell.source
        if released is not None and is_solution(released) and originals.get(place) == number:
            if used + len(source) > MAX_SOURCE:
                notes.append(Note(grade_id(released), "this cell is too long and was left out."))
                continue
            used += len(source)
            answers[place] = source
            pictures[place] = _pictures(cell)
            if cell.cell_type != released.cell_type:
                notes.append(Note(grade_id(released), "the cell's type was put back."))
            continue
        if cell.cell_type != "code" or not source.strip() or index.is_released(source):
            continue
        at = anchor
        if released is not None and is_solution(released):
            at = max(anchor, place) if originals[place] < number else anchor
            notes.append(
                Note(
                    grade_id(released),
                    "this cell was copied or split; the last definition above the test counts.",
                )
            )
        elif released is not None and (is_skipped(released) or grade_id(released)):
            if nbgrader_of(released).get("locked") or is_test(released):
                notes.append(
                    Note(
                        grade_id(released), "a locked cell was changed; the released one was used."
                    )
                )
            if not _is_copy(number, place, places):
                continue  # the released cell itself: what it says is the release's
        if count >= MAX_EXTRA_CELLS or used + len(source) > MAX_SOURCE:
            notes.append(Note(None, "there are too many added cells; some were left out."))
            continue
        count += 1
        used += len(source)
        extras.setdefault(at, []).append(_extra(cell, count, index))

    built = list(extras.get(-1, []))
    for place, released in enumerate(base.cells):
        if is_solution(released):
            if place in answers:
                released.source = answers[place]
                if released.cell_type == "markdown" and pictures[place]:
                    released.attachments = nbformat.from_dict(pictures[place])
            else:
                released.source = MISSING if released.cell_type == "code" else ""
                later = distlab_of(released).get("later")
                notes.append(Note(grade_id(released), LATER if later else NOT_THERE))
        built.append(released)
        built.extend(extras.get(place, []))
    base.cells = built
    told = distlab_of(submission).get("release")
    expected = distlab_of(release).get("release")
    if isinstance(told, str) and expected and told != expected:
        notes.append(
            Note(None, "made from another edition of this lab; graded with the present one.")
        )
    edition = distlab_of(release).get("edition")
    if isinstance(edition, str):
        notes.append(Note(None, f"made from the edition of {edition}, and graded by it."))
    return base, list(dict.fromkeys(notes))


class _Index:
    """Finds the released cell that a submitted cell is, by grade id, then by cell id."""

    def __init__(self, release: NotebookNode):
        self.ids: dict[str, int] = {}
        for place, cell in enumerate(release.cells):
            for key in (grade_id(cell), cell.get("id")):
                if key is not None:
                    self.ids.setdefault(key, place)
        self.sources = {c.source.strip() for c in release.cells if c.cell_type == "code"}
        self.sources |= {strip_hidden(c.source).strip() for c in release.cells if is_test(c)}

    def find(self, cell: NotebookNode) -> int | None:
        for key in (grade_id(cell), cell.get("id")):
            if key in self.ids:
                return self.ids[key]
        return None

    def is_released(self, source: str) -> bool:
        return strip_hidden(source).strip() in self.sources


def _originals(submission: NotebookNode, places: list[int | None], base: NotebookNode) -> dict:
    """Returns, for each released cell, the number of the submitted cell that is it."""
    found: dict[int, int] = {}
    for number, place in enumerate(places):
        if place is not None:
            found.setdefault(place, number)
    for number, (cell, place) in enumerate(zip(submission.cells, places, strict=True)):
        if place is not None and cell.get("id") == base.cells[place].get("id"):
            first = submission.cells[found[place]]
            if first.get("id") != cell.get("id"):
                found[place] = number  # a copy pasted above the original is still the copy
    return found


def _is_copy(number: int, place: int, places: list[int | None]) -> bool:
    return places.index(place) != number


def _in_order(places: list[int | None], base: NotebookNode) -> set[int]:
    """Returns the submitted cells that stand in released order: a moved cell is no landmark.

    The heaviest increasing subsequence, solution cells weighing most: what a student writes below
    a solution cell belongs to it, wherever other cells were moved.
    """
    best: list[tuple[int, int]] = []  # (weight up to here, previous)
    heaviest, last = 0, -1
    known = [(n, p) for n, p in enumerate(places) if p is not None]
    known = known[:5000]
    for at, (_, place) in enumerate(known):
        weight, previous = 0, -1
        for before in range(max(0, at - 500), at):
            if known[before][1] <= place and best[before][0] > weight:
                weight, previous = best[before][0], before
        weight += 3 if is_solution(base.cells[place]) else 1
        best.append((weight, previous))
        if weight > heaviest:
            heaviest, last = weight, at
    kept = set()
    while last >= 0:
        kept.add(known[last][0])
        last = best[last][1]
    return kept


def _pictures(cell: NotebookNode) -> dict:
    """Returns the pictures that are attached to a written answer, such as a photo of a sketch."""
    left, found = MAX_ATTACHED, {}
    for name, forms in cell.get("attachments", {}).items():
        for kind in PICTURES:
            picture = forms.get(kind) if isinstance(forms, dict) else None
            if is_picture(kind, picture, left):
                left -= len(picture)
                found[name] = {kind: picture}
    return found


def _extra(cell: NotebookNode, count: int, index: _Index) -> NotebookNode:
    name = f"student-{count}"
    while name in index.ids:
        name += "x"
    metadata: dict = {"distlab": {"student": True}}
    tags = cell.metadata.get("tags")
    if isinstance(tags, list):  # a copy of a drawing cell stays one
        kept = sorted(SKIPPED_TAGS & {t for t in tags if isinstance(t, str)})
        if kept:
            metadata["tags"] = kept
    return nbformat.from_dict(
        {
            "cell_type": "code",
            "execution_count": None,
            "id": name,
            "metadata": metadata,
            "outputs": [],
            "source": cell.source,
        }
    )


def is_students(cell: NotebookNode) -> bool:
    """Says whether this cell of a rebuilt notebook was added by the student."""
    return bool(distlab_of(cell).get("student"))


def submission_hash(rebuilt: NotebookNode) -> str:
    """Returns a hash of the student's code alone, so that saving again changes no mark."""
    digest = hashlib.sha256()
    for cell in rebuilt.cells:
        if is_students(cell) or is_solution(cell):
            digest.update(f"{cell.id}\0{cell.source}\0".encode())
    return digest.hexdigest()
