"""Shapes of transformers: one configuration, real models, and how many parameters they publish.

A `Config` says what a model is made of, in the words of the glossary: layers, hidden size, heads.
What follows from it (parameters, bytes, FLOP) is the students' work in lab 1, so nothing here
counts; the published counts stand beside the shapes, each with its source, and the tests count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# Rooms that ask for a parameter count need no FORBID here: `published` only knows the names below.


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: queries, keys and values pass through narrow matrices.

    The query goes hidden -> `query_rank` (normed) -> heads x (`nope_dim` + `rope_dim`); keys and
    values go hidden -> `kv_rank` (normed) -> heads x (`nope_dim` + `value_dim`); one rotary key of
    `rope_dim` is shared by all heads. Source: DeepSeek-V2 (2024), section 2.1.
    """

    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a decoder-only transformer. What is left out gets its usual value, once.

    Each layer has an attention block and an MLP, with a norm in front of each; one more norm stands
    before the output head.

    `kv_heads`: heads of K and V, fewer than `heads` in grouped-query attention (default `heads`).
    `head_dim`: width of a head (default hidden / heads).
    `ffn`: width inside the MLP (default 4 x hidden). `gated`: three matrices (SwiGLU) and not two.
    `norm`: "rms" has a scale; "layer" has a scale and a shift.
    `bias`: every matrix of a layer, but no router and no output head, has a bias.
    `positions`: rows of a learned position table; 0 for rotary or ALiBi.
    `tied`: the output head is the embedding table. `embedding_norm`: a norm after the embedding.
    `experts`: routed experts in a mixture-of-experts layer, 0 for a dense model, of which a token
    uses `active_experts`, chosen by a router of `experts` rows; `shared_experts` serve every token;
    `expert_ffn` is the width of one expert (default `ffn`). `dense_layers` of the `layers` keep a
    dense MLP of width `ffn`. `router_bias`: the router has a bias per expert.
    `latent`: multi-head latent attention; then `kv_heads` and `head_dim` are not used.

    Example: `Config(layers=2, hidden=64, heads=8, vocab=1000).ffn == 256`.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    gated: bool = False
    norm: Literal["rms", "layer"] = "layer"
    bias: bool = False
    positions: int = 0
    tied: bool = False
    embedding_norm: bool = False
    experts: int = 0
    active_experts: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    latent: LatentAttention | None = None
    name: str = "a model"

    def __post_init__(self):
        sizes = ("layers", "hidden", "heads", "vocab")
        for field in sizes:
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} must be at least 1.")
        if not self.head_dim and self.hidden % self.heads:
            raise ValueError(
                f"{self.name}: {self.heads} heads do not divide hidden size {self.hidden}; "
                "give head_dim."
            )
        self._default("kv_heads", self.heads)
        self._default("head_dim", self.hidden // self.heads)
        self._default("ffn", 4 * self.hidden)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: {self.kv_heads} K/V heads can't serve {self.heads} heads evenly."
            )
        if self.experts:
            self._default("expert_ffn", self.ffn)
            if not 1 <= self.active_experts <= self.experts:
                raise ValueError(f"{self.name}: a token uses 1 to {self.experts} experts.")
            if not 0 <= self.dense_layers < self.layers:
                raise ValueError(f"{self.name}: {self.layers} layers, not all of them dense.")
        elif self.active_experts or self.shared_experts or self.expert_ffn or self.dense_layers:
            raise ValueError(f"{self.name}: without experts every layer is dense.")

    def _default(self, field: str, value: int) -> None:
        if not getattr(self, field):
            object.__setattr__(self, field, value)  # a frozen dataclass's own way to fill in

    @property
    def moe_layers(self) -> int:
        """The layers whose MLP is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0


@dataclass(frozen=True)
class Published:
    """A parameter count as its makers or its checkpoint give it.

    `rounding` is the unit it was rounded to, so the true count lies within half of it; 1 is exact.
    `active` counts what one token uses, with both embedding tables unless `note` says otherwise.
    """

    total: int
    rounding: int
    source: str
    date: str
    active: int | None = None
    active_rounding: int = 1
    note: str = ""


_LLAMA = {"gated": True, "norm": "rms"}
_BIASED = {"bias": True, "tied": True, "norm": "layer"}

GPT3_175B = Config(
    name="GPT-3 175B", layers=96, hidden=12288, heads=96, vocab=50257, positions=2048, **_BIASED
)
# Positions 0 and 1 of OPT's table stand for padding: 2,050 rows for 2,048 positions.
OPT_175B = Config(
    name="OPT-175B", layers=96, hidden=12288, heads=96, vocab=50272, positions=2050, **_BIASED
)
BLOOM_176B = Config(
    name="BLOOM 176B",
    layers=70,
    hidden=14336,
    heads=112,
    vocab=250880,
    embedding_norm=True,
    **_BIASED,
)
# ZeRO's Figure 1 gives 7.5B and no shape; this one is the 7.5B row of Narayanan et al. (2021).
GPT_7_5B = Config(
    name="GPT 7.5B", layers=36, hidden=4096, heads=32, vocab=51200, positions=2048, **_BIASED
)
LLAMA2_7B = Config(
    name="Llama 2 7B", layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000, **_LLAMA
)
LLAMA2_13B = Config(
    name="Llama 2 13B", layers=40, hidden=5120, heads=40, ffn=13824, vocab=32000, **_LLAMA
)
LLAMA2_70B = Config(
    name="Llama 2 70B",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    ffn=28672,
    vocab=32000,
    **_LLAMA,
)
LLAMA3_8B = Config(  # Llama 3 and 3.1 have the same shape; only 3.1 has a 405B
    name="Llama 3 8B",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    ffn=14336,
    vocab=128256,
    **_LLAMA,
)
LLAMA3_70B = Config(
    name="Llama 3 70B",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    ffn=28672,
    vocab=128256,
    **_LLAMA,
)
LLAMA3_405B = Config(
    name="Llama 3.1 405B",
    layers=126,
    hidden=16384,
    heads=128,
    kv_heads=8,
    ffn=53248,
    vocab=128256,
    **_LLAMA,
)
MIXTRAL_8X7B = Config(
    name="Mixtral 8x7B",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    ffn=14336,
    vocab=32000,
    experts=8,
    active_experts=2,
    **_LLAMA,
)
LLAMA4_SCOUT = Config(
    name="Llama 4 Scout",
    layers=48,
    hidden=5120,
    heads=40,
    kv_heads=8,
    head_dim=128,
    ffn=16384,
    vocab=202048,
    experts=16,
    active_experts=1,
    shared_experts=1,
    expert_ffn=8192,
    **_LLAMA,
)
LLAMA4_MAVERICK = Config(
    name="Llama 4 Maverick",
    layers=48,
    hidden=5120,
    heads=40,
    kv_heads=8,
    head_dim=128,
    ffn=16384,
    vocab=202048,
    experts=128,
    active_experts=1,
    shared_experts=1,
    expert_ffn=8192,
    dense_layers=24,  # every second layer is dense
    **_LLAMA,
)
DEEPSEEK_V3 = Config(
    name="DeepSeek-V3",
    layers=61,
    hidden=7168,
    heads=128,
    head_dim=128,
    ffn=18432,
    vocab=129280,
    experts=256,
    active_experts=8,
    shared_experts=1,
    expert_ffn=2048,
    dense_layers=3,
    router_bias=True,
    latent=LatentAttention(query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128),
    **_LLAMA,
)

MODELS: Mapping[str, Config] = {
    config.name: config
    for config in (
        GPT_7_5B,
        GPT3_175B,
        OPT_175B,
        BLOOM_176B,
        LLAMA2_7B,
        LLAMA2_13B,
        LLAMA2_70B,
        LLAMA3_8B,
        LLAMA3_70B,
        LLAMA3_405B,
        MIXTRAL_8X7B,
        LLAMA4_SCOUT,
        LLAMA4_MAVERICK,
        DEEPSEEK_V3,
    )
}

# Shapes come from the papers' tables and the checkpoints' config.json. Shape and count check each
# other: a test counts every shape's tensors and meets the figure here as closely as it was rounded.
_CHECKPOINT = "its checkpoint's tensors on huggingface.co"
_TEXT = "text part alone: the checkpoint holds 871,932,416 more for images"
PUBLISHED: Mapping[str, Published] = {
    "GPT 7.5B": Published(7_500_000_000, 100_000_000, "Narayanan et al., Table 1", "2021"),
    "GPT-3 175B": Published(174_600_000_000, 100_000_000, "Brown et al., Table D.1", "2020"),
    "OPT-175B": Published(175_000_000_000, 1_000_000_000, "Zhang et al., Table 1", "2022"),
    "BLOOM 176B": Published(176_247_271_424, 1, _CHECKPOINT, "2022"),
    "Llama 2 7B": Published(6_738_415_616, 1, _CHECKPOINT, "2023"),
    "Llama 2 13B": Published(13_015_864_320, 1, _CHECKPOINT, "2023"),
    "Llama 2 70B": Published(68_976_648_192, 1, _CHECKPOINT, "2023"),
    "Llama 3 8B": Published(8_030_261_248, 1, _CHECKPOINT, "2024"),
    "Llama 3 70B": Published(70_553_706_496, 1, _CHECKPOINT, "2024"),
    "Llama 3.1 405B": Published(405_853_388_800, 1, _CHECKPOINT, "2024"),
    "Mixtral 8x7B": Published(
        46_702_792_704, 1, _CHECKPOINT, "2023", active=12_900_000_000, active_rounding=100_000_000
    ),
    "Llama 4 Scout": Published(
        107_769_861_120, 1, _CHECKPOINT, "2025", 17_000_000_000, 1_000_000_000, _TEXT
    ),
    "Llama 4 Maverick": Published(
        400_711_848_960, 1, _CHECKPOINT, "2025", 17_000_000_000, 1_000_000_000, _TEXT
    ),
    "DeepSeek-V3": Published(
        671_026_419_200,
        1,
        "DeepSeek-V3 checkpoint, without the multi-token prediction module; README_WEIGHTS.md",
        "2024",
        36_600_000_000,
        100_000_000,
        "active parameters counted with the output head and without the embedding table",
    ),
}
