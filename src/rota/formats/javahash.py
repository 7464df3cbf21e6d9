"""How Java orders text: its sort order, and the order in which a ``HashMap`` gives its keys.

Java writes topics in these orders, so equal bytes need the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

CAPACITY = 16
LOAD_FACTOR = 0.75
CROWDED = 8
"""A bucket with more keys makes a small table grow (and becomes a tree in a large one)."""
SMALL_TABLE = 64


def java_key(text: str) -> bytes:
    """A sort key that orders text as Java's ``String.compareTo`` does: by UTF-16 code units.

    Python orders by code points, which differs once characters beyond the basic plane appear.
    """
    return text.encode("utf-16-be", "surrogatepass")


def java_sorted(texts: Iterable[str]) -> list[str]:
    """Text in Java's order."""
    listed = list(texts)
    return sorted(listed) if all(map(str.isascii, listed)) else sorted(listed, key=java_key)


@lru_cache(maxsize=2**16)  # members and topics come again in every rebalance
def java_hash(text: str) -> int:
    """``String.hashCode``: a polynomial in 31 over UTF-16 code units, signed 32 bits."""
    units = text.encode("latin-1") if text.isascii() else _utf16(text)
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _utf16(text: str) -> memoryview:
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")


def _spread(hashes: Sequence[int]) -> list[int]:
    """Hash codes as a table uses them: the upper half folded into the lower."""
    words = [value & 0xFFFFFFFF for value in hashes]
    return [value ^ (value >> 16) for value in words]


class _Table:
    """Positions of keys in buckets; doubles like a ``HashMap``, keeping order inside buckets."""

    def __init__(self, hashes: Sequence[int], capacity: int = CAPACITY) -> None:
        self.spread = _spread(hashes)
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
        if crowded and len(self.buckets) < SMALL_TABLE:
            self.grow()

    def order(self) -> list[int]:
        return [position for bucket in self.buckets for position in bucket]


def hash_map_order(keys: Sequence[str]) -> list[int]:
    """Positions of distinct keys in the order a ``HashMap`` filled by ``put`` gives them."""
    return put_order([java_hash(key) for key in keys])


def hash_set_order(hashes: Sequence[int], announced: int | None = None) -> list[int]:
    """The same of a ``HashSet`` made from a collection, out of the hash codes of its elements.

    ``announced`` is the size that the collection states, where it gives fewer in the end.
    """
    size = len(hashes) if announced is None else announced
    capacity = CAPACITY
    while capacity < size * 4 // 3 + 1:
        capacity *= 2
    return put_order(hashes, capacity)


def put_order(hashes: Sequence[int], capacity: int = CAPACITY) -> list[int]:
    """The same of distinct keys with these hash codes, in a table of at first this capacity."""
    if _may_crowd(hashes, capacity):
        return _put_one_by_one(hashes, capacity)
    while len(hashes) > LOAD_FACTOR * capacity:
        capacity *= 2
    spread = _spread(hashes)
    # a table that grows keeps the order inside its buckets, and so does this sort
    return sorted(range(len(hashes)), key=lambda position: spread[position] & (capacity - 1))


def _may_crowd(hashes: Sequence[int], capacity: int) -> bool:
    """Is there, at any size of a small table, a bucket with so many keys that the table grows?"""
    while capacity < SMALL_TABLE and len(hashes) > CROWDED:
        first = _spread(hashes[: int(LOAD_FACTOR * capacity) + 1])
        buckets = [value & (capacity - 1) for value in first]
        if len(set(buckets)) + CROWDED <= len(buckets) and (
            max(Counter(buckets).values()) > CROWDED
        ):
            return True
        if len(hashes) <= LOAD_FACTOR * capacity:
            return False
        capacity *= 2
    return False


def _put_one_by_one(hashes: Sequence[int], capacity: int) -> list[int]:
    table = _Table(hashes, capacity)
    for position in range(len(hashes)):
        bucket = table.bucket(position)
        bucket.append(position)
        table.grow_if_crowded(len(bucket) > CROWDED)
        if table.full(position + 1):
            table.grow()
    return table.order()


def computed_map_order(keys: Sequence[str], *, looked_up_after: bool) -> list[int]:
    """The same where the map was filled by ``computeIfAbsent``.

    That method puts a new key at the head of its bucket and makes room before it looks, not after
    it inserts; so it matters whether another call came after the last new key.
    """
    table = _Table([java_hash(key) for key in keys])
    for position in range(len(keys)):
        if table.full(position):
            table.grow()
        bucket = table.bucket(position)
        bucket.insert(0, position)
        table.grow_if_crowded(len(bucket) >= CROWDED)
    if looked_up_after and table.full(len(keys)):
        table.grow()
    return table.order()
