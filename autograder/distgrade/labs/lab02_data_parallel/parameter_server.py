"""Asynchronous SGD: `async_sgd(gradient, w0, lr, arrivals, workers)` -> (weights, staleness).

A server holds the weights. All workers start from a copy of w0. Push k comes from worker
arrivals[k]: it brings the gradient at the weights of that worker's copy, `gradient(copy, worker)`.
The server takes the step w <- w - lr * gradient, and the worker pulls a copy of the new weights.
Returned are, after each push, the server's weights, and how many pushes the server had taken from
all workers since the copy was pulled, this one not counted.
Shapes: w0 and each of the weights [d]; float64. Ranks don't occur: the order of arrivals is given.
Source: Dean et al. 2012 (Large Scale Distributed Deep Networks), section 4.1; derived below.
Oracle: each push looks up its worker's previous one in the history, in exact fractions.
"""

from distgrade.compare import compare, told_as_changed
from distgrade.exercise import Case, Exact, also_right, wrong

NAMES = ("async_sgd",)
FORBID = ()
TOLERANCE = Exact(why="whole numbers and a rate of 1/4: ten steps are exact in float64")
CREDIT = {"weights": 3, "staleness": 1}
CASES = (
    Case("one worker", "weights", workers=1, arrivals=(0, 0, 0), d=2),
    Case("two workers in turn", "weights", workers=2, arrivals=(0, 1, 0, 1, 0), d=3),
    Case("a slow worker", "weights", workers=3, arrivals=(0, 1, 0, 1, 1, 0, 2, 0, 2), d=3),
    Case("one never arrives", "weights", workers=4, arrivals=(2, 0, 2, 2, 3, 0, 3), d=3),
    Case("five workers", "staleness", workers=5, arrivals=(3, 1, 4, 1, 0, 2, 3, 0, 2, 1), d=3),
    Case("ages, three workers", "staleness", workers=3, arrivals=(1, 2, 2, 0, 1, 0), d=3),
)


def given(case, seed):
    from distlab.seeds import integers

    key, d = ("parameter_server", case.name, seed), (case.d,)
    every = range(case.workers)
    return {
        "w0": integers(d, *key, "w0", low=-8, high=8),
        "steepness": [integers(d, *key, "steepness", k, low=1, high=3) for k in every],
        "lowest": [integers(d, *key, "lowest", k, low=-9, high=9) for k in every],
        "arrivals": list(case.arrivals),
        "lr": 0.25,
    }


def observe(student, given):
    import torch

    w0, arrivals = given["w0"].clone(), list(given["arrivals"])

    def gradient(w, worker):
        return given["steepness"][worker] * (w - given["lowest"][worker])

    answer = student.async_sgd(gradient, w0, given["lr"], arrivals, len(given["lowest"]))
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise TypeError("`async_sgd` should return two lists, weights and staleness.")
    weights, staleness = answer
    if isinstance(weights, tuple | list):
        weights = [w.detach().clone() if isinstance(w, torch.Tensor) else w for w in weights]
    return {
        "w0 afterwards": w0,
        "arrivals afterwards": arrivals,
        "weights": weights,
        "staleness": staleness,
    }


def oracle(case, given):
    from fractions import Fraction

    import torch

    exact = [[Fraction(x) for x in given["w0"].tolist()]]  # entry k: before push k
    ages = []
    for push, worker in enumerate(case.arrivals):
        earlier = [k for k in range(push) if case.arrivals[k] == worker]
        seen = max(earlier, default=-1) + 1  # pulled right after its previous push
        slope, lowest = (given[key][worker].tolist() for key in ("steepness", "lowest"))
        rate = Fraction(given["lr"])
        columns = zip(exact[push], exact[seen], slope, lowest, strict=True)
        exact.append([now - rate * Fraction(a) * (old - Fraction(c)) for now, old, a, c in columns])
        ages.append(push - seen)
    return {
        "w0 afterwards": given["w0"],
        "arrivals afterwards": list(case.arrivals),
        "weights": [torch.tensor(list(map(float, w)), dtype=torch.float64) for w in exact[1:]],
        "staleness": ages,
    }


def judge(got, expected, case):
    keys = ["w0 afterwards", "arrivals afterwards", case.group]
    return told_as_changed(
        compare(*({k: tree[k] for k in keys} for tree in (got, expected)), rtol=0)
    )


@wrong("The gradient is computed at the server's newest weights: a worker only has its own copy.")
def newest_weights():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, version = w0, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w = w - lr * gradient(w, worker)
            weights.append(w)
            staleness.append(push - version[worker])
            version[worker] = push + 1
        return weights, staleness

    return async_sgd


@wrong(
    "No gradient is ever old: a worker pulls after its own push only, the others keep old copies."
)
def pulls_first():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, weights, staleness = w0, [], []
        for worker in arrivals:
            w = w - lr * gradient(w, worker)
            weights.append(w)
            staleness.append(0)
        return weights, staleness

    return async_sgd


@wrong("Each worker steps on weights of its own: that is local SGD. The server's copy takes steps.")
def own_weights():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        own, version = [w0] * workers, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            own[worker] = own[worker] - lr * gradient(own[worker], worker)
            weights.append(own[worker])
            staleness.append(push - version[worker])
            version[worker] = push + 1
        return weights, staleness

    return async_sgd


@wrong("The worker pulls the weights from before its own push: it gets those that include it.")
def pulls_too_early():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, version = w0, [w0] * workers, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            step = lr * gradient(copies[worker], worker)
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w, push
            w = w - step
            weights.append(w)
        return weights, staleness

    return async_sgd


@wrong("No worker ever pulls again: every gradient is taken at w0.")
def never_pulls():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, weights = w0, []
        for worker in arrivals:
            w = w - lr * gradient(w0, worker)
            weights.append(w)
        return weights, list(range(len(arrivals)))

    return async_sgd


@wrong("The step is divided by the number of workers: each push is a whole step of its own.")
def averaged():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, version = w0, [w0] * workers, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w = w - lr * gradient(copies[worker], worker) / workers
            weights.append(w)
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w, push + 1
        return weights, staleness

    return async_sgd


@wrong("The server waits for all workers and takes their mean: that is synchronous SGD.")
def synchronous():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, weights = w0, []
        for _ in arrivals:
            w = w - lr * sum(gradient(w, k) for k in range(workers)) / workers
            weights.append(w)
        return weights, [0] * len(arrivals)

    return async_sgd


@wrong("A worker's own push counts as one it missed: staleness is one too high after its first.")
def counts_its_own():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, version = w0, [w0] * workers, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w = w - lr * gradient(copies[worker], worker)
            weights.append(w)
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w, push
        return weights, staleness

    return async_sgd


@wrong("Staleness is one too high everywhere: a push doesn't count itself.")
def counts_this_push():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, version = w0, [w0] * workers, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w = w - lr * gradient(copies[worker], worker)
            weights.append(w)
            staleness.append(push + 1 - version[worker])
            copies[worker], version[worker] = w, push + 1
        return weights, staleness

    return async_sgd


@wrong("Staleness is workers - 1 only if all take turns: count the pushes since the pull.")
def always_workers_less_one():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, weights = w0, [w0] * workers, []
        for worker in arrivals:
            w = w - lr * gradient(copies[worker], worker)
            weights.append(w)
            copies[worker] = w
        return weights, [workers - 1] * len(arrivals)

    return async_sgd


@wrong("Staleness counts all pushes before this one, not those since the worker's pull.")
def counts_all_pushes():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, weights = w0, [w0] * workers, []
        for worker in arrivals:
            w = w - lr * gradient(copies[worker], worker)
            weights.append(w)
            copies[worker] = w
        return weights, list(range(len(arrivals)))

    return async_sgd


@wrong("One tensor changes in place, so all copies and all results are the same: make new ones.")
def in_place():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w = w0.clone()
        copies, version = [w] * workers, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w -= lr * gradient(copies[worker], worker)
            weights.append(w)
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w, push + 1
        return weights, staleness

    return async_sgd


@wrong(
    "`w -= ...` changes the tensor that lists and copies hold, too: w = w - ... makes a new one."
)
def results_share_memory():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w = w0.clone()
        copies, version = [w0.clone() for _ in range(workers)], [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w -= lr * gradient(copies[worker], worker)
            weights.append(w)
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w, push + 1
        return weights, staleness

    return async_sgd


@wrong("w0 itself takes the steps: clone it first, and hand out clones.")
def w0_changed():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        copies, version = [w0.clone() for _ in range(workers)], [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w0 -= lr * gradient(copies[worker], worker)
            weights.append(w0.clone())
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w0.clone(), push + 1
        return weights, staleness

    return async_sgd


@wrong("The list starts with w0: one entry for each push, taken after its step.")
def before_each_push():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, version = w0, [w0] * workers, [0] * workers
        weights, staleness = [w0], []
        for push, worker in enumerate(arrivals):
            w = w - lr * gradient(copies[worker], worker)
            weights.append(w)
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w, push + 1
        return weights, staleness

    return async_sgd


@wrong("The gradient is added: a step goes against it.")
def uphill():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        w, copies, version = w0, [w0] * workers, [0] * workers
        weights, staleness = [], []
        for push, worker in enumerate(arrivals):
            w = w + lr * gradient(copies[worker], worker)
            weights.append(w)
            staleness.append(push - version[worker])
            copies[worker], version[worker] = w, push + 1
        return weights, staleness

    return async_sgd


@also_right(
    "a worker computes its gradient as soon as it has pulled, and brings it when it arrives"
)
def computed_at_the_pull():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        waiting = {worker: (gradient(w0, worker), 0) for worker in range(workers)}
        server, weights, staleness = w0.clone(), [], []
        for taken, worker in enumerate(arrivals):
            brought, pulled_at = waiting[worker]
            server -= lr * brought
            weights.append(server.clone())
            staleness.append(taken - pulled_at)
            waiting[worker] = gradient(server.clone(), worker), taken + 1
        return weights, staleness

    return async_sgd


@also_right("the server keeps its history, and a worker only the number of its version")
def by_version():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        history, version, staleness = [w0], [0] * workers, []
        for worker in arrivals:
            staleness.append(len(history) - 1 - version[worker])
            old = history[version[worker]]
            history.append(history[-1] - lr * gradient(old, worker))
            version[worker] = len(history) - 1
        return history[1:], staleness

    return async_sgd


@also_right("a counter for each worker: every push makes the others' copies one older")
def by_counters():
    def async_sgd(gradient, w0, lr, arrivals, workers):
        copies, age = [w0.clone() for _ in range(workers)], [0] * workers
        w, weights, staleness = w0.clone(), [], []
        for worker in arrivals:
            staleness.append(age[worker])
            w = w - lr * gradient(copies[worker], worker)
            weights.append(w)
            copies[worker] = w.clone()
            age = [count + 1 for count in age]
            age[worker] = 0
        return weights, staleness

    return async_sgd


EQUIVALENT = {}
