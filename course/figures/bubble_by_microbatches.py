"""Draws bubble_by_microbatches.svg: `python course/figures/bubble_by_microbatches.py`."""

from pathlib import Path

from distlab.plot import Picture, scaling_line
from distlab.schedule import interleaved, simulate

STAGES = 8
MICROBATCHES = (8, 16, 24, 32, 48, 64)


def percent(m: int, v: int) -> float:
    """Returns the bubble fraction of 1F1B with m microbatches on v chunks a stage, simulated."""
    return 100 * float(simulate(interleaved(STAGES, m, v)).bubble_fraction)


def picture() -> Picture:
    """Returns the bubble against the number of microbatches, for one and two chunks."""
    lines = {f"v = {v}": [percent(m, v) for m in MICROBATCHES] for v in (1, 2)}
    return scaling_line(
        MICROBATCHES,
        lines,
        xlabel="microbatches m",
        ylabel="bubble fraction in %",
        ideal=("10 %", [10.0] * len(MICROBATCHES)),
        title="Eight stages: more microbatches, smaller bubble",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
