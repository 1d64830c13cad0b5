"""The frame of every explorer: controls in a row, below them a picture and one sentence.

A control is a name, a label and the values it offers; so the frame needs to know nothing of what
an explorer is about. Settings that can't be give their reason in place of the picture.
"""

import html
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from distlab.canvas import INK


class Impossible(ValueError):
    """Settings that can't be: its message is the sentence that stands in place of the picture."""


@dataclass(frozen=True)
class Control:
    """One setting: the field it sets, its label, and (text, value) of all it offers.

    `matters(settings)` tells whether it changes anything there; where it doesn't, it is grey.

    Example: `Control("tp", "tensor parallel", offers([1, 2, 4, 8]), "slider")`.
    """

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    kind: Literal["slider", "menu", "tick"] = "slider"
    matters: Callable[[Any], bool] = lambda settings: True


@dataclass(frozen=True)
class View:
    """What an explorer shows: a picture, and the sentence that says it in words."""

    svg: str
    sentence: str


def offers(values: Sequence[Any], text: Callable[[Any], str] = "{:,}".format) -> tuple:
    """Returns values with the texts that stand for them: `offers([1024]) == (("1,024", 1024),)`."""
    return tuple((text(value), value) for value in values)


def tick(name: str, label: str) -> Control:
    """Returns a control that is on or off."""
    return Control(name, label, (("no", False), ("yes", True)), "tick")


def page(settings: Any, view: Callable[[Any], View]) -> str:
    """Returns the HTML below the controls: picture and sentence, or why there is no picture."""
    style = f"margin: 4px 0; color: {INK}; background: white; max-width: 680px"
    try:
        shown = view(settings)
    except Impossible as reason:
        words = html.escape(str(reason))
        style += "; box-sizing: border-box; min-height: 220px; padding: 1em; border: 1px solid #999"
        return f'<div role="status" style="{style}">{words}</div>'
    words = html.escape(shown.sentence)
    return (
        f'<figure style="{style}">{shown.svg}'
        f'<figcaption role="status" style="line-height: 1.4; padding: 2px 8px 8px">{words}'
        "</figcaption></figure>"
    )


def explorer(start: Any, controls: Sequence[Control], view: Callable[[Any], View]) -> Any:
    """Returns the widget that shows `view(settings)` and lets a reader change the settings.

    `start` is a frozen dataclass; every control sets one of its fields. Each change draws once.
    Raises: ValueError where a control doesn't offer the value that `start` has.
    """
    import ipywidgets  # here, so that reading numbers and pictures needs no widgets

    handles = {control.name: _handle(ipywidgets, control, start) for control in controls}
    picture = ipywidgets.HTML(page(start, view))  # as wide as the box, less its margins

    def shade(settings: Any) -> None:
        for control in controls:
            handles[control.name].disabled = not control.matters(settings)

    def redraw(change: object = None) -> None:
        settings = replace(start, **{name: handle.value for name, handle in handles.items()})
        shade(settings)
        picture.value = page(settings, view)

    shade(start)
    for handle in handles.values():
        handle.observe(redraw, "value")
    row = ipywidgets.Box(
        list(handles.values()), layout={"flex_flow": "row wrap", "max_width": "720px"}
    )
    return ipywidgets.VBox([row, picture], layout={"max_width": "720px"})


def _handle(ipywidgets: Any, control: Control, start: Any) -> Any:
    value = asdict(start)[control.name]
    if value not in [offered for _, offered in control.options]:
        texts = ", ".join(text for text, _ in control.options)
        raise ValueError(f"{control.name}={value!r} is not offered here; there are {texts}.")
    layout = {"width": "48%", "min_width": "270px", "margin": "2px 4px 2px 0"}
    if control.kind == "tick":
        return ipywidgets.Checkbox(
            value,
            description=control.label,
            indent=False,
            layout=layout | {"width": "auto", "min_width": "0"},
        )
    kinds = {"slider": ipywidgets.SelectionSlider, "menu": ipywidgets.Dropdown}
    return kinds[control.kind](
        options=control.options,
        value=value,
        description=control.label,
        style={"description_width": "84px"},
        layout=layout,
    )
