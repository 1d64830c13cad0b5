"""Pictures with axes: scaling lines, memory stacks, rooflines. Import them from `distlab.plot`."""

from collections.abc import Mapping, Sequence
from math import atan2, degrees, log10
from typing import Any

from distlab import canvas
from distlab.canvas import COLOURS, INK, MUTED, WIDTH_IN, Picture
from distlab.memory import in_unit, ordered_parts, size_text

LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
GRID = "#E4E4E4"


def scaling_line(
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    ideal: tuple[str, Sequence[float]] | None = None,
    title: str = "",
) -> Picture:
    """Draws one line per name over x, the ideal (or the limit) dashed, each labelled at its end.

    Example: `scaling_line([1, 2, 4], {"measured": [0, 1, 1.5]}, xlabel="ranks t", ylabel="...")`.
    """
    figure = canvas.figure(3.4)
    axes = figure.add_axes((0.10, 0.16, 0.70, 0.70))
    tops = [max(ys) for ys in lines.values()]
    if ideal is not None:
        label, ys = ideal
        tops.append(max(ys))
        axes.plot(x, ys, "--", color=MUTED, linewidth=1.5)
        start = (x[0], ys[0])
        axes.annotate(label, start, (2, 5), textcoords="offset points", fontsize=9.5, color=MUTED)
    for (name, ys), colour in zip(lines.items(), LINE_COLOURS, strict=False):
        axes.plot(x, ys, "o-", color=colour, linewidth=2, markersize=5)
        end, beside = (x[-1], ys[-1]), {"textcoords": "offset points", "va": "center"}
        axes.annotate(name, end, (8, 0), fontsize=10.5, color=colour, **beside)
    axes.set_ylim(0, max(tops) * 1.15)
    axes.set_xticks(x)
    _style(axes, xlabel, ylabel, title)
    words = [f"{name} goes from {ys[0]:.3g} to {ys[-1]:.3g}" for name, ys in lines.items()]
    if ideal is not None:
        words.append(f"a dashed line, {ideal[0]}, ends at {ideal[1][-1]:.3g}")
    alt = f"{title or ylabel}. {ylabel} against {xlabel}, {x[0]} to {x[-1]}: {'; '.join(words)}."
    return Picture(figure, alt)


def memory_stack(
    stacks: Mapping[str, Mapping[str, float]],
    *,
    capacity: tuple[str, float] | None = None,
    unit: str = "GB",
    title: str = "",
) -> Picture:
    """Draws what fills one GPU's memory, one stack per name, with the GPU's capacity dashed.

    `stacks` maps a stack's name to the bytes of its parts (`distlab.memory.PARTS`); `capacity` is a
    GPU's name and its bytes. All sizes are printed in `unit`, and only in that one.

    Example: `memory_stack({"one GPU": {"weights": 15e9, "gradients": 15e9}})` draws one stack of
    two parts, 30 GB.
    """
    if not stacks:
        raise ValueError("There is no stack to draw.")
    ordered = {name: ordered_parts(sizes) for name, sizes in stacks.items()}
    totals = {name: sum(size for _, size, _ in parts) for name, parts in ordered.items()}
    top = 1.18 * (in_unit(max([*totals.values(), capacity[1] if capacity else 0]), unit) or 1.0)
    figure = canvas.figure(4.0)
    axes = figure.add_axes((0.11, 0.10, 0.75 if capacity else 0.87, 0.78))
    axes.set_xlim(0, len(stacks))
    axes.set_ylim(0, top)
    slot_in = WIDTH_IN * axes.get_position().width / len(stacks)
    unit_in = figure.get_figheight() * axes.get_position().height / top
    bar_in = min(0.62 * slot_in, 1.6)
    left_in = max(0.08 * slot_in, (slot_in - bar_in - 1.0) / 2)  # an inch for labels beside it
    largest = _largest(ordered)
    middles = [i + (left_in + bar_in / 2) / slot_in for i in range(len(stacks))]
    for middle, (name, parts) in zip(middles, ordered.items(), strict=True):
        left, bottom, beside = middle - bar_in / 2 / slot_in, 0.0, []
        for part, size_bytes, role in parts:
            height, size = in_unit(size_bytes, unit), size_text(size_bytes, unit)
            canvas.block(axes, left, bottom, bar_in / slot_in, height, COLOURS[role])
            shown = part if len(stacks) <= 2 or largest[part] == name else ""
            label = _label_inside(shown, size, bar_in, height * unit_in)
            if label:
                canvas.text(axes, middle, bottom + height / 2, label, 9, **_halo())
            else:
                label = f"{shown}\n{size}" if shown else size
                beside.append((bottom + height / 2, label, COLOURS[role]))
            bottom += height
        _labels_beside(axes, left + (bar_in + 0.12) / slot_in, beside, slot_in, unit_in)
        text = size_text(totals[name], unit)
        if capacity and totals[name] > capacity[1]:
            text += f"\nover by {size_text(totals[name] - capacity[1], unit)}"
        canvas.text(axes, middle, bottom + 0.06 / unit_in, text, 9.5, va="bottom", weight="bold")
    if capacity:
        limit = in_unit(capacity[1], unit)
        axes.axhline(limit, linestyle="--", color=MUTED, linewidth=1.5, zorder=3)
        note = f"{capacity[0]}\n{size_text(capacity[1], unit)}"
        canvas.text(axes, len(stacks) * 1.015, limit, note, 9.5, MUTED, ha="left")
    axes.set_xticks(middles, list(stacks), fontsize=10)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_formatter("{x:,.10g}")
    _style(axes, "", f"memory of one GPU ({unit})", title)
    words = []
    for name, parts in ordered.items():
        listed = ", ".join(f"{part} {size_text(size, unit)}" for part, size, _ in parts)
        words.append(f"{name}: {size_text(totals[name], unit)} ({listed or 'nothing'})")
    if capacity:
        words.append(f"a dashed line: {capacity[0]}, {size_text(capacity[1], unit)}")
    return Picture(figure, f"{title or 'Memory of one GPU'}. {'; '.join(words)}.")


def roofline(
    peak_flop_per_s: float,
    rates_bytes_per_s: Mapping[str, float],
    points: Mapping[str, tuple[str, float]] | None = None,
    *,
    title: str = "",
) -> Picture:
    """Draws the rate one GPU can reach against FLOP per byte moved, one roof per memory or link.

    Left of a roof's corner the bytes set the pace, right of it the peak does; the corner's FLOP per
    byte is written above it. `points` maps a name to (which roof, FLOP per byte).

    Example: `roofline(989e12, {"HBM": 3.35e12, "NVLink, one way": 450e9})` has corners at 295 and
    2,198 FLOP per byte.
    """
    points = points or {}
    peak = peak_flop_per_s / 1e12
    slopes = {name: rate / 1e12 for name, rate in rates_bytes_per_s.items()}
    corners = {name: peak / slope for name, slope in slopes.items()}
    reached = {name: min(peak, x * slopes[roof]) for name, (roof, x) in points.items()}
    x_of = [intensity for _, intensity in points.values()]
    low = min([min(corners.values()) / 30, *(x / 4 for x in x_of)])
    high = 8 * max([*corners.values(), *x_of])
    # Three decades below the peak, less where no roof goes so low, more where a point does.
    floor = min(
        [max(peak / 1000, 0.7 * low * min(slopes.values())), *(y / 4 for y in reached.values())]
    )
    top = 6 * peak
    figure = canvas.figure(3.8)
    axes = figure.add_axes((0.11, 0.15, 0.86, 0.73))
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(floor, top))
    decade_x_in = WIDTH_IN * 0.86 / log10(high / low)
    decade_y_in = 3.8 * 0.73 / log10(top / floor)
    along = {"rotation": degrees(atan2(decade_y_in, decade_x_in)), "rotation_mode": "anchor"}
    beside = {"textcoords": "offset points", "fontsize": 9.5}
    axes.annotate(f"peak {peak:,.4g} TFLOP/s", (low, peak), (4, 5), color=MUTED, **beside)
    for (name, slope), colour in zip(slopes.items(), LINE_COLOURS, strict=False):
        corner = corners[name]
        axes.plot([low, corner, high], [low * slope, peak, peak], color=colour, linewidth=2)
        axes.plot(corner, peak, "o", color=colour, markersize=6)
        axes.annotate(f"{corner:,.0f}", (corner, peak), (0, 7), color=colour, ha="center", **beside)
        end = corner / 1.7, peak / 1.7  # below the corner, where roofs lie furthest from points
        label = f"{name}, {slope * 1e3:,.4g} GB/s"
        axes.annotate(label, end, (-2, 5), color=colour, ha="right", **along, **beside)
    for name, (_, intensity) in points.items():
        spot = intensity, reached[name]
        at_peak, right_half = reached[name] == peak, intensity**2 > low * high
        shift = (0, 21) if at_peak else (8, -12)  # 21 points: above the corners' numbers
        align = "right" if at_peak and right_half else "left"
        axes.plot(*spot, "D", color=INK, markersize=6)
        axes.annotate(name, spot, shift, color=INK, ha=align, **beside, **_halo())
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.xaxis.set_major_formatter("{x:,.10g}")
    _style(axes, "FLOP per byte moved", "TFLOP/s of one GPU, at most", title)
    words = [f"{name} reaches it at {x:,.0f} FLOP per byte" for name, x in corners.items()]
    for name, (roof, x) in points.items():
        words.append(f"{name} lies at {f'{x:,.0f}' if x >= 100 else f'{x:.3g}'} under {roof}")
    alt = f"{title or 'Roofline'}. Peak {peak:,.4g} TFLOP/s: {'; '.join(words)}."
    return Picture(figure, alt)


def _style(axes: Any, xlabel: str, ylabel: str, title: str) -> None:
    """Gives a chart its labels, its title on the left, and quiet lines."""
    axes.set_xlabel(xlabel, fontsize=10.5)
    axes.set_ylabel(ylabel, fontsize=10.5)
    axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left")
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _largest(ordered: Mapping[str, list[tuple[str, float, str]]]) -> dict[str, str]:
    """Returns for each part the stack where it is largest: there its name is written."""
    best: dict[str, tuple[float, str]] = {}
    for name, parts in ordered.items():
        for part, size_bytes, _ in parts:
            if part not in best or size_bytes > best[part][0]:
                best[part] = (size_bytes, name)
    return {part: name for part, (_, name) in best.items()}


def _label_inside(part: str, size: str, width_in: float, height_in: float) -> str | None:
    """Returns the text that fits into a block: on one line, on two, or None."""
    one, two = f"{part} {size}".strip(), f"{part}\n{size}".strip()
    three = f"{part.replace(' ', chr(10))}\n{size}".strip()
    for label, needs_in in ((one, 0.17), (two, 0.32), (three, 0.47)):
        widest = max(len(text) for text in label.split("\n"))
        if height_in >= needs_in and width_in >= 0.066 * widest + 0.06:
            return label
    return None


def _labels_beside(
    axes: Any, x: float, labels: Sequence[tuple[float, str, str]], slot_in: float, unit_in: float
) -> None:
    """Writes labels of thin blocks beside them, moved up where they would overlap.

    A square of the block's colour stands before each.
    """
    free = 0.0
    for y, label, colour in labels:
        half = (0.09 + 0.07 * label.count("\n")) / unit_in
        y = max(y, free + half)
        axes.plot(x, y, "s", color=colour, markersize=4)
        canvas.text(axes, x + 0.06 / slot_in, y, label, 8.5, ha="left", **_halo())
        free = y + half


def _halo() -> dict[str, Any]:
    """Returns what keeps a text readable where a line runs under it."""
    from matplotlib.patheffects import withStroke

    return {
        "path_effects": [withStroke(linewidth=3, foreground="white", alpha=0.75)],
        "zorder": 4,
    }
