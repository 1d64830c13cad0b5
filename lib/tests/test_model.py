"""Shapes: a count by listing tensors meets every published count, as closely as it was rounded."""

from dataclasses import replace

import pytest

from counting import count, mlp
from distlab import model
from distlab.model import MODELS, PUBLISHED, Config


@pytest.mark.parametrize("name", MODELS)
def test_the_shape_has_the_published_number_of_parameters(name):
    published = PUBLISHED[name]
    if published.rounding == 1:
        assert count(MODELS[name]) == published.total
    else:
        assert abs(count(MODELS[name]) - published.total) <= published.rounding / 2


@pytest.mark.parametrize("name", [name for name, p in PUBLISHED.items() if p.active])
def test_the_shape_has_the_published_number_of_active_parameters(name):
    shape, published = MODELS[name], PUBLISHED[name]
    active = count(shape, active=True)
    if "without the embedding table" in published.note:
        active -= shape.vocab * shape.hidden
    assert abs(active - published.active) <= published.active_rounding / 2


def test_every_model_has_a_published_count_with_source_and_date():
    assert set(MODELS) == set(PUBLISHED)
    for published in PUBLISHED.values():
        assert len(published.source) > 10
        assert 2020 <= int(published.date) <= 2026


@pytest.mark.parametrize(
    ("shape", "in_billions"),
    [
        (model.LLAMA2_7B, 6.74),
        (model.LLAMA2_13B, 13.02),
        (model.LLAMA2_70B, 68.98),
        (model.LLAMA3_8B, 8.03),
        (model.LLAMA3_70B, 70.55),
        (model.LLAMA3_405B, 405.85),
        (model.MIXTRAL_8X7B, 46.7),
        (model.BLOOM_176B, 176.2),
        (model.GPT3_175B, 174.6),
        (model.GPT_7_5B, 7.5),
        (model.DEEPSEEK_V3, 671),
        (model.LLAMA4_MAVERICK, 401),  # "400B" is 400.7
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_counts_in_billions_as_tables_print_them(shape, in_billions):
    digits = len(str(in_billions).partition(".")[2])
    assert round(count(shape) / 1e9, digits) == in_billions


def test_figures_of_the_lecture_about_shapes():
    gpt3 = model.GPT3_175B
    h = gpt3.hidden
    # 1.16: every layer of GPT-3 has 12 h², 1.81e9 parameters.
    assert round(12 * h**2 / 1e9, 2) == 1.81
    layer = (count(gpt3) - count(replace(gpt3, layers=95))) / 1e9
    assert round(layer, 2) == 1.81
    # 1.17: a QKV matrix at h = 8192 has 201e6 parameters: 0.40 GB in BF16, 3.2 GB at 16 bytes.
    qkv = 3 * 8192**2
    assert (round(qkv / 1e6), round(2 * qkv / 1e9, 2), round(16 * qkv / 1e9, 1)) == (201, 0.40, 3.2)
    # 1.18: cuts that come out even.
    assert (h // 8, h // 4, gpt3.layers // 16) == (1536, 3072, 6)
    # Section 5: 126 layers divide by 1 and 2 alone among the powers of two.
    assert [p for p in (1, 2, 4, 8, 16) if model.LLAMA3_405B.layers % p == 0] == [1, 2]


def test_grouped_queries_and_gates_change_the_count_as_they_should():
    base = Config(layers=2, hidden=64, heads=8, vocab=1000)
    fewer = replace(base, kv_heads=2)
    assert count(base) - count(fewer) == 2 * 2 * 64 * (8 - 2) * 8
    assert count(replace(base, gated=True)) - count(base) == 2 * 64 * 256
    assert count(base) - count(replace(base, tied=True)) == 1000 * 64
    assert count(replace(base, positions=32)) - count(base) == 32 * 64
    assert sum(columns * rows for columns, rows in mlp(base, 256)) == 2 * 64 * 256


def test_what_is_left_out_gets_its_usual_value():
    c = Config(layers=2, hidden=64, heads=8, vocab=1000)
    assert (c.kv_heads, c.head_dim, c.ffn, c.moe_layers) == (8, 8, 256, 0)
    assert Config(layers=1, hidden=6, heads=4, head_dim=5, vocab=9).head_dim == 5
    mixed = replace(c, experts=4, active_experts=1, dense_layers=1)
    assert (mixed.moe_layers, mixed.expert_ffn) == (1, 256)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers must be at least 1"),
        ({"heads": 7, "head_dim": 0}, "7 heads do not divide hidden size 64; give head_dim"),
        ({"kv_heads": 3}, "3 K/V heads can't serve 8 heads evenly"),
        ({"experts": 4}, "a token uses 1 to 4 experts"),
        ({"experts": 4, "active_experts": 5}, "a token uses 1 to 4 experts"),
        ({"experts": 4, "active_experts": 1, "dense_layers": 2}, "not all of them dense"),
        ({"shared_experts": 1}, "without experts every layer is dense"),
    ],
)
def test_a_shape_that_can_not_be_is_refused(change, message):
    good = {"layers": 2, "hidden": 64, "heads": 8, "vocab": 1000}
    with pytest.raises(ValueError, match=message):
        Config(**good | change)
