"""Memory curves: one line per name, its peak and its mark in words, nothing outside the picture."""

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
