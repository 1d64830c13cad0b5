"""What holds for every chapter: its pictures are there and described, its links lead somewhere."""

import pytest
from chapter import CHAPTERS, Chapter

# How many pictures a chapter has at the least; others have one.
PICTURES = {
    "introduction": 0,
    "lab01-memory-math": 3,
    "lab02-data-parallel": 3,
    "lab03-tensor-parallel": 5,
    "lab04-pipeline-bubbles": 3,
    "lab05-layer-partitioning": 4,
    "lab06-zero": 3,
    "lab07-3d-search": 5,
    "sequence-and-context": 2,
}
NAMES = sorted(path.stem for path in CHAPTERS.glob("*.md"))
every_chapter = pytest.mark.parametrize("name", NAMES)


def test_chapters_are_found():
    assert set(PICTURES) <= set(NAMES)


@every_chapter
def test_pictures_exist_and_are_described(name):
    pictures = Chapter(name).pictures()
    assert len(pictures) >= PICTURES.get(name, 1)
    for alt, path in pictures:
        assert len(alt.split()) >= 8, path
        assert path.is_file(), path


@every_chapter
def test_links_lead_somewhere(name):
    links = Chapter(name).links()
    assert links
    for path in links:
        assert path.exists(), path
