"""What a student's cell showed, kept small and harmless: text and pictures, no HTML, no scripts.

Feedback pages open in other people's browsers (an instructor's, logged in to formgrader), so
nothing that a browser would run may pass. Text is escaped where nbconvert renders it.
"""

from __future__ import annotations

import base64
import binascii
import re

import nbformat
from nbformat import NotebookNode

from distgrade.notebook import text_of

MAX_TEXT = 100_000  # characters of a cell's text; a lab's longest output has about 1,000
MAX_PICTURES = 2_000_000  # base64 characters of a cell's pictures
MAX_PIXELS = 40_000_000  # a small file can hold a picture that no browser should open
MAX_OUTPUTS = 500
PICTURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
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
        if len(self.outputs) >= MAX_OUTPUTS:
            return
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
            if is_picture(kind, picture, self._pictures):
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
                evalue=self._shortened(plain(value, 2000)),
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


def is_picture(kind: str, picture: object, most: int = MAX_PICTURES) -> bool:
    """Says whether a base64 text is a picture of this kind, of a size that a page may show."""
    if not isinstance(picture, str) or len(picture) > most or not _BASE64.fullmatch(picture):
        return False
    try:
        data = base64.b64decode(picture)
    except binascii.Error:
        return False
    return data.startswith(PICTURES[kind]) and 0 < _pixels(kind, data) <= MAX_PIXELS


def _pixels(kind: str, data: bytes) -> int:
    """Returns how many pixels a picture's own header says it has; 0 if it does not."""
    if kind == "image/png":
        return int.from_bytes(data[16:20], "big") * int.from_bytes(data[20:24], "big")
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:  # JPEG: segments up to the frame's header
        if 0xC0 <= data[at + 1] <= 0xCF and data[at + 1] not in (0xC4, 0xC8, 0xCC):
            height, width = data[at + 5 : at + 7], data[at + 7 : at + 9]
            return int.from_bytes(height, "big") * int.from_bytes(width, "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0


def clean(text: object) -> str:
    """Returns text without control characters other than line ends and colours."""
    if not isinstance(text, str):
        return ""
    return _CONTROL.sub("", text_of(text[: 2 * MAX_TEXT]))


def plain(text: object, limit: int) -> str:
    """Returns short text without colours or control characters."""
    text = re.sub(r"\x1b(\[[0-9;?]*[A-Za-z])?", "", clean(text if isinstance(text, str) else ""))
    return text if len(text) <= limit else text[: limit - 2] + " …"
