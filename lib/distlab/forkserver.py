"""The forkserver that ranks come from: a process that has torch loaded already.

It and multiprocessing's resource tracker are helpers of the caller: they last as long as it does,
and are started here in such a way that nothing of them is left, whatever ends the caller.
"""

import contextlib
import multiprocessing as mp
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import process, util


@contextlib.contextmanager
def context() -> Iterator[mp.context.ForkServerContext]:
    """Gives the context in which ranks are started."""
    forkserver = mp.get_context("forkserver")
    forkserver.set_forkserver_preload(["distlab.worker"])
    with no_main_module(), quiet_helpers():
        yield forkserver


@contextlib.contextmanager
def no_main_module() -> Iterator[None]:
    """Keeps new processes from importing the caller's script again."""
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    for name in kept:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)


@contextlib.contextmanager
def quiet_helpers() -> Iterator[None]:
    """Starts helpers in process groups of their own; the last one removes the socket's folder.

    A notebook kernel that shuts down asks the processes of its group to end and waits for them. The
    tracker ignores that, so the kernel would be killed after seconds, its folder left behind.
    """
    start = util.spawnv_passfds

    def start_in_own_group(path: bytes, args: Sequence[str], passfds: Sequence[int]) -> int:
        *options, code = args
        first = ["import atexit, os, shutil", "os.setpgid(0, 0)"]
        folder = process.current_process()._config.get("tempdir")  # where the socket lies
        if folder is not None:
            first.append(f"atexit.register(shutil.rmtree, {folder!r}, ignore_errors=True)")
        return start(path, [*options, "; ".join([*first, code])], passfds)

    util.spawnv_passfds = start_in_own_group
    try:
        yield
    finally:
        util.spawnv_passfds = start
