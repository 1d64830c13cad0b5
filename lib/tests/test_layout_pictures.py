"""Pictures of layouts: the dots and bars that were given, the best one named, texts apart."""

import itertools
import subprocess
import sys

import pytest
from matplotlib.colors import to_hex

from distlab import plot
from distlab.breakdown import STEP_PARTS
from distlab.layout import Layout
from distlab.scatter import decimals, seconds

CAPACITY = ("H100", 80e9)
POINTS = {  # memory falls with t·p, a bubble grows with p: made for this test, no model's numbers
    Layout(t, p, 1024 // (t * p)): (2.8e12 / (t * p) + 2e9, 10 + 0.02 * p * (1 + 8 / t) + 0.1 * t)
    for t in (1, 2, 4, 8)
    for p in (1, 2, 4, 8, 16, 32, 64)
}
BEST = min((x for x in POINTS if POINTS[x][0] <= 80e9), key=lambda x: POINTS[x][1])
CLOSE = {f"layout {i}": (20e9 + 1e6 * i, 5 + 1e-4 * i) for i in range(12)}
MANY = {i: (1e9 * (1 + i % 211), 3 + (i * 37 % 101) / 7) for i in range(900)}
SCATTERS = {
    "27": dict(points=POINTS, capacity=CAPACITY, best=BEST, title="GPT-3 on 1,024 GPUs"),
    "no limit": dict(points=POINTS, best=BEST),
    "none fits": dict(points=POINTS, capacity=("a small GPU", 1e9)),
    "all fit": dict(points=POINTS, capacity=("a large GPU", 9e12), best=BEST, title="all"),
    "one": dict(points={"8×8×16": (14e9, 10.63)}, capacity=CAPACITY, best="8×8×16"),
    "on each other": dict(points=CLOSE, best="layout 0", capacity=("H100", 21e9)),
    "best at the right": dict(points=POINTS, best=Layout(1, 1, 1024)),
    "best at the top": dict(points=POINTS, best=Layout(1, 64, 16), unit="GiB"),
    "reasons": dict(
        points=POINTS,
        capacity=CAPACITY,
        best=BEST,
        out={x: f"t = {x.t} does not divide the heads" for x in POINTS if x.t == 4}
        | {x: f"{x.p} stages for 61 layers" for x in POINTS if x.p == 64}
        | {Layout(8, 3, 1): "GPUs left over", Layout(8, 5, 1): "GPUs left over"},
    ),
    "many": dict(points=MANY, capacity=("H100", 80e9), best=0, names=[0, 1, 2]),
}
STEPS = {
    Layout(8, 8, 16): {"compute": 8.704, "bubble": 0.634, "tp": 0.902, "pp": 0.193, "dp": 0.206},
    Layout(4, 16, 16): {"compute": 8.704, "bubble": 1.36, "tp": 0.387, "pp": 0.193, "dp": 0.206},
    Layout(1, 64, 16): {"compute": 8.704, "bubble": 5.71, "tp": 0.0, "pp": 0.193, "dp": 0.206},
}
TINY = dict.fromkeys(STEP_PARTS, 0.01)
BARS = {
    "three": dict(layouts=STEPS, best=Layout(8, 8, 16), title="GPT-3 on 1,024 GPUs"),
    "one": dict(layouts={"8×8×16": {"compute": 3.0}}),
    "tiny": dict(layouts={"all tiny": TINY, "but one": TINY | {"compute": 4321.0}}, title="t"),
    "long": dict(
        layouts={
            f"{n}×8×128, v = 2, microbatch 4, selective": TINY | {"compute": 0.2} for n in (2, 4)
        }
    ),
    "sixteen": dict(layouts={i: TINY | {"compute": i / 1e4} for i in range(16)}),
}
PICTURES = {f"scatter, {k}": lambda v=v: plot.layout_scatter(**v) for k, v in SCATTERS.items()}
PICTURES |= {f"bars, {k}": lambda v=v: plot.step_breakdown(**v) for k, v in BARS.items()}


def texts(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def drawn(picture):
    """Returns the number of dots by marker, those of the key and of the ring left out."""
    lines = picture.figure.axes[0].get_lines()
    return {
        line.get_marker(): len(line.get_xdata())
        for line in lines
        if line.get_marker() not in ("None", None, "")
        and line.get_clip_on()
        and line.get_markersize() < 10
    }


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_leaves_the_picture_or_lies_on_another(name):
    figure = PICTURES[name]().figure
    figure.draw_without_rendering()
    axes = figure.axes[0]
    words = [*axes.texts, axes._left_title, axes.xaxis.label, axes.yaxis.label]
    words += [*axes.get_xticklabels(), *axes.get_yticklabels()]
    boxes = [(word.get_text(), word.get_window_extent()) for word in words if word.get_text()]
    page = figure.bbox
    for text, box in boxes:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, text
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, text
    for (a, box_a), (b, box_b) in itertools.combinations(boxes, 2):
        assert not box_a.padded(-1).overlaps(box_b.padded(-1)), f"{a!r} lies on {b!r}"


@pytest.mark.parametrize("name", SCATTERS)
def test_no_name_lies_on_a_dot_or_on_the_capacity(name):
    picture = plot.layout_scatter(**SCATTERS[name])
    picture.figure.draw_without_rendering()
    axes = picture.figure.axes[0]
    dots = [
        axes.transData.transform(spot)
        for line in axes.get_lines()
        if line.get_marker() in ("o", "x", "+")
        for spot in line.get_xydata()
    ]
    dashed = [line.get_xdata()[0] for line in axes.get_lines() if line.get_linestyle() == "--"]
    for text in axes.texts:
        box = text.get_window_extent()
        for x, y in dots:
            inside = box.x0 + 1 < x < box.x1 - 1 and box.y0 + 1 < y < box.y1 - 1
            assert not inside, text.get_text()
        for limit in dashed:
            x = axes.transData.transform((limit, 0))[0]
            in_key = box.y0 > axes.get_window_extent().y1
            assert in_key or not box.x0 < x < box.x1, text.get_text()


def test_every_layout_is_a_dot_and_what_does_not_fit_looks_different():
    picture = plot.layout_scatter(**SCATTERS["27"])
    fit = sum(size <= 80e9 for size, _ in POINTS.values())
    assert drawn(picture) == {"o": fit, "x": len(POINTS) - fit}
    assert {f"fits: {fit}", f"too much memory: {len(POINTS) - fit}"} <= set(texts(picture))
    named = plot.layout_scatter({"a": (1e9, 1.0)}, capacity=("H100 SXM 80 GB", 80e9))
    assert "H100 SXM 80 GB" in texts(named)  # no need to say 80 GB twice
    exact = plot.layout_scatter({"fits": (80e9, 1.0), "over": (80.001e9, 2.0)}, capacity=CAPACITY)
    assert drawn(exact) == {"o": 1, "x": 1}


def test_each_reason_has_a_mark_of_its_own_and_what_has_no_dot_is_counted():
    picture = plot.layout_scatter(**SCATTERS["reasons"])
    said = texts(picture)
    assert "t = 4 does not divide the heads: 6" in said  # the seventh has 64 stages
    assert "64 stages for 61 layers: 4" in said
    assert "not drawn, GPUs left over: 2" in said
    marks = drawn(picture)
    assert len(marks) == 4
    assert sum(marks.values()) == len(POINTS)
    assert "2 not drawn (GPUs left over)" in picture.alt


def test_dots_stand_where_their_numbers_are():
    import math

    axes = plot.layout_scatter({"a": (1e9, 1.0), "b": (10e9, 2.0), "c": (100e9, 4.0)}).figure.axes[
        0
    ]
    (line,) = [x for x in axes.get_lines() if x.get_marker() == "o" and x.get_clip_on()]
    (xa, ya), (xb, yb), (xc, yc) = line.get_xydata()
    assert math.isclose(xb - xa, xc - xb)
    assert math.isclose(yb - ya, yc - yb)
    assert xa < xb
    assert ya < yb
    ticks = dict(
        zip([t.get_text() for t in axes.get_xticklabels()], axes.get_xticks(), strict=True)
    )
    assert math.isclose(ticks["10"], xb)


def test_the_best_is_ringed_and_told_with_its_numbers():
    picture = plot.layout_scatter(
        {"8×8×16": (13.95e9, 10.6317), "8×4×32": (24.89e9, 10.66)}, best="8×8×16"
    )
    assert "8×8×16\n14 GB, 10.63 s" in [x.replace("13.9 GB", "14 GB") for x in texts(picture)]
    rings = [x for x in picture.figure.axes[0].get_lines() if x.get_fillstyle() == "none"]
    assert len(rings) == 1
    assert "best: 8×8×16" in picture.alt
    assert "next: 8×4×32 24.9 GB 10.66 s" in picture.alt


def test_layouts_that_print_alike_stay_apart():
    twins = {Layout(8, 8, 16): (14e9, 10.6), Layout(8, 8, 16, v=2): (16e9, 10.3)}
    picture = plot.layout_scatter(twins, best=Layout(8, 8, 16, v=2))
    assert drawn(picture) == {"o": 2}
    assert "best: 8×8×16 16 GB 10.30 s" in picture.alt
    assert len(texts(plot.step_breakdown({twin: {"compute": 1} for twin in twins}))) >= 4


def test_a_crowd_is_drawn_with_the_names_that_were_asked_for():
    picture = plot.layout_scatter(**SCATTERS["many"])
    assert sum(drawn(picture).values()) == 900
    assert [text for text in texts(picture) if text.isdigit()] == [
        name for name in ("1", "2") if name in texts(picture)
    ]


def test_what_can_not_be_drawn_is_refused():
    with pytest.raises(ValueError, match="no layout to draw"):
        plot.layout_scatter({})
    with pytest.raises(ValueError, match="8×8×16, is none of the 1 points"):
        plot.layout_scatter({"1×1×1": (1.0, 1.0)}, best="8×8×16")
    with pytest.raises(ValueError, match="1×1×1 has 0 bytes"):
        plot.layout_scatter({"1×1×1": (0, 1.0)})
    with pytest.raises(ValueError, match="no layout to draw"):
        plot.step_breakdown({})
    with pytest.raises(ValueError, match="'waits' is no part of a step"):
        plot.step_breakdown({"a": {"waits": 1}})
    with pytest.raises(ValueError, match="a: tp can't take -1 s"):
        plot.step_breakdown({"a": {"tp": -1}})
    with pytest.raises(ValueError, match="takes some time"):
        plot.step_breakdown({"a": {"tp": 0}})
    with pytest.raises(ValueError, match="c, is none of the 1 bars"):
        plot.step_breakdown({"a": {"tp": 1}}, best="c")


def test_bars_are_as_long_as_their_parts_and_lie_end_to_end():
    picture = plot.step_breakdown({"a": {"dp": 4.0, "compute": 1.0, "bubble": 2.0}})
    blocks = [x for x in picture.figure.axes[0].patches if x.get_clip_on()]
    assert [(x.get_x(), x.get_width()) for x in blocks] == [(0, 1), (1, 2), (3, 4)]


def test_communication_has_its_colour_in_a_tint_for_each_axis():
    picture = plot.step_breakdown({"a": dict.fromkeys(STEP_PARTS, 1.0)})
    blocks = [x for x in picture.figure.axes[0].patches if x.get_clip_on()]
    edges = [to_hex(x.get_edgecolor()).upper() for x in blocks]
    roles = dict(zip(STEP_PARTS, edges, strict=True))
    assert {roles[k] for k in ("tp", "cp", "pp", "dp")} == {plot.COLOURS["communication"]}
    assert roles["compute"] == plot.COLOURS["activations"]
    assert len({to_hex(x.get_facecolor()) for x in blocks}) == len(STEP_PARTS)


def test_every_part_is_told_in_its_block_or_behind_the_bar():
    for name in BARS:
        picture = plot.step_breakdown(**BARS[name])
        said = " ".join(texts(picture)).replace("\n", " ")
        for parts in BARS[name]["layouts"].values():
            places = decimals(max(sum(p.values()) for p in BARS[name]["layouts"].values()))
            for time_s in (s for s in parts.values() if round(s, places)):
                assert f"{time_s:.{places}f}" in said
    alt = plot.step_breakdown(STEPS, title="GPT-3").alt
    assert alt.startswith("GPT-3. 8×8×16: 10.64 s (compute 8.70, bubble 0.63, TP 0.90, PP 0.19, ")


def test_seconds_have_about_four_digits():
    assert [seconds(x) for x in (10.6317, 1.5, 0.02345, 123.456, 98765.4)] == [
        "10.63 s",
        "1.50 s",
        "0.0234 s",
        "123.5 s",
        "98,765 s",
    ]


def test_importing_them_brings_no_matplotlib():
    program = "import sys, distlab.scatter, distlab.breakdown; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
