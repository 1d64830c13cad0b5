"""Each way to go wrong is one exception, at once, that says what every rank was doing."""

import threading
import time
import traceback

import pytest
import torch

from distlab import per_rank, run
from distlab.errors import (
    CollectiveMismatchError,
    CommArgumentError,
    DeadlockError,
    RankExitedError,
    RankTimeoutError,
)

X = torch.ones(2)


@pytest.fixture(autouse=True)
def usable_afterwards():
    """After each failure the process can run again, and no rank lives on."""
    yield
    assert run(lambda comm: comm.all_reduce(torch.ones(1)).item(), 3).values == [3.0] * 3
    assert not [t.name for t in threading.enumerate() if t.name.startswith("rank ")]


def failure(body, n, kind, *args, **kwargs):
    start = time.monotonic()
    with pytest.raises(kind) as info:
        run(body, n, *args, **kwargs)
    assert time.monotonic() - start < 10  # far below the timeout of 20 s: found, not waited for
    return "\n".join([str(info.value), *getattr(info.value, "__notes__", [])]), info


def test_a_rank_that_returns_early():
    def body(comm):
        if comm.rank == 1:
            return
        comm.all_reduce(X)

    text, _ = failure(body, 4, DeadlockError)
    assert "ranks 0, 2, 3 wait in all_reduce #1 (sum, float32[2])" in text
    assert "rank 1 has returned" in text
    assert "comm.all_reduce(X)" in text
    assert "test_failures.py, line" in text
    assert "rank 1 returned without this one" in text


def test_everyone_sends_first():
    def body(comm):
        comm.send(X, (comm.rank + 1) % comm.size)
        comm.recv(X, (comm.rank - 1) % comm.size)

    text, _ = failure(body, 3, DeadlockError)
    for rank in range(3):
        assert f"rank {rank} waits in send (float32[2]) to rank {(rank + 1) % 3}" in text
    assert "sendrecv" in text


def test_a_recv_that_nobody_serves():
    def body(comm):
        if comm.rank == 0:
            comm.recv(X, 1, tag=4)

    text, _ = failure(body, 2, DeadlockError)
    assert "rank 0 waits in recv (tag 4, float32[2]) from rank 1" in text


def test_groups_called_in_different_orders():
    def body(comm):
        a = comm.split(0 if comm.rank < 2 else None)  # ranks 0, 1
        b = comm.split(0 if comm.rank > 0 else None)  # ranks 1, 2
        c = comm.split(0 if comm.rank != 1 else None)  # ranks 0, 2
        for group in {0: (a, c), 1: (b, a), 2: (c, b)}[comm.rank]:
            group.barrier()

    text, _ = failure(body, 3, DeadlockError)
    assert "barrier #1 of ranks 0, 1" in text
    assert "same order" in text


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda comm: comm.all_gather(X) if comm.rank else comm.all_reduce(X), "operations"),
        (lambda comm: comm.all_reduce(torch.ones(2 + comm.rank)), "shapes"),
        (lambda comm: comm.all_reduce(X.double() if comm.rank else X), "dtypes"),
        (lambda comm: comm.all_reduce(X, "max" if comm.rank else "sum"), "settings"),
        (lambda comm: comm.broadcast(X, comm.rank), "settings"),
        (lambda comm: comm.all_gather(torch.ones(2, 2), comm.rank), "settings"),
    ],
)
def test_mismatched_collectives(call, word):
    text, _ = failure(call, 2, CollectiveMismatchError)
    assert f"different {word}" in text
    assert "rank 0 calls" in text
    assert "rank 1 calls" in text


def test_a_mismatch_between_groups_counts_as_a_deadlock():
    def body(comm):
        half = comm.split(comm.rank % 2)
        (comm if comm.rank == 0 else half).all_reduce(X)

    text, _ = failure(body, 4, DeadlockError)
    assert "rank 2 waits in all_reduce #1 (sum, float32[2]) of ranks 0, 2" in text
    assert "rank 0 waits in all_reduce #2 (sum, float32[2])\n" in text


def test_a_message_of_another_shape():
    def body(comm):
        if comm.rank == 0:
            comm.send(torch.ones(3), 1)
        else:
            comm.recv(X, 0)

    text, _ = failure(body, 2, CollectiveMismatchError)
    assert "rank 0 sends float32[3], rank 1 expects float32[2]" in text


def test_uneven_all_to_all_sizes_that_disagree():
    def body(comm):
        comm.all_to_all(torch.ones(2, 1), [1, 1], [2, 0])

    text, _ = failure(body, 2, CommArgumentError)
    assert "rank 1 sends 1 rows to rank 0, which expects 0" in text or "expects" in text


class Custom(Exception):
    """An error of the student's own."""


def test_a_rank_that_raises_keeps_its_own_traceback():
    def broken(x):
        raise Custom("no such layer")

    def body(comm):
        if comm.rank == 2:
            broken(X)
        comm.all_reduce(X)

    text, info = failure(body, 4, Custom)
    assert "[raised on rank 2 of 4]" in text
    assert "ranks 0, 1 wait in all_reduce #1" in text
    assert "rank 3 is in its own code" in text
    frames = [frame.name for frame in traceback.extract_tb(info.value.__traceback__)]
    assert frames[-2:] == ["body", "broken"]


def test_a_rank_that_raises_inside_backward():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if ctx.comm.rank == 1:
                raise KeyError("weight")
            return ctx.comm.all_reduce(grad), None

    def body(comm):
        Bad.apply(torch.ones(1, requires_grad=True), comm).sum().backward()

    text, _ = failure(body, 3, KeyError)
    assert "raised on rank 1 of 3" in text
    assert "in backward: return ctx.comm.all_reduce(grad), None" in text


def test_other_ranks_cannot_swallow_the_end_of_the_run():
    def body(comm):
        if comm.rank == 3:
            raise ValueError("first")
        while True:
            try:
                comm.all_reduce(X)
            except Exception:
                pass

    failure(body, 4, ValueError)


def test_a_bare_except_is_stopped_too():
    def body(comm):
        while True:
            try:
                comm.all_reduce(torch.ones(1 + comm.rank))
            except:  # noqa: E722
                pass

    failure(body, 2, CollectiveMismatchError)


def test_finally_blocks_run_and_may_not_communicate():
    def body(comm):
        if comm.rank == 0:
            raise ValueError("boom")
        try:
            comm.barrier()
        finally:
            comm.barrier()

    failure(body, 2, ValueError)


def test_a_rank_that_calls_exit():
    def body(comm):
        if comm.rank == 1:
            raise SystemExit(3)
        comm.barrier()

    text, _ = failure(body, 2, RankExitedError)
    assert "rank 1 called exit(3)" in text
    assert "rank 0 waits in barrier #1" in text


def test_a_rank_that_spins_is_stopped():
    def body(comm):
        if comm.rank == 1:
            while True:
                pass
        comm.barrier()

    text, _ = failure(body, 3, RankTimeoutError, timeout=0.5)
    assert "stopped after 0.5 s" in text
    assert "rank 1 was running" in text
    assert "rank 0 waits in barrier #1" in text
    assert "while True:" in text or "pass" in text


def test_ranks_that_communicate_for_ever_are_stopped():
    def body(comm):
        while True:
            comm.barrier()

    text, _ = failure(body, 2, RankTimeoutError, timeout=0.5)
    assert "never ends" in text


@pytest.mark.slow
def test_a_rank_inside_c_is_reported_as_such():
    def body(comm):
        time.sleep(2.5)

    text, _ = failure(body, 1, RankTimeoutError, timeout=0.3)
    assert "C call that Python can't interrupt" in text
    assert "time.sleep(2.5)" in text
    time.sleep(2.5)  # let it end, so that the fixture finds no rank


def test_endless_recursion():
    def deeper(k):
        return deeper(k + 1)

    text, _ = failure(lambda comm: deeper(0) if comm.rank else comm.barrier(), 2, RecursionError)
    assert "raised on rank 1 of 2" in text


def test_keyboard_interrupt_stops_the_ranks():
    import _thread

    def body(comm):
        while True:
            comm.barrier()

    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    text, _ = failure(body, 2, KeyboardInterrupt)
    assert "barrier" in text


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.all_reduce([1.0]), "needs a tensor, got list."),
        (lambda c: c.all_reduce(7), "needs a tensor, got int; torch.tensor(7) makes one."),
        (lambda c: c.send(None, 1), "needs a tensor, got NoneType."),
        (lambda c: c.all_reduce(X, op="average"), "op='average'"),
        (lambda c: c.all_reduce(torch.ones(2, dtype=torch.int64), "mean"), "mean of torch.int64"),
        (lambda c: c.all_reduce(torch.ones(2, dtype=torch.bool)), "booleans"),
        (lambda c: c.reduce_scatter(torch.ones(3)), "no multiple of 2"),
        (lambda c: c.all_gather(X, dim=1), "dim=1"),
        (lambda c: c.all_gather(torch.tensor(1.0)), "dim=0"),
        (lambda c: c.broadcast(X, src=2), "0 to 1"),
        (lambda c: c.send(X, 5), "dst=5"),
        (lambda c: c.send(X, c.rank), "sends to itself"),
        (lambda c: c.recv(X, c.rank), "receives from itself"),
        (lambda c: c.sendrecv(X, True, 0), "dst=True"),
        (lambda c: c.all_to_all(torch.ones(3)), "equal parts"),
        (lambda c: c.all_to_all(torch.tensor(1.0)), "no dims"),
        (lambda c: c.all_to_all(X, [1, 1]), "together"),
        (lambda c: c.all_to_all(X, [1, 2], [1, 1]), "add up to 3"),
        (lambda c: c.all_to_all(X, [2], [2]), "one size"),
        (lambda c: c.split("a"), "whole number as color"),
    ],
)
def test_senseless_arguments_of_operations(call, words):
    text, _ = failure(call, 2, CommArgumentError)
    assert words in text
    with pytest.raises(ValueError, match=words.split(",")[0].replace("(", r"\(")):
        run(call, 2)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: run(3, 2), TypeError, "function"),
        (lambda: run(print, 0), ValueError, "1 to 1,024"),
        (lambda: run(print, 1025), ValueError, "1 to 1,024"),
        (lambda: run(print, 2.0), TypeError, "whole number"),
        (lambda: run(print, True), TypeError, "whole number"),
        (lambda: run(print, 2, engine="mpi"), ValueError, "engine='mpi'"),
        (lambda: run(print, 2, order="tree"), ValueError, "order='tree'"),
        (lambda: run(print, 2, timeout=0), ValueError, "timeout"),
        (lambda: run(print, 2, timeout=float("nan")), ValueError, "timeout"),
        (lambda: run(print, 2, per_rank([1])), ValueError, "1 values for 2 ranks"),
        (lambda: run(print, 2, x=per_rank([1, 2, 3])), ValueError, "argument `x` holds 3"),
        (lambda: per_rank(3), TypeError, "one value per rank"),
    ],
)
def test_senseless_arguments_of_run(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_errors_of_a_thousand_ranks_stay_short():
    def body(comm):
        if comm.rank != 700:
            comm.all_reduce(X)

    text, _ = failure(body, 1024, DeadlockError)
    assert "ranks 0-699, 701-1023 wait in all_reduce" in text
    assert len(text) < 800


def test_failing_many_times_leaves_nothing():
    before = threading.active_count()
    for _ in range(20):
        with pytest.raises(DeadlockError):
            run(lambda comm: comm.barrier() if comm.rank else None, 4)
    assert threading.active_count() == before
