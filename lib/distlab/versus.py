"""The picture of a model held against measurements: what it says against what was measured.

Import it from `distlab.plot`. On the diagonal a model is right; the dashed lines are a share off.
Both axes are logarithmic, so that the same share is the same distance everywhere.
"""

from collections.abc import Mapping, Sequence

from distlab import canvas
from distlab.canvas import INK, MUTED, WIDTH_IN, Picture
from distlab.charts import LINE_COLOURS

# Numbers come in, nothing is worked out: no room needs to FORBID anything here.

_LEFT_IN, _FOOT_IN, _SIDE_IN = 0.75, 0.62, 3.6  # the axes are a square: both have one unit
_MARKS = "os^Dv"


def predicted_measured(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    unit: str,
    band: float = 0.1,
    title: str = "",
) -> Picture:
    """Draws what models predict against what was measured, a colour and a mark for each model.

    `series` maps a model's name to its pairs (measured, predicted). Beside the picture stand its
    pairs' mean and worst error, as shares of what was measured. `band` is how far off the dashed
    lines are.

    Example: `predicted_measured({"a model": [(100, 97), (150, 160)]}, unit="TFLOP/s per GPU")` is
    off by 4.8 % on average.
    """
    if not series or not all(series.values()):
        raise ValueError("A picture of predictions needs at least one pair for each model.")
    pairs = [pair for some in series.values() for pair in some]
    if min(min(pair) for pair in pairs) <= 0:
        raise ValueError("What is measured and predicted is more than 0.")
    least = min(min(pair) for pair in pairs) / 1.15
    most = max(max(pair) for pair in pairs) * 1.15
    head_in = 0.45 if title else 0.15
    height_in = _FOOT_IN + _SIDE_IN + head_in
    figure = canvas.figure(height_in)
    axes = figure.add_axes(
        (_LEFT_IN / WIDTH_IN, _FOOT_IN / height_in, _SIDE_IN / WIDTH_IN, _SIDE_IN / height_in)
    )
    axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most))
    ticks = [k * 10**n for n in range(-9, 16) for k in (1, 2, 3, 5) if least < k * 10**n < most]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{tick:,.6g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.plot((least, most), (least, most), color=INK, linewidth=1.2)
    for share in (1 - band, 1 + band):
        axes.plot((least, most), (share * least, share * most), "--", color=MUTED, linewidth=1)
    beside = (_LEFT_IN + _SIDE_IN + 0.22) / WIDTH_IN
    said = []
    for place, (name, some) in enumerate(series.items()):
        colour, mark = LINE_COLOURS[place % len(LINE_COLOURS)], _MARKS[place % len(_MARKS)]
        axes.plot(*zip(*some, strict=True), mark, color=colour, alpha=0.65, markersize=6)
        errors = [predicted / measured - 1 for measured, predicted in some]
        mean, worst = sum(map(abs, errors)) / len(errors), max(errors, key=abs)
        count = f"{len(some)} run{'s' * (len(some) != 1)}"
        words = f"{count}, off by {100 * mean:.1f} %\non average, {100 * worst:+.0f} % at worst"
        words = words.replace("-", "−")
        top = 1 - (head_in + 0.2 + 0.85 * place) / height_in
        below = top - 0.22 / height_in
        figure.text(beside, top, name, color=colour, fontsize=11, weight="bold", va="top")
        figure.text(beside, below, words, color=MUTED, fontsize=9.5, va="top")
        said.append(f"{name}: {' '.join(words.split())}")
    lines = f"line: as measured\ndashed: {100 * band:g} % off"
    figure.text(beside, _FOOT_IN / height_in, lines, color=MUTED, fontsize=9.5, va="bottom")
    canvas.style(axes, f"measured, {unit}", f"predicted, {unit}", title)
    return Picture(figure, f"{title or 'Predicted against measured'}. {'; '.join(said)}.")
