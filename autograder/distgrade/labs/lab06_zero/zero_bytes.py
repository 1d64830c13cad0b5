"""Bytes of model state on one rank of ZeRO: `zero_bytes(n_params, n, stage, k=12) -> dict`.

Weights and gradients take 2 bytes for each parameter, optimiser states k. Stage 1 shards the
optimiser states over n ranks, stage 2 the gradients too, stage 3 the weights too; stage 0 is data
parallelism. A shard has ceil(n_params / n) parameters; what is whole has no padding.
Units: bytes. Source: Rajbhandari et al. 2020 (arXiv:1910.02054), section 5 and figure 1. Oracle:
the parameters are dealt out to the ranks in turn, and rank 0's are counted.
"""

from distgrade.exercise import Case, Exact, also_right, slip

NAMES = ("zero_bytes",)
FORBID = ("distlab.explorers.memory.memory_numbers",)
TOLERANCE = Exact(why="whole numbers of bytes")
CREDIT = {"stages": 2, "padding": 1}
CASES = (
    Case("data parallelism", "stages", n=4, count=1_632, stage=0, k=12),
    Case("ZeRO-1", "stages", n=64, count=7_500_000_000, stage=1, k=12),
    Case("ZeRO-2", "stages", n=5, count=1_200, stage=2, k=12),
    Case("ZeRO-3", "stages", n=3, count=999, stage=3, k=12),
    Case("one rank", "stages", n=1, count=77, stage=3, k=12),
    Case("momentum alone, ZeRO-1", "stages", n=2, count=500, stage=1, k=8),
    Case("1,633 parameters, ZeRO-1", "padding", n=4, count=1_633, stage=1, k=12),
    Case("1,633 parameters, ZeRO-2", "padding", n=4, count=1_633, stage=2, k=12),
    Case("fewer parameters than ranks", "padding", n=5, count=3, stage=3, k=12),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other models: n more parameters for each shard's one.
    more = int(integers((1,), "zero_bytes", case.name, seed, low=1, high=99)[0]) if seed else 0
    named = {"k": case.k} if case.k != 12 else {}
    return {"sizes": [case.count + more * case.n, case.n, case.stage], "named": named}


def observe(student, given):
    answer = student.zero_bytes(*given["sizes"], **given["named"])
    if not isinstance(answer, dict):
        raise TypeError("`zero_bytes` should return a dict.")
    plain = {k: v.item() if hasattr(v, "item") else v for k, v in answer.items()}
    whole = {k: int(v) for k, v in plain.items() if isinstance(v, float) and v.is_integer()}
    return plain | whole


def oracle(case, given):
    n_params, n, stage = given["sizes"]
    parameters = range(n_params)
    mine = parameters[::n]  # rank 0's, dealt out in turn: no rank has more
    costs = {"weights": (3, 2), "gradients": (2, 2), "optimiser states": (1, case.k)}
    return {
        part: size * len(mine if stage >= first else parameters)
        for part, (first, size) in costs.items()
    }


@also_right("three lines")
def three_lines():
    def zero_bytes(n_params, n, stage, k=12):
        shard = (n_params + n - 1) // n
        return {
            "weights": 2 * (shard if stage >= 3 else n_params),
            "gradients": 2 * (shard if stage >= 2 else n_params),
            "optimiser states": k * (shard if stage >= 1 else n_params),
        }

    return zero_bytes


everything_at_stage_1 = slip(
    three_lines,
    "Stage 1 shards everything here: it shards the optimiser states only.",
    ("stage >= 3", "stage >= 1"),
    ("stage >= 2", "stage >= 1"),
)
weights_before_gradients = slip(
    three_lines,
    "Stage 2 shards the weights here: gradients come first, and the weights at stage 3.",
    ("stage >= 3", "stage >= 2"),
    ('gradients": 2 * (shard if stage >= 2', 'gradients": 2 * (shard if stage >= 3'),
)
weights_at_stage_2 = slip(
    three_lines,
    "Stage 2 shards gradients and optimiser states: the weights stay whole until stage 3.",
    ("stage >= 3", "stage >= 2"),
)
gradients_at_stage_1 = slip(
    three_lines,
    "Stage 1 shards the optimiser states only: gradients stay whole until stage 2.",
    ("stage >= 2", "stage >= 1"),
)
one_stage_late = slip(
    three_lines,
    "Every stage comes one too late: stage 1 already shards the optimiser states.",
    ("stage >= 3", "stage > 3"),
    ("stage >= 2", "stage > 2"),
    ("stage >= 1", "stage > 1"),
)
optimiser_always_sharded = slip(
    three_lines,
    "Stage 0 is plain data parallelism: nothing is sharded there.",
    ("(shard if stage >= 1 else n_params)", "shard"),
)
one_part_at_a_time = slip(
    three_lines,
    "Each stage shards one part here: a stage also shards what the stages before it do.",
    ("stage >= 3", "stage == 3"),
    ("stage >= 2", "stage == 2"),
    ("stage >= 1", "stage == 1"),
)
padding_lost = slip(
    three_lines,
    "The rest is lost where n doesn't divide the parameters: a shard is rounded up.",
    ("(n_params + n - 1) // n", "n_params // n"),
)
split_parameters = slip(
    three_lines,
    "A shard has a fraction of a parameter where n doesn't divide them: round it up.",
    ("(n_params + n - 1) // n", "n_params / n"),
)
always_one_more = slip(
    three_lines,
    "A shard has one parameter too many where n divides them all.",
    ("(n_params + n - 1) // n", "n_params // n + 1"),
)
bytes_rounded = slip(
    three_lines,
    "The bytes are shared out and rounded: parameters are, so round those, then count bytes.",
    (
        "k * (shard if stage >= 1 else n_params)",
        "-(-k * n_params // n) if stage >= 1 else k * n_params",
    ),
)
whole_parts_padded = slip(
    three_lines,
    "What is whole is counted with padding: only what is cut into n shards needs any.",
    (
        "shard = (n_params + n - 1) // n\n",
        "shard = (n_params + n - 1) // n\n    n_params = n * shard\n",
    ),
)
always_twelve = slip(
    three_lines,
    "The optimiser's bytes are 12 whatever k is.",
    ("k * (shard", "12 * (shard"),
)
k_for_a_total = slip(
    three_lines,
    "k is the optimiser's alone: weights and gradients have 2 bytes each beside it.",
    ("k * (shard", "(k - 4) * (shard"),
)
all_ranks = slip(
    three_lines,
    "That is all n ranks together: one rank's bytes are asked for.",
    ('"weights": 2 *', '"weights": 2 * n *'),
    ('"gradients": 2 *', '"gradients": 2 * n *'),
    ('": k *', '": k * n *'),
)
parameters_not_bytes = slip(
    three_lines,
    "These are parameters: weights and gradients have 2 bytes each, optimiser states k.",
    ('"weights": 2 *', '"weights":'),
    ('"gradients": 2 *', '"gradients":'),
    ('": k *', '":'),
)
fp32_throughout = slip(
    three_lines,
    "Weights and gradients have 4 bytes here: they are BF16, 2 bytes. The FP32 master is in k.",
    ('"weights": 2 *', '"weights": 4 *'),
    ('"gradients": 2 *', '"gradients": 4 *'),
)


@also_right("a table of which stage shards which part")
def by_a_table():
    from math import ceil

    def zero_bytes(n_params, n, stage, k=12):
        sizes = {"optimiser states": k, "gradients": 2, "weights": 2}
        held = {part: size * n_params for part, size in sizes.items()}
        return held | {part: sizes[part] * ceil(n_params / n) for part in list(sizes)[:stage]}

    return zero_bytes


EQUIVALENT = {}
