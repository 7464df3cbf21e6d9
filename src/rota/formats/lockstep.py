"""Reads the partition listings of all members of a group at once.

A leader may get a million topic entries, a few hundred from each of thousands of members. Each
entry starts where the one before it ends, so one member's are read one after the other; but the
k-th entries of all members can be read together, as columns. A listing that does not follow its
format is left to the reader of single ones, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rota.formats.partitions import SMALLEST_ENTRY
from rota.model.topic import IntArray, Partitions

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
WordArray = npt.NDArray[np.uint64]

WORD = 8
FEW = 16
"""With fewer members than this still going, a step costs more than reading them one by one."""
LONGEST = 256
"""Names up to here are compared as columns; a legal topic name has at most 249 bytes."""
CHUNK = 1 << 17
"""Rows whose names are resolved together: small enough for the processor's cache."""
SLOT_BITS = 16
MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with its bits spread evenly: multiplying by it stirs the upper bits."""


class Source:
    """Many byte strings as one, readable as numbers at any offset, aligned or not."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.data = b"".join([*pieces, bytes(WORD)])  # so that a word may be read anywhere
        sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        self.limits: Int64Array = np.cumsum(sizes)
        self.starts: Int64Array = self.limits - sizes
        self.int16: npt.NDArray[np.int16] = self._at_any_offset(">i2")
        self.int32: npt.NDArray[np.int32] = self._at_any_offset(">i4")
        self.word: WordArray = self._at_any_offset(">u8")

    def _at_any_offset(self, kind: str) -> npt.NDArray[Any]:
        rows = len(self.data) - np.dtype(kind).itemsize + 1
        return np.ndarray((rows,), kind, self.data, strides=(1,))


def read_listings(
    pieces: Sequence[bytes], offsets: Sequence[int]
) -> list[tuple[Partitions | None, int]]:
    """The listing in each piece from its offset on, and the offset at which it ends.

    None where the listing was not read here.
    """
    if len(pieces) < FEW:
        return [(None, offset) for offset in offsets]
    source = Source(pieces)
    walk = _Walk(source, source.starts + np.array(offsets))
    walk.run()
    name_at, count, member = walk.entries()
    name_size = source.int16[name_at].astype(np.int64) + 2
    names, topic = _topics(source, name_at, name_size)
    walk.read[member[topic < 0]] = False
    first = np.cumsum(count) - count
    at = np.repeat(name_at + name_size + 4 - 4 * first, count)
    at += np.arange(0, 4 * len(at), 4)
    numbers = source.int32[at].astype(np.int32)
    topic = np.repeat(topic, count)
    for column in (topic, numbers):
        column.setflags(write=False)
    entry = np.searchsorted(member, np.arange(len(pieces) + 1))
    bounds = np.append(first, len(at))[entry].tolist()
    ends = (walk.ends - source.starts).tolist()
    found: list[tuple[Partitions | None, int]] = []
    for position, was_read in enumerate(walk.read.tolist()):
        rows = slice(bounds[position], bounds[position + 1])
        held = Partitions(names, topic[rows], numbers[rows]) if was_read else None
        found.append((held, ends[position]))
    return found


class _Walk:
    """Finds every entry of every listing: where its name is, and how many partitions it has."""

    def __init__(self, source: Source, starts: Int64Array) -> None:
        self.source = source
        counts = source.int32[starts].astype(np.int64)
        room = source.limits - starts - 4
        self.read: BoolArray = (room >= 0) & (counts >= 0) & (counts * SMALLEST_ENTRY <= room)
        self.sizes: Int64Array = np.where(self.read, counts, 0)
        self.ends: Int64Array = starts + 4
        self.name_at = np.empty(int(self.sizes.sum()), dtype=np.int64)
        self.count = np.empty(len(self.name_at), dtype=np.int64)

    def run(self) -> None:
        """Step k reads the k-th entry of every member that has one."""
        int16, int32 = self.source.int16, self.source.int32
        live = np.flatnonzero(self.sizes)
        row_end = np.cumsum(self.sizes)[live]
        row = row_end - self.sizes[live]
        at, limit = self.ends[live], self.source.limits[live]
        while len(live) >= FEW:
            size = int16[at]
            count_at = at + 2 + size
            bad = (size < 0) | (count_at + 4 > limit)
            count = int32[np.where(bad, 0, count_at)].astype(np.int64)
            after = count_at + 4 + 4 * count
            bad |= (count < 0) | (after > limit)
            self.name_at[row] = at
            self.count[row] = count
            row += 1
            at = after
            gone = bad | (row == row_end)
            if gone.any():
                self.ends[live] = at
                self.read[live[bad]] = False
                stay = ~gone
                live, row, row_end = live[stay], row[stay], row_end[stay]
                at, limit = at[stay], limit[stay]
        self.read[live] = False

    def entries(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Name offset, number of partitions and member of each entry of the listings read."""
        member = np.repeat(np.arange(len(self.sizes)), self.sizes)
        if self.read.all():
            return self.name_at, self.count, member
        kept = self.read[member]
        return self.name_at[kept], self.count[kept], member[kept]


def _topics(
    source: Source, name_at: Int64Array, name_size: Int64Array
) -> tuple[tuple[str, ...], IntArray]:
    """The distinct names, and for each row the position of its name; -1 where it is no text."""
    index: dict[bytes, int] = {}
    names: list[str] = []

    def number(row: int) -> int:
        at = int(name_at[row])
        raw = source.data[at + 2 : at + int(name_size[row])]
        found = index.get(raw)
        if found is None:
            try:
                names.append(raw.decode())
                found = len(names) - 1
            except UnicodeDecodeError:
                found = -1
            index[raw] = found
        return found

    topic = np.empty(len(name_at), dtype=np.int32)
    for begin in range(0, len(topic), CHUNK):
        rows = slice(begin, begin + CHUNK)
        like = _equal_names(source, name_at[rows], name_size[rows])
        chosen = np.zeros(len(like), dtype=np.bool_)
        chosen[like] = True
        distinct = np.flatnonzero(chosen)
        position = np.empty(len(like), dtype=np.int32)
        position[distinct] = [number(begin + row) for row in distinct.tolist()]
        topic[rows] = position[like]
    return tuple(names), topic


def _equal_names(source: Source, name_at: Int64Array, name_size: Int64Array) -> Int64Array:
    """For each row one that has the same name, the same for nearly all rows with that name.

    Rows meet by a hash and are then compared to the last byte; a row that meets another name, or
    whose name is long, stands for itself.
    """
    size = np.minimum(name_size, LONGEST)
    words = range(-(-int(size.max(initial=0)) // WORD))
    mixed = np.zeros(len(name_at), dtype=np.uint64)
    for word in words:
        mixed ^= _word(source, name_at, size, word)
        mixed *= MIX
        mixed ^= mixed >> np.uint64(32)
    slot = mixed & np.uint64((1 << SLOT_BITS) - 1)
    rows = np.arange(len(name_at))
    table = np.empty(1 << SLOT_BITS, dtype=np.int64)
    table[slot] = rows
    like = table[slot]
    same = name_size <= LONGEST
    for word in words:
        mine = _word(source, name_at, size, word)
        same &= mine == mine[like]
    return np.where(same, like, rows)


def _word(source: Source, at: Int64Array, size: Int64Array, position: int) -> WordArray:
    """The position-th eight bytes of each name with its length in front, zeros past its end."""
    offset = WORD * position
    word = source.word[np.minimum(at + offset, len(source.word) - 1)].astype(np.uint64)
    beyond = np.clip(offset + WORD - size, 0, WORD).astype(np.uint64)
    return word >> (beyond * np.uint64(8))
