"""The picture of a search: every layout as a dot, its step time against the memory it needs.

Dots that fit one GPU are full, those that don't are crosses; the best is named, and as many others
as find room, so that no text lies on a dot or on another text. Import it from `distlab.plot`.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distlab import canvas
from distlab.canvas import COLOURS, INK, MUTED, WIDTH_IN, Picture
from distlab.memory import UNITS, in_unit, size_text

# Times and bytes come in, nothing is chosen: no room needs to FORBID anything here.

TOO_MUCH = "too much memory"
_LEFT_IN, _RIGHT_IN, _HEIGHT_IN, _FOOT_IN = 0.62, 0.14, 3.3, 0.52
_DOT_IN, _GAP_IN = 0.055, 0.035  # a dot's radius; from a dot or a text to the next text
_LETTERS, _BEST = 8.0, 10.0  # in points
_MOST_NAMES = 60  # a picture with more of them is no easier to read, only slower to make
_MARKS = ("x", "+", "1", "2", "3", "4")  # one for each reason, none of them filled


@dataclass(frozen=True, eq=False)
class Dot:
    """One layout of the picture; `reason` is why it is out, "" where it is not."""

    name: str
    size: float  # in the picture's unit
    time_s: float
    reason: str


Box = tuple[float, float, float, float]  # left, foot, right, top


def layout_scatter(
    points: Mapping[Any, tuple[float, float]],
    *,
    capacity: tuple[str, float] | None = None,
    out: Mapping[Any, str] | None = None,
    best: Any = None,
    unit: str = "GB",
    title: str = "",
    names: Collection[Any] | None = None,
) -> Picture:
    """Draws each layout's step time against the memory it needs, with the GPU's capacity dashed.

    `points` maps a layout (or its name) to (bytes of one GPU, seconds of a step); `out` maps those
    that are out to the reason. What exceeds `capacity`, a GPU's name and its bytes, and has no
    reason of its own is out for "too much memory". A layout of `out` without a point is counted in
    the key. `best` is the one to mark; `names` are those to be named, where not all of them.

    Example: `layout_scatter({"8×8×16": (14e9, 10.6), "1×2×512": (360e9, 18.6)}, best="8×8×16")`.
    """
    if not points:
        raise ValueError("There is no layout to draw.")
    dots = [_dot(name, *point, out or {}, capacity, unit) for name, point in points.items()]
    chosen = None if best is None else dots[_chosen(list(points), best)]
    unseen = Counter(reason for name, reason in (out or {}).items() if name not in points)
    named = [dot for name, dot in zip(points, dots, strict=True) if names is None or name in names]
    marks = _marks(dots)
    lines = _key_lines(_entries(dots, marks, unseen), WIDTH_IN - _LEFT_IN - _RIGHT_IN)

    head_in = 0.12 + (0.30 if title else 0) + 0.22 * len(lines)
    figure = canvas.figure(_FOOT_IN + _HEIGHT_IN + head_in)
    page_in, wide_in = figure.get_figheight(), WIDTH_IN - _LEFT_IN - _RIGHT_IN
    axes = figure.add_axes(
        (_LEFT_IN / WIDTH_IN, _FOOT_IN / page_in, wide_in / WIDTH_IN, _HEIGHT_IN / page_in)
    )
    limit = in_unit(capacity[1], unit) if capacity else None
    x = Scale([dot.size for dot in dots] + ([limit] if limit else []), wide_in, (0.38, 0.62))
    above_in = 0.42 if capacity else 0.2  # the capacity is named above all dots
    y = Scale([dot.time_s for dot in dots], _HEIGHT_IN, (0.48 if chosen else 0.2, above_in))
    axes.set_xlim(0, wide_in)  # inches, so that texts can be placed by their width
    axes.set_ylim(0, _HEIGHT_IN)
    axes.set_xticks([x.place(tick) for tick in x.ticks], map(_tick, x.ticks))
    axes.set_yticks([y.place(tick) for tick in y.ticks], map(_tick, y.ticks))
    places = {dot: (x.place(dot.size), y.place(dot.time_s)) for dot in dots}
    taken: list[Box] = [_around(*place, _DOT_IN) for place in places.values()]
    if capacity:
        taken += _draw_capacity(axes, capacity, x.place(limit), wide_in, unit)
    for reason, mark in marks.items():
        spots = [places[dot] for dot in dots if dot.reason == reason]
        look = {"color": MUTED if reason else COLOURS["weights"]}
        look["markersize"] = 6 if len(dots) <= 150 else 3.5
        axes.plot(*zip(*spots, strict=True), mark, **look, zorder=3 - 0.1 * (reason != ""))
    if chosen:
        axes.plot(*places[chosen], "o", color=INK, markersize=12, fillstyle="none", zorder=3)
    _draw_names(axes, named, chosen, unit, places, taken, wide_in)
    canvas.style(
        axes, f"memory of one GPU ({unit})", "step time (s)", title, pad_in=0.08 + 0.22 * len(lines)
    )
    _draw_key(axes, lines)
    return Picture(figure, _words(dots, unseen, chosen, capacity, unit, title))


class Scale:
    """A logarithmic scale on so many inches, or other units, with room before and after its values.

    Values closer than a tenth of each other still span that tenth, or their ticks had no room.
    """

    def __init__(self, values: Sequence[float], length_in: float, room_in: tuple[float, float]):
        low, high = math.log10(min(values)), math.log10(max(values))
        wider = max(0.0, 0.1 - (high - low)) / 2
        self.low, self.room_in = low - wider, room_in[0]
        self.decade_in = (length_in - sum(room_in)) / (high - low + 2 * wider)
        self.ticks = _round_numbers(self.value(0), self.value(length_in))

    def place(self, value: float) -> float:
        """Returns how many inches from the start a value lies."""
        return self.room_in + (math.log10(value) - self.low) * self.decade_in

    def value(self, place_in: float) -> float:
        """Returns the value that lies so many inches from the start."""
        return 10 ** (self.low + (place_in - self.room_in) / self.decade_in)


def _round_numbers(low: float, high: float) -> list[float]:
    """Returns three to eight round numbers: `_round_numbers(5, 400) == [5, 10, 20, ..., 200]`."""
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [k * 10.0**n for n in powers for k in digits if low <= k * 10.0**n <= high]
        if len(found) >= 3:
            return found
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(k * step for k in (5, 2, 1) if (high - low) / (k * step) >= 3 or k == 1)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _tick(value: float) -> str:
    return f"{value:,.6g}"


def _dot(
    name: Any,
    size_bytes: float,
    time_s: float,
    out: Mapping[Any, str],
    capacity: tuple[str, float] | None,
    unit: str,
) -> Dot:
    if not size_bytes > 0 or not time_s > 0 or math.isinf(size_bytes + time_s):
        raise ValueError(
            f"{name} has {size_bytes} bytes and {time_s} s: on a logarithmic scale both are more "
            "than 0. What can't run at all has a reason in `out` and no point."
        )
    over = capacity is not None and size_bytes > capacity[1]
    reason = out.get(name, TOO_MUCH if over else "")
    return Dot(str(name), in_unit(size_bytes, unit), float(time_s), reason)


def _chosen(names: Sequence[Any], best: Any) -> int:
    if best in names:
        return names.index(best)
    found = [str(name) for name in names]
    if str(best) not in found:
        raise ValueError(f"The best layout, {best}, is none of the {len(names)} points.")
    return found.index(str(best))


def _marks(dots: Iterable[Dot]) -> dict[str, str]:
    """Returns a marker for each reason, first of all the dot of those that fit."""
    counted = Counter(dot.reason for dot in dots)
    reasons = sorted((r for r in counted if r), key=lambda r: (r != TOO_MUCH, -counted[r], r))
    marks = {"": "o"} if "" in counted else {}
    return marks | {r: _MARKS[min(i, len(_MARKS) - 1)] for i, r in enumerate(reasons)}


def _entries(
    dots: Sequence[Dot], marks: Mapping[str, str], unseen: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Returns what the key says: (marker, text); no marker where nothing is drawn."""
    counted = Counter(dot.reason for dot in dots)
    entries = [(marks[reason], f"{reason or 'fits'}: {counted[reason]}") for reason in marks]
    return entries + [("", f"not drawn, {reason}: {n}") for reason, n in unseen.items()]


def _key_lines(
    entries: Iterable[tuple[str, str]], wide_in: float
) -> list[list[tuple[float, str, str]]]:
    """Returns the key's lines of (place in inches, marker, text), none wider than the axes."""
    lines: list[list[tuple[float, str, str]]] = [[]]
    at = 0.0
    for mark, words in entries:
        room = 0.14 + canvas.text_size_in(words, 9)[0]
        if lines[-1] and at + room > wide_in:
            lines.append([])
            at = 0.0
        lines[-1].append((at, mark, words))
        at += room + 0.2
    return lines


def _draw_key(axes: Any, lines: Sequence[Sequence[tuple[float, str, str]]]) -> None:
    for row, line in enumerate(reversed(lines)):
        y = _HEIGHT_IN + 0.13 + 0.22 * row
        for x, mark, words in line:
            if mark:
                colour = COLOURS["weights"] if mark == "o" else MUTED
                axes.plot(x + 0.06, y, mark, color=colour, markersize=6, clip_on=False)
            canvas.text(axes, x + (0.14 if mark else 0), y, words, 9, ha="left")


def _draw_capacity(
    axes: Any, capacity: tuple[str, float], x: float, wide_in: float, unit: str
) -> list[Box]:
    """Draws the dashed line and its name on the side that has room; returns where both lie."""
    axes.axvline(x, linestyle="--", color=MUTED, linewidth=1.5, zorder=1)
    size = size_text(capacity[1], unit)
    words = capacity[0] if size in capacity[0] else f"{capacity[0]}\n{size}"
    wide, high = canvas.text_size_in(words, 9)
    right = x + wide + 2 * _GAP_IN < wide_in
    left = x + _GAP_IN if right else x - _GAP_IN - wide
    top = _HEIGHT_IN - 0.03
    canvas.text(axes, left, top, words, 9, MUTED, ha="left", va="top", **canvas.halo())
    return [(left, top - high, left + wide, top), (x - 0.02, 0, x + 0.02, _HEIGHT_IN)]


def _draw_names(
    axes: Any,
    dots: Sequence[Dot],
    chosen: Dot | None,
    unit: str,
    places: Mapping[Dot, tuple[float, float]],
    taken: list[Box],
    wide_in: float,
) -> None:
    """Writes the best one's name, then those of the others, fastest first, that find room."""
    order = sorted(dots, key=lambda dot: (dot.reason != "", dot.time_s))
    order = ([chosen] if chosen else []) + [dot for dot in order if dot is not chosen]
    for dot in order[:_MOST_NAMES]:
        words, size, bold = dot.name, _LETTERS, False
        if dot is chosen:
            words = f"{dot.name}\n{_size(dot.size, unit)}, {seconds(dot.time_s)}"
            size, bold = _BEST, True
        wide, high = canvas.text_size_in(words, size, bold=bold)
        gap, far = _DOT_IN + _GAP_IN, 1
        if dot is chosen:
            gap, far = gap + 0.05, 7
        for left, foot in spots(*places[dot], wide, high, gap, far=far):
            box = left - _GAP_IN / 2, foot, left + wide + _GAP_IN / 2, foot + high
            if box[0] < 0 or box[1] < 0.02 or box[2] > wide_in or box[3] > _HEIGHT_IN:
                continue
            if not any(meet(box, other) for other in taken):
                if dot is chosen:
                    taken += _draw_lead(axes, places[dot], box)
                look = {"weight": "bold"} if bold else {}
                colour = MUTED if dot.reason else INK
                canvas.text(
                    axes,
                    left,
                    foot + high / 2,
                    words,
                    size,
                    colour,
                    ha="left",
                    **canvas.halo(),
                    **look,
                )
                taken.append(box)
                break


def spots(
    x: float, y: float, wide: float, high: float, gap: float, *, far: int = 1, step: float = 0.14
) -> Iterable[tuple[float, float]]:
    """Yields left and foot of where a dot's name may stand: beside it, above, below, further.

    The name is so wide and high and stays `gap` away from the middle of the dot, then `step` more,
    as often as `far` says. Where y runs down, foot is the top, and above is below.
    """
    for away in range(far):
        g = gap + step * away
        yield x + g, y - high / 2
        yield x - wide / 2, y - g - high
        yield x - wide / 2, y + g
        yield x - g - wide, y - high / 2
        yield x + g * 0.7, y + g * 0.4
        yield x + g * 0.7, y - g * 0.4 - high
        yield x - g * 0.7 - wide, y + g * 0.4
        yield x - g * 0.7 - wide, y - g * 0.4 - high


def _draw_lead(axes: Any, place: tuple[float, float], box: Box) -> list[Box]:
    """Draws a thin line from the best dot to its name, where that stands some way off.

    Returns small boxes along the line, so that no name comes to lie on it.
    """
    x, y = place
    end_x, end_y = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
    away = math.hypot(end_x - x, end_y - y)
    if away <= 0.2:
        return []
    shares = [0.09 / away, *(i * 0.05 / away for i in range(2, int(away / 0.05) + 1)), 1]
    line = [(x + share * (end_x - x), y + share * (end_y - y)) for share in shares]
    axes.plot(*zip(*line, strict=True), color=INK, linewidth=0.8, zorder=2)
    return [_around(*point, 0.03) for point in line]


def _around(x: float, y: float, half: float) -> Box:
    return x - half, y - half, x + half, y + half


def meet(a: Box, b: Box) -> bool:
    """Tells whether two boxes have some place in common."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def seconds(time_s: float) -> str:
    """Returns a time in seconds with about four digits: `seconds(10.6317) == "10.63 s"`."""
    return f"{time_s:,.{decimals(time_s)}f} s"


def decimals(time_s: float) -> int:
    """Returns how many decimals a time in seconds has: 0 from 1,000 s on, 2 from 1 s, then more."""
    return max(0, min(2, 3 - math.floor(math.log10(time_s)))) if time_s >= 1 else _small(time_s)


def _small(time_s: float) -> int:
    return 2 - math.floor(math.log10(time_s)) if time_s > 0 else 2


def _words(
    dots: Sequence[Dot],
    unseen: Mapping[str, int],
    chosen: Dot | None,
    capacity: tuple[str, float] | None,
    unit: str,
    title: str,
) -> str:
    fit = [dot for dot in dots if not dot.reason]
    sizes, times = [dot.size for dot in dots], [dot.time_s for dot in dots]

    def told(dot: Dot) -> str:
        return f"{dot.name} {_size(dot.size, unit)} {seconds(dot.time_s)}"

    said = [
        f"{title or 'Layouts'}. Step time against memory of {_count(len(dots), 'layout')}, "
        f"{_size(min(sizes), unit)} to {_size(max(sizes), unit)}, {seconds(min(times))} to "
        f"{seconds(max(times))}"
    ]
    if capacity:
        said.append(f"a dashed line: {capacity[0]}, {size_text(capacity[1], unit)}")
    out = Counter(dot.reason for dot in dots if dot.reason)
    listed = [f"{n} out ({reason})" for reason, n in out.items()]
    listed += [f"{n} not drawn ({reason})" for reason, n in unseen.items()]
    said.append(", ".join([f"{len(fit)} fit", *listed]))
    if chosen:
        said.append(f"best: {told(chosen)}")
    others = sorted((dot for dot in fit if dot is not chosen), key=lambda dot: dot.time_s)[:5]
    if others:
        said.append(f"{'next' if chosen else 'fastest'}: {', '.join(map(told, others))}")
    return "; ".join(said) + "."


def _size(size: float, unit: str) -> str:
    return size_text(size * UNITS[unit], unit)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
