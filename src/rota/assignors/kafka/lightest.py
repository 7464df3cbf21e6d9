"""Finding the least loaded member that may take a partition."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from itertools import islice

from rota.assignors.kafka.nearness import NO_RACK
from rota.assignors.problem import Problem

FEW = 8
"""So many heaps are looked at one by one; with more, a walk over all members is tried first."""


class Lightest:
    """Loads of members, and for each topic its least loaded subscriber; ties by member order.

    An entry is ``load * members + member``. Members with the same topics and rack share a heap of
    entries; a changed load adds one, and those that no longer hold are dropped when they come to
    the top. All entries also stand in one sorted list: where a topic has many heaps it has many
    subscribers, and one of them is likely near the list's start.
    """

    def __init__(self, problem: Problem, loads: list[int], *, near: bool) -> None:
        self.loads = loads
        self._members = len(loads)
        self._entries = [load * self._members + member for member, load in enumerate(loads)]
        self._sorted = sorted(self._entries)
        self._rack_of = [NO_RACK] * self._members
        if near and problem.racks is not None:
            self._rack_of = problem.racks.member.tolist()
        self._class_of = problem.class_of.tolist()
        self._wants = [row.tobytes() for row in problem.subscribes]
        groups = list(zip(self._class_of, self._rack_of, strict=True))
        heaps: dict[tuple[int, int], list[int]] = {group: [] for group in groups}
        for group, entry in zip(groups, self._entries, strict=True):
            heaps[group].append(entry)
        self._heap_of = [heaps[group] for group in groups]
        self._topics: list[list[tuple[int, list[int]]]] = [[] for _ in problem.layout.topics]
        for (wanting, rack), heap in heaps.items():
            heapify(heap)
            for topic in problem.classes[wanting].tolist():
                self._topics[topic].append((rack, heap))
        self._known: dict[int, int] = {}  # by topic, until a load changes

    def of(self, topic: int, racks: frozenset[int] | None = None) -> int | None:
        """The least loaded subscriber of the topic; where racks are given, in one of those or
        in a rack that is not known.
        """
        if racks is not None:
            return self._search(topic, racks)
        member = self._known.get(topic)
        if member is None:
            member = self._search(topic, None)
            if member is not None:
                self._known[topic] = member
        return member

    def _search(self, topic: int, racks: frozenset[int] | None) -> int | None:
        found = self._topics[topic]
        if len(found) > FEW:
            for entry in islice(self._sorted, len(found)):
                member = entry % self._members
                rack = self._rack_of[member]
                if self._wants[self._class_of[member]][topic] and (
                    racks is None or rack == NO_RACK or rack in racks
                ):
                    return member
        tops = [
            self._top(heap)
            for rack, heap in found
            if racks is None or rack == NO_RACK or rack in racks
        ]
        return min(tops) % self._members if tops else None

    def change(self, member: int, by: int) -> None:
        """The member's load rises or falls."""
        self._known.clear()
        del self._sorted[bisect_left(self._sorted, self._entries[member])]
        self.loads[member] += by
        self._entries[member] += by * self._members
        insort(self._sorted, self._entries[member])
        heappush(self._heap_of[member], self._entries[member])

    def _top(self, heap: list[int]) -> int:
        while heap[0] != self._entries[heap[0] % self._members]:
            heappop(heap)
        return heap[0]
