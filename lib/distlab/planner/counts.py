"""What a dense transformer is made of, counted tensor by tensor: parameters and FLOP.

Two kinds of parameters are told apart, because t treats them differently: matrices (and the biases
of their columns) are cut into t parts, norms and the biases of rows are kept whole by every rank.

Source: the shapes of `distlab.model`; Shoeybi et al. (2019), section 3, for what t cuts.
"""

from dataclasses import dataclass

from distlab.model import Config

# The counts are per kind and per layer: lab 1 asks for the whole model's, which no name here gives.


@dataclass(frozen=True)
class Counts:
    """Parameters and FLOP per token of a model's pieces. FLOP count a multiply-add as two.

    `layer_matrices`: a layer's matrices, which every token passes; `layer_biases` of their columns,
    cut with them; `layer_whole`: norms and row biases. `table`: the token embedding, cut by t, and
    as large as the output head. `first_whole`: positions and the embedding's norm. `last_whole`:
    the final norm. `kv_matrices`: those of K and V, within `layer_matrices`.
    `query`, `key`: widths of all Q heads, and of all K heads. `up`: widths inside the MLP that are
    written for its last matrix to read: 2 ffn if gated.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    query: int
    key: int
    ffn: int
    up: int
    vocab: int
    gated: bool
    tied: bool
    layer_matrices: int
    kv_matrices: int
    layer_biases: int
    layer_whole: int
    table: int
    first_whole: int
    last_whole: int


def counts(model: Config) -> Counts:
    """Returns the counts of a dense model.

    Raises: ValueError for a model that the planner has no layout for: experts, latent attention.

    Example: `counts(GPT3_175B).layer_matrices == 12 * 12288**2`.
    """
    if model.experts or model.latent is not None:
        what = "experts" if model.experts else "latent attention"
        raise ValueError(f"{model.name} has {what}: the planner knows dense transformers only.")
    h, query, key = model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim
    up = (2 if model.gated else 1) * model.ffn
    norm = 2 * h if model.norm == "layer" else h
    return Counts(
        layers=model.layers,
        hidden=h,
        heads=model.heads,
        kv_heads=model.kv_heads,
        query=query,
        key=key,
        ffn=model.ffn,
        up=up,
        vocab=model.vocab,
        gated=model.gated,
        tied=model.tied,
        layer_matrices=h * (query + 2 * key) + query * h + h * up + model.ffn * h,
        kv_matrices=2 * h * key,
        layer_biases=(query + 2 * key + up) * model.bias,
        layer_whole=2 * norm + 2 * h * model.bias,
        table=model.vocab * h,
        first_whole=model.positions * h + norm * model.embedding_norm,
        last_whole=norm,
    )
