"""What the rooms of this lab ask of bounds: first that they are a partition, then that it is good.

An optimum is rarely alone (15 of 165 partitions of the lecture's layers are as good), so no room
compares bounds with bounds.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

from distgrade.compare import Symptom, kind_of

ROUNDING = Fraction(1, 10**12)  # sums of a few dozen decimals, added in any order


def invalid(bounds: Sequence, layers: int) -> list[Symptom]:
    """Return what keeps bounds from being a partition of so many layers; the first thing only."""
    what = "the bounds"
    for place, bound in enumerate(bounds):
        if type(bound) is not int:
            return [Symptom("structure", what, f"bounds[{place}] is {kind_of(bound)}")]
    if bounds[0] != 0:
        seen = f"they begin with {bounds[0]}, not 0: the layers before are on no stage"
        return [Symptom("values", what, seen)]
    if bounds[-1] != layers:
        return [
            Symptom("values", what, f"they end with {bounds[-1]}, and there are {layers} layers")
        ]
    for place, bound in enumerate(bounds):
        if not 0 <= bound <= layers:
            return [Symptom("values", what, f"bounds[{place}] lies beyond the {layers} layers")]
    for stage, (i, j) in enumerate(pairwise(bounds)):
        if i >= j:
            return [
                Symptom("values", what, f"stage {stage} goes from {i} to {j}: it holds no layer")
            ]
    return []


def changed(got: dict, expected: dict) -> list[Symptom]:
    """Return which inputs, named "... afterwards", are not what they were."""
    look = "Leave the inputs as they are: write results into a new list."
    return [
        Symptom("values", name, "this input was changed", look)
        for name, value in expected.items()
        if name.endswith(" afterwards") and got[name] != value
    ]


def longer(
    bounds: Sequence[int], best: Sequence[int], load: Callable[[int, int, int], Fraction]
) -> list[Symptom]:
    """Return by how much the longest stage is longer than in a best partition.

    `load(stage, i, j)` is the time of a stage with the layers i .. j-1.
    """
    yours, least = (
        max(load(stage, i, j) for stage, (i, j) in enumerate(pairwise(places)))
        for places in (bounds, best)
    )
    if yours <= least * (1 + ROUNDING):
        return []
    ratio = f"{float(yours / least):.4g} times as long as it need be" if least else "not 0"
    return [Symptom("values", "the longest stage", f"it is {ratio}")]
