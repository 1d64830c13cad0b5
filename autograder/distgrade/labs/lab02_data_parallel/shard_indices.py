"""Which samples a rank reads: `shard_indices(samples, size, rank, *, seed, mode)` -> list of ints.

All samples are shuffled by the seed, in the same order on every rank, then shared out.
`mode` says what happens where `size` ranks do not divide `samples`: "drop" leaves samples out until
all ranks have equally many; "pad" repeats samples, as few and as evenly as possible; "all" uses
each once, and the ranks' counts differ by one at most.
Raises: ValueError for any other mode.
Any order and any way to share out is right that keeps this: the judge counts how often each sample
occurs. Before each call the harness sets the global random states differently, as on ranks that are
processes. Oracle: counts alone, from divmod.
Source: torch.utils.data.DistributedSampler ("drop" and "pad" are its drop_last).
"""

from distgrade.compare import Symptom, name
from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("shard_indices",)
FORBID = ()
TOLERANCE = Exact()
CREDIT = {"drop": 1, "pad": 2, "all": 1}
CASES = (
    Case("one rank", "all", n=1, samples=13, mode="all"),
    Case("two ranks, 24 samples", "pad", n=2, samples=24, mode="pad"),
    Case("four ranks, 31 samples", "drop", n=4, samples=31, mode="drop"),
    Case("three ranks, 25 samples", "pad", n=3, samples=25, mode="pad"),
    Case("five ranks, 2 samples", "pad", n=5, samples=2, mode="pad"),
    Case("four ranks, 30 samples", "all", n=4, samples=30, mode="all"),
    Case("an unknown mode", "all", n=2, samples=8, mode="some", expects=ValueError),
)


def given(case, seed):
    return {"samples": case.samples, "size": case.n, "mode": case.mode, "seed": seed % 1000}


def observe(student, given):
    import random

    import numpy as np
    import torch

    def ask(rank, seed, state):
        random.seed(state)
        np.random.seed(state)
        torch.manual_seed(state)
        answer = student.shard_indices(
            given["samples"], given["size"], rank, seed=seed, mode=given["mode"]
        )
        if isinstance(answer, torch.Tensor | np.ndarray):
            answer = answer.tolist()
        if not isinstance(answer, list | tuple | range):
            return answer
        whole = [int(i) for i in answer if isinstance(i, int | np.integer)]
        if len(whole) != len(answer):
            return None
        return torch.tensor(whole, dtype=torch.int64)

    ranks, seed = range(given["size"]), given["seed"]
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state())
    try:
        return {
            "samples": [ask(rank, seed, 7 + rank) for rank in ranks],
            "samples asked for again": [ask(rank, seed, 70 + rank) for rank in ranks],
            "samples with another seed": [ask(rank, seed + 1, 7 + rank) for rank in ranks],
        }
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


def oracle(case, given):
    import torch

    each, rest = divmod(case.samples, case.n)
    lengths = {
        "drop": [each] * case.n,
        "pad": [each + (rest > 0)] * case.n,
        "all": [each + (rank < rest) for rank in range(case.n)],
    }[case.mode]
    # One right answer: dealt out in turn without a shuffle. The judge reads only how often each
    # sample occurs, and how many each rank has.
    dealt, begin = [], 0
    for length in lengths:
        dealt.append(torch.arange(begin, begin + length) % case.samples)
        begin += length
    return {
        "samples": dealt,
        "samples asked for again": dealt,
        "samples with another seed": dealt,
    }


def judge(got, expected, case):
    import torch

    def occurrences(parts):
        return torch.cat(parts).bincount(minlength=case.samples)

    def told(key, rank, seen, kind="values", look=""):
        what = name((key, rank), case.n) if rank is not None else key
        return Symptom(kind, what, seen, look)

    symptoms = []
    for key in expected:
        for rank, part in enumerate(got[key]):
            if not isinstance(part, torch.Tensor) or part.dtype != torch.int64:
                return [told(key, rank, "not a list of whole numbers", "structure")]
            if part.numel() and not 0 <= part.min() <= part.max() < case.samples:
                return [told(key, rank, "there is no sample with such a number")]
        right, mine = occurrences(expected[key]), occurrences(got[key])
        lengths = [sorted(map(len, tree[key])) for tree in (got, expected)]
        if lengths[0] != lengths[1]:
            seen = f"ranks have {', '.join(str(len(part)) for part in got[key])} samples"
            look = {
                "drop": "All ranks have equally many, and as many as there are for all of them.",
                "pad": "All ranks have equally many, and no more than hold every sample.",
                "all": "Counts differ by one at most: the rest is shared out too.",
            }[case.mode]
            symptoms.append(told(key, None, seen, look=look))
        elif not torch.equal(mine.sort().values, right.sort().values):
            lost, most = int((mine == 0).sum()), int(mine.max())
            seen = f"{lost} of {case.samples} samples occur nowhere, one occurs {most} times"
            look = "Repeat as evenly as possible: no sample again before all others were repeated."
            if lost > (right == 0).sum():
                look = "Shuffle once, alike on every rank, then share out: each has its place once."
            symptoms.append(told(key, None, seen, look=look))
    first, again, other = (got[key] for key in expected)
    for rank, (one, two) in enumerate(zip(first, again, strict=True)):
        if not torch.equal(one, two):
            seen = "another answer where the same was asked for"
            look = "The seed alone decides: take a generator from it, not the global random state."
            symptoms.append(told("samples asked for again", rank, seen, look=look))
    if case.samples > 2 and symptoms == []:
        if torch.equal(torch.cat(first), torch.cat(other)):
            look = "Nothing is shuffled: the seed should choose the order."
            symptoms.append(
                told("samples with another seed", None, "the same order again", look=look)
            )
        elif case.n > 1 and all(
            set(one.tolist()) == set(two.tolist()) for one, two in zip(first, other, strict=True)
        ):
            seen = "every rank has the samples that it had before"
            look = "Shuffle all samples before they are shared out, not each rank's own."
            symptoms.append(told("samples with another seed", None, seen, look=look))
        if torch.equal(torch.cat(first), torch.cat(expected["samples"])):
            symptoms.append(told("samples", None, "they are not shuffled"))
    return symptoms


@wrong(
    "The rank is part of the seed: all ranks must shuffle alike, or samples are lost and doubled."
)
def a_shuffle_for_each_rank():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        random.Random(1000 * seed + rank).shuffle(order)
        if mode == "drop":
            order = order[: samples // size * size]
        if mode == "pad":
            order = [order[i % samples] for i in range(-(-samples // size) * size)]
        return order[rank::size]

    return shard_indices


@wrong("The tail is lost: only mode “drop” may leave samples out.")
def tail_always_lost():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        random.Random(seed).shuffle(order)
        return order[: samples // size * size][rank::size]

    return shard_indices


@wrong("Samples are repeated in every mode: only “pad” may do that.")
def always_padded():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        random.Random(seed).shuffle(order)
        order = [order[i % samples] for i in range(-(-samples // size) * size)]
        return order[rank::size]

    return shard_indices


@wrong("All ranks' counts are left unequal in every mode: “drop” and “pad” should make them equal.")
def never_equal():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        random.Random(seed).shuffle(order)
        return order[rank::size]

    return shard_indices


@wrong("One round of padding is too little where there are more missing places than samples.")
def padded_once():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        random.Random(seed).shuffle(order)
        if mode == "drop":
            order = order[: samples // size * size]
        if mode == "pad":
            order = order + order[: -samples % size]
        return order[rank::size]

    return shard_indices


@wrong("The last sample is repeated for all missing places: start again from the first instead.")
def last_one_repeated():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        random.Random(seed).shuffle(order)
        if mode == "drop":
            order = order[: samples // size * size]
        if mode == "pad":
            order = order + order[-1:] * (-samples % size)
        return order[rank::size]

    return shard_indices


@wrong("Nothing is shuffled: the seed should choose the order.")
def not_shuffled():
    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        if mode == "drop":
            order = order[: samples // size * size]
        if mode == "pad":
            order = [order[i % samples] for i in range(-(-samples // size) * size)]
        return order[rank::size]

    return shard_indices


@wrong(
    "Each rank shuffles its own block: shuffle all samples, so that another seed mixes the ranks."
)
def shuffled_within_the_rank():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        if mode == "drop":
            order = order[: samples // size * size]
        if mode == "pad":
            order = [order[i % samples] for i in range(-(-samples // size) * size)]
        mine = order[rank::size]
        random.Random(seed).shuffle(mine)
        return mine

    return shard_indices


@wrong("The global random state decides: ranks don't share it, so take a generator from the seed.")
def global_state():
    import torch

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = torch.randperm(samples).tolist()
        if mode == "drop":
            order = order[: samples // size * size]
        if mode == "pad":
            order = [order[i % samples] for i in range(-(-samples // size) * size)]
        return order[rank::size]

    return shard_indices


@wrong("Any mode will do here: one that is not “drop”, “pad” or “all” should raise ValueError.")
def any_mode():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        order = list(range(samples))
        random.Random(seed).shuffle(order)
        if mode == "drop":
            order = order[: samples // size * size]
        if mode == "pad":
            order = [order[i % samples] for i in range(-(-samples // size) * size)]
        return order[rank::size]

    return shard_indices


@wrong("The last rank takes all of the rest: counts should differ by one at most.")
def rest_to_the_last():
    import random

    def shard_indices(samples, size, rank, *, seed, mode):
        if mode not in ("drop", "pad", "all"):
            raise ValueError(f"no mode {mode!r}")
        order = list(range(samples))
        random.Random(seed).shuffle(order)
        each = samples // size
        if mode == "pad":
            each = -(-samples // size)
            order = [order[i % samples] for i in range(each * size)]
        last = mode == "all" and rank == size - 1
        return order[rank * each : None if last else (rank + 1) * each]

    return shard_indices


@also_right("torch's generator and blocks of neighbours")
def blocks():
    import torch

    def shard_indices(samples, size, rank, *, seed, mode):
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
        if mode == "drop":
            order = order[: samples - samples % size]
        elif mode == "pad":
            order = order.repeat(size)[: samples + -samples % size]
        elif mode != "all":
            raise ValueError(f"there is no mode {mode!r}")
        return order.tensor_split(size)[rank]

    return shard_indices


@also_right("numpy's generator, the rank's places in the order reckoned one by one")
def place_by_place():
    import numpy as np

    def shard_indices(samples, size, rank, *, seed, mode):
        order = np.random.default_rng(seed).permutation(samples)
        each, rest = divmod(samples, size)
        extra = {"drop": False, "pad": rest > 0, "all": rank < rest}
        if mode not in extra:
            raise ValueError(mode)
        return [order[(rank + size * i) % samples] for i in range(each + extra[mode])]

    return shard_indices


EQUIVALENT = {}
