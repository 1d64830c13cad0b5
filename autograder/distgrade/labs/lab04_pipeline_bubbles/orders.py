"""Two orders of a step: `gpipe_order(p, m)` and `one_f_one_b(p, m)`, one list of ops per stage.

p stages, m microbatches, ops (kind, microbatch). Both take (m + p - 1)(t_f + t_b), whatever t_f and
t_b are, if they are equal on all stages. GPipe runs all forward passes before any backward pass, so
each stage holds m microbatches at once; 1F1B holds min(m, p - s) on stage s. Any order that is
complete, free of deadlock and meets these bounds is right, in whatever order its microbatches go.
Source: Huang et al. 2019 (arXiv:1811.06965), section 2.3; Narayanan et al. 2021 (arXiv:2104.04473),
section 2.2.1. Oracle: the closed forms; the judge times an answer by longest paths (`_orders`).
"""

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong
from distgrade.labs.lab04_pipeline_bubbles import _orders

NAMES = ("gpipe_order", "one_f_one_b")
FORBID = (
    "distlab.schedule.orders.naive",
    "distlab.schedule.orders.gpipe",
    "distlab.schedule.orders.one_f_one_b",
    "distlab.schedule.orders.interleaved",
    "distlab.schedule.orders.looped_bfs",
    "distlab.schedule.zerobubble.zb_h1",
    "distlab.schedule.zerobubble.zb_h2",
    "distlab.schedule.versions.pipedream",
    "distlab.schedule.slices.terapipe",
)
TOLERANCE = Exact(why="whole units of time")
CREDIT = {"GPipe": 2, "1F1B": 4}
CASES = (
    Case("one stage", "GPipe", asks="gpipe_order", p=1, m=3),
    Case("two stages", "GPipe", asks="gpipe_order", p=2, m=4),
    Case("four stages", "GPipe", asks="gpipe_order", p=4, m=5),
    Case("fewer microbatches than stages", "GPipe", asks="gpipe_order", p=5, m=2),
    Case("one stage again", "1F1B", asks="one_f_one_b", p=1, m=3),
    Case("two stages again", "1F1B", asks="one_f_one_b", p=2, m=5),
    Case("four stages, m = 9", "1F1B", asks="one_f_one_b", p=4, m=9),
    Case("as many microbatches as stages", "1F1B", asks="one_f_one_b", p=3, m=3),
    Case("fewer microbatches", "1F1B", asks="one_f_one_b", p=5, m=3),
    Case("one microbatch", "1F1B", asks="one_f_one_b", p=3, m=1),
)


def given(case, seed):
    # Fresh seeds time the same orders with other durations of F and B.
    forward, backward = (1 + seed % 5, 1 + seed // 5 % 7) if seed else (1, 2)
    times = {"forward": forward, "backward": backward}
    return {"asks": case.asks, "p": case.p, "m": case.m} | times


def observe(student, given):
    from operator import index

    def word(op):
        try:
            kind, numbers = op[0], [index(number) for number in op[1:]]
            if kind in ("F", "B") and (len(numbers) == 1 or numbers[1:] == [0]):
                return f"{kind}{numbers[0]}"
        except (TypeError, IndexError, KeyError):
            pass
        return "".join(repr(op)[:40].split())

    lists = (list, tuple)
    orders = getattr(student, given["asks"])(given["p"], given["m"])
    if not isinstance(orders, lists) or not all(isinstance(order, lists) for order in orders):
        raise TypeError("the answer should be one list of ops per stage, ops as ('F', 0)")
    return {"orders": "\n".join(" ".join(map(word, order)) for order in orders)}


def oracle(case, given):
    import torch

    p, m, forward, backward = (given[key] for key in ("p", "m", "forward", "backward"))
    held = [m if case.asks == "gpipe_order" else min(m, p - s) for s in range(p)]
    return {"orders": torch.tensor([forward, backward, (m + p - 1) * (forward + backward), *held])}


def judge(got, expected, case):
    what = f"{case.asks}({case.p}, {case.m})"
    orders = _orders.read(str(got["orders"]))
    forward, backward, shortest, *most = expected["orders"].tolist()
    problem = _orders.mistake(orders, case.p, case.m)
    if problem:
        return [Symptom("values", what, problem, _LOOK[problem.split()[2]])]
    try:
        time = _orders.makespan(orders, forward, backward)
    except _orders.Circle as circle:
        return [Symptom("values", what, str(circle), "Draw it: who waits for whose op?")]
    if time > shortest:
        seen = f"the step takes {time / shortest:.3g} times as long as it must"
        return [
            Symptom("cost", what, seen, "Draw your order: which stage waits, and for which op?")
        ]
    for stage, order in enumerate(orders):
        held = _orders.peak(order)
        if held > most[stage]:
            seen = f"stage {stage} holds {held / most[stage]:.3g} times the microbatches it must"
            return [Symptom("cost", what, seen, "Count F less B along that stage's order.")]
        if case.asks == "gpipe_order" and held < most[stage]:
            seen = f"on stage {stage} a backward pass comes before the last forward pass"
            return [Symptom("values", what, seen, "GPipe runs all forward passes first.")]
    return []


_LOOK = {
    "for": "Return a list of p lists, one for each stage.",
    "runs": "Ops are ('F', i) and ('B', i), each once on each stage, i from 0 to m - 1.",
    "never": "Each stage runs F and B of every microbatch: look at the end of the order.",
}


@also_right("three phases: forward, in turns from a forward pass on, backward")
def by_phases():
    def gpipe_order(p, m):
        return [[("F", i) for i in range(m)] + [("B", i) for i in range(m)] for s in range(p)]

    def one_f_one_b(p, m):
        orders = []
        for s in range(p):
            warm = min(p - 1 - s, m)
            order = [("F", i) for i in range(warm)]
            for i in range(m - warm):
                order += [("F", warm + i), ("B", i)]
            orders.append(order + [("B", i) for i in range(m - warm, m)])
        return orders

    return gpipe_order, one_f_one_b


@also_right("by the slot in which each op would run if all took one unit")
def by_slots():
    def gpipe_order(p, m):
        ops = [(kind, i) for i in range(m) for kind in "FB"]
        return [sorted(ops, key=lambda op: op[0] == "B") for _ in range(p)]

    def one_f_one_b(p, m):
        def slot(s, kind, i):
            if kind == "B":
                return 2 * p - 1 - s + 2 * i
            return s + i if i < p - s else s + 2 * i

        ops = [(kind, i) for kind in "FB" for i in range(m)]
        return [sorted(ops, key=lambda op, s=s: slot(s, *op)) for s in range(p)]

    return gpipe_order, one_f_one_b


@also_right("backward from the last microbatch; 1F1B played tick by tick, backward first")
def played():
    def gpipe_order(p, m):
        forward = tuple(("F", i) for i in range(m))
        backward = tuple(("B", i) for i in reversed(range(m)))
        return (forward + backward,) * p

    def one_f_one_b(p, m):
        orders = [[] for _ in range(p)]
        for _ in range(2 * (m + p)):
            done = [set(order) for order in orders]
            for s, order in enumerate(orders):
                f = sum(op[0] == "F" for op in order)
                b = len(order) - f
                if b < f and (s == p - 1 or ("B", b) in done[s + 1]):
                    order.append(("B", b))
                elif f < min(m, b + p - s) and (s == 0 or ("F", f) in done[s - 1]):
                    order.append(("F", f))
        return orders

    return gpipe_order, one_f_one_b


@also_right("the last microbatch first, with a chunk 0 in every op")
def last_microbatch_first():
    def gpipe_order(p, m):
        order = [("F", m - 1 - i, 0) for i in range(m)] + [("B", m - 1 - i, 0) for i in range(m)]
        return [order] * p

    def one_f_one_b(p, m):
        orders = []
        for s in range(p):
            forward = [("F", i, 0) for i in reversed(range(m))]
            backward = [("B", i, 0) for i in reversed(range(m))]
            order = []
            for k in range(m + p - 1 - s):
                order += forward[k : k + 1]
                if k >= p - 1 - s:
                    order.append(backward[k - p + 1 + s])
            orders.append(order)
        return orders

    return gpipe_order, one_f_one_b


@wrong("Each stage runs all forward passes first in your 1F1B: that is GPipe, and holds m.")
def all_forward_first():
    def gpipe_order(p, m):
        return [[("F", i) for i in range(m)] + [("B", i) for i in range(m)] for s in range(p)]

    def one_f_one_b(p, m):
        return gpipe_order(p, m)

    return gpipe_order, one_f_one_b


@wrong("Your gpipe_order is 1F1B: GPipe runs all forward passes before any backward pass.")
def both_in_turns():
    def one_f_one_b(p, m):
        orders = []
        for s in range(p):
            warm = min(p - 1 - s, m)
            order = [("F", i) for i in range(warm)]
            for i in range(m - warm):
                order += [("F", warm + i), ("B", i)]
            orders.append(order + [("B", i) for i in range(m - warm, m)])
        return orders

    def gpipe_order(p, m):
        return one_f_one_b(p, m)

    return gpipe_order, one_f_one_b


@wrong("F and B of one microbatch, then the next one: no two stages ever work at a time.")
def one_after_the_other():
    def gpipe_order(p, m):
        return [[("F", i) for i in range(m)] + [("B", i) for i in range(m)] for s in range(p)]

    def one_f_one_b(p, m):
        return [[(kind, i) for i in range(m) for kind in "FB"] for s in range(p)]

    return gpipe_order, one_f_one_b


@wrong("1F1B takes back the newest microbatch first: take the oldest, which comes back first.")
def newest_first():
    def gpipe_order(p, m):
        return [[("F", i) for i in range(m)] + [("B", i) for i in range(m)] for s in range(p)]

    def one_f_one_b(p, m):
        orders = []
        for s in range(p):
            order, held = [], []
            for i in range(m):
                order.append(("F", i))
                held.append(i)
                if len(held) >= p - s:
                    order.append(("B", held.pop()))
            orders.append(order + [("B", i) for i in reversed(held)])
        return orders

    return gpipe_order, one_f_one_b


one_too_many = slip(
    by_phases,
    "One forward pass too many before the first backward pass: stage s holds p - s, not one more.",
    ("warm = min(p - 1 - s, m)", "warm = min(p - s, m)"),
)
one_too_few = slip(
    by_phases,
    "Too few forward passes first: stage s starts p - s of them before it has a gradient to use.",
    ("warm = min(p - 1 - s, m)", "warm = max(min(p - 2 - s, m), 0)"),
)
stage_0_everywhere = slip(
    by_phases,
    "All stages start with as many forward passes as stage 0: later ones need fewer, p - s.",
    ("warm = min(p - 1 - s, m)", "warm = min(p - 1, m)"),
)
stages_from_the_end = slip(
    by_phases,
    "The first stage needs the most forward passes before it turns, the last one a single one.",
    ("warm = min(p - 1 - s, m)", "warm = min(s, m)"),
)
few_microbatches = slip(
    by_phases,
    "With fewer microbatches than stages, the order has microbatches that don't exist.",
    ("warm = min(p - 1 - s, m)", "warm = p - 1 - s"),
)
no_end = slip(
    by_phases,
    "The last backward passes of 1F1B are missing: after the last F, the rest is B.",
    ('order + [("B", i) for i in range(m - warm, m)]', "order"),
)
repeated = slip(
    by_phases,
    "After the first forward passes, 1F1B counts them from 0 again: go on counting.",
    ('("F", warm + i)', '("F", i)'),
)
shifted = slip(
    by_phases,
    "In turns, B is of the same microbatch as F: it should be of the oldest one in flight.",
    ('("B", i)]\n', '("B", warm + i)]\n'),
    ("range(m - warm, m)", "range(warm)"),
)
backward_first = slip(
    by_phases,
    "GPipe's order here starts with backward passes: a backward pass needs its forward pass.",
    (
        '[("F", i) for i in range(m)] + [("B", i) for i in range(m)]',
        '[("B", i) for i in range(m)] + [("F", i) for i in range(m)]',
    ),
)
from_one = slip(
    by_phases,
    "GPipe's microbatches are counted from 1 here: they go from 0 to m - 1.",
    (
        '[("F", i) for i in range(m)] + [("B", i) for i in range(m)]',
        '[("F", i + 1) for i in range(m)] + [("B", i + 1) for i in range(m)]',
    ),
)
turned_on_one_stage = slip(
    by_phases,
    "GPipe's stages run their backward passes in different orders, so they wait for each other.",
    (
        '[("F", i) for i in range(m)] + [("B", i) for i in range(m)]',
        '[("F", i) for i in range(m)] + [("B", i) for i in range(m)][:: 1 - 2 * (s % 2)]',
    ),
)
one_order = slip(
    by_phases,
    "gpipe_order returns the ops of one stage: return one such list for each of the p stages.",
    (
        '[[("F", i) for i in range(m)] + [("B", i) for i in range(m)] for s in range(p)]',
        '[("F", i) for i in range(m)] + [("B", i) for i in range(m)]',
    ),
)

_MIN = "min takes its arguments in any order"
_ANY = "GPipe's microbatches may go in any order, if it is the same on all stages"
_FIRST = "the first forward passes come first in any case, and sorting keeps their order"
EQUIVALENT = {
    "one_f_one_b: min(m, p - s) -> min(p - s, m)": _MIN,
    "by_phases one_f_one_b: min(p - 1 - s, m) -> min(m, p - 1 - s)": _MIN,
    "by_slots one_f_one_b.slot: 1 -> 2": "where slots are equal, sorting keeps F before B",
    "by_slots one_f_one_b.slot: s + i -> s": _FIRST,
    "by_slots one_f_one_b.slot: s + i -> i": _FIRST,
    "played gpipe_order: reversed(range(m)) -> range(m)": _ANY,
    "played one_f_one_b: 2 -> 3": "the ticks after the last op change nothing",
    "played one_f_one_b: set(order) -> order": "an op seen a tick earlier keeps its place in line",
    "played one_f_one_b: min(m, b + p - s) -> min(b + p - s, m)": _MIN,
    "last_microbatch_first gpipe_order: m - 1 - i -> i": _ANY,
}
