"""Draws with_flush.svg: `python course/figures/with_flush.py`."""

from pathlib import Path

from distlab.plot import Picture, pipeline
from distlab.schedule import flushed, one_f_one_b, simulate


def picture() -> Picture:
    """Returns three steps of four microbatches, each ended by a flush."""
    steps = simulate(flushed(one_f_one_b(4, 4), 3), forward=1, backward=2)
    return pipeline(steps, title="A flush after every four microbatches")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
