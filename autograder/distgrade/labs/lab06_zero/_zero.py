"""What the three steps of ZeRO share: the model on one device, by hand, and what a rank may spend.

A unit is a list of tensors [W, b] or [W, b, spare]; a layer is tanh(x W + b) with a unit's tensors
(a spare is never used). The loss is the mean over samples of the squared distance of 2 x and y.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import torch

from distgrade.compare import Symptom, ceiling, compare, told_as_changed
from distgrade.exercise import Case

NUMBER_BYTES = 8  # float64
SPARE_UNITS, ACTIVATIONS = 8, 2  # see most_held
MEASURED = ("memory",)
DEFAULTS = {"frozen": (), "spare": (), "measured": False, "samples": 2, "steps": 2}
CASES = (
    Case("one rank", "plain", n=1, units=((2, 3), (3, 2)), layers=(0, 1), **DEFAULTS),
    Case(
        "two ranks, three steps",
        "plain",
        n=2,
        units=((2, 4), (4, 3), (3, 1)),
        layers=(0, 1, 2),
        **DEFAULTS | {"steps": 3},
    ),
    Case(
        "three ranks, a tied unit and an unused tensor",
        "any model",
        n=3,
        units=((3, 3), (3, 3), (3, 2)),
        layers=(0, 1, 0, 2),
        **DEFAULTS | {"spare": (1,)},
    ),
    Case(
        "five ranks, a frozen unit",
        "any model",
        n=5,
        units=((2, 3), (3, 4), (4, 1)),
        layers=(0, 1, 2),
        **DEFAULTS | {"frozen": (1,), "samples": 1},
    ),
    Case(
        "bytes, four ranks",
        "bytes",
        n=4,
        units=((3, 5), (5, 5), (5, 2)),
        layers=(0, 1, 1, 2),
        **DEFAULTS | {"frozen": (0,), "samples": 1},
    ),
    Case(
        "memory, four ranks",
        "memory",
        n=4,
        units=((8, 8),) * 16,
        layers=tuple(range(16)),
        **DEFAULTS | {"measured": True, "samples": 1, "steps": 1},
    ),
)
COUNT = "Look at result.ledger, unit by unit: which calls send more than the task says?"
DROP = "Something is still held that nobody needs any more: drop whole tensors once they are used."


def trained(case, given) -> dict:
    """Return weights, masters, moments and losses after the steps of one device that has all data.

    Each is a list by unit of lists of arrays; losses are [rank][step]. Moments are sums over the
    history of gradients, in place of averages that move.
    """
    lr, beta1, beta2, eps, decay = given["adam"]
    params = [[t.numpy().copy() for t in unit] for unit in given["units"]]
    history = [[[] for _ in unit] for unit in params]
    moments = [[[np.zeros_like(t)] * 2 for t in unit] for unit in params]
    losses = [[] for _ in range(case.n)]
    for step in range(1, case.steps + 1):
        batches = [rank[step - 1] for rank in given["batches"]]
        x, y = (np.concatenate([pair[i].numpy() for pair in batches]) for i in (0, 1))
        held = [x]
        for u in case.layers:
            held.append(np.tanh(held[-1] @ params[u][0] + params[u][1]))
        error = 2 * held[-1] - y
        for rank, each in enumerate(np.split(np.square(error).sum(axis=1), case.n)):
            losses[rank].append(float(each.mean()))
        grads = [[np.zeros_like(t) for t in unit] for unit in params]
        by_out = 4 * error / len(y)
        for i, u in reversed(list(enumerate(case.layers))):
            by_out = by_out * (1 - np.square(held[i + 1]))
            grads[u][0] += held[i].T @ by_out
            grads[u][1] += by_out.sum(axis=0)
            by_out = by_out @ params[u][0].T
        for u, unit in enumerate(params):
            if u in case.frozen:
                continue
            for k, old in enumerate(unit):
                history[u][k].append(grads[u][k])
                ago = [(step - 1 - i, g) for i, g in enumerate(history[u][k])]
                m = sum((1 - beta1) * beta1**i * g for i, g in ago)
                v = sum((1 - beta2) * beta2**i * g * g for i, g in ago)
                root = np.sqrt(v / (1 - beta2**step)) + eps
                unit[k] = old - lr * (decay * old + m / (1 - beta1**step) / root)
                moments[u][k] = [m, v]
    return {
        "params": params,
        "m": [[m for m, _ in unit] for unit in moments],
        "v": [[v for _, v in unit] for unit in moments],
        "losses": losses,
    }


def shards(arrays: list, n: int) -> list[torch.Tensor]:
    """Return the n equal parts of arrays laid end to end, zeros behind them."""
    flat = np.concatenate([a.ravel() for a in arrays])
    padded = np.zeros(-(-len(flat) // n) * n)
    padded[: len(flat)] = flat
    return [torch.from_numpy(part.copy()) for part in np.split(padded, n)]


def whole(units: list) -> list:
    """Return lists of arrays as lists of tensors."""
    return [[torch.from_numpy(a.copy()) for a in unit] for unit in units]


def expected(case, given, stage: int) -> dict:
    """Return the oracle's tree for a stage."""
    one, n = trained(case, given), case.n
    parts = {key: [shards(unit, n) for unit in one[key]] for key in ("params", "m", "v")}
    units = range(len(case.units))
    return {
        "batches afterwards": given["batches"],
        "weights": [
            [parts["params"][u][rank] for u in units] if stage == 3 else whole(one["params"])
            for rank in range(n)
        ],
        "optimiser states": [
            [
                None if u in case.frozen else [parts[k][u][rank] for k in ("params", "m", "v")]
                for u in units
            ]
            for rank in range(n)
        ],
        "losses": one["losses"],
        "bytes sent": [most_sent(case, given, stage)] * n,
        "peak bytes": [most_held(case, given, stage)] * n,
    }


def _bytes(case, given) -> list[int]:
    """Return the bytes of each unit, padded."""
    sizes = [sum(t.numel() for t in unit) for unit in given["units"]]
    return [-(-size // case.n) * case.n * NUMBER_BYTES for size in sizes]


def most_sent(case, given, stage: int) -> Fraction:
    """Return the bytes that one rank sends in all steps.

    Each reduce-scatter and each all-gather of S bytes sends S (n-1)/n. ZeRO-1: both, once for each
    unit that is trained. ZeRO-2: a reduce-scatter for each layer that is trained, an all-gather for
    each unit that is. ZeRO-3: two all-gathers for each layer, a reduce-scatter where it's trained.
    """
    size = _bytes(case, given)
    trained_units = sum(size[u] for u in range(len(size)) if u not in case.frozen)
    trained_layers = sum(size[u] for u in case.layers if u not in case.frozen)
    all_layers = sum(size[u] for u in case.layers)
    sent = {
        1: 2 * trained_units,
        2: trained_layers + trained_units,
        3: trained_layers + 2 * all_layers,
    }
    return Fraction(case.n - 1, case.n) * sent[stage] * case.steps


def most_held(case, given, stage: int) -> int | None:
    """Return the bytes that one rank may hold at any time; None where they aren't measured.

    Kept through the step: weights, gradients and three numbers of the optimiser for each parameter,
    each whole or a shard. Passing through: up to SPARE_UNITS units (a layer's weights and
    gradients, laid flat, in shards, gathered, of two layers at once), and the activations, at most
    ACTIVATIONS vectors for each layer and sample.
    """
    if not case.measured:
        return None
    size = _bytes(case, given)
    total, part = sum(size), sum(size) // case.n
    kept = {1: 2 * total + 3 * part, 2: total + 4 * part, 3: 5 * part}
    width = max(max(shape) for shape in case.units)
    activations = ACTIVATIONS * width * case.samples * len(case.layers) * NUMBER_BYTES
    return kept[stage] + SPARE_UNITS * max(size) + activations


def symptoms(got, expected, case, rtol: float) -> list[Symptom]:
    """Return what is wrong: values first, then the cost that this case's group is about."""
    values = [key for key in expected if key not in ("bytes sent", "peak bytes")]
    found = told_as_changed(
        compare(*({k: tree[k] for k in values} for tree in (got, expected)), rtol=rtol, n=case.n)
    )
    if case.group == "bytes":
        sent = ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
        found += [replace(s, look=COUNT) for s in sent]
    if case.group == "memory":
        held = ceiling(got["peak bytes"], expected["peak bytes"], "bytes held at the peak")
        found += [
            replace(s, seen=s.seen.replace("are needed", "this stage may hold"), look=DROP)
            for s in held
        ]
    return found
