"""The schedule explorer: who runs what when in a pipeline, what stands idle, what is held.

What is simplified: all stages are alike, all microbatches too. With v chunks a rank has the same
work in v parts, each a v-th of a stage's time; a message takes the same delay however small. For
PipeDream, m counts the microbatches of the whole training; for all others, those of a step.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from distlab.canvas import COLOURS, MUTED
from distlab.explorers import svg
from distlab.explorers.frame import Control, Impossible, View, explorer, offers

# Lab 4 asks for orders: here they come from functions that those rooms forbid.

SCHEDULES = (
    "naive",
    "GPipe",
    "GPipe, recomputing",
    "1F1B",
    "interleaved 1F1B",
    "looped BFS",
    "ZB-H1",
    "ZB-H2",
    "PipeDream, no flush",
)
CHUNKED = ("interleaved 1F1B", "looped BFS")
SPLIT = ("ZB-H1", "ZB-H2")  # the weights' gradient is an op of its own
NO_FLUSH = "PipeDream, no flush"
RECOMPUTING = "GPipe, recomputing"


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """What a reader chooses. Times are a whole stage's, for one microbatch.

    `weight_grad` is the part of `backward` that the weights' gradient takes, where it is apart.
    """

    schedule: str = "1F1B"
    stages: int = 4
    microbatches: int = 8
    chunks: int = 2
    forward: float = 1
    backward: float = 2
    weight_grad: float = 1
    delay: float = 0


@dataclass(frozen=True)
class RankTimes:
    """One rank's ops (kind, microbatch, chunk) in its order, and when each starts and ends."""

    ops: tuple[tuple[str, int, int], ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]


@dataclass(frozen=True)
class ScheduleNumbers:
    """What the pipeline did.

    `work` is one rank's working time, `longest_span` the longest time from a rank's first start to
    its last end. `peaks` count whole stages' microbatches in flight, a chunk for its share.
    `versions` are the versions of its weights that a rank must keep, `sends` how often a
    microbatch goes from rank to rank, there and back.
    """

    ranks: tuple[RankTimes, ...]
    makespan: float
    work: float
    longest_span: float
    bubble_fraction: float
    bubble_ratio: float
    peaks: tuple[float, ...]
    versions: tuple[int, ...]
    sends: int


def schedule_numbers(settings: ScheduleSettings) -> ScheduleNumbers:
    """Returns when every op runs, and the measures of it.

    Raises: Impossible, with one sentence, for settings that can't be.
    """
    from distlab import schedule  # here, so that importing explorers brings no NumPy

    _check(settings)
    p, m, v = settings.stages, settings.microbatches, chunks_used(settings)
    orders = {
        "naive": lambda: schedule.naive(p, m),
        "GPipe": lambda: schedule.gpipe(p, m),
        RECOMPUTING: lambda: schedule.gpipe(p, m, recompute=True),
        "1F1B": lambda: schedule.one_f_one_b(p, m),
        "interleaved 1F1B": lambda: schedule.interleaved(p, m, v),
        "looped BFS": lambda: schedule.looped_bfs(p, m, v),
        "ZB-H1": lambda: schedule.zb_h1(p, m),
        "ZB-H2": lambda: schedule.zb_h2(p, m),
        NO_FLUSH: lambda: schedule.pipedream(p, m),
    }[settings.schedule]()
    line = schedule.simulate(
        orders,  # in v-ths of the unit of time, so that the sums stay exact
        forward=settings.forward,
        backward=settings.backward,
        weight_grad=settings.weight_grad if settings.schedule in SPLIT else 0,
        delay=settings.delay * v,
    )
    versions = (1,) * p
    if settings.schedule == NO_FLUSH:
        versions = schedule.stashed_versions(orders).kept
    return ScheduleNumbers(
        tuple(
            RankTimes(
                tuple(span.op for span in spans),
                tuple(span.start / v for span in spans),
                tuple(span.end / v for span in spans),
            )
            for spans in map(line.of, range(p))
        ),
        makespan=line.makespan / v,
        work=line.busy[0] / v,
        longest_span=line.longest_span / v,
        bubble_fraction=float(line.bubble_fraction),
        bubble_ratio=float(line.bubble_ratio),
        peaks=tuple(peak / v for peak in line.peak_in_flight),
        versions=versions,
        sends=2 * (p * v - 1) if p > 1 else 0,
    )


def chunks_used(settings: ScheduleSettings) -> int:
    """Returns how many chunks a rank has: 1 in schedules that know no chunks."""
    return settings.chunks if settings.schedule in CHUNKED else 1


def _check(settings: ScheduleSettings) -> None:
    p, m = settings.stages, settings.microbatches
    if settings.schedule not in SCHEDULES:
        raise Impossible(
            f"{settings.schedule!r} is no schedule here; there are {'; '.join(SCHEDULES)}."
        )
    for name in ("stages", "microbatches", "chunks"):
        if getattr(settings, name) < 1:
            raise Impossible(f"{name} is at least 1, not {getattr(settings, name)}.")
    for name in ("forward", "backward", "weight_grad"):
        if getattr(settings, name) <= 0:
            raise Impossible(f"{name} must be more than 0, not {getattr(settings, name)}.")
    if settings.delay < 0:
        raise Impossible(f"delay is 0 or more, not {settings.delay}.")
    if settings.schedule in SPLIT and settings.weight_grad > settings.backward:
        raise Impossible(
            f"The weights' gradient, {settings.weight_grad:g}, is a part of backward, which takes "
            f"only {settings.backward:g} in all. Choose a shorter one, or a longer backward."
        )
    if settings.schedule == "interleaved 1F1B" and settings.chunks > 1 and m % p:
        near = [f"{n}" for n in (m - m % p, m - m % p + p) if n]
        raise Impossible(
            f"Interleaving takes microbatches through the chunks in groups of p, and p = {p} does "
            f"not divide m = {m}. Choose {' or '.join(near)} microbatches, or looped BFS."
        )


# -- words ----------------------------------------------------------------------------------------


def schedule_view(settings: ScheduleSettings) -> View:
    """Returns the picture and its sentence."""
    numbers = schedule_numbers(settings)
    words = schedule_sentence(settings, numbers)
    return View(schedule_svg(settings, numbers, alt=words), words)


def schedule_sentence(settings: ScheduleSettings, numbers: ScheduleNumbers) -> str:
    """Returns in words how long it takes, what the bubble is, what is in flight."""
    m, again = settings.microbatches, settings.schedule == RECOMPUTING
    said = [
        f"{_count(m, 'microbatch', 'es')} on {_count(settings.stages, 'stage')} "
        f"take{'s' * (m == 1)} {short(numbers.makespan)}, of which "
        f"{percent(numbers.bubble_fraction)} is bubble, {percent(numbers.bubble_ratio)} of the "
        f"work{', forward again included' * again}."
    ]
    if settings.schedule == NO_FLUSH:
        said.append(
            "Without a flush that comes once, not every step; "
            f"rank 0 keeps {_count(numbers.versions[0], 'version')} of its weights."
        )
    if settings.schedule in SPLIT:
        said.append(
            f"From its first op to its last, no rank takes more than {short(numbers.longest_span)}."
        )
    if chunks_used(settings) > 1:
        once = 2 * (settings.stages - 1)
        said.append(f"A microbatch is sent {numbers.sends} times, not {once} as without chunks.")
    peaks = [short(peak) for peak in numbers.peaks]
    if len(set(peaks)) == 1 < len(peaks):
        peaks = [f"all {peaks[0]}"]
    elif len(peaks) > 8:
        peaks = [*peaks[:2], "…", *peaks[-2:]]
    inputs = ", all but one as inputs alone" if again and m > 1 else ""
    said.append(f"In flight at most, by rank: {', '.join(peaks)}{inputs}.")
    return " ".join(said)


def percent(share: float) -> str:
    """Returns a share in per cent with three digits: `percent(3 / 11)` is 27.3 and the sign."""
    number = 100 * share
    return f"{number:,.0f}\u00a0%" if number >= 1000 else f"{number:.3g}\u00a0%"


def short(time: float) -> str:
    """Returns a time with at most five digits: `short(33.0) == "33"`."""
    return f"{time:,.0f}" if time >= 1e4 else f"{time:,.5g}"


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"


# -- the picture ----------------------------------------------------------------------------------

_WIDTH, _LEFT, _RIGHT, _PANEL, _TOP = 680, 58, 540, 562, 72
_NARROW = 2.5  # where a bar is narrower, none has an outline
_ROLES = {"F": "activations", "R": "activations", "B": "gradients", "W": "weights"}


def schedule_svg(settings: ScheduleSettings, numbers: ScheduleNumbers, *, alt: str) -> str:
    """Returns the schedule over time, a row per rank, and beside it what each rank holds."""
    p = settings.stages
    lane = max(18, min(40, 240 // p))
    foot = _TOP + p * lane
    scale = (_RIGHT - _LEFT) / numbers.makespan

    def x(time: float) -> float:
        return _LEFT + time * scale

    chunks = chunks_used(settings)
    name = settings.schedule + (f", {_count(chunks, 'chunk')} a rank" if chunks > 1 else "")
    title = f"{name}: {short(numbers.makespan)}, {percent(numbers.bubble_fraction)} bubble"
    parts = [svg.text(_LEFT, 20, title, size=14, bold=True), *_key(settings)]
    for mark in svg.ticks(numbers.makespan, 8):
        parts.append(svg.grid(x(mark), _TOP, x(mark), foot + 4))
        parts.append(svg.text(x(mark), foot + 18, f"{mark:,.6g}", anchor="middle", colour=MUTED))
    parts.append(svg.text(_RIGHT, foot + 34, "time", anchor="end", colour=MUTED))
    end = x(numbers.work)
    parts.append(svg.dashed(end, _TOP - 4, end, foot + 4))
    parts += _lanes(numbers, lane, x, chunks)
    for rank in range(p):
        middle = _TOP + (rank + 0.5) * lane + 4
        parts.append(svg.text(_LEFT - 8, middle, f"rank {rank}", anchor="end", colour=MUTED))
    told = f"work of a rank: {short(numbers.work)}"
    left = end < (_LEFT + _RIGHT) / 2
    parts.append(svg.text(end, _TOP - 9, told, anchor="start" if left else "end", size=11))
    parts += _held(settings, numbers, lane)
    return svg.document(_WIDTH, foot + 42, alt, parts)


def _key(settings: ScheduleSettings) -> list[str]:
    names = {"F": "forward", "B": "backward"}
    if settings.schedule == RECOMPUTING:
        names["R"] = "forward again"
    if settings.schedule in SPLIT:
        names |= {"B": "input gradient", "W": "weight gradient"}
    parts, x = [], float(_LEFT)
    for kind, name in names.items():
        parts += [svg.bars([(x, x + 10)], 32, 10, *_look(kind, 0, 1)), svg.text(x + 15, 42, name)]
        x += 15 + svg.width(name) + 14
    if (chunks := chunks_used(settings)) > 1:
        parts.append(svg.text(x, 42, f"chunks 0 to {chunks - 1}: light to strong", colour=MUTED))
    return parts


def _look(kind: str, chunk: int, chunks: int) -> tuple[str, float]:
    """Returns a bar's colour and how strong its tint is: stronger for later chunks."""
    share = 0.28 + 0.37 * (chunk / (chunks - 1) if chunks > 1 else 0)
    return COLOURS[_ROLES[kind]], 0.1 if kind == "R" else share


def _lanes(
    numbers: ScheduleNumbers, lane: int, x: Callable[[float], float], chunks: int
) -> list[str]:
    """Returns one path for each kind and chunk, and a row of microbatches' numbers per rank."""
    rows: dict[tuple[str, int], list[list[tuple[float, float]]]]
    rows = defaultdict(lambda: [[] for _ in numbers.ranks])
    for rank, row in enumerate(numbers.ranks):
        for (kind, _, chunk), start, end in zip(row.ops, row.starts, row.ends, strict=True):
            rows[kind, chunk][rank].append((x(start), x(end)))
    middles = [_TOP + (rank + 0.5) * lane - 1.5 for rank in range(len(numbers.ranks))]
    widths = {what: spans[0][0][1] - spans[0][0][0] for what, spans in rows.items()}
    narrowest = min(filter(None, widths.values()))
    parts = []
    for what in sorted(rows):
        colour, share = _look(*what, chunks)
        if narrowest < _NARROW:
            strips = zip(middles, rows[what], strict=True)
            parts.append(svg.strips(strips, lane - 3, colour, share + 0.2))  # no edges help
        else:
            boxes = (
                (left, middle - lane / 2 + 1.5, right - left, lane - 3)
                for middle, spans in zip(middles, rows[what], strict=True)
                for left, right in spans
            )
            parts.append(svg.boxes(boxes, colour, share, 1 if narrowest >= 5 else 0.5))
    m = sum(kind == "F" for kind, *_ in numbers.ranks[0].ops) // chunks
    room = 7 * len(f"{m - 1}") + 2  # where a kind's last number has none, its first have none
    for row, middle in zip(numbers.ranks, middles, strict=True):
        ops = zip(row.ops, row.starts, row.ends, strict=True)
        named = [
            (x((start + end) / 2), f"{i}")
            for (kind, i, chunk), start, end in ops
            if widths[kind, chunk] >= room
        ]
        parts.append(svg.numbers(named, middle + 4, 10))
    return parts


def _held(settings: ScheduleSettings, numbers: ScheduleNumbers, lane: int) -> list[str]:
    """Returns the peak of each rank as a bar; of inputs alone, in a lighter tint."""
    parts = [svg.text(_PANEL, _TOP - 9, "most in flight", size=11)]
    scale, colour = 70 / max(numbers.peaks), COLOURS["activations"]
    whole = 1 if settings.schedule == RECOMPUTING else max(numbers.peaks)
    for rank, peak in enumerate(numbers.peaks):
        top = _TOP + rank * lane
        kept = min(peak, whole) * scale
        end = _PANEL + peak * scale
        parts.append(svg.bars([(_PANEL, _PANEL + kept)], top, lane - 3, colour))
        if peak > whole:
            parts.append(svg.bars([(_PANEL + kept, end)], top, lane - 3, colour, 0.1))
        parts.append(svg.text(end + 6, top + lane / 2 + 2.5, short(peak), size=11))
    return parts


# -- the widget -----------------------------------------------------------------------------------


def _times(values: Iterable[float]) -> tuple:
    return offers(tuple(values), "{:g}".format)


_MICROBATCHES = (*range(1, 9), 10, 12, 14, 15, 16, 18, 20, 24, 28, 30, 32, 36, 40, 48, 56, 60, 64)
_TIMES = (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8)
SCHEDULE_CONTROLS = (
    Control("schedule", "schedule", offers(SCHEDULES, str), "menu"),
    Control("stages", "stages p", offers(tuple(range(1, 17)))),
    Control("microbatches", "microb. m", offers(_MICROBATCHES)),
    Control("chunks", "chunks v", offers((1, 2, 3, 4))),
    Control("forward", "forward", _times(_TIMES)),
    Control("backward", "backward", _times(_TIMES)),
    Control("weight_grad", "of it, W", _times(_TIMES)),
    Control("delay", "delay", _times((0, 0.25, 0.5, 1, 2, 4, 8))),
)


def schedule_explorer(**start: object) -> object:
    """Returns the explorer, a widget; `start` are settings to begin with.

    Example: `schedule_explorer(schedule="GPipe", stages=8, microbatches=16)`.
    """
    return explorer(ScheduleSettings(**start), SCHEDULE_CONTROLS, schedule_view)
