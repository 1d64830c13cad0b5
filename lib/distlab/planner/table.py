"""A plan as a table: for the terminal, for a notebook, for a program (JSON, CSV).

Every output has its rows from `Plan.shapes`: the best layout of each shape, the best shape first.
Sizes and times are numbers with units in their names for programs, and short texts for people.
"""

import csv
import html
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distlab.layout import Job, Layout
from distlab.memory import size_text
from distlab.planner.estimate import Estimate
from distlab.planner.names import slug

if TYPE_CHECKING:
    from distlab.planner.search import Plan

# What stands in the table for people: heading, and text of a row.
_COLUMNS: tuple[tuple[str, Callable[[Estimate], str]], ...] = (
    ("t×p×d", lambda e: str(e.layout)),
    ("cp", lambda e: f"{e.layout.context}"),
    ("v", lambda e: f"{e.layout.v}"),
    ("mb", lambda e: f"{e.layout.microbatch}"),
    ("SP", lambda e: "yes" if e.layout.sequence_parallel else "no"),
    ("recompute", lambda e: e.layout.recompute),
    ("ZeRO", lambda e: f"{e.layout.zero}"),
    ("GB", lambda e: size_text(e.memory_bytes).removesuffix(" GB")),
    ("step s", lambda e: f"{e.step_time_s:.4g}"),
    ("tokens/s", lambda e: f"{e.tokens_per_s:,.0f}"),
    ("MFU %", lambda e: f"{100 * e.mfu:.1f}"),
)


_HEADINGS = tuple(heading for heading, _ in _COLUMNS)
_TIGHT = {"padding": (0, 1, 0, 0), "pad_edge": False}  # eleven columns within 80 letters


def title(job: Job) -> str:
    """Returns the question in one line."""
    return (
        f"{job.model.name} on {job.gpus:,} × {job.cluster.gpu.name}, a step of {job.batch:,} × "
        f"{job.seq:,} tokens"
    )


def short_title(job: Job) -> str:
    """Returns the question in a few words."""
    return f"{job.model.name} on {job.gpus:,} × {job.cluster.gpu.name.split()[0]}"


def counted(plan: "Plan") -> str:
    """Returns in a sentence how many layouts there were, and what became of them."""
    fit = int(plan.fits.sum())
    out = ", ".join(f"{reason} {count:,}" for reason, count in plan.reasons.items() if count)
    said = f"{plan.considered:,} layouts, {fit:,} fit."
    return f"{said} Out, by reason: {out}." if out else said


def split_text(estimate: Estimate) -> str:
    """Returns the layers of each stage where they are not all alike, "" where they are.

    Example: for 126 layers on 16 stages, "layers by stage: 7, 14 × 8, 7".
    """
    layers = estimate.layers
    if len(set(layers)) == 1:
        return ""
    runs: list[list[int]] = []
    for count in layers:
        if runs and runs[-1][1] == count:
            runs[-1][0] += 1
        else:
            runs.append([1, count])
    texts = [f"{n} × {count}" if n > 1 else f"{count}" for n, count in runs]
    return f"layers by stage: {', '.join(texts)}"


def notes(plan: "Plan") -> list[str]:
    """Returns the lines below a table."""
    lines = [
        "cp: ranks that share a sequence; mb: sequences of a microbatch; SP: sequence parallelism.",
        "* on the front: no layout is better in both memory and time.",
    ]
    uneven = split_text(plan.best)
    if uneven:
        lines.append(f"Best, {uneven}.")
    if plan.best.layout.context > 1:
        lines.append("Context ranks are what the model knows least; --cp 1 leaves them out.")
    kind = plan.job.cluster.gpu.name.split()[0]
    guess = "" if kind in plan.stack.name else f", fitted on another GPU than the {kind}: a guess"
    return [*lines, counted(plan), f"Constants: {plan.stack.name}{guess}."]


def terminal(plan: "Plan", most: int) -> Any:
    """Returns the best `most` shapes as a table for a terminal (of `rich`)."""
    from rich import box
    from rich.table import Table

    table = Table(title=title(plan.job), title_justify="left", box=box.SIMPLE_HEAD, **_TIGHT)
    for heading in _HEADINGS:
        left = heading in ("t×p×d", "SP", "recompute")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for row in _rows(plan, most):
        table.add_row(*row)
    return table


def rejected(plan: "Plan") -> Any:
    """Returns the shapes of which nothing fits, a line for each reason, as a table to print."""
    from rich import box
    from rich.table import Table

    alike: dict[str, list[Layout]] = {}
    for out in plan.rejected_shapes:
        alike.setdefault(out.reason, []).append(out.layout)
    title = "Shapes of which nothing fits"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, **_TIGHT)
    table.add_column("t×p×d, context", no_wrap=True)
    table.add_column("why")
    for reason, shapes in alike.items():
        more = f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""
        table.add_row(f"{shapes[0]}, {shapes[0].context}{more}", reason)
    return table


def page(plan: "Plan", most: int) -> str:
    """Returns the best `most` shapes as an HTML table."""
    cell = 'style="text-align:right;padding:1px 5px;white-space:nowrap"'
    heads = "".join(f"<th {cell}>{html.escape(name)}</th>" for name in _HEADINGS)
    body = "".join(
        "<tr>" + "".join(f"<td {cell}>{html.escape(text)}</td>" for text in row) + "</tr>"
        for row in _rows(plan, most)
    )
    below = "<br>".join(html.escape(line) for line in notes(plan))
    return (
        f"<table><caption style='text-align:left'>{html.escape(title(plan.job))}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table><p>{below}</p>"
    )


def text(plan: "Plan", most: int) -> str:
    """Returns the best `most` shapes as plain text."""
    rows = [list(_HEADINGS), *_rows(plan, most)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join([title(plan.job), *lines, *notes(plan)])


def _rows(plan: "Plan", most: int) -> list[list[str]]:
    """Returns the texts of the best `most` shapes, marked where they are on the front."""
    front = {estimate.layout for estimate in plan.front}
    rows = [(e.layout in front, [of(e) for _, of in _COLUMNS]) for e in plan.first_shapes(most)]
    return [[("* " if marked else "  ") + row[0], *row[1:]] for marked, row in rows]


def row(estimate: Estimate) -> dict[str, Any]:
    """Returns a layout and what it needs as plain values, units in the names."""
    return {
        **asdict(estimate.layout),
        "stage_layers": list(estimate.layers),
        "worst_stage": estimate.stage,
        "memory_bytes": estimate.memory_bytes,
        **{f"{slug(part)}_bytes".replace("-", "_"): s for part, s in estimate.memory.items()},
        "step_time_s": estimate.step_time_s,
        **{f"{slug(part)}_s".replace("-", "_"): s for part, s in estimate.times.items()},
        "tokens_per_s": estimate.tokens_per_s,
        "mfu": estimate.mfu,
        "hfu": estimate.hfu,
    }


def as_json(plan: "Plan", most: int) -> str:
    """Returns the plan as JSON: job, counts, the best, the best `most` shapes, the front."""
    job = plan.job
    said = {
        "job": {
            "model": job.model.name,
            "gpus": job.gpus,
            "gpu": job.cluster.gpu.name,
            "gpus_per_node": job.cluster.gpus_per_node,
            "batch": job.batch,
            "seq": job.seq,
        },
        "constants": plan.stack.name,
        "limit_bytes": plan.limit_bytes,
        "fixed": dict(plan.fixed),
        "layouts": plan.considered,
        "fit": int(plan.fits.sum()),
        "rejected": dict(plan.reasons),
        "best": row(plan.best),
        "shapes": [row(e) for e in plan.first_shapes(most)],
        "front": [row(e) for e in plan.front],
        "rejected_shapes": [
            {**asdict(out.layout), "reason": out.reason} for out in plan.rejected_shapes
        ],
    }
    return json.dumps(said, indent=2, ensure_ascii=False)


def as_csv(estimates: Sequence[Estimate]) -> str:
    """Returns layouts as CSV, a line each; the layers of the stages stand joined by spaces."""
    out = io.StringIO()
    rows = [row(e) for e in estimates]
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for values in rows:
        layers = " ".join(map(str, values["stage_layers"]))
        writer.writerow(values | {"stage_layers": layers})
    return out.getvalue()
