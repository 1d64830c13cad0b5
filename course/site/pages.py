"""What the site adds to Sphinx: formulas by KaTeX, a word on notebooks, links to cells, files."""

import json
import os
import re
from functools import cache
from pathlib import Path, PurePosixPath

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from distlab.explorers.memory import MemorySettings, memory_data, memory_sentence
from distlab.explorers.schedule import ScheduleSettings, schedule_data, schedule_sentence
from distlab.explorers.web import element

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = """\
:::{note}
This page shows the lab as it is handed out. No cell was run here, so there are no outputs and no
sliders; the [memory explorer](../../memory-explorer.md) and the
[pipeline explorer](../../pipeline-explorer.md) have pages of their own. To work on the lab, type
`make lab`, or take the file with the download arrow above.
:::"""
EXPLORERS = {
    "memory": (memory_data, lambda: memory_sentence(MemorySettings())),
    "schedule": (schedule_data, lambda: schedule_sentence(ScheduleSettings())),
}
FORMULAS = ("vendor/katex/katex.min.css", "vendor/katex/katex.min.js", "formulas.js")


def formula(translator, node) -> None:
    """Writes a formula within a line as its TeX, which formulas.js draws."""
    text = translator.encode(node.astext())
    translator.body.append(f'<span class="math notranslate nohighlight">{text}</span>')
    raise nodes.SkipNode


def displayed_formula(translator, node) -> None:
    """Writes a formula on lines of its own."""
    text = translator.encode(node.astext())
    translator.body.append(f'<div class="math notranslate nohighlight">{text}</div>\n')
    raise nodes.SkipNode


def anchor(lab: str, cell: str) -> str:
    """Returns the anchor of a Markdown cell; lab is "lab02"."""
    return nodes.make_id(f"{lab}-{cell}")


def prepare_lab(app, docname: str, source: list[str]) -> None:
    """Puts a note under a lab's title, and an anchor before each text.

    The file that readers download stays as it is.
    """
    if not docname.startswith("release/"):
        return
    notebook, lab = json.loads(source[0]), PurePosixPath(docname).name[:5]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = f"({anchor(lab, cell['id'])})=\n{''.join(cell['source'])}"
    note = {"cell_type": "markdown", "id": "not-run-here", "metadata": {}, "source": NOT_RUN}
    notebook["cells"].insert(1, note)
    source[0] = json.dumps(notebook)


def link_explorers(app, docname: str, source: list[str]) -> None:
    """Makes links to pages of course/site lead to the top of the site, where they stand."""
    if docname.startswith("course/chapters/"):
        source[0] = source[0].replace("](../site/", "](../../")


@cache
def places(lab: str) -> tuple[str, dict[str, str]]:
    """Returns a lab's page, and for each of its cells the anchor of the text that leads to it."""
    page, found, above = "", {}, ""
    for path in ROOT.glob(f"release/{lab}-*/{lab}-*.ipynb"):
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                above = anchor(lab, cell["id"])
            found[cell["id"]] = above
    return page, found


def name_files_off_the_site(app, doctree) -> None:
    """Leaves a link to a file of the repository that is no page as words; others stay errors."""
    here = PurePosixPath(app.env.docname).parent
    for link in list(doctree.findall(addnodes.pending_xref)):
        target = link["reftarget"].partition("#")[0]
        path = os.path.normpath(here / target)
        inside = link["refdomain"] is None and target and not path.startswith("..")
        if inside and (ROOT / path).exists():
            link.replace_self(link.children)


def page_named(name: str) -> tuple[str, str]:
    """Returns page and anchor of `course/glossary.md`, `lab02/overlap` or `lab02.make_buckets`."""
    if name.endswith(".md"):
        return name.removesuffix(".md"), ""
    if of := re.fullmatch(r"(lab\d\d)([/.])([\w-]+)", name):
        page, anchors = places(of[1])
        return page, anchors.get(of[3], "")
    return "", ""


def link_named_pages(app, doctree, docname: str) -> None:
    """Makes a link of a page, a lab's cell or an exercise that stands there as code."""
    for name in list(doctree.findall(nodes.literal)):
        page, at = page_named(name.astext())
        if page == docname or page not in app.env.found_docs:
            continue
        if isinstance(name.parent, nodes.reference):
            continue
        link = nodes.reference("", "", internal=True)
        link["refuri"] = app.builder.get_relative_uri(docname, page) + (at and f"#{at}")
        name.replace_self(link)
        link += name


def bring_what_a_page_needs(app, page: str, template: str, context: dict, doctree) -> None:
    """Adds scripts to the pages that use them, so that the others stay light."""
    if doctree is None:
        return
    if any(isinstance(node, nodes.math | nodes.math_block) for node in doctree.findall()):
        style, *scripts = FORMULAS
        app.add_css_file(style)
        for script in scripts:
            app.add_js_file(script, loading_method="defer")
    for name in {node["explorer"] for node in doctree.findall(nodes.raw) if "explorer" in node}:
        app.add_js_file(f"{name}.mjs", type="module")


class Explorer(SphinxDirective):
    """An explorer that runs on the page: its place, with the data that its module takes."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the place; the module fills it."""
        name = self.arguments[0]
        data, words = EXPLORERS[name]
        html = element(name, data(), words())
        return [nodes.raw("", html, format="html", explorer=name)]
