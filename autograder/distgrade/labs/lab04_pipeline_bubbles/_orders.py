"""How this lab's judges see an answer's orders: read from text, checked, timed, counted.

Times come from a graph of ops, put in an order by `graphlib` and gone through once, longest path by
longest path; no clock runs and no rank takes turns, as in the notebook and in `distlab.schedule`.
Ops are (kind, microbatch, chunk); chunk c of stage s is virtual stage c * p + s.
"""

import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter

OP = re.compile(r"([FBW])(\d+)(?:\.(\d+))?")


def read(text: str) -> list[list]:
    """Return the orders that a text tells: a line per stage, an op per word.

    `read("F0 B0.1") == [[("F", 0, 0), ("B", 0, 1)]]`. What is no op stays a text.
    """
    return [[_op(word) for word in line.split()] for line in text.split("\n")]


def _op(word: str):
    found = OP.fullmatch(word)
    return (found[1], int(found[2]), int(found[3] or 0)) if found else word


def told(op) -> str:
    """Return an op as a student writes it, without the chunk 0."""
    return str(op[: 3 if op[2] else 2]) if isinstance(op, tuple) else str(op)


def mistake(orders: list[list], p: int, m: int, v: int = 1, kinds: str = "FB") -> str:
    """Return what is wrong with the ops of p orders, in words, or ""."""
    if len(orders) != p:
        return f"{len(orders)} orders for {p} stages"
    wanted = {(kind, i, chunk) for kind in kinds for i in range(m) for chunk in range(v)}
    for stage, order in enumerate(orders):
        for op, times in Counter(order).items():
            if op not in wanted:
                return f"stage {stage} runs {told(op)}, which is no op of this step"
            if times > 1:
                return f"stage {stage} runs {told(op)} {times} times"
        missing = sorted(wanted - set(order))
        if missing:
            return f"stage {stage} never runs {told(missing[0])}"
    return ""


class Circle(ValueError):
    """Ops of an answer's orders wait for each other; the text says where, in words."""


def end_times(orders: list[list], duration, p2p=0) -> dict:
    """Return {(stage, op): end} of complete orders; duration(stage, op) is an op's time.

    Raises: Circle where ops wait for each other.
    """
    p = len(orders)
    last = p * (1 + max(op[2] for order in orders for op in order)) - 1
    graph = {
        (stage, op): {(stage, order[at - 1])} if at else set()
        for stage, order in enumerate(orders)
        for at, op in enumerate(order)
    }
    needs = {node: _input(*node, p, last) for node in graph}
    for node, other in needs.items():
        graph[node] |= {other} - {None}
    try:
        ordered = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        stage, op = next(node for node in error.args[1] if needs[node] in error.args[1])
        raise Circle(f"ops wait for each other: stage {stage} never runs {told(op)}") from None
    ends: dict = {}
    for node in ordered:
        ready = [
            ends[before] + (p2p if before == needs[node] and before[0] != node[0] else 0)
            for before in graph[node]
        ]
        ends[node] = max(ready, default=0) + duration(*node)
    return ends


def _input(stage: int, op: tuple, p: int, last: int):
    """Return the (stage, op) from which an op gets its input; None for the first forward pass."""
    kind, i, chunk = op
    virtual = chunk * p + stage
    if kind == "W":
        return stage, ("B", i, chunk)
    if kind == "B" and virtual == last:
        return stage, ("F", i, chunk)
    if kind == "F" and virtual == 0:
        return None
    chunk, stage = divmod(virtual + (1 if kind == "B" else -1), p)
    return stage, (kind, i, chunk)


def makespan(orders: list[list], forward, backward):
    """Return when the last op ends if all stages take `forward` and `backward`.

    Raises: Circle where ops wait for each other.
    """
    times = {"F": forward, "B": backward}
    return max(end_times(orders, lambda _, op: times[op[0]]).values())


def peak(order: list) -> int:
    """Return how many F a stage has run, at most, whose B has not."""
    held = most = 0
    for kind, *_ in order:
        held += {"F": 1, "B": -1}.get(kind, 0)
        most = max(most, held)
    return most
