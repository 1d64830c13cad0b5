"""Memory curves: one line per name, its peak and its mark in words, nothing outside the picture."""

from itertools import pairwise

import pytest

from distlab import plot

CURVES = {"all kept": [10e6, 40e6, 90e6, 50e6, 10e6], "run again": [10e6, 30e6, 12e6]}
PEAKS = {"all kept": 90e6, "run again": 30e6}
MARKS = {"all kept": ("kept", 1), "run again": ("kept", 2)}


def texts(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def test_peaks_and_marks_are_named_with_their_sizes():
    picture = plot.memory_curve(CURVES, peaks=PEAKS, marks=MARKS, title="A step")
    said = ["all kept: ● kept 40 MB, peak 90 MB", "run again: ● kept 12 MB, peak 30 MB"]
    assert texts(picture) == said
    assert picture.alt == (
        "A step. all kept: kept 40 MB, peak 90 MB, 4 events; "
        "run again: kept 12 MB, peak 30 MB, 2 events."
    )


def test_a_curve_alone_has_its_name_and_the_asked_unit():
    picture = plot.memory_curve({"a step": [2**30]}, unit="GiB")
    assert texts(picture) == ["a step"]
    assert picture.figure.axes[0].get_ylabel() == "memory (GiB)"
    assert list(picture.figure.axes[0].lines[0].get_ydata()) == [1.0]


def test_a_peak_is_drawn_where_it_was_said_to_be_even_if_no_curve_goes_there():
    picture = plot.memory_curve({"a step": [10e6, 20e6]}, peaks={"a step": 50e6})
    axes = picture.figure.axes[0]
    assert list(axes.lines[1].get_ydata()) == [50.0, 50.0]
    assert axes.get_ylim()[1] > 50


def test_nothing_leaves_the_picture():
    figure = plot.memory_curve(CURVES, peaks=PEAKS, marks=MARKS, title="A step").figure
    figure.draw_without_rendering()
    axes, page = figure.axes[0], figure.bbox
    for word in (*axes.texts, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()):
        box = word.get_window_extent()
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, word.get_text()
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, word.get_text()


def test_no_curve_is_an_error():
    with pytest.raises(ValueError, match="no curve"):
        plot.memory_curve({})


LOSSES = {"stashing": [1.0, 0.1, 0.011], "newest": [1.0, 0.2, 0.010], "flush": [2.0, 0.9, 0.5]}


def test_losses_are_drawn_on_a_logarithmic_scale_and_named_at_their_ends_apart():
    picture = plot.loss_curves([1, 2, 3], LOSSES, xlabel="steps", title="Three runs")
    figure, axes = picture.figure, picture.figure.axes[0]
    figure.draw_without_rendering()
    assert axes.get_yscale() == "log"
    assert {line.get_label(): list(line.get_ydata()) for line in axes.lines} == LOSSES
    assert texts(picture) == ["newest", "stashing", "flush"]  # from the lowest end upwards
    boxes = [word.get_window_extent() for word in axes.texts]
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))
    assert all(box.x1 <= figure.bbox.x1 and box.y0 >= 0 for box in boxes)
    colours = {line.get_label(): line.get_color() for line in axes.lines}
    assert {word.get_text(): word.get_color() for word in axes.texts} == colours
    assert picture.alt == (
        "Three runs. loss against steps, 1 to 3: stashing goes from 1 to 0.011; "
        "newest goes from 1 to 0.01; flush goes from 2 to 0.5."
    )


def test_losses_that_can_not_be_drawn_are_refused():
    with pytest.raises(ValueError, match="above 0 only, not 0"):
        plot.loss_curves([1, 2], {"done": [1.0, 0.0]}, xlabel="steps")
    with pytest.raises(ValueError, match="1 to 6 curves, not 7"):
        plot.loss_curves([1], {str(k): [1.0] for k in range(7)}, xlabel="steps")
    with pytest.raises(ValueError, match="not 0"):
        plot.loss_curves([1], {}, xlabel="steps")
