"""Draws network_levels.svg: `python course/figures/network_levels.py`."""

from pathlib import Path

from distlab import canvas
from distlab.canvas import INK, MUTED, WIDTH_IN
from distlab.plot import COLOURS, Picture

LEVELS = (  # name, GPUs, GB/s that each of them can send through it if all do
    ("node: NVLink", 8, 450.0),
    ("rack: one switch", 16, 50.0),
    ("pod: full bisection", 3_072, 50.0),
    ("cluster: 1 to 7", 24_576, 50 / 7),
)
_ROW_IN, _TOP_IN, _LEFT_IN = 0.52, 0.75, 1.75


def picture() -> Picture:
    """Returns the levels of a cluster, each with its GPUs and what each of these can send."""
    figure = canvas.figure(_TOP_IN + len(LEVELS) * _ROW_IN + 0.1)
    axes = canvas.page(figure)
    axes.set_xlim(0, WIDTH_IN)
    axes.set_ylim(len(LEVELS) * _ROW_IN + 0.1, -_TOP_IN)
    canvas.title(axes, "What is left for each GPU, level by level")
    canvas.text(
        axes, _LEFT_IN, -0.2, "GB/s one way, per GPU, if all send at once", 9, MUTED, ha="left"
    )
    most = WIDTH_IN - _LEFT_IN - 1.9
    words = []
    for place, (name, gpus, rate) in enumerate(LEVELS):
        y = place * _ROW_IN
        canvas.text(axes, _LEFT_IN - 0.15, y + 0.2, name, 10, ha="right")
        wide = most * rate / LEVELS[0][2]
        canvas.block(axes, _LEFT_IN, y + 0.04, wide, 0.32, COLOURS["communication"])
        said = f"{rate:.3g} GB/s, among {gpus:,} GPUs"
        canvas.text(axes, _LEFT_IN + wide + 0.1, y + 0.2, said, 9.5, INK, ha="left")
        words.append(f"{name}, {said}")
    return Picture(figure, f"Levels of a cluster. {'; '.join(words)}.")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
