"""Draws interleaved_chunks.svg: `python course/figures/interleaved_chunks.py`."""

from fractions import Fraction
from pathlib import Path

from distlab.plot import Picture, pipeline
from distlab.schedule import PipelineTimeline, interleaved, simulate


def step(p: int, m: int, v: int, delay: Fraction = Fraction(0)) -> PipelineTimeline:
    """Returns a step of 1F1B on v chunks whose stages take 1 forward and 2 backward in all."""
    chunk = {"forward": Fraction(1, v), "backward": Fraction(2, v)}
    return simulate(interleaved(p, m, v), **chunk, delay=delay)


def picture() -> Picture:
    """Returns the Gantt chart of eight microbatches on two chunks a stage."""
    return pipeline(step(4, 8, 2), title="Two chunks a stage: the bubble is half as long")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
