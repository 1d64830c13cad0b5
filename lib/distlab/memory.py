"""Memory's vocabulary: units that are never mixed, bytes per parameter, and the parts of a stack.

A size is a number of bytes until it is printed; whoever prints it names the unit. 1 GB = 1e9 bytes
and 1 GiB = 2^30 bytes: 80 GB are 74.5 GiB, and a limit read in the wrong one is off by 7 %.

What a model needs (its state, its activations) is the students' work in lab 1; here is what their
answers are made of. `Policy` says how many bytes each parameter costs, and for what.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

# Nothing here is an answer of lab 1, so no room needs to FORBID it: sizes come in, text goes out.

UNITS: Mapping[str, int] = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

# Every part that a memory stack may name, in the order they are piled up, with the role that
# colours it. "optimiser states" as a whole or its three parts, never both: they would count twice.
PARTS: Mapping[str, str] = {
    "weights": "weights",
    "gradients": "gradients",
    "master weights": "optimiser states",
    "first moment": "optimiser states",
    "second moment": "optimiser states",
    "optimiser states": "optimiser states",
    "activations": "activations",
}
OPTIMISER_PARTS = tuple(p for p, role in PARTS.items() if role == "optimiser states" != p)


def in_unit(size_bytes: float, unit: str) -> float:
    """Returns how many of a unit a size is: `in_unit(80e9, "GiB")` is 74.5.

    Raises: ValueError for a unit that does not exist.
    """
    if unit not in UNITS:
        raise ValueError(f"{unit!r} is no unit of size; there are {', '.join(UNITS)}.")
    return size_bytes / UNITS[unit]


def size_text(size_bytes: float, unit: str = "GB", *, digits: int = 3) -> str:
    """Returns a size as text with at least `digits` significant digits, never an exponent.

    Example: `size_text(2.869e9) == "2.87 GB"`, `size_text(6.4e12) == "6,400 GB"`.
    """
    number = in_unit(size_bytes, unit)
    # floor(log10) is the place of the first digit: 0 for 2.87, 3 for 6,400, -2 for 0.0503.
    places = digits - 1 - math.floor(math.log10(abs(number))) if number else 0
    text = f"{number:,.{max(places, 0)}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Bytes that one parameter costs in training, by part.

    `master` is the optimiser's own FP32 copy of the weight: 0 where the weight itself is FP32.

    Example: `MIXED_ADAM.optimiser == 12` (the K of ZeRO) and `MIXED_ADAM.total == 16`.
    """

    name: str
    weight: int
    gradient: int
    master: int
    first_moment: int
    second_moment: int

    def __post_init__(self):
        for part in (self.weight, self.gradient, *self._optimiser()):
            if part < 0:
                raise ValueError(f"{self.name}: a part can't have {part} bytes.")

    def _optimiser(self) -> tuple[int, int, int]:
        return self.master, self.first_moment, self.second_moment

    @property
    def optimiser(self) -> int:
        """Bytes of optimiser states per parameter: K."""
        return sum(self._optimiser())

    @property
    def total(self) -> int:
        """Bytes of model state per parameter."""
        return self.weight + self.gradient + self.optimiser


MIXED_ADAM = Policy(  # ZeRO (2020), section 3.1; the course's policy unless another is named
    name="mixed precision, Adam",
    weight=2,
    gradient=2,
    master=4,
    first_moment=4,
    second_moment=4,
)
MIXED_ADAM_FP32_GRADIENTS = Policy(  # Megatron-LM: gradients are accumulated in FP32
    name="mixed precision, Adam, FP32 gradients",
    weight=2,
    gradient=4,
    master=4,
    first_moment=4,
    second_moment=4,
)
FP32_ADAM = Policy(  # the weight is its own master copy
    name="FP32, Adam", weight=4, gradient=4, master=0, first_moment=4, second_moment=4
)
BF16_ADAM = Policy(  # no master copy: small updates are rounded away
    name="BF16 throughout, Adam", weight=2, gradient=2, master=0, first_moment=2, second_moment=2
)
MIXED_MOMENTUM = Policy(
    name="mixed precision, SGD with momentum",
    weight=2,
    gradient=2,
    master=4,
    first_moment=4,
    second_moment=0,
)
POLICIES = (MIXED_ADAM, MIXED_ADAM_FP32_GRADIENTS, FP32_ADAM, BF16_ADAM, MIXED_MOMENTUM)


def ordered_parts(sizes: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """Returns (part, bytes, role) from a stack's bottom to its top; parts of 0 bytes are left out.

    Raises: ValueError for an unknown part, a negative size, or optimiser states counted twice.
    """
    unknown = [part for part in sizes if part not in PARTS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no part of a stack; there are {', '.join(PARTS)}.")
    for part, size_bytes in sizes.items():
        if size_bytes < 0:
            raise ValueError(f"{part} can't have {size_bytes} bytes.")
    double = [part for part in OPTIMISER_PARTS if part in sizes]
    if double and "optimiser states" in sizes:
        raise ValueError(f"{double[0]!r} is a part of 'optimiser states': it would count twice.")
    return [(part, sizes[part], role) for part, role in PARTS.items() if sizes.get(part)]
