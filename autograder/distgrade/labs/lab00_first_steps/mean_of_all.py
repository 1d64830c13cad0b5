"""The mean of all ranks' numbers: `mean_of_all(comm, x)`, the same number on every rank.

Shapes: x [k], k at least 0 and different from rank to rank, at least one number in all; float64.
The result has no dims. Practice: it earns no points.
Cost: two numbers per rank, a sum and a count. Sent to every other rank one by one they are
16 (n-1) bytes, which is the ceiling; an all-reduce of the two sends 32 (n-1)/n.
Oracle: fractions, in one process.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("mean_of_all",)
FORBID = ()
TOLERANCE = Close(1e-12, "sums are exact, but a quotient such as 1/3 may be taken in two steps")
CREDIT = {"values": 0, "bytes": 0}
CASES = (
    Case("one rank", "values", n=1, sizes=(3,)),
    Case("two ranks", "values", n=2, sizes=(2, 5)),
    Case("three ranks, one without numbers", "values", n=3, sizes=(4, 0, 3)),
    Case("four ranks", "values", n=4, sizes=(1, 2, 1, 6)),
    Case("five ranks", "values", n=5, sizes=(2, 4, 6, 1, 3)),
    Case("bytes, three ranks", "bytes", n=3, sizes=(6, 8, 7)),
    Case("bytes, five ranks", "bytes", n=5, sizes=(7, 9, 8, 6, 10)),
)


def given(case, seed):
    from distlab.seeds import integers

    key = ("mean_of_all", case.name, seed)
    xs = [integers((k,), *key, rank, low=1, high=9) for rank, k in enumerate(case.sizes)]
    return {"x": xs}


def observe(student, given):
    from distlab import per_rank, run

    mean_of_all = student.mean_of_all
    n = len(given["x"])

    def rank(comm, x):
        return mean_of_all(comm, x), x

    result = run(rank, n, per_rank(given["x"]), echo=False)
    means, xs = zip(*result.values, strict=True)
    sent = [result.ledger.ring_bytes(rank=r) for r in range(n)]
    return {"x afterwards": list(xs), "mean": list(means), "ring_bytes": sent}


def oracle(case, given):
    from fractions import Fraction

    import torch

    numbers = [Fraction(number) for x in given["x"] for number in x.tolist()]
    mean = torch.tensor(float(sum(numbers) / len(numbers)), dtype=torch.float64)
    two_numbers = Fraction(16 * (case.n - 1))
    return {
        "x afterwards": given["x"],
        "mean": [mean] * case.n,
        "ring_bytes": [two_numbers] * case.n,
    }


def judge(got, expected, case):
    values = ("x afterwards", "mean")
    symptoms = told_as_changed(
        compare(
            *({key: tree[key] for key in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    if case.group == "bytes":
        symptoms += ceiling(got["ring_bytes"], expected["ring_bytes"], "ring_bytes")
    return symptoms


@wrong("A mean of means: ranks with few numbers count as much as ranks with many.")
def mean_of_means():
    def mean_of_all(comm, x):
        return comm.all_reduce(x.mean(), op="mean")

    return mean_of_all


@wrong("Each rank takes the mean of its own numbers; the others' never reach it.")
def own_mean():
    def mean_of_all(comm, x):
        return x.mean()

    return mean_of_all


@wrong("The sum is everyone's, the count only this rank's: add up the counts as well.")
def divided_by_the_own_count():
    def mean_of_all(comm, x):
        return comm.all_reduce(x.sum()) / x.numel()

    return mean_of_all


@wrong(
    "The sum is divided by the number of ranks; it must be divided by how many numbers there are."
)
def divided_by_the_ranks():
    def mean_of_all(comm, x):
        return comm.all_reduce(x.sum(), op="mean")

    return mean_of_all


@wrong("This is the sum of all numbers: it is still to be divided by how many there are.")
def sum_of_all():
    def mean_of_all(comm, x):
        return comm.all_reduce(x.sum())

    return mean_of_all


@wrong("The sum is divided by 4, the count of the visible case: count the numbers that are there.")
def divided_by_four():
    def mean_of_all(comm, x):
        return comm.all_reduce(x.sum()) / 4

    return mean_of_all


@wrong("The count is this rank's times the number of ranks, as if all ranks held equally many.")
def counts_taken_as_equal():
    def mean_of_all(comm, x):
        return comm.all_reduce(x.sum()) / (comm.size * x.numel())

    return mean_of_all


@wrong("A rank without numbers has no mean (0/0 is nan): let ranks bring sums and counts.")
def weighted_means():
    import torch

    def mean_of_all(comm, x):
        count = comm.all_reduce(torch.tensor(float(x.numel()), dtype=x.dtype))
        return comm.all_reduce(x.mean() * x.numel() / count)

    return mean_of_all


@wrong("Rank 0 calls a collective that the others never call: every rank must make the same calls.")
def rank_0_alone():
    def mean_of_all(comm, x):
        if comm.rank == 0:
            return comm.all_reduce(x.sum()) / comm.all_reduce(x.new_tensor(x.numel()))
        return x.mean()

    return mean_of_all


@wrong("Only rank 0 has the right mean: the other ranks must get it too.")
def right_on_rank_0_only():
    import torch

    def mean_of_all(comm, x):
        total = comm.all_reduce(torch.stack([x.sum(), x.new_tensor(x.numel())]))
        return total[0] / total[1] if comm.rank == 0 else x.new_zeros(())

    return mean_of_all


@wrong(
    "x is gathered as it is, but ranks hold different amounts: bring what has one shape instead."
)
def gathered_as_it_is():
    def mean_of_all(comm, x):
        return comm.all_gather(x).mean()

    return mean_of_all


@wrong("The mean is right, but every number travels: a sum and a count per rank are enough.")
def every_number_sent():
    import torch
    import torch.nn.functional as F

    def mean_of_all(comm, x):
        count = comm.all_reduce(torch.tensor(float(x.numel()), dtype=x.dtype))
        longest = comm.all_reduce(torch.tensor(float(x.numel())), op="max")
        padded = F.pad(x, (0, int(longest) - x.numel()))
        return comm.all_gather(padded).sum() / count

    return mean_of_all


@wrong("The mean is right, but it is a tensor of one number, shape [1]: it should have no dims.")
def one_dim_left():
    def mean_of_all(comm, x):
        total = comm.all_reduce(x.sum(dim=0, keepdim=True))
        return total / comm.all_reduce(x.new_tensor([x.numel()]))

    return mean_of_all


@also_right("two all-reduces, one for the sum and one for the count")
def sum_and_count_apart():
    def mean_of_all(comm, x):
        count = comm.all_reduce(x.new_tensor(x.numel()))
        return comm.all_reduce(x.sum()) / count

    return mean_of_all


@also_right("everyone's sum and count side by side, added up on every rank")
def two_numbers_gathered():
    import torch

    def mean_of_all(comm, x):
        mine = torch.stack([x.sum(), x.new_tensor(len(x))])
        totals, counts = comm.all_gather(mine[None]).unbind(dim=1)
        return totals.sum() / counts.sum()

    return mean_of_all


@also_right("each rank scales its own sum, and the terms are added up")
def terms_of_the_mean():
    import torch

    def mean_of_all(comm, x):
        count = comm.all_reduce(torch.tensor(x.numel()))
        return comm.all_reduce((x / count).sum())

    return mean_of_all


@also_right("rank 0 collects the sums and counts, divides, and sends the mean to all")
def through_rank_0():
    import torch

    def mean_of_all(comm, x):
        mine = torch.tensor([x.sum().item(), x.numel()], dtype=x.dtype)
        if comm.rank:
            comm.send(mine, 0)
        else:
            for rank in range(1, comm.size):
                mine = mine + comm.recv(mine, rank)
        return comm.broadcast(mine[0] / mine[1])

    return mean_of_all


EQUIVALENT = {
    "mean_of_all: comm.all_reduce(mine) -> comm.all_reduce(mine, op='mean')": (
        "sum and count are both divided by n, which leaves their quotient"
    ),
}
