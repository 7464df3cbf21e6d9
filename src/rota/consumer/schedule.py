"""Who may have something to ask, found without looking at everybody.

With thousands of partitions few change at a time. Whoever changes is *touched*, and the next look
sorts those alone: into the place of the question that they are to ask, among those who wait for
their pause to end, or nowhere, until they are touched again. Between two looks one may have
changed once more, so it is asked when its turn comes whether it still belongs there.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from rota.consumer.entry import Entry, Stage
from rota.model.topic import TopicPartition

Place: TypeAlias = Stage | int
"""A stage whose question is to be asked, or the broker to fetch from."""


class Schedule:
    """Partitions by what they are to ask."""

    __slots__ = ("_later", "_pauses", "_places", "_touched")

    def __init__(self) -> None:
        self._touched: dict[TopicPartition, Entry] = {}
        self._places: dict[Place, dict[TopicPartition, Entry]] = {}
        self._later: list[tuple[float, int, Entry]] = []
        """A heap: when a pause ends, and whose. It may have been cut short meanwhile."""
        self._pauses = 0  # pauses so far; Python 3.14 cannot copy an itertools.count

    def touch(self, entry: Entry) -> None:
        """It may have something to ask now."""
        self._touched[entry.partition] = entry

    def pause(self, entry: Entry) -> None:
        """It has something to ask when its pause is over."""
        self._pauses += 1
        heapq.heappush(self._later, (entry.retry_at, self._pauses, entry))

    def drop(self, entry: Entry) -> None:
        """It asks nothing more."""
        entry.retry_at = 0.0
        self._touched.pop(entry.partition, None)
        for place in self._places.values():
            place.pop(entry.partition, None)

    def brokers(self, now: float) -> list[int]:
        """Whom there is something to fetch from."""
        self._sort(now)
        return [each for each, own in self._places.items() if isinstance(each, int) and own]

    def take(self, place: Place, now: float) -> list[Entry]:
        """All that belong to a place; they must be touched to come there again."""
        self._sort(now)
        found = self._places.pop(place, None)
        return [] if found is None else [e for e in found.values() if _place(e, now) == place]

    def next_try(self, now: float) -> float | None:
        """When the next pause ends that has not ended yet."""
        self._wake(now)
        return self._later[0][0] if self._later else None

    def _sort(self, now: float) -> None:
        self._wake(now)
        if not self._touched:
            return
        for name, entry in self._touched.items():
            if entry.replica is not None and entry.lease < now:
                entry.replica = None
            place = _place(entry, now)
            if place is not None:
                self._places.setdefault(place, {})[name] = entry
        self._touched.clear()

    def _wake(self, now: float) -> None:
        """Touches those whose pause is over, and forgets pauses that were cut short."""
        later = self._later
        while later and (later[0][0] <= now or later[0][2].retry_at != later[0][0]):
            at, _, entry = heapq.heappop(later)
            if entry.retry_at == at:
                self.touch(entry)


def _place(entry: Entry, now: float) -> Place | None:
    """Where it belongs; None: it has nothing to ask."""
    if entry.ticket or entry.retry_at > now:
        return None
    stage = entry.stage
    if stage is Stage.COMMITTED:
        return None if entry.withheld else stage
    if entry.leader is None or stage is Stage.FAILED:
        return None
    if stage is not Stage.READING:
        return stage
    if not entry.gives:
        return None
    return entry.leader.node if entry.replica is None else entry.replica
