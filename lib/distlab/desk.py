"""What all communicators of one rank share, on real processes: its place on the notice board.

Here a launched collective waits until every rank of its group has announced it; then it is started,
in the order of the launches within each group, whenever the rank looks at the board: at each of its
calls. So data of an asynchronous collective moves behind the rank's own work once it was started.
"""

import time
from collections.abc import Callable
from typing import Any

from distlab import reports
from distlab.board import MOVING, RUNNING, WAITING, Board, Launched, Notice, meets
from distlab.checkedcomm import check_sizes
from distlab.ledger import Entry, ring_bytes
from distlab.reports import Call

_EAGER_LOOKS = 50  # looks at the board before a rank starts to sleep between two
_PAUSE_S = 0.0002


class Launch(Launched):
    """A collective that this rank has launched, and what moves its data."""

    def __init__(self, group_id: str, call: Call, sizes: tuple | None, move: Callable | None):
        # Shown as another process will read it: dtypes by name.
        super().__init__(group_id, Call.unpacked(call.packed()), sizes)
        self.own_call = call
        self.move = move  # returns torch's handle; None: there is nothing to move
        self.work: Any = None
        self.started = False


class Desk:
    """What all communicators of one rank share: its place on the board and its books."""

    def __init__(self, rank: int, board: Board | None):
        self.rank = rank
        self.board = board
        self.notice = Notice()
        self._awaited: Launch | None = None  # the rank sits and waits until this is started
        self.open_calls: dict[Call, None] = {}  # whose handles have not been waited for
        # (op, ranks) -> [calls, payload bytes, direct bytes]
        self.books: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    def entries(self) -> list[Entry]:
        """Returns what this rank communicated."""
        return [
            Entry(self.rank, op, ranks, calls, size, ring_bytes(op, len(ranks), size, direct))
            for (op, ranks), (calls, size, direct) in self.books.items()
        ]

    def show(self, state: str) -> None:
        """Shows this rank's notice with a new state."""
        if self.board is not None:
            self.notice.state = state
            self.board.post(self.rank, self.notice)

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits until `ready()`; the launching process ends the run if that can never be."""
        looks = 0
        self.progress()
        while not ready():
            looks += 1
            time.sleep(0 if looks < _EAGER_LOOKS else _PAUSE_S)
            self.progress()

    def announce(self, launch: Launch) -> None:
        """Puts a collective on the board, to be shown with the next notice."""
        self.notice.collectives[launch.group_id] = launch.call.number
        self.notice.launched.append(launch)

    def progress(self) -> None:
        """Starts what every rank of its group has launched by now, in order within each group."""
        if not self.notice.launched:
            return
        stuck, left = set(), []
        for launch in self.notice.launched:
            if launch.group_id not in stuck and self._all_there(launch):
                launch.work = launch.move() if launch.move is not None else None
                launch.started = True
                if launch is self._awaited:
                    self.notice.state = MOVING
            else:
                stuck.add(launch.group_id)
                left.append(launch)
        if len(left) < len(self.notice.launched):
            self.notice.launched = left
            self.show(self.notice.state)

    def _all_there(self, launch: Launch) -> bool:
        if self.board is None:
            return True
        call, others = launch.call, [rank for rank in launch.call.group if rank != self.rank]
        if not all(meets(call, launch.group_id, self.board.read(rank)) for rank in others):
            return False
        if launch.sizes is not None:
            self._check_sizes(launch)
        return True

    def _check_sizes(self, launch: Launch) -> None:
        """Checks an all_to_all's sizes, unless a rank that has gone on has done so."""
        table = []
        for rank in launch.call.group:
            notice = self.notice if rank == self.rank else self.board.read(rank)
            shown = notice.shown(launch.group_id, launch.call.number)
            if shown is None:
                return
            table.append(shown.sizes)
        check_sizes(table)

    def sit_through(self, launch: Launch, call: Call) -> None:
        """Waits in `call` until a launched collective is done."""
        self.notice.call, self.notice.group_id, self.notice.halves = call, launch.group_id, []
        if launch.started:
            self.show(MOVING)
        else:
            self._awaited = launch
            self.show(WAITING)
            self.wait(lambda: launch.started)
            self._awaited = None
        if launch.work is not None:
            launch.work.wait()
        self.notice.call = None
        self.show(RUNNING)

    def check_all_waited_for(self) -> None:
        """Raises NeverWaitedError if the rank returns with open handles."""
        if self.open_calls:
            raise reports.never_waited(self.rank, list(self.open_calls))
