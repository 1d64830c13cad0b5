"""Which rank sits on which node, drawn: nodes as boxes of GPUs, groups of ranks in colour."""

from collections.abc import Mapping, Sequence

from distlab import canvas
from distlab.canvas import COLOURS, GRID, INK, MUTED, WIDTH_IN, Picture
from distlab.ledger import rank_ranges


def node_map(
    nodes: Sequence[Sequence[int]],
    marks: Mapping[str, tuple[Sequence[int], str]] | None = None,
    *,
    columns: int = 2,
    labels: Mapping[int, str] | None = None,
    title: str = "",
) -> Picture:
    """Draws the ranks on each node, `columns` nodes side by side, and colours groups of them.

    `marks` names groups: their ranks, and the role whose colour they get. A rank in several
    groups is drawn in ink. `labels` stand in place of rank numbers.

    Example: `node_map([[0, 1], [2, 3]], {"DP group": ([0, 2], "gradients")})`.
    """
    marks = dict(marks or {})
    most = max(map(len, nodes))
    rows = -(-len(nodes) // columns)
    pad_in, gap_in, name_in = 0.07, 0.16, 0.22
    node_in = (WIDTH_IN - 0.24 - (columns - 1) * gap_in) / columns
    cell_in = min((node_in - 2 * pad_in) / most, 0.52)
    node_in = cell_in * most + 2 * pad_in
    tall_in = cell_in + 2 * pad_in + name_in
    head_in, foot_in = (0.44 if title else 0.06), (0.36 if marks else 0.06)
    figure = canvas.figure(head_in + rows * (tall_in + gap_in) - gap_in + foot_in)
    axes = canvas.page(figure)
    all_in = columns * (node_in + gap_in) - gap_in
    axes.set_xlim((all_in - WIDTH_IN) / 2, (all_in + WIDTH_IN) / 2)  # inches
    axes.set_ylim(rows * (tall_in + gap_in) - gap_in + foot_in, -head_in)
    canvas.title(axes, title)
    for index, ranks in enumerate(nodes):
        left = index % columns * (node_in + gap_in)
        top = index // columns * (tall_in + gap_in)
        _draw_node(axes, f"node {index}", left, top, node_in, tall_in)
        for place, rank in enumerate(ranks):
            x, y = left + pad_in + place * cell_in, top + name_in + pad_in
            roles = [role for members, role in marks.values() if rank in members]
            _draw_rank(axes, (labels or {}).get(rank, str(rank)), x, y, cell_in, roles)
    if marks:
        _draw_key(axes, {name: role for name, (_, role) in marks.items()}, all_in, foot_in)
    where = "; ".join(f"node {i}: {rank_ranges(ranks)}" for i, ranks in enumerate(nodes))
    drawn = "".join(f" {name}: {rank_ranges(ranks)}." for name, (ranks, _) in marks.items())
    return Picture(figure, f"{title or 'Ranks on nodes'}. {where}.{drawn}")


def _draw_node(axes, name: str, x: float, y: float, width: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor="#F6F6F6", edgecolor=GRID))
    canvas.text(axes, x + 0.08, y + 0.13, name, 9, MUTED, ha="left")


def _draw_rank(axes, label: str, x: float, y: float, size: float, roles: list[str]) -> None:
    from matplotlib.patches import Rectangle

    inner = 0.88 * size
    left, top = x + 0.06 * size, y + 0.06 * size
    colour = "white"
    if len(roles) == 1:
        canvas.block(axes, left, top, inner, inner, COLOURS[roles[0]])
        colour = INK
    else:
        face = INK if roles else "white"
        edge = INK if roles else "#BDBDBD"
        axes.add_patch(Rectangle((left, top), inner, inner, facecolor=face, edgecolor=edge))
        colour = "white" if roles else INK
    text, letters = canvas.fitting([label], 0.9 * inner, 9.5, 5.0)
    canvas.text(axes, left + inner / 2, top + inner / 2, text, letters, colour)


def _draw_key(axes, key: Mapping[str, str], width: float, foot: float) -> None:
    """Writes what each colour means, side by side below the nodes."""
    size, square, gap = 9.5, 0.13, 0.28
    wide = [square + 0.07 + canvas.text_size_in(name, size)[0] for name in key]
    x = (width - sum(wide) - gap * (len(wide) - 1)) / 2
    y = axes.get_ylim()[0] - foot / 2 + 0.04
    for (name, role), step in zip(key.items(), wide, strict=True):
        canvas.block(axes, x, y - square / 2, square, square, COLOURS[role])
        canvas.text(axes, x + square + 0.07, y, name, size, ha="left")
        x += step + gap
