"""What ranks print: kept for the result, and shown line by line with the rank's label."""

import sys
import threading
from typing import Any


class LabelledLines:
    """Keeps what each rank prints, and echoes it line by line with the rank's label."""

    def __init__(self, n: int, outer: Any, echo: bool):
        self._outer = outer
        self._echo = echo
        self._line = [""] * n
        self._texts: list[list[str]] = [[] for _ in range(n)]

    def add(self, rank: int, text: str) -> None:
        """Takes a piece of text that a rank printed."""
        self._texts[rank].append(text)
        if self._echo:
            *lines, self._line[rank] = (self._line[rank] + text).split("\n")
            if lines:
                self._outer.write("".join(f"[rank {rank}] {line}\n" for line in lines))

    def close(self) -> None:
        """Echoes what was printed without a newline at the end."""
        for rank, line in enumerate(self._line):
            if line:
                self._outer.write(f"[rank {rank}] {line}\n")
        self._line = [""] * len(self._line)

    def texts(self) -> list[str]:
        """Returns all that each rank printed."""
        return ["".join(pieces) for pieces in self._texts]


class RankStdout:
    """Stands in for sys.stdout while ranks are threads of this process."""

    def __init__(self, outer: Any, rank_of_thread: dict[int, int], n: int, echo: bool):
        self._outer = outer
        self._rank_of_thread = rank_of_thread
        self.lines = LabelledLines(n, outer, echo)

    def write(self, text: str) -> int:
        """Takes what a rank prints; text of other threads passes through."""
        rank = self._rank_of_thread.get(threading.get_ident())
        if rank is None:
            return self._outer.write(text)
        self.lines.add(rank, text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    def __enter__(self) -> "RankStdout":
        sys.stdout = self
        return self

    def __exit__(self, *_: object) -> None:
        if sys.stdout is self:
            sys.stdout = self._outer
        self.lines.close()
