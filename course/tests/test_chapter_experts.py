"""Every number of the chapter on experts, computed again."""

from math import exp, isclose, lgamma, log, sqrt

import pytest
import torch
from chapter import Chapter

CHAPTER = Chapter("experts")

# Mixtral 8x7B
h, f, E, k, layers, T, e = 4_096, 14_336, 8, 2, 32, 8_192, 8
in_experts = layers * E * 3 * h * f
elsewhere = 46.7e9 - in_experts  # lab 1's chapter counts both
reached = 0.40 * 989e12  # FLOP/s
nvlink, network = 900e9 / 2, 400e9 / 8  # bytes/s, one way
sent = 2 * k * T * h * (e - 1) / e * 2  # bytes, BF16
flop = 6 * k * T * h * f
d = 64


def ratio(e: int, f: int, rate: float) -> float:
    return 2 / 3 * (e - 1) / e * reached / (f * rate)


def dropped(factor: float, k: int, E: int) -> float:
    """The share of choices beyond the capacity, if routers choose evenly and at random."""
    p, room = k / E, int(factor * T * k / E)

    def chance(i: int) -> float:
        ways = lgamma(T + 1) - lgamma(i + 1) - lgamma(T - i + 1)
        return exp(ways + i * log(p) + (T - i) * log(1 - p))

    return sum((i - room) * chance(i) for i in range(room + 1, 2 * room)) / (T * p)


def per_rank(e: int) -> tuple[float, float]:
    """Bytes of weights and gradients, and of optimiser states with ZeRO-1, on one of d ranks."""
    held = elsewhere + in_experts / e
    return 4 * held, 12 * (elsewhere / d + in_experts / e / (d / e))


def balance(loads: list[int]) -> float:
    return len(loads) * sum((load / sum(loads)) ** 2 for load in loads)


def slots_row(factor: float, loads=(5, 2, 1, 0)) -> str:
    room = round(factor * sum(loads) / len(loads))
    over, under = (sum(max(0, sign * (x - room)) for x in loads) for sign in (1, -1))
    return f"| {factor:g} | {room} | {over} | {under} | {room * len(loads)} |"


SAID = {
    "parameters": f"{in_experts / 1e9:.1f} billion parameters in experts and "
    f"{elsewhere / 1e9:.1f} billion elsewhere",
    "all of it": f"16 bytes for each, {16 * 46.7:.0f} GB",
    "sent": f"that is {sent / 1e6:.0f} MB, {sent / network * 1e3:.2f} ms over a network of "
    f"{network / 1e9:.0f} GB/s per GPU, beside {flop / reached * 1e3:.2f} ms for the experts "
    "at 40 % of an H100's 989 TFLOP/s",
    "ratio": f"{ratio(e, f, network):.2f} comes out here on the network, and "
    f"{ratio(e, f, nvlink):.3f} over NVLink's {nvlink / 1e9:.0f} GB/s",
    "both passes": f"both together have {2 / 3 * ratio(e, f, network):.2f}",
    "narrow": f"64 ranks the same line gives {ratio(64, 2_048, network):.2f} forward",
    "again": f"It is {ratio(64, 2_048, network):.2f} for experts of 2,048",
    "capacity 1": slots_row(1),
    "capacity 1.5": slots_row(1.5),
    "capacity 2.5": slots_row(2.5),
    "luck": f"it gets {T * 8 // 256} on average, with a standard deviation of "
    f"{sqrt(T * 8 / 256 * (1 - 8 / 256)):.1f}",
    "luck drops": f"would drop {dropped(1, 8, 256):.1%}".replace("%", " % of the choices"),
    "luck, few": f"a factor of 1 drops {dropped(1, 2, 8):.1%}".replace("%", " %"),
    "luck again": f"has luck: {dropped(1, 8, 256):.1%}".replace("%", " %"),
    "balance": f"5, 2, 1 and 0 of 8 give {balance([5, 2, 1, 0]):g}",
    "weights": f"{per_rank(1)[0] / 1e9:.1f} GB without expert parallelism, "
    f"{per_rank(e)[0] / 1e9:.1f} GB with e = 8",
    "states": f"take {per_rank(e)[1] / 1e9:.1f} GB either way",
    "together": f"So it is {sum(per_rank(1)) / 1e9:.1f} GB against {sum(per_rank(e)) / 1e9:.1f} GB",
    "answer 1": f"Answers: {int(1.25 * 4096 * 2 / 64)}; {64 * int(1.25 * 4096 * 2 / 64):,}.",
    "answer 4": f"{6 - 2} tokens; {balance([6, 1, 1, 0]):g}.",
}
QUOTED: set[str] = set()


@pytest.mark.parametrize("what", SAID)
def test_the_chapter_says_what_comes_out(what):
    assert SAID[what] in CHAPTER.words, SAID[what]


def test_no_quantity_stands_there_that_is_not_computed():
    assert len(CHAPTER.quantities()) > 12
    assert CHAPTER.unproved(SAID.values()) <= QUOTED, CHAPTER.unproved(SAID.values())


def test_claims_without_a_unit_hold():
    assert isclose(sent / network / (flop / reached), ratio(e, f, network))
    assert dropped(1.25, 8, 256) < 1e-6  # "hardly one in a million"
    assert isclose(per_rank(1)[1], per_rank(e)[1])
    assert balance([2, 2, 2, 2]) == 1


def test_averaging_over_an_experts_copies_makes_its_gradient_e_times_too_large():
    """Four ranks of one token each, two experts on e = 2 ranks: one weight each, y = w x."""
    d, e = 4, 2
    x = torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64)
    expert = torch.tensor([0, 0, 1, 0])  # whom each rank's token chose
    w = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    loss = (w[expert] * x).square().mean()  # one GPU with all tokens
    loss.backward()
    held = torch.zeros(2, d // e, dtype=torch.float64)  # an expert's gradient on each of its copies
    for rank in range(d):  # each rank's loss is the mean over its own token
        at = expert[rank]
        held[at, rank // e] += 2 * w[at].detach() * x[rank] ** 2
    averaged = held.mean(1)
    assert torch.equal(averaged, e * w.grad)
    assert torch.equal(held.sum(1) / d, w.grad)


def test_the_auxiliary_loss_of_microbatches_is_not_that_of_the_batch():
    def auxiliary(chosen: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        share = torch.bincount(chosen, minlength=2) / len(chosen)
        return 2 * (share * p.mean(0)).sum()

    chosen = torch.tensor([0, 0, 1, 1])
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]])
    halves = (auxiliary(chosen[:2], p[:2]) + auxiliary(chosen[2:], p[2:])) / 2
    assert isclose(auxiliary(chosen, p), 1.0, rel_tol=1e-6)  # float32
    assert isclose(halves, 1.8, rel_tol=1e-6)
