"""Draws ring_hops.svg: `python course/figures/ring_hops.py`."""

from pathlib import Path

from distlab.plot import Picture, rank_values

RANKS = 4


def sent(rank: int, hop: int) -> int:
    """Returns what a rank sends on a hop: rank r's own term is 10^r, so digits tell whose are in.

    A chunk has one term on its first hop and one more on each later one, until all are in it.
    """
    terms = min(hop + 1, RANKS)
    return sum(10 ** ((rank - back) % RANKS) for back in range(terms))


def picture() -> Picture:
    """Returns the table of what every rank sends on the hops up to the first finished sum."""
    growing = {f"hop {hop}": "gradients" for hop in range(1, RANKS)}
    return rank_values(
        [[sent(rank, hop) for hop in range(RANKS)] for rank in range(RANKS)],
        {**growing, f"hop {RANKS}": "communication"},
        title="Sums grow for three hops; from the fourth on, finished ones travel",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
