"""How old the first unread record of a partition is, asked by ListOffsets alone.

ListOffsets tells the first offset whose record is of a time or later. So the time of the record at
an offset is found as a number in a sorted list is: a guess, and an answer that lies before or
behind. A few rounds do, each of them one request to each leader for all partitions together, where
fetching the records would be one large answer for each partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from math import isqrt
from typing import TypeAlias

from rota.model.topic import TopicPartition

ROUNDS = 22
"""Of questions, at most: enough for records of ten years, however they lie."""
NEAR_MS = 1_000
NEAR_PART = 50
"""An age is near enough within a second, or within a fiftieth of itself."""

Found: TypeAlias = tuple[int, int] | None
"""An offset and the time of its record; None: there is no such record."""
Ask: TypeAlias = Callable[[Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, Found]]]
"""The first record of each partition that is of this time or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Between which times the newest record up to an offset is; out-of-order ones count as new as
    the newest before them.
    """

    offset: int
    now: int
    before: tuple[int, int]
    """A record up to the offset, and its time."""
    behind: tuple[int, int]
    """One behind the offset, and its time: a hint where to look, no more."""
    latest: int
    """It is not newer than that."""
    asked: int = 0

    @property
    def settled(self) -> bool:
        """Is it known well enough?"""
        earliest = self.before[1]
        near = max(NEAR_MS, (self.now - earliest) // NEAR_PART)
        return self.latest - earliest <= near or self.asked >= ROUNDS

    @property
    def age(self) -> int:
        """How old the record is, or a little more."""
        return max(self.now - self.before[1], 0)

    @property
    def guess(self) -> int:
        """The next time to ask for: by the rate of records, and every other time in the middle
        between the ages that it can have, which ends it whatever the rate is.
        """
        (low, earliest), (high, later) = self.before, self.behind
        guess = self.now - isqrt(max(self.now - self.latest, NEAR_MS) * (self.now - earliest))
        if self.asked % 2 == 0 and high > low:
            guess = earliest + (later - earliest) * (self.offset - low) // (high - low)
        return min(max(guess, earliest + 1), self.latest)

    def told(self, time: int, found: Found) -> Search:
        """What is known after an answer."""
        asked = replace(self, asked=self.asked + 1)
        if found is None:
            return replace(asked, latest=time - 1)
        offset, stamp = found
        if offset > self.offset:
            return replace(asked, latest=time - 1, behind=found)
        if offset == self.offset:  # all before it are older than what was asked for
            return replace(asked, before=found, latest=stamp)
        return replace(asked, before=found, latest=max(self.latest, stamp))


async def ages(
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now: int,
    ask: Ask,
) -> dict[TopicPartition, int]:
    """How old, in milliseconds, the first record from an offset on is, for each partition that has
    one. Those whose records have no times are missing.
    """
    found: dict[TopicPartition, int] = {}
    searches: dict[TopicPartition, Search] = {}
    first = await ask({each: 0 for each in offsets if offsets[each] < ends[each]})
    for partition, oldest in first.items():
        offset = offsets[partition]
        if oldest is not None and oldest[0] >= offset:
            found[partition] = max(now - oldest[1], 0)
        elif oldest is not None:
            searches[partition] = Search(
                offset=offset, now=now, before=oldest, behind=(ends[partition], now), latest=now
            )
    while searches:
        open_ones = {each: one for each, one in searches.items() if not one.settled}
        found.update({each: searches[each].age for each in searches.keys() - open_ones.keys()})
        asked = {partition: search.guess for partition, search in open_ones.items()}
        answers = await ask(asked) if asked else {}
        searches = {
            partition: open_ones[partition].told(asked[partition], answers[partition])
            for partition in open_ones.keys() & answers.keys()
        }
    return found
