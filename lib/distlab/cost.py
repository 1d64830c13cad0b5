"""What sending and computing cost: α–β links, ring collectives, FLOP at a share of the peak.

A message of S bytes takes α + S/β: the link's latency, plus its bytes over its one-way rate. On a
ring of n ranks every rank sends at the same time, so a collective lasts its number of steps times
the message of one step. S is the payload, as in the ledger: the tensor that a rank passes in.

| operation                | steps     | bytes of one step |
|--------------------------|-----------|-------------------|
| all_reduce               | 2 (n-1)   | S/n               |
| reduce_scatter           | n-1       | S/n               |
| all_gather               | n-1       | S (its own part)  |
| all_to_all, equal parts  | n-1       | S/n               |
| broadcast, along a chain | n-1       | S                 |
| barrier                  | 2 (n-1)   | 0                 |

Steps times bytes is what one rank sends: the ledger's ring bytes (a broadcast's links work one
after the other here; NCCL cuts the tensor into pieces and overlaps them). Simplified away: real
libraries pay a fixed cost per call, use trees for small messages, and reach two thirds to three
quarters of a link's rate (NCCL on 2 to 8 A100s, 1 GiB: 197 to 229 of 300 GB/s; vTrain, 2024).

All times are exact fractions of a second, so that a simulated clock can equal them;
`float(time_s)` makes a number to print. Source: Thakur, Rabenseifner and Gropp (2005), section 3;
Patarasuk and Yuan (2009); the table is derived in the chapter on data parallelism.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from distlab.hardware import Cluster, Gpu, Link

# Rooms that ask for the time of an all-reduce put `ring_time_s` and `collective_time_s` on FORBID.

Number = int | float | Fraction


@lru_cache(maxsize=4096, typed=True)  # typed: Fraction(0.4) == 0.4, and stays as it is
def exact(x: Number) -> Fraction:
    """Returns a number as the fraction one would read it as: `exact(0.4) == Fraction(2, 5)`.

    (`Fraction(0.4)` is the binary double beside it, which makes long, ugly and unequal fractions.)
    """
    return Fraction(repr(float(x))) if isinstance(x, float) else Fraction(x)


def send_time_s(size_bytes: Number, link: Link) -> Fraction:
    """Returns the time of one message over a link, α + S/β, exactly.

    Example: `send_time_s(900, Link("slow", 450.0, latency_s=0.5)) == Fraction(5, 2)`.
    """
    if size_bytes < 0:
        raise ValueError(f"A message can't have {size_bytes} bytes.")
    return exact(link.latency_s) + exact(size_bytes) / exact(link.rate_bytes_per_s)


def ring_steps(op: str, n: int, payload_bytes: Number) -> tuple[int, Fraction]:
    """Returns how many steps a collective over n ranks takes and the bytes sent in each.

    Example: `ring_steps("all_reduce", 4, 80) == (6, 20)`.
    """
    if n < 1:
        raise ValueError(f"A group has at least one rank, not {n}.")
    whole, part = exact(payload_bytes), exact(payload_bytes) / n
    table = {
        "all_reduce": (2 * (n - 1), part),
        "reduce_scatter": (n - 1, part),
        "all_gather": (n - 1, whole),
        "all_to_all": (n - 1, part),
        "broadcast": (n - 1, whole),
        "barrier": (2 * (n - 1), Fraction(0)),
    }
    if op not in table:
        raise ValueError(f"No closed form for {op!r}; there is one for {', '.join(table)}.")
    return table[op]


def ring_time_s(op: str, n: int, payload_bytes: Number, link: Link) -> Fraction:
    """Returns the time of a collective on a ring of n ranks whose hops are all this link.

    Example: `float(ring_time_s("all_reduce", 64, 15e9, Link("NVLink", 450e9))) == 0.065625`.
    """
    steps, step_bytes = ring_steps(op, n, payload_bytes)
    return steps * send_time_s(step_bytes, link)


def collective_time_s(
    op: str, payload_bytes: Number, ranks: Sequence[int], cluster: Cluster
) -> Fraction:
    """Returns the time of a collective on the ring that visits these ranks of a cluster in order.

    The ranks of a ring move in step, so its slowest hop sets the pace: one hop over the network is
    enough to make a whole ring as slow as the network.

    Example: a ring over `range(16)` on DGX_H100 costs what sixteen GPUs on the network cost.
    """
    steps, step_bytes = ring_steps(op, len(ranks), payload_bytes)
    if steps == 0:
        return Fraction(0)
    return steps * max(send_time_s(step_bytes, link) for link in cluster.ring_links(ranks))


def compute_time_s(work_flop: Number, gpu: Gpu, *, mfu: float) -> Fraction:
    """Returns the time that one GPU computes on `work_flop` at a share `mfu` of its peak.

    Example: 6 · 7.5e9 · 16,384 FLOP on an H100 at 40 % take 1.864 s.
    """
    if not 0 < mfu <= 1:
        raise ValueError(f"mfu is a share of the peak, between 0 and 1, not {mfu}.")
    return exact(work_flop) / (exact(gpu.peak_flop_per_s) * exact(mfu))
