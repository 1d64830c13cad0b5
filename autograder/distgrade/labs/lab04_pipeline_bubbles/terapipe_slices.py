"""Slices of tokens that leave a pipeline soonest: `terapipe_slices(tokens, p, time) -> lengths`.

`time(start, length)` is what each of p equal stages takes for the slice of `length` tokens that
begins at token `start`; it may be any number of 0 or more. Slices that take t_1, t_2, ... leave the
pipeline after sum(t) + (p-1) max(t). Lengths are whole, 1 or more, and add up to `tokens`; any cut
of the least time is right. `time` may be asked tokens^4 times, far more than all slices, far less
than all cuts. Times are whole numbers, so sums are exact.
Source: Li et al. 2021 (arXiv:2102.07988), section 3.3. Oracle: all pairs (sum, max) of a prefix
that no other pair beats in both, front by front.
"""

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("terapipe_slices",)
FORBID = ("distlab.schedule.slices.best_slices", "distlab.schedule.slices._least_sum")
TOLERANCE = Exact(why="whole units of time: every sum is exact")
CREDIT = {"even cost": 1, "attention": 3, "any times": 2}
# In "cost", a slice takes fixed + each per token + pair per pair of a token and one it looks at.
CASES = (
    Case("one token", "even cost", tokens=1, p=3, cost=(4, 3, 0)),
    Case("a dear start of each slice", "even cost", tokens=8, p=4, cost=(40, 3, 0)),
    Case("ten tokens", "even cost", tokens=10, p=4, cost=(2, 3, 0)),
    Case("one stage", "attention", tokens=6, p=1, cost=(4, 3, 1)),
    Case("two stages", "attention", tokens=7, p=2, cost=(4, 3, 1)),
    Case("five stages", "attention", tokens=9, p=5, cost=(7, 2, 3)),
    Case("24 tokens", "attention", tokens=24, p=8, cost=(9, 2, 1)),
    Case("random times, three stages", "any times", tokens=7, p=3),
    Case("random times, four stages", "any times", tokens=9, p=4),
    Case("random times, eight stages", "any times", tokens=8, p=8),
    Case("random times, a longer sequence", "any times", tokens=11, p=5),
)


def given(case, seed):
    import random

    random = random.Random(f"terapipe {case.name} {seed}")
    fixed, each, pair = getattr(case, "cost", (0, 0, 0))
    if seed:  # fresh seeds grade other costs
        fixed, each, pair = fixed + random.randint(0, 9), each + random.randint(0, 3), pair
    rows = []
    for start in range(case.tokens):
        row = []
        for length in range(1, case.tokens - start + 1):
            pairs = length * start + length * (length + 1) // 2
            row.append(fixed + each * length + pair * pairs)
            if not hasattr(case, "cost"):
                row[-1] = random.randint(1, 30) + 6 * length
        rows.append(row)
    return {"tokens": case.tokens, "p": case.p, "times": rows}


def observe(student, given):
    from operator import index

    import torch

    tokens, asked, most = given["tokens"], [0], 100 + given["tokens"] ** 4

    def time(start, length):
        asked[0] += 1
        if asked[0] > most:
            raise RuntimeError(f"time was asked {most:,} times; {tokens} tokens have few slices")
        if start < 0 or length < 1 or start + length > tokens:
            raise ValueError(f"time({start}, {length}) is no slice of {tokens} tokens")
        return given["times"][start][length - 1]

    slices = student.terapipe_slices(tokens, given["p"], time)
    try:
        return {"slices": torch.tensor([index(length) for length in slices], dtype=torch.int64)}
    except TypeError:
        raise TypeError("the answer should be a list of whole numbers of tokens") from None


def oracle(case, given):
    import torch

    tokens, p, times = given["tokens"], given["p"], given["times"]
    fronts = [[(0, 0)]]
    for end in range(1, tokens + 1):
        pairs = {
            (total + times[start][end - start - 1], max(longest, times[start][end - start - 1]))
            for start in range(end)
            for total, longest in fronts[start]
        }
        front = []
        for total, longest in sorted(pairs):
            if not front or longest < front[-1][1]:
                front.append((total, longest))
        fronts.append(front)
    best = min(total + (p - 1) * longest for total, longest in fronts[-1])
    return {"slices": torch.tensor([best, *(t for row in times for t in row)])}


def judge(got, expected, case):
    what = f"terapipe_slices({case.tokens}, {case.p}, time)"
    slices = got["slices"].tolist()
    best, *flat = expected["slices"].tolist()
    if any(length < 1 for length in slices):
        seen = "a slice of no token, or of less"
        return [
            Symptom("values", what, seen, "Each slice has a whole number of tokens, 1 or more.")
        ]
    if sum(slices) != case.tokens:
        seen = f"slices of {sum(slices)} tokens in all, not {case.tokens}"
        return [Symptom("values", what, seen, "Return how long the slices are, first to last.")]
    times, start = [], 0
    for length in slices:
        row = start * case.tokens - start * (start - 1) // 2  # where its times begin
        times.append(flat[row + length - 1])
        start += length
    latency = sum(times) + (case.p - 1) * max(times)
    if latency > best:
        seen = f"the cut into {len(times)} leaves after {latency / best:.4g} times the least time"
        look = "Let no slice take longer than some cap: which is the least sum? Then try all caps."
        return [Symptom("values", what, seen, look)]
    return []


@also_right("for each longest slice the least sum of a prefix, with its lengths")
def by_longest():
    def terapipe_slices(tokens, p, time):
        prefixes = [{0: (0, ())}]  # of the first 0, 1, ... tokens
        for end in range(1, tokens + 1):
            ways = {}
            for start in range(end):
                t = time(start, end - start)
                for longest, (total, lengths) in prefixes[start].items():
                    way = total + t, (*lengths, end - start)
                    longest = max(longest, t)
                    ways[longest] = min(way, ways.get(longest, way))
            prefixes.append(ways)
        ways = prefixes[tokens].items()
        return min(ways, key=lambda way: way[1][0] + (p - 1) * way[0])[1][1]

    return terapipe_slices


@also_right("from the end, remembered, under each cap")
def by_rests():
    from functools import cache

    def terapipe_slices(tokens, p, time):
        def under(cap):
            @cache
            def rest(start):
                ways = [(float("inf"), ())] if start < tokens else [(0, ())]
                for length in range(1, tokens - start + 1):
                    t = time(start, length)
                    if t <= cap:
                        total, lengths = rest(start + length)
                        ways.append((t + total, (length, *lengths)))
                return min(ways)

            total, lengths = rest(0)
            return total + (p - 1) * cap, lengths

        caps = [time(s, n) for s in range(tokens) for n in range(1, tokens - s + 1)]
        _, lengths = min(map(under, caps))
        return lengths

    return terapipe_slices


@wrong("One slice is no pipeline: while a stage works on it, all others wait.")
def whole_sequence():
    def terapipe_slices(tokens, p, time):
        return [tokens]

    return terapipe_slices


@wrong("Slices of one token have the smallest bubble, but each slice has a price of its own.")
def token_by_token():
    def terapipe_slices(tokens, p, time):
        return [1] * tokens

    return terapipe_slices


@wrong(
    "The best equal slices: later tokens look at more tokens, so later slices should be shorter."
)
def best_equal():
    def terapipe_slices(tokens, p, time):
        ways = []
        for length in range(1, tokens + 1):
            lengths = [length] * (tokens // length)
            if tokens % length:
                lengths.append(tokens % length)
            times = [time(k * length, n) for k, n in enumerate(lengths)]
            ways.append((sum(times) + (p - 1) * max(times), lengths))
        return min(ways)[1]

    return terapipe_slices


@wrong("A prefix that leaves soonest need not begin the best cut: a longer slice may come anyway.")
def best_prefixes():
    def terapipe_slices(tokens, p, time):
        best = [(0, 0, 0, [])]
        for end in range(1, tokens + 1):
            ways = []
            for start in range(end):
                _, total, longest, lengths = best[start]
                t = time(start, end - start)
                total, longest = total + t, max(longest, t)
                ways.append((total + (p - 1) * longest, total, longest, [*lengths, end - start]))
            best.append(min(ways))
        return best[tokens][3]

    return terapipe_slices


@wrong(
    "The least sum of times leaves out the pipeline: (p - 1) times the longest slice comes on top."
)
def least_sum():
    def terapipe_slices(tokens, p, time):
        best = [(0, [])]
        for end in range(1, tokens + 1):
            ways = [
                (best[start][0] + time(start, end - start), [*best[start][1], end - start])
                for start in range(end)
            ]
            best.append(min(ways))
        return best[tokens][1]

    return terapipe_slices


@wrong("The shortest longest slice leaves out the sum: each slice more has a price.")
def least_longest():
    def terapipe_slices(tokens, p, time):
        best = [(0, [])]
        for end in range(1, tokens + 1):
            ways = [
                (max(best[start][0], time(start, end - start)), [*best[start][1], end - start])
                for start in range(end)
            ]
            best.append(min(ways))
        return best[tokens][1]

    return terapipe_slices


@wrong("Cut where each slice takes its share of the whole: even times, but not the best number.")
def even_times():
    def terapipe_slices(tokens, p, time):
        share, lengths, start = time(0, tokens) / p, [], 0
        for end in range(1, tokens + 1):
            if time(start, end - start) >= share or end == tokens:
                lengths.append(end - start)
                start = end
        return lengths

    return terapipe_slices


times_p = slip(
    by_longest,
    "The longest slice counts p - 1 times more, not p: once it is in the sum.",
    ("(p - 1)", "p"),
)
once_more = slip(
    by_longest,
    "The longest slice counts once more here: it comes on top once for each other stage.",
    ("(p - 1) * way[0]", "way[0]"),
)
every_slice_first = slip(
    by_longest,
    "A slice's time depends on where it starts: it looks at all tokens before it.",
    ("time(start, end - start)", "time(0, end - start)"),
)
turned_round = slip(
    by_longest,
    "These are the right lengths last to first: the first slice is the first one.",
    ("way[0])[1][1]", "way[0])[1][1][::-1]"),
)
cut_points = slip(
    by_longest,
    "These are the ends of the slices: return how long each one is.",
    ("(*lengths, end - start)", "(*lengths, end)"),
)
last_left_out = slip(
    by_longest,
    "The last slice is missing: the lengths add up to all tokens.",
    ("way[0])[1][1]", "way[0])[1][1][:-1]"),
)

_ALIKE = "all cuts begin with the same sum, and no slice is as short as that"
_ORDER = "max and min don't care for the order of their arguments"
EQUIVALENT = {
    "terapipe_slices: 0 -> 1": _ALIKE,
    "terapipe_slices: 0 -> -1": _ALIKE,
    "terapipe_slices: set(times.values()) -> times.values()": "a cap tried twice changes nothing",
    "by_longest terapipe_slices: max(longest, t) -> max(t, longest)": _ORDER,
    "by_longest terapipe_slices: min(way, ways.get(longest, way))"
    " -> min(ways.get(longest, way), way)": _ORDER,
    "by_rests terapipe_slices.under.rest: 0 -> 1": _ALIKE,
    "by_rests terapipe_slices.under.rest: 0 -> -1": _ALIKE,
}
