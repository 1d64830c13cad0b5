"""What goes into a run rank by rank, and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distlab.ledger import Ledger

if TYPE_CHECKING:
    from distlab.timeline import Timeline


@dataclass(frozen=True)
class Result:
    """What a run gives back, each list by rank; a timeline only if it had a clock (`cluster=`)."""

    values: list[Any]
    ledger: Ledger
    stdout: list[str] = field(repr=False)
    timeline: "Timeline | None" = None


class per_rank:
    """Marks an argument of `run` of which each rank gets its own element, and no other rank's.

    Example: `run(row_linear, 2, per_rank([x0, x1]), per_rank([w0, w1]), b)`.
    """

    def __init__(self, values: Sequence[Any]):
        try:
            self.values = list(values)
        except TypeError:
            raise TypeError(
                f"per_rank takes a list with one value per rank, got {type(values).__name__}."
            ) from None

    def __repr__(self) -> str:
        return f"per_rank({len(self.values)} values)"
