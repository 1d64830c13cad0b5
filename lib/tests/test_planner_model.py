"""The planner's cost model: counts, memory, seconds, and the constants it was calibrated with."""

import subprocess
import sys
from dataclasses import replace

import pytest

from distlab import cost
from distlab.hardware import (
    A100_SXM_40GB,
    B200_SXM,
    DGX_A100,
    DGX_H100,
    GB200,
    H100_SXM,
    H200_SXM,
    V100_SXM2_32GB,
    Cluster,
    Link,
)
from distlab.layout import Job, Layout
from distlab.memory import PARTS
from distlab.model import GPT3_175B, LLAMA3_8B, LLAMA3_405B, MODELS, PUBLISHED
from distlab.planner import calibrate, compare, estimate, memory, seconds
from distlab.planner.counts import counts
from distlab.planner.estimate import numbers
from distlab.planner.published import collectives, rows, runs
from distlab.planner.stack import Ring
from distlab.planner.stacks import (
    CALIBRATED,
    MEGATRON_2021,
    MEGATRON_2022,
    MEGATRON_CORE,
    NCCL_A100,
    STACKS,
    ZERO3_2021,
    stack_of,
)
from distlab.schedule import interleaved, one_f_one_b, simulate

DENSE = [model for model in MODELS.values() if not model.experts]
GPT3 = Job(model=GPT3_175B, batch=1536, seq=2048, gpus=1024, cluster=DGX_H100)


def held(model, layout, layers, stage):
    """The parameters of one GPU of a stage."""
    ends = {"first": stage == 0, "last": stage == layout.p - 1}
    return memory.stage_params(counts(model), numbers(layout), layers, **ends)


# Parameters


@pytest.mark.parametrize("model", DENSE, ids=lambda model: model.name)
def test_one_gpu_holds_the_published_number_of_parameters(model):
    total = sum(held(model, Layout(1, 1, 1), model.layers, 0).values())
    published = PUBLISHED[model.name]
    assert abs(total - published.total) <= published.rounding / 2


def test_stages_hold_the_model_between_them():
    layout = Layout(1, 16, 1, v=8)
    layers = estimate(replace(GPT3, model=LLAMA3_405B, gpus=16), layout, MEGATRON_CORE).layers
    assert layers == (7, *[8] * 14, 7)
    total = sum(sum(held(LLAMA3_405B, layout, n, s).values()) for s, n in enumerate(layers))
    assert total == PUBLISHED["Llama 3.1 405B"].total


def test_a_tied_head_on_another_stage_is_a_copy():
    one = sum(held(GPT3_175B, Layout(1, 1, 1), 96, 0).values())
    two = sum(sum(held(GPT3_175B, Layout(1, 2, 1), 48, stage).values()) for stage in (0, 1))
    assert two - one == 50257 * 12288


def test_t_cuts_matrices_and_keeps_norms_whole():
    c = counts(GPT3_175B)
    whole, cut = (memory.layer_params(c, numbers(Layout(t, 1, 1))) for t in (1, 8))
    assert whole == 12 * 12288**2 + 13 * 12288
    # Two norms of 2h and the biases of two rows of h stay; 12h² and the columns' 7h are cut.
    assert cut == (12 * 12288**2 + 7 * 12288) / 8 + 6 * 12288


def test_kv_heads_fewer_than_t_are_copied():
    c = counts(LLAMA3_8B)
    eight, sixteen = (memory.layer_params(c, numbers(Layout(t, 1, 1))) for t in (8, 16))
    kv = 2 * 4096 * 1024
    assert sixteen - c.layer_whole == pytest.approx((eight - c.layer_whole - kv / 8) / 2 + kv / 8)


@pytest.mark.parametrize("name", ["Mixtral 8x7B", "DeepSeek-V3"])
def test_a_model_with_experts_is_refused(name):
    job = replace(GPT3, model=MODELS[name])
    with pytest.raises(ValueError, match=f"{name} has experts: the planner knows dense"):
        estimate(job, Layout(8, 8, 16))


# Memory


def test_parts_are_named_as_in_a_memory_stack():
    found = estimate(GPT3, Layout(8, 8, 16))
    assert set(found.memory) <= set(PARTS)
    assert found.memory_bytes == sum(found.memory.values())
    assert found.fits == (found.memory_bytes <= 80e9)


@pytest.mark.parametrize(("p", "v", "m"), [(4, 1, 8), (4, 1, 2), (3, 2, 6), (4, 3, 8), (2, 4, 2)])
def test_chunks_in_flight_are_those_of_the_simulated_schedule(p, v, m):
    order = interleaved(p, m, v) if v > 1 else one_f_one_b(p, m)
    seen = simulate(order).peak_in_flight
    layout = numbers(Layout(1, p, 1, v=v))
    assert [memory.chunks_in_flight(layout, m, s) for s in range(p)] == seen


def test_the_first_stage_of_interleaving_keeps_what_korthikanti_says():
    p, v = 8, 3
    chunks = memory.chunks_in_flight(numbers(Layout(1, p, 1, v=v)), 64, 0)
    assert chunks / (p * v) == pytest.approx(1 + (p - 1) / (p * v))


def test_each_stage_of_zero_shares_one_part_more():
    params, n = 7e9, 64
    sizes = [
        memory.state_bytes(MEGATRON_2022, numbers(Layout(1, 1, n, zero=z)), params, largest_layer=0)
        for z in range(4)
    ]
    parts = ("optimiser states", "gradients", "weights")
    for before, after, part in zip(sizes, sizes[1:], parts, strict=False):
        assert after[part] == before[part] / n
        assert all(after[other] == before[other] for other in parts if other != part)


def test_the_worst_stage_is_where_the_most_lies():
    # Full recompute and few layers: the last stage's logits weigh more than what is in flight.
    job = replace(GPT3, model=LLAMA3_8B, gpus=4, batch=64, seq=8192)
    found = estimate(job, Layout(1, 4, 1, microbatch=4))
    assert found.stage == 3
    assert found.params["head"] == 128256 * 4096 + 4096
    assert estimate(job, Layout(1, 4, 1, recompute="none")).stage == 0


def test_dropping_activations_and_sharing_tokens_save_memory():
    def activations(**how):
        return estimate(GPT3, Layout(8, 8, 16, **how), MEGATRON_2022).memory["activations"]

    none, selective, full = (activations(recompute=r) for r in ("none", "selective", "full"))
    assert none > selective > full
    for recompute, unshared in (("none", none), ("selective", selective), ("full", full)):
        assert activations(recompute=recompute, sequence_parallel=True) < unshared


# Seconds


@pytest.mark.parametrize("row", rows("narayanan2021_table1.csv"), ids=lambda r: r["params_B"])
def test_flop_are_counted_as_narayanan_counts_them(row):
    L, h, V, s = (int(row[k]) for k in ("layers", "hidden", "vocab", "seq_len"))
    run = next(r for r in runs("Narayanan 2021, Table 1") if r.row == f"{row['params_B']}B")
    c, x = counts(run.job.model), numbers(run.layout)
    with_recompute = seconds.model_flop_per_token(c, run.job)
    with_recompute += seconds.extra_flop_per_token(c, run.job, x, run.stack)
    paper = 96 * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    assert with_recompute == pytest.approx(paper)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("op", "passes"), [("reduce_scatter", 1), ("all_reduce", 2)])
def test_a_ring_in_a_node_takes_what_the_course_s_closed_form_says(op, passes, ranks):
    link = Link("a link", 200e9, latency_s=3e-6)
    cluster = Cluster("a node", H100_SXM, 8, DGX_H100.network, node_link=link)
    ring = Ring(node_share=1, network_share=1, node_step_s=3e-6)
    found = seconds.ring_seconds(cluster, ring, 1e9, ranks=ranks, stride=1, passes=passes)
    assert found == pytest.approx(float(cost.ring_time_s(op, ranks, 1e9, link)))


def test_across_nodes_every_rank_of_a_node_brings_its_adapter():
    ring = Ring(node_share=1, network_share=1)

    def rate(ranks, stride):
        time_s = seconds.ring_seconds(DGX_H100, ring, 1e9, ranks=ranks, stride=stride, passes=1)
        return (ranks - 1) / ranks * 1e9 / time_s

    assert rate(8, 1) == pytest.approx(450e9)
    assert rate(16, 8) == pytest.approx(50e9)  # one of its ranks in each node
    assert rate(16, 4) == pytest.approx(100e9)
    assert rate(16, 1) == pytest.approx(400e9)


def test_equal_stages_wait_the_textbook_s_bubble():
    job = replace(GPT3, model=replace(GPT3_175B, vocab=1), batch=64, gpus=8)
    for v in (1, 2, 4):
        times = estimate(job, Layout(1, 8, 1, v=v), MEGATRON_2021).times
        # A head of one row is nearly no work.
        assert times["bubble"] / times["compute"] == pytest.approx(7 / (v * 64), rel=1e-3)


def test_full_recompute_runs_every_layer_forward_once_more():
    c, x = counts(GPT3_175B), numbers(Layout(8, 8, 16))
    layer = seconds.layer_seconds(c, GPT3, x, MEGATRON_2022)
    assert layer["again"] == layer["forward"]
    times = seconds.step_seconds(
        c, GPT3, x, MEGATRON_2022, first_layers=12, most_layers=12, last_layers=12
    )
    free = replace(GPT3, model=GPT3_175B)
    none = estimate(free, Layout(8, 8, 16, recompute="none"), MEGATRON_2022).times
    assert times["TP"] == pytest.approx(1.5 * none["TP"])  # six all-reduces for four
    # The last stage sets the pace, and its head is not run again.
    assert times["compute"] - none["compute"] == pytest.approx(96 * 12 * layer["forward"])


def test_zero_3_gathers_weights_for_every_microbatch():
    job = Job(model=LLAMA3_8B, batch=256, seq=2048, gpus=64, cluster=DGX_A100)
    beside = replace(ZERO3_2021, data_beside=False)
    once, twice = (
        estimate(job, Layout(1, 1, 64, zero=3, microbatch=b), beside).times["DP"] for b in (4, 2)
    )
    assert twice == pytest.approx(2 * once)
    plain, sharded = (
        estimate(job, Layout(1, 1, 64, zero=z, microbatch=4), beside).times["DP"] for z in (0, 3)
    )
    assert sharded == pytest.approx(1.5 * plain, rel=1e-3)  # 3Ψ for 2Ψ


def test_what_runs_beside_computing_shows_only_where_it_is_longer():
    layout = Layout(8, 8, 16)
    shown = estimate(GPT3, layout, replace(MEGATRON_CORE, data_beside=False)).times["DP"]
    hidden = estimate(GPT3, layout, MEGATRON_CORE).times["DP"]
    assert 0 < hidden < shown  # one microbatch's computing is shorter than what is sent
    few = replace(layout, microbatch=8)
    assert estimate(GPT3, few, MEGATRON_CORE).times["DP"] == 0
    slow = replace(DGX_H100, network=Link("slow", 1e9))
    assert estimate(replace(GPT3, cluster=slow), layout, MEGATRON_CORE).times["DP"] > 1


def test_rates_and_shares_are_those_of_the_step():
    found = estimate(GPT3, Layout(8, 8, 16, recompute="none"), MEGATRON_2022)
    assert set(found.times) == set(seconds.PARTS)
    assert found.tokens_per_s == 1536 * 2048 / found.step_time_s
    assert found.mfu == found.hfu
    flop = 6 * (96 * 12 * 12288**2 + 50257 * 12288) + 12 * 96 * 2048 * 12288
    assert found.mfu == pytest.approx(flop * found.tokens_per_s / 1024 / 989e12)
    full = estimate(GPT3, Layout(8, 8, 16), MEGATRON_2022)
    assert full.hfu > full.mfu


def test_a_layout_that_does_not_fit_the_job_is_refused():
    with pytest.raises(ValueError, match="8×8×8 fills 512 GPUs, and the job has 1024"):
        estimate(GPT3, Layout(8, 8, 8))
    with pytest.raises(ValueError, match="1536 is no whole number of microbatches of 5 on 16"):
        estimate(GPT3, Layout(8, 8, 16, microbatch=5))


# Calibration


def test_a_stack_has_at_most_three_constants_and_every_constant_a_stack():
    for name, stack in STACKS.items():
        fitted = [c for c in CALIBRATED if name in c.stacks]
        assert 1 <= len(fitted) <= 3
        assert calibrate.with_constants(stack, fitted) == stack
    rings = {c.stacks for c in CALIBRATED if not set(c.stacks) & set(STACKS)}
    assert rings == {("NCCL, NVLink of the A100",)}


@pytest.mark.parametrize("names", sorted({compare.together(name)[0] for name in STACKS}))
def test_constants_are_what_fits_the_rows_that_they_name(names):
    _, constants = compare.together(names[0])
    found = compare.fit_runs(names)
    for fitted, stands in zip(calibrate.fit(found, constants), constants, strict=True):
        # Three digits are kept.
        assert fitted.value == pytest.approx(stands.value, rel=6e-3), stands
        if len(stands.stacks) == 1:
            assert stands.rows.endswith(f": {len(found)} rows") or len(names) > 1


def test_the_ring_is_what_fits_the_all_reduces():
    _, constants = compare.together("NCCL, NVLink of the A100")
    found = collectives("A100")
    assert len(found) == 77
    for fitted, stands in zip(
        calibrate.fit_ring(found, NCCL_A100, constants), constants, strict=True
    ):
        assert fitted.value == pytest.approx(stands.value, rel=6e-3), stands


def test_least_squares_finds_a_minimum_that_is_known():
    import numpy as np

    def errors(x):
        return np.array([x[0] - 3, 10 * (x[1] - x[0] ** 2)])

    assert calibrate.least_squares(errors, np.array([-1.0, 2.0]), steps=300) == pytest.approx(
        [3, 9], rel=1e-4
    )


def test_a_row_left_out_is_not_in_its_own_fit():
    found = list(runs("Llama 3 2024, Table 4"))[:2]
    _, constants = compare.together(found[0].stack.name)
    before = calibrate.left_out(found, constants)
    doubled = [replace(found[0], measured=2 * found[0].measured), found[1]]
    after = calibrate.left_out(doubled, constants)
    assert after[0] == pytest.approx(before[0])
    assert after[1] != pytest.approx(before[1])


def test_every_row_says_where_it_stands():
    for table in compare.TABLES:
        for run in runs(table):
            assert run.source
            assert run.basis in ("retrieved", "recalled", "mixed")
            assert run.layout.gpus == run.job.gpus


def test_machines_are_those_of_the_table_of_specifications():
    known = {
        "V100-SXM2-32GB": V100_SXM2_32GB,
        "A100-SXM-40GB": A100_SXM_40GB,
        "A100-SXM-80GB": DGX_A100.gpu,
        "H100-SXM-80GB": H100_SXM,
        "H200-SXM-141GB": H200_SXM,
        "B200-SXM": B200_SXM,
        "GB200 (per GPU)": GB200,
    }
    for row in rows("hardware_specs.csv"):
        if row["accelerator"] not in known:
            continue
        gpu = known.pop(row["accelerator"])
        assert gpu.peak_flop_per_s == float(row["dense_bf16_tflops"]) * 1e12
        assert gpu.memory_bytes == float(row["memory_GB"]) * 1e9
        assert gpu.hbm_bytes_per_s == float(row["memory_bw_GBps"]) * 1e9
        one_way = float(row["intra_node_link_unidirectional_GBps"]) * 1e9
        assert gpu.nvlink.rate_bytes_per_s == one_way
    assert not known


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match="'Table 9' is no table here; there are Korthikanti"):
        runs("Table 9")


def test_the_stack_of_a_gpu():
    assert stack_of(H100_SXM) is MEGATRON_CORE
    assert stack_of(DGX_A100.gpu) is MEGATRON_2022


def test_the_planner_needs_neither_torch_nor_matplotlib():
    code = (
        "import sys, distlab; assert 'distlab.planner' not in sys.modules\n"
        "import distlab.planner, distlab.planner.compare\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
