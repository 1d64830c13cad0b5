"""Attention over t ranks, by whole heads: `shard_attention` cuts the weights, `tp_attention` runs.

Shapes: wqkv [D, (heads + 2 kv_heads) head_dim] = [Q | K | V], wo [heads head_dim, D]. A rank's
shards are laid out alike, [Q | K | V] of its own heads, in memory of their own. Query head j uses
K/V head j kv_heads // heads; with fewer K/V heads than ranks, t / kv_heads ranks hold a copy of the
same one. x [B, S, D] is whole on every rank, and so is y; causal, scale 1/sqrt(head_dim); float64.
`heads` and `kv_heads` count the whole model's heads.
Cost: one all-reduce of y forward (in g), one of x's gradient backward (in f).
A copied K/V head's gradient may be this rank's term or the sum over its copies.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3; grouped queries: Ainslie et al. 2023
(arXiv:2305.13245). Oracle: every head by itself, token by token, in one process.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("shard_attention", "tp_attention")
FORBID = ()
TOLERANCE = Close(1e-10, "a softmax between products, in any order of sums")
CREDIT = {"shards": 2, "values": 3, "bytes": 1}
CASES = (
    Case("cut for one rank", "shards", n=1, heads=2, kv_heads=2, head_dim=2, d=3),
    Case("cut for three ranks", "shards", n=3, heads=6, kv_heads=6, head_dim=2, d=5),
    Case("cut, two ranks share a K/V head", "shards", n=4, heads=8, kv_heads=2, head_dim=3, d=4),
    Case("cut, one K/V head", "shards", n=5, heads=5, kv_heads=1, head_dim=2, d=3),
    Case(
        "six heads on four ranks", "shards", n=4, heads=6, kv_heads=2, head_dim=2, d=3,
        expects=ValueError,
    ),
    Case(
        "six K/V heads on four ranks", "shards", n=4, heads=12, kv_heads=6, head_dim=2, d=3,
        expects=ValueError,
    ),
    Case(
        "three K/V heads on four ranks", "shards", n=4, heads=12, kv_heads=3, head_dim=2, d=3,
        expects=ValueError,
    ),
    Case("one rank", "values", n=1, heads=2, kv_heads=2, head_dim=2, d=4, x=(1, 3)),
    Case("two ranks, grouped", "values", n=2, heads=8, kv_heads=4, head_dim=3, d=4, x=(2, 3)),
    Case("three ranks", "values", n=3, heads=3, kv_heads=3, head_dim=2, d=6, x=(2, 4)),
    Case("four ranks, copies", "values", n=4, heads=8, kv_heads=2, head_dim=2, d=5, x=(1, 4)),
    Case("bytes, two ranks", "bytes", n=2, heads=4, kv_heads=2, head_dim=2, d=4, x=(2, 3)),
    Case("bytes, five ranks", "bytes", n=5, heads=5, kv_heads=5, head_dim=2, d=3, x=(1, 4)),
)  # fmt: skip


def given(case, seed):
    from distlab.seeds import normal

    n, heads, kv_heads, head_dim = case.n, case.heads, case.kv_heads, case.head_dim

    def data(name, *shape):
        return normal(shape, "tp_attention", case.name, seed, name)

    made = {"n": n, "heads": heads, "kv_heads": kv_heads}
    if not hasattr(case, "x"):
        made["wqkv"] = data("wqkv", case.d, (heads + 2 * kv_heads) * head_dim)
        return made | {"wo": data("wo", heads * head_dim, case.d)}
    made |= {"x": data("x", *case.x, case.d), "upstream": data("upstream", *case.x, case.d)}
    q = [data(f"q{j}", case.d, head_dim) for j in range(heads)]
    k = [data(f"k{j}", case.d, head_dim) for j in range(kv_heads)]
    v = [data(f"v{j}", case.d, head_dim) for j in range(kv_heads)]
    o = [data(f"o{j}", head_dim, case.d) for j in range(heads)]
    import torch

    wqkv, wo = [], []
    for rank in range(n):
        mine = [j for j in range(heads) if j * n // heads == rank]
        theirs = sorted({j * kv_heads // heads for j in mine})
        parts = [q[j] for j in mine] + [k[i] for i in theirs] + [v[i] for i in theirs]
        wqkv.append(torch.cat(parts, dim=1))
        wo.append(torch.cat([o[j] for j in mine], dim=0))
    return made | {"wqkv_shards": wqkv, "wo_shards": wo}


def observe(student, given):
    import torch

    from distlab import per_rank, run

    shard_attention, tp_attention = student.shard_attention, student.tp_attention
    n, heads, kv_heads = given["n"], given["heads"], given["kv_heads"]

    def shares(part, whole):
        if not isinstance(part, torch.Tensor):
            return False
        return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()

    if "wqkv" in given:
        wqkv, wo = given["wqkv"].clone(), given["wo"].clone()
        answers = [shard_attention(wqkv, wo, heads, kv_heads, rank, n) for rank in range(n)]
        parts, outs = (list(shards) for shards in zip(*answers, strict=True))
        return {
            "wqkv afterwards": wqkv,
            "wo afterwards": wo,
            "wqkv_shard": parts,
            "wo_shard": outs,
            "wqkv_shard is a view of wqkv": [shares(part, wqkv) for part in parts],
            "wo_shard is a view of wo": [shares(out, wo) for out in outs],
        }

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

    def layer(comm, x, wqkv, wo, upstream):
        before = [t.clone() for t in (x, wqkv, wo)]
        x, wqkv, wo = leaves = [t.clone().requires_grad_() for t in (x, wqkv, wo)]
        y = tp_attention(comm, x, wqkv, wo, heads, kv_heads, f=CopyToRanks, g=ReduceFromRanks)
        # An answer of another shape or without history has no gradient: its shape is told first.
        good = isinstance(y, torch.Tensor) and y.requires_grad
        if good and (y.shape, y.dtype) == (upstream.shape, upstream.dtype):
            y.backward(upstream)
        same = all(torch.equal(a, b.detach()) for a, b in zip(before, leaves, strict=True))
        plain = y.detach().clone() if isinstance(y, torch.Tensor) else y
        return same, plain, x.grad, wqkv.grad, wo.grad

    shards = per_rank(given["wqkv_shards"]), per_rank(given["wo_shards"])
    result = run(layer, n, given["x"], *shards, given["upstream"], echo=False)
    names = ["inputs afterwards", "y"]
    names += [f"gradient of {name}" for name in ("x", "wqkv_shard", "wo_shard")]
    columns = [list(column) for column in zip(*result.values, strict=True)]
    sent = [result.ledger.ring_bytes(rank=rank) for rank in range(n)]
    return dict(zip(names, columns, strict=True)) | {"ring_bytes with backward": sent}


def oracle(case, given):
    from fractions import Fraction
    from math import prod, sqrt

    import torch

    n, heads, kv_heads, head_dim = case.n, case.heads, case.kv_heads, case.head_dim
    if "wqkv" in given:
        return _oracle_of_the_cut(case, given)
    leaves = [
        [shard.clone().requires_grad_() for shard in given[key]]
        for key in ("wqkv_shards", "wo_shards")
    ]
    x = given["x"].clone().requires_grad_()
    kv_here = max(1, kv_heads // n)
    y = torch.zeros_like(x)
    for j in range(heads):
        rank = j * n // heads
        wqkv, wo = (leaf[rank] for leaf in leaves)
        at = j - rank * heads // n  # of this rank's query heads
        kv_at = heads // n + j * kv_heads // heads - rank * kv_heads // n
        q, k, v = (
            x @ wqkv[:, i * head_dim : (i + 1) * head_dim] for i in (at, kv_at, kv_at + kv_here)
        )
        tokens = []
        for s in range(x.shape[1]):  # a token sees itself and what stands before it
            scores = torch.exp((k[:, : s + 1] * q[:, s : s + 1]).sum(dim=-1) / sqrt(head_dim))
            weights = scores / scores.sum(dim=1, keepdim=True)
            tokens.append((weights.unsqueeze(-1) * v[:, : s + 1]).sum(dim=1))
        y = y + torch.stack(tokens, dim=1) @ wo[at * head_dim : (at + 1) * head_dim]
    y.backward(given["upstream"])
    padded_bytes = -(-prod(y.shape) // n) * n * 8  # float64; two all-reduces, one each way
    return {
        "inputs afterwards": [True] * n,
        "y": [y.detach()] * n,
        "gradient of x": [x.grad] * n,
        "gradient of wqkv_shard": [leaf.grad for leaf in leaves[0]],
        "gradient of wo_shard": [leaf.grad for leaf in leaves[1]],
        "ring_bytes with backward": [2 * Fraction(2 * (n - 1), n) * padded_bytes] * n,
    }


def _oracle_of_the_cut(case, given):
    """Column by column: which head a column belongs to, and which ranks need that head."""
    n, heads, kv_heads, head_dim = case.n, case.heads, case.kv_heads, case.head_dim
    columns = [[] for _ in range(n)]
    for column in range(given["wqkv"].shape[1]):
        head = column // head_dim
        for rank in range(n):
            users = [j for j in range(heads) if j * n // heads == rank]
            if head >= heads:
                users = [heads + j * kv_heads // heads for j in users]
            if (head - kv_heads if head >= heads + kv_heads else head) in users:
                columns[rank].append(column)
    rows = [
        [r for r in range(heads * head_dim) if r // head_dim * n // heads == k] for k in range(n)
    ]
    return {
        "wqkv afterwards": given["wqkv"],
        "wo afterwards": given["wo"],
        "wqkv_shard": [given["wqkv"][:, mine] for mine in columns],
        "wo_shard": [given["wo"][mine] for mine in rows],
        "wqkv_shard is a view of wqkv": [False] * n,
        "wo_shard is a view of wo": [False] * n,
    }


def judge(got, expected, case):
    from dataclasses import replace

    key = "gradient of wqkv_shard"
    if "wqkv_shard" in expected:
        symptoms = told_as_changed(compare(got, expected, rtol=0.0, n=case.n))
        views = "it shares the whole weight's memory"
        return [replace(s, seen=views) if " is a view" in s.what else s for s in symptoms]
    # Bytes earn their point only beside right values: who sends nothing would be cheapest.
    cost = "ring_bytes with backward"
    values = [k for k in expected if k not in (key, cost)]
    trees = ({k: tree[k] for k in values} for tree in (got, expected))
    symptoms = told_as_changed(compare(*trees, rtol=TOLERANCE.rtol, n=case.n))
    symptoms += _judge_copies(got[key], expected[key], case)
    return symptoms + (ceiling(got[cost], expected[cost], cost) if case.group == "bytes" else [])


def _judge_copies(got, expected, case):
    """A copied head's gradient is this rank's own term, or the sum over the ranks that hold it."""
    import torch

    key, rtol, n = "gradient of wqkv_shard", TOLERANCE.rtol, case.n
    terms = compare(got, expected, rtol=rtol, n=n, path=(key,))
    copies = n // case.kv_heads  # ranks that hold one K/V head
    if not terms or copies < 2:
        return terms
    whole = []
    at = case.heads // n * case.head_dim  # where K begins
    for rank, grad in enumerate(expected):
        first = rank - rank % copies
        added = torch.stack([expected[r][:, at:] for r in range(first, first + copies)]).sum(dim=0)
        whole.append(torch.cat([grad[:, :at], added], dim=1))
    return terms if compare(got, whole, rtol=rtol, n=n, path=(key,)) else []


@also_right("even shares told by remainders; dims put in order by permute")
def by_permuting():
    import torch
    import torch.nn.functional as F

    def shard_attention(wqkv, wo, heads, kv_heads, rank, size):
        head_dim = wo.shape[0] // heads
        if heads % size or (kv_heads % size and size % kv_heads):
            raise ValueError("these heads can't be shared out evenly")
        q, k, v = wqkv.split([h * head_dim for h in (heads, kv_heads, kv_heads)], dim=1)
        width = heads // size * head_dim
        kv_width, kv_start = (kv_heads // size or 1) * head_dim, rank * kv_heads // size * head_dim
        parts = [q.narrow(1, rank * width, width)]
        parts += [w.narrow(1, kv_start, kv_width) for w in (k, v)]
        return torch.cat(parts, dim=1), wo.narrow(0, rank * width, width).clone()

    def tp_attention(comm, x, wqkv_shard, wo_shard, heads, kv_heads, *, f, g):
        mine, kv = heads // comm.size, kv_heads // comm.size or 1
        qkv = f.apply(x, comm) @ wqkv_shard
        qkv = qkv.unflatten(-1, (mine + 2 * kv, -1)).permute(0, 2, 1, 3)
        q, k, v = qkv.split([mine, kv, kv], dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return g.apply(mixed.permute(0, 2, 1, 3).flatten(2) @ wo_shard, comm)

    return shard_attention, tp_attention


cut_across_q_k_and_v = slip(
    by_permuting,
    "The fused matrix is cut as one, so a rank gets Q without K and V: cut Q, K and V each.",
    ("torch.cat(parts, dim=1), wo", "wqkv.tensor_split(size, dim=1)[rank].clone(), wo"),
)
cut_inside_heads = slip(
    by_permuting,
    "Heads are cut open: a rank needs all head_dim columns of each of its heads, side by side.",
    ("q.narrow(1, rank * width, width)", "q[:, rank::size]"),
    (
        "w.narrow(1, kv_start, kv_width)",
        "w[:, rank % min(size, kv_heads) :: min(size, kv_heads)]",
    ),
    ("wo.narrow(0, rank * width, width)", "wo[rank::size]"),
)
kv_heads_dealt_round = slip(
    by_permuting,
    "The ranks that share a K/V head are neighbours: its query heads lie on ranks in a row.",
    (
        "rank * kv_heads // size * head_dim",
        "rank % min(size, kv_heads) * (kv_heads // size or 1) * head_dim",
    ),
)
every_kv_head_everywhere = slip(
    by_permuting,
    "Every rank holds all K/V heads: it needs only those that its own query heads use.",
    ("w.narrow(1, kv_start, kv_width)", "w"),
)
kv_heads_lost = slip(
    by_permuting,
    "With fewer K/V heads than ranks, some ranks get none: kv_heads // size is 0 there.",
    ("(kv_heads // size or 1)", "kv_heads // size"),
)
view_of_the_whole = slip(
    by_permuting,
    "The shard of wo is a view: it keeps the whole weight in memory, so clone it.",
    (".clone()", ""),
)
uneven_heads_lost = slip(
    by_permuting,
    "Heads that can't be shared out evenly are lost without a word: raise a ValueError.",
    ("if heads % size or (kv_heads % size and size % kv_heads):", "if size < 1:"),
)
uneven_kv_heads_let_through = slip(
    by_permuting,
    "K/V heads must be shared out evenly too: kv_heads divides size, or size divides kv_heads.",
    (" or (kv_heads % size and size % kv_heads)", ""),
)
scale_from_the_local_width = slip(
    by_permuting,
    "The scale comes from the width of the rank's shard; it is 1/sqrt(head_dim).",
    ("enable_gqa=True", "enable_gqa=True, scale=wo_shard.shape[0] ** -0.5"),
)
mask_lost = slip(
    by_permuting,
    "The mask is lost: a token sees those behind it. Attention here is causal.",
    ("is_causal=True, ", ""),
)
kv_heads_in_turn = slip(
    by_permuting,
    "Query heads take K/V heads in turn; those that share one stand side by side.",
    ("kv], dim=1)", "kv], dim=1)\n    k, v = (w.repeat(1, mine // kv, 1, 1) for w in (k, v))"),
    (", enable_gqa=True", ""),
)
tokens_taken_for_heads = slip(
    by_permuting,
    "Tokens and heads are mixed up: unflatten the last dim into heads, then swap two dims.",
    (
        "qkv.unflatten(-1, (mine + 2 * kv, -1)).permute(0, 2, 1, 3)",
        "qkv.reshape(x.shape[0], mine + 2 * kv, x.shape[1], -1)",
    ),
)
f_forgotten = slip(
    by_permuting,
    "f is missing: x feeds the heads of all ranks, so its gradient is a sum over ranks.",
    ("f.apply(x, comm)", "x"),
)
g_forgotten = slip(
    by_permuting,
    "g is missing: each rank returns its own heads' term of the sum.",
    ("g.apply(", ""),
    ("wo_shard, comm)", "wo_shard"),
)
f_three_times = slip(
    by_permuting,
    "The values are right, but x goes through f once each for Q, K and V: once is enough.",
    (
        "qkv = f.apply(x, comm) @ wqkv_shard",
        "sizes = [h * wo_shard.shape[0] // mine for h in (mine, kv, kv)]\n"
        "    parts = wqkv_shard.split(sizes, dim=1)\n"
        "    qkv = torch.cat([f.apply(x, comm) @ w for w in parts], dim=-1)",
    ),
)


@also_right("head by head, the softmax by hand; columns and rows picked by their numbers")
def by_hand():
    import torch

    def shard_attention(wqkv, wo, heads, kv_heads, rank, size):
        if heads % size or (kv_heads % size and size % kv_heads):
            raise ValueError("no even share")
        mine = torch.arange(heads).view(size, -1)[rank]
        theirs = torch.unique(mine * kv_heads // heads) + heads
        order = torch.cat([mine, theirs, theirs + kv_heads])
        by_head = wqkv.unflatten(1, (heads + 2 * kv_heads, -1))
        return by_head[:, order].flatten(1), wo.unflatten(0, (heads, -1))[mine].flatten(0, 1)

    def tp_attention(comm, x, wqkv_shard, wo_shard, heads, kv_heads, *, f, g):
        x = f.apply(x, comm)
        mine = heads // comm.size
        outs = wo_shard.chunk(mine)
        w = wqkv_shard.split(outs[0].shape[0], dim=1)
        kv = (len(w) - mine) // 2
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        terms = []
        for j, out in enumerate(outs):
            at = mine + j * kv // mine
            scores = (x @ w[j]) @ (x @ w[at]).mT / out.shape[0] ** 0.5
            weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
            terms.append(weights @ (x @ w[at + kv]) @ out)
        return g.apply(sum(terms), comm)

    return shard_attention, tp_attention


@also_right("a copied head's gradient added up over its ranks, by f on a smaller group")
def copies_added_up():
    import torch
    import torch.nn.functional as F

    def shard_attention(wqkv, wo, heads, kv_heads, rank, size):
        head_dim = wo.shape[0] // heads
        if heads % size or (kv_heads % size and size % kv_heads):
            raise ValueError("these heads can't be shared out evenly")
        q, k, v = wqkv.split([h * head_dim for h in (heads, kv_heads, kv_heads)], dim=1)
        width = heads // size * head_dim
        kv_width, kv_start = (kv_heads // size or 1) * head_dim, rank * kv_heads // size * head_dim
        parts = [q.narrow(1, rank * width, width)]
        parts += [w.narrow(1, kv_start, kv_width) for w in (k, v)]
        return torch.cat(parts, dim=1), wo.narrow(0, rank * width, width).clone()

    def tp_attention(comm, x, wqkv_shard, wo_shard, heads, kv_heads, *, f, g):
        mine, kv = heads // comm.size, kv_heads // comm.size or 1
        width = wo_shard.shape[0]
        sharing = comm.split(comm.rank * kv_heads // comm.size)
        weights = [wqkv_shard[:, :width], f.apply(wqkv_shard[:, width:], sharing)]
        qkv = f.apply(x, comm) @ torch.cat(weights, dim=1)
        qkv = qkv.unflatten(-1, (mine + 2 * kv, -1)).permute(0, 2, 1, 3)
        q, k, v = qkv.split([mine, kv, kv], dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return g.apply(mixed.permute(0, 2, 1, 3).flatten(2) @ wo_shard, comm)

    return shard_attention, tp_attention


_ORDER = "max and min don't care for the order of their arguments"
_SWAP = "swapping two dims is the same in either order"
_TERM = "a copy's own term is right as well as the sum over copies"
EQUIVALENT = {
    "shard_attention: max(kv_heads, size) -> max(size, kv_heads)": _ORDER,
    "shard_attention: min(kv_heads, size) -> min(size, kv_heads)": _ORDER,
    "shard_attention: max(1, kv_heads // size) -> max(kv_heads // size, 1)": _ORDER,
    "tp_attention: max(1, kv_heads // comm.size) -> max(kv_heads // comm.size, 1)": _ORDER,
    "tp_attention: qkv.unflatten(-1, (-1, head_dim)).transpose(1, 2)"
    " -> qkv.unflatten(-1, (-1, head_dim)).transpose(2, 1)": _SWAP,
    "tp_attention: mixed.transpose(1, 2) -> mixed.transpose(2, 1)": _SWAP,
    "copies_added_up tp_attention: comm.rank * kv_heads // comm.size"
    " -> comm.rank * kv_heads": _TERM,
    "copies_added_up tp_attention: f.apply(wqkv_shard[:, width:], sharing)"
    " -> wqkv_shard[:, width:]": _TERM,
}
