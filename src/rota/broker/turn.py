"""Calls that waited and may be answered now, each in its turn.

One append can wake every client of a broker, and each answer may have many megabytes. So they are
not answered at once: the node takes up some in each of its events, as long as the shell has room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeAlias

BYTES = 1 << 20
"""When answers of one event have so many, those that waited come in the next."""
COUNT = 100
"""So many that waited are looked at in one event, be their answers ever so small."""
Take: TypeAlias = Callable[[], None]
"""What is done when the turn has come: it answers, or waits on."""


class Turns:
    """First come, first served; who is in the queue already keeps its place."""

    def __init__(self) -> None:
        self._queue: OrderedDict[Hashable, tuple[Take, bool]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, name: Hashable, take: Take, *, long: bool = False) -> None:
        """Asks for a turn.

        :param long: it is so much work that nobody else is taken up in the same event
        """
        self._queue.setdefault(name, (take, long))

    def drop(self, name: Hashable) -> None:
        """It is not wanted any more; nothing happens if it was not."""
        self._queue.pop(name, None)

    def next(self) -> tuple[Take, bool]:
        """Whose turn it is, and whether it is a long one; there must be one."""
        return self._queue.popitem(last=False)[1]
