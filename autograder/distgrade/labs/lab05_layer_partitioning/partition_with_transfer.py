"""Stages that also send: `partition_with_transfer(costs, stages, *, transfer, overlap)` -> bounds.

`transfer[i]` is the time to move what layer i hands to layer i + 1 to another stage. It occupies
both stages at the cut: the one that sends and the one that receives. With overlap=False it is added
to their computing. With overlap=True computing, receiving and sending go on at once, so a stage
takes the longest of the three. The slowest stage shall be as fast as possible; any such partition
is right. ValueError for more stages than layers.
Source: derived in the chapter; PipeDream (SOSP 2019, section 3.1) takes the maximum. Oracle: all
partitions are tried, in exact fractions.
"""

from fractions import Fraction

from distgrade.exercise import Case, Close, also_right, slip, wrong
from distgrade.labs.lab05_layer_partitioning._bounds import changed, invalid, longer

NAMES = ("partition_with_transfer",)
FORBID = (
    "distlab.partition.certificate.certify",
    "distlab.partition.plan.min_max",
    "distlab.partition.problem.Problem",
    "distlab.partition.solver.optimum",
    "distlab.partition.solver.reachable",
)
TOLERANCE = Close(1e-12, "sums of decimals such as 0.003 are rounded, in any order of adding")
CREDIT = {"exposed": 3, "overlapped": 2}
_EIGHT = {"costs": [3, 1, 2, 2, 4, 1, 1, 3], "transfer": [4, 1, 3, 2, 1, 3, 2]}
_BOTH = {"costs": [6, 8, 9, 4, 5, 3, 6], "transfer": [9, 5, 9, 11, 2, 13]}
_MIDDLE = {"costs": [2, 3, 2, 2, 3, 2, 2], "transfer": [1, 2, 9, 1, 6, 2]}
_SLOW = {"costs": [2, 4, 3, 2, 5, 1, 3, 2], "transfer": [3, 9, 12, 4, 11, 8, 2]}
_EARLY = {"costs": [1, 1, 6, 2, 2, 2, 1], "transfer": [2, 5, 7, 6, 8, 3]}
_EDGES = {"costs": [9, 4, 3, 4, 4, 1, 7, 2], "transfer": [7, 8, 8, 7, 9, 9, 9]}
_SIX = {"costs": [7, 3, 4, 2, 4, 6], "transfer": [5, 21, 14, 2, 15]}
_THREE = {"costs": [4, 1, 3], "transfer": [2, 5]}
CASES = (
    Case("eight layers", "exposed", **_EIGHT, stages=3, overlap=False),
    Case("a costly middle", "exposed", **_MIDDLE, stages=2, overlap=False),
    Case("random layers", "exposed", layers=9, stages=4, overlap=False),
    Case("more random layers", "exposed", layers=9, stages=3, overlap=False),
    Case("every transfer counts", "exposed", **_BOTH, stages=3, overlap=False),
    Case("nothing is sent at the ends", "exposed", **_EDGES, stages=4, overlap=False),
    Case("layers in seconds", "exposed", layers=9, stages=3, unit=1_000_000, overlap=False),
    Case("one stage", "exposed", **_THREE, stages=1, overlap=False),
    Case("as many stages as layers", "exposed", **_THREE, stages=3, overlap=False),
    Case(
        "more stages than layers", "exposed", **_THREE, stages=4, overlap=False, expects=ValueError
    ),
    Case("links slower than layers", "overlapped", **_SLOW, stages=3, overlap=True),
    Case("a cheap cut early", "overlapped", **_EARLY, stages=3, overlap=True),
    Case("a slow link in the middle", "overlapped", **_SIX, stages=4, overlap=True),
    Case("random links", "overlapped", layers=9, stages=4, overlap=True),
    Case("more random links", "overlapped", layers=9, stages=3, overlap=True),
    Case("links in seconds", "overlapped", layers=9, stages=3, unit=1_000_000, overlap=True),
    Case("nothing to send", "overlapped", **_THREE, stages=1, overlap=True),
)


def given(case, seed):
    from distlab.seeds import integers

    if hasattr(case, "costs"):  # fresh seeds grade the same, some times as slow
        factor = 1 + seed % 97
        costs = [float(factor * cost) for cost in case.costs]
        transfer = [float(factor * time) for time in case.transfer]
    else:
        unit = getattr(case, "unit", 1)
        key = ("transfer", case.name, seed)
        costs = (integers((case.layers,), *key, "costs", low=1, high=12) / unit).tolist()
        transfer = (integers((case.layers - 1,), *key, low=1, high=18) / unit).tolist()
    return {
        "costs": costs,
        "stages": case.stages,
        "transfer": transfer,
        "overlap": case.overlap,
    }


def observe(student, given):
    costs, transfer = list(given["costs"]), list(given["transfer"])
    bounds = student.partition_with_transfer(
        costs, given["stages"], transfer=transfer, overlap=given["overlap"]
    )
    bounds = bounds.tolist() if hasattr(bounds, "tolist") else bounds
    if isinstance(bounds, list | tuple | range):
        bounds = [bound.item() if hasattr(bound, "item") else bound for bound in bounds]
    return {"bounds": bounds, "costs afterwards": costs, "transfer afterwards": transfer}


def oracle(case, given):
    from fractions import Fraction
    from itertools import combinations

    costs, transfer = (list(map(Fraction, given[name])) for name in ("costs", "transfer"))
    layers, stages = len(costs), given["stages"]

    def longest(bounds):
        busy = [[sum(costs[bounds[s] : bounds[s + 1]])] for s in range(stages)]
        for stage, cut in enumerate(bounds[1:-1]):  # both of its neighbours have it
            busy[stage].append(transfer[cut - 1])
            busy[stage + 1].append(transfer[cut - 1])
        return max(max(each) if given["overlap"] else sum(each) for each in busy)

    tried = ([0, *cuts, layers] for cuts in combinations(range(1, layers), stages - 1))
    return {
        "bounds": min(tried, key=longest),
        "costs afterwards": given["costs"],
        "transfer afterwards": given["transfer"],
    }


def judge(got, expected, case):
    costs = [Fraction(cost) for cost in expected["costs afterwards"]]
    moves = [Fraction(0), *map(Fraction, expected["transfer afterwards"]), Fraction(0)]

    def load(stage, i, j):
        parts = sum(costs[i:j]), moves[i], moves[j]
        return max(parts) if case.overlap else sum(parts)

    wrong = changed(got, expected) or invalid(got["bounds"], len(costs))
    return wrong or longer(got["bounds"], expected["bounds"], load)


@also_right("every partition is tried")
def by_trying_all():
    from itertools import combinations, pairwise

    def partition_with_transfer(costs, stages, *, transfer, overlap):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")

        def time(i, j):
            compute = sum(costs[i:j])
            into = transfer[i - 1] if i > 0 else 0
            out = transfer[j - 1] if j < layers else 0
            if overlap:
                return max(compute, into, out)
            return compute + into + out

        def longest(bounds):
            return max(time(i, j) for i, j in pairwise(bounds))

        cuts = combinations(range(1, layers), stages - 1)
        return min(([0, *some, layers] for some in cuts), key=longest)

    return partition_with_transfer


@also_right("dynamic programming from the last layer, a dict of what is left")
def from_the_end():
    def partition_with_transfer(costs, stages, *, transfer, overlap):
        layers = len(costs)
        if not 0 < stages <= layers:
            raise ValueError
        edges = [0, *transfer, 0]
        merge = max if overlap else lambda *parts: sum(parts)
        rest = {layers: (0, (layers,))}
        for _ in range(stages):
            before, rest = rest, {}
            for i in range(layers):
                found = [
                    (max(longest, merge(sum(costs[i:j]), edges[i], edges[j])), (i, *bounds))
                    for j, (longest, bounds) in before.items()
                    if j > i
                ]
                if found:
                    rest[i] = min(found)
        return list(rest[0][1])

    return partition_with_transfer


@also_right("exercise 2's table, the first of equals is kept")
def by_table():
    def partition_with_transfer(costs, stages, *, transfer, overlap):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")

        def time(i, j):
            compute = sum(costs[i:j])
            into = transfer[i - 1] if i > 0 else 0
            out = transfer[j - 1] if j < layers else 0
            if overlap:
                return max(compute, into, out)
            return compute + into + out

        best = {0: (0, [0])}
        for _ in range(stages):
            row = {}
            for i in range(1, layers + 1):
                for j, (longest, bounds) in best.items():
                    if j < i:
                        slowest = max(longest, time(j, i))
                        if i not in row or slowest < row[i][0]:
                            row[i] = slowest, [*bounds, i]
            best = row
        return best[layers][1]

    return partition_with_transfer


@also_right("a search for the limit, over all stages that keep below it")
def by_limits():
    def partition_with_transfer(costs, stages, *, transfer, overlap):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")
        edges = [0, *transfer, 0]
        times = {}
        for i in range(layers):
            load = 0
            for j in range(i + 1, layers + 1):
                load += costs[j - 1]
                both = max(edges[i], edges[j]) if overlap else edges[i] + edges[j]
                times[i, j] = max(load, both) if overlap else load + both
        for limit in sorted(times.values()):
            paths = {0: [0]}
            for _ in range(stages):
                paths = {
                    j: [*path, j]
                    for i, path in paths.items()
                    for j in range(i + 1, layers + 1)
                    if times[i, j] <= limit
                }
            if layers in paths:
                return paths[layers]

    return partition_with_transfer


next_place = slip(
    by_table,
    "Each cut is charged with its neighbour's transfer: before layer i it is transfer[i - 1].",
    ("into = transfer[i - 1] if i > 0 else 0", "into = transfer[i] if 0 < i < layers - 1 else 0"),
    ("out = transfer[j - 1] if j < layers", "out = transfer[j] if j < layers - 1"),
)
sender_pays = slip(
    by_table,
    "Only the sender is charged: the stage that receives is occupied as long.",
    ("into = transfer[i - 1] if i > 0 else 0", "into = 0"),
)
receiver_pays = slip(
    by_table,
    "Only the receiver is charged: the stage that sends is occupied as long.",
    ("out = transfer[j - 1] if j < layers else 0", "out = 0"),
)
last_edge_charged = slip(
    by_table,
    "The last stage is charged for sending: after the last layer nothing is sent on.",
    ("if j < layers else 0", "if j < layers else transfer[-1]"),
)
first_edge_charged = slip(
    by_table,
    "The first stage is charged for receiving: transfer[-1], read for i = 0, is the last cut's.",
    (" if i > 0 else 0", ""),
)
always_summed = slip(
    by_table,
    "Transfers are added even where they overlap: a stage takes the longest of the three then.",
    ("if overlap:", "if False:"),
)
never_summed = slip(
    by_table,
    "Transfers are hidden even where nothing overlaps: exposed ones are added.",
    ("if overlap:", "if True:"),
)
the_other_way_round = slip(
    by_table,
    "Sum and maximum are swapped: overlap=True hides transfers, overlap=False adds them.",
    ("if overlap:", "if not overlap:"),
)
one_direction_at_a_time = slip(
    by_table,
    "Sending and receiving are added to each other: both directions of a link work at once.",
    ("max(compute, into, out)", "max(compute, into + out)"),
)
longer_transfer_alone = slip(
    by_table,
    "Exposed, sending and receiving are both added; the shorter one isn't hidden by the longer.",
    ("return compute + into + out", "return compute + max(into, out)"),
)
no_transfer = slip(
    by_table,
    "Transfers don't matter here: the layers' costs alone decide.",
    ("return compute + into + out", "return compute"),
    ("max(compute, into, out)", "compute"),
)
inner_transfers = slip(
    by_table,
    "Transfers inside a stage are charged as well: only what crosses a cut is sent.",
    ("compute = sum(costs[i:j])", "compute = sum(costs[i:j]) + sum(transfer[i : j - 1])"),
)
cheapest_cuts = slip(
    by_trying_all,
    "The transfers' sum is as small as can be; asked is the slowest stage.",
    (
        "return max(time(i, j) for i, j in pairwise(bounds))",
        "return sum(transfer[cut - 1] for cut in bounds[1:-1])",
    ),
)
no_error = slip(
    by_trying_all,
    "More stages than layers leave a stage without work: raise a ValueError.",
    (
        'raise ValueError("more stages than layers")',
        "return list(range(layers + 1)) + [layers] * (stages - layers)",
    ),
)


@wrong("Each stage is filled as far as the limit allows; a longer stage may have the cheaper cut.")
def greedy_fill():
    def partition_with_transfer(costs, stages, *, transfer, overlap):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")
        edges = [0, *transfer, 0]

        def time(i, j):
            parts = sum(costs[i:j]), edges[i], edges[j]
            return max(parts) if overlap else sum(parts)

        def fill(limit):
            bounds = [0]
            for stage in range(stages):
                start, end = bounds[-1], bounds[-1] + 1
                room = layers - (stages - 1 - stage)
                for j in range(start + 1, room + 1):
                    if time(start, j) > limit:
                        break
                    end = j
                bounds.append(end)
            return bounds

        limits = sorted({time(i, j) for i in range(layers) for j in range(i + 1, layers + 1)})
        for limit in limits:
            bounds = fill(limit)
            holds = all(time(bounds[s], bounds[s + 1]) <= limit for s in range(stages))
            if bounds[-1] == layers and holds:
                return bounds
        return [stage * layers // stages for stage in range(stages + 1)]

    return partition_with_transfer


EQUIVALENT = {
    "by_trying_all partition_with_transfer: if stages > layers: -> if False:": (
        "the minimum of nothing is a ValueError"
    ),
    "by_trying_all partition_with_transfer.time: max(compute, into, out) -> "
    "max(into, compute, out)": "the longest of the three",
    "from_the_end partition_with_transfer: max(longest, merge(sum(costs[i:j]), edges[i], "
    "edges[j])) -> max(merge(sum(costs[i:j]), edges[i], edges[j]), longest)": (
        "the longer of the two"
    ),
    "from_the_end partition_with_transfer: merge(sum(costs[i:j]), edges[i], edges[j]) -> "
    "merge(edges[i], sum(costs[i:j]), edges[j])": "sum and maximum don't ask for an order",
    "by_table partition_with_transfer.time: max(compute, into, out) -> max(into, compute, out)": (
        "the longest of the three"
    ),
    "by_table partition_with_transfer: max(longest, time(j, i)) -> max(time(j, i), longest)": (
        "the longer of the two"
    ),
    "by_table partition_with_transfer: slowest < row[i][0] -> slowest <= row[i][0]": (
        "the last of equals is as right as the first"
    ),
    "from_the_end partition_with_transfer: list(rest[0][1]) -> rest[0][1]": (
        "a tuple is as right as a list"
    ),
    "by_limits partition_with_transfer: max(edges[i], edges[j]) -> edges[i]": (
        "the other stage at the cut has it as edges[i]"
    ),
    "by_limits partition_with_transfer: max(edges[i], edges[j]) -> max(edges[j], edges[i])": (
        "the longer of the two"
    ),
    "by_limits partition_with_transfer: max(load, both) -> max(both, load)": (
        "the longer of the two"
    ),
    "partition_with_transfer.time: (sums[i] - sums[j], edges[j], edges[i]) -> "
    "(edges[j], edges[i], sums[i] - sums[j])": "sum and maximum don't ask for an order",
    "partition_with_transfer: max(slowest, time(j, i)) -> max(time(j, i), slowest)": (
        "the longer of the two"
    ),
}
