"""How many partitions are as good as the best: `count_optimal(costs, stages, *, partition)`.

Counted are the partitions into exactly so many stages, each with a layer at least, whose longest
stage is as short as possible. Costs are whole numbers, so ties are exact. `partition(costs,
stages)` returns the bounds of one best partition; using it is free.
Source: counting along the recursion of `min_max_partition`, derived in the chapter. Oracle: a
matrix whose entry (i, j) says whether a stage may hold the layers i .. j-1; its power counts ways.
"""

from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("count_optimal",)
FORBID = ()
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"few": 2, "many": 2}
CASES = (
    Case("the lecture's layers", "few", costs=[3, *[1] * 10, 4], stages=4),
    Case("one stage", "few", costs=[2, 7, 1, 8], stages=1),
    Case("as many stages as layers", "few", costs=[2, 7, 1, 8], stages=4),
    Case("only one is best", "few", costs=[5, 6, 1, 5, 11, 2], stages=4),
    Case("a long layer", "few", costs=[2, 3, 1, 20, 4, 2, 2, 1], stages=4),
    Case("layers that cost nothing", "few", costs=[0, 4, 0, 0, 4, 0, 2], stages=3),
    Case("equal layers", "many", costs=[3] * 14, stages=4),
    Case("random layers", "many", layers=16, stages=5, most=3),
    Case("random layers, none the same", "many", layers=12, stages=3, most=40),
    Case("twenty layers", "many", layers=20, stages=6, most=2),
)


def given(case, seed):
    from distlab.seeds import integers

    if hasattr(case, "costs"):  # fresh seeds grade the same layers, some times as slow
        costs = [cost * (1 + seed % 97) for cost in case.costs]
    else:
        costs = integers((case.layers,), "count", case.name, seed, low=1, high=case.most + 1)
        costs = [int(cost) for cost in costs]
    return {"costs": costs, "stages": case.stages}


def observe(student, given):
    def partition(costs, stages):
        # The best longest stage for what is left, last stage first; then the bounds from the front.
        layers, sums = len(costs), [0]
        for cost in costs:
            sums.append(sums[-1] + cost)
        rest = [[sums[layers] - sums[i] for i in range(layers)]]
        for _ in range(stages - 1):
            before = rest[0]
            row = [
                min(
                    (max(sums[j] - sums[i], before[j]) for j in range(i + 1, len(before))),
                    default=None,
                )
                for i in range(len(before) - 1)
            ]
            rest.insert(0, row)
        bounds, limit = [0], rest[0][0]
        for row in rest[1:]:
            i = bounds[-1]
            ends = [j for j in range(i + 1, len(row)) if max(sums[j] - sums[i], row[j]) <= limit]
            bounds.append(ends[-1])
        return [*bounds, layers]

    costs = list(given["costs"])
    count = student.count_optimal(costs, given["stages"], partition=partition)
    count = count.item() if hasattr(count, "item") else count
    if type(count) is float and count.is_integer():
        count = int(count)
    return {"partitions": count, "costs were changed": costs != given["costs"]}


def oracle(case, given):
    import numpy as np

    costs, stages = np.array(given["costs"]), given["stages"]
    layers = len(costs)
    sums = np.concatenate(([0], costs.cumsum()))
    loads = sums[None, :] - sums[:, None]
    later = np.triu(np.ones((layers + 1, layers + 1), dtype=bool), 1)
    for limit in np.unique(loads[later]):
        allowed = (later & (loads <= limit)).astype(object)
        ways = np.linalg.matrix_power(allowed.astype(np.int64), stages)[0, layers]
        if ways:
            return {"partitions": int(ways), "costs were changed": False}
    raise ValueError("no partition at all")


@also_right("every partition is tried")
def by_trying_all():
    from itertools import combinations, pairwise

    def count_optimal(costs, stages, *, partition):
        def longest(bounds):
            return max(sum(costs[i:j]) for i, j in pairwise(bounds))

        cuts = combinations(range(1, len(costs)), stages - 1)
        tried = [longest([0, *some, len(costs)]) for some in cuts]
        return tried.count(min(tried))

    return count_optimal


@also_right("ways forward from every layer, a stage at a time")
def forwards():
    from itertools import pairwise

    def count_optimal(costs, stages, *, partition):
        bounds = partition(costs, stages)
        limit = max(sum(costs[i:j]) for i, j in pairwise(bounds))
        layers = len(costs)
        ways = [1] + [0] * layers
        for _ in range(stages):
            arrived = [0] * (layers + 1)
            for start in range(layers):
                load = 0
                for end in range(start, layers):
                    load += costs[end]
                    if load <= limit:
                        arrived[end + 1] += ways[start]
            ways = arrived
        return ways[layers]

    return count_optimal


@also_right("recursion with a memory")
def by_recursion():
    from functools import lru_cache
    from itertools import pairwise

    def count_optimal(costs, stages, *, partition):
        bounds = partition(costs, stages)
        limit = max(sum(costs[i:j]) for i, j in pairwise(bounds))

        @lru_cache(None)
        def ways(start, left):
            if left == 0:
                return int(start == len(costs))
            ends = range(start + 1, len(costs) + 1)
            return sum(ways(end, left - 1) for end in ends if sum(costs[start:end]) <= limit)

        return ways(0, stages)

    return count_optimal


shorter_than_best = slip(
    forwards,
    "Nothing is shorter than the best: a stage may be exactly as long as the longest.",
    ("if load <= limit", "if load < limit"),
)
empty_stages_too = slip(
    forwards,
    "Partitions with an empty stage are counted as well: each stage holds a layer.",
    ("load = 0\n", "load = 0\n            arrived[start] += ways[start]\n"),
)
fewer_stages_too = slip(
    forwards,
    "Partitions into fewer stages are counted as well.",
    ("ways = arrived", "ways = [1, *arrived[1:]]"),
)
mean_for_limit = slip(
    forwards,
    "The mean is no limit that can always be met: count up to the longest stage of a best one.",
    ("limit = max(sum(costs[i:j]) for i, j in pairwise(bounds))", "limit = sum(costs) / stages"),
)
longest_layer_for_limit = slip(
    forwards,
    "The longest layer is no limit that can always be met: stages hold several layers.",
    ("limit = max(sum(costs[i:j]) for i, j in pairwise(bounds))", "limit = max(costs)"),
)
any_number_of_stages = slip(
    forwards,
    "The number of stages isn't kept: one pass over the layers counts partitions of any length.",
    (
        "        ways = arrived\n    return ways[layers]",
        "        ways = arrived\n"
        "    ways = [1] + [0] * layers\n"
        "    for start in range(layers):\n"
        "        for end in range(start + 1, layers + 1):\n"
        "            ways[end] += ways[start] * (sum(costs[start:end]) <= limit)\n"
        "    return ways[layers]",
    ),
)
ways_to_anywhere = slip(
    forwards,
    "Layers may be left over in some of these: only ways that end after the last layer count.",
    ("return ways[layers]", "return sum(ways)"),
)
one_answer = slip(
    forwards,
    "There can be more than one: many partitions have the same longest stage.",
    ("return ways[layers]", "return 1"),
)


@wrong("These are all the partitions there are, good and bad.")
def all_partitions():
    from math import comb

    def count_optimal(costs, stages, *, partition):
        return comb(len(costs) - 1, stages - 1)

    return count_optimal


@wrong("The same cuts in another order are the same partition: each counts once.")
def in_every_order():
    from itertools import combinations, pairwise
    from math import factorial

    def count_optimal(costs, stages, *, partition):
        def longest(bounds):
            return max(sum(costs[i:j]) for i, j in pairwise(bounds))

        cuts = combinations(range(1, len(costs)), stages - 1)
        tried = [longest([0, *some, len(costs)]) for some in cuts]
        return tried.count(min(tried)) * factorial(stages - 1)

    return count_optimal


@wrong("Partitions whose stages take the same times are not the same: their layers differ.")
def distinct_times():
    from itertools import combinations, pairwise

    def count_optimal(costs, stages, *, partition):
        found = {}
        for some in combinations(range(1, len(costs)), stages - 1):
            loads = [sum(costs[i:j]) for i, j in pairwise([0, *some, len(costs)])]
            found.setdefault(max(loads), set()).add(tuple(sorted(loads)))
        return len(found[min(found)])

    return count_optimal


@wrong("Only the most even of the best are counted; the others set the same pace.")
def most_even():
    from itertools import combinations, pairwise

    def count_optimal(costs, stages, *, partition):
        tried = []
        for some in combinations(range(1, len(costs)), stages - 1):
            loads = [sum(costs[i:j]) for i, j in pairwise([0, *some, len(costs)])]
            tried.append(sorted(loads, reverse=True))
        return tried.count(min(tried))

    return count_optimal


@wrong("Only paths through the table's minima are counted: a start may be slower, up to the limit.")
def minima_of_the_table():
    def count_optimal(costs, stages, *, partition):
        layers = len(costs)
        slowest, ways = [0] + [float("inf")] * layers, [1] + [0] * layers
        for _ in range(stages):
            row, counts = [float("inf")] * (layers + 1), [0] * (layers + 1)
            for i in range(1, layers + 1):
                for j in range(i):
                    longest = max(slowest[j], sum(costs[j:i]))
                    if longest < row[i]:
                        row[i], counts[i] = longest, ways[j]
                    elif longest == row[i]:
                        counts[i] += ways[j]
            slowest, ways = row, counts
        return ways[layers]

    return count_optimal


EQUIVALENT = {
    "by_recursion count_optimal.ways: int(start == len(costs)) -> start == len(costs)": (
        "a sum of truth values is a number"
    ),
}
