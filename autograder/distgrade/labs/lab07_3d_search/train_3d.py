"""A small transformer trained in 3D, one function per rank: `train_3d(comm, layout, whole, batches,
*, coords, lr)` -> (losses, weights).

`layout` (distlab.layout) has t, p, d, microbatch and sequence_parallel; `whole` are all weights by
name, `batches` [B, T + 1] letters, one for each step, the same on all ranks. `coords(rank, t, p,
d)` is {"tp": .., "dp": .., "pp": ..}, whatever the order of ranks. `distlab.small3d` has a rank's
shards, their passes forward and backward, which sum over tokens, and the kind of each weight. A
step's loss is the mean over all tokens of the batch, on every rank, before w -= lr · gradient of
that mean.
Cost: what the passes send for an equal share of the batch, and once a step each gradient over the
groups that have terms of it: 2(n-1)/n of its bytes.
Source: Narayanan et al. 2021 (arXiv:2104.04473), section 3; Korthikanti et al. 2022
(arXiv:2205.05198), section 4.2.2. Oracle: the whole model and batch on one device.
"""

from fractions import Fraction

from distgrade.compare import Symptom, ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("train_3d",)
FORBID = ()
TOLERANCE = Close(1e-10, "two steps in float64, sums over ranks in any order")
CREDIT = {"data and tensor": 3, "with a pipeline": 3, "bytes": 1}
MEASURED = ("bytes",)  # a known mistake is told though an answer sends its losses another way
LOSS_BYTES = 64  # a rank may send to tell the others a step's loss
SIZES = {"hidden": 4, "letters": 5, "tokens": 4, "steps": 1, "microbatch": 2}
SIZES |= {"sp": False, "counted": False}


def _case(name: str, group: str, t: int, p: int, d: int, **params) -> Case:
    """Return a case; `order` has the coordinates of ranks, the fastest first."""
    values = SIZES | {"layers": p, "batch": d, "order": ("tp", "dp", "pp")} | params
    return Case(name, group, n=t * p * d, t=t, p=p, d=d, **values)


CASES = (
    _case("1·1·1", "data and tensor", 1, 1, 1, batch=2, steps=2),
    _case("1·1·5, unequal shares", "data and tensor", 1, 1, 5, batch=6),
    _case("2·1·1", "data and tensor", 2, 1, 1),
    _case("3·1·2, shared tokens", "data and tensor", 3, 1, 2, sp=True, hidden=6, tokens=3),
    _case("1·3·1", "with a pipeline", 1, 3, 1, layers=4, steps=2),
    _case("2·2·1, stages fastest", "with a pipeline", 2, 2, 1, order=("pp", "tp", "dp")),
    _case(
        "2·2·2, replicas fastest, shared tokens, unequal shares",
        "with a pipeline",
        2,
        2,
        2,
        sp=True,
        batch=3,
        order=("dp", "tp", "pp"),
    ),
    _case("1·3·2, two sequences each", "bytes", 1, 3, 2, batch=4, counted=True),
    _case("2·1·2", "bytes", 2, 1, 2, counted=True),
)


def given(case, seed):
    import torch

    from distlab.seeds import generator
    from distlab.small3d import whole_weights

    key = "train_3d", case.name, seed
    shape = case.batch, case.tokens + 1
    return {
        "whole": whole_weights(case.layers, case.hidden, case.letters, *key),
        "batches": [
            torch.randint(1, case.letters, shape, generator=generator(*key, step))
            for step in range(case.steps)
        ],
        "layout": [case.t, case.p, case.d, case.microbatch, case.sp],
        "order": list(case.order),
        "counted": case.counted,
        "lr": 0.5,
    }


def observe(student, given):
    from distlab import run
    from distlab.layout import Layout

    train_3d, order = student.train_3d, given["order"]
    t, p, d, microbatch, sp = given["layout"]
    layout = Layout(t, p, d, microbatch=microbatch, sequence_parallel=sp)

    def coords(rank, t, p, d):
        sizes, at = {"tp": t, "dp": d, "pp": p}, {}
        for axis in order:
            rank, at[axis] = divmod(rank, sizes[axis])
        return at

    def on_a_rank(comm, whole, batches):
        losses, weights = train_3d(comm, layout, whole, batches, coords=coords, lr=given["lr"])
        return {
            "whole weights afterwards": whole,
            "batches afterwards": batches,
            "losses": [getattr(loss, "item", lambda loss=loss: loss)() for loss in losses],
            "weights": {name: weight.detach() for name, weight in weights.items()},
        }

    def axes_used(entries):  # by more than it takes to tell losses
        sent = dict.fromkeys(order, 0)
        for entry in entries:
            places = [coords(rank, t, p, d) for rank in entry.group]
            for axis in order:
                if len({at[axis] for at in places}) > 1:
                    sent[axis] += entry.ring_bytes
        least = 40 * len(given["batches"])
        return " ".join(axis for axis in ("tp", "dp", "pp") if sent[axis] > least)

    result = run(on_a_rank, t * p * d, given["whole"], given["batches"], echo=False, timeout=60)
    tree = {key: [value[key] for value in result.values] for key in result.values[0]}
    ranks, ledger = range(t * p * d), result.ledger
    sent = [ledger.ring_bytes(rank=rank) for rank in ranks]
    used = [axes_used([e for e in ledger.entries if e.rank == rank]) for rank in ranks]
    return tree | {"axes used": used, "bytes sent": sent if given["counted"] else None}


def oracle(case, given):
    losses, whole = _on_one_device(case, given)
    ranks, sizes = _coordinates(case), {"tp": case.t, "dp": case.d, "pp": case.p}
    return {
        "whole weights afterwards": [given["whole"]] * case.n,
        "batches afterwards": [given["batches"]] * case.n,
        "losses": [losses] * case.n,
        "weights": [_held(whole, tp, pp, case) for tp, _, pp in ranks],
        "axes used": [" ".join(axis for axis, size in sizes.items() if size > 1)] * case.n,
        "bytes sent": _bytes_needed(given["whole"], ranks, case) if case.counted else None,
    }


def _on_one_device(case, given):
    """Return the losses and the weights in the end, from dense formulas on the whole batch."""
    import torch

    def norm(x, scale):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale

    def attention(x, q, k, v):
        heads = []
        for columns in torch.arange(case.hidden).split(2):
            scores = (x @ q[:, columns]) @ (x @ k[:, columns]).mT / 2**0.5
            earlier = scores.exp() * (at <= at[:, None])
            shares = earlier / earlier.sum(-1, keepdim=True)
            heads.append(shares @ (x @ v[:, columns]))
        return torch.cat(heads, dim=-1)

    weights, losses, at = given["whole"], [], torch.arange(case.tokens)
    for batch in given["batches"]:
        w = {name: value.clone().requires_grad_() for name, value in weights.items()}
        x = w["embedding"][batch[:, :-1]]
        for i in range(case.layers):
            normed = norm(x, w[f"{i}.norm1"])
            x = x + attention(normed, *(w[f"{i}.{n}"] for n in "qkv")) @ w[f"{i}.o"]
            u = norm(x, w[f"{i}.norm2"]) @ w[f"{i}.a"]
            x = x + (u * (1 + torch.erf(u / 2**0.5)) / 2) @ w[f"{i}.b"]
        odds = (norm(x, w["norm"]) @ w["embedding"].T).exp()
        right = odds.gather(-1, batch[:, 1:, None])[..., 0]
        loss = (odds.sum(-1) / right).log().mean()
        grads = torch.autograd.grad(loss, list(w.values()))
        pairs = zip(weights.items(), grads, strict=True)
        weights = {name: value - given["lr"] * grad for (name, value), grad in pairs}
        losses.append(loss.item())
    return losses, weights


def _coordinates(case) -> list[tuple[int, int, int]]:
    """Return every rank's (tp, dp, pp)."""
    sizes = {"tp": case.t, "dp": case.d, "pp": case.p}
    at = [dict.fromkeys(sizes, 0)]
    for axis in case.order:
        at = [one | {axis: i} for i in range(sizes[axis]) for one in at]
    return [(one["tp"], one["dp"], one["pp"]) for one in at]


def _held(whole, tp: int, pp: int, case) -> dict:
    """Return one rank's part of all weights."""
    mine = {}
    for name, weight in whole.items():
        layer, _, short = name.partition(".")
        if name == "embedding":
            here = pp in (0, case.p - 1)
        elif name == "norm":
            here = pp == case.p - 1
        else:
            here = int(layer) * case.p // case.layers == pp
        if here:
            rows, columns = weight.shape[0], weight.shape[-1]
            if short in ("q", "k", "v", "a"):
                part = columns // case.t
                weight = weight[:, tp * part : (tp + 1) * part]
            elif short in ("o", "b"):
                part = rows // case.t
                weight = weight[tp * part : (tp + 1) * part]
            mine[name] = weight.clone()
    return mine


def _bytes_needed(whole, ranks, case) -> list[Fraction]:
    """Return what each rank sends with an equal share of the batch."""
    x = case.batch // case.d * case.tokens * case.hidden * 8  # bytes, a replica's, of a layer
    over_tp, over_dp = (Fraction(2 * (n - 1), n) for n in (case.t, case.d))
    needed = []
    for tp, _, pp in ranks:
        held = _held(whole, tp, pp, case)
        layers = sum(name.endswith("norm1") for name in held)
        boundaries = (pp > 0) + (pp < case.p - 1)
        sent = 4 * layers * over_tp * x + Fraction(x, case.t if case.sp else 1) * boundaries
        for name, weight in held.items():
            cut = weight.shape != whole[name].shape
            ends = name == "embedding" and case.p > 1
            sums = over_dp + (over_tp if case.sp and not cut else 0) + ends
            sent += sums * weight.nbytes
        needed.append(case.steps * (sent + LOSS_BYTES))
    return needed


def judge(got, expected, case):
    values = [key for key in expected if key not in ("axes used", "bytes sent")]
    trees = ({key: tree[key] for key in values} for tree in (got, expected))
    symptoms = told_as_changed(compare(*trees, rtol=TOLERANCE.rtol, n=case.n))
    for rank, (used, axes) in enumerate(zip(got["axes used"], expected["axes used"], strict=True)):
        for axis in (axis for axis in axes.split() if axis not in used):
            look = "Each rank works on its own part of the layers, and of the batch."
            seen = f"hardly a byte goes over {axis}"
            symptoms.append(Symptom("cost", f"work of rank {rank}", seen, look))
    if case.counted:
        symptoms += ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
    return symptoms


@also_right("groups named by their first rank; replicas first, then both ends, then tokens")
def one_by_one():
    from distlab.small3d import forward_backward, kind, shards

    def train_3d(comm, layout, whole, batches, *, coords, lr):
        t, p, d = layout.t, layout.p, layout.d
        places = [coords(rank, t, p, d) for rank in comm.ranks]
        at, shared = places[comm.rank], layout.sequence_parallel

        def same(axes):
            return next(r for r, other in enumerate(places) if all(other[x] == at[x] for x in axes))

        tp = comm.split(same({"dp", "pp"}))
        dp = comm.split(same({"tp", "pp"}))
        pp = comm.split(same({"tp", "dp"}))
        ends = comm.split(same({"tp", "dp"}) if at["pp"] in {0, p - 1} else None)
        weights, losses = shards(whole, tp, pp), []
        for batch in batches:
            mine, tokens = batch[at["dp"] :: d], batch[:, 1:].numel()
            loss, grads = forward_backward(weights, mine, tp, pp, layout)
            loss = comm.all_reduce(loss).item()
            losses.append((loss if shared else loss / t) / tokens)
            for name, grad in grads.items():
                grad = dp.all_reduce(grad)
                if kind(name) == "tied":
                    grad = ends.all_reduce(grad)
                if shared and kind(name) != "cut":
                    grad = tp.all_reduce(grad)
                weights[name] -= lr * grad / tokens
        return losses, weights

    return train_3d


@also_right("a bucket for each kind, summed in one group of all ranks that have terms")
def a_bucket_for_each_kind():
    import torch

    from distlab import small3d

    def train_3d(comm, layout, whole, batches, *, coords, lr):
        at = coords(comm.rank, layout.t, layout.p, layout.d)
        i, k, s, p = at["tp"], at["dp"], at["pp"], layout.p
        complete = not layout.sequence_parallel
        tp, pp = comm.split(k * p + s), comm.split(k * layout.t + i)
        groups = {
            "cut": comm.split(s * layout.t + i),
            "whole": comm.split(s * layout.t + i * complete),
            "tied": comm.split(i * complete if s in {0, p - 1} else None),
        }
        weights, losses = small3d.shards(whole, tp, pp), []
        for batch in batches:
            tokens, share = batch[:, 1:].numel(), batch.tensor_split(layout.d)[k]
            loss, grads = small3d.forward_backward(weights, share, tp, pp, layout)
            loss = pp.broadcast(groups["whole"].all_reduce(loss), src=p - 1)
            losses.append(loss / tokens)
            for kind, group in groups.items():
                names = [name for name in grads if small3d.kind(name) == kind]
                if names:
                    bucket = torch.cat([grads[name].flatten() for name in names])
                    parts = group.all_reduce(bucket).split([grads[n].numel() for n in names])
                    left = iter(parts)
                    for name in names:
                        step = lr / tokens * next(left).view_as(weights[name])
                        weights[name] = weights[name] - step
        return losses, weights

    return train_3d


never_over_dp = slip(
    one_by_one,
    "Nothing is summed over the replicas: they drift apart.",
    ("grad = dp.all_reduce(grad)", "grad = grad * d"),
)
dp_group_is_a_replica = slip(
    one_by_one,
    "Your DP group is a replica. It holds the d ranks with the same part: same tp, same pp.",
    ('dp = comm.split(same({"tp", "pp"}))', 'dp = comm.split(at["dp"])'),
)
cut_over_the_world = slip(
    one_by_one,
    "A cut weight's gradient is summed over all ranks, but other parts of it are on the others.",
    ("grad = dp.all_reduce(grad)", "grad = (comm if kind(name) == 'cut' else dp).all_reduce(grad)"),
)
sum_of_means = slip(
    one_by_one,
    "Replicas' means are summed: d times too much. Sum what is summed, divide by all tokens.",
    ("lr * grad / tokens", "lr * grad / mine[:, 1:].numel()"),
)
mean_and_tokens = slip(
    one_by_one,
    "Divided twice: a mean over dp divides by d, and all tokens of the batch count d in already.",
    ("grad = dp.all_reduce(grad)", 'grad = dp.all_reduce(grad, op="mean")'),
)
mean_of_means = slip(
    one_by_one,
    "A mean of the replicas' means: where they hold unequal shares, tokens don't count alike.",
    ("grad = dp.all_reduce(grad)", 'grad = dp.all_reduce(grad, op="mean")'),
    ("lr * grad / tokens", "lr * grad / mine[:, 1:].numel()"),
)
norms_not_over_tp = slip(
    one_by_one,
    "Sequence parallel: a norm sees one rank's tokens, so its gradient is a term of a sum over tp.",
    ('kind(name) != "cut"', 'kind(name) == "tied"'),
)
embedding_not_over_tp = slip(
    one_by_one,
    "Sequence parallel: the embedding, too, sees one rank's tokens only. Sum it over tp as well.",
    ('kind(name) != "cut"', 'kind(name) == "whole"'),
)
always_over_tp = slip(
    one_by_one,
    "Without sequence parallelism a whole weight's gradient is complete: don't sum it over tp.",
    ('if shared and kind(name) != "cut"', 'if kind(name) != "cut"'),
)
norms_always_over_tp = slip(
    one_by_one,
    "Without sequence parallelism a norm's gradient is the same on all of tp: not a term of a sum.",
    (
        'if shared and kind(name) != "cut"',
        'if kind(name) == "whole" or shared and kind(name) == "tied"',
    ),
)
tied_apart = slip(
    one_by_one,
    "The tied embedding gets one gradient as a table, one as the head: add up both ends' terms.",
    ("grad = ends.all_reduce(grad)", "pass"),
)
tied_twice = slip(
    one_by_one,
    "The embedding's two gradients are added twice over the ends: both have the sum already.",
    ("grad = ends.all_reduce(grad)", "grad = ends.all_reduce(ends.all_reduce(grad))"),
)
ends_of_all_columns = slip(
    one_by_one,
    "Too many ranks add up the embedding: first and last stage, with the same tp and dp.",
    ('same({"tp", "dp"}) if', 'same({"dp"}) if'),
)
ends_are_the_pipeline = slip(
    one_by_one,
    "A stage in the middle holds no embedding, so the others wait for it: split off both ends.",
    ("ends.all_reduce", "pp.all_reduce"),
)
local_loss = slip(
    one_by_one,
    "Each rank reports the loss of its own tokens: collect all replicas', and the last stage's.",
    ("loss = comm.all_reduce(loss).item()", "loss = loss.item()"),
    ("(loss if shared else loss / t) / tokens", "loss / max(1, mine[:, 1:].numel())"),
)
loss_of_the_last_stage = slip(
    one_by_one,
    "Only the last stage has a loss to report: tell the other stages.",
    ("comm.all_reduce(loss).item()", "dp.all_reduce(tp.all_reduce(loss)).item()"),
)
loss_of_copies = slip(
    one_by_one,
    "Without sequence parallelism each rank of tp has the loss of all tokens: count it once.",
    ("(loss if shared else loss / t)", "loss"),
)
loss_over_t = slip(
    one_by_one,
    "With sequence parallelism tp ranks' losses are of different tokens: their sum counts.",
    ("(loss if shared else loss / t)", "loss / t"),
)
every_sequence_everywhere = slip(
    one_by_one,
    "Every replica works on all sequences, so that each counts d times: give each replica its own.",
    ('batch[at["dp"] :: d]', "batch"),
)
rest_dropped = slip(
    one_by_one,
    "Sequences are left over where d doesn't divide their number: share all of them.",
    ('batch[at["dp"] :: d]', 'batch[at["dp"] :: d][: len(batch) // d]'),
)
chunk_too_few = slip(
    one_by_one,
    "torch.chunk can give fewer than d pieces, and then a replica has none: batch[dp::d] can't.",
    ('batch[at["dp"] :: d]', 'batch.chunk(d)[at["dp"]]'),
)
own_order_of_ranks = slip(
    one_by_one,
    "Places come from your own formula: ask coords, since ranks can lie in another order.",
    (
        "coords(rank, t, p, d)",
        '{"tp": rank % t, "dp": rank // t % d, "pp": rank // (t * d)}',
    ),
)
copies_averaged = slip(
    one_by_one,
    "Complete gradients are equal on all of tp: their mean is right, and sent for nothing.",
    (
        'if shared and kind(name) != "cut":\n                grad = tp.all_reduce(grad)',
        'if kind(name) != "cut":\n'
        '                grad = tp.all_reduce(grad, op="sum" if shared else "mean")',
    ),
)
whole_batch_everywhere = slip(
    one_by_one,
    "Each replica works on the whole batch: the values are right, d times the work and bytes.",
    ('batch[at["dp"] :: d]', "batch"),
    ("all_reduce(loss).item()", "all_reduce(loss).item() / d"),
    ("lr * grad / tokens", "lr * grad / tokens / d"),
)
replicas_do_the_same = slip(
    one_by_one,
    "Every replica makes the whole step by itself: share the batch, then sum over dp.",
    ('batch[at["dp"] :: d]', "batch"),
    ("all_reduce(loss).item()", "all_reduce(loss).item() / d"),
    ("            grad = dp.all_reduce(grad)\n", ""),
)


@wrong("Every rank trains the whole model by itself and cuts it in the end: share the work.")
def alone_on_every_rank():
    from dataclasses import replace
    from types import SimpleNamespace

    from distlab.small3d import forward_backward, shards

    def train_3d(comm, layout, whole, batches, *, coords, lr):
        alone, layout_of_one = comm.split(comm.rank), replace(layout, sequence_parallel=False)
        at = coords(comm.rank, layout.t, layout.p, layout.d)
        weights, losses = shards(whole, alone, alone), []
        for batch in batches:
            tokens = batch[:, 1:].numel()
            loss, grads = forward_backward(weights, batch, alone, alone, layout_of_one)
            losses.append(loss.item() / tokens)
            weights = {n: w - lr * grads[n] / tokens for n, w in weights.items()}
        tp = SimpleNamespace(rank=at["tp"], size=layout.t)
        pp = SimpleNamespace(rank=at["pp"], size=layout.p)
        return losses, shards(weights, tp, pp)

    return train_3d


after_every_sequence = slip(
    one_by_one,
    "Gradients are sent after every sequence: sum them up on the rank, send once a step.",
    (
        "loss, grads = forward_backward(weights, mine, tp, pp, layout)",
        "loss, grads = 0, dict.fromkeys(weights, 0)\n"
        "        for first in range(0, len(batch), d):\n"
        '            row = batch[first + at["dp"] : first + d][:1]\n'
        "            one, new = forward_backward(weights, row, tp, pp, layout)\n"
        "            loss = loss + one\n"
        "            grads = {n: grads[n] + dp.all_reduce(g) for n, g in new.items()}",
    ),
    ("            grad = dp.all_reduce(grad)\n", ""),
)
_COLOURS = "other numbers, and again another one for each group"
EQUIVALENT = {
    "train_3d: at['tp'] * d + at['dp'] -> at['tp'] * d - at['dp']": _COLOURS,
    "train_3d: at['dp'] * p + at['pp'] -> at['dp'] * p - at['pp']": _COLOURS,
    "train_3d: at['tp'] * p + at['pp'] -> at['tp'] * p - at['pp']": _COLOURS,
    "a_bucket_for_each_kind train_3d: k * p + s -> k * p - s": _COLOURS,
    "a_bucket_for_each_kind train_3d: k * layout.t + i -> k * layout.t - i": _COLOURS,
    "a_bucket_for_each_kind train_3d: s * layout.t + i -> s * layout.t - i": _COLOURS,
    "a_bucket_for_each_kind train_3d: "
    "s * layout.t + i * complete -> s * layout.t - i * complete": _COLOURS,
}
