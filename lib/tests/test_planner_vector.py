"""Many layouts are priced as each alone is, and no stage that could be worst is left out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.hardware import DGX_A100, DGX_H100
from distlab.layout import Job, Layout
from distlab.model import GPT3_175B, LLAMA3_405B, Config
from distlab.planner import vector
from distlab.planner.estimate import estimate
from distlab.planner.space import Columns, columns, space
from distlab.planner.split import stage_layers
from distlab.planner.stack import Ring, Stack
from distlab.planner.vector import evaluate, worst_stages

# Sums of the same terms, which numpy may add in another order: a few units in the last place.
RTOL = 1e-13

models = st.builds(
    lambda heads, share, **more: Config(
        heads=heads, kv_heads=heads // share, hidden=64 * heads, **more
    ),
    heads=st.sampled_from([8, 16, 24, 48]),
    share=st.sampled_from([1, 2, 8]),
    layers=st.integers(1, 100),
    vocab=st.sampled_from([1000, 50257, 128256]),
    gated=st.booleans(),
    tied=st.booleans(),
    bias=st.booleans(),
    norm=st.sampled_from(["rms", "layer"]),
    positions=st.sampled_from([0, 2048]),
)
stacks = st.builds(
    Stack,
    name=st.just("any"),
    matrix_share=st.floats(0.3, 1),
    memory_share=st.floats(0.3, 1),
    ring=st.builds(
        Ring,
        node_share=st.floats(0.3, 1),
        network_share=st.floats(0.3, 1),
        call_s=st.floats(0, 1e-4),
        node_step_s=st.floats(0, 1e-5),
        network_step_s=st.floats(0, 1e-4),
    ),
    gradient_bytes=st.sampled_from([2, 4]),
    fused=st.booleans(),
    dropout=st.booleans(),
    selective_share=st.sampled_from([0.0, 0.25]),
    attention_share=st.sampled_from([None, 0.5]),
    tensor_beside=st.booleans(),
    pipeline_beside=st.booleans(),
    data_beside=st.booleans(),
    scatter_gather=st.booleans(),
    peak_factor=st.sampled_from([1.0, 2.0]),
)
jobs = st.builds(
    Job,
    model=models,
    batch=st.sampled_from([1, 6, 32, 48, 1536]),
    seq=st.sampled_from([512, 2048, 4100, 8192]),
    gpus=st.sampled_from([1, 6, 8, 48, 64, 96, 256]),
    cluster=st.sampled_from([DGX_A100, DGX_H100, replace(DGX_H100, gpus_per_node=3)]),
)


@settings(max_examples=25, deadline=None)
@given(jobs, stacks, st.randoms(use_true_random=False))
def test_a_table_of_layouts_is_priced_as_each_alone(job, stack, random):
    kept = space(job).kept
    places = sorted(random.sample(range(len(kept)), min(6, len(kept))))
    found = evaluate(job, kept, stack)
    for place in places:
        alone = estimate(job, kept[place], stack)
        assert found.memory_bytes[place] == pytest.approx(alone.memory_bytes, rel=RTOL)
        assert found.step_time_s[place] == pytest.approx(alone.step_time_s, rel=RTOL)


@given(st.integers(1, 130), st.integers(1, 40), st.integers(1, 8), st.integers(0, 99))
def test_no_stage_that_could_be_worst_is_left_out(layers, p, v, seed):
    if p * v > layers + 2:
        return
    held, asked = stage_layers(layers, p, v), worst_stages(layers, p, v)
    assert len(asked) <= 4
    rng = np.random.default_rng(seed)
    # Whatever layers and activations weigh, whatever the ends hold: never more for a later stage.
    in_flight = np.sort(rng.integers(1, 50, p))[::-1]
    per_layer, first, last = rng.random(3)
    needs = np.array(held) * (per_layer + in_flight)
    needs[0] += first
    needs[-1] += last
    assert max(needs[list(asked)]) == max(needs)


def test_llama_3_is_asked_at_its_ends_and_at_its_first_full_stage():
    assert worst_stages(126, 16, 1) == (0, 1, 15)
    assert worst_stages(96, 8, 1) == (0, 7)
    assert worst_stages(96, 1, 1) == (0,)


STACK = Stack(
    name="any", matrix_share=0.7, memory_share=0.8, ring=Ring(node_share=0.7, network_share=0.8)
)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9])
def test_pieces_are_joined_where_they_were_cut(monkeypatch, rows):
    job = Job(model=GPT3_175B, batch=1536, seq=2048, gpus=1024, cluster=DGX_H100)
    kept = space(job).kept
    some = kept.rows(np.linspace(0, len(kept) - 1, rows).astype(int))
    whole = evaluate(job, some, STACK)
    monkeypatch.setattr(vector, "PIECE", 4)
    cut = evaluate(job, some, STACK)
    assert len(whole.memory_bytes) == len(whole.step_time_s) == rows
    assert (whole.memory_bytes == cut.memory_bytes).all()
    assert (whole.step_time_s == cut.step_time_s).all()


def test_a_model_that_the_cost_model_does_not_know_is_refused():
    model = replace(LLAMA3_405B, experts=8, active_experts=2)
    job = Job(model=model, batch=8, seq=8192, gpus=8, cluster=DGX_H100)
    table = columns([Layout(8, 1, 1)])
    assert isinstance(table, Columns)
    with pytest.raises(ValueError, match="experts"):
        evaluate(job, table, STACK)
