"""Numbers of the lecture that notebooks and chapters print, read where a reader meets them.

Each row of `FACTS` says which fact it is (section and number of the course's list of recomputed
lecture facts), where it stands, in which words, and what the numbers there must be: computed here
from first principles, and compared as closely as they are printed. A `#` in the words stands for a
number. Words that no longer stand there fail as well: then the row or the text is out of date.
"""

import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import pytest
from chapter import Chapter
from executed import LABS, of, printed
from nbformat.v4 import new_code_cell, new_output


class Fact(NamedTuple):
    """A number in a cell of a notebook, or in a chapter (no cell)."""

    number: str
    where: str
    cell: str
    says: str
    values: tuple[float, ...]


NUMBER = r"(-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?)"


def pattern(says: str) -> re.Pattern:
    """Returns the words as an expression with a group for each number."""
    words = " ".join(says.split()).split("#")
    start = "" if words[0] else r"(?<![\d.,])"  # a number is found whole or not at all
    end = "" if words[-1] else r"(?!\d|[.,]\d)"
    return re.compile(start + NUMBER.join(map(re.escape, words)) + end)


def rounds_to(text: str, value: float) -> bool:
    """Tells whether a number is this value, as closely as it is printed."""
    mantissa, _, power = text.replace(",", "").partition("e")
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return abs(float(text.replace(",", "")) - value) <= 0.5 * unit * (1 + 1e-9)


def problems(fact: Fact, text: str) -> list[str]:
    """Returns what is wrong with a fact in this text, nothing if all is well."""
    place = f"{fact.number}, {fact.where} {fact.cell}".strip()
    found = pattern(fact.says).findall(" ".join(text.split()))
    if not found:
        return [f"{place}: these words stand there no longer: {fact.says}"]
    told = [groups if isinstance(groups, tuple) else (groups,) for groups in found]
    return [
        f"{place}: {number} where {value:.6g} comes out: {fact.says}"
        for groups in told
        for number, value in zip(groups, fact.values, strict=True)
        if not rounds_to(number, value)
    ]


# Memory: GPT-3, one sequence, on t GPUs.
h, a, L, s, b, t = 12_288, 96, 96, 2_048, 1, 8
sbh = s * b * h
kept = 34 * sbh + 5 * a * s * s * b
layer = 4 * h * h + 2 * h * 4 * h
full = 2 * sbh
tp, sp, selective = 10 * sbh + (kept - 10 * sbh) / t, kept / t, 34 * sbh / t
qkv = 3 * 8_192 * 8_192
per_param = 2 + 2 + 4 + 4 + 4
GB, MB = 1e9, 1e6

# Time: 7.5 billion parameters on 64 H100s, 16,384 tokens on each.
peak, hbm = 989e12, 3.35e12
nvlink, network = 900e9 / 2, 400e9 / 8  # bytes per second, one way
params, tokens, n, mfu = 7.5e9, 16_384, 64, 0.4
step_s = 6 * params * tokens / (mfu * peak)
gradient = 2 * params
sent = (n - 1) / n * gradient + (n - 1) / n * gradient  # reduce-scatter, all-gather
middle = (n - 1) * gradient
waits = (sent / nvlink, sent / nvlink / step_s * 100, sent / network, sent / network / step_s * 100)
corners = (peak / hbm, peak / nvlink, peak / network, peak / (2 * nvlink))

# Tensor parallelism: one all-reduce, and a layer's arithmetic on t GPUs.
reduce = 2 * sbh
reduce_sent = 2 * (t - 1) / t * reduce
layer_s = 6 * layer * s * b / t / (mfu * peak)
layer_scores_s = layer_s + 3 * 2 * (2 * s * s * h) * b / t / (mfu * peak)
tp_nvlink, tp_network = 4 * reduce_sent / nvlink, 4 * reduce_sent / network

# GPT-2's gradients in FP32, in the order in which backward makes them, in soft caps.
w = 768
block = [w, w, w * 3 * w, 3 * w, w * w, w, w, w, w * 4 * w, 4 * w, 4 * w * w, w]
gpt2 = [50_257 * w, 1_024 * w, *block * 12, w, w]
buckets = [0]
for size in reversed(gpt2):
    if buckets[-1] >= (25 if buckets[1:] else 1) * 2**20:
        buckets.append(0)
    buckets[-1] += 4 * size
bucket_mib = [size / 2**20 for size in buckets]
hop_s, mib25 = 9.6e-6, 25 * 2**20
hops_ms = 2 * (n - 1) * hop_s * 1e3


def ring_ms(size: float) -> float:
    return hops_ms + 2 * (n - 1) / n * size / network * 1e3


# Pipelines: four stages, forward 1 and backward 2, as the lecture draws them.
def step_time(stages: int, m: int, v: int = 1) -> float:
    """Returns the time of a step: v·m chunks of work for each stage, p − 1 of idle time."""
    return (v * m + stages - 1) * 3 / v


def bubble(stages: int, m: int, v: int = 1) -> float:
    """Returns idle time over all time in per cent."""
    return (1 - 3 * m / step_time(stages, m, v)) * 100


def ratio(stages: int, m: int) -> float:
    """Returns idle time over the time of the work in per cent."""
    return (step_time(stages, m) - 3 * m) / (3 * m) * 100


def drawing(*rows: str) -> str:
    """Returns the lecture's drawing, with a number for each stage to compare."""
    return " ".join(f"rank # {row}" for row in rows)


NAIVE = drawing("0·········aa", "·0······aa··", "··0···aa····", "···0aa······")
GPIPE = drawing(
    "0123·········aabbccdd",
    "·0123······aabbccdd··",
    "··0123···aabbccdd····",
    "···0123aabbccdd······",
)
ONE_F_ONE_B = drawing(
    "0123······aa4bb5cc6dd7ee·ff·gg·hh",
    "·012····aa3bb4cc5dd6ee7ff·gg·hh··",
    "··01··aa2bb3cc4dd5ee6ff7gg·hh····",
    "···0aa1bb2cc3dd4ee5ff6gg7hh······",
)
# Twelve layers on four stages: all partitions tried, and greedy cuts at the mean.
layer_ms = [3, *[1] * 10, 4]


def stage_ms(bounds: Sequence[int]) -> list[int]:
    """Returns the time of each stage."""
    return [sum(layer_ms[i:j]) for i, j in pairwise(bounds)]


partitions = [(0, *cuts, 12) for cuts in combinations(range(1, 12), 3)]
slot_ms = min(max(stage_ms(bounds)) for bounds in partitions)
best = [bounds for bounds in partitions if max(stage_ms(bounds)) == slot_ms]
even_ms, printed_ms = stage_ms((0, 3, 6, 9, 12)), stage_ms((0, 2, 6, 10, 12))
greedy = [0]
for end in range(1, 12):
    if sum(layer_ms[greedy[-1] : end]) >= sum(layer_ms) / 4:
        greedy.append(end)
greedy_ms = stage_ms((*greedy, 12))


# ZeRO: bytes of one rank, and numbers that it sends for each parameter.
def zero_bytes(count: float, ranks: int, stage: int, shard: float | None = None) -> float:
    """Returns the bytes kept: what is in shards from this stage on, and what is whole."""
    shard = count / ranks if shard is None else shard
    in_shards = {0: 0, 1: 12, 2: 12 + 2, 3: 12 + 2 + 2}[stage]
    return (per_param - in_shards) * count + in_shards * shard


def zero_sent(ranks: int, stage: int, m: int = 1) -> float:
    """Returns what rings make of the calls of a step: one (n − 1)/n for each of them."""
    return {0: 1 + 1, 1: 1 + 1, 2: m + 1, 3: m * (1 + 1 + 1)}[stage] * (ranks - 1) / ranks


figure_1 = [zero_bytes(params, n, stage) / GB for stage in range(4)]
mlp = [zero_bytes(1_633, 4, stage, shard=409) / 1_633 for stage in range(4)]
one_step, eight = ([zero_sent(4, stage, m) for stage in range(4)] for m in (1, 8))
adam_first = (1 - 0.9) / (1 - 0.999) ** 0.5  # m over the root of v after one gradient of 1
too_long = {t: (1 - 0.9**t) / (1 - 0.999**t) ** 0.5 for t in range(1, 10_001)}
longest = max(too_long, key=too_long.get)


# 3D: GPT-3 and a model of 405 billion parameters on 1,024 H100s, 1,536 sequences of s tokens.
GRIDS = [(2**i, 2**j, 2 ** (10 - i - j)) for i in range(4) for j in range(7)]
GRIDS = [grid for grid in GRIDS if 1_536 % grid[2] == 0]
MODELS = {"GPT-3": (175e9, 96, 12_288, 96), "405B": (405e9, 126, 16_384, 128)}


def state_gb(model: str, grid: tuple[int, int, int]) -> float:
    """Returns what a GPU keeps between steps, with ZeRO-1."""
    return MODELS[model][0] / (grid[0] * grid[1]) * (2 + 2 + 12 / grid[2]) / GB


def inputs_gb(model: str, grid: tuple[int, int, int]) -> float:
    """Returns the inputs of the layers in flight, before t divides them."""
    _, layers, hidden, _ = MODELS[model]
    return min(grid[1], 1_536 / grid[2]) * layers / grid[1] * 2 * s * hidden / GB


def gpu_gb(model: str, grid: tuple[int, int, int]) -> float:
    """Returns the memory of a GPU: state, inputs, and one layer that is computed again."""
    _, _, hidden, heads = MODELS[model]
    again = (34 * s * hidden + 5 * heads * s * s) / GB
    return state_gb(model, grid) + (inputs_gb(model, grid) + again) / grid[0]


def parts_s(
    model: str, grid: tuple[int, int, int], reduces: int = 4, flop: int = 8, share: float = 0.5
) -> list[float]:
    """Returns the seconds of a step: compute, bubble, TP, PP, DP."""
    count, layers, hidden, _ = MODELS[model]
    m, cut = 1_536 / grid[2], grid[0] * grid[1]
    work = flop * count * 1_536 * s / 1_024 / (share * peak)
    each = 2 * s * hidden
    tp = layers / grid[1] * m * reduces * each * 2 * (1 - 1 / grid[0]) / nvlink
    dp = 2 * (1 - 1 / grid[2]) * 2 * count / cut / network
    return [work, work * (grid[1] - 1) / m, tp, 2 * m * each / network * (grid[1] > 1), dp]


G8 = (8, 8, 16)
FIT = {model: sum(gpu_gb(model, grid) <= 80 for grid in GRIDS) for model in MODELS}
SENT = [
    rate * time_s / GB
    for rate, time_s in zip((nvlink, network, network), parts_s("GPT-3", G8)[2:], strict=True)
]
links_405b = sum(parts_s("405B", G8)[2:])
FASTEST = {
    model: sorted(
        (grid for grid in GRIDS if gpu_gb(model, grid) <= 80),
        key=lambda grid: sum(parts_s(model, grid)),
    )[:6]
    for model in MODELS
}
printed_gb = [state_gb("405B", G8) + inputs_gb("405B", G8) / k for k in (1, 8)]


layer_kept = 34 * sbh + 5 * a * s * s  # what a layer of GPT-3 keeps
# Llama's layers share what its tables leave; stage 1 of 8 has 16, and 7 microbatches in flight.
one_layer = (405_853_388_800 - 2 * 128_256 * 16_384 - 16_384) / 126
fullest_gb = (
    16 * one_layer / 8 * (2 + 2 + 12 / 16) + (7 * 16 * 2 + 34 + 5 * 16) * s * 16_384 / 8
) / GB


def states(model: str, *shares: int) -> list[float]:
    """Returns what a GPU keeps between steps where so many share a replica."""
    return [state_gb(model, (tp, 1, 1_024 // tp)) for tp in shares]


TOO_LARGE = "t · p = 4: # GB, doesn't fit t · p = 8: # GB, doesn't fit"
FITS_FROM_16 = f"{TOO_LARGE} t · p = 16: # GB, fits"
FITS_FROM_32 = f"{TOO_LARGE} t · p = 16: # GB, doesn't fit t · p = 32: # GB, fits"


def table_row(p: str, model: str, grid: tuple[int, int, int]) -> tuple:
    """Returns the fact of a row: GB, five parts, their sum."""
    found = parts_s(model, grid)
    name = "×".join(map(str, grid))
    return (p, f"| {name} | # | # | # | # | # | # | # |", gpu_gb(model, grid), *found, sum(found))


def search_table(p: str, model: str, name: str) -> tuple:
    """Returns the fact of a table of the six fastest: GB, seconds, bubble in per cent, links."""
    says, values = f"{name} GB s bubble TP PP DP", []
    for grid in FASTEST[model]:
        work, idle, *links = parts_s(model, grid)
        says += f" {'×'.join(map(str, grid))} # # #% # # #"
        total_s, share = work + idle + sum(links), idle / (work + idle) * 100
        values += [gpu_gb(model, grid), total_s, share, *links]
    return (p, says, *values)


RANKS = (0, 1, 2, 3)
HELD = "rank 3 | |---|---|---|---|---|"

LAB1, LAB2, LAB3 = "lab01-memory-math", "lab02-data-parallel", "lab03-tensor-parallel"
LAB4, LAB5 = "lab04-pipeline-bubbles", "lab05-layer-partitioning"
LAB6, LAB7 = "lab06-zero", "lab07-3d-search"
WITH_FACTS = (LAB1, LAB2, LAB3, LAB4, LAB5, LAB6, LAB7)


def in_lab(lab: str, cell: str, *rows: tuple) -> list[Fact]:
    return [Fact(number, lab, cell, says, tuple(values)) for number, says, *values in rows]


def in_chapter(lab: str, *rows: tuple) -> list[Fact]:
    return in_lab(f"chapter {lab}", "", *rows)


FACTS = [
    *in_lab(
        LAB1,
        "idea-numbers",
        ("1.1", "# bytes, #% of them the optimiser's", per_param, 12 / 16 * 100),
        ("1.3", "7.5 B params: # GB fill # GPUs", 120, 120 / 80),
        ("1.8", "70 B params: # GB fill # GPUs", per_param * 70, per_param * 70 / 80),
        ("1.3", "175 B params: # GB fill # GPUs", per_param * 175, per_param * 175 / 80),
        ("1.2", "400 B params: # GB fill # GPUs", per_param * 400, per_param * 400 / 80),
        ("1.3", "405 B params: # GB fill # GPUs", per_param * 405, per_param * 405 / 80),
        ("1.3", "2,000 B params: # GB fill # GPUs", per_param * 2_000, per_param * 2_000 / 80),
    ),
    *in_lab(LAB1, "idea-box", ("1.8", "# / 80 is # exactly", 16 * 70, 16 * 70 / 80)),
    *in_lab(LAB1, "count_params-box", ("1.16", "12h² = # billion", layer / 1e9)),
    *in_lab(
        LAB1,
        "count_params-numbers",
        ("1.16", "a layer of GPT-3: # billion", layer / 1e9),
        ("1.17", "QKV at h = 8,192: # million", qkv / 1e6),
        ("1.17", "# GB of weights in BF16 # GB to train them", 2 * qkv / GB, 16 * qkv / GB),
    ),
    *in_lab(
        LAB1,
        "model_state_bytes-look",
        ("1.3", "Adam: # GB (weights # GB, gradients # GB, master weights # GB", 120, 15, 15, 30),
    ),
    *in_lab(
        LAB1,
        "activations-numbers",
        ("1.4", "one layer # sbh # GB", kept / sbh, kept / GB),
        ("1.4", "softmax, its mask, what meets V # sbh", 5 * a * s / h),
        ("1.5", "96 layers: # GB", L * kept / GB),
    ),
    *in_lab(LAB1, "activation_bytes-text", ("1.4", "sbh · (# + #as/h)", 34, 5)),
    *in_lab(
        LAB1,
        "activation_bytes-look",
        ("1.7", "t = 8: # GB (activations", tp / GB),
        ("1.7", "+ sequence: # GB (activations", sp / GB),
        ("1.7", "+ selective: # GB (activations", selective / GB),
        ("1.6", "full instead: # GB (activations", full / GB),
    ),
    *in_lab(
        LAB1,
        "saved_activation_bytes-predict",
        ("1.4", "34 + 5 · 96 · 2,048 / 12,288 = #", kept / sbh),
    ),
    *in_lab(
        LAB1,
        "saved_activation_bytes-look",  # two norms keep a mean and a scale in FP32
        ("1.4", "GPT-3: # sbh, recomputed # sbh", kept / sbh + 2 * 2 * 4 / h, 2),
    ),
    *in_lab(
        LAB1,
        "flops-numbers",
        ("2.2", "# FLOP at # TFLOP/s", 6 * params * tokens, mfu * peak / 1e12),
        ("2.2", "# s; with full recompute # s", step_s, 8 / 6 * step_s),
    ),
    *in_lab(
        LAB1,
        "links-numbers",
        ("1.13", "A100 SXM 40 GB # # # #", 312, 40, 1.555, 600 / 2),
        ("1.12", "A100 SXM 80 GB # # # #", 312, 80, 2.039, 600 / 2),
        ("1.12", "H100 SXM 80 GB # # # #", peak / 1e12, 80, hbm / 1e12, nvlink / GB),
        ("1.12", "B200 SXM 180 GB # # # #", 2_250, 180, 8, 1_800 / 2),
        ("2.5", "HBM: # FLOP per byte NVLink, one way: # FLOP per byte", *corners[:2]),
        ("2.5", "network: # FLOP per byte NVLink, both ways added: #", *corners[2:]),
    ),
    *in_lab(
        LAB1,
        "links-box",
        ("2.5", "sends* at #: it is #", nvlink / GB, corners[1]),
        ("2.5", "“about # FLOP for each byte over NVLink.” That divides by #", 1_100, 900),
        ("1.13", "“The A100 has # TB/s”: the one with # GB. With # GB it has #", 1.6, 40, 80, 2.04),
        ("1.12", "“H100: # TFLOP/s”: with sparsity", 2 * peak / 1e12 + 1),
    ),
    *in_lab(
        LAB1,
        "links-look",
        ("2.5", "HBM reaches it at # FLOP per byte; NVLink, one way reaches it at #", *corners[:2]),
        ("2.5", "network reaches it at # FLOP per byte", corners[2]),
    ),
    *in_lab(
        LAB1,
        "fitting-look",
        ("2.4", "64 ranks: # s, if all on NVLink # s", waits[2], waits[0]),
        ("1.8", "70 B: # GPUs", 14),
    ),
    *in_lab(
        LAB2,
        "idea-numbers",
        ("2.2", "compute: # s", step_s),
        ("2.3", "gradient: # GB a GPU sends # GB", gradient / GB, sent / GB),
        ("2.3", "# s at # GB/s one way: #% of the compute 0.591", waits[0], 450, waits[1]),
        ("2.4", "3.5% of the compute # s at # GB/s one way: #% of", waits[2], 50, waits[3]),
    ),
    *in_lab(LAB2, "idea-lie", ("2.4", "the network, and # s is", waits[2])),
    *in_lab(
        LAB2,
        "middle-numbers",
        ("3.4", "out of GPU 0: # GB, and as many into it", middle / GB),
        ("2.1", "on the ring: # GB out of every GPU", sent / GB),
        ("3.4", "in all: # GB through the middle # GB", 2 * middle / GB, n * sent / GB),
    ),
    *in_lab(
        LAB2,
        "ddp_gradient-look",  # three samples with -2y = -2, one with -10
        ("2.6", "mean of the two: #, #; yours: #, #", -6, -6, (3 * -2 - 10) / 4, (3 * -2 - 10) / 4),
    ),
    *in_lab(
        LAB2,
        "overlap-numbers",
        ("3.1", "25 MiB: # ms, #% of it latency", ring_ms(mib25), hops_ms / ring_ms(mib25) * 100),
    ),
    *in_lab(
        LAB2,
        "make_buckets-look",
        ("3.2", f"# buckets, in MiB: {' '.join('#' * len(buckets))}", len(buckets), *bucket_mib),
    ),
    *in_lab(LAB2, "real-buckets-torch", ("3.2", "# buckets; equal to yours: True", len(buckets))),
    *in_lab(
        LAB3,
        "why-numbers",
        ("1.16", "one layer: # billion parameters # GB", layer / 1e9, 16 * layer / GB),
    ),
    *in_lab(LAB3, "ledger-curve", ("4.9", "measured goes from # to #;", 0, 2 * (16 - 1) / 16)),
    *in_lab(LAB3, "heads-table", ("1.18", "32 heads t = [1, #, #, #", 2, 4, 8)),
    *in_lab(
        LAB3,
        "cost-numbers",
        ("4.5", "one all-reduce: # MB", reduce / MB),
        ("4.5", "sent per GPU: # MB, times # in a layer", reduce_sent / MB, 4),
        ("4.6", "= # MB", 4 * reduce_sent / MB),
        ("4.7", "arithmetic: # ms", layer_s * 1e3),
        ("4.7", "NVLink # ms = # of that", tp_nvlink * 1e3, tp_nvlink / layer_s),
        ("4.7", "InfiniBand # ms = # of that", tp_network * 1e3, tp_network / layer_s),
    ),
    *in_lab(LAB3, "cost-box", ("4.3", "# in one pass over GPT-3's # layers", 4 * L, L)),
    *in_lab(LAB3, "traffic-text", ("4.6", "# MB for a layer at t = 8", 4 * reduce_sent / MB)),
    *in_lab(
        LAB3,
        "traffic-look",
        (
            "4.6",
            "t = 8: # GB, with recompute # GB",
            L * 4 * reduce_sent / GB,
            L * 6 * reduce_sent / GB,
        ),
    ),
    *in_lab(LAB3, "written", ("4.8", "2 · 4 + 1 = #", 2 * 4 + 1), ("4.8", "So # times.", 9 / 2)),
    *in_lab(LAB4, "naive", ("5.1", NAIVE, *RANKS), ("5.2", "idle: #%", bubble(4, 1))),
    *in_lab(
        LAB4,
        "orders-look",
        (
            "5.1",
            f"GPipe, 4 microbatches: T = #, bubble #%, in flight # # # # {GPIPE}",
            step_time(4, 4),
            bubble(4, 4),
            4,
            4,
            4,
            4,
            *RANKS,
        ),
        (
            "5.3",
            "GPipe, 8 microbatches: T = #, bubble #%, in flight # # # #",
            step_time(4, 8),
            bubble(4, 8),
            8,
            8,
            8,
            8,
        ),
        (
            "5.4",
            f"1F1B, 8 microbatches: T = #, bubble #%, in flight # # # # {ONE_F_ONE_B}",
            step_time(4, 8),
            bubble(4, 8),
            4,
            3,
            2,
            1,
            *RANKS,
        ),
    ),
    *in_lab(
        LAB4,
        "orders-count",  # forward and backward take 1 each: 2 (m + p − 1) slots, 2 (p − 1) idle
        ("5.9", "T = #; idle on each stage: [#, #, #, #]", 2 * (4 + 3), *[2 * 3] * 4),
        ("5.2", "GPipe, 2 : 5: T = # · (t_f + t_b)", 4 + 3),
        ("5.2", "1F1B, 3 : 1: T = # · (t_f + t_b)", 4 + 3),
    ),
    *in_lab(
        LAB4,
        "measures-predict",
        ("5.6", "For p = 4, m = 8: # % or # %", bubble(4, 8), ratio(4, 8)),
    ),
    *in_lab(
        LAB4,
        "measures-look",
        ("5.10", "8 | # ms | #% |", step_time(4, 8) * (1 + 64 / 8), bubble(4, 8)),
    ),
    *in_lab(
        LAB4,
        "interleaved-look",  # a stage takes 4 and 8; 8 microbatches go both ways
        ("5.11", "1 | # | #% | # | #", 4 * step_time(4, 8), bubble(4, 8), 16 * 3, 4),
        ("5.11", "2 | # | #% | # | #", 4 * step_time(4, 8, 2), bubble(4, 8, 2), 16 * 7, 11 / 2),
        ("5.11", "4 | # | #% | # | #", 4 * step_time(4, 8, 4), bubble(4, 8, 4), 16 * 15, 19 / 4),
    ),
    *in_lab(
        LAB4,
        "weight_versions-look",  # nine microbatches: min(i, p − 1 − s) updates late
        *(
            (
                "5.7",
                f"stage {s}: gaps [{', '.join('#' * 9)}], versions kept: #",
                *(min(i, 3 - s) for i in range(9)),
                4 - s,
            )
            for s in range(4)
        ),
    ),
    *in_lab(
        LAB4,
        "terapipe_slices-look",
        (
            "5.16",
            "c = 1: #% c = 2: #% c = 4: #% c = 8: #%",
            *(bubble(4, 2 * slices) for slices in (1, 2, 4, 8)),
        ),
    ),
    *in_lab(
        LAB5,
        "idea-numbers",
        ("5.12", "each stage takes [#, #, #, #] a slot lasts # ms", *map(float, even_ms), 6),
        ("5.13", "# partitions to choose from", len(partitions)),
    ),
    *in_lab(LAB5, "even_split-look", ("5.12", "The slowest takes #, the mean is #", 6, 17 / 4)),
    *in_lab(LAB5, "min_max_partition-look", ("5.13", "the last cell holds #.", slot_ms)),
    *in_lab(
        LAB5,
        "min_max_partition-box",
        ("5.15", "it fills only three stages, # + # + #: slower", *greedy_ms),
    ),
    *in_lab(
        LAB5, "count_optimal-look", ("5.13", "4 stages: # ms, # of #", slot_ms, len(best), 165)
    ),
    *in_lab(
        LAB5,
        "imbalance-look",
        ("5.13", "8 microbatches: # ms, yours # ms", 8 * 6 + 11, 8 * slot_ms + 12),
    ),
    *in_lab(
        LAB5,
        "certify-look",
        ("5.13", "your best: [#, #, #, #, #], # ms", 0, 2, 6, 10, 12, slot_ms),
    ),
    *in_lab(
        LAB6,
        "idea-numbers",
        ("6.2", "every GPU: # GB, activations apart", figure_1[0]),
        ("6.2", "one copy, shared out: # GB each", figure_1[3]),
        ("1.1", "Adam's share of the state: #%", 12 / per_param * 100),
    ),
    *in_lab(
        LAB6,
        "adam-numbers",
        ("6.7", "1 # # # #", 1 - 0.9, 1 - 0.999, adam_first, 1),
        ("6.7", f"{longest} # # # 1.00", 1 - 0.9**longest, 1 - 0.999**longest, too_long[longest]),
    ),
    *in_lab(LAB6, "precision", ("6.7", "up to # times, in step #", too_long[longest], longest)),
    *in_lab(
        LAB6,
        "zero_bytes-look",
        ("6.2", "data parallel: # GB (weights", figure_1[0]),
        ("6.2", "ZeRO-1: # GB (weights", figure_1[1]),
        ("6.2", "ZeRO-2: # GB (weights", figure_1[2]),
        ("6.2", "ZeRO-3: # GB (weights", figure_1[3]),
        ("6.3", "1,633 parameters, 4 ranks: # # # #", *mlp),
    ),
    *in_lab(LAB6, "zero_bytes-box", ("1.8", "# / 80 is # exactly", 16 * 70, 14)),
    *in_lab(
        LAB6,
        "zero3_step-look",
        ("6.4", "sent # Ψ ZeRO-1", one_step[0]),
        ("6.4", "sent # Ψ ZeRO-2", one_step[1]),
        ("6.4", "sent # Ψ ZeRO-3", one_step[2]),
        ("6.4", "sent # Ψ state alone", one_step[3]),
        ("6.1", "by the formula: # Ψ, # Ψ, # Ψ, # Ψ", 1 + 1 + 3, 1 + 1 + 3 / 4, 1 + 4 / 4, 5 / 4),
    ),
    *in_lab(
        LAB6,
        "real-yours",  # two ranks
        *(("6.1", f"ZeRO-{i}: # Ψ sent", part / 2) for i, part in ((1, 2), (2, 2), (3, 3))),
    ),
    *in_lab(
        LAB6,
        "volume_bytes-look",
        *(
            ("6.4", f"{name} # #", one_step[stage], one_step[stage])
            for stage, name in enumerate(("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3"))
        ),
        *(("6.6", f"ZeRO-{i}, eight microbatches: # Ψ", eight[i]) for i in (1, 2, 3)),
    ),
    *in_lab(
        LAB6,
        "written",
        ("1.8", "16 · 70e9 bytes = # GB, which is exactly # · 80 GB", 16 * 70, 14),
        ("1.9", "1,120 / 64 = # GB each", 16 * 70 / 64),
        ("1.10", "weights and gradients, # GB", 4 * 70 / 64),
        ("1.10", "a sixteenth, # GB. Together # GB", 12 * 70 / 1_024, (4 + 12 / 16) * 70 / 64),
        ("6.6", "that is #, # and # Ψ", eight[0], *eight[2:]),
    ),
    *in_lab(LAB3, "real-torch", ("4.3", "both ways: yours #, PyTorch's #", 2 + 2, 2 + 2)),
    *in_chapter(
        LAB1,
        ("1.1", "Sixteen bytes, of which twelve, # %, are the optimiser's", 75),
        ("1.2", "its weights alone take # GB. A B200 is sold with # GB", 2 * 400, 192),
        ("1.2", "training keeps # GB, as much as # of these GPUs hold", 16 * 400, 34),
        ("1.3", "| 7.5 billion | # | # | # | # | # |", 15, 15, 90, 120, 1.5),
        ("1.3", "| 70 billion | # | # | # | # | # |", 140, 140, 840, 1_120, 14),
        ("1.3", "| 175 billion | # | # | # | # | # |", 350, 350, 2_100, 2_800, 35),
        ("1.3", "| 400 billion | # | # | # | # | # |", 800, 800, 4_800, 6_400, 80),
        ("1.3", "| 405 billion | # | # | # | # | # |", 810, 810, 4_860, 6_480, 81),
        ("1.3", "| 2,000 billion | # | # | # | # | # |", 4_000, 4_000, 24_000, 32_000, 400),
        ("1.4", "**# GB a layer**", kept / GB),
        ("1.5", "**# GB in 96 layers**", L * kept / GB),
        ("1.6", "full recompute instead | 2 sbh | # GB | # GB", full / GB, L * full / GB),
        ("1.7", "as/(ht)) | # GB | # GB", tp / GB, L * tp / GB),
        ("1.7", "(34 + 5as/h)/t | # GB | # GB", sp / GB, L * sp / GB),
        ("1.7", "34 sbh/t | # GB | # GB", selective / GB, L * selective / GB),
        ("1.8", "# GB / 80 GB is # exactly", 16 * 70, 14),
        ("1.9", "On 64 GPUs in equal shares it is # GB", 16 * 70 / 64),
        (
            "1.10",
            r"= #\ \text{GB} + #\ \text{GB} = #\ \text{GB}",
            4 * 70 / 64,
            12 * 70 / 1024,
            4 * 70 / 64 + 12 * 70 / 1024,
        ),
        ("1.11", "# GB for any p", L * kept / GB),
        ("1.12", "| A100, 80 GB | # | # | # | # | # | #", 312, 624, 80, 2.039, 600, 300),
        ("1.12", "| H100 SXM | # | # | # | # | # | #", 989, 1_979, 80, 3.35, 900, 450),
        (
            "1.12",
            "| B200 | # | # | # (# usable) | # | # | #",
            2_250,
            4_500,
            192,
            180,
            8,
            1_800,
            900,
        ),
        ("1.13", "Among A100s the 40 GB version has # TB/s, the 80 GB version # TB/s", 1.6, 2.04),
        ("1.14", "of 2024 have # H100s each", 24_576),
        ("1.14", "of the # A100s before them", 16_000),
        ("1.15", "# trillion parameters, # billion active, # trillion tokens", 2, 288, 30),
        ("1.16", "All 96 have, # billion each", layer / 1e9),
        (
            "1.17",
            "It has # million numbers, # GB in BF16 and # GB",
            qkv / 1e6,
            2 * qkv / GB,
            16 * qkv / GB,
        ),
        ("2.2", r"= #\ \text{s}", step_s),
        ("2.2", "| arithmetic | # s |", step_s),
        ("2.3", "# GB at # GB/s (NVLink, one way) | # s | # % |", sent / GB, 450, *waits[:2]),
        ("2.4", "# GB at # GB/s (network) | # s | # % |", sent / GB, 50, *waits[2:]),
        ("2.5", "H100; 400 Gb/s | # | # | # |", *corners[:3]),
        ("2.5", "over 900 GB/s are #, with both directions added", corners[3]),
    ),
    *in_chapter(
        LAB2,
        ("1.1", "keeps # bytes for each parameter, here # GB", 16, 120),
        ("2.1", "sent by one rank, in S | # | # | # | #", 1, 1.5, 1.75, 2 * 63 / 64),
        ("2.2", "Each GPU computes for # s", step_s),
        ("2.3", "(NVLink, one way) | # s | # % |", *waits[:2]),
        ("2.4", "(400 Gb/s network) | # s | # % |", *waits[2:]),
        ("2.5", "# FLOP per byte on the network, and # on NVLink one way", *corners[2:0:-1]),
        ("2.5", "You may meet # for NVLink", corners[3]),
        ("2.6", "means are # and #, and the mean of these is #", 1, 9, 5),
        ("2.6", "The mean over the samples is #", (3 + 9) / 4),
        ("3.1", "PyTorch's cap is # MiB, and # MiB for the first bucket", 25, 1),
        ("3.4", "# GB out, # GB in, in every step", middle / GB, middle / GB),
        ("3.4", "both send # GB in our example", 2 * middle / GB),
        ("3.4", "# GB through one GPU become # GB through each", middle / GB, sent / GB),
    ),
    *in_chapter(
        LAB3,
        ("1.4", "A layer of GPT-3 keeps # GB", kept / GB),
        ("1.7", "and # GB at t = 8, not # GB, which", tp / GB, sp / GB),
        ("1.16", "one layer | # billion | # GB", layer / 1e9, 16 * layer / GB),
        ("1.17", "| # GB at h = 8,192, # GB in training", 2 * qkv / GB, 16 * qkv / GB),
        ("1.18", "has # and # per rank at t = 8", 32 / 8, 8 / 8),
        ("4.3", "# in one pass forward and back, # with recomputation", 4 * L, 6 * L),
        ("4.4", "an MLP's # weights become # per rank on four ranks", 2 * 16 * 64, 2 * 16 * 16),
        ("4.5", "S = 2bsh = # MB. At t = 8 a rank sends # MB", reduce / MB, reduce_sent / MB),
        (
            "4.6",
            "# MB for the four of a layer (# MB with",
            4 * reduce_sent / MB,
            6 * reduce_sent / MB,
        ),
        ("4.7", "| arithmetic | # ms |", layer_s * 1e3),
        ("4.7", "NVLink, 450 GB/s | # ms | # |", tp_nvlink * 1e3, tp_nvlink / layer_s),
        ("4.7", "InfiniBand, 50 GB/s | # ms | # |", tp_network * 1e3, tp_network / layer_s),
        ("4.7", "the 1.00 becomes #", tp_network / layer_scores_s),
        ("4.9", "sent by one rank, in S | # | # | # | #", 1, 1.5, 1.75, 1.875),
        (
            "4.10",
            "sends # GB in tensor parallelism alone: # s on NVLink",
            96 * 12 * 4 * reduce_sent / GB,
            96 * 12 * 4 * reduce_sent / nvlink,
        ),
    ),
    *in_chapter(
        LAB4,
        ("1.11", "# GB, as much as all # layers keep", 8 * 12 * kept / GB, L),
        ("5.1", NAIVE, *RANKS),
        ("5.1", GPIPE, *RANKS),
        ("5.1", ONE_F_ONE_B, *RANKS),
        ("5.2", "Every rank works for # units out of #: # %", 3, 4 * 3, bubble(4, 1)),
        ("5.2", "7 · 3 = # units, # of work and # idle", step_time(4, 4), 4 * 3, 3 * 3),
        ("5.3", "Both take # units and have a bubble of # %", step_time(4, 8), bubble(4, 8)),
        ("5.3", f"{HELD} | GPipe | # | # | # | # |", 8, 8, 8, 8),
        ("5.4", f"{HELD} | GPipe | 8 | 8 | 8 | 8 | | 1F1B | # | # | # | # |", 4, 3, 2, 1),
        ("5.5", "| (p−1)/(m+p−1) | # % | # % | # % |", *(bubble(4, m) for m in (1, 4, 8))),
        ("5.6", "| (p−1)/m | # % | # % | # % |", *(ratio(4, m) for m in (1, 4, 8))),
        ("5.7", "updates in between: #, #, # and # on four ranks", 3, 2, 1, 0),
        ("5.7", "see fewer: #, #, # and then # on rank 0", 0, 1, 2, 3),
        ("5.8", "asks for m > #. With m = # it is 7/71, or # %", 7 * 0.9 / 0.1, 64, bubble(8, 64)),
        ("5.8", "holds # microbatches under GPipe and # under 1F1B", 64, 8),
        ("5.8", "are m = # for each, one sequence in a microbatch", 512 / 16),
        ("5.8", "and 7/# is a bubble of # %", 32 + 7, bubble(8, 32)),
        ("5.9", "the drawing has # columns", 2 * (4 + 3)),
        ("5.9", "all four together # of #: 3/7, or # %", 4 * 2 * 3, 4 * 14, bubble(4, 4)),
        ("5.10", "# samples become # microbatches of # samples", 64, 8, 64 / 8),
        ("5.11", "| bubble | # % | # % | # % |", *(bubble(4, 8, v) for v in (1, 2, 4))),
        ("5.11", "sent, each way | # | # | # |", 4 - 1, 2 * 4 - 1, 4 * 4 - 1),
        (
            "5.16",
            "two sequences | # % | # % | # % | # % |",
            *(bubble(4, 2 * slices) for slices in (1, 2, 4, 8)),
        ),
    ),
    *in_chapter(
        LAB5,
        ("5.12", "make stages of #, #, # and # ms", *even_ms),
        ("5.12", "a slot lasts # ms, and a stage works # ms of it", max(even_ms), 17 / 4),
        ("5.13", "#, #, # and # ms are possible", *printed_ms),
        ("5.13", "below the mean, # ms; in whole milliseconds that is #.", 17 / 4, -(-17 // 4)),
        ("5.13", "It is one of **#** best partitions out of #", len(best), len(partitions)),
        ("5.14", "L²p steps, # for # layers on # stages", 96 * 96 * 16, 96, 16),
        ("5.14", "| # steps, so yes", 96 * 96 * 16),
        ("5.15", "it makes stages of #, # and # ms, and none is left", *greedy_ms),
    ),
    *in_chapter(
        LAB6,
        ("1.1", "K = #. Of # bytes, # % are Adam's", 4 + 4 + 4, per_param, 75),
        ("6.7", "the first would be # γ", adam_first),
        ("6.2", "(4 + K)Ψ | # GB |", figure_1[0]),
        ("6.2", "4Ψ + KΨ/N | # GB |", figure_1[1]),
        ("6.2", "2Ψ + (2 + K)Ψ/N | # GB |", figure_1[2]),
        ("6.2", "| ZeRO-3 | 2Ψ/N | 2Ψ/N | KΨ/N | (4 + K)Ψ/N | # GB |", figure_1[3]),
        ("6.3", "Per parameter that is #, # and # bytes", *mlp[1:]),
        ("6.3", "in place of #, # and # (with # for", 7, 5.5, 4, 16),
        ("6.1", "| data parallel | gradient | gradient | # |", 2),
        ("6.1", "| ZeRO-1 | gradient | new weights | # |", 2),
        ("6.1", "| ZeRO-2 | gradient | new weights | # |", 2),
        ("6.5", "| ZeRO-3 | gradient | weights in forward, in backward | # |", 3),
        ("6.4", "For N = 4 that is #, #, # and # numbers per parameter", *one_step),
        ("6.6", "At N = 4 and m = 8 that makes #, # and #.", eight[0], *eight[2:]),
        ("2.1", "a rank sends # GB per step, under ZeRO-3 # GB", sent / GB, 1.5 * sent / GB),
        ("2.4", "that is # % and # %, before anything", waits[3], 1.5 * waits[3]),
        ("1.4", "A layer of GPT-3 keeps # GB for one sequence", kept / GB),
        ("1.5", "96 layers # GB", L * kept / GB),
        ("1.16", "A layer of GPT-3 has # billion weights", layer / 1e9),
    ),
    *in_lab(
        LAB7,
        "idea-numbers",
        ("8.9", "TP: # GB, # s", SENT[0], parts_s("GPT-3", G8)[2]),
        ("8.9", "PP: # GB, # s", SENT[1], parts_s("GPT-3", G8)[3]),
        ("8.9", "DP: # GB, # s", SENT[2], parts_s("GPT-3", G8)[4]),
    ),
    *in_lab(
        LAB7,
        "idea-links",
        *(
            (
                "8.9",
                f"{'·'.join(map(str, grid))}: PP # GB, DP # GB",
                *(x * network / GB for x in parts_s("GPT-3", grid)[3:]),
            )
            for grid in ((8, 4, 32), G8, (8, 16, 8))
        ),
    ),
    *in_lab(
        LAB7,
        "enumerate_layouts-look",
        *(
            (
                "8.1",
                f"{name}: # layouts, # with {layers} / p whole",
                len(GRIDS),
                sum(layers % stages == 0 for _, stages, _ in GRIDS),
            )
            for name, layers in (("GPT-3 175B", 96), ("Llama 3.1 405B", 126))
        ),
    ),
    *in_lab(
        LAB7,
        "state-numbers",
        ("8.2", f"GPT-3 175B on 1,024 GPUs: {FITS_FROM_16}", *states("GPT-3", 4, 8, 16)),
        ("8.2", f"405B on 1,024 GPUs: {FITS_FROM_32}", *states("405B", 4, 8, 16, 32)),
    ),
    *in_lab(
        LAB7,
        "layout_bytes-look",
        ("8.3", "GPT-3 175B, 8×8×16: # GB", gpu_gb("GPT-3", G8)),
        ("8.4", "Llama 3.1 405B, 8×8×16: # GB", gpu_gb("405B", G8)),
        *(
            (
                "1.11",
                f"8×{p}×{128 // p}: # GB (weights # GB, gradients # GB, optimiser states # GB, "
                "activations # GB)",
                gpu_gb("GPT-3", (8, p, 128 // p)),
                *(2 * 175 / (8 * p) for _ in ("weights", "gradients")),
                12 * 175 / 1_024,
                (L * full + layer_kept) / 8 / GB,  # of all L layers, whatever p is
            )
            for p in (1, 2, 4, 8, 16)
        ),
    ),
    *in_lab(
        LAB7,
        "layout_bytes-readings",
        *(
            (
                "8.6",
                f"{name}: GB on 8×8×16; how many of # fit as it is printed #; # inputs shared "
                "by t #; # and one layer at work #; # two inputs for each layer #; #",
                len(GRIDS),
                *(
                    x
                    for more in (inputs_gb(m, G8), inputs_gb(m, G8) / 8)
                    for x in (state_gb(m, G8) + more, FIT[m])
                ),
                *(gpu_gb(m, G8), FIT[m]),
                *(state_gb(m, G8) + 2 * inputs_gb(m, G8) / 8, FIT[m]),
            )
            for m, name in (("GPT-3", "GPT-3 175B"), ("405B", "Llama 3.1 405B"))
        ),
    ),
    *in_lab(LAB7, "layout_bytes-lie", ("8.2", "let the same # and # layouts fit", *FIT.values())),
    *in_lab(
        LAB7,
        "pareto-look",
        *(
            (
                "8.5",
                f"{'×'.join(map(str, grid))}: # GB, # s",
                gpu_gb("GPT-3", grid),
                sum(parts_s("GPT-3", grid)),
            )
            for grid in ((8, 64, 2), (8, 32, 4), (8, 16, 8), G8)
        ),
    ),
    *in_lab(
        LAB7,
        "mfu-look",
        *(
            (
                "8.7",
                f"{name}, 8×8×16: MFU #%, HFU #%; 6Ψ alone #%",
                *(100 * part for part in (run, run * 4 / 3, parts_s(m, G8, 6, 6, 1)[0] / step)),
            )
            for m, name in (("GPT-3", "GPT-3"), ("405B", "405B"))
            for step in [sum(parts_s(m, G8))]
            for scores in [4 * s * MODELS[m][1] * MODELS[m][2] / (2 * MODELS[m][0])]
            for run in [parts_s(m, G8, 6, 6, 1)[0] * (1 + scores) / step]
        ),
    ),
    *in_lab(LAB7, "mfu-box", ("8.7", "As MFU it is # %", 50 * 6 / 8)),
    *in_lab(
        LAB7,
        "worst_stage_bytes-look",
        ("8.10", "fullest: stage 1, # GB", fullest_gb),
        ("8.2", "GPT-3 175B: # of # fit", FIT["GPT-3"], len(GRIDS)),
        ("8.2", "Llama 3.1 405B: # of # fit", FIT["405B"], len(GRIDS)),
    ),
    *in_lab(LAB7, "time-numbers", ("8.3", "PFLOP/s: # s", parts_s("GPT-3", G8)[0])),
    *in_lab(
        LAB7,
        "search-look",
        ("8.1", "GPT-3 175B: # possible, # fit", len(GRIDS), FIT["GPT-3"]),
        ("8.2", "Llama 3.1 405B: # possible, # fit", len(GRIDS), FIT["405B"]),
    ),
    *in_lab(
        LAB7,
        "search-best-look",
        search_table("8.5", "GPT-3", "GPT-3 175B"),
        search_table("8.4", "405B", "Llama 3.1 405B"),
    ),
    *in_lab(
        LAB7,
        "compared-assumptions-look",
        *(
            ("8.7", f"{flop} FLOP at {share:.1%} of the peak: # s", sum(found))
            for flop, share in ((6, 0.4), (8, 0.4), (6, 0.375), (8, 0.5))
            for found in [parts_s("405B", G8, flop=flop, share=share)]
        ),
    ),
    *in_lab(
        LAB7,
        "compared-fragile-look",
        ("8.3", "GPT-3 175B as it is 8×8×16 # s", sum(parts_s("GPT-3", G8))),
        (
            "8.8",
            "six all-reduces 4×16×16 # s, #% ahead",
            sum(parts_s("GPT-3", (4, 16, 16), reduces=6)),
            (sum(parts_s("GPT-3", (4, 8, 32), 6)) / sum(parts_s("GPT-3", (4, 16, 16), 6)) - 1)
            * 100,
        ),
    ),
    *in_chapter(
        LAB7,
        ("9.1", "# all-reduces per layer and microbatch |", 4),
        ("9.2", "| # GB | NVLink", SENT[0]),
        ("9.2", "· 2 · 2sh | # GB |", SENT[1]),
        ("9.2", "2(d−1)/d · 2Ψ/(tp) | # GB |", SENT[2]),
        ("8.9", "NVLink, 450 GB/s | # s |", parts_s("GPT-3", G8)[2]),
        ("8.1", "1,536. So #. Of these # fit into 80 GB", len(GRIDS), FIT["GPT-3"]),
        ("8.2", "# of its # layouts fit", FIT["405B"], len(GRIDS)),
        ("8.3", "make # GB; and", gpu_gb("GPT-3", G8)),
        table_row("8.3", "GPT-3", G8),
        *(
            table_row("8.5", "GPT-3", grid)
            for grid in ((8, 4, 32), (8, 16, 8), (4, 16, 16), (8, 2, 64), (4, 8, 32))
        ),
        ("8.4", "8×8×16, # GB, # s.", gpu_gb("405B", G8), sum(parts_s("405B", G8))),
        ("8.6", "Llama needs # GB; divided by t and with no layer at work, # GB", *printed_gb),
        ("8.6", "and 40 % the step takes # s", sum(parts_s("405B", G8, flop=6, share=0.4))),
        (
            "8.7",
            "a compute time between # and # s",
            *((total - links_405b) * 96 / 103 for total in (23.5, 24.5)),
        ),
        (
            "8.8",
            "4×16×16 wins, # s against # s",
            sum(parts_s("GPT-3", (4, 16, 16), reduces=6)),
            sum(parts_s("GPT-3", G8, reduces=6)),
        ),
        ("8.10", "126 layers on 8 stages: some have #, and 16 to # makes", 16, 126 / 8),
        ("8.10", "# to #, a third longer", 2, 96 / 64),
    ),
]
UNPRINTED = {  # facts of these sections that no notebook or chapter states in numbers, and why
    "2.7": "differences of rounding: tests bound them, since they change with the machine",
    "3.3": "words: launched without waiting, waited for before the step, averaged",
    "4.1": "formulas: the graders of lab 3 check them on tensors",
    "4.2": "formulas: the graders of lab 3 check them on tensors",
    "5.17": "a difference of rounding: tests bound it, since it changes with the machine",
}
# Sections 8 and 9 count no facts; here they are counted in the order in which they stand.
SECTIONS = {"1": 18, "2": 7, "3": 4, "4": 10, "5": 17, "6": 7, "8": 10, "9": 2}


def chapter_text(fact: Fact) -> str:
    return Chapter(fact.where.removeprefix("chapter ")).text


def texts(nb) -> dict[str, str]:
    return {cell["id"]: printed(cell) for cell in nb.cells}


def test_a_line_sent_in_two_pieces_is_one_line():
    pieces = [new_output("stream", name="stdout", text=text) for text in ("64 ranks: 0.6", " s\n")]
    picture = new_output("display_data", data={"text/plain": "a curve"})
    cell = new_code_cell(outputs=[*pieces, picture])
    assert printed(cell) == "64 ranks: 0.6 s\n\na curve"


def test_every_fact_is_printed_somewhere_or_has_a_reason():
    numbers = {f"{part}.{i}" for part, most in SECTIONS.items() for i in range(1, most + 1)}
    listed = {fact.number for fact in FACTS}
    assert not listed & set(UNPRINTED)
    assert listed | set(UNPRINTED) == numbers
    places = {fact.where for fact in FACTS}
    assert places == {lab for part in WITH_FACTS for lab in (part, f"chapter {part}")}


@pytest.mark.parametrize("lab", WITH_FACTS)
def test_a_chapter_prints_the_lectures_numbers(lab):
    facts = [fact for fact in FACTS if fact.where == f"chapter {lab}"]
    assert [p for fact in facts for p in problems(fact, chapter_text(fact))] == []


@pytest.mark.parametrize("lab", [of(lab) for lab in WITH_FACTS])
def test_an_executed_notebook_prints_the_lectures_numbers(lab, executed):
    says = texts(executed(lab))
    facts = [fact for fact in FACTS if fact.where == lab]
    assert [p for fact in facts for p in problems(fact, says.get(fact.cell, ""))] == []


@pytest.mark.parametrize("lab", [of(lab) for lab in LABS])
def test_every_cell_of_a_solved_notebook_runs(lab, executed):
    failed = {
        cell["id"]: printed(cell)
        for cell in executed(lab).cells
        if any(o.output_type == "error" for o in cell.get("outputs", []))
    }
    assert failed == {}


@pytest.mark.parametrize("lab", [of(lab) for lab in WITH_FACTS])
def test_a_changed_number_would_be_noticed(lab, executed):
    says = texts(executed(lab))
    for fact in FACTS:
        if fact.where not in (lab, f"chapter {lab}"):
            continue
        text = " ".join((says[fact.cell] if fact.cell else chapter_text(fact)).split())
        match = pattern(fact.says).search(text)
        for group in range(1, len(fact.values) + 1):
            last = match.end(group) - 1
            digit = str((int(text[last]) + 1) % 10)
            assert problems(fact, text[:last] + digit + text[last + 1 :]), (fact, group)
        assert problems(fact, text.replace(match[0], ""))


@pytest.mark.parametrize(
    ("text", "value", "right"),
    [
        ("2.87", 2.8689, True),
        ("2.86", 2.8689, False),
        ("1,120", 1120.4, True),
        ("1,121", 1120.4, False),
        ("7.37e+14", 7.3728e14, True),
        ("7.38e+14", 7.3728e14, False),
        ("-6", -6.0, True),
        ("14.0", 14.06, False),
    ],
)
def test_a_number_is_compared_as_closely_as_it_is_printed(text, value, right):
    assert rounds_to(text, value) is right
