"""Fits a stack's few constants to published runs, and predicts each run from the others alone.

A fit makes the sum of squared logarithms of predicted over measured as small as it can be: a run
that is 5 % too fast counts as much as one that is 5 % too slow, and a large model no more than a
small one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distlab.planner.published import Collective, Run
from distlab.planner.stack import Ring, Stack

# A fit needs runs with a stack: no exercise has them, so no room needs to FORBID anything here.

RING = tuple(Ring.__dataclass_fields__)


def with_constants(stack: Stack, constants: Mapping[str, float]) -> Stack:
    """Returns the stack with these constants, of its own or of its ring."""
    ring = {k: v for k, v in constants.items() if k in RING}
    own = {k: v for k, v in constants.items() if k not in RING}
    return replace(stack, ring=replace(stack.ring, **ring), **own)


def least_squares(
    errors: Callable[[np.ndarray], np.ndarray], start: np.ndarray, *, steps: int = 40
) -> np.ndarray:
    """Returns the logarithms at which the sum of squared errors is least, near `start`.

    Levenberg and Marquardt's method with differences for slopes: a step that makes things worse is
    taken back and made shorter.
    """
    at, damping = np.array(start, float), 1e-3
    e = errors(at)
    for _ in range(steps):
        slopes = np.stack([(errors(at + d) - e) / 1e-5 for d in 1e-5 * np.eye(len(at))], axis=1)
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -slopes.T @ e)
        new = errors(at + step)
        if new @ new < e @ e:
            at, e, damping = at + step, new, damping / 10
            if np.abs(step).max() < 1e-7:
                break
        else:
            damping *= 10
    return at


def fit(found: Sequence[Run], constants: Mapping[str, float]) -> dict[str, float]:
    """Returns the constants that fit these runs best, from a start near them."""

    def errors(logs: np.ndarray) -> np.ndarray:
        new = dict(zip(constants, np.exp(logs).tolist(), strict=True))
        ratios = [run.predicted(with_constants(run.stack, new)) / run.measured for run in found]
        return np.log(ratios)

    best = least_squares(errors, np.log(list(constants.values())))
    return dict(zip(constants, np.exp(best).tolist(), strict=True))


def fit_ring(
    found: Sequence[Collective], ring: Ring, constants: Mapping[str, float]
) -> dict[str, float]:
    """Returns a ring's constants that fit these collectives best, from a start near them."""

    def errors(logs: np.ndarray) -> np.ndarray:
        new = replace(ring, **dict(zip(constants, np.exp(logs).tolist(), strict=True)))
        return np.log([one.predicted_s(new) / one.measured_s for one in found])

    best = least_squares(errors, np.log(list(constants.values())))
    return dict(zip(constants, np.exp(best).tolist(), strict=True))


def left_out(found: Sequence[Run], constants: Mapping[str, float]) -> list[float]:
    """Returns for each run what the model predicts when its constants are fitted on the others."""
    predictions = []
    for i, run in enumerate(found):
        others = [*found[:i], *found[i + 1 :]]
        predictions.append(run.predicted(with_constants(run.stack, fit(others, constants))))
    return predictions
