"""Curves over events or time: memory after each event of a trace, losses. In `distlab.plot`."""

from collections.abc import Mapping, Sequence

from distlab import canvas
from distlab.canvas import Picture
from distlab.charts import LINE_COLOURS, name_ends
from distlab.memory import in_unit, size_text

_MANY_COLOURS = (*LINE_COLOURS, "#E69F00", "#56B4E9")


def memory_curve(
    curves: Mapping[str, Sequence[float]],
    *,
    peaks: Mapping[str, float] | None = None,
    marks: Mapping[str, tuple[str, int]] | None = None,
    unit: str = "MB",
    title: str = "",
) -> Picture:
    """Draws the bytes that are there after each event of a trace, one curve per name.

    `peaks` has the most of each curve, drawn as a dashed line; `marks` a text and the number of the
    event whose bytes it names, drawn as a dot. All sizes are printed in `unit`.

    Example: `memory_curve({"a step": [10e6, 30e6, 20e6]}, peaks={"a step": 30e6})`.
    """
    if not curves:
        raise ValueError("There is no curve to draw.")
    peaks, marks, words = peaks or {}, marks or {}, []
    end = max(len(curve) for curve in curves.values()) - 1
    top = in_unit(max([*peaks.values(), *map(max, curves.values())]), unit)
    figure = canvas.figure(3.8)
    axes = figure.add_axes((0.10, 0.14, 0.87, 0.74))
    beside = {"textcoords": "offset points", "fontsize": 9.5}
    for (name, curve), colour in zip(curves.items(), LINE_COLOURS, strict=False):
        ys = [in_unit(size_bytes, unit) for size_bytes in curve]
        axes.plot(range(len(ys)), ys, drawstyle="steps-post", color=colour, linewidth=1.6)
        axes.fill_between(range(len(ys)), ys, step="post", color=colour, alpha=0.12, linewidth=0)
        facts, height = [], max(ys)
        if name in marks:
            text, event = marks[name]
            axes.plot(event, ys[event], "o", color=colour, markersize=7)
            facts.append(f"● {text} {size_text(curve[event], unit)}")
        if name in peaks:
            height = in_unit(peaks[name], unit)
            axes.plot([0, end], [height, height], "--", color=colour, linewidth=1.2)
            facts.append(f"peak {size_text(peaks[name], unit)}")
        label = f"{name}: {', '.join(facts)}" if facts else name
        axes.annotate(label, (end, height), (0, 4), color=colour, ha="right", **beside)
        words.append(f"{label.replace('● ', '')}, {len(ys) - 1:,} events")
    axes.set(xlim=(0, max(end, 1)), ylim=(0, 1.14 * top))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    canvas.style(axes, "events, in their order", f"memory ({unit})", title)
    return Picture(figure, f"{title or 'Memory after each event'}. {'; '.join(words)}.")


def loss_curves(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str = "loss",
    title: str = "",
) -> Picture:
    """Draws losses over time or steps, one curve per name, on a logarithmic scale.

    Each curve is named at its end; where ends lie close together, the names are spread out.

    Example: `loss_curves([1, 2, 3], {"lr 0.1": [1.0, 0.5, 0.3]}, xlabel="steps")`.
    """
    if not curves or len(curves) > len(_MANY_COLOURS):
        raise ValueError(f"This draws 1 to {len(_MANY_COLOURS)} curves, not {len(curves)}.")
    low = min(map(min, curves.values()))
    if not low > 0:
        raise ValueError(f"A logarithmic scale has room for losses above 0 only, not {low}.")
    height_in, bottom, tall = 3.8, 0.14, 0.74
    figure = canvas.figure(height_in)
    axes = figure.add_axes((0.10, bottom, 0.66, tall))
    for (name, ys), colour in zip(curves.items(), _MANY_COLOURS, strict=False):
        axes.plot(x, ys, color=colour, linewidth=1.8, label=name)
    top = max(map(max, curves.values()))
    axes.set(yscale="log", xlim=(x[0], x[-1]), ylim=(low / 1.15, top * 1.15))
    name_ends(axes, axes.lines, tall * height_in)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.yaxis.set_major_formatter("{x:,.4g}")
    axes.yaxis.set_minor_formatter("")
    canvas.style(axes, xlabel, ylabel, title)
    words = [f"{name} goes from {ys[0]:.3g} to {ys[-1]:.3g}" for name, ys in curves.items()]
    alt = f"{title or ylabel}. {ylabel} against {xlabel}, {x[0]:,.4g} to {x[-1]:,.4g}: "
    return Picture(figure, alt + "; ".join(words) + ".")
