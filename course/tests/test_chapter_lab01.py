"""Every number of the chapter on memory and arithmetic, computed again."""

import runpy
from math import ceil, isclose

import pytest
import torch
from chapter import CHAPTERS, Chapter

from distlab import hardware as hw
from distlab.memory import POLICIES
from distlab.model import MODELS, PUBLISHED

CHAPTER = Chapter("lab01-memory-math")
FIGURES = CHAPTERS.parent / "figures"

h, a, L, s, b, t = 12_288, 96, 96, 2_048, 1, 8  # GPT-3, one sequence
sbh = s * b * h
layer = 12 * h**2
scores = 5 * a * s / h
kept = sbh * (34 + scores)
ways = {  # bytes that one of t GPUs keeps of a layer
    "one GPU": kept,
    "tensor parallelism": sbh * (10 + 24 / t + scores / t),
    "and sequence parallelism": kept / t,
    "and selective recompute": 34 * sbh / t,
    "full recompute instead": 2 * sbh,
}
again = 2 * sbh * L + kept  # full recompute: all inputs, and the layer that runs again

peak, hbm, nvlink, network = 989e12, 3.35e12, 900e9 / 2, 400e9 / 8  # H100; links one way
params, tokens, n = 7.5e9, 16_384, 64
arithmetic_s = 6 * params * tokens / (0.4 * peak)
sent = 2 * (n - 1) / n * 2 * params
gradients = 6 * tokens / (4 * (n - 1) / n)  # FLOP per byte sent
tensor_parallel = 4.5 * h / (t - 1)

llama_flop = 6 * 405e9 * 15.6e12
llama_hours = 30.84e6  # its model card, 2024
llama405 = MODELS["Llama 3.1 405B"]
mixtral, maverick = PUBLISHED["Mixtral 8x7B"].total, PUBLISHED["Llama 4 Maverick"].total
idle = 24 * 127 * 3 * 5_120 * 8_192  # Maverick: one of 128 experts is used in 24 layers
expert = 3 * 4_096 * 14_336  # Mixtral's
experts = 32 * 8 * expert
tables = 2 * 128_256 * 4_096  # Llama 3 8B's
qkv = 3 * 8_192**2


def gb(size_bytes: float, digits: int = 2) -> str:
    return f"{size_bytes / 1e9:,.{digits}f} GB"


def percent(share: float, digits: int = 1) -> str:
    return f"{share * 100:.{digits}f} %"


def million(number: float) -> str:
    return f"{number / 1e6:.0f} million"


def state_row(name: str, billions: float) -> str:
    sizes = [2, 2, 12, 16]
    columns = " | ".join(f"{size * billions:,.0f}" for size in sizes)
    return f"| {name} | {billions:,g} billion | {columns} | {16 * billions / 80:.1f} |"


def gpu_row(name: str, dense: float, sparse: str, memory: str, tb_s: str, both: float) -> str:
    return f"| {name} | {dense:,} | {sparse} | {memory} | {tb_s} | {both:,} | {both / 2:,.0f} |"


def corner_row(name: str, *ratios: float) -> str:
    return f"| {name} | " + " | ".join(f"{ratio:,.0f}" for ratio in ratios) + " |"


SAID = {  # what stands in the chapter, with every number computed here
    "Maverick": f"400 billion parameters. In BF16, two bytes each, its weights alone take "
    f"{gb(2 * 400e9, 0)}",
    "34 GPUs": f"training keeps {gb(16 * 400e9, 0)}, as much as {ceil(6400 / 192)} of these GPUs",
    "years": f"took {llama_hours / 1e6:.1f} million hours of H100s, so on one of them it would "
    f"have taken {round(llama_hours / 24 / 365.25, -2):,.0f} years",
    "GiB": f"1 GiB is 2³⁰ bytes: {percent(2**30 / 1e9 - 1)} more. So 80 GB are "
    f"{80e9 / 2**30:.1f} GiB, and 120 GB are {120e9 / 2**30:.1f} GiB",
    "the optimiser's part": f"of which twelve, {12 / 16 * 100:.0f} %, are the optimiser's",
    "decay": f"each step keeps 0.999 of it, and a loss of {percent(1 - 0.999)} is",
    "fp16": f"smallest positive number of {2**-24 * 1e8:.1f} · 10⁻⁸",
    "ZeRO's example": state_row("GPT, the example of ZeRO's paper", 7.5),
    "70B": state_row("Llama 3 70B", 70),
    "175B": state_row("GPT-3", 175),
    "400B": state_row("Llama 4 Maverick", 400),
    "405B": state_row("Llama 3.1 405B", 405),
    "2T": state_row("Llama 4 Behemoth", 2000),
    "fourteen": f"{gb(16 * 70e9, 0)} / 80 GB is {16 * 70e9 / 80e9:.1f} exactly",
    "64 GPUs": f"On 64 GPUs in equal shares it is {gb(16 * 70e9 / 64, 1)} on each, and "
    f"{gb(80e9 - 16 * 70e9 / 64, 1)} are left",
    "its picture": f"The state shrinks, {gb(again, 1)} of activations stay",
    "1,024": f"Let {8 * 8 * 16:,} GPUs train a 70B model",
    "5.2": rf"= {4 * 70 / 64:.3f}\ \text{{GB}} + {12 * 70 / 1024:.3f}\ \text{{GB}} = "
    rf"{4 * 70 / 64 + 12 * 70 / 1024:.1f}\ \text{{GB}}",
    "5.2, title": f"**{4 * 70 / 64 + 12 * 70 / 1024:.1f} GB.**",
    "a layer": f"that is {layer / 1e9:.2f} billion, in *every* layer, and "
    f"{L * layer / 1e9:.1f} billion in 96 layers",
    "the rest": f"table of 50,257 words has {million(50_257 * h)}, positions "
    f"{million(2_048 * h)}, biases and norms {million(L * 13 * h + 2 * h)}. In sum "
    f"{(L * (layer + 13 * h) + 2 * h + (50_257 + 2_048) * h) / 1e9:.1f} billion",
    "a layer in training": f"to train one layer takes {gb(16 * layer, 1)}",
    "queries": f"an eighth of their columns: {2 + 2 * 8 / 64:g}h² in place of 4h²",
    "gates": f"rounds {8 / 3 * 4_096:,.0f} up to {MODELS['Llama 2 7B'].ffn:,}. Llama 3.1 405B "
    f"stays at {llama405.ffn / llama405.hidden:g}h, so its MLPs have "
    f"{3 * llama405.ffn / llama405.hidden:g}h², its attention {2 + 2 * 8 / 128:g}h²",
    "vocabulary": f"At 128,256 words they are "
    f"{percent(tables / PUBLISHED['Llama 3 8B'].total, 0)} of Llama 3 8B",
    "Mixtral": f"eight of {expert / 1e9:.3f} billion in each of 32 layers, {experts / 1e9:.1f} "
    f"billion, and {(mixtral - experts) / 1e9:.1f} billion of "
    f"everything else: {mixtral / 1e9:.1f} billion, and not 8 · 7 = {8 * 7}",
    "its token": f"two of the eight, {(mixtral - 6 * 32 * expert) / 1e9:.1f} billion in all",
    "Maverick's": f"Maverick has {maverick / 1e9:.1f} billion, of which a token uses "
    f"{(maverick - idle) / 1e9:.1f} billion, or {percent((maverick - idle) / maverick)}",
    "two questions": f"each of 400 billion, operations for {(maverick - idle) / 1e9:.0f} billion",
    "12Lh² by luck": "gives Llama 3.1 405B to within 0.01 % is luck: "
    f"{2 + 2 * 8 / 128 + 3 * 3.25:g}h² a layer",
    "12Lh² of Maverick": f"For Maverick it gives {percent(12 * 48 * 5120**2 / maverick)}",
    "GPT-3's factor": f"5as/h is {scores:.0f} and the sum {34 + scores:.0f}",
    "a layer keeps": f"**{gb(kept)} a layer** and **{gb(L * kept, 0)} in 96 layers**",
    "measured": f"It keeps {34 + scores + 16 / h:.3f} sbh",
    "norms": f"16 bytes per token and layer, and 16/h = {16 / h:.4f}",
    "one GPU": f"| {gb(kept, 3)} | {gb(L * kept, 1)} |",
    "recomputing": f"its {gb(kept)} (or its share of it) are there as well, for one layer at a "
    f"time: {gb(2 * sbh * L)} + {gb(kept)} are the {gb(again, 1)} in the picture",
    "inputs cut": f"their {gb(2 * sbh, 4)} become {gb(2 * sbh / t, 4)}",
    "flash": f"{34 + 4 * a / h:.2f} sbh in all: {gb(sbh * (34 + 4 * a / h))} for our layer",
    "flash, picture": f"bends up to {8192 * h * (34 + 5 * a * 8192 / h) / 1e9:.0f} at 8,192 "
    f"tokens, with flash attention a straight line up to "
    f"{8192 * h * (34 + 4 * a / h) / 1e9:.1f}.",
    "stages": f"a single GPU with one microbatch: {gb(L * kept, 1)} for any p",
    "scores' FLOP": f"they add s/(6h) to it, {percent(s / (6 * h))} for GPT-3",
    "MFU": f"{0.4 * 100:.0f} % is good. With {params / 1e9} billion parameters and {tokens:,} "
    f"tokens on an H100 of {peak / 1e12:.0f} TFLOP/s",
    "a step": rf"= {arithmetic_s:.2f}\ \text{{s}}",
    "Llama's FLOP": f"15.6 trillion tokens: {llama_flop / 1e25:.1f} · 10²⁵ FLOP, which at 40 % "
    f"would be {llama_flop / (0.4 * peak) / 3600 / 1e6:.1f} million hours",
    "Llama's MFU": f"count {llama_hours / 1e6:.1f} million, an MFU of "
    f"{percent(llama_flop / (llama_hours * 3600 * peak), 0)}",
    "A100-40": gpu_row("A100, 40 GB", 312, "624", "40", "1.555", 600),
    "A100-80": gpu_row("A100, 80 GB", 312, "624", "80", "2.039", 600),
    "H100": gpu_row("H100 SXM", 989, "1,979", "80", "3.35", 900),
    "B200": gpu_row("B200", 2250, "4,500", "192 (180 usable)", "8", 1800),
    "adapters": f"400 Gb/s for an H100, which are {network / 1e9:.0f} GB/s one way",
    "clusters": f"24,576 H100s each; together they have "
    f"{2 * 24_576 * 989 / (16_000 * 312):.1f} times",
    "A100 corners": corner_row(
        "A100, 80 GB; 200 Gb/s", 312e12 / 2.039e12, 312e12 / 300e9, 312e12 / (200e9 / 8)
    ),
    "H100 corners": corner_row("H100; 400 Gb/s", peak / hbm, peak / nvlink, peak / network),
    "B200 corners": corner_row(
        "B200; 400 Gb/s", 2250e12 / 8e12, 2250e12 / 900e9, 2250e12 / network
    ),
    "norm": f"does about 8 FLOP on a number that is read and written, {8 / (2 + 2):.0f} "
    "FLOP per byte",
    "products": f"Eight tokens give {8 * h / (2 * 8 + h):.0f}, and the weights arrive too "
    f"slowly; 2,048 tokens give {2048 * h / (2 * 2048 + h):,.0f}",
    "roofs": f"left of the memory's corner at {peak / hbm:.0f}, 2,048 tokens right of it; t = 8 "
    f"lies left of the network's corner at {peak / network:,.0f}",
    "gradients": f"T = {tokens:,} and n = {n} make {gradients:,.0f} FLOP per byte",
    "tensor parallel": f"at t = 8 that is {tensor_parallel:,.0f} FLOP per byte: well above "
    f"NVLink's {peak / nvlink:,.0f}, far below the network's {peak / network:,.0f}",
    "arithmetic": f"| {params / 1e9} billion parameters, n = {n} | time | beside the arithmetic | "
    f"|---|---|---| | arithmetic | {arithmetic_s:.3f} s | |",
    "over NVLink": f"| {gb(sent)} at {nvlink / 1e9:.0f} GB/s (NVLink, one way) | "
    f"{sent / nvlink:.4f} s | {percent(sent / nvlink / arithmetic_s)} |",
    "over the network": f"| {gb(sent)} at {network / 1e9:.0f} GB/s (network) | "
    f"{sent / network:.3f} s | {percent(sent / network / arithmetic_s)} |",
    "the same": f"0.4 · {peak / network:,.0f} / {gradients:,.0f} is "
    f"{percent(0.4 * peak / network / gradients)}",
    "1.16": f"All {L} have, {layer / 1e9:.2f} billion each",
    "W13": f"It has {qkv / 1e6:.0f} million numbers, {gb(2 * qkv)} in BF16 and "
    f"{gb(16 * qkv, 1)} in training",
    "W62": f"cuts them: {gb(ways['tensor parallelism'], 3)} and not {gb(kept / t, 3)}",
    "sparse": f"computes 1,979 TFLOP/s. | With sparsity. Dense: {peak / 1e12:.0f} TFLOP/s",
    "1.13": f"The H100 has {hbm / 1e12} TB/s. Among A100s the 40 GB version has "
    f"{hw.A100_SXM_40GB.hbm_bytes_per_s / 1e12:.1f} TB/s, the 80 GB version "
    f"{hw.A100_SXM_80GB.hbm_bytes_per_s / 1e12:.2f} TB/s",
    "1.13, left": "memory has 1.6 TB/s, as an A100's",
    "X2": f"An H100 can do {round(peak / (2 * nvlink), -2):,.0f} FLOP per byte that it sends. | "
    f"{peak / 1e12:.0f} TFLOP/s over {2 * nvlink / 1e9:.0f} GB/s are "
    f"{peak / (2 * nvlink):,.0f}, with both directions added. One way, which is how sending is "
    f"timed, it is {peak / nvlink:,.0f}.",
    "X13": f"over NVLink in {sent / nvlink:.2f} s. | An H100's NVLink joins eight. Between nodes: "
    f"{sent / network:.2f} s",
    "W20": f"| InfiniBand has 400 GB/s. | 400 Gb/s, {400 / 8:.0f} GB/s. |",
    "W21": f"{600 // 2} GB/s can leave it. The {8 * 0.6:.1f} TB/s of a node are 8 · 600",
    "X12": f"The 405B took {llama_hours / 1e6:.1f} million",
    "1.15": "Llama 4: 2 trillion parameters, 288 billion active, 30 trillion tokens. | The first",
    "logits": f"they are {gb(s * 50_257 * 4)} per sequence; for 8,192 tokens of Llama 3's "
    f"vocabulary {gb(8_192 * 128_256 * 4, 1)}",
    "ZeRO": f"our {gb(16 * params, 0)} become {gb((4 + 12 / n) * params, 1)}, "
    f"{gb((2 + 14 / n) * params, 1)} and {gb(16 / n * params, 1)} on {n} GPUs",
    "question 1": f"Answers: {gb(80e9 - 70 * 2**30, 1)}.",
    "question 4": f"About {round(peak / hbm, -2):.0f}, the memory's {peak / hbm:.0f} FLOP per byte",
}
for way, size in ways.items():
    digits = (4, 2) if size < 1e8 else (3, 1)
    SAID[f"kept, {way}"] = f" | {gb(size, digits[0])} | {gb(L * size, digits[1])} |"
QUOTED = {  # plain specifications, others' texts, and the givens of questions
    "192 GB", "80 GB", "120 GB", "1 GB", "1 GiB", "40 GB", "200 Gb/s", "400 Gb/s", "400 GB/s",
    "600 GB/s", "43 %", "70 GiB", "175 billion", "288 billion", "1,979 TFLOP/s",
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 60
    assert CHAPTER.unproved(SAID.values()) <= QUOTED


def test_the_rows_of_what_a_layer_keeps_add_up_to_the_formula():
    rows = {"4 sbh": 4, "6 sbh": 6, "16 sbh": 16, "2 sbh": 2}
    table = CHAPTER.text.partition("| kept | bytes |")[2].partition("\n\n")[0]
    columns = [row.split("|")[-2].strip() for row in table.strip().split("\n")[1:]]
    assert columns.count("5 as²b") == 1
    assert sum(rows[column] for column in columns if column != "5 as²b") == 34


@pytest.mark.parametrize("way", ways)
def test_each_way_of_keeping_stands_in_a_row_of_its_own(way):
    (row,) = [line for line in CHAPTER.text.split("\n") if line.startswith(f"| {way} |")]
    assert row.endswith(SAID[f"kept, {way}"]), row


def test_the_table_of_policies_is_the_courses():
    rows = CHAPTER.text.partition("| policy |")[2].partition("\n\n")[0].split("\n")[2:]
    numbers = [[cell.strip() for cell in row.split("|")[2:-1]] for row in rows]
    for policy, (weight, gradient, master, moments, total) in zip(POLICIES, numbers, strict=True):
        assert (int(weight), int(gradient), int(total)) == (
            policy.weight,
            policy.gradient,
            policy.total,
        )
        assert (0 if "none" in master else int(master)) == policy.master
        both = sum(map(int, moments.split("+")))
        assert both == policy.first_moment + policy.second_moment
        assert policy.total == sum([int(weight), int(gradient), policy.master, both])


def test_the_figures_of_machines_are_the_courses():
    assert (hw.H100_SXM.peak_flop_per_s, hw.H100_SXM.hbm_bytes_per_s) == (peak, hbm)
    assert hw.H100_SXM.nvlink.rate_bytes_per_s == nvlink
    assert hw.DGX_H100.network.rate_bytes_per_s == network
    for gpu, tera, tb_s, both in (
        (hw.A100_SXM_40GB, 312, 1.555, 600),
        (hw.A100_SXM_80GB, 312, 2.039, 600),
        (hw.B200_SXM, 2250, 8, 1800),
    ):
        assert gpu.peak_flop_per_s == tera * 1e12
        assert isclose(gpu.hbm_bytes_per_s, tb_s * 1e12)
        assert gpu.nvlink.two_way_bytes_per_s == both * 1e9
    assert hw.DGX_A100.network.rate_bytes_per_s == 200e9 / 8
    assert hw.DGX_B200.network.rate_bytes_per_s == network


def test_the_pictures_draw_the_chapters_numbers():
    shares = runpy.run_path(str(FIGURES / "equal_shares.py"))["stack"]
    assert isclose(shares(64)["activations"], again)
    states = {n: sum(shares(n).values()) - shares(n)["activations"] for n in (35, 64, 128, 256)}
    assert all(isclose(size, 16 * 175e9 / n) for n, size in states.items())
    assert isclose(states[35], 80e9)  # "too few by just these"
    kept_gb = runpy.run_path(str(FIGURES / "kept_by_length.py"))["kept_gb"]
    assert isclose(kept_gb(s)["everything"], kept / 1e9)
    roofs = runpy.run_path(str(FIGURES / "what_it_waits_for.py"))
    assert isclose(roofs["gradients"](tokens, n), gradients)
    assert isclose(roofs["tensor_parallel"](t), tensor_parallel)
    assert isclose(roofs["product"](2_048), 1536)


def test_what_small_formats_lose():
    one, decay = torch.tensor(1.0), torch.tensor(0.999)
    assert (one + 0.001).bfloat16() == 1
    moments = torch.linspace(1, 2, 1000).bfloat16()  # one binade stands for all
    assert torch.equal((decay * moments.float()).bfloat16(), moments)  # "never fall"
    assert torch.tensor(1e-4, dtype=torch.float16).square() == 0
    assert torch.finfo(torch.float16).smallest_normal * torch.finfo(torch.float16).eps == 2**-24


def test_claims_without_a_unit_hold():
    assert round(2**-24 / (1e-4) ** 2) == 6  # "a sixth of FP16's smallest positive number"
    assert 3 < L * kept / 80e9 < 4  # "more than three GPUs hold"
    rough = 12 * llama405.layers * llama405.hidden**2
    assert isclose(rough, PUBLISHED[llama405.name].total, rel_tol=1e-4)
    assert isclose(L * layer, PUBLISHED["GPT-3 175B"].total, rel_tol=5e-3)
    assert isclose(tensor_parallel, 72 * h / t / (4 * 2 * (t - 1) / t * 2))


def test_it_keeps_the_labs_written_answers_to_the_reader():
    assert "6.8" not in CHAPTER.text
    assert "870" not in CHAPTER.text
