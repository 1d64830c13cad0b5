"""1-bit Adam, one step: `one_bit_adam(comm, w, gradient, state, *, lr, warmup, beta1, beta2, eps)`.

Returned is (w, state). `state` is a dict: step (steps taken so far), m, v and error [d]; what comes
back is given to that rank's next step. `gradient` is the rank's own. While step < warmup: Adam
without bias correction on the mean gradient g, m <- beta1 m + (1 - beta1) g and
v <- beta2 v + (1 - beta2) g². From then on v stays as it is, and each rank

- moves the common momentum by its own gradient and adds what it still owes:
  own = beta1 m + (1 - beta1) gradient + error;
- sends one bit for each number, and one scale: sent = scale * sign(own), with scale = mean |own|
  and sign(0) = +1; keeps error = own - sent;
- takes as the new, common m the mean over ranks of what was sent.

In both phases w <- w - lr m / (sqrt(v) + eps).
Shapes: w, gradient [d], any d; float64. Cost after the warm-up: ceil(d/8) bytes and one number to
each other rank.
Source: Tang et al. 2021 (arXiv:2102.02888), algorithm 1, without its second compression on the
server. DeepSpeed's OnebitAdam has no bias correction either, and takes 0 for +1; its scale is the
root mean square. The mean of |own| is Karimireddy et al. 2019 (arXiv:1901.09847), algorithm 1.
Oracle: number by number in exact fractions, all ranks at once; floats only for the root.
"""

from distgrade.compare import Symptom, ceiling, compare
from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("one_bit_adam",)
FORBID = ()
TOLERANCE = Close(1e-12, "up to six steps in float64; means are rounded in any order")
CREDIT = {"warm-up": 1, "one bit": 3, "bytes": 2}
CASES = (  # `at`: begins in the midst of training, after so many steps
    Case("two ranks, 5 numbers", "one bit", n=2, d=5, warmup=2, steps=6, at=0),
    Case("warm-up, five ranks", "warm-up", n=5, d=3, warmup=4, steps=3, at=0),
    Case("one rank", "one bit", n=1, d=3, warmup=1, steps=3, at=0),
    Case("three ranks, 9 numbers", "one bit", n=3, d=9, warmup=1, steps=4, at=0),
    Case("a zero", "one bit", n=2, d=4, warmup=2, steps=2, at=2),
    Case("bytes, four ranks", "bytes", n=4, d=200, warmup=5, steps=2, at=5),
)


def given(case, seed):
    import torch

    from distlab.seeds import integers, normal

    key, d = ("one_bit_adam", case.name, seed), (case.d,)
    options = {"lr": 0.01, "warmup": case.warmup, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    state = {name: torch.zeros(d, dtype=torch.float64) for name in ("m", "v", "error")}
    gradients = [
        [normal(d, *key, "gradient", step, rank) for rank in range(case.n)]
        for step in range(case.steps)
    ]
    if case.at:
        state = {name: integers(d, *key, name) for name in ("m", "v", "error")}
        state["v"] = state["v"].square()
    if case.name == "a zero":  # of momentum, gradient and error together; all of it exact
        options["beta1"] = 0.5
        gradients = [[(8 * g).round() for g in row] for row in gradients]
        for tensor in (state["m"], state["error"], *gradients[0]):
            tensor[1] = 0.0
    return {
        "w": normal(d, *key, "w"),
        "gradients": gradients,
        "state": {"step": case.at, **state},
        "options": options,
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    one_bit_adam = student.one_bit_adam
    n, options = len(given["gradients"][0]), given["options"]

    def on_a_rank(comm, w, gradients, state):
        path, changed = [], []
        for gradient in gradients:
            before = w.clone() if isinstance(w, torch.Tensor) else w, gradient.clone()
            answer = one_bit_adam(comm, w, gradient, state, **options)
            if not isinstance(answer, tuple | list) or len(answer) != 2:
                raise TypeError("`one_bit_adam` should return a pair, (w, state).")
            same = torch.equal(gradient, before[1])
            if isinstance(w, torch.Tensor):
                same = same and torch.equal(w, before[0])
            changed.append(not same)
            w, state = answer
            path.append(w.detach().clone() if isinstance(w, torch.Tensor) else w)
        return path, changed

    own = per_rank([list(row) for row in zip(*given["gradients"], strict=True)])
    result = run(on_a_rank, n, given["w"], own, given["state"], echo=False)
    return {
        "inputs changed": [changed for _, changed in result.values],
        "w": [path for path, _ in result.values],
        "bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)],
    }


def oracle(case, given):
    from fractions import Fraction

    import torch

    options, n, d = given["options"], case.n, range(case.d)
    rate, eps = options["lr"], options["eps"]
    b1, b2 = Fraction(options["beta1"]), Fraction(options["beta2"])
    w, m, v, owed = (
        [Fraction(x) for x in tensor.tolist()]
        for tensor in (given["w"], *(given["state"][key] for key in ("m", "v", "error")))
    )
    owed = [list(owed) for _ in range(n)]
    path = []
    for step, tensors in enumerate(given["gradients"], start=case.at):
        grads = [[Fraction(x) for x in tensor.tolist()] for tensor in tensors]
        if step < case.warmup:
            mean = [sum(g[j] for g in grads) / n for j in d]
            m = [b1 * m[j] + (1 - b1) * mean[j] for j in d]
            v = [b2 * v[j] + (1 - b2) * mean[j] ** 2 for j in d]
        else:
            total = [Fraction(0)] * case.d
            for rank, g in enumerate(grads):
                own = [b1 * m[j] + (1 - b1) * g[j] + owed[rank][j] for j in d]
                scale = sum(map(abs, own)) / case.d
                for j in d:
                    bit = scale if own[j] >= 0 else -scale
                    owed[rank][j] = own[j] - bit
                    total[j] += bit
            m = [x / n for x in total]
        w = [Fraction(float(w[j]) - rate * float(m[j]) / (float(v[j]) ** 0.5 + eps)) for j in d]
        path.append(torch.tensor([float(x) for x in w], dtype=torch.float64))
    # Eight signs in a byte and one number more. Who sends each rank a part of its own may fill
    # up a byte for each part, and one more number is allowed. Only the case about bytes counts.
    most = Fraction((n - 1) * case.steps * (-(-case.d // 8) + n + 16))
    return {
        "inputs changed": [[False] * case.steps] * n,
        "w": [path] * n,
        "bytes sent": [most] * n,
    }


def judge(got, expected, case):
    # Bytes earn their points only beside right values: who sends nothing would be cheapest.
    symptoms = []
    for rank, steps in enumerate(got["inputs changed"]):
        if any(change is not False for change in steps):
            symptoms.append(
                Symptom("values", f"w and gradient on rank {rank}", "an input was changed")
            )
    symptoms += compare({"w": got["w"]}, {"w": expected["w"]}, rtol=TOLERANCE.rtol, n=case.n)
    if case.group == "bytes":
        symptoms += ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
    return symptoms


@also_right("signs and scales gathered one after the other, put together by where")
def two_gathers():
    import numpy
    import torch

    def one_bit_adam(comm, w, gradient, state, *, lr, warmup, beta1, beta2, eps):
        step, m, v, error = (state[key] for key in ("step", "m", "v", "error"))
        if step < warmup:
            g = comm.all_reduce(gradient, op="mean")
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        else:
            own = beta1 * m + (1 - beta1) * gradient + error
            scale = own.abs().mean()
            bits = comm.all_gather(torch.from_numpy(numpy.packbits(own >= 0))[None])
            scales = comm.all_gather(scale[None])[:, None]
            signs = torch.from_numpy(numpy.unpackbits(bits.numpy(), axis=1, count=len(w)))
            m = torch.where(signs == 1, scales, -scales).mean(dim=0)
            error = own - torch.where(own >= 0, scale, -scale)
        w = w - lr * m / (v.sqrt() + eps)
        return w, {"step": step + 1, "m": m, "v": v, "error": error}

    return one_bit_adam


no_feedback = slip(
    two_gathers,
    "Nothing is fed back: what a bit can't say is kept in error, and added in the next step.",
    ("gradient + error", "gradient"),
)
error_not_returned = slip(
    two_gathers,
    "The new state has no error in it: what a bit can't say has to be there in the next step.",
    ('"error": error}', '"error": torch.zeros_like(w)}'),
)
bits_as_numbers = slip(
    two_gathers,
    "A bit of 0 counts as nothing here: it stands for the sign -1, so for -scale.",
    ("torch.where(signs == 1, scales, -scales)", "torch.where(signs == 1, scales, 0 * scales)"),
)
filled_up_bits = slip(
    two_gathers,
    "unpackbits gives whole bytes: count=d drops the bits that only fill up the last one.",
    (", count=len(w)", ""),
)
error_subtracted = slip(
    two_gathers,
    "The feedback has the wrong sign: own - sent is what is still owed, so it is added.",
    ("gradient + error", "gradient - error"),
)
error_against_the_mean = slip(
    two_gathers,
    "The error is taken against the mean of all ranks: it is own - what *this* rank sent.",
    ("own - torch.where(own >= 0, scale, -scale)", "own - m"),
)
error_shared = slip(
    two_gathers,
    "The errors are averaged over ranks: each rank owes what it didn't send itself.",
    ("0, scale, -scale)", '0, scale, -scale)\n        error = comm.all_reduce(error, "mean")'),
)
variance_goes_on = slip(
    two_gathers,
    "The variance goes on changing: after the warm-up it is frozen, or errors don't cancel.",
    ("0, scale, -scale)", "0, scale, -scale)\n        v = beta2 * v + (1 - beta2) * m * m"),
)
own_variance = slip(
    two_gathers,
    "The variance follows the rank's own gradients after the warm-up: frozen, it stays common.",
    (
        "0, scale, -scale)",
        "0, scale, -scale)\n        v = beta2 * v + (1 - beta2) * gradient * gradient",
    ),
)
compresses_the_gradient = slip(
    two_gathers,
    "The gradient is compressed: 1-bit Adam sends the momentum, linear in all gradients so far.",
    ("beta1 * m + (1 - beta1) * gradient + error", "gradient + error"),
    ("m = torch.where", "g = torch.where"),
    (".mean(dim=0)", ".mean(dim=0)\n        m = beta1 * m + (1 - beta1) * g"),
)
own_momentum_kept = slip(
    two_gathers,
    "Each rank keeps its own momentum: the next step starts from the mean of what was sent.",
    ("m = torch.where", "common = torch.where"),
    (".mean(dim=0)", ".mean(dim=0)\n        m = beta1 * m + (1 - beta1) * gradient"),
    ("lr * m /", "lr * (m if step < warmup else common) /"),
)
scale_is_a_sum = slip(
    two_gathers,
    "The scale is a sum: divide by how many numbers there are.",
    ("abs().mean()", "abs().sum()"),
)
scale_is_a_root = slip(
    two_gathers,
    "The scale is a root mean square, as in DeepSpeed: here it is the mean of |own|.",
    ("abs().mean()", "square().mean().sqrt()"),
)
one_scale_for_all = slip(
    two_gathers,
    "One scale for all ranks: each rank's signs go with that rank's own scale.",
    ("(scale[None])[:, None]", "(scale[None]).mean()"),
)
votes = slip(
    two_gathers,
    "The ranks' signs are counted and the majority wins: add up scale * sign, and divide by n.",
    (".mean(dim=0)", ".mean(dim=0).sign() * scales.mean()"),
)
summed_over_ranks = slip(
    two_gathers,
    "What was sent is added up over ranks: the new momentum is the mean.",
    (".mean(dim=0)", ".sum(dim=0)"),
)
own_scale_for_all = slip(
    two_gathers,
    "All ranks' signs are multiplied by this rank's scale: send the scales too.",
    ("comm.all_gather(scale[None])[:, None]", "scale"),
)
zero_is_negative = slip(
    two_gathers,
    "A zero counts as negative: its sign is +1 here, so ask for own >= 0.",
    ("packbits(own >= 0)", "packbits(own > 0)"),
    ("where(own >= 0", "where(own > 0"),
)
sign_of_zero = slip(
    two_gathers,
    "sign(0) is 0 in torch: a bit knows only +1 and -1, and a zero counts as +1.",
    ("torch.where(own >= 0, scale, -scale)", "scale * torch.sign(own)"),
)
warm_up_one_longer = slip(
    two_gathers,
    "The warm-up is one step too long: the steps 0 to warmup - 1 are in full precision.",
    ("step < warmup", "step <= warmup"),
)
warm_up_one_shorter = slip(
    two_gathers,
    "The warm-up is one step too short: the steps 0 to warmup - 1 are in full precision.",
    ("step < warmup", "step + 1 < warmup"),
)
never_compressed = slip(
    two_gathers,
    "This is Adam all the way: after the warm-up one bit for each number is sent.",
    ("step < warmup", "step >= 0"),
)
step_not_counted = slip(
    two_gathers,
    "The state's step stays as it was, so the warm-up never ends: return step + 1.",
    ("step + 1", "step"),
)
bias_corrected = slip(
    two_gathers,
    "The moments are divided by 1 - beta^t: here Adam goes without bias correction.",
    ("lr * m /", "lr * m / (1 - beta1 ** (step + 1)) /"),
    ("v.sqrt()", "(v / (1 - beta2 ** (step + 1))).sqrt()"),
)
squares_of_own_gradients = slip(
    two_gathers,
    "In the warm-up v follows each rank's own squares: square the mean gradient.",
    ("* g * g", "* gradient * gradient"),
)
warm_up_alone = slip(
    two_gathers,
    "In the warm-up nothing is sent: the mean gradient of all ranks is asked for.",
    ('comm.all_reduce(gradient, op="mean")', "gradient"),
)
epsilon_inside = slip(
    two_gathers,
    "eps stands inside the root: the step divides by sqrt(v) + eps.",
    ("v.sqrt() + eps", "(v + eps).sqrt()"),
)
w_changed = slip(
    two_gathers,
    "The w that came in was changed: w -= ... writes into it, w = w - ... doesn't.",
    ("w = w - lr", "w -= lr"),
)


@wrong("Full precision is still sent: right values, but 64 bits for each number where one will do.")
def full_precision_sent():
    import torch

    def one_bit_adam(comm, w, gradient, state, *, lr, warmup, beta1, beta2, eps):
        step, m, v, error = (state[key] for key in ("step", "m", "v", "error"))
        if step < warmup:
            g = comm.all_reduce(gradient, op="mean")
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        else:
            own = beta1 * m + (1 - beta1) * gradient + error
            scale = own.abs().mean()
            m = comm.all_reduce(torch.where(own >= 0, scale, -scale), op="mean")
            error = own - torch.where(own >= 0, scale, -scale)
        w = w - lr * m / (v.sqrt() + eps)
        return w, {"step": step + 1, "m": m, "v": v, "error": error}

    return one_bit_adam


int8_signs = slip(
    two_gathers,
    "A whole byte for each sign: numpy.packbits puts eight of them into one.",
    ("torch.from_numpy(numpy.packbits(own >= 0))[None]", "(own >= 0).to(torch.uint8)[None]"),
    ("torch.from_numpy(numpy.unpackbits(bits.numpy(), axis=1, count=len(w)))", "bits"),
)


@also_right("signs and scale in one message of bytes; the state is changed in place")
def one_message():
    import numpy
    import torch

    def one_bit_adam(comm, w, gradient, state, *, lr, warmup, beta1, beta2, eps):
        m, v, error = state["m"], state["v"], state["error"]
        if state["step"] < warmup:
            g = comm.all_reduce(gradient) / comm.size
            m.lerp_(g, 1 - beta1)
            v.lerp_(g.square(), 1 - beta2)
        else:
            error += torch.lerp(m, gradient, 1 - beta1)
            scale = torch.linalg.vector_norm(error, ord=1) / len(w)
            bits = torch.from_numpy(numpy.packbits((error >= 0).numpy()))
            message = torch.cat((scale[None].view(torch.uint8), bits))
            rows = comm.all_gather(message[None])
            error -= torch.where(error >= 0, scale, -scale)
            m.zero_()
            for row in rows:
                theirs = row[:8].clone().view(torch.float64) / comm.size
                plus = torch.from_numpy(numpy.unpackbits(row[8:].numpy(), count=len(w))).bool()
                m += torch.where(plus, theirs, -theirs)
        state["step"] += 1
        return w - lr * m / (v.sqrt() + eps), state

    return one_bit_adam


@also_right("bits and scale to every rank by all_to_all, added up as a product")
def by_all_to_all():
    import numpy
    import torch

    def one_bit_adam(comm, w, gradient, state, *, lr, warmup, beta1, beta2, eps):
        m, v, error = state["m"], state["v"], state["error"]
        if state["step"] < warmup:
            g = comm.all_reduce(gradient, op="mean")
            m, v = m * beta1 + g * (1 - beta1), v * beta2 + g**2 * (1 - beta2)
        else:
            own = m * beta1 + gradient * (1 - beta1) + error
            scale = own.abs().sum() / len(own)
            packed = torch.from_numpy(numpy.packbits(own >= 0))
            rows = comm.all_to_all(packed.repeat(comm.size)).view(comm.size, -1)
            scales = comm.all_to_all(scale.repeat(comm.size))
            plus = torch.from_numpy(numpy.unpackbits(rows.numpy(), axis=1)[:, : len(own)]).double()
            m = scales @ (2 * plus - 1) / comm.size
            error = own - torch.where(own < 0, -scale, scale)
        w = w - lr * m / (v**0.5 + eps)
        return w, {"step": state["step"] + 1, "m": m, "v": v, "error": error}

    return one_bit_adam


EQUIVALENT = {}
