"""Every layout of a job: none twice, none forgotten, each refused one with the rule it breaks."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.hardware import DGX_H100
from distlab.layout import Job, Layout
from distlab.model import GPT3_175B, LLAMA3_405B, Config
from distlab.planner.rules import RULES, why_not
from distlab.planner.space import AXES, RECOMPUTE, columns, divisors, space


def small(*, gpus=8, batch=12, seq=4096, layers=4, heads=4, kv_heads=2, node=4) -> Job:
    model = Config(layers=layers, hidden=8 * heads, heads=heads, kv_heads=kv_heads, vocab=64)
    machine = replace(DGX_H100, gpus_per_node=node)
    return Job(model=model, batch=batch, seq=seq, gpus=gpus, cluster=machine)


jobs = st.builds(
    small,
    gpus=st.integers(1, 12),
    batch=st.integers(1, 12),
    seq=st.sampled_from([1024, 2048, 2052, 3072, 4096]),
    layers=st.integers(1, 6),
    heads=st.sampled_from([2, 4, 6]),
    kv_heads=st.sampled_from([1, 2]),
    node=st.sampled_from([1, 2, 3, 4, 8]),
)


def by_hand(job: Job) -> set[Layout]:
    """All layouts that keep the rules, found by trying every number on every axis."""
    n, layers = range(1, job.gpus + 1), range(1, job.model.layers + 3)
    found = set()
    for t, p, d, context in product(n, layers, n, n):
        if t * p * d * context != job.gpus:
            continue
        for v, b in product(layers, range(1, job.batch + 1)):
            for together, recompute, zero in product((False, True), RECOMPUTE, range(4)):
                if (together and t == 1) or (zero and d * context == 1):
                    continue  # changes nothing
                layout = Layout(t, p, d, v, b, together, recompute, zero, context)
                if why_not(job, layout) is None:
                    found.add(layout)
    return found


@settings(max_examples=8, deadline=None)
@given(jobs)
def test_every_layout_that_keeps_the_rules_is_there_once(job):
    kept = list(space(job).kept)
    assert len(kept) == len(set(kept))
    assert set(kept) == by_hand(job)


@settings(max_examples=20, deadline=None)
@given(jobs)
def test_a_refused_layout_is_told_the_rule_it_breaks_first(job):
    found = space(job)
    assert len(found.refused) == len(found.broken)
    for layout, place in zip(found.refused, found.broken, strict=True):
        assert why_not(job, layout) == RULES[place].sentence(job, layout)


LLAMA = Job(model=LLAMA3_405B, batch=2048, seq=8192, gpus=16384, cluster=DGX_H100)


@pytest.mark.parametrize(
    ("layout", "job", "sentence"),
    [
        (Layout(8, 16, 128), LLAMA, None),
        (
            Layout(8, 16, 64),
            LLAMA,
            "t · p · d · context = 8,192 is not the 16,384 GPUs of the job.",
        ),
        (Layout(16, 8, 128), LLAMA, "The 16 ranks of t do not fit in a node of 8."),
        (
            Layout(3, 1, 2),
            small(gpus=6),
            "Groups of t = 3 do not fill a node of 4 evenly.",
        ),
        (Layout(4, 1, 2), small(heads=6), "t = 4 ranks do not share 6 heads evenly."),
        (
            Layout(3, 1, 1),
            small(gpus=3, node=3, heads=6, kv_heads=2),
            "t = 3 ranks do not share 2 K/V heads evenly.",
        ),
        (
            Layout(1, 8, 1),
            small(),
            "4 layers make at most 6 stages (the two at the ends may have none), not 8.",
        ),
        (
            Layout(1, 1, 2, context=4),
            small(seq=8196),
            "A sequence of 8,196 tokens is not cut into 2 · context = 8 equal pieces.",
        ),
        (
            Layout(1, 1, 1, context=8),
            small(),
            "context = 8 leaves a rank 512 tokens; below 1,024 a sequence is not worth cutting.",
        ),
        (Layout(1, 1, 8), small(), "The batch of 12 is not a multiple of d = 8."),
        (
            Layout(1, 2, 4, microbatch=2),
            small(),
            "The batch of 12 is not a multiple of d · microbatch = 8.",
        ),
        (
            Layout(1, 4, 2, v=2),
            small(),
            "4 layers make at most 6 chunks (the two at the ends may have none), not p · v = 8.",
        ),
        (Layout(4, 1, 2, v=2), small(), "One stage alone has no chunks to interleave (v = 2)."),
        (
            Layout(1, 2, 4, v=2),
            small(layers=5, batch=8),
            "Interleaved stages wait for each other unless all p · v = 4 chunks but the two at the "
            "ends are of one size: 5 layers do not allow that.",
        ),
        (
            Layout(1, 2, 4, v=2),
            small(),
            "Interleaving (v = 2) takes 2 microbatches at a time, and 3 are no multiple of that.",
        ),
        (
            Layout(4, 1, 2, sequence_parallel=True),
            small(seq=4098),
            "4,098 tokens are not shared evenly by t = 4 ranks in sequence parallelism.",
        ),
    ],
)
def test_each_rule_has_its_sentence(layout, job, sentence):
    assert why_not(job, layout) == sentence


def test_llama_3_405b_has_tens_of_thousands_of_layouts():
    found = space(LLAMA)
    assert len(found.kept) > 20_000
    reasons = Counter(RULES[place].name for place in found.broken)
    assert {"node", "layers", "replicas", "interleaving", "uneven chunks"} <= set(reasons)


@pytest.mark.parametrize(
    ("model", "stages"), [(GPT3_175B, 64), (LLAMA3_405B, 128)], ids=["GPT-3", "405B"]
)
def test_without_options_lab_7s_27_layouts_are_left(model, stages):
    job = Job(model=model, batch=1536, seq=2048, gpus=1024, cluster=DGX_H100)
    plain = {"v": 1, "microbatch": 1, "sequence_parallel": False, "recompute": "full", "zero": 1}
    found = {(x.t, x.p) for x in space(job, plain | {"context": 1}).kept}
    powers = [2**k for k in range(8) if 2**k <= stages]
    assert found == {(t, p) for t in powers[:4] for p in powers if t * p > 1}
    # 128 stages hold 126 layers, the two at the ends none: four more than in the lab.
    assert len([p for _, p in found if p <= model.layers]) == 27


def test_a_fixed_axis_keeps_its_value():
    fixed = {"t": 8, "p": 16, "v": 8, "zero": 1, "recompute": "selective", "context": 1}
    found = space(LLAMA, fixed)
    assert {(x.t, x.p, x.d, x.v, x.zero, x.recompute, x.context) for x in found.kept} == {
        (8, 16, 128, 8, 1, "selective", 1)
    }
    assert set(found.kept.microbatch) == {1}  # 16 sequences a replica, taken 16 at a time
    assert len(space(LLAMA, {"t": 5}).kept) == 0


def test_columns_are_the_layouts_they_were_made_of():
    layouts = [Layout(2, 3, 5, 7, 11, True, "none", 3, 13), Layout(1, 1, 1)]
    table = columns(layouts)
    assert list(table) == layouts
    assert list(table.rows(np.array([1, 0]))) == layouts[::-1]
    assert len(AXES) == 9


def test_divisors_rise():
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(1) == [1]
