"""One rank in a process of its own: what the forkserver runs. Imported there ahead of time."""

import contextlib
import datetime
import faulthandler
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from distlab import isolate, job, reports
from distlab.board import RETURNED, Board
from distlab.desk import Desk
from distlab.distcomm import DistComm
from distlab.rankstate import CallerContext

OUT, ERR, VALUE, RAISED, EXITED = "out", "err", "value", "raised", "exited"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class Orders:
    """What every rank of a run is told."""

    n: int
    backend: str
    timeout_s: float
    folder: Path
    sys_path: list[str]
    cwd: str
    threads: int
    torch_state: torch.Tensor
    library_states: tuple | None
    context: CallerContext
    shared: bytes


class _Stream:
    """Sends what the rank prints to the launching process."""

    encoding = "utf-8"

    def __init__(self, kind: str, say):
        self._kind = kind
        self._say = say

    def write(self, text: str) -> int:
        self._say((self._kind, text))
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def main(rank: int, orders_file: Path, own: bytes, mail: Connection) -> None:
    """Runs one rank from start to end, and waits for the launching process to say goodbye."""
    os.setsid()  # so that it can be stopped with all that it starts, and Ctrl-C doesn't reach it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = threading.Lock()

    def say(message: tuple) -> None:
        with lock, contextlib.suppress(OSError):
            mail.send(message)

    goodbye = threading.Event()
    threading.Thread(target=_listen, args=(mail, goodbye, orders_file.parent), daemon=True).start()
    sys.stdout, sys.stderr = _Stream(OUT, say), _Stream(ERR, say)
    orders: Orders = pickle.loads(orders_file.read_bytes())
    stacks = open(orders.folder / f"stack-{rank}", "w")  # noqa: SIM115 - open as long as we live
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    say(_outcome(rank, orders, own))
    goodbye.wait()  # others may still be reading from our sockets
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    os._exit(0)  # nothing of ours is left to write


def _listen(mail: Connection, goodbye: threading.Event, folder: Path) -> None:
    try:
        mail.recv()
        goodbye.set()
    except (EOFError, OSError):  # the launching process is gone, and can't tidy up any more
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _outcome(rank: int, orders: Orders, own: bytes) -> tuple:
    """Runs the rank; returns the message that says how it ended."""
    board = Board(orders.folder / "board", orders.n)
    desk = Desk(rank, board)
    try:
        comm = _join(rank, orders, desk)
        device = f"cuda:{rank}" if orders.backend == "nccl" else "cpu"
        fn, args, kwargs = job.unpack(orders.shared, own, device)
        _take_random_state(orders)
        with orders.context.entered():
            value = fn(comm, *args, **kwargs)
        desk.check_all_waited_for()
        sealed = isolate.pack_result(value, rank)
    except SystemExit as error:
        return EXITED, str(reports.exited(rank, error))
    except BaseException as error:
        return RAISED, *_packed_error(error)
    desk.show(RETURNED)
    return VALUE, sealed, desk.entries()


def _join(rank: int, orders: Orders, desk: Desk) -> DistComm:
    os.chdir(orders.cwd)
    sys.path[:] = orders.sys_path
    torch.set_num_threads(orders.threads)
    os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
    os.environ["NCCL_SOCKET_IFNAME"] = LOOPBACK
    if orders.backend == "nccl":
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
    dist.init_process_group(
        orders.backend,
        init_method=f"file://{orders.folder / 'store'}",
        rank=rank,
        world_size=orders.n,
        # The launching process watches the clock; this is for the case that it is stopped itself.
        timeout=datetime.timedelta(seconds=orders.timeout_s + 60),
    )
    return DistComm(desk, rank, tuple(range(orders.n)), None)


def _take_random_state(orders: Orders) -> None:
    torch.set_rng_state(orders.torch_state)
    if orders.library_states is not None:
        import random

        random.setstate(orders.library_states[0])
        np.random.set_state(orders.library_states[1])


def _packed_error(error: BaseException) -> tuple[bytes | None, str, str]:
    """An error as (itself, if it can travel; its class and text; its traceback as text)."""
    error = reports.without_our_frames(error)
    text = "".join(traceback.format_exception(error)).rstrip()
    summary = "".join(traceback.format_exception_only(error)).strip()
    packed: Any = None
    with contextlib.suppress(Exception):
        packed = isolate.pack_result(error.with_traceback(None), 0)
    return packed, summary, text
