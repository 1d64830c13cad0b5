"""Draws zero_shards.svg: `python course/figures/zero_shards.py`."""

from pathlib import Path

from distlab import canvas
from distlab.canvas import COLOURS, MUTED
from distlab.plot import Picture

RANKS = 4
PARTS = {"weights": 2, "gradients": 2, "optimiser states": 12}  # bytes per parameter
SHARDED = {"optimiser states": 1, "gradients": 2, "weights": 3}  # from which stage on
STAGES = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def held(stage: int, rank: int, part: str) -> tuple[int, ...]:
    """Returns the shards of a part that a rank holds between two steps."""
    return (rank,) if stage >= SHARDED[part] else tuple(range(RANKS))


def bytes_per_parameter(stage: int) -> float:
    """Returns what each rank holds: the parts' bytes by the share that is there."""
    return sum(len(held(stage, 0, part)) / RANKS * size for part, size in PARTS.items())


def picture() -> Picture:
    """Returns a row per rank and a column per stage; what isn't held is an empty place."""
    figure = canvas.figure(3.55)
    page = canvas.page(figure)
    page.set_xlim(0, 7.2)
    page.set_ylim(0, 3.55)
    canvas.title(page, "Which quarter of what each of four ranks keeps")
    left, wide, high, gap = 0.72, 1.50, 0.16, 0.115
    for stage, name in enumerate(STAGES):
        x = left + stage * (wide + gap)
        canvas.text(page, x + wide / 2, 2.98, name, 10.5)
        each = f"{bytes_per_parameter(stage):g} bytes each"
        canvas.text(page, x + wide / 2, 0.50, each, 9, MUTED)
        for rank in range(RANKS):
            for row, part in enumerate(PARTS):
                y = 2.64 - rank * 0.56 - row * high
                for quarter in range(RANKS):
                    at = x + quarter * wide / RANKS
                    _place(page, at, y, wide / RANKS, high)
                    if quarter in held(stage, rank, part):
                        canvas.block(page, at, y, wide / RANKS, high, COLOURS[part])
    for rank in range(RANKS):
        y = 2.64 - rank * 0.56 - high / 2
        canvas.text(page, left - 0.12, y, f"rank {rank}", 9.5, MUTED, ha="right")
    for name, x in zip(PARTS, (1.75, 2.95, 4.25), strict=True):
        canvas.block(page, x, 0.14, 0.16, 0.12, COLOURS[name])
        canvas.text(page, x + 0.24, 0.20, name, 9.5, MUTED, ha="left")
    words = [f"{name}: {bytes_per_parameter(i):g}" for i, name in enumerate(STAGES)]
    return Picture(figure, f"Who keeps what. Bytes per parameter on each rank: {', '.join(words)}.")


def _place(page, x: float, y: float, width: float, height: float) -> None:
    """Draws an empty place: a part that lies on another rank."""
    from matplotlib.patches import Rectangle

    look = {"facecolor": "none", "edgecolor": "#CFCFCF", "linewidth": 0.6}
    page.add_patch(Rectangle((x, y), width, height, **look))


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
