"""Column-parallel linear layer with its backward pass written by hand.

`ColumnLinear.apply(x, w_shard, b_shard, comm)` returns this rank's columns of y = X W + b.
Shapes: x [..., d_in], whole on every rank; w_shard [d_in, d_out/t], b_shard [d_out/t], y_shard
[..., d_out/t]. Ranks may hold parts of different widths. float64.
Backward, with G [..., d_out/t] for dl/dy_shard: dX = the sum over ranks of G W_i^T, since every
rank used the same X; dW_i = X^T G, and db_i = the sum of G over all batch dims, are its own.
Cost: nothing forward, one all-reduce of x's size backward: 2 (t-1)/t S bytes sent per rank, S
padded to a multiple of t for those who reduce-scatter and all-gather.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3. Oracle: the dense layer, in one process,
its gradients by numpy's einsum, then cut.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Exact, also_right, slip

NAMES = ("ColumnLinear",)
FORBID = ()
TOLERANCE = Exact()
CREDIT = {"values": 3, "bytes": 1}
CASES = (
    Case("one rank", "values", n=1, batch=(3,), widths=(4,), d_in=2, turned=False),
    Case("two ranks", "values", n=2, batch=(5,), widths=(2, 2), d_in=3, turned=False),
    Case("three ranks, turned", "values", n=3, batch=(2, 4), widths=(3, 2, 2), d_in=2, turned=True),
    Case("five ranks, deep", "values", n=5, batch=(2, 1, 3), widths=(2,) * 5, d_in=4, turned=False),
    Case("bytes, two ranks", "bytes", n=2, batch=(2, 3), widths=(1, 3), d_in=4, turned=False),
    Case("bytes, four ranks", "bytes", n=4, batch=(3,), widths=(2,) * 4, d_in=5, turned=False),
)


def given(case, seed):
    from distlab.seeds import integers

    def data(name, *shape):
        return integers(shape, "column_linear", case.name, seed, name)

    return {
        "x": data("x", *case.batch, case.d_in),
        "w_shards": [data(f"w{r}", case.d_in, w) for r, w in enumerate(case.widths)],
        "b_shards": [data(f"b{r}", w) for r, w in enumerate(case.widths)],
        "upstream": [data(f"up{r}", *case.batch, w) for r, w in enumerate(case.widths)],
        "turned": case.turned,
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    layer = student.ColumnLinear
    n, turned = len(given["w_shards"]), given["turned"]

    def plain(y):
        return y.detach().clone() if isinstance(y, torch.Tensor) else y

    def like(y, upstream):
        return (y.shape, y.dtype) == (upstream.shape, upstream.dtype)

    def forward(comm, x, w, b):
        return plain(layer.apply(x, w, b, comm)), x, w, b

    def backward(comm, x, w, b, upstream):
        x, w, b = (t.clone().requires_grad_() for t in (x, w, b))
        y = layer.apply(x, w, b, comm)
        # An answer of another shape or without history has no gradient: its shape is told first.
        if isinstance(y, torch.Tensor) and y.requires_grad and like(y, upstream):
            if turned:  # the gradient arrives with another memory layout
                (y.transpose(-1, -2) * upstream.transpose(-1, -2).contiguous()).sum().backward()
            else:
                y.backward(upstream)
        return plain(y), x.grad, w.grad, b.grad, upstream

    def columns(result, names):
        return dict(zip(names, [list(c) for c in zip(*result.values, strict=True)], strict=True))

    def sent(result):
        return [result.ledger.ring_bytes(rank=r) for r in range(n)]

    shards = per_rank(given["w_shards"]), per_rank(given["b_shards"])
    once = run(forward, n, given["x"], *shards, echo=False)
    both = run(backward, n, given["x"], *shards, per_rank(given["upstream"]), echo=False)
    tree = columns(
        once, ["y without gradient", "x afterwards", "w_shard afterwards", "b_shard afterwards"]
    )
    tree |= columns(
        both,
        [
            "y_shard",
            "gradient of x",
            "gradient of w_shard",
            "gradient of b_shard",
            "upstream afterwards",
        ],
    )
    return tree | {"ring_bytes forward": sent(once), "ring_bytes with backward": sent(both)}


def oracle(case, given):
    from fractions import Fraction

    import numpy as np
    import torch

    n = case.n
    x = given["x"].numpy()
    w, b, up = (
        np.concatenate([s.numpy() for s in given[key]], axis=-1)
        for key in ("w_shards", "b_shards", "upstream")
    )
    cuts = np.cumsum(case.widths)[:-1]
    flat_x, flat_up = x.reshape(-1, case.d_in), up.reshape(-1, w.shape[1])

    def parts(array):
        return [torch.tensor(part) for part in np.split(array, cuts, axis=-1)]

    def whole(array):
        return [torch.tensor(array)] * n

    y = (np.einsum("ni,io->no", flat_x, w) + b).reshape(up.shape)
    padded_bytes = -(-x.size // n) * n * 8  # float64
    return {  # changed inputs first: they explain what is wrong behind them
        "x afterwards": whole(x),
        "w_shard afterwards": given["w_shards"],
        "b_shard afterwards": given["b_shards"],
        "y without gradient": parts(y),
        "y_shard": parts(y),
        "gradient of x": whole(np.einsum("no,io->ni", flat_up, w).reshape(x.shape)),
        "gradient of w_shard": parts(np.einsum("ni,no->io", flat_x, flat_up)),
        "gradient of b_shard": parts(flat_up.sum(axis=0)),
        "upstream afterwards": given["upstream"],
        "ring_bytes forward": [Fraction(0)] * n,
        "ring_bytes with backward": [Fraction(2 * (n - 1), n) * padded_bytes] * n,
    }


def judge(got, expected, case):
    # Bytes earn their point only beside right values: who sends nothing would be cheapest.
    costs = [key for key in expected if "ring_bytes" in key]
    values = [key for key in expected if key not in costs]
    symptoms = told_as_changed(
        compare(
            *({k: tree[k] for k in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    if case.group == "bytes":
        for key in costs:
            symptoms += ceiling(got[key], expected[key], key)
    return symptoms


@also_right("einsum, for any number of batch dims at once")
def by_einsum():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b, comm):
            ctx.save_for_backward(x, w)
            ctx.comm = comm
            return torch.einsum("...i,io->...o", x, w) + b

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            term = torch.einsum("...o,io->...i", grad, w)
            grad_x = ctx.comm.all_reduce(term)
            grad_w = torch.einsum("...i,...o->io", x, grad)
            return grad_x, grad_w, torch.einsum("...o->o", grad), None

    return ColumnLinear


gradient_of_x_left_partial = slip(
    by_einsum,
    "The gradient of x is one rank's term only: every rank used the same x, so sum over ranks.",
    ("ctx.comm.all_reduce(term)", "term"),
)
bias_gradient_reduced = slip(
    by_einsum,
    "The gradient of b_shard is summed over ranks: each rank's entries of b are its own.",
    ('torch.einsum("...o->o", grad)', 'ctx.comm.all_reduce(torch.einsum("...o->o", grad))'),
)
weight_gradient_reduced = slip(
    by_einsum,
    "The gradient of w_shard is summed over ranks: X^T G needs nothing that others hold.",
    ("return grad_x, grad_w", "return grad_x, ctx.comm.all_reduce(grad_w)"),
)
gradient_of_x_averaged = slip(
    by_einsum,
    "The gradient of x is averaged over ranks: its terms are added up, as in dX = G W^T.",
    ("all_reduce(term)", 'all_reduce(term, op="mean")'),
)
upstream_reduced = slip(
    by_einsum,
    "G is summed over ranks before W_i^T: each rank's columns have a G of their own. Sum G W^T.",
    ('io->...i", grad, w)', 'io->...i", ctx.comm.all_reduce(grad), w)'),
    ("ctx.comm.all_reduce(term)", "term"),
)
summed_forward = slip(
    by_einsum,
    "y is summed over ranks: each rank's columns of y are whole, they lie side by side.",
    ('torch.einsum("...i,io->...o", x, w)', 'comm.all_reduce(torch.einsum("...i,io->...o", x, w))'),
)
gathered_forward = slip(
    by_einsum,
    "y is gathered, so every rank holds all its columns: it should stay cut, and nothing is sent.",
    ('torch.einsum("...i,io->...o", x, w) + b', "comm.all_gather(x @ w + b, dim=-1)"),
    ("term =", "grad = grad.chunk(ctx.comm.size, dim=-1)[ctx.comm.rank]\n        term ="),
)
x_sent_forward = slip(
    by_einsum,
    "The values are right, but x is sent around in forward: every rank has all of it already.",
    ("ctx.save_for_backward(", "x = comm.broadcast(x)\n        ctx.save_for_backward("),
)
terms_gathered_backward = slip(
    by_einsum,
    "The values are right, but every rank gathers all terms of dX: an all-reduce sends less.",
    ("all_reduce(term)", "all_gather(term[None]).sum(dim=0)"),
)
bias_gradient_missing = slip(
    by_einsum,
    "b_shard gets no gradient: it is the sum of G over all batch dims.",
    ('torch.einsum("...o->o", grad)', "None"),
)
bias_gradient_averaged = slip(
    by_einsum,
    "The gradient of b_shard is a mean over the batch: b is added to every row of y, so sum.",
    ('torch.einsum("...o->o", grad)', "grad.flatten(0, -2).mean(dim=0)"),
)
only_one_batch_dim = slip(
    by_einsum,
    "The batch dims are not summed: x.T turns all dims around. Flatten the batch dims first.",
    ('torch.einsum("...i,...o->io", x, grad)', "x.T @ grad"),
    ('torch.einsum("...o->o", grad)', "grad.sum(dim=0)"),
)
view_of_the_gradient = slip(
    by_einsum,
    "view() needs memory without gaps, and a gradient may arrive turned: use reshape or flatten.",
    ("term =", "flat_x, flat = (t.view(-1, t.shape[-1]) for t in (x, grad))\n        term ="),
    ('torch.einsum("...i,...o->io", x, grad)', "flat_x.T @ flat"),
)
bias_forgotten = slip(
    by_einsum,
    "The bias is missing.",
    ("x, w) + b", "x, w)"),
)


@also_right("autograd's own gradient of the local product, then one sum")
def by_autograd():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b, comm):
            ctx.save_for_backward(x, w, b)
            ctx.comm = comm
            return torch.nn.functional.linear(x, w.T, b)

        @staticmethod
        def backward(ctx, grad):
            leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            with torch.enable_grad():
                x, w, b = leaves
                y = x @ w + b
            grad_x, grad_w, grad_b = torch.autograd.grad(y, leaves, grad)
            return ctx.comm.all_reduce(grad_x), grad_w, grad_b, None

    return ColumnLinear


@also_right("batch dims left for autograd to sum; reduce-scatter and all-gather of padded dX")
def in_two_halves():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(x, w, b, comm):
            return torch.matmul(x, w).add_(b)

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, w, _, ctx.comm = inputs
            ctx.save_for_backward(x, w)

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            comm = ctx.comm
            term = (grad @ w.mT).reshape(-1)
            term = torch.cat([term, term.new_zeros(-term.numel() % comm.size)])
            whole = comm.all_gather(comm.reduce_scatter(term))
            # Autograd sums a gradient over leading dims that its tensor does not have.
            return whole[: x.numel()].view_as(x), x.mT @ grad, grad, None

    return ColumnLinear


EQUIVALENT = {}
