"""Draws what_it_waits_for.svg: `python course/figures/what_it_waits_for.py`."""

from pathlib import Path

from distlab.hardware import DGX_H100, H100_SXM
from distlab.plot import Picture, roofline

HIDDEN = 12_288  # GPT-3
ROOFS = {
    "HBM": H100_SXM.hbm_bytes_per_s,
    "NVLink, one way": H100_SXM.nvlink.rate_bytes_per_s,
    "network": DGX_H100.network.rate_bytes_per_s,
}


def product(tokens: int) -> float:
    """Returns FLOP per byte of tokens times a square weight: all three matrices move once."""
    return 2 * tokens * HIDDEN**2 / (2 * (2 * tokens * HIDDEN + HIDDEN**2))


def gradients(tokens: int, n: int) -> float:
    """Returns FLOP of a step per byte of gradient that one of n GPUs sends."""
    return 6 * tokens / (2 * (n - 1) / n * 2)


def tensor_parallel(t: int) -> float:
    """Returns FLOP of a layer per byte that one of t GPUs sends for it."""
    return 72 * HIDDEN / t / (4 * 2 * (t - 1) / t * 2)


def picture() -> Picture:
    """Returns the roofs of an H100, with work that lies left and right of their corners."""
    points = {
        "norm": ("HBM", 2.0),
        "8 tokens": ("HBM", product(8)),
        "2,048 tokens": ("HBM", product(2_048)),
        "t = 8": ("network", tensor_parallel(8)),
        "gradients": ("network", gradients(16_384, 64)),
    }
    return roofline(
        H100_SXM.peak_flop_per_s, ROOFS, points, title="One H100: what arithmetic waits for"
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
