"""Bytes that a rank of ZeRO sends in a step: `volume_bytes(n_params, n, stage, ...)`.

Weights and gradients have 2 bytes each. A reduce-scatter or an all-gather of S bytes on a ring
makes a rank send S (n-1)/n, an all-reduce twice that. Of m microbatches, stages 0 and 1 sum up the
gradients and send them once; stage 2 can't keep whole gradients and sends after each; stage 3 also
gathers the weights for each forward, and with `reshard` once more for each backward. Padding may
be counted or left out, bytes may be rounded to whole ones. Units: bytes of one rank.
Source: Rajbhandari et al. 2020 (arXiv:1910.02054), section 7; microbatches: derived here; reshard:
PyTorch 2.13, torch.distributed.fsdp.fully_shard, `reshard_after_forward`. Oracle: the step's calls
are walked through one by one, hop by hop round a ring.
"""

from distgrade.compare import compare
from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("volume_bytes",)
FORBID = (
    "distlab.cost.ring_steps",
    "distlab.cost.ring_time_s",
    "distlab.cost.collective_time_s",
)
TOLERANCE = Close(1e-12, "(n-1)/n is rounded, in any order of factors")
CREDIT = {"a step": 2, "microbatches": 2}
CASES = (
    Case("data parallelism", "a step", n=4, count=1_632, stage=0, more={}),
    Case("ZeRO-1", "a step", n=64, count=7_500_000_000, stage=1, more={}),
    Case("ZeRO-2", "a step", n=3, count=1_633, stage=2, more={}),
    Case("ZeRO-3", "a step", n=5, count=1_201, stage=3, more={}),
    Case("one rank", "a step", n=1, count=99, stage=3, more={}),
    Case("ZeRO-3, weights kept", "a step", n=2, count=320, stage=3, more={"reshard": False}),
    Case("DP, 8 microbatches", "microbatches", n=4, count=400, stage=0, more={"microbatches": 8}),
    Case("ZeRO-1, 8", "microbatches", n=4, count=401, stage=1, more={"microbatches": 8}),
    Case("ZeRO-2, 6", "microbatches", n=3, count=300, stage=2, more={"microbatches": 6}),
    Case("ZeRO-3, 8", "microbatches", n=4, count=400, stage=3, more={"microbatches": 8}),
    Case(
        "ZeRO-3, 5, weights kept",
        "microbatches",
        n=2,
        count=100,
        stage=3,
        more={"microbatches": 5, "reshard": False},
    ),
    Case(
        "ZeRO-2, 5, no weights to keep",
        "microbatches",
        n=2,
        count=100,
        stage=2,
        more={"microbatches": 5, "reshard": False},
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other models.
    more = int(integers((1,), "volume_bytes", case.name, seed, low=1, high=99)[0]) if seed else 0
    return {"sizes": [case.count + more, case.n, case.stage], "more": case.more}


def observe(student, given):
    answer = student.volume_bytes(*given["sizes"], **given["more"])
    sent = answer.item() if hasattr(answer, "item") else answer
    return {"bytes": sent, "with padding": sent}  # either is right


def oracle(case, given):
    from fractions import Fraction

    n_params, n, stage = given["sizes"]
    microbatches, reshard = case.more.get("microbatches", 1), case.more.get("reshard", True)
    calls = []
    for i in range(microbatches):
        if stage == 3:
            calls += ["gather for forward"] + ["gather for backward"] * reshard
        if stage >= 2 or i == microbatches - 1:
            calls.append("reduce-scatter of gradients")
    if stage < 3:
        # Of gradients in data parallelism, which makes its all-reduce; else of new weights.
        calls.append("gather at the end")

    def sent(numbers):
        return sum(Fraction(2 * numbers, n) for _ in calls for _ in range(n - 1))

    return {"bytes": float(sent(n_params)), "with padding": float(sent(n_params + -n_params % n))}


def judge(got, expected, case):
    symptoms = []
    for key in ("bytes", "with padding"):
        wrong = compare({"bytes": got[key]}, {"bytes": expected[key]}, rtol=TOLERANCE.rtol)
        rounded = isinstance(got[key], int) and abs(got[key] - expected[key]) < 1
        if not wrong or rounded:
            return []
        symptoms = symptoms or wrong
    return symptoms


@also_right("a table of how often the model goes round")
def by_a_table():
    def volume_bytes(n_params, n, stage, *, microbatches=1, reshard=True):
        gathers = 2 if reshard else 1
        times = [2, 2, microbatches + 1, (gathers + 1) * microbatches][stage]
        return times * 2 * n_params * (n - 1) / n

    return volume_bytes


no_ring = slip(
    by_a_table,
    "That is what goes into the calls: on a ring a rank sends (n-1)/n of it, and alone nothing.",
    (" * (n - 1) / n", ""),
)
all_ranks = slip(
    by_a_table,
    "That is all n ranks together: one rank's bytes are asked for.",
    (" * (n - 1) / n", " * (n - 1)"),
)
a_shard_to_all_others = slip(
    by_a_table,
    "It counts a shard only: in n - 1 hops a rank hands on n - 1 shards.",
    (" * (n - 1) / n", " / n"),
)
numbers_not_bytes = slip(
    by_a_table,
    "These are numbers: each has 2 bytes.",
    ("times * 2 * n_params", "times * n_params"),
)
sent_and_received = slip(
    by_a_table,
    "What comes in is counted as well: the bytes that one rank sends are asked for.",
    ("times * 2 * n_params", "times * 4 * n_params"),
)
whole_numbers_of_a_shard = slip(
    by_a_table,
    "The rest is lost where n doesn't divide the parameters.",
    ("n_params * (n - 1) / n", "(n_params // n) * (n - 1)"),
)
first_stage_all_reduces = slip(
    by_a_table,
    "ZeRO-1 all-reduces here, and gathers: a reduce-scatter is enough, a rank updates one shard.",
    ("[2, 2, ", "[2, 3, "),
)
one_and_a_half_at_stage_2 = slip(
    by_a_table,
    "A half is added at stage 2: in one microbatch it sends as much as data parallelism.",
    ("microbatches + 1,", "microbatches + 2,"),
)
gathered_at_the_end_of_stage_3 = slip(
    by_a_table,
    "Stage 3 gathers the new weights after the step: they stay sharded until the next forward.",
    ("(gathers + 1) * microbatches]", "(gathers + 1) * microbatches + 1]"),
)
gathered_once_at_stage_3 = slip(
    by_a_table,
    "Stage 3 gathers once: the weights are let go after forward, and needed again for backward.",
    ("2 if reshard else 1", "1"),
)
reshard_ignored = slip(
    by_a_table,
    "With reshard=False the weights stay from forward to backward: no second gather.",
    ("2 if reshard else 1", "2"),
)
reshard_turned_round = slip(
    by_a_table,
    "`reshard` is turned round: where weights are let go, they are gathered twice.",
    ("2 if reshard else 1", "1 if reshard else 2"),
)
reshard_at_stage_2 = slip(
    by_a_table,
    "`reshard` changes stage 2: its weights are whole all the time, only stage 3 lets them go.",
    ("microbatches + 1,", "microbatches + 1 - (not reshard),"),
)
microbatches_ignored = slip(
    by_a_table,
    "The microbatches aren't counted: from stage 2 on, gradients are sent after each of them.",
    ("microbatches + 1,", "2,"),
    ("(gathers + 1) * microbatches]", "gathers + 1]"),
)
stage_2_waits = slip(
    by_a_table,
    "Stage 2 sends gradients once: to sum them up first it would keep whole gradients.",
    ("microbatches + 1,", "2,"),
)
everything_in_each = slip(
    by_a_table,
    "Everything is sent in each microbatch: weights change once, so stages 1 and 2 gather once.",
    ("[2, 2, microbatches + 1,", "[2, 2 * microbatches, 2 * microbatches,"),
)
all_stages_in_each = slip(
    by_a_table,
    "Stages 0 and 1 keep whole gradients: they sum up the microbatches and send once.",
    ("[2, 2, ", "[2 * microbatches, microbatches + 1, "),
)
weights_stay_for_all = slip(
    by_a_table,
    "Stage 3 gathers once for all microbatches: the weights are let go after each backward.",
    ("(gathers + 1) * microbatches]", "gathers + microbatches]"),
)


@also_right("call by call, with padding")
def call_by_call():
    def volume_bytes(n_params, n, stage, *, microbatches=1, reshard=True):
        shard_bytes = 2 * ((n_params + n - 1) // n)
        calls = 0
        for microbatch in range(microbatches):
            last = microbatch + 1 == microbatches
            calls += stage >= 2 or last  # gradients
            if stage == 3:
                calls += 1 + reshard
        if stage != 3:
            calls += 1  # weights, or the other half of an all-reduce
        return (n - 1) * shard_bytes * calls

    return volume_bytes


@also_right("in exact fractions, stage by stage")
def in_fractions():
    from fractions import Fraction

    def volume_bytes(n_params, n, stage, *, microbatches=1, reshard=True):
        once = 2 * n_params * (1 - Fraction(1, n))
        if stage == 3:
            once = once * microbatches
            return 3 * once if reshard else 2 * once
        return once + once * (microbatches if stage == 2 else 1)

    return volume_bytes


EQUIVALENT = {}
