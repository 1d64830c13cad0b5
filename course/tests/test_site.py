"""The site: it builds without a warning, its links lead somewhere, nothing comes from outside."""

import functools
import http.server
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from browser import ROOT, OpenExplorer, Watched, chromium

from distlab.explorers.schedule import ScheduleSettings, schedule_sentence

sys.path.insert(0, str(ROOT / "course" / "site"))
import build

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]

SOURCES = sorted(
    path.relative_to(ROOT)
    for pattern in build.ON_THE_SITE
    for path in ROOT.glob(pattern)
    if path.suffix != ".svg"
)
LABS = [path for path in SOURCES if path.parts[0] == "release"]


class Page(HTMLParser):
    """What a page names: links, anchors, pictures with their alternative texts, things to load."""

    def __init__(self, path: Path):
        super().__init__()
        self.path, self.links, self.anchors, self.pictures, self.loads = path, [], set(), [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        have = dict(attrs)
        self.anchors |= {have[name] for name in ("id", "name") if have.get(name)}
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        if tag == "img":
            self.pictures.append((have.get("alt"), have["src"]))
        self.loads += [have[name] for name in ("src", "data") if have.get(name)]
        if tag == "link" and have.get("rel") != "canonical":
            self.loads.append(have["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "html"
    done = build.build("html", out)
    assert (done.returncode, done.stderr) == (0, "")
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in build.pages(site)}


def test_every_chapter_and_every_lab_has_a_page(pages, site):
    assert len(LABS) >= 8
    assert {site / path.with_suffix(".html") for path in SOURCES} <= set(pages)


def test_every_link_leads_to_a_page_and_an_anchor(pages):
    lost, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            address, anchor = urldefrag(unquote(link))
            target = (path.parent / address).resolve() if address else path
            anchors = pages[target].anchors if target in pages else {anchor}
            if not target.is_file() or (anchor and anchor not in anchors):
                lost.append((path.name, link))
            followed += 1
    assert lost == []
    assert followed > 500


def test_every_picture_says_in_words_what_it_shows(pages):
    pictures = [picture for page in pages.values() for picture in page.pictures]
    assert len(pictures) > 30
    silent = [(alt, src) for alt, src in pictures if len(alt or "") < 20 or "_images" in alt]
    assert silent == []


def test_no_page_names_anything_to_load_from_elsewhere(pages):
    loads = [load for page in pages.values() for load in page.loads]
    assert loads
    assert [load for load in loads if "//" in load] == []


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.stem)
def test_a_lab_says_that_it_was_not_run_and_is_given_as_it_was_released(site, lab):
    assert "No cell was run here" in (site / lab.with_suffix(".html")).read_text("utf-8")
    given = site / "_sources" / lab
    assert given.read_bytes() == (ROOT / lab).read_bytes()


def test_a_lab_links_the_chapter_that_it_names(site):
    page = Page(site / "release/lab03-tensor-parallel/lab03-tensor-parallel.html")
    assert "../../course/chapters/lab03-tensor-parallel.html" in page.links
    assert "../../course/glossary.html" in page.links


def test_a_place_in_a_lab_is_a_link(site):
    links = Page(site / "course/lecture-map.html").links
    lab = "../release/lab02-data-parallel/lab02-data-parallel.html"
    assert f"{lab}#lab02-middle-box" in links
    assert f"{lab}#lab02-ring-all-reduce-text" in links  # an exercise: its text
    text = (site / "course/lecture-map.html").read_text("utf-8")
    code = text.index("lab02/middle-count")  # a cell with code: the text above it
    assert text[:code].rindex(f"{lab}#lab02-middle-box") > text[:code].rindex("<td>")


def test_what_leads_nowhere_stops_the_build(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text(
        "# A page\n\n![A picture that is not there at all](nowhere.svg)\n\n"
        "[Another page](no_page.md), [a heading](#no-heading), [a file](Makefile), $x^2$.\n"
    )
    done = build.sphinx("dummy", source, tmp_path / "out")
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(warnings) == 3, done.stderr
    for lost in ("nowhere.svg", "no_page.md", "no-heading"):
        assert any(lost in line for line in warnings)


@pytest.fixture(scope="module")
def address(site):
    """The site, from a server of this machine, at a free port."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def test_every_page_draws_its_formulas_and_asks_nobody_else(site, pages, address, browser):
    watched, drawn = Watched(browser, address, 1280), 0
    for path in pages:
        watched.page.goto(address + path.relative_to(site).as_posix(), wait_until="load")
        katex = watched.page.locator(".katex").count()
        assert katex == watched.page.locator(".math").count(), path.name
        assert watched.page.locator(".katex-error").count() == 0, path.name
        for width in (1280, 800):
            watched.page.set_viewport_size({"width": width, "height": 900})
            wide = watched.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, path.name
        drawn += katex
    assert drawn > 100
    assert watched.wrong == []


def test_the_watch_sees_what_it_is_for(address, browser):
    watched = Watched(browser, address, 1280)
    watched.page.goto(address + "index.html")
    watched.page.evaluate("console.error('oh'), fetch('nowhere').catch(() => 0)")
    watched.page.evaluate("fetch('http://127.0.0.1:9/elsewhere').catch(() => 0)")
    assert [w for w in watched.wrong if w == "oh"]
    assert [w for w in watched.wrong if w.endswith("/nowhere")]
    assert [w for w in watched.wrong if w.endswith("/elsewhere")]


SWEEP = """place => {
  const sliders = [...place.shadowRoot.querySelectorAll("input[type=range]:not(:disabled)")];
  const times = [];
  for (const slider of sliders) {
    for (let value = 0; value <= Number(slider.max); value++) {
      slider.value = value;
      const begin = performance.now();
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      place.getBoundingClientRect();  // and lays it out
      times.push(performance.now() - begin);
    }
  }
  return times.sort((a, b) => a - b);
}"""


@pytest.mark.parametrize(("page", "name"), [("memory", "memory"), ("pipeline", "schedule")])
def test_an_explorer_runs_on_its_page(page, name, address, browser):
    watched = Watched(browser, address, 800)
    watched.page.goto(address + f"{page}-explorer.html")
    place = watched.page.locator(f"{name}-explorer")
    explorer = OpenExplorer(place, f"{name}_explorer")
    explorer.fits(800)
    explorer.walk()
    took_ms = place.evaluate(SWEEP)
    print(f"{page}: {took_ms[len(took_ms) // 2]:.1f} ms a move, {took_ms[-1]:.1f} ms at most")
    assert watched.wrong == []


def test_an_explorer_refuses_what_can_not_be_in_one_sentence(address, browser):
    page = Watched(browser, address, 800).page
    page.goto(address + "memory-explorer.html")
    page.get_by_label("PP", exact=True).press("End")
    page.get_by_text("GPT 7.5B has 36 layers: not enough for 128 stages.").wait_for()
    assert page.locator("memory-explorer svg").count() == 0


def test_without_scripts_an_explorer_is_a_sentence(address, browser):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(address + "pipeline-explorer.html")
    page.get_by_text(schedule_sentence(ScheduleSettings())).wait_for()


def test_the_search_finds_a_word_of_a_chapter(address, browser):
    watched = Watched(browser, address, 1280)
    watched.page.goto(address + "search.html?q=bubble")
    watched.page.locator("#search-results a", has_text="Pipeline").first.wait_for(timeout=20_000)
    assert watched.wrong == []
