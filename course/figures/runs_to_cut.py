"""Draws runs_to_cut.svg: `python course/figures/runs_to_cut.py`."""

from itertools import accumulate
from pathlib import Path

from distlab import canvas
from distlab.canvas import COLOURS, INK, MUTED
from distlab.plot import Picture

COSTS = [3, *[1] * 10, 4]  # ms: embedding, ten layers, head
PLACES = [0, *accumulate(COSTS)]
RUNS = [(0, 3), (2, 7), (6, 11), (10, 12)]  # the layers i .. j-1
LEFT, WIDE, HIGH = 0.09, 0.82, 0.105


def picture() -> Picture:
    """Returns twelve layers as long as they take, and four runs that share a layer at most."""
    figure = canvas.figure(2.7)
    axes = canvas.page(figure)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    title = "Four runs of 5 ms need four cuts; four stages have three"
    canvas.title(axes, title)
    scale = WIDE / PLACES[-1]
    for layer, cost in enumerate(COSTS):
        x = LEFT + scale * PLACES[layer]
        canvas.block(axes, x, 0.70, scale * cost, HIGH, COLOURS["weights"])
        canvas.text(axes, x + scale * cost / 2, 0.70 + HIGH / 2, str(layer), 9.5)
    canvas.text(axes, LEFT - 0.015, 0.70 + HIGH / 2, "layers", 9.5, MUTED, ha="right")
    for row, (i, j) in enumerate(RUNS):
        x, y = LEFT + scale * PLACES[i], 0.52 - 0.145 * row
        length = scale * (PLACES[j] - PLACES[i])
        canvas.block(axes, x, y, length, HIGH, COLOURS["communication"])
        canvas.text(axes, x + length / 2, y + HIGH / 2, f"layers {i} to {j - 1}: 5 ms", 9.5, INK)
    for place in PLACES:  # where one could cut
        x = LEFT + scale * place
        axes.plot([x, x], [0.06, 0.68], ":", color=MUTED, linewidth=0.7, zorder=0)
    runs = "; ".join(f"layers {i} to {j - 1}" for i, j in RUNS)
    alt = f"{title}. Twelve layers drawn as long as they take; below them the runs: {runs}."
    return Picture(figure, alt)


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
