"""Ranks that are there already: under torchrun, `run` joins the world it was started in.

Each process is one rank of it. It calls the function once, for itself, and learns from the others
what came out of theirs: the result is complete, and the same on every process. There is no notice
board here, since ranks may sit on different hosts: when one fails, torchrun ends the others and
says why, and a hang ends with torch.distributed's own timeout.
"""

import atexit
import contextlib
import datetime
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from distlab import isolate, job, rankstate, reports
from distlab.desk import Desk
from distlab.distcomm import DistComm
from distlab.ledger import Ledger
from distlab.result import Result
from distlab.worker import LOOPBACK

_SAID = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each process
_SLACK_S = 60  # processes reach their first call at different times


def is_started() -> bool:
    """Returns whether this process is a rank that torchrun, or a launcher like it, started."""
    return all(name in os.environ for name in _SAID)


def run(
    fn: Callable,
    n: int,
    args: tuple,
    kwargs: dict,
    *,
    backend: str,
    timeout_s: float,
    echo: bool,
) -> Result:
    """Runs `fn` as this process's rank of the existing world; see `distlab.launch.run`."""
    __tracebackhide__ = True
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if n != world:
        raise ValueError(
            f"run was asked for {n} ranks, but this file was started as a world of {world}: start "
            f"it with {n} processes, or ask for {world} ranks."
        )
    device = _device(backend)
    task = job.Job(fn, n, args, kwargs)  # a copy, as on the other engines: the caller's stays
    shared, own = task.pack()
    states = rankstate.RandomStates(1, task.names_random)
    _join(backend, device, timeout_s)
    desk = Desk(rank, None)
    comm = DistComm(desk, rank, tuple(range(n)), None)
    try:
        with isolate.fresh_classes():
            fn, args, kwargs = job.unpack(shared, own[rank], device)
        on_gpu = torch.device(device) if device != "cpu" else contextlib.nullcontext()
        with _heard(echo) as heard, on_gpu:
            value = fn(comm, *args, **kwargs)
        desk.check_all_waited_for()
        mine = isolate.pack_result(value, rank), desk.entries(), "".join(heard)
        everyone: list[Any] = [None] * n
        dist.all_gather_object(everyone, mine)
    except SystemExit as error:
        raise reports.exited(rank, error) from None
    except BaseException:
        # Leaving in good order may wait for the others, and they for us: just go.
        atexit.unregister(dist.destroy_process_group)
        raise
    finally:
        states.restore()
    packed, books, texts = zip(*everyone, strict=True)
    entries = (entry for book in books for entry in book)
    return Result([isolate.unpack(value) for value in packed], Ledger(entries), list(texts))


def _device(backend: str) -> str:
    if backend != "nccl":
        return "cpu"
    place, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if place >= gpus:
        raise ValueError(
            f"engine='nccl' needs one GPU per rank, and this host has {gpus} for its rank {place}; "
            "start fewer processes, or use engine='gloo'."
        )
    return f"cuda:{place}"


def _join(backend: str, device: str, timeout_s: float) -> None:
    """Enters the world that torchrun describes, unless the file has done so itself."""
    if device != "cpu":
        torch.cuda.set_device(device)
    if dist.is_initialized():
        return
    local = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    if local or os.environ["MASTER_ADDR"] in ("localhost", "127.0.0.1", "::1"):
        # All on one host: nothing of ours listens beyond it, unless the user wants it to.
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, LOOPBACK)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout_s + _SLACK_S))
    atexit.register(dist.destroy_process_group)


@contextlib.contextmanager
def _heard(echo: bool) -> Iterator[list[str]]:
    """Keeps what is printed, and passes it on if `echo`: torchrun shows it as it likes."""
    tee = _Tee(sys.stdout if echo else None)
    with contextlib.redirect_stdout(tee):
        yield tee.pieces


class _Tee:
    encoding = "utf-8"

    def __init__(self, outer: Any):
        self.pieces: list[str] = []
        self._outer = outer

    def write(self, text: str) -> int:
        self.pieces.append(text)
        if self._outer is not None:
            self._outer.write(text)
        return len(text)

    def flush(self) -> None:
        if self._outer is not None:
            self._outer.flush()

    def isatty(self) -> bool:
        return False
