"""One step of ZeRO-2, in place: `zero2_step(comm, layers, params, states, batch, step, *, loss_fn,
adam, flat_shard, unflatten)` -> this rank's loss.

Arguments and result are zero1_step's. Cost: a reduce-scatter for each layer that is trained, an
all-gather for each unit that is, so 2 S (n-1)/n bytes for a unit of S padded bytes and one layer;
whole weights are held, shards of gradients and optimiser, and what a few units need in passing.
Source: Rajbhandari et al. 2020 (arXiv:1910.02054), sections 5.2 and 7. Oracle: zero1_step's.
"""

from distgrade.exercise import Close, also_right, slip
from distgrade.labs.lab06_zero import _zero

NAMES = ("zero2_step",)
FORBID = ()
TOLERANCE = Close(1e-10, "several steps of Adam in float64, sums over ranks in any order")
CREDIT = {"plain": 2, "any model": 2, "bytes": 1, "memory": 1}
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

    zero2_step = student.zero2_step
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
        params = [[t.clone() for t in unit] for unit in units]
        shards = [flat_shard(unit, comm.size, comm.rank) for unit in units]
        states = [(w, torch.zeros_like(w), torch.zeros_like(w)) for w in shards]
        for u in range(len(units)):
            states[u] = None if u in frozen else states[u]
            for t in params[u]:
                t.requires_grad_(u not in frozen)
        del shards
        losses, peaks = [], []
        tools = {"adam": adam, "flat_shard": flat_shard, "unflatten": unflatten}
        for step, (x, y) in enumerate(batches, 1):
            with resident(params, states, x, y) if measured else nullcontext() as memory:
                args = comm, layers, params, states, (x, y), step
                loss = zero2_step(*args, loss_fn=mean_loss, **tools)
            losses.append(loss.item() if getattr(loss, "shape", None) == () else loss)
            peaks += [memory.peak_bytes] if measured else []
        return {
            "batches afterwards": [[x.detach(), y.detach()] for x, y in batches],
            "weights": [[t.detach() for t in unit] for unit in params],
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
    return _zero.expected(case, given, stage=2)


def judge(got, expected, case):
    return _zero.symptoms(got, expected, case, TOLERANCE.rtol)


@also_right("by .backward(), each unit updated as soon as its first layer has come")
def at_once():
    import torch

    def zero2_step(
        comm, layers, params, states, batch, step, *, loss_fn, adam, flat_shard, unflatten
    ):
        x, y = batch
        passed, first = [], {}
        for i, (layer, u) in enumerate(layers):
            first.setdefault(u, i)
            x = x.detach().requires_grad_()
            passed.append((x, layer(params[u], x)))
            x = passed[-1][1]
        x = x.detach().requires_grad_()
        loss = loss_fn(x, y)
        loss.backward()
        grad = x.grad
        for i in reversed(range(len(layers))):
            x, out = passed.pop()
            out.backward(grad)
            grad, u = x.grad, layers[i][1]
            if first[u] < i or states[u] is None:
                continue
            unit = params[u]
            grads = [torch.zeros_like(p) if p.grad is None else p.grad / comm.size for p in unit]
            for p in unit:
                p.grad = None
            line = torch.cat([flat_shard(grads, comm.size, r) for r in range(comm.size)])
            del grads
            weights, *states[u] = adam(
                states[u][0], comm.reduce_scatter(line), states[u][1], states[u][2], step
            )
            new = unflatten(comm.all_gather(weights), unit)
            for k, p in enumerate(unit):
                p.data.copy_(new[k])
        return loss.item()

    return zero2_step


@also_right("an autograd function for each layer, which runs it again and scatters its gradients")
def in_autograd():
    import torch

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, layer, unit, take):
            ctx.save_for_backward(x)
            ctx.rest = layer, unit, take
            return layer(unit, x)

        @staticmethod
        def backward(ctx, grad):
            layer, unit, take = ctx.rest
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                out = layer(unit, x)
            leaves = [p for p in unit if p.requires_grad]
            by_x, *grads = torch.autograd.grad(out, [x, *leaves], grad, materialize_grads=True)
            take(grads)
            return by_x, None, None, None

    def zero2_step(
        comm, layers, params, states, batch, step, *, loss_fn, adam, flat_shard, unflatten
    ):
        shards = [None if s is None else torch.zeros_like(s[0]) for s in states]

        def taker(u):
            def take(grads):
                if grads:
                    parts = [flat_shard(grads, comm.size, r) for r in range(comm.size)]
                    shards[u] += comm.reduce_scatter(torch.cat(parts), op="mean")

            return take

        x = batch[0].detach().requires_grad_()
        for layer, u in layers:
            x = Layer.apply(x, layer, params[u], taker(u))
        loss = loss_fn(x, batch[1])
        loss.backward()
        for u, unit in enumerate(params):
            if states[u] is not None:
                master, m, v = states[u]
                weights, *states[u] = adam(master, shards[u], m, v, step)
                new = unflatten(comm.all_gather(weights), unit)
                for k, p in enumerate(unit):
                    p.data = new[k].clone()
        return loss

    return zero2_step


@also_right("layer by layer: each has a graph of its own, sends its gradients and drops them")
def layer_by_layer():
    import torch

    def zero2_step(
        comm, layers, params, states, batch, step, *, loss_fn, adam, flat_shard, unflatten
    ):
        n = comm.size
        x, y = batch
        ins, outs = [], []
        for layer, u in layers:
            ins.append(x.detach().requires_grad_())
            x = layer(params[u], ins[-1])
            outs.append(x)
        loss = outs[-1] = loss_fn(x, y)
        grad, means = None, {}
        for i in reversed(range(len(layers))):
            u = layers[i][1]
            unit = [] if states[u] is None else params[u]
            *grads, grad = torch.autograd.grad(
                outs[i], [*unit, ins[i]], grad, materialize_grads=True
            )
            if unit:
                line = torch.cat([flat_shard(grads, n, rank) for rank in range(n)])
                mean = comm.reduce_scatter(line, op="mean")
                means[u] = means.get(u, 0) + mean
        for u, mean in means.items():
            master, m, v = states[u]
            weights, *states[u] = adam(master, mean, m, v, step)
            new = unflatten(comm.all_gather(weights), params[u])
            for k, p in enumerate(params[u]):
                p.data.copy_(new[k])
        return loss.detach()

    return zero2_step


all_reduce_and_slice = slip(
    layer_by_layer,
    "An all-reduce brings all of the gradient, of which you keep one shard: reduce-scatter it.",
    (
        'comm.reduce_scatter(line, op="mean")',
        'comm.all_reduce(line, op="mean").chunk(n)[comm.rank].clone()',
    ),
)
sent_in_the_end = slip(
    layer_by_layer,
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
gradients_kept = slip(
    layer_by_layer,
    "Gradients are sent layer by layer, but kept as well: drop the rest of what is reduced.",
    ("grad, means = None, {}", "grad, means, kept = None, {}, []"),
    ("if unit:", "kept.append(grads)\n        if unit:"),
)
summed = slip(
    layer_by_layer,
    "Gradients are summed over the ranks: it is their mean that belongs to the mean loss.",
    ('op="mean"', 'op="sum"'),
)
own_gradient = slip(
    layer_by_layer,
    "Each shard is updated with one rank's gradient: average it over all ranks first.",
    ('comm.reduce_scatter(line, op="mean")', "flat_shard(grads, n, comm.rank)"),
)
tied_overwritten = slip(
    layer_by_layer,
    "A unit that two layers use gets the gradient of one: add up what its layers give.",
    ("means.get(u, 0) + mean", "mean"),
)
updated_per_layer = slip(
    layer_by_layer,
    "A unit that two layers use is updated twice: wait until all its layers have come.",
    ("means[u] = means.get(u, 0) + mean", "means[len(means)] = u, mean"),
    ("for u, mean in means.items():", "for u, mean in means.values():"),
)
unused_left_out = slip(
    layer_by_layer,
    "A tensor without a gradient is left out, so those behind it lie elsewhere: its gradient is 0.",
    ("materialize_grads=True", "allow_unused=True"),
    ("if unit:", "grads = [g for g in grads if g is not None]\n        if unit:"),
)
not_gathered = slip(
    layer_by_layer,
    "Each rank updates its own shard and leaves the others as they were: gather the new weights.",
    (
        "new = unflatten(comm.all_gather(weights), params[u])",
        "old = [flat_shard(params[u], n, rank) for rank in range(n)]\n"
        "        old[comm.rank] = weights\n"
        "        new = unflatten(torch.cat(old), params[u])",
    ),
)
decay_twice = slip(
    layer_by_layer,
    "Weight decay comes in twice: adam has it, so add none to the gradient or the weights.",
    ("adam(master, mean, m, v, step)", "adam(master, mean + 0.1 * master, m, v, step)"),
)
step_of_units = slip(
    layer_by_layer,
    "adam's step counts units or ranks: all of them make the same step, so pass it as it is.",
    ("m, v, step)", "m, v, step + u)"),
)
states_not_kept = slip(
    layer_by_layer,
    "The next step begins with old optimiser states: put what adam returns into states[u].",
    ("weights, *states[u] =", "weights, *_ ="),
)
EQUIVALENT = {}
