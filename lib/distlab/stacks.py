"""The memory stack: what fills one GPU, one stack per name, drawn so that no two texts meet.

Thin parts are labelled beside their stack, spread out where they lie close together. What finds no
room there is named once, in a key. All places are worked out in inches before anything is drawn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distlab import canvas
from distlab.canvas import COLOURS, INK, MUTED, WIDTH_IN, Picture
from distlab.memory import in_unit, ordered_parts, size_text

_LEFT_IN, _HEIGHT_IN = 0.80, 2.85  # the axes' left edge, and their height
_GAP_IN = 0.06  # between a text and what stands next to it
_MARK_IN = 0.14  # from a bar to the text beside it: the square stands in the middle
_INSIDE, _BESIDE, _SMALLEST, _TOTAL = 9.0, 8.5, 7.0, 9.5  # sizes of letters, in points
_WIDEST_BAR_IN, _THINNEST_BAR_IN = 1.6, 0.2


@dataclass(frozen=True)
class _Part:
    name: str
    size: str
    role: str
    height: float  # in the picture's unit


@dataclass(frozen=True)
class _Stack:
    name: str
    parts: tuple[_Part, ...]
    total: str
    over: str  # by how much it exceeds the capacity, "" where it fits

    @property
    def height(self) -> float:
        return sum(part.height for part in self.parts)


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
    made = [_stack(name, sizes, capacity, unit) for name, sizes in stacks.items()]
    note = f"{capacity[0]}\n{size_text(capacity[1], unit)}" if capacity else ""
    right_in = canvas.text_size_in(note, 9.5)[0] + 2 * _GAP_IN + 0.08 if note else 0.12
    slot_in = (WIDTH_IN - _LEFT_IN - right_in) / len(made)
    limit = in_unit(capacity[1], unit) if capacity else 0.0
    unit_in = _scale(made, slot_in, limit)
    layout = _layout(made, slot_in, unit_in)
    names, name_size = _names(made, slot_in)
    foot_in = 0.14 + max(canvas.text_size_in(name, name_size)[1] for name in names)
    head_in = 0.12 + (0.30 if title else 0) + (0.28 if layout.key else 0)

    figure = canvas.figure(foot_in + _HEIGHT_IN + head_in)
    page_in = figure.get_figheight()
    axes = figure.add_axes(
        (
            _LEFT_IN / WIDTH_IN,
            foot_in / page_in,
            slot_in * len(made) / WIDTH_IN,
            _HEIGHT_IN / page_in,
        )
    )
    axes.set_xlim(0, slot_in * len(made))  # inches, so that texts can be placed by their width
    axes.set_ylim(0, _HEIGHT_IN / unit_in)
    for i, stack in enumerate(made):
        _draw(axes, stack, layout, i * slot_in, slot_in, unit_in)
    if capacity:
        axes.axhline(limit, linestyle="--", color=MUTED, linewidth=1.5, zorder=3)
        x = slot_in * len(made) + _GAP_IN
        y = max(limit, 0.18 / unit_in)
        canvas.text(axes, x, y, note, 9.5, MUTED, ha="left")
    middles = [i * slot_in + layout.middle_in for i in range(len(made))]
    axes.set_xticks(middles, names, fontsize=name_size)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_formatter("{x:,.10g}")
    pad_in = 0.34 if layout.key else 0.08
    canvas.style(axes, "", f"memory of one GPU ({unit})", title, pad_in=pad_in)
    _draw_key(axes, layout.key, (_HEIGHT_IN + 0.16) / unit_in)
    return Picture(figure, _words(made, capacity, unit, title))


@dataclass(frozen=True)
class _Layout:
    """Where the bar and the labels of every stack stand in its slot."""

    bar_in: float
    middle_in: float  # of the bar, from the slot's left
    inside: Mapping[tuple[str, str], str]  # (stack, part) -> the label inside the block
    beside: Mapping[tuple[str, str], str]
    beside_size: float
    key: tuple[tuple[str, str], ...]  # (part, role) of those named nowhere else


def _stack(
    name: str, sizes: Mapping[str, float], capacity: tuple[str, float] | None, unit: str
) -> _Stack:
    ordered = ordered_parts(sizes)
    parts = tuple(
        _Part(part, size_text(size, unit), role, in_unit(size, unit))
        for part, size, role in ordered
    )
    total = sum(size for _, size, _ in ordered)
    over = capacity is not None and total > capacity[1]
    return _Stack(
        name,
        parts,
        size_text(total, unit),
        f"over by {size_text(total - capacity[1], unit)}" if over else "",
    )


def _layout(stacks: Sequence[_Stack], slot_in: float, unit_in: float) -> _Layout:
    """Tries ever shorter labels, until those beside the bars leave the bars some width."""
    widest = min(0.62 * slot_in, _WIDEST_BAR_IN)
    # A wider bar holds more labels inside, so that fewer stand beside: it is tried first.
    bars = [widest / k for k in (1, 1.4, 1.7, 2, 2.3, 2.6, 3) if widest / k >= _THINNEST_BAR_IN]
    few = len(stacks) <= 2
    for named, units, size in (
        (few, True, _BESIDE),
        (False, True, _BESIDE),
        (False, False, _BESIDE),
        (False, False, _SMALLEST),
    ):
        more = {"named": named, "units": units, "beside_size": size}
        for bar_in in bars:
            layout = _labels(stacks, bar_in, slot_in, unit_in, **more)
            if layout is not None:
                return layout
    return _labels(stacks, widest, slot_in, unit_in, named=False, units=False, beside_size=0)


def _labels(
    stacks: Sequence[_Stack],
    bar_in: float,
    slot_in: float,
    unit_in: float,
    *,
    named: bool,
    units: bool,
    beside_size: float,
) -> _Layout | None:
    """Returns the layout with bars of this width; None where a label beside finds no room.

    `named`: labels beside have the part's name; `units`: labels have the unit, which the axis names
    as well; `beside_size`: of those beside, in points; 0 leaves them out.
    """
    largest = _largest(stacks)
    within, aside, shown, widest = {}, {}, set(), 0.0
    for stack in stacks:
        for part in stack.parts:
            named_here = len(stacks) <= 2 or largest[part.name] == stack.name
            size = part.size if units else part.size.split(" ")[0]
            for name in (part.name, "") if named_here else ("",):
                label = _label_inside(name, size, bar_in, part.height * unit_in)
                if label:
                    within[stack.name, part.name] = label
                    shown |= {name}
                    break
            else:
                label = f"{part.name}\n{size}" if named else size
                aside[stack.name, part.name] = label
                shown |= {part.name} if named else set()
                widest = max(widest, canvas.text_size_in(label, beside_size or _BESIDE)[0])
    if not beside_size:
        aside, widest = {}, 0.0
    room_in = bar_in + (_MARK_IN + widest if widest else 0.0)
    if room_in > slot_in - 2 * _GAP_IN:
        return None
    middle_in = (slot_in - room_in) / 2 + bar_in / 2
    every = {part.name: part.role for stack in stacks for part in stack.parts}
    key = tuple((name, role) for name, role in every.items() if name not in shown)
    return _Layout(bar_in, middle_in, within, aside, beside_size, key)


def _scale(stacks: Sequence[_Stack], slot_in: float, limit: float) -> float:
    """Returns how many inches high one unit is, so that stacks, totals and capacity have room."""
    scales = [(_HEIGHT_IN - 0.2) / limit] if limit else []
    for stack in stacks:
        text, size = _total(stack, slot_in)
        room_in = _HEIGHT_IN - canvas.text_size_in(text, size, bold=True)[1] - 2 * _GAP_IN
        if stack.height:
            scales.append(room_in / stack.height)
    return min(scales, default=1.0)


def _label_inside(name: str, size: str, width_in: float, height_in: float) -> str | None:
    """Returns the text that fits into a block: on one line, on two, on three, or None."""
    words = name.replace(" ", "\n")
    for label in dict.fromkeys((f"{name} {size}".strip(), f"{name}\n{size}", f"{words}\n{size}")):
        wide_in, high_in = canvas.text_size_in(label.strip(), _INSIDE)
        if height_in >= high_in + 0.03 and width_in >= wide_in + _GAP_IN:
            return label.strip()
    return None


def _largest(stacks: Sequence[_Stack]) -> dict[str, str]:
    """Returns for each part the stack where it is largest: there its name is written."""
    best: dict[str, tuple[float, str]] = {}
    for stack in stacks:
        for part in stack.parts:
            if part.name not in best or part.height > best[part.name][0]:
                best[part.name] = (part.height, stack.name)
    return {part: name for part, (_, name) in best.items()}


def _total(stack: _Stack, slot_in: float) -> tuple[str, float]:
    """Returns the text above a stack and the size of its letters, no wider than the slot."""
    long = f"{stack.total}\n{stack.over}".strip()
    tall = f"{stack.total}\n{stack.over.replace('over by ', 'over by' + chr(10))}".strip()
    return canvas.fitting((long, tall), slot_in - 2 * _GAP_IN, _TOTAL, 7.0, bold=True)


def _names(stacks: Sequence[_Stack], slot_in: float) -> tuple[list[str], float]:
    """Returns the stacks' names, wrapped to their slots, and the size of their letters."""
    width_in = slot_in - _GAP_IN
    fits = [canvas.fitting(canvas.wraps(stack.name), width_in, 10.0, 7.0) for stack in stacks]
    return [text for text, _ in fits], min(size for _, size in fits)


def spread(middles: Sequence[float], halves: Sequence[float], top: float) -> list[float]:
    """Returns places for labels, none lying on another, as near as may be to where they belong.

    They stay between 0 and `top` where there is room, in their order; else they grow beyond it.

    Example: `spread([1, 1], [0.5, 0.5], 4) == [1, 2]`.
    """
    places, free = [], 0.0
    for middle, half in zip(middles, halves, strict=True):
        places.append(max(middle, free + half))
        free = places[-1] + half
    limit = max(top, 2 * sum(halves))
    for i in reversed(range(len(places))):
        places[i] = min(places[i], limit - halves[i])
        limit = places[i] - halves[i]
    return places


def _draw(
    axes: Any, stack: _Stack, layout: _Layout, left: float, slot_in: float, unit_in: float
) -> None:
    middle, bottom, beside = left + layout.middle_in, 0.0, []
    for part in stack.parts:
        place, colour = (stack.name, part.name), COLOURS[part.role]
        x = middle - layout.bar_in / 2
        canvas.block(axes, x, bottom, layout.bar_in, part.height, colour)
        if place in layout.inside:
            y = bottom + part.height / 2
            canvas.text(axes, middle, y, layout.inside[place], _INSIDE, **canvas.halo())
        elif place in layout.beside:
            beside.append((bottom + part.height / 2, layout.beside[place], colour))
        bottom += part.height
    size = layout.beside_size
    halves = [canvas.text_size_in(label, size)[1] / 2 + 0.01 for _, label, _ in beside]
    places_in = spread([y * unit_in for y, _, _ in beside], halves, bottom * unit_in)
    edge = middle + layout.bar_in / 2
    for y_in, (_, label, colour) in zip(places_in, beside, strict=True):
        axes.plot(edge + _MARK_IN / 2, y_in / unit_in, "s", color=colour, markersize=4)
        x = edge + _MARK_IN
        canvas.text(axes, x, y_in / unit_in, label, size, ha="left", **canvas.halo())
    text, size = _total(stack, slot_in)
    half = canvas.text_size_in(text, size, bold=True)[0] / 2
    x = min(max(middle, left + half + 0.03), left + slot_in - half - 0.03)
    labels_top = places_in[-1] + halves[-1] if places_in and x + half > edge else 0.0
    y = max(bottom, labels_top / unit_in) + _GAP_IN / unit_in
    canvas.text(axes, x, y, text, size, va="bottom", weight="bold", **canvas.halo())


def _draw_key(axes: Any, key: Iterable[tuple[str, str]], y: float) -> None:
    """Writes above the axes what the colours mean that no block names."""
    x = 0.0
    for part, role in key:
        axes.plot(x + 0.05, y, "s", color=COLOURS[role], markersize=6, clip_on=False)
        canvas.text(axes, x + 0.14, y, part, _BESIDE, INK, ha="left")
        x += 0.14 + canvas.text_size_in(part, _BESIDE)[0] + 0.15


def _words(
    stacks: Sequence[_Stack], capacity: tuple[str, float] | None, unit: str, title: str
) -> str:
    words = []
    for stack in stacks:
        listed = ", ".join(f"{part.name} {part.size}" for part in stack.parts)
        words.append(f"{stack.name}: {stack.total} ({listed or 'nothing'})")
    if capacity:
        words.append(f"a dashed line: {capacity[0]}, {size_text(capacity[1], unit)}")
    return f"{title or 'Memory of one GPU'}. {'; '.join(words)}."
