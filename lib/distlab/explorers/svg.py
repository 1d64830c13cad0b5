"""SVG as text: a few shapes with the course's colours, in numbers short enough to send often.

Many equal bars are one path, so a picture stays small however much it shows.
"""

import html
import math
from collections.abc import Iterable, Sequence

from distlab.canvas import GRID, INK, MUTED

FONT = "'DejaVu Sans', Verdana, Helvetica, Arial, sans-serif"
LETTER = 0.62  # a letter's width as a share of its height, rather too wide than too narrow
LOOK = {"ink": INK, "muted": MUTED, "grid": GRID, "font": FONT, "letter": LETTER}  # for svg.mjs


def document(width: int, height: int, alt: str, parts: Iterable[str]) -> str:
    """Returns a picture that shrinks with the page; `alt` stands in for it where it isn't seen."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{html.escape(alt)}" font-family="{FONT}" font-size="12" fill="{INK}" '
        f'style="display: block; width: 100%; max-width: {width}px; height: auto">'
        f'<rect width="{width}" height="{height}" fill="white"/>{"".join(parts)}</svg>'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: float = 12,
    colour: str = INK,
    bold: bool = False,
) -> str:
    """Returns a text whose baseline is at y; a white rim keeps it readable on lines."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{num(x)}" y="{num(y)}" font-size="{num(size)}" fill="{colour}"{weight} '
        f'text-anchor="{anchor}" paint-order="stroke" stroke="white" stroke-width="3" '
        f'stroke-opacity="0.8">{html.escape(words)}</text>'
    )


def bars(
    spans: Iterable[tuple[float, float]],
    y: float,
    height: float,
    colour: str,
    opacity: float = 0.3,
    edge: float = 1.2,
) -> str:
    """Returns one path with a bar from x to x for each span: a tint with the colour as its edge."""
    shape = "".join(
        f"M{num(left)} {num(y)}H{num(right)}v{num(height)}H{num(left)}Z" for left, right in spans
    )
    if not shape:
        return ""
    return (
        f'<path d="{shape}" fill="{colour}" fill-opacity="{num(opacity)}" stroke="{colour}" '
        f'stroke-width="{num(edge)}"/>'
    )


def boxes(
    places: Iterable[tuple[float, float, float, float]], colour: str, share: float, edge: float = 1
) -> str:
    """Returns one path with a box at each (x, y, width, height), opaque: `share` of the colour."""
    shape = "".join(
        f"M{num(x)} {num(y)}h{(wide := num(width))}v{num(height)}h-{wide}z"
        for x, y, width, height in places
    )
    if not shape:
        return ""
    return (
        f'<path d="{shape}" fill="{mixed(colour, share)}" stroke="{colour}" '
        f'stroke-width="{num(edge)}"/>'
    )


def mixed(colour: str, share: float) -> str:
    """Returns a colour mixed with white: `mixed("#000000", 0.5) == "#808080"`."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - channel)):02x}" for channel in channels)


def square(x: float, y: float, colour: str) -> str:
    """Returns the little square of a key, its foot on the baseline y."""
    return bars([(x, x + 10)], y - 10, 10, colour)


def line(x0: float, y0: float, x1: float, y1: float, colour: str = MUTED, more: str = "") -> str:
    """Returns a line; `more` are further attributes, such as a dash pattern."""
    return (
        f'<path d="M{num(x0)} {num(y0)}L{num(x1)} {num(y1)}" fill="none" stroke="{colour}" {more}/>'
    )


def dashed(x0: float, y0: float, x1: float, y1: float) -> str:
    """Returns a dashed line: a limit."""
    return line(x0, y0, x1, y1, MUTED, 'stroke-width="1.5" stroke-dasharray="6 4"')


def grid(x0: float, y0: float, x1: float, y1: float) -> str:
    """Returns a quiet line behind everything."""
    return line(x0, y0, x1, y1, GRID)


def ticks(end: float, most: int = 6) -> list[float]:
    """Returns round numbers from 0 to `end`, at most `most + 1`: `ticks(50, 5)` are 0 to 50 by 10.

    Steps are 1, 2 or 5 times a power of ten. `most` is at least 4, so that there are two or more.
    """
    if end <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(end / most))
    step = next(k * power for k in (1, 2, 5, 10) if k * power * most >= end * (1 - 1e-9))
    return [i * step for i in range(math.floor(end / step * (1 + 1e-9)) + 1)]


def width(words: str, size: float = 12) -> float:
    """Returns about how wide a text is."""
    return LETTER * size * len(words)


def num(x: float) -> str:
    """Returns a number with at most two decimals, without idle zeros: `num(2.50) == "2.5"`."""
    short = f"{x:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def key(x: float, y: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a row of squares with (name, colour), from x on."""
    parts = []
    for name, colour in entries:
        parts += [square(x, y, colour), text(x + 15, y, name)]
        x += 15 + width(name) + 14
    return parts
