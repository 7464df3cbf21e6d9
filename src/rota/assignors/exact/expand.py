"""From counts to partitions: which ones stay, and who gets the rest."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

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


@dataclass(slots=True)
class Shared:
    """What each member is to have of each pool, one row for each such pair, by (pool, member)."""

    pool: Column
    member: Column
    amount: Column

    @classmethod
    def of(cls, shares: Shares) -> Shared:
        """From counts by member and pool."""
        sizes = [len(share) for share in shares]
        total = sum(sizes)
        member = np.repeat(np.arange(len(shares)), sizes)
        pool = np.fromiter(chain.from_iterable(shares), np.int64, total)
        amounts = chain.from_iterable(share.values() for share in shares)
        amount = np.fromiter(amounts, np.int64, total)
        order = np.argsort(_narrow(pool), kind="stable")
        return cls(pool[order], member[order], amount[order])


def expand(
    previous: IntArray, pool_of: IntArray | None, held: Holdings, shares: Shares
) -> IntArray:
    """The owner of each partition, so that each member has its share of each pool and keeps what
    it owned of it.
    """
    owners = previous.copy()
    shared = Shared.of(shares)
    if len(held.count):
        _keep(owners, held, shared, len(shares))
    free = (owners < 0).nonzero()[0]
    if pool_of is not None:
        free = free[np.argsort(_narrow(pool_of[free]), kind="stable")]
    owners[free] = _dealt(shared)
    return owners


def _keep(owners: IntArray, held: Holdings, shared: Shared, members: int) -> None:
    """Takes away what a member owned beyond its share, and takes what it keeps off its share."""
    keys = shared.pool * members + shared.member
    wanted = held.pool * members + held.member
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    kept = np.minimum(held.count, np.where(keys[place] == wanted, shared.amount[place], 0))
    # rows of nothing point at another pair's row: they take nothing off it
    np.subtract.at(shared.amount, place, kept)
    _drop(owners, held, held.count - kept)


def _drop(owners: IntArray, held: Holdings, excess: Column) -> None:
    """Takes away so many of each row. Evenly over a member's partitions and staggered over the
    members of a pool, so that what comes free is of many topics.
    """
    rows = np.flatnonzero(excess)
    if not len(rows):
        return
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


def _dealt(shared: Shared) -> IntArray:
    """The receivers of each pool in turn, round after round, each as often as its amount."""
    rows = shared.amount.nonzero()[0]
    if not len(rows):
        return np.empty(0, dtype=np.int32)
    pool, member, amount = shared.pool[rows], shared.member[rows], shared.amount[rows]
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
