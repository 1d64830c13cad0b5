"""Who sits where: `coords(rank, t, p, d)` and `groups(t, p, d)` of a layout on three axes.

TP runs fastest, then DP, then PP: Megatron-LM's default order. Both return a dict with the keys
"tp", "dp" and "pp": a rank's place on each axis, and each axis' groups of ranks. The order of
groups, and of ranks in a group, is free. Source: Megatron-LM, `RankGenerator`, its default order
"tp-cp-ep-dp-pp". Oracle: ranks are laid out as an array of p x d x t, and its lines are read off.
"""

import json

from distgrade.compare import Symptom, kind_of
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("coords", "groups")
FORBID = ()
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"coordinates": 2, "groups": 3}
CASES = (
    Case("one rank", "coordinates", of="coords", t=1, p=1, d=1),
    Case("twelve ranks", "coordinates", of="coords", t=2, p=3, d=2),
    Case("forty ranks", "coordinates", of="coords", t=2, p=5, d=4),
    Case("no tensor parallelism", "coordinates", of="coords", t=1, p=3, d=4),
    Case("the group of one rank", "groups", of="groups", t=1, p=1, d=1),
    Case("groups of twelve ranks", "groups", of="groups", t=2, p=3, d=2),
    Case("groups of forty ranks", "groups", of="groups", t=2, p=5, d=4),
    Case("groups without a pipeline", "groups", of="groups", t=4, p=1, d=3),
    Case("groups without replicas", "groups", of="groups", t=3, p=2, d=1),
)


def given(case, seed):
    # Fresh seeds grade larger layouts.
    sizes = {axis: getattr(case, axis) for axis in ("t", "p", "d")}
    return {"of": case.of} | {k: n + seed % 3 if n > 1 else n for k, n in sizes.items()}


def observe(student, given):
    import contextlib
    import json

    def plain(value):
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, dict):
            return {key: plain(x) for key, x in value.items()}
        if isinstance(value, set | frozenset | tuple | range):
            value = list(value)
        return [plain(x) for x in value] if isinstance(value, list) else value

    t, p, d = given["t"], given["p"], given["d"]
    if given["of"] == "coords":
        found = [plain(student.coords(rank, t, p, d)) for rank in range(t * p * d)]
        return {"coords": json.dumps(found, default=repr)}  # one leaf: answers differ in form
    found = plain(student.groups(t, p, d))
    with contextlib.suppress(TypeError):  # the judge says what can't be sorted; order is free
        found = {axis: sorted(map(sorted, found[axis])) for axis in found}
    return {"groups": json.dumps(found, default=repr)}


def oracle(case, given):
    import json

    import numpy as np

    t, p, d = given["t"], given["p"], given["d"]
    grid = np.arange(t * p * d).reshape(p, d, t)
    axes = {"tp": 2, "dp": 1, "pp": 0}
    if case.of == "coords":
        places = np.moveaxis(np.indices(grid.shape), 0, -1).reshape(-1, 3).tolist()
        found = [{axis: place[at] for axis, at in axes.items()} for place in places]
        return {"coords": json.dumps(found)}
    lines = {
        axis: np.moveaxis(grid, at, -1).reshape(-1, grid.shape[at]) for axis, at in axes.items()
    }
    return {"groups": json.dumps({axis: sorted(x.tolist()) for axis, x in lines.items()})}


LETTER = {"tp": "t", "dp": "d", "pp": "p"}


def keys(found, what: str) -> list[Symptom]:
    """Return what keeps an answer from being a dict with the three axes' names."""
    if not isinstance(found, dict):
        return [Symptom("structure", what, f"{kind_of(found)}, not a dict with an entry per axis")]
    if set(found) != set(LETTER):
        seen = f"its keys are {', '.join(sorted(map(str, found))) or 'none'}"
        return [Symptom("structure", what, seen, "The keys are 'tp', 'dp' and 'pp'.")]
    return []


def judge(got, expected, case):
    found, right = json.loads(got[case.of]), json.loads(expected[case.of])
    if case.of == "coords":
        if not isinstance(found, list) or len(found) != len(right):
            return [Symptom("structure", "coords", "there is not one answer for each rank")]
        for rank, (mine, its) in enumerate(zip(found, right, strict=True)):
            what = f"coords of rank {rank}"
            wrong = keys(mine, what)
            if wrong:
                return wrong
            for axis, place in mine.items():
                if type(place) is not int:
                    seen = f"{axis} is {kind_of(place)}, not a whole number"
                    return [Symptom("structure", what, seen)]
                if place != its[axis]:
                    return [Symptom("values", what, f"its {axis} is {place}, which is not right")]
        return []
    wrong = keys(found, "the groups")
    if wrong:
        return wrong
    ranks = sum(map(len, right["tp"]))
    for axis, lines in right.items():
        symptoms = not_groups(found[axis], lines, f"the {axis} groups", ranks, axis)
        if symptoms:
            return symptoms
    return []


def not_groups(found, right: list, what: str, ranks: int, axis: str) -> list[Symptom]:
    """Return the first thing wrong with an axis' groups: what they are, who is in, how many."""
    if not isinstance(found, list) or not all(isinstance(group, list) for group in found):
        return [Symptom("structure", what, "they are no list of lists of ranks")]
    members = [rank for group in found for rank in group]
    for rank in members:
        if type(rank) is not int:
            return [Symptom("structure", what, f"{kind_of(rank)} is in one, not a rank")]
        if not 0 <= rank < ranks:
            return [Symptom("values", what, f"rank {rank} is in one, and there are {ranks} ranks")]
    for rank in range(ranks):
        if members.count(rank) != 1:
            times = members.count(rank) or "none"
            seen = f"rank {rank} is in {times} of them"
            return [Symptom("values", what, seen, "Every rank is in one group of each axis.")]
    for group in found:
        if len(group) != len(right[0]):
            seen = f"one has {len(group)} ranks"
            look = f"A group of this axis has {LETTER[axis]} ranks, one for each place on it."
            return [Symptom("values", what, seen, look)]
    for group in found:
        if group not in right:
            seen = f"{group} is one"
            look = "The ranks of a group differ on this axis alone."
            return [Symptom("values", what, seen, look)]
    return []


@also_right("quotients and remainders, groups by ranges with a stride")
def by_strides():
    def coords(rank, t, p, d):
        rest, tp = divmod(rank, t)
        pp, dp = divmod(rest, d)
        return {"tp": tp, "dp": dp, "pp": pp}

    def groups(t, p, d):
        n = t * p * d
        tp = [range(first, first + t) for first in range(0, n, t)]
        dp = [range(stage + i, stage + t * d, t) for stage in range(0, n, t * d) for i in range(t)]
        pp = [range(first, n, t * d) for first in range(t * d)]
        return {"tp": tp, "dp": dp, "pp": pp}

    return coords, groups


@also_right("every rank's neighbours by its own coordinates, equal groups kept once, as sets")
def by_neighbours():
    def coords(rank, t, p, d):
        return {"pp": rank // (d * t), "dp": rank % (d * t) // t, "tp": rank % t}

    def groups(t, p, d):
        places = [coords(rank, t, p, d) for rank in range(t * p * d)]

        def together(axis):
            others = [other for other in ("tp", "dp", "pp") if other != axis]
            found = {
                frozenset(
                    rank
                    for rank, place in enumerate(places)
                    if all(place[other] == mine[other] for other in others)
                )
                for mine in places
            }
            return list(found)

        return {axis: together(axis) for axis in ("tp", "dp", "pp")}

    return coords, groups


@also_right("an array of stages, replicas, shards, transposed")
def by_array():
    import numpy as np

    def coords(rank, t, p, d):
        pp, dp, tp = np.unravel_index(rank, (p, d, t))
        return {"tp": tp, "dp": dp, "pp": pp}

    def groups(t, p, d):
        grid = np.arange(t * p * d).reshape(p, d, t)
        return {
            "tp": grid.reshape(-1, t),
            "dp": grid.transpose(0, 2, 1).reshape(-1, d),
            "pp": grid.reshape(p, -1).T,
        }

    return coords, groups


@also_right("ranks are collected under their other two coordinates")
def by_collecting():
    def coords(rank, t, p, d):
        return {"tp": rank % t, "dp": rank // t % d, "pp": rank // t // d}

    def groups(t, p, d):
        found = {"tp": {}, "dp": {}, "pp": {}}
        for rank in range(t * p * d):
            own = coords(rank, t, p, d)
            for axis in found:
                key = tuple(own[other] for other in found if other != axis)
                found[axis].setdefault(key, []).append(rank)
        return {axis: list(lists.values()) for axis, lists in found.items()}

    return coords, groups


pipeline_before_replicas = slip(
    by_collecting,
    "PP runs before DP here: after TP comes DP, and stages are farthest apart.",
    ('"dp": rank // t % d, "pp": rank // t // d', '"pp": rank // t % p, "dp": rank // t // p'),
)
pipeline_fastest = slip(
    by_collecting,
    "PP runs fastest here: TP must, so that its ranks share a node.",
    (
        '"tp": rank % t, "dp": rank // t % d, "pp": rank // t // d',
        '"pp": rank % p, "dp": rank // p % d, "tp": rank // p // d',
    ),
)
replicas_fastest = slip(
    by_collecting,
    "DP runs fastest here: TP must, so that its ranks share a node.",
    (
        '"tp": rank % t, "dp": rank // t % d, "pp": rank // t // d',
        '"dp": rank % d, "tp": rank // d % t, "pp": rank // d // t',
    ),
)
names_swapped = slip(
    by_collecting,
    "TP and PP have changed places: the axis that runs fastest is TP.",
    (
        '"tp": rank % t, "dp": rank // t % d, "pp": rank // t // d',
        '"pp": rank % t, "dp": rank // t % d, "tp": rank // t // d',
    ),
)
no_quotient = slip(
    by_collecting,
    "DP moves on only after t ranks: divide the rank by t before taking the remainder.",
    ("rank // t % d", "rank % d"),
)
no_remainder = slip(
    by_collecting,
    "DP starts again with every stage: a place on the axis is below d.",
    ("rank // t % d", "rank // t"),
)
stage_of_one_replica = slip(
    by_collecting,
    "A stage holds the t ranks of every replica, t · d in all, not t.",
    ("rank // t // d", "rank // t"),
)
divided_by_p = slip(
    by_collecting,
    "A stage's ranks are t · d: divide by these, not by p.",
    ("rank // t // d", "rank // t // p"),
)
float_places = slip(
    by_collecting,
    "Places are whole numbers: divide with //.",
    ("rank // t // d", "rank / t // d"),
)
same_coordinate = slip(
    by_collecting,
    "These ranks agree on the axis; the ranks of a group differ on it, and agree on the other two.",
    ("for other in found if other != axis", "for other in found if other == axis"),
)
places_for_ranks = slip(
    by_collecting,
    "A group lists ranks of the whole run, not their places within the group.",
    (".append(rank)", ".append(own[axis])"),
)
nobody_alone = slip(
    by_collecting,
    "On an axis of size 1 every rank is a group by itself: list these as well.",
    ("list(lists.values())", "[ranks for ranks in lists.values() if len(ranks) > 1]"),
)
first_group_only = slip(
    by_collecting,
    "Only the first group of each axis is there: every rank is in one group of each.",
    ("list(lists.values())", "list(lists.values())[:1]"),
)
dp_of_replicas = slip(
    by_collecting,
    "A DP group here is whole replicas: it is the d ranks with the same place in TP and PP.",
    ("if other != axis", "if (other == axis) == (axis == 'dp')"),
)
pp_of_stages = slip(
    by_collecting,
    "A PP group here is all ranks of a stage: it is one rank of each stage.",
    ("if other != axis", "if (other == axis) == (axis == 'pp')"),
)


@wrong(
    "Groups overlap here, a rank is in several of one axis: a new one begins after the last ends."
)
def windows():
    def coords(rank, t, p, d):
        return {"tp": rank % t, "dp": rank // t % d, "pp": rank // t // d}

    def groups(t, p, d):
        n = t * p * d
        tp = [list(range(first, first + t)) for first in range(n - t + 1)]
        dp = [list(range(first, first + t * d, t)) for first in range(n - t * (d - 1))]
        pp = [list(range(first, n, t * d)) for first in range(t * d)]
        return {"tp": tp, "dp": dp, "pp": pp}

    return coords, groups


@wrong("DP groups here are neighbouring ranks: those of one TP group hold different shards.")
def blocks():
    def coords(rank, t, p, d):
        return {"tp": rank % t, "dp": rank // t % d, "pp": rank // t // d}

    def groups(t, p, d):
        n = t * p * d
        sizes = {"tp": t, "dp": d, "pp": p}
        return {
            axis: [list(range(first, first + k)) for first in range(0, n, k)]
            for axis, k in sizes.items()
        }

    return coords, groups


_VIEW = "a view of a dict's values is as good as a list"
_ORDER = "the groups of an axis may stand in any order, and so may the axes"
EQUIVALENT = {
    "groups: list(members.values()) -> members.values()": _VIEW,
    "by_collecting groups: list(lists.values()) -> lists.values()": _VIEW,
    "by_neighbours groups.together: ('tp', 'dp', 'pp') -> ('dp', 'pp', 'tp')": _ORDER,
    "by_neighbours groups.together: list(found) -> found": "a set of groups is as good as a list",
    "by_neighbours groups: ('tp', 'dp', 'pp') -> ('dp', 'pp', 'tp')": _ORDER,
    "by_array groups: 1 -> 2": "reshape finds the size for any negative number",
    "by_array groups: grid.transpose(0, 2, 1) -> grid.transpose(2, 0, 1)": _ORDER,
}
