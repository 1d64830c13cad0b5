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
from distgrade.exercise import Case, Exact, also_right, wrong

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


@wrong("The gradient of x is one rank's term only: every rank used the same x, so sum over ranks.")
def gradient_of_x_left_partial():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return grad @ w_shard.T, flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong("The gradient of b_shard is summed over ranks: each rank's entries of b are its own.")
def bias_gradient_reduced():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            grad_x = ctx.comm.all_reduce(grad @ w_shard.T)
            return grad_x, flat_x.T @ flat, ctx.comm.all_reduce(flat.sum(dim=0)), None

    return ColumnLinear


@wrong("The gradient of w_shard is summed over ranks: X^T G needs nothing that others hold.")
def weight_gradient_reduced():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            grad_x = ctx.comm.all_reduce(grad @ w_shard.T)
            return grad_x, ctx.comm.all_reduce(flat_x.T @ flat), flat.sum(dim=0), None

    return ColumnLinear


@wrong("The gradient of x is averaged over ranks: its terms are added up, as in dX = G W^T.")
def gradient_of_x_averaged():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            grad_x = ctx.comm.all_reduce(grad @ w_shard.T, op="mean")
            return grad_x, flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong("G is summed over ranks before W_i^T: each rank's columns have a G of their own. Sum G W^T.")
def upstream_reduced():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return ctx.comm.all_reduce(grad) @ w_shard.T, flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong("y is summed over ranks: each rank's columns of y are whole, they lie side by side.")
def summed_forward():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return comm.all_reduce(x @ w_shard) + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return ctx.comm.all_reduce(grad @ w_shard.T), flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong(
    "y is gathered, so every rank holds all its columns: it should stay cut, and nothing is sent."
)
def gathered_forward():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return comm.all_gather(x @ w_shard + b_shard, dim=-1)

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            grad = grad.chunk(ctx.comm.size, dim=-1)[ctx.comm.rank]
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return ctx.comm.all_reduce(grad @ w_shard.T), flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong("The values are right, but x is sent around in forward: every rank has all of it already.")
def x_sent_forward():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            x = comm.broadcast(x)
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return ctx.comm.all_reduce(grad @ w_shard.T), flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong("The values are right, but every rank gathers all terms of dX: an all-reduce sends less.")
def terms_gathered_backward():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            terms = ctx.comm.all_gather((grad @ w_shard.T).unsqueeze(0))
            return terms.sum(dim=0), flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong("b_shard gets no gradient: it is the sum of G over all batch dims.")
def bias_gradient_missing():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return ctx.comm.all_reduce(grad @ w_shard.T), flat_x.T @ flat, None, None

    return ColumnLinear


@wrong("The gradient of b_shard is a mean over the batch: b is added to every row of y, so sum.")
def bias_gradient_averaged():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return ctx.comm.all_reduce(grad @ w_shard.T), flat_x.T @ flat, flat.mean(dim=0), None

    return ColumnLinear


@wrong("The batch dims are not summed: x.T turns all dims around. Flatten the batch dims first.")
def only_one_batch_dim():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            return ctx.comm.all_reduce(grad @ w_shard.T), x.T @ grad, grad.sum(dim=0), None

    return ColumnLinear


@wrong(
    "view() needs memory without gaps, and a gradient may arrive turned: use reshape or flatten."
)
def view_of_the_gradient():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard + b_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.view(-1, x.shape[-1]), grad.view(-1, grad.shape[-1])
            return ctx.comm.all_reduce(grad @ w_shard.T), flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


@wrong("The bias is missing.")
def bias_forgotten():
    import torch

    class ColumnLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w_shard, b_shard, comm):
            ctx.save_for_backward(x, w_shard)
            ctx.comm = comm
            return x @ w_shard

        @staticmethod
        def backward(ctx, grad):
            x, w_shard = ctx.saved_tensors
            flat_x, flat = x.flatten(0, -2), grad.flatten(0, -2)
            return ctx.comm.all_reduce(grad @ w_shard.T), flat_x.T @ flat, flat.sum(dim=0), None

    return ColumnLinear


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
            grad_x = ctx.comm.all_reduce(torch.einsum("...o,io->...i", grad, w))
            grad_w = torch.einsum("...i,...o->io", x, grad)
            return grad_x, grad_w, torch.einsum("...o->o", grad), None

    return ColumnLinear


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
