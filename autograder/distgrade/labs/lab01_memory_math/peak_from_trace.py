"""Memory over a trace of storages: `resident_bytes(events, before)`, `peak_from_trace(...)`.

`before` is {storage: bytes} of what is there at first; an event is (kind, storage, bytes), kind
"allocate", "view" or "free". `resident_bytes` lists the bytes that are there at first and after
each event (one number more than events), `peak_from_trace` the most of them. A view adds nothing;
a number may come back for another storage. Units: bytes. Source: PyTorch, "Understanding CUDA
Memory Usage" (allocations and frees in a trace).
Oracle: each storage's life is found first, as a span of events; bytes are then added up column by
column.
"""

from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("resident_bytes", "peak_from_trace")
FORBID = ()
TOLERANCE = Exact(why="whole numbers of bytes")
CREDIT = {"frees": 1, "views": 1, "numbers that come back": 1, "there at first": 1}
# a: allocate, v: view, f: free; then the storage's number and its bytes.
CASES = (
    Case("a peak in the middle", "frees", before={}, trace="a0 70, a1 50, f0 70, a2 40, f1 50"),
    Case("a peak at the end", "frees", before={}, trace="a0 30, a1 90, f1 90, a2 40, a3 80"),
    Case(
        "frees before, frees after", "frees", before={}, trace="a0 9, a1 8, f1 8, a2 7, f0 9, f2 7"
    ),
    Case("a smaller storage last", "frees", before={}, trace="a0 60, a1 25, f0 60, f1 25, a2 11"),
    Case("halves", "views", before={}, trace="a0 80, v0 40, v0 40, a1 30, v1 30, f0 80, a2 20"),
    Case("views of weights", "views", before={4: 90}, trace="v4 90, a0 10, v4 45, f0 10, a1 15"),
    Case("a view, then nothing", "views", before={}, trace="a3 64, v3 16, f3 64"),
    Case(
        "another storage",
        "numbers that come back",
        before={},
        trace="a0 20, a1 10, f0 20, a0 75, v0 25, f1 10, a1 30, f0 75, f1 30",
    ),
    Case("the same size", "numbers that come back", before={}, trace="a5 33, f5 33, a5 33, a2 44"),
    Case("a weight's number", "numbers that come back", before={0: 50}, trace="f0 50, a0 70, a1 6"),
    Case("weights stay", "there at first", before={0: 100, 7: 60}, trace="a1 30, a2 50, f1 30"),
    Case("weights go", "there at first", before={0: 45, 1: 85}, trace="a2 20, f1 85, a3 35, f0 45"),
    Case("most at first", "there at first", before={2: 300, 3: 5}, trace="f2 300, a0 200, f0 200"),
    Case("nothing happens", "there at first", before={1: 12, 2: 13}, trace=""),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: all of them some times as large.
    times = int(integers((1,), "peak", case.name, seed, low=2, high=9_999)[0]) if seed else 1
    kinds = {"a": "allocate", "v": "view", "f": "free"}
    events = []
    for text in case.trace.split(", ") if case.trace else []:
        name, size = text.split()
        events.append([kinds[name[0]], int(name[1:]), times * int(size)])
    before = [[storage, times * size] for storage, size in case.before.items()]
    return {"before": before, "events": events}


def observe(student, given):
    from distlab.storages import Event

    def plain(answer):
        if hasattr(answer, "tolist"):  # of numpy or torch
            answer = answer.tolist()
        if isinstance(answer, list | tuple):
            return [plain(number) for number in answer]
        return int(answer) if type(answer) is float and answer.is_integer() else answer

    # The same objects for both: what the first function changes, the second one meets.
    events, before = [Event(*event) for event in given["events"]], dict(given["before"])
    curve = plain(student.resident_bytes(events, before))
    return {"after each event": curve, "peak": plain(student.peak_from_trace(events, before))}


def oracle(case, given):
    end = len(given["events"]) + 1
    spans = [[storage, size, 0, end] for storage, size in given["before"]]
    for at, (kind, storage, size) in enumerate(given["events"], start=1):
        if kind == "allocate":
            spans.append([storage, size, at, end])
        elif kind == "free":
            (span,) = (s for s in spans if s[0] == storage and s[3] == end)
            span[3] = at
    curve = [sum(size for _, size, born, gone in spans if born <= at < gone) for at in range(end)]
    return {"after each event": curve, "peak": sorted(curve)[-1]}


@also_right("a dictionary of what is there, added up after each event")
def by_dictionary():
    def resident_bytes(events, before):
        there = dict(before)
        curve = [sum(there.values())]
        for kind, storage, size_bytes in events:
            if kind == "allocate":
                there[storage] = size_bytes
            if kind == "free":
                del there[storage]
            curve.append(sum(there.values()))
        return curve

    def peak_from_trace(events, before):
        return max(resident_bytes(events, before))

    return resident_bytes, peak_from_trace


@also_right("signed changes, accumulated; the peak in a pass of its own")
def by_changes():
    from itertools import accumulate

    def resident_bytes(events, before):
        signs = {"allocate": 1, "view": 0, "free": -1}
        changes = [signs[event.kind] * event.size_bytes for event in events]
        return list(accumulate(changes, initial=sum(before.values())))

    def peak_from_trace(events, before):
        now = most = sum(before.values())
        for kind, _, size_bytes in events:
            if kind == "allocate":
                now += size_bytes
            elif kind == "free":
                now -= size_bytes
            most = max(most, now)
        return most

    return resident_bytes, peak_from_trace


never_freed = slip(
    by_dictionary,
    "What is freed is gone: its bytes are subtracted, and others can have them.",
    ("del there[storage]", 'there[storage, "freed"] = there.pop(storage)'),
)
views_allocate = slip(
    by_changes,
    "A view lies in a storage that is there already: it adds nothing.",
    ('"view": 0', '"view": 1'),
    ('if kind == "allocate"', 'if kind in ("allocate", "view")'),
)
views_in_place_of_storages = slip(
    by_dictionary,
    "A view's bytes are a part of its storage: they don't take the place of its size.",
    ('if kind == "allocate"', 'if kind in ("allocate", "view")'),
)
each_number_once = slip(
    by_dictionary,
    "A number that was freed may come back: that is another storage, and it counts.",
    ("there[storage] = size_bytes", "there[storage] = size_bytes if storage not in seen else 0"),
    ("there = dict(before)", "there, seen = dict(before), set(before)"),
    ("curve.append", "seen.add(storage)\n        curve.append"),
)
first_size_again = slip(
    by_dictionary,
    "A number that comes back may have another size: take the size of its own event.",
    ("there[storage] = size_bytes", "there[storage] = sizes.setdefault(storage, size_bytes)"),
    ("there = dict(before)", "there, sizes = dict(before), dict(before)"),
)
started_empty = slip(
    by_changes,
    "What was there before counts from the start: weights, inputs.",
    ("initial=sum(before.values())", "initial=0"),
    ("most = sum(before.values())", "most = 0"),
)
before_never_goes = slip(
    by_dictionary,
    "What was there before may go as well: subtract it when it is freed.",
    ("del there[storage]", "there[storage] = before.get(storage, 0)"),
)
changed_before = slip(
    by_dictionary,
    "`before` belongs to the caller: work on a copy, or the next call starts from the end.",
    ("dict(before)", "before"),
)
not_the_start = slip(
    by_dictionary,
    "The first number is what is there before any event: one number more than events.",
    ("return curve", "return curve[1:]"),
    (
        "max(resident_bytes(events, before))",
        "max([sum(before.values()), *resident_bytes(events, before)])",
    ),
)
last_left_out = slip(
    by_dictionary,
    "The last event counts too: one number after each event.",
    ("return curve", "return curve[:-1] or curve"),
)
peak_at_the_end = slip(
    by_dictionary,
    "The peak is the most that was ever there, not what is left at the end.",
    ("max(resident_bytes(events, before))", "resident_bytes(events, before)[-1]"),
)
peak_above_the_start = slip(
    by_dictionary,
    "The peak is all that is there, not what was added to the start.",
    (
        "max(resident_bytes(events, before))",
        "max(resident_bytes(events, before)) - sum(before.values())",
    ),
)
peak_without_the_start = slip(
    by_dictionary,
    "The most may be there before anything happens: the start counts for the peak.",
    (
        "max(resident_bytes(events, before))",
        "max(resident_bytes(events, before)[1:], default=sum(before.values()))",
    ),
)
peak_after_frees = slip(
    by_changes,
    "A peak stands before a free: look after every event, not only after frees.",
    ("        most = max(most, now)", "            most = max(most, now)"),
)
largest_storage = slip(
    by_dictionary,
    "The peak is all that is there at once, not the largest storage.",
    (
        "max(resident_bytes(events, before))",
        "max([*before.values(), *(size for kind, _, size in events)])",
    ),
)
all_allocations = slip(
    by_changes,
    "Not all of it is there at once: the peak is less than the sum of all allocations.",
    ("now -= size_bytes", "pass"),
)


@wrong("The bytes after an event have that event in them: the curve lags one event behind.")
def one_event_late():
    def resident_bytes(events, before):
        now = sum(before.values())
        curve = [now]
        for kind, _, size_bytes in events:
            curve.append(now)
            if kind == "allocate":
                now += size_bytes
            elif kind == "free":
                now -= size_bytes
        return curve

    def peak_from_trace(events, before):
        return max(resident_bytes(events, before))

    return resident_bytes, peak_from_trace


@wrong("`free` comes when no tensor looks at the storage any more: it goes as a whole.")
def views_hold():
    def resident_bytes(events, before):
        there, holders = dict(before), dict.fromkeys(before, 1)
        curve = [sum(there.values())]
        for kind, storage, size_bytes in events:
            if kind == "allocate":
                there[storage], holders[storage] = size_bytes, 1
            elif kind == "view":
                holders[storage] += 1
            else:
                holders[storage] -= 1
                if not holders[storage]:
                    del there[storage]
            curve.append(sum(there.values()))
        return curve

    def peak_from_trace(events, before):
        return max(resident_bytes(events, before))

    return resident_bytes, peak_from_trace


EQUIVALENT = {
    "by_changes peak_from_trace: max(most, now) -> max(now, most)": (
        "max takes its arguments in any order"
    ),
}
