"""The picture of a class: where it stands in each exercise, and the mistakes that it shares."""

from __future__ import annotations

import textwrap

from distgrade.classroom.report import COLUMNS, ClassReport, pick, short
from distlab import canvas
from distlab.canvas import INK, MUTED, WIDTH_IN, Picture

COLOURS = dict(zip(COLUMNS, ("#009E73", "#E69F00", "#D55E00", "#D9D9D9"), strict=True))
LEFT_IN, RIGHT_IN = 1.75, 0.35
ROW_IN, LINE_IN = 0.30, 0.17
SHARED = "what they share: students per mistake"
WRAP = 104  # characters of a mistake's sentence on a line


def draw(report: ClassReport) -> Picture:
    """Returns two charts, one above the other, both counting students."""
    whole, mistakes = len(report.outcomes), pick(report.mistakes())
    said = [textwrap.wrap(f"{short(m.exercise)}: {m.sentence}", WRAP)[:2] for m in mistakes]
    above_in = 0.95 + ROW_IN * len(report.exercises) + 0.35
    below_in = 0.75 + sum(LINE_IN * len(lines) + 0.34 for lines in said) if mistakes else 0.0
    height_in = above_in + below_in
    figure = canvas.figure(height_in)

    def axes(left, top, width, height):
        box = (left, height_in - top - height, width, height)
        return figure.add_axes(
            (box[0] / WIDTH_IN, box[1] / height_in, box[2] / WIDTH_IN, box[3] / height_in)
        )

    def words(x_in, y_in, text, **more):
        more = {"fontsize": 10, "color": INK, "va": "center"} | more
        figure.text(x_in / WIDTH_IN, 1 - y_in / height_in, text, **more)

    words(0.2, 0.25, f"{report.lab}: where {whole} submissions stand", fontsize=12, weight="bold")
    bars = axes(LEFT_IN, 0.75, WIDTH_IN - LEFT_IN - RIGHT_IN, ROW_IN * len(report.exercises))
    spot_in = LEFT_IN
    for name in COLUMNS:
        words(spot_in, 0.57, "■", color=COLOURS[name], fontsize=11)
        words(spot_in + 0.16, 0.58, name, fontsize=9.5, color=MUTED)
        spot_in += 0.42 + canvas.text_size_in(name, 9.5)[0]
    for place, exercise in enumerate(report.exercises):
        counts, start = report.standing(exercise), 0
        for name in COLUMNS:
            count = counts[name]
            bars.barh(place, count, left=start, height=0.72, color=COLOURS[name])
            if count >= 0.035 * whole:
                dark = name in ("partly right", "not written")
                colour = INK if dark else "white"
                bars.text(
                    start + count / 2, place, str(count), ha="center", va="center", fontsize=8.5,
                    color=colour,
                )  # fmt: skip
            start += count
    bars.set_yticks(range(len(report.exercises)), [short(x) for x in report.exercises], fontsize=9)
    bars.set_ylim(len(report.exercises) - 0.5, -0.5)
    _plain(bars, whole)

    y_in = above_in
    if mistakes:
        words(0.2, y_in + 0.15, SHARED, fontsize=12, weight="bold")
        y_in += 0.42
        if any(not m.known for m in mistakes):
            grey_in = 0.2 + canvas.text_size_in(SHARED, 12, bold=True)[0] + 0.25
            words(grey_in, y_in - 0.26, "grey: none of the known ones", fontsize=9.5, color=MUTED)
        full_in = WIDTH_IN - 0.2 - 1.1
        for mistake, lines in zip(mistakes, said, strict=True):
            count = len(mistake.students)
            for line in lines:
                y_in += LINE_IN
                words(0.2, y_in - 0.5 * LINE_IN, line, fontsize=9)
            bar = axes(0.2, y_in + 0.03, full_in, 0.15)
            bar.barh(0, whole, color="#F0F0F0")
            bar.barh(0, count, color=COLOURS["not right yet"] if mistake.known else "#B8B8B8")
            bar.set(xlim=(0, whole), ylim=(-0.4, 0.4))
            bar.set_axis_off()
            told = f"{count} ({round(100 * count / whole)} %)"
            words(0.2 + full_in + 0.12, y_in + 0.11, told, fontsize=9, color=MUTED)
            y_in += 0.34
    return Picture(figure, _alt(report, mistakes, whole))


def _plain(axes, whole: int) -> None:
    axes.set_xlim(0, whole)
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])


def _alt(report: ClassReport, mistakes, whole: int) -> str:
    passed = ", ".join(f"{short(x)} {report.standing(x)['passed']}" for x in report.exercises)
    shared = "; ".join(f"{len(m.students)} {short(m.exercise)}: {m.sentence}" for m in mistakes)
    return f"{report.lab}, {whole} submissions. Passed: {passed}. Mistakes: {shared or 'none'}."
