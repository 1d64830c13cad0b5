"""The fastest layout, and why others are out: `search(job, layouts, bytes_of, time_of)`.

`bytes_of(job, layout)` and `time_of(job, layout)` return dicts, bytes of a GPU and seconds of a
step by part. Returned are the layout whose parts take the shortest time together, None where none
is left, and a dict with a reason for each layout that is out:
"gpus": t·p·d isn't the job's number; "node": t doesn't divide a node's GPUs; "layers": fewer layers
than stages; "batch": d·microbatch doesn't divide the batch; "memory": its parts together exceed the
GPU's memory, an exact fit fits. Where several are true, each is right. Of layouts equally fast, one
that needs fewest bytes is best.
"the best" judges the first half of an answer alone, "the reasons" the second.
Source: the rules of the lab's list of layouts. Oracle: every rule is told of every layout, by
greatest common divisors and counting; the judge looks up what an answer says.
"""

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("search",)
FORBID = ()
TOLERANCE = Exact(why="whole milliseconds and bytes")
CREDIT = {"the best": 3, "the reasons": 3}
# Rows: t, p, d, microbatch, milliseconds of a step, GB of a GPU. The job: GPUs, GPUs of a node,
# layers, batch, GB of memory.
_SIXTEEN = [
    [16, 1, 1, 1, 52, 30],
    [8, 2, 1, 1, 60, 20],
    [4, 1, 4, 1, 100, 95],
    [4, 4, 1, 1, 140, 20],
    [2, 2, 4, 1, 110, 82],
    [1, 4, 4, 1, 150, 40],
    [4, 2, 2, 1, 125, 30],
    [2, 8, 1, 1, 58, 25],
    [1, 1, 16, 1, 50, 35],
    [2, 4, 2, 1, 120, 80],
    [2, 2, 2, 1, 70, 60],
    [2, 1, 8, 1, 56, 60],
]
_NODES_OF_SIX = [
    [4, 3, 2, 1, 60, 30],
    [6, 1, 4, 1, 70, 41],
    [6, 4, 1, 1, 90, 10],
    [3, 8, 1, 1, 64, 12],
    [2, 4, 3, 1, 84, 22],
    [2, 3, 4, 2, 86, 24],
    [2, 3, 4, 1, 88, 23],
    [3, 2, 4, 1, 85, 40],
    [1, 2, 12, 3, 83, 39],
    [1, 2, 12, 1, 87, 38],
    [2, 6, 2, 1, 66, 15],
    [1, 3, 8, 1, 65, 33],
    [5, 5, 1, 1, 40, 14],
    [2, 5, 2, 1, 50, 18],
    [12, 1, 2, 1, 61, 50],
    [1, 5, 5, 1, 45, 44],
]
_TIED = [
    [1, 4, 2, 1, 77, 50],
    [2, 2, 2, 1, 70, 44],
    [2, 4, 1, 1, 70, 31],
    [1, 8, 1, 1, 70, 31],
    [1, 2, 4, 1, 91, 12],
    [4, 2, 1, 1, 70, 36],
    [4, 1, 2, 1, 65, 79],
]
_TOO_LARGE = [
    [2, 2, 2, 1, 70, 141],
    [4, 2, 1, 1, 75, 65],
    [1, 8, 1, 1, 99, 20],
    [1, 4, 2, 1, 72, 300],
]
_ROOMY = [[2, 2, 2, 1, 71, 61], [1, 2, 4, 1, 75, 65], [1, 1, 8, 1, 70, 79]]
CASES = (
    Case("sixteen GPUs", "the best", rows=_SIXTEEN, job=[16, 4, 6, 12, 80]),
    Case("nodes of six", "the best", rows=_NODES_OF_SIX, job=[24, 6, 5, 36, 40]),
    Case("equally fast", "the best", rows=_TIED, job=[8, 4, 8, 8, 64]),
    Case("nothing fits", "the best", rows=_TOO_LARGE, job=[8, 4, 5, 8, 64]),
    Case("nothing to choose from", "the best", rows=[], job=[8, 4, 5, 8, 64]),
    Case("sixteen GPUs, all reasons", "the reasons", rows=_SIXTEEN, job=[16, 4, 6, 12, 80]),
    Case("nodes of six, all reasons", "the reasons", rows=_NODES_OF_SIX, job=[24, 6, 5, 36, 40]),
    Case("none is out", "the reasons", rows=_ROOMY, job=[8, 4, 2, 16, 80]),
)


def given(case, seed):
    # Fresh seeds take longer, need and have more bytes, and offer the layouts in another order.
    slower, larger = 1 + seed % 83, 1 + seed % 29
    first = seed % len(case.rows) if case.rows else 0
    rows = case.rows[first:] + case.rows[:first]
    times, sizes = [], []
    for t, p, d, b, ms, gb in rows:
        # Of the whole, parts in no order of the whole: a part alone tells nothing.
        compute, bubble = ms * (7 - (3 * t + p) % 5) // 12, ms * (1 + d % 3) // 24
        tp, pp = ms * (1 + p % 2) // 24, ms * b // 48
        times.append([slower * part for part in (compute, bubble, tp, pp)])
        times[-1].append(slower * ms - sum(times[-1]))
        size = larger * gb * 10**9
        weights, activations = size * (1 + (t + d) % 3) // 16, size * (1 + (p + 2 * d) % 4) // 8
        sizes.append([weights, weights, size - 2 * weights - activations, activations])
    *counts, memory = case.job
    return {
        "layouts": [row[:4] for row in rows],
        "times": times,
        "bytes": sizes,
        "job": [*counts, larger * memory * 10**9],
    }


def observe(student, given):
    from dataclasses import replace

    from distlab.hardware import DGX_H100, H100_SXM
    from distlab.layout import Job, Layout
    from distlab.model import Config

    gpus, gpus_per_node, layers, batch, memory = given["job"]
    gpu = replace(H100_SXM, memory_bytes=memory)
    job = Job(
        model=Config(layers=layers, hidden=48, heads=12, vocab=100),
        params=1e9,
        batch=batch,
        seq=64,
        gpus=gpus,
        cluster=replace(DGX_H100, gpu=gpu, gpus_per_node=gpus_per_node),
    )
    layouts = [Layout(t, p, d, microbatch=b) for t, p, d, b in given["layouts"]]
    at = {layout: i for i, layout in enumerate(layouts)}

    asked = set()

    def bytes_of(job, layout):
        asked.add("bytes_of")
        names = ("weights", "gradients", "optimiser states", "activations")
        return dict(zip(names, given["bytes"][at[layout]], strict=True))

    def time_of(job, layout):
        asked.add("time_of")
        names = ("compute", "bubble", "tp", "pp", "dp")
        return dict(zip(names, given["times"][at[layout]], strict=True))

    offered = list(layouts)
    answer = student.search(job, offered, bytes_of, time_of)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise TypeError("the answer should be a pair: the best layout, and a dict of reasons")
    if layouts and not asked:
        raise TypeError("neither `bytes_of` nor `time_of`, which came in as arguments, was called")
    best, rejected = answer
    if best is not None:
        best = at.get(best, -2) if isinstance(best, Layout) else -3
    reasons = "no dict {layout: reason} for layouts of the list"
    if isinstance(rejected, dict) and all(k in at for k in rejected):
        told = [str(rejected.get(layout, "-"))[:40] for layout in layouts]
        reasons = ";".join(" ".join(reason.replace(";", ",").split()) for reason in told)
    return {
        "best": -1 if best is None else best,
        "reasons": reasons,
        "layouts afterwards": offered == layouts,
    }


def oracle(case, given):
    from math import gcd

    import torch

    gpus, gpus_per_node, layers, batch, memory = given["job"]
    rows = [[gpus, gpus_per_node, layers, batch, memory, 0, 0, 0, 0, 0, 0]]
    for i, (t, p, d, b) in enumerate(given["layouts"]):
        in_all, kept = 0, 0
        for part in given["times"][i]:
            in_all += part
        for part in given["bytes"][i]:
            kept += part
        out = [
            len([(x, y, z) for x in range(t) for y in range(p) for z in range(d)]) != gpus,
            gcd(t, gpus_per_node) < t,
            len(range(layers)[:p]) < p,
            gcd(d * b, batch) < d * b,
            kept > memory,
        ]
        rows.append([t, p, d, b, in_all, kept, *map(int, out)])
    return {
        "best": 0,
        "reasons": torch.tensor(rows),
        "layouts afterwards": True,
    }


def judge(got, expected, case):
    words = ("gpus", "node", "layers", "batch", "memory")
    _, *rows = expected["reasons"].tolist()
    names = [f"{t}×{p}×{d}" + (f", microbatch {b}" if b > 1 else "") for t, p, d, b, *_ in rows]
    true = [[w for w, out in zip(words, row[6:], strict=True) if out] for row in rows]
    if not got["layouts afterwards"]:
        return [Symptom("values", "the list of layouts", "it was changed", "Leave it as it is.")]
    if case.group == "the best":
        seen, look = _chosen(got["best"], rows, names, true)
        return [Symptom("values", "the best layout", seen, look)] if seen else []
    if got["reasons"].startswith("no dict"):
        look = "Keys are layouts of the list, not their names."
        return [Symptom("values", "the reasons", got["reasons"], look)]
    told = got["reasons"].split(";") if rows else []
    for name, reason, reasons in zip(names, told, true, strict=True):
        seen = _reason(reason, reasons, words)
        if seen:
            return [Symptom("values", f"the reason for {name}", seen)]
    return []


def _chosen(best, rows, names, true):
    """Return what is wrong with a choice, and where to look; "" if nothing is."""
    left = [(row[4], row[5]) for row, reasons in zip(rows, true, strict=True) if not reasons]
    if best < -1:
        return "a layout that is not in the list" if best == -2 else "no layout, and not None", ""
    if best == -1:
        return ("None, but a layout is possible and fits" if left else ""), ""
    if true[best]:
        return f"{names[best]}, which is out", "Choose among those that have no reason."
    (time, size), (shortest, smallest) = rows[best][4:6], min(left)
    if time > shortest:
        return f"{names[best]}, whose step is {time / shortest:.3g} times the shortest", ""
    if size > smallest:
        seen = f"{names[best]}, as fast as another, with {size / smallest:.3g} times its bytes"
        return seen, "Of layouts equally fast, choose the one that needs fewest bytes."
    return "", ""


def _reason(reason, reasons, words):
    """Return what is wrong with the reason told for a layout, "" if nothing is."""
    if reason == "-":
        return "none is told, and the layout is out" if reasons else ""
    if reason not in words:
        return f"“{reason}”, which is none of {', '.join(words)}"
    if not reasons:
        return f"“{reason}”, and the layout is possible and fits"
    return "" if reason in reasons else f"“{reason}”, which isn't true of it"


@also_right("rule after rule")
def by_rules():
    def search(job, layouts, bytes_of, time_of):
        room = job.cluster.gpu.memory_bytes
        rejected, left = {}, []
        for layout in layouts:
            needs = sum(bytes_of(job, layout).values())
            takes = sum(time_of(job, layout).values())
            reason = None
            if layout.gpus != job.gpus:
                reason = "gpus"
            elif job.cluster.gpus_per_node % layout.t:
                reason = "node"
            elif layout.p > job.model.layers:
                reason = "layers"
            elif job.batch % (layout.d * layout.microbatch):
                reason = "batch"
            elif needs > room:
                reason = "memory"
            if reason:
                rejected[layout] = reason
            else:
                left.append((takes, needs, len(left), layout))
        best = min(left)[-1] if left else None
        return best, rejected

    return search


@also_right("a table of tests, from memory to GPUs")
def by_a_table():
    def search(job, layouts, bytes_of, time_of):
        def total(parts):
            return sum(parts.values())

        tests = {
            "memory": lambda x: total(bytes_of(job, x)) <= job.cluster.gpu.memory_bytes,
            "batch": lambda x: job.batch % (x.d * x.microbatch) == 0,
            "layers": lambda x: x.p <= job.model.layers,
            "node": lambda x: job.cluster.gpus_per_node % x.t == 0,
            "gpus": lambda x: x.t * x.p * x.d == job.gpus,
        }
        failed = {x: [why for why, holds in tests.items() if not holds(x)] for x in layouts}
        order = sorted(layouts, key=lambda x: (total(time_of(job, x)), total(bytes_of(job, x))))
        best = next((x for x in order if not failed[x]), None)
        return best, {x: why[-1] for x, why in failed.items() if why}

    return search


@also_right("the best so far, kept in a loop")
def best_so_far():
    from math import lcm

    def search(job, layouts, bytes_of, time_of):
        best, fastest, rejected = None, (float("inf"), 0), {}
        for layout in layouts:
            size = sum(bytes_of(job, layout).values())
            if layout.t * layout.p * layout.d != job.gpus:
                rejected[layout] = "gpus"
            elif size > job.cluster.gpu.memory_bytes:
                rejected[layout] = "memory"
            elif job.model.layers < layout.p:
                rejected[layout] = "layers"
            elif (
                job.batch // layout.d // layout.microbatch * layout.d * layout.microbatch
                < job.batch
            ):
                rejected[layout] = "batch"
            elif lcm(layout.t, job.cluster.gpus_per_node) > job.cluster.gpus_per_node:
                rejected[layout] = "node"
            else:
                this = sum(time_of(job, layout).values()), size
                if this < fastest:
                    best, fastest = layout, this
        return best, rejected

    return search


among_all = slip(
    by_rules,
    "The best is chosen among all: a layout that has a reason is no candidate.",
    (
        "        else:\n            left.append((takes",
        "        if True:\n            left.append((takes",
    ),
)
among_the_possible = slip(
    by_rules,
    "The best is chosen before memory is looked at: what doesn't fit can't be run.",
    (
        "        else:\n            left.append((takes",
        '        if reason in (None, "memory"):\n            left.append((takes',
    ),
)
the_slowest = slip(
    by_rules,
    "The slowest is chosen: a step should be short.",
    ("best = min(left)[-1]", "best = max(left)[-1]"),
)
axis_by_axis = slip(
    by_rules,
    "One axis after the other is settled: the best t alone may have no good p. Compare all.",
    (
        "best = min(left)[-1] if left else None",
        'for axis in ("t", "p", "d"):\n'
        "        most = max((getattr(found[-1], axis) for found in left), default=0)\n"
        "        left = [found for found in left if getattr(found[-1], axis) == most]\n"
        "    best = left[0][-1] if left else None",
    ),
)
least_memory = slip(
    by_rules,
    "The smallest is chosen: memory must suffice, then time decides.",
    ("left.append((takes, needs,", "left.append((needs, takes,"),
)
compute_alone = slip(
    by_rules,
    "Only compute is compared: a step is all of its parts.",
    ("takes = sum(time_of(job, layout).values())", 'takes = time_of(job, layout)["compute"]'),
)
longest_part = slip(
    by_rules,
    "The longest part is compared: the parts follow each other, add them up.",
    ("takes = sum(", "takes = max("),
)
largest_part = slip(
    by_rules,
    "One part is compared with the memory: all parts share it, add them up.",
    ("needs = sum(", "needs = max("),
)
state_alone = slip(
    by_rules,
    "The activations are left out: they share the memory with the state.",
    (
        "needs = sum(bytes_of(job, layout).values())",
        'needs = sum(v for k, v in bytes_of(job, layout).items() if k != "activations")',
    ),
)
memory_ignored = slip(
    by_rules,
    "Memory plays no part: what exceeds the GPU's is out, for that reason.",
    ("elif needs > room:", "elif False:"),
)
exact_fit_rejected = slip(
    by_rules,
    "What fills the memory exactly does fit.",
    ("needs > room", "needs >= room"),
)
in_gib = slip(
    by_rules,
    "GB and GiB are mixed: 80 GB are 80e9 bytes, 74.5 GiB. Compare bytes with bytes.",
    ("needs > room", "needs / 2**30 > room / 1e9"),
)
eighty_gb = slip(
    by_rules,
    "80 GB are taken for granted: the job's cluster says how much a GPU has.",
    ("room = job.cluster.gpu.memory_bytes", "room = 80e9"),
)
first_of_equals = slip(
    by_rules,
    "Of layouts equally fast, the first is taken: take the one that needs fewest bytes.",
    ("left.append((takes, needs,", "left.append((takes, 0,"),
)
layouts_compared = slip(
    by_rules,
    "Layouts can't be compared: with time and bytes equal, min goes on to what comes next.",
    ("needs, len(left), layout", "needs, layout"),
)
error_when_nothing_fits = slip(
    by_rules,
    "An error where nothing is left: the reasons are the answer then, and the best is None.",
    ("min(left)[-1] if left else None", "min(left)[-1]"),
)
smaller_than_a_node = slip(
    by_rules,
    "t may not just be smaller than a node: it must divide it, or some groups lie across two.",
    ("job.cluster.gpus_per_node % layout.t", "layout.t > job.cluster.gpus_per_node"),
)
layers_not_divided = slip(
    by_rules,
    "Stages needn't be equal here: p is out only where there are fewer layers than stages.",
    ("layout.p > job.model.layers", "job.model.layers % layout.p"),
)
one_stage_a_layer = slip(
    by_rules,
    "As many stages as layers are possible: each holds one.",
    ("layout.p > job.model.layers", "layout.p >= job.model.layers"),
)
microbatch_ignored = slip(
    by_rules,
    "The batch must be divided by d·microbatch: a replica's share is whole microbatches.",
    ("layout.d * layout.microbatch", "layout.d"),
)
larger_than_the_batch = slip(
    by_rules,
    "The batch is only compared: d·microbatch must divide it.",
    ("job.batch % (layout.d * layout.microbatch)", "layout.d * layout.microbatch > job.batch"),
)
idle_gpus = slip(
    by_rules,
    "GPUs are left over: t·p·d is the job's number, no more and no fewer.",
    ("layout.gpus != job.gpus", "layout.gpus > job.gpus"),
)
slower_is_out = slip(
    by_rules,
    "Slower layouts get a reason too: possible and fitting ones are not out, only not the best.",
    (
        "return best, rejected",
        'return best, {x: rejected.get(x, "memory") for x in layouts if x != best}',
    ),
)


@wrong("The list is shortened while it is walked through: that skips layouts. Build a new list.")
def removes_while_walking():
    def search(job, layouts, bytes_of, time_of):
        rejected, room = {}, job.cluster.gpu.memory_bytes
        rules = {
            "gpus": lambda x: x.gpus != job.gpus,
            "node": lambda x: job.cluster.gpus_per_node % x.t,
            "layers": lambda x: x.p > job.model.layers,
            "batch": lambda x: job.batch % (x.d * x.microbatch),
            "memory": lambda x: sum(bytes_of(job, x).values()) > room,
        }
        left = layouts.copy()
        for layout in left:
            for reason, broken in rules.items():
                if layout not in rejected and broken(layout):
                    rejected[layout] = reason
                    left.remove(layout)
        best = min(left, key=lambda x: sum(time_of(job, x).values()), default=None)
        return best, rejected

    return search


EQUIVALENT = {
    "by_a_table search: 1 -> 0": "any true reason is right, not only the last",
    "best_so_far search: 0 -> 1": "every step is faster than an endless one",
    "best_so_far search: 0 -> -1": "every step is faster than an endless one",
    "best_so_far search: job.batch // layout.d -> job.batch / layout.d": (
        "the second division rounds down as well"
    ),
    "best_so_far search: this < fastest -> this <= fastest": (
        "as fast with as few bytes is as good"
    ),
    "best_so_far search: lcm(layout.t, job.cluster.gpus_per_node) -> "
    "lcm(job.cluster.gpus_per_node, layout.t)": "the common multiple of both, either way",
}
