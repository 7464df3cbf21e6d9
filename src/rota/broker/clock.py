"""The broker's time: the machine's, plus what a test has added to it."""

from __future__ import annotations

import time
from collections.abc import Callable

JUMP = 1_000
"""So many milliseconds behind the machine's clock, ours is wrong, or the machine's is."""
PROOF = 5_000
"""So many milliseconds the machine's clock must stay ahead until it is believed."""


def steady_seconds() -> float:
    """Seconds that nobody can set; where the machine can tell, those of its sleep too."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Clock:
    """Milliseconds since 1970 that never go back.

    They are counted steadily from the start, so that a machine whose clock is set back does not
    stop timers and one that is corrected by little does not move them. Where the machine's clock
    is far ahead, the broker follows: producers' timestamps would else be in its future. It does so
    only once that clock was ahead by the same at every look for five seconds: a clock that is
    wrong for a moment would leave the broker in the future until its end, and records would be
    deleted before their time.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._base = (wall() - steady()) * 1_000
        """What the steady clock's milliseconds are short of 1970's."""
        self._doubt: tuple[float, float] | None = None
        """Since when the machine's clock is ahead, on the steady one, and by how much."""
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
        steady = self._steady() * 1_000
        ahead = self._wall() * 1_000 - self._base - steady
        if ahead <= JUMP:
            self._doubt = None
        elif self._doubt is None or abs(ahead - self._doubt[1]) > JUMP:
            self._doubt = steady, ahead
        elif steady - self._doubt[0] >= PROOF:
            self._base += ahead
            self._doubt = None
        return self._base + steady + self._added
