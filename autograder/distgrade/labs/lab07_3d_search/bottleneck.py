"""What twice as much of one thing would buy: `bottleneck(job, best_step)` returns (part, saved).

`best_step(job)` returns the seconds of the fastest layout's step by part: compute, bubble, tp, pp,
dp. `part` is the largest of them, compute aside. `saved` has four keys, "gpu", "memory",
"node link" and "network": the seconds by which the step gets shorter where the GPU's peak, its
memory, the node link's rate or the network's rate alone is doubled, and the fastest layout is
looked for anew.
"the part" judges the first half of an answer alone, "twice as much" the second.
Source: derived here. Oracle: every layout's time in a formula of the four rates, all of them looked
through for each purchase.
"""

from distgrade.compare import Symptom, compare
from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("bottleneck",)
FORBID = ()
TOLERANCE = Close(1e-9, "what is saved is the difference of two times")
CREDIT = {"the part": 1, "twice as much": 4}
# Rows, a layout each: work, bubble for each second of compute, what goes over the node link, from
# stage to stage and between replicas; bytes. All in units that the rates divide.
_MOVES = [
    [800, 0.25, 90, 20, 90, 30],
    [800, 0.5, 90, 20, 10, 20],
    [800, 0.25, 40, 20, 150, 60],
    [800, 0.125, 20, 15, 60, 140],
    [800, 0.0, 10, 10, 10, 190],
]
_BUBBLE = [[240, 1.5, 0, 30, 20, 40], [240, 1.25, 500, 10, 25, 50], [240, 0.25, 30, 10, 800, 45]]
_STAYS = [[900, 0.125, 200, 40, 60, 70], [900, 0.25, 210, 50, 60, 35]]
_GPU = [[400, 0.5, 60, 10, 10, 79], [400, 0.25, 80, 40, 13, 70], [400, 0.125, 900, 30, 9, 60]]
CASES = (
    Case("all-reduces in a node", "the part", rows=_STAYS, rates=[100, 50, 10], room=80),
    Case("a long pipeline", "the part", rows=_BUBBLE, rates=[120, 100, 25], room=80),
    Case("replicas", "the part", rows=_MOVES[2:], rates=[100, 40, 20], room=80),
    Case("another layout each time", "twice as much", rows=_MOVES, rates=[100, 40, 20], room=80),
    Case("a slow network", "twice as much", rows=_MOVES, rates=[100, 40, 5], room=70),
    Case("the same layout throughout", "twice as much", rows=_STAYS, rates=[100, 50, 10], room=80),
    Case("mostly idle", "twice as much", rows=_BUBBLE, rates=[120, 100, 25], room=80),
    Case("a faster GPU, fewer stages", "twice as much", rows=_GPU, rates=[200, 60, 5], room=80),
)


def given(case, seed):
    # Fresh seeds have more work for each layout, and other rates.
    more = 1 + seed % 61 / 61
    peak, in_node, network = case.rates
    return {
        "rows": [[more * work, *others] for work, *others in case.rows],
        "rates": [peak * 1e12, in_node * 1e9 * (1 + seed % 3), network * 1e9 * (1 + seed % 2)],
        "room": case.room * 1e9,
    }


def observe(student, given):
    from dataclasses import replace

    from distlab.hardware import DGX_H100, H100_SXM, Link
    from distlab.layout import Job
    from distlab.model import Config

    peak, in_node, network = given["rates"]
    job = Job(
        model=Config(layers=8, hidden=48, heads=12, vocab=100),
        params=1e9,
        batch=32,
        seq=64,
        gpus=16,
        cluster=replace(
            DGX_H100,
            gpu=replace(H100_SXM, peak_flop_per_s=peak, memory_bytes=given["room"]),
            node_link=Link("in a node", in_node),
            network=Link("between nodes", network),
            mfu=0.625,
        ),
    )

    def best_step(job):
        cluster = job.cluster
        rate = cluster.gpu.peak_flop_per_s * cluster.mfu
        found = []
        for work, bubble, tensors, messages, gradients, size in given["rows"]:
            compute = work * 1e12 / rate
            parts = {
                "compute": compute,
                "bubble": bubble * compute,
                "tp": tensors * 1e9 / cluster.node_link.rate_bytes_per_s,
                "pp": messages * 1e9 / cluster.network.rate_bytes_per_s,
                "dp": gradients * 1e9 / cluster.network.rate_bytes_per_s,
            }
            if size * 1e9 <= cluster.gpu.memory_bytes:
                found.append(parts)
        return min(found, key=lambda parts: sum(parts.values()))

    answer = student.bottleneck(job, best_step)
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not isinstance(answer[1], dict):
        raise TypeError("the answer should be a pair: a part's name, and a dict of seconds saved")
    names = ("gpu", "memory", "node link", "network")
    return {"part": answer[0], "saved": {name: answer[1].get(name) for name in names}}


def oracle(case, given):
    from fractions import Fraction

    rates = dict(zip(("gpu", "node link", "network"), map(Fraction, given["rates"]), strict=True))
    held = {"memory": Fraction(given["room"])} | rates

    def steps(have):
        for work, bubble, tensors, messages, gradients, size in given["rows"]:
            compute = Fraction(work) * 10**12 / have["gpu"] / Fraction(0.625)
            over = Fraction(10**9)
            waits = {
                "bubble": compute * Fraction(bubble),
                "tp": over * tensors / have["node link"],
                "pp": over * messages / have["network"],
                "dp": over * gradients / have["network"],
            }
            if size * over <= have["memory"]:
                yield compute + sum(waits.values()), max(waits, key=waits.get)

    today, part = min(steps(held))
    saved = {
        name: float(today - min(steps(held | {name: 2 * held[name]}))[0])
        for name in ("gpu", "memory", "node link", "network")
    }
    return {"part": part, "saved": saved}


def judge(got, expected, case):
    if case.group == "the part":
        if got["part"] == expected["part"]:
            return []
        if got["part"] not in ("compute", "bubble", "tp", "pp", "dp"):
            return [Symptom("values", "the part", "none of bubble, tp, pp, dp")]
        return [Symptom("values", "the part", f"{got['part']}, which isn't the largest asked for")]
    missing = [name for name, seconds in got["saved"].items() if seconds is None]
    if missing:
        return [Symptom("structure", "saved", f"nothing under “{missing[0]}”")]
    return compare({"saved": got["saved"]}, {"saved": expected["saved"]}, rtol=TOLERANCE.rtol)


@also_right("a cluster for each purchase, made by replace")
def by_clusters():
    from dataclasses import replace

    def bottleneck(job, best_step):
        cluster = job.cluster
        gpu, link, network = cluster.gpu, cluster.node_link, cluster.network
        faster = replace(gpu, peak_flop_per_s=2 * gpu.peak_flop_per_s)
        larger = replace(gpu, memory_bytes=2 * gpu.memory_bytes)
        clusters = {
            "gpu": replace(cluster, gpu=faster),
            "memory": replace(cluster, gpu=larger),
            "node link": replace(
                cluster, node_link=replace(link, rate_bytes_per_s=2 * link.rate_bytes_per_s)
            ),
            "network": replace(
                cluster, network=replace(network, rate_bytes_per_s=2 * network.rate_bytes_per_s)
            ),
        }
        parts = best_step(job)
        today = sum(parts.values())
        saved = {}
        for name, other in clusters.items():
            saved[name] = today - sum(best_step(replace(job, cluster=other)).values())
        part = max((part for part in parts if part != "compute"), key=parts.get)
        return part, saved

    return bottleneck


@also_right("a path to the number that is doubled, and a recursion along it")
def by_paths():
    from dataclasses import replace

    def bottleneck(job, best_step):
        def doubled(thing, path):
            name, *rest = path
            old = getattr(thing, name)
            return replace(thing, **{name: doubled(old, rest) if rest else old + old})

        def step(job):
            return sum(best_step(job).values())

        paths = {
            "gpu": ("cluster", "gpu", "peak_flop_per_s"),
            "memory": ("cluster", "gpu", "memory_bytes"),
            "node link": ("cluster", "node_link", "rate_bytes_per_s"),
            "network": ("cluster", "network", "rate_bytes_per_s"),
        }
        saved = {name: step(job) - step(doubled(job, path)) for name, path in paths.items()}
        waits = sorted((s, part) for part, s in best_step(job).items() if part != "compute")
        return waits[-1][1], saved

    return bottleneck


compute_too = slip(
    by_clusters,
    "compute is named: it is the work itself, asked is the largest of the other parts.",
    ('(part for part in parts if part != "compute")', "parts"),
)
bubble_aside = slip(
    by_clusters,
    "The bubble is passed over: it is a part of the step, and here the largest but compute.",
    ('if part != "compute"', 'if part not in ("compute", "bubble")'),
)
smallest_part = slip(
    by_clusters,
    "The smallest part is named: asked is the largest but compute.",
    ("part = max(", "part = min("),
)
second_largest = slip(
    by_clusters,
    "The second largest is named: where compute isn't the largest, that is compute.",
    (
        'max((part for part in parts if part != "compute"), key=parts.get)',
        "sorted(parts, key=parts.get)[-2]",
    ),
)
seconds_for_a_name = slip(
    by_clusters,
    "The part's seconds are returned: its name is asked for.",
    ("return part, saved", "return parts[part], saved"),
)
time_after = slip(
    by_clusters,
    "These are the steps after the purchase: asked is how much shorter they are.",
    ("saved[name] = today - sum(", "saved[name] = sum("),
)
negative = slip(
    by_clusters,
    "The sign is turned round: what is saved is the step of today less the shorter one.",
    (
        "today - sum(best_step(replace(job, cluster=other)).values())",
        "sum(best_step(replace(job, cluster=other)).values()) - today",
    ),
)
speedups = slip(
    by_clusters,
    "These are ratios of two steps: seconds are asked for, the difference.",
    ("saved[name] = today - sum(", "saved[name] = today / sum("),
)
shares = slip(
    by_clusters,
    "These are shares of today's step: seconds are asked for.",
    ("saved[name] = today - sum(", "saved[name] = 1 - 1 / today * sum("),
)
one_after_the_other = slip(
    by_paths,
    "Each purchase is added to those before: double one thing alone.",
    (
        "saved = {name: step(job) - step(doubled(job, path)) for name, path in paths.items()}",
        "saved, now = {}, job\n"
        "    for name, path in paths.items():\n"
        "        now = doubled(now, path)\n"
        "        saved[name] = step(job) - step(now)",
    ),
)
nvlink_of_the_gpu = slip(
    by_clusters,
    "The GPU's own nvlink is doubled: the job's ranks use the cluster's node_link.",
    (
        "replace(\n            cluster, node_link=replace(link, rate_bytes_per_s="
        "2 * link.rate_bytes_per_s)\n        )",
        "replace(\n            cluster, gpu=replace(gpu, nvlink=replace(link, rate_bytes_per_s="
        "2 * link.rate_bytes_per_s))\n        )",
    ),
)
mfu_doubled = slip(
    by_clusters,
    "mfu is doubled: it is a share of the peak and can't exceed 1. Double the peak.",
    ('"gpu": replace(cluster, gpu=faster)', '"gpu": replace(cluster, mfu=2 * cluster.mfu)'),
)
faster_and_larger = slip(
    by_clusters,
    "The faster GPU has twice the memory too: double one thing alone.",
    (
        "faster = replace(gpu, peak_flop_per_s",
        "faster = replace(gpu, memory_bytes=2 * gpu.memory_bytes, peak_flop_per_s",
    ),
)
memory_buys_nothing = slip(
    by_clusters,
    "More memory is said to buy nothing: it can make room for a layout that is faster.",
    ("2 * gpu.memory_bytes", "gpu.memory_bytes"),
)
four_times_the_network = slip(
    by_clusters,
    "The network is four times as fast: double it.",
    ("2 * network.rate_bytes_per_s", "4 * network.rate_bytes_per_s"),
)


@wrong("The layout is kept: another may be the fastest then. Ask best_step about the changed job.")
def same_layout():
    def bottleneck(job, best_step):
        parts = best_step(job)
        saved = {
            "gpu": (parts["compute"] + parts["bubble"]) / 2,
            "memory": 0.0,
            "node link": parts["tp"] / 2,
            "network": (parts["pp"] + parts["dp"]) / 2,
        }
        return max(["bubble", "tp", "pp", "dp"], key=parts.get), saved

    return bottleneck


@wrong("The layout is kept, and a faster GPU leaves the bubble: idle slots shorten with the work.")
def bubble_stays():
    def bottleneck(job, best_step):
        parts = best_step(job)
        saved = {
            "gpu": parts["compute"] / 2,
            "memory": 0.0,
            "node link": parts["tp"] / 2,
            "network": (parts["pp"] + parts["dp"]) / 2,
        }
        return max(["bubble", "tp", "pp", "dp"], key=parts.get), saved

    return bottleneck


EQUIVALENT = {}
