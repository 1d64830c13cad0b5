"""1F1B with the backward pass in two, `zb_h1(p, m)`: one list of ops per stage, for m >= p.

Ops are (kind, microbatch): F, B (the gradient of a stage's input) and W (the gradient of its
weights, which needs that stage's B). With t_f, t_b, t_w equal on all stages, an answer takes no
longer than m(t_f + t_b + t_w) + (p-1) max(t_f + t_b - t_w, t_f, t_b), whatever the times are, and
a stage holds p microbatches at most, from F to W. Any order within both is right, a faster one too.
Source: Qi et al. 2023 (arXiv:2401.10241), section 2, for the order; the law of its makespan is
derived here, since the published (p-1)(t_f + t_b - t_w) holds for the makespan only where t_w is no
longer than t_f and t_b. Oracle: the law; the judge times an answer by longest paths (`_orders`).
"""

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong
from distgrade.labs.lab04_pipeline_bubbles import _orders

NAMES = ("zb_h1",)
FORBID = (
    "distlab.schedule.zerobubble.zb_h1",
    "distlab.schedule.zerobubble.zb_h2",
    "distlab.schedule.zerobubble._put_off",
)
TOLERANCE = Exact(why="whole units of time")
CREDIT = {"memory": 2, "time": 4}
CASES = (
    Case("one stage", "memory", p=1, m=3),
    Case("two stages", "memory", p=2, m=5),
    Case("three stages", "memory", p=3, m=7),
    Case("four stages", "memory", p=4, m=9),
    Case("two stages, two microbatches", "time", p=2, m=2),
    Case("three stages, five microbatches", "time", p=3, m=5),
    Case("four stages, four microbatches", "time", p=4, m=4),
    Case("five stages, eleven microbatches", "time", p=5, m=11),
)


def given(case, seed):
    # Fresh seeds grade some more microbatches, and one more setting of times.
    times = [[1, 1, 1], [2, 3, 1], [3, 4, 2], [3, 4, 4], [2, 5, 3], [5, 2, 3], [1, 2, 6]]
    more = [[1 + seed % 7, 1 + seed // 7 % 11, 1 + seed // 77 % 9]] if seed else []
    return {"p": case.p, "m": case.m + seed % 3, "times": times + more}


def observe(student, given):
    from operator import index

    def word(op):
        try:
            kind, numbers = op[0], [index(number) for number in op[1:]]
            if kind in ("F", "B", "W") and (len(numbers) == 1 or numbers[1:] == [0]):
                return f"{kind}{numbers[0]}"
        except (TypeError, IndexError, KeyError):
            pass
        return "".join(repr(op)[:40].split())

    lists = (list, tuple)
    orders = student.zb_h1(given["p"], given["m"])
    if not isinstance(orders, lists) or not all(isinstance(order, lists) for order in orders):
        raise TypeError("the answer should be one list of ops per stage, ops as ('W', 0)")
    return {"orders": "\n".join(" ".join(map(word, order)) for order in orders)}


def oracle(case, given):
    import torch

    p, m = given["p"], given["m"]
    rows = [[p, m, p, 0]]  # stages, microbatches, the most that a stage may hold
    for f, b, w in given["times"]:
        rows.append([f, b, w, m * (f + b + w) + (p - 1) * max(f + b - w, f, b)])
    return {"orders": torch.tensor(rows)}


def judge(got, expected, case):
    orders = _orders.read(str(got["orders"]))
    (p, m, most, _), *limits = expected["orders"].tolist()
    what = f"zb_h1({p}, {m})"
    problem = _orders.mistake(orders, p, m, kinds="FBW")
    if problem:
        return [Symptom("values", what, problem, _LOOK[problem.split()[2]])]
    for stage, order in enumerate(orders):
        at = {op: k for k, op in enumerate(order)}
        for i in range(m):
            f, b, w = ((kind, i, 0) for kind in "FBW")
            if not at[f] < at[b] < at[w]:
                early = f"B{i} before F{i}" if at[b] < at[f] else f"W{i} before B{i}"
                look = "On a stage, a microbatch has its F first, then B, then W."
                return [Symptom("values", what, f"stage {stage} runs {early}", look)]
    for stage, order in enumerate(orders):
        held = _most_until_w(order)
        if held > most:
            seen = f"stage {stage} holds {held} microbatches at once, from F to W"
            look = "A microbatch is held until its W: once p are held, a W comes before an F."
            return [Symptom("cost", what, seen, look)]
    for f, b, w, limit in limits if case.group == "time" else limits[:1]:
        times = {"F": f, "B": b, "W": w}
        try:
            ends = _orders.end_times(orders, lambda _, op, times=times: times[op[0]])
        except _orders.Circle as circle:
            return [Symptom("values", what, str(circle), "Draw it: who waits for whose op?")]
        end = max(ends.values())
        if end > limit and case.group == "time":
            seen = f"with F, B, W of {f}, {b}, {w} the step takes {end / limit:.3g} times the limit"
            look = "Draw it: wherever a stage waits, it could run a W."
            return [Symptom("cost", what, seen, look)]
    return []


def _most_until_w(order):
    held = most = 0
    for kind, *_ in order:
        held += {"F": 1, "W": -1}.get(kind, 0)
        most = max(most, held)
    return most


_LOOK = {
    "for": "Return a list of p lists, one for each stage.",
    "runs": "Each stage runs F, B and W once for each microbatch, from 0 to m - 1.",
    "never": "Each stage runs F, B and W of every microbatch: look at the end of the order.",
}


@also_right("W once p are held, or no forward pass is left")
def when_full():
    def zb_h1(p, m):
        orders = []
        for s in range(p):
            order = [("F", i) for i in range(p - s)]
            held, forward, weights = p - s, p - s, 0
            for i in range(m):
                order.append(("B", i))
                if held == p or forward == m:
                    order.append(("W", weights))
                    held, weights = held - 1, weights + 1
                if forward < m:
                    order.append(("F", forward))
                    held, forward = held + 1, forward + 1
            orders.append(order + [("W", i) for i in range(weights, m)])
        return orders

    return zb_h1


@also_right("W's on a stack, the newest first; each stage's ops come from a generator")
def newest_first():
    def zb_h1(p, m):
        def ops_of(s):
            waiting = []
            yield from (("F", i) for i in range(p - s))
            for i in range(m):
                yield "B", i
                waiting.append(i)
                if len(waiting) > s:
                    yield "W", waiting.pop()
                if i + p - s < m:
                    yield "F", i + p - s
            yield from (("W", i) for i in waiting)

        return [list(ops_of(s)) for s in range(p)]

    return zb_h1


@also_right("1F1B's order first, then a W behind each B but the first s")
def from_one_f_one_b():
    def plain_order(p, m, s):
        order = [("F", i) for i in range(p - s)]
        for i in range(m):
            order += [("B", i), ("F", i + p - s)]
        return [op for op in order if op[1] < m]

    def zb_h1(p, m):
        orders = []
        for s in range(p):
            order = []
            for op in plain_order(p, m, s):
                order.append(op)
                if op[0] == "B" and op[1] >= s:
                    order.append(("W", op[1] - s))
            orders.append(order + [("W", m - s + i) for i in range(s)])
        return orders

    return zb_h1


@wrong("W right after its B is 1F1B again: no stage has a W left for the time in which it waits.")
def w_right_away():
    def zb_h1(p, m):
        orders = []
        for s in range(p):
            order = [("F", i) for i in range(p - s)]
            for i in range(m):
                order += [("B", i), ("W", i)]
                if i + p - s < m:
                    order.append(("F", i + p - s))
            orders.append(order)
        return orders

    return zb_h1


all_w_last = slip(
    when_full,
    "With every W at the end a stage holds all m microbatches: nothing was let go before.",
    ("held == p or forward == m", "False"),
)
tail_left_empty = slip(
    when_full,
    "After the last F stages still wait for their B's: run W's in between, not behind them all.",
    ("held == p or forward == m", "held == p and forward < m"),
)
w_before_b = slip(
    when_full,
    "A W starts from its stage's own B: it can't come before it.",
    ('order.append(("B", i))', "pass"),
    ("if forward < m:", 'order.append(("B", i))\n            if forward < m:'),
)
w_forgotten = slip(
    when_full,
    "The weights' gradient is never computed: B is only the gradient of the stage's input here.",
    ('order.append(("W", weights))', "pass"),
    ('order + [("W", i) for i in range(weights, m)]', "order"),
)
last_w_forgotten = slip(
    when_full,
    "The W's that were put off are still due when the last B is done.",
    ('order + [("W", i) for i in range(weights, m)]', "order"),
)
f_before_w = slip(
    when_full,
    "With F before W a stage holds p + 1 for a while: the W makes room, so it comes first.",
    ("held == p or forward == m", "held == p + 1 or forward == m"),
)
one_too_few = slip(
    when_full,
    "One more W can wait: p microbatches may be held, not p - 1.",
    ("held == p or forward == m", "held >= max(p - 1, p - s) or forward == m"),
)
put_off_by_the_first = slip(
    from_one_f_one_b,
    "Turned round: stage 0 runs each W at once, the last stage puts W off by p - 1 microbatches.",
    ("op[1] >= s", "op[1] >= p - 1 - s"),
    ("op[1] - s", "op[1] - (p - 1 - s)"),
    ("m - s + i) for i in range(s)", "m - (p - 1 - s) + i) for i in range(p - 1 - s)"),
)
same_on_all_stages = slip(
    from_one_f_one_b,
    "W is put off by p - 1 on every stage: stage 0 then holds 2p - 1.",
    ("op[1] >= s", "op[1] >= p - 1"),
    ("op[1] - s", "op[1] - p + 1"),
    ("m - s + i) for i in range(s)", "m - p + 1 + i) for i in range(p - 1)"),
)


@wrong("This is ZB-H2's start: 2(p - s) - 1 forward passes first hold up to 2p - 1 microbatches.")
def twice_the_warm_up():
    def zb_h1(p, m):
        orders = []
        for s in range(p):
            first = min(m, 2 * (p - s) - 1)
            order = [("F", i) for i in range(first)]
            for i in range(m):
                order.append(("B", i))
                if i >= 2 * s:
                    order.append(("W", i - 2 * s))
                if first + i < m:
                    order.append(("F", first + i))
            orders.append(order + [("W", i) for i in range(max(0, m - 2 * s), m)])
        return orders

    return zb_h1


@wrong("One order for all stages: a later stage begins with fewer F, as its first B comes sooner.")
def all_stages_alike():
    def zb_h1(p, m):
        order = [("F", i) for i in range(p)]
        for i in range(m):
            order += [("B", i), ("W", i)]
            if i + p < m:
                order.append(("F", i + p))
        return [order[:] for _ in range(p)]

    return zb_h1


@wrong("F, B and W of a microbatch in a row, the next one after it: that is no pipeline.")
def one_after_the_other():
    def zb_h1(p, m):
        return [[(kind, i) for i in range(m) for kind in "FBW"] for _ in range(p)]

    return zb_h1
