"""Every number of the chapter on ZeRO, computed again."""

import re
import runpy
from fractions import Fraction
from math import ceil, hypot, isclose

import pytest
import torch
from chapter import CHAPTERS, Chapter

from distlab import run
from distlab.explorers.memory import MemorySettings, memory_numbers
from distlab.hardware import DGX_H100, H100_SXM

CHAPTER = Chapter("lab06-zero")
FIGURES = CHAPTERS.parent / "figures"

K = 4 + 4 + 4
STAGES = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")
GB = 1e9


def kept(params: float, n: int, stage: int, padded: bool = False) -> Fraction:
    """Returns the bytes that one rank keeps between steps."""
    whole, shard = Fraction(params), Fraction(params) / n
    if padded:
        shard = Fraction(ceil(shard))
    sizes = {2: (2, 3), -2: (2, 2), K: (K, 1)}  # weights, gradients, optimiser: since which stage
    return sum(size * (shard if stage >= since else whole) for size, since in sizes.values())


def sent(n: int, stage: int, m: int = 1) -> Fraction:
    """Returns how many numbers per parameter one rank sends in a step of m microbatches."""
    return (2, 2, m + 1, 3 * m)[stage] * Fraction(n - 1, n)


# The example: 7.5 billion parameters on 64 H100s, 16,384 tokens on each.
params, n, tokens = 7.5e9, 64, 16_384
peak = float(H100_SXM.peak_flop_per_s)
reached = 0.40 * peak
network, nvlink = float(DGX_H100.network.rate_bytes_per_s), 900e9 / 2
arithmetic_s = 6 * params * tokens / reached
each_gb = [float(kept(params, n, stage)) / GB for stage in range(4)]
sent_gb = [2 * params * float(sent(n, stage)) / GB for stage in range(4)]
hidden = Fraction(n - 1, n) * Fraction(reached)  # times 1/R: tokens that hide a gather


# Adam, a gradient that is always 1.
def uncorrected(t: int) -> float:
    return (1 - 0.9**t) / (1 - 0.999**t) ** 0.5


longest = max(range(1, 10_000), key=uncorrected)

# A small model; GPT-3; five layers with room for k.
mlp, shard = 1_633, -(-1_633 // 4)
small = [float(kept(mlp, 4, stage, padded=True) / mlp) for stage in range(4)]
h, a, s, L = 12_288, 96, 2_048, 96
layer = 12 * h * h
activations = 34 * s * h + 5 * a * s * s
step = runpy.run_path(str(FIGURES / "gathered_layers.py"))["step"]
ahead_ms = {k: step(k).makespan_s * 1e3 for k in (1, 2, 3, 4, 5)}
gathers = {k: len(step(k).of(0, "comm")) for k in (1, 2)}

# Narayanan et al. 2021, table 2: TFLOP/s per GPU at 384, 768 and 1,536 GPUs.
zero3, three_d = (144, 88, 44), (153, 149, 141)
gpus = (384, 768, 1_536)
per_gpu = [1_536 // count for count in gpus]

ordinal = {12: "twelfth"}
half, brain = torch.float16, torch.bfloat16

SAID = {  # what stands in the chapter, with every number computed here
    "uncorrected": f"the first would be {uncorrected(1):.2f} γ and the {ordinal[longest]} "
    f"{uncorrected(longest):.2f} γ",
    "FP16": f"FP16 ends at {torch.finfo(half).max:,.0f}. A gradient of 300 has the square "
    f"{300**2:,}",
    "K": f"K = {K}. Of {4 + K} bytes, {K / (4 + K) * 100:.0f} % are Adam's",
    "copies": f"{params / 1e9} billion parameters on {n} GPUs, the example of ZeRO's paper. Each "
    f"GPU keeps {each_gb[0]:.0f} GB, all together {n * each_gb[0]:,.0f} GB, of which "
    f"{(1 - 1 / n) * 100:.1f} % are copies",
    "row 0": f"| data parallel | 2Ψ | 2Ψ | KΨ | (4 + K)Ψ | {each_gb[0]:.0f} GB |",
    "row 1": f"| ZeRO-1 | 2Ψ | 2Ψ | KΨ/N | 4Ψ + KΨ/N | {each_gb[1]:.1f} GB |",
    "row 2": f"| ZeRO-2 | 2Ψ | 2Ψ/N | KΨ/N | 2Ψ + (2 + K)Ψ/N | {each_gb[2]:.1f} GB |",
    "row 3": f"| ZeRO-3 | 2Ψ/N | 2Ψ/N | KΨ/N | (4 + K)Ψ/N | {each_gb[3]:.1f} GB |",
    "its picture": f"a stack of {each_gb[0]:.0f} GB, beyond an H100's 80 GB, then "
    f"{each_gb[1]:.1f}, {each_gb[2]:.1f} and {each_gb[3]:.2f} GB",
    "padding": f"{mlp:,} parameters on 4 ranks make shards of {shard} numbers, {4 * shard - mlp} "
    f"of which are zeros at the end. Per parameter that is {small[1]:.2f}, {small[2]:.2f} and "
    f"{small[3]:.2f} bytes in place of {4 + K // 4}, {2 + (2 + K) / 4:g} and {(4 + K) // 4}",
    "padding again": f"{small[1]:.2f}, {small[2]:.2f} and {small[3]:.2f} for {mlp:,} parameters",
    "N = 4": "For N = 4 that is "
    + ", ".join(f"{float(sent(4, stage)):.2f}" for stage in range(3))
    + f" and {float(sent(4, 3)):.2f} numbers per parameter",
    "the example sends": f"a rank sends {sent_gb[0]:.2f} GB per step, under ZeRO-3 "
    f"{sent_gb[3]:.2f} GB. On a network of {network / GB:.0f} GB/s per GPU that takes "
    f"{sent_gb[0] * GB / network:.3f} s and {sent_gb[3] * GB / network:.3f} s",
    "beside": f"Beside {arithmetic_s:.3f} s of arithmetic ({tokens:,} tokens per GPU, "
    f"{reached / peak * 100:.0f} % of an H100's {peak / 1e12:.0f} TFLOP/s) that is "
    f"{sent_gb[0] * GB / network / arithmetic_s * 100:.1f} % and "
    f"{sent_gb[3] * GB / network / arithmetic_s * 100:.1f} %",
    "microbatches": f"At N = 4 and m = 8 that makes {float(sent(4, 0, 8)):g}, "
    f"{float(sent(4, 2, 8)):g} and {float(sent(4, 3, 8)):g}",
    "its lines": f"ZeRO-3 rises to {float(sent(4, 3, 8)):g}, ZeRO-2 to {float(sent(4, 2, 8)):g}, "
    f"data parallelism and ZeRO-1 stay at {float(sent(4, 1, 8)):g}",
    "unsharded": f"sends 2m + 1, here {float((2 * 8 + 1) * Fraction(3, 4)):g}",
    "ahead": "Five layers, a gather of 1.5 ms, passes of 2 ms and 4 ms. With k = 1, nine gathers "
    f"are all waited for, and the step takes {ahead_ms[1]:g} ms. With k = 2 it takes "
    f"{ahead_ms[2]:g} ms",
    "tokens": f"That is {ceil(hidden / Fraction(network)):,} tokens on the network above, and "
    f"{ceil(hidden / Fraction(nvlink)):,} if all links were NVLink's {nvlink / GB:.0f} GB/s",
    "activations": f"A layer of GPT-3 keeps {activations / GB:.2f} GB for one sequence, {L} layers "
    f"{L * activations / GB:.0f} GB",
    "at work": f"A layer of GPT-3 has {layer / 1e9:.2f} billion weights, {2 * layer / GB:.1f} GB "
    f"in BF16; with one gathered ahead it is {4 * layer / GB:.1f} GB",
    "its shards": f"On 1,024 GPUs each one's shard of everything, weights, gradients and states, "
    f"is {(4 + K) * 175 / 1_024:.1f} GB",
    "Narayanan": f"| ZeRO-3 alone | {' | '.join(map(str, zero3))} |",
    "3D": f"| tensor, pipeline and data parallel | {' | '.join(map(str, three_d))} |",
    "sequences": f"| sequences per GPU | {' | '.join(map(str, per_gpu))} |",
    "6 %": f"With {per_gpu[0] * 2_048:,} tokens per GPU the difference is "
    f"{(three_d[0] / zero3[0] - 1) * 100:.0f} %",
    "6 % again": f"At {per_gpu[0] * 2_048:,} tokens per GPU "
    f"{(three_d[0] / zero3[0] - 1) * 100:.0f} % apart",
    "Megatron": f"takes {2 + 4 + K} bytes without and {2 + 4} + {K}/d with it",
    "the models": "| 175 billion parameters, 1,536 sequences of 2,048 tokens "
    "| 384 GPUs | 768 | 1,536",
    "question 1": f"{2 * 13} + {(2 + K) * 13 / 32:.1f} = {2 * 13 + (2 + K) * 13 / 32:.1f} GB",
    "question 3": f"{float(sent(8, 3, 4)):g} and {float(2 * 4 * Fraction(7, 8)):g}.",
    "question 4": f"By {17 / hypot(3, 4, 12, 84):g}, all four: the norm is "
    f"{hypot(3, 4, 12, 84):.0f}",
}
QUOTED = {"13 billion"}  # the givens of a question


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 25
    assert CHAPTER.unproved(SAID.values()) <= QUOTED


@pytest.mark.parametrize("stage", range(4))
def test_what_a_gpu_keeps_is_what_the_explorer_shows(stage):
    settings = MemorySettings(model="GPT 7.5B", gpus=n, zero=stage)
    (shown,) = memory_numbers(settings).stages
    state = sum(size for part, size in shown.sizes.items() if part != "activations")
    assert isclose(state / GB, each_gb[stage], rel_tol=0.01)  # 7.5 billion is rounded


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_the_table_of_what_is_sent_is_what_a_ledger_shows(n):
    calls = {
        0: ["all_reduce"],
        1: ["reduce_scatter", "all_gather"],
        2: ["reduce_scatter", "all_gather"],
        3: ["all_gather", "all_gather", "reduce_scatter"],
    }
    for stage, ops in calls.items():
        assert measured(n, ops) == sent(n, stage), stage
        row = rf"^\| {STAGES[stage]} \| .*gradient \| .* \| (\d) \|$"
        (factor,) = re.findall(row, CHAPTER.text, re.MULTILINE)
        assert int(factor) * Fraction(n - 1, n) == sent(n, stage)
    assert measured(n, ["all_reduce", "all_gather"]) == sent(n, 3)  # ZeRO-1 the naive way


def measured(n: int, ops: list[str]) -> Fraction:
    """Returns the numbers per parameter that a rank sends for these collectives."""
    line, part = torch.ones(6 * n), torch.ones(6)

    def calls(comm):
        for op in ops:
            getattr(comm, op)(part if op == "all_gather" else line)

    return run(calls, n).ledger.ring_bytes(rank=0) / line.nbytes


def test_sixteen_bits_behave_as_the_chapter_says():
    assert torch.tensor(300.0, dtype=half).square().isinf()
    assert torch.tensor(1e-4, dtype=half).square() == 0
    assert torch.tensor(1 / 128, dtype=brain) + 1 > 1
    one = torch.tensor(1.0, dtype=brain)
    assert 0.999 * one == one
    assert one - 0.001 == one


def test_gathers_and_times_of_the_schedule():
    assert gathers == {1: 9, 2: 8}
    assert min(ahead_ms.values()) == ahead_ms[2] == 1.5 + 5 * (2 + 4)


def test_pictures_show_what_formulas_say():
    stack = runpy.run_path(str(FIGURES / "zero_stages.py"))["stack"]
    shards = runpy.run_path(str(FIGURES / "zero_shards.py"))["bytes_per_parameter"]
    lines = runpy.run_path(str(FIGURES / "zero_microbatches.py"))["sent"]
    for stage in range(4):
        assert isclose(sum(stack(stage).values()) / GB, each_gb[stage], rel_tol=1e-12)
        assert shards(stage) == kept(1, 4, stage)
    for m in (1, 2, 8):
        assert lines(m) == {
            "ZeRO-3": sent(4, 3, m),
            "ZeRO-2": sent(4, 2, m),
            "DP, ZeRO-1": sent(4, 1, m),
        }


def test_claims_without_a_number_hold():
    assert zero3[1] == 2 * zero3[2]  # twice the GPUs, half the rate: the same time
    assert 2 * layer > (4 + K) * 175e9 / 1_024  # a gathered layer is larger than all shards
    assert each_gb[0] * GB > H100_SXM.memory_bytes > each_gb[1] * GB
    floors = [float(kept(1, 10**9, stage)) for stage in range(4)]
    assert [round(floor, 6) for floor in floors] == [16, 4, 2, 0]
    assert abs(sent(128, 1) - sent(64, 1)) < Fraction(2, 100)  # "nearly the same"
