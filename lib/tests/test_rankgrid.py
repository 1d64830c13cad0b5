"""A grid of ranks shows what each one holds, and whose gradients make one sum."""

import pytest

from distlab import canvas, plot

PLACES = [{"tp": r % 2, "dp": r // 2 % 2, "pp": r // 4} for r in range(8)]
HELD = [{"norms": (0, 1), "matrices": (at["tp"] / 2, at["tp"] / 2 + 0.5)} for at in PLACES]


def texts(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def test_every_rank_stands_in_its_stage_and_replica():
    picture = plot.rank_grid(PLACES, HELD)
    where = {text.get_text(): text.get_position() for text in picture.figure.axes[0].texts}
    assert where["rank 0"][0] < where["rank 1"][0] < where["rank 4"][0] < where["rank 5"][0]
    assert where["rank 0"][1] == where["rank 5"][1] < where["rank 2"][1] == where["rank 7"][1]
    assert where["rank 1"][0] < where["stage 1"][0] < where["rank 5"][0]
    assert {"replica 0", "replica 1", "stage 0"} <= set(where)


def test_a_part_is_drawn_as_wide_as_it_is():
    picture = plot.rank_grid(PLACES, HELD)
    widths = [round(p.get_width(), 6) for p in picture.figure.axes[0].patches]
    whole = max(w for w in widths if widths.count(w) > 8)  # a bar's place, and the norms in it
    assert widths.count(whole) == 8 + 8 + 8  # places of both, and the norms
    assert widths.count(round(whole / 2, 6)) == 8


def test_what_a_rank_lacks_is_left_out():
    held = [{"embedding": (0, 1), "norms": (0, 1)}, {"norms": (0, 1)}]
    places = [{"tp": 0, "dp": 0, "pp": stage} for stage in (0, 1)]
    assert texts(plot.rank_grid(places, held)).count("embedding") == 1


def test_equal_numbers_are_one_sum():
    sums = {"norms": [[0, 1, 2, 3], [4, 5, 6, 7]], "matrices": [[0, 2], [1, 3], [4, 6], [5, 7]]}
    found = texts(picture := plot.rank_grid(PLACES, HELD, sums=sums, title="Sums"))
    assert [found.count(f"norms Σ{i}") for i in (1, 2)] == [4, 4]
    assert [found.count(f"matrices Σ{i}") for i in (3, 4, 5, 6)] == [2] * 4
    assert any("one sum" in text for text in found)
    assert "matrices is added up over ranks 0, 2; 1, 3; 4, 6; 5, 7" in picture.alt


def test_no_text_leaves_its_page_and_the_alt_tells_all():
    picture = plot.rank_grid(PLACES, HELD, title="What each rank holds")
    for text in picture.figure.axes[0].texts:
        width = canvas.text_size_in(text.get_text(), text.get_fontsize())[0]
        left = text.get_window_extent().x0 / picture.figure.dpi
        assert 0 <= left <= canvas.WIDTH_IN - width + 0.1, text.get_text()
    assert "rank 5: norms, matrices from 0.5 to 1" in picture.alt


def test_ranks_and_what_they_hold_must_fit():
    with pytest.raises(ValueError, match="2 places don't fit what 1 ranks hold"):
        plot.rank_grid(PLACES[:2], HELD[:1])
