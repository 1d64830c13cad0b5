"""f and g: the two autograd functions at the edges of a tensor-parallel block.

`CopyToRanks.apply(x, comm)` (f): forward x as it is, backward the sum of all ranks' gradients.
`ReduceFromRanks.apply(x, comm)` (g): forward the sum of all ranks' x, backward the gradient as it
came. Any shape, float64, one tensor per rank.
Cost: f sends nothing forward and one all-reduce backward, g the reverse. S bytes on a ring of n
ranks: 2 (n-1)/n S sent per rank. Reduce-scatter then all-gather costs the same, with the tensor
padded to a multiple of n where n does not divide it: hence the ceiling.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3. Oracle: the sums of all members' tensors,
in one process, without communication.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Exact, also_right, slip

NAMES = ("CopyToRanks", "ReduceFromRanks")
FORBID = ()
TOLERANCE = Exact()
CREDIT = {"values": 3, "bytes": 1}
CASES = (
    Case("one rank", "values", n=1, shape=(2, 3), way="plain", what="values"),
    Case("two ranks", "values", n=2, shape=(3, 5), way="plain", what="values"),
    Case("three ranks, three dims", "values", n=3, shape=(2, 4, 3), way="turned", what="values"),
    Case("five ranks, a vector", "values", n=5, shape=(7,), way="plain", what="values"),
    Case("four ranks, one gradient", "values", n=4, shape=(3, 2), way="sum", what="values"),
    Case("four ranks in two groups", "values", n=4, shape=(3, 4), way="plain", what="groups"),
    Case("bytes, two ranks", "bytes", n=2, shape=(4, 3), way="plain", what="bytes"),
    Case("bytes, four ranks", "bytes", n=4, shape=(5, 3), way="plain", what="bytes"),
    Case("bytes, five ranks", "bytes", n=5, shape=(2, 3, 4), way="plain", what="bytes"),
)


def given(case, seed):
    from distlab.seeds import integers

    def per_rank_data(name, shape):
        return [integers(shape, "f_and_g", case.name, seed, name, r) for r in range(case.n)]

    turned = (*case.shape[:-2], case.shape[-1], case.shape[-2]) if case.way == "turned" else None
    return {
        "n": case.n,
        "way": case.way,
        "what": case.what,
        "x": per_rank_data("x", case.shape),
        "upstream": per_rank_data("upstream", turned or case.shape),
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    functions = {"f": student.CopyToRanks, "g": student.ReduceFromRanks}
    n, way = given["n"], given["way"]

    def plain(y):
        return y.detach().clone() if isinstance(y, torch.Tensor) else y

    def whole(y, x):  # an answer of another shape has no gradient to look at
        return isinstance(y, torch.Tensor) and y.requires_grad and y.shape == x.shape

    def forward(comm, function, x):
        before = x.clone()
        y = function.apply(before, comm)
        return plain(y), before

    def backward(comm, function, x, upstream):
        x = x.clone().requires_grad_()
        y = function.apply(x, comm)
        if not whole(y, x):
            return plain(y), None, upstream
        if way == "turned":  # the gradient arrives with another memory layout
            (y.transpose(-1, -2) * upstream).sum().backward()
        elif way == "sum":  # the gradient arrives as one number, expanded
            (y.sum() * upstream.sum()).backward()
        else:
            y.backward(upstream)
        return plain(y), x.grad, upstream

    def two_groups(comm, function, x, upstream):
        near, far = comm.split(comm.rank // 2), comm.split(comm.rank % 2)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        y_near, y_far = function.apply(a, near), function.apply(b, far)
        for y in (y_near, y_far):
            if whole(y, x):
                y.backward(upstream)
        return plain(y_near), plain(y_far), a.grad, b.grad

    def columns(result, names):
        return dict(zip(names, [list(c) for c in zip(*result.values, strict=True)], strict=True))

    def sent(result):
        return [result.ledger.ring_bytes(rank=r) for r in range(n)]

    x, upstream = per_rank(given["x"]), per_rank(given["upstream"])
    tree = {}
    for name, function in functions.items():
        if given["what"] == "groups":
            result = run(two_groups, n, function, x, upstream, echo=False)
            names = ["forward, pairs", "forward, strides", "gradient, pairs", "gradient, strides"]
            part = columns(result, names)
        else:
            once = run(forward, n, function, x, echo=False)
            both = run(backward, n, function, x, upstream, echo=False)
            part = columns(once, ["forward without gradient", "input afterwards"])
            part |= columns(both, ["forward", "gradient of x", "upstream gradient afterwards"])
            part |= {"ring_bytes forward": sent(once), "ring_bytes with backward": sent(both)}
        tree |= {f"{name} {key}": value for key, value in part.items()}
    return tree


def oracle(case, given):
    import torch

    n, x, upstream = case.n, given["x"], given["upstream"]
    if case.way == "turned":
        arriving = [u.transpose(-1, -2) for u in upstream]
    elif case.way == "sum":
        arriving = [torch.full(case.shape, u.sum().item(), dtype=u.dtype) for u in upstream]
    else:
        arriving = upstream

    def added(parts, members):
        return torch.stack([parts[m] for m in members]).sum(dim=0)

    if case.what == "groups":
        near = [[r - r % 2, r - r % 2 + 1] for r in range(n)]
        far = [[m for m in range(n) if m % 2 == r % 2] for r in range(n)]
        return {
            "f forward, pairs": list(x),
            "f forward, strides": list(x),
            "f gradient, pairs": [added(arriving, g) for g in near],
            "f gradient, strides": [added(arriving, g) for g in far],
            "g forward, pairs": [added(x, g) for g in near],
            "g forward, strides": [added(x, g) for g in far],
            "g gradient, pairs": list(arriving),
            "g gradient, strides": list(arriving),
        }
    everyone = range(n)
    sums = {"x": [added(x, everyone)] * n, "grad": [added(arriving, everyone)] * n}
    return _ceilings(case) | {  # changed inputs first: they explain what is wrong behind them
        "f input afterwards": list(x),
        "g input afterwards": list(x),
        "f forward without gradient": list(x),
        "f forward": list(x),
        "f gradient of x": sums["grad"],
        "f upstream gradient afterwards": list(upstream),
        "g forward without gradient": sums["x"],
        "g forward": sums["x"],
        "g gradient of x": list(arriving),
        "g upstream gradient afterwards": list(upstream),
    }


def _ceilings(case):
    """Return the most bytes a rank may send: 2 (n-1)/n of the tensor, padded to a multiple of n."""
    from fractions import Fraction
    from math import prod

    n = case.n
    padded_bytes = -(-prod(case.shape) // n) * n * 8  # float64
    reduce = Fraction(2 * (n - 1), n) * padded_bytes
    return {
        "f ring_bytes forward": [Fraction(0)] * n,
        "f ring_bytes with backward": [reduce] * n,
        "g ring_bytes forward": [reduce] * n,
        "g ring_bytes with backward": [reduce] * n,
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
    if case.what == "bytes":
        for key in costs:
            symptoms += ceiling(got[key], expected[key], key)
    return symptoms


@also_right("in place on a copy, saved tensors, and nothing sent where no gradient is wanted")
def in_place_on_a_copy():
    import torch

    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return x.detach().clone()

        @staticmethod
        def backward(ctx, grad):
            if not ctx.needs_input_grad[0]:
                return None, None
            return ctx.comm.all_reduce(grad.clone()), None

    class ReduceFromRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.save_for_backward(x)
            y = x.clone()
            y.copy_(comm.all_reduce(y))
            return y

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad.reshape(x.shape), None

    return CopyToRanks, ReduceFromRanks


swapped = slip(
    in_place_on_a_copy,
    "The two are swapped: f is the identity forward, g is the identity backward.",
    ("x.detach().clone()", "comm.all_reduce(x)"),
    ("ctx.comm.all_reduce(grad.clone())", "grad"),
    ("y.copy_(comm.all_reduce(y))", "ctx.comm = comm"),
    ("grad.reshape(x.shape)", "ctx.comm.all_reduce(grad)"),
)
g_reduces_both_ways = slip(
    in_place_on_a_copy,
    "g sums in backward too, so gradients grow with the ranks: y is whole, its gradient as well.",
    ("y = x.clone()", "y, ctx.comm = x.clone(), comm"),
    ("grad.reshape(x.shape)", "ctx.comm.all_reduce(grad)"),
)
f_reduces_both_ways = slip(
    in_place_on_a_copy,
    "f sums in forward too: x is already whole on every rank, only its gradient is in parts.",
    ("x.detach().clone()", "comm.all_reduce(x)"),
)
f_keeps_the_gradient = slip(
    in_place_on_a_copy,
    "f does not sum in backward: each rank has only its own branch's gradient of the shared x.",
    ("ctx.comm.all_reduce(grad.clone())", "grad"),
)
g_takes_the_mean = slip(
    in_place_on_a_copy,
    "g takes the mean in forward: the parts are terms of one sum, not copies of one value.",
    ("all_reduce(y)", 'all_reduce(y, op="mean")'),
)
f_takes_the_mean = slip(
    in_place_on_a_copy,
    "f takes the mean in backward, as data parallelism would: here the branches' parts add up.",
    ("all_reduce(grad.clone())", "all_reduce(grad.clone()) / ctx.comm.size"),
)
g_keeps_its_part = slip(
    in_place_on_a_copy,
    "g does not sum in forward: each rank still has only its own part.",
    ("comm.all_reduce(y)", "y"),
)
g_changes_its_input = slip(
    in_place_on_a_copy,
    "g writes its result into the input: autograd, or your caller, may still need that tensor.",
    ("y.copy_(comm.all_reduce(y))", "y.copy_(x.data.copy_(comm.all_reduce(y)))"),
    ("grad.reshape(x.shape)", "grad"),
    ("(x,) = ctx.saved_tensors", "pass"),
)
comm_kept_on_the_class = slip(
    in_place_on_a_copy,
    "The communicator is kept on the class, so a later call overwrites it: keep it on ctx.",
    ("ctx.comm = comm", "CopyToRanks.comm = comm"),
    ("ctx.comm.all_reduce", "CopyToRanks.comm.all_reduce"),
)
gathers_and_sums = slip(
    in_place_on_a_copy,
    "The sums are right but gathered whole from every rank: an all-reduce sends far less.",
    ("all_reduce(grad.clone())", "all_gather(grad[None]).sum(dim=0)"),
    ("all_reduce(y)", "all_gather(y[None]).sum(dim=0)"),
)


@also_right("g by reduce-scatter and all-gather, padded where the ranks do not divide the tensor")
def reduce_scatter_then_all_gather():
    import torch

    def total(x, comm):
        flat = x.reshape(-1)
        padded = torch.cat([flat, flat.new_zeros(-flat.numel() % comm.size)])
        whole = comm.all_gather(comm.reduce_scatter(padded))
        return whole[: flat.numel()].reshape(x.shape)

    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return total(grad, ctx.comm), None

    class ReduceFromRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            return total(x, comm)

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    return CopyToRanks, ReduceFromRanks


@also_right("forward and setup_context apart, as newer torch code writes it")
def setup_context_apart():
    import torch
    from torch.autograd.function import once_differentiable

    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(x, comm):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.group = inputs[1]

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            return ctx.group.all_reduce(grad.contiguous()), None

    class ReduceFromRanks(torch.autograd.Function):
        @staticmethod
        def forward(x, comm):
            return comm.all_reduce(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, grad):
            return grad.clone(), None

    return CopyToRanks, ReduceFromRanks


_MATERIALIZE = "setup_context_apart ReduceFromRanks.setup_context: "
_NEEDS = "in_place_on_a_copy CopyToRanks.backward: "
EQUIVALENT = {
    "CopyToRanks.forward: x.view_as(x) -> x": "autograd itself makes a view of a returned input",
    "ReduceFromRanks.forward: ctx.comm = comm -> pass": "the backward of g asks nobody",
    **{
        _MATERIALIZE + mutant: "a gradient always arrives here, so none is made up"
        for mutant in (
            "ctx.set_materialize_grads(False) -> pass",
            "ctx.set_materialize_grads(False) -> False",
            "False -> True",
        )
    },
    **{
        _NEEDS + mutant: "autograd calls backward only where x wants a gradient"
        for mutant in (
            "if not ctx.needs_input_grad[0]: -> if False:",
            "return (None, None) -> pass",
        )
    },
}
