"""Clipping of sharded gradients: `clip_grad_norm_sharded(comm, sharded, replicated, max_norm)`.

Returned is (norm, sharded, replicated): the norm of the whole gradient before clipping, and both
lists scaled by min(1, max_norm / norm), as new tensors. `sharded` are this rank's shards, others
on each rank, zeros at the end where one was padded, or empty; `replicated` are gradients that
every rank holds whole, and that count once. A gradient of zeros stays one.
Shapes: any, float64; either list may be empty. Cost: one number is all-reduced, 2(n-1)/n · 8 bytes
per rank; an all-gather of one number is allowed too, (n-1) · 8 bytes.
Source: Pascanu, Mikolov and Bengio 2013 (arXiv:1211.5063), algorithm 1, for clipping; that squares
are what ranks may add is derived here. Oracle: all ranks' numbers in one `math.hypot`.
"""

from distgrade.compare import Symptom, ceiling, compare
from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("clip_grad_norm_sharded",)
FORBID = ()
TOLERANCE = Close(1e-6, "PyTorch adds 1e-6 to the norm before it divides by it")
CREDIT = {"norm": 2, "clipping": 1, "bytes": 1}
CASES = (  # sharded: the size of a shard, replicated: shapes; scale: of all gradients
    Case("three ranks", "norm", n=3, sharded=(2, 3), replicated=((2, 2), (3,)), most=1.0),
    Case("five ranks", "norm", n=5, sharded=(1, 4), replicated=((2,),), most=2.5),
    Case("nothing is sharded", "norm", n=4, sharded=(), replicated=((3, 2),), most=1.0),
    Case("nothing is replicated", "norm", n=2, sharded=(3, 1, 2), replicated=(), most=0.5),
    Case("one rank", "clipping", n=1, sharded=(4,), replicated=((2,),), most=1.0),
    Case("a small gradient", "clipping", n=3, sharded=(2,), replicated=((2,),), most=1e3),
    Case("small on two of three", "clipping", n=3, sharded=(4, 2), replicated=(), most=4.0),
    Case("empty shards", "clipping", n=4, sharded=(0, 3), replicated=((1,),), most=1.5),
    Case("zeros", "clipping", n=2, sharded=(3,), replicated=((2, 2),), most=1.0, zeros=True),
    Case("six shards", "bytes", n=4, sharded=(5, 9, 2, 40, 7, 3), replicated=((8,),), most=1.0),
)


def given(case, seed):
    import torch

    from distlab.seeds import integers

    key = ("clip_grad_norm_sharded", case.name, seed)
    ranks = []
    for rank in range(case.n):
        shards = [integers((size,), *key, rank, i) for i, size in enumerate(case.sharded)]
        if rank == case.n - 1 and case.n > 1:  # the end of what was cut is padded
            shards = [torch.cat([s[:-1], torch.zeros_like(s[-1:])]) for s in shards]
        if case.name == "empty shards" and rank == case.n - 1:  # its share is padding
            shards = [torch.zeros_like(s) for s in shards]
        if case.name == "small on two of three":
            shards = [s * (3.0 if rank == 1 else 0.125) for s in shards]
        ranks.append(shards)
    replicated = [integers(shape, *key, "whole", i) for i, shape in enumerate(case.replicated)]
    zeros = hasattr(case, "zeros")  # clipped after the others
    return {"sharded": ranks, "replicated": replicated, "most": case.most, "zeros": zeros}


def observe(student, given):
    import torch

    from distlab import per_rank, run

    clip_grad_norm_sharded = student.clip_grad_norm_sharded
    n = len(given["sharded"])

    def on_a_rank(comm, sharded, replicated, most):
        before = [g.clone() for g in (*sharded, *replicated)]
        norm, *clipped = checked(clip_grad_norm_sharded(comm, sharded, replicated, most))
        same = all(map(torch.equal, (*sharded, *replicated), before))
        if given["zeros"]:
            nothing = ([0 * g for g in part] for part in (sharded, replicated))
            _, *more = checked(clip_grad_norm_sharded(comm, *nothing, most))
            clipped = [[*part, *zeros] for part, zeros in zip(clipped, more, strict=True)]
        return norm, *clipped, not same

    def checked(answer):
        if not isinstance(answer, tuple | list) or len(answer) != 3:
            raise TypeError("the answer should be three things: (norm, sharded, replicated)")
        norm, *clipped = answer
        if not all(isinstance(tensors, tuple | list) for tensors in clipped):
            raise TypeError("`sharded` and `replicated` should come back as two lists")
        norm = norm.item() if isinstance(norm, torch.Tensor) and norm.numel() == 1 else norm
        return norm, *map(list, clipped)

    own = per_rank(given["sharded"])
    result = run(on_a_rank, n, own, given["replicated"], given["most"], echo=False)
    norms, sharded, replicated, changed = zip(*result.values, strict=True)
    return {
        "inputs changed": list(changed),
        "norm": list(norms),
        "sharded": list(sharded),
        "replicated": list(replicated),
        "bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)],
    }


def oracle(case, given):
    import math
    from fractions import Fraction

    everything = [g for shards in given["sharded"] for g in shards] + given["replicated"]
    norm = math.hypot(*(x for g in everything for x in g.flatten().tolist()))
    scale = min(norm, case.most) / (norm or 1.0)
    factors = [scale, 0.0] if given["zeros"] else [scale]
    return {
        "inputs changed": [False] * case.n,
        "norm": [norm] * case.n,
        "sharded": [[g * c for c in factors for g in shards] for shards in given["sharded"]],
        "replicated": [[g * c for c in factors for g in given["replicated"]]] * case.n,
        "bytes sent": [Fraction(8 * (case.n - 1))] * case.n,
    }


def judge(got, expected, case):
    symptoms = []
    for rank, changed in enumerate(got["inputs changed"]):
        if changed:
            symptoms.append(Symptom("values", f"gradients on rank {rank}", "inputs were changed"))
    for key in ("norm", "sharded", "replicated"):
        one, other = ({key: tree[key]} for tree in (got, expected))
        symptoms += compare(one, other, rtol=TOLERANCE.rtol, n=case.n)
    if case.group == "bytes":
        symptoms += ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
    return symptoms


@also_right("all squares in one sum, of replicated gradients an n-th on each rank")
def shared_out():
    def clip_grad_norm_sharded(comm, sharded, replicated, max_norm):
        import torch

        square = torch.zeros(())
        for g in sharded:
            square = square + g.square().sum()
        for g in replicated:
            square = square + g.square().sum() / comm.size
        norm = comm.all_reduce(square).sqrt()
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm, [g * scale for g in sharded], [g * scale for g in replicated]

    return clip_grad_norm_sharded


@also_right("rank 0 counts what all hold; squares are gathered, and added by every rank")
def counted_by_rank_0():
    import math

    import torch

    def clip_grad_norm_sharded(comm, sharded, replicated, max_norm):
        mine = [*sharded, *replicated] if comm.rank == 0 else sharded
        square = math.fsum(x * x for g in mine for x in g.flatten().tolist())
        squares = comm.all_gather(torch.tensor([square], dtype=torch.float64))
        norm = math.sqrt(math.fsum(squares.tolist()))
        if norm <= max_norm:
            return norm, [g.clone() for g in sharded], [g.clone() for g in replicated]
        return (
            norm,
            [g * (max_norm / norm) for g in sharded],
            [g * (max_norm / norm) for g in replicated],
        )

    return clip_grad_norm_sharded


@also_right("norms of lists, squared, added and rooted")
def norms_of_lists():
    import torch

    def norm_of(tensors):
        norms = [torch.linalg.vector_norm(g) for g in tensors]
        return torch.stack(norms).norm() if norms else torch.tensor(0.0)

    def clip_grad_norm_sharded(comm, sharded, replicated, max_norm):
        squared = comm.all_reduce(norm_of(sharded) ** 2)
        norm = (squared + norm_of(replicated) ** 2) ** 0.5
        scale = max_norm / max(max_norm, norm)
        return norm, [g * scale for g in sharded], [g * scale for g in replicated]

    return clip_grad_norm_sharded


local_norm = slip(
    norms_of_lists,
    "Each rank takes the norm of what it holds: the norm is one number, of the whole gradient.",
    ("comm.all_reduce(norm_of(sharded) ** 2)", "norm_of(sharded) ** 2"),
)
counted_n_times = slip(
    norms_of_lists,
    "Replicated gradients are counted by every rank, n times in all: count them once.",
    ("norm_of(sharded) ** 2)", "norm_of(sharded) ** 2 + norm_of(replicated) ** 2)"),
    ("(squared + norm_of(replicated) ** 2)", "squared"),
)
only_shards_counted = slip(
    norms_of_lists,
    "The norm leaves out the replicated gradients: they are part of the gradient, once.",
    ("(squared + norm_of(replicated) ** 2)", "squared"),
)
root_before_the_sum = slip(
    norms_of_lists,
    "The ranks' norms are added: roots don't add, squares do. Take the root after the sum.",
    ("comm.all_reduce(norm_of(sharded) ** 2)", "comm.all_reduce(norm_of(sharded)) ** 2"),
)
averaged = slip(
    norms_of_lists,
    "The squares are averaged over ranks: each rank holds another part, so they are summed.",
    ("norm_of(sharded) ** 2)", 'norm_of(sharded) ** 2, op="mean")'),
)
largest_rank = slip(
    norms_of_lists,
    "The largest rank's square stands for all: every rank's square is a part of the sum.",
    ("norm_of(sharded) ** 2)", 'norm_of(sharded) ** 2, op="max")'),
)
zeros_not_sent = slip(
    norms_of_lists,
    "A rank with nothing but zeros leaves out the all-reduce: the others wait for it.",
    ("= comm.all_reduce(norm_of(sharded) ** 2)", "= norm_of(sharded) ** 2"),
    (
        "    norm = (squared",
        "    if squared:\n        squared = comm.all_reduce(squared)\n    norm = (squared",
    ),
)
no_root = slip(
    norms_of_lists,
    "This is the norm's square: the root is missing.",
    (" ** 2) ** 0.5", " ** 2)"),
)
norms_of_parts_added = slip(
    norms_of_lists,
    "The norms of a rank's shards are added: add their squares.",
    ("torch.stack(norms).norm()", "torch.stack(norms).sum()"),
)
clipped_by_the_own_norm = slip(
    norms_of_lists,
    "Each rank scales by its own norm, so parts of one gradient shrink by different factors.",
    ("max(max_norm, norm)", "max(max_norm, norm_of([*sharded, *replicated]))"),
)
scaled_up = slip(
    norms_of_lists,
    "A gradient shorter than the limit is made longer: the factor is 1 at max_norm.",
    ("max_norm / max(max_norm, norm)", "max_norm / norm if norm else 1.0"),
)
divided_by_zero = slip(
    norms_of_lists,
    "A gradient of zeros becomes NaN: 0 divided by 0. It needs no clipping.",
    ("max_norm / max(max_norm, norm)", "(max_norm / norm if norm > max_norm or not norm else 1.0)"),
)
shards_alone_clipped = slip(
    norms_of_lists,
    "Only the shards are scaled: what is replicated belongs to the same gradient.",
    ("[g * scale for g in replicated]", "[g.clone() for g in replicated]"),
)
norm_after_clipping = slip(
    norms_of_lists,
    "The norm that comes back is the one after clipping: it should be the one before.",
    ("return norm,", "return norm * scale,"),
)
number_by_number = slip(
    shared_out,
    "An all-reduce for each gradient: add up the squares first, one number is enough.",
    ("square + g.square().sum()\n", "square + comm.all_reduce(g.square().sum()) / comm.size\n"),
)
in_place = slip(
    shared_out,
    "The gradients that were passed in are changed: return new tensors.",
    ("[g * scale for g in sharded]", "[g.mul_(scale) for g in sharded]"),
)

EQUIVALENT = {
    "shared_out clip_grad_norm_sharded: norm + 1e-06 -> norm": "1e-6 is within the tolerance",
    "shared_out clip_grad_norm_sharded: norm + 1e-06 -> norm - 1e-06": "the same, below the norm",
    "counted_by_rank_0 clip_grad_norm_sharded: torch.tensor([square], dtype=torch.float64) "
    "-> torch.tensor([square])": "a sum of squares rounded to FP32 is within the tolerance",
    "counted_by_rank_0 clip_grad_norm_sharded: norm <= max_norm -> norm < max_norm": (
        "where they are equal, the factor is 1"
    ),
    "norms_of_lists clip_grad_norm_sharded: max(max_norm, norm) -> max(norm, max_norm)": (
        "the larger of two is the same in any order"
    ),
}
