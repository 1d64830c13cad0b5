"""What a student's cell showed, kept small and harmless: text and pictures, no HTML, no scripts.

Feedback pages open in other people's browsers (an instructor's, logged in to formgrader), so
nothing that a browser would run may pass. Text is escaped where nbconvert renders it.
"""

from __future__ import annotations

import re

import nbformat
from nbformat import NotebookNode

from distgrade.notebook import text_of

MAX_TEXT = 100_000  # characters of a cell's text; a lab's longest output has about 1,000
MAX_PICTURES = 2_000_000  # base64 characters of a cell's pictures
PICTURES = ("image/png", "image/jpeg")
CUT = "\n... more was printed than is kept ...\n"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")  # all but \t \n \r ESC
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


class Collector:
    """Gathers the outputs of one cell from its iopub messages, bounded in characters."""

    def __init__(self):
        self.outputs: list[NotebookNode] = []
        self._text = MAX_TEXT
        self._pictures = MAX_PICTURES

    def take(self, kind: str, content: dict) -> None:
        """Keeps what is harmless of one message."""
        if kind == "stream":
            self._stream(content.get("text"))
        elif kind in ("display_data", "execute_result"):
            self._data(content.get("data"))
        elif kind == "error":
            trace = content.get("traceback")
            lines = [str(t) for t in trace[:200]] if isinstance(trace, list) else []
            self._error(content.get("ename"), content.get("evalue"), lines)

    def problem(self, name: str, sentence: str) -> None:
        """Adds an error of the grader's own, such as a time-out."""
        self._text = max(self._text, 1000)
        self._error(name, sentence, [f"{name}: {sentence}"])

    def _stream(self, text: object) -> None:
        text = self._shortened(text if isinstance(text, str) else "")
        if not text:
            return
        last = self.outputs[-1] if self.outputs else None
        if last is not None and last.output_type == "stream":
            last.text += text
        else:  # stderr too: a warning is no mistake
            self.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=text))

    def _data(self, data: object) -> None:
        if not isinstance(data, dict):
            return
        kept = {}
        for kind in PICTURES:
            picture = data.get(kind)
            small = isinstance(picture, str) and len(picture) <= self._pictures
            if small and _BASE64.fullmatch(picture):
                self._pictures -= len(picture)
                kept[kind] = picture
                break
        text = self._shortened(data.get("text/plain") if isinstance(data, dict) else "")
        if text:
            kept["text/plain"] = text
        if kept:
            self.outputs.append(nbformat.v4.new_output("display_data", data=kept))

    def _error(self, name: object, value: object, trace: list[str]) -> None:
        self.outputs.append(
            nbformat.v4.new_output(
                "error",
                ename=plain(name, 200) or "Error",
                evalue=plain(value, 2000),
                traceback=[self._shortened(line) for line in trace],
            )
        )

    def _shortened(self, text: object) -> str:
        text = clean(text)
        if self._text <= 0:
            return ""
        if len(text) > self._text:
            text = text[: self._text] + CUT
            self._text = 0
        else:
            self._text -= len(text)
        return text


def clean(text: object) -> str:
    """Returns text without control characters other than line ends and colours."""
    if not isinstance(text, str):
        return ""
    return _CONTROL.sub("", text_of(text[: 2 * MAX_TEXT]))


def plain(text: object, limit: int) -> str:
    """Returns short text without colours or control characters."""
    text = re.sub(r"\x1b(\[[0-9;?]*[A-Za-z])?", "", clean(text if isinstance(text, str) else ""))
    return text if len(text) <= limit else text[: limit - 2] + " …"
