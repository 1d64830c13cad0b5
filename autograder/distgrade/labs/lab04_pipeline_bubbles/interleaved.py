"""1F1B on v chunks per stage: `interleaved(p, m, v)`, one list of ops per stage.

Chunk c of stage s is part c * p + s of the model; ops are (kind, microbatch, chunk). In times of a
chunk the step takes (mv + p - 1)(t_f + t_b), so the bubble fraction is (p - 1)/(vm + p - 1), and
stage s holds at most min(mv, 2(p - 1 - s) + (v - 1)p + 1) chunks' activations; v = 1 is 1F1B, which
holds min(m, p - s). p must divide m: else ValueError. Any order that is complete, free of deadlock
and meets the bounds is right. One that starts with only vp - s forward passes does so too (checked
for p <= 6, m <= 4p, v <= 4, seven ratios t_f : t_b); it holds less, and pays more for transfers.
Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.2; the memory bound is derived here.
Oracle: the closed forms; the judge times an answer by longest paths (`_orders`).
"""

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip
from distgrade.labs.lab04_pipeline_bubbles import _orders

NAMES = ("interleaved",)
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
CREDIT = {"chunks": 4, "one chunk, and groups": 2}
CASES = (
    Case("one stage, two chunks", "chunks", p=1, m=3, v=2),
    Case("two stages, two chunks", "chunks", p=2, m=4, v=2),
    Case("three stages, three chunks", "chunks", p=3, m=6, v=3),
    Case("four stages, two chunks", "chunks", p=4, m=8, v=2),
    Case("one group of five", "chunks", p=5, m=5, v=2),
    Case("one chunk", "one chunk, and groups", p=4, m=8, v=1),
    Case("one chunk, one group", "one chunk, and groups", p=3, m=3, v=1),
    Case("a group too small", "one chunk, and groups", p=4, m=6, v=2, expects=ValueError),
    Case("more stages", "one chunk, and groups", p=3, m=2, v=2, expects=ValueError),
)


def given(case, seed):
    # Fresh seeds time the same orders with other durations of F and B.
    forward, backward = (1 + seed % 5, 1 + seed // 5 % 7) if seed else (1, 2)
    return {"p": case.p, "m": case.m, "v": case.v, "forward": forward, "backward": backward}


def observe(student, given):
    from operator import index

    def word(op):
        try:
            kind, numbers = op[0], [index(number) for number in op[1:]]
            if kind in ("F", "B") and len(numbers) == 2:
                return f"{kind}{numbers[0]}.{numbers[1]}"
            if kind in ("F", "B") and len(numbers) == 1 and given["v"] == 1:
                return f"{kind}{numbers[0]}.0"
        except (TypeError, IndexError, KeyError):
            pass
        return "".join(repr(op)[:40].split())

    lists = (list, tuple)
    orders = student.interleaved(given["p"], given["m"], given["v"])
    if not isinstance(orders, lists) or not all(isinstance(order, lists) for order in orders):
        raise TypeError("the answer should be one list of ops per stage, ops as ('F', 0, 1)")
    return {"orders": "\n".join(" ".join(map(word, order)) for order in orders)}


def oracle(case, given):
    import torch

    p, m, v = given["p"], given["m"], given["v"]
    forward, backward = given["forward"], given["backward"]
    if v == 1:
        held = [min(m, p - s) for s in range(p)]
    else:
        held = [min(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1) for s in range(p)]
    shortest = (m * v + p - 1) * (forward + backward)
    return {"orders": torch.tensor([forward, backward, shortest, *held])}


def judge(got, expected, case):
    what = f"interleaved({case.p}, {case.m}, {case.v})"
    orders = _orders.read(str(got["orders"]))
    forward, backward, shortest, *most = expected["orders"].tolist()
    problem = _orders.mistake(orders, case.p, case.m, case.v)
    if problem:
        return [Symptom("values", what, problem, _LOOK[problem.split()[2]])]
    try:
        time = _orders.makespan(orders, forward, backward)
    except _orders.Circle as circle:
        look = "Part c * p + s needs the part before it; in backward, the part after it."
        return [Symptom("values", what, str(circle), look)]
    if time > shortest:
        seen = f"the step takes {time / shortest:.3g} times as long as it must"
        look = "Draw your order: which stage waits, and for which op?"
        return [Symptom("cost", what, seen, look)]
    for stage, order in enumerate(orders):
        held = _orders.peak(order)
        if held > most[stage]:
            seen = f"stage {stage} holds {held / most[stage]:.3g} times the activations it must"
            return [Symptom("cost", what, seen, "Count F less B along that stage's order.")]
    return []


_LOOK = {
    "for": "Return a list of p lists, one for each stage.",
    "runs": "Ops are (kind, microbatch, chunk): F and B, each once for each of them on each stage.",
    "never": "Each stage runs F and B once for each microbatch and each of its v chunks.",
}


@also_right("by arithmetic on the number of a step; warm-up, then F and B in turn")
def by_arithmetic():
    def interleaved(p, m, v):
        if m % p:
            raise ValueError(f"{m} microbatches are no groups of {p}")

        def op(kind, k):
            group, place = divmod(k, p * v)
            chunk, i = divmod(place, p)
            return kind, group * p + i, chunk if kind == "F" else v - 1 - chunk

        orders = []
        for s in range(p):
            warm = p - 1 - s if v == 1 else 2 * (p - 1 - s) + (v - 1) * p
            warm = min(warm, m * v)
            order = [op("F", k) for k in range(warm)]
            for k in range(m * v - warm):
                order += [op("F", warm + k), op("B", k)]
            orders.append(order + [op("B", k) for k in range(m * v - warm, m * v)])
        return orders

    return interleaved


@also_right("only vp - s forward passes first: as short while transfers are free, and lighter")
def shorter_start():
    def interleaved(p, m, v):
        if m % p:
            raise ValueError(f"{m} microbatches are no groups of {p}")
        steps = [(g + i, c) for g in range(0, m, p) for c in range(v) for i in range(p)]
        forward = [("F", i, c) for i, c in steps]
        backward = [("B", i, v - 1 - c) for i, c in steps]
        orders = []
        for s in range(p):
            turn = {op: k - v * p + s + 1 for k, op in enumerate(forward)}
            turn |= {op: k for k, op in enumerate(backward)}
            orders.append(sorted(forward + backward, key=turn.get))
        return orders

    return interleaved


@also_right("the groups from the last to the first, whatever microbatches are called")
def last_group_first():
    def interleaved(p, m, v):
        if m % p != 0:
            raise ValueError("p must divide m")
        groups = [range(k, k + p) for k in range(m - p, -1, -p)]
        forward = [("F", i, c) for group in groups for c in range(v) for i in group]
        backward = [("B", i, v - 1 - c) for _, i, c in forward]
        orders = []
        for s in range(p):
            first = p * v + p - 1 - 2 * s if v > 1 else p - s
            order, rest = forward[:first], forward[first:]
            for k, op in enumerate(backward):
                order = [*order, op, *rest[k : k + 1]]
            orders.append(order)
        return orders

    return interleaved


contiguous = slip(
    by_arithmetic,
    "A microbatch runs a stage's chunks one after the other: parts of other stages lie between.",
    ("chunk, i = divmod(place, p)", "i, chunk = divmod(place, v)"),
)
not_reversed = slip(
    by_arithmetic,
    "Backward takes the chunks in the order of forward: it starts with the last part of the model.",
    ('chunk if kind == "F" else v - 1 - chunk', "chunk"),
)
no_groups = slip(
    by_arithmetic,
    "All m microbatches pass chunk 0 before chunk 1 begins: let groups of p go round.",
    ("group, place = divmod(k, p * v)", "group, place = 0, k"),
    ("chunk, i = divmod(place, p)", "chunk, i = divmod(place, m)"),
)
groups_of_v = slip(
    by_arithmetic,
    "Groups of v microbatches: it is p of them that keep p stages busy while a chunk is passed.",
    ("chunk, i = divmod(place, p)", "chunk, i = divmod(place, v)[0] % v, place % v"),
    ("group * p + i", "(group * v + i) % m"),
)
warm_up_of_1f1b = slip(
    by_arithmetic,
    "The warm-up is 1F1B's: a gradient comes back only after v rounds, so more F come first.",
    ("2 * (p - 1 - s) + (v - 1) * p", "p - 1 - s"),
)
one_round_only = slip(
    by_arithmetic,
    "The warm-up leaves out the rounds of the first v - 1 chunks, (v - 1)p steps.",
    ("2 * (p - 1 - s) + (v - 1) * p", "2 * (p - 1 - s)"),
)
one_too_many = slip(
    by_arithmetic,
    "One F too many comes before the first B: where F and B then alternate, count the first F.",
    ("2 * (p - 1 - s) + (v - 1) * p", "2 * (p - 1 - s) + (v - 1) * p + 1"),
)
all_forward_first = slip(
    by_arithmetic,
    "All forward passes come first: that holds the activations of all m microbatches.",
    ("warm = min(warm, m * v)", "warm = m * v"),
)
unlike_1f1b = slip(
    by_arithmetic,
    "With one chunk, this holds more than 1F1B: there it is p - s forward passes first.",
    ("p - 1 - s if v == 1 else ", ""),
)
part_of_a_group = slip(
    by_arithmetic,
    "Where p doesn't divide m, something comes back: raise ValueError.",
    ('raise ValueError(f"{m} microbatches are no groups of {p}")', "m -= m % p"),
)
refuses_by_v = slip(
    by_arithmetic,
    "The wrong sizes are refused: groups have p microbatches, so p must divide m.",
    ("if m % p:", "if m % v:"),
)
no_end = slip(
    by_arithmetic,
    "The last backward passes are missing: after the last F, the rest is B.",
    ('order + [op("B", k) for k in range(m * v - warm, m * v)]', "order"),
)
group_forgotten = slip(
    by_arithmetic,
    "Every group has the microbatches of the first one: go on counting.",
    ("group * p + i", "i"),
)
chunk_left_out = slip(
    by_arithmetic,
    "Ops have three parts here: without the chunk, nobody knows which layers are meant.",
    ("return kind, group * p + i, chunk if kind", "return kind, group * p + i if kind"),
    (' == "F" else v - 1 - chunk', ' == "F" else group * p + i'),
)

_LEAN = "a shorter start is right as well: as short while transfers are free, and it holds less"
EQUIVALENT = {
    "interleaved: 2 * (p - 1 - s) -> p - 1 - s": _LEAN,
    "interleaved: 2 -> 1": _LEAN,
    "by_arithmetic interleaved: 2 * (p - 1 - s) -> p - 1 - s": _LEAN,
    "by_arithmetic interleaved: 2 -> 1": _LEAN,
    "by_arithmetic interleaved: min(warm, m * v) -> min(m * v, warm)": (
        "min takes its arguments in any order"
    ),
}
