"""Times the exact partitioner against the textbook's dynamic programming, in one run.

Prints milliseconds (the median of repeats) and ratios; all values are compared, bit for bit. Run it
with `make bench`. Absolute times move with the machine's load; read the ratios.

The textbook's recursion looks at every pair of places for every stage: about p L^2 / 2 steps, five
million million for 100,000 layers on 1,024 stages. There it is not run.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from distlab.partition import Memory, min_max, replicated, table

SIZES = ((96, 16, 0.1), (1000, 64, 1.0), (100_000, 1024, 50.0))  # layers, stages, aim in ms
NUMPY_STEPS, PYTHON_STEPS = 10**8, 10**6  # more steps than these are not waited for


def textbook_numpy(layer_times: list[float], stages: int) -> float:
    """The same recursion, the inner minimum taken by numpy."""
    sums = np.concatenate(([0.0], np.cumsum(layer_times)))
    best = np.where(np.arange(len(sums)) == 0, 0.0, np.inf)
    for _ in range(stages):
        row = np.full(len(sums), np.inf)
        for i in range(1, len(sums)):
            row[i] = np.maximum(best[:i], sums[i] - sums[:i]).min()
        best = row
    return float(best[-1])


def timed(work: Callable[[], float], repeats: int) -> tuple[float, float]:
    """Returns (median seconds, the last result)."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        value = work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), value


def main() -> None:
    random = np.random.default_rng(0)
    shown = Table("layers, stages", "method", "ms", "x ours", "aim ms", "same value", min_width=92)
    for layers, stages, aim_ms in SIZES:
        times = random.uniform(0.5, 1.5, layers).tolist()
        repeats = max(15, 30_000 // layers)
        ours_s, value = timed(lambda t=times, p=stages: min_max(t, p).value, repeats)
        size = f"{layers:,}, {stages:,}"
        shown.add_row(size, "min_max", f"{ours_s * 1e3:.3f}", "1", f"{aim_ms:g}", "")
        steps = layers * layers * stages // 2
        others = [("textbook, numpy", NUMPY_STEPS, textbook_numpy)]
        others += [("textbook, Python", PYTHON_STEPS, lambda t, p: table(t, p).best[p][len(t)])]
        for name, most_steps, solve in others:
            if steps > most_steps:
                shown.add_row("", name, "not run", "", "", f"{steps:.1e} steps")
                continue
            seconds, found = timed(lambda f=solve, t=times, p=stages: f(t, p), 3)
            ratio, same = f"{seconds / ours_s:,.0f}", "yes" if found == value else "NO"
            shown.add_row("", name, f"{seconds * 1e3:.1f}", ratio, "", same)
    for layers, stages, _ in SIZES[:2]:
        times, costs = random.uniform(0.5, 1.5, layers).tolist(), random.uniform(0, 1, layers - 1)
        memory = Memory(random.uniform(1, 2, layers), random.uniform(0, 0.1, layers), 1e3)
        for name, more in {
            "speeds, caps": {"speeds": random.uniform(0.5, 2, stages), "memory": memory},
            "overlapped transfers": {"overlapped": costs},
            "exposed transfers": {"exposed": costs},
        }.items():
            call = lambda m=more, t=times, p=stages: min_max(t, p, **m).value  # noqa: E731
            shown.add_row(f"{layers:,}, {stages:,}", name, f"{timed(call, 5)[0] * 1e3:.1f}")
    times, weights = random.uniform(0.5, 1.5, 96), random.uniform(0, 1, 96)
    call = lambda: replicated(times, 16, weight_bytes=weights, rate_bytes_per_s=4).value  # noqa: E731
    shown.add_row("96, 16 machines", "replicated", f"{timed(call, 5)[0] * 1e3:.1f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
