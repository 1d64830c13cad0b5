"""Draws mesh_groups.svg: `python course/figures/mesh_groups.py`."""

from pathlib import Path

from distlab import canvas
from distlab.plot import COLOURS, INK, MUTED, WIDTH_IN, Picture

T, P, D, PER_NODE, SHOWN = 4, 2, 4, 8, 5
ROLES = {"tp": "communication", "dp": "gradients", "pp": "activations"}
NAMES = {"tp": "tensor", "dp": "data", "pp": "pipeline"}
_LEFT_IN, _CELL_IN, _GAP_IN, _ROW_IN = 1.62, 0.56, 0.26, 0.62


def group(rank: int, axis: str) -> list[int]:
    """Returns the ranks that differ from this one along the axis only; itself is among them."""
    step, size = {"tp": (1, T), "dp": (T, D), "pp": (T * D, P)}[axis]
    first = rank - rank // step % size * step
    return [first + i * step for i in range(size)]


def picture() -> Picture:
    """Returns 32 ranks on four nodes, with the three groups of one of them."""
    nodes = T * P * D // PER_NODE
    figure = canvas.figure(0.62 + nodes * _ROW_IN + 0.42)
    axes = canvas.page(figure)
    axes.set_xlim(0, WIDTH_IN)
    axes.set_ylim(nodes * _ROW_IN + 0.42, -0.62)
    canvas.title(axes, f"Rank {SHOWN} of {T}×{P}×{D}, and its three groups")
    groups = {axis: group(SHOWN, axis) for axis in ROLES}
    words = []
    for node in range(nodes):
        top = node * _ROW_IN
        ranks = range(node * PER_NODE, (node + 1) * PER_NODE)
        stage = ranks[0] // (T * D)
        replicas = " and ".join(str(r // T % D) for r in ranks[::T])
        canvas.text(axes, 0.12, top + 0.16, f"node {node}: stage {stage},", 9.5, MUTED, ha="left")
        canvas.text(axes, 0.12, top + 0.33, f"replicas {replicas}", 9.5, MUTED, ha="left")
        words.append(f"node {node} holds ranks {ranks[0]} to {ranks[-1]}")
        for place, rank in enumerate(ranks):
            x = _LEFT_IN + place * _CELL_IN + place // T * _GAP_IN
            inside = [axis for axis, found in groups.items() if rank in found]
            _draw_rank(axes, x, top, rank, inside)
    y, x = nodes * _ROW_IN + 0.17, _LEFT_IN
    for axis, found in groups.items():
        listed = f"{NAMES[axis]} group: {', '.join(map(str, found))}"
        canvas.block(axes, x, y - 0.06, 0.13, 0.12, COLOURS[ROLES[axis]])
        canvas.text(axes, x + 0.2, y, listed, 9, ha="left")
        x += 0.2 + canvas.text_size_in(listed, 9)[0] + 0.18
        words.append(listed)
    return Picture(figure, f"{T}×{P}×{D} on nodes of {PER_NODE}: {'; '.join(words)}.")


def _draw_rank(axes, x: float, y: float, rank: int, inside: list[str]) -> None:
    from matplotlib.patches import Rectangle

    wide, high = _CELL_IN - 0.06, 0.46
    if len(inside) == 1:
        canvas.block(axes, x, y, wide, high, COLOURS[ROLES[inside[0]]])
    else:
        edge = INK if inside else "#BBBBBB"
        look = {"facecolor": "white", "edgecolor": edge, "linewidth": 2.2 if inside else 1.0}
        axes.add_patch(Rectangle((x, y), wide, high, **look))
    colour = INK if inside else MUTED
    weight = {"weight": "bold"} if len(inside) > 1 else {}
    canvas.text(axes, x + wide / 2, y + high / 2, f"{rank}", 10.5, colour, **weight)


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
