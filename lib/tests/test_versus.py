"""The picture of predictions against measurements says in words what it shows."""

import pytest

from distlab.plot import predicted_measured


def test_each_model_is_told_with_its_mean_and_worst_error():
    pairs = {"yours": [(100, 80), (200, 210)], "planner": [(100, 101)]}
    picture = predicted_measured(pairs, unit="TFLOP/s", title="Two models")
    assert picture.alt == (
        "Two models. yours: 2 runs, off by 12.5 % on average, −20 % at worst; "
        "planner: 1 run, off by 1.0 % on average, +1 % at worst."
    )
    texts = [text.get_text() for text in picture.figure.texts]
    assert "yours" in texts
    assert any("dashed: 10 % off" in text for text in texts)


@pytest.mark.parametrize("pairs", [{}, {"a": []}, {"a": [(0, 1)]}])
def test_nothing_to_draw_is_refused(pairs):
    with pytest.raises(ValueError, match=r"at least one pair|more than 0"):
        predicted_measured(pairs, unit="s")


def test_texts_beside_the_axes_do_not_meet():
    pairs = {f"model {i}": [(100 + i, 90), (50, 60)] for i in range(3)}
    figure = predicted_measured(pairs, unit="TFLOP/s per GPU", title="Three").figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    for i, box in enumerate(boxes):
        assert box.x1 <= figure.bbox.x1
        assert not any(box.overlaps(other) for other in boxes[:i])
