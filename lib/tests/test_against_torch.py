"""torch's own parallel training, on gloo, beside the same written against our communicator.

Ours runs on the simulator, torch's in real processes. float64; tolerances are relative to the
largest value: 1e-12 after one step, 1e-10 after several. Counts are CommDebugMode's.
"""

import pytest
import torch
from torch import nn

from distlab import per_rank, run, seeds

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]

N = 2
WIDTH = 8


def model():
    """The same small network in every process."""
    torch.manual_seed(3)
    layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 4)).double()


BATCHES = [
    (seeds.normal((6, WIDTH), "x", rank), seeds.normal((6, 4), "y", rank)) for rank in range(N)
]


def close(got, expected, tolerance):
    scale = expected.abs().max()
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= tolerance * scale


def loss_of(net, x, y):
    return ((net(x) - y) ** 2).mean()


class Copy(torch.autograd.Function):
    """f: forward as it is, backward all-reduce."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.comm.all_reduce(grad), None


class Reduce(torch.autograd.Function):
    """g: forward all-reduce, backward as it is."""

    @staticmethod
    def forward(ctx, x, comm):
        return comm.all_reduce(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class GatherSequence(torch.autograd.Function):
    """Forward all-gather over the sequence, backward reduce-scatter."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return comm.all_gather(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.comm.reduce_scatter(grad), None


class ScatterSequence(torch.autograd.Function):
    """Forward reduce-scatter over the sequence, backward all-gather."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return comm.reduce_scatter(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.comm.all_gather(grad), None


def data_parallel_step(comm, x, y):
    net = model()
    loss_of(net, x, y).backward()
    return [comm.all_reduce(p.grad, "mean") for p in net.parameters()]


def test_ddp():
    def theirs(comm, x, y):
        net = nn.parallel.DistributedDataParallel(model())
        loss_of(net, x, y).backward()
        return [p.grad for p in net.parameters()]

    data = per_rank([x for x, _ in BATCHES]), per_rank([y for _, y in BATCHES])
    ours = run(data_parallel_step, N, *data).values
    ddp = run(theirs, N, *data, engine="gloo").values
    for mine, grads in zip(ours, ddp, strict=True):
        for a, b in zip(mine, grads, strict=True):
            close(a, b, 1e-12)


X, A, B = (seeds.normal(shape, "tp", i) for i, shape in enumerate([(6, 4), (4, 8), (8, 4)]))


def plain(grad):
    """A DTensor's whole value, or the tensor itself."""
    return grad.full_tensor() if hasattr(grad, "full_tensor") else grad


def parallel_mlp(sequence_parallel):
    """torch's Colwise and Rowwise MLP on gloo: (output, gradient of x, collective counts)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    def body(comm, x, a, b):
        class Mlp(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.LayerNorm(4).double()
                self.up = nn.Linear(4, 8, bias=False).double()
                self.down = nn.Linear(8, 4, bias=False).double()
                self.up.weight.data, self.down.weight.data = a.T.clone(), b.T.clone()

            def forward(self, x):
                x = self.norm(x) if sequence_parallel else x
                return self.down(torch.nn.functional.gelu(self.up(x)))

        mesh = init_device_mesh("cpu", (comm.size,))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if sequence_parallel:
            plan = {
                "norm": SequenceParallel(sequence_dim=0),
                "up": ColwiseParallel(input_layouts=Shard(0)),
                "down": RowwiseParallel(output_layouts=Shard(0), use_local_output=True),
            }
        net = parallelize_module(Mlp(), mesh, plan)
        x = x.clone().requires_grad_()
        given = x.chunk(comm.size)[comm.rank] if sequence_parallel else x
        if sequence_parallel:
            given = given.detach().requires_grad_()
        counts = []
        with CommDebugMode() as forward:
            y = net(given)
        with CommDebugMode() as backward:
            y.sum().backward()
        for mode in (forward, backward):
            counts.append({str(k).split(".")[-1]: v for k, v in mode.get_comm_counts().items()})
        norm_grad = plain(net.norm.weight.grad) if sequence_parallel else None
        return y.detach(), given.grad, counts, norm_grad

    return run(body, N, X, A, B, engine="gloo").values


def test_colwise_and_rowwise():
    def ours(comm, x, a, b):
        x = x.clone().requires_grad_()
        hidden = torch.nn.functional.gelu(Copy.apply(x, comm) @ a)
        y = Reduce.apply(hidden @ b, comm)
        y.sum().backward()
        return y, x.grad

    shards = per_rank(A.chunk(N, 1)), per_rank(B.chunk(N, 0))
    result = run(ours, N, X, *shards)
    for (y, grad), (their_y, their_grad, counts, _) in zip(
        result.values, parallel_mlp(sequence_parallel=False), strict=True
    ):
        close(y, their_y, 1e-12)
        close(grad, their_grad, 1e-12)
        assert [sum(c.values()) for c in counts] == [1, 1]
        assert all("all_reduce" in name for c in counts for name in c)
    assert result.ledger.calls("all_reduce", rank=0) == 2


def test_sequence_parallel():
    def ours(comm, x, a, b):
        x = x.clone().requires_grad_()
        weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
        normed = torch.nn.functional.layer_norm(x, (4,)) * weight
        hidden = torch.nn.functional.gelu(GatherSequence.apply(normed, comm) @ a)
        y = ScatterSequence.apply(hidden @ b, comm)
        y.sum().backward()
        # Each rank normed its own tokens only: the weight's gradient is still to be summed.
        return y, x.grad, comm.all_reduce(weight.grad)

    shards = per_rank(A.chunk(N, 1)), per_rank(B.chunk(N, 0))
    result = run(ours, N, per_rank(X.chunk(N)), *shards)
    for (y, grad, norm), (their_y, their_grad, counts, their_norm) in zip(
        result.values, parallel_mlp(sequence_parallel=True), strict=True
    ):
        close(y, plain(their_y), 1e-12)
        close(grad, their_grad, 1e-12)
        close(norm, their_norm, 1e-12)
        for mode in counts:
            kinds = sorted(name.split("_")[0] for name in mode for _ in range(mode[name]))
            assert kinds == ["all", "reduce"], mode  # one all-gather, one reduce-scatter
    assert result.ledger.calls("all_gather", rank=0) == 2
    assert result.ledger.calls("reduce_scatter", rank=0) == 2


def adam_like(grads, state, step):
    """One Adam step on a flat vector; returns the update."""
    state["m"] = 0.9 * state["m"] + 0.1 * grads
    state["v"] = 0.999 * state["v"] + 0.001 * grads**2
    m, v = state["m"] / (1 - 0.9**step), state["v"] / (1 - 0.999**step)
    return -1e-3 * m / (v.sqrt() + 1e-8)


def test_zero_redundancy_optimizer():
    def theirs(comm, x, y):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        net = nn.parallel.DistributedDataParallel(model())
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(net, x, y).backward()
            optimizer.step()
        return torch.cat([p.detach().reshape(-1) for p in net.parameters()])

    def ours(comm, x, y):
        net = model()
        params = list(net.parameters())
        total = sum(p.numel() for p in params)
        padded = -(-total // comm.size) * comm.size
        part = padded // comm.size
        state = {"m": torch.zeros(part).double(), "v": torch.zeros(part).double()}
        for step in range(1, 4):
            net.zero_grad()
            loss_of(net, x, y).backward()
            flat = torch.cat([p.grad.reshape(-1) for p in params] + [torch.zeros(padded - total)])
            update = adam_like(comm.reduce_scatter(flat, op="mean"), state, step)
            updates = comm.all_gather(update)[:total].split([p.numel() for p in params])
            with torch.no_grad():
                for p, u in zip(params, updates, strict=True):
                    p += u.reshape(p.shape)
        return torch.cat([p.detach().reshape(-1) for p in params])

    data = per_rank([x for x, _ in BATCHES]), per_rank([y for _, y in BATCHES])
    for mine, zero in zip(
        run(ours, N, *data).values, run(theirs, N, *data, engine="gloo").values, strict=True
    ):
        close(mine, zero, 1e-10)


def test_fully_shard():
    def theirs(comm, x, y):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.debug import CommDebugMode

        net = model()
        mesh = init_device_mesh("cpu", (comm.size,))
        linears = [layer for layer in net if isinstance(layer, nn.Linear)]
        for layer in linears:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)  # the root of the three; without one, none reshards
        with CommDebugMode() as mode:
            loss_of(net, x, y).backward()
        counts = {str(k).split(".")[-1]: v for k, v in mode.get_comm_counts().items()}
        grads = [p.grad.full_tensor() for layer in linears for p in layer.parameters()]
        return grads, counts, len(linears)

    data = per_rank([x for x, _ in BATCHES]), per_rank([y for _, y in BATCHES])
    ours = run(data_parallel_step, N, *data).values
    for mine, (grads, counts, layers) in zip(
        ours, run(theirs, N, *data, engine="gloo").values, strict=True
    ):
        for a, b in zip(mine, grads, strict=True):
            close(a, b, 1e-12)
        gathers = sum(v for k, v in counts.items() if "gather" in k)
        scatters = sum(v for k, v in counts.items() if "scatter" in k)
        # Gathered in forward and again in backward; scattered once.
        assert (gathers, scatters) == (2 * layers, layers)


def staged(comm, x, y, microbatches):
    """A two-stage pipeline by hand: all forwards, then all backwards (GPipe)."""
    net = model()
    stage = nn.Sequential(*(net[:2] if comm.rank == 0 else net[2:]))
    outputs, inputs = [], []
    for i, x_m in enumerate(x.chunk(microbatches)):
        if comm.rank == 0:
            outputs.append(stage(x_m))
            comm.send(outputs[-1], 1)
        else:
            like = torch.empty(len(x_m), WIDTH, dtype=torch.float64)
            inputs.append(comm.recv(like, 0).requires_grad_())
            target = y.chunk(microbatches)[i]
            outputs.append(((stage(inputs[-1]) - target) ** 2).mean() / microbatches)
    for i in range(microbatches):
        if comm.rank == 1:
            outputs[i].backward()
            comm.send(inputs[i].grad, 0)
        else:
            outputs[i].backward(comm.recv(outputs[i], 1))
    return [p.grad for p in stage.parameters()]


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_pipelining_schedules(schedule):
    x, y = seeds.normal((8, WIDTH), "pp x"), seeds.normal((8, 4), "pp y")

    def theirs(comm, x, y):
        from torch.distributed import pipelining

        net = model()
        part = nn.Sequential(*(net[:2] if comm.rank == 0 else net[2:]))
        stage = pipelining.PipelineStage(part, comm.rank, comm.size, torch.device("cpu"))
        plan = getattr(pipelining, schedule)(
            stage, n_microbatches=4, loss_fn=lambda out, target: ((out - target) ** 2).mean()
        )
        if comm.rank == 0:
            plan.step(x)
        else:
            plan.step(target=y, losses=[])
        return [p.grad for p in part.parameters()]

    ours = run(staged, N, x, y, 4).values
    real = run(theirs, N, x, y, engine="gloo").values
    for mine, grads in zip(ours, real, strict=True):
        for a, b in zip(mine, grads, strict=True):
            close(a, b, 1e-12)
    assert run(staged, N, x, y, 4, engine="gloo").ledger == run(staged, N, x, y, 4).ledger
