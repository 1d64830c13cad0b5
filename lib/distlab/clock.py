"""The simulator's clock: when each rank computes and communicates, on links with a latency.

Each rank has two streams, as a GPU has. The compute stream is the rank's own time. On the comm
stream calls run one at a time, in the order in which the rank launched them. A collective starts
when every member has launched it and has come to it on its comm stream; it then takes the same time
on all of them. A call without `async_op` holds the compute stream until it ends; with `async_op`,
`wait()` does. A message starts when both sides have come to it; a sendrecv is two messages, both
ways at once.

How long things take is in `distlab.cost` alone: `collective_time_s`, `send_time_s` for a message,
`compute_time_s`. An all_to_all with uneven parts takes as long as if every rank sent as much as the
busiest one sends or receives. A barrier is an all_reduce of nothing; a split takes no time.

What this leaves out: links are never shared between groups that run at the same time, and
communication takes nothing away from computing.
"""

from collections import deque
from collections.abc import Sequence
from fractions import Fraction

from distlab import cost
from distlab.hardware import Cluster
from distlab.timeline import Event, Timeline


class Part:
    """One rank's part in a call, from its launch to its end."""

    __slots__ = ("end", "launched", "meetings", "missing", "name", "op", "payload_bytes", "rank",
                 "ready", "start", "waiting")  # fmt: skip

    def __init__(self, rank: int, op: str, name: str, payload_bytes: int, meetings: int = 1):
        self.rank = rank
        self.op = op
        self.name = name
        self.payload_bytes = payload_bytes
        self.missing = meetings  # how many of its meetings have no time yet
        self.meetings: list[Meeting] = []
        self.launched = Fraction(0)
        self.ready: Fraction | None = None  # when the comm stream has come to it
        self.start: Fraction | None = None
        self.end = Fraction(0)
        self.waiting = False  # its rank is blocked until it has an end

    @property
    def done(self) -> bool:
        """Whether it is known when this ends."""
        return not self.missing


class Meeting:
    """Parts that start together: all of a collective, or the two sides of a message."""

    __slots__ = ("missing", "op", "parts", "ranks", "size_bytes")

    def __init__(self, op: str, ranks: tuple[int, ...], members: int, size_bytes: int = 0):
        self.op = op
        self.ranks = ranks
        self.parts: list[Part] = []
        self.missing = members  # how many parts have yet to come up on their streams
        self.size_bytes = size_bytes


class Clock:
    """Every rank's two streams."""

    def __init__(self, n: int, cluster: Cluster):
        self._n = n
        self._cluster = cluster
        self._times: dict[tuple, Fraction] = {}  # of calls seen before
        self._now = [Fraction(0)] * n  # how far each compute stream is
        self._free = [Fraction(0)] * n  # from when on each comm stream is free
        self._queues: list[deque[Part]] = [deque() for _ in range(n)]  # launched, without a time
        self._events: list[Event] = []

    def compute(self, rank: int, work_flop, time_s, name: str, role: str) -> None:
        """Advances a rank's compute stream."""
        start = self._now[rank]
        if work_flop is None:
            took = cost.exact(time_s)
        else:
            took = cost.compute_time_s(work_flop, self._cluster.gpu, mfu=self._cluster.mfu)
        self._now[rank] = end = start + took
        if took:
            self._events.append(Event(rank, "compute", name, "compute", start, end, role=role))

    def launch(self, part: Part, meeting: Meeting | None = None, size_bytes: int = 0) -> list[Part]:
        """Puts a part on its rank's comm stream; returns the parts whose end is known by that.

        A message has no meeting yet: `join` makes it.
        """
        queue = self._queues[part.rank]
        part.launched = self._now[part.rank]
        if meeting is not None:
            meeting.size_bytes = max(meeting.size_bytes, size_bytes)
            meeting.parts.append(part)
            part.meetings.append(meeting)
        queue.append(part)
        return self._come_up([part]) if len(queue) == 1 else []

    def join(self, sides: Sequence[Part], meeting: Meeting) -> list[Part]:
        """Lets two launched sides of a message meet; returns the parts whose end is known by it."""
        for part in sides:
            meeting.parts.append(part)
            part.meetings.append(meeting)
            meeting.missing -= part.ready is not None
        return [] if meeting.missing else self._start(meeting)

    def hold(self, part: Part) -> None:
        """Lets the rank's compute stream wait until a part has ended."""
        self._now[part.rank] = max(self._now[part.rank], part.end)

    def timeline(self) -> Timeline:
        """Returns what happened so far."""
        return Timeline(self._events, self._n)

    # -- what starts when -------------------------------------------------------------------------

    def _come_up(self, parts: Sequence[Part]) -> list[Part]:
        """Lets the comm streams come to these parts, and to all that can follow."""
        done, todo = [], deque(parts)
        while todo:  # no recursion: one launch can set off a chain of thousands
            part = todo.popleft()
            part.ready = max(part.launched, self._free[part.rank])
            for meeting in part.meetings:
                meeting.missing -= 1
                if not meeting.missing:
                    todo += self._give_time(meeting, done)
        return done

    def _start(self, meeting: Meeting) -> list[Part]:
        done: list[Part] = []
        following = self._give_time(meeting, done)
        return done + self._come_up(following)

    def _give_time(self, meeting: Meeting, done: list[Part]) -> list[Part]:
        """Gives a meeting its time; returns the parts that are next on streams free by that."""
        following = []
        start = max(part.ready for part in meeting.parts)
        end = start + self._time_of(meeting)
        for part in meeting.parts:
            part.start = start if part.start is None else min(part.start, start)
            part.end = max(part.end, end)
            part.missing -= 1
            if part.done:
                done.append(part)
                following += self._leave(part)
        return following

    def _leave(self, part: Part) -> list[Part]:
        """Ends a part; returns the next one on its stream, if there is one."""
        rank, queue = part.rank, self._queues[part.rank]
        self._free[rank] = part.end
        if part.end > part.start:
            self._events.append(
                Event(rank, "comm", part.name, part.op, part.start, part.end, part.payload_bytes)
            )
        queue.popleft()
        return [queue[0]] if queue else []

    def _time_of(self, meeting: Meeting) -> Fraction:
        key = meeting.op, meeting.ranks, meeting.size_bytes
        if key not in self._times:
            self._times[key] = _price(*key, self._cluster)
        return self._times[key]


def _price(op: str, ranks: tuple[int, ...], size_bytes: int, cluster: Cluster) -> Fraction:
    """Returns how long a call takes; `ranks` are (from, to) for a message."""
    if len(ranks) == 1 or op == "split":
        return Fraction(0)
    if op == "message":
        return cost.send_time_s(size_bytes, cluster.link(*ranks))
    if op == "all_to_all":  # what one rank sends is (n-1)/n of the tensor with equal parts
        size_bytes = Fraction(size_bytes * len(ranks), len(ranks) - 1)
    return cost.collective_time_s(op, size_bytes, ranks, cluster)
