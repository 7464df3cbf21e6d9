"""Records of one partition as columns, as they came from a broker."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rota.formats.batch import Columns, record_header
from rota.formats.buffer import Buffer, Int64Array
from rota.model.topic import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS: Headers = ()
LEAST_ALIKE = 64
"""Pieces of one size from which on they are cut out faster together."""
MOST_ALIKE = 500
"""Pieces that are cut out at once; what is remembered of that takes 64 bytes for each."""


class Batch:
    """Records in the order of their offsets, a row for each.

    ``batch[a:b]`` are some of them; that copies nothing. Columns are NumPy arrays, keys and values
    are lists of bytes, and :meth:`to_arrow` gives all of it without an object for each record.
    Columns are views of the broker's answer, which stays in memory as long as one of its batches.
    """

    __slots__ = ("columns", "next_epoch", "next_offset", "rows", "source")

    def __init__(
        self,
        source: TopicPartition,
        columns: Columns,
        rows: slice,
        next_offset: int,
        next_epoch: int,
    ) -> None:
        self.source = source
        """The partition."""
        self.columns = columns
        self.rows = rows
        """Which rows of the columns; both its bounds are given."""
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
        length: int = self.rows.stop - self.rows.start
        return length

    def __getitem__(self, rows: slice) -> Batch:
        begin, end, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows are taken one after the other, not by {step}")
        first, stop = self.rows.start + begin, self.rows.start + max(begin, end)
        behind = self.next_offset, self.next_epoch
        if stop < self.rows.stop:  # what is left out between two rows is left to the second
            row = max(stop - 1, 0)
            epoch = self.columns.batches.leader_epoch[self.columns.batch[row]]
            behind = int(self.columns.offset[row]) + (stop > 0), int(epoch)
        return Batch(self.source, self.columns, slice(first, stop), *behind)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.source}, next offset {self.next_offset}>"

    @property
    def offsets(self) -> Int64Array:
        """Ascending, with gaps where compaction or transactions left them."""
        return self.columns.offset[self.rows]

    @property
    def timestamps(self) -> Int64Array:
        """Milliseconds since 1970; -1: none."""
        return self.columns.timestamp[self.rows]

    @property
    def timestamp_types(self) -> npt.NDArray[np.int32]:
        """0: set by the producer, 1: by the broker."""
        return self.columns.batches.append_time[self.columns.batch[self.rows]].astype(np.int32)

    @property
    def leader_epochs(self) -> Int64Array:
        """The epoch of the leader that took the record; -1: not known."""
        return self.columns.batches.leader_epoch[self.columns.batch[self.rows]]

    @property
    def key_pieces(self) -> Pieces:
        """The records' keys, still in the broker's answer."""
        columns, rows = self.columns, self.rows
        return Pieces(columns.buffer, columns.key_start[rows], columns.key_size[rows])

    @property
    def value_pieces(self) -> Pieces:
        """The records' values, still there."""
        columns, rows = self.columns, self.rows
        return Pieces(columns.buffer, columns.value_start[rows], columns.value_size[rows])

    def keys(self) -> list[bytes | None]:
        """The records' keys."""
        return self.key_pieces.cut(0, len(self))

    def values(self) -> list[bytes | None]:
        """The records' values."""
        return self.value_pieces.cut(0, len(self))

    def headers(self) -> Sequence[Headers]:
        """The records' headers. What is no UTF-8 in a name is replaced by U+FFFD, as in Kafka."""
        counts = self.columns.headers[self.rows]
        if not counts.any():
            return [NO_HEADERS] * len(self)
        buffer = self.columns.buffer
        found = record_header.read(buffer, self.columns.headers_start[self.rows], counts)
        names = cut(buffer, found.name_start, found.name_size)
        text = {name: str(name or b"", "utf-8", "replace") for name in set(names)}
        values = cut(buffer, found.value_start, found.value_size)
        pairs = list(zip(map(text.__getitem__, names), values, strict=True))
        behind = np.cumsum(counts)
        bounds = zip((behind - counts).tolist(), behind.tolist(), strict=True)
        return [tuple(pairs[a:b]) for a, b in bounds]

    @property
    def has_headers(self) -> bool:
        """Some record has."""
        return bool(self.columns.headers[self.rows].any())

    def spans(self) -> list[tuple[int, bool, int]]:
        """Rows that follow each other and were written alike: how many, whether the broker set
        their timestamps, and the leader's epoch. One, as a rule.
        """
        if not len(self):
            return []
        rows = self.columns.batch[self.rows]
        batches = self.columns.batches
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

    def to_arrow(self) -> pa.RecordBatch:
        """A ``pyarrow.RecordBatch`` with the columns of Spark's Kafka source: ``key``, ``value``,
        ``topic``, ``partition``, ``offset``, ``timestamp`` (microseconds, UTC; null if there is
        none), ``timestampType`` and ``headers`` (null if there are none).

        :raises InputError: pyarrow is not installed, or there are so many rows that Arrow cannot
            count the bytes of a column; take some of them
        :raises RecordError: a timestamp is too far off to be counted in microseconds
        """
        from rota.client.arrow import record_batch  # noqa: PLC0415 only who needs it has pyarrow

        return record_batch(self)


def cut(buffer: Buffer, start: Int64Array, size: Int64Array) -> list[bytes | None]:
    """Pieces of a buffer; None where a size is negative."""
    return Pieces(buffer, start, size).cut(0, len(size))


class Pieces:
    """Pieces of a buffer, None where a size is negative. They are cut out some at a time; how that
    is best done is found out once for all.
    """

    __slots__ = ("_bounds", "_buffer", "_runs")

    def __init__(self, buffer: Buffer, start: Int64Array, size: Int64Array) -> None:
        null = size < 0
        self._buffer = buffer
        self._runs = [] if null.any() else _runs(start, size)
        self._bounds: tuple[list[int], list[int]] | None = None
        """Where pieces begin and end; None: there are none, or they are in runs."""
        if not self._runs and not null.all():
            self._bounds = start.tolist(), (start + size).tolist()

    def cut(self, begin: int, behind: int) -> list[bytes | None]:
        """Those of the rows from one to before another."""
        found: list[bytes | None] = []
        if self._bounds is not None:
            data = self._buffer.data
            pairs = zip(*(each[begin:behind] for each in self._bounds), strict=True)
            found += [data[a:b] if a <= b else None for a, b in pairs]
        elif self._runs:
            for run in self._runs:
                if run.first < behind and begin < run.behind:
                    run.cut(self._buffer.view, begin, behind, found)
        else:
            found += [None] * (behind - begin)
        return found


class _Run(NamedTuple):
    """Pieces of one size, equally far apart."""

    first: int
    behind: int
    """Rows, from one to before the other."""
    start: int
    size: int
    between: int

    def cut(self, view: memoryview, begin: int, behind: int, found: list[bytes | None]) -> None:
        """Adds those from one row to before another."""
        first, stop, start, size, between = self
        stop = min(stop, behind)
        for row in range(max(first, begin), stop, MOST_ALIKE):
            layout = _layout(size, between, min(stop - row, MOST_ALIKE))
            found += layout.unpack_from(view, start + (row - first) * (size + between))


def _runs(start: Int64Array, size: Int64Array) -> list[_Run]:
    """Such runs if they are long, as those of records of one size are: to cut out their pieces
    together takes a quarter of the time. Else none.
    """
    step = np.diff(start)
    changed = size[1:] != size[:-1]
    changed[:-1] |= step[1:] != step[:-1]
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), len(start)]
    if len(bounds) > len(start) // LEAST_ALIKE:
        return []
    found = []
    for first, behind in pairwise(bounds):
        each = int(size[first])
        between = int(step[first]) - each if behind - first > 1 else 0
        if between < 0:
            return []
        found.append(_Run(first, behind, int(start[first]), each, between))
    return found


@functools.lru_cache(maxsize=64)
def _layout(size: int, between: int, count: int) -> Struct:
    """So many pieces of a size, with so much between them."""
    return Struct(f"{size}s" + f"{between}x{size}s" * (count - 1))
