"""Phase two: among the most even assignments the most local, and among those the fewest moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rota.assignors.exact import bits
from rota.assignors.exact.balance import alone_in
from rota.assignors.exact.flow import Flow, Shares
from rota.assignors.exact.seed import proportional


@dataclass(slots=True)
class Network:
    """Pools of ``sizes[p]`` partitions, the members ``reach[p]`` that each can go to, and the
    ``low[m]`` to ``high[m]`` partitions that each member is to have; these differ by one or not.
    """

    sizes: list[int]
    reach: list[int]
    low: list[int]
    high: list[int]


def keep_most(network: Network, owned: Shares, expired: Callable[[], bool]) -> tuple[Shares, bool]:
    """How much each member gets of each pool so that most stays where it is owned; and whether
    time sufficed for that.

    ``owned[m][p]`` partitions of pool p belong to member m, none outside ``reach[p]``.
    """
    alone = alone_in(network.reach)
    free = [0 if by_itself else size for by_itself, size in zip(alone, network.sizes, strict=True)]
    shares: Shares = [{} for _ in network.low]
    in_time = True
    if any(free):
        reach = [0 if by_itself else of for by_itself, of in zip(alone, network.reach, strict=True)]
        shares, in_time = _flow(network, reach, free, owned, expired)
    for pool, by_itself in enumerate(alone):
        if by_itself:
            _deal_alone(network, pool, owned, shares)
    return shares, in_time


def _flow(
    network: Network,
    reach: list[int],
    free: list[int],
    owned: Shares,
    expired: Callable[[], bool],
) -> tuple[Shares, bool]:
    """:func:`keep_most` for pools that share members: start from what is owned, all of it kept,
    which is the cheapest; then move what is too much, as cheaply as that can be done.
    """
    flow = Flow(reach, len(network.low))
    taking = bits.positions(bits.union(reach))
    for member in taking:
        for pool, amount in owned[member].items():
            free[pool] -= amount
            flow.put_kept(pool, member, amount, own=amount)
    rooms = np.maximum(np.array(network.high, dtype=np.int64) - flow.excess, 0)
    for pool, members, amounts in proportional(free, reach, rooms):
        flow.put(pool, members, amounts)
    _aim(flow, network, taking)
    in_time = flow.settle(expired)
    if not in_time:
        flow.settle_at_any_cost()
    return flow.shares(), in_time


def _deal_alone(network: Network, pool: int, owned: Shares, shares: Shares) -> None:
    """A pool whose members own nothing else needs no flow: who gets one more than the low mark is
    free to choose, first those that own it already, then in order of ids.
    """
    low, high = network.low, network.high
    members = bits.positions(network.reach[pool])
    more = network.sizes[pool] - sum(low[member] for member in members)
    wanting = [member for member in members if high[member] > low[member]]
    wanting.sort(key=lambda member: owned[member].get(pool, 0) <= low[member])
    for member in members:
        if low[member]:
            shares[member][pool] = low[member]
    for member in wanting[:more]:
        shares[member][pool] = low[member] + 1


def _aim(flow: Flow, network: Network, taking: list[int]) -> None:
    """Targets as near to the loads as can be that sum up to all partitions. As long as members and
    exchange have one price any choice is as cheap as another: the exchange mends it.
    """
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
        flow.aim(member, target)
        if low < high:
            flow.can_rise |= (target == low) << member
            flow.can_fall |= (target == high) << member


def most_local(network: Network, local: list[int], expired: Callable[[], bool]) -> Network | None:
    """The network of all assignments that are as local as can be; None if time ran out.

    ``local[p]`` are the members near to pool p: what is there counts as kept, without limit.
    """
    flow = Flow(network.reach, len(network.low))
    flow.set_prices([1 if near else 0 for near in local])
    for pool, near in enumerate(local):
        for member in bits.positions(near):
            # one more than there are: it never runs out
            flow.put_kept(pool, member, 0, own=network.sizes[pool] + 1)
    among = [near or reach for near, reach in zip(local, network.reach, strict=True)]
    rooms = np.array(network.high, dtype=np.int64)
    for pool, members, amounts in proportional(network.sizes, among, rooms):
        if not local[pool]:
            flow.put(pool, members, amounts)
            continue
        for member, amount in zip(members, amounts, strict=True):
            flow.put_kept(pool, member, amount, own=network.sizes[pool] + 1)
    _aim(flow, network, bits.positions(bits.union(network.reach)))
    return _at_zero(flow, network, local) if flow.settle(expired) else None


def _at_zero(flow: Flow, network: Network, local: list[int]) -> Network:
    """What the prices leave at zero. An arc above it is used by no best assignment, and a member
    with another price than the exchange has no choice of its load.
    """
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
    return Network(network.sizes, reach, low, high)
