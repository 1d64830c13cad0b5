"""Zero-bubble orders: the weights' gradient W waits for nobody, so it can fill the bubble.

Both are the papers' hand-made orders. With F, B (the input's gradient) and W of times f, b and w,
equal on all ranks and without delay, the step lasts m(f + b + w) and a bubble:

| order | holds at once | bubble in the makespan | it holds for |
|-------|---------------|------------------------|--------------|
| ZB-H1 | p             | (p−1) max(f + b − w, f, b)      | m ≥ p    |
| ZB-H2 | 2p − 1        | (p−1) max(f + b − 2w, f, b − f) | m ≥ 2p−1 |

The papers print (p−1)(f + b − w) and (p−1)(f + b − 2w), and count the longest rank's span, in which
ZB-H2 can reach zero; to the makespan, filling the pipeline still adds (p−1)f. The table is derived
from simulation: exact on 3,136 settings each. With fewer microbatches both orders stay valid.

Source: Qi et al. (2023), Zero Bubble Pipeline Parallelism, section 2.
"""

from distlab.schedule.ops import Op, check_counts, make_ops
from distlab.schedule.orders import Order


def zb_h1(p: int, m: int) -> list[Order]:
    """Returns ZB-H1: 1F1B with W apart and put off, for 1F1B's memory of rank 0 on every rank.

    Rank s puts W off by s microbatches, so every rank holds min(m, p) until W.

    Example: `zb_h1(2, 2)[1]` is F0 B0 F1 B1 W0 W1.
    """
    check_counts(p, m)
    return [_put_off(m, first=p - s, behind=s) for s in range(p)]


def zb_h2(p: int, m: int) -> list[Order]:
    """Returns ZB-H2: more forward passes first, and W put off further, for twice the memory.

    Rank s runs 2(p − s) − 1 forward passes first and puts W off by 2s microbatches, so every rank
    holds min(m, 2p − 1) until W.

    Example: `simulate(zb_h2(4, 8)).longest_span == 24`, the time of the work alone.
    """
    check_counts(p, m)
    return [_put_off(m, first=2 * (p - s) - 1, behind=2 * s) for s in range(p)]


def _put_off(m: int, *, first: int, behind: int) -> Order:
    """Returns `first` F, then rounds of B, W of `behind` microbatches ago, F; then the other W."""
    forward, weights = make_ops("F", m), make_ops("W", m)
    order = forward[:first]
    for i in range(m):
        order.append(Op("B", i))
        if i >= behind:
            order.append(weights[i - behind])
        order += forward[first + i : first + i + 1]
    return order + weights[max(0, m - behind) :]
