"""The partition explorer: where to cut layers into stages, evenly or as well as can be.

What is simplified: a time is a layer's forward and backward pass of one microbatch, a third of it
forward. In models a layer takes 1, the head as much more as it has more parameters, the embedding
nothing (it looks up); attention's scores are left out. A transfer is what one cut costs, there and
back, alike at all places. Weights with their states are counted in layers, as times are; each
microbatch in flight keeps half as much again; embedding and head keep their tables alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from typing import Any

from distlab.canvas import COLOURS, MUTED
from distlab.explorers import svg
from distlab.explorers.frame import Control, Impossible, View, explorer, offers
from distlab.model import MODELS, PUBLISHED
from distlab.seeds import seed_of

# Lab 5 asks for partitions of any layers; here they follow from a profile's name, and from
# `min_max`, which those rooms forbid.

LECTURE, ENDS, RANDOM, GROWING = "3, ten times 1, 4", "equal, with ends", "random", "growing"
MODEL_PROFILES = ("GPT-3 175B", "BLOOM 176B", "Llama 2 13B", "Llama 3 8B", "Llama 3.1 405B")
PROFILES = (LECTURE, ENDS, RANDOM, GROWING, *MODEL_PROFILES)
SIZED = (ENDS, RANDOM, GROWING)  # the profiles that have as many layers as one likes
TRANSFERS = ("none", "overlapped", "exposed")
ACTIVATIONS = 0.5  # of a microbatch in flight, as a share of a layer's weights and states


@dataclass(frozen=True, kw_only=True)
class PartitionSettings:
    """What a reader chooses. `layers` and `seed` are for the profiles that have them.

    `cap` is every stage's memory, as a share of what the fullest stage of the best partition keeps
    when nobody asks; 0 is no cap.
    """

    profile: str = LECTURE
    layers: int = 16
    seed: int = 0
    stages: int = 4
    microbatches: int = 8
    transfer: str = "none"
    transfer_time: float = 0.5
    cap: float = 0


@dataclass(frozen=True)
class Layers:
    """Layers in order: their times and weights.

    `ends`: the first is an embedding, the last a head. `apart`: an even split doesn't count them.
    """

    times: tuple[float, ...]
    weights: tuple[float, ...]
    ends: bool = False
    apart: bool = False

    @property
    def activations(self) -> tuple[float, ...]:
        """What each keeps of a microbatch in flight: an end's table keeps nothing."""
        inner = range(1, len(self.weights) - 1) if self.ends else range(len(self.weights))
        return tuple(ACTIVATIONS * w * (i in inner) for i, w in enumerate(self.weights))


@dataclass(frozen=True)
class Split:
    """One partition: stage s holds the layers bounds[s] .. bounds[s+1] - 1.

    `loads` and `kept` (weights, states, activations) are each stage's; `step` is what 1F1B takes.
    """

    bounds: tuple[int, ...]
    loads: tuple[float, ...]
    kept: tuple[float, ...]
    step: float

    @property
    def slowest(self) -> float:
        """The longest load, which sets the pace."""
        return max(self.loads)


@dataclass(frozen=True)
class PartitionNumbers:
    """The even split and the best partition.

    All partitions are counted, by their slowest stage: none is below the best's, `ties` of `all`
    reach it (the best is one), those that don't fit left out. `balanced_step` is what 1F1B would
    take if the layers' time were shared equally and sending took none.
    """

    layers: Layers
    even: Split
    best: Split
    below: int
    ties: int
    all: int
    mean: float
    balanced_step: float
    cap: float | None


def profile_layers(settings: PartitionSettings) -> Layers:
    """Returns the layers that a profile stands for."""
    if settings.profile == LECTURE:
        times = (3.0, *[1.0] * 10, 4.0)
        return Layers(times, times, ends=True)
    if settings.profile == ENDS:
        times = (0.5, *[1.0] * settings.layers, 2.0)
        return Layers(times, times, ends=True, apart=True)
    if settings.profile == RANDOM:
        keys = range(settings.layers)
        times = tuple(1.0 + seed_of("layer", settings.seed, i) % 9 for i in keys)
        return Layers(times, times)
    if settings.profile == GROWING:
        times = tuple(float(i + 1) for i in range(settings.layers))
        return Layers(times, times)
    cfg, total = MODELS[settings.profile], PUBLISHED[settings.profile].total
    table = cfg.vocab * cfg.hidden
    of_layers = total - table * (1 if cfg.tied else 2) - cfg.positions * cfg.hidden
    head = table / (of_layers / cfg.layers)
    inner = [1.0] * cfg.layers
    return Layers((0.0, *inner, head), (head, *inner, head), ends=True, apart=True)


def partition_numbers(settings: PartitionSettings) -> PartitionNumbers:
    """Returns both partitions, what they cost, and how many are as good as the best.

    Raises: Impossible, with one sentence, for settings that can't be.
    """
    from distlab import partition  # here, so that importing explorers brings no NumPy
    from distlab.errors import InfeasibleError

    layers = _possible(settings)
    p, m, count = settings.stages, settings.microbatches, len(layers.times)
    cost = [settings.transfer_time] * (count - 1)
    more = {} if settings.transfer == "none" else {settings.transfer: cost}
    delay = settings.transfer_time / 2 if settings.transfer == "overlapped" else 0
    in_flight = [min(m, p - stage) for stage in range(p)]

    def plan(cap: float) -> Any:
        memory = partition.Memory(layers.weights, layers.activations, cap, in_flight)
        capped = {"memory": memory} if cap < float("inf") else {}
        return partition.min_max(layers.times, p, **more, **capped)

    best, cap = plan(float("inf")), None
    every = partition.Memory(layers.weights, layers.activations, 1e300, in_flight)
    measure = partition.Problem(layers.times, p, memory=every, **more)

    def kept(bounds: Sequence[int]) -> tuple[float, ...]:
        spans = enumerate(pairwise(bounds))
        return tuple(float(measure.memory_bytes(s, i, j)) for s, (i, j) in spans)

    def split(bounds: Sequence[int]) -> Split:
        spans = enumerate(pairwise(bounds))
        loads = tuple(float(measure.load(s, i, j)) for s, (i, j) in spans)
        return Split(tuple(bounds), loads, kept(bounds), _step(loads, m, delay))

    if settings.cap:
        cap = settings.cap * max(kept(best.bounds))
        try:
            best = plan(cap)
        except InfeasibleError:
            raise Impossible(
                f"No partition into {p} stages keeps within {_share(settings.cap)} of what the "
                "fullest stage of the uncapped best one keeps. Choose a larger cap."
            ) from None
    mean = sum(layers.times) / p
    return PartitionNumbers(
        layers,
        split(_even(layers, p)),
        split(best.bounds),
        _count(best.problem, best.value - 2 * best.problem.rounding),
        _count(best.problem, best.value + best.problem.rounding),
        comb(len(layers.times) - 1, p - 1),
        mean,
        (m + p - 1) * mean,
        cap,
    )


def _possible(settings: PartitionSettings) -> Layers:
    """Returns the layers, where the settings can be."""
    if settings.profile not in PROFILES:
        raise Impossible(
            f"{settings.profile!r} is no profile here; there are {'; '.join(PROFILES)}."
        )
    if settings.transfer not in TRANSFERS:
        raise Impossible(f"transfer is none, overlapped or exposed, not {settings.transfer}.")
    for name in ("layers", "stages", "microbatches"):
        if getattr(settings, name) < 1:
            raise Impossible(f"{name} is at least 1, not {getattr(settings, name)}.")
    if settings.transfer_time < 0 or settings.cap < 0:
        raise Impossible("transfer_time and cap are 0 or more.")
    layers = profile_layers(settings)
    counted = len(layers.times) - 2 * layers.apart
    if settings.stages > counted:
        raise Impossible(
            f"{settings.stages} stages of {counted} layers: each stage needs one of its own. "
            f"Choose fewer stages{', or more layers' * (settings.profile in SIZED)}."
        )
    return layers


def _even(layers: Layers, p: int) -> list[int]:
    """Returns the bounds of equally many layers each, with ends that are apart put on top."""
    count, shift = len(layers.times) - 2 * layers.apart, int(layers.apart)
    inner = [stage * count // p + shift for stage in range(1, p)]
    return [0, *inner, len(layers.times)]


def _step(loads: Sequence[float], m: int, delay: float) -> float:
    """Returns how long 1F1B takes with these stages."""
    from distlab import schedule

    forward, backward = [load / 3 for load in loads], [2 * load / 3 for load in loads]
    orders = schedule.one_f_one_b(len(loads), m)
    line = schedule.simulate(orders, forward=forward, backward=backward, delay=delay)
    return float(line.makespan)


def _count(problem: Any, limit: float) -> int:
    """Returns how many partitions have no stage above the limit; rounded beyond 2**53."""
    import numpy as np

    places = np.arange(problem.layers + 1)
    begin, end = places[:, None], places[None, :]
    good = (problem.load(0, begin, end) <= limit) & (begin < end)
    ways = (places == 0).astype(float)  # to reach each place with as many stages
    for stage in range(problem.stages):
        ways = ways @ (good & problem.fits(stage, begin, end))
    return int(ways[-1])


# -- words ----------------------------------------------------------------------------------------


def partition_view(settings: PartitionSettings) -> View:
    """Returns the picture and its sentence."""
    numbers = partition_numbers(settings)
    words = partition_sentence(settings, numbers)
    return View(partition_svg(settings, numbers, alt=words), words)


def partition_sentence(settings: PartitionSettings, numbers: PartitionNumbers) -> str:
    """Returns in words the best cuts, why none are better, and what even ones cost."""
    best, even = numbers.best, numbers.even
    bounds = [f"{bound}" for bound in best.bounds]
    if len(bounds) > 10:
        bounds = [*bounds[:4], "…", *bounds[-2:]]
    m = settings.microbatches
    lost = best.step / numbers.balanced_step - 1
    fits = numbers.cap is None or max(even.kept) <= numbers.cap
    faster = "faster" if numbers.cap is None else "faster and fits"
    tie = f"{many(numbers.ties)} tie" if numbers.ties > 1 else "no other ties"
    proof = f"None of all {many(numbers.all)} partitions is {faster}; {tie}."
    words = (
        f"Best: bounds {', '.join(bounds)}, slowest stage {_time(best.slowest)}. "
        f"{'There is no other.' if numbers.all == 1 else proof} 1F1B takes {_time(best.step)} for "
        f"{m} microbatch{'es' * (m != 1)}, {_share(abs(lost))} {'more' if lost >= 0 else 'less'} "
        "than equal stages would; the even split "
    )
    if fits:
        return words + f"takes {_time(even.step)}."
    return words + f"would take {_time(even.step)}, but doesn't fit."


def many(count: int) -> str:
    """Returns a count, in powers of ten from a million on: `many(2 * 10**7) == "2.0 × 10⁷"`."""
    if count < 10**6:
        return f"{count:,}"
    digits, power = f"{count:.1e}".split("e+")
    return f"{digits} × 10" + f"{int(power)}".translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _time(time: float) -> str:
    return f"{time:,.0f}" if time >= 1e4 else f"{time:,.4g}"


def _share(share: float) -> str:
    return f"{100 * share:.3g}\u00a0%"


# -- the picture ----------------------------------------------------------------------------------

_WIDTH, _TOP, _FOOT = 680, 76, 262
_PANELS = ((62, 332), (352, 622))  # the even split, the best partition
_ROLE, _SENT = COLOURS["weights"], COLOURS["communication"]
_MOST_MEMORY_STAGES = 12  # beyond, a share in per cent is wider than a bar


def partition_svg(settings: PartitionSettings, numbers: PartitionNumbers, *, alt: str) -> str:
    """Returns both partitions as bars of their layers, a dashed line at the slowest stage."""
    top = 1.14 * max(numbers.even.slowest, numbers.best.slowest)
    scale = (_FOOT - _TOP) / top
    count = len(numbers.layers.times) - 2 * numbers.layers.apart
    what = f"{count} layers{', embedding and head' * numbers.layers.apart}"
    stages = f"{settings.stages} stage{'s' * (settings.stages != 1)}"
    title = f"{settings.profile}: {what} on {stages}"
    parts = [svg.text(_PANELS[0][0], 20, title, size=14, bold=True), *_key(settings, numbers)]
    for mark in svg.ticks(top, 5):
        y = _FOOT - mark * scale
        parts.append(svg.grid(_PANELS[0][0], y, _PANELS[1][1], y))
        parts.append(
            svg.text(_PANELS[0][0] - 6, y + 4, f"{mark:,.10g}", anchor="end", colour=MUTED)
        )
    rows = ["stage", "layers"]
    if numbers.cap is not None and settings.stages <= _MOST_MEMORY_STAGES:
        rows.append("memory %")
    for row, name in enumerate(rows):
        y = _FOOT + 16 + 15 * row
        parts.append(svg.text(_PANELS[0][0] - 6, y, name, anchor="end", size=10, colour=MUTED))
    splits = (("even split", numbers.even), ("best", numbers.best))
    for (left, right), (name, split) in zip(_PANELS, splits, strict=True):
        told = f"{name}: slowest {_time(split.slowest)}"
        parts.append(svg.text(left, _TOP - 10, told, bold=True))
        parts += _panel(settings, numbers, split, (left, right), scale, len(rows))
    y = _FOOT - numbers.mean * scale
    right = _PANELS[1][1]
    parts.append(
        svg.line(_PANELS[0][0], y, right, y, MUTED, 'stroke-width="1.2" stroke-dasharray="2 3"')
    )
    parts.append(svg.text(right + 4, y - 2, "mean", size=10, colour=MUTED))
    parts.append(svg.text(right + 4, y + 10, _time(numbers.mean), size=10, colour=MUTED))
    return svg.document(_WIDTH, _FOOT + 64, alt, parts)


def _key(settings: PartitionSettings, numbers: PartitionNumbers) -> list[str]:
    entries = [("layer", _ROLE, 0.28)]
    if numbers.layers.ends:
        entries.append(("embedding, head", _ROLE, 0.6))
    if settings.transfer == "exposed":
        entries.append(("transfer", _SENT, 0.28))
    if settings.transfer == "overlapped":
        entries.append(("waits for a transfer", _SENT, 0.12))
    parts, x = [], float(_PANELS[0][0])
    for name, colour, share in entries:
        parts += [svg.boxes([(x, 32, 10, 10)], colour, share), svg.text(x + 15, 42, name)]
        x += 15 + svg.width(name) + 14
    return parts


def _panel(
    settings: PartitionSettings,
    numbers: PartitionNumbers,
    split: Split,
    sides: tuple[float, float],
    scale: float,
    rows: int,
) -> list[str]:
    """Returns one partition's bars, their loads, and below them the rows of numbers."""
    left, right = sides
    slot = (right - left) / settings.stages
    wide = min(0.8 * slot, 72)
    pieces: dict[tuple[str, float], list] = {}
    numbers_below, middles = [], []
    for stage, (i, j) in enumerate(pairwise(split.bounds)):
        middle, y = left + (stage + 0.5) * slot, float(_FOOT)
        middles.append(middle)
        for what, time in _parts(settings, numbers.layers, split, stage):
            y -= time * scale
            pieces.setdefault(what, []).append((middle - wide / 2, y, wide, time * scale))
        below = [f"{stage}", f"{j - i}"]
        if rows > 2:
            below.append(f"{100 * split.kept[stage] / numbers.cap:.0f}")
        numbers_below.append(below)
    parts = [svg.boxes(found, *what, edge=0.8) for what, found in sorted(pieces.items())]
    y = _FOOT - split.slowest * scale
    parts.append(svg.dashed(left, y, right, y))
    loads = [f"{load:.3g}" if load < 1000 else f"{load:,.0f}" for load in split.loads]
    size = 11 if slot >= 30 else 10
    shown = all(svg.width(load, size) + 2 <= slot for load in loads)
    for stage, (middle, load) in enumerate(zip(middles, loads, strict=True)):
        if shown:
            y = _FOOT - split.loads[stage] * scale - 5
            parts.append(svg.text(middle, y, load, anchor="middle", size=size, bold=slot >= 30))
        for row, number in enumerate(numbers_below[stage]):
            over = row == 2 and split.kept[stage] > numbers.cap
            parts.append(
                svg.text(
                    middle, _FOOT + 16 + 15 * row, number, anchor="middle", size=size, bold=over,
                    colour=_SENT if over else MUTED,
                )
            )  # fmt: skip
    return parts


def _parts(
    settings: PartitionSettings, layers: Layers, split: Split, stage: int
) -> Iterator[tuple[tuple[str, float], float]]:
    """Yields a stage's pieces from below: (colour, its share), time.

    Layers that would be lines beside lines are one piece.
    """
    i, j, last = split.bounds[stage], split.bounds[stage + 1], len(layers.times) - 1
    ends = {0, last} if layers.ends else set()
    inner = [layers.times[n] for n in range(i, j) if n not in ends]
    if 0 in ends and i == 0:
        yield (_ROLE, 0.6), layers.times[0]
    for time in inner if len(layers.times) <= 70 else [sum(inner)]:
        yield (_ROLE, 0.28), time
    if last in ends and j > last:
        yield (_ROLE, 0.6), layers.times[last]
    rest = split.loads[stage] - sum(layers.times[i:j])
    if settings.transfer != "none" and rest > 1e-9:
        yield (_SENT, 0.28 if settings.transfer == "exposed" else 0.12), rest


# -- the widget -----------------------------------------------------------------------------------

_CAPS = (0, 1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5)
PARTITION_CONTROLS = (
    Control("profile", "layers' times", offers(PROFILES, str), "menu"),
    Control("stages", "stages p", offers(tuple(range(1, 17)))),
    Control(
        "layers",
        "layers",
        offers((4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)),
        only={"profile": SIZED},
    ),
    Control(
        "seed",
        "seed",
        offers(tuple(range(10))),
        only={"profile": (RANDOM,)},
    ),
    Control("transfer", "transfers", offers(TRANSFERS, str), "menu"),
    Control(
        "transfer_time",
        "each takes",
        offers((0.25, 0.5, 1, 2, 4), "{:g}".format),
        only={"transfer": TRANSFERS[1:]},
    ),
    Control("cap", "memory cap", offers(_CAPS, lambda cap: _share(cap) if cap else "none")),
    Control("microbatches", "microbatches m", offers((1, 2, 4, 8, 12, 16, 24, 32, 48, 64))),
)


def partition_explorer(**start: object) -> object:
    """Returns the explorer, a widget; `start` are settings to begin with.

    Example: `partition_explorer(profile="Llama 3 8B", stages=8)`.
    """
    return explorer(
        "partition explorer", PartitionSettings(**start), PARTITION_CONTROLS, partition_view
    )
