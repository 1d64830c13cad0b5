"""Random data that depends on its key alone, never on call order or on global random state."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seed_of(*key: int | str) -> int:
    """Returns a 63-bit seed for a key of ints and strings.

    Example: `seed_of("weights", 3)` is the same number in every process and on every machine.
    """
    if not key or not all(isinstance(part, int | str) for part in key):
        raise TypeError(f"a seed key is made of ints and strings, got {key!r}")
    # repr keeps 1 and "1" apart; the separator keeps ("a", "bc") and ("ab", "c") apart.
    digest = hashlib.sha256("\x1f".join(map(repr, key)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*key: int | str) -> "torch.Generator":
    """Returns a new CPU generator seeded by the key."""
    import torch

    return torch.Generator().manual_seed(seed_of(*key))


def integers(
    shape: tuple[int, ...],
    *key: int | str,
    low: int = -4,
    high: int = 4,
    dtype: "torch.dtype | None" = None,
) -> "torch.Tensor":
    """Returns whole numbers in [low, high] without zero, as float64 unless `dtype` says otherwise.

    Sums and products of such numbers are exact in float64, so a check on them needs no tolerance;
    and since none is zero, no rank's contribution can be lost unseen.

    Example: `integers((2, 3), "x", 0).shape == (2, 3)`.
    """
    import torch

    values = torch.tensor([v for v in range(low, high + 1) if v != 0], dtype=torch.int64)
    if len(values) == 0:
        raise ValueError(f"no whole number other than zero lies in [{low}, {high}]")
    index = torch.randint(len(values), tuple(shape), generator=generator(*key))
    return values[index].to(dtype or torch.float64)


def normal(
    shape: tuple[int, ...], *key: int | str, dtype: "torch.dtype | None" = None
) -> "torch.Tensor":
    """Returns standard normal numbers, as float64 unless `dtype` says otherwise.

    Example: `normal((4,), "noise").shape == (4,)`.
    """
    import torch

    return torch.randn(tuple(shape), generator=generator(*key), dtype=dtype or torch.float64)
