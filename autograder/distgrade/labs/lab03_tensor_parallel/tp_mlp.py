"""A tensor-parallel MLP: `tp_mlp(comm, x, a_shard, b_shard, *, f, g)` returns z = GeLU(x A) B.

Shapes: x [..., h], whole on every rank; a_shard [h, d/t], columns of A; b_shard [d/t, h], rows of
B; z [..., h], whole on every rank. Ranks may hold parts of different widths. float64. GeLU is the
exact one, u Phi(u) with the normal distribution's Phi. `f` and `g` are autograd functions used as
f.apply(x, comm) and g.apply(z, comm): f sums in backward, g in forward.
Cost: one all-reduce of x's size each way: 2 (t-1)/t S bytes sent per rank, S padded to a multiple
of t for those who reduce-scatter and all-gather.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3. Oracle: the dense MLP and its gradients
in exact fractions, Phi by its power series, so that references have the same bits everywhere.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("tp_mlp",)
FORBID = ()
TOLERANCE = Close(1e-12, "one step in float64, and erf is rounded")
CREDIT = {"values": 3, "bytes": 1}
CASES = (
    Case("one rank", "values", n=1, batch=(2,), h=3, widths=(4,)),
    Case("two ranks", "values", n=2, batch=(3,), h=4, widths=(2, 2)),
    Case("three ranks, parts of 3, 2 and 1", "values", n=3, batch=(2, 2), h=3, widths=(3, 2, 1)),
    Case("five ranks, one column each", "values", n=5, batch=(2, 1, 2), h=2, widths=(1,) * 5),
    Case("bytes, two ranks", "bytes", n=2, batch=(3,), h=3, widths=(1, 2)),
    Case("bytes, four ranks", "bytes", n=4, batch=(2, 2), h=4, widths=(2,) * 4),
)


def given(case, seed):
    from distlab.seeds import integers

    def data(name, *shape, step=1.0):
        return integers(shape, "tp_mlp", case.name, seed, name) * step

    return {  # x A lies where GeLU is bent: multiples of 1/8, most of them between -3 and 3
        "x": data("x", *case.batch, case.h, step=0.5),
        "a_shards": [data(f"a{r}", case.h, w, step=0.25) for r, w in enumerate(case.widths)],
        "b_shards": [data(f"b{r}", w, case.h) for r, w in enumerate(case.widths)],
        "upstream": data("upstream", *case.batch, case.h),
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    tp_mlp = student.tp_mlp
    n = len(given["a_shards"])

    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return ctx.comm.all_reduce(grad), None

    class ReduceFromRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            return comm.all_reduce(x)

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def plain(z):
        return z.detach().clone() if isinstance(z, torch.Tensor) else z

    def like(z, upstream):
        return (z.shape, z.dtype) == (upstream.shape, upstream.dtype)

    def forward(comm, x, a, b):
        z = tp_mlp(comm, x, a, b, f=CopyToRanks, g=ReduceFromRanks)
        return plain(z), x, a, b

    def backward(comm, x, a, b, upstream):
        x, a, b = (t.clone().requires_grad_() for t in (x, a, b))
        z = tp_mlp(comm, x, a, b, f=CopyToRanks, g=ReduceFromRanks)
        # An answer of another shape or without history has no gradient: its shape is told first.
        if isinstance(z, torch.Tensor) and z.requires_grad and like(z, upstream):
            z.backward(upstream)
        return plain(z), x.grad, a.grad, b.grad, upstream

    def columns(result, names):
        return dict(zip(names, [list(c) for c in zip(*result.values, strict=True)], strict=True))

    def sent(result):
        return [result.ledger.ring_bytes(rank=r) for r in range(n)]

    shards = per_rank(given["a_shards"]), per_rank(given["b_shards"])
    once = run(forward, n, given["x"], *shards, echo=False)
    both = run(backward, n, given["x"], *shards, given["upstream"], echo=False)
    tree = columns(
        once, ["z without gradient", "x afterwards", "a_shard afterwards", "b_shard afterwards"]
    )
    tree |= columns(
        both,
        ["z", "gradient of x", "gradient of a_shard", "gradient of b_shard", "upstream afterwards"],
    )
    return tree | {"ring_bytes forward": sent(once), "ring_bytes with backward": sent(both)}


def oracle(case, given):
    from decimal import Decimal, localcontext
    from fractions import Fraction

    import torch

    n = case.n

    def exact(tensor):
        """Return a matrix of fractions; batch dims become rows."""
        return [[Fraction(v) for v in row] for row in tensor.reshape(-1, tensor.shape[-1]).tolist()]

    def product(p, q):
        return [[sum(map(Fraction.__mul__, row, col)) for col in zip(*q)] for row in p]  # noqa: B905

    def turned(p):
        return [list(col) for col in zip(*p, strict=True)]

    def each(function, *matrices):
        return [
            [function(*e) for e in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)
        ]

    def gelu(u):
        """Return u Phi(u) and its derivative, Phi(u) + u phi(u)."""
        with localcontext() as context:
            context.prec = 50
            v = Decimal(u.numerator) / Decimal(u.denominator)
            pi = Decimal("3.14159265358979323846264338327950288419716939937510")
            density = (-v * v / 2).exp() / (2 * pi).sqrt()
            term, k, total = v, 1, v
            while abs(term) > Decimal("1e-45"):  # Phi = 1/2 + phi (v + v^3/3 + v^5/(3 5) + ...)
                k += 2
                term *= v * v / k
                total += term
            normal = Decimal("0.5") + density * total
            return Fraction(v * normal), Fraction(normal + v * density)

    x, up = exact(given["x"]), exact(given["upstream"])
    a = exact(torch.cat(given["a_shards"], dim=1))
    b = exact(torch.cat(given["b_shards"], dim=0))
    u = product(x, a)
    bent, slope = (each(lambda v, i=i: gelu(v)[i], u) for i in (0, 1))
    grad_u = each(Fraction.__mul__, product(up, turned(b)), slope)

    def tensor(matrix, shape):
        return torch.tensor(
            [[float(v) for v in row] for row in matrix], dtype=torch.float64
        ).reshape(shape)

    shape, d = given["x"].shape, sum(case.widths)
    whole = {
        "z": tensor(product(bent, b), shape),
        "gradient of x": tensor(product(grad_u, turned(a)), shape),
    }
    grad_a = tensor(product(turned(x), grad_u), (case.h, d)).split(case.widths, dim=1)
    grad_b = tensor(product(turned(bent), up), (d, case.h)).split(case.widths, dim=0)
    padded_bytes = -(-given["x"].numel() // n) * n * 8  # float64
    reduce = Fraction(2 * (n - 1), n) * padded_bytes
    return {  # changed inputs first: they explain what is wrong behind them
        "x afterwards": [given["x"]] * n,
        "a_shard afterwards": given["a_shards"],
        "b_shard afterwards": given["b_shards"],
        "z without gradient": [whole["z"]] * n,
        "z": [whole["z"]] * n,
        "gradient of x": [whole["gradient of x"]] * n,
        "gradient of a_shard": [part.clone() for part in grad_a],
        "gradient of b_shard": [part.clone() for part in grad_b],
        "upstream afterwards": [given["upstream"]] * n,
        "ring_bytes forward": [reduce] * n,
        "ring_bytes with backward": [2 * reduce] * n,
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


@wrong("f is missing: all ranks use the same x, so x's gradient is a sum over ranks.")
def f_missing():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return g.apply(F.gelu(x @ a_shard) @ b_shard, comm)

    return tp_mlp


@wrong("f stands behind x A, whose columns each rank has for itself: it belongs where x enters.")
def f_behind_the_product():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return g.apply(F.gelu(f.apply(x @ a_shard, comm)) @ b_shard, comm)

    return tp_mlp


@wrong("g is missing: each rank returns only its own term of the sum.")
def g_missing():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return F.gelu(f.apply(x, comm) @ a_shard) @ b_shard

    return tp_mlp


@wrong("f and g are swapped: f where the whole x enters, g where the partial sums leave.")
def swapped():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return f.apply(F.gelu(g.apply(x, comm) @ a_shard) @ b_shard, comm)

    return tp_mlp


@wrong("GeLU is missing: it bends x A, between the two matrices.")
def gelu_missing():
    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return g.apply(f.apply(x, comm) @ a_shard @ b_shard, comm)

    return tp_mlp


@wrong("GeLU comes too late, on each rank's partial sum: GeLU of a sum is no sum of GeLUs.")
def gelu_on_partial_sums():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return g.apply(F.gelu(f.apply(x, comm) @ a_shard @ b_shard), comm)

    return tp_mlp


@wrong("GeLU comes after the sum: it bends x A, between the two matrices.")
def gelu_at_the_end():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return F.gelu(g.apply(f.apply(x, comm) @ a_shard @ b_shard, comm))

    return tp_mlp


@wrong("This is GeLU's tanh approximation: the exact GeLU is asked for, torch's default.")
def gelu_by_tanh():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return g.apply(F.gelu(f.apply(x, comm) @ a_shard, approximate="tanh") @ b_shard, comm)

    return tp_mlp


@wrong("This is ReLU, not GeLU.")
def relu():
    import torch

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return g.apply(torch.relu(f.apply(x, comm) @ a_shard) @ b_shard, comm)

    return tp_mlp


@wrong("x A is summed over ranks, but its columns lie side by side: there is nothing to add there.")
def reduced_in_between():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        u = g.apply(f.apply(x, comm) @ a_shard, comm)
        return g.apply(F.gelu(u) @ b_shard, comm)

    return tp_mlp


@wrong("comm gathers x A unseen by autograd: leave it cut, B's rows need just these columns.")
def gathered_in_between():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        whole = F.gelu(comm.all_gather(f.apply(x, comm) @ a_shard, dim=-1))
        mine = whole.chunk(comm.size, dim=-1)[comm.rank]
        return g.apply(mine @ b_shard, comm)

    return tp_mlp


@wrong("x A is gathered, then cut again: B's rows on this rank need just the columns it has.")
def gathered_with_a_gradient():
    import torch
    import torch.nn.functional as F

    class GatherAndCut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u, comm):
            return comm.all_gather(u, dim=-1).chunk(comm.size, dim=-1)[comm.rank].clone()

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        u = GatherAndCut.apply(f.apply(x, comm) @ a_shard, comm)
        return g.apply(F.gelu(u) @ b_shard, comm)

    return tp_mlp


@wrong("comm.all_reduce returns a tensor without history, so no gradient gets through it: use g.")
def reduced_without_g():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return comm.all_reduce(F.gelu(f.apply(x, comm) @ a_shard) @ b_shard)

    return tp_mlp


@wrong(
    "f stands behind g too, so gradients are t times too large: z is whole, its gradient as well."
)
def f_behind_g():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        z = g.apply(F.gelu(f.apply(x, comm) @ a_shard) @ b_shard, comm)
        return f.apply(z, comm)

    return tp_mlp


@wrong("x is summed over ranks as it enters: it is whole on every rank already, so f leaves it.")
def g_on_x():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        x = g.apply(f.apply(x, comm), comm)
        return g.apply(F.gelu(x @ a_shard) @ b_shard, comm)

    return tp_mlp


@wrong("The terms are averaged: the ranks hold terms of one sum, so nothing is to be divided by t.")
def mean_of_the_terms():
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return g.apply(F.gelu(f.apply(x, comm) @ a_shard) @ b_shard, comm) / comm.size

    return tp_mlp


@also_right("GeLU by erf, products by einsum")
def by_erf_and_einsum():
    import math

    import torch

    def bent(u):
        return u * (0.5 + 0.5 * torch.erf(u / math.sqrt(2)))

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        u = torch.einsum("...h,hd->...d", f.apply(x, comm), a_shard)
        return g.apply(torch.einsum("...d,dh->...h", bent(u), b_shard), comm)

    return tp_mlp


@also_right("one autograd function of its own, by reduce-scatter and all-gather, f and g unused")
def one_function_of_its_own():
    import torch
    import torch.nn.functional as F

    def summed(comm, term):
        flat = term.reshape(-1)
        flat = torch.cat([flat, flat.new_zeros(-flat.numel() % comm.size)])
        return comm.all_gather(comm.reduce_scatter(flat))[: term.numel()].view(term.shape)

    class Mlp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, a, b, comm):
            ctx.comm = comm
            u = x @ a
            ctx.save_for_backward(x, a, b, u)
            return summed(comm, F.gelu(u) @ b)

        @staticmethod
        def backward(ctx, grad):
            x, a, b, u = ctx.saved_tensors
            normal = torch.special.ndtr(u)
            density = torch.exp(-0.5 * u.square()) / (2 * torch.pi) ** 0.5
            grad_u = (grad @ b.T) * (normal + u * density)
            grad_b = (u * normal).flatten(0, -2).T @ grad.flatten(0, -2)
            grad_a = x.flatten(0, -2).T @ grad_u.flatten(0, -2)
            return summed(ctx.comm, grad_u @ a.T), grad_a, grad_b, None

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        return Mlp.apply(x, a_shard, b_shard, comm)

    return tp_mlp


@also_right("the tokens one after the other, each with a small f and g: as many bytes in all")
def token_by_token():
    import torch
    import torch.nn.functional as F

    def tp_mlp(comm, x, a_shard, b_shard, *, f, g):
        rows = [
            g.apply(F.gelu(f.apply(token, comm) @ a_shard) @ b_shard, comm)
            for token in x.flatten(0, -2).unbind()
        ]
        return torch.stack(rows).view(x.shape)

    return tp_mlp


EQUIVALENT = {}
