"""The order in which the coordinator walks its tables, where the result depends on it.

Inside a bucket Java keeps the order of insertion, which is the group's history and not known
here. It is taken to be the plainest one: members in the order of their ids, names and numbers
ascending, and a member's topics as it gets them when it starts from nothing. Nor is it known how
large a table was once: it is taken to be as large as for what is in it now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from struct import unpack

from rota.assignors.problem import Problem
from rota.formats.javahash import (
    CAPACITY,
    CROWDED,
    hash_set_order,
    java_hash,
    java_sorted,
    put_order,
)

FIBONACCI = 0x9E3779B97F4A7C15
LONG = 0xFFFFFFFFFFFFFFFF
LOAD_FACTOR = 0.75
UPPER_HALF = 2**16

TopicIds = Mapping[str, bytes]
"""The 16 bytes of each topic's id."""


@lru_cache(maxsize=256)  # what would have been is asked many times of one group
def member_walk(members: tuple[str, ...]) -> tuple[int, ...]:
    """Positions of the members as an assignor meets them.

    The coordinator copies its own table of members (a ``TimelineHashMap``) into a ``HashMap``.
    """
    hashes = [java_hash(member) for member in members]
    copied = _timeline_order(hashes)
    return tuple(copied[at] for at in put_order([hashes[position] for position in copied]))


def _timeline_order(hashes: Sequence[int]) -> list[int]:
    """How Kafka's table with snapshots gives its keys: those of one slot last in, first out."""
    slots = 2
    while len(hashes) * LOAD_FACTOR > slots:
        slots *= 2
    shift = 65 - slots.bit_length()
    slot = [(value * FIBONACCI & LONG) >> shift for value in hashes]
    return sorted(range(len(hashes) - 1, -1, -1), key=slot.__getitem__)


def number_walk(numbers: list[int]) -> list[int]:
    """A member's partitions of one topic, given ascending, in the order of its set of them."""
    count, last = len(numbers), numbers[-1]
    mask = max(1 << (count * 4 // 3).bit_length(), CAPACITY) - 1
    if last <= mask:  # each in a bucket of its own
        return numbers
    # the fewer buckets are shared, the fewer can be in any; up to the upper half a number is its
    # own place in a table
    if last < UPPER_HALF and len({number & mask for number in numbers}) > count - CROWDED:
        return sorted(numbers, key=mask.__and__)
    return [numbers[at] for at in hash_set_order(numbers)]


class TopicTable:
    """Topics by id. Where the ids are not known, the order of names stands for every other."""

    def __init__(self, problem: Problem, ids: TopicIds) -> None:
        self._names = problem.layout.topics
        self._unknown = problem.skipped_topics
        self._ids = [ids[name] for name in self._names] if ids else []
        self._hashes = [_uuid_hash(uuid) for uuid in self._ids]
        self.walk = self._subscribed()
        """Positions of the topics in the order in which free partitions are collected."""

    def _subscribed(self) -> list[int]:
        if len(self._hashes) <= 1:
            return list(range(len(self._names)))
        named = java_sorted([*self._names, *self._unknown])
        position = {name: at for at, name in enumerate(self._names)}
        by_name = [named[at] for at in hash_set_order([java_hash(name) for name in named])]
        known = [position[name] for name in by_name if name in position]
        hashes = [self._hashes[at] for at in known]
        return [known[at] for at in hash_set_order(hashes, announced=len(named))]

    def held_walk(self, topics: Collection[int]) -> Iterable[int]:
        """These topics in the order of a member's own table of what it has."""
        if len(topics) <= 1:
            return topics
        if not self._hashes:
            return sorted(topics)
        if len(topics) <= CROWDED:  # never more than the smallest table
            return sorted(topics, key=self._place_in_smallest.__getitem__)
        return self._put(topics)

    @cached_property
    def _place_in_smallest(self) -> list[tuple[int, int]]:
        return [
            ((value ^ value >> 16) & (CAPACITY - 1), -self._rank[topic])
            for topic, value in enumerate(self._hashes)
        ]

    @cached_property
    def _rank(self) -> dict[int, int]:
        return {topic: at for at, topic in enumerate(self.walk)}

    def _put(self, topics: Iterable[int]) -> list[int]:
        # a topic that is new to a member goes to the head of its bucket
        latest = sorted(topics, key=self._rank.__getitem__, reverse=True)
        return [latest[at] for at in put_order([self._hashes[topic] for topic in latest])]

    def sort_key(self, topic: int) -> tuple[int, int]:
        """Sorts as topic ids do in Java: as two signed numbers."""
        if not self._ids:
            return (topic, 0)
        high, low = unpack(">qq", self._ids[topic])
        return (high, low)


def _uuid_hash(uuid: bytes) -> int:
    """``Uuid.hashCode``."""
    high, low = unpack(">QQ", uuid)
    folded = high ^ low
    return int(folded >> 32 ^ folded & 0xFFFFFFFF)
