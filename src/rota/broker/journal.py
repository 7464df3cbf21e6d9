"""The journal, replayed: record batches as entries, with what of them counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np

from rota.errors import FormatError
from rota.formats import batch, journal
from rota.formats.buffer import BoolArray, Bytes, Int64Array
from rota.formats.journal import column
from rota.formats.journal.classic import GROUP
from rota.model.entry import Entry

PIECE = 4 << 20
"""So many bytes of a log are read at once."""

Take: TypeAlias = Callable[[Entry], None]


class Source(Protocol):
    """A log, as far as its entries are wanted."""

    @property
    def start(self) -> int:
        """The first offset."""

    @property
    def end(self) -> int:
        """The next offset to be given."""

    def read(self, offset: int, max_bytes: int) -> Bytes:
        """Whole batches from the one that holds an offset, checked."""


@dataclass(slots=True)
class Replayed:
    """What was read, beside the entries themselves."""

    records: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    """Records of other kinds of groups, by Kafka's name of their type."""
    unread: list[str] = field(default_factory=list)
    """What could not be read, and where."""


def replay(log: Source, take: Take) -> Replayed:
    """Gives all entries of a log, oldest first, to ``take``.

    Left out are commits that are followed by another of the same partition, for they change
    nothing; and what a transaction wrote that was aborted, or has no end: nobody will end it.

    :raises Refused: a batch is damaged
    :raises DiskError: the log cannot be read
    """
    reader = _Reader(take)
    offset, end = log.start, log.end
    while offset < end:
        data = log.read(offset, PIECE)
        last = _last(data)
        if last is None:
            break
        reader.read(data)
        offset = last + 1
    return reader.told


def _last(data: Bytes) -> int | None:
    """The last offset of the last batch."""
    found = batch.walk(data)
    if not len(found):
        return None
    return batch.read_header(data, int(found.positions[-1])).last_offset


class _Reader:
    """Reads a log piece by piece; transactions may be open from one to the next."""

    def __init__(self, take: Take) -> None:
        self.told = Replayed()
        self._take = take
        self._open: dict[int, list[Entry]] = {}
        """Entries of transactions without an end so far, by producer id."""

    def read(self, data: Bytes) -> None:
        columns = batch.decode(data, check=False)  # reading the log has checked it
        self.told.unread += [str(problem) for problem in columns.problems]
        self.told.records += len(columns.offset)
        entries = column.decode_batches(columns)
        kinds, counts = np.unique(entries.type, return_counts=True)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            if not 0 <= kind <= GROUP and kind != column.NO_TYPE:
                self.told.passed[journal.NAMES.get(kind, journal.UNKNOWN)] += count
        wanted: BoolArray = (entries.type >= 0) & (entries.type <= GROUP)
        wanted[entries.left] = True
        if self._open or columns.batches.transactional.any():
            self._by_batch(columns, wanted)
        else:
            wanted[_superseded(entries)] = False
            self._give(columns, np.flatnonzero(wanted), None)

    def _by_batch(self, columns: batch.Columns, wanted: BoolArray) -> None:
        """Batch after batch, as transactions begin and end."""
        batches = columns.batches
        bounds = np.searchsorted(columns.batch, np.arange(len(batches) + 1))
        for number, (start, end) in enumerate(pairwise(bounds.tolist())):
            producer = int(batches.producer_id[number])
            if batches.control[number]:
                held = self._open.pop(producer, [])
                if batches.marker[number] == batch.Marker.COMMIT:
                    for entry in held:
                        self._take(entry)
            else:
                owner = producer if batches.transactional[number] else None
                self._give(columns, start + np.flatnonzero(wanted[start:end]), owner)

    def _give(self, columns: batch.Columns, rows: Int64Array, producer: int | None) -> None:
        """Decodes rows, and hands them on, or holds them for their producer's transaction."""
        take = self._take
        if producer is not None and len(rows):
            take = self._open.setdefault(producer, []).append
        data = columns.buffer.data
        fields = (columns.key_start, columns.key_size, columns.value_start, columns.value_size)
        for row, key_at, key_size, value_at, value_size in zip(
            rows.tolist(), *(each[rows].tolist() for each in fields), strict=True
        ):
            key = data[key_at : key_at + max(key_size, 0)]
            value = None if value_size < 0 else data[value_at : value_at + value_size]
            try:
                take(journal.decode(key, value))
            except FormatError as error:
                self.told.unread.append(f"offset {columns.offset[row]}: {error}")


def _superseded(entries: column.Entries) -> Int64Array:
    """Rows of commits after which the next about the same partition is a commit too."""
    commits = entries.commits
    order = np.lexsort((commits.row, commits.partition, commits.topic, commits.group))
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for key in (commits.group, commits.topic, commits.partition):
        sorted_key = key[order]
        same &= sorted_key[1:] == sorted_key[:-1]
    is_commit = ~commits.tombstone[order]
    same &= is_commit[1:] & is_commit[:-1]
    return commits.row[order[:-1][same]]
