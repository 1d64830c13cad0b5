"""What `nbgrader generate_assignment` adds for us: stubs that say their name, a stamped release."""

from __future__ import annotations

import re

from nbgrader.preprocessors import NbGraderPreprocessor

from distgrade.notebook import canonical, distlab_of, is_solution, parse_notebook, stamped

STUB = 'raise NotImplementedError("this is not written yet")'

_MARK = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n?", re.M)
_DEFINITION = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")


class NameStubs(NbGraderPreprocessor):
    """Gives each stub the name of what is to be written: "row_linear is not written yet".

    Stands right after ClearSolutions, so that checksums and the gradebook know the final text.
    """

    def preprocess_cell(self, cell, resources, index):
        """Returns the cell with named stubs."""
        if cell.cell_type == "code" and is_solution(cell):
            cell.source = name_stubs(cell.source)
        return cell, resources


def name_stubs(source: str) -> str:
    """Returns the source with each stub naming the top-level definition around it."""
    name, lines = "this", []
    for line in source.split("\n"):
        found = _DEFINITION.match(line)
        if found:
            name = found.group(1)
        if line.strip() == STUB:
            line = line.replace('"this is', f'"{name} is')
        lines.append(line)
    return "\n".join(lines)


class Release(NbGraderPreprocessor):
    """Last step: the canonical form, stamped with the content hash of the release."""

    def preprocess(self, nb, resources):
        """Returns the stamped notebook; one that is none of ours stays as it is."""
        if not isinstance(distlab_of(nb).get("lab"), str):
            return nb, resources
        return stamped(nb), resources


class Solution(NbGraderPreprocessor):
    """Of `nbgrader generate_solution`: no marks around solutions, no outputs, canonical form."""

    def preprocess(self, nb, resources):
        """Returns the solved notebook; one that is none of ours stays as it is."""
        if not isinstance(distlab_of(nb).get("lab"), str):
            return nb, resources
        for cell in nb.cells:
            cell.source = _MARK.sub("", cell.source)
        return parse_notebook(canonical(nb)), resources
