"""One step of ZeRO-3, in place: `zero3_step(comm, layers, params, states, batch, step, *, like,
loss_fn, adam, flat_shard, unflatten)` -> this rank's loss.

Arguments and result are zero1_step's, but for `params[u]`: this rank's shard of the unit's weights,
1-D, cut as the states are. `like[u]` are tensors of the unit's shapes, on meta, without memory. A
unit is frozen where states[u] is None; its layers still need its weights.
Cost: two all-gathers for each layer, and a reduce-scatter where it is trained, so 3 S (n-1)/n bytes
for a unit of S padded bytes and one layer; shards of everything are held, and what a few units need
in passing.
Source: Rajbhandari et al. 2020 (arXiv:1910.02054), sections 5.3 and 7; Zhao et al. 2023
(arXiv:2304.11277), section 3. Oracle: zero1_step's, cut into shards.
"""

from distgrade.exercise import Close, also_right, slip
from distgrade.labs.lab06_zero import _zero

NAMES = ("zero3_step",)
FORBID = ()
TOLERANCE = Close(1e-10, "several steps of Adam in float64, sums over ranks in any order")
CREDIT = {"plain": 2, "any model": 2, "bytes": 1, "memory": 2}
CASES = _zero.CASES
MEASURED = _zero.MEASURED


def given(case, seed):
    from distlab.seeds import normal

    key, first, last = ("zero", case.name, seed), case.layers[0], case.layers[-1]

    def unit(u, shape):
        shapes = [shape, shape[1:], *[(3,)] * (u in case.spare)]
        return [normal(s, *key, "unit", u, k) / 2 for k, s in enumerate(shapes)]

    def batch(*at):
        x, y = (case.samples, case.units[first][0]), (case.samples, case.units[last][1])
        return [normal(x, *key, "x", *at), normal(y, *key, "y", *at)]

    return {
        "units": [unit(u, shape) for u, shape in enumerate(case.units)],
        "batches": [[batch(rank, s) for s in range(case.steps)] for rank in range(case.n)],
        "model": [list(case.layers), list(case.frozen), case.measured],
        "adam": [0.05, 0.8, 0.9, 1e-3, 0.1],  # lr, β1, β2, ε, weight decay
    }


def observe(student, given):
    from contextlib import nullcontext

    import torch

    from distlab import per_rank, run
    from distlab.resident import resident

    zero3_step = student.zero3_step
    order, frozen, measured = given["model"]
    lr, beta1, beta2, eps, decay = given["adam"]

    def flat_shard(tensors, n, rank):
        flat = torch.cat([t.detach().reshape(-1) for t in tensors])
        return torch.nn.functional.pad(flat, (0, -len(flat) % n)).chunk(n)[rank].clone()

    def unflatten(flat, like):
        sizes = [t.numel() for t in like]
        parts = flat[: sum(sizes)].split(sizes)
        return [part.view(t.shape) for part, t in zip(parts, like, strict=True)]

    def adam(master, grad, m, v, step):
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad.square()
        root = (v / (1 - beta2**step)).sqrt() + eps
        master = (1 - lr * decay) * master - lr / (1 - beta1**step) * m / root
        return master.clone(), master, m, v

    def tanh_layer(unit, x):
        return torch.tanh(x @ unit[0] + unit[1])

    def mean_loss(x, y):
        return (2 * x - y).square().sum(dim=1).mean()  # x and y don't swap

    def on_a_rank(comm, units, batches):
        layers = [(tanh_layer, u) for u in order]
        params = [flat_shard(unit, comm.size, comm.rank) for unit in units]
        states = [
            None if u in frozen else (w.clone(), torch.zeros_like(w), torch.zeros_like(w))
            for u, w in enumerate(params)
        ]
        like = [[t.to("meta") for t in unit] for unit in units]
        losses, peaks = [], []
        tools = {"like": like, "adam": adam, "flat_shard": flat_shard, "unflatten": unflatten}
        for step, (x, y) in enumerate(batches, 1):
            with resident(params, states, x, y) if measured else nullcontext() as memory:
                args = comm, layers, params, states, (x, y), step
                loss = zero3_step(*args, loss_fn=mean_loss, **tools)
            losses.append(loss.item() if getattr(loss, "shape", None) == () else loss)
            peaks += [memory.peak_bytes] if measured else []
        return {
            "batches afterwards": [[x.detach(), y.detach()] for x, y in batches],
            "weights": [shard.detach() for shard in params],
            "optimiser states": [s if s is None else list(s) for s in states],
            "losses": losses,
            "peak bytes": max(peaks) if measured else None,
        }

    n = len(given["batches"])
    batches = per_rank(given["batches"])
    result = run(on_a_rank, n, given["units"], batches, echo=False, timeout=60)
    tree = {key: [value[key] for value in result.values] for key in result.values[0]}
    return tree | {"bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)]}


def oracle(case, given):
    return _zero.expected(case, given, stage=3)


def judge(got, expected, case):
    return _zero.symptoms(got, expected, case, TOLERANCE.rtol)


@also_right("a gather whose backward is a reduce-scatter; a checkpoint runs it again for backward")
def gather_in_autograd():
    import torch
    from torch.utils.checkpoint import checkpoint

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard, comm):
            ctx.comm = comm
            return comm.all_gather(shard)

        @staticmethod
        def backward(ctx, grad):
            return ctx.comm.reduce_scatter(grad, op="mean"), None

    def zero3_step(
        comm, layers, params, states, batch, step, *, like, loss_fn, adam, flat_shard, unflatten
    ):
        trained = [state is not None for state in states]
        leaves = [p.requires_grad_(trained[u]) for u, p in enumerate(params)]

        def gathered(layer, u, x):
            return layer(unflatten(Gather.apply(leaves[u], comm), like[u]), x)

        x, y = batch
        for layer, u in layers:
            x = checkpoint(gathered, layer, u, x, use_reentrant=False)
        loss = loss_fn(x, y)
        loss.backward()
        for u in range(len(states)):
            if trained[u]:
                master, m, v = states[u]
                params[u], *states[u] = adam(master, leaves[u].grad, m, v, step)
        return loss.detach()

    return zero3_step


@also_right("the last layer's weights stay from forward to backward; all_to_all and broadcasts")
def last_one_stays():
    import torch

    def zero3_step(
        comm, layers, params, states, batch, step, *, like, loss_fn, adam, flat_shard, unflatten
    ):
        def gather(u):
            parts = [comm.broadcast(params[u], src) for src in range(comm.size)]
            unit = unflatten(torch.cat(parts), like[u])
            for t in unit:
                t.requires_grad_(states[u] is not None)
            return unit

        shards = {}
        held = [batch[0]]
        for layer, u in layers[:-1]:
            with torch.no_grad():
                held.append(layer(gather(u), held[-1]))
        grad, loss = None, None
        while held:
            layer, u = layers[len(held) - 1]
            x = held.pop().detach().requires_grad_()
            unit = gather(u)
            out = layer(unit, x)
            if loss is None:
                loss = out = loss_fn(out, batch[1])
            out.backward(grad)
            grad = x.grad
            if states[u] is None:
                continue
            grads = [torch.zeros_like(t) if t.grad is None else t.grad for t in unit]
            sent = torch.cat([flat_shard(grads, comm.size, r) for r in range(comm.size)])
            came = comm.all_to_all(sent).view(comm.size, -1).mean(dim=0)
            shards[u] = came + shards[u] if u in shards else came
        for u in shards:
            weights, *new = adam(states[u][0], shards[u], *states[u][1:], step)
            params[u].copy_(weights)
            states[u] = new
        return loss

    return zero3_step


@also_right("weights gathered for forward, again for backward, dropped each time")
def gathered_twice():
    import torch

    def zero3_step(
        comm, layers, params, states, batch, step, *, like, loss_fn, adam, flat_shard, unflatten
    ):
        n = comm.size
        x, y = batch
        ins = []
        with torch.no_grad():
            for layer, u in layers:
                ins.append(x)
                x = layer(unflatten(comm.all_gather(params[u]), like[u]), x)
        x.requires_grad_()
        loss = loss_fn(x, y)
        (grad,) = torch.autograd.grad(loss, x)
        means = {}
        for layer, u in reversed(layers):
            x = ins.pop().detach().requires_grad_()
            unit = unflatten(comm.all_gather(params[u]), like[u])
            leaves = [] if states[u] is None else [t.requires_grad_() for t in unit]
            out = layer(unit, x)
            *grads, grad = torch.autograd.grad(out, [*leaves, x], grad, materialize_grads=True)
            if leaves:
                line = torch.cat([flat_shard(grads, n, rank) for rank in range(n)])
                mean = comm.reduce_scatter(line, op="mean")
                means[u] = means.get(u, 0) + mean
        for u, mean in means.items():
            master, m, v = states[u]
            params[u], *states[u] = adam(master, mean, m, v, step)
        return loss.detach()

    return zero3_step


kept_for_backward = slip(
    gathered_twice,
    "Weights gathered for forward are kept for backward: drop them, and gather them once more.",
    ("ins = []", "ins, units = [], []"),
    (
        "x = layer(unflatten(comm.all_gather(params[u]), like[u]), x)",
        "units.append(unflatten(comm.all_gather(params[u]), like[u]))\n"
        "            x = layer(units[-1], x)",
    ),
    ("unit = unflatten(comm.all_gather(params[u]), like[u])\n", "unit = units.pop()\n"),
)
never_dropped = slip(
    gathered_twice,
    "Gathered weights are never let go: after a layer's work only its shard should be left.",
    ("means = {}", "means, units = {}, []"),
    ("out = layer(unit, x)", "units.append(unit)\n        out = layer(unit, x)"),
)
gathered_first = slip(
    gathered_twice,
    "All weights are gathered before the first layer works: gather one layer's at a time.",
    ("ins = []", "ins = []\n    units = [comm.all_gather(p) for p in params]"),
    (
        "x = layer(unflatten(comm.all_gather(params[u]), like[u]), x)",
        "x = layer(unflatten(units[u], like[u]), x)",
    ),
    (
        "unit = unflatten(comm.all_gather(params[u]), like[u])\n",
        "unit = [t.clone() for t in unflatten(units[u], like[u])]\n",
    ),
)
gathered_after = slip(
    gathered_twice,
    "New weights are gathered too: nobody needs them whole before the next forward pass.",
    (
        "params[u], *states[u] = adam(master, mean, m, v, step)",
        "weights, *states[u] = adam(master, mean, m, v, step)\n"
        "        params[u] = comm.all_gather(weights).chunk(n)[comm.rank].clone()",
    ),
)
all_reduce_and_slice = slip(
    gathered_twice,
    "An all-reduce brings all of the gradient, of which you keep one shard: reduce-scatter it.",
    (
        'comm.reduce_scatter(line, op="mean")',
        'comm.all_reduce(line, op="mean").chunk(n)[comm.rank].clone()',
    ),
)
sent_in_the_end = slip(
    gathered_twice,
    "All gradients are there at once: send a layer's before you make the next one's.",
    (
        'mean = comm.reduce_scatter(line, op="mean")\n'
        "            means[u] = means.get(u, 0) + mean",
        "means[u] = means.get(u, 0) + line",
    ),
    (
        "master, m, v = states[u]",
        'mean = comm.reduce_scatter(mean, op="mean")\n        master, m, v = states[u]',
    ),
)
summed = slip(
    gathered_twice,
    "Gradients are summed over the ranks: it is their mean that belongs to the mean loss.",
    ('op="mean"', 'op="sum"'),
)
own_gradient = slip(
    gathered_twice,
    "Each shard is updated with one rank's gradient: average it over all ranks first.",
    ('comm.reduce_scatter(line, op="mean")', "flat_shard(grads, n, comm.rank)"),
)
tied_overwritten = slip(
    gathered_twice,
    "A unit that two layers use gets the gradient of one: add up what its layers give.",
    ("means.get(u, 0) + mean", "mean"),
)
unused_left_out = slip(
    gathered_twice,
    "A tensor without a gradient is left out, so those behind it lie elsewhere: its gradient is 0.",
    ("materialize_grads=True", "allow_unused=True"),
    ("if leaves:", "grads = [g for g in grads if g is not None]\n        if leaves:"),
)
weights_not_updated = slip(
    gathered_twice,
    "The next forward gathers old weights: put adam's weights into params[u].",
    ("params[u], *states[u] =", "_, *states[u] ="),
)
decay_twice = slip(
    gathered_twice,
    "Weight decay comes in twice: adam has it, so add none to the gradient or the weights.",
    ("adam(master, mean, m, v, step)", "adam(master, mean + 0.1 * master, m, v, step)"),
)
step_of_units = slip(
    gathered_twice,
    "adam's step counts units or ranks: all of them make the same step, so pass it as it is.",
    ("m, v, step)", "m, v, step + u)"),
)
EQUIVALENT = {}
