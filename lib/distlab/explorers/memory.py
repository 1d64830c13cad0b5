"""The memory explorer: what fills each GPU, for a model, a number of GPUs and ways to share it.

What is simplified: parameters are spread evenly over the layers, embeddings included, and experts
are cut by TP like everything else; the pipeline runs 1F1B with at least as many microbatches as
stages; the loss's logits, CUDA's own memory, buffers and gaps are left out; so are the weights that
ZeRO-3 gathers for the layer at work. Optimiser states are Adam's in mixed precision.

Activations are counted tensor by tensor as lab 1 lists them, with what each model differs in: fewer
K/V heads, a gated MLP (four tensors of its width and not two), experts, no dropout in models with
RMS norms. Source: Korthikanti et al. (2022), section 4, for GPT; the rest follows the same way, and
a test lets PyTorch count the saved tensors of a gated layer.

What a reader moves is web/memory.mjs, which counts again in the page; it is held against the
numbers here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from distlab.canvas import COLOURS
from distlab.explorers.frame import Control, Impossible, about, in_words, offers, tick
from distlab.explorers.svg import LOOK
from distlab.explorers.web import Live
from distlab.hardware import GPUS
from distlab.memory import MIXED_ADAM, in_unit, size_text
from distlab.model import MODELS, PUBLISHED, Config

# Lab 1 asks for `activation_bytes` and `model_state_bytes` for any shape. Here a shape is only a
# name of MODELS, and what comes out is a whole GPU; the exercise forbids `memory_numbers` as well.

GPU_OF = {gpu.name: gpu for gpu in GPUS}
PARTS = ("weights", "gradients", "optimiser states", "activations")  # from the bottom up


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """What a reader chooses. DP follows: the GPUs that are left, gpus / (tp x pp)."""

    model: str = "GPT 7.5B"
    gpu: str = "H100 SXM 80 GB"
    gpus: int = 64
    zero: int = 0
    tp: int = 1
    pp: int = 1
    recompute: str = "none"
    sequence_parallel: bool = False
    flash: bool = False
    seq_len: int = 2048
    microbatch: int = 1


@dataclass(frozen=True)
class StageMemory:
    """What one GPU of a pipeline stage holds: bytes by part."""

    layers: int
    in_flight: int  # microbatches whose activations it keeps at its peak
    sizes: Mapping[str, float]

    @property
    def total_bytes(self) -> float:
        """All parts together."""
        return sum(self.sizes.values())


@dataclass(frozen=True)
class MemoryNumbers:
    """The memory of one GPU of every stage; all GPUs of a stage hold equally much."""

    dp: int
    capacity_bytes: float
    stages: tuple[StageMemory, ...]

    @property
    def fullest(self) -> int:
        """The stage whose GPUs need most, the first of them if several do."""
        totals = [stage.total_bytes for stage in self.stages]
        return totals.index(max(totals))

    @property
    def unit(self) -> str:
        """The unit in which all of it is told: GB, or TB where that would take too many digits."""
        return "GB" if self.stages[self.fullest].total_bytes < 20e12 else "TB"

    @property
    def free_bytes(self) -> float:
        """What the fullest GPU leaves free; below 0, what it lacks."""
        return self.capacity_bytes - self.stages[self.fullest].total_bytes


def memory_numbers(settings: MemorySettings) -> MemoryNumbers:
    """Returns what every stage's GPUs hold.

    Raises: Impossible, with one sentence, for settings that can't be.
    """
    cfg = _possible(settings)
    dp = settings.gpus // (settings.tp * settings.pp)
    kept_bytes, again_bytes = _layer_bytes(cfg, settings)
    stages = []
    for stage in range(settings.pp):
        # Where layers don't divide, the last stages have one more: they keep fewest activations.
        few = settings.pp - cfg.layers % settings.pp
        layers = cfg.layers // settings.pp + (stage >= few)
        in_flight = settings.pp - stage
        params = PUBLISHED[settings.model].total * layers / cfg.layers / settings.tp
        bytes_each = MIXED_ADAM.weight, MIXED_ADAM.gradient, MIXED_ADAM.optimiser
        sharded = settings.zero >= 3, settings.zero >= 2, settings.zero >= 1
        state = [
            params * k / (dp if cut else 1) for k, cut in zip(bytes_each, sharded, strict=True)
        ]
        activations = in_flight * layers * kept_bytes + again_bytes
        sizes = dict(zip(PARTS, [*state, activations], strict=True))
        stages.append(StageMemory(layers, in_flight, sizes))
    return MemoryNumbers(dp, float(GPU_OF[settings.gpu].memory_bytes), tuple(stages))


def _possible(settings: MemorySettings) -> Config:
    """Returns the model's shape, where the settings can be."""
    if settings.model not in MODELS:
        raise Impossible(f"{settings.model!r} is no model here; there are {', '.join(MODELS)}.")
    if settings.gpu not in GPU_OF:
        raise Impossible(f"{settings.gpu!r} is no GPU here; there are {', '.join(GPU_OF)}.")
    for name in ("gpus", "tp", "pp", "seq_len", "microbatch"):
        if getattr(settings, name) < 1:
            raise Impossible(f"{name} is at least 1, not {getattr(settings, name)}.")
    if settings.zero not in (0, 1, 2, 3):
        raise Impossible(f"ZeRO has the stages 0 to 3, no {settings.zero}.")
    if settings.recompute not in ("none", "selective", "full"):
        raise Impossible(f"recompute is none, selective or full, not {settings.recompute}.")
    cfg, tp, pp = MODELS[settings.model], settings.tp, settings.pp
    if cfg.layers < pp:
        raise Impossible(
            f"{cfg.name} has {cfg.layers} layers: not enough for {pp} stages. Choose a smaller PP."
        )
    for heads, what in ((cfg.heads, "heads"), (cfg.kv_heads, "K/V heads")):
        if heads % tp:
            raise Impossible(
                f"{cfg.name} has {heads} {what}, which TP {tp} does not divide. Choose another TP."
            )
    if settings.gpus % (tp * pp):
        raise Impossible(
            f"One replica takes TP {tp} × PP {pp} = {tp * pp} GPUs, and {settings.gpus:,} is no "
            f"multiple of {tp * pp}. Choose other numbers."
        )
    if settings.sequence_parallel and settings.seq_len % tp:
        raise Impossible(
            f"Sequence parallelism cuts {settings.seq_len:,} tokens into {tp} equal parts, which "
            "does not come out even. Choose another length."
        )
    return cfg


def _layer_bytes(cfg: Config, settings: MemorySettings) -> tuple[float, float]:
    """Returns what an average layer keeps of a microbatch, and what comes on top for one layer.

    The second is what a layer that is run again holds besides, for as long as its backward takes.
    """
    dropout = cfg.norm == "layer"  # GPT's kind of model; those with RMS norms train without
    h, query, value = cfg.hidden, cfg.heads * cfg.head_dim, cfg.heads * cfg.head_dim
    keys = values = cfg.kv_heads * cfg.head_dim
    latents = 0
    if cfg.latent is not None:
        query = keys = cfg.heads * (cfg.latent.nope_dim + cfg.latent.rope_dim)
        value = values = cfg.heads * cfg.latent.value_dim
        latents = 2 * 2 * (cfg.latent.query_rank + cfg.latent.kv_rank)  # before and after a norm
    experts = cfg.moe_layers / cfg.layers  # the share of layers that have them
    used = cfg.active_experts
    hidden = (1 - experts) * cfg.ffn + experts * (used + cfg.shared_experts) * cfg.expert_ffn

    # Bytes of one token. Whole on every GPU: the inputs of norms, of QKV and of the MLP, the masks
    # of dropout, and each routed expert's input and output. The rest is cut by TP.
    whole = 2 * 2 * h + 2 * h + 2 * h + (2 * h if dropout else 0) + experts * used * 2 * 2 * h
    cut = 2 * (query + keys + values + value) + (8 if cfg.gated else 4) * hidden
    scores = cfg.heads * (4 if settings.flash else (5 if dropout else 2) * settings.seq_len)

    tokens = settings.seq_len * settings.microbatch
    whole_cut = settings.tp if settings.sequence_parallel else 1
    every = tokens * ((whole + latents) / whole_cut + (cut + scores) / settings.tp)
    kept = {
        "none": every,
        "selective": every - tokens * scores / settings.tp,
        "full": tokens * 2 * h / whole_cut,
    }[settings.recompute]
    return kept, every - kept


# -- words ----------------------------------------------------------------------------------------


def memory_sentence(settings: MemorySettings) -> str:
    """Returns in one sentence how the GPUs are used and whether the fullest has room.

    Raises: Impossible, with one sentence, for settings that can't be.
    """
    numbers = memory_numbers(settings)
    stage, unit = numbers.stages[numbers.fullest], numbers.unit
    who = "Every GPU" if settings.pp == 1 else f"A GPU of stage {numbers.fullest}, the fullest,"
    need, limit = _size(stage.total_bytes, unit), _size(numbers.capacity_bytes, unit)
    rest = f"{_size(abs(numbers.free_bytes), unit)} " + (
        "stay free" if numbers.free_bytes >= 0 else "are missing"
    )
    return (
        f"{settings.model} on {_gpus(settings)}, TP {settings.tp} × PP {settings.pp} × DP "
        f"{numbers.dp:,}. {who} needs {need} of {limit}: {rest}."
    )


def _size(size_bytes: float, unit: str) -> str:
    """Returns a size with three digits, no more than three of them behind the point."""
    number = in_unit(size_bytes, unit)
    if number >= 0.1 or number == 0:
        return size_text(size_bytes, unit)
    return f"{number:.3f} {unit}" if number >= 0.0005 else f"≈ 0 {unit}"


def _gpus(settings: MemorySettings) -> str:
    return "1 GPU" if settings.gpus == 1 else f"{settings.gpus:,} GPUs"


# -- the explorer ---------------------------------------------------------------------------------

_GPU_COUNTS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096, 16384)
MEMORY_CONTROLS = (
    Control("model", "model", offers(tuple(MODELS), str), "menu"),
    Control("gpu", "GPU type", offers(tuple(GPU_OF), str), "menu"),
    Control("gpus", "GPUs", offers(_GPU_COUNTS)),
    Control("zero", "ZeRO stage", offers((0, 1, 2, 3))),
    Control("tp", "TP", offers((1, 2, 4, 8, 16))),
    Control("pp", "PP", offers((1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128))),
    Control("seq_len", "sequence", offers(tuple(2**k for k in range(9, 18)))),
    Control("microbatch", "microbatch", offers((1, 2, 4, 8, 16, 32))),
    Control("recompute", "recompute", offers(("none", "selective", "full"), str), "menu"),
    tick("sequence_parallel", "sequence parallel"),
    tick("flash", "flash attention"),
)


def memory_data(start: MemorySettings = MemorySettings()) -> dict:
    """Returns what memory.mjs needs, as JSON can say it: shapes, GPUs, colours, controls."""
    models = {
        name: asdict(cfg) | {"moe_layers": cfg.moe_layers, "total": PUBLISHED[name].total}
        for name, cfg in MODELS.items()
    }
    return about("memory explorer", start, MEMORY_CONTROLS) | {
        "models": models,
        "gpus": {name: float(gpu.memory_bytes) for name, gpu in GPU_OF.items()},
        "bytes_each": [MIXED_ADAM.weight, MIXED_ADAM.gradient, MIXED_ADAM.optimiser],
        "parts": [{"name": part, "colour": COLOURS[part]} for part in PARTS],
        "look": LOOK,
    }


def memory_explorer(**start: object) -> Live:
    """Returns the explorer, which runs where it is shown; `start` are settings to begin with.

    Example: `memory_explorer(model="GPT-3 175B", gpus=1024, tp=8, pp=8, zero=1)`.
    """
    settings = MemorySettings(**start)
    return Live("memory", memory_data(settings), in_words(settings, memory_sentence))
