"""Errors of distlab. Each message says what was asked, what was seen and what to do."""


class DistError(RuntimeError):
    """Base of all errors that the engines report about a run."""


class CommArgumentError(DistError, ValueError):
    """A communicator was called with an argument that no engine could serve."""


class CollectiveMismatchError(DistError):
    """The ranks of a group met in one call, but asked for different things."""


class DeadlockError(DistError):
    """No rank can go on: each that has not returned waits for another."""


class NeverWaitedError(DistError):
    """A rank returned while a handle of an asynchronous call was never waited for."""


class RankTimeoutError(DistError):
    """A run took longer than its `timeout`."""


class RankExitedError(DistError):
    """A rank tried to end the process (`exit()`, `SystemExit`)."""


class RankDiedError(DistError):
    """A rank's process ended without a word: a signal, a crash, `os._exit`."""


class OrderError(DistError, ValueError):
    """The orders of a pipeline's ranks can't be run: an op is missing, repeated or out of place."""


class OrderDeadlockError(OrderError, DeadlockError):
    """The orders of a pipeline's ranks wait for each other in a circle."""


class UncopyableError(DistError, TypeError):
    """What a rank needs, or returned, can't be copied as it would be between processes."""


class InfeasibleError(ValueError):
    """What was asked for can't be had: the message says what lacks least, and by how much."""


class RankCancelled(BaseException):
    """Unwinds a rank whose run has already failed elsewhere.

    Not an `Exception`, so that `except Exception` in a student's function can't swallow it.
    """


class CheckFailed(AssertionError):
    """A check did not pass. Notebooks show the message alone, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()
