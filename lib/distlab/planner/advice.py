"""What to say when no layout will do: how far off the nearest is, and what would make one fit."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from distlab.layout import Job, Layout
from distlab.memory import size_text
from distlab.planner.estimate import estimate
from distlab.planner.rules import RULES
from distlab.planner.space import space
from distlab.planner.stack import Stack
from distlab.planner.vector import evaluate

if TYPE_CHECKING:
    from distlab.planner.search import Plan

SIZES = ("t", "p", "d", "context")  # their product is the number of GPUs
MOST_NODES = 512  # further nobody looks for a number of nodes that would do

_FREED = ("zero", "recompute", "sequence_parallel", "microbatch", "v", "context", "p", "t", "d")

# A smaller layout than these makes none of the others: one chunk, one sequence, all computed again.
_SMALLEST = {"v": 1, "microbatch": 1, "recompute": "full"}
_REPLICAS = next(i for i, rule in enumerate(RULES) if rule.name == "replicas")


def advice(plan: "Plan") -> str:
    """Returns why a plan has no layout, and the nearest change of the job that gives it one."""
    if len(plan.space.kept):
        return f"{_nearest(plan)} {_what_would_fit(plan)}"
    return _no_layout(plan)


def layout_words(layout: Layout) -> str:
    """Returns a layout and its options in words, those that are plain left out.

    Example: "8×16×128, v = 8, sequence parallel, ZeRO 1, full recompute".
    """
    words = [str(layout)]
    words += [f"context {layout.context}"] * (layout.context > 1)
    words += [f"v = {layout.v}"] * (layout.v > 1)
    words += [f"microbatch {layout.microbatch}"] * (layout.microbatch > 1)
    words += ["sequence parallel"] * layout.sequence_parallel
    words += [f"ZeRO {layout.zero}"] * (layout.zero > 0)
    words.append("no recompute" if layout.recompute == "none" else f"{layout.recompute} recompute")
    return ", ".join(words)


def _nearest(plan: "Plan") -> str:
    place = int(np.argmin(plan.costs.memory_bytes))
    found = plan.estimate(place)
    largest = max(found.memory, key=found.memory.get)
    return (
        f"{plan.job.model.name} fits in no layout of {_gpus(plan.job)}{_given(plan.fixed)}: "
        f"the smallest, {layout_words(found.layout)}, needs {size_text(found.memory_bytes)} of "
        f"{size_text(plan.limit_bytes)} ({largest} {size_text(found.memory[largest])})."
    )


def _what_would_fit(plan: "Plan") -> str:
    job, stack, limit = plan.job, plan.stack, plan.limit_bytes
    for loosened in _loosened(plan.fixed):
        layout = _smallest(job, stack, loosened, limit)
        if layout is not None:
            freed = [axis for axis in plan.fixed if axis not in loosened]
            return f"It fits {_demands({axis: getattr(layout, axis) for axis in freed})}."
    for nodes in range(1, MOST_NODES + 1):
        more = replace(job, gpus=nodes * job.cluster.gpus_per_node)
        if more.gpus < _fewest_gpus(plan):
            continue
        layout = _smallest(more, stack, plan.fixed, limit)
        if layout is not None:
            return f"In whole nodes, {more.gpus:,} GPUs would do: {layout_words(layout)}."
    return f"No number of GPUs up to {MOST_NODES * job.cluster.gpus_per_node:,} holds it."


def _loosened(fixed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the demands without one of them, options before sizes, then without any."""
    for axis in sorted(fixed, key=_FREED.index):
        yield {a: value for a, value in fixed.items() if a != axis}
    if len(fixed) > 1:
        yield {}


def _fewest_gpus(plan: "Plan") -> int:
    """Returns a bound below which no number of GPUs has room for the model's own state."""
    whole = Layout(1, 1, 1, recompute="full", zero=0)
    one = estimate(replace(plan.job, gpus=1), whole, plan.stack).memory
    return ceil((sum(one.values()) - one["activations"]) / plan.limit_bytes)


def _smallest(
    job: Job, stack: Stack, fixed: Mapping[str, Any], limit_bytes: float
) -> Layout | None:
    """Returns the layout of a job that needs the least memory, if that is within the limit."""
    layouts = space(job, _SMALLEST | dict(fixed)).kept
    if not len(layouts):
        return None
    sizes = evaluate(job, layouts, stack).memory_bytes
    place = int(np.argmin(sizes))
    return layouts[place] if sizes[place] <= limit_bytes else None


def _no_layout(plan: "Plan") -> str:
    """Returns why there is nothing to price."""
    job, refused = plan.job, plan.space.refused
    if not len(refused):
        given = _demands({axis: value for axis, value in plan.fixed.items() if axis in SIZES})
        return f"No t · p · d · context {given} makes {_gpus(job)}."
    everywhere = [i for i, rule in enumerate(RULES) if np.all(rule.broken(job, refused))]
    places = np.flatnonzero(plan.space.broken == _REPLICAS)
    if _REPLICAS in everywhere:
        places = np.arange(len(refused))
    if len(places):
        replicas = np.unique(refused.d[places])
        whole = replicas * plan.fixed.get("microbatch", 1)
        batches = np.concatenate((job.batch // whole * whole, (job.batch // whole + 1) * whole))
        batches = batches[batches > 0]
        nearest = int(batches[np.argmin(np.abs(batches - job.batch))])
        few = ", ".join(f"{d:,}" for d in replicas[:4])
        return (
            f"A batch of {job.batch:,} is shared evenly by no number of replicas that "
            f"{_gpus(job)} allow{_given(plan.fixed)} (d = {few}"
            f"{' …' if len(replicas) > 4 else ''}): the nearest that works is {nearest:,}."
        )
    last = int(np.argmax(plan.space.broken))  # it came furthest before it broke a rule
    rule = RULES[everywhere[0] if everywhere else plan.space.broken[last]]
    sentence = rule.sentence(job, refused[last])
    return f"No layout of {_gpus(job)} keeps the rules{_given(plan.fixed)}. {sentence}"


def _gpus(job: Job) -> str:
    return f"{job.gpus:,} GPU{'s' * (job.gpus != 1)}"


def _given(fixed: Mapping[str, Any]) -> str:
    return f" {_demands(fixed)}" if fixed else ""


def _demands(fixed: Mapping[str, Any]) -> str:
    """Returns demands in words: "with t = 8, ZeRO 1, full recompute"."""
    words = {
        "sequence_parallel": lambda on: f"{'' if on else 'no '}sequence parallelism",
        "recompute": lambda which: f"{which.replace('none', 'no')} recompute",
        "zero": lambda stage: f"ZeRO {stage}" if stage else "no ZeRO",
    }
    said = [words.get(a, lambda x, a=a: f"{a} = {x:,}")(value) for a, value in fixed.items()]
    return f"with {', '.join(said)}"
