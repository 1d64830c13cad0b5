"""Draws column_cut.svg: `python course/figures/column_cut.py`."""

from pathlib import Path

from distlab.plot import Matrix, Picture, shard_map


def picture() -> Picture:
    """Returns the map of a product whose weight is cut by columns over four ranks."""
    return shard_map(
        Matrix("X", (3, 8), "activations"),
        "@",
        Matrix("W", (8, 8), "weights", cut="columns"),
        "=",
        Matrix("Y", (3, 8), "activations", cut="columns"),
        ranks=4,
        title="Cut by columns: finished columns of Y, nothing to send",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
