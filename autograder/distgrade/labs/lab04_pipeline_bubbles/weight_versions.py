"""Versions of the weights in PipeDream's pipeline with stashing: `weight_versions(p, m)`.

p stages, m microbatches in the whole training, no flush. Stage s runs p-1-s forward passes (m, if
there are no more), then F and B in turn, then the B that are left. Each B is followed by an update,
which makes the stage's next version; version 0 is the start. Returned is, stage by stage and
microbatch by microbatch, (forward, backward, newest): the versions that its forward and its
backward pass use, and the stage's newest one when B starts.
Source: Narayanan et al. 2019, PipeDream, sections 3.2 and 3.3. Oracle: the stage's ops replayed one
by one, with a counter of updates and a stash.
"""

from distgrade.compare import compare
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("weight_versions",)
FORBID = (
    "distlab.schedule.versions.double_buffered_versions",
    "distlab.schedule.versions.newest_versions",
    "distlab.schedule.versions.stashed_versions",
    "distlab.schedule.versions.synced_versions",
)
TOLERANCE = Exact(why="versions are whole numbers")
CREDIT = {"many": 2, "few": 1}
CASES = (
    Case("one stage", "many", p=1, m=3),
    Case("two stages", "many", p=2, m=5),
    Case("three stages", "many", p=3, m=7),
    Case("four stages, nine microbatches", "many", p=4, m=9),
    Case("five stages, two microbatches", "few", p=5, m=2),
    Case("four stages, three microbatches", "few", p=4, m=3),
)


def given(case, seed):
    return {"p": case.p, "m": case.m}


def observe(student, given):
    import torch

    lists, m = (list, tuple), given["m"]
    table = student.weight_versions(given["p"], m)
    if not isinstance(table, lists) or len(table) != given["p"]:
        raise TypeError("the answer should be a list with one list per stage")
    tree = {}
    for stage, row in enumerate(table):
        if not isinstance(row, lists) or len(row) != m:
            count = len(row) if isinstance(row, lists) else "no"
            raise TypeError(f"stage {stage} has {count} entries for {m} microbatches")
        if not all(isinstance(entry, lists) and len(entry) == 3 for entry in row):
            raise TypeError(f"stage {stage}'s entries should be (forward, backward, newest)")
        for name, column in zip(
            ("forward", "backward", "newest"), zip(*row, strict=True), strict=True
        ):
            if any(type(version) is bool or version != int(version) for version in column):
                raise TypeError(f"stage {stage}'s versions should be whole numbers")
            tree[f"{name} on stage {stage}"] = torch.tensor([int(v) for v in column])
    return tree


def oracle(case, given):
    import torch

    p, m, tree = given["p"], given["m"], {}
    for stage in range(p):
        todo, held = list(range(m)), []
        updates, stash, newest = 0, {}, {}
        while len(newest) < m:
            # A stage runs ahead while it may: p - stage microbatches in flight at most.
            if todo and len(held) < p - stage:
                held.append(todo.pop(0))
                stash[held[-1]] = updates
            else:
                newest[held.pop(0)] = updates
                updates += 1
        used = torch.tensor([stash[i] for i in range(m)])
        tree[f"forward on stage {stage}"] = used
        tree[f"backward on stage {stage}"] = used.clone()
        tree[f"newest on stage {stage}"] = torch.tensor([newest[i] for i in range(m)])
    return tree


def judge(got, expected, case):
    return compare(got, expected, rtol=0.0)


@also_right("walks through the stage's order and counts its updates")
def by_replay():
    def weight_versions(p, m):
        table = []
        for stage in range(p):
            first = min(p - 1 - stage, m)
            order = [("F", i) for i in range(first)]
            for i in range(first, m):
                order += [("F", i), ("B", i - first)]
            order += [("B", i) for i in range(m - first, m)]
            updates, stash, rows = 0, {}, []
            for kind, i in order:
                if kind == "F":
                    stash[i] = updates
                else:
                    rows.append((stash[i], stash[i], updates))
                    updates += 1
            table.append(rows)
        return table

    return weight_versions


@also_right("a queue of the versions in flight, filled before the first backward pass")
def by_queue():
    from collections import deque

    def weight_versions(p, m):
        table = []
        for stage in range(p):
            flying = deque([0] * (p - 1 - stage))
            row = []
            for newest in range(m):
                flying.append(newest)
                used = flying.popleft()
                row.append([used, used, newest])
            table.append(row)
        return table

    return weight_versions


@also_right("the newest version, and from it the gap")
def by_gap():
    def weight_versions(p, m):
        def entry(stage, i):
            gap = min(i, p - 1 - stage)
            return i - gap, i - gap, i

        return [tuple(entry(stage, i) for i in range(m)) for stage in range(p)]

    return weight_versions


newest_in_backward = slip(
    by_gap,
    "Backward uses the newest weights here. The stash is there to use those of the forward pass.",
    ("return i - gap, i - gap, i", "return i - gap, i, i"),
)
vertical_sync = slip(
    by_gap,
    "The gap is that of stage 0 everywhere, as with vertical sync. Stashing: each stage its own.",
    ("p - 1 - stage", "p - 1"),
)
one_more = slip(
    by_gap,
    "The gap is one too large: stage s, counted from 0, has p-1-s updates between F and B.",
    ("p - 1 - stage", "p - stage"),
)
stages_reversed = slip(
    by_gap,
    "The stages are the wrong way round: stage 0 waits longest for its gradients.",
    ("p - 1 - stage", "stage"),
)
from_the_start = slip(
    by_gap,
    "The first microbatches get versions below 0: all that enter before an update use version 0.",
    ("min(i, p - 1 - stage)", "p - 1 - stage"),
)
below_the_start = slip(
    by_gap,
    "The first microbatches get versions below 0: version 0 is the start, nothing comes before it.",
    ("gap = min(i, p - 1 - stage)", "gap = min(m, p - 1 - stage)"),
)
counted_after_the_update = slip(
    by_gap,
    "newest is the version when B starts: the update that follows it is not made yet.",
    ("return i - gap, i - gap, i", "return i - gap, i - gap, i + 1"),
)
never_stale = slip(
    by_gap,
    "F uses the version of its own update here: earlier microbatches are still in flight then.",
    ("return i - gap, i - gap, i", "return i, i, i"),
)
double_buffered = slip(
    by_gap,
    "These are double-buffered weights, always one version back: stashing goes p-1-s back.",
    ("min(i, p - 1 - stage)", "min(i, 1)"),
)
flushed = slip(
    by_gap,
    "The weights never change here: without a flush, an update follows every backward pass.",
    ("return i - gap, i - gap, i", "return 0, 0, 0"),
)
fresh_forward_old_backward = slip(
    by_gap,
    "F and B are swapped: F uses the newest weights there are, and B goes back to the same.",
    ("return i - gap, i - gap, i", "return i, i - gap, i"),
)


@wrong(
    "The gap is p-1-s only when the pipeline is full: the first microbatches meet fewer updates."
)
def steady_from_the_start():
    def weight_versions(p, m):
        table = []
        for stage in range(p):
            gap = p - 1 - stage
            used = [max(0, i - gap) for i in range(m)]
            table.append([(version, version, version + gap) for version in used])
        return table

    return weight_versions


@wrong("One list per stage was asked for, with one entry per microbatch: here it is turned round.")
def by_microbatch():
    def weight_versions(p, m):
        return [[(max(0, i - p + 1 + stage),) * 2 + (i,) for stage in range(p)] for i in range(m)]

    return weight_versions


_ANY = "max and min take their arguments in any order"
EQUIVALENT = {
    "weight_versions: max(0, i - ahead) -> max(i - ahead, 0)": _ANY,
    "by_replay weight_versions: min(p - 1 - stage, m) -> min(m, p - 1 - stage)": _ANY,
    "by_gap weight_versions.entry: min(i, p - 1 - stage) -> min(p - 1 - stage, i)": _ANY,
}
