"""Every number of the chapter on pipelines, computed again, and every drawing drawn again."""

import inspect
import runpy
from fractions import Fraction
from itertools import zip_longest
from math import ceil

import pytest
from chapter import CHAPTERS, Chapter
from torch.distributed import pipelining

from distlab import hardware as hw
from distlab.model import MODELS
from distlab.schedule import (
    Op,
    ascii_art,
    double_buffered_versions,
    flushed,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    newest_versions,
    one_f_one_b,
    pipedream,
    simulate,
    stashed_versions,
    synced_versions,
    terapipe,
    zb_h1,
    zb_h2,
)

CHAPTER = Chapter("lab04-pipeline-bubbles")
FIGURES = CHAPTERS.parent / "figures"

gpt3, tokens = MODELS["GPT-3 175B"], 2_048
h, L, t, p = gpt3.hidden, gpt3.layers, 8, 8
layer = 12 * h**2
state = 16 * L * layer
sent = 2 * tokens * h  # one tensor between two stages, BF16
network = hw.DGX_H100.network.rate_bytes_per_s
sent_s = sent / network
tensor_parallel = L // p * 4 * 2 * (t - 1) / t * sent
kept = tokens * h * (34 + 5 * gpt3.heads * tokens / h)  # a layer's activations, one GPU
forward_s = 2 * (L // p) * layer * tokens / t / (0.4 * hw.H100_SXM.peak_flop_per_s)
step_s = (64 + p - 1) * 3 * forward_s
version = 2 * (L // p) * layer

COLUMNS = {"forward": 1, "backward": 2}


def unit(orders, v: int = 1, **more):
    """Returns a step whose stages take 1 forward and 2 backward, whatever their chunks."""
    return simulate(orders, forward=Fraction(1, v), backward=Fraction(2, v), **more)


def gb(size_bytes: float, digits: int = 1) -> str:
    return f"{size_bytes / 1e9:,.{digits}f} GB"


def percent(share: float, digits: int = 1) -> str:
    return f"{float(share) * 100:.{digits}f} %"


def row(name: str, *cells: object) -> str:
    return f"| {name} | " + " | ".join(map(str, cells)) + " |"


def listed(numbers) -> str:
    return ", ".join(map(str, numbers))


def bubble(stages: int, m: int, v: int = 1) -> Fraction:
    return Fraction(stages - 1, v * m + stages - 1)


def late(orders, c: float, v: int = 1) -> str:
    """Returns the time of a step whose sendings take c, as the chapter writes it."""
    return f"{float(unit(orders, v, delay=Fraction(c)).makespan):g}"


def early(stages: int, m: int):
    """1F1B with twice as many forward passes first."""
    orders = []
    for s in range(stages):
        first = min(m, 2 * (stages - 1 - s) + 1)
        order = [Op("F", i) for i in range(first)]
        for i in range(m):
            order.append(Op("B", i))
            order += [Op("F", first + i)] if first + i < m else []
        orders.append(order)
    return orders


def short_start(stages, m, v):
    """Returns the same order with vp − s forward passes at the start of rank s."""
    orders = []
    for s, order in enumerate(interleaved(stages, m, v)):
        ahead, back = ([op for op in order if op.kind == kind] for kind in "FB")
        first = v * stages - s
        turns = zip_longest(back, ahead[first:])
        orders.append(ahead[:first] + [op for pair in turns for op in pair if op])
    return orders


lone, four, eight = unit(naive(4)), unit(gpipe(4, 4)), unit(one_f_one_b(4, 8))
again = unit(gpipe(4, 4, recompute=True))
slots = simulate(gpipe(4, 4), forward=1, backward=1)
chunks = {v: unit(interleaved(4, 8, v), v) for v in (1, 2, 4)}
trained = pipedream(4, 12)
stash = stashed_versions(trained)
enough = next(m for m in range(1, 1000) if bubble(8, m) < Fraction(1, 10))
h1, h2 = (unit(order(4, 8), weight_grad=1) for order in (zb_h1, zb_h2))
slow_w = simulate(zb_h1(4, 8), forward=3, backward=8, weight_grad=4)
sliced = {
    c: simulate(
        terapipe(4, 2, c), forward=Fraction(1, c), backward=Fraction(2, c), slices=c
    ).bubble_fraction
    for c in (1, 2, 4, 8)
}
llama = {m: (bubble(16, m), bubble(16, m, 8)) for m in (16, 32)}

SAID = {  # what stands in the chapter, with every number computed here
    "GPT-3": f"Trained with 16 bytes for each they fill {gb(state, 0)}. Tensor parallelism over "
    f"the 8 GPUs of a node makes that {gb(state / t, 0)}",
    "8 by 8": f"With 8 stages of 8 GPUs a GPU keeps {gb(state / t / p)}",
    "sent": f"that is {sent / 1e6:.1f} MB each way, and takes {sent_s * 1e3:.1f} ms on a network "
    f"of {network / 1e9:.0f} GB/s",
    "tensor parallel": f"makes each GPU send {gb(tensor_parallel)}",
    "alone": f"Every rank works for {lone.busy[0]} units out of {lone.makespan}: "
    f"{percent(lone.bubble_fraction, 0)} of the time is idle",
    "64 samples": f"64 samples become {64 // 8} microbatches of 8 samples",
    "GPipe": f"that is 7 · 3 = {four.makespan} units, {four.busy[0]} of work and "
    f"{four.idle[0]} idle",
    "fraction": row(
        "bubble fraction", "(p−1)/(m+p−1)", *(percent(bubble(4, m)) for m in (1, 4, 8))
    ),
    "ratio": row("bubble ratio", "(p−1)/m", *(percent(Fraction(3, m)) for m in (1, 4, 8))),
    "1F1B": f"Both take {eight.makespan} units and have a bubble of "
    f"{percent(eight.bubble_fraction)}",
    "X6": f"drawn beside GPipe with four and its {percent(four.bubble_fraction)}",
    "GPipe holds": row("GPipe", *unit(gpipe(4, 8)).peak_in_flight),
    "1F1B holds": row("1F1B", *eight.peak_in_flight),
    "a layer": f"one layer of GPT-3 keeps {gb(kept, 2)} for a sequence of {tokens:,} tokens, on "
    f"one GPU, so twelve keep {gb(L // p * kept)}",
    "rank 0": f"Rank 0 of 8 holds {p} microbatches of these: {gb(p * (L // p) * kept, 0)}, as much "
    f"as all {L} layers keep",
    "16 stages": f"it has {L // 16} layers, holds {min(64, 16)} microbatches, and the product is "
    f"{gb(16 * (L // 16) * kept, 0)} again",
    "GPipe's memory": f"Under GPipe 64 microbatches would take {gb(64 * (L // p) * kept, 0)}",
    "ten per cent": f"asks for m > {enough - 1}. With m = {enough} it is 7/{enough + 7}, or "
    f"{percent(bubble(8, enough), 2)}. Rank 0 then holds "
    f"{simulate(gpipe(8, enough)).peak_in_flight[0]} microbatches under GPipe and "
    f"{simulate(one_f_one_b(8, enough)).peak_in_flight[0]} under 1F1B",
    "by microbatches": f"for eight stages: from {float(bubble(8, 8)) * 100:.1f} at eight to "
    f"{float(bubble(8, 64)) * 100:.2f} at 64, and with two chunks on each rank from "
    f"{float(bubble(8, 8, 2)) * 100:.1f} to {float(bubble(8, 64, 2)) * 100:.2f}.",
    "a finite batch": f"512 sequences over 16 pipelines are m = {512 // 16} for each, one sequence "
    f"in a microbatch, and 7/{512 // 16 + 7} is a bubble of {percent(bubble(8, 512 // 16))}. With "
    f"32 pipelines m is {512 // 32}, and the bubble {percent(bubble(8, 512 // 32))}",
    "inputs": f"takes {sent / 1e6:.1f} MB in place of the {gb(L // p * kept)} behind it: 64 "
    f"microbatches take {gb(64 * sent)}",
    "run again": rf"$m\,t_f$: {again.makespan} units in place of {four.makespan}",
    "a smaller bubble": f"The bubble is {percent(again.bubble_fraction)} here and was "
    f"{percent(four.bubble_fraction)} before",
    "4p": f"By the formula eight stages still lose {percent(bubble(8, 32))} there",
    "GPipe's delay": row("GPipe", *(late(gpipe(4, 8), c) for c in (0, 0.25, 0.5, 1))),
    "1F1B's delay": row("1F1B", *(late(one_f_one_b(4, 8), c) for c in (0, 0.25, 0.5, 1))),
    "early": f"1F1B's {late(one_f_one_b(4, 8), 0.5)} units at c = 0.5 become "
    f"{late(early(4, 8), 0.5)}",
    "GPT-3's delay": f"take {forward_s * 1e3:.1f} ms forward at 40 % of an H100's peak, and "
    f"c was {sent_s * 1e3:.1f} ms",
    "its step": f"a step of {step_s:.2f} s grows by "
    f"{2 * (7 + 63 - ceil(63 / p)) * sent_s * 1e3:.0f} ms under 1F1B, and by "
    f"{2 * 7 * sent_s * 1e3:.0f} ms under GPipe",
    "time of chunks": row(
        "time of the step, in units", *(f"{float(s.makespan):g}" for s in chunks.values())
    ),
    "bubble of chunks": row("bubble", *(percent(s.bubble_fraction) for s in chunks.values())),
    "chunks sent": row("times a microbatch is sent, each way", *(4 * v - 1 for v in chunks)),
    "chunks held": row(
        "rank 0 holds, in stages' activations",
        *(f"{s.peak_in_flight[0] / v:g}" for v, s in chunks.items()),
    ),
    "chunks drawn": f"and the step ends at {float(chunks[2].makespan):g} units",
    "delay drawn": "1F1B pays 8 units at c = 0.5, two chunks on each rank 7, GPipe 3.",
    "no flush": f"Twelve microbatches take {unit(trained).makespan} units, where three steps of "
    f"four with a flush take {unit(flushed(one_f_one_b(4, 4), 3)).makespan}",
    "gaps": f"p − 1 − s updates in between: {stash.gaps(0)[-1]}, {stash.gaps(1)[-1]}, "
    f"{stash.gaps(2)[-1]} and {stash.gaps(3)[-1]} on four ranks",
    "first gaps": "fewer: {}, {}, {} and then {} on rank 0".format(*stash.gaps(0)[:4]),
    "newest": row("newest", "the newest", "the newest", listed(newest_versions(trained).kept)),
    "stashing": row("stashing", "the newest", "the forward's", listed(stash.kept)),
    "vertical sync": row(
        "vertical sync",
        "the version of rank 0's forward",
        "the forward's",
        listed(synced_versions(trained).kept),
    ),
    "2BW": row(
        "double buffering (2BW)",
        "the one before the current",
        "the forward's",
        listed(double_buffered_versions(trained, every=4).kept),
    ),
    "between ranks": "microbatch 4 meets version {} on rank 0 and versions {}, {} and {} after "
    "that".format(*(stash.forward[s][4] for s in range(4))),
    "a version": f"a version of a GPT-3 stage is {gb(version)} over its 8 GPUs; "
    f"{stashed_versions(pipedream(8, 20)).kept[0]} versions on rank 0 are {gb(8 * version, 0)}",
    "zero, 1F1B": row("1F1B", eight.makespan, eight.longest_span, listed(eight.peak_in_flight)),
    "ZB-H1": row("ZB-H1", h1.makespan, h1.longest_span, listed(h1.peak_in_flight)),
    "ZB-H2": row("ZB-H2", h2.makespan, h2.longest_span, listed(h2.peak_in_flight)),
    "zero": f"and yet {h2.makespan} isn't {h2.longest_span}",
    "not the least w": f"it would say {3 * (3 + 4 - 4)}, and {slow_w.makespan - 8 * 11} comes out",
    "slices": row("bubble, p = 4, two sequences", *(percent(share) for share in sliced.values())),
    "W28, 5.9": f"the drawing has {slots.makespan} columns",
    "W29": f"idles 2(p − 1) = {slots.idle[0]} of the {slots.makespan} columns, all four together "
    f"{sum(slots.idle)} of {4 * slots.makespan}: 3/7, or {percent(slots.bubble_fraction)}",
    "W34, W35": f"2(m + p − 1) in unit times: {slots.makespan}, and not {4 + 2 * 3} or "
    f"{2 * 4 + 2 * 3 - 1}, for p = m = 4",
    "X6, left": f"{percent(eight.bubble_fraction)} with eight microbatches, GPipe's too",
    "W38": "That places 8 layers of 16. Rank 0 has {}, {}, {}, {}.".format(
        *(c * 8 + i for c in range(2) for i in range(2))
    ),
    "Llama's layers": f"Its {MODELS['Llama 3.1 405B'].layers} layers are {16 * 8} less two",
    "Llama's batch": "each pipeline got 16 sequences in place of 32",
    "Llama's bubble": f"bubbles would be {percent(llama[16][0])} and {percent(llama[32][0])}. "
    f"With chunks of a single layer, v = {(126 + 2) // 16}, they are {percent(llama[16][1])} and "
    f"{percent(llama[32][1])}",
    "answer 1": f"Answers: {percent(bubble(4, 12))} and {percent(Fraction(3, 12))}.",
    "answer 2": f"{min(100, 100)} and {simulate(one_f_one_b(6, 100)).peak_in_flight[2]}.",
    "answer 4": "Versions {}, {}, {}, {}.".format(*(stash.forward[s][9] for s in range(4))),
}
QUOTED = {"10 %"}  # the givens of questions
DRAWN = {
    "naive": lone,
    "GPipe, four": four,
    "GPipe, eight": unit(gpipe(4, 8)),
    "1F1B": eight,
    "recompute": again,
    "slices": simulate(terapipe(4, 2, 2), **COLUMNS, slices=2),
}


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


@pytest.mark.parametrize("what", DRAWN)
def test_the_drawings_are_the_simulators(what):
    assert f"```text\n{ascii_art(DRAWN[what])}\n```" in CHAPTER.text


def test_there_is_no_other_drawing():
    assert CHAPTER.text.count("```text") == len(DRAWN)


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 30
    assert CHAPTER.unproved(SAID.values()) <= QUOTED


@pytest.mark.parametrize(("stages", "m"), [(1, 3), (2, 5), (3, 2), (4, 8), (5, 4)])
@pytest.mark.parametrize(("f", "b"), [(1, 2), (3, 1), (2, 5)])
def test_its_laws_hold(stages, m, f, b):
    both = f + b
    for orders in (gpipe(stages, m), one_f_one_b(stages, m)):
        step = simulate(orders, forward=f, backward=b)
        assert step.makespan == (m + stages - 1) * both
        assert step.idle == [(stages - 1) * both] * stages
        assert step.bubble_ratio == Fraction(stages - 1, m)
    assert step.peak_in_flight == [min(m, stages - s) for s in range(stages)]
    again = simulate(gpipe(stages, m, recompute=True), forward=f, backward=b)
    assert again.makespan == (m + stages - 1) * both + m * f
    for c in (1, 2):
        late = [
            simulate(order(stages, m), forward=f, backward=b, delay=c).makespan
            - (m + stages - 1) * both
            for order in (gpipe, one_f_one_b)
        ]
        assert late[0] == 2 * c * (stages - 1)
        assert late[1] == 2 * c * (stages - 1 + m - 1 - ceil((m - 1) / stages))


@pytest.mark.parametrize(("stages", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 8, 4), (3, 3, 2)])
def test_the_laws_of_chunks_hold(stages, m, v):
    step = unit(interleaved(stages, m, v), v)
    assert step.makespan == Fraction(3, v) * (m * v + stages - 1)
    assert step.bubble_fraction == bubble(stages, m, v)
    most = [2 * (stages - 1 - s) + (v - 1) * stages + 1 for s in range(stages)]
    assert step.peak_in_flight == [min(m * v, held) for held in most]
    for c in (Fraction(1, 2 * v), Fraction(1, v)):  # up to a chunk's forward pass
        late = unit(interleaved(stages, m, v), v, delay=c).makespan - step.makespan
        assert late == 2 * c * (stages * v - 1)
    short = unit(short_start(stages, m, v), v)
    assert short.makespan == step.makespan
    assert short.peak_in_flight == [min(m * v, v * stages - s) for s in range(stages)]
    assert max(simulate(looped_bfs(stages, m, v)).peak_in_flight) == m * v


@pytest.mark.parametrize(("f", "b", "w"), [(1, 1, 1), (3, 4, 2), (3, 4, 4), (2, 5, 3), (4, 2, 3)])
def test_the_law_of_zb_h1_holds(f, b, w):
    for stages, m in ((2, 3), (4, 4), (4, 8)):
        step = simulate(zb_h1(stages, m), forward=f, backward=b + w, weight_grad=w)
        idle = (stages - 1) * max(f + b - w, f, b)
        assert step.idle == [idle] * stages
        if w <= min(f, b):
            assert idle == (stages - 1) * (f + b - w)  # as the paper has it


@pytest.mark.parametrize("backward", [(1, 2), (2, 1)])
def test_gpipe_takes_as_long_whichever_microbatch_goes_back_first(backward):
    f, b = backward
    orders = [[*order[:8], *reversed(order[8:])] for order in gpipe(4, 8)]
    assert orders[3][7:9] == [Op("F", 7), Op("B", 7)]
    assert simulate(orders, forward=f, backward=b).makespan == (8 + 3) * (f + b)


def test_early_forward_passes_pay_gpipes_delay_and_hold_what_is_said():
    assert unit(early(4, 8)).peak_in_flight == [7, 5, 3, 1]  # in the chapter's words
    assert "for 7, 5, 3 and 1 in flight" in CHAPTER.words


def test_claims_without_a_unit_hold():
    assert h1.idle[0] * 3 == eight.idle[0]  # "leaves a third of the bubble"
    assert 8 * version == state / p  # "as much as its weights, gradients and optimiser states"
    synced = synced_versions(trained)
    assert [synced.gaps(s)[-1] for s in range(4)] == [3] * 4  # "p − 1 updates old"
    assert len({ranks[4] for ranks in synced.forward}) == 1  # one model for microbatch 4
    buffered = double_buffered_versions(trained, every=4)
    assert buffered.forward[0] == buffered.forward[3]
    assert all(span == 24 for span in map(h2.span, range(4)))  # "No row has a hole"
    assert slots.idle == [6] * 4
    last = four.of(3)
    assert (last[0].start, four.makespan - last[-1].end) == (3, 6)  # "at both ends"
    assert four.of(0)[0].start == 0


def test_pytorch_offers_what_is_said():
    offered = [name for name in pipelining.__all__ if name.startswith("Schedule")]
    assert len(offered) == 7  # GPipe, 1F1B, interleaved, breadth-first, two zero-bubble, DualPipeV
    assert inspect.signature(pipelining.ScheduleGPipe).parameters["scale_grads"].default is True
    words = " ".join(inspect.getdoc(pipelining.ScheduleZBVZeroBubble).split())
    assert "only if time forward == time backward input == time backward weights" in words


def test_the_pictures_draw_the_chapters_numbers():
    percents = runpy.run_path(str(FIGURES / "bubble_by_microbatches.py"))["percent"]
    assert percents(64, 1) == pytest.approx(100 * bubble(8, 64))
    assert percents(64, 2) == pytest.approx(100 * bubble(8, 64, 2))
    added = runpy.run_path(str(FIGURES / "delay_price.py"))["added"]
    half = Fraction(1, 2)
    assert [added(name, half) for name in ("1F1B", "v = 2", "GPipe")] == [8, 7, 3]
    held = runpy.run_path(str(FIGURES / "held_microbatches.py"))["steps"]()
    assert [step.peak_in_flight for step in held] == [[8] * 4, [4, 3, 2, 1]]


def test_it_keeps_the_labs_written_answers_to_the_reader():
    for answer in ("285", "286", "144", "31.4"):
        assert answer not in CHAPTER.text
