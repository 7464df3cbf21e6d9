"""The broker's timers and its clock.

The node and everything below it keep timers by name in :class:`Timers` and get the time as an
argument. Only the server and the test control read the :class:`Clock`: the machine's time plus what
a test has added to it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Hashable
from typing import TypeAlias

#: What an alarm does; it is given the time it is. After a sleep of the machine that may be long
#: after the time it was set for: what recurs must not be made up for each time that was missed.
TimerCallback: TypeAlias = Callable[[int], None]

_TimerEntry: TypeAlias = tuple[int, int, Hashable]


class Timers:
    """Timers that are set, moved and stopped by name. Timers of the same time fire in the
    order they were set.
    """

    def __init__(self) -> None:
        self._active: dict[Hashable, tuple[int, int, TimerCallback]] = {}
        self._exact_heap: list[_TimerEntry] = []
        self._lenient_heap: list[_TimerEntry] = []
        self._count = 0

    def start(self, name: Hashable, at: int, ring: TimerCallback, *, patient: bool = False) -> None:
        """Sets a timer; a timer of this name is moved.

        :param patient: a periodic check that may fire late; see :meth:`next_due`
        """
        self._count += 1
        self._active[name] = (at, self._count, ring)
        heap = self._lenient_heap if patient else self._exact_heap
        heapq.heappush(heap, (at, self._count, name))
        if len(heap) > 2 * len(self._active) + 64:
            heap[:] = [each for each in heap if self._is_active(each)]
            heapq.heapify(heap)

    def stop(self, name: Hashable) -> None:
        """Forgets an alarm, if there is one of this name."""
        self._active.pop(name, None)

    @property
    def names(self) -> list[Hashable]:
        """Those that are set, in no order."""
        return list(self._active)

    def next_due(self, slack: int = 0) -> int | None:
        """Returns when the next timer is due; None if there is none.

        :param slack: milliseconds that patient timers may be late, so that a test that advances
            the clock by days does not run every periodic check of each minute
        """
        prompt, patient = (
            self._first_active(self._exact_heap),
            self._first_active(self._lenient_heap),
        )
        if patient is None:
            return None if prompt is None else prompt[0]
        late = patient[0] + slack
        return late if prompt is None else min(prompt[0], late)

    def fire_due(self, now: int) -> None:
        """Fires every timer that is due, in the order of their times."""
        while (at := self.next_due()) is not None and at <= now:
            prompt, patient = (
                self._first_active(self._exact_heap),
                self._first_active(self._lenient_heap),
            )
            early = prompt is not None and (patient is None or prompt < patient)
            _, _, name = heapq.heappop(self._exact_heap if early else self._lenient_heap)
            _, _, ring = self._active.pop(name)
            ring(now)

    def _first_active(self, heap: list[_TimerEntry]) -> _TimerEntry | None:
        while heap:
            if self._is_active(heap[0]):
                return heap[0]
            heapq.heappop(heap)
        return None

    def _is_active(self, entry: _TimerEntry) -> bool:
        known = self._active.get(entry[2])
        return known is not None and known[1] == entry[1]


#: So many milliseconds behind the machine's clock, ours is wrong, or the machine's is.
MAX_DRIFT_MS = 1_000

#: So many milliseconds the machine's clock must stay ahead until it is believed.
DRIFT_CONFIRMATION_MS = 5_000


def steady_seconds() -> float:
    """Seconds of a clock that nobody can set; where the system offers it, the time asleep
    counts too.
    """
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
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._wall, self._steady = wall, steady
        #: What the steady clock's milliseconds are short of 1970's.
        self._base = (wall() - steady()) * 1_000
        #: Since when the machine's clock is ahead, on the steady one, and by how much.
        self._suspected_drift: tuple[float, float] | None = None
        #: What was advanced, less what has passed while frozen.
        self._advanced = 0.0
        self._frozen_at: int | None = None

    def now(self) -> int:
        """The time, in milliseconds since 1970."""
        return self._running_now() if self._frozen_at is None else self._frozen_at

    @property
    def frozen(self) -> bool:
        """Does time stand still?"""
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
        """Stops it."""
        self._frozen_at = self.now()

    def resume(self) -> None:
        """Lets it go on from where it stands."""
        if self._frozen_at is not None:
            self._advanced += self._frozen_at - self._exact_now()
            self._frozen_at = None

    def _running_now(self) -> int:
        return int(self._exact_now())

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
