"""Memory stacks and rooflines: what is drawn is what was given, in one unit, without overlaps."""

import itertools

import pytest

from distlab import plot
from distlab.hardware import DGX_H100, H100_SXM
from distlab.memory import size_text
from distlab.stacks import spread

N = 7.5e9
ZERO = {
    "DP": {"weights": 2 * N, "gradients": 2 * N, "optimiser states": 12 * N},
    "ZeRO-1": {"weights": 2 * N, "gradients": 2 * N, "optimiser states": 12 * N / 64},
    "ZeRO-2": {"weights": 2 * N, "gradients": 2 * N / 64, "optimiser states": 12 * N / 64},
    "ZeRO-3": {part: k * N / 64 for part, k in (("weights", 2), ("gradients", 2))}
    | {"optimiser states": 12 * N / 64},
}
GPT3 = {
    "GPT-3, one GPU": {
        "weights": 350e9,
        "gradients": 350e9,
        "master weights": 700e9,
        "first moment": 700e9,
        "second moment": 700e9,
        "activations": 275e9,
    }
}
ROOFS = {
    "HBM": H100_SXM.hbm_bytes_per_s,
    "NVLink, one way": H100_SXM.nvlink.rate_bytes_per_s,
    "InfiniBand": DGX_H100.network.rate_bytes_per_s,
}
EXAMPLE_POINTS = {
    "7.5B, 16,384 tokens a step": ("InfiniBand", 6 * N * 16384 / 29.53e9),
    "adding two vectors": ("HBM", 1 / 6),
}
CAPACITY = ("H100 SXM", H100_SXM.memory_bytes)


def texts(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def heights(picture):
    return [round(patch.get_height(), 3) for patch in picture.figure.axes[0].patches]


THIN = {"weights": 98e9, "gradients": 1e9, "optimiser states": 1e9, "activations": 1e9}
FINE = {"weights": 2, "gradients": 2, "master weights": 4, "first moment": 4, "second moment": 4}
HARD = {  # stacks where labels crowd: many, of thin parts, of tiny ones, with long names
    "six thin ones": {name: THIN for name in "abcdef"},
    "six thin at the foot": {
        f"stack {i}": dict(zip(THIN, [1e9, 1e9, 1e9, 97e9], strict=True)) for i in range(6)
    },
    "ever smaller": {
        f"ZeRO-3, N = {4**i}": {part: k * N / 4**i for part, k in FINE.items()}
        | {"activations": 9e8}
        for i in range(6)
    },
    "big and tiny": {"big": {"weights": 1e12}, "tiny": THIN},
    "all of one per cent": {
        "a name of many words": dict.fromkeys(FINE, 1e9) | {"activations": 95e9}
    },
    "three long names": {f"selective recompute {i}": THIN for i in range(3)},
    "eight": {f"stage {i}": THIN for i in range(8)},
    "nothing in one": {"nothing": {}, "something": THIN},
}
PICTURES = {
    f"{name}, {limit[0]}": lambda stacks=stacks, limit=limit: plot.memory_stack(
        stacks, capacity=limit, title="What fills one GPU"
    )
    for name, stacks in HARD.items()
    for limit in (CAPACITY, ("far above", 5e12), ("far below", 1e9))
} | {
    "ZeRO": lambda: plot.memory_stack(ZERO, capacity=CAPACITY, title="7.5B on 64 GPUs"),
    "GPT-3": lambda: plot.memory_stack(GPT3, capacity=CAPACITY),
    "two, GiB": lambda: plot.memory_stack(GPT3 | {"a quarter": {"weights": 90e9}}, unit="GiB"),
    "roofline": lambda: plot.roofline(H100_SXM.peak_flop_per_s, ROOFS, title="One H100"),
    "points": lambda: plot.roofline(H100_SXM.peak_flop_per_s, ROOFS, EXAMPLE_POINTS),
}


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_leaves_the_picture_or_lies_on_another(name):
    figure = PICTURES[name]().figure
    figure.draw_without_rendering()
    axes = figure.axes[0]
    titles = [child for child in axes.get_children() if child in (axes.title, axes._left_title)]
    words = [*axes.texts, *titles, axes.xaxis.label, axes.yaxis.label]
    words += axes.get_xticklabels() if axes.get_yscale() != "log" else []
    words = [word for word in words if word.get_text()]
    page = figure.bbox
    boxes = [(word.get_text(), word.get_window_extent()) for word in words]
    for text, box in boxes:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, text
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, text
    upright = [b for word, b in zip(words, boxes, strict=True) if word.get_rotation() % 90 == 0]
    for (a, box_a), (b, box_b) in itertools.combinations(upright, 2):
        assert not box_a.padded(-1).overlaps(box_b.padded(-1)), f"{a!r} lies on {b!r}"


@pytest.mark.parametrize("name", HARD)
def test_every_part_of_a_crowded_stack_is_named_and_sized(name):
    picture = plot.memory_stack(HARD[name], capacity=CAPACITY)
    drawn = " ".join(texts(picture)).replace("\n", " ")
    for stack in HARD[name].values():
        for part, size_bytes in stack.items():
            assert part in drawn
            assert size_text(size_bytes).removesuffix(" GB") in drawn


def test_labels_beside_a_stack_stay_in_their_order_without_meeting():
    assert spread([], [], 4) == []
    assert spread([1, 3], [0.5, 0.5], 4) == [1, 3]
    assert spread([1, 1], [0.5, 0.5], 4) == [1, 2]
    assert spread([4, 4, 4], [0.5, 0.5, 0.5], 4) == [1.5, 2.5, 3.5]
    assert spread([0.1, 0.1], [0.5, 0.5], 0.2) == [0.5, 1.5]  # no room: they grow beyond it


def test_blocks_are_as_high_as_their_bytes_and_stand_on_each_other():
    picture = plot.memory_stack(ZERO)
    assert heights(picture)[:6] == [15, 15, 90, 15, 15, 1.406]
    patches = picture.figure.axes[0].patches
    assert [patch.get_y() for patch in patches[:3]] == [0, 15, 30]
    assert [patch.get_y() for patch in patches[3:6]] == [0, 15, 30]


def test_colours_are_roles_and_order_is_from_weights_to_activations():
    from matplotlib.colors import to_hex

    picture = plot.memory_stack({"all": dict(reversed(GPT3["GPT-3, one GPU"].items()))})
    edges = [to_hex(patch.get_edgecolor()).upper() for patch in picture.figure.axes[0].patches]
    roles = ["weights", "gradients", *["optimiser states"] * 3, "activations"]
    assert edges == [plot.COLOURS[role] for role in roles]


def test_totals_are_those_of_zeros_figure_1():
    drawn = texts(plot.memory_stack(ZERO))
    assert [total for total in ("120 GB", "31.4 GB", "16.6 GB", "1.88 GB") if total in drawn] == [
        "120 GB",
        "31.4 GB",
        "16.6 GB",
        "1.88 GB",
    ]


def test_the_capacity_is_dashed_and_what_exceeds_it_says_so():
    picture = plot.memory_stack(ZERO, capacity=CAPACITY)
    (line,) = [x for x in picture.figure.axes[0].get_lines() if x.get_linestyle() == "--"]
    assert list(line.get_ydata()) == [80, 80]
    over = [text for text in texts(picture) if "over by" in text]
    assert over == ["120 GB\nover by 40 GB"]
    exact = plot.memory_stack({"fits": {"weights": 80e9}}, capacity=CAPACITY)
    assert not [text for text in texts(exact) if "over by" in text]


def test_one_picture_speaks_one_unit():
    for unit, other in (("GB", "GiB"), ("GiB", " GB")):
        picture = plot.memory_stack(GPT3, capacity=CAPACITY, unit=unit)
        words = " ".join([*texts(picture), picture.alt, picture.figure.axes[0].get_ylabel()])
        assert unit in words
        assert other not in words
    assert "74.5 GiB" in picture.alt


def test_the_alternative_text_of_a_stack_lists_every_part():
    alt = plot.memory_stack(ZERO, capacity=CAPACITY, title="7.5B on 64 GPUs").alt
    assert alt.startswith("7.5B on 64 GPUs. DP: 120 GB (weights 15 GB, gradients 15 GB, opt")
    assert alt.endswith("a dashed line: H100 SXM, 80 GB.")
    assert "nothing: 0 GB (nothing)" in plot.memory_stack({"nothing": {}}).alt


def test_a_stack_that_can_not_be_is_refused():
    with pytest.raises(ValueError, match="no stack to draw"):
        plot.memory_stack({})
    with pytest.raises(ValueError, match="'momentum' is no part"):
        plot.memory_stack({"x": {"momentum": 1}})
    with pytest.raises(ValueError, match="no unit of size"):
        plot.memory_stack(ZERO, unit="Gb")


def test_a_roof_rises_with_its_rate_to_the_peak_and_names_its_corner():
    picture = plot.roofline(H100_SXM.peak_flop_per_s, ROOFS)
    drawn = texts(picture)
    assert {"295", "2,198", "19,780", "peak 989 TFLOP/s"} <= set(drawn)
    roof = picture.figure.axes[0].get_lines()[0]
    (x0, corner, _), (y0, peak, flat) = roof.get_xdata(), roof.get_ydata()
    assert y0 / x0 == pytest.approx(3.35)  # TFLOP/s per FLOP/B = TB/s
    assert (round(corner), peak, flat) == (295, 989, 989)
    assert "HBM reaches it at 295 FLOP per byte" in picture.alt
    both_ways = plot.roofline(
        H100_SXM.peak_flop_per_s, {"NVLink": H100_SXM.nvlink.two_way_bytes_per_s}
    )
    assert "1,099" in texts(both_ways)


def test_points_lie_on_their_roof():
    picture = plot.roofline(H100_SXM.peak_flop_per_s, ROOFS, EXAMPLE_POINTS)
    points = [x for x in picture.figure.axes[0].get_lines() if x.get_marker() == "D"]
    assert points[0].get_ydata()[0] == 989
    assert points[1].get_ydata()[0] == pytest.approx(3.35 / 6)
    assert (
        "lies at 24,967 under InfiniBand; adding two vectors lies at 0.167 under HBM" in picture.alt
    )
