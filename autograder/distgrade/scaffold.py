"""Writes the places of a new exercise: its room, its section in the lab's notebook, its hints.

What is written is complete in form and open in content: it can be imported, every gap is marked
TODO, and the repository's tests are red until each is filled.
"""

from __future__ import annotations

from pathlib import Path

import nbformat

from distgrade.course import EXERCISE_ID, Course, CourseError, lab_prefix
from distgrade.notebook import grade_id, read_notebook, write_canonical

POINTS = 4

ROOM = '''"""TODO: the task in one sentence: `{name}(comm, x)` returns ...

Shapes: TODO. Units: TODO.
Cost: TODO, bytes per rank.
Source: TODO, paper and section.
"""

from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("{name}",)
FORBID = ()  # TODO: dotted names of distlab tools that would be the whole answer
TOLERANCE = Exact()
CREDIT = {{"values": {points}}}
CASES = (
    # TODO: sizes that n does not divide; an expects=ValueError where a size has no meaning
    Case("one rank", "values", n=1, size=4),
    Case("two ranks", "values", n=2, size=4),
    Case("three ranks", "values", n=3, size=5),
    Case("four ranks", "values", n=4, size=8),
    Case("five ranks", "values", n=5, size=5),
)


def given(case, seed):
    from distlab.seeds import integers

    # Every rank's data differs and holds no zero.
    return {{
        "n": case.n,
        "x": [integers((case.size,), "{name}", case.name, seed, rank) for rank in range(case.n)],
    }}


def observe(student, given):
    from distlab import per_rank, run

    result = run(student.{name}, given["n"], per_rank(given["x"]), echo=False)
    return {{"value": result.values}}


def oracle(case, given):
    # TODO: the right answer by another method (dense, one process), as a tree like observe's.
    raise NotImplementedError("TODO: the oracle of {exercise}")


@wrong("TODO: what the symptom means and where to look.")
def nothing_is_done():
    # TODO: at least five plausible mistakes, each with its sentence.
    def {name}(comm, x):
        return x

    return {name}


@also_right("TODO: the other method")
def another_way():
    # TODO: at least two right answers by other methods.
    def {name}(comm, x):
        raise NotImplementedError("TODO")

    return {name}
'''

TEXT = """## Exercise · TODO: the goal in a few words

**{points} points, about TODO minutes.** Write `{name}`, which returns TODO.

- `x` has shape TODO.

A good answer TODO: the quantity that makes it good."""

SOLUTION = '''def {name}(comm: Comm, x: torch.Tensor) -> torch.Tensor:
    """Return TODO.

    Shapes: x [TODO] -> [TODO].
    """
    ### BEGIN SOLUTION
    raise NotImplementedError("TODO: the solution of {name}")
    ### END SOLUTION'''

LOOK = """# TODO: predict first, then run and draw your own answer.
with when_written():
    print(run({name}, 2, torch.ones(2)).values)"""

TEST = """# TODO: one or two visible cases whose numbers are explained here.
check("{exercise}", {name})
### BEGIN HIDDEN TESTS
from distgrade import grade
grade("{exercise}", {name})
### END HIDDEN TESTS"""


HINTS = """
## {name}

### Nudge

TODO: a question, or a small case to try, that leads to where the difficulty lies.

### Idea

TODO: the idea in words, without a line of the solution.

### Outline

TODO: the steps in order; leave this out where the idea says it all.
"""


def new_exercise(course: Course, exercise_id: str) -> tuple[Path, Path, Path]:
    """Writes the room, the notebook section and the hints of a new exercise; returns the paths.

    Raises CourseError for an id that is malformed, has no lab, or is taken.
    """
    if not EXERCISE_ID.fullmatch(exercise_id):
        raise CourseError(f"{exercise_id!r} is not an exercise id such as lab03.row_linear.")
    prefix, name = exercise_id.split(".")
    labs = [lab for lab in course.labs() if lab_prefix(lab) == prefix]
    if not labs:
        known = ", ".join(course.labs()) or "none"
        raise CourseError(f"source/ has no lab {prefix} (there are: {known}).")
    lab = labs[0]
    folder = course.root / "autograder" / "distgrade" / "labs" / lab.replace("-", "_")
    room, notebook = folder / f"{name}.py", course.source(lab)
    nb = read_notebook(notebook)
    cells = section(exercise_id)
    taken = {grade_id(cell) for cell in nb.cells} & {grade_id(cell) for cell in cells}
    if room.exists() or taken - {None}:
        raise CourseError(f"{exercise_id} is there already.")
    nb.cells.extend(cells)
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / "__init__.py"
    if not package.exists():
        package.write_text(f'"""Rooms of {lab}."""\n', encoding="utf-8")
    room.write_text(_filled(ROOM, exercise_id), encoding="utf-8")
    write_canonical(notebook, nb)
    hints = course.root / "lib" / "distlab" / "learn" / "hints" / f"{prefix}.md"
    hints.parent.mkdir(parents=True, exist_ok=True)
    if not hints.exists():
        hints.write_text(f"# Hints for lab {int(prefix[3:])}\n", encoding="utf-8")
    with hints.open("a", encoding="utf-8") as file:
        file.write(_filled(HINTS, exercise_id))
    return room, notebook, hints


def section(exercise_id: str) -> list[nbformat.NotebookNode]:
    """Returns the four cells of an exercise: text, solution, look, test."""
    name = exercise_id.split(".")[1]
    cells = []
    for kind, suffix, source, tags in (
        ("markdown", "-text", TEXT, []),
        ("code", "", SOLUTION, []),
        ("code", "-look", LOOK, ["look"]),
        ("code", "-test", TEST, []),
    ):
        make = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        cell = make(_filled(source, exercise_id), id=name + suffix)
        if tags:
            cell.metadata["tags"] = tags
        else:
            cell.metadata["nbgrader"] = {
                "grade": suffix == "-test",
                "grade_id": name + suffix,
                "locked": suffix != "",
                "schema_version": 3,
                "solution": suffix == "",
                "task": False,
            }
            if suffix == "-test":
                cell.metadata["nbgrader"]["points"] = POINTS
        cells.append(cell)
    return cells


def _filled(text: str, exercise_id: str) -> str:
    name = exercise_id.split(".")[1]
    return text.format(exercise=exercise_id, name=name, points=POINTS)
