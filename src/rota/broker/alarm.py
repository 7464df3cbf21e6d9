"""What the broker must do later: alarms by name, and the time of the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import TypeAlias

Ring: TypeAlias = Callable[[int], None]
"""What an alarm does; it is given the time it is. After a sleep of the machine that may be long
after the time it was set for: what recurs must not be made up for each time that was missed.
"""


class Alarms:
    """Alarms that are set, moved and stopped by name. Those of one time ring in the order set."""

    def __init__(self) -> None:
        self._set: dict[Hashable, tuple[int, int, Ring]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0

    def start(self, name: Hashable, at: int, ring: Ring) -> None:
        """Rings at this time; an alarm of this name is moved."""
        self._count += 1
        self._set[name] = (at, self._count, ring)
        heapq.heappush(self._heap, (at, self._count, name))
        if len(self._heap) > 2 * len(self._set) + 64:
            self._heap = [(at, count, name) for name, (at, count, _) in self._set.items()]
            heapq.heapify(self._heap)

    def stop(self, name: Hashable) -> None:
        """Forgets an alarm, if there is one of this name."""
        self._set.pop(name, None)

    @property
    def names(self) -> list[Hashable]:
        """Those that are set, in no order."""
        return list(self._set)

    def next(self) -> int | None:
        """When the next one rings; None if there is none."""
        while self._heap:
            at, count, name = self._heap[0]
            known = self._set.get(name)
            if known is not None and known[1] == count:
                return at
            heapq.heappop(self._heap)
        return None

    def ring(self, now: int) -> None:
        """Rings all that are due, in the order of their times."""
        while (at := self.next()) is not None and at <= now:
            _, _, name = heapq.heappop(self._heap)
            _, _, ring = self._set.pop(name)
            ring(now)
