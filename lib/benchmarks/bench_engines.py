"""Times one all_reduce on the simulator, on torch's MultiThreadedPG and on gloo, in one run.

Prints microseconds per all_reduce for all ranks together (16 float32 numbers), the ratio, and
launch times. Run it with `make bench`. Absolute times move with the machine's load; ratios are
taken from alternating repeats.
"""

import statistics
import sys
import threading
import time

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch.testing._internal.distributed import multi_threaded_pg

from distlab import run

SIZES = (2, 8, 64, 256, 1024)
GLOO_SIZES = (2, 4, 8)
REPEATS = 5


def ours(n: int, calls: int, engine: str = "sim") -> tuple[float, float]:
    """Returns (seconds to launch, seconds for the calls)."""

    def loop(comm, calls):
        x = torch.ones(16)
        comm.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            comm.all_reduce(x)
        return begin, time.perf_counter()

    start = time.perf_counter()
    spans = run(loop, n, calls, engine=engine, timeout=600).values
    return _span(start, spans)


def threaded_pg(n: int, calls: int) -> tuple[float, float]:
    """The same on torch's in-process group of free-running threads."""
    spans: list[tuple[float, float]] = [(0.0, 0.0)] * n
    failures: list[BaseException] = []
    start = time.perf_counter()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    multi_threaded_pg._install_threaded_pg()
    store = dist.HashStore()

    def worker(rank: int) -> None:
        try:
            dist.init_process_group("threaded", rank=rank, world_size=n, store=store)
            x = torch.ones(16)
            dist.all_reduce(x.clone())
            begin = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(x)
            spans[rank] = (begin, time.perf_counter())
            dist.destroy_process_group()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=worker, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    multi_threaded_pg._uninstall_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
    if failures or any(t.is_alive() for t in threads):
        raise RuntimeError(f"MultiThreadedPG failed at {n} ranks: {failures[:1]}")
    return _span(start, spans)


def _span(start: float, spans: list[tuple[float, float]]) -> tuple[float, float]:
    begin = min(b for b, _ in spans)
    return begin - start, max(e for _, e in spans) - begin


def main() -> None:
    table = Table(title="all_reduce of 16 float32 numbers, all ranks together")
    for head in ("ranks", "simulator µs", "MultiThreadedPG µs", "times faster", "launch ms (both)"):
        table.add_column(head, justify="right")
    for n in SIZES:
        calls = max(8, 2000 // n)
        ours(n, 1), threaded_pg(n, 1)
        pairs = [(ours(n, calls), threaded_pg(n, calls)) for _ in range(REPEATS)]
        mine = statistics.median(a[1] for a, _ in pairs) / calls * 1e6
        theirs = statistics.median(b[1] for _, b in pairs) / calls * 1e6
        ratio = statistics.median(b[1] / a[1] for a, b in pairs)
        launch = [statistics.median(p[i][0] for p in pairs) * 1e3 for i in (0, 1)]
        table.add_row(
            f"{n:,}", f"{mine:,.0f}", f"{theirs:,.0f}", f"{ratio:.2f}",
            f"{launch[0]:,.0f} / {launch[1]:,.0f}",
        )  # fmt: skip
    Console(width=100, file=sys.stdout).print(table, gloo())


def gloo() -> Table:
    """Times all three engines at sizes that processes can have; launching is what gloo costs."""
    table = Table(title="the same on three engines; launch is one whole run without calls")
    table.add_column("ranks", justify="right")
    for name in ("simulator", "MultiThreadedPG", "gloo"):
        table.add_column(f"{name} µs", justify="right")
        table.add_column("launch ms", justify="right")
    run(lambda comm: None, 2, engine="gloo")  # the first call starts the server that forks ranks
    for n in GLOO_SIZES:
        ways = (
            lambda n=n: ours(n, 50),
            lambda n=n: threaded_pg(n, 50),
            lambda n=n: ours(n, 50, "gloo"),
        )
        rows = [[way() for way in ways] for _ in range(REPEATS)]
        cells = []
        for i in range(len(ways)):
            cells.append(f"{statistics.median(row[i][1] for row in rows) / 50 * 1e6:,.0f}")
            cells.append(f"{statistics.median(row[i][0] for row in rows) * 1e3:,.0f}")
        table.add_row(str(n), *cells)
    return table


if __name__ == "__main__":
    main()
