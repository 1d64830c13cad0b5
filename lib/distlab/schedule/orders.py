"""Orders of a pipeline's step: naive, GPipe, 1F1B, interleaved 1F1B, looped breadth-first.

Each is one list of ops per rank, for p ranks (stages) and m microbatches. None looks at times:
that is the simulator's part.
"""

from distlab.errors import OrderError
from distlab.schedule.ops import Op, check_counts, make_ops

# Rooms that ask for an order put its function on FORBID.

Order = list[Op]


def naive(p: int, m: int = 1) -> list[Order]:
    """Returns the order without a pipeline: a microbatch starts when the one before has ended.

    Example: `naive(2, 2)[0]` is F0 B0 F1 B1.
    """
    check_counts(p, m)
    order = [op for pair in zip(make_ops("F", m), make_ops("B", m), strict=True) for op in pair]
    return [order[:] for _ in range(p)]


def gpipe(p: int, m: int, *, reverse: bool = False, recompute: bool = False) -> list[Order]:
    """Returns GPipe's order: all forward passes, then all backward passes.

    Every rank holds m microbatches at once. `reverse` runs the last microbatch's backward pass
    first, which changes no makespan where stages are equal. `recompute` (rematerialisation) keeps
    only each stage's input and runs the forward pass again, R, before each B: a rank then holds m
    inputs and the activations of one microbatch, and it recomputes while it waits for the gradient.

    Example: `gpipe(4, 2)[0]` is F0 F1 B0 B1.
    Source: Huang et al. (2019), section 2.
    """
    check_counts(p, m)
    backward = make_ops("B", m)
    if recompute:
        again = make_ops("R", m)
        if reverse:
            backward, again = backward[::-1], again[::-1]
        backward = [op for pair in zip(again, backward, strict=True) for op in pair]
    elif reverse:
        backward.reverse()
    order = make_ops("F", m) + backward
    return [order[:] for _ in range(p)]


def one_f_one_b(p: int, m: int) -> list[Order]:
    """Returns 1F1B with a flush: rank s runs p − s forward passes, then B and F in turn.

    Rank s holds min(m, p − s) microbatches at once, GPipe's bubble stays.

    Example: `one_f_one_b(2, 3)` is F0 F1 B0 F2 B1 B2 on rank 0, F0 B0 F1 B1 F2 B2 on rank 1.
    Source: Narayanan et al. (2021), section 2.2.1 (PipeDream-Flush).
    """
    check_counts(p, m)
    forward, backward = make_ops("F", m), make_ops("B", m)
    return [_alternate(forward, backward, min(m, p - s)) for s in range(p)]


def interleaved(p: int, m: int, v: int) -> list[Order]:
    """Returns 1F1B on v chunks of layers per rank: a bubble v times smaller, v times the p2p.

    Microbatches go through the chunks in groups of p, so p must divide m; v = 1 is 1F1B.

    Example: `interleaved(2, 2, 2)[1]` begins F0 F1 F0 B0, the third and fourth of chunk 1.
    Raises: OrderError where p does not divide m.
    Source: Narayanan et al. (2021), section 2.2.2.
    """
    check_counts(p, m, v)
    if v == 1:
        return one_f_one_b(p, m)
    if m % p:
        raise OrderError(
            f"Interleaving takes microbatches in groups of p: {m} is no multiple of {p}."
        )
    forward = [Op("F", g + i, c) for g in range(0, m, p) for c in range(v) for i in range(p)]
    backward = [
        Op("B", g + i, c) for g in range(0, m, p) for c in reversed(range(v)) for i in range(p)
    ]
    # Rank s starts its first B when F of the last chunk has gone on to rank p − 1 and the gradient
    # has come back: 2(p − 1 − s) steps after its own F, which is number (v − 1)p + 1.
    first = [min(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1) for s in range(p)]
    return [_alternate(forward, backward, n) for n in first]


def looped_bfs(p: int, m: int, v: int) -> list[Order]:
    """Returns breadth-first order on v chunks: all microbatches through a chunk, then the next.

    Example: `looped_bfs(2, 2, 2)[0]` is F0 F1 of chunk 0, then of chunk 1, B0 B1 of 1, then of 0.
    Source: Lamy-Poirier (2023), Breadth-First Pipeline Parallelism.
    """
    check_counts(p, m, v)
    order = [op for c in range(v) for op in make_ops("F", m, c)]
    order += [op for c in reversed(range(v)) for op in make_ops("B", m, c)]
    return [order[:] for _ in range(p)]


def flushed(orders: list[Order], steps: int) -> list[Order]:
    """Returns the orders of several steps one after the other, with the microbatches counted on.

    Each rank ends a step before it begins the next, which is all that a flush is.

    Example: `flushed(one_f_one_b(4, 8), 3)` has 24 microbatches.
    """
    m = 1 + max(op.microbatch for op in orders[0])
    check_counts(len(orders), m * steps)
    return [
        [Op(kind, i + step * m, chunk) for step in range(steps) for kind, i, chunk in order]
        for order in orders
    ]


def _alternate(forward: Order, backward: Order, first: int) -> Order:
    """Returns `first` of the F, then B and F in turn while there are F, then the rest of the B."""
    pairs = len(forward) - first
    turns: Order = [forward[0]] * (2 * pairs)
    turns[::2], turns[1::2] = backward[:pairs], forward[first:]
    return forward[:first] + turns + backward[pairs:]
