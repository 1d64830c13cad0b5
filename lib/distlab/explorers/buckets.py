"""The bucket explorer: one data-parallel step, its gradients sent in buckets during backward.

What is simplified: the model is its layers alone, each with four matrices in the proportions
3:1:4:4 (QKV, output, the MLP's two) and gradients in FP32; backward spends its time in proportion
to their size; one ring at the slowest link's rate, with NCCL's own latencies. Caps are soft, as
PyTorch's are: a bucket closes after the gradient that reaches its cap.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from distlab.canvas import COLOURS, GRID, MUTED
from distlab.cost import ring_time_s
from distlab.explorers import svg
from distlab.explorers.frame import Control, Impossible, View, explorer, offers
from distlab.hardware import (
    DGX_1_V100,
    DGX_A100,
    DGX_H100,
    GB200_NVL72,
    NCCL_NETWORK_LATENCY_S,
    NCCL_NVLINK_LATENCY_S,
    Cluster,
    with_latency,
)

# Lab 2 asks for `make_buckets` and `overlapped_step_time` for any sizes and times; here they only
# follow from a model's layers, and `bucket_numbers` is on those exercises' FORBID lists.

GRADIENT_BYTES = 4  # of one number, FP32
MATRICES = (3, 1, 4, 4)  # a layer's, in the order in which they are registered; twelfths of it
MIB = 2**20
ALL_MIB = 2**30  # a cap that no model here reaches: one bucket holds everything


def _links() -> dict[str, tuple[Cluster, bool]]:
    """Returns by name a cluster, and whether all GPUs stay inside one node of it."""
    found = {}
    for cluster in (DGX_H100, GB200_NVL72):
        rate = cluster.node_link.rate_bytes_per_s / 1e9
        found[f"{cluster.node_link.name}, {rate:g} GB/s"] = (cluster, True)
    for cluster in (DGX_H100, DGX_A100, DGX_1_V100):
        rate = cluster.network.rate_bytes_per_s / 1e9
        found[f"network, {rate:g} GB/s"] = (cluster, False)
    latency = {"node_s": NCCL_NVLINK_LATENCY_S, "network_s": NCCL_NETWORK_LATENCY_S}
    return {name: (with_latency(c, **latency), inside) for name, (c, inside) in found.items()}


LINKS = _links()


@dataclass(frozen=True, kw_only=True)
class BucketSettings:
    """What a reader chooses: the model's layers, the GPUs, the caps, the times of one step."""

    layers: int = 12
    params_million: float = 85
    gpus: int = 64
    link: str = "network, 50 GB/s"
    bucket_mib: int = 25
    first_mib: int = 1
    forward_ms: float = 7
    backward_ms: float = 14


@dataclass(frozen=True)
class BucketTimes:
    """One bucket: its bytes, when its last gradient is ready, when its all-reduce runs."""

    size_bytes: float
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class BucketNumbers:
    """One step from the start of forward to the end of the last all-reduce."""

    forward_s: float
    backward_s: float
    buckets: tuple[BucketTimes, ...]

    @property
    def compute_s(self) -> float:
        """Forward and backward: the step's time if sending took none."""
        return self.forward_s + self.backward_s

    @property
    def step_s(self) -> float:
        """The whole step."""
        return max(self.compute_s, self.buckets[-1].end_s)

    @property
    def exposed_s(self) -> float:
        """How long the GPU sends and computes nothing."""
        return self.step_s - self.compute_s

    @property
    def sending_s(self) -> float:
        """How long the link is busy."""
        return sum(bucket.end_s - bucket.start_s for bucket in self.buckets)


def bucket_numbers(settings: BucketSettings) -> BucketNumbers:
    """Returns when every bucket of a step is ready and sent.

    Raises: Impossible, with one sentence, for settings that can't be.
    """
    link = _possible(settings)
    forward_s, backward_s = settings.forward_ms / 1e3, settings.backward_ms / 1e3
    times_s: dict[float, float] = {}  # of a size: most buckets are equally large
    buckets, free_s = [], 0.0
    for size_bytes, done in _filled(settings):
        if size_bytes not in times_s:
            times_s[size_bytes] = float(ring_time_s("all_reduce", settings.gpus, size_bytes, link))
        ready_s = forward_s + done * backward_s
        start_s = max(ready_s, free_s)
        free_s = start_s + times_s[size_bytes]
        buckets.append(BucketTimes(size_bytes, ready_s, start_s, free_s))
    return BucketNumbers(forward_s, backward_s, tuple(buckets))


def _filled(settings: BucketSettings) -> Iterator[tuple[float, float]]:
    """Yields each bucket's bytes and the share of backward after which it is full."""
    twelfth = settings.params_million * 1e6 * GRADIENT_BYTES / settings.layers / sum(MATRICES)
    cap_bytes, held, done = settings.first_mib * MIB, 0, 0  # held and done in twelfths of a layer
    every = settings.layers * sum(MATRICES)
    for _ in range(settings.layers):
        for matrix in reversed(MATRICES):
            held, done = held + matrix, done + matrix
            if held * twelfth >= cap_bytes or done == every:
                yield held * twelfth, done / every
                cap_bytes, held = settings.bucket_mib * MIB, 0


def _possible(settings: BucketSettings):
    """Returns the link that all send over, where the settings can be."""
    if settings.link not in LINKS:
        raise Impossible(f"{settings.link!r} is no link here; there are {', '.join(LINKS)}.")
    for name in ("layers", "gpus"):
        if getattr(settings, name) < 1:
            raise Impossible(f"{name} is at least 1, not {getattr(settings, name)}.")
    for name in ("params_million", "bucket_mib", "first_mib", "forward_ms", "backward_ms"):
        if getattr(settings, name) <= 0:
            raise Impossible(f"{name} must be more than 0, not {getattr(settings, name)}.")
    cluster, inside = LINKS[settings.link]
    if inside and settings.gpus > cluster.gpus_per_node:
        raise Impossible(
            f"{settings.gpus:,} GPUs don't share one NVLink: a node of {cluster.name} has "
            f"{cluster.gpus_per_node}. Choose fewer GPUs, or the network."
        )
    return cluster.node_link if inside else cluster.network


# -- the picture ----------------------------------------------------------------------------------

_LEFT, _RIGHT, _WIDTH, _HEIGHT = 88, 662, 680, 236
_LANES = {"compute": 62, "all-reduce": 112}  # the upper edge of each
_LANE, _FOOT = 36, 190
_KEY = (("forward", "activations"), ("backward", "gradients"), ("all-reduce", "communication"))


def bucket_view(settings: BucketSettings) -> View:
    """Returns the picture and its sentence."""
    numbers = bucket_numbers(settings)
    words = bucket_sentence(settings, numbers)
    return View(bucket_svg(settings, numbers, alt=words), words)


def bucket_sentence(settings: BucketSettings, numbers: BucketNumbers) -> str:
    """Returns in words how many buckets there are, how long the step is, what stays visible."""
    sizes_mib = [bucket.size_bytes / MIB for bucket in numbers.buckets]
    few, many = f"{min(sizes_mib):,.3g}", f"{max(sizes_mib):,.3g}"
    many = f"{max(sizes_mib):,.0f}" if max(sizes_mib) >= 1000 else many
    few = f"{min(sizes_mib):,.0f}" if min(sizes_mib) >= 1000 else few
    size = f"{many} MiB" if few == many else f"{few} to {many} MiB"
    step, exposed = time_text(numbers.step_s), time_text(numbers.exposed_s)
    percent = 100 * numbers.exposed_s / numbers.step_s
    share = f"{percent:.0f}\u00a0%" if percent >= 1 or percent == 0 else f"{percent:.2g}\u00a0%"
    told = f"{_count(len(numbers.buckets))} of {size}"
    if settings.gpus == 1:
        return f"{told}; one GPU has nothing to send. The step takes {step}."
    return (
        f"{told}, {time_text(numbers.sending_s)} on the link. The step takes {step}; {exposed} of "
        f"it ({share}) is exposed: sending while nothing computes."
    )


def bucket_svg(settings: BucketSettings, numbers: BucketNumbers, *, alt: str) -> str:
    """Returns the step as two lanes over time, what is exposed on grey."""
    unit, unit_s = ("s", 1.0) if numbers.step_s >= 1 else ("ms", 1e-3)
    scale = (_RIGHT - _LEFT) / numbers.step_s

    def x(time_s: float) -> float:
        return _LEFT + time_s * scale

    title = f"{_count(len(numbers.buckets))}, a step of {time_text(numbers.step_s)}"
    parts = [svg.text(_LEFT, 20, title, size=14, bold=True)]
    key = [(name, COLOURS[role]) for name, role in _KEY]
    parts += svg.key(_LEFT, 44, key)
    lower = _LANES["all-reduce"] + _LANE
    backward_ends = x(numbers.compute_s)
    if numbers.exposed_s > 0:
        width = svg.num(_RIGHT - backward_ends)
        parts.append(
            f'<rect x="{svg.num(backward_ends)}" y="54" width="{width}" height="{lower - 46}" '
            f'fill="{GRID}" fill-opacity="0.7"/>'
        )
    for end in svg.ticks(numbers.step_s / unit_s, 8):
        at = x(end * unit_s)
        parts.append(svg.grid(at, 54, at, _FOOT))
        parts.append(svg.text(at, _FOOT + 16, f"{end:,.6g}", anchor="middle", colour=MUTED))
    parts.append(svg.text(_RIGHT, _FOOT + 34, f"time in {unit}", anchor="end", colour=MUTED))
    for name, top in _LANES.items():
        parts.append(svg.text(_LEFT - 10, top + 23, name, anchor="end", colour=MUTED))
    compute, comm = _LANES.values()
    parts.append(svg.bars([(_LEFT, x(numbers.forward_s))], compute, _LANE, COLOURS["activations"]))
    begins = [numbers.forward_s, *(bucket.ready_s for bucket in numbers.buckets[:-1])]
    fills = [(x(a), x(b.ready_s)) for a, b in zip(begins, numbers.buckets, strict=True)]
    parts += _lane(fills, compute, COLOURS["gradients"])
    if settings.gpus > 1:
        sends = [(x(bucket.start_s), x(bucket.end_s)) for bucket in numbers.buckets]
        parts += _lane(sends, comm, COLOURS["communication"])
    parts.append(svg.dashed(backward_ends, 54, backward_ends, lower + 12))
    parts.append(
        svg.text(
            _RIGHT, lower + 28, f"exposed: {time_text(numbers.exposed_s)}", anchor="end", bold=True
        )
    )
    parts.append(svg.line(backward_ends, lower + 12, _RIGHT, lower + 12, MUTED, 'stroke-width="2"'))
    return svg.document(_WIDTH, _HEIGHT, alt, parts)


def _lane(spans: list[tuple[float, float]], top: float, colour: str) -> list[str]:
    """Returns the buckets of a lane in two tints by turns, with their numbers where they fit."""
    edge = 1.2 if len(spans) <= 60 else 0.3
    parts = [
        svg.bars(spans[0::2], top, _LANE, colour, 0.45, edge),
        svg.bars(spans[1::2], top, _LANE, colour, 0.2, edge),
    ]
    middles = {
        f"{number}": (left + right) / 2
        for number, (left, right) in enumerate(spans)
        if right - left >= svg.width(f"{number}") + 4
    }
    if 2 * len(middles) > len(spans):  # where most have no room, numbers on a few help nobody
        parts += [svg.text(x, top + 23, name, anchor="middle") for name, x in middles.items()]
    return parts


def _count(buckets: int) -> str:
    return f"{buckets} bucket" if buckets == 1 else f"{buckets:,} buckets"


def time_text(time_s: float) -> str:
    """Returns a time with three digits and its unit: `time_text(0.0215) == "21.5 ms"`."""
    unit, unit_s = ("s", 1.0) if time_s >= 1 else ("ms", 1e-3)
    number = time_s / unit_s
    return f"{number:,.0f} {unit}" if number >= 1000 else f"{number:.3g} {unit}"


# -- the widget -----------------------------------------------------------------------------------


def _cap(mib: int) -> str:
    return "all in one" if mib == ALL_MIB else f"{mib} MiB"


def _params(millions: float) -> str:
    return f"{millions / 1000:g} B" if millions >= 1000 else f"{millions:g} M"


_TIMES_MS = (1, 2, 4, 7, 10, 14, 20, 30, 50, 100, 200, 500, 1000)
_CAPS_MIB = (1, 2, 5, 10, 25, 50, 100, 200, 500, ALL_MIB)
BUCKET_CONTROLS = (
    Control("bucket_mib", "bucket", offers(_CAPS_MIB, _cap)),
    Control("first_mib", "first bucket", offers(_CAPS_MIB, _cap)),
    Control("layers", "layers", offers((1, 2, 4, 12, 24, 36, 48, 96))),
    Control(
        "params_million", "parameters", offers((10, 85, 350, 1300, 7500, 13000, 70000), _params)
    ),
    Control("gpus", "GPUs", offers((1, 2, 4, 8, 16, 32, 64, 72, 128, 256, 512, 1024))),
    Control("link", "link", offers(tuple(LINKS), str), "menu"),
    Control("forward_ms", "forward", offers(_TIMES_MS, "{} ms".format)),
    Control("backward_ms", "backward", offers(_TIMES_MS, "{} ms".format)),
)


def bucket_explorer(**start: object) -> object:
    """Returns the explorer, a widget; `start` are settings to begin with.

    Example: `bucket_explorer(gpus=8, link="NVLink 4, 450 GB/s", bucket_mib=100)`.
    """
    return explorer("bucket explorer", BucketSettings(**start), BUCKET_CONTROLS, bucket_view)
