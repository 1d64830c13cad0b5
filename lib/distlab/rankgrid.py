"""What each rank of a 3D layout holds, and whose gradients are added up. In `distlab.plot`."""

from collections.abc import Mapping, Sequence

from distlab import canvas
from distlab.canvas import COLOURS, MUTED, WIDTH_IN, Picture

LEFT_IN, GAP_IN, BAR_IN = 0.95, 0.34, 0.27


def rank_grid(
    places: Sequence[Mapping[str, int]],
    held: Sequence[Mapping[str, tuple[float, float]]],
    *,
    sums: Mapping[str, Sequence[Sequence[int]]] | None = None,
    title: str = "",
) -> Picture:
    """Draws a box for each rank: stages from left to right, replicas from top to bottom.

    `places[rank]` has the rank's "tp", "dp" and "pp"; `held[rank]` has what it holds by name, as
    the part (from, to) of the whole, which is (0, 1). `sums` has, by name, the groups of ranks
    whose gradients make one sum; they are numbered, and each group's number stands in its bars.

    Example: `rank_grid([{"tp": 0, "dp": 0, "pp": 0}], [{"W": (0, 1)}])`.
    """
    if not places or len(places) != len(held):
        raise ValueError(f"{len(places)} places don't fit what {len(held)} ranks hold.")
    names = list(dict.fromkeys(name for parts in held for name in parts))
    columns = sorted({(at["pp"], at["tp"]) for at in places})
    rows = sorted({at["dp"] for at in places})
    stages = len({stage for stage, _ in columns})
    wide = (WIDTH_IN - LEFT_IN - 0.1 - GAP_IN * (stages - 1)) / len(columns)
    row_in = 0.30 + BAR_IN * len(names) + 0.10
    head_in = 0.30 + (0.40 if title else 0.08)
    figure = canvas.figure(head_in + row_in * len(rows) + (0.30 if sums else 0.05))
    page = canvas.page(figure)
    page.set_xlim(0, WIDTH_IN)
    page.set_ylim(figure.get_figheight(), 0)
    canvas.title(page, title)

    def left(column: tuple[int, int]) -> float:
        before = len({stage for stage, _ in columns if stage < column[0]})
        return LEFT_IN + columns.index(column) * wide + before * GAP_IN

    for stage in sorted({stage for stage, _ in columns}):
        mine = [left(column) for column in columns if column[0] == stage]
        canvas.text(page, (mine[0] + mine[-1] + wide) / 2, head_in - 0.16, f"stage {stage}", 10.5)
    for row in rows:
        y = head_in + rows.index(row) * row_in
        canvas.text(page, 0.12, y + row_in / 2, f"replica {row}", 10, MUTED, ha="left")
    colour = COLOURS["gradients" if sums else "weights"]
    numbers = _numbered(sums or {})
    for rank, (at, parts) in enumerate(zip(places, held, strict=True)):
        x = left((at["pp"], at["tp"]))
        y = head_in + rows.index(at["dp"]) * row_in
        _frame(page, x + 0.04, y + 0.02, wide - 0.08, row_in - 0.08)
        canvas.text(page, x + wide / 2, y + 0.15, f"rank {rank}", 9, MUTED)
        for i, name in enumerate(names):
            if name in parts:
                text = f"{name} Σ{numbers[name, rank]}" if (name, rank) in numbers else name
                _bar(page, x + 0.10, y + 0.28 + i * BAR_IN, wide - 0.20, text, parts[name], colour)
    if sums:
        note = "equal numbers: one sum"
        canvas.text(page, WIDTH_IN / 2, figure.get_figheight() - 0.18, note, 9.5, MUTED)
    return Picture(figure, _words(title, held, sums))


def _numbered(sums: Mapping[str, Sequence[Sequence[int]]]) -> dict[tuple[str, int], int]:
    """Returns the number of each (name, rank): groups are counted through all names."""
    groups = [(name, group) for name, found in sums.items() for group in found]
    return {(name, rank): i for i, (name, group) in enumerate(groups, 1) for rank in group}


def _frame(page, x: float, y: float, width: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    look = {"facecolor": "none", "edgecolor": "#CFCFCF", "linewidth": 0.8}
    page.add_patch(Rectangle((x, y), width, height, **look))


def _bar(page, x, y, width, text: str, part: tuple[float, float], colour: str) -> None:
    """Draws a thing's whole width, and in it the part that is here."""
    from matplotlib.patches import Rectangle

    high, (start, end) = BAR_IN - 0.05, part
    look = {"facecolor": "none", "edgecolor": "#CFCFCF", "linewidth": 0.6}
    page.add_patch(Rectangle((x, y), width, high, **look))
    canvas.block(page, x + start * width, y, (end - start) * width, high, colour)
    text, size = canvas.fitting([text], (end - start) * width - 0.06, 9, 6.0)
    canvas.text(page, x + (start + end) / 2 * width, y + high / 2, text, size)


def _words(title: str, held, sums) -> str:
    def share(part: tuple[float, float]) -> str:
        return "" if part == (0, 1) else f" from {part[0]:.3g} to {part[1]:.3g}"

    ranks = [
        f"rank {rank}: " + ", ".join(name + share(part) for name, part in parts.items())
        for rank, parts in enumerate(held)
    ]
    added = [
        f"{name} is added up over ranks " + "; ".join(", ".join(map(str, g)) for g in groups)
        for name, groups in (sums or {}).items()
    ]
    return ". ".join([title or "What each rank holds", *ranks, *added]) + "."
