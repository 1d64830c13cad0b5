"""The table of the textbook's dynamic programming, to be looked at: O(L^2 p), see `min_max`."""

from collections.abc import Sequence
from dataclasses import dataclass

from distlab.canvas import Picture
from distlab.partition.picture import dp_table
from distlab.partition.problem import Problem


@dataclass(frozen=True)
class Table:
    """`best[k][i]`: the least bottleneck of the first i layers on k stages; infinite if i < k.

    `bounds` is one way through it, the one found by trying the last cut from left to right and
    keeping the first of equals. There may be many.
    """

    best: tuple[tuple[float, ...], ...]
    bounds: tuple[int, ...]

    def picture(self, bounds: Sequence[int] | None = None, *, title: str = "") -> Picture:
        """Draws the table as a heat map, with the cuts of `bounds` as a path through it."""
        return dp_table(self.best, self.bounds if bounds is None else bounds, title=title)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.picture()._repr_mimebundle_(include, exclude)


def table(layer_times: Sequence[float], stages: int) -> Table:
    """Returns D[k][i] = min over j < i of max(D[k-1][j], c_j + .. + c_{i-1}), with D[0][0] = 0.

    Example: `table([3, 1, 1, 4], 2).best[2][4] == 5.0`.
    """
    problem = Problem(layer_times, stages)
    sums, layers = problem.prefix.tolist(), problem.layers
    best = [[0.0] + [float("inf")] * layers]
    came_from = []
    for k in range(1, stages + 1):
        row, origin = [float("inf")] * (layers + 1), [0] * (layers + 1)
        for i in range(k, layers + 1):
            for j in range(k - 1, i):
                bottleneck = max(best[-1][j], sums[i] - sums[j])
                if bottleneck < row[i]:
                    row[i], origin[i] = bottleneck, j
        best.append(row)
        came_from.append(origin)
    bounds = [layers]
    for origin in reversed(came_from):
        bounds.append(origin[bounds[-1]])
    return Table(tuple(map(tuple, best)), tuple(reversed(bounds)))
