"""Writes measured.md, the cost model held against published runs: `python course/measured.py`."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from distlab.layout import Layout
from distlab.planner.compare import (
    VARIANTS,
    Compared,
    compared,
    compared_collectives,
    mean_error,
    memory_figures,
    picked_over_best,
    shape_figures,
    together,
    without,
    worst,
)
from distlab.planner.counts import counts
from distlab.planner.estimate import estimate
from distlab.planner.published import SECONDS, TABLES, collectives, rows, runs
from distlab.planner.seconds import model_flop_per_token
from distlab.planner.stacks import CALIBRATED, STACKS

PAGE = Path(__file__).with_suffix(".md")
KORTHIKANTI, NARAYANAN = "Korthikanti 2022, Table 5", "Narayanan 2021, Table 1"
ZERO3, VTRAIN = "Narayanan 2021, Table 2", "vTrain 2024, several nodes"
CORE, LLAMA, TITAN = "Megatron-Core 0.8, weak scaling", "Llama 3 2024, Table 4", "torchtitan"

# Said beside the numbers: what had to be assumed, and what the model leaves out.
NOTES = {
    KORTHIKANTI: """Both rows of a model are left out together, so each is predicted from other
models. Left out: collectives that run beside matrix products slow both down. The paper hides the
second gather of sequence parallelism behind them; the model counts it in full, which is about what
the slowing down costs.""",
    NARAYANAN: """FLOP are counted as the paper counts them (a test compares). Left out: how crowded
a network of thousands of GPUs is, and how much its GPUs differ.""",
    ZERO3: """DeepSpeed's ZeRO-3 without tensor or pipeline parallelism. The fitted share of the
network is no property of the network: it stands for the many small gathers that a version of 2021
made one after the other. In the model sending and computing overlap wholly, and prefetching has no
limit.""",
    VTRAIN: """No constant was fitted on these rows. Megatron-DeepSpeed is taken for the Megatron-LM
of its year, on half the network of a DGX A100. Nearly all rows that are far off ran slower than
predicted, and slower than rows beside them: 2×8×32 took longer with a microbatch of 2 than of 3,
though its bubble is smaller; 8×1×8 took twice as long with 64 as with 32, for the same work. With
microbatches of 2 and t of 4 or 8 the CPU probably can't launch kernels as fast as the GPU finishes
them: launching is left out of the model, and so is what memory costs that is nearly full.""",
    CORE: """Neither microbatch nor interleaving is printed: one sequence and one layer a chunk are
assumed. All sending over t hides behind matrix products, as its README says. Left out, and furthest
off for the smallest model, which is narrowest: launching kernels, loading data.""",
    LLAMA: """Assumed: microbatches of one sequence, and v = 8: the paper's first chunk holds the
embedding alone and its last one the head alone (recalled), so a chunk has one layer. Whether the
paper's FLOP count the scores behind the causal mask is not said. At 8K tokens they make 4 %, which
the fitted share absorbs. The row with 128K tokens is predicted with the constant of the other two,
and only makes sense without them; its sequence length was recalled. Left out: gathering K and V
before attention starts, as the program does; the model passes them round beside it.""",
    TITAN: """FSDP is ZeRO-3. In BF16 these are three programs, with one constant and two rows each:
the row left out differs from the one fitted in the number of GPUs, or in what is recomputed. That
more GPUs are slower is left out. In FP8 casting and scaling are left out, and attention stays in
BF16. The four rows with longer sequences are no smooth series: each doubles the sequence and the
ranks that share it, and one costs 1.5 times as much per token, the next 2.4, the last 1.95.""",
}


def percent(share: float) -> str:
    """Returns a share as text: `percent(-0.0213) == "−2.1 %"`."""
    sign = "+" if round(1000 * share) > 0 else "−" if round(1000 * share) < 0 else ""
    return f"{sign}{abs(100 * share):.1f} %"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown; all columns but the first stand on the right."""
    rules = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rules, *lines))


def number(value: float, unit: str) -> str:
    """Returns a measured value as it is usually printed in its unit."""
    return f"{value:,.2f}" if unit == SECONDS else f"{value:,.0f}"


def layout_text(layout: Layout) -> str:
    """Returns t×p×d and what else is not 1: `"8×8×24, v 2, b 2"`."""
    more = {"v": layout.v, "b": layout.microbatch, "context": layout.context}
    return ", ".join([str(layout), *(f"{k} {n}" for k, n in more.items() if n > 1)])


def bf16(found: Iterable[Compared]) -> list[Compared]:
    """Returns the rows of torchtitan that are not FP8."""
    return [one for one in found if "FP8" not in one.run.row]


def short(found: Iterable[Compared]) -> list[Compared]:
    """Returns the rows without context parallelism."""
    return [one for one in found if one.run.layout.context == 1]


AIMS = (  # what, rows, most on average, most for any row
    (KORTHIKANTI, lambda: compared(KORTHIKANTI), 0.02, 0.10),
    (NARAYANAN, lambda: compared(NARAYANAN), 0.05, 0.10),
    ("torchtitan, BF16", lambda: bf16(compared(TITAN)), 0.05, 0.10),
    ("Llama 3 2024, Table 4, 8K tokens", lambda: short(compared(LLAMA)), 0.05, 0.10),
    (VTRAIN, lambda: compared(VTRAIN), 0.10, None),
    (CORE, lambda: compared(CORE), None, None),
    (ZERO3, lambda: compared(ZERO3), None, None),
    (
        "torchtitan, FP8",
        lambda: [one for one in compared(TITAN) if "FP8" in one.run.row],
        None,
        None,
    ),
    (
        "Llama 3, 128K tokens",
        lambda: [one for one in compared(LLAMA) if one.run.layout.context > 1],
        None,
        None,
    ),
)


def verdict(found: Sequence[Compared], mean: float | None, most: float | None) -> str:
    """Returns whether the aims are reached: the mean, and the furthest row."""
    if mean is None:
        return "no aim"
    missed = []
    if mean_error(found) > mean:
        missed.append("the mean")
    if most is not None and abs(worst(found).error) > most:
        missed.append("a row")
    return f"missed by {' and '.join(missed)}" if missed else "reached"


def summary() -> str:
    """Returns the table of aims."""
    lines = []
    for name, choose, mean, most in AIMS:
        found = choose()
        furthest = worst(found)
        aim = "—" if mean is None else f"mean {100 * mean:.0f} %"
        aim += "" if most is None else f", any row {100 * most:.0f} %"
        lines.append(
            (
                name,
                str(len(found)),
                f"{100 * mean_error(found):.1f} %",
                f"{percent(furthest.error)} ({furthest.run.row})",
                aim,
                verdict(found, mean, most),
            )
        )
    return table(("runs", "rows", "mean error", "furthest row", "aim", ""), lines)


def constants() -> str:
    """Returns the table of calibrated constants."""
    lines = [
        (
            f"`{c.field}`",
            f"{c.value * 1e6:.3g} µs" if c.field.endswith("_s") else f"{c.value:.3g}",
            "; ".join(c.stacks),
            c.rows,
        )
        for c in CALIBRATED
    ]
    return table(("constant", "value", "stack", "fitted on"), lines)


def runs_of(name: str) -> str:
    """Returns the rows of a published table beside what the model says."""
    lines = []
    for one in compared(name):
        run = one.run
        words = {"recalled": " (recalled)", "mixed": " (recalled in part)"}
        mark = words.get(run.basis, "")
        fitted = percent(one.fitted_error) if run.in_fit else "not fitted"
        lines.append(
            (
                run.row + mark,
                layout_text(run.layout),
                number(run.measured, run.unit),
                number(one.unfitted, run.unit),
                percent(one.error),
                fitted,
            )
        )
    units = runs(name)[0].unit
    head = ("row", "layout", f"published, {units}", "predicted", "error", "error if fitted")
    return f"{table(head, lines)}\n\n{NOTES[name]}"


def picks() -> str:
    """Returns what the model's choices among vTrain's layouts cost."""
    lines = []
    for size in dict.fromkeys(one.run.row.split(",")[0] for one in compared(VTRAIN)):
        found = [one for one in compared(VTRAIN) if one.run.row.startswith(size)]
        picked = min(found, key=lambda one: one.unfitted)
        best = min(found, key=lambda one: one.run.measured)
        over = picked_over_best(found) - 1
        lines.append(
            (
                size,
                str(len(found)),
                picked.run.row.split(", ", 1)[1],
                best.run.row.split(", ", 1)[1],
                f"{100 * over:.1f} %",
            )
        )
    return table(("model", "rows", "picked", "measured best", "costs more"), lines)


def variants() -> str:
    """Returns the mean errors of the model with one term less at a time."""
    tables = (KORTHIKANTI, NARAYANAN, VTRAIN)
    lines = [
        (variant, *(f"{100 * without(variant)[name]:.1f} %" for name in tables))
        for variant in VARIANTS
    ]
    return table(("the model", *tables), lines)


def links() -> str:
    """Returns how well a ring's three constants describe the all-reduces."""
    found = compared_collectives()
    lines = []
    for ranks in range(2, 9):
        group = [one for one in found if one.collective.ranks == ranks]
        furthest = max(group, key=lambda one: abs(one.error))
        lines.append(
            (
                str(ranks),
                f"{100 * sum(abs(one.error) for one in group) / len(group):.1f} %",
                f"{percent(furthest.error)} ({furthest.collective.size_bytes >> 20} MiB)",
            )
        )
    mean = 100 * sum(abs(one.error) for one in found) / len(found)
    big = {c.ranks: c for c in collectives("V100") if c.size_bytes == 2**30}
    rates = ", ".join(
        f"{n}: {2 * (n - 1) / n * c.size_bytes / c.measured_s / 1e9:.0f}" for n, c in big.items()
    )
    return f"""{table(("GPUs", "mean error", "furthest row"), lines)}

Mean over all: {mean:.1f} %. Each line is predicted from the other six. NCCL changes its algorithm
with the size of a message, which three constants can't follow. The V100s of the same source have no
one rate: their links form a mesh. With 1 GiB they reach, by the number of GPUs, in GB/s: {rates}.
The model leaves that out."""


def memory() -> str:
    """Returns the published memory figures beside the model's."""
    lines = [
        (
            f.table,
            f.row + (" (recalled)" if f.basis == "recalled" else ""),
            f"{f.published:,.4g} {f.unit}",
            f"{f.predicted:,.4g} {f.unit}",
            percent(f.error),
        )
        for f in memory_figures()
    ]
    return table(("source", "row", "published", "model", "error"), lines)


def shapes() -> str:
    """Returns the published parameter counts beside those of the model."""
    lines = [
        (
            f.row + (" (recalled)" if f.basis == "recalled" else ""),
            f"{f.published:g}",
            f"{f.predicted:.3f}",
            percent(f.error),
        )
        for f in shape_figures()
    ]
    return table(("model", "published, billions", "counted", "error"), lines)


def peaks() -> str:
    """Returns torchtitan's measured peaks beside the model's sums."""
    lines = []
    for run in runs(TITAN):
        if run.memory_gib:
            gib = estimate(run.job, run.layout, run.stack).memory_bytes / 2**30
            line = run.row, f"{run.memory_gib:.1f}", f"{gib:.1f}", percent(gib / run.memory_gib - 1)
            lines.append(line)
    return table(("row", "measured, GiB", "model, GiB", "error"), lines)


def shares() -> str:
    """Returns the MFU of the one row that is published with it, as the model counts FLOP."""
    run = next(r for r in runs(KORTHIKANTI) if r.row.startswith("22B, selective"))
    flop = model_flop_per_token(counts(run.job.model), run.job) * run.job.batch * run.job.seq
    mfu = flop / run.measured / run.job.gpus / run.job.cluster.gpu.peak_flop_per_s
    found = estimate(run.job, run.layout, run.stack)
    (r,) = [r for r in rows("korthikanti2022_table5_iteration_time.csv") if r["mfu_pct"]]
    return (
        f"At its measured {run.measured:.2f} s Korthikanti's 22B model has an MFU of "
        f"{100 * mfu:.1f} %, where {r['mfu_pct']} % are printed, and an HFU of "
        f"{100 * mfu * found.hfu / found.mfu:.1f} %, where {r['hfu_pct']} % are printed: for the "
        "attention's core, computed again, the paper counts more than its forward pass has."
    )


def others() -> str:
    """Returns what other tools say of themselves."""
    lines = [
        (r["tool"], r["metric"], r["value"], r["scope"], r["source"])
        for r in rows("tool_accuracy_claims.csv")
    ]
    return table(("tool", "what", "value, %", "on", "source"), lines)


def filled(text: str) -> str:
    """Returns the text with every paragraph's lines filled up; tables, titles, pictures stay."""
    return (
        "\n\n".join(
            block
            if block.startswith(("|", "#", "!"))
            else textwrap.fill(" ".join(block.split()), 100)
            for block in text.strip().split("\n\n")
        )
        + "\n"
    )


def page() -> str:
    """Returns the whole page."""
    sections = "\n\n".join(f"### {name}\n\n{runs_of(name)}" for name in TABLES)
    most = max(len(fields(name)) for name in STACKS)
    return f"""# The cost model against published runs

Written by `python course/measured.py`; a test writes it again and compares. Only the sentences were
typed by hand.

The planner (`distlab.planner`) predicts a step from counted FLOP and bytes and from a few shares
that were fitted on published runs. What is fitted fits, so each row below is predicted by constants
that were fitted on *other* rows; "error if fitted" is with the constants below, fitted on all.
Errors are those of the step's time: +5 % is predicted 5 % too slow, also where a table prints a
throughput. Figures were read in a copy of their source, or in a text that quotes it, unless a row
says that they were recalled.

{summary()}

![Errors of every published run, one line for each table](figures/predicted_published.svg)

What these errors do not show: the formulas (which bytes a kernel moves, what is sent beside what)
were settled while looking at Korthikanti's, Narayanan's and vTrain's tables. Only the constants are
blind to a row that is left out.

## Constants

At most {most} for a program on a GPU, its links apart. `matrix_share` is of the peak,
`memory_share` of the memory's rate: the latter is fitted once and used for every stack.
`node_share` is of NVLink's one-way rate, and taken for the H100's as well. Shares of the network
are others' measurements: 86 % on two nodes of A100s (NVIDIA/nccl-tests, issue 175, 2023), 94 % of
an adapter of 400 Gb/s (issue 290, 2025).

{constants()}

## Step times

{sections}

{shares()}

## Which layout it would pick

The fastest prediction and the fastest run, among the layouts that vTrain measured:

{picks()}

## What each term is worth

Mean errors of Megatron-LM's tables with one term of the model taken away, constants fitted again:

{variants()}

A roofline's second side, what memory moves, is worth most, then what t sends. vTrain's mean hardly
moves: its outliers make it. Gradients sent beside backward would fit the table of 2021 better, but
its program reduced them when backward was over (`allreduce_gradients` of Megatron-LM's local DDP),
and so does the model.

## Links

All-reduces of 1 MiB to 1 GiB on one node of A100s (vTrain, 2024):

{links()}

## Memory

Analytic figures, by the policy that each source uses: 18 bytes per parameter of the layers alone
(Korthikanti), 16 of all parameters (ZeRO), 20 with gradients of the optimiser's own (DeepSpeed).
The published 1.9 GB and 0.12 GiB are rounded.

{memory()}

Measured peaks of torchtitan; nothing was fitted to them. Left out: FP8 copies, gaps of the
allocator, NCCL's buffers. With full recompute the model is too low by a fifth; the H200's rows are
of a later version, and it is too high.

{peaks()}

## Parameters

Published counts are rounded as they stand here. Models with experts are left out: the planner has
no layout for them.

{shapes()}

## What other tools say of themselves

On other rows, so this is no ranking.

{others()}
"""


def fields(stack: str) -> list[str]:
    """Returns the fitted fields of a stack, the memory's share included, which all of them use."""
    _, found = together(stack)
    return sorted({c.field for c in found if stack in c.stacks} | {"memory_share"})


if __name__ == "__main__":
    PAGE.write_text(filled(page()), encoding="utf-8")
