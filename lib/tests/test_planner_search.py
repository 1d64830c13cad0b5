"""The search: the best is the best, the front is not beaten, whoever is out is told why."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from distlab.errors import InfeasibleError
from distlab.hardware import DGX_A100, DGX_H100
from distlab.layout import Job, Layout
from distlab.model import GPT3_175B, LLAMA3_8B, LLAMA3_405B, MIXTRAL_8X7B, Config
from distlab.planner import Plan, estimate, plan
from distlab.planner.advice import layout_words
from distlab.planner.space import space
from distlab.planner.stack import Ring, Stack
from distlab.planner.stacks import stack_of

STACK = Stack(
    name="a stack",
    matrix_share=0.7,
    memory_share=0.8,
    ring=Ring(node_share=0.7, network_share=0.8, node_step_s=2e-6, network_step_s=9e-6),
)
TINY = Config(
    name="tiny", layers=6, hidden=1024, heads=16, kv_heads=8, vocab=32000, gated=True, norm="rms"
)
JOB = Job(model=TINY, batch=12, seq=2048, gpus=12, cluster=replace(DGX_H100, gpus_per_node=4))
LLAMA = Job(model=LLAMA3_405B, batch=2048, seq=8192, gpus=16384, cluster=DGX_H100)


@pytest.fixture(scope="module")
def tight() -> Plan:
    """A plan of which about half fits."""
    return plan(JOB, STACK, limit_bytes=0.6e9)


@pytest.fixture(scope="module")
def priced(tight) -> list:
    """Every layout of it, priced alone."""
    return [estimate(JOB, layout, STACK) for layout in tight.space.kept]


def fitting(tight, priced):
    return [e for e in priced if e.memory_bytes <= tight.limit_bytes]


def test_the_best_is_the_fastest_of_those_that_fit(tight, priced):
    fit = fitting(tight, priced)
    assert 0 < len(fit) < len(priced)
    assert tight.fits.sum() == len(fit)
    fastest = min(e.step_time_s for e in fit)
    assert tight.best.step_time_s == pytest.approx(fastest, rel=1e-12)
    equals = [e.memory_bytes for e in fit if e.step_time_s <= fastest * (1 + 1e-12)]
    assert tight.best.memory_bytes == pytest.approx(min(equals), rel=1e-12)


def test_nothing_beats_the_front_and_the_front_leaves_nobody_out(tight, priced):
    points = {(round(e.memory_bytes), round(e.step_time_s, 12)) for e in fitting(tight, priced)}
    unbeaten = {
        (m, t)
        for m, t in points
        if not any(a <= m and b <= t and (a, b) != (m, t) for a, b in points)
    }
    front = [(round(e.memory_bytes), round(e.step_time_s, 12)) for e in tight.front]
    assert set(front) == unbeaten
    assert len(front) == len(set(front)) > 1
    assert [t for _, t in front] == sorted(t for _, t in front)
    assert tight.front[0] == tight.best


def test_each_shape_shows_its_best_once(tight, priced):
    def shape(e):
        return (e.layout.t, e.layout.p, e.layout.d, e.layout.context)

    fit = fitting(tight, priced)
    shapes = [shape(e) for e in tight.shapes]
    assert sorted(shapes) == sorted({shape(e) for e in fit})
    for e in tight.shapes:
        fastest = min(other.step_time_s for other in fit if shape(other) == shape(e))
        assert e.step_time_s == pytest.approx(fastest, rel=1e-12)
    times = [e.step_time_s for e in tight.shapes]
    assert times == pytest.approx(sorted(times), rel=1e-12)
    assert tight.first_shapes(2) == tight.shapes[:2]
    small = [shape(e) for e in tight.too_big]
    assert len(small) > 1
    assert sorted(small + shapes) == sorted({shape(e) for e in priced})
    assert len(tight.too_fast) > 1
    assert all(e.memory_bytes > tight.limit_bytes for e in tight.too_fast)


def test_an_exact_fit_fits():
    need = estimate(JOB, Layout(4, 3, 1, zero=0), STACK).memory_bytes
    fixed = {"t": 4, "p": 3, "v": 1, "microbatch": 1, "zero": 0, "sequence_parallel": False}
    fixed |= {"recompute": "full", "context": 1}
    assert plan(JOB, STACK, fixed=fixed, limit_bytes=need).best.layout == Layout(4, 3, 1, zero=0)
    assert not plan(JOB, STACK, fixed=fixed, limit_bytes=need * (1 - 1e-9)).fits.any()


def test_everyone_who_is_out_is_told_why(tight):
    out = tight.rejected
    assert len(out) == tight.considered - tight.fits.sum() == sum(tight.reasons.values())
    assert len(out[:3]) == 3
    assert out[-1] == out[len(out) - 1]
    with pytest.raises(IndexError):
        out[len(out)]
    for one in [*out[:40], *out[-40:]]:
        assert tight.why_not(one.layout) == one.reason
    assert re.fullmatch(r"Needs [\d.]+ GB of 0\.6 GB: [a-z ]+ [\d.]+ GB\.", out[-1].reason)
    assert tight.why_not(tight.best.layout) is None
    assert (
        tight.why_not(Layout(8, 1, 1)) == "t · p · d · context = 8 is not the 12 GPUs of the job."
    )


def test_every_shape_is_either_shown_or_rejected(tight):
    shapes = {(x.t, x.p, x.d, x.context) for x in [e.layout for e in tight.shapes]}
    out = {(x.t, x.p, x.d, x.context) for x in [r.layout for r in tight.rejected_shapes]}
    assert not shapes & out
    both = [*space(JOB).kept, *space(JOB).refused]
    assert shapes | out == {(x.t, x.p, x.d, x.context) for x in both}


def test_llama_3_is_planned_within_its_memory_with_an_uneven_split():
    found = plan(LLAMA, fixed={"t": 8, "p": 16, "context": 1})
    best = found.best
    assert best.layers == (7, *[8] * 14, 7)
    assert best.memory_bytes <= 80e9
    assert best.stack == found.stack == stack_of(DGX_H100.gpu)
    assert "Best, layers by stage: 7, 14 × 8, 7." in str(found)


def test_what_does_not_fit_is_told_what_would():
    job = replace(LLAMA, gpus=64)
    with pytest.raises(InfeasibleError, match=r"fits in no layout of 64 GPUs: the smallest") as e:
        _ = plan(job, STACK).best
    gpus = int(re.search(r"In whole nodes, (\d+) GPUs would do", str(e.value))[1])
    assert plan(replace(job, gpus=gpus), STACK).fits.any()
    assert not plan(replace(job, gpus=gpus - 8), STACK).fits.any()


def test_a_demand_that_is_in_the_way_is_named():
    job = Job(model=GPT3_175B, batch=64, seq=2048, gpus=64, cluster=DGX_A100)
    fixed = {"t": 8, "p": 4, "zero": 0, "recompute": "none"}
    with pytest.raises(InfeasibleError, match="with t = 8, p = 4, no ZeRO, no recompute:") as e:
        _ = plan(job, STACK, fixed=fixed).best
    fits = re.search(r"It fits with (ZeRO (\d)|(\w+) recompute)\.", str(e.value))
    freed = fixed | ({"zero": int(fits[2])} if fits[2] else {"recompute": fits[3]})
    assert plan(job, STACK, fixed=freed).fits.any()


def test_a_batch_that_nothing_divides_is_told_the_nearest_that_works():
    job = replace(LLAMA, batch=37)
    with pytest.raises(InfeasibleError, match="A batch of 37 is shared evenly by no number") as e:
        _ = plan(job, STACK).best
    nearest = int(re.search(r"nearest that works is ([\d,]+)\.", str(e.value))[1])
    assert nearest == 36 or len(space(replace(job, batch=36)).kept) == 0
    assert len(space(replace(job, batch=nearest)).kept)
    between = range(min(nearest, 74 - nearest) + 1, max(nearest, 74 - nearest))
    assert not any(len(space(replace(job, batch=b)).kept) for b in between)


def test_demands_that_no_product_meets_are_named():
    for fixed, said in (
        ({"t": 3}, "No t · p · d · context with t = 3 makes 16,384 GPUs."),
        ({"t": 16}, "No layout of 16,384 GPUs keeps the rules with t = 16. The 16 ranks of t do"),
        ({"d": 10**6}, "No t · p · d · context with d = 1,000,000 makes 16,384 GPUs."),
        (
            {"d": 8192, "sequence_parallel": False},
            "A batch of 2,048 is shared evenly by no number of replicas that 16,384 GPUs allow "
            "with d = 8,192, no sequence parallelism (d = 8,192): the nearest that works is 8,192.",
        ),
        ({"d": 16, "microbatch": 3}, r"not a multiple of d · microbatch = 48\."),
    ):
        with pytest.raises(InfeasibleError, match=said.replace("(", r"\(").replace(")", r"\)")):
            _ = plan(LLAMA, STACK, fixed=fixed).best


def test_unknown_axes_and_models_are_refused():
    with pytest.raises(ValueError, match="A layout has no 'tp'; it has t, p, d, v"):
        plan(JOB, STACK, fixed={"tp": 8})
    with pytest.raises(ValueError, match="Mixtral 8x7B has experts"):
        plan(replace(JOB, model=MIXTRAL_8X7B), STACK)


def test_json_and_csv_hold_the_same_rows(tight):
    said = json.loads(tight.to_json(3))
    assert said["job"] == {
        "model": "tiny",
        "gpus": 12,
        "gpu": "H100 SXM 80 GB",
        "gpus_per_node": 4,
        "batch": 12,
        "seq": 2048,
    }
    assert said["best"] == said["shapes"][0] == said["front"][0]
    assert said["layouts"] == said["fit"] + sum(said["rejected"].values())
    assert len(said["rejected_shapes"]) == len(tight.rejected_shapes)
    parts = ("weights", "gradients", "optimiser_states", "activations")
    assert sum(said["best"][f"{part}_bytes"] for part in parts) == tight.best.memory_bytes
    rows = list(csv.DictReader(io.StringIO(tight.to_csv(3))))
    assert len(rows) == 3
    for row, shape in zip(rows, said["shapes"], strict=True):
        assert float(row["step_time_s"]) == shape["step_time_s"]
        assert [int(n) for n in row["stage_layers"].split()] == shape["stage_layers"]
        assert row["recompute"] == shape["recompute"]


def test_people_see_one_table_in_the_terminal_and_the_notebook(tight):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(tight.table(4))
    lines = console.export_text().splitlines()
    assert not any("…" in line for line in lines), "every column has its room in 80 letters"
    best = tight.best
    cells = [str(best.layout), best.layout.recompute, f"{best.step_time_s:.4g}"]
    assert any(all(cell in line for cell in ["*", *cells]) for line in lines)
    page, text = tight._repr_html_(), str(tight)
    for cell in cells:
        assert cell in page
        assert cell in text
    assert f"{tight.considered:,} layouts, {tight.fits.sum():,} fit." in text


def test_a_plan_without_a_layout_says_so_wherever_it_is_shown():
    nothing = plan(replace(JOB, model=replace(TINY, name="<tiny>")), STACK, limit_bytes=1e6)
    assert str(nothing).startswith("<tiny> fits in no layout of 12 GPUs")
    assert "&lt;tiny&gt; fits in no layout" in nothing._repr_html_()
    assert "No number of GPUs up to 2,048 holds it." in str(nothing)


def test_pictures_show_the_best_and_what_is_too_big(tight):
    best = str(tight.best.layout)
    scatter, bars = tight.picture(), tight.breakdown(3)
    assert best in scatter.alt
    assert "too much memory" in scatter.alt
    assert best in bars.alt


def test_options_are_told_in_words():
    plain = Layout(8, 16, 128, zero=0, recompute="none")
    assert layout_words(plain) == "8×16×128, no recompute"
    full = Layout(8, 16, 64, 8, 2, True, "selective", 1, 2)
    assert layout_words(full) == (
        "8×16×64, context 2, v = 8, microbatch 2, sequence parallel, ZeRO 1, selective recompute"
    )


def test_constants_of_another_gpu_are_called_a_guess():
    job = Job(model=LLAMA3_8B, batch=16, seq=8192, gpus=8, cluster=DGX_A100)
    assert "Constants: a stack, fitted on another GPU than the A100: a guess." in str(
        plan(job, STACK)
    )
