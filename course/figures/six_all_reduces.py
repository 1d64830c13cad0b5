"""Draws six_all_reduces.svg: `python course/figures/six_all_reduces.py`."""

from pathlib import Path

from distlab.plot import Picture, step_breakdown

# Seconds by the lecture model. TP is what four all-reduces per layer and microbatch take.
PARTS = {
    "8×8×16": {"compute": 8.6973, "bubble": 0.6342, "tp": 0.9019, "pp": 0.1933, "dp": 0.2051},
    "4×16×16": {"compute": 8.6973, "bubble": 1.3589, "tp": 0.3865, "pp": 0.1933, "dp": 0.2051},
}


def bars() -> dict[str, dict[str, float]]:
    """Returns both layouts' parts, with four all-reduces per layer and with six."""
    return {
        f"{layout}, {name}": parts | {"tp": parts["tp"] * count / 4}
        for name, count in (("four", 4), ("six", 6))
        for layout, parts in PARTS.items()
    }


def picture() -> Picture:
    """Returns four bars: the order of the two layouts turns round."""
    return step_breakdown(bars(), title="Four all-reduces in a layer, and six")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
