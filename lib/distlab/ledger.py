"""The ledger: who called what, how often, and how many bytes that costs on a ring.

Ring bytes are what one rank *sends* when a collective runs as a ring over its group of n ranks.
With a payload of S bytes (the tensor that the rank passed in):

| operation      | ring bytes sent by one rank                                  |
|----------------|--------------------------------------------------------------|
| all_reduce     | 2 (n-1)/n S   (a reduce-scatter, then an all-gather)          |
| reduce_scatter | (n-1)/n S                                                    |
| all_gather     | (n-1) S       (S is the rank's own part)                      |
| all_to_all     | what is meant for other ranks                                 |
| broadcast      | S, and 0 on the last rank of the chain that starts at `src`   |
| send, sendrecv | S                                                            |
| recv, barrier, split | 0                                                      |

Derived in the chapter on data parallelism; the same numbers as in Patarasuk and Yuan (2009).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction


def ring_bytes(op: str, n: int, payload_bytes: int, direct_bytes: int = 0) -> Fraction:
    """Returns the bytes one of n ranks sends for calls with this total payload, exactly.

    `direct_bytes` is the sum for operations whose traffic is not a fixed share of the payload
    (`all_to_all`, `broadcast`, `send`, `sendrecv`).

    Example: `ring_bytes("all_reduce", 4, 80) == 120`.
    """
    share = {
        "all_reduce": Fraction(2 * (n - 1), n),
        "reduce_scatter": Fraction(n - 1, n),
        "all_gather": Fraction(n - 1),
    }
    return share[op] * payload_bytes if op in share else Fraction(direct_bytes)


@dataclass(frozen=True)
class Entry:
    """All calls of one operation that one rank made in one group."""

    rank: int
    op: str
    group: tuple[int, ...]
    calls: int
    payload_bytes: int
    ring_bytes: Fraction


class Ledger:
    """What a run communicated, by rank, operation and group of (global) ranks."""

    def __init__(self, entries: Iterable[Entry] = ()):
        self.entries = tuple(sorted(entries, key=lambda e: (e.rank, e.op, e.group)))

    def _select(self, op: str | None, rank: int | None) -> list[Entry]:
        return [e for e in self.entries if op in (None, e.op) and rank in (None, e.rank)]

    def calls(self, op: str | None = None, rank: int | None = None) -> int:
        """Returns how many calls were made, by one rank or by all together."""
        return sum(e.calls for e in self._select(op, rank))

    def payload_bytes(self, op: str | None = None, rank: int | None = None) -> int:
        """Returns the bytes of the tensors passed in, by one rank or by all together."""
        return sum(e.payload_bytes for e in self._select(op, rank))

    def ring_bytes(self, op: str | None = None, rank: int | None = None) -> Fraction:
        """Returns the exact bytes sent on rings, by one rank or by all together."""
        return sum((e.ring_bytes for e in self._select(op, rank)), Fraction(0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.entries == other.entries

    __hash__ = None

    def _rows(self) -> list[tuple[str, ...]]:
        """Rows of the printed table; ranks that did the same share a row."""
        shared: dict[tuple, list[int]] = {}
        for e in self.entries:
            key = (e.op, e.group, e.calls, e.payload_bytes, e.ring_bytes)
            shared.setdefault(key, []).append(e.rank)
        return [
            (
                rank_ranges(ranks),
                op,
                rank_ranges(group),
                f"{calls:,}",
                f"{payload:,}",
                f"{int(ring):,}" if ring.denominator == 1 else f"{float(ring):,.1f}",
            )
            for (op, group, calls, payload, ring), ranks in shared.items()
        ]

    _HEAD = ("rank", "operation", "group", "calls each", "payload B each", "sent B each")

    def __str__(self) -> str:
        rows = [self._HEAD, *self._rows()]
        if len(rows) == 1:
            return "ledger: nothing was communicated"
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._HEAD))]
        lines = []
        for row in rows:
            left = [row[i].ljust(widths[i]) for i in range(3)]
            right = [row[i].rjust(widths[i]) for i in range(3, 6)]
            lines.append("  ".join(left + right).rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.entries:
            return "<p>ledger: nothing was communicated</p>"
        head = "".join(f"<th>{cell}</th>" for cell in self._HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in self._rows()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def rank_ranges(ranks: Iterable[int]) -> str:
    """Returns ranks as short text: `rank_ranges([0, 1, 2, 5]) == "0-2, 5"`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(
        str(p[0]) if len(p) == 1 else f"{p[0]}{', ' if len(p) == 2 else '-'}{p[-1]}" for p in parts
    )
