"""The timeline of a run with a clock: what each rank computed and communicated, and when.

Times are kept as exact fractions of a second and rounded once, where a float is asked for. So a
time that has a closed form equals it, and no rounding error grows with the number of events.
"""

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from distlab.cost import exact

STREAMS = ("compute", "comm")


@dataclass(frozen=True)
class Event:
    """One piece of work on one stream ("compute" or "comm") of one rank.

    `kind` is "compute" or the operation ("all_reduce"), `role` says whose colour it gets.
    """

    rank: int
    stream: str
    name: str
    kind: str
    start: Fraction
    end: Fraction
    payload_bytes: int = 0
    role: str = "communication"

    def __post_init__(self):
        if self.stream not in STREAMS:
            raise ValueError(f"stream={self.stream!r} does not exist; it is compute or comm.")
        for name in ("start", "end"):
            if not isinstance(getattr(self, name), Fraction):
                object.__setattr__(self, name, exact(getattr(self, name)))

    @property
    def start_s(self) -> float:
        """When it starts, in seconds since the start of the run."""
        return float(self.start)

    @property
    def end_s(self) -> float:
        """When it ends."""
        return float(self.end)

    @property
    def duration_s(self) -> float:
        """How long it takes."""
        return float(self.end - self.start)

    def __repr__(self) -> str:
        return (
            f"Event(rank {self.rank}, {self.stream}, {self.name!r}, "
            f"{self.start_s:.6g} to {self.end_s:.6g} s)"
        )


class Timeline:
    """All events of a run, by rank, stream and start."""

    def __init__(self, events: Iterable[Event] = (), ranks: int = 0):
        """`ranks` counts the ranks, also those without an event."""
        order = {stream: i for i, stream in enumerate(STREAMS)}
        self.events = tuple(sorted(events, key=lambda e: (e.rank, order[e.stream], e.start, e.end)))
        self.ranks = max([ranks, *(e.rank + 1 for e in self.events)])

    def of(self, rank: int, stream: str | None = None) -> tuple[Event, ...]:
        """Returns one rank's events, of one stream or of both, in order."""
        return tuple(e for e in self.events if e.rank == rank and stream in (None, e.stream))

    @property
    def makespan_s(self) -> float:
        """The end of the last event, counted from the start of the run."""
        return float(max((e.end for e in self.events), default=Fraction(0)))

    def busy_s(self, rank: int, stream: str) -> float:
        """Returns how long a rank's stream is at work; waiting is not work."""
        return float(_length(_spans(self.of(rank, stream))))

    def exposed_comm_s(self, rank: int) -> float:
        """Returns how long a rank communicates without computing at the same time.

        Waiting for others to arrive counts as neither.
        """
        comm, compute = (_spans(self.of(rank, s)) for s in ("comm", "compute"))
        return float(_length(comm) - _length(_shared(comm, compute)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timeline) and self.events == other.events

    __hash__ = None

    def __repr__(self) -> str:
        return (
            f"timeline: {len(self.events):,} events on {self.ranks:,} ranks, "
            f"{self.makespan_s * 1e3:.6g} ms"
        )

    # -- for Perfetto -----------------------------------------------------------------------------

    def chrome_trace(self) -> dict[str, Any]:
        """Returns the timeline in Chrome's trace format, which ui.perfetto.dev opens.

        A process per rank, a thread per stream, times in microseconds.
        """
        rows: list[dict[str, Any]] = []
        for rank in range(self.ranks):
            rows.append(_meta(rank, 0, "process_name", {"name": f"rank {rank}"}))
            rows.append(_meta(rank, 0, "process_sort_index", {"sort_index": rank}))
            for tid, name in enumerate(("compute", "communication")):
                rows.append(_meta(rank, tid, "thread_name", {"name": name}))
                rows.append(_meta(rank, tid, "thread_sort_index", {"sort_index": tid}))
        for e in self.events:
            rows.append(
                {
                    "name": e.name,
                    "cat": e.kind,
                    "ph": "X",
                    "pid": e.rank,
                    "tid": STREAMS.index(e.stream),
                    "ts": float(e.start * 1_000_000),
                    "dur": float((e.end - e.start) * 1_000_000),
                    "args": {"bytes": e.payload_bytes, "role": e.role},
                }
            )
        return {"traceEvents": rows, "displayTimeUnit": "ms"}

    def save_trace(self, path: str | Path) -> None:
        """Writes `chrome_trace()` as JSON; with the ending .gz, packed (Perfetto opens both)."""
        data = json.dumps(self.chrome_trace()).encode()
        packed = Path(path).suffix == ".gz"
        Path(path).write_bytes(gzip.compress(data, mtime=0) if packed else data)


def _meta(rank: int, tid: int, what: str, args: dict) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": rank, "tid": tid, "ts": 0, "args": args}


def _spans(events: Iterable[Event]) -> list[tuple[Fraction, Fraction]]:
    """Returns when any of the events (ordered by start) goes on, as disjoint spans in order."""
    spans: list[tuple[Fraction, Fraction]] = []
    for e in events:
        if spans and e.start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], e.end)
        else:
            spans.append((e.start, e.end))
    return spans


def _length(spans: Iterable[tuple[Fraction, Fraction]]) -> Fraction:
    return sum((end - start for start, end in spans), Fraction(0))


def _shared(a: list[tuple], b: list[tuple]) -> list[tuple[Fraction, Fraction]]:
    """Returns what two lists of disjoint spans have in common."""
    shared, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            shared.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return shared
