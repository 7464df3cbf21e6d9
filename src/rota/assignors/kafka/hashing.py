"""The order in which Java walks its hash tables, where Kafka's result depends on it.

A table of ``java.util.HashMap`` or ``HashSet`` has a power of two of buckets, from 16 on, doubled
when it is more than three quarters full. It is walked bucket by bucket, and within a bucket in
order of insertion. (Java turns a bucket of more than eight into a tree; ids that collide like
that do not arise by chance, and it is left out.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rota.assignors.order import java_key
from rota.model.topic import IntArray

SMALLEST_TABLE = 16
WORD = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """``String.hashCode()``, as an unsigned number."""
    units = java_key(text)
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & WORD
    return value


def partition_hash(topic_hash: int, number: int) -> int:
    """``TopicPartition.hashCode()``, as an unsigned number."""
    return (31 * (31 + number) + topic_hash) & WORD


def spread(value: int) -> int:
    """The hash as a table uses it: the upper half is folded into the lower."""
    return value ^ value >> 16


def table_size(entries: int) -> int:
    """How many buckets a table has after so many entries were put into it."""
    size = SMALLEST_TABLE
    while entries > size * 3 // 4:
        size *= 2
    return size


def walk(members: Sequence[str]) -> IntArray:
    """Positions of the members in the order in which Java walks a table of them.

    Members of one bucket stand in their own order, as if they had been inserted sorted: a
    leader's true order of insertion is that of the join response, which is not known here.
    """
    buckets = table_size(len(members)) - 1
    found = np.array([spread(string_hash(member)) & buckets for member in members], dtype=np.int64)
    return np.argsort(found, kind="stable").astype(np.int32)


class PartitionSet:
    """A ``HashSet`` of partitions of one topic, of which only the first is ever asked for."""

    __slots__ = ("_buckets", "_hash", "_spread")

    def __init__(self, topic_hash: int) -> None:
        self._hash = topic_hash
        self._buckets = SMALLEST_TABLE
        self._spread: dict[int, int] = {}  # by number, in order of insertion

    def __len__(self) -> int:
        return len(self._spread)

    def add(self, number: int) -> None:
        """Puts a partition in; a table that has grown never shrinks."""
        self._spread[number] = spread(partition_hash(self._hash, number))
        self._buckets = max(self._buckets, table_size(len(self._spread)))

    def remove(self, number: int) -> None:
        """Takes a partition out."""
        del self._spread[number]

    def first(self) -> int:
        """The partition at which Java's iterator would start."""
        buckets = self._buckets - 1
        return min(self._spread, key=lambda number: self._spread[number] & buckets)
