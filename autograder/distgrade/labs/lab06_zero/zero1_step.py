"""One step of ZeRO-1, in place: `zero1_step(comm, layers, params, states, batch, step, *, loss_fn,
adam, flat_shard, unflatten)` -> this rank's loss.

`params[u]`, a unit, is a list of tensors, whole on every rank. `layers` are pairs (layer, u), in
the order of forward: layer(params[u], x) -> x; two may share a unit (tied). `states[u]` is this
rank's shard of the unit's optimiser, (master, m, v), each 1-D; None if the unit is frozen (no
tensor of it requires gradients). Each unit has a layer; a tensor that none uses has gradient 0.
`batch` is this rank's (x, y), equally many samples on each; loss_fn(x, y) their mean loss.
`flat_shard(tensors, n, rank)` -> rank's part of the tensors laid end to end, padded; `unflatten(
flat, like)` -> tensors shaped like `like`; `adam(master, grad, m, v, step)` -> (weights, master, m,
v), decay included. Afterwards params and states are those after one device's step on all samples.
Cost: 2 S (n-1)/n bytes sent for each unit of S padded bytes; whole weights and gradients are held,
a shard of the optimiser, and what a few units need in passing.
Source: Rajbhandari et al. 2020 (arXiv:1910.02054), sections 5.1 and 7. Oracle: one device, all
data, forward and backward by hand in numpy, moments as sums over the gradients so far.
"""

from distgrade.exercise import Close, also_right, slip
from distgrade.labs.lab06_zero import _zero

NAMES = ("zero1_step",)
FORBID = ()
TOLERANCE = Close(1e-10, "several steps of Adam in float64, sums over ranks in any order")
CREDIT = {"plain": 2, "any model": 1, "bytes": 1, "memory": 1}
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

    zero1_step = student.zero1_step
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
                loss = zero1_step(*args, loss_fn=mean_loss, **tools)
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
    return _zero.expected(case, given, stage=1)


def judge(got, expected, case):
    return _zero.symptoms(got, expected, case, TOLERANCE.rtol)


@also_right("gradients by torch.autograd.grad, shards by all_to_all, each rank's weights broadcast")
def by_hand():
    import torch

    def zero1_step(
        comm, layers, params, states, batch, step, *, loss_fn, adam, flat_shard, unflatten
    ):
        x, y = batch
        for layer, u in layers:
            x = layer(params[u], x)
        loss = loss_fn(x, y)
        trained = [u for u, state in enumerate(states) if state is not None]
        leaves = [p for u in trained for p in params[u]]
        grads = iter(torch.autograd.grad(loss, leaves, materialize_grads=True))
        grads = {u: [next(grads) for _ in params[u]] for u in trained}
        for u in trained:
            mine = grads.pop(u)
            sent = torch.cat([flat_shard(mine, comm.size, rank) for rank in range(comm.size)])
            came = comm.all_to_all(sent).reshape(comm.size, -1)
            master, m, v = states[u]
            weights, *states[u] = adam(master, came.mean(dim=0), m, v, step)
            parts = [comm.broadcast(weights, src) for src in range(comm.size)]
            new = unflatten(torch.cat(parts), params[u])
            for k, p in enumerate(params[u]):
                p.data = new[k]
        return loss

    return zero1_step


@also_right("the loss divided by n, sums scattered, new leaves in place of the old ones")
def new_leaves():
    import torch

    def zero1_step(
        comm, layers, params, states, batch, step, *, loss_fn, adam, flat_shard, unflatten
    ):
        x, target = batch
        for f, u in layers:
            x = f(params[u], x)
        loss = loss_fn(x, target)
        (loss / comm.size).backward()
        for u, unit in enumerate(params):
            if not unit[0].requires_grad:
                continue
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in unit]
            flat = torch.cat([flat_shard(grads, comm.size, r) for r in range(comm.size)])
            del grads
            for p in unit:
                p.grad = None
            weights, *state = adam(
                states[u][0], comm.reduce_scatter(flat), states[u][1], states[u][2], step
            )
            states[u] = state
            unit[:] = [t.requires_grad_() for t in unflatten(comm.all_gather(weights), unit)]
        return loss

    return zero1_step


@also_right("as the equations stand: scatter the mean, update the shard, gather the weights")
def scatter_update_gather():
    import torch

    def zero1_step(
        comm, layers, params, states, batch, step, *, loss_fn, adam, flat_shard, unflatten
    ):
        n = comm.size
        x, y = batch
        for layer, u in layers:
            x = layer(params[u], x)
        loss = loss_fn(x, y)
        loss.backward()
        for u, unit in enumerate(params):
            if states[u] is None:
                continue
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in unit]
            flat = torch.cat([flat_shard(grads, n, rank) for rank in range(n)])
            mean = comm.reduce_scatter(flat, op="mean")
            master, m, v = states[u]
            weights, *states[u] = adam(master, mean, m, v, step)
            new = unflatten(comm.all_gather(weights), unit)
            with torch.no_grad():
                for k, p in enumerate(unit):
                    p.copy_(new[k])
                    p.grad = None
        return loss.detach()

    return zero1_step


all_reduce_and_slice = slip(
    scatter_update_gather,
    "An all-reduce brings all of the gradient, of which you keep one shard: reduce-scatter it.",
    (
        'comm.reduce_scatter(flat, op="mean")',
        'comm.all_reduce(flat, op="mean").chunk(n)[comm.rank]',
    ),
)
summed = slip(
    scatter_update_gather,
    "Gradients are summed over the ranks: it is their mean that belongs to the mean loss.",
    ('op="mean"', 'op="sum"'),
)
own_gradient = slip(
    scatter_update_gather,
    "Each shard is updated with one rank's gradient: average it over all ranks first.",
    ('comm.reduce_scatter(flat, op="mean")', "flat.chunk(n)[comm.rank]"),
)
states_gathered = slip(
    scatter_update_gather,
    "Optimiser states are gathered: each rank needs its own shard of them only, before and after.",
    (
        "weights, *states[u] = adam(master, mean, m, v, step)",
        "gathered = [comm.all_gather(t) for t in (master, mean, m, v)]\n"
        "        answer = [t.chunk(n)[comm.rank].clone() for t in adam(*gathered, step)]\n"
        "        weights, *states[u] = answer",
    ),
)
not_gathered = slip(
    scatter_update_gather,
    "Each rank updates its own shard and leaves the others as they were: gather the new weights.",
    (
        "new = unflatten(comm.all_gather(weights), unit)",
        "old = [flat_shard(unit, n, rank) for rank in range(n)]\n"
        "        old[comm.rank] = weights\n"
        "        new = unflatten(torch.cat(old), unit)",
    ),
)
not_cleared = slip(
    scatter_update_gather,
    "Gradients of the step before are still in p.grad: set it to None at the end of a step.",
    ("p.grad = None", "pass"),
)
decay_twice = slip(
    scatter_update_gather,
    "Weight decay comes in twice: adam has it, so add none to the gradient or the weights.",
    ("adam(master, mean, m, v, step)", "adam(master, mean + 0.1 * master, m, v, step)"),
)
step_of_units = slip(
    scatter_update_gather,
    "adam's step counts units or ranks: all of them make the same step, so pass it as it is.",
    ("m, v, step)", "m, v, step + u)"),
)
step_of_a_rank = slip(
    scatter_update_gather,
    "adam's step differs from rank to rank: all of them make the same step.",
    ("m, v, step)", "m, v, step + comm.rank)"),
)
states_not_kept = slip(
    scatter_update_gather,
    "The next step begins with old optimiser states: put what adam returns into states[u].",
    ("weights, *states[u] =", "weights, *_ ="),
)
unused_left_out = slip(
    scatter_update_gather,
    "A tensor without a gradient is left out, so those behind it lie elsewhere: its gradient is 0.",
    (
        "[torch.zeros_like(p) if p.grad is None else p.grad for p in unit]",
        "[p.grad for p in unit if p.grad is not None]",
    ),
)
frozen_is_trained = slip(
    scatter_update_gather,
    "A frozen unit has no optimiser: leave it where states[u] is None.",
    (
        "if states[u] is None:\n            continue",
        "if states[u] is None:\n            w = flat_shard(unit, n, comm.rank)\n"
        "            states[u] = w, 0 * w, 0 * w",
    ),
)
all_flat_at_once = slip(
    scatter_update_gather,
    "All gradients are laid flat at once, beside the gradients: take one unit after another.",
    (
        "for u, unit in enumerate(params):",
        "flats = {}\n"
        "    for u, unit in enumerate(params):\n"
        "        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in unit]\n"
        "        flats[u] = torch.cat([flat_shard(grads, n, rank) for rank in range(n)])\n"
        "    for u, unit in enumerate(params):",
    ),
    (
        "        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in unit]\n"
        "        flat = torch.cat([flat_shard(grads, n, rank) for rank in range(n)])\n",
        "        flat = flats[u]\n",
    ),
)
EQUIVALENT = {}
