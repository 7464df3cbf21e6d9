"""The broker's timers and its clock.

The node and everything below it keep timers by name in :class:`Timers` and get the time as an
argument. Only the server and the test control read the :class:`Clock`: the machine's time plus the
time by which a test has advanced it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Hashable
from typing import TypeAlias

#: Gets the current time. After a sleep of the machine that may be long after the timer's time: a
#: periodic timer must not fire once for each period that was missed.
TimerCallback: TypeAlias = Callable[[int], None]

_TimerEntry: TypeAlias = tuple[int, int, Hashable]


class Timers:
    """Timers by name. Timers of the same time fire in the order in which they were started."""

    def __init__(self) -> None:
        self._active: dict[Hashable, tuple[int, int, TimerCallback]] = {}
        self._exact_heap: list[_TimerEntry] = []
        self._lenient_heap: list[_TimerEntry] = []
        self._count = 0

    def start(
        self, name: Hashable, at: int, callback: TimerCallback, *, lenient: bool = False
    ) -> None:
        """Starts a timer, or moves it. A lenient one may fire late: see :meth:`next_due`."""
        self._count += 1
        self._active[name] = (at, self._count, callback)
        heap = self._lenient_heap if lenient else self._exact_heap
        heapq.heappush(heap, (at, self._count, name))
        if len(heap) > 2 * len(self._active) + 64:
            heap[:] = [each for each in heap if self._is_active(each)]
            heapq.heapify(heap)

    def stop(self, name: Hashable) -> None:
        self._active.pop(name, None)

    @property
    def names(self) -> list[Hashable]:
        return list(self._active)

    def next_due(self, slack: int = 0) -> int | None:
        """Returns when the next timer is due; lenient ones may be later by ``slack``."""
        exact = self._first_active(self._exact_heap)
        lenient = self._first_active(self._lenient_heap)
        due = [] if exact is None else [exact[0]]
        if lenient is not None:
            due.append(lenient[0] + slack)
        return min(due, default=None)

    def fire_due(self, now: int) -> None:
        while True:
            heaps = (self._exact_heap, self._lenient_heap)
            active = [heap for heap in heaps if self._first_active(heap)]
            heap = min(active, key=lambda each: each[0], default=None)
            if heap is None or heap[0][0] > now:
                return
            _, _, name = heapq.heappop(heap)
            _, _, callback = self._active.pop(name)
            callback(now)

    def _first_active(self, heap: list[_TimerEntry]) -> _TimerEntry | None:
        while heap:
            if self._is_active(heap[0]):
                return heap[0]
            heapq.heappop(heap)
        return None

    def _is_active(self, entry: _TimerEntry) -> bool:
        active = self._active.get(entry[2])
        return active is not None and active[1] == entry[1]


MAX_DRIFT_MS = 1_000  # milliseconds; if the machine's clock is ahead by more, one is wrong
DRIFT_CONFIRMATION_MS = 5_000  # milliseconds that the clock stays ahead before it is followed


def steady_seconds() -> float:
    """Returns a monotonic time; it includes the time asleep where the system offers that."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Clock:
    """Milliseconds since 1970 that never go back.

    The clock counts steadily from its start, so setting the machine's clock back does not stop
    timers, and small corrections do not move them. If the machine's clock is far ahead, the broker
    follows it: otherwise the timestamps of producers would lie in its future. It follows only after
    the machine's clock was ahead by the same amount at every look for five seconds: following a
    clock that is wrong for a moment would leave the broker in the future until it ends, and records
    would be deleted too early.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady_seconds
    ) -> None:
        self._wall, self._steady = wall, steady
        self._base = (wall() - steady()) * 1_000
        #: The steady time since when the machine's clock is ahead, and by how much.
        self._suspected_drift: tuple[float, float] | None = None
        #: Milliseconds that were advanced, minus the time spent frozen.
        self._advanced = 0.0
        self._frozen_at: int | None = None

    def now(self) -> int:
        return int(self._exact_now()) if self._frozen_at is None else self._frozen_at

    @property
    def frozen(self) -> bool:
        return self._frozen_at is not None

    def seconds_until(self, until: int) -> float | None:
        """Returns the real seconds until then, 0 if it has passed; None if the clock is frozen."""
        return None if self._frozen_at is not None else max(until - self._exact_now(), 0) / 1_000

    def move_to(self, at: int) -> None:
        """Moves the clock forward to this time; does nothing if it has passed."""
        if self._frozen_at is not None:
            self._frozen_at = max(self._frozen_at, at)
        else:
            self._advanced += max(at - self._exact_now(), 0)

    def freeze(self) -> None:
        self._frozen_at = self.now()

    def resume(self) -> None:
        if self._frozen_at is not None:
            self._advanced += self._frozen_at - self._exact_now()
            self._frozen_at = None

    def _exact_now(self) -> float:
        steady = self._steady() * 1_000
        ahead = self._wall() * 1_000 - self._base - steady
        if ahead <= MAX_DRIFT_MS:
            self._suspected_drift = None
        elif self._suspected_drift is None or abs(ahead - self._suspected_drift[1]) > MAX_DRIFT_MS:
            self._suspected_drift = steady, ahead
        elif steady - self._suspected_drift[0] >= DRIFT_CONFIRMATION_MS:
            self._base += ahead
            self._suspected_drift = None
        return self._base + steady + self._advanced
