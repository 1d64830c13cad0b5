"""Who holds what: a job to be trained on a cluster, and a layout that spreads it over the GPUs.

A `Job` is the question, a `Layout` an answer to it. Neither computes anything: what a layout needs
and how long its step takes is the students' work in lab 7, and, in full, the planner's.
"""

from dataclasses import dataclass
from typing import Literal

from distlab.hardware import Cluster
from distlab.model import Config

# Sizes come in, nothing is worked out: no room needs to FORBID anything here.


@dataclass(frozen=True)
class Layout:
    """A way to spread a model and its batch over t · p · d · context GPUs.

    `t` ranks share each layer's matrices, `p` stages share the layers, `d` replicas share the
    batch. `v` chunks of layers per stage (interleaving), `microbatch` sequences at a time.
    `sequence_parallel`: the t ranks also share the tokens between matrices. `recompute`: what
    backward computes again. `zero`: stage of ZeRO over the d ranks, 0 for none. `context` ranks
    share each sequence's tokens throughout.

    Example: `str(Layout(8, 8, 16)) == "8×8×16"` and `Layout(8, 8, 16).gpus == 1024`.
    """

    t: int
    p: int
    d: int
    v: int = 1
    microbatch: int = 1
    sequence_parallel: bool = False
    recompute: Literal["none", "selective", "full"] = "full"
    zero: Literal[0, 1, 2, 3] = 1
    context: int = 1

    def __post_init__(self):
        for name in ("t", "p", "d", "v", "microbatch", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"A layout's {name} is at least 1, not {getattr(self, name)}.")
        if self.recompute not in ("none", "selective", "full"):
            raise ValueError(
                f"A layout recomputes 'none', 'selective' or 'full', not {self.recompute!r}."
            )
        if self.zero not in (0, 1, 2, 3):
            raise ValueError(f"ZeRO has stages 0 (none) to 3, not {self.zero}.")

    @property
    def gpus(self) -> int:
        """How many GPUs the layout fills."""
        return self.t * self.p * self.d * self.context

    def __str__(self) -> str:
        return f"{self.t}×{self.p}×{self.d}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training step to be planned: `batch` sequences of `seq` tokens on `gpus` GPUs.

    `params` is the parameter count that a rough formula uses, such as 175e9; None where whoever
    plans counts for themselves. The cluster says which GPU, which links, and `mfu`, the share of
    its peak that a GPU computes at.

    Example: `Job(model=GPT3_175B, params=175e9, batch=1536, seq=2048, gpus=1024,
    cluster=DGX_H100).batch == 1536`.
    """

    model: Config
    batch: int
    seq: int
    gpus: int
    cluster: Cluster
    params: float | None = None

    def __post_init__(self):
        for name in ("batch", "seq", "gpus"):
            if getattr(self, name) < 1:
                raise ValueError(f"A job's {name} is at least 1, not {getattr(self, name)}.")
        if self.params is not None and self.params <= 0:
            raise ValueError(f"A model can't have {self.params} parameters.")
