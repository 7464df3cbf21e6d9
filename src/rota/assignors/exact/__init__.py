"""The exact solver of the sticky family.

The result is as even as any assignment can be; among those, where racks are known, as many
partitions as possible are with a member in a rack that holds a replica; and among those as few as
possible move. Partitions that the same members may own are interchangeable, so all this is decided
on counts of (pool of partitions, member):

1. ``balance``: the level of each class of members, by maximum flow.
2. A pool goes only to those of its members with the smallest level, each of whom gets its level or
   one less. This loses nothing. For any convex measure of evenness let a member's price be what
   its last partition up to its level costs: the sum of prices over all partitions is then a bound
   that exactly the assignments within these limits reach.
3. ``stickiness``: minimum-cost flow within these limits, for locality first; the prices it ends
   with tell which arcs the most local assignments use, and the second flow, for ownership, runs on
   those alone.
4. ``expand``: from counts to partitions.

``rota.assignors.certificate`` checks a result without any of this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rota.assignors.claims import previous_owners
from rota.assignors.exact import bits, pools
from rota.assignors.exact.balance import levels
from rota.assignors.exact.expand import Holdings, expand
from rota.assignors.exact.flow import Shares
from rota.assignors.exact.stickiness import Network, keep_most, most_local
from rota.assignors.interface import Solution
from rota.assignors.problem import Problem, Racks
from rota.model.topic import IntArray

OUT_OF_TIME = (
    "stopped at the time budget: loads are as even as can be, but moves may not be the fewest"
)
NOT_MOST_LOCAL = "and local partitions may not be the most"


def solve(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """The most even loads that the subscriptions allow, and among those the fewest moves.

    ``expired`` is asked while moves are saved; the loads are even in any case.
    """
    previous = previous_owners(problem)
    if not problem.layout.size:
        return Solution(owners=previous)
    network, pool_of = _most_even(problem)
    local = True
    if problem.racks is not None:
        network, pool_of, local = _most_local(problem.racks, network, pool_of, expired)
    held = Holdings.of(previous, pool_of, len(network.sizes), len(problem.members))
    shares, fewest = keep_most(network, _owned(network, held), expired if local else lambda: True)
    owners = expand(previous, pool_of, held, shares)
    if local:
        return Solution(owners=owners, notes=() if fewest else (OUT_OF_TIME,))
    return Solution(owners=owners, notes=(f"{OUT_OF_TIME} {NOT_MOST_LOCAL}",))


@dataclass(frozen=True, slots=True)
class Balance:
    """Every most even assignment of a problem: what all questions after stickiness begin with."""

    network: Network
    pool_of: IntArray | None
    """The pool of each partition; None: there is but one."""

    @classmethod
    def of(cls, problem: Problem) -> Balance:
        """Those that the subscriptions allow."""
        return cls(*_most_even(problem))

    def most_kept(self, previous: IntArray, expired: Callable[[], bool]) -> tuple[int, bool]:
        """How many partitions the stickiest of them leaves with their previous owners (-1: none);
        and whether time sufficed to find it.
        """
        if not len(previous):
            return 0, True
        network = self.network
        held = Holdings.of(previous, self.pool_of, len(network.sizes), len(network.low))
        owned = _owned(network, held)
        shares, in_time = keep_most(network, owned, expired)
        kept = sum(
            min(amount, share.get(pool, 0))
            for mine, share in zip(owned, shares, strict=True)
            for pool, amount in mine.items()
        )
        return kept, in_time


def _most_even(problem: Problem) -> tuple[Network, IntArray | None]:
    """The network of all most even assignments, and the pool of each partition (None: one)."""
    counts, class_of = problem.layout.counts, problem.class_of
    class_sizes = np.bincount(class_of, minlength=len(problem.classes)).tolist()
    reach, sizes, which = pools.merged(pools.subscribing(problem), counts.tolist())
    level = levels(reach, sizes, class_sizes)
    if len(reach) > 1:
        reach, sizes, again = pools.merged(_lowest(reach, level), sizes)
        which = [again[pool] for pool in which]
    high = [level[position] for position in class_of.tolist()]
    network = Network(
        sizes=sizes,
        reach=pools.members_of(reach, class_of, len(class_sizes)),
        low=[max(mark - 1, 0) for mark in high],
        high=high,
    )
    if len(reach) == 1:
        return network, None
    return network, np.repeat(np.array(which, dtype=np.int32), counts)


def _lowest(reach: list[int], level: list[int]) -> list[int]:
    """For each pool those of its classes that have the smallest level."""
    at: dict[int, int] = {}
    for position, mark in enumerate(level):
        at[mark] = at.get(mark, 0) | 1 << position
    ascending = [at[mark] for mark in sorted(at)]

    def lowest(classes: int) -> int:
        if classes.bit_count() < len(at):
            return classes & at[min(level[position] for position in bits.positions(classes))]
        return next(classes & same for same in ascending if classes & same)

    return [lowest(classes) for classes in reach]


def _most_local(
    racks: Racks, network: Network, pool_of: IntArray | None, expired: Callable[[], bool]
) -> tuple[Network, IntArray, bool]:
    """The same for the most local of them; if time runs out the most even ones, and False."""
    near = pools.local_members(racks)
    split, pool_of, local = pools.by_rack(network, pool_of, racks.set_of, near)
    if all(members in {0, reach} for members, reach in zip(local, split.reach, strict=True)):
        return split, pool_of, True
    best = most_local(split, local, expired)
    if best is None:
        return split, pool_of, False
    reach, sizes, which = pools.merged(best.reach, best.sizes)
    joined = Network(sizes=sizes, reach=reach, low=best.low, high=best.high)
    return joined, np.array(which, dtype=np.int32)[pool_of], True


def _owned(network: Network, held: Holdings) -> Shares:
    """What each member owns and may keep."""
    owned: Shares = [{} for _ in network.low]
    for pool, member, count in zip(
        held.pool.tolist(), held.member.tolist(), held.count.tolist(), strict=True
    ):
        if network.reach[pool] >> member & 1:
            owned[member][pool] = count
    return owned
