"""Equally many layers on every stage: `even_split(layers, stages)` returns the stages' bounds.

Bounds are stages + 1 whole numbers: stage s holds the layers bounds[s] .. bounds[s+1] - 1. Numbers
of layers differ by one at most; which stages have one more is free. ValueError for more stages than
layers and for no stage. Source: Megatron-LM's rule for L divisible by p, made to fit any L.
Oracle: layers are dealt out like cards, one to each stage in turn.
"""

from distgrade.compare import Symptom
from distgrade.exercise import Case, Exact, also_right, slip, wrong
from distgrade.labs.lab05_layer_partitioning._bounds import invalid

NAMES = ("even_split",)
FORBID = (
    "distlab.partition.chunks.interleaved",
    "distlab.partition.plan.min_max",
    "distlab.partition.solver.optimum",
    "distlab.partition.textbook.table",
)
TOLERANCE = Exact(why="whole numbers")
CREDIT = {"equal stages": 1, "a remainder": 2}
CASES = (
    Case("twelve layers on four stages", "equal stages", layers=12, stages=4),
    Case("one stage", "equal stages", layers=7, stages=1),
    Case("as many stages as layers", "equal stages", layers=5, stages=5),
    Case("a remainder of one", "a remainder", layers=7, stages=3),
    Case("a remainder of all but one", "a remainder", layers=11, stages=4),
    Case("fewer than two layers a stage", "a remainder", layers=9, stages=5),
    Case("more stages than layers", "a remainder", layers=3, stages=4, expects=ValueError),
    Case("no stage", "a remainder", layers=3, stages=0, expects=ValueError),
)


def given(case, seed):
    # Fresh seeds grade more layers, with the same remainder.
    more = seed % 97 * case.stages if case.stages > 1 and case.layers > case.stages else 0
    return {"layers": case.layers + more, "stages": case.stages}


def observe(student, given):
    bounds = student.even_split(given["layers"], given["stages"])
    bounds = bounds.tolist() if hasattr(bounds, "tolist") else bounds
    if isinstance(bounds, list | tuple | range):
        bounds = [bound.item() if hasattr(bound, "item") else bound for bound in bounds]
    return {"bounds": bounds}


def oracle(case, given):
    sizes = [0] * given["stages"]
    for layer in range(given["layers"]):
        sizes[layer % given["stages"]] += 1
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return {"bounds": bounds}


def judge(got, expected, case):
    from itertools import pairwise

    bounds = got["bounds"]
    wrong = invalid(bounds, expected["bounds"][-1])
    if wrong:
        return wrong
    sizes = [j - i for i, j in pairwise(bounds)]
    if max(sizes) - min(sizes) > 1:
        seen = f"one stage has {max(sizes)} layers, another {min(sizes)}"
        return [Symptom("values", "the numbers of layers", seen)]
    return []


@also_right("the first stages have one more, by quotient and remainder")
def first_have_more():
    def even_split(layers, stages):
        if stages < 1 or stages > layers:
            raise ValueError("a stage would be empty")
        width, rest = divmod(layers, stages)
        bounds = [0]
        for stage in range(stages):
            bounds.append(bounds[-1] + width + (stage < rest))
        return bounds

    return even_split


@also_right("the last stages have one more, by rounding up what is left")
def last_have_more():
    def even_split(layers, stages):
        if not 0 < stages <= layers:
            raise ValueError
        bounds = [layers]
        for left in range(stages, 0, -1):
            bounds.insert(0, bounds[0] - -(-bounds[0] // left))
        return bounds

    return even_split


@also_right("numpy cuts a range, and the pieces are counted")
def by_numpy():
    import numpy as np

    def even_split(layers, stages):
        if stages > layers:
            raise ValueError
        pieces = np.array_split(np.arange(layers), stages)
        return np.cumsum([0, *map(len, pieces)])

    return even_split


last_takes_the_rest = slip(
    first_have_more,
    "The last stage takes all that is left over: spread it, one layer to a stage.",
    ("(stage < rest)", "rest * (stage == stages - 1)"),
)
first_takes_the_rest = slip(
    first_have_more,
    "The first stage takes all that is left over: spread it, one layer to a stage.",
    ("(stage < rest)", "rest * (stage == 0)"),
)
layers_dropped = slip(
    first_have_more,
    "Layers at the end are on no stage: the last bound is the number of layers.",
    ("(stage < rest)", "0"),
)
sizes_for_bounds = slip(
    first_have_more,
    "These are numbers of layers; a bound says where a stage begins, the last where it all ends.",
    ("bounds = [0]", "bounds = []"),
    ("bounds[-1] + width", "width"),
)
starts_alone = slip(
    first_have_more,
    "The last bound is missing: it is the end of the last stage, the number of layers.",
    ("return bounds", "return bounds[:-1]"),
)
last_layers = slip(
    first_have_more,
    "These are the stages' last layers; a bound is the first layer of the next stage.",
    ("return bounds", "return [0, *(bound - 1 for bound in bounds[1:])]"),
)
one_too_many = slip(
    first_have_more,
    "More stages have a layer extra than there are layers left over.",
    ("stage < rest", "stage <= rest"),
)
empty_stages = slip(
    first_have_more,
    "More stages than layers leave a stage without work: raise a ValueError.",
    (" or stages > layers", ""),
)


@wrong("Rounding up for every stage leaves nothing, or little, for the last ones.")
def rounded_up():
    def even_split(layers, stages):
        if stages < 1 or stages > layers:
            raise ValueError("a stage would be empty")
        width = -(-layers // stages)
        return [min(stage * width, layers) for stage in range(stages + 1)]

    return even_split


EQUIVALENT = {}
