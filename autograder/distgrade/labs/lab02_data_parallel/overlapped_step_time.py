"""A step's time with buckets: `overlapped_step_time(forward_s, backward_s, buckets, reduce_s)`.

Forward takes `forward_s`. Then backward works on one param after the other, from the last to the
first, `backward_s[i]` seconds on param i. `buckets` lists param numbers, in the order of launch;
bucket k's all-reduce takes `reduce_s[k]` and can start when its last gradient is ready. One link:
buckets go over it one at a time, in the order of the list. Returned are the seconds from the start
of forward until backward and the last all-reduce have ended.
Source: Li et al. 2020 (arXiv:2006.15704), section 3.2.3. Oracle: the longest path; a chain of
buckets k, k+1, ... that follow without a gap ends at ready_k + reduce_k + reduce_{k+1} + ...
"""

from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("overlapped_step_time",)
FORBID = ("distlab.explorers.buckets.bucket_numbers",)
TOLERANCE = Exact(why="whole seconds: every sum is exact")
CREDIT = {"a link that keeps up": 1, "a slow link": 2}
CASES = (
    Case(
        "fast link",
        "a link that keeps up",
        forward=3,
        backward=[2, 4, 3, 5],
        buckets=[[3], [2, 1], [0]],
        reduce=[2, 1, 3],
    ),
    Case(
        "nothing to send",
        "a link that keeps up",
        forward=7,
        backward=[1, 2, 4],
        buckets=[[2, 1], [0]],
        reduce=[0, 0],
    ),
    Case(
        "one bucket",
        "a link that keeps up",
        forward=4,
        backward=[6, 1, 2],
        buckets=[[2, 1, 0]],
        reduce=[5],
    ),
    Case(
        "slow link",
        "a slow link",
        forward=2,
        backward=[1, 3, 2, 4, 1],
        buckets=[[4], [3, 2], [1, 0]],
        reduce=[9, 4, 6],
    ),
    Case(
        "buckets ready in another order",
        "a slow link",
        forward=5,
        backward=[2, 6, 3, 1, 4],
        buckets=[[4, 1], [3, 2], [0]],
        reduce=[4, 7, 5],
    ),
)


def given(case, seed):
    # Fresh seeds grade the same step with everything slower by a factor.
    factor = 1 + seed % 997

    def slower(times):
        return [float(factor * time) for time in times]

    return {
        "forward_s": float(factor * case.forward),
        "backward_s": slower(case.backward),
        "buckets": case.buckets,
        "reduce_s": slower(case.reduce),
    }


def observe(student, given):
    backward_s, reduce_s = list(given["backward_s"]), list(given["reduce_s"])
    buckets = [list(bucket) for bucket in given["buckets"]]
    step_s = student.overlapped_step_time(given["forward_s"], backward_s, buckets, reduce_s)
    if hasattr(step_s, "item"):  # a number of numpy or torch
        step_s = step_s.item()
    return {"step": step_s}


def oracle(case, given):
    backward_s, reduce_s = given["backward_s"], given["reduce_s"]
    start = given["forward_s"]
    ends = [start + sum(backward_s)]
    for k, bucket in enumerate(given["buckets"]):
        ready = start + sum(backward_s[min(bucket) :])
        ends.append(ready + sum(reduce_s[k:]))
    return {"step": float(max(ends))}


@wrong("Nothing overlaps here: a bucket is sent while backward works on earlier layers.")
def no_overlap():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        return forward_s + sum(backward_s) + sum(reduce_s)

    return overlapped_step_time


@wrong("Everything overlaps here: yet the last bucket can't start before backward has ended.")
def perfect_overlap():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        return forward_s + max(sum(backward_s), sum(reduce_s))

    return overlapped_step_time


@wrong("Two buckets are on the link at once: the next one waits until the link is free.")
def two_at_once():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        ends = [forward_s + sum(backward_s)]
        for bucket, reduce in zip(buckets, reduce_s, strict=True):
            ends.append(forward_s + sum(backward_s[min(bucket) :]) + reduce)
        return max(ends)

    return overlapped_step_time


@wrong("A bucket leaves with its first gradient: it must wait for its last.")
def starts_with_the_first_gradient():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        free = forward_s
        for bucket, reduce in zip(buckets, reduce_s, strict=True):
            free = max(free, forward_s + sum(backward_s[max(bucket) :])) + reduce
        return max(free, forward_s + sum(backward_s))

    return overlapped_step_time


@wrong("A bucket leaves with its first gradient; and the step lasts at least until backward ends.")
def first_gradient_and_no_backward():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        free = forward_s
        for bucket, reduce in zip(buckets, reduce_s, strict=True):
            free = max(free, forward_s + sum(backward_s[max(bucket) :])) + reduce
        return free

    return overlapped_step_time


@wrong("A bucket leaves before its last gradient is computed: count that param's time too.")
def one_gradient_early():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        free = forward_s
        for bucket, reduce in zip(buckets, reduce_s, strict=True):
            free = max(free, forward_s + sum(backward_s[min(bucket) + 1 :])) + reduce
        return max(free, forward_s + sum(backward_s))

    return overlapped_step_time


@wrong("Forward is missing from the step.")
def forward_missing():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        free = 0.0
        for bucket, reduce in zip(buckets, reduce_s, strict=True):
            free = max(free, sum(backward_s[min(bucket) :])) + reduce
        return free

    return overlapped_step_time


@wrong("Backward goes from the first param to the last here: it is the other way round.")
def backward_from_the_front():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        free = forward_s
        for bucket, reduce in zip(buckets, reduce_s, strict=True):
            free = max(free, forward_s + sum(backward_s[: min(bucket) + 1])) + reduce
        return max(free, forward_s + sum(backward_s))

    return overlapped_step_time


@wrong("Whoever is ready first is sent first: all ranks must keep the order of the list.")
def in_the_order_of_being_ready():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        free = forward_s
        pairs = zip(buckets, reduce_s, strict=True)
        for bucket, reduce in sorted(pairs, key=lambda pair: -min(pair[0])):
            free = max(free, forward_s + sum(backward_s[min(bucket) :])) + reduce
        return free

    return overlapped_step_time


@wrong("Sending starts with forward here: no gradient exists before backward begins.")
def link_busy_during_forward():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        return max(forward_s + sum(backward_s), sum(reduce_s))

    return overlapped_step_time


@also_right("backward played through, gradient by gradient")
def played_through():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        now, ready = forward_s, {}
        for i in reversed(range(len(backward_s))):
            now += backward_s[i]
            ready[i] = now
        link = forward_s
        for k, bucket in enumerate(buckets):
            start = max([link, *(ready[i] for i in bucket)])
            link = start + reduce_s[k]
        return link

    return overlapped_step_time


@also_right("from the end: how much of each bucket's chain sticks out")
def from_the_end():
    def overlapped_step_time(forward_s, backward_s, buckets, reduce_s):
        ends, tail = [], 0.0
        for bucket, reduce in zip(buckets[::-1], reduce_s[::-1]):  # noqa: B905
            tail = tail + reduce
            ends.append(tail + sum(backward_s[min(bucket) :]))
        return forward_s + max(ends)

    return overlapped_step_time


EQUIVALENT = {
    "overlapped_step_time: max(link_free_s, ready_s) -> max(ready_s, link_free_s)": (
        "max takes its arguments in any order"
    ),
}
