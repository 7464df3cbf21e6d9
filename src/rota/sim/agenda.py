"""What is to happen when: one heap of entries, in an order that never depends on chance.

Entries that are due at the same moment come in the order in which they were set. A timer is an
entry that can be moved. Heartbeats move timers all the time, nearly always further away, so a
moved entry keeps its place in the heap and is put where it belongs when its old turn comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Action: TypeAlias = Callable[[Any], object]

NEVER = -1


class Entry:
    """Something to be done at a moment.

    ``holder`` names whose it is, and ``beat`` is true for what recurs while nothing happens; only
    :mod:`rota.sim.wind` looks at both.
    """

    __slots__ = ("action", "at", "beat", "given", "holder", "number", "queued", "set_at")

    def __init__(self, action: Action, given: object, holder: object, *, beat: bool) -> None:
        self.action = action
        self.given = given
        self.holder = holder
        self.beat = beat
        self.at = NEVER
        self.set_at = NEVER
        self.number = NEVER
        self.queued = NEVER
        """The number of the place in the heap that stands for this entry."""

    @property
    def pending(self) -> bool:
        """It is still to happen."""
        return self.at != NEVER


class Agenda:
    """A virtual clock and all that is to happen."""

    __slots__ = ("_count", "_heap", "news_at", "now", "steps")

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        """How many entries have been done."""
        self.news_at = 0
        """When something last happened that does not recur while nothing happens."""
        self._count = 0
        self._heap: list[tuple[int, int, int, Entry]] = []

    def add(
        self,
        at: int,
        action: Action,
        given: object = None,
        *,
        holder: object = None,
        beat: bool = False,
    ) -> Entry:
        """Plans an entry."""
        entry = Entry(action, given, holder, beat=beat)
        self.move(entry, at)
        return entry

    def move(self, entry: Entry, at: int) -> None:
        """Plans an entry anew; what is late is due now."""
        now = self.now
        earlier = entry.queued == NEVER or at < entry.at or entry.at == NEVER
        entry.at = at = max(at, now)
        entry.set_at = now
        self._count = entry.number = self._count + 1
        if earlier:
            entry.queued = entry.number
            heapq.heappush(self._heap, (at, now, entry.number, entry))

    @staticmethod
    def cancel(entry: Entry) -> None:
        """It will not happen."""
        entry.at = NEVER

    def next_at(self) -> int | None:
        """When the next entry is due; None if there is none."""
        heap = self._heap
        while heap:
            at, _, number, entry = heap[0]
            if entry.queued != number or entry.at == NEVER:
                heapq.heappop(heap)
                if entry.queued == number:
                    entry.queued = NEVER
            elif entry.number != number:
                entry.queued = entry.number
                heapq.heapreplace(heap, (entry.at, entry.set_at, entry.number, entry))
            else:
                return at
        return None

    def step(self) -> bool:
        """Moves the clock to the next entry and does it; false if there is none."""
        at = self.next_at()
        if at is None:
            return False
        entry = heapq.heappop(self._heap)[3]
        entry.queued = entry.at = NEVER
        self.now = at
        self.steps += 1
        if not entry.beat:
            self.news_at = at
        entry.action(entry.given)
        return True

    def pending(self) -> list[Entry]:
        """Everything that is to happen, in no order."""
        return [
            entry
            for _, _, number, entry in self._heap
            if entry.queued == number and entry.at != NEVER
        ]

    def shift(self, shifts: Iterable[tuple[Entry, int]]) -> None:
        """Moves entries on as if they had been set, and were due, that much later."""
        for entry, by in shifts:
            entry.at += by
            entry.set_at += by
        pending = self.pending()
        for entry in pending:
            entry.queued = entry.number
        self._heap = [(entry.at, entry.set_at, entry.number, entry) for entry in pending]
        heapq.heapify(self._heap)
