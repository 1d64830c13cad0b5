"""The stacks that the planner knows: every calibrated constant, and the rows it was fitted on."""

from distlab.planner.stack import Ring, Stack

NCCL_A100 = Ring(
    node_share=0.707, network_share=0.86, call_s=39e-6, node_step_s=2e-6, network_step_s=9.6e-6
)
MEGATRON_2021 = Stack(
    name="Megatron-LM 2021, A100",
    matrix_share=0.73,
    memory_share=0.9,
    ring=NCCL_A100,
    gradient_bytes=2,
    reduce_bytes=2,
    fused=False,
    dropout=True,
    pipeline_beside=False,
    data_beside=False,
)
MEGATRON_2022 = Stack(
    name="Megatron-LM 2022, A100",
    matrix_share=0.83,
    memory_share=0.85,
    ring=NCCL_A100,
    fused=False,
    dropout=True,
    pipeline_beside=False,
    data_beside=False,
)
