"""The broker's time: the machine's, plus what a test has added to it."""

from __future__ import annotations

import time
from collections.abc import Callable

JUMP = 1_000
"""So many milliseconds behind the machine's clock, ours has slept (a suspended laptop)."""


class Clock:
    """Milliseconds since 1970 that never go back.

    They are counted steadily from the start, so that a machine whose clock is set back does not
    stop timers and one that is corrected by little does not move them. Where the machine's clock
    is far ahead, after a sleep, the broker follows: producers' timestamps would else be in its
    future.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._base = (wall() - steady()) * 1_000
        """What the steady clock's milliseconds are short of 1970's."""
        self._added = 0.0
        """What was advanced, less what has passed while frozen."""
        self._stopped: int | None = None

    def now(self) -> int:
        """The time, in milliseconds since 1970."""
        return self._running() if self._stopped is None else self._stopped

    @property
    def frozen(self) -> bool:
        """Does time stand still?"""
        return self._stopped is not None

    def wait(self, until: int) -> float | None:
        """Real seconds until then, 0 if it has been; None if it does not come by itself."""
        return None if self._stopped is not None else max(until - self._exact(), 0) / 1_000

    def move_to(self, at: int) -> None:
        """Puts the clock forward; to a time that has been it is not moved."""
        if self._stopped is not None:
            self._stopped = max(self._stopped, at)
        else:
            self._added += max(at - self._exact(), 0)

    def freeze(self) -> None:
        """Stops it."""
        self._stopped = self.now()

    def resume(self) -> None:
        """Lets it go on from where it stands."""
        if self._stopped is not None:
            self._added += self._stopped - self._exact()
            self._stopped = None

    def _running(self) -> int:
        return int(self._exact())

    def _exact(self) -> float:
        ours = self._base + self._steady() * 1_000
        ahead = self._wall() * 1_000 - ours
        if ahead > JUMP:
            self._base += ahead
            ours += ahead
        return ours + self._added
