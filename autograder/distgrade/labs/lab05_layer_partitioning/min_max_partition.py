"""The slowest stage as fast as can be: `min_max_partition(costs, stages)` returns bounds.

`costs[i]` is the time of layer i, in any unit, 0 or more. Stage s holds the layers bounds[s] ..
bounds[s+1] - 1, at least one. Any partition is right whose longest stage is as short as possible:
there are often many. ValueError for more stages than layers.
Source: the recursion of the lecture (17, section 4.4); the greedy probe, Pinar and Aykanat 2004
(Fast optimal load balancing algorithms for 1D partitioning). Oracle: all partitions are tried, in
exact fractions.
"""

from fractions import Fraction

from distgrade.exercise import Case, Close, also_right, slip, wrong
from distgrade.labs.lab05_layer_partitioning._bounds import changed, invalid, longer

NAMES = ("min_max_partition",)
FORBID = (
    "distlab.partition.certificate.certify",
    "distlab.partition.chunks.interleaved",
    "distlab.partition.plan.min_max",
    "distlab.partition.replicas.replicated",
    "distlab.partition.solver.narrow",
    "distlab.partition.solver.optimum",
    "distlab.partition.solver.reachable",
    "distlab.partition.textbook.table",
)
TOLERANCE = Close(1e-12, "sums of decimals such as 0.003 are rounded, in any order of adding")
CREDIT = {"whole numbers": 3, "every stage works": 1, "any unit": 2}
CASES = (
    Case("the lecture's layers", "whole numbers", costs=[3, *[1] * 10, 4], stages=4),
    Case("six layers", "whole numbers", costs=[2, 5, 3, 3, 6, 1], stages=4),
    Case("one long layer", "whole numbers", costs=[2, 2, 2, 11, 2, 2, 2, 2, 2], stages=4),
    Case("even is not fast", "whole numbers", costs=[5, 6, 1, 5, 11, 2], stages=4),
    Case("mixed costs", "whole numbers", costs=[7, 2, 5, 10, 8, 1, 6, 3, 9, 4], stages=4),
    Case("random costs", "whole numbers", layers=11, stages=5),
    Case("one stage", "whole numbers", costs=[4, 1, 3], stages=1),
    Case("layers that cost nothing", "every stage works", costs=[0, 0, 6, 0, 3], stages=4),
    Case("as many stages as layers", "every stage works", costs=[5, 1, 2, 6], stages=4),
    Case(
        "more stages than layers", "every stage works", costs=[5, 1], stages=3, expects=ValueError
    ),
    Case("milliseconds, in seconds", "any unit", layers=10, stages=4, unit=1_000),
    Case("microseconds, in seconds", "any unit", layers=10, stages=3, unit=1_000_000),
    Case("hours, in nanoseconds", "any unit", layers=9, stages=4, unit=3.6e-12),
)


def given(case, seed):
    from distlab.seeds import integers

    if hasattr(case, "costs"):  # fresh seeds grade the same layers, some times as slow
        costs = [float(cost * (1 + seed % 97)) for cost in case.costs]
    else:
        costs = integers((case.layers,), "min_max", case.name, seed, low=1, high=30).tolist()
        costs = [cost / getattr(case, "unit", 1) for cost in costs]
    return {"costs": costs, "stages": case.stages}


def observe(student, given):
    costs = list(given["costs"])
    bounds = student.min_max_partition(costs, given["stages"])
    bounds = bounds.tolist() if hasattr(bounds, "tolist") else bounds
    if isinstance(bounds, list | tuple | range):
        bounds = [bound.item() if hasattr(bound, "item") else bound for bound in bounds]
    return {"bounds": bounds, "costs afterwards": costs}


def oracle(case, given):
    from fractions import Fraction
    from itertools import combinations

    costs, stages = [Fraction(cost) for cost in given["costs"]], given["stages"]
    tried = ([0, *cuts, len(costs)] for cuts in combinations(range(1, len(costs)), stages - 1))
    best = min(tried, key=lambda b: max(sum(costs[b[s] : b[s + 1]]) for s in range(stages)))
    return {"bounds": best, "costs afterwards": given["costs"]}


def judge(got, expected, case):
    costs = [Fraction(cost) for cost in expected["costs afterwards"]]
    wrong = changed(got, expected) or invalid(got["bounds"], len(costs))
    return wrong or longer(got["bounds"], expected["bounds"], lambda s, i, j: sum(costs[i:j]))


@also_right("dynamic programming with a table of origins")
def by_table():
    def min_max_partition(costs, stages):
        layers = len(costs)
        if not 1 <= stages <= layers:
            raise ValueError("a stage would be empty")
        sums = [0]
        for cost in costs:
            sums.append(sums[-1] + cost)
        best = [0] + [float("inf")] * layers
        origins = []
        for k in range(1, stages + 1):
            row, origin = [float("inf")] * (layers + 1), [0] * (layers + 1)
            for i in range(k, layers + 1):
                for j in range(k - 1, i):
                    longest = max(best[j], sums[i] - sums[j])
                    if longest < row[i]:
                        row[i], origin[i] = longest, j
            best = row
            origins.append(origin)
        bounds = [layers]
        for origin in reversed(origins):
            bounds.append(origin[bounds[-1]])
        return bounds[::-1]

    return min_max_partition


@also_right("limits from small to large, and where stages within the limit can end")
def by_limits():
    def min_max_partition(costs, stages):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")
        loads = {(i, j): sum(costs[i:j]) for i in range(layers) for j in range(i + 1, layers + 1)}
        for limit in sorted(loads.values()):
            paths = {0: [0]}
            for _ in range(stages):
                paths = {
                    j: [*paths[i], j]
                    for (i, j), load in loads.items()
                    if load <= limit and i in paths
                }
            if layers in paths:
                return paths[layers]

    return min_max_partition


@also_right("recursion from the last layer, keeping what was found, as an array")
def by_recursion():
    from functools import lru_cache

    import numpy as np

    def min_max_partition(costs, stages):
        @lru_cache(None)
        def rest(start, left):
            if left == 1:
                return sum(costs[start:]), (len(costs),)
            found = []
            for end in range(start + 1, len(costs) - left + 2):
                longest, bounds = rest(end, left - 1)
                found.append((max(sum(costs[start:end]), longest), (end, *bounds)))
            return min(found)  # of nothing: a ValueError, as asked for

        return np.array([0, *rest(0, stages)[1]])

    return min_max_partition


squares = slip(
    by_table,
    "The sum of squares is as small as can be; asked is the longest stage, whatever the others do.",
    ("longest = max(best[j], sums[i] - sums[j])", "longest = best[j] + (sums[i] - sums[j]) ** 2"),
)
whole_sum = slip(
    by_table,
    "The sum over stages is the same for every partition: the slowest stage alone sets the pace.",
    ("max(best[j], sums[i] - sums[j])", "best[j] + sums[i] - sums[j]"),
)
shortest = slip(
    by_table,
    "The shortest stage counts here: of the earlier stages and the last one, take the longer.",
    ("longest = max(", "longest = min("),
)
one_stage_empty = slip(
    by_table,
    "A stage holds no layer: the last cut comes before layer i, and after k - 1 layers or more.",
    ("for j in range(k - 1, i):", "for j in range(k - 1, i + 1):"),
    ("longest < row[i]", "longest <= row[i]"),
)
origin_off_by_one = slip(
    by_table,
    "The cuts are one layer off the table's: the origin is where the last stage begins.",
    ("row[i], origin[i] = longest, j", "row[i], origin[i] = longest, max(j - 1, k - 1)"),
)
walked_forwards = slip(
    by_table,
    "The table is walked from the first stage on: begin at the last, where all layers are cut.",
    ("in reversed(origins)", "in origins"),
)
load_without_its_last_layer = slip(
    by_table,
    "A stage's time leaves out its last layer: layers j .. i-1 cost sums[i] - sums[j].",
    ("max(best[j], sums[i] - sums[j])", "max(best[j], sums[i - 1] - sums[j])"),
)
front_left_out = slip(
    by_table,
    "Layers at the front are on no stage: no stage at all can hold no layer but the first none.",
    ('best = [0] + [float("inf")] * layers', "best = [0] * (layers + 1)"),
)
no_error = slip(
    by_table,
    "More stages than layers leave a stage without work: raise a ValueError.",
    (
        'raise ValueError("a stage would be empty")',
        "return list(range(layers + 1)) + [layers] * (stages - layers)",
    ),
)


@wrong("A stage is closed when it reaches the mean: it can't know what comes later.")
def greedy_to_the_mean():
    def min_max_partition(costs, stages):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")
        bounds, load, mean = [0], 0, sum(costs) / stages
        for i, cost in enumerate(costs):
            load += cost
            last_chance = layers - i - 1 <= stages - len(bounds)
            if len(bounds) < stages and (load >= mean or last_chance):
                bounds.append(i + 1)
                load = 0
        return [*bounds, layers]

    return min_max_partition


@wrong("A stage is closed before it would exceed the mean: what is left over goes to the last one.")
def greedy_below_the_mean():
    def min_max_partition(costs, stages):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")
        bounds, load, mean = [0], 0, sum(costs) / stages
        for i, cost in enumerate(costs):
            full = load + cost > mean or layers - i <= stages - len(bounds)
            if i > bounds[-1] and len(bounds) < stages and full:
                bounds.append(i)
                load = 0
            load += cost
        return [*bounds, layers]

    return min_max_partition


@wrong("Longest and shortest stage lie close together here; that can make both longer.")
def close_together():
    from itertools import combinations

    def min_max_partition(costs, stages):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")

        def spread(bounds):
            loads = [sum(costs[bounds[s] : bounds[s + 1]]) for s in range(stages)]
            return max(loads) - min(loads)

        tried = [[0, *cuts, layers] for cuts in combinations(range(1, layers), stages - 1)]
        return min(tried, key=spread)

    return min_max_partition


@wrong("Equally many layers on each stage; the costs don't matter here.")
def even_numbers():
    def min_max_partition(costs, stages):
        if stages > len(costs):
            raise ValueError("more stages than layers")
        return [stage * len(costs) // stages for stage in range(stages + 1)]

    return min_max_partition


@wrong("The bisection ends at a fixed step: in seconds, that is as long as a layer.")
def absolute_epsilon():
    def min_max_partition(costs, stages):
        layers = len(costs)
        if stages > layers:
            raise ValueError("more stages than layers")

        def fill(limit):
            bounds, load = [0], 0
            for i, cost in enumerate(costs):
                must = layers - i <= stages - len(bounds)
                if i > bounds[-1] and (load + cost > limit or must):
                    bounds.append(i)
                    load = 0
                load += cost
            return [*bounds, layers]

        low, high = max(costs), sum(costs)
        for _ in range(200):
            if high - low <= 1e-3:
                break
            middle = (low + high) / 2
            if len(fill(middle)) == stages + 1:
                high = middle
            else:
                low = middle
        return fill(high)

    return min_max_partition


EQUIVALENT = {
    "min_max_partition: max(best[j], sums[i] - sums[j]) -> max(sums[i] - sums[j], best[j])": (
        "the longer of the two"
    ),
    "by_table min_max_partition: max(best[j], sums[i] - sums[j]) -> "
    "max(sums[i] - sums[j], best[j])": "the longer of the two",
    "by_table min_max_partition: 0 -> 1": "an origin is written before it is read",
    "by_table min_max_partition: 0 -> -1": "an origin is written before it is read",
    "by_table min_max_partition: longest < row[i] -> longest <= row[i]": (
        "the last of equals is as good"
    ),
    "by_limits min_max_partition: 1 -> 2": "no partition ends behind the last layer",
    "by_recursion min_max_partition.rest: max(sum(costs[start:end]), longest) -> "
    "max(longest, sum(costs[start:end]))": "the longer of the two",
    "by_recursion min_max_partition: np.array([0, *rest(0, stages)[1]]) -> "
    "[0, *rest(0, stages)[1]]": "a list is as right as an array",
}
