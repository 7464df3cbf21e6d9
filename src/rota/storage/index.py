"""The sparse indexes beside a segment: where offsets are in the file, and when they were written.

``.index`` has 8 bytes an entry: the last offset of a batch, less the segment's base offset, and the
batch's position in the file. ``.timeindex`` has 12: the newest timestamp so far, and the offset of
the batch that has it. An entry is made for the first batch after every so many bytes, and a last
one of times when the segment is closed.

They only save time: all that they say can be read from the log, and is checked there before it is
believed.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import suppress

import numpy as np

from rota.errors import DiskError
from rota.storage.disk import Disk

INTERVAL = 4_096
"""``index.interval.bytes``: so much of the log is between two entries, at least."""
MOST = 10 << 20
"""``segment.index.bytes``: an index file is no larger; a segment ends where one is full."""
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
_ROWS = {OFFSET_ENTRY: np.dtype([("key", ">i4"), ("value", ">i4")])}
_ROWS[TIME_ENTRY] = np.dtype([("key", ">i8"), ("value", ">i4")])


class Indexer:
    """Decides which batches of a segment get an entry."""

    def __init__(self, base_offset: int, interval: int = INTERVAL) -> None:
        self.newest = -1
        """The newest timestamp so far."""
        self.newest_at = base_offset
        """The last offset of the batch that has it."""
        self._base = base_offset
        self._interval = interval
        self._since = 0
        """Bytes since the last entry."""
        self._told = -1
        """The newest timestamp that has an entry."""

    def add(self, position: int, size: int, last_offset: int, newest: int) -> tuple[bytes, bytes]:
        """What a batch that is written at a position adds to the two indexes; mostly nothing."""
        if newest > self.newest:
            self.newest, self.newest_at = newest, last_offset
        of_offset = of_time = b""
        if self._since > self._interval:
            of_offset = OFFSET_ENTRY.pack(last_offset - self._base, position)
            of_time = self.last_time()
            self._since = 0
        self._since += size
        return of_offset, of_time

    def last_time(self) -> bytes:
        """An entry for the newest timestamp so far, if it has none."""
        if self.newest <= self._told:
            return b""
        self._told = self.newest
        return TIME_ENTRY.pack(self.newest, self.newest_at - self._base)

    def resume(self, newest: int, newest_at: int, since: int) -> None:
        """Goes on where another has stopped.

        :param newest: the timestamp of the last entry
        :param since: bytes since the last entry of offsets
        """
        self.newest = self._told = newest
        self.newest_at = newest_at
        self._since = since


UNMADE = -1
"""Bytes of a file that is not there yet."""


class Entries:
    """An index file: held in memory while its segment is written, else read entry by entry."""

    def __init__(self, disk: Disk, path: str, entry: struct.Struct) -> None:
        self.path = path
        self._disk = disk
        self._entry = entry
        self._held: bytearray | None = None
        self._saved: int | None = 0
        """So many bytes are in the file; None: nobody knows."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> tuple[int, int]:
        size = self._entry.size
        if row < 0:
            row += self._count
        if self._held is not None:
            key, value = self._entry.unpack_from(self._held, row * size)
        else:
            data = self._disk.read(self.path, row * size, size)
            if len(data) < size:  # someone has cut it: nothing that the log would confirm
                return 0, -1
            key, value = self._entry.unpack(data)
        return key, value

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        return self._count * self._entry.size

    def has_room(self, most: int) -> bool:
        """May two entries more be added to a file of so many bytes at most?"""
        return self.size + 2 * self._entry.size <= min(most, MOST)

    def at_or_below(self, key: int) -> int:
        """The row of the last entry whose key is no more than this one; -1: there is none."""
        return bisect_right(range(self._count), key, key=lambda row: self[row][0]) - 1

    def clear(self) -> None:
        """No entries, to be held in memory; the file is written anew."""
        self._held = bytearray()
        self._count = 0
        self._saved = None

    def create(self) -> None:
        """No entries, for a new segment; the file is made when it is saved."""
        self._disk.remove(self.path)
        self._held = bytearray()
        self._saved = UNMADE

    def add(self, entry: bytes) -> None:
        """One more, or none; not in the file yet."""
        if entry and self._held is not None:
            self._held += entry
            self._count += 1

    def save(self) -> None:
        """Writes what is not in the file."""
        held = self._held
        if held is None or self._saved == len(held):
            return
        if self._saved is None:
            with suppress(DiskError):
                self._disk.remove(f"{self.path}.tmp")
            self._disk.replace(self.path, bytes(held))
        else:
            saved, self._saved = max(self._saved, 0), None
            self._disk.append(self.path, bytes(held[saved:]))
        self._saved = len(held)

    def release(self) -> None:
        """All is in the file: memory is free for others."""
        self._held = None

    def load(self, *, hold: bool, limit: int) -> str | None:
        """Takes the file as it is; tells what is wrong with it, if anything.

        :param hold: keep it in memory, for its segment is written to
        :param limit: of times the highest relative offset, of offsets the highest position
        """
        size = self._disk.size(self.path)
        if size is None:
            return "missing"
        if size % self._entry.size:
            return f"{size} bytes are no whole entries of {self._entry.size}"
        if size > MOST:
            return f"{size} bytes are too many"
        data = self._disk.read(self.path, 0, size)
        rows = np.frombuffer(data, _ROWS[self._entry])
        keys, values = rows["key"].astype(np.int64), rows["value"].astype(np.int64)
        if len(rows) and (keys[0] < 0 or values[0] < 0 or values.max() > limit):
            return "an entry points outside the log"
        if (np.diff(keys) <= 0).any() or (np.diff(values) <= 0).any():
            return "its entries do not ascend"
        self._count = len(rows)
        self._held = bytearray(data) if hold else None
        self._saved = size
        return None
