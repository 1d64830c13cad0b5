"""Tensors laid end to end and cut into n equal shards, and put together again.

`flat_shard(tensors, n, rank) -> shard`, 1-D, ceil(total / n) numbers on every rank: zeros fill up
the end. `unflatten(flat, like) -> list`: `flat` is all shards, joined in the order of the ranks;
shapes come from `like`, dtype from `flat`. It may return views of `flat`.
Cost: a shard owns its memory, and no more than that.
Any order of the numbers is right, if the pair undoes it.
Source: Rajbhandari et al. 2020 (arXiv:1910.02054), section 5; padding as in FSDP, Zhao et al. 2023
(arXiv:2304.11277), section 3.2. Oracle: the inputs themselves, which must come back.
"""

import torch

from distgrade.compare import Symptom, ceiling, compare, name
from distgrade.exercise import Case, Exact, also_right, slip

NAMES = ("flat_shard", "unflatten")
FORBID = ()
TOLERANCE = Exact(why="numbers are moved, never computed with")
CREDIT = {"values": 2, "padding": 1, "memory": 1}
CASES = (
    Case("one rank", "values", n=1, shapes=[(2, 3), (3,)]),
    Case("two ranks", "values", n=2, shapes=[(4,), (2, 2)]),
    Case("a cut within a tensor", "values", n=3, shapes=[(5,), (2, 2), (3,)]),
    Case("BF16, four ranks", "values", n=4, shapes=[(3, 2), (6,)], dtype="bfloat16"),
    Case("11 numbers, four ranks", "padding", n=4, shapes=[(2, 3), (5,)]),
    Case("3 numbers, five ranks", "padding", n=5, shapes=[(2,), ()]),
    Case("an empty tensor", "padding", n=3, shapes=[(2, 2), (0,), (3,)]),
    Case("memory, one rank", "memory", n=1, shapes=[(6,)]),
    Case("memory, four ranks", "memory", n=4, shapes=[(4, 4)]),
    Case("memory, three ranks", "memory", n=3, shapes=[(7,), (3,)]),
)


def given(case, seed):
    import torch

    from distlab.seeds import integers

    key, dtype = ("flat_shard", case.name, seed), getattr(torch, getattr(case, "dtype", "float64"))
    far = {"low": -120, "high": 120, "dtype": dtype}  # whole numbers that BF16 holds as well
    shapes = [tuple(shape) for shape in case.shapes]
    return {
        "tensors": [integers(shape, *key, i, **far) for i, shape in enumerate(shapes)],
        "n": case.n,
    }


def observe(student, given):
    import torch

    def copy(x):  # with strides of its own: a column's would come along
        return x.clone(memory_format=torch.contiguous_format) if hasattr(x, "clone") else x

    tensors, n = given["tensors"], given["n"]
    before = [t.clone() for t in tensors]
    shards = [student.flat_shard(tensors, n, rank) for rank in range(n)]
    if not all(isinstance(shard, torch.Tensor) and shard.dim() == 1 for shard in shards):
        raise TypeError("`flat_shard` should return a tensor with one dim.")
    behind = [shard.untyped_storage() for shard in shards]
    inputs = {t.untyped_storage().data_ptr() for t in tensors if t.numel()}
    tree = {
        "tensors changed": [
            not torch.equal(t, was) for t, was in zip(tensors, before, strict=True)
        ],
        "shards": [copy(shard) for shard in shards],
        "memory of a shard": [storage.nbytes() for storage in behind],
        "shared": [storage.data_ptr() in inputs for storage in behind],
    }
    like = [torch.zeros(t.shape, dtype=torch.float16) for t in tensors]
    flat = torch.cat(shards)
    back = student.unflatten(flat, like)
    if not isinstance(back, list | tuple):
        raise TypeError("`unflatten` should return a list of tensors.")
    return tree | {"tensors again": [copy(t) for t in back]}


def oracle(case, given):
    import torch

    dtype = given["tensors"][0].dtype
    numbers = [x for t in given["tensors"] for x in t.flatten().tolist()]
    length = len(range(0, len(numbers), case.n))  # every n-th number, from the first on
    shards = torch.zeros(case.n, length, dtype=dtype)
    for i, x in enumerate(numbers):
        shards[divmod(i, length)] = x
    return {
        "tensors changed": [False] * len(given["tensors"]),
        "shards": [row.clone() for row in shards],
        "memory of a shard": [length * dtype.itemsize] * case.n,
        "shared": [False] * case.n,
        "tensors again": given["tensors"],
    }


def judge(got, expected, case):
    n, shards, length = case.n, got["shards"], len(expected["shards"][0])
    if True in got["tensors changed"]:
        return [Symptom("values", "the tensors", "these inputs were changed")]
    symptoms = [
        Symptom("shape", name(("shard", rank), n), f"{len(x)} numbers where {length} are expected")
        for rank, x in enumerate(shards)
        if len(x) != length
    ]
    if not symptoms:
        joined = [torch.cat(each).sort().values for each in (shards, expected["shards"])]
        symptoms += compare(*({"all shards, sorted": x} for x in joined), rtol=0.0)
    both = ({"tensors again": tree["tensors again"]} for tree in (got, expected))
    symptoms += compare(*both, rtol=0.0)
    if case.group == "memory":
        symptoms += ceiling(got["memory of a shard"], expected["memory of a shard"], "memory")
        symptoms += [
            Symptom("cost", name(("shard", rank), n), "lies in the memory of a tensor")
            for rank, shared in enumerate(got["shared"])
            if shared is not False
        ]
    return symptoms


@also_right("laid end to end, zeros behind, a slice copied")
def end_to_end():
    import torch

    def flat_shard(tensors, n, rank):
        flat = torch.cat([t.flatten() for t in tensors])
        size = -(-len(flat) // n)
        padded = torch.nn.functional.pad(flat, (0, n * size - len(flat)))
        return padded[rank * size : (rank + 1) * size].clone()

    def unflatten(flat, like):
        tensors, start = [], 0
        for t in like:
            stop = start + t.numel()
            tensors.append(flat[start:stop].view(t.shape))
            start = stop
        return tensors

    return flat_shard, unflatten


not_padded = slip(
    end_to_end,
    "The last shards are shorter: collectives need equal ones, so fill up with zeros.",
    ("pad(flat, (0, n * size - len(flat)))", "pad(flat, (0, 0))"),
)
rest_lost = slip(
    end_to_end,
    "The rest is lost where n doesn't divide the numbers: round the shard's size up.",
    ("-(-len(flat) // n)", "len(flat) // n"),
    ("(0, n * size - len(flat))", "(0, 0)"),
)
one_more_for_all = slip(
    end_to_end,
    "Shards have one number too many where n divides them all: round up only what isn't whole.",
    ("-(-len(flat) // n)", "len(flat) // n + 1"),
)
zeros_in_front = slip(
    end_to_end,
    "The zeros stand in front, where `unflatten` reads the first tensor: pad at the end.",
    ("(0, n * size - len(flat))", "(n * size - len(flat), 0)"),
)
padded_with_ones = slip(
    end_to_end,
    "The padding isn't zero: norms and sums over a shard would count it.",
    ("n * size - len(flat)))", "n * size - len(flat)), value=1.0)"),
)
each_tensor_padded = slip(
    end_to_end,
    "Each tensor is padded by itself, and `unflatten` doesn't skip those zeros.",
    (
        "[t.flatten() for t in tensors]",
        "[torch.nn.functional.pad(t.flatten(), (0, -t.numel() % n)) for t in tensors]",
    ),
)
every_nth = slip(
    end_to_end,
    "Rank r takes every n-th number: joined, the shards are out of order. Take n blocks.",
    ("rank * size : (rank + 1) * size", "rank::n"),
)
in_the_order_of_size = slip(
    end_to_end,
    "The tensors are sorted when they are laid down, not when they come back: keep one order.",
    ("t in tensors]", "t in sorted(tensors, key=len)]"),
)
rank_ignored = slip(
    end_to_end,
    "Every rank gets the same shard: which one is `rank`'s?",
    ("rank * size : (rank + 1) * size", ":size"),
)
a_view = slip(
    end_to_end,
    "The shard is a view, contiguous() or not, and keeps the whole line in memory: clone() it.",
    (".clone()", ""),
)
shapes_lost = slip(
    end_to_end,
    "The tensors come back flat: give each the shape of its like.",
    (".view(t.shape)", ""),
)
always_from_the_front = slip(
    end_to_end,
    "Every tensor is read from the front: go on where the last one ended.",
    ("        start = stop\n", ""),
)
padding_comes_back = slip(
    end_to_end,
    "The padding comes back as one more tensor: what is behind the last one is dropped.",
    ("return tensors", "return tensors + [flat[start:]] * (start < len(flat))"),
)
likes_dtype = slip(
    end_to_end,
    "The numbers come back in like's dtype: only shapes are taken from there.",
    (".view(t.shape)", ".view(t.shape).to(t.dtype)"),
)
likes_themselves = slip(
    end_to_end,
    "`like` itself comes back: it has the shapes, the numbers are in flat.",
    ("return tensors", "return like"),
)


@also_right("a list of numbers, and split")
def by_lists():
    import torch

    def flat_shard(tensors, n, rank):
        numbers = [x for t in tensors for x in t.reshape(-1).tolist()]
        size = (len(numbers) + n - 1) // n
        numbers += [0.0] * (n * size - len(numbers))
        mine = numbers[rank * size : (rank + 1) * size]
        return torch.tensor(mine, dtype=tensors[0].dtype)

    def unflatten(flat, like):
        parts = flat[: sum(t.numel() for t in like)].split([t.numel() for t in like])
        return [part.reshape(t.shape) for part, t in zip(parts, like, strict=True)]

    return flat_shard, unflatten


@also_right("in the opposite order, as backward makes gradients")
def last_tensor_first():
    import torch

    def flat_shard(tensors, n, rank):
        total = sum(t.numel() for t in tensors)
        size = (total - 1) // n + 1
        padded = tensors[0].new_zeros(n * size)
        padded[:total] = torch.cat([t.flatten() for t in reversed(tensors)])
        return padded.view(n, size)[rank].clone()

    def unflatten(flat, like):
        tensors = []
        for t in reversed(like):
            part, flat = flat.tensor_split([t.numel()])
            tensors.append(part.view(t.shape))
        return tensors[::-1]

    return flat_shard, unflatten


BEHIND = "more zeros than needed stand behind the last block, where no rank looks"
STRICT = "both are equally long; strict only says so"
DTYPE = "any of the tensors tells the dtype that all have"
EQUIVALENT = {
    "unflatten: zip(parts, like, strict=True) -> zip(parts, like)": STRICT,
    "unflatten: True -> False": STRICT,
    "end_to_end flat_shard: n * size - len(flat) -> n * size": BEHIND,
    "end_to_end flat_shard: n * size - len(flat) -> len(flat)": BEHIND,
    "end_to_end flat_shard: n * size - len(flat) -> n * size + len(flat)": BEHIND,
    "by_lists flat_shard: n * size - len(numbers) -> n * size": BEHIND,
    "by_lists flat_shard: n * size - len(numbers) -> len(numbers)": BEHIND,
    "by_lists flat_shard: n * size - len(numbers) -> n * size + len(numbers)": BEHIND,
    "by_lists unflatten: zip(parts, like, strict=True) -> zip(parts, like)": STRICT,
    "by_lists unflatten: True -> False": STRICT,
    "by_lists flat_shard: 0 -> -1": DTYPE,
    "last_tensor_first flat_shard: 0 -> -1": DTYPE,
}
