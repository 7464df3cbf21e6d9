"""Who of a topic's subscribers takes the next partition, and who gives one up."""

from __future__ import annotations

LEVEL = 1
"""Loads that differ by no more are even: nothing is gained by a move."""


class Scale:
    """Subscribers from the lightest to the heaviest, while loads change.

    The lightest stand in a range at the front that takes in turn, and grows to the right by those
    whose load it reaches. The heaviest stand in a range that gives in turn, its last one first,
    and grows to the left; those with nothing to give are set aside behind it. ``loads`` are the
    caller's own, and change between the calls.
    """

    __slots__ = ("_ceiling", "_end", "_floor", "_give", "_line", "_loads", "_start", "_take", "_to")

    def __init__(self, members: list[int], loads: list[int]) -> None:
        self._loads = loads
        self._line = sorted(members, key=loads.__getitem__)
        self._floor = loads[self._line[0]] - 1
        """The load at which the taking range is filled up."""
        self._take = self._to = 0
        """Next to take, and where the taking range ends."""
        self._ceiling = loads[self._line[-1]] + 1
        """The load from which the giving range is brought down."""
        self._start = self._end = len(members)
        """The giving range."""
        self._give = len(members) - 1

    def even(self) -> bool:
        """Would a move from the giving range to the taking one change nothing?"""
        return self._ceiling - self._floor <= LEVEL

    def taker(self) -> int:
        """The next member to be given a partition."""
        if self._take >= self._to:
            self._floor += 1
            line, loads = self._line, self._loads
            while self._to < len(line) and loads[line[self._to]] == self._floor:
                self._to += 1
            self._take = 0
        self._take += 1
        return self._line[self._take - 1]

    def giver(self) -> int | None:
        """The next member to give up a partition; None where nobody is left."""
        line, loads = self._line, self._loads
        if self._give < self._start:
            if self._end <= self._start and self._start > 0:
                self._ceiling = loads[line[self._start - 1]]
            else:
                self._ceiling -= 1
            while self._start > 0 and loads[line[self._start - 1]] == self._ceiling:
                self._start -= 1
            self._give = self._end - 1
        if self._give < 0:
            return None
        self._give -= 1
        return line[self._give + 1]

    def set_aside(self) -> None:
        """The last giver has nothing to give: it leaves the giving range."""
        self._end -= 1
        at, line = self._give + 1, self._line
        line[at], line[self._end] = line[self._end], line[at]
