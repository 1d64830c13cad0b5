"""Bytes on one GPU of a layout, as the lecture counts them: `layout_bytes(job, layout) -> dict`.

Of the parameters a GPU has 1/(t·p): 2 bytes of weights and 2 of gradients for each, and a d-th of
the 12 of optimiser states (ZeRO-1). All layers recompute: a GPU keeps the inputs, 2sbh/t, of its
L/p layers (a fraction, where p doesn't divide L) for min(p, m) microbatches in flight, and all of
the one layer at work, sbh(34 + 5as/h)/t. m is batch/(d·b). The layout may leave GPUs of the job
idle. Units: bytes. Source: Rajbhandari et al. 2020 (arXiv:1910.02054), section 5; Korthikanti et
al. 2022 (arXiv:2205.05198), sections 4 and 5; the sum is the lecture's. Oracle: all GPUs together
hold so many copies of everything; the first stage's 1F1B is walked through, its tensors listed.
"""

from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("layout_bytes",)
FORBID = ()
TOLERANCE = Close(1e-12, "shares of parameters and layers are rounded, in any order of factors")
CREDIT = {"state": 2, "activations": 3}
STATE, KEPT = ["weights", "gradients", "optimiser states"], ["activations"]
GPT3 = dict(layers=96, hidden=12288, heads=96, params=175e9, batch=1536, seq=2048, gpus=1024)
LLAMA = dict(layers=126, hidden=16384, heads=128, params=405e9, batch=1536, seq=2048, gpus=1024)
SMALL = dict(layers=7, hidden=60, heads=6, params=1_009.0, batch=30, seq=9, gpus=64)
FEW = SMALL | {"batch": 4}
CASES = (
    Case("GPT-3, 8×8×16", "state", job=GPT3, layout=(8, 8, 16), ask=STATE),
    Case("three kinds of ranks", "state", job=SMALL, layout=(2, 4, 5), ask=STATE),
    Case("no data parallelism", "state", job=SMALL, layout=(3, 5, 1), ask=STATE),
    Case("one GPU", "state", job=SMALL, layout=(1, 1, 1), ask=STATE),
    Case("four of 64 GPUs idle", "state", job=SMALL, layout=(4, 5, 3), ask=STATE),
    Case("405B, 8×8×16", "activations", job=LLAMA, layout=(8, 8, 16), ask=KEPT),
    Case("5 stages, 10 microbatches", "activations", job=SMALL, layout=(2, 5, 3), ask=KEPT),
    Case("5 stages, 2 microbatches", "activations", job=FEW, layout=(3, 5, 2), ask=KEPT),
    Case("two sequences at a time", "activations", job=SMALL, layout=(2, 4, 5), b=2, ask=KEPT),
    Case("three at a time", "activations", job=SMALL, layout=(1, 3, 2), b=3, ask=KEPT),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other models: more layers, tokens, parameters, and numbers in a head.
    low, high = (1, 9) if seed else (0, 1)
    more = [int(k) for k in integers((4,), "bytes", case.name, seed, low=low, high=high)]
    cfg = case.job
    t, p, d = case.layout
    return {
        "shape": {
            "layers": cfg["layers"] + more[0],
            "hidden": cfg["hidden"] + more[1] * cfg["heads"],
            "heads": cfg["heads"],
        },
        "job": {
            "params": cfg["params"] * (1 + more[2]),
            "seq": cfg["seq"] + more[3],
            "batch": cfg["batch"],
            "gpus": cfg["gpus"],
        },
        "layout": {"t": t, "p": p, "d": d, "microbatch": getattr(case, "b", 1)},
        "ask": case.ask,
    }


def observe(student, given):
    from distlab.hardware import DGX_H100
    from distlab.layout import Job, Layout
    from distlab.model import Config

    model = Config(vocab=100, **given["shape"])
    job = Job(model=model, cluster=DGX_H100, **given["job"])
    held = student.layout_bytes(job, Layout(**given["layout"]))
    if not isinstance(held, dict):
        raise TypeError("`layout_bytes` should return a dict.")
    missing = [part for part in given["ask"] if part not in held]
    if missing:
        raise TypeError(f"`layout_bytes` should return a dict with the part {missing[0]!r}.")
    asked = {part: held[part] for part in given["ask"]}
    return {part: v.item() if hasattr(v, "item") else v for part, v in asked.items()}


def oracle(case, given):
    from fractions import Fraction

    shape, job, layout = given["shape"], given["job"], given["layout"]
    t, p, d, b = layout["t"], layout["p"], layout["d"], layout["microbatch"]
    gpus = t * p * d
    # d replicas have a copy each of weights and gradients; all of them together one of the rest.
    copies = {"weights": (2, d), "gradients": (2, d), "optimiser states": (12, 1)}
    held = {
        part: Fraction(size) * times * Fraction(job["params"]) / gpus
        for part, (size, times) in copies.items()
    }

    forwards = job["batch"] // d // b  # still to come; stage 0 begins with p - 1 of them
    flying, most = 0, 0
    for _ in range(min(p - 1, forwards)):
        forwards, flying = forwards - 1, flying + 1
        most = max(most, flying)
    for _ in range(forwards):  # forward, backward, in turn
        most = max(most, flying + 1)

    s, h, a = job["seq"], shape["hidden"], shape["heads"]
    numbers = [  # of each tensor that backward needs, and its bytes
        *[(s * b * h, 2)] * 2,  # what the two norms get
        *[(s * b * h, 2)] * 5,  # what Q, K and V get, they themselves, the heads' outputs
        *[(s * b * h, 2)] * 1,  # what the MLP gets
        *[(s * b * 4 * h, 2)] * 2,  # before GeLU and after
        *[(s * b * h, 1)] * 2,  # masks of two dropouts
        *[(b * a * s * s, 2)] * 2,  # softmax; what is left of it after dropout
        *[(b * a * s * s, 1)] * 1,  # that dropout's mask
    ]
    at_work = sum(count * size for count, size in numbers)
    inputs = most * Fraction(shape["layers"], p) * (2 * s * b * h)
    held["activations"] = (inputs + at_work) / t
    return {part: float(held[part]) for part in case.ask}


@also_right("the formulas, line by line")
def by_formulas():
    def layout_bytes(job, layout):
        s, h, a = job.seq, job.model.hidden, job.model.heads
        t, p, d, b = layout.t, layout.p, layout.d, layout.microbatch
        share = job.params / (t * p)
        m = job.batch / (d * b)
        flying = min(p, m)
        layers = job.model.layers / p
        inputs = 2 * s * b * h / t
        at_work = s * b * h * (34 + 5 * a * s / h) / t
        return {
            "weights": 2 * share,
            "gradients": 2 * share,
            "optimiser states": 12 * share / d,
            "activations": flying * layers * inputs + at_work,
        }

    return layout_bytes


no_zero = slip(
    by_formulas,
    "ZeRO-1 is missing: the d replicas share one set of optimiser states.",
    ("12 * share / d", "12 * share"),
)
zero_alone = slip(
    by_formulas,
    "The optimiser states are cut by d alone: t and p cut them too, as they cut the weights.",
    ("12 * share / d", "12 * job.params / d"),
)
over_the_jobs_gpus = slip(
    by_formulas,
    "All the job's GPUs share the optimiser states: count those that the layout fills, t·p·d.",
    ("12 * share / d", "12 * job.params / job.gpus"),
)
over_the_world = slip(
    by_formulas,
    "The optimiser states are cut by t·p twice: of a GPU's 1/(t·p), ZeRO-1 cuts by d only.",
    ("12 * share / d", "12 * share / layout.gpus"),
)
gradients_sharded = slip(
    by_formulas,
    "Gradients are cut by d: that is ZeRO-2. At stage 1 each replica keeps its own.",
    ('"gradients": 2 * share', '"gradients": 2 * share / d'),
)
all_sharded = slip(
    by_formulas,
    "Everything is cut by d: that is ZeRO-3. At stage 1 only the optimiser states are.",
    ('"weights": 2 * share', '"weights": 2 * share / d'),
    ('"gradients": 2 * share', '"gradients": 2 * share / d'),
)
d_from_the_job = slip(
    by_formulas,
    "d comes from `job.gpus` here: the layout says it, and may leave GPUs of the job idle.",
    ("layout.d, layout.microbatch", "job.gpus // (layout.t * layout.p), layout.microbatch"),
)
counted_from_the_shape = slip(
    by_formulas,
    "Parameters are counted as 12Lh²: take `job.params`, which has the tables too.",
    ("job.params / (t * p)", "12 * job.model.layers * h * h / (t * p)"),
)
stages_forgotten = slip(
    by_formulas,
    "A GPU holds one of p stages: its share of the parameters is 1/(t·p), not 1/t.",
    ("job.params / (t * p)", "job.params / t"),
)
matrices_whole = slip(
    by_formulas,
    "A GPU holds a t-th of each matrix: its share of the parameters is 1/(t·p), not 1/p.",
    ("job.params / (t * p)", "job.params / p"),
)
master_forgotten = slip(
    by_formulas,
    "The optimiser has 12 bytes for each parameter: two moments, and the FP32 master weight.",
    ("12 * share / d", "8 * share / d"),
)
state_in_one = slip(
    by_formulas,
    "The optimiser's 16 bytes are all of the state: weights and gradients are counted apart.",
    ("12 * share / d", "16 * share / d"),
)
parameters_not_bytes = slip(
    by_formulas,
    "Weights and gradients are BF16: 2 bytes for each parameter.",
    ('"weights": 2 * share', '"weights": share'),
    ('"gradients": 2 * share', '"gradients": share'),
)
fp32_gradients = slip(
    by_formulas,
    "Gradients have 4 bytes here, as where they are summed in FP32: the lecture counts BF16, 2.",
    ('"gradients": 2 * share', '"gradients": 4 * share'),
)
all_in_flight = slip(
    by_formulas,
    "All m microbatches are in flight, as in GPipe: 1F1B's first stage holds min(p, m).",
    ("flying = min(p, m)", "flying = m"),
)
always_p_in_flight = slip(
    by_formulas,
    "p microbatches are in flight even where a replica has fewer: it is min(p, m).",
    ("flying = min(p, m)", "flying = p"),
)
longer_of_the_two = slip(
    by_formulas,
    "As many microbatches are in flight as stages, or as there are: the smaller of the two.",
    ("min(p, m)", "max(p, m)"),
)
one_in_flight = slip(
    by_formulas,
    "One microbatch is in flight: 1F1B's first stage begins min(p, m) before one comes back.",
    ("flying = min(p, m)", "flying = 1"),
)
one_less_in_flight = slip(
    by_formulas,
    "One microbatch is missing: p - 1 warm up, and one more is in flight before one comes back.",
    ("flying = min(p, m)", "flying = min(p - 1, m)"),
)
whole_batch = slip(
    by_formulas,
    "m counts all d replicas' microbatches: one replica has batch/(d·b).",
    ("m = job.batch / (d * b)", "m = job.batch / b"),
)
microbatch_not_in_m = slip(
    by_formulas,
    "m counts sequences: with b in a microbatch there are batch/(d·b).",
    ("m = job.batch / (d * b)", "m = job.batch / d"),
)
one_sequence = slip(
    by_formulas,
    "A microbatch has b sequences: each of them has its activations.",
    ("b = layout.t, layout.p, layout.d, layout.microbatch", "_ = layout.t, layout.p, layout.d, 1"),
    ("m = job.batch / (d * b)", "m = job.batch / (d * layout.microbatch)"),
    ("2 * s * b * h", "2 * s * h"),
    ("at_work = s * b * h", "at_work = s * h"),
)
microbatch_ignored = slip(
    by_formulas,
    "`layout.microbatch` isn't used: b sequences at a time, in batch/(d·b) microbatches.",
    ("layout.d, layout.microbatch", "layout.d, 1"),
)
floor_of_layers = slip(
    by_formulas,
    "Layers are lost where p doesn't divide them: the lecture's L/p is a fraction.",
    ("job.model.layers / p", "job.model.layers // p"),
)
layers_rounded_up = slip(
    by_formulas,
    "L/p is rounded up: the lecture takes the fraction. The fullest stage comes later.",
    ("job.model.layers / p", "-(-job.model.layers // p)"),
)
all_layers = slip(
    by_formulas,
    "All L layers' inputs are counted: a stage has L/p of them.",
    ("job.model.layers / p", "job.model.layers"),
)
inputs_once = slip(
    by_formulas,
    "The inputs of one layer are counted: a stage keeps those of all its L/p.",
    ("layers = job.model.layers / p", "layers = 1"),
)
inputs_whole = slip(
    by_formulas,
    "The layers' inputs aren't divided by t: here the ranks of a TP group share them.",
    ("2 * s * b * h / t", "2 * s * b * h"),
)
work_whole = slip(
    by_formulas,
    "The layer at work isn't divided by t: its tensors lie on t GPUs.",
    ("(34 + 5 * a * s / h) / t", "(34 + 5 * a * s / h)"),
)
activations_whole = slip(
    by_formulas,
    "The activations aren't divided by t: the inputs and the layer at work lie on t GPUs.",
    ("2 * s * b * h / t", "2 * s * b * h"),
    ("(34 + 5 * a * s / h) / t", "(34 + 5 * a * s / h)"),
)
norms_whole = slip(
    by_formulas,
    "10sbh of the layer at work stay whole here, as without sequence parallelism: divide all by t.",
    ("(34 + 5 * a * s / h) / t", "(10 + (24 + 5 * a * s / h) / t)"),
)
no_layer_at_work = slip(
    by_formulas,
    "The layer at work is missing: while it is recomputed, all that it keeps is there.",
    ("layers * inputs + at_work", "layers * inputs"),
)
no_inputs = slip(
    by_formulas,
    "The inputs of the layers in flight are missing: from them everything is recomputed.",
    ("flying * layers * inputs + at_work", "at_work"),
)
nothing_recomputed = slip(
    by_formulas,
    "Every layer in flight keeps everything: with full recompute only its input stays.",
    ("inputs = 2 * s * b * h / t", "inputs = s * b * h * (34 + 5 * a * s / h) / t"),
    ("layers * inputs + at_work", "layers * inputs"),
)
work_in_each = slip(
    by_formulas,
    "A layer is at work for each microbatch in flight: a GPU works at one layer at a time.",
    ("flying * layers * inputs + at_work", "flying * (layers * inputs + at_work)"),
)
stage_at_work = slip(
    by_formulas,
    "The whole stage is at work: layers are recomputed one after another, so one is enough.",
    ("layers * inputs + at_work", "layers * inputs + layers * at_work"),
)
no_scores = slip(
    by_formulas,
    "The scores are missing in the layer at work: 5as/h beside the 34.",
    ("(34 + 5 * a * s / h)", "34"),
)
one_byte_inputs = slip(
    by_formulas,
    "The inputs are BF16: 2 bytes for each of the sbh numbers.",
    ("inputs = 2 * s", "inputs = s"),
)
gigabytes = slip(
    by_formulas,
    "These are GB: bytes are asked for.",
    ("share = job.params", "share = 1e-9 * job.params"),
    ("inputs = 2", "inputs = 2e-9"),
    ("at_work = s", "at_work = 1e-9 * s"),
)
element_size_twice = slip(
    by_formulas,
    "The layer at work is in bytes already: sbh(34 + 5as/h), no 2 before it.",
    ("at_work = s", "at_work = 2 * s"),
)


@also_right("exact fractions, and sequences in flight in place of microbatches")
def in_fractions():
    from fractions import Fraction

    def layout_bytes(job, layout):
        h, a = job.model.hidden, job.model.heads
        group = Fraction(1, layout.t * layout.p)
        flying = min([layout.p * layout.microbatch, Fraction(job.batch, layout.d)])
        kept = 2 * job.seq * h * job.model.layers * flying * group
        tokens = job.seq * layout.microbatch
        kept += Fraction(34 * tokens * h + 5 * a * tokens * job.seq, layout.t)
        weights = 2 * Fraction(job.params) * group
        states = 6 * weights / layout.d
        parts = {"activations": kept, "optimiser states": states, "weights": weights}
        return parts | {"gradients": weights}

    return layout_bytes


@also_right("numpy numbers, and the course's policy")
def by_policy():
    import numpy as np

    from distlab.memory import MIXED_ADAM

    def layout_bytes(job, layout):
        costs = np.array([MIXED_ADAM.weight, MIXED_ADAM.gradient, MIXED_ADAM.optimiser])
        state = costs * job.params / layout.gpus
        state[:2] *= layout.d
        weights, gradients, states = state
        tokens = job.seq * layout.microbatch
        row = tokens * job.model.hidden / layout.t
        flying = np.clip(job.batch / layout.d / layout.microbatch, None, layout.p)
        inputs = flying * 2 * row * job.model.layers / layout.p
        at_work = 34 * row + 5 * job.model.heads * job.seq * tokens / layout.t
        return {
            "activations": inputs + at_work,
            "optimiser states": states,
            "gradients": gradients,
            "weights": weights,
        }

    return layout_bytes


EQUIVALENT = {
    "layout_bytes: min(p, m) -> min(m, p)": "the smaller of two numbers",
    "by_formulas layout_bytes: min(p, m) -> min(m, p)": "the smaller of two numbers",
    "in_fractions layout_bytes: Fraction(job.params) -> job.params": (
        "a float, rounded far below the tolerance"
    ),
}
