"""Local SGD: `local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period)` -> w.

Each rank takes a step for each of its batches on weights of its own: u <- momentum u + gradient,
w <- w - lr u, with u = 0 at first. After every `period` steps, and after the last one, w becomes
the mean over ranks, in which a rank counts by `samples`, the samples it holds. u is never sent.
`gradient(w, batch)` is the mean gradient of a batch.
Shapes: w [d], the same on all ranks; equally many batches on all ranks; float64.
Cost: one all-reduce of w for each mean, ceil(steps / period), and a number beside each.
Source: McMahan et al. 2017 (arXiv:1602.05629), algorithm 1, for the weights of the mean; Stich 2019
(arXiv:1805.09767) for local SGD; that momentum stays local: torch's PostLocalSGDOptimizer.
Oracle: the ranks one after another, in exact fractions, as displacements since the last mean.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("local_sgd",)
FORBID = ()
TOLERANCE = Close(1e-12, "up to seven steps in float64; shares such as 1/7 are rounded")
CREDIT = {"periods": 2, "rest": 1, "bytes": 2}
CASES = (
    Case("one rank", "periods", n=1, samples=(3,), steps=2, period=2, momentum=0.5, d=2),
    Case(
        "two ranks, no momentum",
        "periods",
        n=2,
        samples=(2, 1),
        steps=4,
        period=2,
        momentum=0.0,
        d=3,
    ),
    Case("three ranks", "periods", n=3, samples=(4, 1, 2), steps=6, period=3, momentum=0.5, d=3),
    Case("two ranks, 5 steps", "rest", n=2, samples=(2, 2), steps=5, period=2, momentum=0.5, d=2),
    Case(
        "five ranks, period 4",
        "rest",
        n=5,
        samples=(1, 3, 2, 5, 1),
        steps=3,
        period=4,
        momentum=0.5,
        d=2,
    ),
    Case(
        "bytes, four ranks",
        "bytes",
        n=4,
        samples=(3, 1, 2, 5),
        steps=6,
        period=2,
        momentum=0.5,
        d=48,
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    key, d = ("local_sgd", case.name, seed), (case.d,)

    def batch(rank, step):
        steepness = integers(d, *key, "steepness", rank, step, low=1, high=2)
        return [steepness, integers(d, *key, "lowest", rank, step, low=-9, high=9)]

    return {
        "w": integers(d, *key, "w"),
        "batches": [[batch(rank, step) for step in range(case.steps)] for rank in range(case.n)],
        "samples": list(case.samples),
        "options": {"lr": 0.25, "momentum": case.momentum, "period": case.period},
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    local_sgd = student.local_sgd
    n = len(given["samples"])

    def gradient(w, batch):
        steepness, lowest = batch
        return steepness * (w - lowest)

    def on_a_rank(comm, w, batches, samples):
        pairs = [tuple(batch) for batch in batches]
        mean = local_sgd(comm, gradient, w, pairs, samples, **given["options"])
        return w, mean.detach().clone() if isinstance(mean, torch.Tensor) else mean

    own = per_rank(given["batches"]), per_rank(given["samples"])
    result = run(on_a_rank, n, given["w"], *own, echo=False)
    return {
        "w afterwards": [w for w, _ in result.values],
        "weights": [mean for _, mean in result.values],
        "bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)],
    }


def oracle(case, given):
    from fractions import Fraction

    import torch

    n, rate, keep = case.n, Fraction(1, 4), Fraction(case.momentum)
    w = [Fraction(x) for x in given["w"].tolist()]
    speed = [[Fraction(0)] * case.d for _ in range(n)]
    starts = range(0, case.steps, case.period)
    for start in starts:
        moved = [Fraction(0)] * case.d  # the mean of what the ranks move in this period
        for rank, batches in enumerate(given["batches"]):
            share = Fraction(case.samples[rank], sum(case.samples))
            own = list(w)
            for steepness, lowest in batches[start : start + case.period]:
                for j, (a, c) in enumerate(zip(steepness.tolist(), lowest.tolist(), strict=True)):
                    speed[rank][j] = keep * speed[rank][j] + Fraction(a) * (own[j] - Fraction(c))
                    own[j] -= rate * speed[rank][j]
                    moved[j] -= share * rate * speed[rank][j]
        w = [x + step for x, step in zip(w, moved, strict=True)]
    right = torch.tensor([float(x) for x in w], dtype=torch.float64)
    numbers = -(-case.d // n) * n + n  # padded to a multiple of n, and a padded count beside it
    most = Fraction(2 * (n - 1), n) * len(starts) * numbers * 8
    return {
        "w afterwards": [given["w"]] * n,
        "weights": [right] * n,
        "bytes sent": [most] * n,
    }


def judge(got, expected, case):
    # Bytes earn their points only beside right values: who sends nothing would be cheapest.
    values = ("w afterwards", "weights")
    symptoms = told_as_changed(
        compare(
            *({key: tree[key] for key in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    if case.group == "bytes":
        symptoms += ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
    return symptoms


@wrong("The ranks meet after every step, as in DDP: period steps lie between two means of weights.")
def averages_every_step():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for batch in batches:
            u = momentum * u + gradient(w, batch)
            w = comm.all_reduce(share * (w - lr * u))
        return w

    return local_sgd


@wrong("No mean after the last step where period doesn't divide: the ranks end with weights apart.")
def rest_not_averaged():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0:
                w = comm.all_reduce(share * w)
        return w

    return local_sgd


@wrong("What is left after whole periods is dropped: its batches count as well.")
def rest_dropped():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches[: len(batches) // period * period]):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0:
                w = comm.all_reduce(share * w)
        return w + 0

    return local_sgd


@wrong("A second mean at the end where the last step had one already: equal weights sent again.")
def mean_twice_at_the_end():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0:
                w = comm.all_reduce(share * w)
        return comm.all_reduce(share * w)

    return local_sgd


@wrong("The first mean comes after one step, not after period steps: count from 1.")
def mean_after_the_first_step():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if step % period == 0 or step + 1 == len(batches):
                w = comm.all_reduce(share * w)
        return w

    return local_sgd


@wrong("Each mean comes one step late: after period + 1 steps.")
def one_step_late():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % (period + 1) == 0 or step + 1 == len(batches):
                w = comm.all_reduce(share * w)
        return w

    return local_sgd


@wrong("The ranks' weights meet only at the end: one mean after every period was asked for.")
def only_at_the_end():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for batch in batches:
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
        return comm.all_reduce(share * w)

    return local_sgd


@wrong("All ranks count alike in the mean: a rank with more samples should count for more.")
def plain_mean():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w = comm.all_reduce(w, op="mean")
        return w

    return local_sgd


@wrong("The ranks' weights are added and nothing is divided: the shares should add up to 1.")
def summed():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w = comm.all_reduce(w)
        return w

    return local_sgd


@wrong("The momentum starts anew after each mean: it stays as it is, only w changes.")
def momentum_reset():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w, u = comm.all_reduce(share * w), torch.zeros_like(w)
        return w

    return local_sgd


@wrong("The momentum is averaged too: it stays on its rank, and costs no bytes.")
def momentum_averaged():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w, u = comm.all_reduce(share * w), comm.all_reduce(share * u)
        return w

    return local_sgd


@wrong("Gradients are averaged in each step, as in DDP: between means each rank uses its own.")
def averages_gradients():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        u = torch.zeros_like(w)
        for batch in batches:
            u = momentum * u + comm.all_reduce(gradient(w, batch), op="mean")
            w = w - lr * u
        return w

    return local_sgd


@wrong("The gradient goes into u whole: (1 - momentum) before it is another rule, Adam's.")
def dampened():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for done, batch in enumerate(batches, start=1):
            u = momentum * u + (1 - momentum) * gradient(w, batch)
            w = w - lr * u
            if done % period == 0 or done == len(batches):
                w = comm.all_reduce(share * w)
        return w

    return local_sgd


@wrong("The momentum is left out: u = momentum * u + gradient, and the step is lr * u.")
def no_momentum():
    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        for step, batch in enumerate(batches):
            w = w - lr * gradient(w, batch)
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w = comm.all_reduce(share * w)
        return w

    return local_sgd


@wrong("The gradients of a period are added up at the same weights: that is accumulation.")
def accumulates():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u, total = torch.zeros_like(w), torch.zeros_like(w)
        for step, batch in enumerate(batches):
            total = total + gradient(w, batch)
            if (step + 1) % period == 0 or step + 1 == len(batches):
                u = momentum * u + comm.all_reduce(share * total)
                w, total = w - lr * u, torch.zeros_like(w)
        return w

    return local_sgd


@wrong("Nothing is sent: each rank returns weights of its own.")
def alone():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        u = torch.zeros_like(w)
        for batch in batches:
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
        return w

    return local_sgd


@wrong("The w that came in was changed: w -= ... writes into it, w = w - ... doesn't.")
def in_place():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w -= lr * u
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w = comm.all_reduce(share * w)
        return w

    return local_sgd


@wrong("All ranks' weights are gathered: (n-1) S bytes, where an all-reduce sends 2 (n-1)/n S.")
def gathered():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        counts = comm.all_gather(w.new_tensor([samples]))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w = counts @ comm.all_gather(w[None]) / counts.sum()
        return w

    return local_sgd


@wrong("A share is rounded to float32: make the count with w's dtype, as w.new_tensor does.")
def count_in_float32():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(torch.tensor(float(samples)))
        u = torch.zeros_like(w)
        for step, batch in enumerate(batches):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if (step + 1) % period == 0 or step + 1 == len(batches):
                w = comm.all_reduce(share * w)
        return w

    return local_sgd


@also_right("period by period; what the ranks have moved since the last mean is averaged")
def by_displacement():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        weight = samples / comm.all_reduce(torch.tensor([samples]).double(), op="mean")
        velocity = torch.zeros_like(w)
        for start in range(0, len(batches), period):
            moved = torch.zeros_like(w)
            for batch in batches[start : start + period]:
                velocity = velocity * momentum + gradient(w + moved, batch)
                moved -= lr * velocity
            w = w + comm.all_reduce(weight * moved, op="mean")
        return w

    return local_sgd


@also_right("sum and count in one message for each mean, divided afterwards")
def count_beside_the_weights():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        w, u, left = w.clone(), torch.zeros_like(w), period
        for batch in batches:
            u.mul_(momentum).add_(gradient(w, batch))
            w.sub_(u, alpha=lr)
            left -= 1
            if left == 0 or batch is batches[-1]:
                flat = comm.all_reduce(torch.cat([samples * w, w.new_tensor([samples])]))
                w, left = flat[:-1] / flat[-1], period
        return w

    return local_sgd


@also_right("the mean as a reduce-scatter and an all-gather, padded")
def in_two_halves():
    import torch

    def local_sgd(comm, gradient, w, batches, samples, *, lr, momentum, period):
        share = samples / comm.all_reduce(w.new_tensor(samples))
        pad, d = -len(w) % comm.size, len(w)
        u = torch.zeros_like(w)
        for done, batch in enumerate(batches, start=1):
            u = momentum * u + gradient(w, batch)
            w = w - lr * u
            if done % period == 0 or done == len(batches):
                padded = torch.nn.functional.pad(share * w, (0, pad))
                w = comm.all_gather(comm.reduce_scatter(padded))[:d]
        return w

    return local_sgd


EQUIVALENT = {
    "count_beside_the_weights local_sgd: "
    "comm.all_reduce(torch.cat([samples * w, w.new_tensor([samples])])) -> "
    "comm.all_reduce(torch.cat([samples * w, w.new_tensor([samples])]), op='mean')": (
        "sums and count are both divided by n, which leaves their quotient"
    ),
}
