"""What helps a learner along: hints in steps, progress, a start page, work to take along."""

from distlab.learn.hints import hint, reveal
from distlab.learn.page import start_page

__all__ = ["hint", "reveal", "start_page"]
