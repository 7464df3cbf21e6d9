"""Whom a rebalance waited for.

The coordinator waits for every member of the last generation to join, then for the leader's
assignment; and a rebalance is not over before each member has taken its part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LONG = 10_000
"""Members hear of a rebalance by their next heartbeats: what takes longer wants a reason."""


class Wait(NamedTuple):
    """A rebalance waited for somebody, for so many milliseconds."""

    members: tuple[str, ...]
    """By the names of their processes; none where it was for the leader's assignment."""
    time: int
    why: str
    """What became of it."""


class Watch:
    """Looks on while a rebalance goes through its phases."""

    def __init__(self) -> None:
        self.waits: list[Wait] = []
        self._since: int | None = None
        self._missing: dict[str, None] = {}
        self._last: tuple[int, tuple[str, ...], str] | None = None

    def called(self, now: int, members: Iterable[str]) -> None:
        """The members are called to join."""
        self._since = now
        self._missing = dict.fromkeys(sorted(members))
        self._last = None

    def came(self, now: int, name: str) -> None:
        """A member joins."""
        if name in self._missing:
            del self._missing[name]
            self._last = (now, (name,), "joined late")

    def went(self, now: int, names: tuple[str, ...], why: str) -> None:
        """Members were taken out of the group."""
        for name in names:
            self._missing.pop(name, None)
        self._last = (now, names, why)

    def joined(self, now: int) -> None:
        """The join phase is over."""
        if self._last is not None and self._last[0] == now:
            self._told(now, *self._last[1:])
        elif self._missing:  # static members that are down
            self._told(now, tuple(self._missing), "did not come back")
        self._since = now

    def assigned(self, now: int) -> None:
        """The generation is stable."""
        self._told(now, (), "came late")
        self._since = now

    def handed(self, now: int, name: str) -> None:
        """The last of all members has taken its part."""
        self._told(now, (name,), "took its part late")
        self._since = None

    def _told(self, now: int, names: tuple[str, ...], why: str) -> None:
        if self._since is not None and now - self._since > LONG:
            self.waits.append(Wait(names, now - self._since, why))
