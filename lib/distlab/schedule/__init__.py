"""Pipeline schedules: orders of ops, a simulator for any of them, measures and pictures."""

from distlab.schedule.drawing import ascii_art, ascii_rows, gantt_svg
from distlab.schedule.ops import KINDS, Op
from distlab.schedule.orders import (
    flushed,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
)
from distlab.schedule.replay import simulate, v_stages
from distlab.schedule.timeline import PipelineTimeline, Span

__all__ = [
    "KINDS",
    "Op",
    "PipelineTimeline",
    "Span",
    "ascii_art",
    "ascii_rows",
    "flushed",
    "gantt_svg",
    "gpipe",
    "interleaved",
    "looped_bfs",
    "naive",
    "one_f_one_b",
    "simulate",
    "v_stages",
]
