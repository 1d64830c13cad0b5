"""Explorers: their numbers are the closed forms', and no setting brings anything but a picture."""

import itertools
import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab import canvas, run
from distlab.cost import ring_time_s
from distlab.explorers import buckets, frame, layouts, partition, svg
from distlab.explorers.buckets import MIB, BucketSettings, bucket_numbers
from distlab.explorers.memory import MemorySettings, memory_numbers
from distlab.hardware import Cluster
from distlab.model import MODELS, PUBLISHED
from distlab.timeline import Event, Timeline

EXPLORERS = {
    "buckets": (BucketSettings(), buckets.BUCKET_CONTROLS, buckets.bucket_view),
    "partition": (
        partition.PartitionSettings(),
        partition.PARTITION_CONTROLS,
        partition.partition_view,
    ),
}
# A search of the planner takes longer than to draw: its settings are tried in a file of their own.
EVERY = EXPLORERS | {
    "layouts": (layouts.LayoutSettings(), layouts.LAYOUT_CONTROLS, layouts.layout_view)
}
MOST_BYTES = {"schedule": 90_000, "layouts": 60_000}  # 8,192 bars; 40,000 for all others
MOST_LETTERS = {"schedule": 240, "partition": 300, "layouts": 240}  # of the sentence; else 200
MOST_SHAPES = {"layouts": 600}  # a title to hover over for each of 170 dots; 150 for all others


def values(control):
    return [value for _, value in control.options]


def ends(controls):
    """Every combination of the first and the last value of each control."""
    pairs = [{values(control)[0], values(control)[-1]} for control in controls]
    for chosen in itertools.product(*pairs):
        yield dict(zip([control.name for control in controls], chosen, strict=True))


# -- memory: the numbers --------------------------------------------------------------------------


def layer_bytes(**chosen):
    """What one layer of GPT-3 keeps of one microbatch: what a stage holds more for one more."""
    first, second, *_ = memory_numbers(
        MemorySettings(**{"model": "GPT-3 175B", "gpus": 96 * 8, "pp": 96} | chosen)
    ).stages
    return first.sizes["activations"] - second.sizes["activations"]


S, B, H, A = 2048, 1, 12288, 96
SBH = S * B * H


@pytest.mark.parametrize(
    ("chosen", "closed_form", "lecture_gb"),
    [
        ({}, SBH * (34 + 5 * A * S / H), 2.869),
        ({"tp": 8}, SBH * (10 + 24 / 8 + 5 * A * S / H / 8), 0.579),
        ({"tp": 8, "sequence_parallel": True}, SBH * (34 + 5 * A * S / H) / 8, 0.359),
        ({"tp": 8, "sequence_parallel": True, "recompute": "selective"}, SBH * 34 / 8, 0.107),
        ({"recompute": "full"}, 2 * SBH, 0.0503),
        ({"flash": True}, SBH * (34 + 4 * A / H), None),
        ({"microbatch": 4}, 4 * SBH * (34 + 5 * A * S / H), None),
    ],
)
def test_a_gpt_layer_keeps_what_the_formula_says(chosen, closed_form, lecture_gb):
    got = layer_bytes(**chosen)
    assert got == pytest.approx(closed_form, rel=1e-9)
    if lecture_gb:
        assert got / 1e9 == pytest.approx(lecture_gb, abs=5e-4 if lecture_gb > 0.1 else 5e-5)


@pytest.mark.parametrize(("zero", "gb"), [(0, 120), (1, 31.41), (2, 16.64), (3, 1.875)])
def test_zeros_stages_meet_figure_1_of_zero(zero, gb):
    (stage,) = memory_numbers(MemorySettings(zero=zero)).stages
    state = stage.total_bytes - stage.sizes["activations"]
    assert state / 1e9 == pytest.approx(gb, rel=1e-3)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pp", [1, 2, 5, 16])
def test_all_stages_together_have_the_models_layers_and_weights(model, pp):
    stages = memory_numbers(MemorySettings(model=model, gpus=4 * pp, tp=4, pp=pp)).stages
    assert sum(stage.layers for stage in stages) == MODELS[model].layers
    assert max(stage.layers for stage in stages) - min(stage.layers for stage in stages) <= 1
    weights = 4 * sum(stage.sizes["weights"] for stage in stages)
    assert weights == pytest.approx(2 * PUBLISHED[model].total, rel=1e-12)


def test_the_first_stages_activations_do_not_depend_on_the_number_of_stages():
    firsts = {
        memory_numbers(MemorySettings(model="GPT-3 175B", gpus=pp, pp=pp))
        .stages[0]
        .sizes["activations"]
        for pp in (1, 2, 4, 8, 16, 32)
    }
    assert len(firsts) == 1
    assert firsts.pop() / 1e9 == pytest.approx(275.4, abs=0.05)


def test_a_recomputed_layer_is_whole_for_a_while():
    chosen = {"model": "GPT-3 175B", "gpus": 96, "pp": 96}
    last = memory_numbers(MemorySettings(recompute="full", **chosen)).stages[-1]
    whole = memory_numbers(MemorySettings(**chosen)).stages[-1]
    assert last.sizes["activations"] == whole.sizes["activations"]  # its only layer, run again


def test_llamas_best_layout_comes_close_to_the_lectures_32_gb():
    chosen = {"tp": 8, "pp": 8, "zero": 1, "recompute": "full", "sequence_parallel": True}
    numbers = memory_numbers(MemorySettings(model="Llama 3.1 405B", gpus=1024, **chosen))
    states = [stage.total_bytes - stage.sizes["activations"] for stage in numbers.stages]
    in_all = sum(states) / 8 + numbers.stages[0].sizes["activations"]
    assert in_all / 1e9 == pytest.approx(31.6, abs=0.3)  # the lecture takes GPT's 34 + 5as/h
    assert numbers.dp == 16
    assert numbers.free_bytes == 80e9 - numbers.stages[numbers.fullest].total_bytes


def test_a_gated_layer_with_few_kv_heads_keeps_what_pytorch_keeps():
    torch = pytest.importorskip("torch")
    from torch import nn
    from torch.nn import functional

    cfg = MODELS["Llama 3 8B"]
    s, h, wide, narrow = 64, cfg.hidden, cfg.heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim

    class Layer(nn.Module):
        """A layer of Llama without rotation (which keeps nothing of x) and norms in BF16."""

        def __init__(self):
            super().__init__()
            shapes = (wide, h), (narrow, h), (narrow, h), (h, wide)
            shapes += (cfg.ffn, h), (cfg.ffn, h), (h, cfg.ffn)
            self.w = nn.ParameterList(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes)

        def forward(self, x):
            q, k, v, o, gate, up, down = self.w
            y = self.norm(x)
            heads = [
                functional.linear(y, w).unflatten(-1, (-1, cfg.head_dim)).transpose(1, 2)
                for w in (q, k, v)
            ]
            groups = cfg.heads // cfg.kv_heads
            # One product of a K/V head with all queries of its group: it is kept once, not copied.
            grouped = heads[0].unflatten(1, (-1, groups)).flatten(2, 3)
            mixed = (grouped @ heads[1].mT).softmax(-1) @ heads[2]
            mixed = mixed.unflatten(2, (groups, -1)).flatten(1, 2)
            x = x + functional.linear(mixed.transpose(1, 2).flatten(2), o)
            y = self.norm(x)
            hidden = functional.silu(functional.linear(y, gate)) * functional.linear(y, up)
            return x + functional.linear(hidden, down)

        def norm(self, x):
            return functional.layer_norm(x, (h,))

    with torch.device("meta"):
        layer = Layer()
        x = torch.empty(1, s, h, dtype=torch.bfloat16, requires_grad=True)
    own = {w.untyped_storage()._cdata for w in layer.parameters()}
    kept = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        layer(x)
    measured = sum(storage.nbytes() for storage in kept.values())
    chosen = MemorySettings(model=cfg.name, gpus=32, pp=32, seq_len=s)
    first, second, *_ = memory_numbers(chosen).stages
    counted = first.sizes["activations"] - second.sizes["activations"]
    assert 0 <= measured - counted <= 2 * 2 * 4 * s  # two norms keep mean and deviation in FP32


# -- buckets: the numbers -------------------------------------------------------------------------


def layer_by_layer(k, forward_ms, backward_ms, **chosen):
    """A step whose k buckets are its k layers, all alike: caps are met exactly by a layer."""
    layer_mib = 12  # twelve twelfths of 1 MiB each
    params_million = k * layer_mib * MIB / 4 / 1e6
    return BucketSettings(
        layers=k,
        params_million=params_million,
        bucket_mib=layer_mib,
        first_mib=layer_mib,
        forward_ms=forward_ms,
        backward_ms=backward_ms,
        **chosen,
    )


@pytest.mark.parametrize("k", [1, 2, 5, 12])
@pytest.mark.parametrize("backward_ms", [0.5, 3, 100])
def test_what_is_exposed_of_equal_buckets_has_its_closed_form(k, backward_ms):
    chosen = layer_by_layer(k, 7, backward_ms, gpus=16)
    numbers = bucket_numbers(chosen)
    assert len(numbers.buckets) == k
    network = buckets.LINKS[chosen.link][0].network
    each_s = float(ring_time_s("all_reduce", 16, 12 * MIB, network))
    sending, backward = k * each_s, backward_ms / 1e3
    hidden = backward * (k - 1) / k  # while the link waits for the first bucket, nothing is hidden
    exposed = each_s if each_s <= backward / k else sending - hidden
    assert numbers.exposed_s == pytest.approx(exposed, rel=1e-9)
    assert numbers.step_s == pytest.approx(0.007 + backward + exposed, rel=1e-9)
    assert numbers.sending_s == pytest.approx(sending, rel=1e-9)


CROWD = [
    BucketSettings(),
    BucketSettings(gpus=2, bucket_mib=1),
    BucketSettings(layers=3, params_million=10, gpus=4, forward_ms=1, backward_ms=2),
    BucketSettings(gpus=8, link="NVLink 4, 450 GB/s", bucket_mib=50),
]


@pytest.mark.parametrize("chosen", CROWD)
def test_a_timeline_of_its_events_sees_as_much_exposed(chosen):
    numbers = bucket_numbers(chosen)
    compute = Event(0, "compute", "all", "compute", Fraction(0), Fraction(numbers.compute_s))
    sent = [
        Event(0, "comm", f"#{i}", "all_reduce", Fraction(b.start_s), Fraction(b.end_s))
        for i, b in enumerate(numbers.buckets)
    ]
    timeline = Timeline([compute, *sent])
    assert numbers.exposed_s == pytest.approx(timeline.exposed_comm_s(0), rel=1e-9)
    assert numbers.step_s == pytest.approx(timeline.makespan_s, rel=1e-12)
    for before, after in itertools.pairwise(numbers.buckets):
        assert after.start_s >= before.end_s  # the link carries one at a time
    assert all(b.start_s >= b.ready_s for b in numbers.buckets)


def test_the_simulators_clock_plays_the_same_step():
    torch = pytest.importorskip("torch")
    chosen = layer_by_layer(3, 0.5, 1.5, gpus=2)
    network = buckets.LINKS[chosen.link][0].network
    cluster = Cluster("one GPU a node", buckets.DGX_H100.gpu, 1, network)

    def step(comm):
        comm.compute(time_s=0.0005)
        handles = []
        for _ in range(3):
            comm.compute(time_s=0.0005)
            handles.append(comm.all_reduce(torch.zeros(3 * MIB), async_op=True))
        for handle in handles:
            handle.wait()

    played = run(step, 2, cluster=cluster).timeline
    numbers = bucket_numbers(chosen)
    assert played.makespan_s == pytest.approx(numbers.step_s, rel=1e-9)
    assert played.exposed_comm_s(0) == pytest.approx(numbers.exposed_s, rel=1e-9)


@pytest.mark.parametrize("caps", [(25, 1), (1, 1), (50, 25), (5, 100), (2**30, 2**30)])
def test_pytorch_makes_the_same_buckets(caps):
    torch = pytest.importorskip("torch")
    cap, first = (size * MIB for size in caps)
    million = 144 * 65536 / 1e6  # twelve layers; a twelfth of one is 65,536 numbers
    chosen = BucketSettings(params_million=million, bucket_mib=caps[0], first_mib=caps[1])
    tensors = [
        torch.empty(part * 65536, device="meta")
        for _ in range(12)
        for part in reversed(buckets.MATRICES)
    ]
    groups, _ = torch.distributed._compute_bucket_assignment_by_size(tensors, [first, cap])
    theirs = [sum(tensors[i].nbytes for i in group) for group in groups]
    assert [b.size_bytes for b in bucket_numbers(chosen).buckets] == theirs


def test_one_gpu_sends_nothing():
    numbers = bucket_numbers(BucketSettings(gpus=1))
    assert (numbers.exposed_s, numbers.sending_s) == (0, 0)
    assert numbers.step_s == numbers.compute_s == pytest.approx(0.021)


# -- what can't be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (
            MemorySettings(gpus=8, tp=4, pp=4),
            "One replica takes TP 4 × PP 4 = 16 GPUs, and 8 is no",
        ),
        (MemorySettings(pp=64), "GPT 7.5B has 36 layers: not enough for 64 stages."),
        (MemorySettings(model="Llama 2 13B", tp=16, gpus=16), "40 heads, which TP 16 does not"),
        (MemorySettings(model="Llama 3 8B", tp=16, gpus=16), "8 K/V heads, which TP 16 does not"),
        (MemorySettings(tp=8, seq_len=2044, sequence_parallel=True), "2,044 tokens into 8 equal"),
        (MemorySettings(model="GPT-9"), "'GPT-9' is no model here; there are GPT 7.5B,"),
        (MemorySettings(gpu="abacus"), "'abacus' is no GPU here"),
        (MemorySettings(zero=4), "ZeRO has the stages 0 to 3, no 4."),
        (MemorySettings(recompute="some"), "recompute is none, selective or full, not some."),
        (MemorySettings(tp=0), "tp is at least 1, not 0."),
        (
            BucketSettings(link="NVLink 4, 450 GB/s"),
            "64 GPUs don't share one NVLink: a node of DGX",
        ),
        (BucketSettings(link="string"), "'string' is no link here"),
        (BucketSettings(layers=0), "layers is at least 1, not 0."),
        (BucketSettings(backward_ms=0), "backward_ms must be more than 0, not 0."),
    ],
)
def test_settings_that_can_not_be_get_one_sentence(chosen, sentence):
    numbers = memory_numbers if isinstance(chosen, MemorySettings) else bucket_numbers
    with pytest.raises(frame.Impossible) as caught:
        numbers(chosen)
    assert sentence in str(caught.value)
    assert frame.in_words(chosen, numbers) == str(caught.value)
    if numbers is bucket_numbers:
        assert frame.shown(chosen, buckets.bucket_view) == {"impossible": str(caught.value)}
        assert ET.fromstring(frame.page(chosen, buckets.bucket_view)).text == str(caught.value)


# -- the pictures ---------------------------------------------------------------------------------


def looked_at(page):
    """The texts of a picture with their boxes (x0, y0, x1, y1), in the picture's own units."""
    root = ET.fromstring(page).find("{*}svg")
    found = []
    for node in root.iter("{http://www.w3.org/2000/svg}text"):
        size = float(node.get("font-size"))
        if " " in node.get("x"):  # a row of numbers, digit by digit
            places, wide = [float(x) for x in node.get("x").split()], 0.636 * size
            assert len(places) == len(node.text)
            assert all(b - a >= wide - 0.1 for a, b in itertools.pairwise(places)), node.text
            y, x0, x1 = float(node.get("y")), places[0] - wide / 2, places[-1] + wide / 2
            found.append((node.text, (x0, y - 0.76 * size, x1, y + 0.2 * size)))
            continue
        # In DejaVu Sans, the widest of the fonts that a browser may take; 1 unit is 1 point.
        wide = 72 * canvas.text_size_in(node.text, size, bold=node.get("font-weight") == "bold")[0]
        x, y = float(node.get("x")), float(node.get("y"))
        x -= {"start": 0, "middle": wide / 2, "end": wide}[node.get("text-anchor")]
        found.append((node.text, (x, y - 0.76 * size, x + wide, y + 0.2 * size)))
    return root, found


def check_picture(page, name):
    """Fails unless the page is one sentence, or a picture of bounded size without overlaps."""
    assert len(page) < MOST_BYTES.get(name, 40_000)
    assert "nan" not in page
    assert "inf" not in page.replace("in flight", "")
    if "<svg" not in page:
        assert 20 < len(ET.fromstring(page).text) <= 220
        return
    root, found = looked_at(page)
    assert len(list(root.iter())) <= MOST_SHAPES.get(name, 150)  # however much there is to draw
    assert root.get("role") == "img"
    sentence = ET.fromstring(page).find("figcaption").text
    assert root.get("aria-label") == sentence
    assert len(sentence) <= MOST_LETTERS.get(name, 200)
    _, _, width, height = map(float, root.get("viewBox").split())
    for text, (x0, y0, x1, y1) in found:
        assert x0 >= 0, text
        assert y0 >= 0, text
        assert x1 <= width, text
        assert y1 <= height, text
    for (a, p), (b, q) in itertools.combinations(found, 2):
        apart = p[2] <= q[0] or q[2] <= p[0] or p[3] <= q[1] + 1 or q[3] <= p[1] + 1
        assert apart, f"{a!r} lies on {b!r}"


SLOW_AT_ENDS = {"partition"}  # 256 searches; `make test` has them


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_AT_ENDS else [])
        for name in EXPLORERS
    ],
)
def test_every_control_at_its_ends_shows_a_picture_or_a_sentence(name):
    start, controls, view = EXPLORERS[name]
    for i, chosen in enumerate(ends(controls)):
        page = frame.page(replace(start, **chosen), view)
        if i % 16 == 0:  # laying out texts takes longer than drawing
            check_picture(page, name)


@pytest.mark.parametrize("name", EXPLORERS)
def test_each_control_alone_goes_from_end_to_end(name):
    start, controls, view = EXPLORERS[name]
    for control in controls:
        for value in values(control):
            check_picture(frame.page(replace(start, **{control.name: value}), view), name)


@pytest.mark.parametrize("name", EXPLORERS)
def test_any_settings_show_a_picture_or_a_sentence(name):
    start, controls, view = EXPLORERS[name]
    any_settings = st.fixed_dictionaries(
        {control.name: st.sampled_from(values(control)) for control in controls}
    )

    @settings(max_examples=150, deadline=None)
    @given(any_settings)
    def look(chosen):
        check_picture(frame.page(replace(start, **chosen), view), name)

    look()


def test_words_are_escaped():
    page = frame.page(None, lambda _: frame.View("<svg/>", 'a < b & "c"'))
    assert ET.fromstring(page).find("figcaption").text == 'a < b & "c"'
    assert "a &lt; b" in svg.document(1, 1, "a < b", [])


@pytest.mark.parametrize(
    ("end", "most", "expected"),
    [(50, 5, [0, 10, 20, 30, 40, 50]), (1, 6, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 6, [0])],
)
def test_ticks_are_round(end, most, expected):
    assert svg.ticks(end, most) == pytest.approx(expected)


@given(st.floats(1e-9, 1e12), st.integers(4, 10))
def test_ticks_are_never_many_and_stay_inside(end, most):
    found = svg.ticks(end, most)
    assert 2 <= len(found) <= most + 1
    assert found[-1] <= end * (1 + 1e-6)
    step = found[1] / 10 ** math.floor(math.log10(found[1]) + 1e-9)
    assert min(abs(step - k) for k in (1, 2, 5, 10)) < 1e-6


# -- the widget -----------------------------------------------------------------------------------


@pytest.fixture(params=EVERY)
def widget(request):
    """An explorer, with a list of the settings drawn."""
    start, controls, view = EVERY[request.param]
    drawn = []

    def watched(chosen):
        drawn.append(chosen)
        return view(chosen)

    widget = frame.explorer(request.param, start, controls, watched)
    widget.drawn = drawn
    return widget


def moved(widget, **change):
    """Does what a reader's hand on a control does."""
    widget.settings = widget.settings | change


def test_every_control_is_labelled_and_sets_its_field(widget):
    assert len({control["label"] for control in widget.about["controls"]}) == len(
        widget.about["controls"]
    )
    for control in widget.about["controls"]:
        assert control["label"]
        name, now = control["name"], widget.settings[control["name"]]
        moved(widget, **{name: next(value for value in control["values"] if value != now)})
        assert vars(widget.drawn[-1]) == widget.settings
        assert getattr(widget.drawn[-1], name) != now


@pytest.mark.parametrize("transfer", partition.TRANSFERS)
@pytest.mark.parametrize("profile", ["3, ten times 1, 4", "growing", "random", "Llama 3 8B"])
def test_a_grey_slider_would_change_nothing(profile, transfer):
    chosen = partition.PartitionSettings(profile=profile, transfer=transfer)
    shown = frame.page(chosen, partition.partition_view)
    for control in partition.PARTITION_CONTROLS:
        if not control.matters(chosen):
            for _, value in control.options:
                other = replace(chosen, **{control.name: value})
                assert frame.page(other, partition.partition_view) == shown, control.name


def test_a_slider_is_grey_while_it_changes_nothing():
    def grey(**chosen):
        settings = partition.PartitionSettings(**chosen)
        return {c.name for c in partition.PARTITION_CONTROLS if not c.matters(settings)}

    assert grey() == {"layers", "seed", "transfer_time"}
    assert grey(profile="growing") == {"seed", "transfer_time"}
    assert grey(profile="random", transfer="exposed") == set()


def test_one_change_draws_once_and_sends_one_message(widget):
    sent, before = [], len(widget.drawn)
    widget.observe(lambda change: sent.append(change.new), "shown")
    name = "gpus" if "gpus" in widget.settings else "stages"
    other = 2 if widget.settings[name] != 2 else 1
    moved(widget, **{name: other})
    moved(widget, **{name: other})
    assert (len(widget.drawn) - before, len(sent)) == (1, 1)


def test_what_can_not_be_is_shown_and_left_again(widget):
    good = widget.shown
    bad_ones = {"link": "NVLink 4, 450 GB/s", "stages": 16, "context": 32}
    name = next(name for name in bad_ones if name in widget.settings)
    before = widget.settings[name]
    moved(widget, **{name: bad_ones[name]})
    assert list(widget.shown) == ["impossible"]
    moved(widget, **{name: before})
    assert widget.shown == good


def test_an_explorer_begins_where_it_is_told_to():
    widget = buckets.bucket_explorer(bucket_mib=100)
    assert widget.settings["bucket_mib"] == 100
    with pytest.raises(ValueError, match="gpus=3 is not offered here; there are 1, 2, 4, 8"):
        buckets.bucket_explorer(gpus=3)


def test_where_no_widgets_are_the_first_picture_stands():
    widget = partition.partition_explorer(stages=3)
    data, _ = widget._repr_mimebundle_()
    start = partition.PartitionSettings(stages=3)
    assert data["text/plain"] == partition.partition_view(start).sentence
    assert data["text/html"] == frame.page(start, partition.partition_view)
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == widget.model_id


@pytest.mark.parametrize("lacking", ["anywidget", "ipywidgets"])
def test_without_a_package_all_imports_and_one_sentence_says_what_is_missing(lacking):
    program = f"""
import sys
sys.modules[{lacking!r}] = None
import distlab.explorers as explorers
assert "microbatches" in repr(explorers.schedule_explorer())
assert "GPT" in repr(explorers.memory_explorer())
try:
    explorers.bucket_explorer()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == (
        f"This explorer needs the package {lacking}, which is not installed here: "
        "`pip install anywidget`, then restart the kernel."
    ), done.stderr


def test_importing_the_explorers_is_light():
    heavy = {"anywidget", "ipywidgets", "IPython", "matplotlib", "torch", "numpy"}
    program = f"import sys, distlab.explorers; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
