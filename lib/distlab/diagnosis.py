"""Reads from the notice board why a run on real processes can't go on."""

from distlab import reports
from distlab.board import RETURNED, WAITING, Board, Notice, agrees, answers, meets
from distlab.errors import DistError


class Watcher:
    """Looks at the board again and again, and names a mismatch or a deadlock once it is one."""

    def __init__(self, board: Board):
        self._board = board
        self._versions: list[int] = []

    def look(self) -> DistError | None:
        """Returns the error that stops the run, or None while somebody can still go on."""
        versions = self._board.versions()
        changed, self._versions = versions != self._versions, versions
        notices = [self._board.read(rank) for rank in range(self._board.n)]
        if changed or self._board.versions() != versions:
            return None  # not a picture of one moment
        return mismatch(notices) or deadlock(notices)

    def pending(self) -> tuple[list, list[bool]]:
        """Returns every rank's pending call, and whether it has returned."""
        notices = [self._board.read(rank) for rank in range(self._board.n)]
        return [n.call for n in notices], [n.state == RETURNED for n in notices]


def mismatch(notices: list[Notice]) -> DistError | None:
    """The error for ranks that met, but asked for different things."""
    for rank, mine in enumerate(notices):
        for here in mine.launched:
            # As on the simulator, once all are there: then every rank's call can be shown.
            group = here.call.group
            calls = [notices[r].shown(here.group_id, here.call.number) for r in group]
            if all(calls) and not all(agrees(here.call, one.call) for one in calls):
                return reports.mismatch([one.call for one in calls], group)
        if mine.state != WAITING:
            continue
        for half in mine.halves:
            other_rank = _other_side(rank, mine, half)
            for theirs in notices[other_rank].halves:
                same = (theirs.route, theirs.number) == (half.route, half.number)
                fits = (theirs.dtype, theirs.shape) == (half.dtype, half.shape)
                if same and half.is_send and not theirs.is_send and not fits:
                    calls = mine.call, notices[other_rank].call
                    return reports.mismatch_of_message(*calls, half, theirs, (rank, other_rank))
    return None


def deadlock(notices: list[Notice]) -> DistError | None:
    """The error for ranks of which each that has not returned waits for another."""
    for rank, mine in enumerate(notices):
        if mine.state == RETURNED:
            continue
        if mine.state != WAITING:
            return None
        if mine.halves:
            if any(answers(h, notices[_other_side(rank, mine, h)]) for h in mine.halves):
                return None
        elif all(meets(mine.call, mine.group_id, notices[r]) for r in mine.call.group if r != rank):
            return None
    finished = [n.state == RETURNED for n in notices]
    if all(finished):
        return None
    return reports.deadlock([None if f else n.call for n, f in zip(notices, finished, strict=True)],
                            finished)  # fmt: skip


def _other_side(rank: int, notice: Notice, half) -> int:
    _, src, dst, _ = half.route
    return notice.call.group[dst if half.is_send else src]
