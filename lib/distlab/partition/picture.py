"""Pictures of partitions: stages as bars of their layers, and the table of dynamic programming."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from distlab import canvas
from distlab.canvas import COLOURS, INK, MUTED, WIDTH_IN, Picture

_MOST_NAMES, _MOST_LAYERS = 16, 256  # beyond these, names and single layers can't be told apart
_SVG_W, _SVG_H = 720, 300


@dataclass(frozen=True)
class Column:
    """One bar: its name below it, and its parts from below as (text, time, role)."""

    name: str
    parts: tuple[tuple[str, float, str], ...]

    @property
    def load(self) -> float:
        """The height of the bar."""
        return sum(time for _, time, _ in self.parts)


def stage_loads(
    layer_times: Sequence[float],
    bounds: Sequence[int],
    *,
    overlapped: Sequence[float] | None = None,
    exposed: Sequence[float] | None = None,
    speeds: Sequence[float] | None = None,
    unit: str = "",
    title: str = "",
) -> Picture:
    """Draws any partition, good or bad: each stage as a bar of its layers, a line at the slowest.

    Stage s holds the layers bounds[s] .. bounds[s+1] - 1. Transfers and speeds as in
    `partition.min_max`; `unit` is the unit of time.

    Example: `plot.stage_loads([3, 1, 1, 4], [0, 1, 4])` draws bars of 3 and 6.
    """
    return draw(columns(layer_times, bounds, overlapped, exposed, speeds), title, unit)


def columns(
    layer_times: Sequence[float],
    bounds: Sequence[int],
    overlapped: Sequence[float] | None = None,
    exposed: Sequence[float] | None = None,
    speeds: Sequence[float] | None = None,
) -> list[Column]:
    """Returns one bar per stage."""
    bounds, layers = _checked(bounds, len(layer_times)), len(layer_times)
    found = []
    for stage, (i, j) in enumerate(pairwise(bounds)):
        speed = 1.0 if speeds is None else speeds[stage]
        if layers <= _MOST_LAYERS:
            parts = [(str(n), layer_times[n] / speed, "weights") for n in range(i, j)]
        else:
            parts = [(f"{i}–{j - 1}", float(sum(layer_times[i:j])) / speed, "weights")]
        ends = [place for place in (i, j) if 0 < place < layers]
        if exposed is not None:
            parts += [("transfer", exposed[place - 1] / speed, "communication") for place in ends]
        load = sum(time for _, time, _ in parts)
        longest = max((overlapped[place - 1] for place in ends), default=0) if overlapped else 0
        if longest > load:
            parts.append(("waits", longest - load, "communication"))
        found.append(Column(f"stage {stage}", tuple(parts)))
    return found


def draw(bars: Sequence[Column], title: str = "", unit: str = "") -> Picture:
    """Draws bars with a dashed line at the highest and a dotted one at the mean."""
    loads = [bar.load for bar in bars]
    top, mean = max(loads), sum(loads) / len(loads)
    figure = canvas.figure(3.4)
    axes = figure.add_axes((0.09, 0.12, 0.77, 0.76 if title else 0.82))
    axes.set_xlim(-0.5, len(bars) - 0.5)
    axes.set_ylim(0, 1.12 * top or 1.0)
    slot_in, unit_in = WIDTH_IN * 0.77 / len(bars), 3.4 * 0.76 / (1.12 * top or 1.0)
    named, short = len(bars) <= _MOST_NAMES, slot_in < 0.6
    digits = 3 if short else 4
    for place, bar in enumerate(bars):
        bottom = 0.0
        for label, time, role in bar.parts:
            canvas.block(axes, place - 0.38, bottom, 0.76, time, COLOURS[role])
            if time * unit_in > 0.16 and named and 0.76 * slot_in > 0.075 * len(label):
                canvas.text(axes, place, bottom + time / 2, label, 8.5)
            bottom += time
        if named:
            text = f"{bar.load:.{digits}g}" if bar.parts else "empty"
            canvas.text(
                axes, place, bottom + 0.05 / unit_in, text, 10, va="bottom", **_over_lines()
            )
    for height, style, name in ((top, "--", "slowest"), (mean, ":", "mean")):
        axes.axhline(height, linestyle=style, color=MUTED, linewidth=1.4, zorder=0)
        if name == "slowest" or (top - mean) * unit_in > 0.34:
            note = f"{name}\n{height:.4g}"
            canvas.text(axes, len(bars) - 0.42, height, note, 9.5, MUTED, ha="left")
    kind = bars[0].name.split()[0]
    if named:
        names = [bar.name.removeprefix(f"{kind} ") if short else bar.name for bar in bars]
        axes.set_xticks(range(len(bars)), names, fontsize=10)
    if short:
        canvas.text(axes, len(bars) - 0.42, -0.13 / unit_in, kind, 10, ha="left")
    axes.tick_params(axis="x", length=0)
    label = "time per microbatch" + (f" ({unit})" if unit else "")
    axes.set_ylabel(label, fontsize=10.5)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left")
    return Picture(figure, words(bars, title))


def draw_svg(bars: Sequence[Column], title: str = "") -> str:
    """Returns the same picture as SVG, made from text alone."""
    loads = [bar.load for bar in bars]
    top, mean = max(loads), sum(loads) / len(loads)
    left, right, head, foot = 16, 96, 44 if title else 26, 28
    slot, unit = (_SVG_W - left - right) / len(bars), (_SVG_H - head - foot) / (top or 1.0)
    base = _SVG_H - foot
    alt = html.escape(words(bars, title))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SVG_W} {_SVG_H}" role="img" '
        f'aria-label="{alt}" style="max-width:{_SVG_W}px;width:100%;background:white" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">'
    ]
    numbers: list[str] = []  # drawn last, over the lines
    if title:
        out.append(f'<text x="{left}" y="18" font-size="15" font-weight="bold">'
                   f"{html.escape(title)}</text>")  # fmt: skip
    for place, bar in enumerate(bars):
        x, width, y = left + (place + 0.12) * slot, 0.76 * slot, float(base)
        for label, time, role in bar.parts:
            height = time * unit
            y -= height
            colour = COLOURS[role]
            out.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                f'fill="{colour}" fill-opacity=".28" stroke="{colour}"/>'
            )
            if height > 13 and width > 7 * len(label):
                out.append(_svg_text(x + width / 2, y + height / 2 + 4, label, 11))
        if len(bars) <= _MOST_NAMES:
            text = f"{bar.load:.{4 if slot > 52 else 3}g}" if bar.parts else "empty"
            numbers.append(_svg_text(x + width / 2, y - 5, text, 13, halo=True))
            name = bar.name if slot > 52 else bar.name.removeprefix(f"{bar.name.split()[0]} ")
            out.append(_svg_text(x + width / 2, base + 18, name, 12))
    for height, dash, name in ((top, "6 4", "slowest"), (mean, "2 3", "mean")):
        y, end = base - height * unit, _SVG_W - right
        out.append(f'<line x1="{left}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}" stroke="{MUTED}" '
                   f'stroke-dasharray="{dash}"/>')  # fmt: skip
        if name == "slowest" or (top - mean) * unit > 16:
            out.append(f'<text x="{end + 6}" y="{y + 4:.1f}" fill="{MUTED}">'
                       f"{name} {height:.4g}</text>")  # fmt: skip
    return "\n".join([*out, *numbers, "</svg>"])


def dp_table(
    best: Sequence[Sequence[float]], bounds: Sequence[int] | None = None, *, title: str = ""
) -> Picture:
    """Draws best[k][i] as a heat map, k stages down and i layers across, with a path of cuts.

    `bounds` is the path: the first k stages end at layer bounds[k]. Cells that mean nothing (more
    stages than layers) are left white.
    """
    rows, wide = len(best), len(best[0])
    finite = [x for row in best for x in row if x < float("inf")]
    most = max(finite) or 1.0
    row_in, head_in = min(0.42, 6.0 / rows), (0.72 if title else 0.42)
    height_in = rows * row_in + head_in + 0.45
    figure = canvas.figure(height_in)
    axes = figure.add_axes((0.13, 0.42 / height_in, 0.85, rows * row_in / height_in))
    axes.set_xlim(-0.5, wide - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    shown = wide <= 17 and rows <= 12
    for k, row in enumerate(best):
        for i, x in enumerate(row):
            if x < float("inf"):
                _cell(axes, i, k, 0.08 + 0.72 * x / most)
                if shown:
                    canvas.text(axes, i, k, f"{x:.4g}", 9.5)
    if bounds is not None:
        across, down = list(bounds), range(len(bounds))
        style = {"color": COLOURS["communication"], "zorder": 3}
        axes.plot(across, down, "-", linewidth=1.5, alpha=0.55, **style)
        axes.plot(across, down, "s", markersize=23 if shown else 6, fillstyle="none",
                  markeredgewidth=2, **style)  # fmt: skip
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    if shown:
        axes.set_xticks(range(wide))
        axes.set_yticks(range(rows), [f"{k} stage{'s' * (k != 1)}" for k in range(rows)])
    axes.tick_params(length=0, labelsize=9.5)
    axes.spines[:].set_visible(False)
    below = f"slowest stage of the best partition of the first 0 .. {wide - 1} layers"
    axes.text(0.5, -0.06 / (rows * row_in) * 2, below, transform=axes.transAxes, fontsize=10,
              color=MUTED, ha="center", va="top")  # fmt: skip
    if title:
        y = 1 - 0.22 / height_in
        figure.text(0.02, y, title, fontsize=12, weight="bold", color=INK, va="center")
    path = "" if bounds is None else f" The path ends stages before layers {_listed(bounds[1:])}."
    alt = (
        f"{title or 'Table of dynamic programming'}. {rows - 1} stages, {wide - 1} layers; the "
        f"last cell holds {best[-1][-1]:.4g}.{path}"
    )
    return Picture(figure, alt)


def words(bars: Sequence[Column], title: str) -> str:
    """Returns the picture as a sentence."""
    loads = [bar.load for bar in bars]
    shown = "; ".join(f"{bar.name} {bar.load:.4g}" for bar in bars[:_MOST_NAMES])
    more = "" if len(bars) <= _MOST_NAMES else f"; and {len(bars) - _MOST_NAMES} more"
    return (
        f"{title or 'Time of each stage'}. {shown}{more}. The slowest takes {max(loads):.4g}, "
        f"the mean is {sum(loads) / len(loads):.4g}."
    )


def _checked(bounds: Sequence[int], layers: int) -> list[int]:
    bounds = [int(place) for place in bounds]
    if len(bounds) < 2 or bounds != sorted(bounds) or bounds[0] < 0 or bounds[-1] > layers:
        raise ValueError(
            f"Bounds rise from 0 to the number of layers, {layers}; these are {bounds}."
        )
    return bounds


def _over_lines() -> dict[str, Any]:
    """Returns what keeps a number readable where a line runs under it."""
    from matplotlib.patheffects import withStroke

    white = withStroke(linewidth=3, foreground="white")
    return {"weight": "bold", "path_effects": [white], "zorder": 4}


def _cell(axes: Any, i: int, k: int, strength: float) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    tint = tuple(1 - strength * (1 - channel) for channel in to_rgb("#56B4E9"))
    axes.add_patch(Rectangle((i - 0.47, k - 0.46), 0.94, 0.92, facecolor=tint, edgecolor="none"))


def _svg_text(x: float, y: float, text: str, size: int, halo: bool = False) -> str:
    over = ' font-weight="bold" stroke="white" stroke-width="3" paint-order="stroke"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="middle"{over * halo}>'
        f"{html.escape(text)}</text>"
    )


def _listed(places: Sequence[int]) -> str:
    return ", ".join(map(str, places))
