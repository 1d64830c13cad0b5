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
class Calibration:
    """Constants of a stack, and the published rows that they were fitted on."""

    constants: Mapping[str, float]
    rows: str


CALIBRATED: Mapping[str, Calibration] = {
    "NCCL, NVLink of the A100": Calibration(
        {"call_s": 39.7e-6, "node_step_s": 2.05e-6, "node_share": 0.705},
        "vTrain 2024, all-reduce on 2 to 8 A100s, 77 rows",
    ),
    "Megatron-LM 2021, A100": Calibration(
        {"matrix_share": 0.748, "memory_share": 0.88}, "Narayanan 2021, Table 1, 10 rows"
    ),
    "Megatron-LM 2022, A100": Calibration(
        {"matrix_share": 0.844, "memory_share": 0.805}, "Korthikanti 2022, Table 5, 8 rows"
    ),
    "DeepSpeed ZeRO-3 2021, A100": Calibration(
        {"matrix_share": 0.48, "network_share": 0.0829}, "Narayanan 2021, Table 2, 6 rows"
    ),
    "Megatron-Core 0.8, H100": Calibration(
        {"matrix_share": 0.563}, "Megatron-LM README, weak scaling, 5 rows"
    ),
    "Llama 3, H100": Calibration({"matrix_share": 0.612}, "Llama 3 2024, Table 4, 2 rows"),
    "torchtitan, H100": Calibration(
        {"matrix_share": 0.383}, "torchtitan 2024-12, BF16 without compile, 2 rows"
    ),
    "torchtitan compiled, H100": Calibration(
        {"matrix_share": 0.47}, "torchtitan 2024-12, BF16 with compile, 2 rows"
    ),
    "torchtitan compiled FP8, H100": Calibration(
        {"matrix_share": 0.492, "attention_share": 0.204}, "torchtitan 2024-12, FP8, 6 rows"
    ),
    "torchtitan, A100": Calibration({"matrix_share": 0.607}, "torchtitan 2024-08, 2 rows"),
    "torchtitan compiled FP8, H200": Calibration(
        {"matrix_share": 0.61}, "torchtitan 2025-06, FP8, 2 rows"
    ),
}


def _of(name: str) -> Mapping[str, float]:
    return CALIBRATED[name].constants


# The network's share is no constant of ours: NVIDIA/nccl-tests issue 175 (2023) measures 86 GB/s on
# two nodes of eight A100s with four adapters of 25 GB/s, and an engineer of NCCL expects 46 to 48
# GB/s of a 50 GB/s adapter in issue 290 (2025). A step's latency: NVIDIA/nccl, tuning.cc.
_NCCL = _of("NCCL, NVLink of the A100")
NCCL_A100 = Ring(network_share=0.86, network_step_s=9.6e-6, **_NCCL)
NCCL_H100 = Ring(network_share=0.94, network_step_s=9.6e-6, **_NCCL)  # NVLink's share: as on A100

# Element-wise kernels reach this share of a GPU's memory rate; too few H100 rows to fit it again.
_MEMORY = _of("Megatron-LM 2022, A100")["memory_share"]

_MEGATRON = {
    "ring": NCCL_A100,
    "fused": False,
    "dropout": True,
    "pipeline_beside": False,
    "data_beside": False,
}
MEGATRON_2021 = (
    Stack(  # Narayanan et al. (2021): FP16 gradients, all-reduced after the backward pass
        name="Megatron-LM 2021, A100",
        gradient_bytes=2,
        reduce_bytes=2,
        **_MEGATRON,
        **_of("Megatron-LM 2021, A100"),
    )
)
MEGATRON_2022 = Stack(  # Korthikanti et al. (2022), whose Figure 1 counts 18 bytes per parameter
    name="Megatron-LM 2022, A100", **_MEGATRON, **_of("Megatron-LM 2022, A100")
)
_ZERO3 = dict(_of("DeepSpeed ZeRO-3 2021, A100"))
_ZERO3_RING = Ring(network_share=_ZERO3.pop("network_share"), network_step_s=9.6e-6, **_NCCL)
ZERO3_2021 = Stack(  # Narayanan et al. (2021), section 5.2: DeepSpeed, without model parallelism
    name="DeepSpeed ZeRO-3 2021, A100",
    gradient_bytes=2,
    reduce_bytes=2,
    memory_share=_of("Megatron-LM 2021, A100")["memory_share"],
    **_MEGATRON | {"ring": _ZERO3_RING, "data_beside": True},
    **_ZERO3,
)
MEGATRON_CORE = Stack(
    name="Megatron-Core 0.8, H100",
    ring=NCCL_H100,
    tensor_beside=True,  # its README: overlap of tensor, pipeline and data parallelism
    memory_share=_MEMORY,
    **_of("Megatron-Core 0.8, H100"),
)
LLAMA_3 = Stack(
    name="Llama 3, H100",
    ring=NCCL_H100,
    memory_share=_MEMORY,
    **_of("Llama 3, H100"),
)
# torchtitan keeps its weights in FP32 and gathers them in BF16: 16 bytes per parameter, of which
# `weight_bytes` counts 2. FlashAttention-2 reaches 35 % of an H100's peak and up to 73 % of an
# A100's (Shah et al., 2024; Dao, 2023). Its "selective" computes every second matrix product again:
# 2nd, 4th and 6th of a layer's seven (K, the attention's output, the MLP's second), 36.5 % of
# Llama 3 8B's (torchtitan, parallelize_llama.py).
_TITAN = {
    "ring": NCCL_H100,
    "memory_share": _MEMORY,
    "optimiser_bytes": 10,
    "logit_bytes": 10,
    "selective_core": 0.0,
    "selective_share": 0.365,
}
TORCHTITAN = Stack(
    name="torchtitan, H100", attention_share=0.35, **_TITAN, **_of("torchtitan, H100")
)
TORCHTITAN_COMPILED = Stack(
    name="torchtitan compiled, H100",
    attention_share=0.35,
    **_TITAN,
    **_of("torchtitan compiled, H100"),
)
TORCHTITAN_FP8 = Stack(
    name="torchtitan compiled FP8, H100",
    peak_factor=2,
    **_TITAN,
    **_of("torchtitan compiled FP8, H100"),
)
TORCHTITAN_A100 = Stack(
    name="torchtitan, A100",
    attention_share=0.6,
    **_TITAN | {"ring": NCCL_A100},
    **_of("torchtitan, A100"),
)
TORCHTITAN_FP8_H200 = Stack(
    name="torchtitan compiled FP8, H200",
    attention_share=_of("torchtitan compiled FP8, H100")["attention_share"],
    peak_factor=2,
    **_TITAN,
    **_of("torchtitan compiled FP8, H200"),
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
