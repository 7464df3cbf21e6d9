"""Journal records as columns: all offsets of a piece of ``__consumer_offsets`` at once.

Nearly every record of a journal is an offset. They are read here in all versions, column by column;
of every other record its type and its group. An offset that is not read here, because its bytes do
not follow the format or have tagged fields that nobody writes today, is left to
:func:`rota.formats.journal.decode`: it reads it, or says what is wrong. What both read is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rota.formats import batch
from rota.formats.batch.varint import unsigned_varints
from rota.formats.buffer import BoolArray, Buffer, Int64Array
from rota.formats.distinct import distinct_names
from rota.formats.journal import NAMES, READ
from rota.formats.journal.classic import EXPIRING, HIGHEST, LEGACY_OFFSET, OFFSET, TOPIC_ID
from rota.formats.primitive import UUID_SIZE
from rota.model.entry import NO_TIMESTAMP, OffsetCommitted, OffsetForgotten
from rota.model.offset import NO_EPOCH
from rota.model.text import LONGEST_STRING
from rota.model.topic import IntArray

NO_TYPE = -(1 << 16)
"""The type of a record without one: no 16 bits are this."""
NO_GROUP = NO_TOPIC = NULL = -1
WITH_EPOCH, FLEXIBLE = 3, 4
"""The versions from which on the leader's epoch is there, and lengths are compact."""
SMALLEST = (20, 28, 20, 24, 24)
"""The least bytes of each version."""
ONE_ID = (1, TOPIC_ID, UUID_SIZE)
"""What stands before a topic's id: one tagged field, its tag, its size."""
DEFAULTS = MappingProxyType(
    {
        "version": NULL,
        "offset": NULL,
        "leader_epoch": NO_EPOCH,
        "metadata_start": 0,
        "metadata_size": 0,
        "commit_timestamp": NO_TIMESTAMP,
        "expire_timestamp": NO_TIMESTAMP,
        "topic_id_start": NULL,
    }
)
"""What stands where a version, or a tombstone, has no such field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """Offsets that were read, a row for each; starts are positions in the buffer's data."""

    row: Int64Array
    """The record's own row."""
    group: IntArray
    topic: IntArray
    partition: Int64Array
    tombstone: BoolArray
    """The offset is gone; nothing but group, topic and partition is known."""
    version: Int64Array
    offset: Int64Array
    leader_epoch: Int64Array
    metadata_start: Int64Array
    metadata_size: Int64Array
    commit_timestamp: Int64Array
    expire_timestamp: Int64Array
    topic_id_start: Int64Array
    """-1: it has none."""

    def __len__(self) -> int:
        return len(self.row)

    def only(self, rows: BoolArray) -> Commits:
        """Some of them."""
        return Commits(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """What records are; a row for each."""

    buffer: Buffer
    type: Int64Array
    group: IntArray
    """A position in ``groups``; -1: it has none, or none that can be read."""
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    commits: Commits
    left: Int64Array
    """Rows to be decoded one by one, because they do not look as they should."""

    def __len__(self) -> int:
        return len(self.type)


class Slices(NamedTuple):
    """Where the keys, or the values, of records are in a buffer."""

    start: Int64Array
    size: Int64Array
    """Below zero: null."""

    @property
    def end(self) -> Int64Array:
        """Where each ends."""
        return self.start + self.size

    def only(self, rows: Int64Array | BoolArray) -> Slices:
        """Some of them."""
        return Slices(self.start[rows], self.size[rows])


def decode_batches(columns: batch.Columns) -> Entries:
    """The entries of record batches.

    Rows of control batches are none: they have no type, and are not left either.
    """
    control = columns.batches.control[columns.batch]
    keys = Slices(columns.key_start, np.where(control, NULL, columns.key_size))
    found = decode(columns.buffer, keys, Slices(columns.value_start, columns.value_size))
    return replace(found, left=found.left[~control[found.left]]) if control.any() else found


def decode(buffer: Buffer, keys: Slices, values: Slices) -> Entries:
    """The entries of records of the journal."""
    kind = np.full(len(keys.start), NO_TYPE)
    typed = np.flatnonzero(keys.size >= 2)
    kind[typed] = buffer.int16[keys.start[typed]]
    grouped = np.flatnonzero((kind >= 0) & (kind <= max(NAMES)) & (keys.size >= 4))
    groups, group = _groups(buffer, keys, grouped)
    # a foreign record is none of ours to judge; the others need their group
    left = (kind == NO_TYPE) | (np.isin(kind, READ) & (group == NO_GROUP))
    rows = np.flatnonzero((kind <= OFFSET) & (kind >= LEGACY_OFFSET) & ~left)
    topics, topic, partition = _topics(buffer, keys.only(rows))
    tombstone = values.size[rows] < 0
    found = _Values(buffer, values.only(rows))
    good = (topic >= 0) & (tombstone | found.good)
    left[rows[~good]] = True
    commits = Commits(
        row=rows,
        group=group[rows],
        topic=topic,
        partition=partition,
        tombstone=tombstone,
        **found.columns,
    )
    return Entries(
        buffer=buffer,
        type=kind,
        group=group,
        groups=groups,
        topics=topics,
        commits=commits if good.all() else commits.only(good),
        left=np.flatnonzero(left),
    )


def _groups(buffer: Buffer, keys: Slices, rows: Int64Array) -> tuple[tuple[str, ...], IntArray]:
    """The names of groups, and each record's; of some rows, that have room for its length."""
    start = keys.start[rows] + 2
    size = buffer.int16[start].astype(np.int64) + 2
    fits = (size >= 2) & (size + 2 <= keys.size[rows])
    if not fits.all():
        rows, start, size = rows[fits], start[fits], size[fits]
    names, found = distinct_names(buffer, start, size)
    group = np.full(len(keys.start), NO_GROUP, dtype=np.int32)
    group[rows] = found
    return names, group


def _topics(buffer: Buffer, keys: Slices) -> tuple[tuple[str, ...], IntArray, Int64Array]:
    """The names of topics, each offset's (-1: its key is not as it should be), its partition."""
    end = keys.end
    start = keys.start + 4 + buffer.int16[keys.start + 2]
    fits = start + 6 <= end
    size = buffer.int16[np.where(fits, start, 0)].astype(np.int64) + 2
    fits &= (size >= 2) & (start + size + 4 == end)
    partition = np.where(fits, buffer.int32[np.maximum(end - 4, 0)], 0).astype(np.int64)
    topic = np.full(len(end), NO_TOPIC, dtype=np.int32)
    names, topic[fits] = distinct_names(buffer, start[fits], size[fits])
    return names, topic, partition


class _Values:
    """The values of offsets, by version: columns as in :class:`Commits`."""

    def __init__(self, buffer: Buffer, values: Slices) -> None:
        self.buffer = buffer
        self.good: BoolArray = np.zeros(len(values.start), dtype=np.bool_)
        self.columns = {
            name: np.full(len(values.start), default) for name, default in DEFAULTS.items()
        }
        versioned = np.flatnonzero(values.size >= 2)
        version = buffer.int16[values.start[versioned]]
        for number in range(HIGHEST + 1):
            rows = versioned[version == number]
            rows = rows[values.size[rows] >= SMALLEST[number]]
            if len(rows):
                self._read(number, rows, values.start[rows], values.end[rows])

    def _read(self, version: int, rows: Int64Array, start: Int64Array, end: Int64Array) -> None:
        buffer = self.buffer
        epochs = version >= WITH_EPOCH
        at = start + (14 if epochs else 10)
        if version >= FLEXIBLE:
            size, at = unsigned_varints(buffer, at)
            size -= 1
        else:
            size = buffer.int16[at].astype(np.int64)
            at += 2
        good = (size >= 0) & (size <= LONGEST_STRING)
        after = np.minimum(at + np.where(good, size, 0), end)
        found = {
            "version": np.full(len(rows), version),
            "offset": buffer.int64[start + 2],
            "metadata_start": at,
            "metadata_size": size,
            "commit_timestamp": buffer.int64[after],
        }
        after += 8
        if epochs:
            found["leader_epoch"] = buffer.int32[start + 10]
        if version == EXPIRING:
            found["expire_timestamp"] = buffer.int64[np.minimum(after, end)]
            after += 8
        if version >= FLEXIBLE:
            found["topic_id_start"], after = _topic_ids(buffer, after, end)
        good &= after == end
        good[good] = _are_text(buffer.data, at[good], size[good])
        for name, column in found.items():
            self.columns[name][rows] = column
        self.good[rows] = good


def _topic_ids(buffer: Buffer, at: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Where the id is, and where the tagged fields end; -1 for those not read here."""
    bare = (at + 1 == end) & (buffer.uint8[np.minimum(at, end)] == 0)
    id_at = at + len(ONE_ID)
    with_id = np.flatnonzero(id_at + UUID_SIZE == end)
    for place, byte in enumerate(ONE_ID):
        with_id = with_id[buffer.uint8[at[with_id] + place] == byte]
    start = np.full(len(at), NULL)
    start[with_id] = id_at[with_id]
    zero = (buffer.int64[id_at[with_id]] == 0) & (buffer.int64[id_at[with_id] + 8] == 0)
    start[with_id[zero]] = NULL
    after = np.where(bare, end, NULL)
    after[with_id] = end[with_id]
    return start, after


def _are_text(data: bytes, starts: Int64Array, sizes: Int64Array) -> BoolArray:
    """Is it UTF-8? Most offsets have no metadata at all."""
    good = np.ones(len(starts), dtype=np.bool_)
    some = np.flatnonzero(sizes)
    for row, start, size in zip(
        some.tolist(), starts[some].tolist(), sizes[some].tolist(), strict=True
    ):
        text = data[start : start + size]
        if not text.isascii():
            try:
                text.decode()
            except UnicodeDecodeError:
                good[row] = False
    return good


def commit(entries: Entries, at: int) -> OffsetCommitted | OffsetForgotten:
    """A row of ``entries.commits`` as the entry that it is."""
    commits, data = entries.commits, entries.buffer.data
    group = entries.groups[int(commits.group[at])]
    topic = entries.topics[int(commits.topic[at])]
    partition = int(commits.partition[at])
    if commits.tombstone[at]:
        return OffsetForgotten(group=group, topic=topic, partition=partition)
    metadata, topic_id = int(commits.metadata_start[at]), int(commits.topic_id_start[at])
    return OffsetCommitted(
        group=group,
        topic=topic,
        partition=partition,
        offset=int(commits.offset[at]),
        leader_epoch=int(commits.leader_epoch[at]),
        metadata=data[metadata : metadata + int(commits.metadata_size[at])].decode(),
        commit_timestamp=int(commits.commit_timestamp[at]),
        expire_timestamp=int(commits.expire_timestamp[at]),
        topic_id=None if topic_id < 0 else data[topic_id : topic_id + UUID_SIZE],
    )
