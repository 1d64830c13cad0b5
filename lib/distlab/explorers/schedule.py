"""The schedule explorer: who runs what when in a pipeline, what stands idle, what is held.

What is simplified: all stages are alike, all microbatches too. With v chunks a rank has the same
work in v parts, each a v-th of a stage's time; a message takes the same delay however small. For
PipeDream, m counts the microbatches of the whole training; for all others, those of a step.

What a reader moves is web/schedule.mjs, which counts again in the page; it is held against the
numbers here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from distlab.canvas import COLOURS
from distlab.explorers.frame import Control, Impossible, about, in_words, offers
from distlab.explorers.svg import LOOK
from distlab.explorers.web import Live

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
ROLES = {"F": "activations", "R": "activations", "B": "gradients", "W": "weights"}


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


def schedule_sentence(settings: ScheduleSettings) -> str:
    """Returns in words how long it takes, what the bubble is, what is in flight.

    Raises: Impossible, with one sentence, for settings that can't be.
    """
    numbers = schedule_numbers(settings)
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


# -- the explorer ---------------------------------------------------------------------------------


def _times(values: Iterable[float]) -> tuple:
    return offers(tuple(values), "{:g}".format)


_MICROBATCHES = (*range(1, 9), 10, 12, 14, 15, 16, 18, 20, 24, 28, 30, 32, 36, 40, 48, 56, 60, 64)
_TIMES = (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8)
SCHEDULE_CONTROLS = (
    Control("schedule", "schedule", offers(SCHEDULES, str), "menu"),
    Control("stages", "stages p", offers(tuple(range(1, 17)))),
    Control("microbatches", "microbatches m", offers(_MICROBATCHES)),
    Control("chunks", "chunks v", offers((1, 2, 3, 4)), only={"schedule": CHUNKED}),
    Control("forward", "forward", _times(_TIMES)),
    Control("backward", "backward", _times(_TIMES)),
    Control("weight_grad", "W of backward", _times(_TIMES), only={"schedule": SPLIT}),
    Control("delay", "delay", _times((0, 0.25, 0.5, 1, 2, 4, 8))),
)


def schedule_data(start: ScheduleSettings = ScheduleSettings()) -> dict:
    """Returns what schedule.mjs needs, as JSON can say it: colours and controls."""
    return about("schedule explorer", start, SCHEDULE_CONTROLS) | {
        "colours": {kind: COLOURS[role] for kind, role in ROLES.items()},
        "look": LOOK,
    }


def schedule_explorer(**start: object) -> Live:
    """Returns the explorer, which runs where it is shown; `start` are settings to begin with.

    Example: `schedule_explorer(schedule="GPipe", stages=8, microbatches=16)`.
    """
    settings = ScheduleSettings(**start)
    return Live("schedule", schedule_data(settings), in_words(settings, schedule_sentence))
