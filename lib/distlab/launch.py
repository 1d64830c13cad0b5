"""Runs one function on n ranks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distlab.result import Result, per_rank

if TYPE_CHECKING:
    from distlab.hardware import Cluster

ENGINES = ("sim", "gloo", "nccl")
ORDERS = ("rank", "ring")
MAX_RANKS = 1024


def run(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    engine: str = "sim",
    order: str = "rank",
    timeout: float = 20.0,
    echo: bool = True,
    cluster: "Cluster | None" = None,
    **kwargs: Any,
) -> Result:
    """Calls `fn(comm, *args, **kwargs)` once on each of n ranks and returns what came out.

    Each rank is on its own, as a process would be: it gets its own copy of the function, of what
    the function closes over and of its arguments, and starts with the caller's random state. What
    a rank changes, no other rank and not the caller sees. An argument wrapped in `per_rank([...])`
    is handed out one element per rank. Keyword arguments not listed here go to `fn`.

    `engine` is "sim" (ranks simulated in this process), or "gloo" or "nccl" (a process per rank, on
    CPUs or GPUs; in a file started by torchrun, the processes that are there).

    `order` is the order in which reductions add: "rank" (0, 1, 2, ...) or "ring" (as gloo does).
    `echo` prints what ranks print, labelled, while they run. A run that takes longer than `timeout`
    seconds is stopped, even in an endless loop (but not in one inside a C call).

    `cluster` (`distlab.hardware`) gives the simulator a clock: `comm.compute` and all communication
    take the time they would take there, and the result has a `timeline` (rules: `distlab.clock`).
    Values and ledger stay as they are.

    Cost: about 0.1 ms to start a rank, 15 to 30 µs per rank and collective (a clock
    doubles it).

    Raises: what a rank raised, with a note on the other ranks; DeadlockError,
    CollectiveMismatchError, NeverWaitedError, RankTimeoutError, RankExitedError, UncopyableError;
    ValueError or TypeError for arguments that make no sense.

    Example: `run(lambda comm: comm.rank, 3).values == [0, 1, 2]`.
    """
    __tracebackhide__ = True
    _check_arguments(fn, n, args, kwargs, engine, order, timeout)
    _check_cluster(cluster, engine)
    # torch is imported here, so that `import distlab` stays as light as numpy.
    from distlab import look

    try:
        if engine == "sim":
            from distlab import simulator

            return simulator.run(
                fn, n, args, kwargs, order=order, timeout_s=timeout, echo=echo, cluster=cluster
            )
        from distlab import joined, processes

        real = joined if joined.is_started() else processes
        return real.run(fn, n, args, kwargs, backend=engine, timeout_s=timeout, echo=echo)
    except BaseException as error:
        if look.is_stub(error):
            look.show_calmly(error)
        look.end_at_the_callers_line(error)
        raise


def _check_arguments(fn, n, args, kwargs, engine, order, timeout) -> None:
    if not callable(fn):
        raise TypeError(f"run needs a function to call on each rank, got {type(fn).__name__}.")
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"run needs a whole number of ranks, got n={n!r}.")
    if not 1 <= n <= MAX_RANKS:
        raise ValueError(f"run needs 1 to {MAX_RANKS:,} ranks, got n={n}.")
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} does not exist; it can be {', '.join(ENGINES)}.")
    if order not in ORDERS:
        raise ValueError(f"order={order!r} does not exist; it can be {' or '.join(ORDERS)}.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(f"timeout is a number of seconds above 0, got {timeout!r}.")
    named = [(f"argument {i + 1}", v) for i, v in enumerate(args)]
    for name, value in named + [(f"argument `{k}`", v) for k, v in kwargs.items()]:
        if isinstance(value, per_rank) and len(value.values) != n:
            raise ValueError(
                f"{name} holds {len(value.values)} values for {n} ranks; per_rank needs one each."
            )


def _check_cluster(cluster: Any, engine: str) -> None:
    if cluster is None:
        return
    from distlab.hardware import Cluster

    if not isinstance(cluster, Cluster):
        raise TypeError(
            f"cluster= takes a Cluster of distlab.hardware, got {type(cluster).__name__}."
        )
    if engine != "sim":
        raise ValueError(
            f"cluster= is the simulator's clock; on engine={engine!r} time passes by itself."
        )
