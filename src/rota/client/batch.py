"""Records of one partition as columns, as they came from a broker."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rota.formats.batch import Columns
from rota.formats.batch.scalar import Body, read_headers
from rota.formats.buffer import Int64Array
from rota.model.topic import TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS: Headers = ()


class Batch:
    """Records in the order of their offsets, a row for each.

    ``batch[a:b]`` are some of them; that copies nothing. Columns are NumPy arrays, keys and values
    are lists of bytes, and :meth:`to_arrow` gives all of it without an object for each record.
    """

    __slots__ = ("_columns", "_first", "_stop", "next_epoch", "next_offset", "source")

    def __init__(
        self,
        source: TopicPartition,
        columns: Columns,
        rows: tuple[int, int],
        next_offset: int,
        next_epoch: int,
    ) -> None:
        self.source = source
        self._columns = columns
        self._first, self._stop = rows
        self.next_offset = next_offset
        """Where to read on: behind the last row, and what was left out after it."""
        self.next_epoch = next_epoch
        """The leader's epoch of what is before that offset, as a commit has it; -1: none."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.source.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.source.partition

    def __len__(self) -> int:
        return self._stop - self._first

    def __getitem__(self, rows: slice) -> Batch:
        begin, end, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows are taken one after the other, not by {step}")
        first, stop = self._first + begin, self._first + max(begin, end)
        if stop == self._stop:
            behind = self.next_offset, self.next_epoch
        else:  # nothing is known of what lies between two rows: read on behind the first
            row = max(stop - 1, 0)
            epoch = self._columns.batches.leader_epoch[self._columns.batch[row]]
            behind = int(self._columns.offset[row]) + (stop > 0), int(epoch)
        return Batch(self.source, self._columns, (first, stop), *behind)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.source}, next offset {self.next_offset}>"

    @property
    def offsets(self) -> Int64Array:
        """Ascending, with gaps where compaction or transactions left them."""
        return self._columns.offset[self._first : self._stop]

    @property
    def timestamps(self) -> Int64Array:
        """Milliseconds since 1970; -1: none."""
        return self._columns.timestamp[self._first : self._stop]

    @property
    def timestamp_types(self) -> npt.NDArray[np.int8]:
        """0: set by the producer, 1: by the broker."""
        return self._columns.batches.append_time[self._batch].astype(np.int8)

    @property
    def leader_epochs(self) -> Int64Array:
        """The epoch of the leader that took the record; -1: not known."""
        return self._columns.batches.leader_epoch[self._batch]

    def keys(self) -> list[bytes | None]:
        """The records' keys."""
        return self._bytes(self._columns.key_start, self._columns.key_size)

    def values(self) -> list[bytes | None]:
        """The records' values."""
        return self._bytes(self._columns.value_start, self._columns.value_size)

    def headers(self) -> list[Headers]:
        """The records' headers. What is no UTF-8 in a name is replaced by U+FFFD, as in Kafka."""
        if not self.has_headers:
            return [NO_HEADERS] * len(self)
        data = self._columns.buffer.data
        starts = self._columns.headers_start[self._first : self._stop].tolist()
        counts = self._columns.headers[self._first : self._stop].tolist()
        return [
            _headers(data, start, count) if count else NO_HEADERS
            for start, count in zip(starts, counts, strict=True)
        ]

    @property
    def has_headers(self) -> bool:
        """Some record has."""
        return bool(self._columns.headers[self._first : self._stop].any())

    def spans(self) -> list[tuple[int, bool, int]]:
        """Rows that follow each other and were written alike: how many, whether the broker set
        their timestamps, and the leader's epoch. One, as a rule.
        """
        if not len(self):
            return []
        rows = self._columns.batch[self._first : self._stop]
        batches = self._columns.batches
        between = slice(rows[0], rows[-1] + 1)
        by_broker, epoch = batches.append_time[between], batches.leader_epoch[between]
        changed = (by_broker[1:] != by_broker[:-1]) | (epoch[1:] != epoch[:-1])
        if not changed.any():
            return [(len(self), bool(by_broker[0]), int(epoch[0]))]
        firsts = np.append(0, np.flatnonzero(changed) + 1)
        counts = np.diff(np.searchsorted(rows, firsts + rows[0]), append=len(self))
        kinds, epochs = by_broker[firsts].tolist(), epoch[firsts].tolist()
        found = zip(counts.tolist(), kinds, epochs, strict=True)
        return [each for each in found if each[0]]

    @property
    def _batch(self) -> Int64Array:
        return self._columns.batch[self._first : self._stop]

    def _bytes(self, starts: Int64Array, sizes: Int64Array) -> list[bytes | None]:
        data = self._columns.buffer.data
        start, size = starts[self._first : self._stop], sizes[self._first : self._stop]
        if (size < 0).all():
            return [None] * len(self)
        pairs = zip(start.tolist(), (start + size).tolist(), strict=True)
        if (size < 0).any():
            return [data[a:b] if b >= a else None for a, b in pairs]
        return [data[a:b] for a, b in pairs]


def _headers(data: bytes, start: int, count: int) -> Headers:
    found = read_headers(Body(data, start), count)
    return tuple([(str(name, "utf-8", "replace"), value) for name, value in found])
