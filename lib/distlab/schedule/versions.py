"""Which version of the weights each pass uses when a pipeline updates them without a flush.

A rank updates its weights after every backward pass (or after every few: gradient accumulation), so
its version counts its own updates. Version 0 is the start. Four rules say which version the passes
of a microbatch use:

| rule            | forward                    | backward        | versions kept on rank s |
|-----------------|----------------------------|-----------------|-------------------------|
| newest          | the newest                 | the newest      | 1                       |
| stashing        | the newest                 | the forward's   | p − s                   |
| vertical sync   | that of rank 0's forward   | the forward's   | p                       |
| double-buffered | one before the current one | the forward's   | 2                       |

With the newest weights a gradient mixes two versions. Stashing repairs that within a rank; between
ranks a microbatch still meets different versions, which vertical sync and double buffering repair.

Source: Narayanan et al. (2019), PipeDream, section 3.3; Narayanan et al. (2021), Memory-Efficient
Pipeline-Parallel DNN Training (PipeDream-2BW), section 3.1.
"""

from collections.abc import Callable
from dataclasses import dataclass

from distlab.errors import OrderError
from distlab.schedule.ops import Coding, Orders, split_at
from distlab.schedule.orders import Order, one_f_one_b

# Rooms that ask for weight versions put these on FORBID.


@dataclass(frozen=True)
class WeightVersions:
    """The versions that each rank's passes use, by rank and microbatch, and how many it keeps.

    `newest` is the rank's own version when the backward pass begins. `kept` counts the versions
    that a rank must store at once, the newest included.
    """

    forward: tuple[tuple[int, ...], ...]
    backward: tuple[tuple[int, ...], ...]
    newest: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]

    def gaps(self, rank: int) -> list[int]:
        """Returns how many updates a rank makes between a microbatch's forward and backward pass.

        Example: on rank 0 of 4 under 1F1B, 0 1 2 3 3 3 ...: p − 1 − s once the pipeline is full.
        """
        pairs = zip(self.newest[rank], self.forward[rank], strict=True)
        return [newest - used for newest, used in pairs]


def pipedream(p: int, m: int) -> list[Order]:
    """Returns the order of PipeDream's asynchronous pipeline over m microbatches: 1F1B, no flush.

    The difference to 1F1B is what m counts: the microbatches of the whole training, not of a step.
    Between steps there is no bubble; instead, weights change while microbatches are in flight.

    Source: Narayanan et al. (2019), PipeDream, section 3.2.
    """
    return one_f_one_b(p, m)


def newest_versions(orders: Orders, *, every: int = 1) -> WeightVersions:
    """Returns the versions where each pass uses the newest weights.

    `every` is the number of microbatches in an update.
    """
    newest = [_at_start(order, every) for order in _plain(orders, every)]
    return _versions(orders, every, lambda rank, kind, i: newest[rank][kind, i])


def stashed_versions(orders: Orders, *, every: int = 1) -> WeightVersions:
    """Returns the versions where a rank keeps the forward pass's weights for the backward pass.

    Example: `stashed_versions(pipedream(4, 8)).kept == (4, 3, 2, 1)`.
    """
    newest = [_at_start(order, every) for order in _plain(orders, every)]
    return _versions(orders, every, lambda rank, kind, i: newest[rank]["F", i])


def synced_versions(orders: Orders, *, every: int = 1) -> WeightVersions:
    """Returns the versions where all ranks use that of rank 0's forward pass (vertical sync)."""
    newest = _at_start(_plain(orders, every)[0], every)
    return _versions(orders, every, lambda rank, kind, i: newest["F", i])


def double_buffered_versions(orders: Orders, *, every: int) -> WeightVersions:
    """Returns the versions of PipeDream-2BW: all ranks use the one before the current one.

    Microbatch i belongs to update i // every and uses version i // every − 1, so two versions are
    enough as long as `every` is at least p.

    Raises: OrderError where a rank would need a version that it has not made yet.
    """
    return _versions(orders, every, lambda rank, kind, i: max(0, i // every - 1))


def _versions(orders: Orders, every: int, used: Callable[[int, str, int], int]) -> WeightVersions:
    forward, backward, newest, kept = [], [], [], []
    for rank, order in enumerate(_plain(orders, every)):
        at_start = _at_start(order, every)
        uses = [used(rank, kind, i) for kind, i in order]
        for (kind, i), version in zip(order, uses, strict=True):
            if version > at_start[kind, i]:
                raise OrderError(
                    f"Rank {rank} needs version {version} for {kind}{i} but has made only "
                    f"{at_start[kind, i]} updates: put more microbatches into an update."
                )
        m = len(order) // 2
        forward.append(tuple(used(rank, "F", i) for i in range(m)))
        backward.append(tuple(used(rank, "B", i) for i in range(m)))
        newest.append(tuple(at_start["B", i] for i in range(m)))
        kept.append(_most_kept([at_start[op] for op in order], uses))
    return WeightVersions(tuple(forward), tuple(backward), tuple(newest), tuple(kept))


def _plain(orders: Orders, every: int) -> list[list[tuple[str, int]]]:
    """Returns the orders as (kind, microbatch); refuses chunks and split backward passes."""
    coding = Coding(orders)
    coding.raise_first_mistake(orders)
    if coding.v > 1 or coding.kinds != ("F", "B"):
        raise OrderError("Weight versions are told for orders of F and B on one chunk per rank.")
    if every < 1:
        raise OrderError(f"An update takes at least one microbatch, not {every}.")
    return [[(op.kind, op.microbatch) for group in split_at(o) for op in group] for o in orders]


def _at_start(order: list[tuple[str, int]], every: int) -> dict[tuple[str, int], int]:
    """Returns how many updates a rank has made when each op starts."""
    at_start, backward = {}, 0
    for op in order:
        at_start[op] = backward // every
        backward += op[0] == "B"
    return at_start


def _most_kept(newest: list[int], uses: list[int]) -> int:
    """Returns the most versions to store at once: the newest, and all that a later op uses."""
    last_use = {version: place for place, version in enumerate(uses)}
    most, kept = 1, set()
    for place, (current, version) in enumerate(zip(newest, uses, strict=True)):
        kept = {
            v for v in kept | {current, version} if v == current or last_use.get(v, -1) >= place
        }
        most = max(most, len(kept))
    return most
