"""Sphinx's settings for the site; `build.py` starts Sphinx on a copy of the pages.

The chapters are plain Markdown that also reads well elsewhere: what Sphinx needs stands here.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

from distlab.explorers.web import MODULES

project = "Distributed training, by hand"
author = ""
copyright = "the authors of this course. Text and pictures CC BY 4.0, code MIT"
extensions = ["myst_nb"]
language = os.environ.get("COURSE_LANGUAGE", "en")
root_doc = "index"

# Markdown as GitHub reads it: $formulas$, links to files and to headings.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_dmath_allow_space = False  # "$5 and $6" is money
myst_heading_anchors = 4
nb_execution_mode = "off"  # the labs are shown as they are handed out; their page says so

# One catalogue for each page, so that a translator sees its context: text.py collects them.
gettext_compact = False
gettext_uuid = False
locale_dirs = [str(pages.ROOT / "course" / of / "locale") for of in ("", "instructors")]

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["static", *map(str, MODULES.glob("*.mjs"))]
html_favicon = "static/favicon.svg"
html_css_files = ["course.css"]
html_math_renderer = "katex"
html_copy_source = True  # what the download arrow gives: the notebook, byte for byte
html_sourcelink_suffix = ""
html_context = {"default_mode": "light"}
html_theme_options = {
    "navbar_persistent": [],  # one search box is enough
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_fullscreen_button": False,
}
repository = os.environ.get("COURSE_REPOSITORY")  # its address, for a class that publishes one
if repository:
    html_theme_options |= {
        "repository_url": repository,
        "repository_provider": "github",
        "use_repository_button": True,
    }


def setup(app):
    """Connects what pages.py adds to Sphinx."""
    app.add_directive("explorer", pages.Explorer)
    app.add_html_math_renderer("katex", (pages.formula, None), (pages.displayed_formula, None))
    app.connect("source-read", pages.prepare_lab)
    app.connect("source-read", pages.link_explorers)
    app.connect("doctree-read", pages.name_files_off_the_site)
    app.connect("doctree-resolved", pages.link_named_pages)
    app.connect("html-page-context", pages.bring_what_a_page_needs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
