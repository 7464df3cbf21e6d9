"""What requests under way take of the memory, over all connections, and who may bring more.

Whole requests are served however much there is: they leave at once. But where unfinished ones have
spent what there is for them, they are not read on, but for one at a time, so that there is always
one that gets done. Who then stands still, or who only dribbles, is closed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from rota.broker.event import ConnectionId
from rota.wire.frame import GROWTH, SCRATCH

MOST = 512 << 20
"""Bytes for requests under way, or for one of the largest."""
SPARSE = 16 * 1024
"""No more is read at once while all is spent: enough for most requests to come whole."""
STALLED = 5.0
"""Seconds in which a request must come on while others wait for the memory that it takes."""
DRIBBLED = 30.0
"""Seconds in which it must come on in any case; clients give up a request after as long."""
PACE = 64 * 1024
"""So many bytes in that time, or all of it: a slow line brings that, however long it takes."""


class Reader(Protocol):
    """A connection, as far as it is read."""

    id: ConnectionId
    taken: int
    """Bytes that are counted for it; kept here."""
    brought: int
    """Bytes that have ever come in."""

    def read_on(self) -> None:
        """It may be that there is room."""

    def give_up(self, reason: str) -> None:
        """It is closed."""


@dataclass(slots=True)
class Mark:
    """Where somebody's unfinished request was."""

    reader: Reader
    since: float
    brought: int


class Intake:
    """Counts, and says who is read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        """:param limit: bytes of the largest request"""
        self.taken = 0
        self.most = max(MOST, limit)
        self._loop = loop
        self._marks: dict[ConnectionId, Mark] = {}
        """Those in the middle of a request."""
        self._starved: dict[ConnectionId, Reader] = {}
        """Those of them that are not read."""
        self._favoured: ConnectionId | None = None
        """The one that is read though all is spent."""
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def spent(self) -> bool:
        """There is no room for more."""
        return self.taken > self.most

    def weigh(self, reader: Reader, taken: int, *, unfinished: bool) -> bool:
        """So much of the memory is a connection's. May it be read?

        :param unfinished: what it waits for is more of a request
        """
        self.taken += taken - reader.taken
        reader.taken = taken
        if not unfinished:
            self._forget(reader.id)
            if self._starved:
                self._feed()
            return True
        if reader.id not in self._marks:
            self._marks[reader.id] = Mark(reader, self._loop.time(), reader.brought)
            self._look_later()
        if self.spent:
            if self._favoured is None:
                self._favoured = reader.id
            if self._favoured != reader.id:
                self._starved[reader.id] = reader
                return False
        self._starved.pop(reader.id, None)
        return True

    def close(self) -> None:
        """Sets no timer any more."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _forget(self, who: ConnectionId) -> None:
        if self._marks.pop(who, None) is not None:
            self._starved.pop(who, None)
            if self._favoured == who:
                self._favoured = None

    def _feed(self) -> None:
        """Lets as many be read as there is room for what one read may take; one in any case."""
        room = self.most - self.taken
        while self._starved and (room > 0 or self._favoured is None):
            who, reader = next(iter(self._starved.items()))
            del self._starved[who]
            mark = self._marks[who]
            mark.since, mark.brought = self._loop.time(), reader.brought
            if room <= 0:
                self._favoured = who
            room -= max(GROWTH * reader.taken, SCRATCH)
            reader.read_on()

    def _look_later(self) -> None:
        if self._sweep is None:
            self._sweep = self._loop.call_later(STALLED, self._look)

    def _look(self) -> None:
        """Closes who does not come on."""
        self._sweep = None
        now = self._loop.time()
        patience = STALLED if self._starved else DRIBBLED
        for who, mark in list(self._marks.items()):
            brought = mark.reader.brought
            if who in self._starved or brought - mark.brought >= PACE:
                mark.since, mark.brought = now, brought
            elif now - mark.since >= patience:
                mark.reader.give_up(
                    f"{brought - mark.brought} bytes of a request came in {now - mark.since:.0f} s"
                )
        if self._marks:
            self._look_later()
