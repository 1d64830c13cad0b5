"""Parameters of a transformer, counted from its shape: `count_params(cfg) -> dict[str, int]`.

The dict holds embeddings, attention, mlp and norms, their sum as total, and active: what one token
uses, which is total without the routed experts that are not chosen. `latent`, `router_bias` and
`embedding_norm` of a Config are not asked for. Source: Shazeer 2019 (arXiv:1911.02150) for shared
K/V heads, Shazeer 2020 (arXiv:2002.05202) for gated MLPs, Fedus et al. 2021 (arXiv:2101.03961) for
experts. Oracle: every tensor that a checkpoint would hold is listed, its entries multiplied out.
"""

from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("count_params",)
FORBID = ()
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"dense": 2, "K/V heads and gates": 2, "experts": 2}
_LLAMA = {"gated": True, "norm": "rms"}
CASES = (
    Case(
        "a small GPT",
        "dense",
        shape=dict(
            layers=3, hidden=24, heads=4, ffn=96, vocab=101, positions=17, bias=True, tied=True
        ),
    ),
    Case(
        "RMS norms, a head of its own, narrow heads",
        "dense",
        shape=dict(layers=2, hidden=40, heads=4, head_dim=6, ffn=50, vocab=77, norm="rms"),
    ),
    Case(
        "a small Llama",
        "K/V heads and gates",
        shape=_LLAMA | dict(layers=5, hidden=48, heads=6, kv_heads=2, ffn=56, vocab=90),
    ),
    Case(
        "with biases",
        "K/V heads and gates",
        shape=dict(layers=2, hidden=30, heads=5, kv_heads=1, head_dim=8, ffn=44, vocab=64)
        | dict(gated=True, bias=True, tied=True),
    ),
    Case(
        "a small Mixtral",
        "experts",
        shape=_LLAMA
        | dict(layers=3, hidden=32, heads=4, ffn=40, vocab=50)
        | dict(experts=8, active_experts=2, expert_ffn=40),
    ),
    Case(
        "a small Maverick",
        "experts",
        shape=dict(layers=7, hidden=20, heads=2, ffn=64, gated=True, bias=True, vocab=40)
        | dict(experts=6, active_experts=1, shared_experts=3, expert_ffn=18, dense_layers=2),
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: more layers, words and numbers inside the MLP.
    extra = integers((3,), "count", case.name, seed, low=1, high=9).tolist() if seed else [0] * 3
    more = dict(zip(("layers", "vocab", "ffn"), map(int, extra), strict=True))
    return {
        "shape": {key: n + more.get(key, 0) for key, n in case.shape.items() if key != "norm"}
        | {"norm": case.shape.get("norm", "layer")}
    }


def observe(student, given):
    from distlab.model import Config

    counted = student.count_params(Config(**given["shape"]))
    asked = ("embeddings", "attention", "mlp", "norms", "total", "active")
    return {part: counted[part] for part in asked}


def oracle(case, given):
    from math import prod

    from distlab.model import Config

    c = Config(**given["shape"])
    wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
    tensors = [("embeddings", (c.vocab, c.hidden)), ("embeddings", (c.positions, c.hidden))]
    tensors += [("embeddings", (c.vocab, c.hidden))] * (not c.tied)
    idle = []

    def matrices(*shapes):
        return [*shapes, *((columns,) for _, columns in shapes if c.bias)]

    def mlp(width):
        return matrices(*[(c.hidden, width)] * (1 + c.gated), (width, c.hidden))

    def norm():
        return [("norms", (c.hidden,)) for _ in (("scale", "shift") if c.norm == "layer" else "s")]

    for layer in range(c.layers):
        inside = matrices((c.hidden, wide), (c.hidden, narrow), (c.hidden, narrow))
        tensors += [("attention", shape) for shape in inside + matrices((wide, c.hidden))]
        tensors += norm() + norm()
        if layer < c.dense_layers or not c.experts:
            tensors += [("mlp", shape) for shape in mlp(c.ffn)]
            continue
        tensors.append(("mlp", (c.hidden, c.experts)))
        for expert in range(c.experts + c.shared_experts):
            tensors += [("mlp", shape) for shape in mlp(c.expert_ffn)]
            if c.active_experts <= expert < c.experts:
                idle += mlp(c.expert_ffn)
    tensors += norm()
    parts = {part: 0 for part in ("embeddings", "attention", "mlp", "norms")}
    for part, shape in tensors:
        parts[part] += prod(shape)
    total = sum(parts.values())
    return parts | {"total": total, "active": total - sum(map(prod, idle))}


@also_right("every layer's tensors are added up one by one")
def tensor_by_tensor():
    from math import prod

    def count_params(cfg):
        h, kv = cfg.hidden, cfg.kv_heads * cfg.head_dim
        counts = dict.fromkeys(["embeddings", "attention", "mlp", "norms", "total", "active"], 0)

        def add(part, *shape, used=True):
            for key in {part, "total", "active"} if used else {part, "total"}:
                counts[key] += prod(shape)

        def matrix(part, rows, columns, **more):
            add(part, rows, columns, **more)
            if cfg.bias:
                add(part, columns, **more)

        def mlp(width, **more):
            for _ in range(2 if cfg.gated else 1):
                matrix("mlp", h, width, **more)
            matrix("mlp", width, h, **more)

        def norm():
            for _ in range(2 if cfg.norm == "layer" else 1):
                add("norms", h)

        for layer in range(cfg.layers):
            norm()
            for columns in [cfg.heads * cfg.head_dim, kv, kv]:
                matrix("attention", h, columns)
            matrix("attention", cfg.heads * cfg.head_dim, h)
            norm()
            if layer < cfg.moe_layers:
                add("mlp", cfg.experts, h)
                for _ in range(cfg.shared_experts):
                    mlp(cfg.expert_ffn)
                for expert in range(cfg.experts):
                    mlp(cfg.expert_ffn, used=expert < cfg.active_experts)
            else:
                mlp(cfg.ffn)
        norm()
        for rows in [cfg.vocab, cfg.positions, 0 if cfg.tied else cfg.vocab]:
            add("embeddings", rows, h)
        return counts

    return count_params


@also_right("one formula for each part")
def in_closed_form():
    def count_params(cfg):
        h, L, bias = cfg.hidden, cfg.layers, cfg.bias
        q, kv = cfg.heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim
        up, moe = 1 + cfg.gated, cfg.moe_layers
        shift = cfg.norm == "layer"

        def width(experts):
            return (L - moe) * cfg.ffn + moe * cfg.expert_ffn * experts

        def mlp(used):
            each = width(used + cfg.shared_experts) * ((up + 1) * h + up * bias)
            downs = (L - moe) + moe * (used + cfg.shared_experts)
            return each + downs * h * bias + moe * h * cfg.experts

        embeddings = h * (cfg.vocab * (2 - cfg.tied) + cfg.positions)
        attention = L * (2 * h * (q + kv) + bias * (q + 2 * kv + h))
        norms = h * (1 + shift) * (2 * L + 1)
        rest = embeddings + attention + norms
        return {
            "active": rest + mlp(cfg.active_experts),
            "total": rest + mlp(cfg.experts),
            "embeddings": embeddings,
            "attention": attention,
            "norms": norms,
            "mlp": mlp(cfg.experts),
        }

    return count_params


@also_right("part by part, then the idle experts taken away")
def part_by_part():
    def count_params(cfg):
        h, bias = cfg.hidden, cfg.bias
        layers, moe = cfg.layers, cfg.moe_layers
        q, kv = cfg.heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim
        scale_and_shift = 2 if cfg.norm == "layer" else 1

        def matrix(rows, columns):
            return rows * columns + columns * bias

        def mlp(width):
            return (1 + cfg.gated) * matrix(h, width) + matrix(width, h)

        def mlps(routed):
            experts = (routed + cfg.shared_experts) * mlp(cfg.expert_ffn)
            return (layers - moe) * mlp(cfg.ffn) + moe * (experts + h * cfg.experts)

        parts = {
            "embeddings": h * ((2 - cfg.tied) * cfg.vocab + cfg.positions),
            "attention": layers * (matrix(h, q + 2 * kv) + matrix(q, h)),
            "mlp": mlps(cfg.experts),
            "norms": (2 * layers + 1) * h * scale_and_shift,
        }
        total = sum(parts.values())
        idle = parts["mlp"] - mlps(cfg.active_experts)
        return parts | {"total": total, "active": total - idle}

    return count_params


wide_keys_and_values = slip(
    part_by_part,
    "K and V have kv_heads heads, which may be fewer than Q's.",
    ("cfg.kv_heads * cfg.head_dim", "cfg.heads * cfg.head_dim"),
)
two_matrices = slip(
    part_by_part,
    "A gated MLP has three matrices: two go up, one comes down.",
    ("(1 + cfg.gated) * ", ""),
)
tied_twice = slip(
    part_by_part,
    "A tied output head is the embedding table itself: it is there once.",
    ("(2 - cfg.tied)", "2"),
)
no_head = slip(
    part_by_part,
    "Where the output head is not tied, it is a second table of vocab times hidden.",
    ("(2 - cfg.tied) * ", ""),
)
no_final_norm = slip(
    part_by_part,
    "One norm is missing: after the last layer there is one more, before the head.",
    ("(2 * layers + 1)", "2 * layers"),
)
only_scales = slip(
    part_by_part,
    "A LayerNorm has a scale and a shift: two numbers for each of hidden.",
    (" * scale_and_shift", ""),
)
always_shifts = slip(
    part_by_part,
    "An RMS norm has a scale and no shift.",
    (" * scale_and_shift", " * 2"),
)
no_biases = slip(
    part_by_part,
    "With cfg.bias every matrix of a layer has one more number for each of its outputs.",
    ("cfg.hidden, cfg.bias", "cfg.hidden, 0"),
)
bias_as_long_as_the_input = slip(
    part_by_part,
    "A bias is as long as its matrix's output, not its input.",
    ("columns * bias", "rows * bias"),
    ("matrix(h, q + 2 * kv)", "matrix(h, q) + 2 * matrix(h, kv)"),
)
heads_as_wide_as_hidden = slip(
    part_by_part,
    "Q and O are heads times head_dim wide, which need not be hidden.",
    ("cfg.heads * cfg.head_dim", "h"),
    ("cfg.kv_heads * cfg.head_dim", "cfg.kv_heads * h // cfg.heads"),
)
no_positions = slip(
    part_by_part,
    "The table of positions is missing from the embeddings.",
    (" + cfg.positions", ""),
)
one_layer = slip(
    part_by_part,
    "There are cfg.layers layers: one was counted.",
    ("cfg.layers, cfg.moe_layers", "1, min(cfg.moe_layers, 1)"),
)
one_expert = slip(
    part_by_part,
    "The MLP holds every expert, chosen or not: only active is about the chosen ones.",
    ('"mlp": mlps(cfg.experts)', '"mlp": mlps(cfg.active_experts)'),
)
all_experts_active = slip(
    part_by_part,
    "A token uses its active_experts and the shared ones, not every expert.",
    ("mlps(cfg.active_experts)", "mlps(cfg.experts)"),
)
no_router = slip(
    part_by_part,
    "A router of experts times hidden stands in front of each layer's experts.",
    ("(experts + h * cfg.experts)", "experts"),
)
no_dense_layers = slip(
    part_by_part,
    "dense_layers of the layers have no experts: their MLP is ffn wide.",
    ("cfg.layers, cfg.moe_layers", "cfg.layers, cfg.layers if cfg.experts else 0"),
)
no_shared_experts = slip(
    part_by_part,
    "Shared experts are there besides the routed ones, and every token uses them.",
    ("(routed + cfg.shared_experts)", "routed"),
)
experts_as_wide_as_ffn = slip(
    part_by_part,
    "An expert is expert_ffn wide: ffn is the width of a dense layer's MLP.",
    ("mlp(cfg.expert_ffn)", "mlp(cfg.ffn)"),
)


@wrong(
    "That is 12Lh² and the tables: a rule of thumb without biases, norms and this model's widths."
)
def twelve_l_h_squared():
    def count_params(cfg):
        square = cfg.hidden**2
        parts = {
            "embeddings": (cfg.vocab * (1 if cfg.tied else 2) + cfg.positions) * cfg.hidden,
            "attention": 4 * cfg.layers * square,
            "mlp": 8 * cfg.layers * square,
            "norms": 0,
        }
        total = sum(parts.values())
        return parts | {"total": total, "active": total}

    return count_params


EQUIVALENT = {}
