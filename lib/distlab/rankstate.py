"""What each rank has for itself, as a process would: torch's settings and random state."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


class CallerContext:
    """The caller's thread-local torch settings, which new threads would not inherit."""

    def __init__(self):
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._device = torch.get_default_device()
        self._autocast = torch.is_autocast_enabled("cpu")
        self._autocast_dtype = torch.get_autocast_dtype("cpu")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Applies the caller's settings to the current thread."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            if self._device.type != "cpu":
                stack.enter_context(self._device)
            if self._autocast:
                stack.enter_context(torch.autocast("cpu", dtype=self._autocast_dtype))
            yield


class RandomStates:
    """One random state per rank, as in processes that start with the caller's state.

    torch's generator is swapped only once some rank has used it: until then all ranks share one
    state object. `random` and numpy.random are swapped only where the run's code names them
    (`libraries_too`), since that costs 100 µs.
    """

    def __init__(self, n: int, libraries_too: bool):
        self._start = self._current = _read_torch()
        self._of = [self._start] * n
        self._libraries = [read_libraries()] * n if libraries_too else None
        self._library_start = self._libraries[0] if libraries_too else None

    def leave(self, rank: int) -> None:
        """Keeps the state of a rank that stops running."""
        state = _read_torch()
        if state[1] != self._current[1]:
            self._of[rank] = self._current = state
        if self._libraries is not None:
            self._libraries[rank] = read_libraries()

    def enter(self, rank: int) -> None:
        """Brings back the state of a rank that starts running."""
        if self._of[rank] is not self._current:
            self._current = self._of[rank]
            torch.default_generator.set_state(self._current[0])
        if self._libraries is not None:
            _write_libraries(self._libraries[rank])

    def restore(self) -> None:
        """Brings back the caller's state."""
        torch.default_generator.set_state(self._start[0])
        if self._library_start is not None:
            _write_libraries(self._library_start)


def _read_torch() -> tuple[torch.Tensor, bytes]:
    state = torch.default_generator.get_state()
    return state, state.numpy().tobytes()  # bytes compare ten times faster than torch.equal


def read_libraries() -> tuple:
    """Returns the states of `random` and numpy.random."""
    return random.getstate(), np.random.get_state()


def _write_libraries(states: tuple) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
