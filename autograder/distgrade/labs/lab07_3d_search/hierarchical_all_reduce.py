"""An all-reduce in two levels: `hierarchical_all_reduce(comm, x, gpus_per_node)`, every rank's sum.

Ranks fill nodes in order, and all nodes are full: rank r is on node r // gpus_per_node.
Shapes: x has any shape, the same on all ranks; so has the result, a new tensor. float64. The g GPUs
of a node need not divide the number of entries.
Cost, with S bytes of x (zeros at its end counted in) on k nodes: a rank sends 2(k-1)/k · S/g in
groups that lie on several nodes, and 2(g-1)/g · S in groups inside a node.
Source: the 2D ring of Jia et al. 2018 (arXiv:1807.11205); the bytes are derived here. Oracle:
Python's integers, added entry by entry.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("hierarchical_all_reduce",)
FORBID = ()
TOLERANCE = Exact()
CREDIT = {"values": 2, "uneven": 1, "inside a node": 2}
CASES = (
    Case("one rank", "values", n=1, node=1, shape=(3,)),
    Case("one node of two", "values", n=2, node=2, shape=(2, 2)),
    Case("two nodes of two", "values", n=4, node=2, shape=(3, 4)),
    Case("three nodes of two", "values", n=6, node=2, shape=(12,)),
    Case("three single ranks", "values", n=3, node=1, shape=(4, 3)),
    Case("two nodes of three, 7 numbers", "uneven", n=6, node=3, shape=(7,)),
    Case("one node of five, 3 numbers", "uneven", n=5, node=5, shape=(3, 1)),
    Case("two nodes of two, one number", "uneven", n=4, node=2, shape=()),
    Case("bytes, two nodes of three", "inside a node", n=6, node=3, shape=(4, 3)),
    Case("bytes, two nodes of four", "inside a node", n=8, node=4, shape=(16,)),
)


def given(case, seed):
    from distlab.seeds import integers

    key = "hierarchical_all_reduce", case.name, seed
    wide = 2**27 + 1  # whole numbers that need more bits than a narrower type has
    xs = [wide * (integers(case.shape, *key, rank) + 20 * rank) for rank in range(case.n)]
    return {"xs": xs, "node": case.node}


def observe(student, given):
    import torch

    from distlab import per_rank, run

    hierarchical_all_reduce = student.hierarchical_all_reduce
    n, node = len(given["xs"]), given["node"]

    def on_a_rank(comm, x, node):
        y = hierarchical_all_reduce(comm, x, node)
        if not isinstance(y, torch.Tensor):
            return y, x, False
        shared = y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        return y.detach().clone(), x, shared

    result = run(on_a_rank, n, per_rank(given["xs"]), node, echo=False)
    sums, inputs, shared = (list(column) for column in zip(*result.values, strict=True))

    def sent(rank, across):
        entries = [e for e in result.ledger.entries if e.rank == rank]
        far = [len({member // node for member in e.group}) > 1 for e in entries]
        return sum((e.ring_bytes for e, x in zip(entries, far, strict=True) if x is across), 0)

    return {
        "x afterwards": inputs,
        "the sum": sums,
        "lies in x's memory": shared,
        "bytes across nodes": [sent(rank, True) for rank in range(n)],
        "bytes inside its node": [sent(rank, False) for rank in range(n)],
    }


def oracle(case, given):
    from fractions import Fraction

    import torch

    n, g, xs = case.n, case.node, given["xs"]
    k = n // g
    columns = zip(*(map(int, x.flatten().tolist()) for x in xs), strict=True)
    total = torch.tensor([float(sum(column)) for column in columns], dtype=torch.float64)
    part = 8 * -(-xs[0].numel() // n) * k  # bytes, of a tensor that all ranks can share evenly
    return {
        "x afterwards": xs,
        "the sum": [total.reshape(case.shape)] * n,
        "lies in x's memory": [False] * n,
        "bytes across nodes": [Fraction(2 * (k - 1) * part, k)] * n,
        "bytes inside its node": [Fraction(2 * (g - 1) * part)] * n,
    }


def judge(got, expected, case):
    keys = ("x afterwards", "the sum", "lies in x's memory")
    mine, right = ({key: tree[key] for key in keys} for tree in (got, expected))
    symptoms = told_as_changed(compare(mine, right, rtol=TOLERANCE.rtol, n=case.n))
    asked = ["bytes across nodes"]
    if case.group == "inside a node":
        asked.append("bytes inside its node")
    for what in asked:
        symptoms += ceiling(got[what], expected[what], what)
    return symptoms


@also_right("padded with zeros, and three collectives")
def three_steps():
    import torch

    def hierarchical_all_reduce(comm, x, gpus_per_node):
        node = comm.split(comm.rank // gpus_per_node)
        rail = comm.split(comm.rank % gpus_per_node)
        missing = -x.numel() % node.size
        flat = torch.cat([x.flatten(), x.new_zeros(missing)])
        part = node.reduce_scatter(flat)
        part = rail.all_reduce(part)
        whole = node.all_gather(part)
        return whole[: x.numel()].reshape(x.shape)

    return (hierarchical_all_reduce,)


@also_right("each level cut in two: two reduce-scatters down, two all-gathers up")
def down_and_up():
    from torch.nn.functional import pad

    def hierarchical_all_reduce(comm, x, gpus_per_node):
        node = comm.split(color=comm.rank // gpus_per_node)
        across = comm.split(color=node.rank)
        flat = pad(x.reshape(-1), (0, -x.numel() % comm.size))
        piece = across.reduce_scatter(node.reduce_scatter(flat))
        flat = node.all_gather(across.all_gather(piece))
        return flat[: x.numel()].view_as(x)

    return (hierarchical_all_reduce,)


@also_right("everybody sends everybody of the node its part, and adds up what comes")
def by_exchange():
    import torch

    def hierarchical_all_reduce(comm, x, gpus_per_node):
        g = gpus_per_node
        node = comm.split(comm.rank // g)
        rows = -(-x.numel() // g)
        padded = torch.zeros(g * rows, dtype=x.dtype)
        padded[: x.numel()] = x.flatten()
        mine = node.all_to_all(padded).reshape(g, rows).sum(0)
        mine = comm.split(comm.rank % g).all_reduce(mine)
        return node.all_gather(mine)[: x.numel()].reshape(x.shape)

    return (hierarchical_all_reduce,)


flat_ring = slip(
    three_steps,
    "The whole tensor goes over the network: reduce inside a node first, then send a part.",
    ("node = comm.split(", "return comm.all_reduce(x); node = comm.split("),
)
whole_rails = slip(
    three_steps,
    "Every GPU of a node sends the node's whole sum: g times the bytes. Each sends its own part.",
    ("missing = -x.numel() % node.size", "missing = 0"),
    ("node.reduce_scatter(flat)", "node.all_reduce(flat)"),
    ("node.all_gather(part)", "part"),
)
padded_rails = slip(
    three_steps,
    "The zeros help nothing where all of it goes across: reduce-scatter first, so each has a part.",
    ("node.reduce_scatter(flat)", "node.all_reduce(flat)"),
    ("node.all_gather(part)", "part"),
)
reduced_twice = slip(
    three_steps,
    "Each of a node's GPUs adds the node's sum once more: across nodes, only equal places meet.",
    ("node.reduce_scatter(flat)", "node.all_reduce(flat)"),
    ("rail.all_reduce(part)", "comm.all_reduce(part)"),
    ("node.all_gather(part)", "part"),
)
node_alone = slip(
    three_steps,
    "This is the sum of a node: the parts must be added across nodes too.",
    ("rail.all_reduce(part)", "part"),
)
levels_swapped = slip(
    three_steps,
    "The levels are swapped: what is reduced first, whole, goes over the network here.",
    (
        "node = comm.split(comm.rank // gpus_per_node)",
        "rail = comm.split(comm.rank // gpus_per_node)",
    ),
    (
        "rail = comm.split(comm.rank % gpus_per_node)",
        "node = comm.split(comm.rank % gpus_per_node)",
    ),
)
nodes_of_k = slip(
    three_steps,
    "Groups have as many ranks as there are nodes here: a node holds gpus_per_node ranks.",
    (
        "node = comm.split(comm.rank // gpus_per_node)",
        "gpus_per_node = comm.size // gpus_per_node; node = comm.split(comm.rank // gpus_per_node)",
    ),
)
all_reduce_inside = slip(
    three_steps,
    "An all-reduce inside the node, of which a part is used: a reduce-scatter sends half of it.",
    ("node.reduce_scatter(flat)", "node.all_reduce(flat).chunk(node.size)[node.rank]"),
)
gathered_across = slip(
    three_steps,
    "All nodes' parts are gathered and added: an all-reduce sends less from three nodes on.",
    ("rail.all_reduce(part)", "rail.all_gather(part).reshape(rail.size, -1).sum(0)"),
)
tail_dropped = slip(
    three_steps,
    "Entries at the end are lost where g doesn't divide their number: add zeros first.",
    ("missing = -x.numel() % node.size", "missing = 0"),
    ("x.flatten(), ", "x.flatten()[: x.numel() // node.size * node.size], "),
    (
        "return whole[: x.numel()].reshape(x.shape)",
        "return torch.cat([whole, x.flatten()[whole.numel() :]]).reshape(x.shape)",
    ),
)
zeros_left = slip(
    three_steps,
    "The zeros that filled the tensor up come back with it: cut them off.",
    ("whole[: x.numel()].reshape(x.shape)", "(whole if missing else whole.reshape(x.shape))"),
)
narrower = slip(
    three_steps,
    "Digits were lost on the way: send x in its own dtype.",
    (
        "torch.cat([x.flatten(), x.new_zeros(missing)])",
        "torch.cat([x.flatten(), x.new_zeros(missing)]).float()",
    ),
    (".reshape(x.shape)", ".reshape(x.shape).double()"),
)
shape_lost = slip(
    three_steps,
    "The result is flat: give it x's shape.",
    (".reshape(x.shape)", ""),
)
not_gathered = slip(
    three_steps,
    "Each rank returns its part of the sum: gather the node's parts.",
    ("return whole[: x.numel()].reshape(x.shape)", "return part"),
)
mean_inside = slip(
    three_steps,
    "Sums were asked for: a mean was taken inside the node.",
    ("node.reduce_scatter(flat)", 'node.reduce_scatter(flat, op="mean")'),
)


@wrong("One rank of each node sends all of it, while the others wait: let each send its own part.")
def leaders():
    def hierarchical_all_reduce(comm, x, gpus_per_node):
        node = comm.split(comm.rank // gpus_per_node)
        leaders = comm.split(0 if node.rank == 0 else None)
        total = node.all_reduce(x)
        if node.rank == 0:
            total = leaders.all_reduce(total)
        return node.broadcast(total, src=0)

    return (hierarchical_all_reduce,)


@wrong("x itself was overwritten: return a new tensor.")
def in_place():
    import torch

    def hierarchical_all_reduce(comm, x, gpus_per_node):
        node = comm.split(comm.rank // gpus_per_node)
        rail = comm.split(comm.rank % gpus_per_node)
        flat = torch.cat([x.flatten(), x.new_zeros(-x.numel() % node.size)])
        whole = node.all_gather(rail.all_reduce(node.reduce_scatter(flat)))
        return x.copy_(whole[: x.numel()].reshape(x.shape))

    return (hierarchical_all_reduce,)


_NAME = "a rail's colour only names it: those of equal places still meet"
EQUIVALENT = {
    f"{answer}hierarchical_all_reduce: {place} -> {place} {change}": _NAME
    for answer, place in (
        ("", "comm.rank"),
        ("three_steps ", "comm.rank"),
        ("by_exchange ", "comm.rank"),
        ("down_and_up ", "node.rank"),
    )
    for change in ("+ 1", "- 1")
}
