"""Explorers: settings to play with, and a picture that follows, in a notebook with ipywidgets.

After `from distlab.explorers import memory_explorer`, end a cell with `memory_explorer()`.

Each explorer is three pure parts and a frame: settings -> numbers -> SVG, both tested without a
browser, and `frame.explorer`, which puts them under sliders and menus. Settings and numbers are
plain dataclasses of names and numbers, so that a page without Python can be held against them.
Importing this package brings neither ipywidgets nor matplotlib nor torch.
"""

from distlab.explorers.buckets import bucket_explorer
from distlab.explorers.layouts import layout_explorer
from distlab.explorers.memory import memory_explorer
from distlab.explorers.partition import partition_explorer
from distlab.explorers.schedule import schedule_explorer

__all__ = [
    "bucket_explorer",
    "layout_explorer",
    "memory_explorer",
    "partition_explorer",
    "schedule_explorer",
]
