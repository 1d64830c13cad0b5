"""Draws without_flush.svg: `python course/figures/without_flush.py`."""

from pathlib import Path

from distlab.plot import Picture, pipeline
from distlab.schedule import pipedream, simulate


def picture() -> Picture:
    """Returns twelve microbatches of an asynchronous pipeline."""
    training = simulate(pipedream(4, 12), forward=1, backward=2)
    return pipeline(training, title="No flush: twelve microbatches in a row")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
