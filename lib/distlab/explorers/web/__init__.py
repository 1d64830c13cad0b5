"""Explorers that run in the page itself, with no kernel: ES modules, and the HTML that starts them.

memory.mjs and schedule.mjs are explorers, frame.mjs and svg.mjs what they share; widget.mjs shows
those whose numbers come from a kernel.
"""

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.mjs";\n', re.MULTILINE)


def joined(name: str) -> str:
    """Returns a module as one text, those that it imports before it: a notebook has no files."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = (MODULES / f"{name}.mjs").read_text("utf-8")
        for needed in _IMPORT.findall(text):
            if needed not in texts:
                add(needed)
        texts[name] = _IMPORT.sub("", text)

    add(name)
    return "\n".join(texts.values())


def element(name: str, data: dict, words: str) -> str:
    """Returns the element that a module brings to life; without scripts, `words` stand there."""
    told = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return (
        f'<{name}-explorer><script type="application/json">{told}</script>'
        f"<p>{html.escape(words)}</p></{name}-explorer>"
    )


@dataclass(frozen=True)
class Live:
    """An explorer as the output of a cell: HTML, which runs wherever it is shown.

    It needs no widget and no kernel: it works in a notebook that is opened again, and in pages that
    nbconvert makes. Where scripts are not run, `words` say what it would show at first.
    """

    name: str
    data: dict
    words: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        script = f'<script type="module">\n{joined(self.name)}</script>'
        page = element(self.name, self.data, self.words) + script
        return {"text/html": page, "text/plain": self.words}

    def __repr__(self) -> str:
        return self.words
