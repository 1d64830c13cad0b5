"""One layout of one job in full: memory of the worst stage, time of a step, both by part."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from distlab.layout import Job, Layout
from distlab.planner import memory, seconds
from distlab.planner.counts import counts
from distlab.planner.split import stage_layers
from distlab.planner.stack import Stack
from distlab.planner.stacks import stack_of

# Its result is an object of its own, so no room that asks for bytes or seconds needs to FORBID it.


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a layout needs on one GPU of its worst stage, and how long its step takes.

    `memory`: bytes by part (`distlab.memory.PARTS`), of stage `stage`, counted from 0, the one that
    needs most. `params`: the parameters that GPU holds, of its layers, embedding and head.
    `layers`: how many each stage holds. `times`: seconds by part. `mfu` and `hfu` are shares of
    the peak; only `hfu` counts what is computed again.
    """

    job: Job
    layout: Layout
    stack: Stack
    memory: Mapping[str, float]
    params: Mapping[str, float]
    stage: int
    layers: tuple[int, ...]
    times: Mapping[str, float]
    mfu: float
    hfu: float

    @property
    def memory_bytes(self) -> float:
        """All of the worst stage's memory."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether the GPU has that much memory."""
        return self.memory_bytes <= self.job.cluster.gpu.memory_bytes

    @property
    def step_time_s(self) -> float:
        """The time of a step: the sum of its parts."""
        return sum(self.times.values())

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole job."""
        return self.job.batch * self.job.seq / self.step_time_s


def numbers(layout: Layout) -> SimpleNamespace:
    """Returns a layout as the formulas read it: `recompute` as a place in `memory.RECOMPUTE`."""
    fields = dict(vars(layout))
    return SimpleNamespace(**fields | {"recompute": memory.RECOMPUTE.index(layout.recompute)})


def estimate(job: Job, layout: Layout, stack: Stack | None = None) -> Estimate:
    """Returns what a layout of a job needs and how long its step takes, on a software stack.

    Without a stack it is the one that `stacks.stack_of` has for the job's GPU.

    Cost: about 0.2 ms. Formulas and their sources: `distlab.planner.memory` and `.seconds`.

    Raises: ValueError for a model with experts, or a layout that does not fill the job's GPUs or
    does not divide its batch.

    Example: `estimate(job, Layout(8, 8, 16)).layers == (12,) * 8` for GPT-3 175B.
    """
    stack = stack or stack_of(job.cluster.gpu)
    if layout.gpus != job.gpus:
        raise ValueError(f"{layout} fills {layout.gpus} GPUs, and the job has {job.gpus}.")
    if job.batch % (layout.d * layout.microbatch):
        raise ValueError(
            f"A batch of {job.batch} is no whole number of microbatches of {layout.microbatch} on "
            f"{layout.d} replicas."
        )
    c, x = counts(job.model), numbers(layout)
    layers = stage_layers(c.layers, layout.p, layout.v)
    stages = np.arange(layout.p)
    ends = {"first": stages == 0, "last": stages == layout.p - 1}
    held = memory.memory_bytes(c, job, x, stack, layers=np.array(layers), stage=stages, **ends)
    worst = int(np.argmax(sum(held.values())))
    params = memory.stage_params(c, x, np.array(layers), **ends)
    times = seconds.step_seconds(
        c,
        job,
        x,
        stack,
        first_layers=layers[0],
        most_layers=max(layers),
        last_layers=layers[-1],
    )
    step_s = float(sum(times.values()))
    flop_per_s = job.batch * job.seq / step_s / job.gpus
    useful = seconds.model_flop_per_token(c, job)
    extra = float(seconds.extra_flop_per_token(c, job, x, stack))
    peak = job.cluster.gpu.peak_flop_per_s
    return Estimate(
        job=job,
        layout=layout,
        stack=stack,
        memory={part: float(np.broadcast_to(b, stages.shape)[worst]) for part, b in held.items()},
        params={part: float(b[worst]) for part, b in params.items()},
        stage=worst,
        layers=layers,
        times={part: float(s) for part, s in times.items()},
        mfu=useful * flop_per_s / peak,
        hfu=(useful + extra) * flop_per_s / peak,
    )
