"""Figures of a pipeline with matplotlib; import them from `distlab.plot`."""

from collections import defaultdict
from typing import Any

from distlab import canvas
from distlab.canvas import COLOURS, MUTED, WIDTH_IN, Picture
from distlab.schedule.drawing import describe, name_of, tint
from distlab.schedule.timeline import ROLES, PipelineTimeline

MOST_RANKS = 16
_LEFT, _RIGHT = 0.09, 0.975  # the axes' place on the page, as shares of its width
_DIGIT_IN = 0.075


def pipeline(timeline: PipelineTimeline, *, title: str = "", unit: str = "") -> Picture:
    """Draws a pipeline as a Gantt chart: a row per rank, a bar per op, numbered by microbatch.

    The first 16 ranks are drawn. `unit` names the unit of time.

    Example: `plot.pipeline(simulate(one_f_one_b(4, 8)), title="1F1B")`.
    """
    drawn = _drawn(timeline)
    page, axes = _page(timeline, drawn, 0.30, title, unit)
    digits = (_RIGHT - _LEFT) * WIDTH_IN / _DIGIT_IN / (float(timeline.makespan) or 1.0)
    for row in range(drawn):
        bars: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for (kind, i, chunk), start, end in timeline.of(row):
            x, width = float(start), float(end - start)
            bars[kind, chunk].append((x, width))
            if len(str(i)) + 0.3 < width * digits:
                canvas.text(axes, x + width / 2, row + 0.5, str(i), 9)
        for (kind, chunk), spans in bars.items():
            wide = max(width for _, width in spans) * digits > 0.5
            axes.broken_barh(
                spans,
                (row + 0.06, 0.88),
                facecolor=tint(kind, chunk, timeline.chunks),
                edgecolor=COLOURS[ROLES[kind]] if wide else "none",
                **_line(kind),
            )
    _key(page, timeline)
    return Picture(page.figure, describe(timeline, title=title, unit=unit))


def in_flight(
    timeline: PipelineTimeline, *, title: str = "", unit: str = "", most: float | None = None
) -> Picture:
    """Draws how many microbatches each rank holds over time, with the most it ever holds.

    With chunks, a microbatch counts once per chunk that has run. `most` is how many fill the height
    of a row, by default the most that any rank holds; give pictures that stand together the same.

    Example: `plot.in_flight(simulate(gpipe(4, 8)), title="GPipe holds all 8")`.
    """
    drawn = _drawn(timeline)
    peaks = timeline.peak_in_flight
    most = max(peaks) if most is None else most
    if most < max(peaks):
        raise ValueError(f"A rank holds {max(peaks)} at once: most={most} leaves no room for them.")
    page, axes = _page(timeline, drawn, 0.42, title, unit)
    colour = COLOURS["activations"]
    for row in range(drawn):
        steps = [(0, 0), *timeline.in_flight(row), (timeline.makespan, 0)]
        times = [float(time) for time, _ in steps]
        tops = [row + 0.98 - 0.70 * count / most for _, count in steps]
        axes.fill_between(
            times, tops, row + 0.98, step="post", facecolor=tint("F", 0, 1), edgecolor=colour
        )
        time, peak = max(steps, key=lambda step: step[1])
        at = float(time), row + 0.98 - 0.70 * peak / most
        axes.annotate(str(peak), at, (3, 2), textcoords="offset points", fontsize=9)
    shown = ", ".join(map(str, peaks[:drawn]))
    words = f"{title or 'Microbatches in flight'}. The most at once, by rank: {shown}."
    return Picture(page.figure, words)


def _drawn(timeline: PipelineTimeline) -> int:
    if not isinstance(timeline, PipelineTimeline):
        kind = type(timeline).__name__
        raise TypeError(f"This draws what simulate(orders) returns, not {kind}.")
    return min(timeline.ranks, MOST_RANKS)


def _page(
    timeline: PipelineTimeline, rows: int, row_in: float, title: str, unit: str
) -> tuple[Any, Any]:
    """Returns a page with a title, and axes with time to the right and the ranks downwards."""
    head_in, foot_in = (0.62 if title else 0.32), 0.52
    height_in = rows * row_in + head_in + foot_in
    figure = canvas.figure(height_in)
    page = canvas.page(figure)
    page.set_xlim(0, 1)
    page.set_ylim(0, height_in)
    if title:
        canvas.title(page, title)
    bottom, height = foot_in / height_in, rows * row_in / height_in
    axes = figure.add_axes((_LEFT, bottom, _RIGHT - _LEFT, height), facecolor="none")
    axes.set_xlim(0, (float(timeline.makespan) or 1.0) * 1.004)  # the last bar's edge is not cut
    axes.set_ylim(rows, 0)
    axes.set_yticks([row + 0.5 for row in range(rows)], [f"rank {row}" for row in range(rows)])
    axes.tick_params(axis="y", length=0, labelsize=9.5, labelcolor=MUTED)
    axes.set_xlabel(f"time in {unit}" if unit else "time", fontsize=10.5)
    axes.grid(axis="x", color="#E4E4E4")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return page, axes


def _key(page: Any, timeline: PipelineTimeline) -> None:
    x, y = _LEFT, page.get_ylim()[1] - (0.46 if page.texts else 0.16)
    for kind in timeline.coding.kinds:
        look = {"facecolor": tint(kind, 0, 1), "edgecolor": COLOURS[ROLES[kind]], **_line(kind)}
        page.broken_barh([(x, 0.016)], (y - 0.055, 0.11), **look)
        name = name_of(kind, timeline)
        canvas.text(page, x + 0.024, y, name, 9, MUTED, ha="left")
        x += 0.055 + len(name) * 0.0105
    if timeline.chunks > 1:
        note = f"chunks 0 to {timeline.chunks - 1}: light to strong"
        canvas.text(page, x, y, note, 9, MUTED, ha="left")


def _line(kind: str) -> dict[str, Any]:
    """Returns how a bar is outlined: dotted for what is done again."""
    return {"linestyle": ":" if kind == "R" else "-", "linewidth": 1.2}
