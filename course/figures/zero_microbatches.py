"""Draws zero_microbatches.svg: `python course/figures/zero_microbatches.py`."""

from fractions import Fraction
from pathlib import Path

from distlab.plot import Picture, scaling_line

GPUS = 4
MICROBATCHES = (1, 2, 4, 6, 8)


def sent(m: int) -> dict[str, Fraction]:
    """Returns what one GPU sends in a step of m microbatches, in numbers per parameter."""
    share = Fraction(GPUS - 1, GPUS)  # of a gather, or of a reduce-scatter
    return {"ZeRO-3": 3 * m * share, "ZeRO-2": (m + 1) * share, "DP, ZeRO-1": 2 * share}


def picture() -> Picture:
    """Returns the lines of what is sent against the number of microbatches."""
    return scaling_line(
        MICROBATCHES,
        {name: [float(sent(m)[name]) for m in MICROBATCHES] for name in sent(1)},
        xlabel="microbatches m in a step",
        ylabel="numbers sent per parameter",
        title="What one of four GPUs sends in a step",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
