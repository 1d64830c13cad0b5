"""Looking at one's own answer before it is finished: a calm line where a traceback would stand."""

from collections.abc import Iterator
from contextlib import contextmanager


def is_stub(error: BaseException) -> bool:
    """Returns whether an untouched stub raised this, not torch or the student."""
    return isinstance(error, NotImplementedError) and "not written yet" in str(error)


def show_calmly(error: NotImplementedError) -> None:
    """Makes a notebook show a stub's error as one line that names the stub."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    name, line = last.tb_frame.f_code.co_qualname, last.tb_lineno
    text = f"{name} is not written yet (line {line} of its cell)."
    error._render_traceback_ = lambda: [f"NotImplementedError: {text}"]


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
        print("Nothing to look at yet: write your answer above, then run this cell again.")
