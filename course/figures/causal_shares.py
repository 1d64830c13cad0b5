"""Draws causal_shares.svg: `python course/figures/causal_shares.py`."""

from pathlib import Path

from distlab import canvas
from distlab.canvas import INK, MUTED, WIDTH_IN
from distlab.plot import Picture

RANKS, CHUNKS = 4, 8
GREYS = ("#DCE9F5", "#9CC3E6", "#4D8FCC", "#1F4E79")  # rank 0 to 3, from light to dark
_CELL_IN, _TOP_IN = 0.29, 0.95


def owner(chunk: int, zigzag: bool) -> int:
    """Returns the rank that has a chunk of the sequence, and so a row of this square."""
    if zigzag:
        return min(chunk, CHUNKS - 1 - chunk)
    return chunk * RANKS // CHUNKS


def sixteenths(zigzag: bool) -> list[float]:
    """Returns each rank's work, in sixteenths of all; a cell on the diagonal is half a cell."""
    work = [0.0] * RANKS
    for row in range(CHUNKS):
        work[owner(row, zigzag)] += row + 0.5
    return [16 * part / sum(work) for part in work]


def picture() -> Picture:
    """Returns the causal triangle twice, coloured by the rank that computes a row of it."""
    from matplotlib.patches import Polygon, Rectangle

    side = CHUNKS * _CELL_IN
    figure = canvas.figure(_TOP_IN + side + 0.15)
    axes = canvas.page(figure)
    axes.set_xlim(0, WIDTH_IN)
    axes.set_ylim(side + 0.15, -_TOP_IN)
    canvas.title(axes, "Whose work? Rows are queries, columns are keys")
    words = []
    for place, (name, zigzag) in enumerate((("in a row", False), ("paired, r and 7 − r", True))):
        left = 0.45 + place * (WIDTH_IN / 2 - 0.05)
        canvas.text(axes, left + side / 2, -0.18, name, 10.5)
        for row in range(CHUNKS):
            rank = owner(row, zigzag)
            for column in range(row + 1):
                x, y = left + column * _CELL_IN, row * _CELL_IN
                look = {"facecolor": GREYS[rank], "edgecolor": "white", "linewidth": 1.2}
                if column < row:
                    axes.add_patch(Rectangle((x, y), _CELL_IN, _CELL_IN, **look))
                else:
                    corners = [(x, y), (x, y + _CELL_IN), (x + _CELL_IN, y + _CELL_IN)]
                    axes.add_patch(Polygon(corners, **look))
            canvas.text(axes, left - 0.14, (row + 0.5) * _CELL_IN, str(row), 9, MUTED)
        said = [f"rank {rank}: {part:g}/16" for rank, part in enumerate(sixteenths(zigzag))]
        for rank, line in enumerate(said):
            x, y = left + side - 0.72, 0.1 + rank * 0.22
            axes.add_patch(
                Rectangle((x - 0.17, y - 0.06), 0.12, 0.12, facecolor=GREYS[rank], edgecolor=INK,
                          linewidth=0.6)
            )  # fmt: skip
            canvas.text(axes, x, y, line, 9.5, ha="left")
        words.append(f"{name}: {', '.join(said)}")
    return Picture(
        figure, f"A causal triangle of {CHUNKS} chunks on {RANKS} ranks; {'; '.join(words)}."
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
