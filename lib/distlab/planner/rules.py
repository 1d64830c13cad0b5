"""What a layout must obey before any cost is asked: each broken rule is one sentence.

The rules are those of the frameworks that run such layouts: tensor parallelism stays within a node
and cuts whole heads, every replica gets as many whole microbatches, chunks hold layers. They come
in a fixed order, and a layout is told the first that it breaks.

Source: Narayanan et al. (2021), sections 2 and 3; Korthikanti et al. (2022), section 4.2.2;
Megatron-LM's checks of its arguments; for context ranks, Llama 3 (2024), section 3.3.2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.layout import Job, Layout
from distlab.planner.split import most_chunks

LEAST_TOKENS = 1024  # of a context rank: Llama 3's had 8,192; the bound is the course's choice

Numbers = Any  # a layout, or a table of many: its fields are then columns


@dataclass(frozen=True)
class Rule:
    """A rule: whether a layout breaks it, and the sentence that says so.

    `broken` asks numbers alone, so one layout and a table of a million are asked by the same line.
    `outer` rules read t, p, d and context only: no choice of the others can mend what they refuse.
    """

    name: str
    outer: bool
    broken: Callable[[Job, Numbers], Any]
    sentence: Callable[[Job, Layout], str]


def _node(job: Job, x: Layout) -> str:
    node = job.cluster.gpus_per_node
    if x.t > node:
        return f"The {x.t:,} ranks of t do not fit in a node of {node}."
    return f"Groups of t = {x.t} do not fill a node of {node} evenly."


def _interleaved(job: Job, x: Layout) -> str:
    m = job.batch // (x.d * x.microbatch)
    return (
        f"Interleaving (v = {x.v}) takes {x.p} microbatches at a time, and {m:,} are no multiple "
        f"of that."
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "GPUs",
        True,
        lambda job, x: x.t * x.p * x.d * x.context != job.gpus,
        lambda job, x: f"t · p · d · context = {x.gpus:,} is not the {job.gpus:,} GPUs of the job.",
    ),
    Rule(
        "node",
        True,
        lambda job, x: job.cluster.gpus_per_node % x.t != 0,
        _node,
    ),
    Rule(
        "heads",
        True,
        lambda job, x: job.model.heads % x.t != 0,
        lambda job, x: f"t = {x.t} ranks do not share {job.model.heads} heads evenly.",
    ),
    Rule(
        "K/V heads",
        True,
        # Fewer K/V heads than ranks are kept by several ranks each, which then is to come out even.
        lambda job, x: (job.model.kv_heads % x.t != 0) & (x.t % job.model.kv_heads != 0),
        lambda job, x: f"t = {x.t} ranks do not share {job.model.kv_heads} K/V heads evenly.",
    ),
    Rule(
        "layers",
        True,
        lambda job, x: x.p > most_chunks(job.model.layers),
        lambda job, x: (
            f"{job.model.layers} layers make at most {most_chunks(job.model.layers)} stages "
            f"(the two at the ends may have none), not {x.p:,}."
        ),
    ),
    Rule(
        "context",
        True,
        # Two pieces a rank, one from each end, so that a causal mask leaves all as much to do.
        lambda job, x: (x.context > 1) & (job.seq % (2 * x.context) != 0),
        lambda job, x: (
            f"A sequence of {job.seq:,} tokens is not cut into 2 · context = {2 * x.context:,} "
            f"equal pieces."
        ),
    ),
    Rule(
        "context size",
        True,
        lambda job, x: (x.context > 1) & (job.seq < LEAST_TOKENS * x.context),
        lambda job, x: (
            f"context = {x.context:,} leaves a rank {job.seq // x.context:,} tokens; below "
            f"{LEAST_TOKENS:,} a sequence is not worth cutting."
        ),
    ),
    Rule(
        "replicas",
        True,
        lambda job, x: job.batch % x.d != 0,
        lambda job, x: f"The batch of {job.batch:,} is not a multiple of d = {x.d:,}.",
    ),
    Rule(
        "microbatches",
        False,
        lambda job, x: job.batch % (x.d * x.microbatch) != 0,
        lambda job, x: (
            f"The batch of {job.batch:,} is not a multiple of d · microbatch = "
            f"{x.d * x.microbatch:,}."
        ),
    ),
    Rule(
        "chunks",
        False,
        lambda job, x: x.p * x.v > most_chunks(job.model.layers),
        lambda job, x: (
            f"{job.model.layers} layers make at most {most_chunks(job.model.layers)} chunks (the "
            f"two at the ends may have none), not p · v = {x.p * x.v:,}."
        ),
    ),
    Rule(
        "one stage",
        False,
        lambda job, x: (x.p == 1) & (x.v > 1),
        lambda job, x: f"One stage alone has no chunks to interleave (v = {x.v}).",
    ),
    Rule(
        "uneven chunks",
        False,
        # Simulated (distlab.schedule), mixed chunks take up to 12 % longer than the stages' sums.
        lambda job, x: (x.v > 1) & (-job.model.layers % (x.p * x.v) > 2),
        lambda job, x: (
            f"Interleaved stages wait for each other unless all p · v = {x.p * x.v:,} chunks but "
            f"the two at the ends are of one size: {job.model.layers} layers do not allow that."
        ),
    ),
    Rule(
        "interleaving",
        False,
        lambda job, x: (x.v > 1) & (job.batch // (x.d * x.microbatch) % x.p != 0),
        _interleaved,
    ),
    Rule(
        "sequence parallel",
        False,
        lambda job, x: x.sequence_parallel & (job.seq // x.context % x.t != 0),
        lambda job, x: (
            f"{job.seq // x.context:,} tokens are not shared evenly by t = {x.t} ranks in sequence "
            f"parallelism."
        ),
    ),
)


def why_not(job: Job, layout: Layout) -> str | None:
    """Returns the sentence of the first rule that a layout breaks, None where it breaks none.

    Example: with 16 ranks of t on nodes of 8, "The 16 ranks of t do not fit in a node of 8."
    """
    for rule in RULES:
        if rule.broken(job, layout):
            return rule.sentence(job, layout)
    return None
