"""Every number of the chapter on tensor parallelism, computed again."""

from math import isclose

import pytest
from chapter import Chapter

CHAPTER = Chapter("lab03-tensor-parallel")

# GPT-3, a layer at a time
h, a, L, s, b, t = 12_288, 96, 96, 2_048, 1, 8
state_bytes = 2 + 2 + 12  # BF16 weight and gradient, Adam in FP32
layer = 12 * h**2
S = 2 * b * s * h  # one all-reduce, BF16
sent = 2 * (t - 1) / t * S
reached = 0.40 * 989e12  # FLOP/s
nvlink, infiniband = 900e9 / 2, 400e9 / 8  # bytes/s, one way
arithmetic_s = 72 * b * s * h**2 / t / reached
scores_flop = 3 * 2 * 2 * s**2 * h * b  # forward and backward of the two products with s x s scores


def activations_bytes(t: int, sequence_parallel: bool = False) -> float:
    if sequence_parallel:
        return s * b * h * (34 + 5 * a * s / h) / t
    return s * b * h * (10 + 24 / t + 5 * a * s / (h * t))


def ratio(t: int, h: int, rate: float) -> float:
    return 2 / 9 * (t - 1) * reached / (h * rate)


# the lecture's 1,024 GPUs: t = 8, 8 stages, 16 replicas, 1,536 sequences
microbatches, layers_here = 1_536 // 16, L // 8
step_bytes = microbatches * layers_here * 4 * sent
step_flop = 8 * 175e9 * 1_536 * s

SAID = {  # what stands in the chapter, with every number computed here
    "a layer's parameters": f"{layer / 1e9:.2f} billion | {layer * state_bytes / 1e9:.1f} GB |",
    "all layers": f"{L * layer / 1e9:.1f} billion | {L * layer * state_bytes / 1e9:,.0f} GB |",
    "queries, keys, values": f"at h = 8,192 hold {3 * 8192**2 / 1e6:.0f} million numbers",
    "their bytes": (
        f"{2 * 3 * 8192**2 / 1e9:.2f} GB as BF16 weights and "
        f"{state_bytes * 3 * 8192**2 / 1e9:.1f} GB with"
    ),
    "again": (
        f"{2 * 3 * 8192**2 / 1e9:.2f} GB at h = 8,192, "
        f"{state_bytes * 3 * 8192**2 / 1e9:.1f} GB in training"
    ),
    "sent in S": "| sent by one rank, in S | "
    + " | ".join(f"{2 * (n - 1) / n:g}" for n in (2, 4, 8, 16)),
    "all-reduces": f"GPT-3 makes {4 * L} of them in one pass",
    "with recomputation": f"it makes {6 * L}.",
    "again all-reduces": f"{4 * L} in one pass forward and back, {6 * L} with recomputation",
    "payload": f"S = 2bsh = {S / 1e6:.1f} MB. At t = 8 a rank sends {sent / 1e6:.1f} MB",
    "a layer's": f"{4 * sent / 1e6:.0f} MB for the four of a layer ({6 * sent / 1e6:.0f} MB with",
    "again payload": f"{S / 1e6:.1f} MB for GPT-3 at b = 1; hundreds from b = 4 on",
    "peak": f"{989} TFLOP/s (dense, BF16) of which {reached / 989e12:.0%}".replace("%", " %"),
    "arithmetic": f"| arithmetic | {arithmetic_s * 1e3:.2f} ms |",
    "NVLink": (
        f"NVLink, {nvlink / 1e9:.0f} GB/s | {4 * sent / nvlink * 1e3:.2f} ms | "
        f"{4 * sent / nvlink / arithmetic_s:.2f} |"
    ),
    "InfiniBand": (
        f"InfiniBand, {infiniband / 1e9:.0f} GB/s | {4 * sent / infiniband * 1e3:.2f} ms | "
        f"{4 * sent / infiniband / arithmetic_s:.2f} |"
    ),
    "a smaller model": (
        f"h = 4,096 pays {ratio(t, 4096, nvlink):.2f} where GPT-3 pays {ratio(t, h, nvlink):.2f}"
    ),
    "scores": (
        f"the {ratio(t, h, infiniband):.2f} becomes "
        f"{4 * sent / infiniband / (arithmetic_s + scores_flop / t / reached):.2f}"
    ),
    "replicas": f"Take {8 * 8 * 16:,} GPUs with t = 8, 8 stages and 16 replicas",
    "share": f"Each GPU holds {layers_here} layers and sees {microbatches} microbatches",
    "a step": f"it sends {step_bytes / 1e9:.0f} GB in tensor parallelism alone: "
    f"{step_bytes / nvlink:.2f} s on NVLink",
    "a step's arithmetic": f"takes {step_flop / 1024 / (0.5 * 989e12):.1f} s",
    "small MLP": f"an MLP's {2 * 16 * 64:,} weights become {2 * 16 * 64 // 4} per rank",
    "activations": (
        f"keeps {activations_bytes(1) / 1e9:.2f} GB for its backward pass on one GPU, and "
        f"{activations_bytes(8) / 1e9:.2f} GB at t = 8, not {activations_bytes(1) / 8e9:.2f} GB"
    ),
    "sequence parallelism": (
        f"the {activations_bytes(8) / 1e9:.2f} GB become {activations_bytes(8, True) / 1e9:.2f} GB"
    ),
    "bits": f"400 Gb/s are {infiniband / 1e9:.0f} GB/s. NVLink's 900 GB/s add both directions: "
    f"{nvlink / 1e9:.0f} GB/s each way",
    "A100s": f"eight of them make {8 * 600e9 / 1e12:.1f} TB/s",
    "heads": f"32 query heads and 8 of the others has {32 // 8} and {8 // 8} per rank at t = 8",
    "more heads": "48 heads can be cut over 6 ranks; 32 can't",
}
QUOTED = {  # of others' texts, and plain specifications
    "80 GB", "450 GB/s", "400 GB/s", "900 GB/s", "600 GB/s", "400 Gb/s", "800 Gb/s",
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 20
    assert CHAPTER.unproved(SAID.values()) <= QUOTED


def test_the_ratio_in_closed_form_is_the_ratio_of_times():
    for ranks in (2, 4, 8, 16):
        bytes_sent = 4 * 2 * (ranks - 1) / ranks * S
        flop_s = 72 * b * s * h**2 / ranks / reached
        assert isclose(bytes_sent / nvlink / flop_s, ratio(ranks, h, nvlink), rel_tol=1e-12)


def test_claims_without_a_unit_hold():
    assert 80e9 // (layer * state_bytes) == 2  # "room for one layer, and for two"
    assert 3 * S < 200e6 < 4 * S  # "hundreds from b = 4 on"
    assert L * layer * state_bytes > 80e9
