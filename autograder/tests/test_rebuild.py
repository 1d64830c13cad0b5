"""From a submission only the student's code is taken; nothing done to cells helps or hurts."""

import nbformat
import pytest
import zoo
from nb_tools import clone, code, meta, order, place, student_cells, tiny

from distgrade.notebook import canonical, normalised
from distgrade.rebuild import MAX_EXTRA_CELLS, MISSING, rebuild, submission_hash

ONE, TWO = "def one():\n    return 1", "def two():\n    return 1"


def solved():
    nb = tiny()
    nb.cells[place(nb, "one")].source = ONE
    nb.cells[place(nb, "two")].source = TWO
    return nb


def sources(nb):
    return [c.source for c in nb.cells]


EXPECTED = sources(solved())


def test_an_untouched_release_comes_back_as_it_is():
    built, notes = rebuild(tiny(), tiny())
    assert sources(built) == sources(tiny())
    assert notes == []


def test_solutions_are_taken():
    built, notes = rebuild(solved(), tiny())
    assert sources(built) == EXPECTED
    assert notes == []


def _delete_test(nb):
    del nb.cells[place(nb, "one-test")]


def _empty_test(nb):
    nb.cells[place(nb, "one-test")].source = "pass"


def _ungrade(nb):
    nb.cells[place(nb, "one-test")].metadata.nbgrader["grade"] = False


def _skip_tag(nb):
    for cell in nb.cells:
        cell.metadata["tags"] = ["skip-execution", "look", "real"]


def _schema(nb):
    for cell in nb.cells:
        if "nbgrader" in cell.metadata:
            cell.metadata.nbgrader["schema_version"] = 99


def _kernelspec(nb):
    nb.metadata["kernelspec"] = {"name": "nosuch", "language": "bash"}


def _no_metadata(nb):
    for cell in nb.cells:
        cell.metadata = nbformat.from_dict({})  # the ids still say what is what


def _no_ids(nb):
    for cell in nb.cells:
        cell.pop("id", None)


def _points(nb):
    nb.cells[place(nb, "one-test")].metadata.nbgrader["points"] = 1000


def _swap(nb):
    nb.cells[2], nb.cells[5] = nb.cells[5], nb.cells[2]


def _reverse(nb):
    nb.cells = nb.cells[::-1]


def _markdown(nb):
    nb.cells[place(nb, "one")]["cell_type"] = "markdown"


def _copy_test(nb):
    copied = clone(nb.cells[place(nb, "one-test")])
    copied["id"] = "a-copy"
    nb.cells.insert(place(nb, "one-test") + 1, copied)


def _copy_solution(nb):
    copied = clone(nb.cells[place(nb, "one")])
    copied["id"] = "a-copy"
    nb.cells.insert(place(nb, "one") + 1, copied)


def _copy_stub_below(nb):
    copied = clone(tiny().cells[place(nb, "one")])
    copied["id"] = "a-copy"
    nb.cells.insert(place(nb, "one") + 1, copied)


def _everything_twice(nb):
    nb.cells += clone(nb).cells


def _own_metadata(nb):
    nb.metadata["distlab"] = {"lab": "lab99-tiny", "release": "0" * 64, "notes": "x"}
    for cell in nb.cells:
        cell.metadata["distlab"] = {"student": True}


EDITS = [v for k, v in list(globals().items()) if k.startswith("_") and callable(v) and k[1] != "_"]


@pytest.mark.parametrize("edit", EDITS, ids=lambda f: f.__name__.strip("_"))
def test_edits_of_cells_neither_help_nor_hurt(edit):
    nb = solved()
    edit(nb)
    built, _ = rebuild(nb, tiny())
    kept = [c for c in built.cells if not c.metadata.get("distlab", {}).get("student")]
    assert [c.source for c in kept] == EXPECTED
    assert [c.metadata for c in kept] == [c.metadata for c in normalised(tiny()).cells]
    assert built.metadata == normalised(tiny()).metadata
    assert all(source in (ONE, TWO) for source in student_cells(built))  # copies of answers only
    nbformat.validate(built)


def test_a_deleted_solution_is_missing_and_said_to_be():
    nb = solved()
    del nb.cells[place(nb, "one")]
    built, notes = rebuild(nb, tiny())
    assert built.cells[place(built, "one")].source == MISSING
    assert [n.grade_id for n in notes] == ["one"]


def test_a_split_solution_counts_below_its_first_half():
    nb = solved()
    at = place(nb, "one")
    nb.cells[at].source = "def helper():\n    return 1"
    half = clone(nb.cells[at])
    half["id"], half["source"] = "second-half", "def one():\n    return helper()"
    nb.cells.insert(at + 1, half)
    built, notes = rebuild(nb, tiny())
    assert built.cells[at].source.startswith("def helper")
    assert built.cells[at + 1].source.startswith("def one")
    assert "copied or split" in notes[0].text


def test_of_copies_the_one_that_wins_in_the_students_own_kernel_wins():
    for above in (True, False):
        nb = solved()
        at = place(nb, "one")
        other = clone(nb.cells[at])
        other["id"], other["source"] = "a-copy", "def one():\n    return 2"
        nb.cells.insert(at if above else at + 1, other)
        built, _ = rebuild(nb, tiny())
        last = [s for s in sources(built)[: place(built, "one-test")] if s.startswith("def one")]
        assert last[-1] == (ONE if above else other.source)


def test_added_cells_stay_where_they_stand():
    nb = solved()
    for name in ("imports", "one", "one-test", "two-test"):
        nb.cells.insert(place(nb, name) + 1, code(f"# after {name}"))
    nb.cells.insert(0, code("# first"))
    built, _ = rebuild(nb, tiny())
    for name in ("imports", "one", "one-test", "two-test"):
        assert built.cells[place(built, name) + 1].source == f"# after {name}"
    assert built.cells[0].source == "# first"


def test_a_moved_cell_does_not_carry_added_cells_past_a_test():
    nb = solved()
    helper = code("# helper for one")
    nb.cells.insert(place(nb, "one"), helper)
    moved = nb.cells.pop(place(nb, "two-text"))
    nb.cells.insert(nb.cells.index(helper), moved)  # the last text now stands above the helper
    built, _ = rebuild(nb, tiny())
    assert sources(built).index("# helper for one") < place(built, "one-test")


def test_an_edited_open_cell_of_the_release_counts_and_a_locked_one_does_not():
    nb = solved()
    nb.cells[place(nb, "imports")].source = "import math\nimport itertools"
    nb.cells[place(nb, "one-test")].source = "def one():\n    return 1"
    built, notes = rebuild(nb, tiny())
    assert student_cells(built) == ["import math\nimport itertools"]
    assert order(built)[:2] == ["imports", "student-1"]
    assert [n.grade_id for n in notes] == ["one-test"]


def test_a_copied_drawing_cell_stays_one():
    nb = solved()
    drawing = code("plot()")
    drawing.metadata["tags"] = ["look", "skip-execution", 3]
    nb.cells.append(drawing)
    built, _ = rebuild(nb, tiny())
    assert built.cells[-1].metadata == {"distlab": {"student": True}, "tags": ["look"]}


def test_floods_of_cells_and_text_are_bounded():
    nb = solved()
    nb.cells[1:1] = [code(f"x = {i}") for i in range(MAX_EXTRA_CELLS + 50)]
    built, notes = rebuild(nb, tiny())
    assert len(student_cells(built)) == MAX_EXTRA_CELLS
    assert "too many added cells" in notes[0].text
    nb = solved()
    nb.cells[place(nb, "one")].source = "#" * (3 * 2**20)
    built, notes = rebuild(nb, tiny())
    assert built.cells[place(built, "one")].source == MISSING
    assert built.cells[place(built, "two")].source == TWO
    assert "too long" in notes[0].text


def test_another_edition_of_the_lab_is_noted():
    nb = solved()
    nb.metadata["distlab"]["release"] = "1" * 64
    _, notes = rebuild(nb, tiny())
    assert "another edition" in notes[0].text


def test_the_submission_hash_follows_the_students_code_alone():
    built, _ = rebuild(solved(), tiny())
    noisy = solved()
    _skip_tag(noisy)
    _kernelspec(noisy)
    assert submission_hash(rebuild(noisy, tiny())[0]) == submission_hash(built)
    nb = solved()
    nb.cells[place(nb, "one")].source += " "
    assert submission_hash(rebuild(nb, tiny())[0]) != submission_hash(built)


def test_a_rebuilt_notebook_has_unique_ids_and_can_be_stored():
    nb = solved()
    nb.cells += [code("x"), code("y")]
    nb.cells[-1]["id"] = "student-1"
    built, _ = rebuild(nb, tiny())
    ids = [c["id"] for c in built.cells]
    assert len(set(ids)) == len(ids)
    canonical(built)


def test_a_written_answer_keeps_its_pictures_and_nothing_else_that_is_attached():
    nb, png = tiny(), zoo.PIXEL
    text = nbformat.v4.new_markdown_cell("", metadata=meta("why", solution=True, grade=True))
    text["id"] = "why"
    nb.cells.append(text)
    given = clone(nb)
    given.cells[-1].attachments = nbformat.from_dict(
        {
            "a.png": {"image/png": png, "text/html": "<script>"},
            "b.png": {"image/png": "PHNjcmlwdD4="},
            "c.svg": {"image/svg+xml": "<svg>"},
            "d.jpg": {"image/jpeg": png},
        }
    )
    built, _ = rebuild(given, nb)
    assert built.cells[-1].attachments == {"a.png": {"image/png": png}}
