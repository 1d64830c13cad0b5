"""The layout explorer: every t × p × d of a job as a dot, why each loser is out, where time goes.

It asks the full planner, `distlab.planner`, not lab 7's lecture model: the worst stage, embedding
and head, overlap, constants fitted on published runs. Each dot is the best that its t × p × d can
do with what is left open ("best"): chunks per stage, sequences in a microbatch, what is recomputed.

What is simplified: as the planner says; and where its constants were fitted on another GPU than the
one that is chosen, the picture says so.
"""

from dataclasses import dataclass
from typing import Any

from distlab.explorers.frame import Control, Impossible, View, explorer, offers, tick
from distlab.explorers.layoutsvg import LayoutNumbers, Way, layout_svg, percent
from distlab.hardware import CLUSTERS
from distlab.model import MODELS
from distlab.scatter import seconds

# Lab 7's functions take a Job and Layouts; here names and numbers are chosen, and another model
# answers. So no room needs to FORBID anything here.

BEST = "best"  # of an option: whatever makes the step shortest
DENSE = tuple(name for name, cfg in MODELS.items() if not cfg.experts)
MACHINES = {cluster.gpu.name: cluster for cluster in CLUSTERS}
OPTIONS = ("v", "microbatch", "recompute")  # that may be BEST


@dataclass(frozen=True, kw_only=True)
class LayoutSettings:
    """What a reader chooses: the job, and options that all layouts share, or BEST."""

    model: str = "GPT-3 175B"
    gpu: str = "H100 SXM 80 GB"
    gpus: int = 1024
    batch: int = 1536
    seq: int = 2048
    zero: int = 1
    context: int = 1
    recompute: str = BEST
    microbatch: int | str = BEST
    v: int | str = BEST
    sequence_parallel: bool = True


def layout_numbers(settings: LayoutSettings) -> LayoutNumbers:
    """Returns every t × p × d of the job, in the best way that the settings leave open.

    Raises: Impossible, with one sentence, for settings that can't be.
    """
    from distlab import planner  # here, so that importing explorers brings no NumPy
    from distlab.layout import Job
    from distlab.planner.advice import layout_words

    _check(settings)
    machine = MACHINES[settings.gpu]
    job = Job(
        model=MODELS[settings.model],
        batch=settings.batch,
        seq=settings.seq,
        gpus=settings.gpus,
        cluster=machine,
    )
    fixed = {name: getattr(settings, name) for name in ("zero", "context", "sequence_parallel")}
    fixed |= {name: getattr(settings, name) for name in OPTIONS if getattr(settings, name) != BEST}
    plan = planner.plan(job, fixed=fixed)
    refused = _refused(plan, job)
    if not len(plan.space.kept):
        raise Impossible(_none_at_all(settings, plan, len(refused)))

    def way(found: Any, reason: str = "") -> Way:
        options = layout_words(found.layout).partition(", ")[2]
        return Way(str(found.layout), options, found.memory_bytes, found.step_time_s, reason)

    fitting = tuple(way(found) for found in plan.shapes)
    too_big = tuple(way(found, plan.why_not(found.layout)) for found in plan.too_big)
    best = plan.best if fitting else None
    return LayoutNumbers(
        plan.limit_bytes,
        fitting,
        too_big,
        refused,
        times={part.lower(): s for part, s in best.times.items()} if best else {},
        sizes=dict(best.memory) if best else {},
        stages=best.layers if best else (),
        stage=best.stage if best else 0,
        mfu=best.mfu if best else 0.0,
        stack=plan.stack.name,
        guessed=plan.stack.name.rpartition(", ")[2] != settings.gpu.split()[0],
    )


def _check(settings: LayoutSettings) -> None:
    for name, known in (("model", DENSE), ("gpu", MACHINES)):
        if getattr(settings, name) not in known:
            raise Impossible(
                f"{getattr(settings, name)!r} is no {name} here; there are {', '.join(known)}."
            )
    for name in ("gpus", "batch", "seq", "context", "v", "microbatch"):
        value = getattr(settings, name)
        if value != BEST and value < 1:
            raise Impossible(f"{name} is at least 1, not {value}.")


def _refused(plan: Any, job: Any) -> tuple[tuple[str, str], ...]:
    """Returns each t × p × d of which no layout is priced, with the rule that it breaks."""
    from distlab.planner.rules import RULES

    kept, out = plan.space.kept, plan.space.refused
    priced = set(zip(kept.t.tolist(), kept.p.tolist(), kept.d.tolist(), strict=True))
    first: dict[tuple[int, int, int], int] = {}
    for row, shape in enumerate(zip(out.t.tolist(), out.p.tolist(), out.d.tolist(), strict=True)):
        if shape not in priced:
            first.setdefault(shape, row)  # its others, in more microbatches, break it as well
    return tuple(
        (str(out[row]), RULES[plan.space.broken[row]].sentence(job, out[row]))
        for _, row in sorted(first.items())
    )


def _none_at_all(settings: LayoutSettings, plan: Any, ways: int) -> str:
    """Returns why nothing is left: the sentence of the layout that came furthest."""
    if not ways:
        return (
            f"{_gpus(settings.gpus)} can't be shared by context = {settings.context} ranks for "
            "each sequence: no t × p × d is left."
        )
    nearest = plan.rejected[int(plan.space.broken.argmax())]
    return f"None of {ways} ways t × p × d keeps the rules. {nearest.layout}: {nearest.reason}"


# -- words ----------------------------------------------------------------------------------------


def layout_view(settings: LayoutSettings) -> View:
    """Returns the picture and its sentence."""
    numbers = layout_numbers(settings)
    words = layout_sentence(settings, numbers)
    title = f"{settings.model} on {settings.gpus:,} × {settings.gpu}"
    return View(layout_svg(title, numbers, alt=words), words)


def layout_sentence(settings: LayoutSettings, numbers: LayoutNumbers) -> str:
    """Returns in words how many layouts fit, which is fastest, and by how much."""
    fitting, too_big, refused = numbers.fitting, numbers.too_big, numbers.refused
    every = len(fitting) + len(too_big) + len(refused)
    counts = [f"{len(fitting) or 'none'} {'fit' if len(fitting) > 1 else 'fits'}"]
    counts += [f"{len(refused)} {'break' if len(refused) > 1 else 'breaks'} a rule"] * bool(refused)
    if too_big:
        counts.append(f"{len(too_big)} need{'s' * (len(too_big) == 1)} too much memory")
    where = f"{settings.model} on {_gpus(settings.gpus)}"
    said = f"{where}: of {every} ways t × p × d, {', '.join(counts)}. "
    if not fitting:
        least = min(too_big, key=lambda way: way.memory_bytes)
        return f"{said}The smallest, {least.name}, {_lowered(least.reason)}"
    best = fitting[0]
    said += (
        f"{best.name} is fastest: {seconds(best.time_s)} a step, {100 * numbers.mfu:.1f}\u00a0% MFU"
    )
    if len(fitting) > 1:
        said += f"; {fitting[1].name} takes {percent(fitting[1].time_s / best.time_s - 1)} longer"
    return said + "."


def _lowered(reason: str) -> str:
    return reason[0].lower() + reason[1:]


def _gpus(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus:,} GPUs"


# -- the widget -----------------------------------------------------------------------------------

_GPU_COUNTS = (8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384)
_BATCHES = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 1920, 2048, 2304, 3072, 4096, 6144)
LAYOUT_CONTROLS = (
    Control("model", "model", offers(DENSE, str), "menu"),
    Control("gpu", "GPU type", offers(tuple(MACHINES), str), "menu"),
    Control("gpus", "GPUs", offers(_GPU_COUNTS)),
    Control("batch", "batch", offers(_BATCHES)),
    Control("seq", "sequence", offers(tuple(2**k for k in range(9, 18)))),
    Control("microbatch", "microbatch", offers((BEST, 1, 2, 4, 8, 16), str)),
    Control("v", "chunks v", offers((BEST, 1, 2, 3, 4, 6, 8), str)),
    Control("zero", "ZeRO stage", offers((0, 1, 2, 3))),
    Control("context", "context", offers((1, 2, 4, 8, 16, 32))),
    Control("recompute", "recompute", offers((BEST, "none", "selective", "full"), str), "menu"),
    tick("sequence_parallel", "sequence parallel"),
)


def layout_explorer(**start: object) -> object:
    """Returns the explorer, a widget; `start` are settings to begin with.

    Example: `layout_explorer(model="Llama 3.1 405B", gpus=16384, batch=2048, seq=8192)`.
    """
    return explorer("layout explorer", LayoutSettings(**start), LAYOUT_CONTROLS, layout_view)
