"""Reads the partition listings of all members of a group at once.

A leader may get a million topic entries, a few hundred from each of thousands of members. Each
entry starts where the one before it ends, so one member's are read one after the other; but the
k-th entries of all members can be read together, as columns. A listing that does not follow its
format is left to the reader of single ones, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rota.formats.buffer import BoolArray, Buffer, Int64Array
from rota.formats.distinct import distinct_names
from rota.formats.partitions import SMALLEST_ENTRY
from rota.model.topic import Partitions

FEW = 16
"""With fewer members than this still going, a step costs more than reading them one by one."""


class Source(Buffer):
    """Many byte strings as one, and where each begins and ends."""

    __slots__ = ("limits", "starts")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces)
        sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        self.limits: Int64Array = np.cumsum(sizes)
        self.starts: Int64Array = self.limits - sizes


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
    names, topic = distinct_names(source, name_at, name_size)
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
