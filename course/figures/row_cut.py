"""Draws row_cut.svg: `python course/figures/row_cut.py`."""

from pathlib import Path

from distlab.plot import Matrix, Picture, shard_map


def picture() -> Picture:
    """Returns the map of a product whose weight is cut by rows over four ranks."""
    return shard_map(
        Matrix("X", (3, 8), "activations", cut="columns"),
        "@",
        Matrix("W", (8, 8), "weights", cut="rows"),
        "=",
        Matrix("Y", (3, 8), "communication", cut="partial"),
        ranks=4,
        title="Cut by rows: four terms of Y, still to be added",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
