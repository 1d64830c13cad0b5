"""A calm line in place of a traceback: an answer not written yet, a machine without processes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_HERE = os.path.dirname(__file__) + os.sep


def is_stub(error: BaseException) -> bool:
    """Returns whether an untouched stub raised this, not torch or the student."""
    return isinstance(error, NotImplementedError) and "not written yet" in str(error)


def show_calmly(error: NotImplementedError) -> None:
    """Makes a notebook show a stub's error as one line that names the stub."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    text = f"{code.co_qualname} is not written yet (line {last.tb_lineno} of its cell)."
    if code.co_filename.startswith(_HERE):  # from a process of its own: its frames stayed there
        text = str(error)
    error._render_traceback_ = lambda: [f"NotImplementedError: {text}"]


def calm_stubs() -> None:
    """Lets this notebook, if there is one, show an untouched stub as one line everywhere."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if ask() is None:
        return

    def show(shell, kind, error, trace, tb_offset=None):
        if is_stub(error):
            show_calmly(error)
            lines = error._render_traceback_()
        else:
            lines = shell.InteractiveTB.structured_traceback(
                kind, error, trace, tb_offset=tb_offset
            )
        shell._showtraceback(kind, error, lines)
        return lines

    ask().set_custom_exc((NotImplementedError,), show)


def end_at_the_callers_line(error: BaseException) -> None:
    """Makes a notebook's traceback end where the caller's code does, not inside distlab."""

    def render() -> list[str]:
        last, frame = None, error.__traceback__
        while frame is not None:
            if not frame.tb_frame.f_code.co_filename.startswith(_HERE):
                last = frame
            frame = frame.tb_next
        if last is not None:
            last.tb_next = None
        shell = sys.modules["IPython"].get_ipython()
        return shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)

    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = render


@contextmanager
def when_written() -> Iterator[None]:
    """Runs a block that uses the student's own answer; says so in one line if it isn't written.

    Only an untouched stub ("... not written yet") is caught. Every other error, torch's own
    NotImplementedError among them, is the student's to see.

    Example: `with when_written(): run(fn, 4)` prints one line while `fn` is a stub.
    """
    try:
        yield
    except NotImplementedError as error:
        if not is_stub(error):
            raise
        print("Nothing to look at yet: write your answer, then run this cell again.")


def processes_start() -> bool:
    """Returns whether ranks can be real processes here (gloo); says so in one line if they can't.

    Example: `if processes_start(): run(fn, 2, engine="gloo")`.
    """
    from distlab.launch import run

    try:
        run(_nothing, 2, engine="gloo", echo=False, timeout=60)
    except Exception as error:  # whatever stops them: a sandbox, a platform, a missing library
        reason = " ".join(str(error).split("\n", 1)[0].split()) or type(error).__name__
        print(f"Real processes can't be started here, so this part is left out: {reason}")
        return False
    return True


def _nothing(comm: object) -> None:
    """What a rank does that only has to start."""
