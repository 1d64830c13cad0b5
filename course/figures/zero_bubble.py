"""Draws zero_bubble.svg: `python course/figures/zero_bubble.py`."""

from pathlib import Path

from distlab.plot import Picture, pipeline
from distlab.schedule import simulate, zb_h2


def picture() -> Picture:
    """Returns a step of ZB-H2, whose rows have no gap."""
    step = simulate(zb_h2(4, 8), forward=1, backward=2, weight_grad=1)
    return pipeline(step, title="ZB-H2: rows without a gap, and still a slope at both ends")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
