"""How Java orders text: its sort order, and the order in which a ``HashMap`` gives its keys.

Java writes topics in these orders, so equal bytes need the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def java_hash(text: str) -> int:
    """``String.hashCode``: a polynomial in 31 over UTF-16 code units, signed 32 bits."""
    units = text.encode("latin-1") if text.isascii() else _utf16(text)
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _utf16(text: str) -> memoryview:
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")


class _Table:
    """Positions of keys in buckets; doubles like a ``HashMap``, keeping order inside buckets."""

    def __init__(self, keys: Sequence[str]) -> None:
        hashes = [java_hash(key) & 0xFFFFFFFF for key in keys]
        self.spread = [value ^ (value >> 16) for value in hashes]
        self.buckets: list[list[int]] = [[] for _ in range(CAPACITY)]

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
    table = _Table(keys)
    for position in range(len(keys)):
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
    table = _Table(keys)
    for position in range(len(keys)):
        if table.full(position):
            table.grow()
        bucket = table.bucket(position)
        bucket.insert(0, position)
        table.grow_if_crowded(len(bucket) >= CROWDED)
    if looked_up_after and table.full(len(keys)):
        table.grow()
    return table.order()
