"""How much of the GPUs' peak a step uses: `mfu(job, step_s, *, recompute) -> (MFU, HFU)`.

Forward multiplies each token with each parameter, 2 FLOP, and compares it with all tokens of its
sequence in each layer: scores, 4 FLOP for each number of the heads. Backward is twice forward.
Recompute runs again nothing ("none"), the scores ("selective") or forward ("full"). MFU counts
forward and backward, HFU what is run again as well, both over what all GPUs could do at their dense
peak in `step_s` seconds. A causal mask's half isn't taken off. Source: Chowdhery et al. 2022
(arXiv:2204.02311), appendix B, for MFU, HFU and 6N + 12LHQT; recompute is derived here. Oracle: the
products are listed, one of each sequence, layer and head, with their gradients.
"""

from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("mfu",)
FORBID = ()
TOLERANCE = Close(1e-12, "products of floats are rounded, in any order of factors")
CREDIT = {"MFU": 2, "HFU": 2}
SMALL = dict(layers=4, hidden=40, heads=6, kv_heads=2, head_dim=5, params=1_009.0)
SMALL |= dict(batch=4, seq=9, gpus=6)
CASES = (
    Case("nothing again", "MFU", job=SMALL, recompute="none", step_s=0.5),
    Case("full", "MFU", job=SMALL | {"gpus": 5}, recompute="full", step_s=0.25),
    Case("selective", "MFU", job=SMALL | {"batch": 3}, recompute="selective", step_s=3.0),
    Case("long sequences", "MFU", job=SMALL | {"seq": 64}, recompute="full", step_s=2.0),
    Case("one GPU", "MFU", job=SMALL | {"gpus": 1}, recompute="none", step_s=1.0),
    Case("HFU, nothing again", "HFU", job=SMALL, recompute="none", step_s=0.5),
    Case("HFU, full", "HFU", job=SMALL | {"gpus": 5}, recompute="full", step_s=0.25),
    Case("HFU, selective", "HFU", job=SMALL | {"batch": 3}, recompute="selective", step_s=3.0),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: more parameters, tokens and sequences.
    low, high = (1, 9) if seed else (0, 1)
    more = [int(k) for k in integers((3,), "mfu", case.name, seed, low=low, high=high)]
    cfg, shape = case.job, ("layers", "hidden", "heads", "kv_heads", "head_dim")
    return {
        "shape": {key: cfg[key] for key in shape},
        "job": {
            "params": cfg["params"] + more[0],
            "seq": cfg["seq"] + more[1],
            "batch": cfg["batch"] + more[2],
            "gpus": cfg["gpus"],
        },
        "step_s": case.step_s,
        "recompute": case.recompute,
        "ask": "HFU" if case.name.startswith("HFU") else "MFU",
    }


def observe(student, given):
    from dataclasses import replace

    from distlab.hardware import DGX_H100
    from distlab.layout import Job
    from distlab.model import Config

    # The cluster's own mfu is an assumption of a model of time: nothing for what was measured.
    gpu = replace(DGX_H100.gpu, peak_flop_per_s=7e6)
    cluster = replace(DGX_H100, gpu=gpu, mfu=0.6)
    job = Job(model=Config(vocab=100, **given["shape"]), cluster=cluster, **given["job"])
    shares = student.mfu(job, given["step_s"], recompute=given["recompute"])
    shares = shares.tolist() if hasattr(shares, "tolist") else shares
    if not isinstance(shares, list | tuple) or len(shares) != 2:
        raise TypeError("`mfu` should return two numbers, MFU and HFU.")
    share = shares[given["ask"] == "HFU"]
    return {given["ask"]: share.item() if hasattr(share, "item") else share}


def oracle(case, given):
    from fractions import Fraction

    shape, job = given["shape"], given["job"]
    s, width = job["seq"], shape["head_dim"]

    def flop(products):
        return sum(2 * rows * inner * columns for rows, inner, columns in products)

    def gradients(products):
        return [(m, n, k) for m, k, n in products] + [(k, m, n) for m, k, n in products]

    matrices = [(s, Fraction(job["params"]), 1)]  # all of them in one: tokens by parameters
    scores = [(s, width, s), (s, s, width)] * shape["heads"] * shape["layers"]
    forward = matrices + scores
    again = {"none": [], "selective": scores, "full": forward}[given["recompute"]]
    run = forward + gradients(forward) + (again if given["ask"] == "HFU" else [])
    could = Fraction(7_000_000) * job["gpus"] * Fraction(given["step_s"])
    return {given["ask"]: float(sum(flop(run) for _ in range(job["batch"])) / could)}


@also_right("FLOP of a forward, and how often it is run")
def by_passes():
    def mfu(job, step_s, *, recompute):
        cfg = job.model
        tokens = job.batch * job.seq
        scores = 4 * job.seq * cfg.heads * cfg.head_dim * cfg.layers
        forward = 2 * job.params + scores
        again = {"none": 0, "selective": scores, "full": forward}[recompute]
        could = job.gpus * job.cluster.gpu.peak_flop_per_s * step_s
        needed = tokens * 3 * forward
        done = needed + tokens * again
        return needed / could, done / could

    return mfu


recompute_in_mfu = slip(
    by_passes,
    "MFU counts what is run again: it is the model's FLOP only, HFU the hardware's.",
    ("return needed / could", "return done / could"),
)
exchanged = slip(
    by_passes,
    "MFU and HFU are exchanged: HFU counts more, what is run again.",
    ("return needed / could, done / could", "return done / could, needed / could"),
)
one_for_both = slip(
    by_passes,
    "HFU leaves out what is run again: the scores, or all of forward.",
    ("tokens * again", "0"),
)
again_alone = slip(
    by_passes,
    "HFU has only what is run again: it counts forward and backward as well.",
    ("done = needed + tokens", "done = tokens"),
)
backward_like_forward = slip(
    by_passes,
    "Backward costs twice as much as forward: a gradient for the input, and one for the weight.",
    ("tokens * 3 * forward", "tokens * 2 * forward"),
)
forward_alone = slip(
    by_passes,
    "Only forward is there: backward costs twice as much again.",
    ("tokens * 3 * forward", "tokens * forward"),
)
always_eight = slip(
    by_passes,
    "MFU has 6 FLOP for each parameter and token, whatever is run again: the 8 are HFU's.",
    ("tokens * 3 * forward", "tokens * 4 * forward"),
    ("needed + tokens * again", "needed"),
)
no_scores = slip(
    by_passes,
    "The scores are missing: no parameters, but 4 FLOP for each token met, in each layer.",
    ("scores = 4", "scores = 0"),
)
scores_only_again = slip(
    by_passes,
    "The scores count only where they are run again: every forward computes them.",
    ("forward = 2 * job.params + scores", "forward = 2 * job.params"),
)
scores_forward_only = slip(
    by_passes,
    "The scores have a backward too, twice their forward.",
    ("tokens * 3 * forward", "tokens * (6 * job.params + scores)"),
)
scores_once = slip(
    by_passes,
    "Half of the scores is missing: Q with K, then with V; a causal mask's half is counted too.",
    ("scores = 4", "scores = 2"),
)
one_layers_scores = slip(
    by_passes,
    "Those are one layer's scores: every layer has its own.",
    (" * cfg.layers", ""),
)
scores_with_hidden = slip(
    by_passes,
    "Scores have heads · head_dim numbers for a token: that need not be hidden.",
    ("cfg.heads * cfg.head_dim", "cfg.hidden"),
)
key_heads = slip(
    by_passes,
    "Each of Q's heads has its scores, though several share K and V.",
    ("cfg.heads", "cfg.kv_heads"),
)
all_tokens_meet = slip(
    by_passes,
    "A token meets the tokens of its own sequence, not of the whole batch.",
    ("scores = 4 * job.seq", "scores = 4 * tokens"),
)
always_full = slip(
    by_passes,
    "HFU counts all of forward as run again, whatever `recompute` says.",
    ('{"none": 0, "selective": scores, "full": forward}[recompute]', "forward"),
)
selective_like_full = slip(
    by_passes,
    "Selective recompute runs only the scores again, not all of forward.",
    ('"selective": scores', '"selective": forward'),
)
full_without_scores = slip(
    by_passes,
    "Full recompute runs the scores again as well.",
    ('"full": forward', '"full": 2 * job.params'),
)
again_like_backward = slip(
    by_passes,
    "What is run again costs what forward does, not what backward does.",
    ("tokens * again", "tokens * 2 * again"),
)
scores_three_times = slip(
    by_passes,
    "Selective recompute runs the scores' forward once more, not their backward too.",
    ('"selective": scores', '"selective": 3 * scores'),
)
one_gpu = slip(
    by_passes,
    "That is one GPU's peak: the batch is the work of all of them.",
    ("could = job.gpus *", "could ="),
)
assumed_rate = slip(
    by_passes,
    "It is a share of the peak itself: `cluster.mfu` is what was assumed, leave it out.",
    ("peak_flop_per_s * step_s", "peak_flop_per_s * job.cluster.mfu * step_s"),
)
sparse_peak = slip(
    by_passes,
    "The peak is the dense one, as `peak_flop_per_s` gives it: twice that is for sparse matrices.",
    ("could = job.gpus *", "could = 2 * job.gpus *"),
)
a_rate = slip(
    by_passes,
    "The step's time is missing: the GPUs could do their peak in each of its seconds.",
    (" * step_s", ""),
)
turned_round = slip(
    by_passes,
    "It is turned round: the FLOP of the model over those that the GPUs could do.",
    ("return needed / could, done / could", "return could / needed, could / done"),
)
sequences_not_tokens = slip(
    by_passes,
    "The batch counts sequences: each has `seq` tokens.",
    ("job.batch * job.seq", "job.batch"),
)
in_per_cent = slip(
    by_passes,
    "That is in per cent: a share is 1 at most.",
    ("return needed / could, done / could", "return 100 * needed / could, 100 * done / could"),
)


@also_right("6Ψ + 12Lhs for a token, and the tokens a second that the peak allows")
def by_rates():
    def mfu(job, step_s, *, recompute):
        cfg = job.model
        meets = cfg.layers * cfg.heads * cfg.head_dim * job.seq
        model = 6 * job.params + 12 * meets
        hardware = model
        if recompute == "full":
            hardware = 8 * job.params + 16 * meets
        elif recompute == "selective":
            hardware += 4 * meets
        rate = job.batch * job.seq / step_s / job.gpus
        peak = job.cluster.gpu.peak_flop_per_s
        return rate * model / peak, rate * hardware / peak

    return mfu


@also_right("layer by layer, under names")
def layer_by_layer():
    from collections import namedtuple

    Shares = namedtuple("Shares", "mfu hfu")

    def mfu(job, step_s, *, recompute):
        cfg, s = job.model, job.seq
        could = job.cluster.gpu.peak_flop_per_s * step_s * job.gpus
        matrices = job.batch * 2 * s * job.params
        one = job.batch * cfg.heads * 2 * (2 * s * s * cfg.head_dim)
        scores = sum([one] * cfg.layers)
        again = scores if recompute != "none" else 0
        again += matrices if recompute == "full" else 0
        model = 3 * matrices + 3 * scores
        return Shares(mfu=model / could, hfu=(model + again) / could)

    return mfu


EQUIVALENT = {}
