"""The frame of every explorer: controls in a row, below them a picture and one sentence.

A control is a name, a label and the values it offers; so the frame needs to know nothing of what
an explorer is about. Settings that can't be give their reason in place of the picture. What a
reader sees and moves is web/frame.mjs, which is told here what to show.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from distlab.canvas import INK


class Impossible(ValueError):
    """Settings that can't be: its message is the sentence that stands in place of the picture."""


@dataclass(frozen=True)
class Control:
    """One setting: the field it sets, its label, and (text, value) of all it offers.

    `only` tells where it changes anything, as {other field: its values}; elsewhere it is grey.

    Example: `Control("tp", "tensor parallel", offers([1, 2, 4, 8]), "slider")`.
    """

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    kind: Literal["slider", "menu", "tick"] = "slider"
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def matters(self, settings: Any) -> bool:
        """Returns whether the control changes anything under these settings."""
        return all(getattr(settings, other) in these for other, these in self.only.items())


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


def shown(settings: Any, view: Callable[[Any], View]) -> dict[str, str]:
    """Returns what frame.mjs shows: a picture and its sentence, or why there is no picture."""
    try:
        return asdict(view(settings))
    except Impossible as reason:
        return {"impossible": str(reason)}


def in_words(settings: Any, sentence: Callable[[Any], str]) -> str:
    """Returns the sentence of these settings, or the one that says why they can't be."""
    try:
        return sentence(settings)
    except Impossible as reason:
        return str(reason)


def page(settings: Any, view: Callable[[Any], View]) -> str:
    """Returns the same as HTML, for pages in which no script runs."""
    style = f"margin: 4px 0; color: {INK}; background: white; max-width: 680px"
    parts = shown(settings, view)
    if "impossible" in parts:
        return f'<p style="{style}">{html.escape(parts["impossible"])}</p>'
    words = html.escape(parts["sentence"])
    return f'<figure style="{style}">{parts["svg"]}<figcaption>{words}</figcaption></figure>'


def about(name: str, start: Any, controls: Sequence[Control]) -> dict:
    """Returns what frame.mjs needs to show controls, as JSON can say it.

    Raises: ValueError where a control doesn't offer the value that `start` has.
    """
    for control in controls:
        value = getattr(start, control.name)
        if value not in [offered for _, offered in control.options]:
            texts = ", ".join(text for text, _ in control.options)
            raise ValueError(f"{control.name}={value!r} is not offered here; there are {texts}.")
    return {
        "name": name,
        "controls": [
            {
                "name": control.name,
                "label": control.label,
                "kind": control.kind,
                "values": [value for _, value in control.options],
                "texts": [text for text, _ in control.options],
                "only": control.only,
            }
            for control in controls
        ],
        "start": asdict(start),
    }


def explorer(
    name: str, start: Any, controls: Sequence[Control], view: Callable[[Any], View]
) -> Any:
    """Returns the widget that shows `view(settings)` and lets a reader change the settings.

    `start` is a frozen dataclass; every control sets one of its fields. Each change draws once.
    Raises: ValueError where a control doesn't offer the value that `start` has; ImportError, with
    what to do, where anywidget is missing.
    """
    try:  # here, so that reading numbers and pictures needs no widgets
        from distlab.explorers.widget import Explorer
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"This explorer needs the package {missing.name}, which is not installed here: "
            "`pip install anywidget`, then restart the kernel."
        ) from None
    return Explorer(about(name, start, controls), start, view)
