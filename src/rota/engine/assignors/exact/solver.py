"""The exact solver of the sticky assignors.

The result is as even as any assignment can be; among those, where racks are known, as many
partitions as possible are with a member in a rack that holds a replica; and among those as few as
possible move. Partitions that the same members may own are interchangeable and form a pool, so
everything is decided on counts of (pool, member). `solve_exactly` takes these steps:

1. `find_levels`: the level of each class of members, by maximum flow.
2. A pool goes only to those of its members with the smallest level, and each of these gets its
   level or one less. This loses nothing. For any convex measure of evenness let a member's price be
   the cost of its last partition up to its level: the sum of prices over all partitions is then a
   bound that exactly the assignments within these limits reach.
3. `restrict_to_most_local` and `keep_most_owned`: minimum-cost flow within these limits, for
   locality first. The prices at its end tell which arcs the most local assignments use; the second
   flow, for ownership, runs on those alone.
4. `counts_to_owners`: from counts to partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from rota.engine.assignors.exact import min_cost_flow
from rota.engine.assignors.exact.min_cost_flow import MinCostFlow, Shares, spread_proportionally
from rota.engine.assignors.interface import Solution
from rota.engine.assignors.problem import (
    Problem,
    Racks,
    find_classes_per_topic,
    find_previous_owners,
)
from rota.engine.formats.buffer import Int64Array
from rota.engine.model.member import UNASSIGNED
from rota.engine.model.topic import IntArray


def merge_pools(reach: list[int], sizes: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Returns the distinct sets in order, the size of each, and which of them each set is."""
    index: dict[int, int] = {}
    which = [index.setdefault(members, len(index)) for members in reach]
    total = [0] * len(index)
    for pool, size in zip(which, sizes, strict=True):
        total[pool] += size
    return list(index), total, which


def find_subscribed_classes(problem: Problem) -> list[int]:
    """Returns for each topic the set of member classes that subscribe to it."""
    classes = problem.classes
    topics = len(problem.layout.topics)
    if len(classes) <= min_cost_flow.FEW_ELEMENTS:
        found = [0] * topics
        for position, listed in enumerate(classes):
            for topic in listed.tolist():
                found[topic] |= 1 << position
        return found
    return [
        min_cost_flow.bitset_from_positions(column, len(classes))
        for column in find_classes_per_topic(problem)
    ]


def classes_to_members(reach: list[int], class_of: IntArray, classes: int) -> list[int]:
    if classes == len(class_of):
        return reach  # each member is its own class, in the order of members
    found = []
    for listed in reach:
        flags = np.zeros(classes, dtype=np.bool_)
        flags[min_cost_flow.bitset_to_array(listed)] = True
        found.append(min_cost_flow.bitset_from_flags(flags[class_of]))
    return found


def find_local_members(racks: Racks) -> list[int]:
    """Returns for each rack set the members in one of its racks."""
    known = racks.rack_of_member >= 0
    return [
        min_cost_flow.bitset_from_flags(row[racks.rack_of_member] & known)
        for row in racks.set_has_rack
    ]


def split_pools_by_rack(
    network: FlowNetwork, pool_of: IntArray | None, set_of: IntArray, near: list[int]
) -> tuple[FlowNetwork, IntArray, list[int]]:
    """Splits pools by their local members; returns also the local members of each new pool."""
    key = set_of if pool_of is None else pool_of * np.int64(len(near)) + set_of
    counts = np.bincount(key)
    present = np.flatnonzero(counts)
    index: dict[tuple[int, int], int] = {}
    pool_at = np.zeros(len(counts), dtype=np.int32)
    sizes: list[int] = []
    for place, count in zip(present.tolist(), counts[present].tolist(), strict=True):
        pool, rack_set = divmod(place, len(near))
        found = index.setdefault((pool, near[rack_set] & network.reach[pool]), len(index))
        if found == len(sizes):
            sizes.append(0)
        sizes[found] += count
        pool_at[place] = found
    reach = [network.reach[pool] for pool, _ in index]
    local = [members for _, members in index]
    split = FlowNetwork(sizes=sizes, reach=reach, low=network.low, high=network.high)
    return split, pool_at[key], local


def find_levels(reach: list[int], sizes: list[int], class_sizes: list[int]) -> list[int]:
    """The level of each class: in every most even assignment its members have ``level`` partitions
    or one fewer. ``reach[p]`` are the classes that may own pool p of ``sizes[p]`` partitions.

    Fill all classes evenly to the mean. What does not fit stays with the classes that it reaches,
    which end above the mean; the rest ends at it or below. Both sides are then problems of their
    own.
    """
    found = [0] * len(class_sizes)
    shared = _set_isolated_levels(reach, sizes, class_sizes, found)
    if not shared:
        return found
    flow = MinCostFlow([reach[pool] for pool in shared], len(class_sizes))
    everyone = min_cost_flow.bitset_union(flow.reach)
    total = [sizes[pool] for pool in shared]
    mean = sum(total) // sum(class_sizes[c] for c in min_cost_flow.bitset_elements(everyone))
    rooms = np.array(class_sizes, dtype=np.int64) * mean
    for pool, listed, amounts in spread_proportionally(total, flow.reach, rooms):
        flow.add_new(pool, listed, amounts)
    stack = [((1 << len(shared)) - 1, everyone)]
    while stack:
        pools, classes = stack.pop()
        listed = min_cost_flow.bitset_elements(classes)
        partitions = sum(total[pool] for pool in min_cost_flow.bitset_elements(pools))
        level, rest = divmod(partitions, sum(class_sizes[c] for c in listed))
        full, stuck = _fill_to_level(flow, classes, listed, class_sizes, level)
        if full == classes and rest:
            level += 1
            full, stuck = _fill_to_level(flow, classes, listed, class_sizes, level)
        if not full:
            for position in listed:
                found[position] = level
            continue
        for pool in min_cost_flow.bitset_elements(pools & ~stuck):
            flow.reach[pool] &= ~full
        stack += [(pools & stuck, full), (pools & ~stuck, classes & ~full)]
    return found


def _fill_to_level(
    flow: MinCostFlow, classes: int, listed: list[int], class_sizes: list[int], level: int
) -> tuple[int, int]:
    """Fills each class to ``level`` per member; returns classes and pools with stuck excess."""
    for position in listed:
        flow.set_target(position, class_sizes[position] * level)
    return flow.move_excess_at_current_prices(classes)


def _set_isolated_levels(
    reach: list[int], sizes: list[int], class_sizes: list[int], found: list[int]
) -> list[int]:
    """Sets the level of classes that own only one pool; returns the other pools."""
    shared = []
    for pool, alone in enumerate(find_isolated_pools(reach)):
        if not alone:
            shared.append(pool)
            continue
        classes = min_cost_flow.bitset_elements(reach[pool])
        level = -(-sizes[pool] // sum(class_sizes[c] for c in classes))
        for position in classes:
            found[position] = level
    return shared


def find_isolated_pools(reach: list[int]) -> list[bool]:
    """Returns a flag per pool: it shares no member with any other pool."""
    once = twice = 0
    for takers in reach:
        twice |= once & takers
        once |= takers
    return [not takers & twice for takers in reach]


@dataclass(slots=True)
class FlowNetwork:
    """Pools of ``sizes[p]`` partitions that can go to the members ``reach[p]``. Member m is to have
    ``low[m]`` to ``high[m]`` partitions, which differ by at most one.
    """

    sizes: list[int]
    reach: list[int]
    low: list[int]
    high: list[int]


def keep_most_owned(
    network: FlowNetwork, owned: Shares, expired: Callable[[], bool]
) -> tuple[Shares, bool]:
    """How much each member gets of each pool so that most stay; and if there was enough time."""
    alone = find_isolated_pools(network.reach)
    free = [0 if by_itself else size for by_itself, size in zip(alone, network.sizes, strict=True)]
    shares: Shares = [{} for _ in network.low]
    in_time = True
    if any(free):
        reach = [0 if by_itself else of for by_itself, of in zip(alone, network.reach, strict=True)]
        shares, in_time = _keep_most_by_flow(network, reach, free, owned, expired)
    for pool, by_itself in enumerate(alone):
        if by_itself:
            _assign_isolated_pool(network, pool, owned, shares)
    return shares, in_time


def _keep_most_by_flow(
    network: FlowNetwork,
    reach: list[int],
    free: list[int],
    owned: Shares,
    expired: Callable[[], bool],
) -> tuple[Shares, bool]:
    """For pools that share members: keeps all owned partitions, then moves the excess."""
    flow = MinCostFlow(reach, len(network.low))
    taking = min_cost_flow.bitset_elements(min_cost_flow.bitset_union(reach))
    for member in taking:
        for pool, amount in owned[member].items():
            free[pool] -= amount
            flow.add_owned(pool, member, amount, own=amount)
    rooms = np.maximum(np.array(network.high, dtype=np.int64) - flow.excess, 0)
    for pool, members, amounts in spread_proportionally(free, reach, rooms):
        flow.add_new(pool, members, amounts)
    _set_targets(flow, network, taking)
    in_time = flow.move_excess(expired)
    if not in_time:
        flow.move_excess_at_any_cost()
    return flow.total_shares(), in_time


def _assign_isolated_pool(network: FlowNetwork, pool: int, owned: Shares, shares: Shares) -> None:
    """Needs no flow: members with more than ``low`` get one more first, then others by id."""
    low, high = network.low, network.high
    members = min_cost_flow.bitset_elements(network.reach[pool])
    more = network.sizes[pool] - sum(low[member] for member in members)
    wanting = [member for member in members if high[member] > low[member]]
    wanting.sort(key=lambda member: owned[member].get(pool, 0) <= low[member])
    for member in members:
        if low[member]:
            shares[member][pool] = low[member]
    for member in wanting[:more]:
        shares[member][pool] = low[member] + 1


def _set_targets(flow: MinCostFlow, network: FlowNetwork, taking: list[int]) -> None:
    """Sets targets close to the loads, whose sum is the number of partitions."""
    targets = [
        min(max(flow.excess[member], network.low[member]), network.high[member])
        for member in taking
    ]
    left = sum(flow.excess) - sum(targets)
    for member, near in zip(taking, targets, strict=True):
        low, high, target = network.low[member], network.high[member], near
        if left > 0 and near < high:
            target, left = high, left - 1
        elif left < 0 and near > low:
            target, left = low, left + 1
        flow.set_target(member, target)
        if low < high:
            flow.can_rise |= (target == low) << member
            flow.can_fall |= (target == high) << member


def restrict_to_most_local(
    network: FlowNetwork, local: list[int], expired: Callable[[], bool]
) -> FlowNetwork | None:
    """Returns the network of all most local assignments; None if time ran out. ``local[p]`` are the
    members in a rack of pool p; partitions that are assigned to them count as kept.
    """
    flow = MinCostFlow(network.reach, len(network.low))
    flow.set_prices([1 if near else 0 for near in local])
    for pool, near in enumerate(local):
        for member in min_cost_flow.bitset_elements(near):
            # one more than there are: it never runs out
            flow.add_owned(pool, member, 0, own=network.sizes[pool] + 1)
    among = [near or reach for near, reach in zip(local, network.reach, strict=True)]
    rooms = np.array(network.high, dtype=np.int64)
    for pool, members, amounts in spread_proportionally(network.sizes, among, rooms):
        if not local[pool]:
            flow.add_new(pool, members, amounts)
            continue
        for member, amount in zip(members, amounts, strict=True):
            flow.add_owned(pool, member, amount, own=network.sizes[pool] + 1)
    everyone = min_cost_flow.bitset_union(network.reach)
    _set_targets(flow, network, min_cost_flow.bitset_elements(everyone))
    return _restrict_to_zero_cost(flow, network, local) if flow.move_excess(expired) else None


def _restrict_to_zero_cost(
    flow: MinCostFlow, network: FlowNetwork, local: list[int]
) -> FlowNetwork:
    """Keeps the arcs of reduced cost zero: no best assignment uses others."""
    reach = [
        members & ~near & flow.members_at.get(price, 0) | near & flow.members_at.get(price - 1, 0)
        for members, near, price in zip(network.reach, local, flow.pool_price, strict=True)
    ]
    low, high = list(network.low), list(network.high)
    for member, price in enumerate(flow.member_price):
        if price > flow.exchange_price:
            high[member] = low[member]
        elif price < flow.exchange_price:
            low[member] = high[member]
    return FlowNetwork(network.sizes, reach, low, high)


NARROW_FROM = 1_000  # smallest number of keys for which narrowing is faster


@dataclass(slots=True)
class OwnedCounts:
    """What each member owned of each pool: one row for each pair, sorted by (pool, member).
    ``row_slot`` has the slot of each row, ``slot[i]`` the slot of partition i.
    """

    slot: npt.NDArray[np.intp]
    slots: int
    row_slot: npt.NDArray[np.intp]
    pool: npt.NDArray[np.intp]
    member: npt.NDArray[np.intp]
    count: npt.NDArray[np.intp]

    @classmethod
    def count_owned(
        cls, previous: IntArray, pool_of: IntArray | None, pools: int, members: int
    ) -> OwnedCounts:
        """``pool_of`` is the pool of each partition; None if there is only one pool."""
        if previous.max() == UNASSIGNED:
            nothing = np.empty(0, dtype=np.intp)
            return cls(nothing, 0, nothing, nothing, nothing, nothing)
        width = members + 1  # one more for partitions that nobody owned
        slot = previous.astype(np.intp)
        slot += 1
        if pool_of is not None:
            slot += pool_of.astype(np.intp) * width
        if pools * width <= 2 * len(previous) + 4096:
            counts = np.bincount(slot, minlength=pools * width)
            keys = counts.nonzero()[0]
            row_slot, slots = keys, pools * width
            counts = counts[keys]
        else:
            keys, slot, counts = np.unique(slot, return_inverse=True, return_counts=True)
            row_slot, slots = np.arange(len(keys)), len(keys)
        pool, member = np.divmod(keys, width)
        owned = member > 0
        if not owned.all():
            row_slot, pool, member = row_slot[owned], pool[owned], member[owned]
            counts = counts[owned]
        return cls(slot, slots, row_slot, pool, member - 1, counts)


@dataclass(slots=True)
class AllottedCounts:
    """What each member shall have of each pool: one row for each pair, by (pool, member)."""

    pool: Int64Array
    member: Int64Array
    amount: Int64Array

    @classmethod
    def from_shares(cls, shares: Shares) -> AllottedCounts:
        sizes = [len(share) for share in shares]
        total = sum(sizes)
        member = np.repeat(np.arange(len(shares)), sizes)
        pool = np.fromiter(chain.from_iterable(shares), np.int64, total)
        amounts = chain.from_iterable(share.values() for share in shares)
        amount = np.fromiter(amounts, np.int64, total)
        order = _narrow_keys(pool).argsort(kind="stable")
        return cls(pool[order], member[order], amount[order])


def counts_to_owners(
    previous: IntArray, pool_of: IntArray | None, held: OwnedCounts, shares: Shares
) -> IntArray:
    """Returns the owner of each partition: members keep what they owned, up to their share."""
    allotted = AllottedCounts.from_shares(shares)
    if not len(held.count) and pool_of is None:
        return _assign_by_rounds(allotted)
    owners = previous.copy()
    if len(held.count):
        _keep_owned(owners, held, allotted, len(shares))
    free = (owners < 0).nonzero()[0]
    if pool_of is not None:
        free = free[_narrow_keys(pool_of[free]).argsort(kind="stable")]
    owners[free] = _assign_by_rounds(allotted)
    return owners


def _keep_owned(
    owners: IntArray, held: OwnedCounts, allotted: AllottedCounts, members: int
) -> None:
    """Releases owned partitions beyond a member's share, and subtracts the kept ones from it."""
    keys = allotted.pool * members + allotted.member
    wanted = held.pool * members + held.member
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    kept = np.minimum(held.count, np.where(keys[place] == wanted, allotted.amount[place], 0))
    # rows of nothing point at another pair's row: they take nothing off it
    np.subtract.at(allotted.amount, place, kept)
    _release_excess(owners, held, held.count - kept)


def _release_excess(owners: IntArray, held: OwnedCounts, excess: Int64Array) -> None:
    """Releases ``excess`` partitions of each row evenly, so that they belong to many topics."""
    rows = excess.nonzero()[0]
    if not len(rows):
        return
    affected = np.zeros(held.slots, dtype=np.bool_)
    affected[held.row_slot[rows]] = True
    partitions = affected[held.slot].nonzero()[0]
    partitions = partitions[_narrow_keys(held.slot[partitions]).argsort(kind="stable")]
    size, drop = held.count[rows], excess[rows]
    first, peers = _find_runs(held.pool[rows])
    turn = np.arange(len(rows)) - first.repeat(peers)
    start = size.cumsum() - size
    shift = turn * size // peers.repeat(peers) - start
    place = np.arange(len(partitions)) + shift.repeat(size)
    size, drop = size.repeat(size), drop.repeat(size)
    place %= size
    owners[partitions[(place + 1) * drop // size > place * drop // size]] = UNASSIGNED


def _assign_by_rounds(allotted: AllottedCounts) -> IntArray:
    """Returns the receivers of each pool in turn, each as often as its amount."""
    rows = allotted.amount.nonzero()[0]
    if not len(rows):
        return np.empty(0, dtype=np.int32)
    pool, member, amount = allotted.pool[rows], allotted.member[rows], allotted.amount[rows]
    if pool[0] == pool[-1]:
        return _assign_one_pool_by_rounds(member.astype(np.int32), amount)
    first, receivers = _find_runs(pool)
    most = np.maximum.reduceat(amount, first)
    base = (most.cumsum() - most).repeat(receivers)
    # each row runs through base, base + 1, ... : one small sort key for (pool, round)
    shift = base - (amount.cumsum() - amount)
    key = np.arange(int(amount.sum())) + shift.repeat(amount)
    order = _narrow_keys(key).argsort(kind="stable")
    return member.astype(np.int32).repeat(amount)[order]


def _assign_one_pool_by_rounds(member: IntArray, amount: Int64Array) -> IntArray:
    """The same for one pool: between two different amounts every round has the same receivers."""
    pieces = []
    done = 0
    for mark in np.unique(amount).tolist():
        pieces.append(np.tile(member[amount > done], mark - done))
        done = mark
    return np.concatenate(pieces)


def _find_runs(column: Int64Array) -> tuple[Int64Array, Int64Array]:
    edge = np.ones(len(column) + 1, dtype=np.bool_)
    np.not_equal(column[1:], column[:-1], out=edge[1:-1])
    bounds = edge.nonzero()[0]
    return bounds[:-1], bounds[1:] - bounds[:-1]


def _narrow_keys(keys: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """16 bits if they suffice: NumPy then sorts by radix, ten times faster at a million rows."""
    if len(keys) < NARROW_FROM or keys.max() > np.iinfo(np.uint16).max:
        return keys
    return keys.astype(np.uint16)


OUT_OF_TIME = (
    "stopped at the time budget: loads are as even as can be, but moves may not be the fewest"
)

NOT_MOST_LOCAL = "and local partitions may not be the most"


def solve_exactly(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """Returns a most even assignment with the fewest moves that it finds until ``expired``."""
    previous = find_previous_owners(problem)
    if not problem.layout.size:
        return Solution(owners=previous)
    network, pool_of = _find_most_even(problem)
    local = True
    if problem.racks is not None:
        network, pool_of, local = _find_most_local(problem.racks, network, pool_of, expired)
    held = OwnedCounts.count_owned(previous, pool_of, len(network.sizes), len(problem.members))
    keepable = _find_keepable(network, held)
    shares, fewest = keep_most_owned(network, keepable, expired if local else lambda: True)
    owners = counts_to_owners(previous, pool_of, held, shares)
    if local:
        return Solution(owners=owners, notes=() if fewest else (OUT_OF_TIME,))
    return Solution(owners=owners, notes=(f"{OUT_OF_TIME} {NOT_MOST_LOCAL}",))


def _find_most_even(problem: Problem) -> tuple[FlowNetwork, IntArray | None]:
    """Returns all most even assignments, and each partition's pool (None: there is one pool)."""
    counts, class_of = problem.layout.counts, problem.class_of
    class_sizes = np.bincount(class_of, minlength=len(problem.classes)).tolist()
    reach, sizes, which = merge_pools(find_subscribed_classes(problem), counts.tolist())
    level = find_levels(reach, sizes, class_sizes)
    if len(reach) > 1:
        reach, sizes, again = merge_pools(_keep_lowest_level(reach, level), sizes)
        which = [again[pool] for pool in which]
    high = [level[position] for position in class_of.tolist()]
    network = FlowNetwork(
        sizes=sizes,
        reach=classes_to_members(reach, class_of, len(class_sizes)),
        low=[max(mark - 1, 0) for mark in high],
        high=high,
    )
    if len(reach) == 1:
        return network, None
    return network, np.repeat(np.array(which, dtype=np.int32), counts)


def _keep_lowest_level(reach: list[int], level: list[int]) -> list[int]:
    at: dict[int, int] = {}
    for position, mark in enumerate(level):
        at[mark] = at.get(mark, 0) | 1 << position
    ascending = [at[mark] for mark in sorted(at)]

    def lowest(classes: int) -> int:
        if classes.bit_count() < len(at):
            listed = min_cost_flow.bitset_elements(classes)
            return classes & at[min(level[position] for position in listed)]
        return next(classes & same for same in ascending if classes & same)

    return [lowest(classes) for classes in reach]


def _find_most_local(
    racks: Racks, network: FlowNetwork, pool_of: IntArray | None, expired: Callable[[], bool]
) -> tuple[FlowNetwork, IntArray, bool]:
    """Restricts the network to the most local assignments; False if time ran out before."""
    near = find_local_members(racks)
    split, pool_of, local = split_pools_by_rack(network, pool_of, racks.set_of_partition, near)
    if all(members in {0, reach} for members, reach in zip(local, split.reach, strict=True)):
        return split, pool_of, True
    best = restrict_to_most_local(split, local, expired)
    if best is None:
        return split, pool_of, False
    reach, sizes, which = merge_pools(best.reach, best.sizes)
    joined = FlowNetwork(sizes=sizes, reach=reach, low=best.low, high=best.high)
    return joined, np.array(which, dtype=np.int32)[pool_of], True


def _find_keepable(network: FlowNetwork, held: OwnedCounts) -> Shares:
    owned: Shares = [{} for _ in network.low]
    columns = held.pool.tolist(), held.member.tolist(), held.count.tolist()
    for pool, member, count in zip(*columns, strict=True):
        if network.reach[pool] >> member & 1:
            owned[member][pool] = count
    return owned


class FewestMoves:
    """The fewest moves to the best balance without racks, for any previous owners."""

    def __init__(self, problem: Problem) -> None:
        self._members = len(problem.members)
        self._floor, self._extra = divmod(problem.layout.size, max(self._members, 1))
        self._most_even = None if len(problem.classes) <= 1 else _find_most_even(problem)

    def count(self, previous: IntArray, expired: Callable[[], bool]) -> tuple[int, bool]:
        """Returns the number of moves, and whether it was proven in time to be the smallest."""
        held = np.bincount(previous[previous != UNASSIGNED], minlength=self._members)
        if self._most_even is None:
            return self._count_when_identical(held.tolist()), True
        if not len(previous):
            return 0, True
        network, pool_of = self._most_even
        counts = OwnedCounts.count_owned(previous, pool_of, len(network.sizes), self._members)
        owned = _find_keepable(network, counts)
        shares, in_time = keep_most_owned(network, owned, expired)
        kept = sum(
            min(amount, share.get(pool, 0))
            for mine, share in zip(owned, shares, strict=True)
            for pool, amount in mine.items()
        )
        return int(held.sum()) - kept, in_time

    def _count_when_identical(self, held: list[int]) -> int:
        """Members keep what they hold up to the floor; one more as long as there are ceilings."""
        beyond = [count - self._floor for count in held if count > self._floor]
        return sum(beyond) - min(self._extra, len(beyond))
