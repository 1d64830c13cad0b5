"""Second step of autograde: the notebook runs, harnesses take the place of the test cells."""

from __future__ import annotations

import nbgrader.preprocessors
from traitlets import Float

from distgrade.nbgrader.where import course_of, release_of
from distgrade.running.runner import Limits
from distgrade.verdicts import grade_built


class Execute(nbgrader.preprocessors.Execute):
    """Runs a rebuilt notebook, or takes what is kept of a run; test cells are never executed.

    The name is nbgrader's on purpose: `c.Execute.timeout` and `--no-execute` mean the same here.
    """

    exercise_timeout = Float(
        90.0, help="Seconds for all cases of one exercise, with all its seeds."
    ).tag(config=True)
    notebook_timeout = Float(1200.0, help="Seconds for a whole notebook.").tag(config=True)

    def preprocess(self, nb, resources, km=None):
        """Returns the notebook with what its cells showed, and observations in the resources."""
        found = release_of(self, resources)
        if found is None:
            return super().preprocess(nb, resources, km)
        lab, _ = found
        graded = grade_built(nb, lab, course_of(self), limits=self.limits(), keep=True)
        for place, outputs in graded.outputs.items():
            nb.cells[place].outputs = outputs
        resources["distgrade"] = graded.outcomes
        return nb, resources

    def limits(self) -> Limits:
        """Returns the configured limits."""
        return Limits(
            cell_s=float(self.timeout or 30),
            exercise_s=self.exercise_timeout,
            notebook_s=self.notebook_timeout,
        )
