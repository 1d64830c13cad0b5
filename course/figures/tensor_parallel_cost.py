"""Draws tensor_parallel_cost.svg: `python course/figures/tensor_parallel_cost.py`."""

from pathlib import Path

from distlab.plot import Picture, scaling_line

HIDDEN = 12_288  # GPT-3
REACHED_FLOP_PER_S = 0.40 * 989e12  # of an H100's dense BF16 peak
LINKS_BYTES_PER_S = {"NVLink": 450e9, "InfiniBand": 50e9}  # per GPU, one way
RANKS = (1, 2, 4, 8, 16)


def ratio(t: int, rate_bytes_per_s: float) -> float:
    """Returns communication time over arithmetic time of a layer, as the chapter derives it."""
    return 2 / 9 * (t - 1) * REACHED_FLOP_PER_S / (HIDDEN * rate_bytes_per_s)


def picture() -> Picture:
    """Returns the ratio against the number of ranks, for both links."""
    return scaling_line(
        RANKS,
        {link: [ratio(t, rate) for t in RANKS] for link, rate in LINKS_BYTES_PER_S.items()},
        ideal=("as long as the arithmetic", [1] * len(RANKS)),
        xlabel="ranks t",
        ylabel="all-reduce time / arithmetic time",
        title="GPT-3: what tensor parallelism costs on two links",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
