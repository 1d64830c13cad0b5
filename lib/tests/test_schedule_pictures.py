"""Pictures of pipelines: the lecture's strings, the Gantt charts, what is in flight, the trace."""

import re
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_hex

from distlab import plot
from distlab.schedule import (
    ascii_art,
    ascii_rows,
    gantt_svg,
    gpipe,
    interleaved,
    naive,
    one_f_one_b,
    simulate,
    zb_h1,
)
from distlab.schedule.drawing import tint

# Lecture 17, section 4.1: forward one unit, backward two.
NAIVE = """\
0·········aa
·0······aa··
··0···aa····
···0aa······"""
GPIPE = """\
0123·········aabbccdd
·0123······aabbccdd··
··0123···aabbccdd····
···0123aabbccdd······"""
ONE_F_ONE_B = """\
0123······aa4bb5cc6dd7ee·ff·gg·hh
·012····aa3bb4cc5dd6ee7ff·gg·hh··
··01··aa2bb3cc4dd5ee6ff7gg·hh····
···0aa1bb2cc3dd4ee5ff6gg7hh······"""


@pytest.mark.parametrize(
    ("orders", "drawn"),
    [(naive(4), NAIVE), (gpipe(4, 4), GPIPE), (one_f_one_b(4, 8), ONE_F_ONE_B)],
    ids=["naive", "gpipe", "1f1b"],
)
def test_strings_are_those_of_the_lecture(orders, drawn):
    assert "\n".join(ascii_rows(simulate(orders))) == drawn


def test_gpipe_with_equal_times_is_the_corrected_drawing_of_the_questions():
    # W28: the first text drew all backward passes in one column.
    assert ascii_rows(simulate(gpipe(4, 4), backward=1)) == [
        "0123······abcd",
        "·0123····abcd·",
        "··0123··abcd··",
        "···0123abcd···",
    ]


def test_strings_show_weight_gradients_in_capitals_and_what_is_done_again_in_digits():
    assert ascii_rows(simulate(zb_h1(2, 2))) == ["01·aAbB", "·0a1bAB"]
    assert ascii_rows(simulate(gpipe(2, 1, recompute=True))) == ["00···aa", "·00aa··"]


def test_microbatches_from_ten_on_begin_again():
    assert ascii_rows(simulate(naive(1, 27), backward=1))[0][-14:] == "0u1v2w3x4y5z6a"


def test_a_character_is_the_longest_unit_in_which_all_is_whole():
    third = Fraction(1, 3)
    assert ascii_rows(simulate(gpipe(2, 1), forward=2 * third, backward=4 * third)) == [
        "0···aa",
        "·0aa··",
    ]
    assert ascii_rows(simulate(gpipe(1, 1), forward=4, backward=6)) == ["00aaa"]
    assert ascii_rows(simulate(gpipe(1, 1), forward=4, backward=6), unit=1) == ["0000aaaaaa"]


def test_floats_need_a_unit():
    timeline = simulate(gpipe(2, 1), forward=0.1, backward=0.2)
    with pytest.raises(ValueError, match="unit="):
        ascii_rows(timeline)
    assert ascii_rows(timeline, unit=0.1) == ["0···aa", "·0aa··"]


def test_strings_come_with_their_ranks():
    assert ascii_art(simulate(naive(2))) == "rank 0  0···aa\nrank 1  ·0aa··"
    eleven = ascii_art(simulate(naive(11))).splitlines()
    assert eleven[9].startswith("rank 9   ·")
    assert eleven[10].startswith("rank 10  ·")


# -- SVG ------------------------------------------------------------------------------------------


def svg(timeline, **more):
    return ElementTree.fromstring(gantt_svg(timeline, **more))


def bars(root):
    """{colour: [(x, y, width)]} of all bars."""
    found = {}
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        corners = re.findall(r"M([\d.]+) (\d+)h([\d.]+)v", path.get("d"))
        found[path.get("fill")] = [tuple(map(float, corner)) for corner in corners]
    return found


def test_every_op_is_a_bar_in_its_place_and_colour():
    timeline = simulate(one_f_one_b(2, 3), forward=2, backward=3)
    drawn = bars(svg(timeline))
    assert set(drawn) == {tint("F", 0, 1), tint("B", 0, 1)}
    left, per_time = 58, (720 - 58 - 14) / timeline.makespan
    rows = sorted({y for places in drawn.values() for _, y, _ in places})
    for kind in "FB":
        expected = [
            (left + span.start * per_time, rows[rank], (span.end - span.start) * per_time)
            for rank in (0, 1)
            for span in timeline.of(rank)
            if span.op.kind == kind
        ]
        for got, wanted in zip(drawn[tint(kind, 0, 1)], expected, strict=True):
            assert got == pytest.approx(wanted, abs=0.01)


def test_bars_carry_their_microbatch_where_it_fits():
    drawn = gantt_svg(simulate(one_f_one_b(4, 13)))
    assert drawn.count(">7<") == 8  # F and B on four ranks
    assert drawn.count(">12<") == 4  # two digits fit into B alone
    assert ">299<" not in gantt_svg(simulate(one_f_one_b(4, 300)))


def test_chunks_have_tints_and_a_note():
    root = svg(simulate(interleaved(2, 4, 2)))
    assert set(bars(root)) == {tint(kind, c, 2) for kind in "FB" for c in (0, 1)}
    assert "chunks 0 to 1: light to strong" in "".join(root.itertext())


def test_tints_are_those_of_the_course():
    assert tint("F", 0, 1) == to_hex([1 - 0.28 * (1 - c) for c in (0, 158 / 255, 115 / 255)])
    assert len({tint(kind, c, 3) for kind in "FBWR" for c in range(3)}) == 12


def test_a_title_can_not_break_the_picture():
    root = svg(simulate(naive(2)), title='<b> & "x"', unit="µs")
    texts = "".join(root.itertext())
    assert '<b> & "x"' in texts
    assert "time in µs" in texts


def test_the_alternative_text_gives_the_numbers():
    timeline = simulate(one_f_one_b(4, 8))
    words = (
        "4 ranks, 8 microbatches over 33 ms; bubble 27.3%; at most in flight, by rank: 4, 3, 2, 1."
    )
    assert f"1F1B. {words}" in gantt_svg(timeline, title="1F1B", unit="ms")
    assert plot.pipeline(timeline, title="1F1B", unit="ms").alt == f"1F1B. {words}"
    assert timeline._repr_html_().startswith("<svg ")
    one = plot.pipeline(simulate(naive(1, 1))).alt
    assert one.startswith("Pipeline. 1 rank, 1 microbatch over 3;")


@pytest.mark.parametrize("p", [1, 5, 16, 64, 100])
def test_pictures_of_many_ranks_keep_their_rows_apart_and_inside(p):
    root = svg(simulate(gpipe(p, 2)))
    height = float(root.get("viewBox").split()[3])
    assert height < 1000
    rows = sorted({y for places in bars(root).values() for _, y, _ in places})
    assert len(rows) == p
    assert rows[-1] < height - 30


def test_nothing_to_do_takes_no_time_and_can_be_drawn():
    timeline = simulate(naive(2), forward=0, backward=0)
    assert timeline.makespan == 0
    assert "NaN" not in gantt_svg(timeline)
    assert ascii_rows(timeline) == ["", ""]
    assert "bubble 0.0%" in repr(timeline)
    assert plot.in_flight(timeline).png(40)


# -- matplotlib and the trace ---------------------------------------------------------------------


def test_the_figure_has_a_bar_for_every_op():
    timeline = simulate(interleaved(2, 4, 2))
    axes = plot.pipeline(timeline, title="Interleaved").figure.axes[1]
    assert sum(len(c.get_paths()) for c in axes.collections) == 2 * 4 * 2 * 2
    colours = {to_hex(c.get_facecolor()[0]) for c in axes.collections}
    assert colours == {tint(kind, c, 2) for kind in "FB" for c in (0, 1)}


def test_what_is_in_flight_is_drawn_with_its_peak():
    picture = plot.in_flight(simulate(one_f_one_b(4, 8)), title="1F1B")
    assert [text.get_text() for text in picture.figure.axes[1].texts] == ["4", "3", "2", "1"]
    assert picture.alt == "1F1B. The most at once, by rank: 4, 3, 2, 1."


def test_what_two_orders_hold_can_be_drawn_to_one_scale():
    def height(orders, **scale):  # of rank 0's highest step, in rows
        axes = plot.in_flight(simulate(orders), **scale).figure.axes[1]
        corners = axes.collections[0].get_paths()[0].vertices[:, 1]
        return corners.max() - corners.min()

    half, whole = height(one_f_one_b(4, 8), most=8), height(gpipe(4, 8), most=8)
    assert half == pytest.approx(whole / 2)
    assert height(one_f_one_b(4, 8)) == pytest.approx(whole)
    with pytest.raises(ValueError, match="holds 8 at once: most=4"):
        plot.in_flight(simulate(gpipe(4, 8)), most=4)


def test_b_without_its_w_is_called_by_what_it_makes():
    split, whole = simulate(zb_h1(4, 8)), simulate(one_f_one_b(4, 8))
    for timeline, name in ((split, "input gradient"), (whole, "backward")):
        assert f">{name}<" in gantt_svg(timeline)
        key = plot.pipeline(timeline).figure.axes[0]
        assert name in [text.get_text() for text in key.texts]


@pytest.mark.parametrize("draw", [plot.pipeline, plot.in_flight])
def test_no_text_leaves_the_figure(draw):
    for orders in (one_f_one_b(2, 3), gpipe(20, 2, recompute=True), interleaved(4, 8, 2)):
        figure = draw(simulate(orders), title="A step of training in a pipeline", unit="ms").figure
        figure.draw_without_rendering()
        for text in [t for axes in figure.axes for t in axes.texts]:
            box = text.get_window_extent()
            assert figure.bbox.x0 <= box.x0, text.get_text()
            assert box.x1 <= figure.bbox.x1, text.get_text()
            assert figure.bbox.y0 <= box.y0, text.get_text()
            assert box.y1 <= figure.bbox.y1, text.get_text()


@pytest.mark.parametrize("draw", [plot.pipeline, plot.in_flight])
def test_only_a_timeline_can_be_drawn(draw):
    with pytest.raises(TypeError, match="simulate"):
        draw(one_f_one_b(2, 3))


def test_the_trace_is_the_courses_own():
    timeline = simulate(one_f_one_b(2, 3), forward=2, backward=3)
    events = timeline.events(unit_s=1e-3)
    assert events.makespan_s == pytest.approx(20e-3)
    assert [event.name for event in events.of(0)] == ["F0", "F1", "B0", "F2", "B1", "B2"]
    rows = [row for row in events.chrome_trace()["traceEvents"] if row["ph"] == "X"]
    assert len(rows) == 12
    assert rows[0]["dur"] == 2000
    assert {row["args"]["role"] for row in rows} == {"activations", "gradients"}
