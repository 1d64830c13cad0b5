"""The explorers that run in a page count and speak as distlab does, and draw what can be read."""

import html
import json
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict, fields, replace

import pytest

from distlab import canvas
from distlab.explorers import frame, memory, schedule
from distlab.explorers.memory import MemorySettings, memory_numbers
from distlab.explorers.schedule import ScheduleSettings, schedule_numbers
from distlab.explorers.web import Live, element, joined
from test_explorers import check_picture, ends, looked_at, values
from webmodules import ask, ask_browser

EXPLORERS = {
    "memory": (memory.memory_data, memory.MEMORY_CONTROLS, MemorySettings, memory.memory_sentence),
    "schedule": (
        schedule.schedule_data,
        schedule.SCHEDULE_CONTROLS,
        ScheduleSettings,
        schedule.schedule_sentence,
    ),
}
ALL = """(module, { data, all }) => all.map((settings) => {
  try {
    return %s;
  } catch (reason) {
    return { impossible: reason.message, meant: reason.constructor.name === "Impossible" };
  }
})"""
SHOW = ALL % "module.view(data, settings)"
COUNT = ALL % (
    "{ numbers: module.numbersOf(data, settings), sentence: module.view(data, settings).sentence }"
)


def given(name, settings):
    return {"data": EXPLORERS[name][0](), "all": [asdict(one) for one in settings]}


def pictures(name, settings):
    """The pages that a module shows."""
    return [
        "impossible" in shown or frame.page(None, lambda _, shown=shown: frame.View(**shown))
        for shown in ask(name, SHOW, given(name, settings))
    ]


def settings_of_all_kinds(name, count):
    """Settings that a reader can choose; half of them are lucky to be possible."""
    _, controls, kind, _ = EXPLORERS[name]
    chance = random.Random(9)
    chosen = [
        {control.name: chance.choice(values(control)) for control in controls} for _ in range(count)
    ]
    for one in chosen[::2]:
        if name == "memory":
            one["gpus"] = one["tp"] * one["pp"] * chance.choice((1, 2, 3, 8, 1024))
        else:
            one["weight_grad"] = min(one["weight_grad"], one["backward"])
            one["microbatches"] = one["stages"] * chance.choice((1, 2, 3, 4))
    return [kind(), *(kind(**one) for one in chosen)]


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        "schedule",
        pytest.param("memory in a browser", marks=pytest.mark.slow),
        pytest.param("schedule in a browser", marks=pytest.mark.slow),
    ],
)
def answers(request):
    """An explorer's name, and what distlab and its module are to say of the same settings."""
    name, _, browser = request.param.partition(" in a ")
    ours = settings_of_all_kinds(name, 50 if browser else 300)
    asked = ask_browser if browser else ask
    return name, list(zip(ours, asked(name, COUNT, given(name, ours)), strict=True))


def equal_memory(ours, theirs):
    assert theirs["dp"] == ours.dp
    assert theirs["capacity"] == ours.capacity_bytes
    assert theirs["fullest"] == ours.fullest
    assert theirs["free"] == ours.free_bytes
    assert [s["layers"] for s in theirs["stages"]] == [s.layers for s in ours.stages]
    assert [s["in_flight"] for s in theirs["stages"]] == [s.in_flight for s in ours.stages]
    assert [s["sizes"] for s in theirs["stages"]] == [[*s.sizes.values()] for s in ours.stages]


def equal_schedules(ours, theirs):
    for rank, told in zip(ours.ranks, theirs["ranks"], strict=True):
        assert [tuple(op) for op in told["ops"]] == [tuple(op) for op in rank.ops]
        assert tuple(told["starts"]) == rank.starts
        assert tuple(told["ends"]) == rank.ends
    assert set(theirs) == {field.name for field in fields(ours)}
    for name in set(theirs) - {"ranks"}:
        known = getattr(ours, name)
        assert theirs[name] == (list(known) if isinstance(known, tuple) else known), name


def test_numbers_and_sentences_are_equal_to_the_last_bit(answers):
    name, both = answers
    sentence = EXPLORERS[name][3]
    compared, refused = 0, set()
    for settings, told in both:
        if "impossible" in told:
            with pytest.raises(frame.Impossible) as reason:
                sentence(settings)
            assert told == {"impossible": str(reason.value), "meant": True}
            refused.add(str(reason.value).partition("Choose")[2])
            continue
        assert told["sentence"] == sentence(settings)
        if name == "memory":
            equal_memory(memory_numbers(settings), told["numbers"])
        else:
            equal_schedules(schedule_numbers(settings), told["numbers"])
        compared += 1
    assert compared > len(both) / 4
    assert len(refused) >= 2


def test_a_difference_would_be_seen():
    settings = ScheduleSettings(schedule="ZB-H2", delay=0.5)
    (told,) = ask("schedule", COUNT, given("schedule", [settings]))
    theirs = told["numbers"]
    theirs["ranks"][3]["starts"][7] += 0.25
    with pytest.raises(AssertionError):
        equal_schedules(schedule_numbers(settings), theirs)


@pytest.mark.parametrize("name", EXPLORERS)
def test_every_picture_can_be_read(name):
    start, controls = EXPLORERS[name][2](), EXPLORERS[name][1]
    alone = [
        replace(start, **{control.name: value}) for control in controls for value in values(control)
    ]
    corners = [replace(start, **chosen) for chosen in ends(controls)]
    some = [*alone, *corners[:: len(corners) // 32], *settings_of_all_kinds(name, 60)]
    seen = [page for page in pictures(name, some) if page is not True]
    assert len(seen) > 60
    for page in seen:
        check_picture(page, name)


def test_a_stack_is_as_high_as_its_bytes():
    settings = MemorySettings(zero=3, gpus=64)
    root, found = looked_at(*pictures("memory", [settings]))
    heights = {}
    for node in root.iter("{http://www.w3.org/2000/svg}path"):
        shape = node.get("d")
        if "v" in shape and "H" in shape:
            high = float(shape.split("v")[1].split("H")[0])
            heights.setdefault(node.get("fill"), high)  # the stack is drawn before the key
    numbers = memory_numbers(settings).stages[0].sizes
    scale = heights[canvas.COLOURS["activations"]] / numbers["activations"]
    for part, size_bytes in numbers.items():
        assert heights[canvas.COLOURS[part]] == pytest.approx(size_bytes * scale, abs=0.02)
    assert "36.3" in [text for text, _ in found]


def paths(page):
    return list(ET.fromstring(page).iter("{http://www.w3.org/2000/svg}path"))


def test_bars_are_as_long_as_their_ops():
    numbers = schedule_numbers(ScheduleSettings())
    found = {}
    for node in paths(*pictures("schedule", [ScheduleSettings()])):
        bars = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v[\d.]+h-\3z", node.get("d"))
        if len(bars) > 1:
            found[node.get("stroke")] = [tuple(map(float, bar)) for bar in bars]
    for kind, role in (("F", "activations"), ("B", "gradients")):
        bars = found[canvas.COLOURS[role]]
        spans = [
            (rank, start, end)
            for rank, row in enumerate(numbers.ranks)
            for op, start, end in zip(row.ops, row.starts, row.ends, strict=True)
            if op[0] == kind
        ]
        assert len(bars) == len(spans) == 32
        per_time = bars[0][2] / (spans[0][2] - spans[0][1])
        zero = bars[0][0] - spans[0][1] * per_time
        for (x, _, wide), (_, start, end) in zip(bars, spans, strict=True):
            assert x == pytest.approx(zero + start * per_time, abs=0.1)
            assert wide == pytest.approx((end - start) * per_time, abs=0.02)
        assert [y for _, y, _ in bars] == sorted(y for _, y, _ in bars)  # rank by rank


def test_narrow_bars_cover_their_ops_to_a_tenth():
    settings = ScheduleSettings(stages=16, microbatches=64)
    numbers = schedule_numbers(settings)
    drawn = [
        node.get("d") for node in paths(*pictures("schedule", [settings])) if "m" in node.get("d")
    ]
    per_time = (540 - 58) / numbers.makespan
    for kind, shape in zip("BF", drawn, strict=True):
        rows = re.findall(r"M[^M]+", shape)
        for row, rank in zip(rows, numbers.ranks, strict=True):
            spans = [
                (58 + start * per_time, 58 + end * per_time)
                for op, start, end in zip(rank.ops, rank.starts, rank.ends, strict=True)
                if op[0] == kind
            ]
            place, covered = 0.0, 0.0
            for move, x in re.findall(r"([Mmh])([\d.]+)", row):
                place = float(x) if move == "M" else place + float(x)
                covered += float(x) if move == "h" else 0
                if move == "M":
                    assert place == pytest.approx(spans[0][0], abs=0.051)
            assert place == pytest.approx(spans[-1][1], abs=0.051)
            assert covered == pytest.approx(sum(b - a for a, b in spans), abs=0.1 * len(spans))


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_page_has_every_control_and_a_possible_start(name):
    data_of, controls, kind, sentence = EXPLORERS[name]
    data = json.loads(json.dumps(data_of()))
    assert {control["name"] for control in data["controls"]} == {
        field.name for field in fields(kind)
    }
    for control in data["controls"]:
        assert data["start"][control["name"]] in control["values"]
    assert [control["name"] for control in data["controls"]] == [c.name for c in controls]
    sentence(kind(**data["start"]))


def test_a_grey_control_would_change_nothing():
    grey = [
        [replace(start, **{control.name: value}) for value in values(control)]
        for start in (ScheduleSettings(schedule=name) for name in schedule.SCHEDULES)
        for control in schedule.SCHEDULE_CONTROLS
        if not control.matters(start)
    ]
    assert len(grey) == 7 + 7  # chunks matter to two schedules, the weights' gradient to two others
    seen = iter(pictures("schedule", [settings for row in grey for settings in row]))
    for row in grey:
        assert len({next(seen) for _ in row}) == 1, row[0]


# -- as the output of a cell ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("explorer", "words"),
    [
        (
            memory.memory_explorer(model="GPT-3 175B", gpus=1024, tp=8, pp=8),
            "GPT-3 175B on 1,024 GPUs, TP 8 × PP 8 × DP 16. A GPU of stage 0",
        ),
        (schedule.schedule_explorer(schedule="GPipe", stages=2), "8 microbatches on 2 stages take"),
        (memory.memory_explorer(pp=128), "GPT 7.5B has 36 layers: not enough for 128 stages."),
    ],
)
def test_an_explorer_begins_where_it_is_told_to_and_says_so_without_scripts(explorer, words):
    bundle = explorer._repr_mimebundle_()
    assert repr(explorer) == bundle["text/plain"]
    assert bundle["text/plain"].startswith(words)
    page = bundle["text/html"]
    still = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert words in html.unescape(re.sub("<[^>]*>", "", still))
    assert len(page) < 40_000  # a notebook keeps it
    told = re.search('<script type="application/json">(.*?)</script>', page).group(1)
    assert json.loads(told) == json.loads(json.dumps(explorer.data))


def test_settings_that_are_not_offered_are_refused():
    with pytest.raises(ValueError, match="tp=3 is not offered here; there are 1, 2, 4, 8, 16"):
        memory.memory_explorer(tp=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tensor'"):
        memory.memory_explorer(tensor=2)
    with pytest.raises(ValueError, match="schedule='2F2B' is not offered here; there are naive"):
        schedule.schedule_explorer(schedule="2F2B")


@pytest.mark.parametrize("name", ["memory", "schedule", "widget"])
def test_a_joined_module_asks_for_no_file_and_no_network(name):
    text = joined(name)
    assert not re.search(r"^\s*import\b", text, re.MULTILINE)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|fetch\(|XMLHttp", text)
    assert "</script" not in text
    assert "<!--" not in text
    declared = re.findall(r"^(?:export )?(?:function|const|class) (\w+)", text, re.MULTILINE)
    assert len(declared) == len(set(declared))


def test_data_and_words_can_not_leave_their_place():
    page = element("memory", {"a": "</script><b>"}, "1 < 2")
    assert page.count("</script>") == 1
    assert "<p>1 &lt; 2</p>" in page
    assert "<b>" not in page
    assert Live("memory", {}, "words")._repr_mimebundle_()["text/plain"] == "words"
