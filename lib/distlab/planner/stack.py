"""What a training program does, and how well: everything in the cost model that no shape tells.

A stack is a training program on a kind of GPU. What it *does* is read off its paper or its source:
bytes per parameter, how attention is computed, what is sent beside computing. How *well* it does it
are calibrated shares, fitted on published runs; `distlab.planner.stacks` has the table of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ring:
    """How a collective's ring runs over the links of a cluster.

    It takes `call_s`, then (n - 1) steps, twice that for an all-reduce, of `step_s` each, and sends
    at a share of the link's one-way rate. `distlab.cost` has the table of steps and bytes.
    """

    node_share: float
    network_share: float
    call_s: float = 0.0
    node_step_s: float = 0.0
    network_step_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A training program on a kind of GPU. What is left out is what most programs do today.

    Calibrated: `matrix_share`, the share of the peak that large matrix products reach, and
    `memory_share`, the share of the memory's rate that everything reaches which only moves bytes.

    Memory: `weight_bytes`, `gradient_bytes`, `optimiser_bytes` per parameter; `reduce_bytes` of a
    gradient as it is sent; `update_bytes` that the optimiser's step reads and writes per parameter:
    gradients read for the norm and for the step and cleared 12, FP32 weight and moments 24, weight
    2, in round numbers; `logit_bytes` kept per logit, `logit_traffic_bytes` that the loss reads and
    writes per logit: some ten passes of 4 bytes, for the largest, the exponentials, their sum, the
    logarithm and the gradient.

    Attention: `fused`: its scores never reach memory, and the half behind the causal mask is never
    computed; `attention_share` of the peak that its products reach (None: as other products).
    `dropout`: masks are kept. `selective_core`, `selective_share`: the shares of the attention's
    core, and of a layer's matrix products, that recompute="selective" drops and computes again.

    Sending: `tensor_beside`, `pipeline_beside`, `data_beside`: runs beside computing, and only
    what is longer than that shows. `scatter_gather`: the t ranks of a stage send a t-th each, and
    the next stage gathers.

    `peak_factor`: 2 where the layers' matrix products are FP8, whose peak is twice that of BF16.
    """

    name: str
    matrix_share: float
    memory_share: float
    ring: Ring
    weight_bytes: int = 2
    gradient_bytes: int = 4
    optimiser_bytes: int = 12
    reduce_bytes: int = 4
    update_bytes: int = 40
    logit_bytes: int = 4
    logit_traffic_bytes: int = 40
    fused: bool = True
    attention_share: float | None = None
    dropout: bool = False
    selective_core: float = 1.0
    selective_share: float = 0.0
    tensor_beside: bool = False
    pipeline_beside: bool = True
    data_beside: bool = True
    scatter_gather: bool = True
    peak_factor: float = 1.0

    def __post_init__(self):
        for field in ("matrix_share", "memory_share"):
            if getattr(self, field) <= 0:
                raise ValueError(f"{self.name}: {field} must be positive.")
