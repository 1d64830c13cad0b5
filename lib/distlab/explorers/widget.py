"""The widget of explorers that need a kernel: controls in the page, pictures from here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anywidget
import traitlets

from distlab.explorers.frame import View, in_words, page, shown
from distlab.explorers.web import joined


class Explorer(anywidget.AnyWidget):
    """Controls, and below them what `view` shows of their settings.

    A page without a kernel gets the picture of the first settings.
    """

    _esm = joined("widget")
    about = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, about: dict, start: Any, view: Callable[[Any], View]):
        self._start, self._view = start, view
        super().__init__(about=about, settings=about["start"], shown=shown(start, view))

    @traitlets.observe("settings")
    def _draw(self, change: Any) -> None:
        if change.old != traitlets.Undefined:
            self.shown = shown(replace(self._start, **change.new), self._view)

    def _repr_mimebundle_(self, **choice: Any) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**choice)
        still = {
            "text/html": page(self._start, self._view),
            "text/plain": in_words(self._start, lambda start: self._view(start).sentence),
        }
        return data | still, metadata
