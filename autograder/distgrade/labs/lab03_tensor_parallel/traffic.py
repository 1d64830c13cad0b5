"""Bytes that tensor parallelism makes one GPU send: `tp_traffic_bytes(s, b, h, t, ...)`.

s tokens in a sequence, b sequences in a microbatch, h the hidden size, t ranks. A layer makes four
all-reduces of s·b·h numbers in each microbatch, two forward and two backward; full recompute runs
forward once more: six. On a ring each sends 2 (t-1)/t of its payload. Result in bytes per step.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3; Narayanan et al. 2021 (arXiv:2104.04473),
section 3.2. Oracle: a ring is walked step by step and every number counted that rank 0 hands on.
"""

from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("tp_traffic_bytes",)
FORBID = ()
TOLERANCE = Close(1e-12, "(t-1)/t is rounded, in any order of factors")
CREDIT = {"one layer": 2, "a step": 2}
CASES = (
    Case("a layer of GPT-3", "one layer", s=2048, b=1, h=12_288, t=8, more={}),
    Case("three ranks", "one layer", s=96, b=5, h=60, t=3, more={}),
    Case("one rank", "one layer", s=128, b=2, h=64, t=1, more={}),
    Case("four ranks", "one layer", s=7, b=3, h=10, t=4, more={}),
    Case("FP32", "one layer", s=64, b=2, h=32, t=2, more={"bytes_per_number": 4}),
    Case("layers", "a step", s=32, b=3, h=48, t=6, more={"layers": 24}),
    Case("microbatches", "a step", s=16, b=1, h=40, t=5, more={"layers": 4, "microbatches": 7}),
    Case("recompute", "a step", s=64, b=2, h=32, t=4, more={"recompute": True}),
    Case(
        "everything",
        "a step",
        s=48,
        b=2,
        h=96,
        t=16,
        more={"layers": 3, "microbatches": 5, "bytes_per_number": 1, "recompute": True},
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: b sequences become more.
    extra = int(integers((1,), "traffic", case.name, seed, low=1, high=9)[0]) if seed else 0
    sizes = {"s": case.s, "b": case.b + extra, "h": case.h, "t": case.t}
    return {"sizes": sizes, "more": case.more}


def observe(student, given):
    sizes = given["sizes"]
    bytes_sent = student.tp_traffic_bytes(
        sizes["s"], sizes["b"], sizes["h"], sizes["t"], **given["more"]
    )
    if hasattr(bytes_sent, "item"):  # a number of numpy or torch
        bytes_sent = bytes_sent.item()
    return {"bytes": bytes_sent}


def oracle(case, given):
    from fractions import Fraction

    sizes, more = given["sizes"], given["more"]
    t, numbers = sizes["t"], Fraction(sizes["s"] * sizes["b"] * sizes["h"])
    # One ring: in each of t-1 steps a rank hands on one of t chunks, once to add up, once to share.
    one = sum(numbers / t for _ in ("add up", "share") for _ in range(t - 1))
    passes = ["forward", "backward"] + ["forward again"] * more.get("recompute", False)
    total = sum(one for _ in passes for _ in ("attention", "MLP"))
    total *= more.get("layers", 1) * more.get("microbatches", 1)
    return {"bytes": float(total * more.get("bytes_per_number", 2))}


@wrong("Half of it: two all-reduces each way in a layer, and a ring goes round twice in each.")
def two_reduces_a_layer():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 3 if recompute else 2
        return layers * microbatches * reduces * 2 * (t - 1) / t * payload

    return tp_traffic_bytes


@wrong("That is the payload: on a ring a rank sends 2 (t-1)/t of it.")
def payload_for_sent():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * payload

    return tp_traffic_bytes


@wrong(
    "It grows with t as if everything were gathered: a rank sends 2 (t-1)/t, which never reaches 2."
)
def grows_with_t():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * (t - 1) * payload

    return tp_traffic_bytes


@wrong("These are the bytes of all t ranks together: one GPU's are asked for.")
def all_ranks_together():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * 2 * (t - 1) * payload

    return tp_traffic_bytes


@wrong("What comes in is counted as well: the bytes that one GPU sends are asked for.")
def sent_and_received():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * 4 * (t - 1) / t * payload

    return tp_traffic_bytes


@wrong("One rank alone sends nothing: the factor is 2 (t-1)/t, not 2.")
def never_nothing():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * 2 * payload

    return tp_traffic_bytes


@wrong("Recompute runs forward once more, not backward: six all-reduces, not eight.")
def recompute_doubles():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 8 if recompute else 4
        return layers * microbatches * reduces * 2 * (t - 1) / t * payload

    return tp_traffic_bytes


@wrong("Recompute runs the forward pass again, its all-reduces as well.")
def recompute_for_free():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 4
        return layers * microbatches * reduces * 2 * (t - 1) / t * payload

    return tp_traffic_bytes


@wrong("Every microbatch makes its own all-reduces.")
def microbatches_ignored():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * reduces * 2 * (t - 1) / t * payload

    return tp_traffic_bytes


@wrong("A number has bytes_per_number bytes, which need not be 2.")
def always_two_bytes():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * 2
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * 2 * (t - 1) / t * payload

    return tp_traffic_bytes


@wrong("It grows with h squared: weights are never sent, only activations, s·b·h numbers.")
def weights_sent():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = 12 * h * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * 2 * (t - 1) / t * payload

    return tp_traffic_bytes


@wrong("The result is in MB: bytes are asked for.")
def in_MB():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        payload = s * b * h * bytes_per_number
        reduces = 6 if recompute else 4
        return layers * microbatches * reduces * 2 * (t - 1) / t * payload / 1e6

    return tp_traffic_bytes


@also_right("as reduce-scatter and all-gather, in exact fractions")
def reduce_scatter_and_all_gather():
    from fractions import Fraction

    def tp_traffic_bytes(s, b, h, t, **more):
        chunk = Fraction(s * b * h * more.get("bytes_per_number", 2), t)
        reduce_scatter = all_gather = (t - 1) * chunk
        pairs = 2 * (3 if more.get("recompute") else 2)
        return (
            pairs
            * (reduce_scatter + all_gather)
            * more.get("layers", 1)
            * more.get("microbatches", 1)
        )

    return tp_traffic_bytes


@also_right("the steps of a ring, one by one")
def step_by_step():
    def tp_traffic_bytes(
        s, b, h, t, *, layers=1, microbatches=1, bytes_per_number=2, recompute=False
    ):
        sent_bytes = 0.0
        for _ in range(2 * (t - 1)):
            sent_bytes += s * b * h * bytes_per_number / t
        return sent_bytes * layers * microbatches * (4 + 2 * recompute)

    return tp_traffic_bytes


EQUIVALENT = {}
