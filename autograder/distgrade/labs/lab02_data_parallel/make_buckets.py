"""Buckets of gradients: `make_buckets(sizes, cap_bytes, first_cap_bytes)`, lists of param numbers.

`sizes[i]` is the bytes of param i's gradient, in the order in which the model registers them.
Gradients become ready from the last to the first. Buckets are filled in that order; a bucket closes
*after* the gradient with which it reaches its cap (a soft cap: no gradient is ever cut). The first
bucket has its own, smaller cap. What is left at the end is the last bucket.
Returned are the buckets in the order in which they fill, each a list of numbers in that order.
Source: PyTorch 2.13, `_compute_bucket_assignment_by_size`, and `rebuild_buckets` of its Reducer; Li
et al. 2020 (arXiv:2006.15704), section 3.2.3. Oracle: bounds by bisection in the running sums.
"""

from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("make_buckets",)
FORBID = ("distlab.explorers.buckets.bucket_numbers",)
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"order": 1, "caps": 2}
CASES = (
    Case("equal gradients", "order", sizes=[4, 4, 4, 4, 4, 4, 4], cap=8, first=4),
    Case("different gradients", "order", sizes=[3, 9, 2, 7, 5, 1, 6, 2], cap=10, first=3),
    Case("a gradient larger than the cap", "caps", sizes=[5, 2, 40, 3, 60, 1], cap=12, first=2),
    Case("a bucket that ends at its cap", "caps", sizes=[2, 6, 4, 3, 7, 5], cap=10, first=5),
    Case("a small rest", "caps", sizes=[1, 2, 3, 4, 5], cap=6, first=6),
    Case("all in the first bucket", "caps", sizes=[3, 2, 4], cap=100, first=50),
)


def given(case, seed):
    # Fresh seeds grade the same model with all sizes multiplied, caps too: other numbers.
    factor = 1 + seed % 997
    return {
        "sizes": [factor * size for size in case.sizes],
        "cap_bytes": factor * case.cap,
        "first_cap_bytes": factor * case.first,
    }


def observe(student, given):
    import torch

    def whole(numbers):
        return torch.tensor(numbers) if numbers else torch.zeros(0, dtype=torch.int64)

    sizes = list(given["sizes"])
    buckets = student.make_buckets(sizes, given["cap_bytes"], given["first_cap_bytes"])
    changed = sizes != given["sizes"]
    lists = (list, tuple, range)
    if not isinstance(buckets, lists) or not all(isinstance(b, lists) for b in buckets):
        return {
            "params in order": buckets,
            "params per bucket": None,
            "sizes were changed": changed,
        }
    return {
        "params in order": whole([i for bucket in buckets for i in bucket]),
        "params per bucket": whole([len(bucket) for bucket in buckets]),
        "sizes were changed": changed,
    }


def oracle(case, given):
    from bisect import bisect_left
    from itertools import accumulate

    import torch

    sizes = given["sizes"]
    running = [0, *accumulate(sizes[::-1])]
    counts, begin, cap = [], 0, given["first_cap_bytes"]
    while begin < len(sizes):
        end = bisect_left(running, running[begin] + cap, lo=begin + 1)
        end = min(end, len(sizes))
        counts.append(end - begin)
        begin, cap = end, given["cap_bytes"]
    return {
        "params in order": torch.arange(len(sizes)).flip(0),
        "params per bucket": torch.tensor(counts),
        "sizes were changed": False,
    }


@wrong("The buckets are filled from the first param: gradients become ready from the last.")
def forward_order():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i, size in enumerate(sizes):
            bucket.append(i)
            filled += size
            if filled >= cap:
                buckets.append(bucket)
                bucket, filled, cap = [], 0, cap_bytes
        return buckets + [bucket] * bool(bucket)

    return make_buckets


@wrong("Cut from the front and then turned around: the small first bucket ends up last.")
def turned_around():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i, size in enumerate(sizes):
            bucket.append(i)
            filled += size
            if filled >= cap:
                buckets.append(bucket)
                bucket, filled, cap = [], 0, cap_bytes
        buckets += [bucket] * bool(bucket)
        return [bucket[::-1] for bucket in buckets[::-1]]

    return make_buckets


@wrong(
    "The cap is hard here: a bucket should close after the gradient that reaches it, not before."
)
def hard_cap():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i in reversed(range(len(sizes))):
            if bucket and filled + sizes[i] > cap:
                buckets.append(bucket)
                bucket, filled, cap = [], 0, cap_bytes
            bucket.append(i)
            filled += sizes[i]
        return buckets + [bucket] * bool(bucket)

    return make_buckets


@wrong("A bucket that is exactly full stays open: it has reached its cap, so close it.")
def open_at_the_cap():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i in reversed(range(len(sizes))):
            bucket.append(i)
            filled += sizes[i]
            if filled > cap:
                buckets.append(bucket)
                bucket, filled, cap = [], 0, cap_bytes
        return buckets + [bucket] * bool(bucket)

    return make_buckets


@wrong("The last bucket is lost: what never reaches the cap must be sent too.")
def rest_lost():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i in reversed(range(len(sizes))):
            bucket.append(i)
            filled += sizes[i]
            if filled >= cap:
                buckets.append(bucket)
                bucket, filled, cap = [], 0, cap_bytes
        return buckets

    return make_buckets


@wrong("Gradients larger than the cap are left out: each is the last one of its bucket.")
def oversize_dropped():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i in reversed(range(len(sizes))):
            if sizes[i] > cap_bytes:
                continue
            bucket.append(i)
            filled += sizes[i]
            if filled >= cap:
                buckets.append(bucket)
                bucket, filled, cap = [], 0, cap_bytes
        return buckets + [bucket] * bool(bucket)

    return make_buckets


@wrong("Every gradient has a bucket of its own: many small messages, and latency for each.")
def one_each():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        return [[i] for i in reversed(range(len(sizes)))]

    return make_buckets


@wrong("The first bucket's own cap is not used.")
def one_cap_for_all():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled = [], [], 0
        for i in reversed(range(len(sizes))):
            bucket.append(i)
            filled += sizes[i]
            if filled >= cap_bytes:
                buckets.append(bucket)
                bucket, filled = [], 0
        return buckets + [bucket] * bool(bucket)

    return make_buckets


@wrong("The first bucket's cap is used for all buckets.")
def first_cap_for_all():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled = [], [], 0
        for i in reversed(range(len(sizes))):
            bucket.append(i)
            filled += sizes[i]
            if filled >= first_cap_bytes:
                buckets.append(bucket)
                bucket, filled = [], 0
        return buckets + [bucket] * bool(bucket)

    return make_buckets


@wrong("What is over the cap is carried into the next bucket: each starts empty.")
def excess_carried():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i in reversed(range(len(sizes))):
            bucket.append(i)
            filled += sizes[i]
            if filled >= cap:
                buckets.append(bucket)
                bucket, filled, cap = [], filled - cap, cap_bytes
        return buckets + [bucket] * bool(bucket)

    return make_buckets


@wrong("A last bucket without params: where nothing is left over, none is needed.")
def empty_bucket():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, bucket, filled, cap = [], [], 0, first_cap_bytes
        for i in reversed(range(len(sizes))):
            bucket.append(i)
            filled += sizes[i]
            if filled >= cap:
                buckets.append(bucket)
                bucket, filled, cap = [], 0, cap_bytes
        return [*buckets, bucket]

    return make_buckets


@also_right("by the room that is left in the bucket")
def room_left():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets, room = [[]], first_cap_bytes
        for i, size in reversed(list(enumerate(sizes))):
            if room <= 0:
                buckets.append([])
                room = cap_bytes
            buckets[-1].append(i)
            room -= size
        return buckets

    return make_buckets


@also_right("a new bucket is opened where the last one is full")
def opened_when_full():
    def make_buckets(sizes, cap_bytes, first_cap_bytes):
        buckets = []
        for i in range(len(sizes))[::-1]:
            cap = first_cap_bytes if len(buckets) <= 1 else cap_bytes
            if not buckets or sum(sizes[j] for j in buckets[-1]) >= cap:
                buckets.append([])
            buckets[-1].append(i)
        return buckets

    return make_buckets


EQUIVALENT = {}
