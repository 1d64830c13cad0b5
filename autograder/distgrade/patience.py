"""What a check in a notebook does when an answer takes long: it says so, and stops at a limit."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SOON_S = 10.0
LIMIT_S = 90.0  # as long as grading waits for an exercise (`runner.Limits`)


class TookTooLong(Exception):
    """The answer was stopped at the limit."""


@contextmanager
def bounded(what: str, *, soon_s: float = SOON_S, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Prints a line when its body still runs after `soon_s`, and interrupts it at `limit_s`.

    Raises TookTooLong then. An interrupt that the body swallows is no end: `soon_s`'s line says
    what to press. In another thread than the main one nothing is stopped.
    """
    out, over, lock, late = sys.stdout, threading.Event(), threading.Lock(), []
    main = threading.current_thread() is threading.main_thread()

    def watch() -> None:
        if over.wait(soon_s):
            return
        ends = f", and is stopped at {limit_s:g} s, as in grading" if main else ""
        print(
            f"{what} still runs after {soon_s:g} s{ends}. The square button stops it now; if it "
            "does not, restart the kernel.",
            file=out,
            flush=True,
        )
        if not over.wait(limit_s - soon_s) and main:
            with lock:
                if not over.is_set():
                    late.append(True)
                    _thread.interrupt_main()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if not late:
            raise
        raise TookTooLong(f"stopped after {limit_s:g} s: too slow, or without an end.") from None
    finally:
        with lock:
            over.set()
