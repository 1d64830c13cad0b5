"""PipeDream's plan: `replicated_plan(costs, machines, *, weights, rate)` returns bounds, replicas.

Stage s holds the layers bounds[s] .. bounds[s+1] - 1 on replicas[s] machines, `machines` at most in
all; the number of stages is free. m replicas take m microbatches at once and then sum gradients on
a ring, so a stage's time per microbatch is (costs + 2 (m - 1)/m · weights / rate) / m. The slowest
stage shall be as fast as possible; any such plan is right.
Source: the task, PipeDream (SOSP 2019), section 3.1; the formula, with a link's one-way rate as all
through the course, is derived in the notebook. Oracle: all plans are tried, in exact fractions.
"""

import json
from fractions import Fraction
from itertools import pairwise

from distgrade.compare import Symptom
from distgrade.exercise import Case, Close, also_right, slip, wrong
from distgrade.labs.lab05_layer_partitioning._bounds import ROUNDING, changed, invalid

NAMES = ("replicated_plan",)
FORBID = ("distlab.partition.replicas.replicated",)
TOLERANCE = Close(1e-12, "times are divided by numbers of machines, in any order")
CREDIT = {"quick links": 3, "slow links": 3}
CASES = (
    Case("alike layers", "quick links", costs=[2] * 4, weights=[1] * 4, machines=6, rate=8),
    Case("a long layer", "quick links", costs=[1, 1, 9, 2, 1], weights=[1] * 5, machines=5, rate=4),
    Case(
        "weights at the end",
        "quick links",
        costs=[7, 8, 6, 2, 1],
        weights=[1, 1, 2, 30, 60],
        machines=5,
        rate=10,
    ),
    Case(
        "five layers, three machines",
        "quick links",
        costs=[3, 5, 2, 4, 4],
        weights=[2, 1, 4, 3, 2],
        machines=3,
        rate=2,
    ),
    Case("one machine", "quick links", costs=[3, 1, 4], weights=[2, 7, 1], machines=1, rate=5),
    Case("random layers", "quick links", layers=6, machines=5, rate=9),
    Case("no replica pays", "slow links", costs=[3, 4], weights=[9, 9], machines=5, rate=1),
    Case("two don't pay, three do", "slow links", costs=[6, 6], weights=[7, 5], machines=4, rate=1),
    Case("one layer", "slow links", costs=[5], weights=[6], machines=4, rate=1),
    Case(
        "some layers replicated",
        "slow links",
        costs=[5, 9, 2, 6],
        weights=[9, 2, 8, 3],
        machines=5,
        rate=1,
    ),
    Case("random layers, slow", "slow links", layers=6, machines=4, rate=1),
)


def given(case, seed):
    from distlab.seeds import integers

    if hasattr(case, "costs"):  # fresh seeds grade the same layers, some times as slow
        slower = 1 + seed % 97
        costs, weights = ([slower * x for x in values] for values in (case.costs, case.weights))
    else:
        both = integers((2, case.layers), "replicas", case.name, seed, low=1, high=20)
        costs, weights = both.long().tolist()
    return {"costs": costs, "machines": case.machines, "weights": weights, "rate": case.rate}


def observe(student, given):
    import json

    def plain(value):
        value = value.tolist() if hasattr(value, "tolist") else value
        return [plain(x) for x in value] if isinstance(value, list | tuple | range) else value

    costs, weights = list(given["costs"]), list(given["weights"])
    plan = student.replicated_plan(costs, given["machines"], weights=weights, rate=given["rate"])
    return {
        "plan": json.dumps(plain(plan), default=repr),  # one leaf: plans differ in length
        "costs afterwards": costs,
        "weights afterwards": weights,
        "rate": given["rate"],
    }


def oracle(case, given):
    import json
    from fractions import Fraction
    from itertools import combinations

    costs, weights = given["costs"], given["weights"]
    best = None
    for stages in range(1, min(len(costs), given["machines"]) + 1):
        for cuts in combinations(range(1, len(costs)), stages - 1):
            bounds = [0, *cuts, len(costs)]
            # Each stage's machines lie between two marks; the last mark may leave some idle.
            for marks in combinations(range(1, given["machines"] + 1), stages):
                replicas = [b - a for a, b in zip((0, *marks), marks, strict=False)]
                slowest = Fraction(0)
                for stage, m in enumerate(replicas):
                    held = range(bounds[stage], bounds[stage + 1])
                    one = sum(costs[layer] for layer in held) * Fraction(1, m)
                    moved = sum(weights[layer] for layer in held) * Fraction(2 * (m - 1), m * m)
                    slowest = max(slowest, one + moved / given["rate"])
                if best is None or slowest < best[0]:
                    best = slowest, [bounds, replicas]
    return {
        "plan": json.dumps(best[1]),
        "costs afterwards": costs,
        "weights afterwards": weights,
        "rate": given["rate"],
    }


def judge(got, expected, case):
    costs, weights = expected["costs afterwards"], expected["weights afterwards"]
    plan = json.loads(got["plan"])
    pair = isinstance(plan, list) and len(plan) == 2 and all(type(x) is list for x in plan)
    if not pair or not plan[0]:
        return [Symptom("structure", "the plan", "it is no pair of lists, bounds and replicas")]
    bounds, replicas = plan
    wrong = changed(got, expected) or invalid(bounds, len(costs))
    if wrong:
        return wrong
    if len(replicas) != len(bounds) - 1:
        seen = f"{len(replicas)} numbers of machines for {len(bounds) - 1} stages"
        return [Symptom("structure", "the replicas", seen)]
    for stage, m in enumerate(replicas):
        if type(m) is not int or m < 1:
            seen = f"{m!r:.20}, where a stage needs a machine or more"
            return [Symptom("values", f"the machines of stage {stage}", seen)]
    if sum(replicas) > case.machines:
        seen = f"{sum(replicas)} are used, and there are {case.machines}"
        return [Symptom("values", "the machines", seen)]

    def slowest(bounds, replicas):
        return max(
            Fraction(sum(costs[i:j]), m)
            + Fraction(2 * (m - 1) * sum(weights[i:j]), m * m * expected["rate"])
            for (i, j), m in zip(pairwise(bounds), replicas, strict=True)
        )

    yours, least = slowest(bounds, replicas), slowest(*json.loads(expected["plan"]))
    if yours <= least * (1 + ROUNDING):
        return []
    ratio = f"it is {float(yours / least):.4g} times as long as it need be"
    return [Symptom("values", "the slowest stage", ratio)]


@also_right("all partitions, with all numbers of machines")
def by_trying_all():
    from itertools import combinations, pairwise

    def replicated_plan(costs, machines, *, weights, rate):
        layers = len(costs)

        def load(i, j, m):
            sent = 2 * (m - 1) / m * sum(weights[i:j])
            return (sum(costs[i:j]) + sent / rate) / m

        def slowest(plan):
            bounds, replicas = plan
            return max(map(load, bounds, bounds[1:], replicas))

        def shared(stages, used):
            for marks in combinations(range(1, used), stages - 1):
                yield [b - a for a, b in pairwise([0, *marks, used])]

        plans = [
            ([0, *cuts, layers], replicas)
            for stages in range(1, layers + 1)
            for cuts in combinations(range(1, layers), stages - 1)
            for used in range(stages, machines + 1)
            for replicas in shared(stages, used)
        ]
        return min(plans, key=slowest)

    return replicated_plan


@also_right("for each limit, the fewest machines that keep below it")
def by_limits():
    from itertools import accumulate, combinations

    def replicated_plan(costs, machines, *, weights, rate):
        time, size = ([0, *accumulate(each)] for each in (costs, weights))

        def load(i, j, m):
            once = time[j] - time[i] + 2 * (m - 1) / m * (size[j] - size[i]) / rate
            return once / m

        numbers = [m + 1 for m in range(machines)]
        stages = list(combinations(range(len(time)), 2))
        for limit in sorted(load(i, j, m) for i, j in stages for m in numbers):
            fewest = {0: (0, [0], [])}
            for i, j in stages:
                enough = [m for m in numbers if load(i, j, m) <= limit]
                if enough and i in fewest:
                    used, bounds, replicas = fewest[i]
                    found = (used + enough[0], [*bounds, j], [*replicas, enough[0]])
                    fewest[j] = min(found, fewest.get(j, found))
            used, *plan = fewest.get(len(costs), (float("inf"),))
            if used <= machines:
                return plan

    return replicated_plan


@also_right("from the last layer, recursively")
def by_recursion():
    from functools import cache

    def replicated_plan(costs, machines, *, weights, rate):
        @cache
        def rest(start, left):
            if start == len(costs):
                return 0.0, (), ()
            found = [(float("inf"), (), ())]
            for end in range(start + 1, len(costs) + 1):
                for m in range(1, left + 1):
                    once = sum(costs[start:end]) / m
                    both = once + 2 * (m - 1) * sum(weights[start:end]) / m / m / rate
                    slowest, ends, replicas = rest(end, left - m)
                    found.append((max(both, slowest), (end, *ends), (m, *replicas)))
            return min(found)

        _, ends, replicas = rest(0, machines)
        return (0, *ends), replicas

    return replicated_plan


nothing_sent = slip(
    by_trying_all,
    "Replicas must add up their gradients: 2(m - 1)/m of the stage's weights go over the link.",
    ("sent = 2 * (m - 1) / m * sum(weights[i:j])", "sent = 0"),
)
no_ring_factor = slip(
    by_trying_all,
    "Two machines send W each, not 2W: the ring's factor is 2(m - 1)/m.",
    ("2 * (m - 1) / m * sum", "2 * (m > 1) * sum"),
)
half_an_all_reduce = slip(
    by_trying_all,
    "That is half an all-reduce: the sum has to come back to every replica, 2(m - 1)/m.",
    ("2 * (m - 1) / m * sum", "(m - 1) / m * sum"),
)
all_reduce_per_microbatch = slip(
    by_trying_all,
    "One all-reduce serves m microbatches: it is divided by m as the computing is.",
    ("(sum(costs[i:j]) + sent / rate) / m", "sum(costs[i:j]) / m + sent / rate"),
)
whole_model_sent = slip(
    by_trying_all,
    "Replicas of a stage sum the gradients of that stage; the other layers aren't theirs.",
    ("sum(weights[i:j])", "sum(weights)"),
)
all_machines_used = slip(
    by_trying_all,
    "Every machine is given work; a replica more can make a stage slower, so some may stay idle.",
    ("for used in range(stages, machines + 1)", "for used in [machines]"),
)
no_replicas = slip(
    by_trying_all,
    "Every stage has one machine here: m replicas finish m microbatches at once, so divide by m.",
    ("for used in range(stages, machines + 1)", "for used in range(stages, machines + 1)[:1]"),
)
one_stage = slip(
    by_trying_all,
    "All layers on one stage is data parallelism: stages with fewer weights send less.",
    ("for stages in range(1, layers + 1)", "for stages in [1]"),
)
sum_of_stages = slip(
    by_trying_all,
    "The sum of all stages is as small as can be; asked is the slowest one.",
    ("return max(map(load", "return sum(map(load"),
)
equally_many = slip(
    by_trying_all,
    "Equally many machines on each stage: give more of them to the stages with more work.",
    ("for replicas in shared(stages, used)", "for replicas in [[used // stages] * stages]"),
)
too_many_machines = slip(
    by_trying_all,
    "Each stage keeps within the number of machines, but together they need more than there are.",
    (
        "for used in range(stages, machines + 1)\n        for replicas in shared(stages, used)",
        "for replicas in [[machines] * stages]",
    ),
)


@wrong("The plan begins with the best stages of one machine each: replicas change where to cut.")
def stages_first():
    from itertools import combinations, pairwise

    def replicated_plan(costs, machines, *, weights, rate):
        layers = len(costs)

        def load(i, j, m):
            return (sum(costs[i:j]) + 2 * (m - 1) / m * sum(weights[i:j]) / rate) / m

        plans = []
        for stages in range(1, min(layers, machines) + 1):
            cuts = [[0, *some, layers] for some in combinations(range(1, layers), stages - 1)]
            bounds = min(cuts, key=lambda b: max(sum(costs[i:j]) for i, j in pairwise(b)))
            for marks in combinations(range(1, machines + 1), stages):
                replicas = [b - a for a, b in pairwise([0, *marks])]
                stage = zip(pairwise(bounds), replicas, strict=True)
                plans.append((max(load(i, j, m) for (i, j), m in stage), bounds, replicas))
        return min(plans)[1:]

    return replicated_plan


@wrong("Machines are added while the next one helps: two may not pay where three do.")
def one_more_while_it_helps():
    from itertools import combinations, pairwise

    def replicated_plan(costs, machines, *, weights, rate):
        layers = len(costs)

        def load(i, j, m):
            return (sum(costs[i:j]) + 2 * (m - 1) / m * sum(weights[i:j]) / rate) / m

        plans = []
        for stages in range(1, min(layers, machines) + 1):
            for some in combinations(range(1, layers), stages - 1):
                bounds, replicas = [0, *some, layers], [1] * stages
                for _ in range(machines - stages):
                    loads = [
                        load(i, j, m) for (i, j), m in zip(pairwise(bounds), replicas, strict=True)
                    ]
                    slow = loads.index(max(loads))
                    if load(bounds[slow], bounds[slow + 1], replicas[slow] + 1) >= loads[slow]:
                        break
                    replicas[slow] += 1
                loads = [
                    load(i, j, m) for (i, j), m in zip(pairwise(bounds), replicas, strict=True)
                ]
                plans.append((max(loads), bounds, replicas))
        return min(plans)[1:]

    return replicated_plan


EQUIVALENT = {
    "by_recursion replicated_plan.rest: max(both, slowest) -> max(slowest, both)": (
        "the longer of two times"
    ),
    (
        "by_limits replicated_plan: min(found, fewest.get(j, found)) -> "
        "min(fewest.get(j, found), found)"
    ): "the fewer of two numbers",
    "replicated_plan: max(slowest, load(i, j, m)) -> max(load(i, j, m), slowest)": (
        "the longer of two times"
    ),
}
