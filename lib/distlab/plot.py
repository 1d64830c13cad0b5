"""Pictures of who holds what and what it costs: the place to import them from.

Shard maps and values by rank stand here; scaling lines and rooflines come from
`distlab.charts`, memory stacks from `distlab.stacks`, curves from `distlab.curves`, timelines
from `distlab.gantt`, nodes from `distlab.nodemap`, pipelines from `distlab.schedule.figures`,
predictions beside measurements from `distlab.versus`. One colour per role through the whole
course. Matplotlib is imported only when something is drawn. Every function returns a `Picture`,
which a notebook shows with an alternative text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distlab import canvas
from distlab.breakdown import step_breakdown
from distlab.canvas import COLOURS, INK, MUTED, WIDTH_IN, Picture
from distlab.charts import roofline, scaling_line
from distlab.curves import loss_curves, memory_curve
from distlab.gantt import timeline
from distlab.nodemap import node_map
from distlab.partition.picture import dp_table, stage_loads
from distlab.rankgrid import rank_grid
from distlab.scatter import layout_scatter
from distlab.schedule.figures import in_flight, pipeline
from distlab.stacks import memory_stack
from distlab.versus import predicted_measured

__all__ = [
    "COLOURS",
    "INK",
    "MUTED",
    "WIDTH_IN",
    "Matrix",
    "Picture",
    "dp_table",
    "in_flight",
    "layout_scatter",
    "loss_curves",
    "memory_curve",
    "memory_stack",
    "node_map",
    "pipeline",
    "predicted_measured",
    "rank_grid",
    "rank_values",
    "roofline",
    "scaling_line",
    "shard_map",
    "stage_loads",
    "step_breakdown",
    "timeline",
]

COMMUNICATION = {"f": "→ as it is\n← sum", "g": "→ sum\n← as it is"}  # forward, backward


@dataclass(frozen=True)
class Matrix:
    """One matrix of a shard map.

    `shape` is (rows, columns). `cut` says how it lies over the ranks: None (whole, on every rank),
    "columns", "rows", or "partial" (every rank holds one full-size term of a sum).
    """

    name: str
    shape: tuple[int, int]
    role: str
    cut: str | None = None

    def share(self, ranks: int) -> str:
        """Returns what one rank holds: `Matrix("W", (8, 4), "weights", "rows").share(4)`."""
        if self.cut is None:
            return "whole on every rank"
        if self.cut == "partial":
            return "one term on each rank"
        size = self.shape[1] if self.cut == "columns" else self.shape[0]
        if size % ranks:
            raise ValueError(f"{self.name} has {size} {self.cut}: not a multiple of {ranks} ranks.")
        return f"{_count(size // ranks, self.cut.rstrip('s'))} on each rank"


def shard_map(*parts: Matrix | str, ranks: int, title: str = "") -> Picture:
    """Draws an equation of matrices, each cut into the blocks that the ranks hold.

    Strings are the signs between matrices: "@", "=", a function's name ("GeLU"), or "f" and "g",
    which are drawn with what they do forward (→) and backward (←).

    Example: `shard_map(Matrix("X", (3, 8), "activations"), "@", Matrix("W", ...), ranks=4)`.
    """
    sizes = [_drawn_size(part, ranks) for part in parts]
    gap = 0.8
    total = sum(width for width, _ in sizes) + gap * (len(parts) - 1)
    tallest = max(height for _, height in sizes)
    scale = min((WIDTH_IN - 0.6) / total, 0.30)  # inches per unit; room for labels at both ends
    head_in, foot_in = (0.78 if title else 0.42), 0.50
    figure = canvas.figure(tallest * scale + head_in + foot_in)
    axes = canvas.page(figure)
    half = (WIDTH_IN / scale - total) / 2
    axes.set_xlim(-half, total + half)
    axes.set_ylim(-tallest / 2 - foot_in / scale, tallest / 2 + head_in / scale)
    canvas.title(axes, title)

    left, words = 0.0, []
    for part, (width, height) in zip(parts, sizes, strict=True):
        middle = left + width / 2
        if isinstance(part, Matrix):
            share = part.share(ranks)
            _draw_matrix(axes, part, left, height, ranks, scale)
            name = f"{part.name}  {_shape(part)}"
            canvas.text(axes, middle, height / 2 + 0.20 / scale, name, 11)
            if width * scale < 1.5:
                share = share.replace(" on ", "\non ")
            canvas.text(axes, middle, -height / 2 - 0.08 / scale, share, 9, MUTED, va="top")
            words.append(f"{part.name} {_shape(part)} ({part.share(ranks)})")
        else:
            _draw_sign(axes, part, middle, scale)
            words.append(part)
        left += width + gap
    return Picture(figure, f"{title or 'Shard map'}. {ranks} ranks: {' '.join(words)}.")


def rank_values(
    values: Sequence[Sequence[Any]], roles: Mapping[str, str], *, title: str = ""
) -> Picture:
    """Draws a table of what each rank holds: one row per rank, one column per tensor.

    `values` holds one sequence of tensors, lists or numbers per rank (`result.values`); `roles`
    names the columns in order, with their roles. A column that agrees on all ranks says so.

    Example: `rank_values([(2, 222), (2, 222)], {"x": "activations", "y": "activations"})`.
    """
    ranks = len(values)
    by_column = zip(*values, strict=True)
    texts = {
        name: [_short(value) for value in column]
        for name, column in zip(roles, by_column, strict=True)
    }
    left_in, row_in = 0.66, 0.40
    wide_in = (WIDTH_IN - left_in - 0.04) / len(texts)
    heads = {name: canvas.fitting(canvas.wraps(name), wide_in - 0.06, 10.5, 7.0) for name in texts}
    notes = {
        name: "same on every rank" if len(set(cells)) == 1 else "differs by rank"
        for name, cells in texts.items()
    }
    feet = {
        name: canvas.fitting(canvas.wraps(note), wide_in - 0.06, 8.5, 6.0)
        for name, note in notes.items()
    }
    names_in = max(canvas.text_size_in(*head)[1] for head in heads.values()) + 0.10
    head_in = names_in + (0.45 if title else 0.10)
    foot_in = max(canvas.text_size_in(*foot)[1] for foot in feet.values()) + 0.12
    figure = canvas.figure(head_in + ranks * row_in + foot_in)
    axes = canvas.page(figure)
    axes.set_xlim(-left_in, len(texts) * wide_in + 0.04)  # inches
    axes.set_ylim(ranks * row_in + foot_in, -head_in)
    canvas.title(axes, title)
    for rank in range(ranks):
        canvas.text(axes, -0.10, (rank + 0.5) * row_in, f"rank {rank}", 10, MUTED, ha="right")
    for i, (name, column) in enumerate(zip(texts, zip(*values, strict=True), strict=True)):
        middle = (i + 0.5) * wide_in
        canvas.text(axes, middle, -names_in / 2, *heads[name])
        cells, size = _cells(column, 0.94 * wide_in - 0.08)
        for rank, cell in enumerate(cells):
            x, y = (i + 0.03) * wide_in, (rank + 0.05) * row_in
            canvas.block(axes, x, y, 0.94 * wide_in, 0.90 * row_in, COLOURS[roles[name]])
            canvas.text(axes, middle, (rank + 0.5) * row_in, cell, size)
        text, size = feet[name]
        canvas.text(axes, middle, ranks * row_in + foot_in / 2, text, size, MUTED)
    words = "; ".join(f"{name}: {', '.join(cells)}" for name, cells in texts.items())
    return Picture(figure, f"{title or 'Values by rank'}, {ranks} ranks. {words}.")


def _drawn_size(part: Matrix | str, ranks: int) -> tuple[float, float]:
    """Returns width and height in units of one matrix entry."""
    if isinstance(part, str):
        return (5.0 if part in COMMUNICATION else 3.0 if len(part) > 1 else 1.6), 1.0
    rows, columns = part.shape
    return columns, (rows * ranks + 0.9 * (ranks - 1) if part.cut == "partial" else rows)


def _draw_matrix(
    axes: Any, part: Matrix, left: float, height: float, ranks: int, scale: float
) -> None:
    colour = COLOURS[part.role]
    for rank, (x, top, width, tall) in enumerate(_blocks(part, left, height, ranks)):
        canvas.block(axes, x, top - tall, width, tall, colour)
        if part.cut is None:
            continue
        turn = 90 if width * scale < 0.55 else 0
        canvas.text(axes, x + width / 2, top - tall / 2, f"rank {rank}", 9.5, rotation=turn)
        if part.cut == "partial" and rank < ranks - 1:
            canvas.text(axes, x + width / 2, top - tall - 0.45, "+", 12)


def _blocks(
    part: Matrix, left: float, height: float, ranks: int
) -> Iterable[tuple[float, float, float, float]]:
    """Yields (left, top, width, height) of every rank's block; one block for an uncut matrix."""
    rows, columns = part.shape
    top = height / 2
    match part.cut:
        case None:
            yield left, top, columns, rows
        case "columns":
            width = columns / ranks
            yield from ((left + r * width, top, width, rows) for r in range(ranks))
        case "rows":
            tall = rows / ranks
            yield from ((left, top - r * tall, columns, tall) for r in range(ranks))
        case "partial":
            yield from ((left, top - r * (rows + 0.9), columns, rows) for r in range(ranks))


def _draw_sign(axes: Any, sign: str, x: float, scale: float) -> None:
    if sign in COMMUNICATION:
        circle = {"boxstyle": "circle,pad=0.32", "edgecolor": "none"}
        circle["facecolor"] = COLOURS["communication"]
        canvas.text(axes, x, 0, sign, 13, "white", style="italic", weight="bold", bbox=circle)
        canvas.text(axes, x, -0.27 / scale, COMMUNICATION[sign], 8.5, MUTED, va="top")
    elif sign.isalpha():
        canvas.text(axes, x, 0, "→", 15)
        canvas.text(axes, x, 0.20 / scale, sign, 10)
    else:
        canvas.text(axes, x, 0, "×" if sign == "@" else sign, 13)


def _shape(part: Matrix) -> str:
    return f"[{part.shape[0]} × {part.shape[1]}]"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _short(value: Any, most: int = 4) -> str:
    """Returns a tensor, list or number as a short text: `_short([[1.0], [10.0]]) == "1, 10"`."""
    value = value.tolist() if hasattr(value, "tolist") else value
    flat = list(_flatten(value))
    text = ", ".join(f"{number:.6g}" for number in flat[:most])
    return text + (", …" if len(flat) > most else "")


def _cells(column: Sequence[Any], width_in: float) -> tuple[list[str], float]:
    """Returns a column's texts and their size: smaller, then shorter, until they fit."""
    for most in (4, 3, 2, 1):
        cells = [_short(value, most) for value in column]
        for size in (10.5, 9.5, 8.5):
            if all(canvas.text_size_in(cell, size)[0] <= width_in for cell in cells):
                return cells, size
    widest = max(cells, key=lambda cell: canvas.text_size_in(cell, 8.5)[0])
    return cells, canvas.fitting([widest], width_in, 8.5, 5.0)[1]


def _flatten(value: Any) -> Iterable[float]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flatten(item)
    else:
        yield value
