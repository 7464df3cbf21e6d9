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

WORTH_NARROWING = 1_000
"""From so many keys on the look at the largest one pays."""


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
class Allotted:
    """What each member is to have of each pool, one row for each such pair, by (pool, member)."""

    pool: Column
    member: Column
    amount: Column

    @classmethod
    def of(cls, shares: Shares) -> Allotted:
        """From counts by member and pool."""
        sizes = [len(share) for share in shares]
        total = sum(sizes)
        member = np.repeat(np.arange(len(shares)), sizes)
        pool = np.fromiter(chain.from_iterable(shares), np.int64, total)
        amounts = chain.from_iterable(share.values() for share in shares)
        amount = np.fromiter(amounts, np.int64, total)
        order = _narrow(pool).argsort(kind="stable")
        return cls(pool[order], member[order], amount[order])


def expand(
    previous: IntArray, pool_of: IntArray | None, held: Holdings, shares: Shares
) -> IntArray:
    """The owner of each partition, so that each member has its share of each pool and keeps what
    it owned of it.
    """
    allotted = Allotted.of(shares)
    if not len(held.count) and pool_of is None:
        return _dealt(allotted)
    owners = previous.copy()
    if len(held.count):
        _keep(owners, held, allotted, len(shares))
    free = (owners < 0).nonzero()[0]
    if pool_of is not None:
        free = free[_narrow(pool_of[free]).argsort(kind="stable")]
    owners[free] = _dealt(allotted)
    return owners


def _keep(owners: IntArray, held: Holdings, allotted: Allotted, members: int) -> None:
    """Takes away what a member owned beyond its share, and takes what it keeps off its share."""
    keys = allotted.pool * members + allotted.member
    wanted = held.pool * members + held.member
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    kept = np.minimum(held.count, np.where(keys[place] == wanted, allotted.amount[place], 0))
    # rows of nothing point at another pair's row: they take nothing off it
    np.subtract.at(allotted.amount, place, kept)
    _drop(owners, held, held.count - kept)


def _drop(owners: IntArray, held: Holdings, excess: Column) -> None:
    """Takes away so many of each row. Evenly over a member's partitions and staggered over the
    members of a pool, so that what comes free is of many topics.
    """
    rows = excess.nonzero()[0]
    if not len(rows):
        return
    affected = np.zeros(held.slots, dtype=np.bool_)
    affected[held.row_slot[rows]] = True
    partitions = affected[held.slot].nonzero()[0]
    partitions = partitions[_narrow(held.slot[partitions]).argsort(kind="stable")]
    size, drop = held.count[rows], excess[rows]
    first, peers = _runs(held.pool[rows])
    turn = np.arange(len(rows)) - first.repeat(peers)
    start = size.cumsum() - size
    shift = turn * size // peers.repeat(peers) - start
    place = np.arange(len(partitions)) + shift.repeat(size)
    size, drop = size.repeat(size), drop.repeat(size)
    place %= size
    owners[partitions[(place + 1) * drop // size > place * drop // size]] = UNASSIGNED


def _dealt(allotted: Allotted) -> IntArray:
    """The receivers of each pool in turn, round after round, each as often as its amount."""
    rows = allotted.amount.nonzero()[0]
    if not len(rows):
        return np.empty(0, dtype=np.int32)
    pool, member, amount = allotted.pool[rows], allotted.member[rows], allotted.amount[rows]
    if pool[0] == pool[-1]:
        return _rounds(member.astype(np.int32), amount)
    first, receivers = _runs(pool)
    most = np.maximum.reduceat(amount, first)
    base = (most.cumsum() - most).repeat(receivers)
    # each row runs through base, base + 1, ... : one small sort key for (pool, round)
    shift = base - (amount.cumsum() - amount)
    key = np.arange(int(amount.sum())) + shift.repeat(amount)
    order = _narrow(key).argsort(kind="stable")
    return member.astype(np.int32).repeat(amount)[order]


def _rounds(member: IntArray, amount: Column) -> IntArray:
    """The same for one pool: between two different amounts every round has the same receivers."""
    pieces = []
    done = 0
    for mark in np.unique(amount).tolist():
        pieces.append(np.tile(member[amount > done], mark - done))
        done = mark
    return np.concatenate(pieces)


def _runs(column: Column) -> tuple[Column, Column]:
    """Where each run of equal values starts, and how long it is."""
    edge = np.ones(len(column) + 1, dtype=np.bool_)
    np.not_equal(column[1:], column[:-1], out=edge[1:-1])
    bounds = edge.nonzero()[0]
    return bounds[:-1], bounds[1:] - bounds[:-1]


def _narrow(keys: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """16 bits if they suffice: NumPy then sorts by radix, ten times faster at a million rows."""
    if len(keys) < WORTH_NARROWING or keys.max() > np.iinfo(np.uint16).max:
        return keys
    return keys.astype(np.uint16)
