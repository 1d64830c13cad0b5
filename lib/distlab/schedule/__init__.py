"""Pipeline schedules: orders of ops, a simulator for any of them, measures and pictures.

`simulate(one_f_one_b(4, 8))` is the timeline of a step; a notebook draws it.
"""

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
from distlab.schedule.slices import Slicing, best_slices, terapipe
from distlab.schedule.timeline import PipelineTimeline, Span
from distlab.schedule.versions import (
    WeightVersions,
    double_buffered_versions,
    newest_versions,
    pipedream,
    stashed_versions,
    synced_versions,
)
from distlab.schedule.zerobubble import zb_h1, zb_h2

__all__ = [
    "KINDS",
    "Op",
    "PipelineTimeline",
    "Slicing",
    "Span",
    "WeightVersions",
    "ascii_art",
    "ascii_rows",
    "best_slices",
    "double_buffered_versions",
    "flushed",
    "gantt_svg",
    "gpipe",
    "interleaved",
    "looped_bfs",
    "naive",
    "newest_versions",
    "one_f_one_b",
    "pipedream",
    "simulate",
    "stashed_versions",
    "synced_versions",
    "terapipe",
    "v_stages",
    "zb_h1",
    "zb_h2",
]
