"""Draws kept_by_length.svg: `python course/figures/kept_by_length.py`."""

from pathlib import Path

from distlab.plot import Picture, scaling_line

HIDDEN, HEADS = 12_288, 96  # GPT-3
LENGTHS = (1_024, 2_048, 4_096, 8_192)  # tokens of one sequence


def kept_gb(s: int) -> dict[str, float]:
    """Returns what a layer keeps of one sequence, by way of computing it."""
    gb = s * HIDDEN / 1e9
    return {
        "everything": gb * (34 + 5 * HEADS * s / HIDDEN),
        "flash attention": gb * (34 + 4 * HEADS / HIDDEN),
    }


def picture() -> Picture:
    """Returns the bytes of one layer against the sequence's length."""
    by_length = [kept_gb(s) for s in LENGTHS]
    return scaling_line(
        LENGTHS,
        {way: [kept[way] for kept in by_length] for way in by_length[0]},
        xlabel="tokens in a sequence s",
        ylabel="GB that one layer keeps",
        title="A layer of GPT-3: what it keeps for backward",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
