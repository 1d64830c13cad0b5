"""Reading with bounds, and the one form in which notebooks are stored."""

import json

import nbformat
import pytest
from nb_tools import LAB, ROOT, code, released_lab, source_lab, tiny

from distgrade.notebook import (
    MAX_BYTES,
    NotebookError,
    canonical,
    lab_of,
    parse_notebook,
    read_notebook,
    release_hash,
    stamped,
    strip_hidden,
    write_canonical,
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1, 2]", "not a notebook"),
        (b'{"cells": []}', "not a notebook"),
        (b'{"nbformat": 9, "cells": []}', "format 9"),
        (b'{"nbformat": 4, "cells": {}}', "format 4"),
        (b'{"nbformat": 4, "cells": [], "x": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_notebook_gets_one_sentence(tmp_path, content, says):
    path = tmp_path / "bad.ipynb"
    path.write_bytes(content)
    with pytest.raises(NotebookError, match=says) as caught:
        read_notebook(path)
    assert "\n" not in str(caught.value)


def test_missing_and_oversized_files_get_one_sentence(tmp_path):
    with pytest.raises(NotebookError, match="can't be read"):
        read_notebook(tmp_path / "none.ipynb")
    with pytest.raises(NotebookError, match="can't be read"):
        read_notebook(tmp_path)
    large = tmp_path / "large.ipynb"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(NotebookError, match="larger than 32 MiB"):
        read_notebook(large)


def test_odd_cells_are_put_in_shape_and_impossible_ones_dropped():
    raw = {
        "nbformat": 4,
        "nbformat_minor": 2,
        "metadata": 3,
        "cells": [
            7,
            {"cell_type": "video"},
            {"cell_type": "code", "source": ["a\r\n", "b", 5], "metadata": None, "outputs": "x"},
            {"cell_type": "markdown", "source": "\ud800 half a pair"},
        ],
    }
    nb = parse_notebook(json.dumps(raw).encode())
    assert [c.source for c in nb.cells] == ["a\nb", "? half a pair"]
    canonical(nb).decode("utf-8")


def test_every_source_notebook_is_canonical():
    found = sorted((ROOT / "source").glob("lab*/lab*.ipynb"))
    assert found
    for path in found:
        assert path.read_bytes() == canonical(read_notebook(path)), (
            f"{path.name}: run `distgrade canon`"
        )


def test_canonical_is_idempotent_and_ends_in_one_newline():
    for nb in (tiny(), source_lab(), released_lab()):
        once = canonical(nb)
        assert canonical(parse_notebook(once)) == once
        assert once.endswith(b"}\n")
        assert b"\r" not in once


def saved_by_jupyterlab(data: bytes) -> bytes:
    """What JupyterLab writes after a run: counts, outputs, the kernel's language_info."""
    nb = nbformat.reads(data.decode(), as_version=4)
    nb.metadata["language_info"] = {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "name": "python",
        "version": "3.11.99",
    }
    nb.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    for count, cell in enumerate(nb.cells):
        cell.metadata.setdefault("editable", True)
        cell.metadata["slideshow"] = {"slide_type": ""}
        cell.metadata.setdefault("tags", [])
        if cell.cell_type == "code":
            cell.execution_count = count + 1
            cell.metadata["execution"] = {"iopub.status.busy": "2026-01-01T00:00:00Z"}
            cell.metadata["trusted"] = True
            cell.outputs = [nbformat.v4.new_output("stream", text="hello\n")]
    return (nbformat.writes(nb) + "\n").encode()


@pytest.mark.parametrize("get", [tiny, source_lab, released_lab])
def test_a_save_without_edits_comes_back_to_the_same_bytes(get, tmp_path):
    before = canonical(get())
    path = tmp_path / "x.ipynb"
    path.write_bytes(saved_by_jupyterlab(before))
    assert path.read_bytes() != before
    assert write_canonical(path, read_notebook(path))
    assert path.read_bytes() == before
    assert not write_canonical(path, read_notebook(path))


def test_cell_ids_are_the_grade_ids_else_kept_else_minted_and_all_different():
    nb = tiny()
    extra = [code("a"), code("a"), code("b"), code("c")]
    extra[0]["id"], extra[1]["id"] = "kept-id", "kept-id"
    extra[2]["id"] = "not valid!"
    extra[3]["id"] = "one"  # the grade id of another cell
    nb.cells[2]["id"] = "something-else"
    nb.cells += extra
    ids = [c["id"] for c in parse_notebook(canonical(nb)).cells]
    assert ids[2] == "one"
    assert ids[7] == "kept-id"
    assert len(set(ids)) == len(ids)
    assert all(i.startswith("cell-") for i in ids[8:])
    assert canonical(parse_notebook(canonical(nb))) == canonical(nb)


def test_the_release_hash_covers_content_and_not_the_stamp():
    nb = released_lab()
    assert nb.metadata.distlab.release == release_hash(nb)
    assert canonical(stamped(nb)) == canonical(nb)
    nb.cells[0].source += " "
    assert nb.metadata.distlab.release != release_hash(nb)


def test_the_lab_is_read_from_the_metadata_else_from_the_name():
    nb = released_lab()
    assert lab_of(nb, "other.ipynb") == LAB
    nb.metadata["distlab"] = {"lab": ["no"]}
    assert lab_of(nb, f"{LAB} (1).ipynb") == LAB
    with pytest.raises(NotebookError, match="not one of this course's labs"):
        lab_of(nb, "homework.ipynb")


def test_the_hidden_region_is_cut_out():
    text = "a\n### BEGIN HIDDEN TESTS\nsecret\n### END HIDDEN TESTS\nb"
    assert strip_hidden(text) == "a\nb"
    assert strip_hidden("a\n### BEGIN HIDDEN TESTS\nsecret") == "a"
