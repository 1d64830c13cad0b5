"""One step of AdamW for one tensor: `adam_step(master, grad, m, v, step, *, lr, ...)`.

Returned is (weights, master, m, v), all new. Computed is in master's dtype (FP32 in training, FP64
later in the lab); `weights` are the new master, rounded to grad's dtype (BF16 in training).
`step` is t, 1 in the first step. With g the gradient and λ the weight decay,

    m <- β1 m + (1 - β1) g,  v <- β2 v + (1 - β2) g²,
    master <- (1 - lr λ) master - lr (m / (1 - β1^t)) / (sqrt(v / (1 - β2^t)) + ε).

Shapes: any, the same for all.
Source: Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1; Loshchilov and Hutter 2019
(arXiv:1711.05101), algorithm 2, without its schedule; Micikevicius et al. 2018 (arXiv:1710.03740),
section 3.1, for the master. Oracle: number by number in double precision, rounded after each step.
"""

from distgrade.compare import Symptom, compare
from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("adam_step",)
FORBID = ()
TOLERANCE = Close(1e-4, "moments in float32: 1 - 0.999 keeps four digits there")
MASTER = 1e-5  # what that leaves of a step, beside weights near 1
FP64 = 1e-12  # all of it, where float64 is computed in
CREDIT = {"Adam": 2, "weight decay": 1, "precision": 2}
CASES = (  # `at`: the number of the first step; later ones begin with moments
    Case("from nothing", "Adam", shape=(7,), at=1, steps=3, grads="float32"),
    Case("in the midst", "Adam", shape=(3, 4), at=40, steps=2, grads="float32"),
    Case("a large ε", "Adam", shape=(5,), at=3, steps=2, grads="float32", eps=0.5),
    Case("other β", "Adam", shape=(2, 3), at=1, steps=2, grads="float32", betas=(0.5, 0.75)),
    Case("decay", "weight decay", shape=(6,), at=2, steps=2, grads="float32", decay=0.5),
    Case("small updates", "precision", shape=(2, 5), at=1, steps=3, grads="bfloat16", lr=2.0**-12),
    Case("BF16 gradients", "precision", shape=(9,), at=5, steps=3, grads="bfloat16", decay=0.1),
    Case("a zero", "precision", shape=(4,), at=1, steps=2, grads="bfloat16"),
    Case("FP64", "precision", shape=(3, 3), at=2, steps=3, grads="float64", decay=0.1),
)


def given(case, seed):
    import torch

    from distlab.seeds import normal

    key, shape = ("adam_step", case.name, seed), tuple(case.shape)
    dtype = getattr(torch, case.grads)
    states = torch.float64 if dtype is torch.float64 else torch.float32
    begun = float(case.at > 1)
    state = {
        "master": 1 + 0.3 * normal(shape, *key, "master"),
        "m": begun * normal(shape, *key, "m"),
        "v": begun * (0.1 + normal(shape, *key, "v").square()),
    }
    grads = normal((case.steps, *shape), *key, "grads")
    if case.name == "a zero":
        grads[:, 1] = 0.0
    options = {"lr": getattr(case, "lr", 0.05)}
    options |= {"betas": tuple(case.betas)} if hasattr(case, "betas") else {}
    options |= {"eps": case.eps} if hasattr(case, "eps") else {}
    options |= {"weight_decay": case.decay} if hasattr(case, "decay") else {}
    return {
        **{name: tensor.to(states) for name, tensor in state.items()},
        "grads": grads.to(dtype),
        "first": case.at,
        "options": options,
    }


def observe(student, given):
    import torch

    master, m, v = given["master"], given["m"], given["v"]
    path, changed = [], []
    for step, grad in enumerate(given["grads"], start=given["first"]):
        inputs = master, grad, m, v
        before = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        answer = student.adam_step(master, grad, m, v, step, **given["options"])
        if not isinstance(answer, tuple | list) or len(answer) != 4:
            raise TypeError("`adam_step` should return four things: (weights, master, m, v).")
        pairs = list(zip(inputs, before, strict=True))
        tensors = [pair for pair in pairs if isinstance(pair[0], torch.Tensor)]
        changed.append(not all(torch.equal(x, was) for x, was in tensors))
        weights, master, m, v = answer
        state = {"weights": weights, "master": master, "m": m, "v": v}
        path.append({k: x.clone() if hasattr(x, "clone") else x for k, x in state.items()})
    return {"inputs changed": changed, "steps": path}


def oracle(case, given):
    import math

    import torch

    options = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0} | given["options"]
    lr, (beta1, beta2) = options["lr"], options["betas"]
    states, shape = given["master"].dtype, given["master"].shape
    lists = [given[key].flatten().tolist() for key in ("master", "m", "v")]
    path = []
    for t, grad in enumerate(given["grads"], start=given["first"]):
        rows = []
        for w, m, v, g in zip(*lists, grad.flatten().tolist(), strict=True):
            m = math.fsum((m, g, -beta1 * g, beta1 * m, -m))
            v = math.fsum((v, g * g, -beta2 * g * g, beta2 * v, -v))
            root = math.sqrt(v / -math.expm1(t * math.log(beta2))) + options["eps"]
            moved = m / -math.expm1(t * math.log(beta1)) / root
            rows.append((w - lr * (options["weight_decay"] * w + moved), m, v))
        new = [torch.tensor(x, dtype=states).reshape(shape) for x in zip(*rows, strict=True)]
        lists = [x.flatten().tolist() for x in new]
        master, m, v = new
        path.append({"weights": master.to(grad.dtype), "master": master, "m": m, "v": v})
    return {"inputs changed": [False] * case.steps, "steps": path}


def judge(got, expected, case):
    symptoms, double = [], case.grads == "float64"
    for step, (mine, right) in enumerate(zip(got["steps"], expected["steps"], strict=True)):
        when = f"step {case.at + step}"
        if got["inputs changed"][step]:
            symptoms.append(Symptom("values", "the inputs", f"changed in {when}"))
        for key, rtol in (("m", TOLERANCE.rtol), ("v", TOLERANCE.rtol), ("master", MASTER)):
            one, other = ({f"{when}, {key}": tree[key]} for tree in (mine, right))
            symptoms += compare(one, other, rtol=FP64 if double else rtol)
        if case.group == "precision" and not symptoms:
            # Masters may differ in the last digit: the weights are *this* master's, rounded.
            rounded = mine["master"].to(right["weights"].dtype)
            symptoms += compare(
                {f"{when}, weights": mine["weights"]}, {f"{when}, weights": rounded}, rtol=0.0
            )
        if symptoms:
            break
    return symptoms


@also_right("line by line, as the equations stand")
def as_the_equations_stand():
    def adam_step(master, grad, m, v, step, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        beta1, beta2 = betas
        g = grad.to(master.dtype)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        m_hat = m / (1 - beta1**step)
        v_hat = v / (1 - beta2**step)
        decayed = master - lr * weight_decay * master
        master = decayed - lr * m_hat / (v_hat.sqrt() + eps)
        return master.to(grad.dtype), master, m, v

    return adam_step


never_corrected = slip(
    as_the_equations_stand,
    "Nothing is corrected: m and v begin at 0, so divide them by 1 - β^t before they are used.",
    ("m / (1 - beta1**step)", "m"),
    ("v / (1 - beta2**step)", "v"),
)
second_moment_not_corrected = slip(
    as_the_equations_stand,
    "m is corrected, v isn't: it begins at 0 as well, and needs 1 - β2^t.",
    ("v / (1 - beta2**step)", "v"),
)
first_moment_not_corrected = slip(
    as_the_equations_stand,
    "v is corrected, m isn't: it begins at 0 as well, and needs 1 - β1^t.",
    ("m / (1 - beta1**step)", "m"),
)
counted_from_zero = slip(
    as_the_equations_stand,
    "The steps are counted as if from 0: `step` is 1 in the first, and that is its power of β.",
    ("beta1**step", "beta1 ** (step + 1)"),
    ("beta2**step", "beta2 ** (step + 1)"),
)
one_step_behind = slip(
    as_the_equations_stand,
    "The powers of β are those of the step before: `step` is 1, not 0, in the first.",
    ("beta1**step", "beta1 ** (step - 1)"),
    ("beta2**step", "beta2 ** (step - 1)"),
)
corrections_kept = slip(
    as_the_equations_stand,
    "The corrected moments are kept: return m and v as they are, and correct them anew each step.",
    ("master, m, v\n", "master, m_hat, v_hat\n"),
)
epsilon_inside = slip(
    as_the_equations_stand,
    "ε stands inside the root: it is sqrt(v̂) + ε, else a small v̂ weighs as if it were ε.",
    ("v_hat.sqrt() + eps", "(v_hat + eps).sqrt()"),
)
epsilon_before_the_correction = slip(
    as_the_equations_stand,
    "ε is added before v is corrected, so it is corrected too: first v̂, then its root, then ε.",
    ("v_hat.sqrt() + eps", "(v.sqrt() + eps) / (1 - beta2**step) ** 0.5"),
)
not_squared = slip(
    as_the_equations_stand,
    "v is an average of |g|: it should be one of g².",
    ("(1 - beta2) * g * g", "(1 - beta2) * g.abs()"),
)
betas_swapped = slip(
    as_the_equations_stand,
    "The betas are swapped: betas[0] belongs to m, betas[1] to v.",
    ("beta1, beta2 = betas", "beta2, beta1 = betas"),
)
uphill = slip(
    as_the_equations_stand,
    "The weights go uphill: the step is subtracted.",
    ("decayed - lr * m_hat", "decayed + lr * m_hat"),
)
decay_in_the_gradient = slip(
    as_the_equations_stand,
    "The decay is added to the gradient, so v scales it too (L2): AdamW takes it off the weights.",
    ("grad.to(master.dtype)\n", "grad.to(master.dtype) + weight_decay * master\n"),
    ("master - lr * weight_decay * master", "master"),
)
decay_without_lr = slip(
    as_the_equations_stand,
    "The decay lacks the learning rate: a step takes off lr times weight_decay times master.",
    ("lr * weight_decay * master", "weight_decay * master"),
)
decay_forgotten = slip(
    as_the_equations_stand,
    "weight_decay isn't used: each step also takes lr times weight_decay off master.",
    ("master - lr * weight_decay * master", "master"),
)
decay_of_the_new = slip(
    as_the_equations_stand,
    "The decay is of the weights after the step: it is of those before.",
    ("master - lr * weight_decay * master", "master"),
    (
        "    return master.to",
        "    master = master - lr * weight_decay * master\n    return master.to",
    ),
)
squared_in_bf16 = slip(
    as_the_equations_stand,
    "The gradient is squared in BF16: bring it to master's dtype first, then square it.",
    ("* g * g", "* (grad * grad).to(master.dtype)"),
)
moments_rounded = slip(
    as_the_equations_stand,
    "The moments lose digits from step to step: keep them in master's dtype, not in grad's.",
    (
        "    m_hat",
        "    m, v = (x.to(grad.dtype).to(x.dtype) for x in (m, v))\n    m_hat",
    ),
)
moments_in_bf16 = slip(
    as_the_equations_stand,
    "The moments come back in grad's dtype: 0.999 v needs more digits than BF16 has.",
    ("master, m, v\n", "master, m.to(grad.dtype), v.to(grad.dtype)\n"),
)
copy_updated = slip(
    as_the_equations_stand,
    "The step is applied to the BF16 copy: small ones vanish there. Update master, then round it.",
    ("master - lr * weight", "master.to(grad.dtype) - lr * weight"),
    (
        "decayed - lr * m_hat / (v_hat.sqrt() + eps)",
        "(decayed - (lr * m_hat / (v_hat.sqrt() + eps)).to(grad.dtype)).to(m.dtype)",
    ),
)
master_rounded = slip(
    as_the_equations_stand,
    "master itself is rounded to BF16: return it in full, and the rounded copy as weights.",
    (
        "return master.to(grad.dtype), master, m",
        "return master.to(grad.dtype), master.to(grad.dtype).to(master.dtype), m",
    ),
)
weights_in_full = slip(
    as_the_equations_stand,
    "The weights come back in master's dtype: the forward pass wants them in grad's.",
    ("master.to(grad.dtype), master", "master, master"),
)
always_bf16 = slip(
    as_the_equations_stand,
    "The weights are BF16 whatever the gradient is: take grad's dtype.",
    ("master.to(grad.dtype), master", "master.bfloat16(), master"),
)
always_fp32 = slip(
    as_the_equations_stand,
    "It computes in FP32 whatever master is: take master's dtype, which may be FP64.",
    ("grad.to(master.dtype)", "grad.float()"),
)
in_place = slip(
    as_the_equations_stand,
    "It changes what was passed in: in-place methods end in _ . Make new tensors.",
    ("m = beta1 * m + (1 - beta1) * g\n", "m.mul_(beta1).add_(g, alpha=1 - beta1)\n"),
    ("v = beta2 * v + (1 - beta2) * g * g\n", "v.mul_(beta2).addcmul_(g, g, value=1 - beta2)\n"),
)


@also_right("PyTorch's own AdamW, given the state of the steps before")
def by_torchs_optimiser():
    import torch

    def adam_step(master, grad, m, v, step, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        w = torch.nn.Parameter(master.clone())
        w.grad = grad.to(master.dtype)
        adam = torch.optim.AdamW([w], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        taken = torch.tensor(step - 1.0)
        state = {"step": taken, "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
        adam.state[w] = state
        adam.step()
        new = w.detach()
        return new.to(grad.dtype), new, state["exp_avg"], state["exp_avg_sq"]

    return adam_step


@also_right("moments by lerp, and the corrections moved into one rate")
def one_rate():
    def adam_step(master, grad, m, v, step, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        keep_m, keep_v = (beta**step for beta in betas)
        g = grad.to(dtype=master.dtype)
        m, v = g.lerp(m, betas[0]), g.square().lerp(v, betas[1])
        root = (1 - keep_v) ** 0.5
        step_size = lr * root / (1 - keep_m)
        master = (1 - lr * weight_decay) * master - step_size * m / (v.sqrt() + eps * root)
        weights = master.to(grad.dtype)
        return weights, master, m, v

    return adam_step


EQUIVALENT = {
    "by_torchs_optimiser adam_step: torch.nn.Parameter(master.clone()) -> master.clone()": (
        "AdamW takes a tensor as it takes a parameter, if it has a gradient"
    ),
}
