"""Wakes the application where it waits, from whatever thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Bell:
    """Several may wait for it; a ring wakes all, and is forgotten."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self, until: float, is_due: Callable[[], bool]) -> None:
        """Until it rings, or a time of the loop's; not at all if something is due already."""
        loop = self._loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.add(future)  # before the look, or a ring in between would be missed
        timer = None
        try:
            if not is_due():
                timer = loop.call_at(until, _wake, future)
                await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()

    def ring(self) -> None:
        """Wakes those who wait, from any thread and from signal handlers."""
        loop = self._loop
        if self._waiting and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.ring_here)

    def ring_here(self) -> None:
        """The same in the loop's own turn, at once."""
        for future in self._waiting:
            _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
