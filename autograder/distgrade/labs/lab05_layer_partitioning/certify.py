"""Why no partition is better: `certify(costs, bounds)` returns a proof, or None where one is.

The bounds have p stages, the slowest takes T. A proof is a list of runs (i, j), the layers i ..
j-1, each of which takes T or longer: a partition faster than T must cut every one of them inside.
Runs share a layer at most, so no cut is inside two of them; p runs need p cuts, and p stages have
p - 1. A single layer of T or longer can't be cut at all: it is a proof by itself.
Source: derived here; it is the dual of the greedy probe (Pinar and Aykanat 2004). Oracle: all
partitions are tried; a proof is checked by its definition, any that holds is right.
"""

import json
from fractions import Fraction
from itertools import pairwise

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong
from distgrade.labs.lab05_layer_partitioning._bounds import changed

NAMES = ("certify",)
FORBID = (
    "distlab.partition.certificate.certify",
    "distlab.partition.certificate.check_certificate",
    "distlab.partition.plan.min_max",
    "distlab.partition.solver.optimum",
)
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"twelve layers": 2, "other layers": 3}
_BOOK = [3, *[1] * 10, 4]
_EIGHT = [2, 5, 3, 3, 6, 1, 8, 2]
_TEN = [7, 2, 5, 10, 8, 1, 6, 3, 9, 4]
CASES = (
    Case("a book's stages", "twelve layers", costs=_BOOK, bounds=[0, 2, 6, 10, 12]),
    Case("others as good", "twelve layers", costs=_BOOK, bounds=[0, 3, 8, 11, 12]),
    Case("ten layers", "other layers", costs=_TEN, bounds=[0, 3, 4, 7, 10]),
    Case("six stages", "other layers", costs=_TEN, bounds=[0, 2, 3, 4, 5, 8, 10]),
    Case("two stages", "other layers", costs=_TEN, bounds=[0, 4, 10]),
    Case("eight layers", "other layers", costs=_EIGHT, bounds=[0, 3, 6, 8]),
    Case("a long layer", "other layers", costs=[2, 2, 9, 2, 2, 2], bounds=[0, 2, 3, 6]),
    Case("five stages", "other layers", costs=[1, 9, 1, 1, 1, 1], bounds=[0, 1, 2, 4, 5, 6]),
    Case("one stage", "other layers", costs=[4, 1, 3], bounds=[0, 3]),
    Case("layers that cost nothing", "other layers", costs=[0, 0, 6, 0, 3, 5], bounds=[0, 3, 5, 6]),
    Case("nothing costs anything", "other layers", costs=[0, 0, 0], bounds=[0, 1, 3]),
    Case("equal layers", "other layers", costs=[2] * 7, bounds=[0, 2, 5, 7]),
    Case("three each", "twelve layers", costs=_BOOK, bounds=[0, 3, 6, 9, 12]),
    Case("nearly even loads", "twelve layers", costs=_BOOK, bounds=[0, 1, 3, 9, 12]),
    Case("next best of ten", "other layers", costs=_TEN, bounds=[0, 1, 4, 7, 10]),
    Case("next best of six", "other layers", costs=_TEN, bounds=[0, 3, 4, 6, 8, 9, 10]),
    Case("next best of eight", "other layers", costs=_EIGHT, bounds=[0, 3, 5, 8]),
    Case("one cut, elsewhere", "other layers", costs=[5, 1, 1], bounds=[0, 2, 3]),
)


def given(case, seed):
    # Fresh seeds grade the same layers, some times as slow; odd ones from the last to the first.
    costs = [(1 + seed % 97) * cost for cost in case.costs]
    bounds = list(case.bounds)
    if seed % 2:
        costs, bounds = costs[::-1], [len(costs) - place for place in bounds[::-1]]
    return {"costs": costs, "bounds": bounds}


def observe(student, given):
    import json

    def plain(value):
        value = value.tolist() if hasattr(value, "tolist") else value
        return [plain(x) for x in value] if isinstance(value, list | tuple | range) else value

    costs, bounds = list(given["costs"]), list(given["bounds"])
    proof = plain(student.certify(costs, bounds))
    return {
        "proof": json.dumps(proof, default=repr),  # one leaf: proofs differ in length
        "costs afterwards": costs,
        "bounds afterwards": bounds,
    }


def oracle(case, given):
    import json
    from itertools import combinations

    costs, bounds = given["costs"], given["bounds"]
    layers, stages = len(costs), len(bounds) - 1

    def slowest(places):
        return max(sum(costs[places[s] : places[s + 1]]) for s in range(stages))

    all_cuts = combinations(range(1, layers), stages - 1)
    proof = None
    if slowest(bounds) == min(slowest([0, *cuts, layers]) for cuts in all_cuts):
        proof, end = [], layers
        for _ in range(stages):  # from the last layer: the shortest run of T or longer
            start = max(i for i in range(end) if sum(costs[i:end]) >= slowest(bounds))
            proof.insert(0, [start, end])
            end = start + 1
    return {"proof": json.dumps(proof), "costs afterwards": costs, "bounds afterwards": bounds}


def gap(proof, costs: list, stages: int, slowest: int) -> str:
    """Return the first reason why this is no proof that no partition is below `slowest`, or ""."""
    pairs = isinstance(proof, list) and all(type(run) is list and len(run) == 2 for run in proof)
    if not pairs or not all(type(place) is int for run in proof for place in run):
        return "it is no list of runs (i, j) of whole numbers"
    runs = sorted(proof)
    for i, j in runs:
        if not 0 <= i < j <= len(costs):
            return f"the run ({i}, {j}) holds no layer, or one that isn't there"
        if sum(costs[i:j]) < slowest:
            ratio = float(Fraction(sum(costs[i:j]), slowest))
            return f"the run ({i}, {j}) takes {ratio:.3g} of the slowest stage's time"
    for (i, j), (after, end) in pairwise(runs):
        if after < j - 1:
            return f"one cut can be inside both ({i}, {j}) and ({after}, {end})"
    if len(runs) < stages and not any(j == i + 1 for i, j in runs):
        return f"{len(runs)} runs need as many cuts, and {stages} stages have {stages - 1}"
    return ""


def judge(got, expected, case):
    wrong = changed(got, expected)
    if wrong:
        return wrong
    costs, bounds = expected["costs afterwards"], expected["bounds afterwards"]
    proof, possible = json.loads(got["proof"]), json.loads(expected["proof"]) is not None
    if proof is None:
        seen = "None came back, and no partition is faster"
        return [Symptom("values", "the proof", seen)] if possible else []
    slowest = max(sum(costs[i:j]) for i, j in pairwise(bounds))
    hole = gap(proof, costs, len(bounds) - 1, slowest)
    if possible:
        return [Symptom("values", "the proof", hole)] if hole else []
    return [Symptom("values", "the proof", f"a partition is faster, and {hole}")]


@also_right("from the front, each run begun with the last layer of the one before")
def from_the_front():
    from itertools import accumulate, pairwise

    def certify(costs, bounds):
        stages, layers = len(bounds) - 1, len(costs)
        sums = [0, *accumulate(costs)]
        slowest = max(sums[j] - sums[i] for i, j in pairwise(bounds))
        runs, start = [], 0
        for _ in range(stages):
            ends = [j for j in range(start + 1, layers + 1) if sums[j] - sums[start] >= slowest]
            if not ends:
                return None
            runs.append((start, ends[0]))
            start = ends[0] - 1
        return runs

    return certify


@also_right("all partitions are tried, then runs from the end, a single layer where it is enough")
def by_trying_all():
    from itertools import combinations

    def certify(costs, bounds):
        layers, stages = len(costs), len(bounds) - 1

        def longest(places):
            return max(sum(costs[places[s] : places[s + 1]]) for s in range(stages))

        slowest = longest(bounds)
        for cuts in combinations(range(1, layers), stages - 1):
            if longest([0, *cuts, layers]) < slowest:
                return None
        runs, start = [], layers
        for end in reversed(range(layers + 1)):
            starts = [i for i in range(end) if sum(costs[i:end]) >= slowest]
            if starts and end <= start + 1:
                start = max(starts)
                runs.append([start, end])
        return runs

    return certify


@also_right("the table of dynamic programming: how far stages faster than T can reach")
def by_table():
    from itertools import accumulate, pairwise

    def certify(costs, bounds):
        sums = [0, *accumulate(costs)]
        slowest = max(sums[j] - sums[i] for i, j in pairwise(bounds))
        best, reached = sums, [0]
        for _ in bounds[1:]:
            if best[-1] < slowest:
                return None
            reached.append(sum(x < slowest for x in best[1:]))
            best = [
                min(max(best[j], last - sums[j]) for j in range(i + 1))
                for i, last in enumerate(sums)
            ]
        return [(i, j + 1) for i, j in pairwise(reached)]

    return certify


disjoint_runs = slip(
    from_the_front,
    "Runs may share a layer: a cut is between layers, so begin the next with this one's last.",
    ("start = ends[0] - 1", "start = ends[0]"),
)
longer_than_t = slip(
    from_the_front,
    "None came back, and nothing is faster: a run of exactly T counts, it must be cut as well.",
    (">= slowest", "> slowest"),
)
two_layers_shared = slip(
    from_the_front,
    "Two runs share two layers here: one cut between those serves both, so they count once.",
    ("start = ends[0] - 1", "start = max(start, ends[0] - 2)"),
)
one_run_too_few = slip(
    from_the_front,
    "p - 1 runs prove nothing: p stages have a cut for each of them.",
    ("for _ in range(stages)", "for _ in range(stages - 1)"),
)
never_none = slip(
    from_the_front,
    "Where the layers end before the p-th run, a faster partition exists: return None.",
    ("return None", "break"),
)
ends_inclusive = slip(
    from_the_front,
    "The run (i, j) holds the layers up to j - 1: its last layer is missing here.",
    ("runs.append((start, ends[0]))", "runs.append((start, ends[0] - 1))"),
)
mean_as_limit = slip(
    from_the_front,
    "The runs reach the mean: to prove that T is best, each must take T, the slowest stage's time.",
    (
        "slowest = max(sums[j] - sums[i] for i, j in pairwise(bounds))",
        "slowest = sums[-1] / stages",
    ),
)
longest_layer_as_limit = slip(
    from_the_front,
    "The runs reach the longest layer's time; T is the slowest stage's.",
    (
        "slowest = max(sums[j] - sums[i] for i, j in pairwise(bounds))",
        "slowest = max(costs)",
    ),
)
first_stage_as_limit = slip(
    from_the_front,
    "T is the time of the slowest stage, whichever that is, not of the first.",
    (
        "slowest = max(sums[j] - sums[i] for i, j in pairwise(bounds))",
        "slowest = sums[bounds[1]]",
    ),
)


@wrong(
    "The stages themselves are no proof: only the slowest takes T, and each needs no cut inside."
)
def stages_as_runs():
    from itertools import pairwise

    def certify(costs, bounds):
        return list(pairwise(bounds))

    return certify


@wrong("All layers as one run need one cut, and there are p - 1: the mean alone proves little.")
def one_run_of_all():
    def certify(costs, bounds):
        return [(0, len(costs))]

    return certify


@wrong("No cut can be moved by a layer with gain; two cuts moved together may still be faster.")
def neighbours_only():
    from itertools import accumulate, pairwise

    def certify(costs, bounds):
        sums = [0, *accumulate(costs)]

        def slowest(places):
            return max(sums[j] - sums[i] for i, j in pairwise(places))

        for cut in range(1, len(bounds) - 1):
            for step in (-1, 1):
                moved = [*bounds[:cut], bounds[cut] + step, *bounds[cut + 1 :]]
                if slowest(moved) < slowest(bounds):
                    return None
        runs, start = [], 0
        for _ in range(len(bounds) - 1):
            end = start + 1
            for _ in costs:
                if end < len(costs) and sums[end] - sums[start] < slowest(bounds):
                    end += 1
            runs.append((start, end))
            start = min(end, len(costs)) - 1
        return runs

    return certify


EQUIVALENT = {
    "by_table certify: max(best[j], last - sums[j]) -> max(last - sums[j], best[j])": (
        "the longer of two times"
    ),
    "from_the_front certify: start + 1 -> 1": "as in the solution: it is no run of T",
    "certify: start + 1 -> 1": "what ends before it begins takes no time: it is no run of T",
}
