"""Who shares a node: `place(groups, gpus_per_node, sent)` returns the ranks of each node.

`groups` are those of a layout, the PP groups in the order of stages; `sent` says for each axis how
many bytes go over one hop. A TP or DP group is a ring that visits node by node: it leaves each node
it touches once, unless it touches one alone. A PP group is a chain: each pair of neighbouring
stages on two nodes is a hop. All nodes are full. Any placement is right whose bytes across nodes
are as few as can be. Source: derived here. Oracle: those bytes are a sum over nodes of what each
shares out, so a table over sets of ranks finds the fewest; the solution tries all placements.
"""

import json

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("place",)
FORBID = ()
TOLERANCE = Exact(why="whole numbers of bytes")
CREDIT = {"whole blocks": 3, "no blocks": 3}
CASES = (  # sent: TP, DP, PP
    Case("one node", "whole blocks", t=2, p=2, d=2, node=8, sent=[9, 2, 3]),
    Case("stages together", "whole blocks", t=2, p=2, d=2, node=4, sent=[9, 1, 3]),
    Case("replicas together", "whole blocks", t=2, p=2, d=2, node=4, sent=[9, 2, 3]),
    Case("three of nine", "whole blocks", t=1, p=3, d=3, node=3, sent=[9, 1, 2]),
    Case("long pipelines", "whole blocks", t=1, p=4, d=2, node=4, sent=[9, 1, 5]),
    Case("TP is not always most", "whole blocks", t=2, p=3, d=1, node=3, sent=[2, 1, 3]),
    Case("replicas before shards", "whole blocks", t=2, p=1, d=3, node=3, sent=[1, 3, 2]),
    Case("pairs of replicas", "whole blocks", t=1, p=2, d=4, node=2, sent=[9, 3, 2]),
    Case("shards apart", "whole blocks", t=3, p=2, d=1, node=2, sent=[1, 1, 5]),
    Case("five stages, nodes of five", "no blocks", t=1, p=5, d=2, node=5, sent=[9, 1, 3]),
    Case("three stages, nodes of three", "no blocks", t=1, p=3, d=2, node=3, sent=[9, 2, 3]),
    Case("three stages, nodes of two", "no blocks", t=1, p=3, d=2, node=2, sent=[9, 1, 3]),
    Case("five replicas", "no blocks", t=1, p=2, d=5, node=5, sent=[9, 1, 2]),
    Case("nodes of six", "no blocks", t=2, p=2, d=3, node=6, sent=[2, 1, 3]),
)


def given(case, seed):
    # Fresh seeds grade larger messages; odd ones number the ranks, and the stages, backwards.
    n = case.t * case.p * case.d
    ranks = list(range(n))[:: -1 if seed % 2 else 1]

    def at(tp, dp, pp):
        return ranks[(pp * case.d + dp) * case.t + tp]

    groups = {
        "tp": [
            [at(tp, dp, pp) for tp in range(case.t)] for pp in range(case.p) for dp in range(case.d)
        ],
        "dp": [
            [at(tp, dp, pp) for dp in range(case.d)] for pp in range(case.p) for tp in range(case.t)
        ],
        "pp": [
            [at(tp, dp, pp) for pp in range(case.p)] for dp in range(case.d) for tp in range(case.t)
        ],
    }
    sent = {axis: x * (1 + seed % 97) for axis, x in zip(groups, case.sent, strict=True)}
    return {"groups": groups, "node": case.node, "sent": sent}


def observe(student, given):
    import json

    def plain(value):
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, set | frozenset | tuple | range):
            value = list(value)
        return [plain(x) for x in value] if isinstance(value, list) else value

    groups = {axis: [list(g) for g in found] for axis, found in given["groups"].items()}
    sent = dict(given["sent"])
    nodes = plain(student.place(groups, given["node"], sent))
    return {
        "nodes": json.dumps(nodes, default=repr),  # one leaf: answers differ in form
        "traffic afterwards": json.dumps([groups, sent], default=repr),
    }


def oracle(case, given):
    import json
    from itertools import combinations, pairwise

    groups, sent, size = given["groups"], given["sent"], given["node"]
    n = len([rank for group in groups["tp"] for rank in group])

    def shares_out(node):
        """What a node's hops cost, a hop between two nodes half in each: counted twice, whole."""
        rings = [(sent[axis], set(group)) for axis in ("tp", "dp") for group in groups[axis]]
        ends = [(a in node) != (b in node) for g in groups["pp"] for a, b in pairwise(g)]
        cut = sum(2 * size for size, ring in rings if ring & node and ring - node)
        return cut + sent["pp"] * sum(ends)

    everyone = (1 << n) - 1
    best = {0: (0, [])}
    for seated in range(everyone):
        if seated not in best:
            continue
        cost, nodes = best[seated]
        first, *others = [rank for rank in range(n) if not seated >> rank & 1]
        for mates in combinations(others, size - 1):
            node = {first, *mates}
            after = seated + sum(1 << rank for rank in node)
            found = cost + shares_out(node)
            if after not in best or found < best[after][0]:
                best[after] = (found, [*nodes, sorted(node)])
    return {
        "nodes": json.dumps(best[everyone][1]),
        "traffic afterwards": json.dumps([groups, sent]),
    }


def bytes_across(nodes: list, groups: dict, sent: dict) -> int:
    """Return the bytes that cross nodes in a placement."""
    home = {rank: index for index, node in enumerate(nodes) for rank in node}
    total = 0
    for axis, found in groups.items():
        for group in found:
            homes = [home[rank] for rank in group]
            if axis == "pp":
                hops = sum(homes[i] != homes[i + 1] for i in range(len(homes) - 1))
            else:
                hops = len(set(homes)) if len(set(homes)) > 1 else 0
            total += hops * sent[axis]
    return total


def no_placement(nodes, ranks: int, size: int) -> str:
    """Return the first reason why these are no full nodes that seat every rank, or ""."""
    if not isinstance(nodes, list) or not all(isinstance(node, list) for node in nodes):
        return "they are no list of lists of ranks"
    if len(nodes) != ranks // size:
        return f"there are {len(nodes)}, and {ranks} ranks fill {ranks // size}"
    seated = [rank for node in nodes for rank in node]
    for rank in seated:
        if type(rank) is not int or not 0 <= rank < ranks:
            return f"{rank!r} is no rank of this layout"[:60]
    for rank in range(ranks):
        if seated.count(rank) != 1:
            return f"rank {rank} has {seated.count(rank) or 'no'} seats"
    for index, node in enumerate(nodes):
        if len(node) != size:
            return f"node {index} holds {len(node)} ranks, and {size} GPUs"
    return ""


def judge(got, expected, case):
    nodes, best = json.loads(got["nodes"]), json.loads(expected["nodes"])
    groups, sent = json.loads(expected["traffic afterwards"])
    if got["traffic afterwards"] != expected["traffic afterwards"]:
        look = "Leave groups and sent as they are: work on copies."
        return [Symptom("values", "groups or sent", "this input was changed", look)]
    hole = no_placement(nodes, case.t * case.p * case.d, case.node)
    if hole:
        return [Symptom("values", "the nodes", hole)]
    yours, least = (bytes_across(found, groups, sent) for found in (nodes, best))
    if yours > least:
        ratio = f"{yours / least:.4g} times the fewest possible" if least else "some, and none need"
        return [Symptom("values", "the bytes across nodes", f"they are {ratio}")]
    return []


@also_right("all placements are tried, each one once")
def by_trying_all():
    from itertools import combinations, pairwise

    def crossing(nodes, groups, sent):
        node = {rank: i for i, ranks in enumerate(nodes) for rank in ranks}
        total = 0
        for axis in ("tp", "dp"):
            for group in groups[axis]:
                touched = len({node[rank] for rank in group})
                total += sent[axis] * touched * (touched > 1)
        for group in groups["pp"]:
            total += sent["pp"] * sum(node[a] != node[b] for a, b in pairwise(group))
        return total

    def seatings(ranks, size):
        if not ranks:
            yield []
            return
        first, *others = ranks
        for mates in combinations(others, size - 1):
            left = [rank for rank in others if rank not in mates]
            for nodes in seatings(left, size):
                yield [[first, *mates], *nodes]

    def place(groups, gpus_per_node, sent):
        ranks = [rank for group in groups["tp"] for rank in group]
        found = seatings(ranks, gpus_per_node)
        return min(found, key=lambda nodes: crossing(nodes, groups, sent))

    return (place,)


@also_right("node after node, the bytes so far bounded by the best placement yet")
def by_bounding():
    from itertools import combinations, pairwise

    def place(groups, gpus_per_node, sent):
        rings = [(sent[axis], set(g)) for axis in ("tp", "dp") for g in groups[axis]]
        chain = [set(pair) for g in groups["pp"] for pair in pairwise(g)]
        best = [float("inf"), None]

        def leaves(node):
            ring = sum(size for size, group in rings if group & node and not group <= node)
            return ring + sent["pp"] * sum(len(pair & node) == 1 for pair in chain) / 2

        def fill(left, nodes, so_far):
            if so_far >= best[0]:
                return
            if not left:
                best[:] = so_far, nodes
                return
            first, *others = left
            for mates in combinations(others, gpus_per_node - 1):
                node = {first, *mates}
                fill(left - node, [*nodes, node], so_far + leaves(node))

        fill(set().union(*groups["tp"]), [], 0)
        return best[1]

    return (place,)


@also_right("a table over the ranks still to be seated")
def by_table():
    from functools import cache
    from itertools import combinations

    def place(groups, gpus_per_node, sent):
        def twice_its_bytes(node):
            total = 0
            for axis in ("tp", "dp"):
                for group in groups[axis]:
                    total += 2 * sent[axis] * (0 < len(node & set(group)) < len(group))
            for group in groups["pp"]:
                inside = [rank in node for rank in group]
                total += sent["pp"] * sum(map(bool.__ne__, inside, inside[1:]))
            return total

        @cache
        def best(left):
            if not left:
                return 0, []
            found = []
            first, *others = left
            for mates in combinations(others, gpus_per_node - 1):
                node = {first, *mates}
                rest, nodes = best(left - node)
                found.append((rest + twice_its_bytes(node), [node, *nodes]))
            return min(found)

        return best(frozenset(rank for group in groups["dp"] for rank in group))[1]

    return (place,)


a_chain_of_nodes = slip(
    by_trying_all,
    "A ring over k nodes crosses k times, and none for k = 1: not k - 1 times, nor always k.",
    ("touched * (touched > 1)", "(touched - 1)"),
)
every_pair = slip(
    by_trying_all,
    "Every pair of a DP or TP group counts here: a ring has a hop for each node it touches.",
    ("touched * (touched > 1)", "sum(node[a] != node[b] for a, b in combinations(group, 2))"),
)
pipeline_closes = slip(
    by_trying_all,
    "A pipeline is a chain: its last stage sends nothing to the first.",
    ("pairwise(group)", "pairwise(group + group[:1])"),
)
hops_not_bytes = slip(
    by_trying_all,
    "Hops are counted, not bytes: one hop of an axis may carry more than three of another.",
    ("sent[axis] * touched", "touched"),
    ('sent["pp"] * sum', "sum"),
)
pipelines_forgotten = slip(
    by_trying_all,
    "Only rings are counted: neighbouring stages on two nodes send too.",
    ('total += sent["pp"]', 'total += 0 * sent["pp"]'),
)
replicas_forgotten = slip(
    by_trying_all,
    "DP groups are left out: their rings cross nodes as well.",
    ('for axis in ("tp", "dp")', 'for axis in ("tp",)'),
)
shards_forgotten = slip(
    by_trying_all,
    "TP groups are left out: here they may lie on two nodes, and then pay for it.",
    ('for axis in ("tp", "dp")', 'for axis in ("dp",)'),
)
most_of_all = slip(
    by_trying_all,
    "These are the most bytes across nodes, not the fewest.",
    ("return min(found", "return max(found"),
)
one_node_for_all = slip(
    by_trying_all,
    "All ranks in one node: a node has only so many GPUs.",
    ("found = seatings(ranks, gpus_per_node)", "found = [[ranks]]"),
)
first_node_alone = slip(
    by_trying_all,
    "Only the first node is returned: list the ranks of every node.",
    (
        "return min(found, key=lambda nodes: crossing(nodes, groups, sent))",
        "return min(found, key=lambda nodes: crossing(nodes, groups, sent))[:1]",
    ),
)
node_of_each_rank = slip(
    by_trying_all,
    "This is the node of each rank; return the ranks of each node, a list for each.",
    (
        "return min(found, key=lambda nodes: crossing(nodes, groups, sent))",
        "best = min(found, key=lambda nodes: crossing(nodes, groups, sent)); "
        "return [i for rank in sorted(ranks) for i in range(len(best)) if rank in best[i]]",
    ),
)


@wrong("This is rank order, whatever is sent: where PP sends most, stages belong together.")
def in_rank_order():
    def place(groups, gpus_per_node, sent):
        n = sum(map(len, groups["tp"]))
        return [list(range(first, first + gpus_per_node)) for first in range(0, n, gpus_per_node)]

    return (place,)


@wrong("Whole pipelines in order, whatever is sent: where DP sends most, replicas belong together.")
def pipelines_together():
    def place(groups, gpus_per_node, sent):
        order = []
        for chain in groups["pp"]:
            for rank in chain:
                shards = next(group for group in groups["tp"] if rank in group)
                order += [shard for shard in shards if shard not in order]
        return [
            order[first : first + gpus_per_node] for first in range(0, len(order), gpus_per_node)
        ]

    return (place,)


@wrong("Each node takes the rank that saves most next, and the last node takes what is left.")
def greedy():
    def place(groups, gpus_per_node, sent):
        left = [rank for group in groups["tp"] for rank in group]
        nodes = []

        def saved(rank, node):
            total = 0
            for axis, found in groups.items():
                group = next(group for group in found if rank in group)
                for mate in set(group) & set(node):
                    apart = abs(group.index(rank) - group.index(mate))
                    total += sent[axis] * (apart == 1 or axis != "pp")
            return total

        for _ in range(len(left) // gpus_per_node):
            node = [left.pop(0)]
            for _ in range(gpus_per_node - 1):
                node.append(max(left, key=lambda rank: saved(rank, node)))
                left.remove(node[-1])
            nodes.append(node)
        return nodes

    return (place,)


@wrong("Swapping two ranks no longer helps, but other placements are better: begin at several.")
def swaps_once():
    from itertools import combinations

    def crossing(node, groups, sent):
        total = 0
        for axis, found in groups.items():
            for group in found:
                homes = [node[rank] for rank in group]
                if axis == "pp":
                    total += sent[axis] * sum(map(int.__ne__, homes, homes[1:]))
                elif len(set(homes)) > 1:
                    total += sent[axis] * len(set(homes))
        return total

    def place(groups, gpus_per_node, sent):
        n = sum(map(len, groups["tp"]))
        node = {rank: rank // gpus_per_node for rank in range(n)}
        for _ in range(n):
            for a, b in combinations(range(n), 2):
                before = crossing(node, groups, sent)
                node[a], node[b] = node[b], node[a]
                if crossing(node, groups, sent) >= before:
                    node[a], node[b] = node[b], node[a]
        homes = range(n // gpus_per_node)
        return [[rank for rank in range(n) if node[rank] == home] for home in homes]

    return (place,)


@wrong("Only equal blocks of stages by replicas are tried: where they don't tile, a mix is better.")
def blocks_alone():
    from itertools import pairwise

    def crossing(nodes, groups, sent):
        node = {rank: i for i, ranks in enumerate(nodes) for rank in ranks}
        total = 0
        for axis in ("tp", "dp"):
            for group in groups[axis]:
                touched = len({node[rank] for rank in group})
                total += sent[axis] * touched * (touched > 1)
        for group in groups["pp"]:
            total += sent["pp"] * sum(node[a] != node[b] for a, b in pairwise(group))
        return total

    def place(groups, gpus_per_node, sent):
        ranks = sorted(rank for group in groups["tp"] for rank in group)
        fallback = [ranks[i : i + gpus_per_node] for i in range(0, len(ranks), gpus_per_node)]
        stages = list(zip(*groups["pp"], strict=True))
        tried = [fallback]
        for high in range(1, len(stages) + 1):
            wide = gpus_per_node // high
            if high * wide == gpus_per_node and not len(stages) % high + len(stages[0]) % wide:
                tried.append(
                    [
                        [rank for stage in stages[i : i + high] for rank in stage[j : j + wide]]
                        for i in range(0, len(stages), high)
                        for j in range(0, len(stages[0]), wide)
                    ]
                )
        return min(tried, key=lambda nodes: crossing(nodes, groups, sent))

    return (place,)


_ORDER = "two parts of a sum"
_SAME = "the same on every placement: the fewest stay the fewest"
EQUIVALENT = {
    "crossing: ('tp', 'dp') -> ('dp', 'tp')": _ORDER,
    "by_trying_all crossing: ('tp', 'dp') -> ('dp', 'tp')": _ORDER,
    "by_trying_all crossing: 0 -> 1": _SAME,
    "by_trying_all crossing: 0 -> -1": _SAME,
    "by_bounding place: ('tp', 'dp') -> ('dp', 'tp')": _ORDER,
    "by_bounding place.leaves: group <= node -> group < node": (
        "a ring that is all of the node: no placement of these cases could do without one"
    ),
    "by_bounding place.fill: so_far >= best[0] -> so_far > best[0]": (
        "among placements that are as good, the last one found"
    ),
    "by_bounding place: 0 -> 1": _SAME,
    "by_bounding place: 0 -> -1": _SAME,
    "by_table place.twice_its_bytes: ('tp', 'dp') -> ('dp', 'tp')": _ORDER,
    "by_table place.best: 0 -> 1": _SAME,
    "by_table place.best: 0 -> -1": _SAME,
}
