"""Draws context_bytes.svg: `python course/figures/context_bytes.py`."""

from pathlib import Path

from distlab.plot import Picture, scaling_line

TOKENS, HIDDEN, BYTES = 131_072, 16_384, 2  # Llama 3.1 405B with its longest sequence, BF16
RANKS = (2, 3, 4, 6, 8)
ALL_HEADS, GROUPED = 1.0, 8 / 128  # heads of keys and values for each head of queries


def ring_gb(c: int, g: float) -> float:
    """Returns what a rank sends for a layer, forward and backward, if keys and values go round."""
    return 6 * g * TOKENS * HIDDEN * (c - 1) / c * BYTES / 1e9


def ulysses_gb(c: int) -> float:
    """Returns what it sends if sequence shards are exchanged for heads, and back."""
    return 8 * TOKENS * HIDDEN * (c - 1) / c**2 * BYTES / 1e9


def picture() -> Picture:
    """Returns both against the number of ranks, and the ring with few heads of keys and values."""
    return scaling_line(
        RANKS,
        {
            "ring, all heads": [ring_gb(c, ALL_HEADS) for c in RANKS],
            "Ulysses, all heads": [ulysses_gb(c) for c in RANKS],
            "ring, 8 of 128": [ring_gb(c, GROUPED) for c in RANKS],
        },
        xlabel="ranks c",
        ylabel="GB sent per layer",
        title="131,072 tokens, h = 16,384: two ways to attend",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
