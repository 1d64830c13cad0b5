"""What students wrote, as a page may show it: text, formulas and pictures, nothing that runs.

nbgrader's pages (feedback, and formgrader's, where an instructor is logged in) put a written answer
into the page as it is, and have no page at all when it can't be rendered. nbconvert lets filters be
replaced by configuration: this one renders every Markdown cell and comment. What it refuses is
shown as text.
"""

from __future__ import annotations

import html
import re
from contextlib import suppress

import bleach
from jinja2 import pass_context
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

MAX_SOURCE = 30_000  # characters; a longer text is shown as it was typed
TAGS = (
    *("a", "b", "blockquote", "br", "code", "dd", "del", "div", "dl", "dt", "em", "h1", "h2", "h3"),
    *("h4", "h5", "h6", "hr", "i", "img", "li", "ol", "p", "pre", "s", "span", "strong", "sub"),
    *("sup", "table", "tbody", "td", "th", "thead", "tr", "ul"),
)
PLACES = ("http:", "https:", "mailto:", "#")
PICTURES = ("data:image/png;base64,", "data:image/jpeg;base64,")
ATTACHED = re.compile(r"attachment:([^\s()<>\"']+)")
COLOURED = re.compile(r"highlight|[a-z]{1,3}[0-9]?")  # classes of coloured code


@pass_context
def markdown(context, source: str) -> str:
    """Returns the page's part for a Markdown text: stands in for nbconvert's `markdown2html`."""
    attached = context.get("cell", {}).get("attachments", {})
    there = ATTACHED.sub(lambda m: m[0] if m[1] in attached else f"missing:{m[1]}", source)
    renderer = IPythonRenderer(escape=False, attachments=attached, exclude_anchor_links=True)
    if len(source) <= MAX_SOURCE:
        # Whatever can't be rendered, nested too deeply, say, is no reason to have no page.
        with suppress(Exception):
            return harmless(MarkdownWithMath(renderer=renderer).render(there))
    return f"<pre>{html.escape(source)}</pre>"


def harmless(text: str) -> str:
    """Returns HTML without what a browser would run, load or obey."""
    protocols = ("http", "https", "mailto", "data")
    return bleach.clean(text, tags=TAGS, attributes=_keeps, protocols=protocols)


def _keeps(tag: str, name: str, value: str) -> bool:
    if tag == "a":
        return name == "title" or (name == "href" and value.lower().startswith(PLACES))
    if tag == "img":
        return name in ("alt", "title") or (name == "src" and value.startswith(PICTURES))
    if tag in ("div", "span"):
        return name == "class" and COLOURED.fullmatch(value) is not None
    return tag == "ol" and name == "start"
