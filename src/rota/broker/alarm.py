"""What the broker must do later: alarms by name, and the time of the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import TypeAlias

Ring: TypeAlias = Callable[[int], None]
"""What an alarm does; it is given the time it is. After a sleep of the machine that may be long
after the time it was set for: what recurs must not be made up for each time that was missed.
"""


_Entry: TypeAlias = tuple[int, int, Hashable]


class Alarms:
    """Alarms that are set, moved and stopped by name. Those of one time ring in the order set."""

    def __init__(self) -> None:
        self._set: dict[Hashable, tuple[int, int, Ring]] = {}
        self._prompt: list[_Entry] = []
        self._patient: list[_Entry] = []
        self._count = 0

    def start(self, name: Hashable, at: int, ring: Ring, *, patient: bool = False) -> None:
        """Rings at this time; an alarm of this name is moved.

        :param patient: it looks from time to time whether there is something to do; see
            :meth:`next`
        """
        self._count += 1
        self._set[name] = (at, self._count, ring)
        heap = self._patient if patient else self._prompt
        heapq.heappush(heap, (at, self._count, name))
        if len(heap) > 2 * len(self._set) + 64:
            heap[:] = [each for each in heap if self._holds(each)]
            heapq.heapify(heap)

    def stop(self, name: Hashable) -> None:
        """Forgets an alarm, if there is one of this name."""
        self._set.pop(name, None)

    @property
    def names(self) -> list[Hashable]:
        """Those that are set, in no order."""
        return list(self._set)

    def next(self, slack: int = 0) -> int | None:
        """When the next one rings; None if there is none.

        :param slack: patient ones may be so much late, so that where a test puts its clock
            forward by days, not each minute of them is gone through
        """
        prompt, patient = self._first(self._prompt), self._first(self._patient)
        if patient is None:
            return None if prompt is None else prompt[0]
        late = patient[0] + slack
        return late if prompt is None else min(prompt[0], late)

    def ring(self, now: int) -> None:
        """Rings all that are due, in the order of their times."""
        while (at := self.next()) is not None and at <= now:
            prompt, patient = self._first(self._prompt), self._first(self._patient)
            early = prompt is not None and (patient is None or prompt < patient)
            _, _, name = heapq.heappop(self._prompt if early else self._patient)
            _, _, ring = self._set.pop(name)
            ring(now)

    def _first(self, heap: list[_Entry]) -> _Entry | None:
        while heap:
            if self._holds(heap[0]):
                return heap[0]
            heapq.heappop(heap)
        return None

    def _holds(self, entry: _Entry) -> bool:
        known = self._set.get(entry[2])
        return known is not None and known[1] == entry[1]
