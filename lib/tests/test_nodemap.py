"""The picture of ranks on nodes: its words, and that every rank is drawn once, in its colour."""

import pytest

from distlab import plot
from distlab.canvas import COLOURS

NODES = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
MARKS = {"its TP group": ([4, 5], "weights"), "its DP group": ([1, 5], "gradients")}


def texts(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def test_every_rank_and_node_is_drawn_once():
    drawn = texts(plot.node_map(NODES, title="Ten ranks"))
    assert sorted(drawn) == sorted(["Ten ranks", *(f"node {i}" for i in range(3)), *"0123456789"])


def test_the_words_say_who_sits_where_and_who_is_marked():
    words = plot.node_map(NODES, MARKS, title="Ten ranks").alt
    assert words == (
        "Ten ranks. node 0: 0-3; node 1: 4-7; node 2: 8, 9. its TP group: 4, 5. its DP group: 1, 5."
    )


def test_labels_stand_in_place_of_numbers():
    assert "0·1" in texts(plot.node_map(NODES, labels={9: "0·1"}))


@pytest.mark.parametrize(("rank", "role"), [(4, "weights"), (1, "gradients")])
def test_a_rank_of_one_group_has_its_colour(rank, role):
    from matplotlib.colors import to_hex

    axes = plot.node_map(NODES, MARKS).figure.axes[0]
    label = next(text for text in axes.texts if text.get_text() == str(rank))
    holding = [box for box in axes.patches if box.get_bbox().contains(*label.get_position())]
    assert to_hex(holding[-1].get_edgecolor()) == COLOURS[role].lower()


def test_all_stays_on_the_page_for_many_columns():
    picture = plot.node_map([[8 * i + j for j in range(8)] for i in range(8)], MARKS, columns=4)
    axes = picture.figure.axes[0]
    left, right = axes.get_xlim()
    for box in axes.patches:
        assert left <= box.get_x()
        assert box.get_x() + box.get_width() <= right
