"""Draws hierarchical_all_reduce.svg: `python course/figures/hierarchical_all_reduce.py`."""

from pathlib import Path

from distlab.plot import Picture, scaling_line

SIZE_BYTES, PER_NODE = 15e9, 8
NODE_BYTES_PER_S, NETWORK_BYTES_PER_S = 450e9, 50e9
NODES = (1, 2, 3, 4, 5, 6, 7, 8)


def share(n: int) -> float:
    """Returns how many times its tensor a rank sends in a ring all-reduce of n ranks."""
    return 2 * (n - 1) / n


def flat_s(nodes: int) -> float:
    """Returns the time of one ring through all GPUs: its slowest hop sets the pace."""
    rate = NETWORK_BYTES_PER_S if nodes > 1 else NODE_BYTES_PER_S
    return share(nodes * PER_NODE) * SIZE_BYTES / rate


def hierarchical_s(nodes: int) -> float:
    """Returns the time of reducing inside nodes, across them, and spreading inside them."""
    inside = share(PER_NODE) * SIZE_BYTES / NODE_BYTES_PER_S
    return inside + share(nodes) * SIZE_BYTES / PER_NODE / NETWORK_BYTES_PER_S


def picture() -> Picture:
    """Returns both over one to eight nodes."""
    return scaling_line(
        NODES,
        {
            "flat ring": [flat_s(k) for k in NODES],
            "hierarchical": [hierarchical_s(k) for k in NODES],
        },
        xlabel=f"nodes of {PER_NODE} GPUs",
        ylabel="seconds",
        title="All-reduce of 15 GB: NVLink inside nodes, 400 Gb/s between",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
