"""A file is written whole or not at all."""

import os

import pytest

from distlab.files import write_whole


def test_it_makes_the_folder_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_whole(path, "one · two")
    write_whole(path, b"\xff", 0o644)
    assert path.read_bytes() == b"\xff"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]
    write_whole(path, "mine")
    assert path.stat().st_mode & 0o777 == 0o600  # marks are nobody else's, unless it is said


def test_where_it_breaks_off_the_old_file_stays_and_no_part(tmp_path, monkeypatch):
    path = tmp_path / "b.txt"
    write_whole(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
