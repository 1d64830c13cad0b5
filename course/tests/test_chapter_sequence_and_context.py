"""Every number of the chapter on sequence and context parallelism, computed again."""

from math import exp, isclose, log

import pytest
import torch
from chapter import Chapter

CHAPTER = Chapter("sequence-and-context")

# Llama 3.1 405B at its longest
h, L, s, t = 16_384, 126, 131_072, 8
g = 8 / 128
n = s * h
layer_matrices = 11.875 * h**2  # lab 1's chapter
reached = 0.40 * 989e12  # FLOP/s
network = 400e9 / 8  # bytes/s, one way
GB = 1e9


def ring(c: int, g: float) -> float:
    """Numbers that a rank sends for a layer: keys and values twice, their gradients once."""
    return 3 * (2 * g * n) * (c - 1) / c


def ulysses(c: int, g: float) -> float:
    """Numbers in both passes: queries, keys, values and outputs, a c-th of which stays."""
    return 2 * (1 + g + g + 1) * n / c * (c - 1) / c


def row(name: str, sent, g: float) -> str:
    return f"| {name} | " + " | ".join(f"{2 * sent(c, g) / GB:.2f}" for c in (2, 4, 8, 16)) + " |"


def work(ranks: int, owner) -> list[float]:
    """Pairs of chunks that each rank computes under a causal mask; one on the diagonal is half."""
    done = [0.0] * ranks
    for chunk in range(2 * ranks):
        done[owner(chunk)] += chunk + 0.5
    return done


first_stage = L * 2 * n / t
SAID = {
    "a layer's input": f"2n bytes are {2 * n / GB:.2f} GB",
    "shared": f"Share it over t = 8 ranks: {2 * n / t / GB:.3f} GB",
    "first stage": f"still holds L layers' worth, {first_stage / GB:.1f} GB",
    "state": f"of the model, {4 * 405e9 / (8 * 16) / GB:.1f} GB, an H100",
    "with c": f"with c = 16 the {first_stage / GB:.1f} GB become {first_stage / 16 / GB:.2f} GB",
    "hidden": f"40 % of an H100's 989 TFLOP/s and a network of {network / 1e9:.0f} GB/s "
    f"that is {2 * reached / network:,.0f} tokens on each rank for g = 1, and "
    f"{2 * g * reached / network:.0f} for g = 1/16",
    "gathered": f"A layer's are 4gn bytes: {4 * g * n / 1e6:.0f} MB for 131,072 tokens with 8 "
    f"heads of 128, {4 * g * n / t / 1e6:.0f} MB after sharing",
    "gathered, all heads": f"With all heads it would be {4 * n / GB:.2f} GB",
    "per rank": f"131,072/16 = {s // 16:,} tokens of a sequence",
    "scores": f"{2 * s * h / (2 * layer_matrices):.0%}".replace("%", " % of the FLOP of a layer's"),
    "ring": row("ring, all heads", ring, 1),
    "ulysses": row("Ulysses, all heads", ulysses, 1),
    "ring, few": row("ring, g = 1/16", ring, g),
    "ulysses, few": row("Ulysses, g = 1/16", ulysses, g),
}  # fmt: skip
QUOTED = {"380 TFLOP/s"}  # of Llama 3's paper, table 4


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 10
    assert CHAPTER.unproved(SAID.values()) <= QUOTED, CHAPTER.unproved(SAID.values())


def test_claims_without_a_unit_hold():
    assert first_stage + 4 * 405e9 / 128 > 80e9  # "an H100 is full"
    assert (1 * 3 + 2 * 9) / 3 == 7
    for c in (2, 4, 8, 16):
        assert isclose(ulysses(c, 1) / ring(c, 1), 4 / (3 * c))
        assert (ring(c, g) < ulysses(c, g)) == (c <= 8)
    assert 2 * g * reached / network < s / 16 < 2 * reached / network
    assert 8 * 16 * 16 * 8 == 16_384
    weight = exp(0 - log(exp(0) + exp(log(3))))
    assert isclose(weight * 8 + (1 - weight) * 4, 5)


def test_a_row_of_chunks_is_unfair_and_pairs_are_fair():
    assert [16 * x / 32 for x in work(4, lambda k: k // 2)] == [1, 3, 5, 7]
    for c, times in ((4, "1.75"), (16, "1.94")):
        in_a_row = work(c, lambda k: k // 2)
        assert f"{max(in_a_row) * c / sum(in_a_row):.2f}" == times
        assert f"{times} times" in CHAPTER.words
        assert len(set(work(c, lambda k, c=c: min(k, 2 * c - 1 - k)))) == 1
    pairs = work(8, lambda k: min(k, 15 - k))
    assert (pairs[0], sum(pairs)) == (16, 128)


def test_with_pairs_every_hop_has_two_chunk_pairs_for_each_rank():
    for c in (2, 3, 5):
        chunks = [(r, 2 * c - 1 - r) for r in range(c)]
        for mine in chunks:
            for theirs in chunks:
                done = sum(1 if q > k else 0.5 if q == k else 0 for q in mine for k in theirs)
                assert done == 2


@pytest.mark.parametrize("causal", [False, True])
def test_pieces_merge_exactly_forward_and_backward(causal):
    """The chapter's formulas on a ring of three, in fair chunks, against autograd on the whole."""
    c, length, width = 3, 12, 4
    make = torch.Generator().manual_seed(1)
    q, k, v, grad = (
        torch.randn(length, width, generator=make, dtype=torch.float64) for _ in range(4)
    )
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    scores = whole[0] @ whole[1].T
    hidden = torch.ones(length, length).triu(1).bool() if causal else torch.zeros(1).bool()
    out = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ whole[2]
    out.backward(grad)

    parts = torch.arange(length).chunk(2 * c)
    held = [torch.cat([parts[r], parts[2 * c - 1 - r]]) for r in range(c)]
    grads_k, grads_v, hops = torch.zeros_like(k), torch.zeros_like(v), 0
    outputs, sums = {}, {}
    for r in range(c):
        mine = held[r]
        total, o = (
            torch.full((len(mine),), -torch.inf, dtype=q.dtype),
            torch.zeros(len(mine), width),
        )
        for hop in range(c):
            theirs = held[(r - hop) % c]
            x = q[mine] @ k[theirs].T
            if causal:
                x = x.masked_fill(mine[:, None] < theirs[None, :], -torch.inf)
            piece = x.logsumexp(-1)
            weights = torch.where(x == -torch.inf, 0.0, (x - piece[:, None]).exp())
            merged = torch.logaddexp(total, piece)
            o = (total - merged).exp()[:, None] * o + (piece - merged).exp()[:, None] * (
                weights @ v[theirs]
            )
            total = merged
        outputs[r], sums[r] = o, total
        assert torch.allclose(o, out[mine].detach(), atol=1e-12)  # float64, sums of 12
    for owner in range(c):  # dK, dV of a block start one rank on and end at home
        block = held[owner]
        travelling_k, travelling_v = torch.zeros(len(block), width), torch.zeros(len(block), width)
        for hop in range(1, c + 1):
            r = (owner + hop) % c
            mine = held[r]
            x = q[mine] @ k[block].T
            if causal:
                x = x.masked_fill(mine[:, None] < block[None, :], -torch.inf)
            p = (x - sums[r][:, None]).exp()
            d = (grad[mine] * outputs[r]).sum(-1, keepdim=True)
            dx = p * (grad[mine] @ v[block].T - d)
            travelling_k = travelling_k + dx.T @ q[mine]
            travelling_v = travelling_v + p.T @ grad[mine]
            hops += hop < c
        grads_k[block], grads_v[block] = travelling_k, travelling_v
    assert hops == c * (c - 1)
    assert torch.allclose(grads_k, whole[1].grad, atol=1e-12)
    assert torch.allclose(grads_v, whole[2].grad, atol=1e-12)
