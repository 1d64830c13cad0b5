"""Bytes of a model's state, by part: `model_state_bytes(n_params, policy) -> dict[str, int]`.

`policy` is a distlab.memory.Policy: bytes per parameter of each part. The parts are weights,
gradients, master weights, first moment and second moment; one of 0 bytes may be left out. Units:
bytes. Source: Rajbhandari et al. 2020 (arXiv:1910.02054), section 3.1. Oracle: for one parameter
after the other, a buffer of the part's bytes is laid out, and the buffers' lengths are taken.
"""

from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("model_state_bytes",)
FORBID = ()
TOLERANCE = Exact(why="whole numbers of bytes")
CREDIT = {"mixed precision": 1, "other policies": 1}
CASES = (  # policy: bytes of weight, gradient, master, first moment, second moment
    Case("Adam, mixed precision", "mixed precision", count=5_011, policy=(2, 2, 4, 4, 4)),
    Case("FP32 gradients", "mixed precision", count=1_003, policy=(2, 4, 4, 4, 4)),
    Case("FP32 throughout", "other policies", count=4_099, policy=(4, 4, 0, 4, 4)),
    Case("BF16 throughout", "other policies", count=817, policy=(2, 2, 0, 2, 2)),
    Case("momentum alone", "other policies", count=2_053, policy=(2, 2, 4, 4, 0)),
    Case("eight-bit moments", "other policies", count=331, policy=(2, 2, 4, 1, 1)),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other counts.
    extra = int(integers((1,), "states", case.name, seed, low=1, high=999)[0]) if seed else 0
    return {"n_params": case.count + extra, "policy": list(case.policy)}


def observe(student, given):
    from distlab.memory import Policy

    fields = ("weight", "gradient", "master", "first_moment", "second_moment")
    costs = dict(zip(fields, given["policy"], strict=True))
    sizes = student.model_state_bytes(given["n_params"], Policy(name="a policy", **costs))
    parts = ("weights", "gradients", "master weights", "first moment", "second moment")
    return {part: sizes.get(part, 0) for part in parts} | {"all parts": sum(sizes.values())}


def oracle(case, given):
    parts = ("weights", "gradients", "master weights", "first moment", "second moment")
    laid_out = {part: bytearray() for part in parts}
    for _ in range(given["n_params"]):
        for part, cost in zip(parts, given["policy"], strict=True):
            laid_out[part].extend(bytes(cost))
    sizes = {part: len(memory) for part, memory in laid_out.items()}
    return sizes | {"all parts": len(b"".join(laid_out.values()))}


@wrong("The optimiser's own FP32 copy of the weights is missing: policy.master says its bytes.")
def no_master():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params * policy.weight,
            "gradients": n_params * policy.gradient,
            "master weights": 0,
            "first moment": n_params * policy.first_moment,
            "second moment": n_params * policy.second_moment,
        }

    return model_state_bytes


@wrong("Where weights are FP32, or BF16 throughout, there is no master: policy.master is 0 then.")
def always_a_master():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params * policy.weight,
            "gradients": n_params * policy.gradient,
            "master weights": n_params * 4,
            "first moment": n_params * policy.first_moment,
            "second moment": n_params * policy.second_moment,
        }

    return model_state_bytes


@wrong("The moments have their own bytes, 4 in mixed precision, not the weight's 2.")
def moments_like_the_weights():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params * policy.weight,
            "gradients": n_params * policy.gradient,
            "master weights": n_params * policy.master,
            "first moment": n_params * policy.weight,
            "second moment": n_params * policy.weight,
        }

    return model_state_bytes


@wrong("That is 2, 2, 4, 4 and 4 bytes whatever the policy says: take its numbers.")
def sixteen_whatever_the_policy():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params * 2,
            "gradients": n_params * 2,
            "master weights": n_params * 4,
            "first moment": n_params * 4,
            "second moment": n_params * 4,
        }

    return model_state_bytes


@wrong("A gradient may be kept in FP32 beside a BF16 weight: policy.gradient says so.")
def gradients_like_the_weights():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params * policy.weight,
            "gradients": n_params * policy.weight,
            "master weights": n_params * policy.master,
            "first moment": n_params * policy.first_moment,
            "second moment": n_params * policy.second_moment,
        }

    return model_state_bytes


@wrong("SGD with momentum has one moment: policy.second_moment is 0 there.")
def second_like_the_first():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params * policy.weight,
            "gradients": n_params * policy.gradient,
            "master weights": n_params * policy.master,
            "first moment": n_params * policy.first_moment,
            "second moment": n_params * policy.first_moment,
        }

    return model_state_bytes


@wrong("policy.optimiser is the sum of three parts: each part has its own bytes.")
def the_optimisers_bytes_thrice():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params * policy.weight,
            "gradients": n_params * policy.gradient,
            "master weights": n_params * policy.optimiser,
            "first moment": n_params * policy.optimiser,
            "second moment": n_params * policy.optimiser,
        }

    return model_state_bytes


@wrong("These are GB: bytes are asked for, and whole numbers of them.")
def in_GB():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params / 1e9 * policy.weight,
            "gradients": n_params / 1e9 * policy.gradient,
            "master weights": n_params / 1e9 * policy.master,
            "first moment": n_params / 1e9 * policy.first_moment,
            "second moment": n_params / 1e9 * policy.second_moment,
        }

    return model_state_bytes


@wrong("These are GiB, 2^30 bytes each: bytes are asked for.")
def in_GiB():
    def model_state_bytes(n_params, policy):
        return {
            "weights": n_params / 2**30 * policy.weight,
            "gradients": n_params / 2**30 * policy.gradient,
            "master weights": n_params / 2**30 * policy.master,
            "first moment": n_params / 2**30 * policy.first_moment,
            "second moment": n_params / 2**30 * policy.second_moment,
        }

    return model_state_bytes


@wrong("These are the bytes of one parameter: there are n_params.")
def bytes_of_one_parameter():
    def model_state_bytes(n_params, policy):
        return {
            "weights": policy.weight,
            "gradients": policy.gradient,
            "master weights": policy.master,
            "first moment": policy.first_moment,
            "second moment": policy.second_moment,
        }

    return model_state_bytes


@wrong("The parts and their total are one dict here: whoever adds it up counts everything twice.")
def with_a_total():
    def model_state_bytes(n_params, policy):
        parts = {
            "weights": n_params * policy.weight,
            "gradients": n_params * policy.gradient,
            "master weights": n_params * policy.master,
            "first moment": n_params * policy.first_moment,
            "second moment": n_params * policy.second_moment,
        }
        return parts | {"total": n_params * policy.total}

    return model_state_bytes


@also_right("a table of fields and parts, in a loop")
def in_a_loop_over_a_table():
    def model_state_bytes(n_params, policy):
        fields = {"weights": "weight", "gradients": "gradient", "master weights": "master"}
        fields |= {"first moment": "first_moment", "second moment": "second_moment"}
        return {part: getattr(policy, field) * n_params for part, field in fields.items()}

    return model_state_bytes


@also_right("parts without bytes are left out")
def without_empty_parts():
    def model_state_bytes(n_params, policy):
        parts = {"weights": policy.weight, "gradients": policy.gradient}
        parts["master weights"] = policy.master
        parts["first moment"] = policy.first_moment
        parts["second moment"] = policy.second_moment
        return {part: n_params * cost for part, cost in parts.items() if cost}

    return model_state_bytes


EQUIVALENT = {}
