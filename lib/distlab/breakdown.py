"""The picture of a step's parts: a bar per layout, from computing to the last all-reduce.

Import it from `distlab.plot`. What is communicated has one colour, in a tint for each axis of the
layout. A part that is too narrow for its number is told behind the bar.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from distlab import canvas
from distlab.canvas import COLOURS, INK, MUTED, WIDTH_IN, Picture
from distlab.scatter import decimals

# Seconds come in, nothing is worked out: no room needs to FORBID anything here.

# Every part that a step may have, in the order of its bar: its name in the key, colour and tint.
STEP_PARTS: Mapping[str, tuple[str, str, float]] = {
    "compute": ("compute", COLOURS["activations"], 0.45),
    "bubble": ("bubble", MUTED, 0.12),
    "tp": ("TP", COLOURS["communication"], 0.75),
    "cp": ("CP", COLOURS["communication"], 0.6),
    "pp": ("PP", COLOURS["communication"], 0.42),
    "dp": ("DP", COLOURS["communication"], 0.18),
    "optimiser": ("optimiser", COLOURS["optimiser states"], 0.45),
}
_ROW_IN, _BAR_IN, _FOOT_IN, _RIGHT_IN = 0.46, 0.27, 0.52, 0.10
_SIZE, _BEHIND = 9.0, 8.0  # letters in points: in the bars; of what stands behind them


def step_breakdown(
    layouts: Mapping[Any, Mapping[str, float]], *, best: Any = None, title: str = ""
) -> Picture:
    """Draws what each layout's step is made of: one stacked bar per layout, in seconds.

    `layouts` maps a layout (or its name) to the seconds of its parts: "compute", "bubble", "tp",
    "cp", "pp", "dp", "optimiser" (`STEP_PARTS`), in any order. The name of `best` is printed bold.

    Example: `step_breakdown({"8×8×16": {"compute": 8.7, "bubble": 0.63, "tp": 0.9}})`.
    """
    if not layouts:
        raise ValueError("There is no layout to draw.")
    bars = {name: ordered(f"{name}", parts) for name, parts in layouts.items()}
    if best is not None and best not in bars:
        raise ValueError(f"The best layout, {best}, is none of the {len(bars)} bars.")
    if not all(bars.values()):
        raise ValueError("A step takes some time: a bar needs a part of more than 0 s.")
    totals = {name: sum(parts.values()) for name, parts in bars.items()}
    longest = max(totals.values())
    places = decimals(longest)

    left_in = 0.22 + max(canvas.text_size_in(f"{n}", 10, bold=n == best)[0] for n in bars)
    room_in = WIDTH_IN - left_in - _RIGHT_IN
    for lines in (1, 2):
        scale, behind = _scaled(bars, totals, places, room_in, lines)
        if scale * longest > 2.6:
            break

    head_in = 0.40 + (0.30 if title else 0)
    height_in = len(bars) * _ROW_IN
    figure = canvas.figure(_FOOT_IN + height_in + head_in)
    page_in = figure.get_figheight()
    axes = figure.add_axes(
        (left_in / WIDTH_IN, _FOOT_IN / page_in, room_in / WIDTH_IN, height_in / page_in)
    )
    axes.set_xlim(0, room_in / scale)
    axes.set_ylim(height_in, 0)
    for row, (name, parts) in enumerate(bars.items()):
        middle, start = (row + 0.5) * _ROW_IN, 0.0
        for part, time_s in parts.items():
            _draw_part(axes, part, start, time_s, middle)
            label = f"{time_s:.{places}f}"
            if _fits(label, time_s * scale):
                canvas.text(axes, start + time_s / 2, middle, label, _SIZE, **canvas.halo())
            start += time_s
        told = f"{totals[name]:,.{places}f} s"
        canvas.text(axes, start + 0.07 / scale, middle, told, 10, ha="left", weight="bold")
        if behind[name]:
            x = start + (0.07 + canvas.text_size_in(told, 10, bold=True)[0] + 0.12) / scale
            canvas.text(axes, x, middle, behind[name], _BEHIND, MUTED, ha="left")
        weight = {"weight": "bold"} if name == best else {}
        canvas.text(axes, -0.10 / scale, middle, f"{name}", 10, ha="right", **weight)
    axes.set_yticks([])
    top = 1.001 * longest  # no tick where only words stand
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= top])
    axes.xaxis.set_major_formatter("{x:,.10g}")
    canvas.style(axes, "seconds of a step", "", title, pad_in=0.36)
    axes.grid(visible=False, axis="y")
    axes.spines["bottom"].set_bounds(0, max(axes.get_xticks(), default=top))
    used = dict.fromkeys(part for part in STEP_PARTS if any(part in p for p in bars.values()))
    _draw_key(axes, list(used), scale, room_in)
    return Picture(figure, _words(bars, totals, places, title))


def ordered(name: str, parts: Mapping[str, float]) -> dict[str, float]:
    """Returns the parts that take time, in the order of `STEP_PARTS`.

    Raises: ValueError for a part that is not known, or one that takes less than no time.
    """
    for part, time_s in parts.items():
        if part not in STEP_PARTS:
            raise ValueError(f"{part!r} is no part of a step; there are {', '.join(STEP_PARTS)}.")
        if not time_s >= 0 or time_s == float("inf"):
            raise ValueError(f"{name}: {part} can't take {time_s} s.")
    return {part: float(parts[part]) for part in STEP_PARTS if parts.get(part)}


def _fits(label: str, wide_in: float) -> bool:
    return canvas.text_size_in(label, _SIZE)[0] + 0.08 <= wide_in


def _scaled(
    bars: Mapping[Any, Mapping[str, float]],
    totals: Mapping[Any, float],
    places: int,
    room_in: float,
    lines: int,
) -> tuple[float, dict[Any, str]]:
    """Returns how many inches a second has, and what stands behind each bar in so many lines.

    What stands behind depends on the scale, and the scale on the room that it takes. With more
    room, fewer parts stand behind, so from none on the two only grow until they agree.
    """
    scale = 0.0
    for _ in range(4):
        behind = {name: _behind(parts, scale, places, lines) for name, parts in bars.items()}
        scale = min(
            max(room_in - _text_in(totals[name], behind[name], places), 1.0) / totals[name]
            for name in bars
            if totals[name]
        )
    return scale, {name: _behind(parts, scale, places, lines) for name, parts in bars.items()}


def _behind(parts: Mapping[str, float], scale: float, places: int, lines: int) -> str:
    """Returns the parts whose numbers their blocks have no room for: "PP 0.19, DP 0.21".

    What rounds to nothing is left to the key.
    """
    labels = {part: f"{time_s:.{places}f}" for part, time_s in parts.items()}
    told = [
        f"{STEP_PARTS[part][0]} {label}"
        for part, label in labels.items()
        if round(parts[part], places) and not _fits(label, parts[part] * scale)
    ]
    cut = len(told) if lines == 1 else (len(told) + 1) // 2
    return ",\n".join(", ".join(row) for row in (told[:cut], told[cut:]) if row)


def _text_in(total_s: float, behind: str, places: int) -> float:
    """Returns how wide what stands behind a bar is, its total first."""
    total_in = canvas.text_size_in(f"{total_s:,.{places}f} s", 10, bold=True)[0] + 0.12
    return total_in + (canvas.text_size_in(behind, _BEHIND)[0] + 0.14 if behind else 0.0)


def _draw_part(axes: Any, part: str, start: float, time_s: float, middle: float) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    _, colour, share = STEP_PARTS[part]
    tint = tuple(1 - share * (1 - channel) for channel in to_rgb(colour))
    look = {"facecolor": tint, "edgecolor": colour, "linewidth": 1.0}
    look |= {"linestyle": (0, (3, 2))} if part == "bubble" else {}
    axes.add_patch(Rectangle((start, middle - _BAR_IN / 2), time_s, _BAR_IN, **look))


def _draw_key(axes: Any, parts: Sequence[str], scale: float, room_in: float) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    wides = {part: 0.39 + canvas.text_size_in(STEP_PARTS[part][0], 9)[0] for part in parts}
    x = min(0.0, room_in + 0.2 - sum(wides.values()))  # from the bars' left, if there is room
    for part in parts:
        name, colour, share = STEP_PARTS[part]
        tint = tuple(1 - share * (1 - channel) for channel in to_rgb(colour))
        look = {"facecolor": tint, "edgecolor": colour, "linewidth": 1.0, "clip_on": False}
        look |= {"linestyle": (0, (3, 2))} if part == "bubble" else {}
        axes.add_patch(Rectangle((x / scale, -0.235), 0.13 / scale, 0.13, **look))
        canvas.text(axes, (x + 0.19) / scale, -0.17, name, 9, INK, ha="left")
        x += wides[part]


def _words(
    bars: Mapping[Any, Mapping[str, float]], totals: Mapping[Any, float], places: int, title: str
) -> str:
    rows = "; ".join(
        f"{name}: {totals[name]:,.{places}f} s ("
        + ", ".join(f"{STEP_PARTS[part][0]} {s:.{places}f}" for part, s in parts.items())
        + ")"
        for name, parts in bars.items()
    )
    return f"{title or 'The parts of a step'}. {rows}."
