"""Published runs: each row of a table as a job, a layout and a stack, with what was measured.

Example: `runs("Narayanan 2021, Table 1")[0].measured == 137.0`, in `.unit` "TFLOP/s per GPU".
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from distlab.hardware import DGX_A100, DGX_H100, DGX_H200, Cluster
from distlab.layout import Job, Layout
from distlab.model import LLAMA3_8B, LLAMA3_405B, Config
from distlab.planner import stacks
from distlab.planner.counts import counts
from distlab.planner.estimate import Estimate, estimate
from distlab.planner.seconds import model_flop_per_token, ring_seconds
from distlab.planner.stack import Ring, Stack

DATA = Path(__file__).parent / "data"

# How a prediction is read in a table's own unit.
SECONDS, TOKENS = "s per step", "tokens/s per GPU"
WITH_RECOMPUTE, WITHOUT = "TFLOP/s per GPU, with recompute", "TFLOP/s per GPU"
HALF = "TFLOP/s per GPU, half the scores"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A published row: what ran, what was measured, where it stands, and what had to be assumed.

    `basis`: "retrieved" if the figure was read in a stored copy, "recalled" if it was not, "mixed"
    if some of the row's figures were not. `in_fit`: the stack's constants were fitted on this row
    too. `group`: rows that are left out together when constants are fitted on the others.
    """

    table: str
    row: str
    job: Job
    layout: Layout
    stack: Stack
    measured: float
    unit: str
    source: str
    basis: str
    in_fit: bool = True
    group: str = ""
    memory_gib: float | None = None

    @property
    def step_time_s(self) -> float:
        """The time of the measured step, worked out from the row's own unit."""
        if self.unit == SECONDS:
            return self.measured
        found = estimate(self.job, self.layout, self.stack)
        return found.step_time_s * in_unit(found, self.unit) / self.measured  # one over the other

    def predicted(self, stack: Stack | None = None) -> float:
        """Returns what the model says, in the row's unit, on its own stack or another."""
        return in_unit(estimate(self.job, self.layout, stack or self.stack), self.unit)


def in_unit(found: Estimate, unit: str) -> float:
    """Returns an estimate's speed in a table's unit."""
    peak = found.job.cluster.gpu.peak_flop_per_s / 1e12
    c = counts(found.job.model)
    behind_mask = c.layers * 6 * found.job.seq * c.query / model_flop_per_token(c, found.job)
    return {
        SECONDS: found.step_time_s,
        TOKENS: found.tokens_per_s / found.job.gpus,
        WITH_RECOMPUTE: found.hfu * peak,
        WITHOUT: found.mfu * peak,
        HALF: found.mfu * peak * (1 - behind_mask),
    }[unit]


def rows(file: str) -> list[dict[str, str]]:
    """Returns the rows of a table in `data/`."""
    with (DATA / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def gpt(r: Mapping[str, str]) -> Config:
    """Returns the GPT shape of a row: the papers' own models, whose head is the embedding table."""
    return Config(
        name=f"GPT {r.get('params_B') or r.get('model')}",
        layers=int(r["layers"]),
        hidden=int(r["hidden"]),
        heads=int(r["heads"]),
        vocab=int(r.get("vocab") or 51200),
        positions=int(r["seq_len"]),
        bias=True,
        tied=True,
    )


def _job(r: Mapping[str, str], model: Config, cluster: Cluster) -> Job:
    return Job(
        model=model,
        batch=int(r["global_batch_seqs"]),
        seq=int(r.get("seq_len") or 2048),
        gpus=int(r["n_gpus"]),
        cluster=cluster,
    )


def _layout(r: Mapping[str, str], **more) -> Layout:
    return Layout(
        int(r["tp"]),
        int(r["pp"]),
        int(r["dp"]),
        **{"v": int(r.get("interleave_v") or 1), "zero": 0} | more,
    )


def _korthikanti() -> list[Run]:
    shapes = {r["model"]: r for r in rows("korthikanti2022_table3_configs.csv")}
    found = []
    for r in rows("korthikanti2022_table5_iteration_time.csv"):
        shape, full = shapes[r["model"]], r["method"].startswith("full")
        found.append(
            Run(
                table="Korthikanti 2022, Table 5",
                row=f"{r['model']}, {'full' if full else 'selective + sequence parallel'}",
                job=_job(shape, gpt(shape), DGX_A100),
                layout=_layout(
                    shape,
                    microbatch=int(shape["micro_batch_seqs"]),
                    sequence_parallel=not full,
                    recompute="full" if full else "selective",
                ),
                stack=stacks.MEGATRON_2022,
                measured=float(r["iteration_time_s"]),
                unit=SECONDS,
                source=r["source"],
                basis=r["provenance"],
                group=r["model"],
            )
        )
    return found


def _narayanan() -> list[Run]:
    return [
        Run(
            table="Narayanan 2021, Table 1",
            row=f"{r['params_B']}B",
            job=_job(r, gpt(r), DGX_A100),
            layout=_layout(r, microbatch=int(r["micro_batch_seqs"])),
            stack=stacks.MEGATRON_2021,
            measured=float(r["achieved_tflops_per_gpu_incl_recompute"]),
            unit=WITH_RECOMPUTE,
            source=r["source"],
            basis=r["provenance"],
        )
        for r in rows("narayanan2021_table1.csv")
    ]


def _zero3() -> list[Run]:
    shapes = {
        "174.6": {"layers": "96", "hidden": "12288", "heads": "96"},
        "529.6": {"layers": "105", "hidden": "20480", "heads": "128"},
    }
    found = []
    for r in rows("narayanan2021_table2_zero3_vs_ptd.csv"):
        shape = r | shapes[r["params_B"]] | {"seq_len": "2048"}
        found.append(
            Run(
                table="Narayanan 2021, Table 2",
                row=f"{r['params_B']}B, {r['n_gpus']} GPUs",
                job=_job(shape, gpt(shape), DGX_A100),
                layout=Layout(
                    1, 1, int(r["n_gpus"]), microbatch=int(r["micro_batch_seqs"]), zero=3
                ),
                stack=stacks.ZERO3_2021,
                measured=float(r["achieved_tflops_per_gpu_incl_recompute"]),
                unit=WITH_RECOMPUTE,
                source=r["source"],
                basis=r["provenance"],
            )
        )
    return found


def _vtrain() -> list[Run]:
    # Four adapters of 200 Gb/s for eight GPUs, so half a DGX A100's network.
    half = replace(
        DGX_A100.network,
        name="network, 100 Gb/s per GPU",
        rate_bytes_per_s=DGX_A100.network.rate_bytes_per_s / 2,
    )
    cluster = replace(DGX_A100, name="vTrain's A100s", network=half)
    return [
        Run(
            table="vTrain 2024, several nodes",
            row="{params_B}B, {tp}×{pp}×{dp}, microbatch {micro_batch_seqs}".format_map(r),
            job=_job(r, gpt(r), cluster),
            layout=_layout(r, microbatch=int(r["micro_batch_seqs"])),
            stack=stacks.MEGATRON_2021,
            measured=float(r["iteration_time_s"]),
            unit=SECONDS,
            source=r["source"],
            basis=r["provenance"],
            in_fit=False,
        )
        for r in rows("vtrain2024_multinode.csv")
    ]


def _core() -> list[Run]:
    found = []
    for r in rows("megatron_core_h100_weak_scaling.csv"):
        p = int(r["pp"])
        model = replace(gpt(r), positions=0, tied=False)
        found.append(
            Run(
                table="Megatron-Core 0.8, weak scaling",
                row=r["model"],
                job=_job(r, model, DGX_H100),
                # Neither microbatch nor interleaving is printed: one sequence, one layer a chunk.
                layout=_layout(
                    r,
                    v=model.layers // p if p > 1 else 1,
                    sequence_parallel=int(r["tp"]) > 1,
                    recompute="none",
                    zero=1,
                ),
                stack=stacks.MEGATRON_CORE,
                measured=float(r["tflops_per_gpu_model"]),
                unit=WITHOUT,
                source=r["source"],
                basis=r["provenance"],
            )
        )
    return found


def _llama() -> list[Run]:
    # A first chunk with the embedding alone, a last with the head alone: one layer a chunk. Whether
    # the paper's FLOP count the scores behind the mask makes 4 % at 8K tokens and a third at 128K.
    return [
        Run(
            table="Llama 3 2024, Table 4",
            row=f"405B, {int(r['n_gpus']):,} GPUs"
            + (f", context {r['cp']}" if r["cp"] != "1" else ""),
            job=Job(
                model=LLAMA3_405B,
                batch=int(r["batch_per_dp_seqs"]) * int(r["dp"]),
                seq=int(r["seq_len"]),
                gpus=int(r["n_gpus"]),
                cluster=DGX_H100,
            ),
            layout=_layout(
                r, v=8, sequence_parallel=True, recompute="none", zero=1, context=int(r["cp"])
            ),
            stack=stacks.LLAMA_3,
            measured=float(r["tflops_per_gpu"]),
            unit=WITHOUT if r["cp"] == "1" else HALF,
            source=r["source"],
            basis=r["provenance"],
            in_fit=r["cp"] == "1",
        )
        for r in rows("llama3_table4.csv")
    ]


def _titan() -> list[Run]:
    h100 = replace(
        DGX_H100,
        name="torchtitan's H100s",
        gpu=replace(
            DGX_H100.gpu,
            name="H100 96 GB, 500 W",
            memory_bytes=96 * 2**30,
            hbm_bytes_per_s=2.4e12,
        ),
    )
    found = []
    for r in rows("torchtitan_performance.csv"):
        fp8, compiled = r["precision"] == "fp8", r["torch_compile"] == "1"
        if r["hardware"].startswith("A100"):
            cluster, stack = DGX_A100, stacks.TORCHTITAN_A100
            if r["activation_ckpt"] == "selective layer":  # every second layer, the whole of it
                stack = replace(stack, selective_share=0.5, selective_core=0.5)
        elif r["hardware"].startswith("H200"):
            cluster, stack = DGX_H200, stacks.TORCHTITAN_FP8_H200
        else:
            cluster = h100
            stack = stacks.TORCHTITAN_COMPILED if compiled else stacks.TORCHTITAN
            stack = stacks.TORCHTITAN_FP8 if fp8 else stack
        detail = [
            r["activation_ckpt"] if "layer" in r["activation_ckpt"] else "",
            "FP8" if fp8 else "BF16",
            "compiled" if compiled else "",
            f"{int(r['seq_len']) // 1024}K, context {r['cp']}" if r["table"] == "T2" else "",
        ]
        found.append(
            Run(
                table="torchtitan",
                row=f"{r['hardware'][:4]}, {r['n_gpus']} GPUs, "
                + ", ".join(word for word in detail if word),
                job=_job(r, LLAMA3_8B, cluster),
                layout=Layout(
                    1,
                    1,
                    int(r["fsdp"]),
                    microbatch=int(r["local_batch_seqs"]),
                    recompute="full" if r["activation_ckpt"] == "full" else "selective",
                    zero=3,
                    context=int(r["cp"]),
                ),
                stack=stack,
                measured=float(r["tokens_per_s_per_gpu"]),
                unit=TOKENS,
                source=r["source"],
                basis=r["provenance"],
                memory_gib=float(r["peak_memory_GiB"]) if r["peak_memory_GiB"] else None,
            )
        )
    return found


def shapes() -> list[tuple[Config, dict[str, str]]]:
    """Returns the published shapes of dense transformers, each with its row.

    A shape whose printed heads do not divide its hidden size (GPT-3 XL, 13B) gets one head: without
    grouped K/V heads their number changes no count.
    """
    found = []
    for r in rows("model_shapes.csv"):
        if r["params_total_B"] != r["params_active_B"]:
            continue  # experts
        hidden, heads, gated = int(r["hidden"]), int(r["heads"]), "swiglu" in r["block_note"]
        whole = hidden % heads == 0
        rotary = gated or r["model"].startswith(("BLOOM", "GPT-NeoX"))  # or ALiBi: no table
        shape = Config(
            name=r["model"],
            layers=int(r["layers"]),
            hidden=hidden,
            heads=heads if whole else 1,
            kv_heads=int(r["kv_heads"]) if whole else 1,
            ffn=int(r["ffn"]),
            vocab=int(r["vocab"]),
            gated=gated,
            norm="rms" if gated else "layer",
            bias=not gated,
            tied=not gated and not r["model"].startswith("GPT-NeoX"),
            positions=0 if rotary else int(r["train_seq_len"]),
            embedding_norm=r["model"].startswith("BLOOM"),
        )
        found.append((shape, r))
    return found


@dataclass(frozen=True)
class Collective:
    """One measured all-reduce: over `ranks` GPUs of one node, of `size_bytes` each."""

    gpu: str
    ranks: int
    size_bytes: int
    measured_s: float

    def predicted_s(self, ring: Ring, cluster: Cluster = DGX_A100) -> float:
        """Returns what the model says with a ring's constants."""
        return ring_seconds(cluster, ring, self.size_bytes, ranks=self.ranks, stride=1, passes=2)


@cache
def collectives(gpu: str) -> tuple[Collective, ...]:
    """Returns the all-reduces measured on one node of "A100" or "V100" GPUs (vTrain, 2024)."""
    return tuple(
        Collective(gpu, int(r["n_gpus"]), int(r["message_MiB"]) * 2**20, float(r["time_us"]) * 1e-6)
        for r in rows("vtrain2024_nccl_allreduce_nvlink.csv")
        if r["gpu"] == gpu
    )


TABLES: Mapping[str, Callable[[], list[Run]]] = {
    "Korthikanti 2022, Table 5": _korthikanti,
    "Narayanan 2021, Table 1": _narayanan,
    "Narayanan 2021, Table 2": _zero3,
    "vTrain 2024, several nodes": _vtrain,
    "Megatron-Core 0.8, weak scaling": _core,
    "Llama 3 2024, Table 4": _llama,
    "torchtitan": _titan,
}


@cache
def runs(table: str) -> tuple[Run, ...]:
    """Returns the runs of a published table, by its name in TABLES.

    Raises: ValueError for a table that is not there.
    """
    if table not in TABLES:
        raise ValueError(f"{table!r} is no table here; there are {', '.join(TABLES)}.")
    return tuple(TABLES[table]())
