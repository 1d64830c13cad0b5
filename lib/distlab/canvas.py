"""What every picture is drawn on: the page, the colours by role, and the picture with its words.

One colour per role through the whole course (Okabe and Ito's palette, made for readers with any
colour vision). Matplotlib is imported only when something is drawn.
"""

import base64
import html
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

COLOURS = {
    "weights": "#0072B2",
    "gradients": "#E69F00",
    "optimiser states": "#CC79A7",
    "activations": "#009E73",
    "communication": "#D55E00",
}
INK = "#222222"
MUTED = "#5A5A5A"
GRID = "#E4E4E4"
WIDTH_IN = 7.2  # 720 px wide in a notebook at 100 px per inch; shrinks with a narrower page


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with the sentence that stands in for it where it can't be seen."""

    figure: Any
    alt: str

    def png(self, dpi: int = 200) -> bytes:
        """Returns the picture as PNG."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=dpi)
        return buffer.getvalue()

    def save(self, path: str | Path) -> None:
        """Writes the picture to a file; the ending (.png, .svg) chooses the format."""
        import matplotlib

        svg = Path(path).suffix == ".svg"
        with matplotlib.rc_context({"svg.hashsalt": "distlab"}):  # the same file every time
            self.figure.savefig(path, dpi=200, metadata={"Date": None} if svg else None)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        width_px = round(self.figure.get_figwidth() * 100)
        data = base64.b64encode(self.png()).decode()
        image = (
            f'<img alt="{html.escape(self.alt)}" src="data:image/png;base64,{data}" '
            f'width="{width_px}" style="max-width: 100%; height: auto">'
        )
        return {"text/html": image, "text/plain": self.alt}


def figure(height_in: float) -> Any:
    """Returns an empty figure of the course's width."""
    from matplotlib.figure import Figure  # no pyplot: nothing is shown twice, no global state

    return Figure(figsize=(WIDTH_IN, height_in), facecolor="white")


def page(figure: Any) -> Any:
    """Returns axes without axes: the whole figure as a sheet to draw on."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    return axes


def title(axes: Any, title: str) -> None:
    """Writes the title of a page."""
    y = 1 - 0.22 / axes.figure.get_figheight()
    text(axes, 0.5, y, title, 12, weight="bold", transform=axes.transAxes)


def text(
    axes: Any, x: float, y: float, text: str, size: float, colour: str = INK, **more: Any
) -> None:
    """Writes a text, centred unless `more` says otherwise."""
    axes.text(x, y, text, **{"ha": "center", "va": "center"} | more, fontsize=size, color=colour)


def block(axes: Any, x: float, y: float, width: float, height: float, colour: str) -> None:
    """Adds a rectangle: the role's colour as edge, a light tint inside, so that text stays dark."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    tint = tuple(1 - 0.28 * (1 - channel) for channel in to_rgb(colour))
    axes.add_patch(
        Rectangle((x, y), width, height, facecolor=tint, edgecolor=colour, linewidth=1.6)
    )


def style(axes: Any, xlabel: str, ylabel: str, title: str, *, pad_in: float = 6 / 72) -> None:
    """Gives a chart its labels, its title on the left, and quiet lines."""
    axes.set_xlabel(xlabel, fontsize=10.5)
    axes.set_ylabel(ylabel, fontsize=10.5)
    axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left", pad=72 * pad_in)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def halo() -> dict[str, Any]:
    """Returns what keeps a text readable where a line runs under it."""
    from matplotlib.patheffects import withStroke

    return {
        "path_effects": [withStroke(linewidth=3, foreground="white", alpha=0.75)],
        "zorder": 4,
    }


@lru_cache(maxsize=4096)
def text_size_in(text: str, size: float, *, bold: bool = False) -> tuple[float, float]:
    """Returns a text's width and height in inches, before it is drawn."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size, weight="bold" if bold else "normal")
    lines = text.split("\n")
    widths = [text_to_path.get_text_width_height_descent(line, font, False)[0] for line in lines]
    return max(widths) / 72, len(lines) * 1.2 * size / 72


def wraps(text: str) -> list[str]:
    """Returns a text on one line, on two, on three ...: `wraps("a b") == ["a b", "a\\nb"]`.

    Of all ways to break it into so many lines, the one whose longest line is shortest.
    """
    words = text.split(" ")
    found = [text]
    for lines in range(2, len(words) + 1):
        for width in range(max(map(len, words)), len(text) + 1):
            made = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
            if len(made) <= lines:
                found.append("\n".join(made))
                break
    return list(dict.fromkeys(found))


def fitting(
    ways: Sequence[str], width_in: float, size: float, smallest: float, *, bold: bool = False
) -> tuple[str, float]:
    """Returns the first way to write a text that fits, and the size of its letters in points.

    First all ways in full size, then the last one in ever smaller letters.
    """
    for way in ways:
        if text_size_in(way, size, bold=bold)[0] <= width_in:
            return way, size
    while size > smallest and text_size_in(ways[-1], size, bold=bold)[0] > width_in:
        size -= 0.5
    return ways[-1], size
