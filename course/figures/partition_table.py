"""Draws partition_table.svg: `python course/figures/partition_table.py`."""

from pathlib import Path

from distlab.partition import table
from distlab.plot import Picture

COSTS = [3, *[1] * 10, 4]  # ms: embedding, ten layers, head


def picture() -> Picture:
    """Returns the table of dynamic programming, with a textbook's partition as a path."""
    title = "Slowest stage of the best partition, in ms"
    return table(COSTS, 4).picture([0, 2, 6, 10, 12], title=title)


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
