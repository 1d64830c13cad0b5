"""Counts parameters by listing a model's tensors: what published counts are held against."""

from math import prod

from distlab.model import Config


def attention(c: Config) -> list[tuple[int, ...]]:
    if c.latent:
        m, wide = c.latent, c.latent.nope_dim + c.latent.rope_dim
        query = [(c.hidden, m.query_rank), (m.query_rank,), (m.query_rank, c.heads * wide)]
        kv = [(c.hidden, m.kv_rank + m.rope_dim), (m.kv_rank,)]
        kv.append((m.kv_rank, c.heads * (m.nope_dim + m.value_dim)))
        return [*query, *kv, (c.heads * m.value_dim, c.hidden)]
    wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
    matrices = [(c.hidden, wide), (c.hidden, narrow), (c.hidden, narrow), (wide, c.hidden)]
    return with_bias(matrices, c)


def mlp(c: Config, width: int) -> list[tuple[int, ...]]:
    up = [(c.hidden, width)] * (2 if c.gated else 1)
    return with_bias([*up, (width, c.hidden)], c)


def with_bias(matrices: list[tuple[int, int]], c: Config) -> list[tuple[int, ...]]:
    return matrices + [(columns,) for _, columns in matrices] * c.bias


def norm(c: Config) -> list[tuple[int, ...]]:
    return [(c.hidden,)] * (2 if c.norm == "layer" else 1)


def tensors(c: Config, active: bool = False) -> list[tuple[int, ...]]:
    used = c.active_experts if active else c.experts
    experts = mlp(c, c.expert_ffn) * (used + c.shared_experts)
    router = [(c.hidden, c.experts), *([(c.experts,)] * c.router_bias)]
    found = (attention(c) + norm(c) * 2) * c.layers
    found += mlp(c, c.ffn) * (c.layers - c.moe_layers) + (experts + router) * c.moe_layers
    found += [(c.vocab, c.hidden)] * (1 if c.tied else 2) + [(c.positions, c.hidden)]
    return found + norm(c) * (2 if c.embedding_norm else 1)


def count(c: Config, active: bool = False) -> int:
    return sum(prod(shape) for shape in tensors(c, active))
