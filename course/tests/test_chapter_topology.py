"""Every number of the chapter on topology, computed again."""

from itertools import pairwise
from math import factorial, isclose

import pytest
from chapter import Chapter

CHAPTER = Chapter("topology")

nvlink, network, per_node, rack, pod, cluster = 450e9, 50e9, 8, 16, 3_072, 24_576
above = network / 7  # out of a pod, for each of its GPUs, if all send
way_out = pod * above

# Llama 3.1 405B on 16,384 GPUs
t, p, d, params, h, s, m = 8, 16, 128, 405e9, 16_384, 8_192, 16
gradients = 2 * (d - 1) / d * 2 * params / (t * p)
leaves_pod = t * p * gradients  # one flow for each place in a replica
boundary = d * m * 2 * s * h  # microbatches of one sequence, BF16
both_ends = 2 * boundary  # outputs at one end of a pod, gradients at the other

mixtral = 2 * 2 * 8_192 * 4_096 * 2  # both journeys of all copies, before any stays
across = mixtral / 2


def fullest(flows: int, cables: int) -> float:
    """The mean number of flows on the fullest cable, if each flow hits any cable alike."""
    mean = 0.0
    for room in range(flows):  # the chance that no cable has more than this many
        series = [1.0] + [0.0] * flows
        for _ in range(cables):
            series = [
                sum(series[n - i] / factorial(i) for i in range(min(n, room) + 1))
                for n in range(flows + 1)
            ]
        mean += 1 - series[flows] * factorial(flows) / cables**flows
    return mean


SAID = {
    "cluster": f"a third layer, 1 to 7 | {above / 1e9:.2f} |",
    "replica": f"24 of them fill a pod{'.' if pod == 24 * t * p else '?'}",
    "experts": f"With four of them in another pod, {across / 1e6:.0f} MB of it go across at "
    f"{above / 1e9:.2f} GB/s, and take {across / above * 1e3:.1f} ms",
    "experts before": f"{mixtral * 7 / 8 / 1e6:.0f} MB out of each of 8 ranks](experts.md"
    f"#where-they-live) in {mixtral * 7 / 8 / network * 1e3:.2f} ms",
    "gradients": f"a ring sends {gradients / 1e9:.2f} GB",
    "data outside": f"128 flows leave a pod, {leaves_pod / 1e12:.2f} TB in all. The pod's way out "
    f"bears {way_out / 1e12:.1f} TB/s: {leaves_pod / way_out:.3f} s",
    "pipeline outside": f"microbatches of {2 * s * h / 1e6:.0f} MB for each of 128 replicas, "
    f"shared by 8 tensor ranks: {boundary / 1e12:.3f} TB. Outputs leave a pod at one end and "
    f"gradients at the other, {both_ends / 1e12:.2f} TB or {both_ends / way_out:.3f} s",
    "chunks": f"eight times as much, {8 * both_ends / way_out:.3f} s",
    "shuffled": f"at {above / 1e9:.2f} GB/s, {gradients / above:.2f} s in place of "
    f"{leaves_pod / way_out:.3f} s",
    "shuffled again": f"at {leaves_pod / way_out:.3f} s a step, shuffled at "
    f"{gradients / above:.2f} s",
    "elsewhere": f"{63 - 7 - 7} are elsewhere: {49 / 63:.0%}".replace("%", " %"),
    "no collision": f"in {factorial(8) / 8**8:.2%}".replace("%", " % of cases"),
    "fullest": f"the fullest cable has {fullest(8, 8):.1f} of them",
    "flows": f"the fullest {fullest(128, 8):.1f}. Now {fullest(128, 8) / 16:.2f} times",
    "bus": f"are {2 * 7 / 8 / 0.045:.1f} GB/s, {2 * 7 / 8 / 0.045 / 50:.0%} of".replace("%", " %"),
    "hop": f"50.3 MB take {2 * 2048 * 12288 / network * 1e3:.1f} ms at 50 GB/s. A hop of 9.6 μs "
    f"more is {9.6e-6 / (2 * 2048 * 12288 / network):.0%}".replace("%", " %"),
    "payload": f"{2 * 2048 * 12288 / 1e6:.1f} MB take",
    "answer 1": f"Answers: {64 * 10} GB over {512 * 50 / 4:,.0f} GB/s: {640 / 6400:.1f} s",
    "answer 3": f"{160 // 2} MB of each: {80e6 / 7.14e9 * 1e3:.1f} ms",
    "answer 4": f"leave by 8 adapters, {8 * 50} GB/s",
}
QUOTED = {"450 GB/s", "900 GB/s", "400 Gb/s", "50 GB/s", "1 GB", "45 ms", "10 GB", "160 MB",
          "300 GB/s"}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 20
    assert CHAPTER.unproved(SAID.values()) <= QUOTED, CHAPTER.unproved(SAID.values())


def test_claims_without_a_unit_hold():
    assert nvlink / network == 9
    assert 8 * pod == cluster
    assert t * p * d == 16_384
    assert t * p == 8 * rack
    assert pod // (t * d) == 3  # stages in a pod, with the pipeline outside
    assert both_ends < leaves_pod < 8 * both_ends  # "pipelines send less here than gradients"


def test_what_crosses_a_cut():
    """Half of 8 ranks on each side: a ring crosses twice, an all-to-all with half of everything."""
    n = 8
    side = [rank < n // 2 for rank in range(n)]
    ring = [*range(n), 0]
    assert sum(side[a] != side[b] for a, b in pairwise(ring)) == 2
    sent = sum(1 / n for a in range(n) for b in range(n) if side[a] and not side[b])
    assert isclose(sent, n / 4)


def test_partners_keep_their_place_in_the_node():
    """With t = 8 they are on this rank's rail; with t = 4 a ring can alternate between two."""
    assert all(step % per_node == 0 for step in (8, 8 * 16))  # data and pipeline behind t = 8
    group = [4 * k for k in range(8)]  # a data group for t = 4: two ranks in each of four nodes
    ring = [0, 4, 12, 8, 16, 20, 28, 24, 0]
    assert sorted(ring[:-1]) == group
    for a, b in pairwise(ring):
        assert a // per_node == b // per_node or a % per_node == b % per_node
