"""The stacks that the planner knows: every calibrated constant, and the rows it was fitted on.

`CALIBRATED` is the one table of constants that were fitted, at most three for a stack; a test fits
them again and compares. Everything else about a stack is what its paper or source says it does.
The rows lie in `data/`, one CSV per published table, with sources; `distlab.planner.published`
reads them, and course/measured.md shows how far the model is off, on these rows and on others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from distlab.hardware import Gpu
from distlab.planner.stack import Ring, Stack


@dataclass(frozen=True)
class Constant:
    """A fitted number: the field of `Stack` or `Ring` that it is, whose, and the rows behind it.

    Constants that name the same stack were fitted together, on all the rows of those stacks.
    """

    field: str
    value: float
    stacks: tuple[str, ...]
    rows: str


NVLINK_A100 = "NCCL, NVLink of the A100"
M2021, M2022 = "Megatron-LM 2021, A100", "Megatron-LM 2022, A100"
ZERO3 = "DeepSpeed ZeRO-3 2021, A100"
CORE, LLAMA = "Megatron-Core 0.8, H100", "Llama 3, H100"
TITAN, TITAN_COMPILED = "torchtitan, H100", "torchtitan compiled, H100"
TITAN_FP8, TITAN_FP8_H200 = "torchtitan compiled FP8, H100", "torchtitan compiled FP8, H200"
TITAN_A100 = "torchtitan, A100"

_NCCL_ROWS = "vTrain 2024, all-reduce on 2 to 8 A100s: 77 rows"
_TITAN_ROWS = "torchtitan 2024-12, BF16"
CALIBRATED: tuple[Constant, ...] = (
    Constant("call_s", 39.7e-6, (NVLINK_A100,), _NCCL_ROWS),
    Constant("node_step_s", 2.05e-6, (NVLINK_A100,), _NCCL_ROWS),
    Constant("node_share", 0.705, (NVLINK_A100,), _NCCL_ROWS),
    Constant("memory_share", 0.85, (M2021, M2022), "the 18 rows of the next two lines"),
    Constant("matrix_share", 0.756, (M2021,), "Narayanan 2021, Table 1: 10 rows"),
    Constant("matrix_share", 0.833, (M2022,), "Korthikanti 2022, Table 5: 8 rows"),
    Constant("matrix_share", 0.482, (ZERO3,), "Narayanan 2021, Table 2: 6 rows"),
    Constant("network_share", 0.0829, (ZERO3,), "Narayanan 2021, Table 2: 6 rows"),
    Constant("matrix_share", 0.557, (CORE,), "Megatron-LM README, weak scaling: 5 rows"),
    Constant("matrix_share", 0.609, (LLAMA,), "Llama 3 2024, Table 4, 8K tokens: 2 rows"),
    Constant("matrix_share", 0.38, (TITAN,), f"{_TITAN_ROWS}, not compiled: 2 rows"),
    Constant("matrix_share", 0.465, (TITAN_COMPILED,), f"{_TITAN_ROWS}, compiled: 2 rows"),
    Constant("matrix_share", 0.482, (TITAN_FP8,), "torchtitan 2024-12, FP8: 6 rows"),
    Constant("attention_share", 0.204, (TITAN_FP8,), "torchtitan 2024-12, FP8: 6 rows"),
    Constant("matrix_share", 0.603, (TITAN_A100,), "torchtitan 2024-08, A100: 2 rows"),
    Constant("matrix_share", 0.603, (TITAN_FP8_H200,), "torchtitan 2025-06, H200: 2 rows"),
)


def _of(name: str) -> dict[str, float]:
    return {c.field: c.value for c in CALIBRATED if name in c.stacks}


# The network's share is no constant of ours: NVIDIA/nccl-tests issue 175 (2023) measures 86 GB/s on
# two nodes of eight A100s with four adapters of 25 GB/s, and an engineer of NCCL expects 46 to 48
# GB/s of a 50 GB/s adapter in issue 290 (2025). A step's latency: NVIDIA/nccl, tuning.cc.
_NCCL = _of(NVLINK_A100)
NCCL_A100 = Ring(network_share=0.86, network_step_s=9.6e-6, **_NCCL)
NCCL_H100 = Ring(network_share=0.94, network_step_s=9.6e-6, **_NCCL)  # NVLink's share: as on A100

# Element-wise kernels reach this share of a GPU's memory rate; too few H100 rows to fit it again.
_MEMORY = _of(M2022)["memory_share"]

_MEGATRON = {
    "ring": NCCL_A100,
    "fused": False,
    "dropout": True,
    "pipeline_beside": False,
    "data_beside": False,
}
# Narayanan et al. (2021): gradients in FP16, all-reduced when backward is over.
MEGATRON_2021 = Stack(name=M2021, gradient_bytes=2, reduce_bytes=2, **_MEGATRON, **_of(M2021))
# Korthikanti et al. (2022): Figure 1 counts 18 bytes per parameter.
MEGATRON_2022 = Stack(name=M2022, **_MEGATRON, **_of(M2022))
# Narayanan et al. (2021), section 5.2: DeepSpeed's ZeRO-3 without model parallelism.
_ZERO3 = _of(ZERO3)
_ZERO3_RING = Ring(network_share=_ZERO3.pop("network_share"), network_step_s=9.6e-6, **_NCCL)
ZERO3_2021 = Stack(
    name=ZERO3,
    gradient_bytes=2,
    reduce_bytes=2,
    memory_share=_of(M2021)["memory_share"],
    **_MEGATRON | {"ring": _ZERO3_RING, "data_beside": True},
    **_ZERO3,
)
# Its README: tensor, pipeline and data parallelism's sending is overlapped.
MEGATRON_CORE = Stack(
    name=CORE, ring=NCCL_H100, tensor_beside=True, memory_share=_MEMORY, **_of(CORE)
)
LLAMA_3 = Stack(name=LLAMA, ring=NCCL_H100, memory_share=_MEMORY, **_of(LLAMA))
# torchtitan keeps its weights in FP32 and gathers them in BF16: 16 bytes per parameter, of which
# `weight_bytes` counts 2. FlashAttention-2 reaches 35 % of an H100's peak (Shah et al., 2024),
# 50 to 73 % of an A100's (Dao, 2023; 60 % is taken). Its "selective" computes every second
# matrix product again: 2nd, 4th and 6th of a layer's seven (K, the attention's output, the MLP's
# second), 36.5 % of Llama 3 8B's (torchtitan, parallelize_llama.py).
_TITAN = {
    "ring": NCCL_H100,
    "memory_share": _MEMORY,
    "optimiser_bytes": 10,
    "logit_bytes": 10,
    "selective_core": 0.0,
    "selective_share": 0.365,
}
TORCHTITAN = Stack(name=TITAN, attention_share=0.35, **_TITAN, **_of(TITAN))
TORCHTITAN_COMPILED = Stack(
    name=TITAN_COMPILED,
    attention_share=0.35,
    **_TITAN,
    **_of(TITAN_COMPILED),
)
TORCHTITAN_FP8 = Stack(
    name=TITAN_FP8,
    peak_factor=2,
    **_TITAN,
    **_of(TITAN_FP8),
)
TORCHTITAN_A100 = Stack(
    name=TITAN_A100,
    attention_share=0.6,
    **_TITAN | {"ring": NCCL_A100},
    **_of(TITAN_A100),
)
TORCHTITAN_FP8_H200 = Stack(
    name=TITAN_FP8_H200,
    attention_share=_of(TITAN_FP8)["attention_share"],
    peak_factor=2,
    **_TITAN,
    **_of(TITAN_FP8_H200),
)

STACKS: Mapping[str, Stack] = {
    stack.name: stack
    for stack in (
        MEGATRON_2021,
        MEGATRON_2022,
        ZERO3_2021,
        MEGATRON_CORE,
        LLAMA_3,
        TORCHTITAN,
        TORCHTITAN_COMPILED,
        TORCHTITAN_FP8,
        TORCHTITAN_A100,
        TORCHTITAN_FP8_H200,
    )
}


def stack_of(gpu: Gpu) -> Stack:
    """Returns the stack that a plan assumes on a GPU: of those calibrated, the nearest.

    Shares fitted on one GPU say little of another: for those that are neither A100 nor H100 the
    result is a guess.

    Example: `stack_of(H100_SXM).name == "Megatron-Core 0.8, H100"`.
    """
    return MEGATRON_2022 if gpu.name.startswith(("A100", "V100")) else MEGATRON_CORE
