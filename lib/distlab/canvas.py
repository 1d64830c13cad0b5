"""What every picture is drawn on: the page, the colours by role, and the picture with its words.

One colour per role through the whole course (Okabe and Ito's palette, made for readers with any
colour vision). Matplotlib is imported only when something is drawn.
"""

import base64
import html
import io
from dataclasses import dataclass
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
