"""The communicator: what one rank can ask of the others, on any engine.

The words are those of torch.distributed. Every operation is *functional*: it returns a new tensor,
never changes its input, shares no memory with another rank, and carries no gradient history
(students write the autograd functions that give it one).

A collective called with `async_op=True` is only launched: the call returns a `Handle` at once, and
`handle.wait()` returns the tensor. The input is taken as it is at the launch. All ranks launch the
collectives of a group in the same order (waiting may come in any), and wait for every handle
before they return.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

REDUCTIONS = ("sum", "mean", "max", "min", "prod")


@runtime_checkable
class Handle(Protocol):
    """A collective that was launched with `async_op=True`."""

    def wait(self) -> "Tensor":
        """Returns the collective's tensor once it is there; the same one if asked again."""


@runtime_checkable
class Comm(Protocol):
    """One rank's handle on its group. All ranks of the group make the same collective calls.

    `rank` counts from 0 within the group, `size` is how many there are, `ranks` are the members'
    ranks in the whole run. Every operation returns a tensor of its own and leaves its input as it
    is; what comes back has no history for autograd. With `async_op=True` a collective is only
    launched: the call returns a `Handle`, and `handle.wait()` the tensor.
    """

    rank: int
    size: int
    ranks: tuple[int, ...]

    def all_reduce(
        self, x: "Tensor", op: str = "sum", *, async_op: bool = False
    ) -> "Tensor | Handle":
        """Returns the reduction of every rank's `x`, on every rank. Sent: 2(n-1)/n of x's bytes.

        `op` is "sum", "mean", "max", "min" or "prod". Shapes: every rank passes the same shape.
        """

    def all_gather(self, x: "Tensor", dim: int = 0, *, async_op: bool = False) -> "Tensor | Handle":
        """Returns every rank's `x` joined along `dim` in rank order. Sent: (n-1) times x's bytes.

        Shapes: every rank passes the same shape.
        """

    def reduce_scatter(
        self, x: "Tensor", dim: int = 0, op: str = "sum", *, async_op: bool = False
    ) -> "Tensor | Handle":
        """Returns this rank's equal part, along `dim`, of the reduction of every rank's `x`.

        Sent: (n-1)/n of x's bytes. Raises: CommArgumentError if n does not divide `x.shape[dim]`.
        """

    def broadcast(self, x: "Tensor", src: int = 0, *, async_op: bool = False) -> "Tensor | Handle":
        """Returns rank `src`'s `x` on every rank. The others pass a tensor of the same shape."""

    def all_to_all(
        self,
        x: "Tensor",
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
        *,
        async_op: bool = False,
    ) -> "Tensor | Handle":
        """Returns what every rank meant for this one, joined along dim 0 in rank order.

        `x` is cut along dim 0 into one part per rank: equal parts, or `send_sizes` rows each. With
        `send_sizes` comes `recv_sizes`, the rows expected from each rank.
        """

    def send(self, x: "Tensor", dst: int, tag: int = 0) -> None:
        """Hands `x` to rank `dst` and waits until it was taken."""

    def recv(self, like: "Tensor", src: int, tag: int = 0) -> "Tensor":
        """Returns what rank `src` sends; of `like`, only the shape and dtype matter."""

    def sendrecv(self, x: "Tensor", dst: int, src: int, like: "Tensor | None" = None) -> "Tensor":
        """Sends `x` to `dst` and returns what `src` sends, both at once: the safe step of a ring.

        `like` gives the shape and dtype of what comes in; by default it is like `x`.
        """

    def compute(
        self,
        work_flop: float | None = None,
        name: str = "compute",
        *,
        time_s: float | None = None,
        role: str = "activations",
    ) -> None:
        """Lets simulated time pass in which this rank computes; does nothing without a clock.

        The rank's compute stream is busy for `work_flop` at the cluster's peak times its MFU, or
        for `time_s` seconds. `name` and `role` (whose colour it gets) are for the timeline.
        """

    def barrier(self) -> None:
        """Returns when every rank of the group has called it."""

    def split(self, color: int | None, key: int | None = None) -> "Comm | None":
        """Returns a communicator of the ranks that gave the same `color`, ordered by (`key`, rank).

        Every rank of the group calls it; one that gives None joins no new group and gets None.
        """
