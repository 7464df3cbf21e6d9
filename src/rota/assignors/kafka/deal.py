"""Dealing free partitions to members below their quota, in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

import numpy as np

from rota.assignors.kafka.nearness import NO_RACK
from rota.assignors.problem import Racks
from rota.model.topic import IntArray


@dataclass(slots=True)
class Deal:
    """Who may still be given partitions.

    ``below`` are the members below the floor, in order; ``level`` those at the floor that may get
    one more, in the order in which they will; ``raised`` of ``extra`` members already have it.
    """

    floor: int
    extra: int
    loads: IntArray
    raised: int
    below: list[int]
    level: list[int]

    @classmethod
    def after_keeping(cls, held: IntArray, order: IntArray, size: int) -> Deal:
        """As it stands when each member has kept what it may of what it held.

        The table order decides who keeps the ceiling while there are ceilings left.
        """
        floor, extra = divmod(size, len(held))
        ceiling = floor + (extra > 0)
        deal = cls(floor=floor, extra=extra, loads=held.copy(), raised=0, below=[], level=[])
        counts = held.tolist()
        for member in order.tolist():
            if counts[member] < floor:
                deal.below.append(member)
            elif counts[member] >= ceiling and deal.raised < extra:
                deal.loads[member] = ceiling
                deal.raised += 1
            else:
                deal.loads[member] = floor
                deal.level.append(member)
        deal.below.sort()
        deal.level = sorted(deal.level) if deal.raised < extra else []
        return deal

    def out(self, count: int) -> IntArray:
        """The members that get the next partitions, one each in turn."""
        below = np.array(self.below, dtype=np.int32)
        missing = self.floor - self.loads[below]
        _, turns = np.nonzero(np.arange(missing.max(initial=0))[:, None] < missing)
        filled = below[np.argsort(missing, kind="stable")]
        level = np.array(self.level, dtype=np.int32)
        return np.concatenate((below[turns], level, filled))[:count]


class NearDeal:
    """A first deal in which partitions go only to members in a rack that holds a replica."""

    def __init__(self, deal: Deal, racks: Racks) -> None:
        self._deal = deal
        self._rack_of = racks.member.tolist()
        self._set_of = racks.set_of
        self._sets = [sorted(found) for found in racks.sets]
        self._loads: list[int] = deal.loads.tolist()
        self._below: list[list[int]] = [[] for _ in racks.names]
        self._level: list[deque[tuple[int, int]]] = [deque() for _ in racks.names]
        self._turn = len(deal.level)
        self._next = 0
        for member in deal.below:
            if self._rack_of[member] != NO_RACK:
                self._below[self._rack_of[member]].append(member)
        for turn, member in enumerate(deal.level):
            if self._rack_of[member] != NO_RACK:
                self._level[self._rack_of[member]].append((turn, member))

    def out(self, free: IntArray, owners: IntArray) -> IntArray:
        """Gives each partition an owner where there is one near; returns those that are left."""
        left: list[int] = []
        sets = self._set_of[free].tolist()
        for partition, found in zip(free.tolist(), sets, strict=True):
            member = self._below_in(self._sets[found])
            if member is None:
                member = self._level_in(self._sets[found])
            if member is None:
                left.append(partition)
            else:
                owners[partition] = member
        self._settle()
        return np.array(left, dtype=np.int32)

    def _below_in(self, racks: list[int]) -> int | None:
        """The next member below the floor in one of these racks, in circular order."""
        best = None
        after = len(self._rack_of)
        for rack in racks:
            waiting = self._below[rack]
            if waiting:
                spot = bisect_left(waiting, self._next)
                found = waiting[spot] if spot < len(waiting) else waiting[0] + after
                best = found if best is None else min(best, found)
        if best is None:
            return None
        member = best % after
        self._next = member + 1
        self._loads[member] += 1
        if self._loads[member] == self._deal.floor:
            self._filled(member)
        return member

    def _filled(self, member: int) -> None:
        rack = self._rack_of[member]
        del self._below[rack][bisect_left(self._below[rack], member)]
        if self._deal.raised < self._deal.extra:
            self._level[rack].append((self._turn, member))
            self._turn += 1

    def _level_in(self, racks: list[int]) -> int | None:
        """The first member at the floor in one of these racks, while there are ceilings left."""
        if self._deal.raised == self._deal.extra:
            return None
        best = min((self._level[rack][0] for rack in racks if self._level[rack]), default=None)
        if best is None:
            return None
        member = best[1]
        self._level[self._rack_of[member]].popleft()
        self._loads[member] += 1
        self._deal.raised += 1
        return member

    def _settle(self) -> None:
        """Hands what is left over to the deal without racks."""
        deal = self._deal
        deal.loads = np.array(self._loads, dtype=deal.loads.dtype)
        deal.below = [member for member in deal.below if self._loads[member] < deal.floor]
        far = [(t, m) for t, m in enumerate(deal.level) if self._rack_of[m] == NO_RACK]
        level = sorted(far + [entry for waiting in self._level for entry in waiting])
        deal.level = [member for _, member in level] if deal.raised < deal.extra else []
