"""Data-parallel gradient: `ddp_gradient(comm, loss_fn, params, batch)` -> list of gradients.

`loss_fn(params, batch)` returns the mean loss over the samples of a batch, a scalar; `batch` is a
tuple (x, y) whose samples lie along dim 0. Ranks hold different samples, and differently many; one
may hold none (the mean of nothing is nan, its gradient zeros).
Returned is, on every rank, the gradient of the mean over all ranks' samples, one for each param.
Shapes: x [samples, d], y [samples]; params w [d] and c [], leaves that require gradients; float64.
Cost: one all-reduce of the gradients and of one number more for each of them at most.
Source: Li et al. 2020 (arXiv:2006.15704), section 3. Oracle: the gradient of the full batch's mean
written out for this loss, in exact fractions.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("ddp_gradient",)
FORBID = ()
TOLERANCE = Close(1e-12, "one step in float64; a mean over 7 samples is rounded")
CREDIT = {"equal": 1, "unequal": 2, "bytes": 1}
CASES = (
    Case("one rank", "equal", n=1, samples=(3,), d=2),
    Case("two ranks, 2 samples each", "equal", n=2, samples=(2, 2), d=3),
    Case("three ranks, 4, 2 and 1 samples", "unequal", n=3, samples=(4, 2, 1), d=2),
    Case("five ranks, one without a sample", "unequal", n=5, samples=(1, 3, 0, 2, 2), d=3),
    Case("bytes, four ranks", "bytes", n=4, samples=(3, 5, 4, 6), d=24),
)


def given(case, seed):
    from distlab.seeds import integers

    key = "ddp_gradient", case.name, seed
    return {
        "xs": [integers((s, case.d), *key, "x", rank) for rank, s in enumerate(case.samples)],
        "ys": [integers((s,), *key, "y", rank) for rank, s in enumerate(case.samples)],
        "params": [integers((case.d,), *key, "w"), integers((1,), *key, "c")],
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    ddp_gradient = student.ddp_gradient
    n = len(given["xs"])

    def mean_loss(params, batch):
        w, c = params
        x, y = batch
        return (x @ w + c - y).square().mean()

    def plain(answer):
        if not isinstance(answer, list | tuple):
            return answer
        return [g.detach().clone() if isinstance(g, torch.Tensor) else g for g in answer]

    def on_a_rank(comm, x, y, params):
        params = [p.clone().requires_grad_() for p in params]
        gradients = plain(ddp_gradient(comm, mean_loss, params, (x, y)))
        return gradients, [p.detach() for p in params]

    xs, ys = per_rank(given["xs"]), per_rank(given["ys"])
    result = run(on_a_rank, n, xs, ys, given["params"], echo=False)
    return {
        "params afterwards": [params for _, params in result.values],
        "gradients": [gradients for gradients, _ in result.values],
        "bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)],
    }


def oracle(case, given):
    from fractions import Fraction

    import torch

    n = case.n
    w, c = ([Fraction(v) for v in p.tolist()] for p in given["params"])
    rows = [[Fraction(v) for v in row] for x in given["xs"] for row in x.tolist()]
    ys = [Fraction(v) for y in given["ys"] for v in y.tolist()]
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
    # Bytes earn their point only beside right values: who sends nothing would be cheapest.
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


@wrong("This is the mean of the ranks' means: a rank with more samples should count for more.")
def mean_of_means():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        return [comm.all_reduce(g, op="mean") for g in grads]

    return ddp_gradient


@wrong("The ranks' mean gradients are added up and nothing is divided: n times too large, or so.")
def sum_of_means():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        return [comm.all_reduce(g) for g in grads]

    return ddp_gradient


@wrong("It is divided twice: a weight of count / total is all that a rank's mean needs.")
def divided_twice():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        count = torch.tensor(float(len(batch[0])), dtype=torch.float64)
        share = count / comm.all_reduce(count)
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        return [comm.all_reduce(share * g, op="mean") for g in grads]

    return ddp_gradient


@wrong("This is the gradient of the sum over all samples: divide by how many there are in all.")
def sum_over_samples():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        return [comm.all_reduce(len(batch[0]) * g) for g in grads]

    return ddp_gradient


@wrong("Nothing is sent: each rank returns the gradient of its own samples.")
def own_gradient():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        return list(torch.autograd.grad(loss_fn(params, batch), params))

    return ddp_gradient


@wrong("The weights are averaged: equal weights stay as they are; the gradients need it.")
def averages_weights():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        params = [comm.all_reduce(p, op="mean").requires_grad_() for p in params]
        return list(torch.autograd.grad(loss_fn(params, batch), params))

    return ddp_gradient


@wrong("Each rank takes its own count times n for the total: the counts differ, so add them up.")
def total_guessed():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        count = len(batch[0])
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        return [comm.all_reduce(count * g) / (count * comm.size) for g in grads]

    return ddp_gradient


@wrong("All ranks' gradients are gathered: (n-1) S bytes, where an all-reduce sends 2 (n-1)/n S.")
def gathered():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        count = torch.tensor([float(len(batch[0]))], dtype=torch.float64)
        counts = comm.all_gather(count)
        flat = torch.cat([g.flatten() for g in grads])
        rows = comm.all_gather(flat[None])
        mean = (counts[:, None] * rows).sum(dim=0) / counts.sum()
        parts = mean.split([g.numel() for g in grads])
        return [part.view_as(g) for part, g in zip(parts, grads, strict=True)]

    return ddp_gradient


@wrong("The params were moved: return the gradient and leave the step to the optimiser.")
def takes_the_step():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        count = torch.tensor(float(len(batch[0])), dtype=torch.float64)
        share = count / comm.all_reduce(count)
        grads = torch.autograd.grad(share * loss_fn(params, batch), params)
        grads = [comm.all_reduce(g) for g in grads]
        with torch.no_grad():
            for p, g in zip(params, grads, strict=True):
                p -= 0.1 * g
        return grads

    return ddp_gradient


@wrong("The share is rounded to float32: make the count with x's dtype, as x.new_tensor does.")
def count_in_float32():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        count = torch.tensor(float(len(batch[0])))
        share = count / comm.all_reduce(count)
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        return [comm.all_reduce(share * g) for g in grads]

    return ddp_gradient


@wrong("The means are summed and divided by the samples: multiply each by its own count first.")
def counts_forgotten():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        total = comm.all_reduce(batch[0].new_tensor(len(batch[0])))
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        return [comm.all_reduce(g) / total for g in grads]

    return ddp_gradient


@wrong("Losses are sent, and have no record for autograd then: take gradients, and send those.")
def sends_the_loss():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        count = batch[0].new_tensor(len(batch[0]))
        share = count / comm.all_reduce(count)
        loss = comm.all_reduce(share * loss_fn(params, batch))
        return list(torch.autograd.grad(loss, params))

    return ddp_gradient


@also_right("the sum and the count in one message, divided at the end")
def one_message():
    import torch

    def ddp_gradient(comm, loss_fn, params, batch):
        x, _ = batch
        grads = torch.autograd.grad(loss_fn(params, batch), params)
        terms = [len(x) * g.flatten() for g in grads]
        flat = comm.all_reduce(torch.cat([*terms, x.new_tensor([len(x)])]))
        parts = (flat[:-1] / flat[-1]).split([p.numel() for p in params])
        return [part.view_as(g) for part, g in zip(parts, grads)]  # noqa: B905

    return ddp_gradient


@also_right("the loss is rescaled before backward, n times the share, and the gradients averaged")
def rescaled_loss():
    def ddp_gradient(comm, loss_fn, params, batch):
        _, y = batch
        count = y.new_tensor(len(y))
        (count / comm.all_reduce(count, op="mean") * loss_fn(params, batch)).backward()
        return [comm.all_reduce(p.grad, op="mean") for p in params]

    return ddp_gradient


EQUIVALENT = {
    "one_message ddp_gradient: comm.all_reduce(torch.cat([*terms, x.new_tensor([len(x)])])) -> "
    "comm.all_reduce(torch.cat([*terms, x.new_tensor([len(x)])]), op='mean')": (
        "sums and count are both divided by n, which leaves their quotient"
    ),
}
