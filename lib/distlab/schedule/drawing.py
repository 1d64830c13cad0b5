"""Pictures of a pipeline without matplotlib: the lecture's strings, and a Gantt chart in SVG.

Colours are those of the course's roles: F and R are about activations, B about gradients, W about
the gradient of the weights. Later chunks are drawn in a stronger tint.
"""

import html
from collections import defaultdict
from fractions import Fraction
from math import gcd, lcm
from numbers import Rational

from distlab.canvas import COLOURS, INK, MUTED
from distlab.schedule.timeline import ROLES, Number, PipelineTimeline

NAMES = {"F": "forward", "B": "backward", "W": "weight gradient", "R": "forward again"}
IDLE = "·"
_WIDTH, _LEFT, _RIGHT = 720, 58, 14  # px
_DIGIT = 6.2  # px, the width of a digit of the numbers in bars


# -- the lecture's strings ------------------------------------------------------------------------


def ascii_rows(timeline: PipelineTimeline, *, unit: Number | None = None) -> list[str]:
    """Returns one string per rank, one character per unit of time.

    Digits are forward passes, small letters backward passes (a is microbatch 0), capital letters
    weight gradients, · idle. Microbatches from 10 and 26 on begin again at 0 and a. `unit` is the
    time of a character: by default the longest in which every start and end is a whole number.

    Example: `ascii_rows(simulate(naive(2)))` is `["0···aa", "·0aa··"]`.
    """
    unit = _common_unit(timeline) if unit is None else unit
    columns = round(timeline.makespan / unit)
    rows = []
    for rank in range(timeline.ranks):
        row = [IDLE] * columns
        for (kind, i, _), start, end in timeline.of(rank):
            place = slice(round(start / unit), round(end / unit))
            row[place] = _letter(kind, i) * (place.stop - place.start)
        rows.append("".join(row))
    return rows


def ascii_art(timeline: PipelineTimeline, *, unit: Number | None = None) -> str:
    """Returns `ascii_rows` under each other, each with its rank."""
    digits = len(str(timeline.ranks - 1))
    rows = ascii_rows(timeline, unit=unit)
    return "\n".join(f"rank {rank:<{digits}}  {row}" for rank, row in enumerate(rows))


def _letter(kind: str, i: int) -> str:
    if kind in "FR":
        return str(i % 10)
    return chr(ord("a" if kind == "B" else "A") + i % 26)


def _common_unit(timeline: PipelineTimeline) -> Number:
    times = {t for rows in (timeline.starts, timeline.lengths) for row in rows for t in row} - {0}
    if not all(isinstance(t, Rational) for t in times):
        raise ValueError("Times in floats have no common unit: say unit=, the time of a character.")
    exact = [Fraction(t) for t in times]
    whole = lcm(*(t.denominator for t in exact))
    return Fraction(gcd(*(int(t * whole) for t in exact)), whole) if exact else Fraction(1)


# -- the Gantt chart ------------------------------------------------------------------------------


def gantt_svg(timeline: PipelineTimeline, *, title: str = "", unit: str = "") -> str:
    """Returns a Gantt chart as SVG text: a row per rank, a bar per op, idle time left white.

    Bars that are wide enough carry the number of their microbatch. `unit` names the unit of time.
    Cost: about 2 µs per op; 16 ranks and 256 microbatches take about 20 ms and 300 kB.
    """
    p = timeline.ranks
    row = max(6, min(24, 480 // p))
    top = (26 if title else 4) + 22
    height = top + p * (row + 2) + 34
    x_per_time = (_WIDTH - _LEFT - _RIGHT) / (float(timeline.makespan) or 1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" style="max-width:100%;height:auto" role="img" '
        f'font-family="system-ui,sans-serif" font-size="11" fill="{INK}">',
        f"<title>{html.escape(describe(timeline, title=title, unit=unit))}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
    ]
    if title:
        parts.append(
            f'<text x="{_WIDTH / 2}" y="17" font-size="14" font-weight="bold" '
            f'text-anchor="middle">{html.escape(title)}</text>'
        )
    parts += _key(timeline, top - 14)
    parts += _bars(timeline, top, row, x_per_time)
    parts += _axis(timeline, top + p * (row + 2), x_per_time, unit)
    parts.append("</svg>")
    return "".join(parts)


def describe(timeline: PipelineTimeline, *, title: str = "", unit: str = "") -> str:
    """Returns the sentence that stands in for the picture where it can't be seen."""
    peaks = timeline.peak_in_flight
    shown = ", ".join(map(str, peaks[:8])) + (", …" if len(peaks) > 8 else "")
    ranks, microbatches = timeline.ranks, timeline.microbatches
    return (
        f"{title or 'Pipeline'}. {ranks} rank{'s' * (ranks > 1)}, "
        f"{microbatches} microbatch{'es' * (microbatches > 1)} over "
        f"{_short(timeline.makespan)}{' ' + unit if unit else ''}; bubble "
        f"{float(timeline.bubble_fraction):.1%}; at most in flight, by rank: {shown}."
    )


def name_of(kind: str, timeline: PipelineTimeline) -> str:
    """Returns what an op is called in this timeline: B is the whole backward pass, without a W."""
    return "input gradient" if kind == "B" and "W" in timeline.coding.kinds else NAMES[kind]


def tint(kind: str, chunk: int, chunks: int) -> str:
    """Returns the colour inside a bar: the role's, lighter; stronger for later chunks."""
    share = 0.28 + 0.32 * (chunk / (chunks - 1) if chunks > 1 else 0)
    if kind == "R":
        share /= 2
    channels = (int(COLOURS[ROLES[kind]][i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - channel)):02x}" for channel in channels)


def _bars(timeline: PipelineTimeline, top: int, row: int, x_per_time: float) -> list[str]:
    """Returns one path per kind and chunk, and the numbers of the bars that have room."""
    paths: dict[tuple[str, int], list[str]] = defaultdict(list)
    widest: dict[tuple[str, int], float] = defaultdict(float)
    numbers, labels = [], []
    for rank in range(timeline.ranks):
        y = top + rank * (row + 2)
        middle = y + row / 2 + 4
        if row >= 10 or rank % 4 == 0:
            labels.append(f'<text x="6" y="{middle:.0f}" fill="{MUTED}">rank {rank}</text>')
        for (kind, i, chunk), start, end in timeline.of(rank):
            x = _LEFT + float(start) * x_per_time
            width = float(end) * x_per_time + _LEFT - x
            paths[kind, chunk].append(f"M{x:.2f} {y}h{width:.2f}v{row}H{x:.2f}z")
            widest[kind, chunk] = max(widest[kind, chunk], width)
            if width > _DIGIT * len(str(i)) + 2 and row >= 12:
                numbers.append(f'<text x="{x + width / 2:.1f}" y="{middle:.0f}">{i}</text>')
    parts = []
    for (kind, chunk), path in sorted(paths.items()):
        colour = COLOURS[ROLES[kind]]
        fill = tint(kind, chunk, timeline.chunks)
        line = f' stroke="{colour}"' if widest[kind, chunk] > 3 else ""
        dashes = ' stroke-dasharray="2 2"' if kind == "R" else ""
        parts.append(f'<path fill="{fill}"{line}{dashes} d="{"".join(path)}"/>')
    return [*labels, *parts, '<g text-anchor="middle">', *numbers, "</g>"]


def _key(timeline: PipelineTimeline, y: int) -> list[str]:
    parts, x = [], _LEFT
    for kind in timeline.coding.kinds:
        colour, fill = COLOURS[ROLES[kind]], tint(kind, 0, 1)
        parts.append(
            f'<rect x="{x}" y="{y - 5}" width="14" height="10" fill="{fill}" stroke="{colour}"/>'
            f'<text x="{x + 20}" y="{y + 4}" fill="{MUTED}">{name_of(kind, timeline)}</text>'
        )
        x += 40 + 6 * len(name_of(kind, timeline))
    if timeline.chunks > 1:
        note = f"chunks 0 to {timeline.chunks - 1}: light to strong"
        parts.append(f'<text x="{x + 8}" y="{y + 4}" fill="{MUTED}">{note}</text>')
    return parts


def _axis(timeline: PipelineTimeline, y: int, x_per_time: float, unit: str) -> list[str]:
    end = float(timeline.makespan)
    step = _tick(end)
    parts = [f'<g fill="{MUTED}" stroke="none" text-anchor="middle">']
    for tick in range(int(end / step) + 1):
        x = _LEFT + tick * step * x_per_time
        parts.append(f'<rect x="{x - 0.5:.1f}" y="{y}" width="1" height="4"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 15}">{_short(tick * step)}</text>')
    middle = (_WIDTH + _LEFT - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{y + 29}">time{f" in {unit}" if unit else ""}</text></g>')
    return parts


def _tick(end: float) -> float:
    """Returns a round distance between ticks: `_tick(33.0) == 5.0`, about 5 to 10 of them."""
    if not end:
        return 1.0
    magnitude = 10.0 ** int(f"{end:e}".partition("e")[2])
    return next(s * magnitude for s in (0.1, 0.2, 0.5, 1.0) if end / (s * magnitude) <= 12)


def _short(time: Number) -> str:
    return f"{float(time):,.6g}"
