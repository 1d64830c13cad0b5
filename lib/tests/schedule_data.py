"""Reads the tables of `data/`, and turns PyTorch's pipeline orders into ours."""

import contextlib
import csv
import io
from functools import cache
from pathlib import Path

from distlab.schedule import Op

DATA = Path(__file__).parent / "data"


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table whose first line says where it comes from."""
    lines = (DATA / name).read_text().splitlines()
    assert lines[0].startswith("# "), "a table says where it comes from"
    return list(csv.DictReader(lines[1:]))


def ints(text: str) -> list[int]:
    return [int(word) for word in text.split()]


@cache
def torch_orders(name: str, p: int, m: int, v: int | None = None) -> list[list]:
    """The orders that torch.distributed.pipelining generates.

    What torch runs as one becomes one entry of several ops: an overlapped F and B, and a whole
    backward pass in an order that splits others.
    """
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    with contextlib.redirect_stdout(io.StringIO()):  # it prints every step
        ranks = get_schedule_ops(name, p, m, v)
    ranks = [[a for a in rank if a and _kind(a) != "REDUCE_GRAD"] for rank in ranks]
    split = any(_kind(action) == "BACKWARD_WEIGHT" for rank in ranks for action in rank)
    folded = name in ("ZBVZeroBubble", "DualPipeV")

    def ops(action) -> list[Op]:
        kind, i = _kind(action), action.microbatch_index
        if kind == "OVERLAP_F_B":
            return [op for part in action.sub_actions for op in ops(part)]
        chunk = int(action.stage_index >= p) if folded else action.stage_index // p
        if kind == "FULL_BACKWARD":
            return [Op("B", i, chunk), Op("W", i, chunk)] if split else [Op("B", i, chunk)]
        return [Op({"FORWARD": "F", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}[kind], i, chunk)]

    return [[tuple(g) if len(g) > 1 else g[0] for g in map(ops, rank)] for rank in ranks]


def _kind(action) -> str:
    return action.computation_type.name
