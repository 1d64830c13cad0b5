"""Every layout of a job: `enumerate_layouts(job)` lists those that keep the lecture's four rules.

t divides the GPUs of a node; p is at most the number of layers, and need not divide it; t·p divides
the GPUs; d, what is left of them, divides the batch (one sequence in a microbatch). Any order; no
layout twice. 1,024 GPUs in nodes of eight, 1,536 sequences: 27 layouts for GPT-3, whose p and d
are powers of two because 1,024 is. Source: the lecture's count, set A of the course's facts.
Oracle: the batch's divisors are tried for d, then every p, and t is what is left.
"""

import json

from distgrade.compare import Symptom, kind_of
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("enumerate_layouts",)
FORBID = ("distlab.planner.space.space",)
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"1,024 GPUs": 2, "other clusters": 3}
CASES = (
    Case("GPT-3", "1,024 GPUs", layers=96, batch=1536, gpus=1024, node=8),
    Case("Llama 3.1 405B", "1,024 GPUs", layers=126, batch=1536, gpus=1024, node=8),
    Case("one GPU", "other clusters", layers=4, batch=6, gpus=1, node=8),
    Case("96 GPUs", "other clusters", layers=24, batch=480, gpus=96, node=8),
    Case("nodes of six", "other clusters", layers=10, batch=60, gpus=72, node=6),
    Case("no more stages than layers", "other clusters", layers=6, batch=36, gpus=36, node=4),
    Case("less than a node", "other clusters", layers=5, batch=30, gpus=6, node=8),
    Case("the batch is a prime", "other clusters", layers=24, batch=7, gpus=56, node=4),
    Case("none is possible", "other clusters", layers=3, batch=5, gpus=11, node=4),
)


def given(case, seed):
    # Fresh seeds grade larger batches.
    return {
        "layers": case.layers,
        "batch": case.batch * (1 + seed % 3),
        "gpus": case.gpus,
        "node": case.node,
    }


def observe(student, given):
    import json
    from dataclasses import replace

    from distlab.hardware import DGX_H100
    from distlab.layout import Job, Layout
    from distlab.model import Config

    model = Config(layers=given["layers"], hidden=1920, heads=120, vocab=1000)
    cluster = replace(DGX_H100, gpus_per_node=given["node"])
    job = Job(model=model, batch=given["batch"], seq=64, gpus=given["gpus"], cluster=cluster)

    def plain(layout):
        if not isinstance(layout, Layout):
            return type(layout).__name__
        fields = {name: getattr(layout, name) for name in vars(Layout(1, 1, 1))}
        fields = {k: x.item() if hasattr(x, "item") else x for k, x in fields.items()}
        sizes = [fields.pop(axis) for axis in ("t", "p", "d")]
        usual = {name: getattr(Layout(1, 1, 1), name) for name in fields}
        return [*sizes, ", ".join(name for name in fields if fields[name] != usual[name])]

    found = student.enumerate_layouts(job)
    if not hasattr(found, "__iter__"):
        return {"layouts": json.dumps(found, default=repr)}
    found = list(map(plain, found))
    if all(isinstance(layout, list) for layout in found):
        found.sort()
    return {"layouts": json.dumps(found, default=repr)}  # one leaf: lists differ in length


def oracle(case, given):
    import json

    found = []
    for d in range(1, given["batch"] + 1):
        for p in range(1, given["layers"] + 1):
            t, rest = divmod(given["gpus"], p * d)
            if given["batch"] % d == 0 and rest == 0 and given["node"] % max(t, 1) == 0:
                found.append([t, p, d, ""])
    return {"layouts": json.dumps(sorted(found))}


def broken(t: int, p: int, d: int, case) -> str:
    """Return the rule that a layout breaks, as what was asked."""
    if case.node % t:
        return "TP groups share a node evenly: t divides the GPUs of a node."
    if p > case.layers:
        return "A stage holds at least one layer: p is at most the number of layers."
    if t * p * d != case.gpus:
        return "A layout fills the GPUs: t · p · d is their number."
    return "Replicas take equal shares of the batch: d divides it."


def judge(got, expected, case):
    found, right = json.loads(got["layouts"]), json.loads(expected["layouts"])
    what = "the layouts"
    if not isinstance(found, list):
        return [Symptom("structure", what, f"{kind_of(found)}, not a list")]
    for layout in found:
        if not isinstance(layout, list) or len(layout) != 4:
            return [Symptom("structure", what, f"a {layout} is one, not a Layout")]
        for axis, size in zip("tpd", layout, strict=False):
            if type(size) is not int:
                seen = f"{axis} is {kind_of(size)} in one, not a whole number"
                return [Symptom("structure", what, seen)]
        if layout[3]:
            look = "Give t, p and d alone: the rest stays as a Layout has it."
            return [Symptom("values", what, f"{layout[3]} is changed in one", look)]
    names = ["{}×{}×{}".format(*layout) for layout in found]
    for name in names:
        if names.count(name) > 1:
            return [Symptom("values", what, f"{name} is there {names.count(name)} times")]
    for layout, name in zip(found, names, strict=True):
        if layout not in right:
            look = broken(*layout[:3], case)
            return [Symptom("values", what, f"{name} is one, which breaks a rule", look)]
    missing = [layout for layout in right if layout not in found]
    if missing:
        seen = f"{len(missing)} of {len(right)} are missing"
        return [Symptom("values", what, seen, common(missing, case))]
    return []


def common(missing: list, case) -> str:
    """Return what all missing layouts share, if that is likely to be why they are missing."""
    if all(case.layers % p for _, p, _, _ in missing):
        return "p need not divide the layers: stages may differ by one."
    if all(x & (x - 1) for t, p, _, _ in missing for x in [t * p]):
        return "Sizes need not be powers of two."
    if all(p == case.layers for _, p, _, _ in missing):
        return "A stage may hold a single layer."
    return ""


@also_right("divisors of the node, then of what is left")
def by_divisors():
    from distlab.layout import Layout

    def divisors(n):
        return (k for k in range(1, n + 1) if n % k == 0)

    def enumerate_layouts(job):
        found = []
        for t in divisors(job.cluster.gpus_per_node):
            pipelines, idle = divmod(job.gpus, t)
            for p in () if idle else divisors(pipelines):
                d = pipelines // p
                if p <= job.model.layers and job.batch % d == 0:
                    found.append(Layout(t, p, d))
        return found

    return enumerate_layouts


@also_right("replicas first, from the common divisors of batch and GPUs")
def by_replicas():
    from math import gcd

    from distlab.layout import Layout

    def enumerate_layouts(job):
        sizes = (job.batch, job.gpus)
        most = gcd(*sizes)
        found = set()
        for d in range(most, 0, -1):
            if most % d:
                continue
            left = job.gpus // d
            for t in range(1, job.cluster.gpus_per_node + 1):
                if left % t == 0 and job.cluster.gpus_per_node % t == 0:
                    p = left // t
                    if p <= job.model.layers:
                        found.add(Layout(t=t, p=p, d=d))
        return found

    return enumerate_layouts


@also_right("numpy asks all sizes at once")
def by_numpy():
    import numpy as np

    from distlab.layout import Layout

    def enumerate_layouts(job):
        node, gpus = job.cluster.gpus_per_node, job.gpus
        t, p = np.ogrid[1 : node + 1, 1 : job.model.layers + 1]
        fits = (node % t == 0) & (gpus % (t * p) == 0) & (job.batch * t * p % gpus == 0)
        places = np.argwhere(fits) + 1
        return (Layout(i, j, gpus // (i * j)) for i, j in places)

    return enumerate_layouts


@also_right("all pairs are tried, a microbatch for every replica asked as a remainder")
def by_trying_all():
    from distlab.layout import Layout

    def enumerate_layouts(job):
        found = []
        for t in range(1, job.cluster.gpus_per_node + 1):
            for p in range(1, job.model.layers + 1):
                d = job.gpus // (t * p)
                if job.cluster.gpus_per_node % t or job.gpus % (t * p):
                    continue
                if job.batch % d == 0:
                    found.append(Layout(t, p, d))
        return found

    return enumerate_layouts


batch_forgotten = slip(
    by_trying_all,
    "The batch isn't asked: d replicas share it equally only where d divides it.",
    ("if job.batch % d == 0:", "if d:"),
)
batch_at_least = slip(
    by_trying_all,
    "A batch of at least d is not enough: equal shares need a d that divides it.",
    ("job.batch % d == 0", "job.batch >= d"),
)
enough_microbatches = slip(
    by_trying_all,
    "Fewer microbatches than stages make a large bubble, but are no rule here: list them.",
    ("if job.batch % d == 0:", "if job.batch % d == 0 and job.batch // d >= p:"),
)
p_divides_layers = slip(
    by_trying_all,
    "p need not divide the layers: stages may differ by one. Leaving these out makes 23 of 27.",
    ("or job.gpus % (t * p)", "or job.gpus % (t * p) or job.model.layers % p"),
)
fewer_stages_than_layers = slip(
    by_trying_all,
    "A stage may hold a single layer: p goes up to the number of layers, including it.",
    ("job.model.layers + 1", "job.model.layers"),
)
any_number_of_stages = slip(
    by_trying_all,
    "Stages without a layer: p is at most the number of layers.",
    ("job.model.layers + 1", "job.gpus + 1"),
)
no_single_stage = slip(
    by_trying_all,
    "No pipeline at all is a layout too: p starts at 1.",
    ("range(1, job.model.layers + 1)", "range(2, job.model.layers + 1)"),
)
across_nodes = slip(
    by_trying_all,
    "TP groups lie across nodes here: t divides the GPUs of a node.",
    ("range(1, job.cluster.gpus_per_node + 1)", "range(1, job.gpus + 1)"),
    ("job.cluster.gpus_per_node % t or ", ""),
)
uneven_in_a_node = slip(
    by_trying_all,
    "t is at most a node's GPUs but doesn't divide them: some TP group lies on two nodes.",
    ("job.cluster.gpus_per_node % t or ", ""),
)
whole_node_only = slip(
    by_trying_all,
    "TP of a whole node only: smaller groups that divide the node are layouts too.",
    ("range(1, job.cluster.gpus_per_node + 1)", "[job.cluster.gpus_per_node]"),
)
gpus_left_over = slip(
    by_trying_all,
    "Some layouts leave GPUs idle: t · p must divide their number, so that t · p · d fills them.",
    (
        "job.cluster.gpus_per_node % t or job.gpus % (t * p)",
        "job.cluster.gpus_per_node % t or d < 1",
    ),
)
float_division = slip(
    by_trying_all,
    "d is a float here: divide whole numbers with //.",
    ("job.gpus // (t * p)", "job.gpus / (t * p)"),
)
tuples = slip(
    by_trying_all,
    "Return Layout objects, not tuples: Layout(t, p, d).",
    ("Layout(t, p, d)", "(t, p, d)"),
)
order_of_fields = slip(
    by_trying_all,
    "d stands where a Layout has p: its order is t, p, d.",
    ("Layout(t, p, d)", "Layout(t, d, p)"),
)
powers_of_two = slip(
    by_trying_all,
    "Only powers of two are tried: for 1,024 GPUs they are enough, for 96 or 72 they aren't.",
    ("or job.gpus % (t * p)", "or job.gpus % (t * p) or t & (t - 1) or p & (p - 1)"),
)
microbatches_given = slip(
    by_trying_all,
    "A microbatch holds one sequence here: leave Layout's microbatch as it is.",
    ("Layout(t, p, d)", "Layout(t, p, d, microbatch=job.batch // d)"),
)
one_a_split = slip(
    by_trying_all,
    "One layout for each t alone: go on after the first p that is possible.",
    ("found.append(Layout(t, p, d))", "found.append(Layout(t, p, d)); break"),
)


@wrong("Each layout is there more than once: try every pair of t and p once.")
def twice():
    from distlab.layout import Layout

    def enumerate_layouts(job):
        node = job.cluster.gpus_per_node
        divisors = [k for k in range(1, job.gpus + 1) if job.gpus % k == 0]
        found = []
        for t in divisors:
            for p in divisors:
                for d in divisors * 2:
                    fills = t * p * d == job.gpus and p <= job.model.layers
                    if fills and node % t == 0 and job.batch % d == 0:
                        found.append(Layout(t, p, d))
        return found

    return enumerate_layouts


EQUIVALENT = {
    "by_divisors divisors: 1 -> 2": "n + 1 doesn't divide n",
    "by_replicas enumerate_layouts: 1 -> 2": "one more than a node's GPUs doesn't divide them",
    "by_replicas enumerate_layouts: (job.batch, job.gpus) -> (job.gpus, job.batch)": (
        "their greatest common divisor"
    ),
}
