"""Third step of autograde: verdicts, in nbgrader's own process, written where nbgrader reads them.

nbgrader takes a cell's mark from its outputs: an error is 0, a result that is a number is partial
credit, nothing is full marks. So nothing may ever be left empty by mistake: a test cell without a
verdict gets an error.
"""

from __future__ import annotations

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from distgrade.nbgrader.where import release_of
from distgrade.notebook import distlab_of, exercise_of, grade_id, is_test, nbgrader_of, strip_hidden
from distgrade.outputs import plain
from distgrade.verdicts import FAULT
from distgrade.verify import Outcome

NOT_RUN = "The notebook was not executed, so nothing was graded."


class Verify(NbGraderPreprocessor):
    """Writes each exercise's verdict and its reason into the outputs of its test cell."""

    def preprocess(self, nb, resources):
        """Returns the notebook with a verdict in every test cell."""
        found = release_of(self, resources)
        if found is None:
            return nb, resources
        lab, _ = found
        verdicts = resources.pop("distgrade", None)
        reason = NOT_RUN if verdicts is None else FAULT
        notes = distlab_of(nb).get("notes", [])
        for cell in nb.cells:
            if is_test(cell):
                name = grade_id(cell) or ""
                outcome = (verdicts or {}).get(exercise_of(name, lab))
                told = [
                    text for where, text in notes if where in (name, name.removesuffix("-test"))
                ]
                cell.source = strip_hidden(cell.source)
                cell.outputs = verdict(outcome, cell, told, reason)
        return nb, resources


def verdict(
    outcome: Outcome | None, cell: NotebookNode, notes: list[str], reason: str = FAULT
) -> list[NotebookNode]:
    """Returns the outputs of a test cell that make nbgrader read this outcome's points.

    The reason stands there once: in the error when the cell earns nothing, else as text.
    """
    cell_points = float(nbgrader_of(cell).get("points") or 0)
    if outcome is None or outcome.max_points <= 0 < cell_points:
        return [_error(reason)]
    share = outcome.points / outcome.max_points if cell_points else 0.0
    earned = min(max(share, 0.0), 1.0) * cell_points
    lines = [headline(outcome, earned, cell_points)]
    lines += [plain(text, 3000) for text in (outcome.message, outcome.diagnosis) if text]
    lines += [f"Note: {plain(text, 500)}" for text in notes]
    text = "\n".join(dict.fromkeys(lines))  # a diagnosis that repeats the message is told once
    practised = not cell_points and outcome.status == "passed"
    if not (earned > 0 or practised):
        return [_error(text)]
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=text + "\n")]
    if earned < cell_points:
        data = {"text/plain": repr(float(earned))}
        outputs.append(nbformat.v4.new_output("execute_result", data=data, execution_count=None))
    return outputs


def headline(outcome: Outcome, earned: float, cell_points: float) -> str:
    """Returns the first line of a verdict: the word and the points."""
    word = {"passed": "PASS", "partial": "PARTLY", "not-written": "NOT WRITTEN"}.get(
        outcome.status, "FAIL"
    )
    return f"{word} {earned:g} of {cell_points:g} points" if cell_points else f"{word} (practice)"


def _error(text: str) -> NotebookNode:
    return nbformat.v4.new_output("error", ename="NoPoints", evalue="", traceback=[text])
