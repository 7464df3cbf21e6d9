"""Minimum-cost flow between pools of partitions and the members that may own them.

A pool is a number of partitions that the same members may own. Every partition of a pool is always
with some member; what flows is the excess of members that have too many.

A partition can take these arcs: from a member back to the pool (cost 0 if it is new there, 1 if it
is one of those the member may keep), from the pool to a member (cost -1 while the member has fewer
of its own partitions than before, else 0), and through the exchange, at which a member that is to
have ``high`` partitions trades this for another's ``low`` (cost 0).

Method: primal-dual. Prices keep every arc's cost + price(tail) - price(head) at zero or above, so
no cycle of negative cost ever exists and the flow is always the cheapest of its kind. Excess moves
along arcs at zero, by blocking flows (Dinic); when these reach no member with room, a search for
the nearest one adjusts prices (Dial). Neither step restarts from scratch, and none is recursive.

Sets of small numbers (pools, members) are bitsets in Python's big integers: one operation joins
thousands of elements, and a layer of the search is one integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

FEW_ELEMENTS = 16  # largest number of elements for which a plain loop is faster than NumPy


def bitset_from_positions(positions: npt.NDArray[np.integer], width: int) -> int:
    if len(positions) <= FEW_ELEMENTS:
        found = 0
        for position in positions.tolist():
            found |= 1 << position
        return found
    flags = np.zeros(width, dtype=np.bool_)
    flags[positions] = True
    return bitset_from_flags(flags)


def bitset_from_flags(flags: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def bitset_elements(bits: int) -> list[int]:
    """The elements of a set, ascending."""
    if bits.bit_count() > FEW_ELEMENTS:
        listed: list[int] = bitset_to_array(bits).tolist()
        return listed
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def bitset_to_array(bits: int) -> npt.NDArray[np.intp]:
    octets = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    return np.unpackbits(octets, bitorder="little").view(np.bool_).nonzero()[0]


def bitset_union(sets: Iterable[int]) -> int:
    found = 0
    for bits in sets:
        found |= bits
    return found


def spread_proportionally(
    sizes: list[int], reach: list[int], rooms: npt.NDArray[np.int64]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yields (pool, members, amounts): each pool spread over its members in proportion to their
    room (uses up ``rooms``). It leaves little for the flow. Pools with the fewest members go first.
    """
    for pool in sorted(range(len(sizes)), key=lambda pool: (reach[pool].bit_count(), pool)):
        if not sizes[pool]:
            continue
        members = bitset_to_array(reach[pool])
        room = rooms[members]
        shares = _split_by_room(sizes[pool], room)
        rooms[members] = np.maximum(room - shares, 0)
        given = shares.nonzero()[0]
        yield pool, members[given].tolist(), shares[given].tolist()


def _split_by_room(size: int, room: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total = int(room.sum())
    if total >= size:
        return _undo_cumsum(room.cumsum() * size // total)
    return room + _undo_cumsum(np.arange(1, len(room) + 1) * (size - total) // len(room))


def _undo_cumsum(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What running sums were summed from (np.diff takes three times as long on short rows)."""
    sums[1:] -= sums[:-1].copy()
    return sums


EXCHANGE = -1  # the exchange, in a path of members (even places) and pools (odd places)

Shares = list[dict[int, int]]  # for each member, how many it has of each pool


class MinCostFlow:
    """The state of one network; ``reach[p]`` is the set of members that pool p can go to.
    ``own[m][p]`` of pool p cost 1 to take from member m; m has ``keep`` of them, and ``new`` more.
    """

    def __init__(self, reach: list[int], members: int) -> None:
        self.reach = reach
        self.own: Shares = [{} for _ in range(members)]
        self.keep: Shares = [{} for _ in range(members)]
        self.new: Shares = [{} for _ in range(members)]
        self.keep_bits = [0] * members
        self.new_bits = [0] * members
        # for each pool the members that have less of it than they may keep
        self.lacking_members = [0] * len(reach)
        self.target = [0] * members
        self.excess = [0] * members
        self.members_with_excess = self.members_with_room = 0
        self.can_rise = 0  # members whose target is low and may be high
        self.can_fall = 0  # the reverse
        self.set_prices([0] * len(reach))

    def add_new(self, pool: int, members: list[int], amounts: list[int]) -> None:
        """Gives partitions of a pool to members, new to them; once for each pool."""
        bit = 1 << pool
        for member, amount in zip(members, amounts, strict=True):
            self.new[member][pool] = amount
            self.new_bits[member] |= bit
            self.excess[member] += amount

    def add_owned(self, pool: int, member: int, amount: int, own: int) -> None:
        """Gives partitions to a member that may keep ``own`` of the pool."""
        self.own[member][pool] = own
        if amount:
            self.keep[member][pool] = amount
            self.keep_bits[member] |= 1 << pool
            self.excess[member] += amount
        if amount < own:
            self.lacking_members[pool] |= 1 << member

    def set_target(self, member: int, target: int) -> None:
        excess = self.excess[member] = self.excess[member] + self.target[member] - target
        self.target[member] = target
        bit = 1 << member
        self.members_with_excess &= ~bit
        self.members_with_room &= ~bit
        if excess > 0:
            self.members_with_excess |= bit
        elif excess < 0:
            self.members_with_room |= bit

    def total_shares(self) -> Shares:
        found = [dict(share) for share in self.new]
        for share, kept in zip(found, self.keep, strict=True):
            for pool, amount in kept.items():
                share[pool] = share.get(pool, 0) + amount
        return found

    def set_prices(self, pool_price: list[int]) -> None:
        """Starts from these prices of the pools, and zero for everything else."""
        members = len(self.new)
        self.member_price = [0] * members
        self.exchange_price = 0
        self.members_at = {0: (1 << members) - 1}  # by price
        self.pool_price = pool_price
        self.pools_at: dict[int, int] = {}
        for pool, price in enumerate(pool_price):
            self.pools_at[price] = self.pools_at.get(price, 0) | 1 << pool

    def move_excess(self, expired: Callable[[], bool]) -> bool:
        """Moves all excess at least cost. False if time ran out and some is left."""
        while self.members_with_excess:
            if expired():
                return False
            layers, exchange_at = self._build_layers(self.members_with_excess)
            if layers[-1]:
                self._push_blocking_flow(layers, exchange_at)
            else:
                self._adjust_prices()
        return True

    def move_excess_at_current_prices(self, sources: int) -> tuple[int, int]:
        """Moves the excess that can go at present prices; returns nodes that the rest reaches."""
        while True:
            layers, exchange_at = self._build_layers(self.members_with_excess & sources)
            if not layers[-1]:
                return bitset_union(layers[::2]), bitset_union(layers[1::2])
            self._push_blocking_flow(layers, exchange_at)

    def move_excess_at_any_cost(self) -> None:
        self.new = self.total_shares()
        bits = zip(self.new_bits, self.keep_bits, strict=True)
        self.new_bits = [new | kept for new, kept in bits]
        self.keep = [{} for _ in self.new]
        self.keep_bits = [0] * len(self.new)
        self.lacking_members = [0] * len(self.reach)
        self.set_prices([0] * len(self.reach))
        self.move_excess_at_current_prices(self.members_with_excess)

    def _pools_from(self, member: int) -> int:
        price = self.member_price[member]
        found = self.new_bits[member] & self.pools_at.get(price, 0)
        kept = self.keep_bits[member]
        return found | kept & self.pools_at.get(price + 1, 0) if kept else found

    def _members_from(self, pool: int) -> int:
        price = self.pool_price[pool]
        found = self.reach[pool] & self.members_at.get(price, 0)
        lack = self.lacking_members[pool]
        return found | lack & self.members_at.get(price - 1, 0) if lack else found

    def _build_layers(self, sources: int) -> tuple[list[int], int]:
        """Sets of members and of pools in turn, by distance from the sources, up to the first
        members with room (the last set is empty if there are none); and after which layer the
        exchange stands (-1: nowhere).
        """
        at_exchange = self.members_at.get(self.exchange_price, 0)
        exchange_at = -1
        unseen_members, unseen_pools = ~sources, -1
        layers = [sources]
        while layers[-1] and not layers[-1] & self.members_with_room:
            found = 0
            for member in bitset_elements(layers[-1]):
                found |= self._pools_from(member)
            found &= unseen_pools
            unseen_pools ^= found
            reached = 0
            for pool in bitset_elements(found):
                reached |= self._members_from(pool)
            if exchange_at < 0 and layers[-1] & self.can_rise & at_exchange:
                exchange_at = len(layers) - 1
                reached |= self.can_fall & at_exchange
            reached &= unseen_members
            unseen_members ^= reached
            layers += [found, reached]
        layers[-1] &= self.members_with_room
        return layers, exchange_at

    def _push_blocking_flow(self, layers: list[int], exchange_at: int) -> None:
        """Fills the layers until no path is left; nodes that lead nowhere leave their layer."""
        last = len(layers) - 1
        exchange = self.members_at.get(self.exchange_price, 0)
        for source in bitset_elements(layers[0]):
            path = [source]
            while path and self.excess[source]:
                depth, node = len(path) - 1, path[-1]
                if depth == last:
                    self._push_along_path(path)
                    layers[last] &= self.members_with_room
                    continue
                if depth % 2 == 0:
                    onward = self._pools_from(node)
                elif node == EXCHANGE:
                    onward = self.can_fall & exchange
                else:
                    onward = self._members_from(node)
                onward &= layers[depth + 1]
                if onward:
                    path.append((onward & -onward).bit_length() - 1)
                elif depth == exchange_at and self.can_rise & exchange & 1 << node:
                    path.append(EXCHANGE)
                else:
                    path.pop()
                    if node == EXCHANGE:
                        exchange_at = -1
                    else:
                        layers[depth] &= ~(1 << node)

    def _push_along_path(self, path: list[int]) -> None:
        """Moves as much as the path lets through, and cuts the path before its first full arc."""
        source, sink = path[0], path[-1]
        amount = min(self.excess[source], -self.excess[sink])
        for place in range(0, len(path) - 1, 2):
            amount = min(amount, self._residual_capacity(*path[place : place + 3]))
        full = len(path) - 1
        for place in range(len(path) - 3, -1, -2):
            giver, pool, taker = path[place : place + 3]
            if pool == EXCHANGE:
                self.can_rise ^= 1 << giver | 1 << taker
                self.can_fall ^= 1 << giver | 1 << taker
                self.target[giver] += 1
                self.target[taker] -= 1
                full = place
                continue
            if self._give_to_member(pool, taker, amount):
                full = place + 1
            if self._take_from_member(pool, giver, amount):
                full = place
        self.excess[source] -= amount
        self.excess[sink] += amount
        if not self.excess[source]:
            self.members_with_excess &= ~(1 << source)
        if not self.excess[sink]:
            self.members_with_room &= ~(1 << sink)
        del path[full + 1 if full < len(path) - 1 else full :]

    def _residual_capacity(self, giver: int, pool: int, taker: int) -> int:
        """How much can go from one member through a pool to another at the present prices."""
        if pool == EXCHANGE:
            return 1
        price = self.pool_price[pool]
        held = self.new if self.member_price[giver] == price else self.keep
        room = held[giver][pool]
        if self.member_price[taker] == price:
            return room
        return min(room, self.own[taker][pool] - self.keep[taker].get(pool, 0))

    def _take_from_member(self, pool: int, member: int, amount: int) -> bool:
        """Takes from a member; True if it has no more of that kind."""
        kept = self.member_price[member] != self.pool_price[pool]
        held = (self.keep if kept else self.new)[member]
        if kept:
            self.lacking_members[pool] |= 1 << member
        held[pool] -= amount
        if held[pool]:
            return False
        del held[pool]
        (self.keep_bits if kept else self.new_bits)[member] ^= 1 << pool
        return True

    def _give_to_member(self, pool: int, member: int, amount: int) -> bool:
        """Gives to a member; True if it cannot take more at this price."""
        if self.member_price[member] == self.pool_price[pool]:
            new = self.new[member]
            new[pool] = new.get(pool, 0) + amount
            self.new_bits[member] |= 1 << pool
            return False
        kept = self.keep[member]
        kept[pool] = kept.get(pool, 0) + amount
        self.keep_bits[member] |= 1 << pool
        if kept[pool] < self.own[member][pool]:
            return False
        self.lacking_members[pool] ^= 1 << member
        return True

    def _adjust_prices(self) -> None:
        """Lowers the prices of nodes nearer than the next member with room: its way is at zero."""
        search = _ShortestPathSearch(self)
        nearest = search.find_nearest_room()
        for distance, (members, pools, exchange) in search.settled:
            if distance >= nearest:
                continue
            _change_prices(self.member_price, self.members_at, members, distance - nearest)
            _change_prices(self.pool_price, self.pools_at, pools, distance - nearest)
            if exchange:
                self.exchange_price += distance - nearest


class _ShortestPathSearch:
    """A shortest-path search from all members with excess, by whole distances (Dial)."""

    def __init__(self, flow: MinCostFlow) -> None:
        self.flow = flow
        self.waiting: dict[int, list[int]] = {}  # by distance: members, pools, exchange
        self.distances: list[int] = []
        self.open = [(1 << len(flow.new)) - 1, (1 << len(flow.reach)) - 1, 1]
        self.settled: list[tuple[int, list[int]]] = []

    def find_nearest_room(self) -> int:
        self._enqueue(0, 0, self.flow.members_with_excess)
        while True:
            distance = self.distances[0]
            bucket = self.waiting[distance]
            fresh = [waiting & still for waiting, still in zip(bucket, self.open, strict=True)]
            if not any(fresh):
                heappop(self.distances)
                del self.waiting[distance]
                continue
            if fresh[0] & self.flow.members_with_room:
                return distance
            bucket[:] = [0, 0, 0]
            self.open = [still & ~now for still, now in zip(self.open, fresh, strict=True)]
            self.settled.append((distance, fresh))
            self._relax_arcs(distance, *fresh)

    def _relax_arcs(self, distance: int, members: int, pools: int, exchange: int) -> None:
        flow = self.flow
        for member in bitset_elements(members):
            base = distance + flow.member_price[member]
            self._enqueue_by_price(1, flow.new_bits[member], base)
            self._enqueue_by_price(1, flow.keep_bits[member], base + 1)
            if self.open[2] and flow.can_rise >> member & 1:
                self._enqueue(2, base - flow.exchange_price, 1)
        for pool in bitset_elements(pools):
            base = distance + flow.pool_price[pool]
            self._enqueue_by_price(0, flow.reach[pool], base)
            self._enqueue_by_price(0, flow.lacking_members[pool], base - 1)
        if exchange:
            self._enqueue_by_price(0, flow.can_fall, distance + flow.exchange_price)

    def _enqueue_by_price(self, kind: int, nodes: int, base: int) -> None:
        """Visits each node at ``base`` less its price: by price, or by node where there are as many
        prices as nodes (a long chain).
        """
        nodes &= self.open[kind]
        if not nodes:
            return
        at = self.flow.pools_at if kind else self.flow.members_at
        if len(at) <= 2 * nodes.bit_count():
            for price, group in at.items():
                found = nodes & group
                if found:
                    self._enqueue(kind, base - price, found)
            return
        prices = self.flow.pool_price if kind else self.flow.member_price
        for node in bitset_elements(nodes):
            self._enqueue(kind, base - prices[node], 1 << node)

    def _enqueue(self, kind: int, distance: int, nodes: int) -> None:
        bucket = self.waiting.get(distance)
        if bucket is None:
            bucket = self.waiting[distance] = [0, 0, 0]
            heappush(self.distances, distance)
        bucket[kind] |= nodes


def _change_prices(prices: list[int], at: dict[int, int], nodes: int, change: int) -> None:
    for node in bitset_elements(nodes):
        old = prices[node]
        left = at[old] & ~(1 << node)
        if left:
            at[old] = left
        else:
            del at[old]
        prices[node] = old + change
        at[old + change] = at.get(old + change, 0) | 1 << node
