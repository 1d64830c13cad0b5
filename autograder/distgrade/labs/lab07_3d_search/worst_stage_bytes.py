"""Bytes of every stage of a pipeline, and the fullest: `stage_bytes(...)`, `worst_stage(stages)`.

`stage_bytes(job, layout, bounds, *, part_params)` returns a dict for each of p stages. Stage s has
the layers bounds[s] .. bounds[s+1] - 1; the first also the embedding, the last the final norm and
the head. A tied head is the embedding's table: with one stage it is there once, with more the last
stage has a copy. `part_params(cfg)` counts the parameters of each. State, inputs and the layer at
work as in `layout_bytes`, but for min(p - s, m) microbatches in flight (1F1B).
`worst_stage(stages)` returns the number of one that holds most bytes; any of those that tie.
Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2 for what is in flight; Megatron-LM
keeps a tied table on both ends. Oracle: each part of the model is put on its stage by bisection,
and every stage's turns of 1F1B are walked through.
"""

from distgrade.compare import Symptom, compare
from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("stage_bytes", "worst_stage")
FORBID = ()
TOLERANCE = Close(1e-12, "shares of parameters are rounded, in any order of factors")
CREDIT = {"parameters": 2, "in flight": 2, "worst": 1}
STATE, KEPT = ["weights", "gradients", "optimiser states"], ["activations"]
SMALL = dict(layers=9, hidden=60, heads=6, batch=30, seq=7)
OF_SMALL, FLYING = dict(ask=STATE, job=SMALL), dict(ask=KEPT, job=SMALL)
CASES = (
    Case("an uneven split", "parameters", layout=(2, 4, 3), bounds=[0, 1, 4, 7, 9], **OF_SMALL),
    Case("tied", "parameters", layout=(3, 3, 5), bounds=[0, 3, 6, 9], tied=True, **OF_SMALL),
    Case("two, tied", "parameters", layout=(1, 2, 1), bounds=[0, 4, 9], tied=True, **OF_SMALL),
    Case("one stage", "parameters", layout=(2, 1, 5), bounds=[0, 9], **OF_SMALL),
    Case("one, tied", "parameters", layout=(4, 1, 3), bounds=[0, 9], tied=True, **OF_SMALL),
    Case("many microbatches", "in flight", layout=(2, 4, 3), bounds=[0, 1, 4, 7, 9], **FLYING),
    Case("few", "in flight", layout=(3, 5, 2), bounds=[0, 2, 4, 6, 7, 9], batch=4, **FLYING),
    Case("two at a time", "in flight", layout=(2, 3, 5), bounds=[0, 2, 5, 9], b=2, **FLYING),
    Case("three", "in flight", layout=(1, 4, 5), bounds=[0, 2, 3, 5, 9], b=3, **FLYING),
    Case("one stage's", "in flight", layout=(2, 1, 5), bounds=[0, 9], **FLYING),
    Case("the first", "worst", stages=[[9, 9, 3, 9], [8, 8, 2, 8], [7, 7, 1, 5]]),
    Case("the last", "worst", stages=[[4, 4, 6, 9], [4, 4, 6, 7], [8, 8, 12, 2]]),
    Case("one between", "worst", stages=[[2, 2, 3, 9], [6, 6, 9, 6], [6, 6, 9, 3], [7, 7, 9, 1]]),
    Case("by optimiser states", "worst", stages=[[5, 5, 2, 3], [1, 1, 17, 1], [2, 2, 3, 9]]),
    Case("two that tie", "worst", stages=[[1, 1, 2, 9], [4, 4, 6, 2], [3, 3, 5, 5], [2, 2, 2, 2]]),
    Case("one alone", "worst", stages=[[3, 3, 9, 2]]),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: more numbers in a head, tokens and parameters.
    low, high = (1, 9) if seed else (0, 1)
    more = [int(k) for k in integers((4,), "stages", case.name, seed, low=low, high=high)]
    if hasattr(case, "stages"):
        parts = ("weights", "gradients", "optimiser states", "activations")
        sizes = [[size * (1 + more[0]) for size in stage] for stage in case.stages]
        return {"stages": [dict(zip(parts, stage, strict=True)) for stage in sizes]}
    cfg = case.job
    t, p, d = case.layout
    shape = {"layers": cfg["layers"], "hidden": cfg["hidden"] + more[0] * cfg["heads"]}
    return {
        "shape": shape | {"heads": cfg["heads"], "tied": getattr(case, "tied", False)},
        "job": {
            "batch": getattr(case, "batch", cfg["batch"]),
            "seq": cfg["seq"] + more[1],
            "gpus": t * p * d,
        },
        "layout": {"t": t, "p": p, "d": d, "microbatch": getattr(case, "b", 1)},
        "bounds": case.bounds,
        "counts": {
            "layer": 1_009 + more[2],
            "embedding": 5_003 + more[3],
            "final norm": 7 + more[2],
            "head": 4_001 + more[3],
        },
        "ask": case.ask,
    }


def observe(student, given):
    from distlab.hardware import DGX_H100
    from distlab.layout import Job, Layout
    from distlab.model import Config

    def plain(value):
        return value.item() if hasattr(value, "item") else value

    if "stages" in given:
        return {"worst": plain(student.worst_stage([dict(stage) for stage in given["stages"]]))}
    counts, bounds = given["counts"], list(given["bounds"])
    job = Job(model=Config(vocab=100, **given["shape"]), cluster=DGX_H100, **given["job"])
    layout = Layout(**given["layout"])
    stages = student.stage_bytes(job, layout, bounds, part_params=lambda cfg: dict(counts))
    if not isinstance(stages, list | tuple):
        raise TypeError("`stage_bytes` should return a list: a dict for each stage.")
    return {
        "stages": [{part: plain(stage[part]) for part in given["ask"]} for stage in stages],
        "bounds afterwards": bounds,
    }


def oracle(case, given):
    from bisect import bisect_right
    from fractions import Fraction

    if "stages" in given:
        totals = [sum(stage.values()) for stage in given["stages"]]
        return {"worst": totals.index(max(totals))}  # `judge` lets others that tie pass
    shape, counts, bounds = given["shape"], given["counts"], given["bounds"]
    t, p, d, b = (given["layout"][key] for key in ("t", "p", "d", "microbatch"))
    s, h, a, layers = given["job"]["seq"], shape["hidden"], shape["heads"], shape["layers"]

    held = [[] for _ in range(p)]  # the names of the parts on each stage, one of each
    for layer in range(layers):
        held[bisect_right(bounds, layer) - 1].append("layer")
    held[0].append("embedding")
    held[-1].append("final norm")
    if not (shape["tied"] and "embedding" in held[-1]):
        held[-1].append("head")

    stages = []
    for stage, parts in enumerate(held):
        params = Fraction(sum(counts[part] for part in parts), t)
        todo = ["F"] * (given["job"]["batch"] // d // b)
        warm = min(p - 1 - stage, len(todo))
        turns = ["F"] * warm + ["F", "B"] * (len(todo) - warm) + ["B"] * warm
        flying = most = 0
        for turn in turns:
            flying += 1 if turn == "F" else -1
            most = max(most, flying)
        inputs = most * parts.count("layer") * 2 * s * b * h
        at_work = 34 * s * b * h + 5 * a * s * s * b
        sizes = {
            "weights": 2 * params,
            "gradients": 2 * params,
            "optimiser states": 12 * params / d,
            "activations": Fraction(inputs + at_work, t),
        }
        stages.append({part: float(sizes[part]) for part in given["ask"]})
    return {"stages": stages, "bounds afterwards": list(bounds)}


def judge(got, expected, case):
    if case.group != "worst":
        if got["bounds afterwards"] != expected["bounds afterwards"]:
            look = "Leave the inputs as they are: write results into a new list."
            return [Symptom("values", "bounds", "this input was changed", look)]
        return compare(
            {"stages": got["stages"]}, {"stages": expected["stages"]}, rtol=TOLERANCE.rtol
        )
    worst = got["worst"]
    if type(worst) is not int:
        return compare(got, expected, rtol=0.0)
    totals = [sum(stage) for stage in case.stages]
    if not 0 <= worst < len(case.stages):
        seen = f"there is no stage {worst}: they count from 0"
        return [Symptom("values", "the fullest stage", seen)]
    if totals[worst] == max(totals):
        return []
    seen = f"another holds {max(totals) / totals[worst]:.4g} times as many bytes"
    return [Symptom("values", "the fullest stage", seen)]


@also_right("stage by stage, the ends apart")
def stage_by_stage():
    def stage_bytes(job, layout, bounds, *, part_params):
        count = part_params(job.model)
        s, h, a = job.seq, job.model.hidden, job.model.heads
        t, p, d, b = layout.t, layout.p, layout.d, layout.microbatch
        m = job.batch / (d * b)
        at_work = s * b * h * (34 + 5 * a * s / h)
        stages = []
        for stage in range(p):
            layers = bounds[stage + 1] - bounds[stage]
            params = layers * count["layer"]
            if stage == 0:
                params += count["embedding"]
            if stage == p - 1:
                params += count["final norm"]
                if p > 1 or not job.model.tied:
                    params += count["head"]
            flying = min(p - stage, m)
            inputs = layers * 2 * s * b * h
            parts = {"weights": 2 * params / t, "gradients": 2 * params / t}
            parts["optimiser states"] = 12 * params / (t * d)
            parts["activations"] = (flying * inputs + at_work) / t
            stages.append(parts)
        return stages

    def worst_stage(stages):
        totals = [sum(parts.values()) for parts in stages]
        return totals.index(max(totals))

    return stage_bytes, worst_stage


average_stage = slip(
    stage_by_stage,
    "All stages have the average of layers: stage s holds bounds[s+1] - bounds[s].",
    ("bounds[stage + 1] - bounds[stage]", "bounds[-1] / p"),
)
tables_ignored = slip(
    stage_by_stage,
    "Only layers are counted: the first stage has the embedding, the last the norm and the head.",
    ('params += count["embedding"]', "pass"),
    ('params += count["final norm"]', "pass"),
    ('params += count["head"]', "pass"),
)
embedding_ignored = slip(
    stage_by_stage,
    "The embedding is missing: it lies on the first stage.",
    ('params += count["embedding"]', "pass"),
)
head_ignored = slip(
    stage_by_stage,
    "The head is missing: it lies on the last stage.",
    ('params += count["head"]', "pass"),
)
norm_ignored = slip(
    stage_by_stage,
    "The final norm is missing: it lies on the last stage, before the head.",
    ('params += count["final norm"]', "pass"),
)
tables_everywhere = slip(
    stage_by_stage,
    "Every stage has the tables: the embedding is the first's, norm and head are the last's.",
    ("if stage == 0:", "if True:"),
    ("if stage == p - 1:", "if True:"),
)
ends_exchanged = slip(
    stage_by_stage,
    "Tokens enter at stage 0: the embedding is there, norm and head are on the last stage.",
    ("if stage == p - 1:", "if stage < 1:"),
    ("if stage == 0:", "if stage == p - 1:"),
)
norm_on_the_first = slip(
    stage_by_stage,
    "The final norm is on the first stage: it comes after all layers, before the head.",
    ('params += count["embedding"]', 'params += count["embedding"] + count["final norm"]'),
    ('params += count["final norm"]', "pass"),
)
whole_embedding_copied = slip(
    stage_by_stage,
    "A copy of all of the embedding is on the last stage: only the head's table is needed there.",
    (
        'params += count["head"]',
        'params += count["embedding" if job.model.tied else "head"]',
    ),
)
tied_costs_nothing = slip(
    stage_by_stage,
    "A tied head is left out: the last stage computes with the table, so it has a copy.",
    ("if p > 1 or not job.model.tied:", "if not job.model.tied:"),
)
tied_twice = slip(
    stage_by_stage,
    "A tied head is counted beside the embedding on the only stage: there it is one table.",
    ("if p > 1 or not job.model.tied:", "if True:"),
)
head_only_if_alone = slip(
    stage_by_stage,
    "A head that isn't tied lies on the last stage whether or not it is the only one.",
    ("if p > 1 or not job.model.tied:", "if p > 1:"),
)
only_one_end = slip(
    stage_by_stage,
    "A single stage is first and last: it has the embedding, and norm and head as well.",
    ("if stage == p - 1:", "if 0 < stage == p - 1:"),
)
twelve_h_squared = slip(
    stage_by_stage,
    "Layers have 12h² parameters here: count them with `part_params`.",
    ('layers * count["layer"]', "layers * 12 * h * h"),
)
no_zero = slip(
    stage_by_stage,
    "ZeRO-1 is missing: the d replicas share one set of optimiser states.",
    ("12 * params / (t * d)", "12 * params / t"),
)
states_over_all = slip(
    stage_by_stage,
    "The optimiser states are divided by p once more: bounds have cut them already.",
    ("12 * params / (t * d)", "12 * params / (t * p * d)"),
)
gradients_sharded = slip(
    stage_by_stage,
    "Gradients are cut by d: that is ZeRO-2. At stage 1 each replica keeps its own.",
    ('"gradients": 2 * params / t', '"gradients": 2 * params / (t * d)'),
)
cut_by_stages_again = slip(
    stage_by_stage,
    "The stage's parameters are divided by p once more: bounds have cut them already.",
    ('parts = {"weights"', 'params = params / p\n        parts = {"weights"'),
)
bounds_inside = slip(
    stage_by_stage,
    "Each stage is a layer short: stage s has layers bounds[s] to bounds[s+1] - 1, both included.",
    ("bounds[stage + 1] - bounds[stage]", "bounds[stage + 1] - 1 - bounds[stage]"),
)
tables_whole = slip(
    stage_by_stage,
    "The tables lie whole on all t ranks here: a GPU has a t-th of all that its stage has.",
    ('params += count["embedding"]', 'params += t * count["embedding"]'),
    ('params += count["head"]', 'params += t * count["head"]'),
)
matrices_whole = slip(
    stage_by_stage,
    "A GPU has a t-th of its stage's parameters.",
    ('parts = {"weights"', 'params = params * t\n        parts = {"weights"'),
)
all_hold_p = slip(
    stage_by_stage,
    "Every stage holds what the first does: stage s has p - s microbatches in flight at most.",
    ("min(p - stage, m)", "min(p, m)"),
)
all_in_flight = slip(
    stage_by_stage,
    "All m microbatches are in flight, as in GPipe: with 1F1B stage s has min(p - s, m).",
    ("min(p - stage, m)", "m"),
)
few_forgotten = slip(
    stage_by_stage,
    "p - s microbatches are in flight even where a replica has fewer: it is min(p - s, m).",
    ("min(p - stage, m)", "p - stage"),
)
flying_backwards = slip(
    stage_by_stage,
    "The last stage holds most here: it is the first that waits longest for its gradients.",
    ("min(p - stage, m)", "min(stage + 1, m)"),
)
warm_up_alone = slip(
    stage_by_stage,
    "p - 1 - s is the warm-up: one more is in flight before the first comes back.",
    ("min(p - stage, m)", "min(p - 1 - stage, m)"),
)
microbatches_of_all = slip(
    stage_by_stage,
    "m counts all d replicas' microbatches: one replica has batch/(d·b).",
    ("job.batch / (d * b)", "job.batch / b"),
)
microbatch_ignored = slip(
    stage_by_stage,
    "`layout.microbatch` isn't used: b sequences at a time, in batch/(d·b) microbatches.",
    ("layout.d, layout.microbatch", "layout.d, 1"),
)
no_layer_at_work = slip(
    stage_by_stage,
    "The layer at work is missing: while it is recomputed, all that it keeps is there.",
    ("flying * inputs + at_work", "flying * inputs"),
)
activations_whole = slip(
    stage_by_stage,
    "The activations aren't divided by t: they lie on t GPUs.",
    ("(flying * inputs + at_work) / t", "flying * inputs + at_work"),
)
always_the_first = slip(
    stage_by_stage,
    "The first stage isn't always the fullest: compare the sums of all parts.",
    ("totals.index(max(totals))", "0"),
)
most_activations = slip(
    stage_by_stage,
    "The fullest stage is that with most bytes in all, not with most activations.",
    ("sum(parts.values())", 'parts["activations"]'),
)
most_weights = slip(
    stage_by_stage,
    "The fullest stage is that with most bytes in all, not with most weights.",
    ("sum(parts.values())", 'parts["weights"]'),
)
least_full = slip(
    stage_by_stage,
    "That is the emptiest stage: the one with most bytes decides whether a layout fits.",
    ("max(totals)", "min(totals)"),
)
parts_for_a_number = slip(
    stage_by_stage,
    "`worst_stage` gives the stage's bytes: its number is asked for.",
    ("totals.index(max(totals))", "stages[totals.index(max(totals))]"),
)
bytes_for_a_number = slip(
    stage_by_stage,
    "`worst_stage` gives bytes: the number of the stage is asked for.",
    ("totals.index(max(totals))", "max(totals)"),
)
from_one = slip(
    stage_by_stage,
    "The stage's number is one too large: stages count from 0.",
    ("totals.index(max(totals))", "1 + totals.index(max(totals))"),
)


@also_right("what lies on a stage is listed first, then weighed")
def by_lists():
    import numpy as np

    def stage_bytes(job, layout, bounds, *, part_params):
        cfg, last = job.model, layout.p - 1
        on = [["layer"] * n for n in np.diff(bounds)]
        on[0].append("embedding")
        on[last] += ["final norm"] + ["head"] * (not cfg.tied or last > 0)
        count = part_params(cfg)
        params = np.array([sum(count[part] for part in parts) for parts in on]) / layout.t
        tokens = job.seq * layout.microbatch
        m = job.batch / layout.d / layout.microbatch
        flying = np.clip(np.arange(layout.p, 0, -1), None, m)
        sbh = tokens * cfg.hidden / layout.t
        kept = 2 * sbh * flying * np.diff(bounds)
        kept = kept + 34 * sbh + 5 * cfg.heads * job.seq * tokens / layout.t
        return [
            {
                "weights": 2 * params[stage],
                "gradients": 2 * params[stage],
                "optimiser states": 12 / layout.d * params[stage],
                "activations": kept[stage],
            }
            for stage in range(layout.p)
        ]

    def worst_stage(stages):
        return np.argmax([sum(stage.values()) for stage in stages])

    return stage_bytes, worst_stage


@also_right("exact fractions, one function for a stage; the last of those that tie")
def one_stage_each():
    from fractions import Fraction
    from itertools import pairwise

    def one(job, layout, layers, stage, count):
        first, last = stage == 0, stage == layout.p - 1
        params = layers * count["layer"] + first * count["embedding"]
        params += last * (count["head"] + count["final norm"])
        if first and last and job.model.tied:
            params -= count["head"]
        share = Fraction(params, layout.t)
        sequences = min([(layout.p - stage) * layout.microbatch, job.batch // layout.d])
        numbers = 2 * layers * sequences * job.model.hidden
        numbers += 34 * layout.microbatch * job.model.hidden
        numbers += 5 * layout.microbatch * job.model.heads * job.seq
        return {
            "activations": Fraction(job.seq * numbers, layout.t),
            "optimiser states": 12 * share / layout.d,
            "gradients": 2 * share,
            "weights": 2 * share,
            "stage": stage,
        }

    def stage_bytes(job, layout, bounds, *, part_params):
        count = part_params(job.model)
        cuts = enumerate(pairwise(bounds))
        return tuple(one(job, layout, j - i, stage, count) for stage, (i, j) in cuts)

    def worst_stage(stages):
        return sorted(range(len(stages)), key=lambda stage: sum(stages[stage].values()))[-1]

    return stage_bytes, worst_stage


EQUIVALENT = {
    "stage_bytes: min(p - stage, m) -> min(m, p - stage)": "the smaller of two numbers",
    "stage_by_stage stage_bytes: min(p - stage, m) -> min(m, p - stage)": (
        "the smaller of two numbers"
    ),
}
