"""A member's timers, kept by a loop in another thread."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from rota.member.event import Timer


class Alarm:
    """Knows when each timer is due, and wakes the loop for the earliest.

    To stop a timer, or to move it later, costs no wake-up: the loop finds nothing due and sleeps
    on. That is what a poll does thousands of times a second. All but :meth:`arm` and the loop's own
    call are made under the owner's lock.
    """

    __slots__ = ("_armed", "_fire", "_handle", "due")

    def __init__(self, fire: Callable[[], None]) -> None:
        self.due: dict[Timer, int] = {}
        """In milliseconds of the driver's clock."""
        self._fire = fire
        self._armed = math.inf
        """When the loop will wake, or is about to be told to; in milliseconds."""
        self._handle: asyncio.TimerHandle | None = None

    def start(self, timer: Timer, at: int) -> bool:
        """Starts a timer, or moves it; True if the loop must be told, by :meth:`arm`."""
        self.due[timer] = at
        if at < self._armed:
            self._armed = at
            return True
        return False

    def stop(self, timer: Timer) -> None:
        """Forgets a timer."""
        self.due.pop(timer, None)

    def take(self, now: int) -> Timer | None:
        """The first of the timers that are due, which runs no more."""
        timer = min(self.due, key=lambda one: (self.due[one], one.value), default=None)
        if timer is None or self.due[timer] > now:
            return None
        del self.due[timer]
        return timer

    def arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the loop's thread: it wakes for the earliest timer there is now."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._armed = min(self.due.values(), default=math.inf)
        if self._armed < math.inf:
            # a bit late rather than a bit early, when nothing would be due yet
            self._handle = loop.call_at(self._armed / 1000 + 0.0005, self._fire)

    def disarm(self) -> None:
        """In the loop's thread: it wakes no more."""
        self.due.clear()
        if self._handle is not None:
            self._handle.cancel()
