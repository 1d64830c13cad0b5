"""How long a step takes, by part: formulas that take numbers or numpy columns alike.

A layout `x` is as in `distlab.planner.memory`. Everything is per GPU. What the formulas leave out:
launching kernels (the CPU sets the pace of small layers), contention between sending and computing,
stragglers, the loading of data; a share fitted on real runs holds some of it.
"""

from typing import Any

from distlab.hardware import Cluster
from distlab.layout import Job
from distlab.planner.counts import Counts
from distlab.planner.elementwise import Numbers, larger, smaller, where
from distlab.planner.memory import (
    FULL,
    NONE,
    microbatch_count,
    microbatch_tokens,
    stage_params,
)
from distlab.planner.stack import Ring, Stack

PARTS = ("compute", "bubble", "TP", "CP", "PP", "DP", "optimiser")


def ring_seconds(
    cluster: Cluster,
    ring: Ring,
    payload_bytes: Numbers,
    *,
    ranks: Numbers,
    stride: Numbers,
    passes: int,
) -> Numbers:
    """Returns the time of a collective over ranks that lie `stride` apart, one group of many.

    `passes`: 1 for a reduce-scatter or an all-gather of `payload_bytes` in all, 2 for an
    all-reduce: (n-1)/n of the payload is sent in each. Within a node the ring runs on the node's
    link. Across nodes there are as many rings side by side as the group has ranks in a node, each
    with a network adapter of its own, as far as the node's link feeds them.

    Source: Patarasuk and Yuan (2009) for the ring; NCCL's search for rings (NVIDIA/nccl,
    src/graph) for one ring per adapter.
    """
    node = cluster.gpus_per_node
    inside = ranks * stride <= node
    in_node = smaller(larger(node / stride, 1), ranks)
    fast = ring.node_share * cluster.node_link.rate_bytes_per_s
    wide = smaller(fast, in_node * ring.network_share * cluster.network.rate_bytes_per_s)
    rate = where(inside, fast, wide)
    step_s = where(inside, ring.node_step_s, ring.network_step_s)
    sending = passes * (ranks - 1) * (payload_bytes / ranks / rate + step_s)
    return where(ranks > 1, sending + ring.call_s, 0.0)


def layer_seconds(c: Counts, job: Job, x: Any, stack: Stack) -> dict[str, Numbers]:
    """Returns the times of one layer on one microbatch: forward, backward, and what is done again.

    Matrix products: 2n FLOP per parameter at `matrix_share` of the peak, plus the bytes of their
    operands at `memory_share` of the memory's rate, so that narrow products cost more per FLOP.
    Backward has two for each of forward.
    Attention's core: 4s FLOP per token and element of Q (half if fused, for the causal mask);
    backward twice that, or 2.5 times if fused, which computes the scores again.
    The rest only moves bytes. Per token forward: 22h whole (two norms, two of dropout and
    residual), 2 per element into and out of the activation function, 16 per element of Q (biases,
    transposes), 13 per score; backward 34h, 3, 16 and 19.

    Source: Narayanan et al. (2021), appendix, for the FLOP; Williams et al. (2009), the roofline,
    its two sides added; Dao (2023), section 2.3, for the fused backward; bytes counted here.
    """
    gpu = job.cluster.gpu
    n = microbatch_tokens(job, x)
    peak = gpu.peak_flop_per_s * stack.peak_factor * stack.matrix_share
    hbm = gpu.hbm_bytes_per_s * stack.memory_share
    share = stack.matrix_share if stack.attention_share is None else stack.attention_share
    matrices = c.layer_matrices / x.t
    operands = matrices + n * (4 * c.hidden + (2 * c.query + 2 * c.key + c.up + c.ffn) / x.t)
    products = 2 * n * matrices / peak + 2 * operands / hbm

    core_flop = 4 * n * job.seq * c.query / x.t / (2 if stack.fused else 1)
    core_products = core_flop / (gpu.peak_flop_per_s * share)
    scores = 0 if stack.fused else n * job.seq * c.heads / x.t
    core = core_products + 13 * scores / hbm
    core_back = (2.5 if stack.fused else 2) * core_products + 19 * scores / hbm

    h = c.hidden / where(x.sequence_parallel, x.t, 1)
    inner, q = (c.up + c.ffn) / x.t, c.query / x.t
    light = n * (22 * h + 2 * inner + 16 * q) / hbm
    light_back = n * (34 * h + 3 * inner + 16 * q) / hbm

    forward = products + core + light
    selective = stack.selective_share * products + stack.selective_core * core
    again = where(x.recompute == FULL, forward, where(x.recompute == NONE, 0, selective))
    return {
        "forward": forward,
        "backward": 2 * products + core_back + light_back,
        "again": again,
        "products": products,
        "core": core,
        "core_back": core_back,
    }


def tensor_seconds(c: Counts, job: Job, x: Any, stack: Stack, layer: dict[str, Numbers]) -> Numbers:
    """Returns what one layer's collectives over t add to one microbatch.

    Two all-reduces of the layer's output forward, two backward, two more if forward is done again.
    Sequence parallelism sends the same bytes as reduce-scatters and all-gathers, and gathers the
    inputs of both blocks once more for backward: half an all-reduce each. With `tensor_beside` they
    run beside the matrix products, and what takes longer than those shows.

    Source: Shoeybi et al. (2019), section 3; Korthikanti et al. (2022), section 4.2.2.
    """
    payload = 2 * microbatch_tokens(job, x) * c.hidden
    one = ring_seconds(job.cluster, stack.ring, payload, ranks=x.t, stride=1, passes=2)
    forward, backward = 2 * one, one * where(x.sequence_parallel, 3, 2)
    if stack.tensor_beside:
        forward = larger(forward - layer["products"], 0)
        backward = larger(backward - 2 * layer["products"], 0)
    return forward * where(x.recompute == FULL, 2, 1) + backward


def context_seconds(
    c: Counts, job: Job, x: Any, stack: Stack, layer: dict[str, Numbers]
) -> Numbers:
    """Returns what one layer's ring attention adds: K and V go round beside the attention's core.

    Forward each rank sends its K and V c - 1 times, backward those and their gradients. What takes
    longer than the core shows.

    Source: Liu et al. (2023), Ring Attention, section 3.
    """
    kv = 2 * 2 * microbatch_tokens(job, x) * c.key / smaller(x.t, c.kv_heads)
    around = ring_seconds(
        job.cluster, stack.ring, kv * x.context, ranks=x.context, stride=x.t, passes=1
    )
    forward = larger(around - layer["core"], 0)
    backward = larger(2 * around - layer["core_back"], 0)
    return forward + backward + where(x.recompute == FULL, forward, 0)


def pipeline_seconds(c: Counts, job: Job, x: Any, stack: Stack) -> Numbers:
    """Returns the time of a step's sends between stages, as far as it shows.

    A chunk sends 2nh bytes forward and as many backward, a t-th of that per rank with sequence
    parallelism, or with `scatter_gather`, which then gathers over t. If stages wait for what they
    send, each of the m·v chunks of a stage pays, and p - 1 more on the way in and out; if not, only
    the way through p·v chunks and back.

    Source: Narayanan et al. (2021), sections 3.2 and 4.1; `distlab.schedule` for the delays.
    """
    payload = 2 * microbatch_tokens(job, x) * c.hidden
    ring, cluster = stack.ring, job.cluster
    across = x.t * x.context * x.d >= cluster.gpus_per_node
    rate = where(
        across,
        ring.network_share * cluster.network.rate_bytes_per_s,
        ring.node_share * cluster.node_link.rate_bytes_per_s,
    )
    step_s = where(across, ring.network_step_s, ring.node_step_s)
    cut = where(x.sequence_parallel | stack.scatter_gather, x.t, 1)
    gather = ring_seconds(cluster, ring, payload, ranks=x.t, stride=1, passes=1)
    gather = where(x.sequence_parallel | (not stack.scatter_gather), 0, gather)
    waiting = microbatch_count(job, x) * x.v + x.p - 1
    through = x.p * x.v - 1
    sends = 2 * (through if stack.pipeline_beside else waiting)
    return where(x.p > 1, sends * (payload / cut / rate + step_s + gather), 0.0)


def data_seconds(
    c: Counts, job: Job, x: Any, stack: Stack, *, params: Numbers, forward: Numbers, back: Numbers
) -> Numbers:
    """Returns what gradients and shared weights, sent among the d · context ranks, add to a step.

    ZeRO 0: one all-reduce of the gradients. 1: a reduce-scatter, and an all-gather of the weights.
    2: a reduce-scatter for each microbatch. 3: for each microbatch the weights are gathered twice,
    for forward and for backward. With `data_beside` only what is longer than the computing beside
    it shows: backward of one microbatch (and forward, for gathered weights), or of all of them.

    Source: Rajbhandari et al. (2020), section 7, with accumulation over microbatches; Li et al.
    (2020), section 3.2.3, for the overlap.
    """
    m, n = microbatch_count(job, x), x.d * x.context
    args = {"ranks": n, "stride": x.t, "passes": 1}
    scatter = ring_seconds(job.cluster, stack.ring, stack.reduce_bytes * params, **args)
    gather = ring_seconds(job.cluster, stack.ring, stack.weight_bytes * params, **args)
    sending = where(x.zero == 0, 2 * scatter, where(x.zero == 1, scatter, m * scatter))
    sending = sending + where(x.zero == 3, 2 * m * gather, where(x.zero == 0, 0, gather))
    beside = where(x.zero >= 2, m, 1) * (back + where(x.zero == 0, 0, forward))
    return larger(sending - beside, 0) if stack.data_beside else sending


def step_seconds(
    c: Counts,
    job: Job,
    x: Any,
    stack: Stack,
    *,
    first_layers: Numbers,
    most_layers: Numbers,
    last_layers: Numbers,
) -> dict[str, Numbers]:
    """Returns the time of a step by part, from the layers of the first, fullest and last stage.

    compute: the slowest stage's, over all m microbatches, whether it is the fullest or the last,
    which has the head. TP, CP: the same stage's. bubble: the way in and out, which is one slot of
    all other stages, 1/v of that if interleaved; for equal stages (p - 1)/(vm) of the rest.

    Source: Narayanan et al. (2021), section 2.2.2; for unequal stages the first slot of each adds
    up, as in `distlab.schedule`'s closed form for GPipe.
    """
    gpu = job.cluster.gpu
    hbm = gpu.hbm_bytes_per_s * stack.memory_share
    m, n = microbatch_count(job, x), microbatch_tokens(job, x)
    layer = layer_seconds(c, job, x, stack)
    compute = layer["forward"] + layer["backward"] + layer["again"]
    tensor = tensor_seconds(c, job, x, stack, layer)
    context = context_seconds(c, job, x, stack, layer)
    head_flop = 6 * n * c.table / x.t
    head = head_flop / (gpu.peak_flop_per_s * stack.matrix_share)
    head = head + stack.logit_traffic_bytes * n * c.vocab / x.t / hbm

    whole_layer = compute + tensor + context
    last_is_slowest = last_layers * whole_layer + head > most_layers * whole_layer
    layers = where(last_is_slowest, last_layers, most_layers)
    slot = layers * compute + where(last_is_slowest, head, 0)
    through = c.layers * whole_layer + head
    bubble = larger(through - slot - layers * (tensor + context), 0) / x.v

    sizes = [
        sum(stage_params(c, x, first_layers, first=1, last=0).values()),
        sum(stage_params(c, x, most_layers, first=0, last=0).values()),
        sum(stage_params(c, x, last_layers, first=x.p == 1, last=1).values()),
    ]
    params = larger(larger(sizes[0], sizes[1]), sizes[2])
    data = data_seconds(
        c,
        job,
        x,
        stack,
        params=params,
        forward=layers * layer["forward"],
        back=layers * (layer["backward"] + layer["again"]),
    )
    updated = params / where(x.zero >= 1, x.d * x.context, 1)
    return {
        "compute": m * slot,
        "bubble": bubble,
        "TP": m * layers * tensor,
        "CP": m * layers * context,
        "PP": pipeline_seconds(c, job, x, stack),
        "DP": data,
        "optimiser": stack.update_bytes * updated / hbm,
    }


def model_flop_per_token(c: Counts, job: Job) -> float:
    """Returns the FLOP of one token, forward and backward, as MFU counts them.

    6 per parameter of the layers' matrices and of the head, and 12s per element of Q and layer for
    the attention's core: all scores, also those behind the mask.

    Source: Narayanan et al. (2021), appendix: 72 L h² (1 + s/6h + V/12hL); Chowdhery et al. (2022),
    appendix B.
    """
    layer = 6 * c.layer_matrices + 12 * job.seq * c.query
    return c.layers * layer + 6 * c.table


def extra_flop_per_token(c: Counts, job: Job, x: Any, stack: Stack) -> Numbers:
    """Returns the FLOP of one token that recompute adds: HFU counts them too, MFU does not.

    Source: Korthikanti et al. (2022), appendix A: a third more of the layers with full recompute,
    the attention's core with selective.
    """
    core = 4 * job.seq * c.query
    selective = stack.selective_share * 2 * c.layer_matrices + stack.selective_core * core
    full = 2 * c.layer_matrices + core
    return c.layers * where(x.recompute == FULL, full, where(x.recompute == NONE, 0, selective))
