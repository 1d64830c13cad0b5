"""Gradient accumulation: `accumulate(comm, loss_fn, params, microbatches)` -> list of gradients.

`loss_fn(params, microbatch)` returns (mean loss over the microbatch's tokens, number of tokens).
Each rank has a list of microbatches, of different sizes, and ranks may have differently many.
Returned is, on every rank, the gradient of the mean over all tokens of all ranks and microbatches.
Shapes: a microbatch is (x [tokens, d], y [tokens]); params w [d] and c [1], leaves; float64.
Cost: one all-reduce of the gradients per step, however many microbatches there are.
Source: Li et al. 2020 (arXiv:2006.15704), section 3.2.4 (no_sync). Oracle: the gradient of the mean
over all tokens written out for this loss, in exact fractions.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("accumulate",)
FORBID = ()
TOLERANCE = Close(1e-12, "one step in float64; a mean over 7 tokens is rounded")
CREDIT = {"equal": 1, "unequal": 2, "bytes": 2}
CASES = (  # `tokens` holds the sizes of each rank's microbatches
    Case("one rank", "unequal", n=1, tokens=((2, 3),), d=2),
    Case("two ranks, equal microbatches", "equal", n=2, tokens=((2, 2), (2, 2)), d=2),
    Case("three ranks, all different", "unequal", n=3, tokens=((1, 3), (2,), (1, 4, 2)), d=2),
    Case("five ranks", "unequal", n=5, tokens=((1,), (2,), (1, 1), (3,), (1, 2)), d=1),
    Case("bytes, four ranks", "bytes", n=4, tokens=((2, 1, 3),) * 4, d=24),
)


def given(case, seed):
    from distlab.seeds import integers

    key = "accumulate", case.name, seed

    def microbatch(rank, k, tokens):
        x = integers((tokens, case.d), *key, "x", rank, k)
        return [x, integers((tokens,), *key, "y", rank, k)]

    return {
        "microbatches": [
            [microbatch(rank, k, tokens) for k, tokens in enumerate(sizes)]
            for rank, sizes in enumerate(case.tokens)
        ],
        "params": [integers((case.d,), *key, "w"), integers((1,), *key, "c")],
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    accumulate = student.accumulate
    n = len(given["microbatches"])

    def mean_loss(params, microbatch):
        w, c = params
        x, y = microbatch
        return (x @ w + c - y).square().mean(), len(y)

    def plain(answer):
        if not isinstance(answer, list | tuple):
            return answer
        return [g.detach().clone() if isinstance(g, torch.Tensor) else g for g in answer]

    def on_a_rank(comm, microbatches, params):
        params = [p.clone().requires_grad_() for p in params]
        pairs = [tuple(pair) for pair in microbatches]
        gradients = plain(accumulate(comm, mean_loss, params, pairs))
        return gradients, [p.detach() for p in params]

    mine = per_rank(given["microbatches"])
    result = run(on_a_rank, n, mine, given["params"], echo=False)
    return {
        "params afterwards": [params for _, params in result.values],
        "gradients": [gradients for gradients, _ in result.values],
        "bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)],
    }


def oracle(case, given):
    from fractions import Fraction

    import torch

    n = case.n
    pairs = [pair for rank in given["microbatches"] for pair in rank]
    w, c = ([Fraction(v) for v in p.tolist()] for p in given["params"])
    rows = [[Fraction(v) for v in row] for x, _ in pairs for row in x.tolist()]
    ys = [Fraction(v) for _, y in pairs for v in y.tolist()]
    # The loss is the mean of r², r = x·w + c - y: its gradient is the mean of 2 r x, and of 2 r.
    errors = [
        sum((a * b for a, b in zip(row, w, strict=True)), c[0]) - y
        for row, y in zip(rows, ys, strict=True)
    ]
    mean = Fraction(2, len(rows))
    by_w = [
        mean * sum(r * row[j] for r, row in zip(errors, rows, strict=True)) for j in range(case.d)
    ]
    right = [
        torch.tensor([float(v) for v in by_w], dtype=torch.float64),
        torch.tensor([float(mean * sum(errors))], dtype=torch.float64),
    ]
    # Each gradient on its own, padded to a multiple of n, and a padded count beside each.
    numbers = sum(-(-size // n) * n for size in (case.d, 1, 1, 1))
    most = Fraction(2 * (n - 1), n) * numbers * 8
    return {
        "params afterwards": [given["params"]] * n,
        "gradients": [right] * n,
        "bytes sent": [most] * n,
    }


def judge(got, expected, case):
    # Bytes earn their points only beside right values: who sends nothing would be cheapest.
    values = ("params afterwards", "gradients")
    symptoms = told_as_changed(
        compare(
            *({key: tree[key] for key in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    if case.group == "bytes":
        symptoms += ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
    return symptoms


@wrong("Each microbatch counts 1/K: with unequal sizes, weigh each by its tokens.")
def mean_of_microbatches():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        total = [torch.zeros_like(p) for p in params]
        for microbatch in microbatches:
            loss, _ = loss_fn(params, microbatch)
            grads = torch.autograd.grad(loss / len(microbatches), params)
            total = [t + g for t, g in zip(total, grads, strict=True)]
        return [comm.all_reduce(t, op="mean") for t in total]

    return accumulate


@wrong("Tokens are weighed on each rank, but each rank counts alike: divide by all ranks' tokens.")
def mean_of_ranks():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        total, tokens = [torch.zeros_like(p) for p in params], 0
        for microbatch in microbatches:
            loss, count = loss_fn(params, microbatch)
            grads = torch.autograd.grad(count * loss, params)
            total = [t + g for t, g in zip(total, grads, strict=True)]
            tokens += count
        return [comm.all_reduce(t / tokens, op="mean") for t in total]

    return accumulate


@wrong("The gradients are sent for every microbatch: add them up here first, and send once.")
def sent_for_each_microbatch():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        most = int(comm.all_reduce(torch.tensor(len(microbatches)), op="max"))
        total = [torch.zeros_like(p) for p in params]
        tokens = torch.zeros((), dtype=torch.float64)
        for k in range(most):
            grads = [torch.zeros_like(p) for p in params]
            if k < len(microbatches):
                loss, count = loss_fn(params, microbatches[k])
                grads = torch.autograd.grad(count * loss, params)
                tokens += count
            sums = [comm.all_reduce(g) for g in grads]
            total = [t + s for t, s in zip(total, sums, strict=True)]
        everyone = comm.all_reduce(tokens)
        return [t / everyone for t in total]

    return accumulate


@wrong("Nothing is divided: this is the gradient of the sum over all tokens, not of their mean.")
def sum_over_tokens():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        total = [torch.zeros_like(p) for p in params]
        for microbatch in microbatches:
            loss, count = loss_fn(params, microbatch)
            grads = torch.autograd.grad(count * loss, params)
            total = [t + g for t, g in zip(total, grads, strict=True)]
        return [comm.all_reduce(t) for t in total]

    return accumulate


@wrong("Only the last microbatch counts: gradients of the others were overwritten.")
def last_one_only():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        tokens = torch.zeros((), dtype=torch.float64)
        for microbatch in microbatches:
            loss, count = loss_fn(params, microbatch)
            grads = torch.autograd.grad(count * loss, params)
            tokens += count
        everyone = comm.all_reduce(tokens)
        return [comm.all_reduce(g) / everyone for g in grads]

    return accumulate


@wrong("The mean losses are added without their token counts.")
def unweighted_sum():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        total = [torch.zeros_like(p) for p in params]
        tokens = torch.zeros((), dtype=torch.float64)
        for microbatch in microbatches:
            loss, count = loss_fn(params, microbatch)
            grads = torch.autograd.grad(loss, params)
            total = [t + g for t, g in zip(total, grads, strict=True)]
            tokens += count
        everyone = comm.all_reduce(tokens)
        return [comm.all_reduce(t) / everyone for t in total]

    return accumulate


@wrong("Nothing is sent: each rank returns the mean over its own tokens.")
def own_tokens():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        total, tokens = [torch.zeros_like(p) for p in params], 0
        for microbatch in microbatches:
            loss, count = loss_fn(params, microbatch)
            grads = torch.autograd.grad(count * loss, params)
            total = [t + g for t, g in zip(total, grads, strict=True)]
            tokens += count
        return [t / tokens for t in total]

    return accumulate


@wrong("Each rank divides all ranks' sums by its own tokens: the tokens need a sum as well.")
def sums_over_own_tokens():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        total, tokens = [torch.zeros_like(p) for p in params], 0
        for microbatch in microbatches:
            loss, count = loss_fn(params, microbatch)
            grads = torch.autograd.grad(count * loss, params)
            total = [t + g for t, g in zip(total, grads, strict=True)]
            tokens += count
        return [comm.all_reduce(t) / tokens for t in total]

    return accumulate


@wrong("A microbatch's tokens are what loss_fn says, not len(microbatch), which counts its parts.")
def counts_parts():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        total, tokens = [torch.zeros_like(p) for p in params], 0
        for microbatch in microbatches:
            loss, _ = loss_fn(params, microbatch)
            grads = torch.autograd.grad(len(microbatch) * loss, params)
            total = [t + g for t, g in zip(total, grads, strict=True)]
            tokens += len(microbatch)
        everyone = comm.all_reduce(torch.tensor(tokens))
        return [comm.all_reduce(t) / everyone for t in total]

    return accumulate


@also_right("backward adds up in .grad; sums and count travel in one message")
def in_grad():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        tokens = 0
        for microbatch in microbatches:
            loss, count = loss_fn(params, microbatch)
            (loss * count).backward()
            tokens += count
        flat = torch.cat([*(p.grad for p in params), torch.tensor([tokens]).double()])
        flat = comm.all_reduce(flat)
        sizes = [len(p) for p in params]
        return (flat[:-1] / flat[-1]).split(sizes)

    return accumulate


@also_right("the total is asked for first, so each loss can be scaled before its backward")
def scaled_before_backward():
    import torch

    def accumulate(comm, loss_fn, params, microbatches):
        pairs = [loss_fn(params, microbatch) for microbatch in microbatches]
        everyone = comm.all_reduce(torch.tensor(sum(count for _, count in pairs)))
        mine = torch.stack([loss * count for loss, count in pairs]).sum() / everyone
        return [comm.all_reduce(g) for g in torch.autograd.grad(mine, params)]

    return accumulate


EQUIVALENT = {
    "accumulate: list(map(torch.add, grads, total)) -> map(torch.add, grads, total)": (
        "a map that is read at the end gives the same sums"
    ),
    "in_grad accumulate: comm.all_reduce(flat) -> comm.all_reduce(flat, op='mean')": (
        "sums and count are both divided by n, which leaves their quotient"
    ),
}
