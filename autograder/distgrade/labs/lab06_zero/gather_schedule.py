"""Prefetch for ZeRO-3: `gather_schedule(layers, k)`, one rank's ops in the order of its program.

Ops are ("gather", i), ("forward", i), ("backward", i) and ("free", i). Layers run forward from 0 to
layers - 1 and backward from there to 0. A gather is launched at its place and runs beside what
comes after, one gather at a time; forward and backward wait until their layer's gather has ended. A
layer counts as gathered from its gather op to its free op: k layers at most, and none in the end.
Judged are these rules; the number of gathers, 2 layers - min(k, layers) being the fewest, as k
layers can be kept where forward turns into backward; and the time for several settings. Any order
within the limits is right.
Source: derived here. Exhaustive search over all programs up to four layers and k = 4, with random
times, finds none that is faster. Reduce-scatters of gradients are left out. Oracle: the time by a
recurrence over uses, without a program; the judge walks through an answer's ops once.
"""

import re

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("gather_schedule",)
FORBID = ()
TOLERANCE = Exact(why="whole units of time")
CREDIT = {"memory": 2, "bytes": 1, "time": 3}
CASES = (
    Case("four layers, two at a time", "memory", layers=4, k=2),
    Case("one layer at a time", "memory", layers=3, k=1),
    Case("three of seven", "bytes", layers=7, k=3),
    Case("room for all", "bytes", layers=3, k=5),
    Case("one at a time, five layers", "bytes", layers=5, k=1),
    Case("two of five", "time", layers=5, k=2),
    Case("four of nine", "time", layers=9, k=4),
    Case("all but one", "time", layers=4, k=3),
    Case("one layer", "time", layers=1, k=2),
)


def given(case, seed):
    # Times of a gather, of each forward and of each backward pass; fresh seeds bring one more.
    n = case.layers
    unequal = [(3 * i + case.k) % 5 + 1 for i in range(2 * n)]
    times = [[g, *[f] * n, *[b] * n] for g, f, b in ((1, 2, 4), (3, 3, 6), (4, 1, 2), (9, 2, 3))]
    more = [[seed % 7, *((seed // 7**i) % 6 + 1 for i in range(2 * n))]] if seed else []
    return {"layers": n, "k": case.k, "times": [*times, [3, *unequal], *more]}


def observe(student, given):
    from operator import index

    def word(op):
        try:
            kind, i = op
            if isinstance(kind, str) and kind.isidentifier():
                return f"{kind}:{index(i)}"
        except (TypeError, ValueError):
            pass
        return "".join(repr(op)[:40].split())

    ops = student.gather_schedule(given["layers"], given["k"])
    if not isinstance(ops, list | tuple):
        raise TypeError("the answer should be a list of ops, such as ('gather', 0)")
    return {"ops": " ".join(map(word, ops))}


def oracle(case, given):
    import torch

    n, k = given["layers"], given["k"]
    rows = [[n, k, 2 * n - min(k, n), *[0] * (2 * n)]]
    for gather, *passes in given["times"]:
        works = passes[:n] + passes[: n - 1 : -1]  # in the order in which they run
        sent, ends = 0, [0]  # ends[u]: when u uses are over
        for use, work in enumerate(works):
            start = ends[-1]
            if not n <= use < n + k:  # the k last layers are still there
                sent = max(sent, ends[max(0, use - k + 1)]) + gather
                start = max(start, sent)
            ends.append(start + work)
        rows.append([gather, *passes, 0, ends[-1]])
    return {"ops": torch.tensor(rows)}


def judge(got, expected, case):
    (n, k, fewest, *_), *settings = expected["ops"].tolist()
    what = f"gather_schedule({n}, {k})"
    words = got["ops"].split()
    symptom = _mistake(words, n, k)
    if symptom:
        return [Symptom("values", what, *symptom)]
    gathers = sum(word.startswith("gather") for word in words)
    if case.group == "bytes" and gathers > fewest:
        seen = f"{gathers / fewest:.3g} times the gathers that are needed"
        return [
            Symptom("cost", what, seen, "Backward begins where forward ends: keep those layers.")
        ]
    for gather, *passes, _, limit in settings if case.group == "time" else ():
        end = _end(words, gather, passes[:n], passes[n:])
        if end > limit:
            each = (
                "unequal passes" if len(set(passes)) > 2 else f"passes of {passes[0]}, {passes[n]}"
            )
            seen = f"with gathers of {gather}, {each}: {end / limit:.3g} times the limit"
            look = "Launch each gather as soon as a free makes room, before the next pass."
            return [Symptom("cost", what, seen, look)]
    return []


def _mistake(words, n, k):
    """Return what breaks the rules, and where to look; None if nothing does."""
    passes = [f"forward:{i}" for i in range(n)] + [f"backward:{i}" for i in reversed(range(n))]
    here, done = set(), 0
    for at, word in enumerate(words):
        found = re.fullmatch(r"(gather|forward|backward|free):(\d+)", word)
        op = f"op {at}, {word.replace(':', ' ')},"
        if not found or int(found[2]) >= n:
            return (
                f"op {at} is {word}",
                f"Ops are gather, forward, backward, free of layers 0 to {n - 1}.",
            )
        kind, i = found[1], int(found[2])
        if kind == "gather" and i in here:
            return f"{op} finds that layer gathered already", "It was never freed since."
        if kind == "gather":
            here.add(i)
            if len(here) > k:
                return f"{op} makes {len(here)} gathered layers", "Free one before: k may be there."
        elif i not in here:
            return f"{op} needs a layer that isn't gathered", "Each free asks for a gather, later."
        elif kind == "free":
            here.remove(i)
        elif done == 2 * n or word != passes[done]:
            return f"{op} comes out of order", "Forward 0 to the last, backward from there to 0."
        else:
            done += 1
    if done < 2 * n:
        return f"{done} of {2 * n} passes are run", "Every layer runs forward and backward."
    return (f"{len(here)} layers are left gathered", "Free all in the end.") if here else None


def _end(words, gather, forward, backward):
    """Return when a program without mistakes ends."""
    now = link = 0
    there = {}
    for word in words:
        kind, i = word.split(":")
        if kind == "gather":
            there[i] = link = max(now, link) + gather
        elif kind != "free":
            now = max(now, there[i]) + (forward if kind == "forward" else backward)[int(i)]
    return now


@also_right("what is used when, and a gather wherever there is room")
def by_uses():
    def gather_schedule(layers, k):
        uses = [("forward", i) for i in range(layers)]
        uses += [("backward", i) for i in reversed(range(layers))]
        gathers = [*range(layers), *reversed(range(layers - k))]
        ops, here = [], set()
        for kind, i in uses:
            for _ in range(k - len(here)):
                if gathers and gathers[0] not in here:
                    ops.append(("gather", gathers[0]))
                    here.add(gathers.pop(0))
            ops.append((kind, i))
            if kind == "backward" or i < layers - k:
                ops.append(("free", i))
                here.remove(i)
        return ops

    return gather_schedule


@also_right("two loops; a layer k further on is gathered after each free")
def two_loops():
    def gather_schedule(layers, k):
        k = min(k, layers)
        ops = [("gather", i) for i in range(k)]
        for i in range(layers):
            ops.append(("forward", i))
            if i + k < layers:
                ops += [("free", i), ("gather", i + k)]
        for i in reversed(range(layers)):
            ops += [("backward", i), ("free", i)]
            if i >= k:
                ops.append(("gather", i - k))
        return ops

    return gather_schedule


@also_right("each op has its time in passes, and then they are sorted")
def by_sorting():
    def gather_schedule(layers, k):
        timed = []
        for use, i in enumerate([*range(layers), *range(layers)[::-1]]):
            timed.append((use, "forward" if use < layers else "backward", i))
            if use < layers - k or use >= layers:
                timed.append((use + 0.25, "free", i))
            if use < layers or use >= layers + k:
                timed.append((use - k + 0.5, "gather", i))
        return [(kind, i) for _, kind, i in sorted(timed)]

    return gather_schedule


@wrong("Nothing overlaps: a gather right before its pass makes the pass wait. Launch it earlier.")
def on_demand():
    def gather_schedule(layers, k):
        ops, kept = [], range(max(0, layers - k), layers)
        for i in range(layers):
            ops += [("gather", i), ("forward", i)]
            if i not in kept:
                ops.append(("free", i))
        for i in reversed(range(layers)):
            if i not in kept:
                ops.append(("gather", i))
            ops += [("backward", i), ("free", i)]
        return ops

    return gather_schedule


@wrong("All layers are gathered first: that is the whole model, where k layers have room.")
def all_at_first():
    def gather_schedule(layers, k):
        ops = [("gather", i) for i in range(layers)]
        ops += [("forward", i) for i in range(layers)]
        for i in reversed(range(layers)):
            ops += [("backward", i), ("free", i)]
        return ops

    return gather_schedule


all_freed_at_the_turn = slip(
    by_uses,
    "The last layers are freed and gathered once more: backward begins with them, so keep k.",
    ("range(layers - k)", "range(layers)"),
    ('if kind == "backward" or i < layers - k:', "if True:"),
)
only_one_kept = slip(
    by_uses,
    "Only the last layer is kept where forward turns into backward: there is room for k.",
    ("range(layers - k)", "range(layers - 1)"),
    ("i < layers - k:", "i < layers - 1:"),
)
backward_on_demand = slip(
    by_uses,
    "Backward prefetches nothing: each gather is launched right before its pass, which waits.",
    (
        "gathers[0] not in here:",
        'gathers[0] not in here and (kind == "forward" or gathers[0] == i):',
    ),
)
backward_one_late = slip(
    by_uses,
    "Backward's gathers are launched a pass too late: there is room right after each free.",
    ("range(k - len(here)):", 'range(k - len(here) - (kind == "backward" and k > 1)):'),
)
freed_too_late = slip(
    two_loops,
    "The gather is launched before the free: for a while there are k + 1 layers.",
    ('[("free", i), ("gather", i + k)]', '[("gather", i + k), ("free", i)]'),
)
one_unused = slip(
    two_loops,
    "One of the k places stays empty: launch k gathers before the first pass.",
    ("k = min(k, layers)", "k = max(1, min(k, layers) - 1)"),
)
never_again = slip(
    two_loops,
    "Backward needs the weights as well: what forward has freed is gathered again.",
    ('ops.append(("gather", i - k))', "pass"),
)
never_freed_in_forward = slip(
    two_loops,
    "Forward never frees a layer, so all are there when it ends.",
    ('[("free", i), ("gather", i + k)]', '[("gather", i + k)]'),
    ("if i >= k:", "if False:"),
)
not_freed_in_the_end = slip(
    two_loops,
    "Backward frees nothing: after a step only shards may be left.",
    ('[("backward", i), ("free", i)]', '[("backward", i)]'),
    ("if i >= k:", "if False:"),
)
backward_from_the_front = slip(
    two_loops,
    "Backward goes from the last layer to the first.",
    ("for i in reversed(range(layers)):", "for i in range(layers):"),
)
freed_before_its_pass = slip(
    two_loops,
    "A layer is freed before its backward pass has run.",
    ('("backward", i), ("free", i)', '("free", i), ("backward", i)'),
)

_ANY_ORDER = "the smaller of two is the same in any order"
EQUIVALENT = {
    "gather_schedule: min(k, layers) -> min(layers, k)": _ANY_ORDER,
    "two_loops gather_schedule: min(k, layers) -> min(layers, k)": _ANY_ORDER,
    "by_sorting gather_schedule: use + 0.25 -> use": (
        "at the same time words decide, and free comes after forward and backward"
    ),
}
