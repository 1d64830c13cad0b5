"""First step of autograde: the submission becomes the release plus the student's own code."""

from __future__ import annotations

from pathlib import Path

from nbgrader.preprocessors import CheckCellMetadata, NbGraderPreprocessor, OverwriteCells

from distgrade.check import edition_for
from distgrade.editions import forget_strangers
from distgrade.nbgrader.where import course_of, release_of
from distgrade.notebook import refuse_link
from distgrade.rebuild import rebuild


class Rebuild(NbGraderPreprocessor):
    """Rebuilds the submission on its release, before nbgrader reads a cell of it."""

    def preprocess(self, nb, resources):
        """Returns the rebuilt notebook; its metadata keeps the notes for Verify."""
        found = release_of(self, resources)
        if found is None:
            return nb, resources
        lab, present = found
        for path in Path(resources["metadata"]["path"]).iterdir():
            refuse_link(path)  # nbgrader copies what lies beside the notebook, too
        built, notes = rebuild(nb, edition_for(course_of(self), lab, nb))
        forget_strangers(built, present)
        for note in notes:
            self.log.info("%s: %s: %s", resources["nbgrader"]["student"], note.grade_id, note.text)
        built.metadata.distlab["notes"] = [[note.grade_id or "", note.text] for note in notes]
        return built, resources


class RestoreCells(OverwriteCells):
    """nbgrader's OverwriteCells, for notebooks that Rebuild left alone.

    A rebuilt notebook is the release already. Writing the gradebook's cells over it would only put
    the hidden regions into `autograded/`, where student code and feedback could find them.
    """

    def preprocess(self, nb, resources):
        """Returns the notebook as it is when it is one of ours."""
        if release_of(self, resources) is not None:
            return nb, resources
        return super().preprocess(nb, resources)


class CheckCells(CheckCellMetadata):
    """nbgrader's CheckCellMetadata, for notebooks that Rebuild left alone.

    A rebuilt one has the release's metadata, which was checked when it was made.
    """

    def preprocess(self, nb, resources):
        """Returns the notebook as it is when it is one of ours."""
        if release_of(self, resources) is not None:
            return nb, resources
        return super().preprocess(nb, resources)
