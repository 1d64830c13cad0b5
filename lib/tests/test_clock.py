"""The simulator's clock: closed forms exactly, one call at a time per link, overlap, waiting."""

import gzip
import json
from fractions import Fraction

import pytest
import torch

from distlab import cost, hardware, per_rank, run, seeds
from distlab.comm import Handle
from distlab.errors import (
    CollectiveMismatchError,
    CommArgumentError,
    DeadlockError,
    NeverWaitedError,
)
from distlab.timeline import Event, Timeline

SIZES = (1, 2, 3, 4, 5)
GPU = hardware.Gpu("test", 2026, 1e12, 80e9, 1e12, hardware.Link("inside", 400e9, 3e-6))


def nodes_of(gpus: int, mfu: float = 0.4) -> hardware.Cluster:
    """Nodes of so many GPUs; three ranks on nodes of two are an uneven topology."""
    return hardware.Cluster("test", GPU, gpus, hardware.Link("network", 25e9, 1.7e-5), mfu=mfu)


CLUSTER = nodes_of(2)


def spans(timeline, rank, stream):
    return [(e.start, e.end) for e in timeline.of(rank, stream)]


CALLS = {
    "all_reduce": lambda comm, x, **more: comm.all_reduce(x, **more),
    "all_gather": lambda comm, x, **more: comm.all_gather(x, **more),
    "reduce_scatter": lambda comm, x, **more: comm.reduce_scatter(x, **more),
    "broadcast": lambda comm, x, **more: comm.broadcast(x, src=comm.size - 1, **more),
    "all_to_all": lambda comm, x, **more: comm.all_to_all(x, **more),
}


@pytest.mark.parametrize("gpus_per_node", [1, 2, 3, 8])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("op", "async_op"), [("barrier", False), *((op, way) for op in CALLS for way in (False, True))]
)
def test_a_collective_takes_its_closed_form(op, n, gpus_per_node, async_op):
    cluster = nodes_of(gpus_per_node)
    x = torch.ones(60, 7, dtype=torch.float64)

    def body(comm):
        if op == "barrier":
            return comm.barrier()
        out = CALLS[op](comm, x, async_op=async_op)
        return out.wait() if async_op else out

    result = run(body, n, cluster=cluster)
    payload = 0 if op == "barrier" else x.nbytes
    expected = cost.collective_time_s(op, payload, range(n), cluster)
    assert result.timeline.makespan_s == float(expected)
    for rank in range(n):
        exact = [(Fraction(0), expected)] if n > 1 else []
        assert spans(result.timeline, rank, "comm") == exact


@pytest.mark.parametrize(("op", "steps", "share"), [("all_reduce", 8, 5), ("all_gather", 4, 1)])
def test_the_closed_form_is_written_out_once_more_here(op, steps, share):
    x = torch.ones(1000, dtype=torch.float64)
    timeline = run(lambda comm: CALLS[op](comm, x), 5, cluster=CLUSTER).timeline
    [(_, end)] = spans(timeline, 0, "comm")
    assert end == steps * (Fraction(17, 10**6) + Fraction(8000, share) / (25 * 10**9))


def test_the_slowest_link_of_a_group_governs_it():
    def body(comm):
        comm.split(comm.rank // 2).all_reduce(torch.ones(1000))  # ranks 0, 1; 2, 3; 4 alone
        comm.split(comm.rank % 2).all_reduce(torch.ones(1000))  # ranks 0, 2, 4; 1, 3

    timeline = run(body, 5, cluster=CLUSTER).timeline
    inside = 2 * (Fraction(3, 10**6) + Fraction(2000, 400 * 10**9))
    network = Fraction(17, 10**6)
    assert spans(timeline, 0, "comm") == [
        (0, inside),
        (inside, inside + 4 * (network + Fraction(4000, 3) / (25 * 10**9))),
    ]
    assert spans(timeline, 3, "comm") == [
        (0, inside),
        (inside, inside + 2 * (network + Fraction(2000, 25 * 10**9))),
    ]
    assert [e.name for e in timeline.of(4)] == ["all_reduce #1"]  # alone, it takes no time


def test_a_collective_starts_when_the_last_rank_arrives_and_holds_everyone():
    def body(comm):
        comm.compute(time_s=1e-3 * (comm.rank + 1))
        comm.all_reduce(torch.ones(10))
        comm.compute(time_s=1e-3)

    timeline = run(body, 3, cluster=CLUSTER).timeline
    took = cost.collective_time_s("all_reduce", 40, range(3), CLUSTER)
    late = Fraction(3, 1000)
    for rank in range(3):
        assert spans(timeline, rank, "comm") == [(late, late + took)]
        assert spans(timeline, rank, "compute")[1] == (
            late + took,
            late + took + Fraction(1, 1000),
        )
    assert timeline.busy_s(0, "compute") == 2e-3
    assert timeline.exposed_comm_s(0) == float(took)


def test_computing_takes_work_over_peak_times_mfu():
    timeline = run(lambda c: c.compute(2e9, "forward"), 1, cluster=nodes_of(1, mfu=0.5)).timeline
    [event] = timeline.events
    assert (event.name, event.kind, event.start_s, event.end_s) == ("forward", "compute", 0, 4e-3)


def test_communication_runs_behind_computing():
    x = torch.ones(1_000_000, dtype=torch.float64)
    took = cost.collective_time_s("all_reduce", x.nbytes, range(2), CLUSTER)

    def body(comm, behind_s):
        handle = comm.all_reduce(x, async_op=True)
        comm.compute(time_s=behind_s)
        handle.wait()

    long = run(body, 2, 1.0, cluster=CLUSTER).timeline
    assert (long.makespan_s, long.exposed_comm_s(0)) == (1.0, 0.0)
    short = run(body, 2, took / 4, cluster=CLUSTER).timeline
    assert short.makespan_s == float(took)
    assert short.exposed_comm_s(1) == float(took * Fraction(3, 4))


def test_two_buckets_are_never_on_the_link_at_once():
    """Buckets ready at 1 and 2 ms, each 2 ms on the link: it is free again at 5, not at 4 ms."""
    link = hardware.Link("slow", 1e6)
    cluster = hardware.Cluster("test", GPU, 8, link, node_link=link)
    bucket = torch.ones(2000, dtype=torch.uint8)  # 2 ranks send half of it, twice

    def body(comm):
        handles = []
        for _ in range(2):
            comm.compute(time_s=0.001, role="gradients")
            handles.append(comm.all_reduce(bucket, async_op=True))
        for handle in reversed(handles):
            handle.wait()
        comm.compute(time_s=0.0005, role="optimiser states")

    timeline = run(body, 2, cluster=cluster).timeline
    ms = Fraction(1, 1000)
    for rank in range(2):
        assert spans(timeline, rank, "comm") == [(ms, 3 * ms), (3 * ms, 5 * ms)]
        assert spans(timeline, rank, "compute")[-1] == (5 * ms, Fraction(11, 2) * ms)
    assert timeline.makespan_s == 0.0055
    assert timeline.exposed_comm_s(0) == 0.003


def test_wait_holds_only_until_its_own_collective_has_ended():
    def body(comm):
        first, second = (comm.all_reduce(torch.ones(1000), async_op=True) for _ in range(2))
        first.wait()
        comm.compute(time_s=1e-9)
        second.wait()
        comm.compute(time_s=1e-9)
        second.wait()  # again: nothing happens
        comm.compute(time_s=1e-9)

    timeline = run(body, 2, cluster=CLUSTER).timeline
    took = cost.collective_time_s("all_reduce", 4000, range(2), CLUSTER)
    tick = Fraction(1, 10**9)
    assert spans(timeline, 0, "compute") == [
        (took, took + tick),
        (2 * took, 2 * took + tick),
        (2 * took + tick, 2 * took + 2 * tick),
    ]


def test_a_late_rank_delays_a_launched_collective_and_what_stands_behind_it():
    def body(comm):
        pair = comm.split(0 if comm.rank < 2 else 1)
        if comm.rank == 2:
            comm.compute(time_s=1.0)
        whole = comm.all_reduce(torch.ones(10), async_op=True)
        if comm.rank < 2:
            pair.all_reduce(torch.ones(10))
        whole.wait()

    timeline = run(body, 3, cluster=CLUSTER).timeline
    whole = cost.collective_time_s("all_reduce", 40, range(3), CLUSTER)
    pair = cost.collective_time_s("all_reduce", 40, range(2), CLUSTER)
    assert spans(timeline, 0, "comm") == [(1, 1 + whole), (1 + whole, 1 + whole + pair)]
    assert spans(timeline, 2, "comm") == [(1, 1 + whole)]


def test_a_message_takes_alpha_plus_bytes_over_beta():
    x = torch.ones(1000)

    def body(comm):
        if comm.rank == 0:
            comm.compute(time_s=0.5)
            comm.send(x, 1)
            comm.send(x, 2)
        else:
            comm.recv(x, 0)

    timeline = run(body, 3, cluster=CLUSTER).timeline
    near = cost.send_time_s(4000, CLUSTER.node_link)
    far = cost.send_time_s(4000, CLUSTER.network)
    start = Fraction(1, 2)
    assert spans(timeline, 1, "comm") == [(start, start + near)]
    assert spans(timeline, 2, "comm") == [(start + near, start + near + far)]
    assert spans(timeline, 0, "comm") == spans(timeline, 1, "comm") + spans(timeline, 2, "comm")
    assert [e.name for e in timeline.of(0, "comm")] == ["send to rank 1", "send to rank 2"]


def test_a_message_is_priced_by_what_it_carries_not_by_what_its_receiver_sends():
    def body(comm):
        small, large = torch.ones(10), torch.ones(100_000)
        mine, other = (small, large) if comm.rank == 0 else (large, small)
        comm.sendrecv(mine, 1 - comm.rank, 1 - comm.rank, like=other)
        comm.sendrecv(small, comm.rank, comm.rank)  # to itself: no time

    timeline = run(body, 2, cluster=CLUSTER).timeline
    assert spans(timeline, 0, "comm") == [(0, cost.send_time_s(400_000, CLUSTER.node_link))]


def test_a_sendrecv_goes_on_from_its_first_message_to_the_end_of_its_last():
    def body(comm):
        comm.compute(time_s=1.0 if comm.rank == 2 else 0.0)
        comm.sendrecv(torch.ones(10), (comm.rank + 1) % 3, (comm.rank - 1) % 3)

    timeline = run(body, 3, cluster=CLUSTER).timeline
    far = cost.send_time_s(40, CLUSTER.network)
    assert spans(timeline, 1, "comm") == [(0, 1 + far)]  # from 0 at once, to 2 when it is there
    assert spans(timeline, 2, "comm") == [(1, 1 + far)]


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_ring_written_with_sendrecv_takes_the_closed_form(n):
    parts = 60 // n

    def ring(comm):
        x = torch.arange(parts * comm.size, dtype=torch.float64)
        for _ in range(2 * (comm.size - 1)):
            comm.sendrecv(x[:parts], (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)

    cluster = nodes_of(1)
    timeline = run(ring, n, cluster=cluster).timeline
    payload = 8 * parts * n
    assert timeline.makespan_s == float(
        cost.collective_time_s("all_reduce", payload, range(n), cluster)
    )


def test_an_uneven_all_to_all_takes_as_long_as_its_busiest_rank():
    def body(comm):
        rows = [[0, 1, 2], [5, 7, 0], [4, 0, 0]]  # rank 0 receives 9 rows, more than any sends
        send = rows[comm.rank]
        comm.all_to_all(torch.ones(sum(send), 3), send, [r[comm.rank] for r in rows])

    timeline = run(body, 3, cluster=CLUSTER).timeline
    [(_, end)] = spans(timeline, 1, "comm")
    assert end == 2 * Fraction(17, 10**6) + Fraction(9 * 12, 25 * 10**9)


def test_values_ledger_and_prints_are_the_same_with_and_without_a_clock():
    def body(comm, x):
        half = comm.split(comm.rank % 2, key=-comm.rank)
        comm.compute(1e9)
        handles = [comm.all_reduce(x * k, async_op=True) for k in range(3)]
        inside = half.all_gather(x, async_op=True)
        around = comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
        print(comm.rank, float(torch.rand(())))
        out = [h.wait() for h in handles], inside.wait(), around, comm.broadcast(x, 2)
        return out, half.reduce_scatter(torch.cat([x] * 6))

    xs = [torch.rand(3) for _ in range(5)]
    torch.manual_seed(0)
    plain = run(body, 5, per_rank(xs), echo=False)
    torch.manual_seed(0)
    clocked = run(body, 5, per_rank(xs), echo=False, cluster=CLUSTER)
    assert plain.timeline is None
    assert repr(plain.values) == repr(clocked.values)
    torch.testing.assert_close(plain.values, clocked.values, rtol=0, atol=0)
    assert plain.ledger == clocked.ledger
    assert plain.stdout == clocked.stdout


def test_a_timeline_is_the_same_in_every_run():
    def body(comm):
        comm.compute(time_s=0.1 * (comm.rank % 3))
        h = comm.all_reduce(torch.ones(3), async_op=True)
        comm.compute(time_s=0.1)
        h.wait()

    first, second = (run(body, 4, cluster=CLUSTER).timeline for _ in range(2))
    assert first == second
    assert first != Timeline()


# -- handles, with and without a clock ------------------------------------------------------------


@pytest.fixture(params=[None, CLUSTER], ids=["no clock", "clock"])
def cluster(request):
    return request.param


@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize("n", SIZES)
def test_a_handle_gives_what_the_plain_call_gives(op, n, cluster):
    def body(comm, x):
        plain = CALLS[op](comm, x)
        handle = CALLS[op](comm, x, async_op=True)
        assert isinstance(handle, Handle)
        x.zero_()  # taken as it was at the launch
        out = handle.wait()
        assert handle.wait() is out
        return torch.equal(plain, out), out.data_ptr() != x.data_ptr()

    xs = [torch.rand(60, 2) for _ in range(n)]
    assert run(body, n, per_rank(xs), cluster=cluster).values == [(True, True)] * n


def test_a_plain_call_meets_an_asynchronous_one(cluster):
    def body(comm):
        if comm.rank == 1:
            return comm.all_reduce(torch.ones(1)).item()
        return comm.all_reduce(torch.ones(1), async_op=True).wait().item()

    assert run(body, 3, cluster=cluster).values == [3.0] * 3


def test_handles_may_be_waited_for_in_any_order(cluster):
    def body(comm):
        handles = [comm.all_reduce(torch.full((1,), 10.0**k), async_op=True) for k in range(3)]
        order = [0, 1, 2] if comm.rank == 0 else [2, 0, 1]
        return {k: handles[k].wait().item() for k in order}

    assert run(body, 2, cluster=cluster).values == [{0: 2.0, 1: 20.0, 2: 200.0}] * 2


def test_a_handle_that_is_never_waited_for_is_named(cluster):
    def body(comm):
        handles = [comm.all_reduce(torch.ones(2), async_op=True) for _ in range(2)]
        handles[0].wait()
        if comm.rank == 0:
            handles[1].wait()

    with pytest.raises(NeverWaitedError) as info:
        run(body, 2, cluster=cluster)
    text = str(info.value)
    assert "rank 1 returned without waiting for a handle" in text
    assert "all_reduce #2 (sum, float32[2])" in text
    assert "test_clock.py, line" in text
    assert "wait()" in text


def test_a_rank_that_returns_after_a_launch_which_nobody_answers(cluster):
    def body(comm):
        if comm.rank == 0:
            comm.all_reduce(torch.ones(2), async_op=True)

    with pytest.raises(NeverWaitedError, match="rank 0 returned without waiting"):
        run(body, 2, cluster=cluster)


def test_waiting_for_a_rank_that_never_launches_is_a_deadlock(cluster):
    def body(comm):
        if comm.rank != 1:
            handle = comm.all_reduce(torch.ones(2), async_op=True)
            handle.wait()

    with pytest.raises(DeadlockError) as info:
        run(body, 3, cluster=cluster)
    text = str(info.value)
    assert "ranks 0, 2 wait in all_reduce #1 (sum, float32[2])" in text
    assert "handle.wait()" in text
    assert "launched at" in text
    assert "rank 1 returned without this one" in text


def test_a_mismatch_of_asynchronous_calls_is_found_at_the_launch(cluster):
    def body(comm):
        handle = comm.all_reduce(torch.ones(2 + comm.rank), async_op=True)
        comm.barrier()
        handle.wait()

    with pytest.raises(CollectiveMismatchError) as info:
        run(body, 2, cluster=cluster)
    text = str(info.value)
    assert "different shapes" in text
    assert "rank 0 calls all_reduce #1 (sum, float32[2])" in text
    assert "async_op=True" in text


def test_buckets_launched_in_different_orders_are_a_mismatch(cluster):
    def body(comm):
        sizes = (2, 3) if comm.rank == 0 else (3, 2)
        for handle in [comm.all_reduce(torch.ones(s), async_op=True) for s in sizes]:
            handle.wait()

    with pytest.raises(CollectiveMismatchError, match="different shapes"):
        run(body, 2, cluster=cluster)


def test_with_a_clock_groups_launched_in_different_orders_block_each_others_streams():
    """As NCCL's would on one stream: each link waits for a call that the other has behind it."""

    def body(comm, cross):
        a, b = comm.split(0), comm.split(0)
        order = (a, b) if comm.rank == 0 or not cross else (b, a)
        for handle in [group.all_reduce(torch.ones(1), async_op=True) for group in order]:
            handle.wait()

    run(body, 2, False, cluster=CLUSTER)
    with pytest.raises(DeadlockError, match="same order"):
        run(body, 2, True, cluster=CLUSTER)


def test_another_error_is_not_hidden_by_an_open_handle(cluster):
    def body(comm):
        comm.all_reduce(torch.ones(1), async_op=True)
        raise ZeroDivisionError("own")

    with pytest.raises(ZeroDivisionError, match="own"):
        run(body, 2, cluster=cluster)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda comm: comm.compute(), "either work_flop or time_s"),
        (lambda comm: comm.compute(1.0, time_s=1.0), "either work_flop or time_s"),
        (lambda comm: comm.compute(-1.0), "work_flop=-1.0"),
        (lambda comm: comm.compute(time_s=float("nan")), "time_s=nan"),
        (lambda comm: comm.compute("1"), "work_flop='1'"),
        (lambda comm: comm.compute(1.0, role="lunch"), "role='lunch'"),
    ],
)
def test_compute_without_meaning_is_refused_on_every_run(call, message, cluster):
    with pytest.raises(CommArgumentError, match=message):
        run(call, 1, cluster=cluster)


def test_a_clock_needs_a_cluster_and_the_simulator():
    with pytest.raises(TypeError, match="Cluster"):
        run(lambda comm: None, 1, cluster=8)
    with pytest.raises(ValueError, match="simulator's clock"):
        run(lambda comm: None, 1, cluster=CLUSTER, engine="gloo")


# -- what a timeline says -------------------------------------------------------------------------


def test_exposed_communication_is_what_no_computing_covers():
    events = [
        Event(0, "compute", "a", "compute", 1, 3),
        Event(0, "compute", "b", "compute", 4, 6),
        Event(0, "comm", "c", "all_reduce", 0, 2, 10),
        Event(0, "comm", "d", "all_reduce", 2, 5, 10),
        Event(0, "comm", "e", "all_reduce", 7, 8, 10),
    ]
    timeline = Timeline(events)
    assert timeline.exposed_comm_s(0) == 1 + 1 + 1
    assert timeline.busy_s(0, "comm") == 6
    assert timeline.busy_s(0, "compute") == 4
    assert timeline.makespan_s == 8


def test_the_trace_is_what_perfetto_reads(tmp_path):
    def body(comm):
        comm.compute(time_s=1e-6, name="forward")
        comm.all_reduce(torch.ones(10))

    timeline = run(body, 2, cluster=CLUSTER).timeline
    timeline.save_trace(tmp_path / "trace.json")
    timeline.save_trace(tmp_path / "trace.json.gz")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())) == trace
    assert trace == timeline.chrome_trace()
    rows = trace["traceEvents"]
    names = {(r["pid"], r["tid"]): r["args"]["name"] for r in rows if r["name"] == "thread_name"}
    assert names == {(r, t): ("compute", "communication")[t] for r in (0, 1) for t in (0, 1)}
    processes = {r["pid"]: r["args"]["name"] for r in rows if r["name"] == "process_name"}
    assert processes == {0: "rank 0", 1: "rank 1"}
    took_s = cost.collective_time_s("all_reduce", 40, range(2), CLUSTER)
    drawn = [r for r in rows if r["ph"] == "X"]
    assert [(r["name"], r["pid"], r["tid"], r["ts"], r["dur"]) for r in drawn] == [
        row
        for rank in range(2)
        for row in (
            ("forward", rank, 0, 0.0, 1.0),
            ("all_reduce #1", rank, 1, 1.0, float(took_s * 10**6)),
        )
    ]
    assert drawn[1]["args"]["bytes"] == 40
    assert all(isinstance(r[key], int) for r in rows for key in ("pid", "tid"))


# -- the same on real processes -------------------------------------------------------------------

real = [pytest.mark.slow, pytest.mark.xdist_group("processes")]


def mixed(comm, x):
    half = comm.split(comm.rank % 2)
    comm.compute(1e9)  # nothing, without a clock
    handles = [CALLS[op](comm, x, async_op=True) for op in CALLS]
    inside = half.all_reduce(x, "mean", async_op=True)
    x.zero_()
    between = comm.all_reduce(torch.ones(3), "max")
    order = range(len(handles)) if comm.rank else reversed(range(len(handles)))
    out = {i: handles[i].wait() for i in order}
    rows = [[1, 2, 0], [0, 1, 3], [2, 2, 2]]
    sizes = [r[: comm.size] for r in rows[: comm.size]]
    send, recv = sizes[comm.rank], [r[comm.rank] for r in sizes]
    uneven = comm.all_to_all(torch.ones(sum(send), 2), send, recv, async_op=True)
    around = comm.sendrecv(between, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
    return [out[i] for i in sorted(out)], between, around, inside.wait(), uneven.wait()


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("engine", [pytest.param("gloo", marks=real)])
def test_real_processes_give_the_same_values_and_ledger(n, engine):
    xs = [seeds.integers((60, 2), "clock", rank) for rank in range(n)]
    simulated = run(mixed, n, per_rank(xs), order="ring")
    result = run(mixed, n, per_rank(xs), engine=engine)
    torch.testing.assert_close(result.values, simulated.values, rtol=0, atol=0)
    assert result.ledger == simulated.ledger
    assert result.timeline is None


@pytest.mark.parametrize("engine", ["sim", pytest.param("gloo", marks=real)])
def test_a_launched_collective_is_done_while_its_rank_waits_for_something_else(engine):
    def body(comm):
        handle = comm.all_reduce(torch.ones(1), async_op=True)
        if comm.rank == 0:
            handle.wait()
            comm.send(torch.ones(1), 1)
        else:
            comm.recv(torch.ones(1), 0)  # rank 0 sends only after its wait
        return handle.wait().item()

    assert run(body, 2, engine=engine).values == [2.0, 2.0]


def never_waited(comm):
    handle = comm.all_reduce(torch.ones(2), async_op=True)
    if comm.rank == 0:
        handle.wait()


def never_launched(comm):
    if comm.rank == 0:
        handle = comm.all_reduce(torch.ones(2), async_op=True)
        handle.wait()


def other_shapes(comm):
    handle = comm.all_reduce(torch.ones(2 + comm.rank), async_op=True)
    comm.barrier()
    handle.wait()


def other_sizes(comm):
    comm.all_to_all(torch.ones(2), [1, 1], [1, 1 + comm.rank], async_op=True).wait()


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (never_waited, NeverWaitedError, ["rank 1 returned without waiting for a handle"]),
        (never_launched, DeadlockError, ["handle.wait()", "launched at", "returned without this"]),
        (other_shapes, CollectiveMismatchError, ["different shapes", "rank 1 calls", "async_op"]),
        (other_sizes, CommArgumentError, ["rank 1 sends 1 rows to rank 1, which expects 2"]),
    ],
)
@pytest.mark.parametrize("engine", ["sim", pytest.param("gloo", marks=real)])
def test_what_goes_wrong_is_told_alike_on_both_engines(body, kind, words, engine):
    with pytest.raises(kind) as info:
        run(body, 2, engine=engine)
    text = "\n".join([str(info.value), *getattr(info.value, "__notes__", [])])
    for word in words:
        assert word in text
