"""A simulator of pipeline orders: `simulate(orders, duration, p2p=0)`, one list per stage.

An op is (kind, microbatch), kind "F" or "B". `orders[s]` is stage s's list of ops, in the order in
which it runs them; `duration(s, op)` says how long one takes. Each stage runs one op at a time and
starts it as soon as it can: F of stage s needs F of s-1, B of stage s needs B of s+1, on the last
stage its own F. What comes from another stage arrives `p2p` after that op's end. Returned are
(op, start, end), stage by stage, in the stage's order. Where no stage can go on: ValueError, with
the word "deadlock" and an op that never runs.
Units: any, the same for all times. Times are quarters, so floats are exact.
Source: derived here. Oracle: longest paths in the graph of ops (`_orders`), no clock.
"""

from distgrade.compare import Symptom, compare
from distgrade.exercise import Case, Exact, also_right, slip, wrong
from distgrade.labs.lab04_pipeline_bubbles import _orders

NAMES = ("simulate",)
FORBID = ("distlab.schedule.replay.simulate",)
TOLERANCE = Exact(why="times are quarters: every sum is exact")
CREDIT = {"times": 3, "transfers": 1, "deadlocks": 2}
CASES = (
    Case("one stage", "times", orders=["F0 B0 F1 F2 B2 B1"]),
    Case(
        "three stages, forward first",
        "times",
        orders=["F0 F1 B1 B0", "F0 F1 B1 B0", "F0 F1 B1 B0"],
    ),
    Case(
        "four stages, in turns",
        "times",
        orders=[
            "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4",
            "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
        ],
    ),
    Case(
        "five stages, one microbatch",
        "transfers",
        p2p=0.75,
        orders=["F0 B0", "F0 B0", "F0 B0", "F0 B0", "F0 B0"],
    ),
    Case(
        "two stages, a slow link",
        "transfers",
        p2p=3.5,
        orders=["F0 F1 F2 B0 B1 B2", "F0 B0 F1 B1 F2 B2"],
    ),
    Case(
        "each stage another order",
        "deadlocks",
        orders=["F2 F0 F1 B0 B2 B1", "F2 F0 B0 F1 B2 B1", "F2 F0 B0 B2 F1 B1"],
    ),
    Case(
        "a circle",
        "deadlocks",
        orders=["F0 B0 F1 B1", "F0 F1 B0 B1"],
        never="F1 B0 B1",
    ),
    Case(
        "a forward pass that nobody runs",
        "deadlocks",
        orders=["F0 B0", "F0 B0 F1 B1", "F0 B0 F1 B1"],
        never="F1 B1",
    ),
    Case(
        "backward before forward",
        "deadlocks",
        orders=["F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B1 F1 B0"],
        never="F1 B0 B1",
    ),
)


def given(case, seed):
    import random

    orders = [[(op[0], int(op[1:])) for op in line.split()] for line in case.orders]
    random = random.Random(f"simulate {case.name} {seed}")
    quarters = random.sample(range(1, 4 + 4 * sum(map(len, orders))), sum(map(len, orders)))
    return {
        "orders": orders,
        "times": [[quarters.pop() / 4 for _ in order] for order in orders],
        "p2p": getattr(case, "p2p", None),
        "never": getattr(case, "never", "").split(),
    }


def observe(student, given):
    import re

    import torch

    orders = [list(order) for order in given["orders"]]
    times = {
        (stage, op): time
        for stage, order in enumerate(given["orders"])
        for op, time in zip(order, given["times"][stage], strict=True)
    }

    def duration(stage, op):
        return times[stage, tuple(op)]

    more = {} if given["p2p"] is None else {"p2p": given["p2p"]}
    if given["never"]:
        try:
            student.simulate(orders, duration, **more)
        except ValueError as error:
            text = str(error)
            if "deadlock" not in text.lower():
                return {"error": "silent"}
            for kind, i in given["never"]:  # as ('B', 1), B1, B(0, 1), backward of 1
                word = {"F": "(?i:forward)", "B": "(?i:backward)"}[kind]
                plain = rf"\b({kind}|{word})\b\D{{1,40}}\b{i}\b|\b{kind}{i}\b"
                forms = rf"{plain}|\b{kind}\W{{1,3}}\d+\W{{1,4}}{i}\b"
                if re.search(forms, text):
                    return {"error": "named"}
            return {"error": "nameless"}
        except Exception as error:
            if "deadlock" not in str(error).lower():
                raise
            return {"error": "another kind"}
        return {"error": "none"}

    timeline = student.simulate(orders, duration, **more)
    form = "the answer should be one list of (op, start, end) per stage"
    lists = (list, tuple)
    if not isinstance(timeline, lists) or len(timeline) != len(orders):
        raise TypeError(form)
    tree = {}
    for stage, row in enumerate(timeline):
        order = given["orders"][stage]
        if not isinstance(row, lists) or len(row) != len(order):
            came = f"{len(row)} entries" if isinstance(row, lists) else "no list"
            raise TypeError(f"{form}; stage {stage} has {came} for {len(order)} ops")
        for entry, op in zip(row, order, strict=True):
            if not isinstance(entry, lists) or len(entry) != 3:
                raise TypeError(f"{form}; stage {stage} has an entry of another form")
            if not isinstance(entry[0], lists) or tuple(entry[0]) != op:
                raise TypeError(f"stage {stage}'s entries are not in the order of its ops")
        for number, what in ((1, "starts"), (2, "ends")):
            values = [float(entry[number]) for entry in row]
            tree[f"{what} on stage {stage}"] = torch.tensor(values, dtype=torch.float64)
    return tree | {"orders were changed": orders != given["orders"]}


def oracle(case, given):
    import torch

    if given["never"]:
        return {"error": "named"}
    orders = [[(*op, 0) for op in order] for order in given["orders"]]
    times = {
        (stage, op): time
        for stage, order in enumerate(orders)
        for op, time in zip(order, given["times"][stage], strict=True)
    }
    ends = _orders.end_times(orders, lambda stage, op: times[stage, op], given["p2p"] or 0)
    tree = {}
    for stage, order in enumerate(orders):
        end = torch.tensor([ends[stage, op] for op in order], dtype=torch.float64)
        took = torch.tensor([times[stage, op] for op in order], dtype=torch.float64)
        tree |= {f"starts on stage {stage}": end - took, f"ends on stage {stage}": end}
    return tree | {"orders were changed": False}


def judge(got, expected, case):
    if "error" not in expected:
        return compare(got, expected, rtol=0.0)
    seen, look = {
        "named": ("", ""),
        "none": (
            "times came back, though some op can never run",
            "Where no stage can run its next op, none ever will: that is the moment to raise.",
        ),
        "silent": (
            "a ValueError without the word deadlock",
            "Say it: the word deadlock, and an op that can't run.",
        ),
        "another kind": (
            "a deadlock, but in an error that is no ValueError",
            "Raise ValueError: a caller can tell it from a mistake in the code.",
        ),
        "nameless": (
            "a deadlock, but none of the ops that never run",
            "Name the next op of a stage that can't go on, as in ('B', 1).",
        ),
    }.get(got["error"], ("no answer", ""))
    return [Symptom("error", "what simulate says of a deadlock", seen, look)] if seen else []


@also_right("each stage runs until its input is missing, stage after stage")
def in_rounds():
    def simulate(orders, duration, p2p=0):
        last, now = len(orders) - 1, [0] * len(orders)
        ends, lines = {}, [[] for _ in orders]
        for _ in range(sum(len(order) for order in orders)):
            for s, order in enumerate(orders):
                for kind, i in order[len(lines[s]) :]:
                    if kind == "F":
                        need = (s - 1, kind, i) if s else None
                    else:
                        need = (s + 1, kind, i) if s < last else (s, "F", i)
                    if need is None:
                        ready = 0
                    elif need not in ends:
                        break
                    else:
                        ready = ends[need] + (p2p if need[0] != s else 0)
                    begin = max(now[s], ready)
                    now[s] = begin + duration(s, (kind, i))
                    ends[s, kind, i] = now[s]
                    lines[s].append(((kind, i), begin, now[s]))
        for s, order in enumerate(orders):
            if len(lines[s]) < len(order):
                raise ValueError(f"deadlock: stage {s} waits at {order[len(lines[s])]}")
        return lines

    return simulate


@also_right("each op asks for the end of what it needs, and remembers the answer")
def by_asking():
    def simulate(orders, duration, p2p=0):
        last = len(orders) - 1
        place = {(s, op): k for s, order in enumerate(orders) for k, op in enumerate(order)}
        spans = {}

        def end(s, op):
            if (s, op) in spans:
                if spans[s, op] is None:  # asked for by itself, round a circle
                    raise ValueError(f"deadlock: stage {s} waits at {op}")
                return spans[s, op][1]
            if (s, op) not in place:
                raise ValueError(f"deadlock: stage {s} has no {op}, which others wait for")
            spans[s, op] = None
            k = place[s, op]
            start = end(s, orders[s][k - 1]) if k else 0
            kind, i = op
            if kind == "F" and s > 0:
                other = end(s - 1, op) + p2p
                start = max(start, other)
            elif kind == "B":
                other = end(s, ("F", i)) if s == last else end(s + 1, op) + p2p
                start = max(start, other)
            spans[s, op] = start, start + duration(s, op)
            return spans[s, op][1]

        for s, op in place:
            end(s, op)
        return [[(op, *spans[s, op]) for op in order] for s, order in enumerate(orders)]

    return simulate


@also_right("starts pushed later until nothing moves")
def by_pushing():
    def simulate(orders, duration, p2p=0):
        last = len(orders) - 1
        ops = [(s, op) for s, order in enumerate(orders) for op in order]
        start = dict.fromkeys(ops, 0)
        for _ in ops:  # the longest path has no more edges
            moved = []
            for s, order in enumerate(orders):
                free = 0
                for op in order:
                    need = (s - 1, op) if op[0] == "F" else (s + 1, op)
                    if op[0] == "B" and s == last:
                        need = s, ("F", op[1])
                    if need[0] < 0:
                        there = 0
                    elif need in start:
                        there = start[need] + duration(*need) + p2p * (need[0] != s)
                    else:
                        raise ValueError(f"deadlock: stage {s} waits at {op} for ever")
                    if max(free, there) > start[s, op]:
                        start[s, op] = max(free, there)
                        moved.append(op)
                    free = start[s, op] + duration(s, op)
        if moved:
            raise ValueError(f"deadlock: {moved} would move for ever")
        return [
            [(op, start[s, op], start[s, op] + duration(s, op)) for op in order]
            for s, order in enumerate(orders)
        ]

    return simulate


@wrong("All ops take as long as the first one here: ask duration(stage, op) for each.")
def equal_times():
    def simulate(orders, duration, p2p=0):
        unit = duration(0, orders[0][0])
        last, now = len(orders) - 1, [0] * len(orders)
        ends, lines = {}, [[] for _ in orders]
        for _ in range(sum(len(order) for order in orders)):
            for s, order in enumerate(orders):
                for kind, i in order[len(lines[s]) :]:
                    need = (s - 1, kind, i) if kind == "F" else (s + 1, kind, i)
                    if kind == "B" and s == last:
                        need = s, "F", i
                    if need[0] < 0:
                        ready = 0
                    elif need not in ends:
                        break
                    else:
                        ready = ends[need] + (p2p if need[0] != s else 0)
                    begin = max(now[s], ready)
                    now[s] = begin + unit
                    ends[s, kind, i] = now[s]
                    lines[s].append(((kind, i), begin, now[s]))
        for s, order in enumerate(orders):
            if len(lines[s]) < len(order):
                raise ValueError(f"deadlock: stage {s} waits at {order[len(lines[s])]}")
        return lines

    return simulate


@wrong("A clock of whole ticks: ops start and end between ticks too. Go from end to end.")
def whole_ticks():
    def simulate(orders, duration, p2p=0):
        from math import ceil

        last, now = len(orders) - 1, [0] * len(orders)
        ends, lines = {}, [[] for _ in orders]
        for _ in range(sum(len(order) for order in orders)):
            for s, order in enumerate(orders):
                for kind, i in order[len(lines[s]) :]:
                    need = (s - 1, kind, i) if kind == "F" else (s + 1, kind, i)
                    if kind == "B" and s == last:
                        need = s, "F", i
                    if need[0] < 0:
                        ready = 0
                    elif need not in ends:
                        break
                    else:
                        ready = ends[need] + (p2p if need[0] != s else 0)
                    begin = ceil(max(now[s], ready))
                    now[s] = begin + duration(s, (kind, i))
                    ends[s, kind, i] = now[s]
                    lines[s].append(((kind, i), begin, now[s]))
        for s, order in enumerate(orders):
            if len(lines[s]) < len(order):
                raise ValueError(f"deadlock: stage {s} waits at {order[len(lines[s])]}")
        return lines

    return simulate


started_together = slip(
    in_rounds,
    "An op starts together with the one it needs: its input is there when that op has ended.",
    ("ends[s, kind, i] = now[s]", "ends[s, kind, i] = begin"),
)
two_at_once = slip(
    in_rounds,
    "A stage runs two ops at once: the op before it on the same stage must have ended.",
    ("max(now[s], ready)", "ready"),
)
own_forward_is_enough = slip(
    in_rounds,
    "Backward starts after the stage's own forward: it needs the gradient of the stage after it.",
    ('(s + 1, kind, i) if s < last else (s, "F", i)', '(s, "F", i)'),
)
no_forward_needed = slip(
    in_rounds,
    "The last stage's backward waits for nothing: it needs its own forward pass.",
    ('(s + 1, kind, i) if s < last else (s, "F", i)', "(s + 1, kind, i) if s < last else None"),
)
link_is_free = slip(
    in_rounds,
    "p2p is left out: what comes from another stage arrives that much later.",
    ("ends[need] + (p2p if need[0] != s else 0)", "ends[need]"),
)
sent_to_itself = slip(
    in_rounds,
    "p2p is charged on the last stage too, between its own F and B: nothing is sent there.",
    ("(p2p if need[0] != s else 0)", "p2p"),
)
only_forward_is_sent = slip(
    in_rounds,
    "Gradients arrive at once here: they go from stage to stage as activations do.",
    ("(p2p if need[0] != s else 0)", '(p2p if kind == "F" and s else 0)'),
)
counted_twice = slip(
    in_rounds,
    "p2p counts twice here: in an op's own time, and again until the next stage has its input.",
    ("now[s] = begin + duration(s, (kind, i))", "now[s] = begin + duration(s, (kind, i)) + p2p"),
)
sender_is_busy = slip(
    in_rounds,
    "Sending keeps the stage busy here: an op ends with its duration, and the stage goes on.",
    ("now[s] = begin + duration(s, (kind, i))", "now[s] = begin + duration(s, (kind, i)) + p2p"),
    ("ends[need] + (p2p if need[0] != s else 0)", "ends[need]"),
)
sender_is_busy_in_secret = slip(
    in_rounds,
    "The stage waits while its tensor travels: it goes on at once, only what arrives is later.",
    ("now[s] = begin + duration(s, (kind, i))", "now[s] = begin + duration(s, (kind, i)) + p2p"),
    ("ends[need] + (p2p if need[0] != s else 0)", "ends[need]"),
    ("((kind, i), begin, now[s])", "((kind, i), begin, begin + duration(s, (kind, i)))"),
)
first_times_first = slip(
    in_rounds,
    "A missing input counts as there at time 0: such an op can't run yet, or ever.",
    ("break", "ready = 0"),
)
too_few_rounds = slip(
    in_rounds,
    "A deadlock where there is none: after others have run, a stage's turn comes again.",
    ("range(sum(len(order) for order in orders))", "range(2)"),
)
gives_what_it_has = slip(
    in_rounds,
    "A deadlock goes unnoticed: the ops that never ran are left out. Raise ValueError.",
    ("if len(lines[s]) < len(order):", "if False:"),
)
deadlock_unsaid = slip(
    in_rounds,
    "The ValueError should say deadlock, and name an op that never runs.",
    ('f"deadlock: stage {s} waits at {order[len(lines[s])]}"', '"these orders are invalid"'),
)
deadlock_without_an_op = slip(
    in_rounds,
    "The deadlock is noticed: name also an op that never runs.",
    ('f"deadlock: stage {s} waits at {order[len(lines[s])]}"', '"deadlock"'),
)
wrong_error = slip(
    in_rounds,
    "A deadlock should be a ValueError, so that a caller can tell it from a mistake in code.",
    ("raise ValueError(", "raise RuntimeError("),
)


@wrong("The caller's orders are emptied here: leave them as they are.")
def pops_the_orders():
    def simulate(orders, duration, p2p=0):
        last, now = len(orders) - 1, [0] * len(orders)
        ends, lines = {}, [[] for _ in orders]
        for _ in range(sum(len(order) for order in orders)):
            for s, order in enumerate(orders):
                if not order:
                    continue
                kind, i = order[0]
                need = (s - 1, kind, i) if kind == "F" else (s + 1, kind, i)
                if kind == "B" and s == last:
                    need = s, "F", i
                if need[0] >= 0 and need not in ends:
                    continue
                ready = ends[need] + p2p * (need[0] != s) if need[0] >= 0 else 0
                begin = max(now[s], ready)
                now[s] = begin + duration(s, order.pop(0))
                ends[s, kind, i] = now[s]
                lines[s].append(((kind, i), begin, now[s]))
        for s, order in enumerate(orders):
            if order:
                raise ValueError(f"deadlock: stage {s} waits at {order[0]}")
        return lines

    return simulate


_EARLY = "an input is there at 0 or later, so a stage that is free earlier waits until 0"
_MAX = "max takes its arguments in any order"
EQUIVALENT = {
    "simulate: 0 -> -1": _EARLY,
    "simulate.arrival: 0 -> -1": "a stage is free at 0 or later, so an earlier input waits until 0",
    "simulate: max(free[stage], there) -> max(there, free[stage])": _MAX,
    "in_rounds simulate: 0 -> -1": _EARLY,
    "in_rounds simulate: max(now[s], ready) -> max(ready, now[s])": _MAX,
    "by_asking simulate.end: max(start, other) -> max(other, start)": _MAX,
    "by_pushing simulate: max(free, there) -> max(there, free)": _MAX,
}
