"""Draws delay_price.svg: `python course/figures/delay_price.py`."""

from fractions import Fraction
from pathlib import Path

from distlab.plot import Picture, scaling_line
from distlab.schedule import gpipe, interleaved, one_f_one_b, simulate

DELAYS = tuple(Fraction(n, 10) for n in range(6))
ORDERS = {
    "1F1B": (one_f_one_b(4, 8), 1),
    "GPipe": (gpipe(4, 8), 1),
    "v = 2": (interleaved(4, 8, 2), 2),
}


def added(name: str, delay: Fraction) -> Fraction:
    """Returns by how much a step of eight microbatches grows if each sending takes `delay`."""
    orders, v = ORDERS[name]
    chunk = {"forward": Fraction(1, v), "backward": Fraction(2, v)}
    return simulate(orders, **chunk, delay=delay).makespan - simulate(orders, **chunk).makespan


def picture() -> Picture:
    """Returns what is added against the delay, for GPipe, 1F1B and two chunks a stage."""
    return scaling_line(
        [float(delay) for delay in DELAYS],
        {name: [float(added(name, delay)) for delay in DELAYS] for name in ORDERS},
        xlabel="delay c, in forward passes of a stage",
        ylabel="added to the step",
        title="What a delay costs: four stages, eight microbatches",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
