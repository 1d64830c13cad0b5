"""The picture of the layout explorer: a dot for each t × p × d, and the best one's bars.

Dots and crosses are one path each, so that a picture stays small; above each lies an invisible
circle whose title a browser shows where a pointer rests.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from distlab.breakdown import STEP_PARTS
from distlab.canvas import COLOURS, INK, MUTED
from distlab.explorers import svg
from distlab.memory import PARTS, in_unit, size_text
from distlab.scatter import TOO_MUCH, Box, Scale, decimals, meet, seconds, spots


@dataclass(frozen=True)
class Way:
    """One t × p × d: what its fullest GPU needs and how long its step takes, in words its options.

    `reason` is why it is out, "" where it fits.
    """

    name: str
    words: str
    memory_bytes: float
    time_s: float
    reason: str = ""


@dataclass(frozen=True)
class LayoutNumbers:
    """What the search found. `times` and `sizes` are the parts of the fastest that fits.

    `refused` are those that break a rule before they cost anything: name and sentence. `stages` are
    the layers of each of the best one's stages, `stage` the one whose memory `sizes` tells.
    """

    capacity_bytes: float
    fitting: tuple[Way, ...]  # fastest first
    too_big: tuple[Way, ...]
    refused: tuple[tuple[str, str], ...]
    times: Mapping[str, float]
    sizes: Mapping[str, float]
    stages: tuple[int, ...]
    stage: int
    mfu: float
    stack: str
    guessed: bool  # the stack's constants were fitted on another GPU


_WIDTH, _LEFT, _RIGHT, _TOP, _FOOT = 680, 60, 668, 66, 330
_DOT, _GAP = 4.5, 3.0  # a dot's radius; what stays free around it and around names
_MOST_NAMES, _MOST_REFUSED = 40, 150
_BAR_RIGHT = 664  # where the step's bar ends, and the GPU's memory


def layout_svg(title: str, numbers: LayoutNumbers, *, alt: str) -> str:
    """Returns step time against memory, what was refused, and the parts of the best one's step."""
    best = numbers.fitting[0] if numbers.fitting else None
    told = f"{best.name}, {seconds(best.time_s)}" if best else "none fits"
    parts = [svg.text(8, 20, f"{title}: {told}", size=14, bold=True), *_key(numbers)]
    parts += _scatter(numbers)
    y = _FOOT + 54
    if numbers.refused:
        strip, y = _strip(numbers.refused, y)
        parts += strip
    if best:
        bars, y = _bars(numbers, best, y + 8)
        parts += bars
    origin = f"Full planner, constants of {numbers.stack}"
    origin += ": a guess for this GPU." if numbers.guessed else "."
    parts.append(svg.text(8, y + 16, origin, size=11, colour=MUTED))
    return svg.document(_WIDTH, int(y + 26), alt, parts)


def _key(numbers: LayoutNumbers) -> list[str]:
    entries = [("o", f"fits: {len(numbers.fitting)}"), ("x", f"{TOO_MUCH}: {len(numbers.too_big)}")]
    parts, x = [], 8.0
    for mark, words in entries:
        drawn = _dots([(x + 5, 38)]) if mark == "o" else [_crosses([(x + 5, 38)])]
        parts += [*drawn, svg.text(x + 15, 42, words)]
        x += 15 + svg.width(words) + 14
    words = "point at one for its reason"
    return [*parts, svg.text(_RIGHT, 42, words, anchor="end", size=11, colour=MUTED)]


def _scatter(numbers: LayoutNumbers) -> list[str]:
    ways = (*numbers.fitting, *numbers.too_big)
    unit, high = "GB", _FOOT - _TOP
    sizes = [in_unit(way.memory_bytes, unit) for way in ways]
    limit = in_unit(numbers.capacity_bytes, unit)
    x = Scale([*sizes, limit], _RIGHT - _LEFT, (30, 52))
    clock, clock_s = ("s", 1) if max(way.time_s for way in ways) < 5e4 else ("hours", 3600)
    y = Scale([way.time_s / clock_s for way in ways], high, (34, 40))
    places = [
        (_LEFT + x.place(size), _FOOT - y.place(way.time_s / clock_s))
        for size, way in zip(sizes, ways, strict=True)
    ]
    parts = [svg.text(8, _TOP - 6, f"step time ({clock})", size=11, colour=MUTED)]
    for mark in y.ticks:
        at = _FOOT - y.place(mark)
        parts += [svg.grid(_LEFT, at, _RIGHT, at)]
        parts += [svg.text(_LEFT - 6, at + 4, f"{mark:,.6g}", anchor="end", colour=MUTED)]
    for mark in _apart(x):
        at = _LEFT + x.place(mark)
        parts += [svg.line(at, _FOOT, at, _FOOT + 4)]
        parts += [svg.text(at, _FOOT + 18, f"{mark:,.6g}", anchor="middle", colour=MUTED)]
    words = f"memory of the fullest GPU ({unit})"
    parts += [svg.text(_RIGHT, _FOOT + 35, words, anchor="end", size=11, colour=MUTED)]
    parts += [svg.line(_LEFT, _FOOT, _RIGHT, _FOOT), svg.line(_LEFT, _TOP, _LEFT, _FOOT)]
    taken = [_around(*place, _DOT) for place in places]
    at = _LEFT + x.place(limit)
    parts += _capacity(at, size_text(numbers.capacity_bytes, unit), taken)
    best, fit = (places[0] if numbers.fitting else None), places[: len(numbers.fitting)]
    parts += _names(ways, places, best, taken)
    parts += [_crosses(places[len(fit) :]), *_dots(fit)]
    if best:
        parts.append(_circle(*best, 8, f'fill="none" stroke="{INK}" stroke-width="1.6"'))
    return [*parts, *_hovers(numbers, ways, places)]


def _apart(scale: Scale) -> Iterable[float]:
    """Yields the ticks whose numbers don't meet."""
    end = -1e9
    for mark in scale.ticks:
        half = svg.width(f"{mark:,.6g}") / 2 + 3
        inside = scale.place(mark) + half <= _WIDTH - _LEFT
        if inside and scale.place(mark) - half >= end:
            yield mark
            end = scale.place(mark) + half


def _capacity(at: float, words: str, taken: list[Box]) -> list[str]:
    """Returns the dashed line, named at its top; adds what both take to `taken`."""
    wide = svg.width(words) + 6
    start = at + 5 if at + 5 + wide <= _RIGHT else at - 5 - wide
    taken += [(start, _TOP, start + wide, _TOP + 16), (at - 2, _TOP, at + 2, _FOOT)]
    return [
        svg.dashed(at, _TOP, at, _FOOT),
        svg.text(start, _TOP + 12, words, colour=MUTED),
    ]


def _names(
    ways: Sequence[Way],
    places: Sequence[tuple[float, float]],
    best: tuple[float, float] | None,
    taken: list[Box],
) -> list[str]:
    """Returns the names that find room, the best one's first, then the fastest."""
    parts = []
    for way, place in list(zip(ways, places, strict=True))[:_MOST_NAMES]:
        bold = place == best
        size = 13 if bold else 10
        wide = size * (0.64 * len(way.name) + 0.4) * (1.1 if bold else 1)  # a × is a wide letter
        gap = _DOT + _GAP + (4 if bold else 0)
        for left, top in spots(*place, wide, size, gap, far=1):
            box = left - 2, top - 1, left + wide + 2, top + size + 1
            inside = box[0] >= _LEFT and box[2] <= _RIGHT and box[1] >= _TOP and box[3] <= _FOOT
            if inside and not any(meet(box, other) for other in taken):
                taken.append(box)
                look = {"size": size, "bold": bold, "colour": MUTED if way.reason else INK}
                parts.append(svg.text(left, top + 0.83 * size, way.name, **look))
                break
    return parts


def _hovers(
    numbers: LayoutNumbers, ways: Sequence[Way], places: Sequence[tuple[float, float]]
) -> Iterable[str]:
    """Yields an invisible circle over each dot, which tells what a pointer wants to know."""
    fastest = numbers.fitting[0].time_s if numbers.fitting else 0.0
    for way, place in reversed(list(zip(ways, places, strict=True))):  # the fastest on top
        words = f"{way.name}: {size_text(way.memory_bytes)}, {seconds(way.time_s)}. "
        if way.reason:
            words += way.reason
        elif way.time_s == fastest:
            words += "The fastest that fits."
        else:
            words += f"{percent(way.time_s / fastest - 1)} slower than the fastest."
        yield _hover(*place, 8, f"{words} ({way.words})")


def _strip(refused: Sequence[tuple[str, str]], y: float) -> tuple[list[str], float]:
    """Returns a mark for each layout that breaks a rule, with its sentence, and where they end."""
    shown = refused[:_MOST_REFUSED]
    words = f"break a rule: {len(refused)}"
    words += f" ({len(shown)} shown)" if len(shown) < len(refused) else ""
    start, step = 8 + svg.width(words) + 14, 14
    parts, x, places = [svg.text(8, y + 4, words)], start, []
    for _ in shown:
        if x > _RIGHT - 6:
            x, y = start, y + step
        places.append((x, y))
        x += step
    parts.append(_crosses(places, 3))
    parts += [
        _hover(*place, step / 2, f"{name}: {sentence}")
        for place, (name, sentence) in zip(places, shown, strict=True)
    ]
    return parts, y + 14


def _bars(numbers: LayoutNumbers, best: Way, y: float) -> tuple[list[str], float]:
    """Returns the best one's step and its memory, each a bar of its parts, and where they end."""
    places = decimals(best.time_s) + 1
    times = [
        (*STEP_PARTS[part], s, f"{s:,.{places}f}")
        for part, s in numbers.times.items()
        if round(s, places)
    ]
    head = f"{best.name}, {best.words}: {seconds(best.time_s)}"
    parts = [svg.text(8, y + 12, head, bold=True, size=11)]
    more, y = _bar(times, best.time_s, y + 20)
    parts += more
    sizes = [
        (part, COLOURS[PARTS[part]], 0.3, size, size_text(size).removesuffix(" GB"))
        for part, size in numbers.sizes.items()
        if size
    ]
    layers = f"{numbers.stages[numbers.stage]} of {sum(numbers.stages)} layers"
    head = f"GB of {size_text(numbers.capacity_bytes)} on stage {numbers.stage} ({layers}): "
    head += size_text(best.memory_bytes).removesuffix(" GB")
    parts.append(svg.text(8, y + 20, head, bold=True, size=11))
    more, end = _bar(sizes, numbers.capacity_bytes, y + 28)
    parts += [*more, svg.dashed(_BAR_RIGHT, y + 26, _BAR_RIGHT, y + 48)]
    return parts, end


def _bar(
    entries: Sequence[tuple[str, str, float, float, str]], whole: float, y: float
) -> tuple[list[str], float]:
    """Returns a bar of (name, colour, tint, amount, number) and, below it, its key."""
    parts, x, scale = [], 8.0, (_BAR_RIGHT - 8) / whole
    for _, colour, share, amount, _ in entries:
        parts.append(svg.boxes([(x, y, amount * scale, 18)], colour, share))
        x += amount * scale
    x, y = 8.0, y + 34
    for name, colour, share, _, number in entries:
        words = f"{name} {number}"
        wide = 15 + svg.width(words, 11) + 12
        if x + wide > _RIGHT + 12:
            x, y = 8.0, y + 16
        parts.append(svg.boxes([(x, y - 9, 10, 10)], colour, share))
        parts.append(svg.text(x + 15, y, words, size=11))
        x += wide
    return parts, y


def _around(x: float, y: float, half: float) -> Box:
    return x - half, y - half, x + half, y + half


def _circle(x: float, y: float, r: float, more: str) -> str:
    return f'<circle cx="{svg.num(x)}" cy="{svg.num(y)}" r="{svg.num(r)}" {more}/>'


def _hover(x: float, y: float, r: float, words: str) -> str:
    """Returns an invisible circle that shows words where a pointer rests on it."""
    told = html.escape(words)
    return (
        _circle(x, y, r, 'fill="white" fill-opacity="0"')[:-2] + f"><title>{told}</title></circle>"
    )


def _dots(places: Iterable[tuple[float, float]]) -> list[str]:
    """Returns one path with a dot at each place."""
    r = svg.num(_DOT)
    turn = svg.num(2 * _DOT)
    shape = "".join(
        f"M{svg.num(x - _DOT)} {svg.num(y)}a{r} {r} 0 1 0 {turn} 0a{r} {r} 0 1 0 -{turn} 0z"
        for x, y in places
    )
    return [f'<path d="{shape}" fill="{COLOURS["weights"]}"/>'] if shape else []


def _crosses(places: Iterable[tuple[float, float]], half: float = 4) -> str:
    """Returns one path with a cross at each place."""
    w = svg.num(2 * half)
    shape = "".join(
        f"M{svg.num(x - half)} {svg.num(y - half)}l{w} {w}m0 -{w}l-{w} {w}" for x, y in places
    )
    return f'<path d="{shape}" fill="none" stroke="{MUTED}" stroke-width="1.3"/>' if shape else ""


def percent(share: float) -> str:
    """Returns a share in per cent with one decimal: `percent(0.0153)` is 1.5 and the sign."""
    return f"{100 * share:.1f}\u00a0%" if share >= 0.0005 else "less than 0.1\u00a0%"
