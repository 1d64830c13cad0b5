"""The picture of a timeline: every bar is an event, at its time, in its role's colour."""

import pytest
from matplotlib.colors import to_hex

from distlab import plot
from distlab.timeline import Event, Timeline

STEP = Timeline(
    [
        event
        for rank in range(3)
        for event in (
            Event(rank, "compute", "forward", "compute", 0, 0.002, role="activations"),
            Event(rank, "compute", "backward", "compute", 0.002, 0.006, role="gradients"),
            Event(rank, "comm", "all_reduce #1", "all_reduce", 0.003, 0.007 + 0.001 * rank, 40),
            Event(rank, "comm", "all_reduce #2", "all_reduce", 0.010, 0.0101, 40),
        )
    ]
)


def bars(picture):
    """(start, duration, colour) of every bar, in the picture's unit."""
    return [
        (round(p.get_x(), 9), round(p.get_width(), 9), to_hex(p.get_edgecolor()).upper())
        for p in picture.figure.axes[1].patches
    ]


def test_every_event_is_a_bar_in_its_roles_colour():
    colours = plot.COLOURS
    assert bars(plot.timeline(STEP, ranks=[1])) == [
        (0.0, 2.0, colours["activations"]),
        (2.0, 4.0, colours["gradients"]),
        (3.0, 5.0, colours["communication"]),
        (10.0, 0.1, colours["communication"]),
    ]
    assert len(bars(plot.timeline(STEP))) == len(STEP.events)


def test_bars_carry_their_names_where_they_fit_and_roles_have_a_key():
    picture = plot.timeline(STEP, title="A step")
    page, axes = picture.figure.axes
    inside = [text.get_text() for text in axes.texts]
    assert inside.count("all_reduce #1") == 3
    assert "all_reduce #2" not in inside
    around = {text.get_text() for text in page.texts}
    assert {"A step", "gradients", "activations", "communication", "rank 2", "comm"} <= around
    assert "weights" not in around
    assert axes.get_xlabel() == "time in ms"


def test_the_alternative_text_gives_the_numbers():
    alt = plot.timeline(STEP, title="A step").alt
    assert alt.startswith("A step. 3 ranks over 10.1 ms. rank 0: 6 ms of computing, 4.1 ms of ")
    assert "rank 2: 6 ms of computing, 6.1 ms of communicating, 3.1 ms of it exposed" in alt


def test_many_ranks_are_cut_to_sixteen_and_it_says_so():
    many = Timeline([Event(r, "compute", "x", "compute", 0, 1e-7) for r in range(64)])
    picture = plot.timeline(many)
    assert len(bars(picture)) == 16
    assert "64 ranks (drawn: 0-15)" in picture.alt
    assert picture.figure.axes[1].get_xlabel() == "time in ns"


@pytest.mark.parametrize("drawn", [STEP, Timeline(), Timeline(ranks=2)])
def test_no_text_leaves_the_picture(drawn):
    picture = plot.timeline(drawn, title="A step of data-parallel training in four buckets")
    picture.figure.draw_without_rendering()
    page = picture.figure.bbox
    for text in [t for axes in picture.figure.axes for t in axes.texts]:
        box = text.get_window_extent()
        assert page.x0 <= box.x0, text.get_text()
        assert box.x1 <= page.x1, text.get_text()
        assert page.y0 <= box.y0, text.get_text()
        assert box.y1 <= page.y1, text.get_text()


def test_a_run_without_a_clock_is_told_what_it_lacks():
    with pytest.raises(TypeError, match="cluster="):
        plot.timeline(None)
