"""Finding the least loaded member that may take a partition."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from rota.assignors.kafka.nearness import NO_RACK
from rota.assignors.problem import Problem


class Lightest:
    """Loads of members, and for each topic its least loaded subscriber; ties by member order.

    Members with the same topics and rack share a heap of ``load * members + member``. A changed
    load adds an entry; entries that no longer hold are dropped when they come to the top.
    """

    def __init__(self, problem: Problem, loads: list[int], *, near: bool) -> None:
        self.loads = loads
        self._members = len(loads)
        self._keys = [load * self._members + member for member, load in enumerate(loads)]
        racks = [NO_RACK] * self._members
        if near and problem.racks is not None:
            racks = problem.racks.member.tolist()
        heaps: dict[tuple[int, int], list[int]] = {}
        for group, key in zip(
            zip(problem.class_of.tolist(), racks, strict=True), self._keys, strict=True
        ):
            heaps.setdefault(group, []).append(key)
        self._heap_of = [
            heaps[group] for group in zip(problem.class_of.tolist(), racks, strict=True)
        ]
        self._topics: list[list[tuple[int, list[int]]]] = [[] for _ in problem.layout.topics]
        for (members, rack), heap in heaps.items():
            heapify(heap)
            for topic in problem.classes[members].tolist():
                self._topics[topic].append((rack, heap))

    def of(self, topic: int) -> int:
        """The least loaded subscriber of the topic."""
        return min(self._top(heap) for _, heap in self._topics[topic]) % self._members

    def near(self, topic: int, racks: frozenset[int]) -> int | None:
        """The least loaded subscriber in one of these racks, or in a rack that is not known."""
        tops = [
            self._top(heap)
            for rack, heap in self._topics[topic]
            if rack == NO_RACK or rack in racks
        ]
        return min(tops) % self._members if tops else None

    def change(self, member: int, by: int) -> None:
        """The member's load rises or falls."""
        self.loads[member] += by
        self._keys[member] += by * self._members
        heappush(self._heap_of[member], self._keys[member])

    def _top(self, heap: list[int]) -> int:
        while heap[0] != self._keys[heap[0] % self._members]:
            heappop(heap)
        return heap[0]
