"""Draws idle_share.svg: `python course/figures/idle_share.py`."""

from pathlib import Path

from distlab.plot import Picture, scaling_line
from distlab.schedule import one_f_one_b, simulate

STAGES_MS = {"5, 3, 3, 6": (5, 3, 3, 6), "4, 4, 4, 5": (4, 4, 4, 5), "equal": (4.25,) * 4}
MICROBATCHES = (4, 8, 16, 24, 32, 48, 64)


def percent(stages: tuple[float, ...], m: int) -> float:
    """Returns the idle share of a step of 1F1B, backward twice as long as forward."""
    forward, backward = ([part * time / 3 for time in stages] for part in (1, 2))
    step = simulate(one_f_one_b(4, m), forward=forward, backward=backward)
    return 100 * float(step.bubble_fraction)


def picture() -> Picture:
    """Returns the idle share against m: the bubble goes, the imbalance stays."""
    return scaling_line(
        MICROBATCHES,
        {name: [percent(stages, m) for m in MICROBATCHES] for name, stages in STAGES_MS.items()},
        xlabel="microbatches m",
        ylabel="idle share in %",
        title="Stages in ms: more microbatches don't even them out",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
