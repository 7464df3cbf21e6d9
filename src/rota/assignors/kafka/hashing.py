"""The order in which Java walks its hash tables, where Kafka's result depends on it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rota.formats.javahash import CAPACITY, LOAD_FACTOR, hash_map_order
from rota.model.topic import IntArray

WORD = 0xFFFFFFFF


@lru_cache(maxsize=256)  # what would have been is asked many times of one group
def walk(members: tuple[str, ...]) -> IntArray:
    """Positions of the members in the order in which Java walks a table of them.

    Members of one bucket stand in their own order, as if they had been inserted sorted: a
    leader's true order of insertion is that of the join response, which is not known here.
    """
    order = np.array(hash_map_order(members), dtype=np.int32)
    order.setflags(write=False)
    return order


def partition_spread(topic_hash: int, number: int) -> int:
    """``TopicPartition.hashCode()`` as a table uses it: the upper half folded into the lower."""
    value = (31 * (31 + number) + topic_hash) & WORD
    return value ^ value >> 16


class PartitionSet:
    """A ``HashSet`` of partitions of one topic, of which only the first is ever asked for."""

    __slots__ = ("_buckets", "_hash", "_spread")

    def __init__(self, topic_hash: int) -> None:
        self._hash = topic_hash
        self._buckets = CAPACITY
        self._spread: dict[int, int] = {}  # by number, in order of insertion

    def __len__(self) -> int:
        return len(self._spread)

    def add(self, number: int) -> None:
        """Puts a partition in; a table that has grown never shrinks."""
        self._spread[number] = partition_spread(self._hash, number)
        while len(self._spread) > LOAD_FACTOR * self._buckets:
            self._buckets *= 2

    def remove(self, number: int) -> None:
        """Takes a partition out."""
        del self._spread[number]

    def first(self) -> int:
        """The partition at which Java's iterator would start."""
        buckets = self._buckets - 1
        return min(self._spread, key=lambda number: self._spread[number] & buckets)
