"""Fits the stacks' constants to published runs, and predicts runs from the others alone.

A fit makes the sum of squared logarithms of predicted over measured as small as it can be: a run
that is 5 % too fast counts as much as one that is 5 % too slow, and a large model no more than a
small one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from distlab.planner.published import Collective, Run
from distlab.planner.stack import Ring, Stack
from distlab.planner.stacks import Constant

# A fit needs runs with a stack: no exercise has them, so no room needs to FORBID anything here.

RING = tuple(Ring.__dataclass_fields__)


def with_constants(stack: Stack, constants: Sequence[Constant]) -> Stack:
    """Returns the stack with those constants that are its own, or its ring's."""
    own = {c.field: c.value for c in constants if stack.name in c.stacks}
    ring = {field: own.pop(field) for field in RING if field in own}
    return replace(stack, ring=replace(stack.ring, **ring), **own)


def least_squares(
    errors: Callable[[np.ndarray], np.ndarray], start: np.ndarray, *, steps: int = 40
) -> np.ndarray:
    """Returns the place near `start` where the sum of squared errors is least.

    Levenberg and Marquardt's method with differences for slopes: a step that makes things worse is
    taken back and made shorter.

    Example: with `errors = lambda x: x - 3.0` it comes to 3.
    """
    at, damping = np.array(start, float), 1e-3
    e = errors(at)
    for _ in range(steps):
        slopes = np.stack([(errors(at + d) - e) / 1e-5 for d in 1e-5 * np.eye(len(at))], axis=1)
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slopes.T @ e)
        step = np.clip(step, -1, 1)  # e-fold at most: the slopes hold nearby
        new = errors(at + step)
        if new @ new < e @ e:
            at, e, damping = at + step, new, damping / 10
            if np.abs(step).max() < 1e-6:
                break
        else:
            damping *= 10
    return at


def _fit(
    ratios: Callable[[Sequence[Constant]], Sequence[float]], start: Sequence[Constant]
) -> tuple[Constant, ...]:
    def at(logs: np.ndarray) -> tuple[Constant, ...]:
        values = np.exp(logs).tolist()
        return tuple(replace(c, value=value) for c, value in zip(start, values, strict=True))

    best = least_squares(lambda logs: np.log(ratios(at(logs))), np.log([c.value for c in start]))
    return at(best)


def fit(found: Sequence[Run], constants: Sequence[Constant]) -> tuple[Constant, ...]:
    """Returns the constants as they fit these runs best, from values near."""
    return _fit(
        lambda new: [run.predicted(with_constants(run.stack, new)) / run.measured for run in found],
        constants,
    )


def fit_ring(
    found: Sequence[Collective], ring: Ring, constants: Sequence[Constant]
) -> tuple[Constant, ...]:
    """Returns a ring's constants as they fit these collectives best, from values near."""

    def ratios(new: Sequence[Constant]) -> list[float]:
        changed = replace(ring, **{c.field: c.value for c in new})
        return [one.predicted_s(changed) / one.measured_s for one in found]

    return _fit(ratios, constants)


def left_out(found: Sequence[Run], constants: Sequence[Constant]) -> list[float]:
    """Returns for each run what the model predicts when its constants are fitted on the others.

    Runs of one `group` (None: of one row) are left out together.
    """
    predictions = []
    for run in found:
        others = [r for r in found if r is not run and not (run.group and r.group == run.group)]
        fitted = fit(others, constants)
        predictions.append(run.predicted(with_constants(run.stack, fitted)))
    return predictions
