"""From counts to partitions: which ones stay, and who gets the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rota.assignors.exact.flow import Shares
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray

Column = npt.NDArray[np.int64]


@dataclass(slots=True)
class Holdings:
    """What each member owned of each pool, one row for each such pair, by (pool, member);
    ``slot[i]`` leads from partition i to its row by way of ``row_slot``.
    """

    slot: npt.NDArray[np.intp]
    slots: int
    row_slot: npt.NDArray[np.intp]
    pool: npt.NDArray[np.intp]
    member: npt.NDArray[np.intp]
    count: npt.NDArray[np.intp]

    @classmethod
    def of(cls, previous: IntArray, pool_of: IntArray | None, pools: int, members: int) -> Holdings:
        """Counts; ``pool_of`` is the pool of each partition, None if there is but one."""
        width = members + 1  # one more for partitions that nobody owned
        slot = previous.astype(np.intp)
        slot += 1
        if pool_of is not None:
            slot += pool_of.astype(np.intp) * width
        if pools * width <= 2 * len(previous) + 4096:
            counts = np.bincount(slot, minlength=pools * width)
            keys = np.flatnonzero(counts)
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


def expand(
    previous: IntArray, pool_of: IntArray | None, held: Holdings, shares: Shares
) -> IntArray:
    """The owner of each partition, so that each member has its share of each pool and keeps what
    it owned of it.
    """
    owners = previous.copy()
    kept = _drop(owners, held, shares)
    pool, member, amount = _given(held, kept, shares)
    free = np.flatnonzero(owners < 0)
    if pool_of is not None:
        free = free[np.argsort(_narrow(pool_of[free]), kind="stable")]
    owners[free] = _dealt(pool, member, amount)
    return owners


def _drop(owners: IntArray, held: Holdings, shares: Shares) -> list[int]:
    """Takes away what a member owned beyond its share; gives how much it keeps of each row.

    Evenly over a member's partitions and staggered over the members of a pool, so that what comes
    free is of many topics.
    """
    kept = [
        min(count, shares[member].get(pool, 0))
        for pool, member, count in zip(
            held.pool.tolist(), held.member.tolist(), held.count.tolist(), strict=True
        )
    ]
    excess = held.count - np.array(kept, dtype=np.intp)
    rows = np.flatnonzero(excess)
    if not len(rows):
        return kept
    affected = np.zeros(held.slots, dtype=np.bool_)
    affected[held.row_slot[rows]] = True
    partitions = np.flatnonzero(affected[held.slot])
    partitions = partitions[np.argsort(_narrow(held.slot[partitions]), kind="stable")]
    size, drop = held.count[rows], excess[rows]
    _, first, peers = np.unique(held.pool[rows], return_index=True, return_counts=True)
    turn = np.arange(len(rows)) - np.repeat(first, peers)
    start = np.cumsum(size) - size
    shift = turn * size // np.repeat(peers, peers) - start
    place = np.arange(len(partitions)) + np.repeat(shift, size)
    size, drop = np.repeat(size, size), np.repeat(drop, size)
    place %= size
    owners[partitions[(place + 1) * drop // size > place * drop // size]] = UNASSIGNED
    return kept


def _given(held: Holdings, kept: list[int], shares: Shares) -> tuple[Column, Column, Column]:
    """(pool, member, amount) of what is handed out, by (pool, member)."""
    rest = {
        (pool, member): count
        for pool, member, count in zip(held.pool.tolist(), held.member.tolist(), kept, strict=True)
    }
    rows = sorted(
        (pool, member, amount - rest.get((pool, member), 0))
        for member, share in enumerate(shares)
        for pool, amount in share.items()
    )
    table = np.array([row for row in rows if row[2]], dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _dealt(pool: Column, member: Column, amount: Column) -> IntArray:
    """The receivers of each pool in turn, round after round, each as often as its amount."""
    if not len(pool):
        return np.empty(0, dtype=np.int32)
    starts = np.flatnonzero(np.diff(pool, prepend=-1))
    most = np.maximum.reduceat(amount, starts)
    base = np.repeat(np.cumsum(most) - most, np.diff(starts, append=len(pool)))
    # each row runs through base, base + 1, ... : one small sort key for (pool, round)
    shift = base - (np.cumsum(amount) - amount)
    key = np.arange(int(amount.sum())) + np.repeat(shift, amount)
    order = np.argsort(_narrow(key), kind="stable")
    return np.repeat(member.astype(np.int32), amount)[order]


def _narrow(keys: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """16 bits if they suffice: NumPy then sorts by radix, ten times faster at a million rows."""
    small = len(keys) > 0 and keys.max() <= np.iinfo(np.uint16).max
    return keys.astype(np.uint16) if small else keys
