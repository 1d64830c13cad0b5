"""Two measures of a timeline: `bubble_fraction(timeline)` and `peak_in_flight(timeline)`.

A timeline is one list of (op, start, end) per stage, in the stage's order, from time 0 on. The
bubble fraction is the idle time of all p stages between 0 and the makespan T (the end of the last
op of all), over p * T. In flight on a stage is what has begun F and not ended B; a B that ends when
an F begins makes room for it. Ops are (kind, microbatch) or (kind, microbatch, chunk); with chunks
each pair of microbatch and chunk counts.
Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2, whose "bubble fraction" is idle time
over *ideal* time instead. Oracle: time is cut at all starts and ends, and each piece looked at.
"""

from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("bubble_fraction", "peak_in_flight")
FORBID = ("distlab.schedule.replay.simulate",)
TOLERANCE = Close(1e-6, "a share: sums of rounded shares are right, and so is single precision")
CREDIT = {"bubble": 2, "in flight": 3}
CASES = (
    # Not one stage: its fraction is 0, and a sum of rounded shares may miss it by 1e-16.
    Case("five stages, one microbatch", "bubble", bubble=True, orders=["F0 B0"] * 5),
    Case("four stages", "bubble", bubble=True, orders=["F0 F1 F2 B0 B1 B2"] * 4),
    Case("a slow link", "bubble", bubble=True, delay=True, orders=["F0 F1 B0 B1", "F0 B0 F1 B1"]),
    Case(
        "three stages in turns",
        "bubble",
        bubble=True,
        delay=True,
        orders=[
            "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
        ],
    ),
    Case("one stage", "in flight", orders=["F0 F1 B1 F2 F3 B3 B2 B0"]),
    Case(
        "as the last B comes, so it goes",
        "in flight",
        orders=["F0 F1 F2 B2 F3 B3 B1 B0", "F0 F1 F2 B2 F3 B3 B1 B0"],
    ),
    Case(
        "each stage another peak",
        "in flight",
        orders=[
            "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4",
            "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
        ],
    ),
    Case(
        "two chunks",
        "in flight",
        delay=True,
        orders=[
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0",
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0",
        ],
    ),
)


def given(case, seed):
    import random

    from distlab import schedule

    def op(word):
        i, _, chunk = word[1:].partition(".")
        return (word[0], int(i), int(chunk)) if chunk else (word[0], int(i))

    random = random.Random(f"measures {case.name} {seed}")
    orders = [[op(word) for word in line.split()] for line in case.orders]
    forward, backward = ([random.randint(2, 9) for _ in orders] for _ in "FB")
    delay = random.randint(2, 5) if getattr(case, "delay", False) else 0
    line = schedule.simulate(orders, forward=forward, backward=backward, delay=delay)
    spans = [line.of(stage) for stage in range(len(orders))]
    timeline = [
        [(op, span.start, span.end) for op, span in zip(order, row, strict=True)]
        for order, row in zip(orders, spans, strict=True)
    ]
    return {"timeline": timeline, "bubble": getattr(case, "bubble", False)}


def observe(student, given):
    timeline = [list(row) for row in given["timeline"]]
    if given["bubble"]:
        share = student.bubble_fraction(timeline)
        tree = {"bubble fraction": share.item() if hasattr(share, "item") else share}
    else:
        peaks = student.peak_in_flight(timeline)
        peaks = peaks.tolist() if hasattr(peaks, "tolist") else peaks
        if isinstance(peaks, (list, tuple)) and all(hasattr(n, "__index__") for n in peaks):
            peaks = [n.__index__() for n in peaks]
        tree = {"peak in flight": peaks}
    return tree | {"timeline was changed": timeline != given["timeline"]}


def oracle(case, given):
    from itertools import pairwise

    rows = given["timeline"]
    times = sorted({0} | {time for row in rows for _, *span in row for time in span})
    pieces = list(pairwise(times))
    if given["bubble"]:
        idle = sum(
            after - before
            for row in rows
            for before, after in pieces
            if not any(start <= before and after <= end for _, start, end in row)
        )
        answer = {"bubble fraction": idle / (len(rows) * times[-1])}
    else:
        held = []
        for row in rows:
            begun = {op[1:]: start for op, start, _ in row if op[0] == "F"}
            ended = {op[1:]: end for op, _, end in row if op[0] == "B"}
            held.append([sum(begun[k] <= a and b <= ended[k] for k in begun) for a, b in pieces])
        answer = {"peak in flight": list(map(max, held))}
    return answer | {"timeline was changed": False}


@also_right("busy time taken from all time; what is begun less what is ended, op by op")
def by_difference():
    def bubble_fraction(timeline):
        makespan = max(end for row in timeline for _, _, end in row)
        busy = sum(end - start for row in timeline for _, start, end in row)
        return 1 - busy / (len(timeline) * makespan)

    def peak_in_flight(timeline):
        peaks = []
        for row in timeline:
            held, peak = 0, 0
            for op, _, _ in row:
                held += 1 if op[0] == "F" else -1
                peak = max(peak, held)
            peaks.append(peak)
        return peaks

    return bubble_fraction, peak_in_flight


@also_right("gap by gap; running sums, whose largest is the peak")
def by_gaps():
    def bubble_fraction(timeline):
        makespan = max(row[-1][2] for row in timeline)
        idle = 0
        for row in timeline:
            before = 0
            for _, start, end in row:
                idle += start - before
                before = end
            idle += makespan - before
        return idle / makespan / len(timeline)

    def peak_in_flight(timeline):
        from itertools import accumulate

        return [
            max(accumulate((kind == "F") - (kind == "B") for (kind, *_), _, _ in row))
            for row in timeline
        ]

    return bubble_fraction, peak_in_flight


@also_right("the mean of the stages' fractions; counted anew when each F begins")
def stage_by_stage():
    def bubble_fraction(timeline):
        last = max(span[2] for row in timeline for span in row)
        parts = [sum(end - start for _, start, end in row) / last for row in timeline]
        return sum(1 - part for part in parts) / len(parts)

    def peak_in_flight(timeline):
        peaks = []
        for row in timeline:
            begins = [start for op, start, _ in row if op[0] == "F"]
            ends = [end for op, _, end in row if op[0] == "B"]
            peaks.append(
                max(sum(b <= now for b in begins) - sum(e <= now for e in ends) for now in begins)
            )
        return peaks

    return bubble_fraction, peak_in_flight


ratio = slip(
    by_difference,
    "This is the bubble *ratio*, idle over busy time: the fraction is idle time over all time.",
    (
        "return 1 - busy / (len(timeline) * makespan)",
        "return len(timeline) * makespan / busy - 1",
    ),
)
closed_form = slip(
    by_difference,
    "The closed form (p-1)/(m+p-1) holds for equal stages and no p2p: measure the timeline.",
    (
        "return 1 - busy / (len(timeline) * makespan)",
        "return (len(timeline) - 1) / (len(timeline[0]) / 2 + len(timeline) - 1)",
    ),
)
m_plus_p = slip(
    by_difference,
    "(p-1)/(m+p) is no bubble of any order; and stages may differ: measure the timeline.",
    (
        "return 1 - busy / (len(timeline) * makespan)",
        "return (len(timeline) - 1) / (len(timeline[0]) / 2 + len(timeline))",
    ),
)
stage_0_only = slip(
    by_difference,
    "Only stage 0 is measured: the bubble is the idle time of all stages.",
    ("for row in timeline for _, start, end in row)\n", "for _, start, end in timeline[0])\n"),
    ("len(timeline) * makespan", "makespan"),
)
each_to_its_own_end = slip(
    by_gaps,
    "Each stage is measured to the end of its own last op: all of them wait for the step's end.",
    (
        "makespan = max(row[-1][2] for row in timeline)",
        "makespan = sum(r[-1][2] for r in timeline)",
    ),
    ("idle += makespan - before", "pass"),
    ("return idle / makespan / len(timeline)", "return idle / makespan"),
)
between_ops_alone = slip(
    by_gaps,
    "Only gaps between ops are counted: a stage also waits before its first op and after its last.",
    ("before = 0\n", "before = row[0][1]\n"),
    ("idle += makespan - before", "pass"),
)
ends_alone = slip(
    by_gaps,
    "A stage is idle until the step ends, not only until its own last op ends.",
    ("idle += makespan - before", "pass"),
)
inside_left_out = slip(
    by_gaps,
    "A stage that waits between two ops is idle too, for p2p as well: count the gaps inside.",
    ("idle += start - before", "idle += (start - before) * (before == 0)"),
)
per_stage_sum = slip(
    by_gaps,
    "p times too large: idle time of all stages is a share of p times the makespan.",
    ("return idle / makespan / len(timeline)", "return idle / makespan"),
)
idle_time = slip(
    by_gaps,
    "This is the idle time itself: return its share, a number from 0 to 1.",
    ("return idle / makespan / len(timeline)", "return idle"),
)
percent = slip(
    by_gaps,
    "The bubble fraction is a number from 0 to 1, not per cent.",
    ("return idle / makespan / len(timeline)", "return 100 * idle / makespan / len(timeline)"),
)
all_forward = slip(
    by_difference,
    "Every F counts for ever here: what has ended its B is no longer in flight.",
    ('held += 1 if op[0] == "F" else -1', 'held += op[0] == "F"'),
)
at_the_end = slip(
    by_difference,
    "What is in flight at the end is nothing: the peak is the largest count on the way.",
    ("peak = max(peak, held)", "peak = held"),
)
one_number = slip(
    by_difference,
    "peak_in_flight returns one number for each stage, in a list.",
    ("return peaks", "return max(peaks)"),
)
stage_0_for_all = slip(
    by_difference,
    "Stage 0's peak stands for all stages: count each stage's own ops.",
    ("return peaks", "return peaks[:1] * len(timeline)"),
)
two_parts_alone = slip(
    by_difference,
    "An op may have a third part, its chunk: take op[0] for the kind, and unpack no further.",
    ("for op, _, _ in row:", "for (kind, i), _, _ in row:"),
    ('op[0] == "F"', 'kind == "F"'),
)
ends_do_not_free = slip(
    stage_by_stage,
    "A B that ends just as an F begins makes room for it: the two don't count together.",
    ("sum(e <= now for e in ends)", "sum(e < now for e in ends)"),
)
first_run_only = slip(
    by_difference,
    "This counts the F before the first B: the peak may come later.",
    ("peaks.append(peak)", "peaks.append([op[0] for op, _, _ in row].index('B'))"),
)


@wrong("Microbatches are counted once for all chunks: what each chunk keeps counts.")
def chunks_together():
    def bubble_fraction(timeline):
        makespan = max(end for row in timeline for _, _, end in row)
        busy = sum(end - start for row in timeline for _, start, end in row)
        return 1 - busy / (len(timeline) * makespan)

    def peak_in_flight(timeline):
        peaks = []
        for row in timeline:
            held, peak = set(), 0
            for op, _, _ in row:
                (held.add if op[0] == "F" else held.discard)(op[1])
                peak = max(peak, len(held))
            peaks.append(peak)
        return peaks

    return bubble_fraction, peak_in_flight


EQUIVALENT = {
    "by_difference peak_in_flight: max(peak, held) -> max(held, peak)": (
        "max takes its arguments in any order"
    ),
}
