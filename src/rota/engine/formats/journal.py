"""The records of ``__consumer_offsets``: decoded singly or as columns, encoded as Kafka does.

A key starts with the record's type, a value with its version; a null value is a tombstone. The
layouts are in journal_classic.py (offsets and classic groups, all versions) and journal_modern.py
(consumer, share and streams groups). A type newer than those becomes an `UnparsedEntry`: like
Kafka's own coordinator, a reader skips unknown types, and can count them. Bytes that do not follow
their type's format exactly, or have a newer version, raise a FormatError. Tagged fields with
unknown tags are skipped, and so not written back.

Nearly every record is an offset. `decode_entries` reads all offsets at once, in all versions,
column by column, and the type and group of every other record. An offset that it cannot read,
because its bytes do not follow the format or have tagged fields that no broker writes today, is
left to `decode_record`, which reads it or names the error. Both return the same entries.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rota.engine.formats import journal_classic, record_batch_columns
from rota.engine.formats.buffer import (
    BoolArray,
    ByteBuffer,
    Int64Array,
    find_distinct_names,
    read_unsigned_varints,
)
from rota.engine.formats.journal_classic import (
    EXPIRING_OFFSET_VERSION,
    FLEXIBLE_VERSION,
    GROUP_TYPE,
    HIGHEST_VALUE_VERSION,
    LEADER_EPOCH_VERSION,
    LEGACY_OFFSET_TYPE,
    OFFSET_TYPE,
    RECORD_NAMES,
    TOPIC_ID_PREFIX,
)
from rota.engine.formats.primitive import UUID_SIZE
from rota.engine.model.journal_entry import (
    NO_TIMESTAMP,
    GroupMetadataEntry,
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)
from rota.engine.model.text import MAX_STRING_BYTES
from rota.engine.model.topic import NO_LEADER_EPOCH, IntArray
from rota.errors import FormatError

UNKNOWN_RECORD_NAME = "unknown"
_OFFSET_TYPES = frozenset((LEGACY_OFFSET_TYPE, OFFSET_TYPE))
_TYPE_FIELD = struct.Struct(">h")


def decode_record(key: bytes, value: bytes | None) -> JournalEntry:
    """Decodes a record; raises a FormatError that names the field and the byte."""
    try:
        (number,) = _TYPE_FIELD.unpack_from(key)
    except struct.error:
        raise FormatError(f"record key: type at byte 0: 2 bytes needed, {len(key)} left") from None
    if number in _OFFSET_TYPES:
        return journal_classic.decode_offset(key, value)
    if number == GROUP_TYPE:
        return journal_classic.decode_group(key, value)
    if number in RECORD_NAMES:
        from rota.engine.formats import journal_modern  # noqa: PLC0415, not used by brokers

        return journal_modern.decode_modern_record(number, key, value)
    return UnparsedEntry(type=number, key=key, value=value)


def encode_entry(entry: JournalEntry) -> tuple[bytes, bytes | None]:
    """Returns the key and the value that Kafka 4.3 writes for an entry."""
    match entry:
        case OffsetCommitEntry():
            value = journal_classic.encode_offset_value(entry)
            return journal_classic.encode_offset_key(entry), value
        case GroupMetadataEntry():
            value = journal_classic.encode_group_value(entry)
            return journal_classic.encode_group_key(entry), value
        case OffsetCommitTombstone():
            return journal_classic.encode_offset_key(entry), None
        case GroupMetadataTombstone():
            return journal_classic.encode_group_key(entry), None
        case UnparsedEntry():
            return entry.key, entry.value
        case _:
            from rota.engine.formats import journal_modern  # noqa: PLC0415

            return journal_modern.encode_modern_entry(entry)


NO_TYPE = -(1 << 16)  # the type of a record whose key is too short
NO_GROUP = NO_TOPIC = NULL = -1
SMALLEST_OFFSET_VALUE = (20, 28, 20, 24, 24)  # the least bytes of an offset's value, by version

#: The values of fields that a version or a tombstone does not have.
DEFAULT_COLUMN_VALUES = {
    "version": NULL,
    "offset": NULL,
    "leader_epoch": NO_LEADER_EPOCH,
    "metadata_start": 0,
    "metadata_size": 0,
    "commit_timestamp": NO_TIMESTAMP,
    "expire_timestamp": NO_TIMESTAMP,
    "topic_id_start": NULL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitColumns:
    """Decoded offsets, one row each; starts are positions in the buffer's data."""

    row: Int64Array
    group: IntArray
    topic: IntArray
    partition: Int64Array
    tombstone: BoolArray  # a tombstone has only group, topic and partition
    version: Int64Array
    offset: Int64Array
    leader_epoch: Int64Array
    metadata_start: Int64Array
    metadata_size: Int64Array
    commit_timestamp: Int64Array
    expire_timestamp: Int64Array
    topic_id_start: Int64Array  # -1: none

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryColumns:
    buffer: ByteBuffer
    type: Int64Array
    group: IntArray  # a position in ``groups``; -1: no group, or none that can be read
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    commits: OffsetCommitColumns
    undecoded_rows: Int64Array  # rows that must be decoded one by one with :func:`decode_record`

    def __len__(self) -> int:
        return len(self.type)


class Slices(NamedTuple):
    """Where the keys, or the values, of records are in a buffer."""

    start: Int64Array
    size: Int64Array  # below zero: null

    @property
    def end(self) -> Int64Array:
        return self.start + self.size

    def select(self, rows: Int64Array | BoolArray) -> Slices:
        return Slices(self.start[rows], self.size[rows])


def decode_batch_entries(columns: record_batch_columns.RecordColumns) -> EntryColumns:
    """Decodes the records of record batches; those of control batches are no entries."""
    control = columns.batches.control[columns.batch]
    keys = Slices(columns.key_start, np.where(control, NULL, columns.key_size))
    found = decode_entries(columns.buffer, keys, Slices(columns.value_start, columns.value_size))
    rows = found.undecoded_rows
    return replace(found, undecoded_rows=rows[~control[rows]])


def decode_entries(buffer: ByteBuffer, keys: Slices, values: Slices) -> EntryColumns:
    kind = np.full(len(keys.start), NO_TYPE)
    typed = np.flatnonzero(keys.size >= 2)
    kind[typed] = buffer.int16[keys.start[typed]]
    grouped = np.flatnonzero((kind >= 0) & (kind <= max(RECORD_NAMES)) & (keys.size >= 4))
    groups, group = _read_groups(buffer, keys, grouped)
    # unknown types are not checked; the others need their group
    left = (kind == NO_TYPE) | (np.isin(kind, list(RECORD_NAMES)) & (group == NO_GROUP))
    rows = np.flatnonzero((kind <= OFFSET_TYPE) & (kind >= LEGACY_OFFSET_TYPE) & ~left)
    topics, topic, partition = _read_topics(buffer, keys.select(rows))
    tombstone = values.size[rows] < 0
    found = _OffsetValues(buffer, values.select(rows))
    good = (topic >= 0) & (tombstone | found.good)
    left[rows[~good]] = True
    commits = OffsetCommitColumns(
        row=rows,
        group=group[rows],
        topic=topic,
        partition=partition,
        tombstone=tombstone,
        **found.columns,
    )
    return EntryColumns(
        buffer=buffer,
        type=kind,
        group=group,
        groups=groups,
        topics=topics,
        commits=commits if good.all() else record_batch_columns.select_rows(commits, good),
        undecoded_rows=np.flatnonzero(left),
    )


def _read_groups(
    buffer: ByteBuffer, keys: Slices, rows: Int64Array
) -> tuple[tuple[str, ...], IntArray]:
    """Returns the distinct groups, and the group of each record (-1: none)."""
    start = keys.start[rows] + 2
    size = buffer.int16[start].astype(np.int64) + 2
    fits = (size >= 2) & (size + 2 <= keys.size[rows])
    if not fits.all():
        rows, start, size = rows[fits], start[fits], size[fits]
    names, found = find_distinct_names(buffer, start, size)
    group = np.full(len(keys.start), NO_GROUP, dtype=np.int32)
    group[rows] = found
    return names, group


def _read_topics(buffer: ByteBuffer, keys: Slices) -> tuple[tuple[str, ...], IntArray, Int64Array]:
    """Returns the distinct topics, and topic (-1: malformed key) and partition of each offset."""
    end = keys.end
    start = keys.start + 4 + buffer.int16[keys.start + 2]
    fits = start + 6 <= end
    size = buffer.int16[np.where(fits, start, 0)].astype(np.int64) + 2
    fits &= (size >= 2) & (start + size + 4 == end)
    partition = np.where(fits, buffer.int32[np.maximum(end - 4, 0)], 0).astype(np.int64)
    topic = np.full(len(end), NO_TOPIC, dtype=np.int32)
    names, topic[fits] = find_distinct_names(buffer, start[fits], size[fits])
    return names, topic, partition


class _OffsetValues:
    """The values of offsets as columns of :class:`OffsetCommitColumns`, read by version."""

    def __init__(self, buffer: ByteBuffer, values: Slices) -> None:
        self.buffer = buffer
        self.good: BoolArray = np.zeros(len(values.start), dtype=np.bool_)
        self.columns = {
            name: np.full(len(values.start), default)
            for name, default in DEFAULT_COLUMN_VALUES.items()
        }
        versioned = np.flatnonzero(values.size >= 2)
        version = buffer.int16[values.start[versioned]]
        for number in range(HIGHEST_VALUE_VERSION + 1):
            rows = versioned[version == number]
            rows = rows[values.size[rows] >= SMALLEST_OFFSET_VALUE[number]]
            if len(rows):
                self._read(number, rows, values.start[rows], values.end[rows])

    def _read(self, version: int, rows: Int64Array, start: Int64Array, end: Int64Array) -> None:
        buffer = self.buffer
        epochs = version >= LEADER_EPOCH_VERSION
        at = start + (14 if epochs else 10)
        if version >= FLEXIBLE_VERSION:
            size, at = read_unsigned_varints(buffer, at)
            size -= 1
        else:
            size = buffer.int16[at].astype(np.int64)
            at += 2
        good = (size >= 0) & (size <= MAX_STRING_BYTES)
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
        if version == EXPIRING_OFFSET_VERSION:
            found["expire_timestamp"] = buffer.int64[np.minimum(after, end)]
            after += 8
        if version >= FLEXIBLE_VERSION:
            found["topic_id_start"], after = _find_topic_ids(buffer, after, end)
        good &= after == end
        good[good] = _are_utf8(buffer.data, at[good], size[good])
        for name, column in found.items():
            self.columns[name][rows] = column
        self.good[rows] = good


def _find_topic_ids(
    buffer: ByteBuffer, at: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Returns where the id is, and where the tagged fields end; -1 for those not read here."""
    bare = (at + 1 == end) & (buffer.uint8[np.minimum(at, end)] == 0)
    id_at = at + len(TOPIC_ID_PREFIX)
    with_id = np.flatnonzero(id_at + UUID_SIZE == end)
    for place, byte in enumerate(TOPIC_ID_PREFIX):
        with_id = with_id[buffer.uint8[at[with_id] + place] == byte]
    start = np.full(len(at), NULL)
    start[with_id] = id_at[with_id]
    zero = (buffer.int64[id_at[with_id]] == 0) & (buffer.int64[id_at[with_id] + 8] == 0)
    start[with_id[zero]] = NULL
    after = np.where(bare, end, NULL)
    after[with_id] = end[with_id]
    return start, after


def _are_utf8(data: bytes, starts: Int64Array, sizes: Int64Array) -> BoolArray:
    """Returns which metadata is UTF-8; most offsets have none."""
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
