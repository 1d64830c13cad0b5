"""The explorer of layouts: every t × p × d in one place, for the reason it says, at its numbers."""

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab import planner
from distlab.explorers import frame
from distlab.explorers.layouts import (
    BEST,
    DENSE,
    LAYOUT_CONTROLS,
    MACHINES,
    LayoutSettings,
    layout_numbers,
    layout_view,
)
from distlab.layout import Job, Layout
from distlab.memory import size_text
from distlab.model import MODELS
from distlab.planner.rules import RULES, why_not
from distlab.scatter import seconds
from test_explorers import check_picture, ends, looked_at, values

SMALL = LayoutSettings(model="Llama 3 8B", gpu="A100 SXM 80 GB", gpus=24, batch=96, seq=1024)
SHOWN = {
    "GPT-3": LayoutSettings(),
    "405B": LayoutSettings(model="Llama 3.1 405B", gpus=16384, batch=2048, seq=8192),
    "all fit": LayoutSettings(model="Llama 3 8B", gpus=8, batch=64),
    "none fits": LayoutSettings(model="Llama 3.1 405B", gpus=64, batch=64),
    "many": LayoutSettings(gpus=1536, v=1, microbatch=1, recompute="full"),
    "a node of 72": LayoutSettings(gpu="GB200, one GPU", gpus=2048, batch=2048, zero=3),
    "long": LayoutSettings(model="Llama 3 70B", gpus=512, seq=2**17, context=8, batch=64),
}


def job_of(chosen):
    return Job(
        model=MODELS[chosen.model],
        batch=chosen.batch,
        seq=chosen.seq,
        gpus=chosen.gpus,
        cluster=MACHINES[chosen.gpu],
    )


def cuts(gpus):
    """Every t, p, d whose product it is, by trying all numbers."""
    whole = [n for n in range(1, gpus + 1) if gpus % n == 0]
    return {
        (t, p, gpus // t // p) for t, p in itertools.product(whole, whole) if gpus % (t * p) == 0
    }


def grid(name):
    return tuple(map(int, name.split("×")))


def hovers(view):
    root = ET.fromstring(frame.page(None, lambda _: view)).find("{*}svg")
    return [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]


# -- the numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [SMALL, replace(SMALL, batch=60, zero=3), LayoutSettings()])
def test_every_way_to_cut_is_in_one_place(chosen):
    numbers = layout_numbers(chosen)
    places = [
        {grid(way.name) for way in numbers.fitting},
        {grid(way.name) for way in numbers.too_big},
        {grid(name) for name, _ in numbers.refused},
    ]
    assert set.union(*places) == cuts(chosen.gpus)
    assert sum(map(len, places)) == len(cuts(chosen.gpus))


def test_each_way_is_the_best_that_is_left_open():
    """Every layout of a small job asked one by one, by the planner's plain function."""
    job, found = job_of(SMALL), {}
    for t, p, d in cuts(24):
        for v, b, again in itertools.product(
            range(1, 35), range(1, 97), ("none", "selective", "full")
        ):
            if b * d > 96 or p * v > 34:
                continue
            layout = Layout(t, p, d, v, b, sequence_parallel=True, recompute=again, zero=1)
            if why_not(job, layout) is None:
                one = planner.estimate(job, layout)
                found.setdefault((t, p, d), []).append((one.step_time_s, one.memory_bytes))
    numbers = layout_numbers(SMALL)
    limit = numbers.capacity_bytes
    for way in numbers.fitting:
        fits = [time_s for time_s, size in found[grid(way.name)] if size <= limit]
        assert way.time_s == pytest.approx(min(fits), rel=1e-12)
    for way in numbers.too_big:
        assert way.memory_bytes == pytest.approx(min(size for _, size in found[grid(way.name)]))
        assert way.memory_bytes > limit
    assert {grid(w.name) for w in (*numbers.fitting, *numbers.too_big)} == set(found)
    times = [way.time_s for way in numbers.fitting]
    assert times == sorted(times)


def test_options_that_are_chosen_hold_for_all():
    free, full = layout_numbers(SMALL), layout_numbers(replace(SMALL, recompute="full", v=1))
    assert all("full recompute" in way.words for way in full.fitting)
    assert not any("v = " in way.words for way in full.fitting)
    assert full.fitting[0].time_s > free.fitting[0].time_s


@pytest.mark.parametrize("name", SHOWN)
def test_parts_add_up_to_the_fastest(name):
    numbers = layout_numbers(SHOWN[name])
    assert bool(numbers.fitting) == bool(numbers.times)
    if numbers.fitting:
        best = numbers.fitting[0]
        assert sum(numbers.times.values()) == pytest.approx(best.time_s)
        assert sum(numbers.sizes.values()) == pytest.approx(best.memory_bytes)
        assert len(numbers.stages) == grid(best.name)[1]
        assert sum(numbers.stages) == MODELS[SHOWN[name].model].layers


def test_reasons_are_true():
    job = job_of(LayoutSettings())
    for name, sentence in layout_numbers(LayoutSettings()).refused:
        broken = why_not(job, Layout(*grid(name), sequence_parallel=True))
        assert sentence == broken, name
    for way in layout_numbers(LayoutSettings()).too_big:
        assert way.reason.startswith(f"Needs {way.memory_bytes / 1e9:.3g} GB of 80 GB: ")


@pytest.mark.parametrize("open_or_not", [{}, {"v": 2}, {"v": 4}, {"microbatch": 4}, {"v": 1}])
def test_whatever_is_left_open_a_refused_way_breaks_the_same_rule(open_or_not):
    chosen = replace(SMALL, batch=120, **open_or_not)
    job = job_of(chosen)
    for name, sentence in layout_numbers(chosen).refused:
        t, p, d = grid(name)
        sizes = [b for b in range(1, 121) if 120 // d % b == 0] if 120 % d == 0 else [1]
        ways = [
            Layout(t, p, d, v, b, sequence_parallel=True)
            for v in ([chosen.v] if chosen.v != BEST else range(1, 8))
            for b in ([chosen.microbatch] if chosen.microbatch != BEST else sizes)
        ]
        broken = [next(rule for rule in RULES if rule.broken(job, way)) for way in ways]
        assert len({rule.name for rule in broken}) == 1
        assert sentence in [rule.sentence(job, way) for rule, way in zip(broken, ways, strict=True)]


@pytest.mark.parametrize(
    ("gpu", "stack", "guessed"),
    [
        ("H100 SXM 80 GB", "Megatron-Core 0.8, H100", False),
        ("A100 SXM 80 GB", "Megatron-LM 2022, A100", False),
        ("H200 SXM 141 GB", "Megatron-Core 0.8, H100", True),
        ("V100 SXM2 32 GB", "Megatron-LM 2022, A100", True),
        ("GB200, one GPU", "Megatron-Core 0.8, H100", True),
    ],
)
def test_constants_of_another_gpu_are_called_a_guess(gpu, stack, guessed):
    chosen = replace(SMALL, gpu=gpu)
    numbers = layout_numbers(chosen)
    assert (numbers.stack, numbers.guessed) == (stack, guessed)
    assert ("a guess for this GPU" in layout_view(chosen).svg) == guessed


def test_models_with_experts_are_not_offered():
    assert "GPT-3 175B" in DENSE
    assert not {"Mixtral 8x7B", "DeepSeek-V3"} & set(DENSE)
    with pytest.raises(frame.Impossible, match="'Mixtral 8x7B' is no model here; there are GPT"):
        layout_numbers(LayoutSettings(model="Mixtral 8x7B"))


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (dict(context=32), "context = 32 leaves a rank 64 tokens"),
        (
            dict(gpus=8, context=16),
            "8 GPUs can't be shared by context = 16 ranks for each sequence",
        ),
        (dict(v=3, gpus=16, model="Llama 3 8B"), "keeps the rules. 1×2×8: Interleaved stages"),
        (dict(v=0), "v is at least 1, not 0."),
        (dict(gpu="H300"), "'H300' is no gpu here; there are V100"),
    ],
)
def test_settings_that_can_not_be_get_one_sentence(chosen, words):
    page = frame.page(LayoutSettings(**chosen), layout_view)
    assert "<svg" not in page
    assert words in ET.fromstring(page).text


def test_the_sentence_counts_and_names_the_fastest():
    said = layout_view(LayoutSettings()).sentence
    numbers = layout_numbers(LayoutSettings())
    assert said.startswith(
        "GPT-3 175B on 1,024 GPUs: of 66 ways t × p × d, 18 fit, 39 break a rule, 9 need too much"
    )
    assert f"{numbers.fitting[0].name} is fastest: {numbers.fitting[0].time_s:.2f} s a step" in said
    first, second, *_ = numbers.fitting
    longer = 100 * (second.time_s - first.time_s) / first.time_s
    assert said.endswith(f"; {second.name} takes {longer:.1f}\u00a0% longer.")
    none = layout_view(SHOWN["none fits"]).sentence
    assert "none fits" in none
    assert re.search(r"The smallest, \d+×\d+×\d+, needs [\d.]+ GB of 80 GB: ", none)
    assert "10 fit. " in layout_view(SHOWN["all fit"]).sentence


# -- the picture ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_is_small_and_no_text_lies_on_another(name):
    check_picture(frame.page(SHOWN[name], layout_view), "layouts")


@pytest.mark.parametrize("name", SHOWN)
def test_each_dot_says_its_reason_where_a_pointer_rests(name):
    numbers, told = layout_numbers(SHOWN[name]), hovers(layout_view(SHOWN[name]))
    for way in numbers.too_big:
        assert any(t.startswith(f"{way.name}: ") and way.reason in t for t in told)
    for refused in numbers.refused[:150]:
        assert "{}: {}".format(*refused) in told
    for way in numbers.fitting:
        begins = f"{way.name}: {size_text(way.memory_bytes)}, {seconds(way.time_s)}. "
        (text,) = [t for t in told if t.startswith(begins)]
        assert text.endswith(f"({way.words})")
    assert sum("The fastest that fits" in t for t in told) == bool(numbers.fitting)


def test_dots_stand_where_their_numbers_are():
    numbers = layout_numbers(LayoutSettings())
    root, _ = looked_at(frame.page(LayoutSettings(), layout_view))
    places = {
        node[0].text.split(":")[0]: (float(node.get("cx")), float(node.get("cy")))
        for node in root.iter("{http://www.w3.org/2000/svg}circle")
        if len(node)
    }
    ways = (*numbers.fitting, *numbers.too_big)
    for a, b in itertools.combinations(ways, 2):
        (xa, ya), (xb, yb) = places[a.name], places[b.name]
        assert (a.memory_bytes < b.memory_bytes) == (xa < xb) or abs(xa - xb) < 0.02
        assert (a.time_s < b.time_s) == (ya > yb) or abs(ya - yb) < 0.02
    check_axis(root, numbers, places, 1)
    (limit,) = [node for node in root.iter() if node.get("stroke-dasharray")][:1]
    at = float(re.match(r"M([\d.]+)", limit.get("d"))[1])
    assert all(places[way.name][0] <= at for way in numbers.fitting)
    assert all(places[way.name][0] > at for way in numbers.too_big)


def check_axis(root, numbers, places, unit_s):
    """Fails unless the numbers on the axis of time say what the dots' heights mean."""
    axis = [
        (float(node.get("y")) - 4, float(node.text.replace(",", "")))
        for node in root.iter("{http://www.w3.org/2000/svg}text")
        if node.get("text-anchor") == "end" and re.fullmatch(r"[\d.,]+", node.text)
    ]
    (y0, first), *_, (y1, last) = axis
    slope = (y1 - y0) / math.log(last / first)
    for way in (*numbers.fitting, *numbers.too_big):
        expected = y0 + slope * math.log(way.time_s / unit_s / first)
        assert places[way.name][1] == pytest.approx(expected, abs=0.05)


def test_long_steps_are_told_in_hours():
    chosen = replace(SMALL, model="GPT-3 175B", batch=6144, seq=2**15)
    root, found = looked_at(frame.page(chosen, layout_view))
    assert "step time (hours)" in [text for text, _ in found]
    places = {
        node[0].text.split(":")[0]: (float(node.get("cx")), float(node.get("cy")))
        for node in root.iter("{http://www.w3.org/2000/svg}circle")
        if len(node)
    }
    check_axis(root, layout_numbers(chosen), places, 3600)


def test_bars_are_as_long_as_their_parts():
    root, found = looked_at(frame.page(LayoutSettings(), layout_view))
    numbers = layout_numbers(LayoutSettings())
    boxes = [
        tuple(map(float, re.match(r"M([\d.]+) [\d.]+h([\d.]+)v18h", node.get("d")).groups()))
        for node in root.iter("{http://www.w3.org/2000/svg}path")
        if "v18h" in node.get("d")
    ]
    wide = [width for _, width in boxes]
    for (x, width), (after, _) in itertools.pairwise(boxes):
        assert after == pytest.approx(x + width, abs=0.02) or after == 8  # the second bar begins
    times = [s for s in numbers.times.values() if round(s, 3)]
    sizes = [size for size in numbers.sizes.values() if size]
    assert wide == pytest.approx(
        [656 * s / sum(times) for s in times]
        + [656 * size / numbers.capacity_bytes for size in sizes],
        abs=0.5,
    )
    said = " ".join(text for text, _ in found)
    for part in ("compute", "weights", "activations"):
        assert re.search(rf"{part} [\d.]+", said)


def test_each_control_alone_goes_from_end_to_end():
    for control in LAYOUT_CONTROLS:
        for value in {values(control)[0], values(control)[-1]}:
            check_picture(
                frame.page(replace(SMALL, **{control.name: value}), layout_view), "layouts"
            )


@pytest.mark.slow
def test_each_value_of_each_control_shows_a_picture_or_a_sentence():
    for control in LAYOUT_CONTROLS:
        for value in values(control):
            page = frame.page(LayoutSettings(**{control.name: value}), layout_view)
            check_picture(page, "layouts")


@pytest.mark.slow
def test_every_control_at_its_ends_shows_a_picture_or_a_sentence():
    for i, chosen in enumerate(ends(LAYOUT_CONTROLS)):
        page = frame.page(LayoutSettings(**chosen), layout_view)
        if i % 16 == 0:
            check_picture(page, "layouts")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({c.name: st.sampled_from(values(c)) for c in LAYOUT_CONTROLS}))
def test_any_settings_show_a_picture_or_a_sentence(chosen):
    check_picture(frame.page(LayoutSettings(**chosen), layout_view), "layouts")


def test_the_best_of_an_option_is_none_of_its_values():
    for control in LAYOUT_CONTROLS:
        if BEST in values(control):
            assert getattr(LayoutSettings(), control.name) == BEST


# -- what lab 7 asks its reader to try ------------------------------------------------------------

LIKE_THE_LECTURE = LayoutSettings(recompute="full", v=1, microbatch=1)
LLAMA_3 = LayoutSettings(model="Llama 3.1 405B", gpus=16384, batch=2048, seq=8192)


def test_with_all_recomputed_the_planner_finds_the_lectures_winner():
    assert layout_numbers(LIKE_THE_LECTURE).fitting[0].name == "8×8×16"
    alone = replace(LIKE_THE_LECTURE, sequence_parallel=False)
    assert layout_numbers(alone).fitting[0].name != "8×8×16"


def test_left_free_nothing_is_recomputed_and_activations_fill_the_memory():
    free, full = layout_numbers(LayoutSettings()), layout_numbers(LIKE_THE_LECTURE)
    assert "no recompute" in free.fitting[0].words
    assert free.fitting[0].time_s < 0.75 * full.fitting[0].time_s
    assert free.sizes["activations"] > 0.5 * free.fitting[0].memory_bytes
    assert free.fitting[0].memory_bytes > 0.9 * free.capacity_bytes


def test_zero_2_gives_the_shortest_step_with_llama_3s_own_layout():
    fastest = [layout_numbers(replace(LLAMA_3, zero=zero)).fitting[0] for zero in range(4)]
    assert min(fastest, key=lambda way: way.time_s) is fastest[2]
    assert fastest[2].name == "8×16×128"
    assert fastest[1].name != "8×16×128"
