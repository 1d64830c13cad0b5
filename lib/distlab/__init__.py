"""Helper library of the course: one function per rank, on a simulator or on real processes.

`from distlab import run, per_rank, check`. Importing it costs no more than numpy; torch comes in
with the first run.
"""

from distlab.comm import Comm
from distlab.launch import run
from distlab.ledger import Ledger
from distlab.notebook import check
from distlab.result import Result, per_rank

__all__ = ["Comm", "Ledger", "Result", "check", "per_rank", "run"]
