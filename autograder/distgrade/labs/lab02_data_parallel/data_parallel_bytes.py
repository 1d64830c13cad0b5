"""Bytes of a step through each GPU: `dp_bytes(...)` and `ddp_bytes(...)` -> n pairs (out, in).

An optimiser step has K microbatches. nn.DataParallel copies the weights from GPU 0 to each of the
others in every forward and adds their gradients into GPU 0 in every backward. DDP all-reduces the
gradients on a ring, once per step (`no_sync` around all microbatches but the last) or in each.
Samples, outputs and buffers are left out. Bytes may have fractions: a chunk of the ring is 1/n.
Source: Li et al. 2020 (arXiv:2006.15704), sections 2.2 and 3.2.4; PyTorch 2.13, torch/nn/parallel.
Oracle: every message of the step is sent, and counted on both sides.
"""

from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("dp_bytes", "ddp_bytes")
FORBID = ()
TOLERANCE = Close(1e-12, "(n-1)/n is rounded, in any order of factors")
CREDIT = {"nn.DataParallel": 1, "DDP": 1, "microbatches": 1}
CASES = (
    Case("one GPU", "nn.DataParallel", n=1, way="dp", weights=16, grads=24, k=1),
    Case("four GPUs", "nn.DataParallel", n=4, way="dp", weights=140, grads=280, k=1),
    Case(
        "64 GPUs",
        "nn.DataParallel",
        n=64,
        way="dp",
        weights=15_000_000_001,
        grads=15_000_000_007,
        k=1,
    ),
    Case("a ring of one", "DDP", n=1, way="ddp", weights=0, grads=32, k=1),
    Case("a ring of two", "DDP", n=2, way="ddp", weights=0, grads=50, k=1),
    Case("a ring of five", "DDP", n=5, way="ddp", weights=0, grads=72, k=1),
    Case("three GPUs, four microbatches", "microbatches", n=3, way="dp", weights=64, grads=96, k=4),
    Case(
        "a ring of four, six microbatches", "microbatches", n=4, way="ddp", weights=0, grads=60, k=6
    ),
    Case("sync in each", "microbatches", n=3, way="ddp", weights=0, grads=42, k=5, no_sync=False),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: weights and gradients become larger, by different amounts.
    more = integers((2,), "data_parallel_bytes", case.name, seed, low=1, high=99).int().tolist()
    weights, grads = (size + bool(seed) * more.pop() for size in (case.weights, case.grads))
    named = {"microbatches": case.k} if case.k > 1 else {}
    if not getattr(case, "no_sync", True):
        named["no_sync"] = False
    sizes = [weights, grads] if case.way == "dp" else [grads]
    return {"way": case.way, "sizes": sizes, "n": case.n, "named": named}


def observe(student, given):
    function = student.dp_bytes if given["way"] == "dp" else student.ddp_bytes
    answer = function(*given["sizes"], given["n"], **given["named"])
    if hasattr(answer, "tolist"):  # of numpy or torch
        answer = answer.tolist()
    try:
        pairs = [tuple(pair) for pair in answer]
    except TypeError:
        pairs = [()]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a list of pairs is asked for: (bytes out, bytes in) of each GPU")
    plain = [[v.item() if hasattr(v, "item") else v for v in pair] for pair in pairs]
    return {"bytes": [{"out": out, "in": into} for out, into in plain]}


def oracle(case, given):
    from fractions import Fraction

    n, named = given["n"], given["named"]
    gpus = [{"out": Fraction(0), "in": Fraction(0)} for _ in range(n)]

    def message(src, dst, size):
        gpus[src]["out"] += size
        gpus[dst]["in"] += size

    microbatches = named.get("microbatches", 1)
    for k in range(microbatches):
        if given["way"] == "dp":
            weights, grads = given["sizes"]
            for other in range(1, n):
                message(0, other, weights)
                message(other, 0, grads)
        elif k == microbatches - 1 or not named.get("no_sync", True):
            chunk = Fraction(given["sizes"][0], n)
            for _ in range(2 * (n - 1)):
                for gpu in range(n):
                    message(gpu, (gpu + 1) % n, chunk)
    return {"bytes": [{way: float(size) for way, size in gpu.items()} for gpu in gpus]}


@also_right("two formulas")
def two_formulas():
    def dp_bytes(weight_bytes, gradient_bytes, n, *, microbatches=1):
        weights, grads = microbatches * weight_bytes, microbatches * gradient_bytes
        first = (n - 1) * weights, (n - 1) * grads
        return [first] + (n - 1) * [(grads, weights)]

    def ddp_bytes(gradient_bytes, n, *, microbatches=1, no_sync=True):
        times = 1 if no_sync else microbatches
        each = times * 2 * (n - 1) / n * gradient_bytes
        return n * [(each, each)]

    return dp_bytes, ddp_bytes


weights_once_per_step = slip(
    two_formulas,
    "nn.DataParallel copies the weights in every forward, not once per step.",
    ("microbatches * weight_bytes", "weight_bytes"),
)
dp_gradients_once_per_step = slip(
    two_formulas,
    "Under nn.DataParallel gradients are added into GPU 0 in every backward, not once per step.",
    ("microbatches * gradient_bytes", "gradient_bytes"),
)
once_per_step = slip(
    two_formulas,
    "nn.DataParallel sends in every microbatch: weights out, gradients in, each time.",
    ("microbatches * weight_bytes", "weight_bytes"),
    ("microbatches * gradient_bytes", "gradient_bytes"),
)
others_swapped = slip(
    two_formulas,
    "Out and in of the other GPUs are swapped: they take in weights and send gradients.",
    ("[(grads, weights)]", "[(weights, grads)]"),
)
n_copies_of_weights = slip(
    two_formulas,
    "GPU 0 sends weights to the others alone: n - 1 copies, not n.",
    ("first = (n - 1) * weights", "first = n * weights"),
)
sums_sent_back = slip(
    two_formulas,
    "The summed gradients don't go out again: GPU 0 updates, and the next forward copies weights.",
    ("first = (n - 1) * weights,", "first = (n - 1) * (weights + grads),"),
    ("[(grads, weights)]", "[(grads, weights + grads)]"),
)
out_and_in_swapped = slip(
    two_formulas,
    "Out and in are swapped under nn.DataParallel: weights leave GPU 0, gradients come in.",
    ("weights, grads = microbatches * weight", "grads, weights = microbatches * weight"),
)
n_copies = slip(
    two_formulas,
    "GPU 0 counts itself among the others: it sends n - 1 copies, and takes in n - 1 gradients.",
    ("first = (n - 1) * weights, (n - 1) * grads", "first = n * weights, n * grads"),
)
every_gpu_as_the_first = slip(
    two_formulas,
    "The weights come from GPU 0 and the gradients go there: no other GPU does as much as 0.",
    ("[first] + (n - 1) * [(grads, weights)]", "n * [first]"),
)
whole_ring = slip(
    two_formulas,
    "2 S is the limit for many GPUs: on a ring each sends 2 (n-1)/n of the gradients.",
    ("2 * (n - 1) / n * gradient", "2 * gradient"),
)
half_a_ring = slip(
    two_formulas,
    "Half of a ring: sums grow in n - 1 hops, and n - 1 more hops carry them round.",
    ("times * 2 * ", "times * "),
)
whole_gradients_on_each_hop = slip(
    two_formulas,
    "A hop of the ring carries a chunk, 1/n of the gradients; here each hop carries all of them.",
    ("(n - 1) / n * gradient", "(n - 1) * gradient"),
)
in_the_middle_too = slip(
    two_formulas,
    "DDP has no GPU in the middle: on a ring each GPU sends 2 (n-1)/n of the gradients.",
    (
        "return n * [(each, each)]",
        "grads = times * gradient_bytes\n"
        "    return [((n - 1) * grads,) * 2] + (n - 1) * [(grads, grads)]",
    ),
)
no_sync_ignored = slip(
    two_formulas,
    "With `no_sync` DDP sends once per step, however many microbatches there are.",
    ("1 if no_sync else microbatches", "microbatches"),
)
always_once = slip(
    two_formulas,
    "Without `no_sync` DDP sends the gradients after every microbatch.",
    ("1 if no_sync else microbatches", "1"),
)
no_sync_turned_round = slip(
    two_formulas,
    "`no_sync` is turned round: it is what leaves out the sending in all microbatches but one.",
    ("1 if no_sync else microbatches", "microbatches if no_sync else 1"),
)


@also_right("microbatch by microbatch, GPU by GPU")
def step_by_step():
    def dp_bytes(weight_bytes, gradient_bytes, n, *, microbatches=1):
        out, into = [0] * n, [0] * n
        for _ in range(microbatches):
            for gpu in range(1, n):
                out[0], into[gpu] = out[0] + weight_bytes, into[gpu] + weight_bytes
                out[gpu], into[0] = out[gpu] + gradient_bytes, into[0] + gradient_bytes
        return list(zip(out, into, strict=True))

    def ddp_bytes(gradient_bytes, n, *, microbatches=1, no_sync=True):
        sent = 0
        for k in range(microbatches):
            if k == microbatches - 1 or not no_sync:
                for _ in range(2 * (n - 1)):
                    sent += gradient_bytes / n
        return [[sent, sent] for _ in range(n)]

    return dp_bytes, ddp_bytes


@also_right("from the total: both ways send 2 (n-1) gradients, and DDP shares them out")
def from_the_total():
    import torch

    def dp_bytes(weight_bytes, gradient_bytes, n, *, microbatches=1):
        rows = torch.tensor([[gradient_bytes, weight_bytes]] * n, dtype=torch.float64)
        rows[0] = rows[1:].sum(dim=0).flip(0)
        return rows * microbatches

    def ddp_bytes(gradient_bytes, n, *, microbatches=1, no_sync=True):
        total = 2 * (n - 1) * gradient_bytes
        if not no_sync:
            total = total * microbatches
        return [(total / n, total / n)] * n

    return dp_bytes, ddp_bytes


EQUIVALENT = {
    "step_by_step dp_bytes: list(zip(out, into, strict=True)) -> zip(out, into, strict=True)": (
        "the pairs come in the same order, whatever holds them"
    ),
    "step_by_step dp_bytes: zip(out, into, strict=True) -> zip(out, into)": (
        "both are equally long; strict only says so"
    ),
    "step_by_step dp_bytes: True -> False": "both are equally long; strict only says so",
    "from_the_total dp_bytes: torch.tensor([[gradient_bytes, weight_bytes]] * n, "
    "dtype=torch.float64) -> torch.tensor([[gradient_bytes, weight_bytes]] * n)": (
        "the cases' bytes are whole numbers, which stay exact in int64 too"
    ),
    "from_the_total dp_bytes: 0 -> -1": "the only dim of a row is its first and its last",
}
