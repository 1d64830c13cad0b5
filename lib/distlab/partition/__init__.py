"""Cuts layers into pipeline stages so that the slowest stage is as fast as it can be. Exact.

    plan = partition.min_max(layer_times, 4)
    plan.bounds, plan.loads, plan.value
    partition.check_certificate(plan.problem, plan.certificate)

In a steady pipeline every slot lasts as long as the slowest stage needs, so that stage sets the
pace; what the others spare is lost in waiting, on top of the bubble of filling and draining.
"""

from distlab.partition.certificate import Certificate, certify, check_certificate
from distlab.partition.chunks import InterleavedPlan, interleaved
from distlab.partition.plan import Plan, min_max
from distlab.partition.problem import Memory, Problem
from distlab.partition.replicas import ReplicatedPlan, check_fewest, replicated
from distlab.partition.textbook import Table, table

__all__ = [
    "Certificate",
    "InterleavedPlan",
    "Memory",
    "Plan",
    "Problem",
    "ReplicatedPlan",
    "Table",
    "certify",
    "check_certificate",
    "check_fewest",
    "interleaved",
    "min_max",
    "replicated",
    "table",
]
