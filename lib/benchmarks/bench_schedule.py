"""Times generating and simulating pipeline orders against torch's generator and spacing.

torch generates an order with `get_schedule_ops` and spaces it out in time with
`add_schedule_op_spacing` (its printing discarded). Its 1F1B order is wrong on the last rank in
torch 2.13 and can't be spaced, so the spacing is given our order; the two makespans must agree.
torch's generator also validates, and its interleaved one lowers communication: it does more work.
Medians of alternating repeats; ratios are medians of the repeats' own. Run it with `make bench`.
"""

import contextlib
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from torch.distributed.pipelining._schedule_visualizer import (
    add_schedule_op_spacing,
    get_schedule_ops,
)
from torch.distributed.pipelining.schedules import _Action, _ComputationType

from distlab.schedule import (
    Op,
    gantt_svg,
    gpipe,
    interleaved,
    looped_bfs,
    one_f_one_b,
    simulate,
    zb_h1,
)

KINDS = {"F": _ComputationType.FORWARD, "B": _ComputationType.FULL_BACKWARD}


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """As timeit does it, without the collector: it would walk what the other side left behind."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        value = work()
        return time.perf_counter() - start, value
    finally:
        gc.enable()


def actions(orders: list[list[Op]]) -> list[list[_Action]]:
    """Our order in torch's words."""
    return [
        [_Action(rank, KINDS[op.kind], op.microbatch) for op in order]
        for rank, order in enumerate(orders)
    ]


def torchs(name: str, p: int, m: int, v: int | None, *, spaced: list | None) -> int | None:
    """Generates with torch and, if it gets an order, spaces that; returns the makespan.

    A spaced order has None for each unit of waiting, so F is one unit and B two.
    """
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        get_schedule_ops(name, p, m, v)
        if spaced is None:
            return None
        rows = add_schedule_op_spacing([list(rank) for rank in spaced])
    width = {None: 1, KINDS["F"]: 1, KINDS["B"]: 2}
    return max(sum(width[a and a.computation_type] for a in row) for row in rows)


def compare(table: Table, what: str, make: Callable, name: str, p: int, m: int, v, repeats) -> None:
    spaced = actions(make()) if v is None else None
    mine, theirs, ratios = [], [], []
    for _ in range(repeats):
        seconds, timeline = timed(lambda: simulate(make()))
        torch_s, makespan = timed(lambda: torchs(name, p, m, v, spaced=spaced))
        assert makespan in (None, timeline.makespan), (what, makespan, timeline.makespan)
        mine.append(seconds)
        theirs.append(torch_s)
        ratios.append(torch_s / seconds)
    parts = "generate" if v else "generate + space"
    table.add_row(
        what, f"{p} x {m:,}", f"{statistics.median(mine) * 1e3:,.1f}",
        f"{statistics.median(theirs) * 1e3:,.0f}", parts, f"{statistics.median(ratios):,.0f}",
    )  # fmt: skip


def alone() -> Table:
    table = Table(title="the rest, ours alone")
    for head in ("work", "size", "ms"):
        table.add_column(head, justify="right" if head == "ms" else "left")
    big = simulate(one_f_one_b(16, 256))
    for what, size, work in (
        ("GPipe", "64 x 4,096", lambda: simulate(gpipe(64, 4096))),
        ("ZB-H1", "16 x 256", lambda: simulate(zb_h1(16, 256))),
        ("looped BFS, v = 2", "16 x 256", lambda: simulate(looped_bfs(16, 256, 2))),
        ("1F1B, an explorer's step", "16 x 64", lambda: gantt_svg(simulate(one_f_one_b(16, 64)))),
        ("Gantt chart (SVG)", "16 x 256", lambda: gantt_svg(big)),
    ):
        seconds = statistics.median(timed(work)[0] for _ in range(5))
        table.add_row(what, size, f"{seconds * 1e3:,.1f}")
    return table


def main() -> None:
    table = Table(title="generate and simulate a pipeline's order")
    for head in ("order", "p x m", "ours ms", "torch ms", "torch's part", "times faster"):
        table.add_column(head, justify="left" if head in ("order", "torch's part") else "right")
    simulate(one_f_one_b(4, 8))
    torchs("1F1B", 4, 8, None, spaced=None)
    compare(table, "1F1B", lambda: one_f_one_b(16, 256), "1F1B", 16, 256, None, 7)
    compare(table, "1F1B", lambda: one_f_one_b(64, 4096), "1F1B", 64, 4096, None, 3)
    compare(
        table, "interleaved, v = 2", lambda: interleaved(16, 256, 2), "Interleaved1F1B",
        16, 256, 2, 3,
    )  # fmt: skip
    Console(width=100, file=sys.stdout).print(table, alone())


if __name__ == "__main__":
    main()
