"""Choices that a formula makes elementwise: fast for plain numbers, and the same for numpy columns.

numpy's own functions take 1 µs and more for a single number, and an estimate asks sixty of them.
"""

from typing import Any

import numpy as np

Numbers = Any  # a number, or a numpy column


def where(condition: Any, yes: Numbers, no: Numbers) -> Numbers:
    """Returns `yes` where the condition holds and `no` elsewhere.

    Example: `where(3 > 2, 10, 20) == 10`.
    """
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def larger(a: Numbers, b: Numbers) -> Numbers:
    """Returns the larger of two numbers, elementwise: `larger(2, 3) == 3`."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a > b else b


def smaller(a: Numbers, b: Numbers) -> Numbers:
    """Returns the smaller of two numbers, elementwise: `smaller(2, 3) == 2`."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a < b else b
