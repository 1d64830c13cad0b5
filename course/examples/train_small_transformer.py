# %% [markdown]
# # A small transformer on four ranks
#
# Two replicas of a model, each spread over two ranks: data parallelism times tensor parallelism,
# in one function. It runs on the simulator, and on real processes when one word changes. Every
# piece is one you write in the labs; here they work together.
#
# The same text is a notebook (`train_small_transformer.ipynb`) and a file that `torchrun` starts:
#
#     python train_small_transformer.py
#     torchrun --standalone --nproc-per-node 4 train_small_transformer.py

# %%
import os

import torch
import torch.nn.functional as F

from distlab import run
from distlab.seeds import generator, normal

WORLD = int(os.environ.get("WORLD_SIZE", "4"))  # torchrun says how many ranks there are
SPEAKER = os.environ.get("RANK", "0") == "0"  # under torchrun, one process speaks for all
TEXT = (
    "each rank holds a part of every matrix and a part of every batch. "
    "the parts meet in sums: forward inside a replica, backward between replicas. "
    "what no rank sends, no rank knows. "
)
LETTERS = sorted(set(TEXT))
LAYERS, HIDDEN, HEADS, TOKENS, BATCH = 2, 32, 4, 16, 8

# %% [markdown]
# ## What crosses ranks
#
# One autograd function is enough for every place where a replica's ranks talk: what it does going
# forward and what it does going backward are handed in. `enter` is the f of lab 3, `leave` its g.


# %%
class Cross(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, there, back):
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.back(grad), None, None


def as_it_is(x):
    return x.view_as(x)


def enter(x, tp):
    return Cross.apply(x, as_it_is, tp.all_reduce)


def leave(x, tp):
    return Cross.apply(x, tp.all_reduce, as_it_is)


# %% [markdown]
# ## The model, and one rank's part of it
#
# Weights are [in, out]. Queries, keys, values and the first MLP matrix are cut by columns (whole
# heads), the two matrices behind them by rows. Embeddings and norms are whole on every rank.


# %%
def whole_weights() -> dict:
    def weight(rows, columns, *name):
        return normal((rows, columns), "example", *name) / rows**0.5

    weights = {"letters": weight(len(LETTERS), HIDDEN, "letters")}
    weights["places"] = weight(TOKENS, HIDDEN, "places")
    for layer in range(LAYERS):
        for name in ("q", "k", "v"):
            weights[f"{layer}.{name}"] = weight(HIDDEN, HIDDEN, name, layer)
        weights[f"{layer}.o"] = weight(HIDDEN, HIDDEN, "o", layer)
        weights[f"{layer}.a"] = weight(HIDDEN, 4 * HIDDEN, "a", layer)
        weights[f"{layer}.b"] = weight(4 * HIDDEN, HIDDEN, "b", layer)
        for name in ("norm1", "norm2"):
            weights[f"{layer}.{name}"] = torch.ones(HIDDEN, dtype=torch.float64)
    weights["out"] = weight(HIDDEN, len(LETTERS), "out")
    return weights


def my_weights(tp) -> dict:
    """Return this rank's part of every weight, as leaves that want gradients."""
    dims = dict.fromkeys("qkva", 1) | dict.fromkeys("ob", 0)  # which dim is cut
    mine = {}
    for name, weight in whole_weights().items():
        dim = dims.get(name.partition(".")[2])
        part = weight if dim is None else weight.chunk(tp.size, dim)[tp.rank]
        mine[name] = part.clone().requires_grad_()
    return mine


def norm(x, scale):
    return F.layer_norm(x, (HIDDEN,)) * scale


def attention(x, w, layer, tp):
    heads = HEADS // tp.size
    x = enter(x, tp)
    q, k, v = (
        (x @ w[f"{layer}.{name}"]).unflatten(-1, (heads, -1)).transpose(-2, -3)
        for name in ("q", "k", "v")
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return leave(mixed.transpose(-2, -3).flatten(-2) @ w[f"{layer}.o"], tp)


def mlp(x, w, layer, tp):
    return leave(F.gelu(enter(x, tp) @ w[f"{layer}.a"]) @ w[f"{layer}.b"], tp)


def loss_of(tokens, w, tp):
    x = w["letters"][tokens[:, :-1]] + w["places"]
    for layer in range(LAYERS):
        x = x + attention(norm(x, w[f"{layer}.norm1"]), w, layer, tp)
        x = x + mlp(norm(x, w[f"{layer}.norm2"]), w, layer, tp)
    logits = x @ w["out"]
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


# %% [markdown]
# ## One rank's training
#
# `comm.split` gives each rank two groups: the ranks that share its replica (`tp`), and the ranks
# that hold the same part in the other replicas (`dp`). A step averages gradients over `dp`, all of
# them in one bucket; whoever shares a replica needs no more, since f and g have seen to it.


# %%
def batch_of(step: int, dp) -> torch.Tensor:
    """Return this replica's sequences of a step, one letter longer than they are predicted."""
    starts = torch.randint(len(TEXT) - TOKENS, (BATCH,), generator=generator("example", step))
    rows = [[LETTERS.index(c) for c in TEXT[s : s + TOKENS + 1]] for s in starts.tolist()]
    return torch.tensor(rows).chunk(dp.size)[dp.rank]


def train(comm, steps: int, t: int) -> list[float]:
    """Return the loss of every step, the mean over the whole batch."""
    tp = comm.split(color=comm.rank // t)
    dp = comm.split(color=comm.rank % t)
    weights = my_weights(tp)
    optimiser = torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        loss = loss_of(batch_of(step, dp), weights, tp)
        loss.backward()
        bucket = torch.cat([w.grad.flatten() for w in weights.values()])
        means = dp.all_reduce(bucket, op="mean").split([w.numel() for w in weights.values()])
        for weight, mean in zip(weights.values(), means, strict=True):
            weight.grad.copy_(mean.view_as(weight))
        optimiser.step()
        losses.append(dp.all_reduce(loss, op="mean").item())
    return losses


# %% [markdown]
# ## On the simulator
#
# First on one rank alone, the whole model and the whole batch; then on all of them. The losses
# must agree but for rounding: a sum of halves is rounded in another place than a sum of wholes.

# %%
STEPS = 20
alone = run(train, 1, STEPS, 1)
simulated = run(train, WORLD, STEPS, 2)


def largest_gap(one, other) -> float:
    return max(abs(a - b) for a, b in zip(one.values[0], other.values[0], strict=True))


if SPEAKER:
    print("loss, first and last:", *(f"{simulated.values[0][i]:.3f}" for i in (0, -1)))
    print(f"one rank and {WORLD}: at most {largest_gap(alone, simulated):.1e} apart")
    print(simulated.ledger)

# %% [markdown]
# ## On real processes
#
# One word changes. In a notebook, `run` starts the processes; in a file that torchrun started, it
# joins them.

# %%
real = run(train, WORLD, STEPS, 2, engine="gloo")

if SPEAKER:
    print(f"simulated and gloo: at most {largest_gap(simulated, real):.1e} apart")
    print("equal ledgers:", simulated.ledger == real.ledger)
    print("all ranks agree:", all(losses == real.values[0] for losses in real.values))
