"""A small transformer in 3D: what one rank holds of it, and its forward and backward passes.

Attention and MLP blocks with RMS norms, no biases; one embedding, which is the head as well. A rank
of `tp` and `pp` holds its part of its stage's layers. Matrices are [in, out]; queries, keys, values
and the first MLP matrix are cut by columns, the two behind them by rows. Everything else is whole
on every rank of `tp`; the embedding lies on the first stage and on the last.

With sequence parallelism each rank of `tp` has its part of the tokens, too, wherever no matrix is
cut: an all-gather leads into the cut matrices and a reduce-scatter out of them, where an all-reduce
would be otherwise (lab 3's f and g). What happens between replicas is nobody's here: no gradient
that this module returns has left its rank.

Shapes: B sequences, T tokens, D hidden, V letters; lower case marks the dim of which this rank
holds a part. With sequence parallelism x is [B, t, D], without it [B, T, D].
Source: Shoeybi et al. 2019 (arXiv:1909.08053), Korthikanti et al. 2022 (arXiv:2205.05198).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from distlab.comm import Comm
from distlab.layout import Layout
from distlab.seeds import normal

# No room FORBIDs anything here: passes over a part aren't a step, and lab 3's f and g, lab 4's
# pipeline have other signatures.

HEAD = 2  # numbers of a query, key or value in each head
CUT = {"q": 1, "k": 1, "v": 1, "o": 0, "a": 1, "b": 0}  # which dim of a layer's matrix is cut


def whole_weights(layers: int, hidden: int, letters: int, *key: str | int) -> dict[str, Tensor]:
    """Return all weights by name, in float64: "embedding", "0.q", ..., "norm" before the head.

    Example: `whole_weights(2, 12, 7)["1.a"].shape == (12, 24)`.
    """
    sizes = {"q": 1, "k": 1, "v": 1, "o": 1, "a": 2, "b": 1}  # columns, in hidden

    def matrix(rows: int, columns: int, name: str) -> Tensor:
        return normal((rows, columns), "small3d", *key, name) / rows**0.5

    def scale(name: str) -> Tensor:
        return 1 + normal((hidden,), "small3d", *key, name) / 8

    weights = {"embedding": matrix(letters, hidden, "embedding")}
    for layer in range(layers):
        weights[f"{layer}.norm1"] = scale(f"{layer}.norm1")
        weights[f"{layer}.norm2"] = scale(f"{layer}.norm2")
        for name, size in sizes.items():
            rows = 2 * hidden if name == "b" else hidden
            weights[f"{layer}.{name}"] = matrix(rows, size * hidden, f"{layer}.{name}")
    return weights | {"norm": scale("norm")}


def kind(name: str) -> Literal["cut", "whole", "tied"]:
    """Return how a weight lies over the ranks: cut over TP; whole on each; or the embedding.

    Example: `kind("3.q") == "cut"`, `kind("3.norm1") == "whole"`, `kind("embedding") == "tied"`.
    """
    if name == "embedding":
        return "tied"
    return "cut" if name.partition(".")[2] in CUT else "whole"


def shards(whole: dict[str, Tensor], tp: Comm, pp: Comm) -> dict[str, Tensor]:
    """Return this rank's part of the weights: copies, by the same names.

    Raises: ValueError if `tp` has more ranks than divide the heads, or `pp` more than layers.
    """
    heads, layers = whole["0.q"].shape[1] // HEAD, _layers(whole)
    if heads % tp.size:
        raise ValueError(f"{heads} heads can't be shared by {tp.size} tensor-parallel ranks.")
    if pp.size > len(layers):
        raise ValueError(f"{len(layers)} layers are too few for {pp.size} stages.")
    ends = pp.rank in (0, pp.size - 1)
    held = {"embedding": ends, "norm": pp.rank == pp.size - 1}
    mine = {}
    for name, weight in whole.items():
        layer, _, short = name.partition(".")
        if held.get(name, short and int(layer) * pp.size // len(layers) == pp.rank):
            part = weight.chunk(tp.size, CUT[short])[tp.rank] if short in CUT else weight
            mine[name] = part.detach().clone()
    return mine


def forward_backward(
    weights: dict[str, Tensor], sequences: Tensor, tp: Comm, pp: Comm, layout: Layout
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return this rank's loss and its gradients by name, both *summed* over tokens, not averaged.

    `sequences` [B, T + 1] are this replica's letters, each predicted from those before it. They go
    through the stages in microbatches of `layout.microbatch`: all of them forward, then all of them
    backward. The loss is 0 but on the last stage. With `layout.sequence_parallel` it is the loss of
    this rank's T/t tokens only, without it that of all T.

    Cost: in each layer, an all-reduce's bytes of x over `tp` twice forward and twice backward; x
    once over each boundary of `pp`, and its gradient back.
    """
    first, last = pp.rank == 0, pp.rank == pp.size - 1
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    held, loss = [], torch.zeros((), dtype=torch.float64)
    for letters in sequences.split(layout.microbatch) if len(sequences) else ():
        inputs, targets = _mine(letters, tp, layout)
        if first:
            x = leaves["embedding"][inputs]
        else:
            like = torch.empty(*inputs.shape, _hidden(leaves), dtype=torch.float64)
            x = pp.recv(like, pp.rank - 1).requires_grad_()
        out = x
        for layer in _layers(leaves):
            out = _block(out, leaves, layer, tp, layout)
        if last:
            logits = _norm(out, leaves["norm"]) @ leaves["embedding"].T
            out = (logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]).sum()
            loss += out.detach()
        else:
            pp.send(out.detach(), pp.rank + 1)
        held.append((x, out))
    for x, out in held:
        out.backward(None if last else pp.recv(out, pp.rank + 1))
        if not first:
            pp.send(x.grad, pp.rank - 1)
    return loss, {
        name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for name, leaf in leaves.items()
    }


class _Cross(torch.autograd.Function):
    """Does one thing to x going forward, another to its gradient going backward."""

    @staticmethod
    def forward(ctx, x, there, back):
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.back(grad), None, None


def _enter(x: Tensor, tp: Comm, layout: Layout) -> Tensor:
    """Return x for the rank's part of a matrix: [B, T, D]."""
    if layout.sequence_parallel:
        return _Cross.apply(x, lambda x: tp.all_gather(x, 1), lambda g: tp.reduce_scatter(g, 1))
    return _Cross.apply(x, lambda x: x.view_as(x), tp.all_reduce)


def _leave(x: Tensor, tp: Comm, layout: Layout) -> Tensor:
    """Return the sum of the ranks' x [B, T, D]: all of it, or this rank's tokens [B, t, D]."""
    if layout.sequence_parallel:
        return _Cross.apply(x, lambda x: tp.reduce_scatter(x, 1), lambda g: tp.all_gather(g, 1))
    return _Cross.apply(x, tp.all_reduce, lambda g: g)


def _block(x: Tensor, w: dict[str, Tensor], layer: int, tp: Comm, layout: Layout) -> Tensor:
    inside = _enter(_norm(x, w[f"{layer}.norm1"]), tp, layout)
    q, k, v = (  # [B, heads of this rank, T, HEAD]
        (inside @ w[f"{layer}.{name}"]).unflatten(-1, (-1, HEAD)).transpose(1, 2) for name in "qkv"
    )
    mixed = _causal_shares(q @ k.mT / HEAD**0.5) @ v
    x = x + _leave(mixed.transpose(1, 2).flatten(2) @ w[f"{layer}.o"], tp, layout)
    inside = _enter(_norm(x, w[f"{layer}.norm2"]), tp, layout)
    return x + _leave(F.gelu(inside @ w[f"{layer}.a"]) @ w[f"{layer}.b"], tp, layout)


def _causal_shares(scores: Tensor) -> Tensor:
    """Return the softmax of scores [..., T, T] over the tokens up to each one's own."""
    at = torch.arange(scores.shape[-1])
    scores = scores.masked_fill(at > at[:, None], -torch.inf)
    # torch's own softmax wakes all its threads however small the input; here, ranks are threads.
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def _norm(x: Tensor, scale: Tensor) -> Tensor:
    return F.rms_norm(x, scale.shape, scale, eps=1e-5)


def _mine(letters: Tensor, tp: Comm, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the letters that this rank sees, and those that it predicts: [B, T] or [B, t]."""
    inputs, targets = letters[:, :-1], letters[:, 1:]
    if not layout.sequence_parallel:
        return inputs, targets
    if inputs.shape[1] % tp.size:
        raise ValueError(f"{inputs.shape[1]} tokens can't be shared equally by {tp.size} ranks.")
    return inputs.chunk(tp.size, 1)[tp.rank], targets.chunk(tp.size, 1)[tp.rank]


def _layers(weights: dict[str, Tensor]) -> list[int]:
    return sorted({int(name.partition(".")[0]) for name in weights if "." in name})


def _hidden(weights: dict[str, Tensor]) -> int:
    return next(w for name, w in weights.items() if name.endswith(".norm1")).shape[0]
