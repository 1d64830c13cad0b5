"""Draws how far predictions are off: one line of dots per table, the published figure at 0 %."""

from collections.abc import Mapping, Sequence

from distlab import canvas
from distlab.canvas import INK, MUTED, Picture
from distlab.charts import LINE_COLOURS

FITTED, NOT_FITTED = LINE_COLOURS[:2]


def agreement(
    errors: Mapping[str, Sequence[float]],
    *,
    not_fitted: Sequence[str] = (),
    words: Mapping[tuple[str, int], str] | None = None,
    band: float = 0.05,
    title: str = "",
) -> Picture:
    """Draws the errors of each table's rows, as shares: 0.05 is 5 % above what was published.

    Beside each table stand its number of rows and the mean of the absolute errors. Tables that no
    constant was fitted on, `not_fitted`, have another colour. `words` names a row by (table, place
    in its list). The grey band is ± `band`.

    Example: `agreement({"Table 1": [0.02, -0.04]})` writes "2 rows, mean 3.0 %".
    """
    if not errors or not all(errors.values()):
        raise ValueError("Each table needs at least one row to draw.")
    height_in = 1.4 + 0.44 * len(errors)
    figure = canvas.figure(height_in)
    left, right = 0.32, 0.78
    axes = figure.add_axes((left, 0.62 / height_in, right - left, (height_in - 1.25) / height_in))
    axes.axvspan(-100 * band, 100 * band, color="#EEEEEE", linewidth=0)
    axes.axvline(0, color=INK, linewidth=1)
    said = []
    for y, (table, shares) in enumerate(errors.items()):
        percents = [100 * share for share in shares]
        colour = NOT_FITTED if table in not_fitted else FITTED
        axes.plot(percents, [y] * len(percents), "o", color=colour, alpha=0.6, markersize=6)
        mean = sum(map(abs, percents)) / len(percents)
        beside = f"{len(percents)} row{'s' * (len(percents) != 1)}, mean {mean:.1f} %"
        outside = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 9.5}
        axes.text(-0.02, y, table, ha="right", color=colour, **outside)
        axes.text(1.02, y, beside, ha="left", color=MUTED, **outside)
        furthest = max(percents, key=abs)
        said.append(f"{table}: {beside}, furthest {furthest:+.1f} %")
    for (table, place), word in (words or {}).items():
        at = (100 * errors[table][place], list(errors).index(table))
        axes.annotate(word, at, (-4, 7), textcoords="offset points", color=MUTED, fontsize=8.5)
    axes.set_ylim(len(errors) - 0.4, -0.7)
    axes.set_yticks([])
    canvas.style(axes, "predicted step time against published, in %", "", "")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=canvas.GRID)
    figure.text(0.02, 1 - 0.26 / height_in, title, fontsize=12, weight="bold", color=INK)
    legend = {"y": 1 - 0.5 / height_in, "fontsize": 9.5}
    figure.text(0.02, s="constants fitted on other rows", color=FITTED, **legend)
    figure.text(left, s="constants fitted on other tables", color=NOT_FITTED, **legend)
    return Picture(figure, f"{title or 'Errors of predictions'}. {'; '.join(said)}.")
