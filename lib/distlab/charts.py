"""Pictures with axes: scaling lines and rooflines. Import them from `distlab.plot`."""

from collections.abc import Mapping, Sequence
from math import atan2, degrees, hypot, log10
from typing import Any

from distlab import canvas
from distlab.canvas import INK, MUTED, WIDTH_IN, Picture
from distlab.stacks import spread

LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


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
    height_in, tall = 3.4, 0.70
    figure = canvas.figure(height_in)
    axes = figure.add_axes((0.10, 0.16, 0.70, tall))
    tops = [max(ys) for ys in lines.values()]
    if ideal is not None:
        label, ys = ideal
        tops.append(max(ys))
        axes.plot(x, ys, "--", color=MUTED, linewidth=1.5)
        start = (x[0], ys[0])
        axes.annotate(label, start, (2, 5), textcoords="offset points", fontsize=9.5, color=MUTED)
    for (name, ys), colour in zip(lines.items(), LINE_COLOURS, strict=False):
        line = {"color": colour, "linewidth": 2, "markersize": 5, "clip_on": False, "zorder": 3}
        axes.plot(x, ys, "o-", label=name, **line)  # over the axis, where it is 0
    axes.set(ylim=(0, max(tops) * 1.15), xticks=x)
    axes.set_xlim(right=x[-1])  # names stand beside the axes: no line runs through one
    if all(float(y).is_integer() for ys in lines.values() for y in ys):
        axes.yaxis.get_major_locator().set_params(integer=True)
    name_ends(axes, axes.lines[-len(lines) :], tall * height_in)
    canvas.style(axes, xlabel, ylabel, title)
    words = [f"{name} goes from {ys[0]:.3g} to {ys[-1]:.3g}" for name, ys in lines.items()]
    if ideal is not None:
        words.append(f"a dashed line, {ideal[0]}, ends at {ideal[1][-1]:.3g}")
    alt = f"{title or ylabel}. {ylabel} against {xlabel}, {x[0]} to {x[-1]}: {'; '.join(words)}."
    return Picture(figure, alt)


def name_ends(axes: Any, lines: Sequence[Any], tall_in: float) -> None:
    """Writes each line's name beside its end, spread out where ends lie close together.

    The axes end where the lines end, and are `tall_in` inches high.
    """
    inch = axes.transAxes.inverted()  # ends as heights on the axes, in inches
    lines = sorted(lines, key=lambda line: line.get_ydata()[-1])
    at = [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in lines]
    heights = [y * tall_in for _, y in inch.transform(axes.transData.transform(at))]
    for line, place in zip(lines, spread(heights, [0.09] * len(lines), tall_in), strict=True):
        axes.text(
            1.02,
            place / tall_in,
            line.get_label(),
            transform=axes.transAxes,
            color=line.get_color(),
            fontsize=10,
            va="center",
        )


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
        label = f"{name}, {slope * 1e3:,.4g} GB/s"
        decades = 0.075 * len(label) / hypot(decade_x_in, decade_y_in)  # its length on the roof
        on_it = sorted((x for roof, x in points.values() if roof == name), reverse=True)
        # Below the corner, where roofs lie furthest from points, or below a point in its way.
        ends = [corner / 1.7, *(x / 1.4 for x in on_it if x < corner)]
        free = (x for x in ends if not any(0.8 * x / 10**decades < p < 1.2 * x for p in on_it))
        end = next(free, ends[0])
        axes.annotate(
            label, (end, end * slope), (-2, 5), color=colour, ha="right", **along, **beside
        )
    for name, (_, intensity) in points.items():
        spot = intensity, reached[name]
        at_peak, right_half = reached[name] == peak, intensity**2 > low * high
        shift = (0, 21) if at_peak else (8, -12)  # 21 points: above the corners' numbers
        align = "right" if at_peak and right_half else "left"
        axes.plot(*spot, "D", color=INK, markersize=6)
        axes.annotate(name, spot, shift, color=INK, ha=align, **beside, **canvas.halo())
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.xaxis.set_major_formatter("{x:,.10g}")
    canvas.style(axes, "FLOP per byte moved", "TFLOP/s of one GPU, at most", title)
    words = [f"{name} reaches it at {x:,.0f} FLOP per byte" for name, x in corners.items()]
    for name, (roof, x) in points.items():
        words.append(f"{name} lies at {f'{x:,.0f}' if x >= 100 else f'{x:.3g}'} under {roof}")
    alt = f"{title or 'Roofline'}. Peak {peak:,.4g} TFLOP/s: {'; '.join(words)}."
    return Picture(figure, alt)
