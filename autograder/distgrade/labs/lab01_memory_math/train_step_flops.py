"""FLOP of one training step: `train_step_flops(cfg, tokens, *, seq_len, recompute) -> int`.

A product of m x k by k x n is 2mkn FLOP. Counted are all matrix products, the head's and those of
the scores too (every pair of tokens in a sequence, masked or not); norms, biases and softmax are
not. Backward is two products for each of forward. "full" recompute runs the layers forward once
more, "selective" only the two products of the scores. Source: Narayanan et al. 2021
(arXiv:2104.04473), appendix; Korthikanti et al. 2022 (arXiv:2205.05198), appendix A.
Oracle: each matrix product of a step is listed as (m, k, n), backward ones by their own shapes.
"""

from distgrade.exercise import Case, Exact, also_right, slip

NAMES = ("train_step_flops",)
FORBID = ()
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"dense": 3, "recompute": 2, "experts": 1}
CASES = (
    Case(
        "a small GPT",
        "dense",
        shape={"layers": 3, "hidden": 24, "heads": 4, "ffn": 96, "vocab": 101, "positions": 32},
        seq_len=16,
        recompute="none",
    ),
    Case(
        "tied, gated, few K/V heads, wide heads",
        "dense",
        shape={
            "layers": 2,
            "hidden": 40,
            "heads": 6,
            "kv_heads": 2,
            "head_dim": 10,
            "ffn": 50,
            "gated": True,
            "tied": True,
            "vocab": 77,
        },
        seq_len=9,
        recompute="none",
    ),
    Case(
        "full recompute",
        "recompute",
        shape={"layers": 4, "hidden": 16, "heads": 2, "ffn": 40, "vocab": 300},
        seq_len=20,
        recompute="full",
    ),
    Case(
        "selective recompute",
        "recompute",
        shape={"layers": 3, "hidden": 16, "heads": 4, "ffn": 64, "gated": True, "vocab": 50},
        seq_len=30,
        recompute="selective",
    ),
    Case(
        "experts",
        "experts",
        shape={
            "layers": 5,
            "hidden": 20,
            "heads": 2,
            "ffn": 64,
            "gated": True,
            "vocab": 40,
            "experts": 6,
            "active_experts": 2,
            "shared_experts": 1,
            "expert_ffn": 18,
            "dense_layers": 2,
        },
        seq_len=8,
        recompute="none",
    ),
    Case(
        "experts, full recompute",
        "experts",
        shape={
            "layers": 2,
            "hidden": 12,
            "heads": 3,
            "ffn": 30,
            "vocab": 25,
            "experts": 4,
            "active_experts": 1,
            "expert_ffn": 30,
        },
        seq_len=5,
        recompute="full",
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: more layers, words, sequences.
    extra = integers((3,), "flops", case.name, seed, low=1, high=9).tolist() if seed else [0] * 3
    layers, words, sequences = map(int, extra)
    shape = dict(case.shape)
    shape["layers"], shape["vocab"] = shape["layers"] + layers, shape["vocab"] + words
    tokens = case.seq_len * (3 + sequences)
    more = {"seq_len": case.seq_len, "recompute": case.recompute}
    return {"shape": shape, "tokens": tokens, "more": more}


def observe(student, given):
    from distlab.model import Config

    flop = student.train_step_flops(Config(**given["shape"]), given["tokens"], **given["more"])
    if hasattr(flop, "item"):  # a number of numpy or torch
        flop = flop.item()
    return {"FLOP": int(flop) if type(flop) is float and flop.is_integer() else flop}


def oracle(case, given):
    from distlab.model import Config

    c, s = Config(**given["shape"]), given["more"]["seq_len"]
    recompute = given["more"]["recompute"]
    wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
    total = 0

    def flop(products):
        return sum(2 * m * k * n for m, k, n in products)

    def backward(products):  # Y = XW: the gradient of X is GWᵀ, of W it is XᵀG
        return [(m, n, k) for m, k, n in products] + [(k, m, n) for m, k, n in products]

    for _sequence in range(given["tokens"] // s):
        for layer in range(c.layers):
            outside = [(s, c.hidden, wide), (s, c.hidden, narrow), (s, c.hidden, narrow)]
            outside.append((s, wide, c.hidden))
            scores = [(s, c.head_dim, s), (s, s, c.head_dim)] * c.heads
            if layer < c.dense_layers or not c.experts:
                widths = [c.ffn]
            else:
                widths = [c.expert_ffn] * (c.active_experts + c.shared_experts)
                outside.append((s, c.hidden, c.experts))
            for width in widths:
                outside += [(s, c.hidden, width)] * (1 + c.gated) + [(s, width, c.hidden)]
            again = {"none": [], "selective": scores, "full": outside + scores}[recompute]
            total += flop(outside + scores) + flop(backward(outside + scores)) + flop(again)
        head = [(s, c.hidden, c.vocab)]
        total += flop(head) + flop(backward(head))
    return {"FLOP": total}


@also_right("each product of a layer, in a loop")
def product_by_product():
    def train_step_flops(cfg, tokens, *, seq_len, recompute):
        h, d = cfg.hidden, cfg.head_dim
        total = 3 * 2 * tokens * h * cfg.vocab
        for layer in range(cfg.layers):
            products = [2 * tokens * h * heads * d for heads in [cfg.heads, cfg.kv_heads]] * 2
            if layer < cfg.moe_layers:
                widths = [cfg.expert_ffn] * (cfg.active_experts + cfg.shared_experts)
                products.append(2 * tokens * h * cfg.experts)
            else:
                widths = [cfg.ffn]
            for width in widths:
                products += [2 * tokens * h * width] * (3 if cfg.gated else 2)
            scores = 2 * 2 * tokens * seq_len * cfg.heads * d
            total += 3 * (sum(products) + scores)
            if recompute != "none":
                total += scores
            if recompute == "full":
                total += sum(products)
        return total

    return train_step_flops


backward_like_forward = slip(
    product_by_product,
    "Backward costs twice as much as forward: a gradient for the input, and one for the weight.",
    ("total = 3 *", "total = 2 *"),
    ("3 * (sum", "2 * (sum"),
)
backward_left_out = slip(
    product_by_product,
    "Only forward is there: backward makes two more products for each of its products.",
    ("total = 3 *", "total = 1 *"),
    ("3 * (sum", "1 * (sum"),
)
multiplications_alone = slip(
    product_by_product,
    "A multiplication and an addition are 2 FLOP: a product of m×k by k×n is 2mkn.",
    ("return total", "return total // 2"),
)
recompute_like_backward = slip(
    product_by_product,
    "Recompute runs forward once more, and costs what forward does, not what backward does.",
    ("total += scores", "total += 2 * scores"),
    ("total += sum(products)", "total += 2 * sum(products)"),
)
recompute_for_free = slip(
    product_by_product,
    "Recompute runs products again: a hardware's FLOP are counted here.",
    ("for layer in", 'recompute = "none"\n    for layer in'),
)
logits_again = slip(
    product_by_product,
    "The layers are run again, the head is not: its input is there.",
    ("total = 3 *", 'total = (4 if recompute == "full" else 3) *'),
)
full_without_scores = slip(
    product_by_product,
    "Full recompute runs the whole layer again, its scores as well.",
    ('recompute != "none"', 'recompute == "selective"'),
)
selective_like_full = slip(
    product_by_product,
    "Selective recompute runs only the scores' two products again.",
    ('recompute == "full"', 'recompute != "none"'),
)
no_logits = slip(
    product_by_product,
    "The head's product is missing: hidden times vocab for each token.",
    ("3 * 2 * tokens * h * cfg.vocab", "0"),
)
tied_head_for_free = slip(
    product_by_product,
    "A tied head holds no parameters of its own, but its product is computed all the same.",
    ("h * cfg.vocab", "h * (0 if cfg.tied else cfg.vocab)"),
)
no_scores = slip(
    product_by_product,
    "The scores are missing: each token meets seq_len others, twice: with K, and with V.",
    ("2 * 2 * tokens * seq_len * cfg.heads * d", "0"),
)
scores_once = slip(
    product_by_product,
    "Scores take two products: Q with K, and the weights with V.",
    ("2 * 2 * tokens * seq_len", "2 * tokens * seq_len"),
)
all_tokens_meet = slip(
    product_by_product,
    "A token meets the tokens of its own sequence, not of the whole step.",
    ("tokens * seq_len", "tokens * tokens"),
)
two_matrices = slip(
    product_by_product,
    "A gated MLP has three matrices, and so three products.",
    ("(3 if cfg.gated else 2)", "2"),
)
wide_keys_and_values = slip(
    product_by_product,
    "K and V are kv_heads heads wide, which may be fewer than Q's.",
    ("[cfg.heads, cfg.kv_heads]", "[cfg.heads, cfg.heads]"),
)
every_expert = slip(
    product_by_product,
    "A token goes through its active_experts and the shared ones, not through all.",
    ("cfg.active_experts", "cfg.experts"),
)
no_router = slip(
    product_by_product,
    "The router is a product too: hidden times experts for each token.",
    ("products.append(2 * tokens * h * cfg.experts)", "pass"),
)
embedding_multiplied = slip(
    product_by_product,
    "Looking up a row of the embedding is no product: it costs no FLOP.",
    ("total = 3 * 2", "total = 3 * 2 * 2"),
)


@also_right("as a float, from the number of parameters that a token meets")
def in_floats():
    def train_step_flops(cfg, tokens, *, seq_len, recompute):
        per_head = cfg.hidden * cfg.head_dim
        dense = 2.0 * per_head * (cfg.heads + cfg.kv_heads) * cfg.layers
        width = (cfg.layers - cfg.moe_layers) * cfg.ffn
        width += cfg.moe_layers * cfg.expert_ffn * (cfg.active_experts + cfg.shared_experts)
        dense += cfg.hidden * width * (3 if cfg.gated else 2)
        dense += cfg.hidden * cfg.experts * cfg.moe_layers
        scores = 4 * seq_len * cfg.heads * cfg.head_dim * cfg.layers
        layers = 2 * dense + scores
        passes = 4 if recompute == "full" else 3
        flop = passes * layers + 6 * cfg.hidden * cfg.vocab
        if recompute == "selective":
            flop += scores
        return tokens * flop

    return train_step_flops


EQUIVALENT = {}
