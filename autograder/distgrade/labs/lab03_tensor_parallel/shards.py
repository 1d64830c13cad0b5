"""One rank's part of a linear layer's weight and bias, cut by columns or by rows.

`shard_columns(w, b, rank, size) -> (w_shard, b_shard)` and `shard_rows(w, b, rank, size) ->
(w_shard, b)`: the parts lie side by side in the order of the ranks.
Shapes: w [d_in, d_out], b [d_out]; columns [d_in, d_out/size] and [d_out/size]; rows
[d_in/size, d_out] and the whole b, which every rank's full-width product needs.
Cost: a part owns its memory and no more than that: d_in d_out / size numbers. A view would keep the
whole weight alive on every rank, and nothing would be saved.
Raises: ValueError where size does not divide what is cut.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3. Oracle: numpy's reshape to one more dim.
"""

from distgrade.compare import Symptom, ceiling, compare, name, told_as_changed
from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("shard_columns", "shard_rows")
FORBID = ()
TOLERANCE = Exact()
CREDIT = {"values": 1, "memory": 1, "sizes": 1}
CASES = (  # `columns` and `rows` are the shapes that each function is given
    Case("two ranks, square", "values", n=2, columns=(4, 4), rows=(4, 4)),
    Case("three ranks", "values", n=3, columns=(2, 6), rows=(9, 2)),
    Case("five ranks, one each", "values", n=5, columns=(3, 5), rows=(5, 3)),
    Case("memory, one rank", "memory", n=1, columns=(3, 2), rows=(2, 3)),
    Case("memory, four ranks", "memory", n=4, columns=(6, 8), rows=(8, 6)),
    # What is not cut may have any size.
    Case("the other dim undivided", "sizes", n=4, columns=(3, 8), rows=(4, 5)),
    Case("8 columns over 3 ranks", "sizes", n=3, columns=(6, 8), rank=1, expects=ValueError),
    Case("2 rows over 4 ranks", "sizes", n=4, rows=(2, 8), rank=0, expects=ValueError),
)


def given(case, seed):
    from distlab.seeds import integers

    def layer(cut):
        shape = getattr(case, cut, None)
        if shape is None:
            return None
        key = ("shards", case.name, seed, cut)
        return {"w": integers(shape, *key, "w"), "b": integers(shape[1:], *key, "b")}

    return {
        "ranks": [case.rank] if hasattr(case, "rank") else list(range(case.n)),
        "size": case.n,
        "layers": {cut: layer(cut) for cut in ("columns", "rows")},
    }


def observe(student, given):
    import torch

    functions = {"columns": student.shard_columns, "rows": student.shard_rows}
    ranks, size = given["ranks"], given["size"]

    def memory_bytes(part):
        return part.untyped_storage().nbytes() if isinstance(part, torch.Tensor) else None

    def inside(part, whole):
        if not isinstance(part, torch.Tensor):
            return None
        return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()

    tree = {}
    for cut, layer in given["layers"].items():
        if layer is None:
            continue
        w, b = layer["w"].clone(), layer["b"].clone()
        answers = [functions[cut](w, b, rank, size) for rank in ranks]
        pairs = [a if isinstance(a, tuple | list) and len(a) == 2 else (a, None) for a in answers]
        by = f"shard_{cut}"
        tree |= {f"{by}: w afterwards": w.clone(), f"{by}: b afterwards": b.clone()}
        for part, whole, mine in (("w", w, [p[0] for p in pairs]), ("b", b, [p[1] for p in pairs])):
            tree[f"{by}: part of {part}"] = mine
            if (cut, part) != ("rows", "b"):  # b is whole there, so it may be the very same tensor
                tree[f"{by}: memory of {part}"] = [memory_bytes(p) for p in mine]
                tree[f"{by}: {part} shared"] = [inside(p, whole) for p in mine]
    return tree


def oracle(case, given):
    import numpy as np
    import torch

    n, tree = case.n, {}

    def cut_up(whole, dim):
        """Return the parts along a dim, which is split into (rank, position) and put in front."""
        shape = (*whole.shape[:dim], n, whole.shape[dim] // n, *whole.shape[dim + 1 :])
        parts = np.moveaxis(whole.numpy().reshape(shape), dim, 0)
        return [torch.tensor(part) for part in parts]

    for cut, dim in (("columns", 1), ("rows", 0)):
        w, b = given["layers"][cut]["w"], given["layers"][cut]["b"]
        parts = {"w": cut_up(w, dim), "b": cut_up(b, 0) if cut == "columns" else [b] * n}
        by = f"shard_{cut}"
        tree |= {f"{by}: w afterwards": w, f"{by}: b afterwards": b}
        for part, mine in parts.items():
            tree[f"{by}: part of {part}"] = mine
            if (cut, part) != ("rows", "b"):
                tree[f"{by}: memory of {part}"] = [p.numel() * 8 for p in mine]  # float64
                tree[f"{by}: {part} shared"] = [False] * n
    return tree


def judge(got, expected, case):
    # Memory earns its point only beside right values: who returns nothing would need least.
    told = ("memory of", "shared")
    values = [key for key in expected if not any(word in key for word in told)]
    symptoms = told_as_changed(
        compare(
            *({k: tree[k] for k in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    if case.group != "memory":
        return symptoms
    for key in expected:
        if "memory of" in key:
            symptoms += ceiling(got[key], expected[key], key)
        elif key.endswith("shared"):
            where = key.replace(": ", ": part of ").removesuffix(" shared")
            symptoms += [
                Symptom("cost", name((where, rank), case.n), "lies in the memory of the whole")
                for rank, shared in enumerate(got[key])
                if shared is not False
            ]
    return symptoms


@wrong(
    "shard_rows cuts the bias: a row cut makes all d_out columns on every rank, so b stays whole."
)
def row_bias_cut():
    def shard_columns(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the columns")
        return w.chunk(size, dim=1)[rank].clone(), b.chunk(size)[rank].clone()

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the rows")
        return w.chunk(size, dim=0)[rank].clone(), b.tensor_split(size)[rank].clone()

    return shard_columns, shard_rows


@wrong("The cuts are swapped: w is [d_in, d_out], so columns lie along dim 1 and rows along dim 0.")
def swapped():
    def shard_columns(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the columns")
        return w.chunk(size, dim=0)[rank].clone(), b.chunk(size)[min(rank, len(b) - 1)].clone()

    def shard_rows(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the rows")
        return w.chunk(size, dim=1)[rank].clone(), b

    return shard_columns, shard_rows


@wrong("shard_columns leaves the bias whole: columns i of y only meet their own entries of b.")
def column_bias_whole():
    def shard_columns(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the columns")
        return w.chunk(size, dim=1)[rank].clone(), b.clone()

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the rows")
        return w.chunk(size, dim=0)[rank].clone(), b

    return shard_columns, shard_rows


@wrong("The parts are views: a slice keeps the whole weight in memory, so copy it: clone().")
def views_of_the_whole():
    def shard_columns(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the columns")
        return w.chunk(size, dim=1)[rank], b.chunk(size)[rank]

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the rows")
        return w.chunk(size, dim=0)[rank], b

    return shard_columns, shard_rows


@wrong(
    "contiguous() copies only what has gaps: rows have none, so that part is still a view: clone()."
)
def contiguous_is_no_copy():
    def shard_columns(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the columns")
        return w.chunk(size, dim=1)[rank].contiguous(), b.chunk(size)[rank].contiguous()

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the rows")
        return w.chunk(size, dim=0)[rank].contiguous(), b

    return shard_columns, shard_rows


@wrong("The whole is copied and then cut, so each part is a view of a whole copy: cut, then copy.")
def copied_before_the_cut():
    def shard_columns(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the columns")
        return w.clone().chunk(size, dim=1)[rank], b.clone().chunk(size)[rank]

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the rows")
        return w.clone().chunk(size, dim=0)[rank], b.clone()

    return shard_columns, shard_rows


@wrong("The bias's part is a view of the whole bias: it needs memory of its own too.")
def bias_is_a_view():
    def shard_columns(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the columns")
        return w.chunk(size, dim=1)[rank].clone(), b.chunk(size)[rank]

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the rows")
        return w.chunk(size, dim=0)[rank].clone(), b

    return shard_columns, shard_rows


@wrong("What is left over is lost where the ranks don't divide the size: raise ValueError there.")
def rest_is_lost():
    def shard_columns(w, b, rank, size):
        width = w.shape[1] // size
        part = slice(rank * width, (rank + 1) * width)
        return w[:, part].clone(), b[part].clone()

    def shard_rows(w, b, rank, size):
        height = w.shape[0] // size
        return w[rank * height : (rank + 1) * height].clone(), b

    return shard_columns, shard_rows


@wrong("Unequal parts come back where the ranks don't divide the size: raise ValueError there.")
def unequal_parts():
    def shard_columns(w, b, rank, size):
        part = w.tensor_split(size, dim=1)[rank].clone()
        return part, b.tensor_split(size)[rank].clone()

    def shard_rows(w, b, rank, size):
        return w.tensor_split(size, dim=0)[rank].clone(), b

    return shard_columns, shard_rows


@wrong("A failed assert is an AssertionError, and python -O leaves it out: raise ValueError.")
def asserted():
    def shard_columns(w, b, rank, size):
        assert w.shape[1] % size == 0
        return w.chunk(size, dim=1)[rank].clone(), b.chunk(size)[rank].clone()

    def shard_rows(w, b, rank, size):
        assert w.shape[0] % size == 0
        return w.chunk(size, dim=0)[rank].clone(), b

    return shard_columns, shard_rows


@wrong("A size is refused that has a meaning: only the dim that is cut must be divided.")
def both_dims_must_be_divided():
    def shard_columns(w, b, rank, size):
        if w.shape[0] % size or w.shape[1] % size:
            raise ValueError("size must divide both dims")
        return w.chunk(size, dim=1)[rank].clone(), b.chunk(size)[rank].clone()

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size or w.shape[1] % size:
            raise ValueError("size must divide both dims")
        return w.chunk(size, dim=0)[rank].clone(), b

    return shard_columns, shard_rows


@wrong("Rank i takes every size-th column or row: its part should be a block of neighbours.")
def strided():
    def shard_columns(w, b, rank, size):
        if w.shape[1] % size:
            raise ValueError("size must divide the columns")
        return w[:, rank::size].clone(), b[rank::size].clone()

    def shard_rows(w, b, rank, size):
        if w.shape[0] % size:
            raise ValueError("size must divide the rows")
        return w[rank::size].clone(), b

    return shard_columns, shard_rows


@also_right("numpy's split, which refuses unequal parts by itself")
def by_numpy():
    import numpy as np
    import torch

    def shard_columns(w, b, rank, size):
        parts = np.split(w.numpy(), size, axis=1), np.split(b.numpy(), size)
        return tuple(torch.tensor(part[rank]) for part in parts)

    def shard_rows(w, b, rank, size):
        return torch.tensor(np.split(w.numpy(), size)[rank]), b.clone()

    return shard_columns, shard_rows


@also_right("one more dim, of length size; index_select always copies")
def by_one_more_dim():
    import torch

    def part_of(whole, dim, rank, size):
        length, rest = divmod(whole.shape[dim], size)
        if rest:
            raise ValueError(f"{whole.shape[dim]} is not a multiple of {size}")
        blocks = whole.unflatten(dim, (size, length))
        return blocks.index_select(dim, torch.tensor([rank])).squeeze(dim)

    def shard_columns(w, b, rank, size):
        return part_of(w, 1, rank, size), part_of(b, 0, rank, size)

    def shard_rows(w, b, rank, size):
        return part_of(w, 0, rank, size), b

    return shard_columns, shard_rows


@also_right("into an empty tensor, by narrow and copy_; columns are the rows of the transpose")
def into_an_empty_tensor():
    import torch

    def shard_rows(w, b, rank, size):
        if w.shape[0] / size != w.shape[0] // size:
            raise ValueError("the rows are not a multiple of the ranks")
        height = w.shape[0] // size
        part = torch.empty((height, w.shape[1]), dtype=w.dtype)
        part.copy_(w.narrow(0, rank * height, height))
        return part, b

    def shard_columns(w, b, rank, size):
        part, _ = shard_rows(w.T, b, rank, size)
        bias, _ = shard_rows(b[:, None], b, rank, size)
        return part.T, bias.flatten()

    return shard_columns, shard_rows


EQUIVALENT = {}
