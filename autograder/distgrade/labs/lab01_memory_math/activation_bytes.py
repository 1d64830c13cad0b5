"""Bytes that one transformer layer keeps for backward, on one of t GPUs: `activation_bytes(...)`.

s tokens in a sequence, b sequences, hidden size h, a heads; BF16, dropout masks of one byte, GeLU.
Flash attention keeps one FP32 number for each of the a·s·b rows of scores. Units: bytes. ValueError
where t does not divide a, or does not divide s although tokens are cut. Source: Korthikanti et al.
2022 (arXiv:2205.05198), sections 4 and 5, Table 2; flash: Dao et al. 2022 (arXiv:2205.14135), 3.1.
Oracle: the tensors are listed one by one, with their shapes, bytes and cuts, and multiplied out.
"""

from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("activation_bytes",)
FORBID = ("distlab.explorers.memory.memory_numbers",)
TOLERANCE = Close(1e-12, "5as/h is rounded, in any order of factors")
CREDIT = {"one GPU": 3, "t GPUs": 3}
CASES = (
    Case("a layer of GPT-3", "one GPU", s=2_048, b=1, h=12_288, a=96, more={}),
    Case("a small layer", "one GPU", s=12, b=5, h=24, a=3, more={}),
    Case("selective", "one GPU", s=48, b=3, h=40, a=4, more={"recompute": "selective"}),
    Case("full", "one GPU", s=24, b=7, h=16, a=4, more={"recompute": "full"}),
    Case("flash", "one GPU", s=36, b=2, h=20, a=5, more={"flash": True}),
    Case("flash, full", "one GPU", s=8, b=3, h=6, a=2, more={"flash": True, "recompute": "full"}),
    Case("t = 4", "t GPUs", s=10, b=3, h=32, a=8, more={"t": 4}),
    Case("t = 3, by tokens", "t GPUs", s=12, b=2, h=36, a=6, more={"t": 3, "by_tokens": True}),
    Case("t = 2, selective", "t GPUs", s=9, b=2, h=8, a=4, more={"t": 2, "recompute": "selective"}),
    Case(
        "t = 4, by tokens, selective",
        "t GPUs",
        s=16,
        b=1,
        h=24,
        a=12,
        more={"t": 4, "by_tokens": True, "recompute": "selective"},
    ),
    Case("t = 2, full", "t GPUs", s=6, b=3, h=10, a=2, more={"t": 2, "recompute": "full"}),
    Case(
        "t = 2, by tokens, full",
        "t GPUs",
        s=6,
        b=3,
        h=10,
        a=2,
        more={"t": 2, "by_tokens": True, "recompute": "full"},
    ),
    Case("t = 5, flash", "t GPUs", s=7, b=2, h=30, a=10, more={"t": 5, "flash": True}),
    Case(
        "heads that t does not divide",
        "t GPUs",
        s=12,
        b=1,
        h=24,
        a=4,
        more={"t": 3},
        expects=ValueError,
    ),
    Case(
        "tokens that t does not divide",
        "t GPUs",
        s=10,
        b=1,
        h=24,
        a=4,
        more={"t": 4, "by_tokens": True},
        expects=ValueError,
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: more sequences, longer ones.
    extra = integers((2,), "activations", case.name, seed, low=1, high=9).tolist()
    more_b, longer = map(int, extra) if seed and case.name[:5] != "heads" else (0, 1)
    longer = 1 if "does not" in case.name else longer
    sizes = {"s": case.s * longer, "b": case.b + more_b, "h": case.h, "a": case.a}
    more = {key if key != "by_tokens" else "sequence_parallel": v for key, v in case.more.items()}
    return {"sizes": sizes, "more": more}


def observe(student, given):
    size_bytes = student.activation_bytes(*given["sizes"].values(), **given["more"])
    if hasattr(size_bytes, "item"):  # a number of numpy or torch
        size_bytes = size_bytes.item()
    return {"bytes": size_bytes}


def oracle(case, given):
    from fractions import Fraction

    s, b, h, a = given["sizes"].values()
    more = given["more"]
    t, by_tokens = more.get("t", 1), more.get("sequence_parallel", False)
    # A tensor: its part, whether heads or columns cut it, its numbers, the bytes of each.
    tensors = [
        ("input", False, s * b * h, 2),  # of the first norm
        ("outside", False, s * b * h, 2),  # of QKV
        ("outside", True, s * b * h * 3, 2),  # Q, K, V
        ("outside", True, s * b * h, 2),  # of the matrix after the heads
        ("outside", False, s * b * h, 1),  # mask
        ("outside", False, s * b * h, 2),  # of the second norm
        ("outside", False, s * b * h, 2),  # of the first matrix of the MLP
        ("outside", True, s * b * 4 * h, 2),  # of GeLU
        ("outside", True, s * b * 4 * h, 2),  # of the second matrix
        ("outside", False, s * b * h, 1),  # mask
    ]
    scores = a * s * s * b
    core = [(scores, 2), (scores, 1), (scores, 2)]  # softmax, mask, what meets V
    core = [(a * s * b, 4)] if more.get("flash") else core
    tensors += [("core", True, numbers, each) for numbers, each in core]
    kept = {"none": ("input", "outside", "core"), "selective": ("input", "outside")}
    parts = kept.get(more.get("recompute", "none"), ("input",))
    total = Fraction(0)
    for part, inside, numbers, each in tensors:
        if part in parts:
            total += Fraction(numbers * each, t if inside or by_tokens else 1)
    return {"bytes": float(total)}


@wrong("The formula counts bytes already: it is not multiplied by 2 once more.")
def element_size_again():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 4 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 2 * (10 * sbh / token_cut + (24 * sbh + core) / t)

    return activation_bytes


@wrong("Without sequence parallelism 10sbh stay whole on each GPU: norms, masks, inputs of all.")
def everything_cut():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong(
    "With sequence_parallel nothing is whole: the 10sbh, or the input that is left, are cut too."
)
def nothing_cut_by_tokens():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("One of t GPUs holds 1/t of what lies inside attention and the MLP.")
def nothing_cut():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core)

    return activation_bytes


@wrong("Selective recompute drops the scores, 5as²b, and keeps the 34sbh.")
def selective_drops_the_mlp():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        return 10 * sbh / token_cut + ((8 if recompute == "selective" else 24) * sbh + core) / t

    return activation_bytes


@wrong("Selective recompute keeps nothing of the scores, not even their dropout mask.")
def selective_keeps_the_mask():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = a * s * s * b
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Selective recompute keeps none of the 5as²b bytes that scores take.")
def selective_changes_nothing():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Full recompute keeps the layer's input, 2sbh, and nothing else: no scores.")
def full_keeps_the_scores():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut + (4 * a * s * b if flash else 5 * a * s * s * b) / t
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Full recompute keeps the layer's input, 2sbh: without it nothing could be computed again.")
def full_keeps_nothing():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 0
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("t alone does not cut the layer's input: every GPU holds it whole.")
def full_cut_by_t():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / t
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Flash attention keeps no scores: one FP32 number for each row of them.")
def flash_changes_nothing():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Flash attention keeps one FP32 number for each row of scores: 4asb bytes.")
def flash_keeps_nothing():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 0 if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Scores are s times s for each of a heads.")
def scores_of_one_head():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * s * b if flash else 5 * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Three tensors of scores: softmax and what meets V at 2 bytes, a dropout mask at 1: 5as²b.")
def scores_without_dropout():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 4 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("The scores are there for each of b sequences.")
def no_batch():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t or (sequence_parallel and s % t):
            raise ValueError("t must divide the heads, and the tokens it cuts")
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s if flash else 5 * a * s * s
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@wrong("Where t does not divide the heads, or the tokens it cuts, a ValueError is asked for.")
def any_t_will_do():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        sbh = s * b * h
        token_cut = t if sequence_parallel else 1
        if recompute == "full":
            return 2 * sbh / token_cut
        core = 4 * a * s * b if flash else 5 * a * s * s * b
        if recompute == "selective":
            core = 0
        return 10 * sbh / token_cut + (24 * sbh + core) / t

    return activation_bytes


@also_right("the paper's formulas, with 5as/h")
def as_in_the_paper():
    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t != 0:
            raise ValueError
        if sequence_parallel and s % t != 0:
            raise ValueError
        scores = {"none": 4 * a / h if flash else 5 * a * s / h, "selective": 0.0}
        if recompute == "full":
            factor = 2 / t if sequence_parallel else 2
        elif sequence_parallel:
            factor = (34 + scores[recompute]) / t
        else:
            factor = 10 + 24 / t + scores[recompute] / t
        return s * b * h * factor

    return activation_bytes


@also_right("one tensor after the other, in exact fractions")
def tensor_by_tensor():
    from fractions import Fraction

    def activation_bytes(
        s, b, h, a, *, t=1, sequence_parallel=False, recompute="none", flash=False
    ):
        if a % t:
            raise ValueError
        tokens = Fraction(s, t if sequence_parallel else 1)
        if tokens.denominator > 1:
            raise ValueError
        x = 2 * tokens * b * h
        if recompute == "full":
            return x
        inside = Fraction(2 * s * b * h, t)
        kept = [x, x, x / 2, x, x, x / 2]
        kept += [inside, inside, inside, inside, 4 * inside, 4 * inside]
        if recompute == "none":
            rows = Fraction(a * s * b, t)
            kept += [4 * rows] if flash else [2 * rows * s, rows * s, 2 * rows * s]
        return sum(kept)

    return activation_bytes


EQUIVALENT = {}
