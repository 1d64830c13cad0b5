"""Every number of the chapter on 3D layouts, computed again."""

import re
import runpy
from math import isclose
from typing import NamedTuple

import pytest
from chapter import CHAPTERS, Chapter

from distlab import cost
from distlab.hardware import DGX_H100, H100_SXM, Link
from distlab.layout import Job
from distlab.model import GPT3_175B, LLAMA3_405B
from distlab.planner import plan, split_layers

CHAPTER = Chapter("lab07-3d-search")
FIGURES = CHAPTERS.parent / "figures"
GB, NODE, BATCH, SEQ = 1e9, 8, 1_536, 2_048
GPT3, LLAMA = (GPT3_175B, 175e9), (LLAMA3_405B, 405e9)
HALF_PEAK = float(H100_SXM.peak_flop_per_s) / 2
NVLINK, NETWORK = 900e9 / 2, 400e9 / 8  # bytes per second, one way
PARTS = ("compute", "bubble", "TP", "PP", "DP")
Grid = tuple[int, int, int]


# The lecture model, part by part.
def kept(model, grid: Grid) -> float:
    """Returns the bytes of one GPU's weights, gradients and ZeRO-1 states."""
    t, p, d = grid
    return (2 + 2 + 12 / d) * model[1] / (t * p)


def inputs(model, grid: Grid) -> float:
    """Returns the bytes of layers' inputs in flight, none of them divided by t."""
    _, p, d = grid
    return min(p, BATCH // d) * model[0].layers / p * 2 * SEQ * model[0].hidden


def at_work(model, grid: Grid) -> float:
    """Returns the bytes of one layer whose forward pass has run again, not divided by t."""
    shape = model[0]
    return SEQ * shape.hidden * (34 + 5 * shape.heads * SEQ / shape.hidden)


def needs(model, grid: Grid) -> float:
    return kept(model, grid) + (inputs(model, grid) + at_work(model, grid)) / grid[0]


def sent(model, grid: Grid, reduces: int = 4) -> tuple[float, float, float]:
    """Returns the bytes that a GPU in the middle sends in a step: TP, PP, DP."""
    t, p, d = grid
    shape, psi = model
    m, message = BATCH // d, 2 * SEQ * shape.hidden
    per_layer = reduces * ring(t) * message
    return shape.layers / p * m * per_layer, 2 * m * message * (p > 1), ring(d) * 2 * psi / (t * p)


def ring(n: int) -> float:
    """Returns how many times its tensor a rank sends in an all-reduce."""
    return 2 * (n - 1) / n


def seconds(model, grid: Grid, *, v=1, reduces=4, flop=8, faster=(1, 1, 1), rate=HALF_PEAK):
    """Returns the seconds of a step by part; `faster`: the GPU, NVLink, the network."""
    t, p, d = grid
    work = flop * model[1] * BATCH * SEQ / (t * p * d) / (rate * faster[0])
    tp, pp, dp = sent(model, grid, reduces)
    idle = work * (p - 1) / (v * (BATCH // d))
    links = (tp / NVLINK / faster[1], v * pp / NETWORK / faster[2], dp / NETWORK / faster[2])
    return dict(zip(PARTS, (work, idle, *links), strict=True))


def step(*args, **more) -> float:
    return sum(seconds(*args, **more).values())


def grids(model, gpus: int = 1_024) -> list[Grid]:
    """Returns every t, p, d: all numbers are tried, and the rules kept."""
    return [
        (t, p, gpus // (t * p))
        for t in range(1, NODE + 1)
        if NODE % t == 0
        for p in range(1, model[0].layers + 1)
        if gpus % (t * p) == 0 and BATCH % (gpus // (t * p)) == 0
    ]


def fitting(model, gpus: int = 1_024, **more) -> list[Grid]:
    """Returns those that fit into 80 GB, fastest first."""
    found = [grid for grid in grids(model, gpus) if needs(model, grid) <= 80 * GB]
    return sorted(found, key=lambda grid: step(model, grid, **more))


def name(grid: Grid) -> str:
    return "×".join(map(str, grid))


def front(model) -> list[Grid]:
    """Returns the layouts that none beats in memory and in time, smallest first."""
    found = fitting(model)
    beaten = lambda a: any(  # noqa: E731
        needs(model, b) < needs(model, a) and step(model, b) < step(model, a) for b in found
    )
    return sorted((a for a in found if not beaten(a)), key=lambda a: needs(model, a))


def row(grid: Grid) -> str:
    parts = " | ".join(f"{s:.2f}" for s in seconds(GPT3, grid).values())
    return f"| {name(grid)} | {needs(GPT3, grid) / GB:.1f} | {parts} | {step(GPT3, grid):.2f} |"


BEST: Grid = (8, 8, 16)
best_s, best = step(GPT3, BEST), seconds(GPT3, BEST)
tp_b, pp_b, dp_b = sent(GPT3, BEST)
SIX = {"4×16×16": step(GPT3, (4, 16, 16), reduces=6), "8×8×16": step(GPT3, BEST, reduces=6)}
tp_8, tp_4 = seconds(GPT3, BEST)["TP"], seconds(GPT3, (4, 16, 16))["TP"]
saved = seconds(GPT3, (4, 16, 16))["bubble"] - best["bubble"]
llama_state = kept(LLAMA, BEST)
llama_links = sum(seconds(LLAMA, BEST)[part] for part in ("TP", "PP", "DP"))
usual = {"flop": 6, "rate": 0.4 * float(H100_SXM.peak_flop_per_s)}
windows = [(s - llama_links) / (1 + 7 / 96) for s in (23.5, 24.5)]  # what rounds to 24 s
tokens = BATCH * SEQ
mfu = 6 * 175e9 * tokens / (best_s * 1_024 * 2 * HALF_PEAK)
table = fitting(GPT3)[:6]
greedy = next((8, p, 128 // p) for p in (1, 2, 4, 8) if needs(GPT3, (8, p, 128 // p)) <= 80 * GB)

# Llama's shape: grouped queries, a gated MLP, two tables.
llama = LLAMA3_405B
h, narrow = llama.hidden, llama.kv_heads * llama.head_dim
llama_layer = 2 * h * h + 2 * h * narrow + 3 * h * llama.ffn
embedding = llama.vocab * h


# Place: what a node of eight sends in 2×32×16, by what it holds.
class Node(NamedTuple):
    pp: float
    dp: float


m, message, gradient = BATCH // 16, 2 * SEQ * GPT3_175B.hidden, 2 * 175e9 / 64
same_stage = Node(pp=8 * 2 * m * message, dp=2 * ring(16) * gradient)  # one hop in four leaves
same_replica = Node(pp=2 * 2 * m * message, dp=8 * ring(16) * gradient)
flat_s = ring(64) * 15e9 / NETWORK
two_levels_s = ring(8) * 15e9 / NVLINK + ring(8) * 15e9 / 8 / NETWORK

# ZeRO-3: three times two bytes of each weight, each time a microbatch comes.
zero3_bytes = 3 * ring(1_536) / 2 * 2 * 175e9
zero3_384_s = 3 * ring(384) / 2 * 2 * 175e9 / NETWORK


def alone_s(gpus: int) -> float:
    return 8 * 175e9 * tokens / gpus / HALF_PEAK


def bubble(p: int, microbatches: int) -> float:
    """Returns the bubble's share of compute and bubble, in per cent."""
    return (p - 1) / (microbatches + p - 1) * 100


def place(rank: int, grid: Grid) -> tuple[int, int, int]:
    """Returns tp, dp, pp: counted up, TP first."""
    t, p, d = grid
    found = [(tp, dp, pp) for pp in range(p) for dp in range(d) for tp in range(t)]
    return found[rank]


tp500, dp500, pp500 = place(500, BEST)
tp300, dp300, pp300 = place(300, BEST)
two, none, deep = (2, 48, 8), (8, 96, 1), (8, 6, 16)
fewer = max(d for d in range(1, 16) if BATCH % d == 0)

# The full planner, on the same job.
JOB = Job(model=GPT3_175B, batch=BATCH, seq=SEQ, gpus=1_024, cluster=DGX_H100)
MEGATRON = {"zero": 1, "sequence_parallel": True, "context": 1}
PLAIN = MEGATRON | {"recompute": "full", "v": 1, "microbatch": 1}
plain, free = plan(JOB, fixed=PLAIN).best, plan(JOB, fixed=MEGATRON).best
FOUR = {4: "four"}

SAID = {  # what stands in the chapter, with every number computed here
    "rank 500": f"It is tp {tp500}, dp {dp500}, pp {pp500}. Its tensor group is "
    f"ranks {500 - tp500} to {500 - tp500 + 7}, one node. Its data group is 16 ranks, each 8 after "
    f"the one before, on 16 nodes. Its pipeline group goes in steps of {8 * 16}",
    "data groups": f"Of those there are {8 * 8} here, each of 16 ranks",
    "TP": f"{tp_b / GB:.0f} GB | NVLink, {NVLINK / GB:.0f} GB/s | {tp_b / NVLINK:.2f} s |",
    "PP": f"{pp_b / GB:.1f} GB | network, {NETWORK / GB:.0f} GB/s | {pp_b / NETWORK:.2f} s |",
    "DP": f"{dp_b / GB:.1f} GB | network, {NETWORK / GB:.0f} GB/s | {dp_b / NETWORK:.2f} s |",
    "TP on the network": f"on the network it would take {tp_b / NETWORK:.2f} s",
    "equal": f"DP and PP are equal here, within {round((dp_b / pp_b - 1) * 100)} %",
    "the rate": f"half of the peak, {HALF_PEAK / 1e12:.1f} TFLOP/s",
    "best": f"{kept(GPT3, BEST) / GB:.1f} GB of state and "
    f"{(needs(GPT3, BEST) - kept(GPT3, BEST)) / GB:.1f} GB of activations make "
    f"{needs(GPT3, BEST) / GB:.1f} GB; and {' + '.join(f'{s:.2f}' for s in best.values())} = "
    f"{best_s:.2f} s",
    "how many": f"So {len(grids(GPT3))}. Of these {len(fitting(GPT3))} fit into 80 GB",
    "the picture": f"{len(fitting(GPT3))} dots left of the dashed line at 80 GB, "
    f"{len(grids(GPT3)) - len(fitting(GPT3))} crosses right of it; 8×8×16 at "
    f"{needs(GPT3, BEST) / GB:.1f} GB and {best_s:.2f} s is lowest",
    **{name(grid): row(grid) for grid in table},
    "Llama": f"{name(fitting(LLAMA)[0])}, {needs(LLAMA, BEST) / GB:.1f} GB, "
    f"{step(LLAMA, BEST):.2f} s. {len(fitting(LLAMA))} of its {len(grids(LLAMA))} layouts fit",
    "the bars": f"compute is {best['compute']:.2f} s everywhere; bubble and TP trade places "
    f"between t = 8 and t = 4; without tensor parallelism the bubble takes "
    f"{seconds(GPT3, (1, 64, 16))['bubble']:.2f} s",
    "t buys": f"saves {saved:.2f} s of bubble and costs {tp_8 - tp_4:.2f} s of all-reduces. With "
    f"t = 1 the bubble would be {seconds(GPT3, (1, 64, 16))['bubble']:.2f} s",
    "the front": f"Here four are left: {name(front(GPT3)[0])} "
    f"({needs(GPT3, front(GPT3)[0]) / GB:.1f} GB, {step(GPT3, front(GPT3)[0]):.2f} s), "
    f"{name(front(GPT3)[1])}, {name(front(GPT3)[2])} and {name(front(GPT3)[3])}. Whoever wants "
    f"longer sequences will take 8×16×8, for {step(GPT3, (8, 16, 8)) - best_s:.2f} s",
    "MFU": f"a step of {best_s:.2f} s reaches {mfu * 100:.1f} % of the peak. 50 % were put in. "
    f"Recomputing alone makes {50 * 6 / 8:.1f} % of these",
    "38.5": f"Llama needs {(llama_state + inputs(LLAMA, BEST)) / GB:.1f} GB; divided by t and with "
    f"no layer at work, {(llama_state + inputs(LLAMA, BEST) / 8) / GB:.1f} GB. The 32 GB one reads",
    "22.6": f"At 6 FLOP and 40 % the step takes {step(LLAMA, BEST, **usual):.1f} s; the 24 s one "
    f"reads need a compute time between {windows[0]:.2f} and {windows[1]:.2f} s",
    "counts": f"at 8 weights and gradients alone take {4 * 175 / 8:.1f} GB, at 16 all state takes "
    f"{kept(GPT3, (1, 16, 64)) / GB:.1f} GB. For Llama it is 32 in place of 16, and at most "
    f"{kept(LLAMA, (1, 32, 32)) / GB:.1f} GB",
    "any activations": f"activations up to {80 - kept(LLAMA, (1, 32, 32)) / GB:.1f} GB",
    "a thread": f"{step(GPT3, table[1]) - best_s:.2f} s lie between the first two, "
    f"{(step(GPT3, table[1]) / best_s - 1) * 100:.1f} %",
    "six": f"{fitting(GPT3, reduces=6)[0] == (4, 16, 16) and '4×16×16'} wins, {SIX['4×16×16']:.2f} "
    f"s against {SIX['8×8×16']:.2f} s",
    "six, why": f"TP's price rises from {tp_8 - tp_4:.2f} to {1.5 * (tp_8 - tp_4):.2f} s, and the "
    f"bubble saved is {saved:.2f} s",
    "links decide": "With a network twice as fast, "
    f"{name(fitting(GPT3, faster=(1, 1, 2))[0])} wins; with half of NVLink's rate, "
    f"{name(fitting(GPT3, faster=(1, 0.5, 1))[0])}",
    "the set": f"all within {(step(GPT3, table[-1]) / best_s - 1) * 100:.1f} %",
    "uneven": f"some have {max(split_layers(126, 8))}, and {max(split_layers(126, 8))} to "
    f"{126 / 8:.2f} makes every slot {(max(split_layers(126, 8)) / (126 / 8) - 1) * 100:.1f} %",
    "1.5": f"{max(split_layers(96, 64))} to {96 / 64}, a third longer. The lecture model thinks "
    f"8×64×2 takes {step(GPT3, (8, 64, 2)):.2f} s",
    "tables": f"Llama's two tables hold {2 * embedding / 1e9:.1f} billion parameters, and one "
    f"table is {embedding / llama_layer:.2f} of a layer",
    "planner": f"also picks {plain.layout}: {plain.memory_bytes / GB:.1f} GB, since gradients are "
    f"summed in FP32, and {plain.step_time_s:.2f} s",
    "planner, free": f"it picks {free.layout} with {free.layout.v} chunks a stage, microbatches of "
    f"{FOUR[free.layout.microbatch]} and {'nothing' if free.layout.recompute == 'none' else '?'} "
    f"recomputed, and fills {free.memory_bytes / GB:.1f} GB: {free.step_time_s:.2f} s",
    "greedy": f"gives {name(greedy)} here, {step(GPT3, greedy):.2f} s",
    "shares": f"Of {best_s:.2f} s, {best['compute'] / best_s * 100:.1f} % are compute, "
    f"{best['TP'] / best_s * 100:.1f} % TP, {best['bubble'] / best_s * 100:.1f} % bubble, "
    f"{best['DP'] / best_s * 100:.1f} % DP and {best['PP'] / best_s * 100:.1f} % PP",
    "faster GPU": f"| the GPU | {best_s - step(GPT3, BEST, faster=(2, 1, 1)):.2f} s,",
    "faster NVLink": f"| NVLink | {best_s - step(GPT3, BEST, faster=(1, 2, 1)):.2f} s |",
    "faster network": f"| the network | {best_s - step(GPT3, BEST, faster=(1, 1, 2)):.2f} s |",
    "Amdahl": f"A part of {best['TP'] / best_s * 100:.1f} % can't save more than "
    f"{best['TP'] / best_s * 100:.1f} %",
    "shifts": f"the links' {sum(best[x] for x in PARTS[2:]):.2f} s are "
    f"{sum(best[x] for x in PARTS[2:]) / step(GPT3, BEST, faster=(2, 1, 1)) * 100:.1f} % of the",
    "interleaving": f"sends twice as much: {step(GPT3, BEST, v=2):.2f} s. With v = 4 it is "
    f"{step(GPT3, BEST, v=4):.2f} s",
    "a stage": f"a node sends {same_stage.pp / GB:.1f} GB for PP and {same_stage.dp / GB:.1f} GB "
    "for DP",
    "a replica": f"{same_replica.pp / GB:.1f} GB for PP, but every GPU's ring of gradients leaves: "
    f"{same_replica.dp / GB:.1f} GB",
    "both": f"{sum(same_stage) / GB:.0f} against {sum(same_replica) / GB:.0f} GB",
    "two levels": f"of gradients on 64 GPUs take {flat_s:.3f} s flat and {two_levels_s:.3f} s "
    f"this way. A node's bytes on the network fall only from {ring(64) * 15:.2f} to "
    f"{ring(8) * 15:.2f} GB",
    "its curve": f"the flat ring jumps to {ring(16) * 15e9 / NETWORK:.2f} s with the second node, "
    f"the hierarchical one rises from {ring(8) * 15e9 / NVLINK:.2f} s to {two_levels_s:.2f} s",
    "ZeRO-3": f"state {16 * 175 / 1_536:.1f} GB, and no axis but d. But 3 · 2Ψ bytes are sent, "
    f"{zero3_bytes / GB:,.0f} GB, for {zero3_bytes / NETWORK:.1f} s, beside {alone_s(1_536):.1f} s "
    f"of compute. Even perfectly hidden the step takes {zero3_bytes / NETWORK:.1f} s; "
    f"{name(fitting(GPT3, 1_536)[0])} takes {step(GPT3, fitting(GPT3, 1_536)[0]):.2f} s",
    "ZeRO-3 again": f"compute is {alone_s(384):.1f} s and {zero3_384_s:.1f} s could hide",
    "TP2": f"the bubble: {bubble(48, BATCH // 8):.1f} % of compute and bubble together, "
    f"{seconds(GPT3, two)['bubble']:.2f} s of {step(GPT3, two):.2f} s. {name(deep)} takes "
    f"{step(GPT3, deep):.2f} s",
    "TP2 again": f"and its bubble is {bubble(48, BATCH // 8):.1f} %",
    "no DP": f"has a bubble fraction of {bubble(125, BATCH):.1f} %. PP16 with 8 replicas has "
    f"{bubble(16, BATCH // 8):.1f} %",
    "no DP, in time": f"8×96×1 has a bubble of {seconds(GPT3, none)['bubble']:.2f} s, yet PP costs "
    f"{seconds(GPT3, none)['PP']:.2f} s, and the step takes {step(GPT3, none):.2f} s against "
    f"{step(GPT3, deep):.2f} s",
    "no DP, again": f"| {bubble(125, BATCH):.1f} % with 125 stages and 1,536 microbatches",
    "elastic": f"{fewer} replicas, {BATCH // fewer} microbatches each instead of {BATCH // 16}",
    "elastic, GPUs": f"{64 * fewer} GPUs work, {1_024 - 8 - 64 * fewer} healthy ones wait, and the "
    f"step takes {step(GPT3, (8, 8, fewer)):.2f} s",
    "elastic, uneven": f"15 replicas with {BATCH // 15} or {-(-BATCH // 15)} microbatches",
    "misread": f"they are equal: {pp_b / GB:.1f} and {dp_b / GB:.1f} GB",
    "misread GPUs": f"Both are {8 * 16 * 64:,}. For 1,024 GPUs d is {1_024 // 128}, or "
    f"{1_024 // 64}",
    "misread, printed": f"{(llama_state + inputs(LLAMA, BEST)) / GB:.1f} or "
    f"{(llama_state + inputs(LLAMA, BEST) / 8) / GB:.1f} GB, and "
    f"{step(LLAMA, BEST, **usual):.1f} s",
    "question 1": f"tp {tp300}, dp {dp300}, pp {pp300}",
    "question 3": f"{4 * 175 / 8:.1f} GB, too much before any state",
}
QUOTED = {  # published runs, claims, and what is given
    "175 billion",
    "405 billion",
    "145.6 billion",
    "1,008 billion",
    "177 billion",
    "462 billion",
    "15 GB",
    "30 %",
}


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 50
    assert CHAPTER.unproved(SAID.values()) <= QUOTED


def test_links_are_those_of_the_cluster():
    assert DGX_H100.node_link.rate_bytes_per_s == NVLINK
    assert DGX_H100.network.rate_bytes_per_s == NETWORK
    assert DGX_H100.gpus_per_node == NODE
    assert H100_SXM.memory_bytes == 80 * GB


def test_the_bubble_is_set_by_t():
    for t, p, d in grids(GPT3):
        assert (p - 1) / (BATCH // d) == pytest.approx((1_024 / t - d) / BATCH)
    rising = [seconds(GPT3, (8, p, 128 // p))["bubble"] for p in (4, 8, 16)]
    assert rising[-1] - rising[0] < 0.15


def test_what_fits_is_told_by_t_times_p_alone():
    for model, least in ((GPT3, 16), (LLAMA, 32)):
        assert all((needs(model, g) <= 80 * GB) == (g[0] * g[1] >= least) for g in grids(model))
        inside = [kept(model, g) for g in grids(model) if g[0] * g[1] >= least]
        assert max(inside) + 24.6 * GB <= 80 * GB
        assert min(kept(model, g) for g in grids(model) if g[0] * g[1] < least) > 80 * GB
    assert max(kept(GPT3, g) for g in fitting(GPT3)) == kept(GPT3, (1, 16, 64))


def test_claims_without_a_number_hold():
    assert not any(126 % p == 0 for _, p, _ in fitting(LLAMA))
    assert min(p for _, p, _ in fitting(LLAMA)) > 2
    assert LLAMA3_405B.layers == 8 * 16 - 2
    for grid in ((8, 4, 32), (8, 8, 16), (8, 16, 8), (8, 64, 2)):  # L layers' inputs, any p <= m
        assert inputs(GPT3, grid) == 96 * 2 * SEQ * GPT3_175B.hidden
    assert 38 < tp_b / dp_b < tp_b / pp_b < 43
    assert max(best["TP"] / best["PP"], best["TP"] / best["DP"]) < 5
    assert {t for t, _, _ in table} == {4, 8}
    assert (min(p for _, p, _ in table), max(p for _, p, _ in table)) == (2, 16)
    one = (1, 64, 16)
    assert 0.5 < seconds(GPT3, one)["bubble"] / seconds(GPT3, one)["compute"] < 0.75
    assert [split_layers(96, 48).count(2), split_layers(126, 16)] == [48, (7, *[8] * 14, 7)]
    assert BATCH == 15 * 102 + 6  # six replicas take one microbatch more
    assert step(GPT3, fitting(GPT3, 768)[0]) == step(GPT3, deep)
    assert (plain.stack.gradient_bytes, plain.stack.tensor_beside) == (4, True)
    assert plain.times["TP"] == 0


def test_the_formula_of_two_levels_is_what_the_cost_of_rings_says():
    node, network = Link("node", NVLINK), Link("network", NETWORK)
    inside = cost.ring_time_s("reduce_scatter", 8, 15e9, node)
    inside += cost.ring_time_s("all_gather", 8, 15e9 / 8, node)
    across = cost.ring_time_s("all_reduce", 8, 15e9 / 8, network)
    assert isclose(float(inside + across), two_levels_s)
    assert isclose(float(cost.collective_time_s("all_reduce", 15e9, range(64), DGX_H100)), flat_s)


def test_pictures_show_what_formulas_say():
    points = runpy.run_path(str(FIGURES / "layouts_gpt3.py"))["POINTS"]
    assert set(points) == set(map(name, grids(GPT3)))
    for grid in grids(GPT3):
        size_bytes, time_s = points[name(grid)]
        assert isclose(size_bytes, needs(GPT3, grid), rel_tol=1e-3)
        assert isclose(time_s, step(GPT3, grid), abs_tol=6e-4)
    drawn = runpy.run_path(str(FIGURES / "layouts_breakdown.py"))
    for grid in (*table[:5], (1, 64, 16)):
        found = (drawn["COMPUTE_S"], *drawn["PARTS"][name(grid)])
        assert found == pytest.approx(tuple(seconds(GPT3, grid).values()), abs=6e-5)
    bars = runpy.run_path(str(FIGURES / "six_all_reduces.py"))["bars"]()
    totals = {text: sum(parts.values()) for text, parts in bars.items()}
    expected = {f"{g}, six": s for g, s in SIX.items()}
    expected |= {f"{name(g)}, four": step(GPT3, g) for g in (BEST, (4, 16, 16))}
    assert totals == pytest.approx(expected, abs=6e-4)
    curve = runpy.run_path(str(FIGURES / "hierarchical_all_reduce.py"))
    assert isclose(curve["flat_s"](8), flat_s)
    assert isclose(curve["hierarchical_s"](8), two_levels_s)
    groups = runpy.run_path(str(FIGURES / "mesh_groups.py"))["group"]
    for axis, said in (("tp", [4, 5, 6, 7]), ("dp", [1, 5, 9, 13]), ("pp", [5, 21])):
        assert groups(5, axis) == said
        fixed = [i for i, other in enumerate(("tp", "dp", "pp")) if other != axis]
        mine = place(5, (4, 2, 4))
        same = [r for r in range(32) if all(place(r, (4, 2, 4))[i] == mine[i] for i in fixed)]
        assert same == said


def test_published_runs_are_those_of_the_data():
    import csv
    from pathlib import Path

    import distlab.planner as planner

    data = Path(planner.__file__).parent / "data"
    found = set()
    for file, reached in (
        ("narayanan2021_table1.csv", "achieved_tflops_per_gpu_incl_recompute"),
        ("megatron_core_h100_weak_scaling.csv", "tflops_per_gpu_model"),
        ("llama3_table4.csv", "tflops_per_gpu"),
    ):
        with open(data / file, encoding="utf-8", newline="") as lines:
            for run in csv.DictReader(lines):
                grid = f"{run['tp']}×{run['pp']}×{run['dp']}"
                found.add((int(run["n_gpus"]), grid, round(float(run[reached]))))
    rows = re.findall(r"\| ([\d,]+) [AH]100 \| (\d+×\d+×\d+) \| (\d+)", CHAPTER.text)
    assert len(rows) == 5
    for gpus, grid, rate in rows:
        assert (int(gpus.replace(",", "")), grid, int(rate)) in found
