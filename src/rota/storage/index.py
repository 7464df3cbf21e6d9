"""The sparse indexes beside a segment: where offsets are in the file, and when they were written.

``.index`` has 8 bytes an entry: the last offset of a batch, less the segment's base offset, and the
batch's position in the file. ``.timeindex`` has 12: the newest timestamp so far, and the offset of
the batch that has it. An entry is made for the first batch after every so many bytes, and a last
one of times when the segment is closed.
"""

from __future__ import annotations

import struct

INTERVAL = 4_096
"""``index.interval.bytes``: so much of the log is between two entries, at least."""
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


class Indexer:
    """Decides which batches of a segment get an entry."""

    def __init__(self, base_offset: int, interval: int = INTERVAL) -> None:
        self._base = base_offset
        self._interval = interval
        self._since = 0
        """Bytes since the last entry."""
        self._newest = -1
        self._newest_at = base_offset
        self._told = -1
        """The newest timestamp that has an entry."""

    def add(self, position: int, size: int, last_offset: int, newest: int) -> tuple[bytes, bytes]:
        """What a batch that is written at a position adds to the two indexes; mostly nothing."""
        if newest > self._newest:
            self._newest, self._newest_at = newest, last_offset
        of_offset = of_time = b""
        if self._since > self._interval:
            of_offset = OFFSET_ENTRY.pack(last_offset - self._base, position)
            of_time = self.last_time()
            self._since = 0
        self._since += size
        return of_offset, of_time

    def last_time(self) -> bytes:
        """An entry for the newest timestamp so far, if it has none."""
        if self._newest <= self._told:
            return b""
        self._told = self._newest
        return TIME_ENTRY.pack(self._newest, self._newest_at - self._base)
