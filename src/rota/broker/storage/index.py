"""The index files beside a segment: offset index, time index and transaction index.

``.index`` has 8 bytes an entry: the last offset of a batch, relative to the segment's base offset,
and the batch's position in the file. ``.timeindex`` has 12: the newest timestamp so far, and the
relative offset of the batch that has it. An entry is made for the first batch after every
``index.interval.bytes``, and a last time entry when the segment is closed. Both only save time:
they can be rebuilt from the log, and each entry is checked against it before it is used.

``.txnindex`` has 34 bytes an entry, one for each aborted transaction that ended in the segment:
version 0 in 16 bits, then in 64 bits each the producer's id, the transaction's first offset, its
last offset (that of the marker), and the last stable offset after it. Entries are in the order of
their markers.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from rota.broker.storage.disk import Disk
from rota.errors import DiskError

DEFAULT_INDEX_INTERVAL = 4_096  # ``index.interval.bytes``: the least between two entries
MAX_INDEX_BYTES = 10 << 20  # ``segment.index.bytes``: a full index file ends a segment
OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")

_ENTRY_DTYPES = {
    OFFSET_ENTRY: np.dtype([("key", ">i4"), ("value", ">i4")]),
    TIME_ENTRY: np.dtype([("key", ">i8"), ("value", ">i4")]),
}


class IndexBuilder:
    def __init__(self, base_offset: int, interval: int = DEFAULT_INDEX_INTERVAL) -> None:
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self._base = base_offset
        self._interval = interval
        self._bytes_since_last_entry = 0
        self._last_indexed_timestamp = -1

    def add_batch(
        self, position: int, size: int, last_offset: int, timestamp: int
    ) -> tuple[bytes, bytes]:
        """Returns a batch's entries of both indexes; mostly both are empty."""
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = timestamp, last_offset
        offset_entry = time_entry = b""
        if self._bytes_since_last_entry > self._interval:
            offset_entry = OFFSET_ENTRY.pack(last_offset - self._base, position)
            time_entry = self.last_time_entry()
            self._bytes_since_last_entry = 0
        self._bytes_since_last_entry += size
        return offset_entry, time_entry

    def last_time_entry(self) -> bytes:
        """Returns a time entry for the max timestamp so far; empty if it has one."""
        if self.max_timestamp <= self._last_indexed_timestamp:
            return b""
        self._last_indexed_timestamp = self.max_timestamp
        return TIME_ENTRY.pack(self.max_timestamp, self.offset_of_max_timestamp - self._base)

    def resume(self, timestamp: int, offset: int, bytes_since: int) -> None:
        """Continues from the last entries; ``bytes_since``: since the last offset entry."""
        self.max_timestamp = self._last_indexed_timestamp = timestamp
        self.offset_of_max_timestamp = offset
        self._bytes_since_last_entry = bytes_since


NO_FILE = -1


class IndexFile:
    """An index file: in memory while its segment is active, else read entry by entry."""

    def __init__(self, disk: Disk, path: str, entry: struct.Struct) -> None:
        self.path = path
        self._disk = disk
        self._entry = entry
        self._in_memory: bytearray | None = None
        #: Bytes that are in the file; None if unknown.
        self._saved_bytes: int | None = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> tuple[int, int]:
        size = self._entry.size
        if row < 0:
            row += self._count
        if self._in_memory is not None:
            key, value = self._entry.unpack_from(self._in_memory, row * size)
        else:
            data = self._disk.read(self.path, row * size, size)
            if len(data) < size:  # the file was cut: an entry that the log does not confirm
                return 0, -1
            key, value = self._entry.unpack(data)
        return key, value

    def has_room(self, max_bytes: int) -> bool:
        """Whether two more entries fit into a file of at most ``max_bytes`` bytes."""
        return (self._count + 2) * self._entry.size <= min(max_bytes, MAX_INDEX_BYTES)

    def find_at_or_below(self, key: int) -> int:
        """Returns the row of the last entry whose key is at most this one, or -1."""
        return bisect_right(range(self._count), key, key=lambda row: self[row][0]) - 1

    def clear(self) -> None:
        self._in_memory = bytearray()
        self._count = 0
        self._saved_bytes = None

    def create(self) -> None:
        """Starts an index without entries for a new segment; :meth:`save` makes the file."""
        self._disk.remove(self.path)
        self._in_memory = bytearray()
        self._saved_bytes = NO_FILE

    def add(self, entry: bytes) -> None:
        if entry and self._in_memory is not None:
            self._in_memory += entry
            self._count += 1

    def save(self) -> None:
        entries = self._in_memory
        if entries is None or self._saved_bytes == len(entries):
            return
        if self._saved_bytes is None:
            with suppress(DiskError):
                self._disk.remove(f"{self.path}.tmp")
            self._disk.replace(self.path, bytes(entries))
        else:
            saved, self._saved_bytes = max(self._saved_bytes, 0), None
            self._disk.append(self.path, bytes(entries[saved:]))
        self._saved_bytes = len(entries)

    def release(self) -> None:
        self._in_memory = None

    def load(self, *, hold: bool, limit: int) -> str | None:
        """Reads the file, returns its problem; ``limit``: highest relative offset or position."""
        size = self._disk.size(self.path)
        if size is None:
            return "missing"
        if size % self._entry.size:
            return f"{size} bytes are not a multiple of {self._entry.size}"
        if size > MAX_INDEX_BYTES:
            return f"{size} bytes are too many"
        data = self._disk.read(self.path, 0, size)
        rows = np.frombuffer(data, _ENTRY_DTYPES[self._entry])
        keys, values = rows["key"].astype(np.int64), rows["value"].astype(np.int64)
        if len(rows) and (keys[0] < 0 or values[0] < 0 or values.max() > limit):
            return "an entry points outside the log"
        if (np.diff(keys) <= 0).any() or (np.diff(values) <= 0).any():
            return "its entries do not ascend"
        self._count = len(rows)
        self._in_memory = bytearray(data) if hold else None
        self._saved_bytes = size
        return None


TRANSACTION_ENTRY = struct.Struct(">hqqqq")
TRANSACTION_INDEX_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # the last stable offset after it

    def pack(self) -> bytes:
        return TRANSACTION_ENTRY.pack(TRANSACTION_INDEX_VERSION, *self)


def select_overlapping(
    entries: Iterable[AbortedTransaction], first: int, upto: int
) -> list[AbortedTransaction]:
    return [entry for entry in entries if entry.last_offset >= first and entry.first_offset < upto]
