"""Memory that is held: every storage once, as long as somebody holds it, and on its own rank."""

import subprocess
import sys

import pytest
import torch

from distlab import run
from distlab.resident import resident
from distlab.storages import recording


def test_it_is_imported_without_torch():
    code = "import sys, distlab.resident; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_given_counts_once_and_what_appears_counts_while_it_is_held():
    x = torch.ones(4, 5)  # 80 bytes
    with resident([x, x.T], {"again": x}, None) as memory:
        y = x.exp()
        z = y.view(20).double()  # 160 bytes more
        del y
        w = z[:1].clone()  # 8 bytes
    assert memory.curve_bytes == [80, 160, 160, 320, 240, 248]
    assert memory.peak_bytes == 320
    assert w.shape == (1,)


def test_nothing_measured_is_nothing():
    with resident() as memory:
        pass
    assert memory.peak_bytes == 0


def test_it_counts_through_backward_to_the_byte():
    w = torch.ones(1000, requires_grad=True)
    with resident(w) as memory:
        (2.0 * w).exp().sum().backward()
    # Forward: w, its double, which nothing needs after exp, and the exponential. Backward: w, the
    # exponential and the first gradient, with two scalars. Left: w and its gradient, and the sum's.
    assert max(memory.curve_bytes[:4]) == 12_000
    assert memory.peak_bytes == 12_008
    assert memory.curve_bytes[-1] == 8_008
    with resident(w) as memory:
        w.detach().clone()
    assert memory.curve_bytes[0] == 4_000  # the gradient is no operation's, and nobody named it
    with resident(w, w.grad) as memory:
        w.detach().clone()
    assert memory.peak_bytes == 12_000


def test_a_storage_that_is_emptied_counts_no_more():
    x = torch.ones(100)
    with resident(x) as memory:
        y = x + 1
        y.untyped_storage().resize_(0)
        z = x + 1
        y.untyped_storage().resize_(400)
        x.add_(y)
    assert memory.curve_bytes == [400, 800, 800, 1_200]
    assert z.shape == y.shape


def test_meta_has_no_memory():
    with resident(torch.empty(10**9, device="meta")) as memory:
        torch.empty(100, device="meta").exp()
    assert memory.peak_bytes == 0


def test_an_error_ends_it():
    with pytest.raises(RuntimeError, match="shape"), resident() as memory:
        torch.ones(2).view(3)
    torch.ones(100)
    assert memory.peak_bytes <= 8


def calls(comm):
    x = torch.full((6,), float(comm.rank))  # 24 bytes
    with resident(x) as memory:
        comm.all_reduce(x)
        comm.all_gather(x)
        comm.reduce_scatter(x)
        comm.broadcast(x)
        comm.all_to_all(x)
        comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
        if comm.rank == 0:
            comm.send(x, 1)
        elif comm.rank == 1:
            comm.recv(x, 0)
        kept = comm.all_gather(x)
    return memory.curve_bytes, memory.peak_bytes, kept


def a_rank_holds_what_it_gets(engine):
    for rank, (curve, peak, _) in enumerate(run(calls, 3, engine=engine, timeout=60).values):
        got = [24, 72, 8, 24, 24, 24, *([24] if rank == 1 else []), 72]
        assert [held - 24 for held in curve if held > 24] == got, rank
        assert peak == 24 + 72


def test_a_call_gives_each_rank_its_own_tensor_and_nothing_of_the_others():
    a_rank_holds_what_it_gets("sim")


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_processes_hold_the_same():
    a_rank_holds_what_it_gets("gloo")


def test_a_recording_sees_one_allocation_for_each_call():
    def traced(comm):
        x = torch.ones(4) * comm.rank
        with recording() as trace:
            y = comm.all_reduce(x)
            y.exp()
        return [(kind, size_bytes) for kind, _, size_bytes in trace.events if kind == "allocate"]

    assert run(traced, 4).values == [[("allocate", 16), ("allocate", 16)]] * 4
