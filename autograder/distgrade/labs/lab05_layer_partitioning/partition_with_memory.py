"""The fastest partition that fits: `partition_with_memory(costs, stages, *, weights, activations,
cap)` returns bounds.

`weights[i]` bytes of layer i are kept once, `activations[i]` once for each microbatch in flight. In
1F1B stage s of p (from 0) has p - s microbatches in flight. Every stage may keep `cap` bytes, an
exact fit included. Among the partitions that fit, the slowest stage shall be as fast as possible;
any such one is right. ValueError where none fits, and for more stages than layers.
Source: 1F1B's activations, Narayanan et al. 2021 (arXiv:2104.04473), section 2.2; the rest derived
in the chapter. Oracle: all partitions are tried, each stage's bytes counted microbatch by
microbatch.
"""

from fractions import Fraction

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong
from distgrade.labs.lab05_layer_partitioning._bounds import changed, invalid, longer

NAMES = ("partition_with_memory",)
FORBID = (
    "distlab.partition.certificate.certify",
    "distlab.partition.plan.min_max",
    "distlab.partition.problem.Problem",
    "distlab.partition.solver.optimum",
    "distlab.partition.solver.reachable",
)
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"partitions": 3, "limits": 2}
_TEN = {
    "costs": [3, 1, 2, 2, 4, 1, 1, 3, 2, 2],
    "weights": [6, 2, 3, 2, 2, 4, 2, 3, 2, 7],
    "activations": [2, 1, 3, 1, 2, 1, 2, 1, 3, 1],
}
_SIX = {"costs": [2, 2, 2, 2, 2, 2], "weights": [4] * 6, "activations": [3] * 6}
_NINE = {
    "costs": [4, 2, 2, 3, 1, 2, 2, 1, 5],
    "weights": [9, 1, 2, 1, 1, 2, 1, 1, 8],
    "activations": [1, 2, 2, 1, 3, 2, 1, 2, 1],
}
_LONG = {
    "costs": [8, 1, 3, 2, 2, 1, 3],
    "weights": [5, 2, 1, 2, 3, 1, 2],
    "activations": [3, 1, 1, 2, 1, 2, 1],
}
CASES = (
    Case("a long first layer", "partitions", **_LONG, stages=3, cap=16),
    Case("ten layers, little room", "partitions", **_TEN, stages=4, cap=22),
    Case("ten layers, more room", "partitions", **_TEN, stages=4, cap=30),
    Case("ten layers, three stages", "partitions", **_TEN, stages=3, cap=26),
    Case("nine layers, four stages", "partitions", **_NINE, stages=4, cap=21),
    Case("nine layers, two stages", "partitions", **_NINE, stages=2, cap=25),
    Case("room for all", "partitions", **_TEN, stages=3, cap=1_000),
    Case("one stage", "partitions", **_SIX, stages=1, cap=43),
    Case("an exact fit", "limits", **_SIX, stages=2, cap=28),
    Case("another exact fit", "limits", **_NINE, stages=4, cap=19),
    Case("a byte too little", "limits", **_SIX, stages=2, cap=27, expects=ValueError),
    Case("one stage, a byte too little", "limits", **_SIX, stages=1, cap=41, expects=ValueError),
    Case("one stage, far too little", "limits", **_SIX, stages=1, cap=20, expects=ValueError),
    Case("no room for a layer", "limits", **_SIX, stages=6, cap=21, expects=ValueError),
    Case("more stages than layers", "limits", **_SIX, stages=7, cap=1_000, expects=ValueError),
)


def given(case, seed):
    # Fresh seeds grade the same layers, some times as slow, with some times as many bytes.
    slower, larger = 1 + seed % 97, 1 + seed % 89
    return {
        "costs": [slower * cost for cost in case.costs],
        "stages": case.stages,
        "weights": [larger * size for size in case.weights],
        "activations": [larger * size for size in case.activations],
        "cap": larger * case.cap,
    }


def observe(student, given):
    inputs = {name: list(given[name]) for name in ("costs", "weights", "activations")}
    bounds = student.partition_with_memory(
        inputs["costs"],
        given["stages"],
        weights=inputs["weights"],
        activations=inputs["activations"],
        cap=given["cap"],
    )
    bounds = bounds.tolist() if hasattr(bounds, "tolist") else bounds
    if isinstance(bounds, list | tuple | range):
        bounds = [bound.item() if hasattr(bound, "item") else bound for bound in bounds]
    return {
        "bounds": bounds,
        "cap": given["cap"],
        **{f"{name} afterwards": values for name, values in inputs.items()},
    }


def oracle(case, given):
    from itertools import combinations

    names = ("costs", "weights", "activations")
    costs, weights, activations = (given[name] for name in names)
    layers, stages = len(costs), given["stages"]
    best = None
    for cuts in combinations(range(1, layers), stages - 1):
        bounds = [0, *cuts, layers]
        kept, time = [0] * stages, [0] * stages
        for stage in range(stages):
            for layer in range(bounds[stage], bounds[stage + 1]):
                time[stage] += costs[layer]
                kept[stage] += weights[layer]
                for _microbatch in range(stage, stages):  # the last stage has one, stage 0 all p
                    kept[stage] += activations[layer]
        if max(kept) <= given["cap"] and (best is None or max(time) < best[0]):
            best = max(time), bounds
    if best is None:
        raise ValueError("nothing fits")
    return {
        "bounds": best[1],
        "cap": given["cap"],
        **{f"{name} afterwards": given[name] for name in names},
    }


def judge(got, expected, case):
    costs, weights, activations = (
        list(map(Fraction, expected[f"{name} afterwards"]))
        for name in ("costs", "weights", "activations")
    )
    bounds = got["bounds"]
    wrong = changed(got, expected) or invalid(bounds, len(costs))
    if wrong:
        return wrong
    for stage in range(case.stages):
        i, j = bounds[stage], bounds[stage + 1]
        kept = sum(weights[i:j]) + (case.stages - stage) * sum(activations[i:j])
        if kept > expected["cap"]:
            ratio = float(kept / Fraction(expected["cap"]))
            return [Symptom("values", f"the memory of stage {stage}", f"{ratio:.4g} times the cap")]
    return longer(bounds, expected["bounds"], lambda stage, i, j: sum(costs[i:j]))


@also_right("every partition is tried")
def by_trying_all():
    from itertools import combinations

    def partition_with_memory(costs, stages, *, weights, activations, cap):
        layers = len(costs)

        def fits(stage, i, j):
            in_flight = stages - stage
            return sum(weights[i:j]) + in_flight * sum(activations[i:j]) <= cap

        def longest(bounds):
            return max(sum(costs[bounds[s] : bounds[s + 1]]) for s in range(stages))

        cuts = combinations(range(1, layers), stages - 1)
        tried = [[0, *some, layers] for some in cuts]
        fitting = [b for b in tried if all(fits(s, b[s], b[s + 1]) for s in range(stages))]
        if not fitting:
            raise ValueError("nothing fits")
        return min(fitting, key=longest)

    return partition_with_memory


@also_right("dynamic programming, what doesn't fit takes for ever")
def by_table():
    def partition_with_memory(costs, stages, *, weights, activations, cap):
        layers, never = len(costs), float("inf")
        best = {0: (0, [0])}
        for in_flight in range(stages, 0, -1):
            row = {}
            for i in range(1, layers + 1):
                for j, (longest, bounds) in best.items():
                    kept = sum(weights[j:i]) + in_flight * sum(activations[j:i])
                    time = max(longest, sum(costs[j:i])) if kept <= cap and j < i else never
                    if time < row.get(i, (never, None))[0]:
                        row[i] = time, [*bounds, i]
            best = row
        if layers not in best:
            raise ValueError("no partition fits into memory")
        return best[layers][1]

    return partition_with_memory


@also_right("a limit, and stages filled greedily from the front")
def by_limits():
    def partition_with_memory(costs, stages, *, weights, activations, cap):
        layers = len(costs)
        for limit in range(sum(costs) + 1):
            ends = {0: [0]}
            for stage in range(stages):
                arrived = {}
                for start, path in ends.items():
                    time = kept = 0
                    for layer in range(start, layers):
                        time += costs[layer]
                        kept += weights[layer] + (stages - stage) * activations[layer]
                        if time > limit or kept > cap:
                            break
                        arrived[layer + 1] = [*path, layer + 1]
                ends = arrived
            if layers in ends:
                return ends[layers]
        raise ValueError("nothing fits")

    return partition_with_memory


memory_all_the_same = slip(
    by_trying_all,
    "Memory is as even as can be; asked is the fastest of the partitions that fit.",
    (
        "return max(sum(costs[bounds[s] : bounds[s + 1]]) for s in range(stages))",
        "return max(\n"
        "            sum(weights[bounds[s] : bounds[s + 1]])\n"
        "            + (stages - s) * sum(activations[bounds[s] : bounds[s + 1]])\n"
        "            for s in range(stages)\n"
        "        )",
    ),
)
all_in_flight_everywhere = slip(
    by_trying_all,
    "Every stage is given p microbatches in flight; stage s holds p - s of them.",
    ("in_flight = stages - stage", "in_flight = stages"),
)
one_in_flight = slip(
    by_trying_all,
    "Every stage is given one microbatch; more are in flight, most of them on stage 0.",
    ("in_flight = stages - stage", "in_flight = 1"),
)
reversed_stages = slip(
    by_trying_all,
    "The last stage holds most here; in 1F1B it is stage 0, whose backward comes last.",
    ("in_flight = stages - stage", "in_flight = stage + 1"),
)
one_too_few = slip(
    by_table,
    "One microbatch too few: even the last stage holds the one it works on.",
    ("range(stages, 0, -1)", "range(stages - 1, -1, -1)"),
)
one_too_many = slip(
    by_trying_all,
    "One microbatch too many: p - s + 1 counts stages from 1, here they count from 0.",
    ("in_flight = stages - stage", "in_flight = stages - stage + 1"),
)
weights_in_flight = slip(
    by_trying_all,
    "Weights are counted once for each microbatch; they are there once, whatever is in flight.",
    ("sum(weights[i:j]) + in_flight * ", "in_flight * sum(weights[i:j]) + in_flight * "),
)
activations_alone = slip(
    by_trying_all,
    "The weights fill the same memory: they are missing here.",
    ("sum(weights[i:j]) + in_flight", "in_flight"),
)
weights_alone = slip(
    by_trying_all,
    "The activations fill the same memory: they are missing here.",
    (" + in_flight * sum(activations[i:j])", ""),
)
exact_fit_refused = slip(
    by_trying_all,
    "What fills the memory exactly does fit.",
    ("<= cap", "< cap"),
)
does_not_fit = slip(
    by_trying_all,
    "A partition that doesn't fit is returned: where none fits, raise a ValueError.",
    ('raise ValueError("nothing fits")', "fitting = tried or [[0] * stages + [layers]]"),
)
memory_ignored = slip(
    by_trying_all,
    "The cap plays no part here: this is the fastest partition, whatever it keeps.",
    ("if all(fits(s, b[s], b[s + 1]) for s in range(stages))", ""),
)


@wrong("The fastest partition is tried, and given up if it doesn't fit: a slower one may fit.")
def only_the_fastest():
    from itertools import combinations

    def partition_with_memory(costs, stages, *, weights, activations, cap):
        layers = len(costs)

        def longest(bounds):
            return max(sum(costs[bounds[s] : bounds[s + 1]]) for s in range(stages))

        cuts = combinations(range(1, layers), stages - 1)
        bounds = min(([0, *some, layers] for some in cuts), key=longest)
        for stage in range(stages):
            i, j = bounds[stage], bounds[stage + 1]
            if sum(weights[i:j]) + (stages - stage) * sum(activations[i:j]) > cap:
                raise ValueError("it does not fit")
        return bounds

    return partition_with_memory


EQUIVALENT = {
    "by_trying_all partition_with_memory: if not fitting: -> if False:": (
        "the minimum of nothing is a ValueError"
    ),
    "by_table partition_with_memory: max(longest, sum(costs[j:i])) -> "
    "max(sum(costs[j:i]), longest)": "the longer of the two",
    "partition_with_memory: max(slowest, time[i] - time[j]) -> max(time[i] - time[j], slowest)": (
        "the longer of the two"
    ),
}
