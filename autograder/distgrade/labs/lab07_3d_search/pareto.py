"""Layouts that no other beats in memory and time: `pareto(costs) -> list[Layout]`.

`costs` maps a layout to (bytes, seconds). A layout is dominated if another needs no more of either
and less of one. All others are returned, each once, in any order; layouts that cost exactly the
same don't dominate each other. Source: the usual definition of Pareto dominance. Oracle: on the
front, no time is shorter with as many bytes, and no number of bytes smaller in as much time.
"""

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("pareto",)
FORBID = ()
TOLERANCE = Exact(why="layouts are in the list or not; costs are only compared")
CREDIT = {"fronts": 2, "ties": 1}
CASES = (
    Case("one after another", "fronts", costs=[(9, 1.0), (2, 8.0), (5, 3.0), (3, 6.0), (6, 7.0)]),
    Case(
        "a front with a dent",
        "fronts",
        costs=[(1, 10.0), (6, 6.5), (10, 1.0), (5, 9.5), (8, 6.25), (7, 7.0), (9, 8.0)],
    ),
    Case("one that beats all", "fronts", costs=[(5, 3.0), (2, 2.0), (4, 9.0), (7, 2.5)]),
    Case("random costs", "fronts", count=40, most=400),
    Case("one layout", "fronts", costs=[(3, 3.0)]),
    Case("no layout", "fronts", costs=[]),
    Case("ties in one cost", "ties", costs=[(4, 5.0), (4, 2.0), (1, 7.0), (1, 5.0), (9, 2.0)]),
    Case("the same twice", "ties", costs=[(3, 4.0), (6, 1.0), (3, 4.0), (7, 2.0), (7, 2.0)]),
    Case("all the same", "ties", costs=[(2, 2.0), (2, 2.0), (2, 2.0)]),
    Case("random ties", "ties", count=30, most=6),
)


def given(case, seed):
    from distlab.seeds import integers

    if hasattr(case, "costs"):  # fresh seeds grade the same order, costs some times as large
        times = 1 + seed % 97
        return {"costs": [[size * times, time_s * times] for size, time_s in case.costs]}
    shape = (case.count, 2)
    drawn = integers(shape, "pareto", case.name, seed, low=1, high=case.most + 1)
    return {"costs": [[int(size), int(time_s) / 4] for size, time_s in drawn]}


def observe(student, given):
    from distlab.layout import Layout

    costs = {Layout(2, 3, d): tuple(cost) for d, cost in enumerate(given["costs"], 1)}
    front = student.pareto(dict(costs))
    if not isinstance(front, list | tuple | set | frozenset | dict | type({}.keys())):
        raise TypeError("`pareto` should return a list of layouts.")
    if any(layout not in costs for layout in front):
        raise TypeError("`pareto` should return layouts, the keys of costs.")
    times = [sum(layout == other for other in front) for layout in costs]
    return {"layouts": len(costs), "times in the front": times}


def oracle(case, given):
    costs = given["costs"]
    sizes, times = (sorted({cost[axis] for cost in costs}) for axis in (0, 1))
    least = {}
    for size in sizes:
        least[size] = min(time_s for other, time_s in costs if other <= size)
    smallest = {}
    for time_s in times:
        smallest[time_s] = min(size for size, other in costs if other <= time_s)
    front = [least[size] == time_s and smallest[time_s] == size for size, time_s in costs]
    return {"layouts": len(costs), "times in the front": [int(here) for here in front]}


def judge(got, expected, case):
    what = "the front"
    times = list(zip(got["times in the front"], expected["times in the front"], strict=True))
    extra = sum(here > 0 and not right for here, right in times)
    if extra:
        seen = f"others dominate {extra} of its {sum(here > 0 for here, _ in times)} layouts"
        return [Symptom("values", what, seen)]
    missing = sum(here == 0 and right for here, right in times)
    if missing:
        return [Symptom("values", what, f"missing in it: {missing} that no other dominates")]
    if any(here > 1 for here, _ in times):
        return [Symptom("values", what, "a layout stands there more than once")]
    return []


@also_right("every layout against every other")
def all_pairs():
    def pareto(costs):
        def beats(one, other):
            no_more = one[0] <= other[0] and one[1] <= other[1]
            less = one[0] < other[0] or one[1] < other[1]
            return no_more and less

        front = []
        for layout, cost in costs.items():
            if not any(beats(other, cost) for other in costs.values()):
                front.append(layout)
        return front

    return pareto


less_of_both = slip(
    all_pairs,
    "A layout that costs as much of one and more of the other is dominated all the same.",
    ("one[0] <= other[0] and one[1] <= other[1]", "one[0] < other[0] and one[1] < other[1]"),
)
no_more_is_enough = slip(
    all_pairs,
    "A layout beats itself here, and those that cost the same each other: it takes less of one.",
    ("no_more and less", "no_more"),
)
less_of_one_is_enough = slip(
    all_pairs,
    "To dominate takes no more of both: less of one alone isn't enough.",
    ("no_more and less", "less"),
)
costliest = slip(
    all_pairs,
    "These are the layouts that cost most: less memory and less time is better.",
    ("one[0] <= other[0] and one[1] <= other[1]", "one[0] >= other[0] and one[1] >= other[1]"),
    ("one[0] < other[0] or one[1] < other[1]", "one[0] > other[0] or one[1] > other[1]"),
)
time_turned = slip(
    all_pairs,
    "More time counts as better: less is better in both.",
    ("one[1] <= other[1]", "one[1] >= other[1]"),
    ("one[1] < other[1]", "one[1] > other[1]"),
)
memory_ties_forgotten = slip(
    all_pairs,
    "Of two layouts with the same memory the slower one is dominated.",
    ("one[0] < other[0] or one[1] < other[1]", "one[0] < other[0]"),
)
time_ties_forgotten = slip(
    all_pairs,
    "Of two layouts with the same time the one with more memory is dominated.",
    ("one[0] < other[0] or one[1] < other[1]", "one[1] < other[1]"),
)
those_before = slip(
    all_pairs,
    "A layout is compared with those before it only: a later one may dominate it.",
    (
        "if not any(beats(other, cost) for other in costs.values()):",
        "if not any(beats(costs[other], cost) for other in front):",
    ),
)
dominated = slip(
    all_pairs,
    "These are the layouts that are dominated: the others are asked for.",
    ("if not any(", "if any("),
)
costs_for_layouts = slip(
    all_pairs,
    "These are costs: the layouts, keys of the dict, are asked for.",
    ("front.append(layout)", "front.append(cost)"),
)
same_costs_once = slip(
    all_pairs,
    "Of layouts that cost exactly the same only one is there: neither dominates the other.",
    (
        "if not any(beats(other, cost) for other in costs.values()):",
        "kept = [costs[other] for other in front]\n"
        "        beaten = any(beats(other, cost) for other in costs.values())\n"
        "        if cost not in kept and not beaten:",
    ),
)


@wrong("Only the ends are there, the least memory and the least time: the front lies between.")
def ends_alone():
    def pareto(costs):
        smallest = min(costs, key=lambda layout: costs[layout], default=None)
        fastest = min(costs, key=lambda layout: costs[layout][::-1], default=None)
        return list({smallest, fastest} - {None})

    return pareto


@wrong("The front may have a dent: a layout on no straight line between two others belongs to it.")
def convex_hull():
    def pareto(costs):
        hull = []
        for layout, (x, y) in sorted(costs.items(), key=lambda item: item[1]):
            if hull and y >= costs[hull[-1]][1]:
                if (x, y) == costs[hull[-1]]:
                    hull.append(layout)
                continue
            for _ in range(len(hull)):
                if len(hull) < 2:
                    break
                (a, b), (c, d) = costs[hull[-2]], costs[hull[-1]]
                if (c - a) * (y - b) - (d - b) * (x - a) > 0 or (a, b) == (c, d):
                    break
                hull.pop()
            hull.append(layout)
        return hull

    return pareto


@wrong("One layout is the best by some product or sum: all that none dominates are asked for.")
def one_winner():
    def pareto(costs):
        if not costs:
            return []
        least = min(x * y for x, y in costs.values())
        return [layout for layout, (x, y) in costs.items() if x * y == least]

    return pareto


@wrong("Sorting by memory alone leaves layouts with equal memory in any order: sort by time next.")
def sweep_by_memory_alone():
    def pareto(costs):
        front, best, last = [], float("inf"), None
        for layout in sorted(costs, key=lambda layout: costs[layout][0]):
            if costs[layout][1] < best or costs[layout] == last:
                best, last = costs[layout][1], costs[layout]
                front.append(layout)
        return front

    return pareto


@also_right("sorted by memory, then time; twins stay together")
def sweep():
    def pareto(costs):
        front, best, last = [], float("inf"), None
        for layout, cost in sorted(costs.items(), key=lambda item: item[1]):
            if cost[1] < best or cost == last:
                best, last = cost[1], cost
                front.append(layout)
        return front

    return pareto


@also_right("by numpy, all against all, as a set")
def by_numpy():
    import numpy as np

    def pareto(costs):
        layouts = list(costs)
        c = np.array([costs[layout] for layout in layouts]).reshape(-1, 2)
        no_more = (c[:, None] <= c[None]).all(-1)
        less = (c[:, None] < c[None]).any(-1)
        beaten = (no_more & less).any(0)
        return {layouts[i] for i in np.flatnonzero(~beaten)}

    return pareto


@also_right("the fastest of all, then the next with less memory")
def peeling():
    def pareto(costs):
        left, front = costs, []
        for _ in costs:
            if not left:
                break
            best = min(cost[::-1] for cost in left.values())[::-1]
            front += [layout for layout, cost in left.items() if cost == best]
            left = {layout: cost for layout, cost in left.items() if cost[0] < best[0]}
        return front

    return pareto


EQUIVALENT = {}
