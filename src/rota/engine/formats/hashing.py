"""Java's sort order of strings, the order of its hash tables, and the producer's murmur2 hash.

Java writes topics in these orders, so the same bytes need the same orders.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

DEFAULT_INITIAL_CAPACITY = 16
LOAD_FACTOR = 0.75
TREEIFY_THRESHOLD = 8  # a bucket with more keys makes a small table grow, or becomes a tree
MIN_TREEIFY_CAPACITY = 64


def java_sort_key(text: str) -> bytes:
    """A sort key for text in the order of Java's ``String.compareTo``: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def sort_like_java(texts: Iterable[str]) -> list[str]:
    listed = list(texts)
    return sorted(listed) if all(map(str.isascii, listed)) else sorted(listed, key=java_sort_key)


@lru_cache(maxsize=2**16)  # members and topics come again in every rebalance
def java_string_hash(text: str) -> int:
    """``String.hashCode``: a polynomial in 31 over UTF-16 code units, signed 32 bits."""
    units = text.encode("latin-1") if text.isascii() else _utf16_code_units(text)
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _utf16_code_units(text: str) -> memoryview:
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")


def _spread_hashes(hashes: Sequence[int]) -> list[int]:
    """Folds the upper half of each hash code into the lower, as a ``HashMap`` does."""
    words = [value & 0xFFFFFFFF for value in hashes]
    return [value ^ (value >> 16) for value in words]


class _HashTable:
    """Positions of keys in buckets; doubles like a ``HashMap``, keeping order inside buckets."""

    def __init__(self, hashes: Sequence[int], capacity: int = DEFAULT_INITIAL_CAPACITY) -> None:
        self.spread = _spread_hashes(hashes)
        self.buckets: list[list[int]] = [[] for _ in range(capacity)]

    def bucket(self, position: int) -> list[int]:
        return self.buckets[self.spread[position] & (len(self.buckets) - 1)]

    def full(self, size: int) -> bool:
        return size > LOAD_FACTOR * len(self.buckets)

    def grow(self) -> None:
        before = self.buckets
        self.buckets = [[] for _ in range(2 * len(before))]
        for bucket in before:
            for position in bucket:
                self.bucket(position).append(position)

    def grow_if_crowded(self, crowded: bool) -> None:
        # beyond this size Java turns the bucket into a tree, whose order is not followed here
        if crowded and len(self.buckets) < MIN_TREEIFY_CAPACITY:
            self.grow()

    def order(self) -> list[int]:
        return [position for bucket in self.buckets for position in bucket]


def hash_map_order(keys: Sequence[str]) -> list[int]:
    """Returns the positions of distinct keys in the order of a ``HashMap`` filled by ``put``."""
    return hash_table_order([java_string_hash(key) for key in keys])


def hash_set_order(hashes: Sequence[int], announced: int | None = None) -> list[int]:
    """Returns the same for a ``HashSet`` made from a collection of the ``announced`` size."""
    size = len(hashes) if announced is None else announced
    capacity = DEFAULT_INITIAL_CAPACITY
    while capacity < size * 4 // 3 + 1:
        capacity *= 2
    return hash_table_order(hashes, capacity)


def hash_table_order(hashes: Sequence[int], capacity: int = DEFAULT_INITIAL_CAPACITY) -> list[int]:
    """Returns the same for distinct keys in a table of this initial capacity."""
    if _may_overfill_bucket(hashes, capacity):
        return _put_one_by_one(hashes, capacity)
    while len(hashes) > LOAD_FACTOR * capacity:
        capacity *= 2
    spread = _spread_hashes(hashes)
    # a table that grows keeps the order inside its buckets, and so does this sort
    return sorted(range(len(hashes)), key=lambda position: spread[position] & (capacity - 1))


def _may_overfill_bucket(hashes: Sequence[int], capacity: int) -> bool:
    """Returns whether Java resizes a small HashMap early, because one bucket has too many keys."""
    while capacity < MIN_TREEIFY_CAPACITY and len(hashes) > TREEIFY_THRESHOLD:
        first = _spread_hashes(hashes[: int(LOAD_FACTOR * capacity) + 1])
        buckets = [value & (capacity - 1) for value in first]
        if len(set(buckets)) + TREEIFY_THRESHOLD <= len(buckets) and (
            max(Counter(buckets).values()) > TREEIFY_THRESHOLD
        ):
            return True
        if len(hashes) <= LOAD_FACTOR * capacity:
            return False
        capacity *= 2
    return False


def _put_one_by_one(hashes: Sequence[int], capacity: int) -> list[int]:
    table = _HashTable(hashes, capacity)
    for position in range(len(hashes)):
        bucket = table.bucket(position)
        bucket.append(position)
        table.grow_if_crowded(len(bucket) > TREEIFY_THRESHOLD)
        if table.full(position + 1):
            table.grow()
    return table.order()


def compute_if_absent_order(keys: Sequence[str], *, looked_up_after: bool) -> list[int]:
    """Returns the same for a map filled by ``computeIfAbsent``: a new key goes to the head of its
    bucket, and a resize precedes the lookup, so another call after the last new key matters.
    """
    table = _HashTable([java_string_hash(key) for key in keys])
    for position in range(len(keys)):
        if table.full(position):
            table.grow()
        bucket = table.bucket(position)
        bucket.insert(0, position)
        table.grow_if_crowded(len(bucket) >= TREEIFY_THRESHOLD)
    if looked_up_after and table.full(len(keys)):
        table.grow()
    return table.order()


_MURMUR_SEED = 0x9747B28C
_MURMUR_MULTIPLIER = 0x5BD1E995
_UINT32_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of the bytes as Java's producer computes it; never negative."""
    length = len(data)
    whole = length & ~3
    result = _MURMUR_SEED ^ length
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * _MURMUR_MULTIPLIER & _UINT32_MASK
        mixed = (mixed ^ mixed >> 24) * _MURMUR_MULTIPLIER & _UINT32_MASK
        result = (result * _MURMUR_MULTIPLIER & _UINT32_MASK) ^ mixed
    if tail := data[whole:]:
        result = (result ^ int.from_bytes(tail, "little")) * _MURMUR_MULTIPLIER & _UINT32_MASK
    result = (result ^ result >> 13) * _MURMUR_MULTIPLIER & _UINT32_MASK
    return result ^ result >> 15


def choose_partition(key: bytes, partitions: int) -> int:
    """Returns the partition that Java's producer, and most others, choose for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
