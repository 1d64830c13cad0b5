"""Plans a training step: what each layout of a job needs, how long its step takes, which is best.

It counts in full what lab 7's rough model leaves out: the worst stage and not the average one, the
embedding and the output head, layers that the stages do not divide.

    found = planner.plan(Job(model=LLAMA3_405B, batch=2048, seq=8192, gpus=16384, cluster=DGX_H100))
    found, found.best, found.front, found.picture()
"""

from distlab.planner.estimate import Estimate, estimate
from distlab.planner.search import Plan, Rejected, plan
from distlab.planner.split import split_layers, stage_layers
from distlab.planner.stack import Ring, Stack
from distlab.planner.vector import evaluate

__all__ = [
    "Estimate",
    "Plan",
    "Rejected",
    "Ring",
    "Stack",
    "estimate",
    "evaluate",
    "plan",
    "split_layers",
    "stage_layers",
]
