"""Draws layouts_breakdown.svg: `python course/figures/layouts_breakdown.py`."""

from pathlib import Path

from distlab.plot import Picture, step_breakdown

# Seconds by the lecture model: bubble, TP, PP, DP.
COMPUTE_S = 8.6973
PARTS = {
    "8×8×16": (0.6342, 0.9019, 0.1933, 0.2051),
    "8×4×32": (0.5436, 0.9019, 0.0966, 0.4238),
    "8×16×8": (0.6795, 0.9019, 0.3865, 0.0957),
    "4×16×16": (1.3589, 0.3865, 0.1933, 0.2051),
    "8×2×64": (0.3624, 0.9019, 0.0483, 0.8613),
    "1×64×16": (5.7076, 0.0000, 0.1933, 0.2051),
}


def picture() -> Picture:
    """Returns five good layouts of GPT-3, and one without tensor parallelism."""
    names = ("bubble", "tp", "pp", "dp")
    bars = {
        layout: {"compute": COMPUTE_S, **dict(zip(names, times, strict=True))}
        for layout, times in PARTS.items()
    }
    return step_breakdown(bars, best="8×8×16", title="GPT-3 175B on 1,024 GPUs: a step's parts")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
