"""Every number of the chapter on partitions, computed again."""

from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from math import comb, floor, log10

import pytest
from chapter import Chapter

from distlab import partition
from distlab.schedule import interleaved, one_f_one_b, simulate

CHAPTER = Chapter("lab05-layer-partitioning")

COSTS, STAGES = [3, *[1] * 10, 4], 4
THREE_EACH, BOOK = [0, 3, 6, 9, 12], [0, 2, 6, 10, 12]


def loads(bounds, costs=COSTS):
    return [sum(costs[i:j]) for i, j in pairwise(bounds)]


def step(stages, m):
    """A step of 1F1B, backward twice as long as forward."""
    forward, backward = ([Fraction(part * time, 3) for time in stages] for part in (1, 2))
    return simulate(one_f_one_b(len(stages), m), forward=forward, backward=backward).makespan


every = [[0, *cuts, 12] for cuts in combinations(range(1, 12), STAGES - 1)]
best_slot = min(max(loads(bounds)) for bounds in every)
best = [bounds for bounds in every if max(loads(bounds)) == best_slot]
steps = [step(loads(bounds), 8) for bounds in best]
others = [took for took in steps if took != 52]
mean, uneven, book = Fraction(sum(COSTS), STAGES), loads(THREE_EACH), loads(BOOK)

# Transfers and memory, as in the lab
transfer = [1, 2, 2, 0.5, 2, 2, 2, 0.5, 2, 2, 1]
edges = [0, *transfer, 0]
exposed = [load + edges[i] + edges[j] for load, (i, j) in zip(book, pairwise(BOOK), strict=True)]
weights, activations = [12, *[4] * 10, 12], [1, *[2.5] * 10, 1]


def kept(bounds):
    return [
        sum(weights[i:j]) + (STAGES - s) * sum(activations[i:j])
        for s, (i, j) in enumerate(pairwise(bounds))
    ]


fitting = [bounds for bounds in every if max(kept(bounds)) <= 40]
fitting_slot = min(max(loads(bounds)) for bounds in fitting)

# Chunks
fine = [2, *[1] * 48, 6]


def chunked_step(v):
    plan = partition.interleaved(fine, STAGES, v)
    loads = [Fraction(load) / 3 for load in plan.chunk_loads]
    forward = [loads[rank::STAGES] for rank in range(STAGES)]
    backward = [[2 * time for time in row] for row in forward]
    return simulate(interleaved(STAGES, 8, v), forward=forward, backward=backward).makespan


# VGG-16: pixels, and channels in and out; three products of 2 FLOP, 32 images, 10 TFLOP/s
groups = [
    (224, [(3, 64), (64, 64)]),
    (112, [(64, 128), (128, 128)]),
    (56, [(128, 256), (256, 256), (256, 256)]),
    (28, [(256, 512), (512, 512), (512, 512)]),
    (14, [(512, 512)] * 3),
]
linear = [512 * 49 * 4096, 4096**2, 4096 * 1000]
params = [sum(9 * a * b for a, b in group) for _, group in groups] + linear
macs = [n**2 * count for (n, _), count in zip(groups, params[:5], strict=True)] + linear
compute_s = [6 * 32 * count / 10e12 for count in macs]


def replicated_s(i, j, m, rate):
    moved = 2 * (m - 1) / m * 4 * sum(params[i:j]) / rate
    return (sum(compute_s[i:j]) + moved) / m


def vgg(rate):
    """The best slot, by fewest machines below a limit; the one of data parallelism. In ms."""
    both = 2 * rate  # the library's weights weigh twice
    sizes = [4 * count for count in params]
    plan = partition.replicated(compute_s, 16, weight_bytes=sizes, rate_bytes_per_s=both)
    partition.check_fewest(plan)
    return 1e3 * plan.value, 1e3 * replicated_s(0, 8, 16, rate)


def row(gb_per_s, machines, bounds):
    rate = gb_per_s * 1e9
    slot, alone = vgg(rate)
    stages = zip(pairwise(bounds), machines, strict=True)
    mine = 1e3 * max(replicated_s(i, j, m, rate) for (i, j), m in stages)
    assert abs(mine / slot - 1) < 1e-12  # the machines of the table are among the best
    said = " + ".join(map(str, machines))
    return f"| {gb_per_s:g} GB/s | {said} | {slot:.1f} ms | {alone:.1f} ms |"


SAID = {  # what stands in the chapter, with every number computed here
    "times": f"an embedding of {COSTS[0]} ms, ten layers of {COSTS[1]} ms, a head of "
    f"{COSTS[-1]} ms, {sum(COSTS)} ms in all",
    "three each": f"make stages of {', '.join(map(str, uneven[:-1]))} and {uneven[-1]} ms",
    "a slot": f"a slot lasts {max(uneven)} ms, and a stage works {float(mean)} ms of it, "
    f"{float(mean / max(uneven)):.0%}".replace("%", " %"),
    "the bubble": f"Together they take {' + '.join(map(str, uneven[:-1]))} = {sum(uneven[:-1])} ms",
    "paid once": f"The {sum(uneven[:-1])} ms are paid once a step",
    "the formula": rf"m \cdot {max(uneven)}\ \text{{ms}} + {sum(uneven[:-1])}\ \text{{ms}}",
    "imbalance": f"The {float(max(uneven) - mean)} ms that a stage waits on average are paid in "
    f"*every* slot, {float(1 - mean / max(uneven)):.0%} of it".replace("%", " %"),
    "better": f"{', '.join(map(str, book[:-1]))} and {book[-1]} ms are possible: "
    f"{step(book, 8)} ms for eight microbatches in place of {step(uneven, 8)} ms, and "
    f"{step(book, 64)} ms in place of {step(uneven, 64)} ms for 64",
    "the bound": f"below the mean, {float(mean)} ms; in whole milliseconds that is {best_slot}.",
    "how many": f"There are {len(every)} ways to cut twelve layers into four stages, and "
    f"10¹⁷ for 96 layers on 16",
    "table's steps": f"no more than L²p steps, {96**2 * 16:,} for 96 layers on 16 stages",
    "its steps again": f"{96**2 * 16:,} steps, so yes",
    "greedy": "makes stages of 5, 5 and 7 ms, and none is left for the fourth",
    "ties": f"It is one of **{len(best)}** best partitions out of {len(every)}",
    "ties again": f"One of {len(best)} of {len(every)}",
    "their steps": f"the nine whose last stage takes {best_slot} ms need 52 ms, the others "
    f"{min(others)} to {max(others)} ms",
    "the proof": f"Why is nothing below {best_slot} ms?",
    "runs": f"runs** of neighbouring layers that take {best_slot} ms or more",
    "below": f"wants every stage below {best_slot} ms",
    "overlapped": "Overlapped, 5 ms are still possible",
    "transfers": "takes 2 ms nearly everywhere, 0.5 ms after layers 3 and 7 and 1 ms next to",
    "exposed": f"becomes a slot of {max(exposed):g} ms, and the best one is "
    f"{partition.min_max(COSTS, STAGES, exposed=transfer).value:g} ms",
    "memory": f"Give embedding and head {weights[0]} GB each, the layers {weights[1]} GB, and "
    f"activations of {activations[1]} GB in a layer and {activations[0]} GB at the ends. "
    "On GPUs of 40 GB *none*",
    "too much": f"needs {max(kept(BOOK)):g} GB on stage {kept(BOOK).index(max(kept(BOOK)))}",
    "what fits": f"The best that fits has a slot of {fitting_slot} ms",
    "noise": f"{1.05 / 0.95 - 1:.1%} for ε = 5 %".replace("%", " %", 1),
    "chunks": f"With {len(fine) - 2} layers of {fine[1]} ms, an embedding of {fine[0]} ms and "
    f"a head of {fine[-1]} ms",
    "chunks' steps": f"take {chunked_step(1)} ms without interleaving, and "
    f"{chunked_step(2)} ms with two chunks each. With four chunks it is "
    f"{float(chunked_step(4)):.0f} ms: "
    f"the sums are equal again, {sum(fine) / STAGES:g} ms each",
    "vgg, slow": row(0.5, [14, 1, 1], [0, 4, 5, 8]),
    "vgg, 10 Gb/s": row(1.25, [13, 2, 1], [0, 4, 5, 8]),
    "vgg, 100 Gb/s": row(12.5, [15, 1], [0, 5, 8]),
    "vgg, NVLink": row(450, [16], [0, 8]),
    "greedy misread": "5, 5 and 7 ms on the same twelve layers",
    "check yourself": f"5m + {sum(book) - 5} ms; a stage works {float(mean)} ms of 5, so "
    f"{float(1 - mean / 5):.0%}".replace("%", " %"),
    "figures' caption": f"Four bars of 5, 3, 3 and 6 ms for three layers each; a dashed line at 6, "
    f"a dotted one at the mean, {float(mean)}",
    "shares' caption": f"for stages of 5, 3, 3, 6 ms, for 4, 4, 4, 5 ms and for equal ones: all "
    f"three fall, toward {float(1 - mean / 6):.0%}, {float(1 - mean / 5):.0%} and 0".replace(
        "%, ", " %, "
    ).replace("% and", " % and"),
    "runs' caption": "four runs of 5 ms, each beginning",
    "embedding": "an embedding of 3 ms",
    "stages again": "Stages of 4, 4, 4 and 5 ms",
}
QUOTED = {  # measurements of libraries, a specification, and choices of the course
    "35 %", "0.1 %", "8.1 %", "58 %", "78 %", "147 s", "5 %", "10 TFLOP/s",
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 20
    assert CHAPTER.unproved(SAID.values()) <= QUOTED


def test_claims_without_a_unit_hold():
    assert best_slot == -(-sum(COSTS) // STAGES) == partition.min_max(COSTS, STAGES).value
    assert floor(log10(comb(95, 15))) == 17
    assert floor(log10(100_000**2 * 1_024)) == 13
    assert BOOK in best
    assert [j - i for i, j in pairwise(BOOK)] == [2, 4, 4, 2]  # "2, 4, 4 and 2 layers"
    late = [loads(bounds)[-1] == best_slot for bounds in best]
    assert sum(late) == 9
    assert [took == 52 for took in steps] == late
    assert not [bounds for bounds in best if bounds in fitting]  # "none of the fifteen"
    assert partition.min_max(COSTS, STAGES, overlapped=transfer).value == best_slot
    cheap = partition.min_max(COSTS, STAGES, exposed=transfer).cuts
    assert {4, 8} <= set(cheap)  # "its cuts lie at the cheap places", after layers 3 and 7
    assert all(step(uneven, m) == 6 * m + 11 for m in (4, 8, 64))
    assert all(step(book, m) == 5 * m + 12 for m in (4, 8, 64))


def test_the_lab_says_how_far_apart_the_steps_of_ties_are():
    path = CHAPTER.path.parents[2] / "source" / CHAPTER.path.stem / f"{CHAPTER.path.stem}.ipynb"
    said = f"eight microbatches take {min(steps)} to {max(steps)} ms with the fifteen"
    assert said in path.read_text("utf-8")


def test_greedy_does_what_the_chapter_says():
    at_mean, below_mean = [0], [0]
    for i in range(1, 12):
        if sum(COSTS[at_mean[-1] : i]) >= mean:
            at_mean.append(i)
        if sum(COSTS[below_mean[-1] : i + 1]) > mean and len(below_mean) < STAGES:
            below_mean.append(i)
    assert loads([*at_mean, 12]) == [5, 5, 7]
    assert loads([*below_mean, 12]) == [4, 4, 4, 5]


def test_the_runs_are_a_proof():
    sums, runs, start = [0, *accumulate(COSTS)], [], 0
    for _ in range(STAGES):
        end = next(j for j in range(start, 13) if sums[j] - sums[start] >= best_slot)
        runs.append((start, end))
        start = end - 1
    assert runs == [(0, 3), (2, 7), (6, 11), (10, 12)]  # as in the picture
    assert [sums[j] - sums[i] for i, j in runs] == [5, 5, 5, 5]
    # "Costs 4, 2, 2, 4 on two stages"
    assert min(max(loads([0, cut, 4], [4, 2, 2, 4])) for cut in (1, 2, 3)) == 6
    assert (sum([4, 2]), sum([2, 2, 4])) == (6, 8)


def test_two_machines_may_be_slower_than_one_where_three_are_quicker():
    def slot(m, moved):  # C = 1, W / r = moved
        return (1 + 2 * (m - 1) / m * moved) / m

    for moved in (1.001, 1.25, 1.499):
        assert slot(3, moved) < slot(1, moved) < slot(2, moved)
    assert slot(2, 0.999) < slot(1, 0.999)
    assert slot(3, 1.501) > slot(1, 1.501)
