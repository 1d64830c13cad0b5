"""Times the planner: layouts per second, one at a time and as columns, and two whole searches.

Both ways price the same layouts, drawn evenly from all of GPT-3's on 1,024 GPUs; the two columns of
results must agree. Medians of alternating repeats, in this process' computing time, so that other
work on the machine counts less. Aim: a million a second as columns. Run it with `make bench`.

For scale, on another machine and with other work for each configuration (they walk through layers):
llm-analysis 670 to 784 a second, Calculon 72 to 220.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from distlab.layout import Job
from distlab.planner import estimate, plan
from distlab.planner.names import find_machine, find_model
from distlab.planner.space import space
from distlab.planner.stacks import stack_of
from distlab.planner.vector import evaluate

REPEATS, ALONE, TOGETHER = 5, 400, 1_000_000
AIM_PER_S = 1_000_000
JOBS = (("gpt-3-175b", 1024, 1536, 2048), ("llama-3.1-405b", 16384, 2048, 8192))


def job(model: str, gpus: int, batch: int, seq: int) -> Job:
    return Job(
        model=find_model(model), gpus=gpus, batch=batch, seq=seq, cluster=find_machine("h100")
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    value = work()
    return time.process_time() - start, value


def rates() -> Table:
    one = job(*JOBS[0])
    stack, kept = stack_of(one.cluster.gpu), space(one).kept
    some = kept.rows(np.linspace(0, len(kept) - 1, ALONE).astype(int))
    many = kept.rows(np.arange(TOGETHER) % len(kept))
    layouts = list(some)
    evaluate(one, some, stack)
    alone, together = [], []
    for _ in range(REPEATS):
        seconds, found = timed(lambda: [estimate(one, x, stack) for x in layouts])
        alone.append(ALONE / seconds)
        seconds, _ = timed(lambda: evaluate(one, many, stack))
        together.append(TOGETHER / seconds)
    same = evaluate(one, some, stack)
    assert np.allclose([e.step_time_s for e in found], same.step_time_s, rtol=1e-12, atol=0)
    assert np.allclose([e.memory_bytes for e in found], same.memory_bytes, rtol=1e-12, atol=0)
    table = Table(title="layouts priced per second", title_justify="left")
    for head in ("how", "layouts", "per second", "aim", "times"):
        table.add_column(head, justify="left" if head == "how" else "right")
    one_s, all_s = statistics.median(alone), statistics.median(together)
    table.add_row("one at a time", f"{ALONE:,}", f"{one_s:,.0f}", "", "1")
    table.add_row(
        "as columns", f"{TOGETHER:,}", f"{all_s:,.0f}", f"{AIM_PER_S:,}", f"{all_s / one_s:,.0f}"
    )
    return table


def searches() -> Table:
    table = Table(title="a whole search", title_justify="left")
    for head in ("job", "layouts", "priced", "fit", "best", "ms"):
        table.add_column(head, justify="left" if head in ("job", "best") else "right")
    for asked in JOBS:
        one = job(*asked)
        runs = [timed(lambda j=one: (found := plan(j), found.best)) for _ in range(REPEATS)]
        found, best = runs[-1][1]
        milliseconds = statistics.median(seconds for seconds, _ in runs) * 1e3
        table.add_row(
            f"{one.model.name}, {one.gpus:,} GPUs", f"{found.considered:,}",
            f"{len(found.space.kept):,}", f"{found.fits.sum():,}", f"{best.layout}",
            f"{milliseconds:,.0f}",
        )  # fmt: skip
    return table


def main() -> None:
    Console(width=100).print(rates(), searches())


if __name__ == "__main__":
    main()
