"""Draws three_layers_each.svg: `python course/figures/three_layers_each.py`."""

from pathlib import Path

from distlab.plot import Picture, stage_loads

COSTS = [3.0, *[1.0] * 10, 4.0]  # ms: embedding, ten layers, head


def picture() -> Picture:
    """Returns the stages of three layers each, as bars."""
    title = "Three layers each: the last stage sets the pace"
    return stage_loads(COSTS, [0, 3, 6, 9, 12], unit="ms", title=title)


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
