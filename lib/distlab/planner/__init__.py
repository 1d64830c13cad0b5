"""Plans a training step: what each layout of a job needs, how long its step takes, which is best.

It counts in full what lab 7's rough model leaves out: the worst stage and not the average one, the
embedding and the output head, layers that the stages do not divide.
"""

from distlab.planner.estimate import Estimate, estimate
from distlab.planner.split import split_layers, stage_layers
from distlab.planner.stack import Ring, Stack

__all__ = ["Estimate", "Ring", "Stack", "estimate", "split_layers", "stage_layers"]
