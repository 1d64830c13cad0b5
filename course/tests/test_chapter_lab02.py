"""Every number of the chapter on data parallelism, computed again."""

import re
import runpy
from fractions import Fraction
from math import ceil, isclose

import pytest
from chapter import CHAPTERS, Chapter

from distlab.cost import ring_steps, ring_time_s
from distlab.hardware import DGX_H100, H100_SXM, NCCL_NETWORK_LATENCY_S, with_latency
from distlab.planner.stacks import NCCL_A100, NCCL_H100

CHAPTER = Chapter("lab02-data-parallel")
FIGURES = CHAPTERS.parent / "figures"

# 7.5 billion parameters on 64 H100s, 16,384 tokens on each
params, n, tokens, MIB = 7.5e9, 64, 16_384, 2**20
peak = 989e12
reached = 0.40 * peak  # FLOP/s
nvlink, network = 900e9 / 2, 400e9 / 8  # bytes/s, one way
S = 2 * params  # BF16
sent = 2 * (n - 1) / n * S
middle = (n - 1) * S  # out of GPU 0, and as many into it
arithmetic_s = 6 * params * tokens / reached
backward_s = arithmetic_s * 4 / 6
hop_s = float(NCCL_NETWORK_LATENCY_S)
latency_s = 2 * (n - 1) * hop_s
SLOW = with_latency(DGX_H100, node_s=0.0, network_s=hop_s).network


def ratio(tokens: float, rate: float) -> float:
    return 2 / 3 * (n - 1) / n * reached / (rate * tokens)


def visible(backward: float, sending: float, k: int) -> float:
    """What equal buckets leave visible, in closed form."""
    if sending <= backward:
        return sending / k
    return sending - backward + backward / k


def visible_s(k: int, ranks: int = n) -> float:
    """What 15 GB in k buckets leave visible, with latency."""
    return visible(backward_s, k * float(ring_time_s("all_reduce", ranks, S / k, SLOW)), k)


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def small_s(size_bytes: float) -> float:
    return float(ring_time_s("all_reduce", n, size_bytes, SLOW))


samples = 1_000
full, over = divmod(samples, n)
buckets = ceil(S / (25 * MIB))
inside_s = 2 * 7 / 8 * S / nvlink  # eight GPUs of a node: reduce-scatter, all-gather
across = 2 * 7 / 8 * S / 8  # bytes: an eighth of the gradients, over eight nodes
zero = [2 + 2 + 12 / n, 2 + (2 + 12) / n, 16 / n]  # bytes per parameter on one GPU
ring_row = " | ".join(f"{2 * (r - 1) / r:.7g}" for r in (2, 4, 8, 64))

SAID = {  # what stands in the chapter, with every number computed here
    "the example": f"Take {params / 1e9} billion parameters, {tokens:,} tokens on each of {n} "
    "H100s",
    "again": f"Back to {params / 1e9} billion parameters on {n} H100s. A rank sends "
    f"{sent / 1e9:.2f} GB per step",
    "peak": f"that reaches {reached / peak * 100:.0f} % of the peak of {peak / 1e12:.0f} TFLOP/s",
    "a step": f"Each GPU computes for {arithmetic_s:.2f} s. One GPU with all the tokens of that "
    f"step would need {n * arithmetic_s:.0f} s",
    "memory": f"keeps 16 bytes for each parameter, here {16 * params / 1e9:.0f} GB",
    "means": f"means are {3 / 3:.0f} and {9 / 1:.0f}, and the mean of these is {(1 + 9) / 2:.0f}. "
    f"The mean over the samples is {(3 * 1 + 9) / 4:.0f}",
    "drop": f"| drop the rest | {full} | {over} samples are left out",
    "pad": f"| pad with repeats | {full + 1} | {(full + 1) * n - samples} samples count twice",
    "all": f"| use each once | {full + 1} on {over} ranks, {full} on {n - over} |",
    "gradient": f"In the example S is {S / 1e9:.0f} GB. Rank 0 takes in {n - 1} gradients, "
    f"{middle / 1e9:.0f} GB,",
    "the middle": f"{middle / 1e9:.0f} GB out, {middle / 1e9:.0f} GB in, in every step",
    "sent in S": f"| sent by one rank, in S | {ring_row} |",
    "the ring": f"For {n} GPUs and {S / 1e9:.0f} GB it is {sent / 1e9:.2f} GB, out of every GPU, "
    f"where the middle one had {middle / 1e9:.0f} GB",
    "the total": f"(n − 1)S in and (n − 1)S out, {2 * middle / 1e9:,.0f} GB either way",
    "hops": f"with {n} ranks there are {2 * (n - 1)} hops, and at {hop_s * 1e6:.1f} μs each",
    "latency": f"they take {latency_s * 1e3:.2f} ms. Eight kB take {small_s(8000) * 1e3:.2f} ms",
    "25 MiB": f"25 MiB take {small_s(25 * MIB) * 1e3:.2f} ms, of which "
    f"{(small_s(25 * MIB) - latency_s) * 1e3:.2f} ms are for the bytes",
    "arithmetic": f"| arithmetic | {arithmetic_s:.3f} s | |",
    "NVLink": f"at {nvlink / 1e9:.0f} GB/s (NVLink, one way) | {sent / nvlink:.4f} s | "
    f"{percent(sent / nvlink / arithmetic_s)} |",
    "the network": f"at {network / 1e9:.0f} GB/s (400 Gb/s network) | {sent / network:.3f} s | "
    f"{percent(sent / network / arithmetic_s)} |",
    "tokens": f"over the network takes {ceil(tokens * ratio(tokens, network) / 0.1):,} tokens per "
    f"GPU; at NVLink's rate {ceil(tokens * ratio(tokens, nvlink) / 0.1):,}.",
    "intensity": f"{peak / 1e12:.0f} TFLOP/s over {network / 1e9:.0f} GB/s make "
    f"{peak / network:,.0f} FLOP per byte on the network, and {peak / nvlink:,.0f} on NVLink",
    "both directions": f"You may meet {peak / (2 * nvlink):,.0f} for NVLink. That divides by both "
    f"directions together, and doesn't go with the {sent / nvlink:.4f} s",
    "added latency": f"({2 * (n - 1)} hops would add {latency_s * 1e3:.2f} ms)",
    "measured": f"reach some {100 * NCCL_A100.node_share:.0f} % of NVLink's rate and "
    f"{100 * NCCL_A100.network_share:.0f} to {100 * NCCL_H100.network_share:.0f} % of the "
    "network's",
    "two levels": f"takes {inside_s:.3f} s on NVLink and {across / network:.3f} s on the network, "
    f"where each GPU now sends {across / 1e9:.2f} GB",
    "the picture": f"ends at {4 + 8 + visible(8, 4 * 1.5, 4):g} ms. Without overlap it would end "
    f"at {4 + 8 + 4 * 1.5:g} ms, and with perfect overlap at {4 + 8} ms",
    "a slow link": f"with {3} ms per bucket the same step ends at "
    f"{4 + 8 + visible(8, 12, 4):g} ms, and {visible(8, 12, 4):g} ms of {4 * 3} ms are visible",
    "backward": f"backward takes {backward_s:.3f} s, and the bytes take {sent / network:.3f} s",
    "buckets": f"With 100 buckets the visible part is {visible_s(100) * 1e3:.1f} ms, with 500 it "
    f"is {visible_s(500) * 1e3:.1f} ms",
    "the default": f"25 MiB make {buckets} buckets out of {S / 1e9:.0f} GB, whose latencies alone "
    f"take {buckets * latency_s:.3f} s",
    "too many": f"and {visible_s(buckets) * 1e3:.0f} ms are visible. At 800 buckets they are "
    f"{visible_s(800) * 1e3:.0f} ms",
    "its picture": f"{visible_s(20) * 1e3:.0f} at 20, a few between 100 and 500, then a steep "
    f"straight rise to {visible_s(800) * 1e3:.0f} at 800",
    "eight messages": f"each of eight microbatches would cost {8 * sent / 1e9:.0f} GB per rank "
    f"where {sent / 1e9:.2f} GB do",
    "eight microbatches": f"with eight microbatches of {tokens:,} tokens, the network's "
    f"{percent(ratio(tokens, network))} become {percent(ratio(8 * tokens, network))}",
    "factors": f"the factors are {2 * 1000 / 4000:g} and {2 * 3000 / 4000:g}",
    "W4": f"both send {2 * middle / 1e9:,.0f} GB in our example. What goes is the hot spot: "
    f"{middle / 1e9:.0f} GB through one GPU become {sent / 1e9:.2f} GB through each",
    "X2": f"over both directions added; one way it is {peak / nvlink:,.0f}",
    "X2, left": f"An H100 needs {round(peak / (2 * nvlink), -2):,.0f} FLOP per byte on NVLink",
    "X13, left": f"On NVLink {n} GPUs need {sent / nvlink:.2f} s",
    "ZeRO": f"the example's {16 * params / 1e9:.0f} GB become {zero[0] * 7.5:.1f} GB with sharded "
    f"optimiser states, {zero[1] * 7.5:.1f} GB with gradients too, {zero[2] * 7.5:.1f} GB with",
    "one bit": f"A bit in place of 16 makes {S / 16 / 1e9:.2f} GB of {S / 1e9:.0f} GB",
    "local SGD": f"bytes fall to 1/H, {sent / 8 / 1e9:.1f} GB per step at H = 8",
    "stale": f"with {n} workers a gradient is {n - 1} updates old",
    "question 4": f"{visible(10, 8, 4):g} ms; {visible(10, 20, 4):g} ms.",
}
QUOTED = {  # plain specifications, the givens of examples and questions
    "80 GB", "400 Gb/s", "25 MiB", "1 MiB", "4 ms", "8 ms", "1.5 ms", "2 ms", "10 ms", "20 ms",
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 40
    assert CHAPTER.unproved(SAID.values()) <= QUOTED


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_the_table_of_collectives_is_what_the_course_computes_with(ranks):
    hops = {"n − 1": ranks - 1, "2(n − 1)": 2 * (ranks - 1)}
    parts = {"S/n": Fraction(1, ranks), "S": 1, "S, one rank's part": 1, "0": 0}
    ops = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "barrier")
    for op in ops:
        (row,) = re.findall(rf"^\| {op} \| (.*?) \| (.*?) \|", CHAPTER.text, re.MULTILINE)
        want = ring_steps(op.replace("-", "_"), ranks, 1)
        assert (hops[row[0]], parts[row[1]]) == want, op


def test_the_ratio_in_closed_form_is_the_ratio_of_times():
    for rate in (nvlink, network):
        assert isclose(sent / rate / arithmetic_s, ratio(tokens, rate), rel_tol=1e-12)
    assert float(H100_SXM.peak_flop_per_s) == peak
    assert float(DGX_H100.network.rate_bytes_per_s) == network


@pytest.mark.parametrize("reduce_ms", [1, 1.5, 2, 3, 5])
def test_the_visible_part_in_closed_form_is_what_a_timeline_shows(reduce_ms):
    step = runpy.run_path(str(FIGURES / "bucket_overlap.py"))["step"](Fraction(reduce_ms))
    assert isclose(step.exposed_comm_s(0) * 1e3, visible(8, 4 * reduce_ms, 4), rel_tol=1e-12)
    assert isclose(step.makespan_s * 1e3, 12 + visible(8, 4 * reduce_ms, 4), rel_tol=1e-12)


def test_the_picture_of_the_ring_shows_sums_of_distinct_terms():
    sent_on = runpy.run_path(str(FIGURES / "ring_hops.py"))["sent"]
    assert [sent_on(0, hop) for hop in range(6)] == [1, 1001, 1101, 1111, 1111, 1111]
    for hop in range(1, 4):  # what came from the left, and the rank's own term
        for rank in range(4):
            assert sent_on(rank, hop) == sent_on((rank - 1) % 4, hop - 1) + 10**rank


def test_the_picture_of_visible_sending_agrees_with_the_formula():
    drawn = runpy.run_path(str(FIGURES / "visible_sending.py"))["visible_s"]
    for k in (20, 100, 500, 600, 800):
        assert isclose(drawn(k), visible_s(k), rel_tol=1e-9)


def test_claims_without_a_unit_hold():
    assert 16 * params > 80e9  # "doesn't fit as it stands"
    few = [ranks for ranks in (8, 16, 32, 64, 128) if visible_s(buckets, ranks) < 0.005]
    assert few == [8, 16, 32]  # "a good one for a few dozen GPUs, and too small for many"
