"""What one GPU of a stage keeps in memory: formulas that take numbers or numpy columns alike.

A layout `x` is any object with the fields of `distlab.layout.Layout`, whose `recompute` is the
place in RECOMPUTE. A stage is the number of its layers, its place, and whether it has the embedding
table (`first`) or the output head (`last`): 1 or 0.
"""

from typing import Any

from distlab.layout import Job
from distlab.planner.counts import Counts
from distlab.planner.elementwise import Numbers, larger, smaller, where
from distlab.planner.stack import Stack

RECOMPUTE = ("none", "selective", "full")
NONE, SELECTIVE, FULL = range(3)


def microbatch_count(job: Job, x: Any) -> Numbers:
    """Returns m, how many microbatches each replica works through in a step."""
    return job.batch / (x.d * x.microbatch)


def microbatch_tokens(job: Job, x: Any) -> Numbers:
    """Returns the tokens of one microbatch that one context rank has."""
    return x.microbatch * job.seq / x.context


def chunks_in_flight(x: Any, m: Numbers, stage: Numbers) -> Numbers:
    """Returns for how many (microbatch, chunk) pairs a stage keeps activations, at most.

    min(m, p - s) for 1F1B; min(mv, 2(p - 1 - s) + (v - 1)p + 1) for v > 1, so that the first of p
    stages keeps 1 + (p - 1)/(pv) times the whole model's layers, over p.

    Source: Narayanan et al. (2021), section 2.2; Korthikanti et al. (2022), section 4.2.3. Checked
    against the simulator of `distlab.schedule` by a test.
    """
    interleaved = 2 * (x.p - 1 - stage) + (x.v - 1) * x.p + 1
    return smaller(where(x.v > 1, interleaved, x.p - stage), m * x.v)


def layer_params(c: Counts, x: Any) -> Numbers:
    """Returns the parameters of one layer that one of the t ranks holds.

    Matrices and the biases of their columns are cut into t; norms and the biases of rows are not.
    K/V heads fewer than t are held by several ranks each.

    Source: Shoeybi et al. (2019), section 3; Llama 2's grouped heads (2023), appendix A.2.1.
    """
    copies = larger(x.t / c.kv_heads, 1) - 1
    return (c.layer_matrices + c.layer_biases + copies * c.kv_matrices) / x.t + c.layer_whole


def stage_params(
    c: Counts, x: Any, layers: Numbers, *, first: Numbers, last: Numbers
) -> dict[str, Numbers]:
    """Returns the parameters that one GPU of a stage holds, as "layers", "embedding" and "head".

    A tied head is the embedding table; with more than one stage, the last has a copy of its own.

    Source: Shoeybi et al. (2019), section 3 (both tables are cut along the vocabulary); Narayanan
    et al. (2021), section 2, for the copy.
    """
    head = where(c.tied & (x.p == 1), 0, c.table / x.t) + c.last_whole
    return {
        "layers": layers * layer_params(c, x),
        "embedding": first * (c.table / x.t + c.first_whole),
        "head": last * head,
    }


def activation_bytes(c: Counts, job: Job, x: Any, stack: Stack) -> tuple[Numbers, Numbers]:
    """Returns what one layer keeps of one microbatch, and what it needs more while it works.

    Per token, at two bytes an element and one a mask:
    whole: the inputs of both norms and of both blocks 8h, two dropout masks 2h;
    cut by t: Q, K, V and the attention's output; of the MLP, before and after GeLU 2 · 2f, or gate,
    up and their product 3 · 2f; scores: softmax's output, its mask, the dropped output 5as, or
    nothing if attention is fused.
    For GPT that is sbh(10 + 24/t + 5as/(ht)); sequence parallelism cuts the first part too.
    "selective" drops the scores, "full" keeps the layer's input 2sbh alone; it then needs the rest
    for the one layer that is working.

    Source: Korthikanti et al. (2022), equations 1, 2 and 4 and table 2; the gated MLP is counted
    the same way here.
    """
    n = microbatch_tokens(job, x)
    sharing = where(x.sequence_parallel, x.t, 1)
    inputs = 2 * c.hidden / sharing
    whole = (8 + 2 * stack.dropout) * c.hidden / sharing
    cut = 2 * (2 * c.query + (3 if c.gated else 2) * c.ffn) / x.t
    cut = cut + 4 * c.key / smaller(x.t, c.kv_heads)
    scores = 0 if stack.fused else (5 if stack.dropout else 2) * c.heads * job.seq / x.t
    kept = where(
        x.recompute == NONE,
        whole + cut + scores,
        where(
            x.recompute == SELECTIVE,
            (whole + cut) * (1 - stack.selective_share) + scores * (1 - stack.selective_core),
            inputs,
        ),
    )
    working = whole + cut + scores - kept
    return n * kept, n * working


def state_bytes(
    stack: Stack, x: Any, params: Numbers, *, largest_layer: Numbers
) -> dict[str, Numbers]:
    """Returns the bytes of weights, gradients and optimiser states for a GPU's parameters.

    ZeRO's stages 1, 2, 3 share optimiser states, gradients, weights among the d · context ranks;
    stage 3 has one layer's weights and gradients whole besides, while it works on it.

    Source: Rajbhandari et al. (2020), section 5; DeepSpeed's estimator (memory.rst) for the layer.
    """
    replicas = x.d * x.context
    gathered = where(x.zero == 3, largest_layer, 0)
    return {
        "weights": stack.weight_bytes * (params / where(x.zero == 3, replicas, 1) + gathered),
        "gradients": stack.gradient_bytes * (params / where(x.zero >= 2, replicas, 1) + gathered),
        "optimiser states": stack.optimiser_bytes * params / where(x.zero >= 1, replicas, 1),
    }


def memory_bytes(
    c: Counts,
    job: Job,
    x: Any,
    stack: Stack,
    *,
    layers: Numbers,
    stage: Numbers,
    first: Numbers,
    last: Numbers,
) -> dict[str, Numbers]:
    """Returns the bytes that one GPU of a stage keeps, by the parts of `distlab.memory.PARTS`.

    The last stage keeps the logits of one microbatch besides. Chunks in flight count at the stage's
    average size.

    Source: `state_bytes`, `activation_bytes`; Korthikanti et al. (2022), section 4.3, for the
    logits.
    """
    params = sum(stage_params(c, x, layers, first=first, last=last).values())
    kept, working = activation_bytes(c, job, x, stack)
    in_flight = chunks_in_flight(x, microbatch_count(job, x), stage)
    logits = last * microbatch_tokens(job, x) * c.vocab / x.t * stack.logit_bytes
    activations = kept * layers / x.v * in_flight + working + logits
    states = state_bytes(stack, x, params, largest_layer=layer_params(c, x))
    return {**states, "activations": activations}
