"""Row-parallel linear layer: `row_linear(comm, x_shard, w_shard, b, *, g)` returns y = X W + b.

Shapes: x_shard [..., d_in/t], w_shard [d_in/t, d_out], b [d_out] (the whole bias, on every rank);
y [..., d_out], whole on every rank, differentiable. Ranks may hold parts of different widths. `g`
is the autograd function with the all-reduce, used as g.apply(y, comm); float64.
Cost: one all-reduce of y forward, none backward: 2 (t-1)/t S bytes sent per rank, S padded to a
multiple of t for those who reduce-scatter and all-gather.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3. Oracle: the dense layer, in one process,
its gradients written out.
"""

from distgrade.compare import Symptom, ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("row_linear",)
FORBID = ()
TOLERANCE = Close(1e-12, "b/t on each rank is right, and 1/3 or 1/5 of a bias is rounded")
CREDIT = {"values": 3, "bytes": 1}
CASES = (
    Case("one rank", "values", n=1, batch=(3,), widths=(4,), d_out=2),
    Case("two ranks", "values", n=2, batch=(3,), widths=(2, 2), d_out=5),
    Case("three ranks, parts of 3, 2 and 2", "values", n=3, batch=(4,), widths=(3, 2, 2), d_out=2),
    Case("four ranks, two batch dims", "values", n=4, batch=(2, 3), widths=(2,) * 4, d_out=5),
    Case("five ranks, one column each", "values", n=5, batch=(3, 2), widths=(1,) * 5, d_out=7),
    Case("two ranks, three batch dims", "values", n=2, batch=(2, 1, 3), widths=(1, 3), d_out=4),
    Case("bytes, two ranks", "bytes", n=2, batch=(3,), widths=(2, 2), d_out=4),
    Case("bytes, four ranks", "bytes", n=4, batch=(2, 3), widths=(2,) * 4, d_out=5),
    Case("bytes, five ranks", "bytes", n=5, batch=(4,), widths=(2,) * 5, d_out=3),
)


def given(case, seed):
    from distlab.seeds import integers

    def data(name, *shape):
        return integers(shape, "row_linear", case.name, seed, name)

    return {
        "x_shards": [data(f"x{r}", *case.batch, w) for r, w in enumerate(case.widths)],
        "w_shards": [data(f"w{r}", w, case.d_out) for r, w in enumerate(case.widths)],
        "b": data("b", case.d_out),
        "upstream": data("upstream", *case.batch, case.d_out),
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    row_linear = student.row_linear
    n = len(given["x_shards"])

    class ReduceFromRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y, comm):
            return comm.all_reduce(y)

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def plain(y):
        return y.detach().clone() if isinstance(y, torch.Tensor) else y

    def like(y, upstream):
        return (y.shape, y.dtype) == (upstream.shape, upstream.dtype)

    def forward(comm, x, w, b):
        y = row_linear(comm, x, w, b, g=ReduceFromRanks)
        return plain(y), x, w, b

    def backward(comm, x, w, b, upstream):
        x, w, b = (t.clone().requires_grad_() for t in (x, w, b))
        y = row_linear(comm, x, w, b, g=ReduceFromRanks)
        # An answer of another shape or without history has no gradient: its shape is told first.
        if isinstance(y, torch.Tensor) and y.requires_grad and like(y, upstream):
            y.backward(upstream)
        return plain(y), x.grad, w.grad, b.grad, upstream

    def columns(result, names):
        return dict(zip(names, [list(c) for c in zip(*result.values, strict=True)], strict=True))

    def sent(result):
        return [result.ledger.ring_bytes(rank=r) for r in range(n)]

    shards = per_rank(given["x_shards"]), per_rank(given["w_shards"])
    once = run(forward, n, *shards, given["b"], echo=False)
    both = run(backward, n, *shards, given["b"], given["upstream"], echo=False)
    tree = columns(
        once, ["y without gradient", "x_shard afterwards", "w_shard afterwards", "b afterwards"]
    )
    tree |= columns(
        both,
        ["y", "gradient of x_shard", "gradient of w_shard", "gradient of b", "upstream afterwards"],
    )
    return tree | {"ring_bytes forward": sent(once), "ring_bytes with backward": sent(both)}


def oracle(case, given):
    from fractions import Fraction
    from math import prod

    import numpy as np
    import torch

    n, widths = case.n, case.widths
    x = np.concatenate([s.numpy() for s in given["x_shards"]], axis=-1)
    w = np.concatenate([s.numpy() for s in given["w_shards"]], axis=0)
    b, upstream = given["b"].numpy(), given["upstream"].numpy()
    flat_x, flat_up = x.reshape(-1, x.shape[-1]), upstream.reshape(-1, case.d_out)
    y = np.einsum("ni,io->no", flat_x, w) + b
    grad_x = np.einsum("no,io->ni", flat_up, w).reshape(x.shape)
    grad_w = np.einsum("ni,no->io", flat_x, flat_up)
    cuts = np.cumsum(widths)[:-1]

    def whole(array):
        return [torch.tensor(array)] * n

    def parts(array, axis):
        return [torch.tensor(part) for part in np.split(array, cuts, axis=axis)]

    y = y.reshape(*case.batch, case.d_out)
    padded_bytes = -(-prod(y.shape) // n) * n * 8  # float64
    reduce = [Fraction(2 * (n - 1), n) * padded_bytes] * n
    return {  # changed inputs first: they explain what is wrong behind them
        "x_shard afterwards": given["x_shards"],
        "w_shard afterwards": given["w_shards"],
        "b afterwards": whole(b),
        "y without gradient": whole(y),
        "y": whole(y),
        "gradient of x_shard": parts(grad_x, -1),
        "gradient of w_shard": parts(grad_w, 0),
        "gradient of b": whole(flat_up.sum(axis=0)),
        "upstream afterwards": whole(upstream),
        "ring_bytes forward": reduce,
        "ring_bytes with backward": reduce,
    }


def judge(got, expected, case):
    # Bytes earn their point only beside right values: who sends nothing would be cheapest.
    costs = [key for key in expected if "ring_bytes" in key]
    values = [key for key in expected if key not in (*costs, "gradient of b")]
    symptoms = told_as_changed(
        compare(
            *({k: tree[k] for k in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    symptoms += _judge_bias(got["gradient of b"], expected["gradient of b"], case.n)
    if case.group == "bytes":
        for key in costs:
            symptoms += ceiling(got[key], expected[key], key)
    return symptoms


def _judge_bias(got, expected, n):
    """The whole gradient G on every rank, or parts that add up to G: a rank without one adds 0."""
    import torch

    key, rtol = "gradient of b", TOLERANCE.rtol
    if not compare(got, expected, rtol=rtol, n=n, path=(key,)):
        return []
    if all(part is None for part in got):
        return [Symptom("values", key, "no rank has a gradient of b")]
    parts = [torch.zeros_like(e) if g is None else g for g, e in zip(got, expected, strict=True)]
    unlike = compare(parts, expected, rtol=rtol, n=n, path=(key,))
    if any(s.kind != "values" for s in unlike):
        return [s for s in unlike if s.kind != "values"]
    total = torch.stack(parts).sum(dim=0)
    wrong = compare({key: total}, {key: expected[0]}, rtol=rtol)
    return unlike if wrong else []


@wrong("The bias is added before the sum, so it counts once per rank: add it after g, or once.")
def bias_before_the_reduce():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return g.apply(x_shard @ w_shard + b, comm)

    return row_linear


@wrong("The gradient of b is summed over ranks: y is whole on every rank, and so is its gradient.")
def bias_gradient_reduced():
    import torch

    class AddBias(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y, b, comm):
            ctx.comm = comm
            return y + b

        @staticmethod
        def backward(ctx, grad):
            grad_b = grad.reshape(-1, grad.shape[-1]).sum(dim=0)
            return grad, ctx.comm.all_reduce(grad_b), None

    def row_linear(comm, x_shard, w_shard, b, *, g):
        return AddBias.apply(g.apply(x_shard @ w_shard, comm), b, comm)

    return row_linear


@wrong("Each rank returns only its own term of the sum X W: g is missing.")
def partial_result_returned():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return x_shard @ w_shard + b

    return row_linear


@wrong("comm.all_reduce returns a tensor without history, so no gradient gets through it: use g.")
def reduced_without_g():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return comm.all_reduce(x_shard @ w_shard) + b

    return row_linear


@wrong("The terms are averaged: the ranks hold terms of one sum, so nothing is to be divided by t.")
def mean_of_the_terms():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return g.apply(x_shard @ w_shard, comm) / comm.size + b

    return row_linear


@wrong("The bias is missing.")
def bias_forgotten():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return g.apply(x_shard @ w_shard, comm)

    return row_linear


@wrong("Rank 0 adds the bias after the sum, so the other ranks lack it: before g once, or after g.")
def bias_after_the_reduce_on_rank_0():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        y = g.apply(x_shard @ w_shard, comm)
        return y + b if comm.rank == 0 else y

    return row_linear


@wrong("The sum is taken twice: after one g, y is whole on every rank.")
def reduced_twice():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return g.apply(g.apply(x_shard @ w_shard, comm), comm) + b

    return row_linear


@wrong("The gradient is summed in backward too, so it is t times too large: g lets it through.")
def gradient_reduced():
    import torch

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y, comm):
            ctx.comm = comm
            return comm.all_reduce(y)

        @staticmethod
        def backward(ctx, grad):
            return ctx.comm.all_reduce(grad), None

    def row_linear(comm, x_shard, w_shard, b, *, g):
        return Reduce.apply(x_shard @ w_shard, comm) + b

    return row_linear


@wrong(
    "The values are right, but the bias goes through an all-reduce of its own: it is there already."
)
def bias_in_a_second_reduce():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return g.apply(x_shard @ w_shard, comm) + g.apply(b / comm.size, comm)

    return row_linear


@wrong("The values are right, but every rank gathers all terms: an all-reduce sends far less.")
def gathers_and_sums():
    import torch

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y, comm):
            return comm.all_gather(y.unsqueeze(0)).sum(dim=0)

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def row_linear(comm, x_shard, w_shard, b, *, g):
        return Gather.apply(x_shard @ w_shard, comm) + b

    return row_linear


@wrong("The batch dims are flattened and never restored: y has as many dims as x_shard.")
def batch_left_flat():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return g.apply(x_shard.reshape(-1, x_shard.shape[-1]) @ w_shard, comm) + b

    return row_linear


@also_right("the bias on one rank only, before the sum")
def bias_on_one_rank():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        partial = x_shard @ w_shard
        if comm.rank == comm.size - 1:
            partial = partial + b
        return g.apply(partial, comm)

    return row_linear


@also_right("b/t on each rank, before the sum")
def bias_in_t_parts():
    def row_linear(comm, x_shard, w_shard, b, *, g):
        return g.apply(x_shard @ w_shard + b / comm.size, comm)

    return row_linear


@also_right("flat batch dims, torch's own linear, the bias masked by rank")
def flat_and_functional():
    import torch.nn.functional as F

    def row_linear(comm, x_shard, w_shard, b, *, g):
        flat = x_shard.flatten(0, -2)
        y = g.apply(F.linear(flat, w_shard.T, b * (comm.rank == 0)), comm)
        return y.unflatten(0, x_shard.shape[:-1])

    return row_linear


@also_right("one autograd function with a hand-written backward, by reduce-scatter and all-gather")
def one_function_of_its_own():
    import torch

    class RowLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b, comm):
            ctx.save_for_backward(x, w)
            terms = torch.einsum("...i,io->...o", x, w).reshape(-1)
            terms = torch.cat([terms, terms.new_zeros(-terms.numel() % comm.size)])
            whole = comm.all_gather(comm.reduce_scatter(terms))
            y = whole[: x.shape[:-1].numel() * w.shape[1]].reshape(*x.shape[:-1], w.shape[1])
            return y.add_(b)

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            flat_x, flat = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
            return grad @ w.T, flat_x.T @ flat, flat.sum(dim=0), None

    def row_linear(comm, x_shard, w_shard, b, *, g):
        return RowLinear.apply(x_shard, w_shard, b, comm)

    return row_linear


EQUIVALENT = {}  # every mechanical mutant of the answers above loses points
