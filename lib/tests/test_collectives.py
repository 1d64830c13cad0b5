"""Every operation against a dense computation, at world sizes 1 to 5."""

from fractions import Fraction

import pytest
import torch

from distlab import Comm, per_rank, run, seeds

SIZES = (1, 2, 3, 4, 5)


def parts(n, shape, key="x"):
    return [seeds.integers(shape, key, n, rank) for rank in range(n)]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("order", ["rank", "ring"])
def test_all_reduce_reduces_over_ranks(n, order):
    xs = parts(n, (3, 2))
    stack = torch.stack(xs)
    expected = {
        "sum": stack.sum(0),
        "mean": stack.sum(0) / n,
        "max": stack.amax(0),
        "min": stack.amin(0),
        "prod": stack.prod(0),
    }
    for op, value in expected.items():
        result = run(lambda comm, x, op: comm.all_reduce(x, op), n, per_rank(xs), op, order=order)
        for got in result.values:
            assert torch.equal(got, value), op


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_all_gather_joins_in_rank_order(n, dim):
    xs = parts(n, (2, 3))
    for got in run(lambda comm, x: comm.all_gather(x, dim), n, per_rank(xs)).values:
        assert torch.equal(got, torch.cat(xs, dim))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dim", [0, 1])
def test_reduce_scatter_gives_each_rank_its_part_of_the_sum(n, dim):
    xs = parts(n, (2 * n, 3 * n))
    total = torch.stack(xs).sum(0)
    values = run(lambda comm, x: comm.reduce_scatter(x, dim), n, per_rank(xs)).values
    assert torch.equal(torch.cat(values, dim), total)
    assert all(v.shape == values[0].shape for v in values)


@pytest.mark.parametrize("n", SIZES)
def test_broadcast_gives_the_source_to_all(n):
    xs = parts(n, (4,))
    for src in range(n):
        for got in run(lambda comm, x, src: comm.broadcast(x, src), n, per_rank(xs), src).values:
            assert torch.equal(got, xs[src])


@pytest.mark.parametrize("n", SIZES)
def test_all_to_all_transposes_blocks(n):
    xs = parts(n, (2 * n, 3))
    values = run(lambda comm, x: comm.all_to_all(x), n, per_rank(xs)).values
    for r, got in enumerate(values):
        assert torch.equal(got, torch.cat([x[2 * r : 2 * r + 2] for x in xs]))


def test_all_to_all_with_uneven_parts():
    table = [[0, 2, 1], [3, 0, 0], [1, 1, 2]]  # rows that i sends to j
    xs = [seeds.integers((sum(row), 2), "x", i) for i, row in enumerate(table)]

    def body(comm, x, table):
        return comm.all_to_all(x, table[comm.rank], [row[comm.rank] for row in table])

    result = run(body, 3, per_rank(xs), table)
    for j, got in enumerate(result.values):
        blocks = [x.split(table[i])[j] for i, x in enumerate(xs)]
        assert torch.equal(got, torch.cat(blocks))
    row_bytes = 2 * 8
    assert [result.ledger.ring_bytes("all_to_all", rank) for rank in range(3)] == [
        3 * row_bytes,
        3 * row_bytes,
        2 * row_bytes,
    ]


@pytest.mark.parametrize("n", SIZES)
def test_a_ring_of_sendrecv_shifts(n):
    xs = parts(n, (3,))

    def shift(comm, x):
        return comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)

    for rank, got in enumerate(run(shift, n, per_rank(xs)).values):
        assert torch.equal(got, xs[rank - 1])


def test_messages_arrive_in_order_and_by_tag():
    def body(comm):
        x = torch.arange(2.0)
        if comm.rank == 0:
            for k in (1, 2):
                comm.send(k * x, 1)
            comm.send(3 * x, 1, tag=7)
            return None
        first, second = comm.recv(x, 0), comm.recv(x, 0)
        return first, second, comm.recv(x, 0, tag=7)

    got = run(body, 2).values[1]
    assert [g[1].item() for g in got] == [1.0, 2.0, 3.0]


def test_sendrecv_meets_a_send_and_a_recv():
    def body(comm):
        mine = torch.full((2,), float(comm.rank + 1))
        if comm.rank == 0:
            return comm.sendrecv(mine, 1, 2)
        if comm.rank == 1:
            return comm.recv(mine, 0)
        return comm.send(mine, 0)

    values = run(body, 3).values
    assert values[0].tolist() == [3.0, 3.0]
    assert values[1].tolist() == [1.0, 1.0]


def test_sendrecv_of_different_shapes():
    def body(comm):
        x = torch.ones(comm.rank + 1)
        return comm.sendrecv(x, 1 - comm.rank, 1 - comm.rank, like=torch.ones(2 - comm.rank))

    assert [v.numel() for v in run(body, 2).values] == [2, 1]


def test_split_makes_groups_ordered_by_key_then_rank():
    def body(comm):
        assert isinstance(comm, Comm)
        half = comm.split(comm.rank % 2, key=-comm.rank)
        some = comm.split(None if comm.rank == 0 else 3)
        total = half.all_reduce(torch.tensor([float(comm.rank)]))
        inner = half.split(0)
        return half.ranks, half.rank, some and some.ranks, total.item(), inner.size

    assert run(body, 5).values == [
        ((4, 2, 0), 2, None, 6.0, 3),
        ((3, 1), 1, (1, 2, 3, 4), 4.0, 2),
        ((4, 2, 0), 1, (1, 2, 3, 4), 6.0, 3),
        ((3, 1), 0, (1, 2, 3, 4), 4.0, 2),
        ((4, 2, 0), 0, (1, 2, 3, 4), 6.0, 3),
    ]


def test_barrier_orders_what_ranks_do():
    def body(comm):
        print("before")
        comm.barrier()
        print("after")

    assert run(body, 3, echo=False).stdout == ["before\nafter\n"] * 3


def test_operations_neither_change_nor_share_their_input():
    def body(comm):
        x = torch.full((2, 2), float(comm.rank + 1), requires_grad=True)
        kept = x.detach().clone()
        outs = [
            comm.all_reduce(x),
            comm.all_gather(x),
            comm.reduce_scatter(x),
            comm.broadcast(x),
            comm.all_to_all(x),
            comm.sendrecv(x, comm.rank, comm.rank),
        ]
        for out in outs:
            assert not out.requires_grad
            out += 100
        assert torch.equal(x, kept)
        comm.barrier()
        return outs

    values = run(body, 2).values
    pointers = [out.data_ptr() for outs in values for out in outs]
    assert len(set(pointers)) == len(pointers)


def test_collectives_work_inside_backward():
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return ctx.comm.all_reduce(grad), None

    def body(comm):
        x = torch.ones(3, requires_grad=True)
        (Copy.apply(x, comm) * (comm.rank + 1)).sum().backward()
        return x.grad

    for n in (1, 2, 3, 8):
        for grad in run(body, n).values:
            assert grad.tolist() == [n * (n + 1) / 2] * 3


def test_two_runs_are_bitwise_equal_and_sums_go_in_rank_order():
    xs = [seeds.normal((1000,), "noise", rank, dtype=torch.float32) for rank in range(5)]
    first, second = (run(lambda c, x: c.all_reduce(x), 5, per_rank(xs)).values for _ in range(2))
    expected = xs[0].clone()
    for x in xs[1:]:
        expected += x
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, expected)
    ring = run(lambda c, x: c.all_reduce(x), 5, per_rank(xs), order="ring").values[0]
    assert not torch.equal(ring, expected)
    assert torch.allclose(ring, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", SIZES)
def test_the_ledger_books_exact_ring_bytes(n):
    def body(comm):
        x = torch.ones(3 * comm.size, dtype=torch.float64)
        comm.all_reduce(x), comm.all_reduce(x)
        comm.reduce_scatter(x)
        comm.all_gather(x)
        comm.all_to_all(x)
        comm.broadcast(x)
        comm.barrier()

    ledger = run(body, n).ledger
    size = 3 * n * 8
    for rank in range(n):
        assert ledger.calls("all_reduce", rank) == 2
        assert ledger.payload_bytes("all_reduce", rank) == 2 * size
        assert ledger.ring_bytes("all_reduce", rank) == 2 * Fraction(2 * (n - 1), n) * size
        assert ledger.ring_bytes("reduce_scatter", rank) == Fraction(n - 1, n) * size
        assert ledger.ring_bytes("all_gather", rank) == (n - 1) * size
        assert ledger.ring_bytes("all_to_all", rank) == Fraction(n - 1, n) * size
        assert ledger.ring_bytes("broadcast", rank) == (0 if rank == n - 1 else size)
        assert ledger.calls("barrier", rank) == 1
    assert ledger.ring_bytes("barrier") == 0
    assert ledger.calls() == 7 * n


def test_all_reduce_costs_what_reduce_scatter_and_all_gather_cost():
    def both(comm):
        x = torch.ones(8)
        comm.all_gather(comm.reduce_scatter(x))

    whole = run(lambda comm: comm.all_reduce(torch.ones(8)), 4).ledger
    assert whole.ring_bytes(rank=0) == run(both, 4).ledger.ring_bytes(rank=0)


def test_the_ledger_keeps_uneven_bytes_as_fractions():
    ledger = run(lambda comm: comm.all_reduce(torch.ones(1)), 3).ledger
    assert ledger.ring_bytes(rank=1) == Fraction(16, 3)
    assert "5.3" in str(ledger)


def test_the_ledger_tells_groups_apart_and_prints():
    def body(comm):
        comm.split(comm.rank % 2).all_reduce(torch.ones(2))

    ledger = run(body, 4).ledger
    groups = {(e.rank, e.group) for e in ledger.entries if e.op == "all_reduce"}
    assert groups == {(0, (0, 2)), (1, (1, 3)), (2, (0, 2)), (3, (1, 3))}
    assert "all_reduce" in str(ledger)
    assert "<table>" in ledger._repr_html_()
    assert "nothing" in str(run(lambda comm: None, 2).ledger)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.complex64])
def test_other_dtypes(dtype):
    values = run(lambda comm, d: comm.all_reduce(torch.ones(3, dtype=d)), 3, dtype).values
    assert values[0].dtype == dtype
    assert torch.equal(values[0], torch.full((3,), 3, dtype=dtype))


def test_empty_and_scalar_tensors():
    assert run(lambda comm: comm.all_reduce(torch.ones(0)), 3).values[0].numel() == 0
    assert run(lambda comm: comm.all_reduce(torch.tensor(2.0)), 3).values[2].item() == 6.0
    assert run(lambda comm: comm.all_gather(torch.ones(0, 2)), 3).values[0].shape == (0, 2)


@pytest.mark.parametrize("n", [64, 1024])
def test_many_ranks(n):
    result = run(lambda comm: comm.all_reduce(torch.tensor([1.0 + comm.rank])).item(), n)
    assert result.values == [n * (n + 1) / 2] * n
