"""Pictures: what is drawn is what was given, and everyone can read it."""

import itertools
import subprocess
import sys

import pytest

from distlab import plot

ALL_CUTS = (None, "columns", "rows", "partial")


def texts(picture):
    """Every text of the picture's one pair of axes."""
    return [text.get_text() for text in picture.figure.axes[0].texts]


def blocks(picture):
    """Width and height of every block drawn."""
    return [(p.get_width(), p.get_height()) for p in picture.figure.axes[0].patches]


@pytest.mark.parametrize("cut", ALL_CUTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_the_blocks_of_a_matrix_are_what_the_ranks_hold(cut, ranks):
    drawn = blocks(plot.shard_map(plot.Matrix("W", (6, 12), "weights", cut), ranks=ranks))
    expected = {
        None: [(12, 6)],
        "columns": [(12 / ranks, 6)] * ranks,
        "rows": [(12, 6 / ranks)] * ranks,
        "partial": [(12, 6)] * ranks,
    }
    assert drawn == expected[cut]


def test_every_block_names_its_rank():
    picture = plot.shard_map(plot.Matrix("W", (6, 12), "weights", "rows"), ranks=3)
    labels = [text for text in texts(picture) if text.startswith("rank")]
    assert labels == ["rank 0", "rank 1", "rank 2"]


def test_a_cut_that_does_not_come_out_even_is_refused_by_name():
    with pytest.raises(ValueError, match="W has 8 columns: not a multiple of 3 ranks"):
        plot.shard_map(plot.Matrix("W", (6, 8), "weights", "columns"), ranks=3)


def test_f_and_g_say_what_they_do_in_both_directions():
    x = plot.Matrix("X", (2, 4), "activations")
    drawn = texts(plot.shard_map(x, "f", x, "g", x, ranks=2))
    assert "→ as it is\n← sum" in drawn
    assert "→ sum\n← as it is" in drawn


def test_no_text_leaves_the_picture():
    x = plot.Matrix("X", (4, 6), "activations")
    a, b = (
        plot.Matrix("A", (6, 8), "weights", "columns"),
        plot.Matrix("B", (8, 6), "weights", "rows"),
    )
    for picture in (
        plot.shard_map(x, "f", a, "GeLU", x, "@", b, "g", x, ranks=4, title="An MLP"),
        plot.shard_map(x, "@", a, "=", plot.Matrix("Y", (4, 8), "weights", "partial"), ranks=4),
        plot.rank_values([[[1.5] * 9]] * 3, {"gradient of x": "gradients"}, title="Values"),
        plot.scaling_line([1, 2], {"InfiniBand": [0, 1]}, xlabel="ranks t", ylabel="y"),
    ):
        picture.figure.draw_without_rendering()
        page = picture.figure.bbox
        for text in picture.figure.axes[0].texts:
            box = text.get_window_extent()
            assert box.x0 >= page.x0, text.get_text()
            assert box.x1 <= page.x1, text.get_text()
            assert box.y0 >= page.y0, text.get_text()
            assert box.y1 <= page.y1, text.get_text()


@pytest.mark.parametrize("columns", [1, 2, 4, 6, 9])
def test_no_text_of_a_table_by_rank_lies_on_another(columns):
    roles = {f"gradient of w{i}": "gradients" for i in range(columns)}
    for cell in ([1.5, 100.25, -3.125, 4, 5], 7, 123456.789):
        for other in (cell, 0):  # columns that agree, and columns that differ
            figure = plot.rank_values(
                [[cell] * columns, [other] * columns], roles, title="t"
            ).figure
            figure.draw_without_rendering()
            boxes = [(x.get_text(), x.get_window_extent()) for x in figure.axes[0].texts]
            for (a, box_a), (b, box_b) in itertools.combinations(boxes, 2):
                assert not box_a.padded(-1).overlaps(box_b.padded(-1)), f"{a!r} lies on {b!r}"


def test_a_crowded_table_shows_fewer_numbers_of_each_value():
    value, roles = [1.5, 100.25, -3.125, 4.0], {f"w{i}": "weights" for i in range(9)}
    picture = plot.rank_values([[value] * 9] * 2, roles)
    assert "1.5, …" in texts(picture)
    assert "w8: 1.5, 100.25, -3.125, 4" in picture.alt


def test_values_by_rank_are_shown_and_equal_columns_are_named():
    picture = plot.rank_values(
        [(222.0, [[1.0], [10.0]]), (222.0, [[100.0], [1000.0]])],
        {"y": "activations", "part": "weights"},
    )
    drawn = texts(picture)
    assert drawn.count("222") == 2
    assert "1, 10" in drawn
    assert "100, 1000" in drawn
    assert drawn.count("same on every rank") == 1
    assert drawn.count("differs by rank") == 1


def test_long_values_end_in_dots():
    drawn = texts(plot.rank_values([[[1, 2, 3, 4, 5]]], {"x": "activations"}))
    assert "1, 2, 3, 4, …" in drawn


def test_tensors_are_read_as_they_are():
    torch = pytest.importorskip("torch")
    drawn = texts(plot.rank_values([[torch.tensor([[1.0, 2.5]])]], {"x": "activations"}))
    assert "1, 2.5" in drawn


def test_a_scaling_line_draws_the_data_the_ideal_dashed_and_names_both():
    picture = plot.scaling_line(
        [1, 2, 4],
        {"measured": [0, 1, 1.5]},
        ideal=("never reaches 2", [2, 2, 2]),
        xlabel="ranks t",
        ylabel="bytes sent / S",
    )
    axes = picture.figure.axes[0]
    ideal, measured = axes.get_lines()
    assert ideal.get_linestyle() == "--"
    assert list(measured.get_ydata()) == [0, 1, 1.5]
    assert texts(picture) == ["never reaches 2", "measured"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ranks t", "bytes sent / S")


def test_names_of_lines_stand_beside_the_axes_and_apart():
    picture = plot.scaling_line(
        [1, 2, 4],
        {"stage 0": [0, 3, 3], "stage 1": [0, 1, 0], "stage 2": [0, 0, 0]},
        xlabel="microbatch",
        ylabel="updates",
    )
    picture.figure.draw_without_rendering()
    axes = picture.figure.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 3
    assert all(box.x0 > axes.bbox.x1 for box in boxes)  # so no axis runs through a name
    for one, other in itertools.combinations(boxes, 2):
        assert not one.padded(-1).overlaps(other.padded(-1))
    assert all(float(tick).is_integer() for tick in axes.get_yticks())


def test_the_alternative_text_says_what_the_picture_shows_and_is_escaped():
    x = plot.Matrix("X", (2, 4), "activations", "columns")
    picture = plot.shard_map(x, ranks=2, title='a "b" <c>')
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == 'a "b" <c>. 2 ranks: X [2 × 4] (2 columns on each rank).'
    assert 'alt="a &quot;b&quot; &lt;c&gt;. 2 ranks' in bundle["text/html"]
    assert "data:image/png;base64," in bundle["text/html"]


def test_a_saved_svg_is_the_same_every_time(tmp_path):
    for name in ("one.svg", "two.svg"):
        x = plot.Matrix("X", (2, 4), "activations", "columns")
        plot.shard_map(x, ranks=2).save(tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def luminance(colour):
    """Relative luminance of a colour, as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_stand_out_from_the_page():
    for colour in (plot.INK, plot.MUTED):
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5, colour


def test_every_role_has_its_own_colour():
    assert len(set(plot.COLOURS.values())) == len(plot.COLOURS) == 5


def test_importing_plot_brings_neither_matplotlib_nor_torch():
    program = "import sys, distlab.plot; print({'matplotlib', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
