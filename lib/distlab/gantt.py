"""The picture of a timeline: a row for computing and one for communicating, rank by rank."""

from collections.abc import Sequence
from typing import Any

from distlab import canvas
from distlab.canvas import COLOURS, MUTED, WIDTH_IN, Picture
from distlab.ledger import rank_ranges
from distlab.timeline import STREAMS, Event, Timeline

MOST_RANKS = 16
_ROW_IN, _GAP_IN = 0.27, 0.14  # one stream; between two ranks
_LEFT, _RIGHT = 0.175, 0.975  # the axes' place on the page, as shares of its width
_LETTER_IN = 0.074  # the width of a letter of a bar's name
_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def timeline(timeline: Timeline, *, ranks: Sequence[int] | None = None, title: str = "") -> Picture:
    """Draws what each rank computed and communicated over time, coloured by role.

    `ranks` chooses who is drawn: all of them by default, or the first 16.

    Example: `plot.timeline(run(step, 4, cluster=DGX_H100).timeline, title="One step")`.
    """
    if not isinstance(timeline, Timeline):
        raise TypeError(
            "plot.timeline draws a Timeline, and only a run with a clock has one: "
            f"run(..., cluster=...). This is {type(timeline).__name__}."
        )
    drawn = list(range(min(timeline.ranks, MOST_RANKS)) if ranks is None else ranks)
    unit, unit_s = _unit(timeline.makespan_s)
    span = timeline.makespan_s / unit_s or 1.0
    roles = [role for role in COLOURS if any(e.role == role for e in timeline.events)]

    head_in, foot_in = (0.72 if title else 0.42), 0.56
    rows_in = len(drawn) * (len(STREAMS) * _ROW_IN + _GAP_IN)
    height_in = rows_in + head_in + foot_in
    figure = canvas.figure(height_in)
    page = canvas.page(figure)
    page.set_xlim(0, 1)
    page.set_ylim(0, height_in)
    if title:
        canvas.title(page, title)
    _key(page, roles, height_in - head_in + 0.16)
    axes = figure.add_axes(
        (_LEFT, foot_in / height_in, _RIGHT - _LEFT, rows_in / height_in), facecolor="none"
    )
    axes.set_xlim(0, span * 1.004)  # the last bar's edge is not cut
    axes.set_ylim(max(rows_in, _GAP_IN), 0)
    letters = (_RIGHT - _LEFT) * WIDTH_IN / _LETTER_IN / span  # how many fit in a unit of time
    for place, rank in enumerate(drawn):
        top = place * (len(STREAMS) * _ROW_IN + _GAP_IN) + _GAP_IN / 2
        _rank_label(page, rank, height_in - head_in - top - _ROW_IN)
        for row, stream in enumerate(STREAMS):
            for event in timeline.of(rank, stream):
                _bar(axes, event, top + row * _ROW_IN, unit_s, letters)
    axes.set_yticks([])
    axes.set_xlabel(f"time in {unit}", fontsize=10.5)
    axes.grid(axis="x", color="#E4E4E4")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return Picture(figure, _words(timeline, drawn, title))


def _unit(span_s: float) -> tuple[str, float]:
    """Returns the unit in which a time is a number of at least 1: `_unit(0.02) == ("ms", 1e-3)`."""
    return next(((name, size_s) for name, size_s in _UNITS if span_s >= size_s), _UNITS[-1])


def _bar(axes: Any, event: Event, top: float, unit_s: float, letters: float) -> None:
    start, width = event.start_s / unit_s, event.duration_s / unit_s
    canvas.block(axes, start, top + 0.02, width, _ROW_IN - 0.04, COLOURS[event.role])
    for name in (event.name, event.name.split()[-1]):  # "all_reduce #2", or at least "#2"
        if len(name) + 1 <= width * letters:
            canvas.text(axes, start + width / 2, top + _ROW_IN / 2, name, 8.5)
            break


def _rank_label(page: Any, rank: int, middle: float) -> None:
    canvas.text(page, 0.048, middle, f"rank {rank}", 10, MUTED)
    for row, name in enumerate(("compute", "comm")):
        y = middle + _ROW_IN * (0.5 - row)
        canvas.text(page, _LEFT - 0.012, y, name, 8.5, MUTED, ha="right")


def _key(page: Any, roles: Sequence[str], y: float) -> None:
    x = _LEFT
    for role in roles:
        canvas.block(page, x, y - 0.055, 0.016, 0.11, COLOURS[role])
        canvas.text(page, x + 0.024, y, role, 9, MUTED, ha="left")
        x += 0.055 + len(role) * 0.0105


def _words(timeline: Timeline, drawn: Sequence[int], title: str) -> str:
    alike: dict[str, list[int]] = {}
    for rank in drawn:
        computes, communicates, exposed = (
            _time_text(time_s)
            for time_s in (
                timeline.busy_s(rank, "compute"),
                timeline.busy_s(rank, "comm"),
                timeline.exposed_comm_s(rank),
            )
        )
        text = f"{computes} of computing, {communicates} of communicating, {exposed} of it exposed"
        alike.setdefault(text, []).append(rank)
    rows = "; ".join(
        f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}: {text}"
        for text, ranks in alike.items()
    )
    left = "" if len(drawn) == timeline.ranks else f" (drawn: {rank_ranges(drawn)})"
    return (
        f"{title or 'Timeline'}. {timeline.ranks} ranks{left} over "
        f"{_time_text(timeline.makespan_s)}. {rows}."
    )


def _time_text(time_s: float) -> str:
    unit, unit_s = _unit(time_s) if time_s else ("s", 1.0)
    return f"{time_s / unit_s:.3g} {unit}"
