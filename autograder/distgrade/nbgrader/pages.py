"""What students wrote, as a page may show it: text, formulas and pictures, nothing that runs.

nbgrader's pages (feedback, and formgrader's, where an instructor is logged in) put a written answer
into the page as it is. nbconvert lets filters be replaced by configuration: this one stands behind
every Markdown cell and every comment. What it refuses is shown as text.
"""

from __future__ import annotations

import re

import bleach
from nbconvert.filters import strip_files_prefix

TAGS = (
    *("a", "b", "blockquote", "br", "code", "dd", "del", "div", "dl", "dt", "em", "h1", "h2", "h3"),
    *("h4", "h5", "h6", "hr", "i", "img", "li", "ol", "p", "pre", "s", "span", "strong", "sub"),
    *("sup", "table", "tbody", "td", "th", "thead", "tr", "ul"),
)
PLACES = ("http:", "https:", "mailto:", "#")
PICTURES = ("data:image/png;base64,", "data:image/jpeg;base64,", "data:image/gif;base64,")
COLOURED = re.compile(r"highlight|[a-z]{1,3}[0-9]?")  # classes of coloured code


def harmless(text: str) -> str:
    """Returns a rendered Markdown cell without what a browser would run, load or obey."""
    return bleach.clean(
        strip_files_prefix(text),
        tags=TAGS,
        attributes=_keeps,
        protocols=("http", "https", "mailto", "data"),
    )


def _keeps(tag: str, name: str, value: str) -> bool:
    if tag == "a":
        anchor = name == "class" and value == "anchor-link"
        return anchor or name == "title" or (name == "href" and value.lower().startswith(PLACES))
    if tag == "img":
        return name in ("alt", "title") or (name == "src" and value.startswith(PICTURES))
    if tag in ("div", "span"):
        return name == "class" and COLOURED.fullmatch(value) is not None
    if tag in ("td", "th"):
        return name == "align"
    return tag == "ol" and name == "start"
