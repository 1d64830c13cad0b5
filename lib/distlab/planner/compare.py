"""The cost model held against published tables: what it says of each row, fitted and not.

`compared("Narayanan 2021, Table 1")` has two predictions for each row: with the stack's constants,
and with constants fitted on the table's other rows, which is the one that tests the model. Memory
figures have no constants; `memory_figures` compares them by the policy that each source uses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

from distlab.layout import Job, Layout
from distlab.planner import memory
from distlab.planner.calibrate import fit, fit_ring, left_out, with_constants
from distlab.planner.counts import counts
from distlab.planner.estimate import estimate, numbers
from distlab.planner.published import (
    SECONDS,
    TABLES,
    Collective,
    Run,
    collectives,
    rows,
    runs,
    shapes,
)
from distlab.planner.stack import Stack
from distlab.planner.stacks import (
    CALIBRATED,
    MEGATRON_2021,
    MEGATRON_2022,
    NCCL_A100,
    NVLINK_A100,
    Constant,
)


@dataclass(frozen=True)
class Compared:
    """A run with two predictions: by the stack's constants, and by constants not fitted on it."""

    run: Run
    fitted: float
    unfitted: float

    @property
    def fitted_error(self) -> float:
        """By how much the step's time with the stack's constants is off, as a share."""
        return _time_error(self.fitted, self.run)

    @property
    def error(self) -> float:
        """By how much the step's time is off by constants that know nothing of this row."""
        return _time_error(self.unfitted, self.run)


def _time_error(predicted: float, run: Run) -> float:
    """The error as that of a time, whatever unit the table has."""
    ratio = predicted / run.measured
    return (ratio if run.unit == SECONDS else 1 / ratio) - 1


def together(name: str) -> tuple[tuple[str, ...], tuple[Constant, ...]]:
    """Returns the stacks whose constants were fitted with this one's, and all those constants."""
    names = {name}
    for c in CALIBRATED:
        if name in c.stacks:
            names |= set(c.stacks)
    constants = tuple(c for c in CALIBRATED if names & set(c.stacks))
    return tuple(sorted(names)), constants


def fit_runs(names: Sequence[str]) -> list[Run]:
    """Returns the published runs that the constants of these stacks were fitted on."""
    return [r for t in TABLES for r in runs(t) if r.in_fit and r.stack.name in names]


@cache
def _left_out(names: tuple[str, ...]) -> dict[tuple[str, str], float]:
    found = fit_runs(names)
    _, constants = together(names[0])
    predictions = left_out(found, constants)
    return {(r.table, r.row): x for r, x in zip(found, predictions, strict=True)}


@cache
def compared(table: str) -> tuple[Compared, ...]:
    """Returns the runs of a table with their predictions, in the table's order."""
    found = []
    for run in runs(table):
        fitted = run.predicted()
        names, _ = together(run.stack.name)
        unfitted = _left_out(names)[run.table, run.row] if run.in_fit else fitted
        found.append(Compared(run, fitted, unfitted))
    return tuple(found)


def mean_error(found: Sequence[Compared]) -> float:
    """Returns the mean of the absolute errors on rows not fitted."""
    return sum(abs(one.error) for one in found) / len(found)


def worst(found: Sequence[Compared]) -> Compared:
    """Returns the row whose unfitted prediction is furthest off."""
    return max(found, key=lambda one: abs(one.error))


def picked_over_best(found: Sequence[Compared]) -> float:
    """Returns what the layout costs that the model would pick of these, over the measured best."""
    picked = min(found, key=lambda one: one.unfitted)
    return picked.run.measured / min(one.run.measured for one in found)


def _ring(**changes: float) -> Callable[[Stack], Stack]:
    return lambda stack: replace(stack, ring=replace(stack.ring, **changes))


_NO_LATENCY = {"call_s": 0.0, "node_step_s": 0.0, "network_step_s": 0.0}
# The model with one term less: what it makes of a stack of Megatron-LM.
VARIANTS: Mapping[str, Callable[[Stack], Stack]] = {
    "as it is": lambda stack: stack,
    "memory's rate without limit": lambda stack: replace(stack, memory_share=1e9),
    "no logits read or written, no optimiser's step": lambda stack: replace(
        stack, logit_traffic_bytes=0, update_bytes=0
    ),
    "what t sends is hidden": lambda stack: replace(stack, tensor_beside=True),
    "stages do not wait for what they send": lambda stack: replace(stack, pipeline_beside=True),
    "gradients are sent beside backward": lambda stack: replace(stack, data_beside=True),
    "no latency": _ring(**_NO_LATENCY),
    "no latency, links at their full rate": _ring(node_share=1.0, network_share=1.0, **_NO_LATENCY),
}


@cache
def without(variant: str) -> dict[str, float]:
    """Returns the mean errors of Megatron-LM's tables in a variant of the model, by table.

    The constants are fitted again, each row or model left out of its own, vTrain's of all.
    """
    change = VARIANTS[variant]
    names, constants = together(MEGATRON_2021.name)
    if change(MEGATRON_2021).memory_share != MEGATRON_2021.memory_share:
        constants = tuple(c for c in constants if c.field != "memory_share")
    found = [replace(run, stack=change(run.stack)) for run in fit_runs(names)]
    fitted = fit(found, constants)
    errors: dict[str, list[float]] = {}
    for run, predicted in zip(found, left_out(found, constants), strict=True):
        errors.setdefault(run.table, []).append(abs(_time_error(predicted, run)))
    for run in runs("vTrain 2024, several nodes"):
        predicted = run.predicted(with_constants(change(run.stack), fitted))
        errors.setdefault(run.table, []).append(abs(_time_error(predicted, run)))
    return {table: sum(all_) / len(all_) for table, all_ in errors.items()}


@dataclass(frozen=True)
class ComparedCollective:
    """A collective with two predictions: by the ring's constants, and by those of other sizes."""

    collective: Collective
    fitted_s: float
    unfitted_s: float

    @property
    def error(self) -> float:
        """By how much the prediction is off that knows no group of this size, as a share."""
        return self.unfitted_s / self.collective.measured_s - 1


@cache
def compared_collectives() -> tuple[ComparedCollective, ...]:
    """Returns the A100's all-reduces; each group size is left out of its own constants' fit."""
    found, (_, constants) = collectives("A100"), together(NVLINK_A100)
    made = []
    for ranks in sorted({one.ranks for one in found}):
        others = [one for one in found if one.ranks != ranks]
        fitted = fit_ring(others, NCCL_A100, constants)
        ring = replace(NCCL_A100, **{c.field: c.value for c in fitted})
        made += [
            ComparedCollective(one, one.predicted_s(NCCL_A100), one.predicted_s(ring))
            for one in found
            if one.ranks == ranks
        ]
    return tuple(made)


@dataclass(frozen=True)
class Figure:
    """A published figure beside the model's."""

    table: str
    row: str
    published: float
    predicted: float
    unit: str
    basis: str

    @property
    def error(self) -> float:
        """By how much the model is off, as a share."""
        return self.predicted / self.published - 1


@cache
def memory_figures() -> tuple[Figure, ...]:
    """Returns every analytic memory figure that was published, beside the model's."""
    return (*_korthikanti_figure_1(), *_korthikanti_table_2(), *_zero(), *_deepspeed())


def _korthikanti_figure_1() -> list[Figure]:
    """The paper counts 18 bytes per parameter of the layers alone, and what the layers keep."""
    name = "Korthikanti 2022, Figure 1"
    by_row = {run.row: run for run in runs("Korthikanti 2022, Table 5")}
    found = []
    for r in rows("korthikanti2022_fig1_memory.csv"):
        run = by_row[f"{r['model']}, selective + sequence parallel"]
        plain = replace(run.layout, sequence_parallel=False, recompute="none")
        per_param = sum(
            (
                MEGATRON_2022.weight_bytes,
                MEGATRON_2022.gradient_bytes,
                MEGATRON_2022.optimiser_bytes,
            )
        )
        states = estimate(run.job, run.layout, MEGATRON_2022).params["layers"] * per_param
        pairs = {
            "states": (r["params_optimizer_GiB_per_gpu"], states),
            "activations": (r["activations_baseline_GiB"], _kept(run.job, plain)),
            "activations, selective + sequence parallel": (
                r["activations_selective_sp_GiB"],
                _kept(run.job, run.layout),
            ),
        }
        for what, (published, predicted) in pairs.items():
            row = f"{r['model']}, {what}"
            gib = predicted / 2**30
            found.append(Figure(name, row, float(published), gib, "GiB", r["provenance"]))
    return found


def _kept(job: Job, layout: Layout) -> float:
    """What the first stage's layers keep for backward: no logits, and no layer at work."""
    c, x = counts(job.model), numbers(layout)
    kept, _ = memory.activation_bytes(c, job, x, MEGATRON_2022)
    in_flight = memory.chunks_in_flight(x, memory.microbatch_count(job, x), 0)
    return kept * c.layers / (x.p * x.v) * in_flight


def _korthikanti_table_2() -> list[Figure]:
    """The formulas of one layer, evaluated for GPT-3's shape on t = 8."""
    ways = {
        "no parallelism": (1, False, "none"),
        "tensor parallel": (8, False, "none"),
        "tensor + sequence parallel": (8, True, "none"),
        "tensor + selective recompute": (8, False, "selective"),
        "tensor + sequence + selective": (8, True, "selective"),
        "full recompute": (1, False, "full"),
    }
    run = next(r for r in runs("Korthikanti 2022, Table 5") if r.row.startswith("175B"))
    c = counts(run.job.model)
    found = []
    for r in rows("korthikanti2022_table2_activation_formulas.csv"):
        if r["configuration"] not in ways:
            continue
        t, sequence_parallel, recompute = ways[r["configuration"]]
        layout = Layout(t, 1, 1, sequence_parallel=sequence_parallel, recompute=recompute)
        symbols = {"s": run.job.seq, "b": 1, "h": c.hidden, "a": c.heads, "t": t}
        published = eval(r["bytes_per_layer_formula"], {"__builtins__": {}}, symbols)
        kept, _ = memory.activation_bytes(c, run.job, numbers(layout), MEGATRON_2022)
        row, name = r["configuration"], "Korthikanti 2022, Table 2"
        found.append(Figure(name, row, published / 1e6, kept / 1e6, "MB", r["provenance"]))
    return found


def _zero() -> list[Figure]:
    """ZeRO's Figure 1: 2 + 2 + 12 bytes per parameter, over 64 replicas."""
    stack = replace(MEGATRON_2022, gradient_bytes=2)
    (r,) = rows("zero2020_fig1.csv")
    params = float(r["params_B"]) * 1e9
    found = []
    for zero, column in enumerate(("baseline_GB", "P_os_GB", "P_os_g_GB", "P_os_g_p_GB")):
        predicted = sum(_states(stack, params, zero, int(r["dp_degree"])).values()) / 1e9
        row = f"ZeRO-{zero}" if zero else "data parallel"
        name = "ZeRO 2020, Figure 1"
        found.append(Figure(name, row, float(r[column]), predicted, "GB", r["provenance"]))
    return found


def _deepspeed() -> list[Figure]:
    """DeepSpeed's estimator: 4 + 16 bytes per parameter. Its ZeRO-2 keeps the gradients whole; its
    ZeRO-3 shares 18 bytes and has the largest layer's weights and gradients besides. What is
    offloaded is left out: the optimiser's states take the gradients with them.
    """
    name = "DeepSpeed's estimator"
    found = []
    for r in rows("deepspeed_estimator_outputs.csv"):
        zero, gpus = int(r["zero_stage"]), int(r["gpus_per_node"]) * int(r["nodes"])
        layer = float(r["largest_layer_M"] or 0) * 1e6
        params = float(r["params_M"]) * 1e6
        if zero == 2:
            parts = _states(
                replace(MEGATRON_2022, gradient_bytes=2, optimiser_bytes=16), params, 1, gpus
            )
            if r["offload_optimizer"] == "cpu":
                parts = {"weights": parts["weights"]}
        else:
            stack = replace(MEGATRON_2022, gradient_bytes=2, optimiser_bytes=14)
            parts = _states(stack, params, 3, gpus, layer)
            of_layer = _states(stack, 0.0, 3, gpus, layer)
            if r["offload_optimizer"] == "cpu":
                parts |= {"optimiser states": 0, "gradients": of_layer["gradients"]}
            if r["offload_param"] == "cpu":
                parts |= {"weights": of_layer["weights"]}
        kept = [
            f"{what} on the CPU" for what in ("param", "optimizer") if r[f"offload_{what}"] == "cpu"
        ]
        row = ", ".join([r["model"], f"ZeRO-{zero}", *kept])
        gib = sum(parts.values()) / 2**30
        found.append(Figure(name, row, float(r["per_gpu_GiB"]), gib, "GiB", r["provenance"]))
    return list({(f.row, f.published): f for f in found}.values())


def _states(
    stack: Stack, params: float, zero: int, replicas: int, layer: float = 0.0
) -> dict[str, float]:
    x = SimpleNamespace(d=replicas, context=1, zero=zero)
    return memory.state_bytes(stack, x, params, largest_layer=layer)


@cache
def shape_figures() -> tuple[Figure, ...]:
    """Returns the published parameter counts of dense shapes, beside those of one stage."""
    found = []
    for shape, r in shapes():
        one = memory.stage_params(
            counts(shape), numbers(Layout(1, 1, 1)), shape.layers, first=1, last=1
        )
        billions = sum(one.values()) / 1e9
        published = float(r["params_total_B"])
        found.append(Figure("", shape.name, published, billions, "B", r["provenance"]))
    return tuple(found)
