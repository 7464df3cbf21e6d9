"""All records of all batches of a buffer, as columns.

A record starts where the one before it ends, so those of one batch are found one after the other;
but the k-th records of all batches can be found together. Once all starts are known, each field is
read for all records at once. A batch whose records do not follow the format is left to the reader
of single ones, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from rota.formats.batch.codec import MOST
from rota.formats.batch.content import MOST_IN_ALL, Content
from rota.formats.batch.field import Fields, read_fields
from rota.formats.batch.header import (
    APPEND_TIME_BIT,
    CODEC_BITS,
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
)
from rota.formats.batch.lockstep import find_records
from rota.formats.batch.problem import Problem
from rota.formats.batch.record import Record
from rota.formats.batch.scalar import Body, read_headers
from rota.formats.buffer import BoolArray, Buffer, Bytes, Int64Array

NO_MARKER = -1
MARKER_KEY = 4
"""Bytes of a control record's key that are known: version and type."""
PER_RECORD = (
    *("start", "end", "offset", "timestamp", "key_start", "key_size", "value_start"),
    *("value_size", "headers_start", "headers", "batch"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The batches that were read, a row for each."""

    position: Int64Array
    """In the file."""
    size: Int64Array
    base_offset: Int64Array
    last_offset: Int64Array
    """The last that is the batch's, whether its record is still there or not."""
    count: Int64Array
    leader_epoch: Int64Array
    codec: Int64Array
    append_time: BoolArray
    max_timestamp: Int64Array
    transactional: BoolArray
    control: BoolArray
    marker: Int64Array
    """The type in a control batch's key, a ``Marker`` where it ends a transaction; else -1."""
    producer_id: Int64Array
    producer_epoch: Int64Array
    base_sequence: Int64Array

    def __len__(self) -> int:
        return len(self.position)

    def first(self, count: int) -> Batches:
        """The first of them."""
        return Batches(**{each.name: getattr(self, each.name)[:count] for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The records that were read, a row for each; starts are positions in the buffer's data."""

    buffer: Buffer
    """The input, then what was decompressed."""
    start: Int64Array
    """Where the record begins, behind its length."""
    end: Int64Array
    offset: Int64Array
    timestamp: Int64Array
    key_start: Int64Array
    key_size: Int64Array
    """-1: null."""
    value_start: Int64Array
    value_size: Int64Array
    """-1: null."""
    headers_start: Int64Array
    headers: Int64Array
    """How many."""
    batch: Int64Array
    """Its batch's row."""
    batches: Batches
    problems: tuple[Problem, ...]
    """What was not read, in the order of the file."""
    upto: int
    """How far the file was read: to the input's end, or that of the portion that was asked for."""

    def __len__(self) -> int:
        return len(self.offset)

    def only(self, rows: BoolArray) -> Columns:
        """Some of the records."""
        return replace(self, **{name: getattr(self, name)[rows] for name in PER_RECORD})

    def of_first(self, count: int) -> Columns:
        """The first batches, with their records."""
        rows = slice(0, int(self.batches.count[:count].sum()))
        kept = {name: getattr(self, name)[rows] for name in PER_RECORD}
        return replace(self, batches=self.batches.first(count), **kept)

    def key(self, row: int) -> bytes | None:
        """A row's key."""
        return self._bytes(self.key_start, self.key_size, row)

    def value(self, row: int) -> bytes | None:
        """A row's value."""
        return self._bytes(self.value_start, self.value_size, row)

    def _bytes(self, starts: Int64Array, sizes: Int64Array, row: int) -> bytes | None:
        start, size = int(starts[row]), int(sizes[row])
        return None if size < 0 else self.buffer.data[start : start + size]


def records(columns: Columns, first: int = 0, behind: int | None = None) -> Iterator[Record]:
    """Every record as a value, or those from one row to before another."""
    data = columns.buffer.data
    names = ("offset", "timestamp", "key_start", "key_size", "value_start", "value_size")
    wanted = [getattr(columns, name) for name in (*names, "headers_start", "headers")]
    lists = [each[first:behind].tolist() for each in wanted]
    for offset, at, key, key_size, value, value_size, start, count in zip(*lists, strict=True):
        yield Record(
            offset,
            at,
            None if key_size < 0 else data[key : key + key_size],
            None if value_size < 0 else data[value : value + value_size],
            read_headers(Body(data, start), count) if count else (),
        )


def decode(  # noqa: PLR0913, limits of several kinds
    data: Bytes,
    *,
    at: int = 0,
    check: bool = True,
    most: int = MOST,
    most_in_all: int = MOST_IN_ALL,
    portion: int | None = None,
    may_end_cut: bool = False,
) -> Columns:
    """The records of all batches of a buffer that begins with one.

    :param at: where the buffer begins in its file
    :param check: compare checksums
    :param most: bytes that a batch may have, decompressed
    :param most_in_all: the same for all batches together
    :param portion: read no more batches than have so many bytes together, decompressed, but one at
        least; ``columns.upto`` says where to go on
    :param may_end_cut: as in :func:`rota.formats.batch.walk.walk`
    """
    content = Content(memoryview(data), portion, may_end_cut=may_end_cut)
    if check:
        content.check()
    content.open(most, most_in_all)
    buffer = content.buffer
    starts, ends, batch, bad = find_records(buffer, content.start, content.limit, content.count)
    read = read_fields(buffer, starts, ends)
    bad[batch[read.bad]] = True
    if bad.any():
        keep = ~bad[batch]
        batch = (np.cumsum(~bad) - 1)[batch[keep]]
        read = read.only(keep)
        starts, ends = starts[keep], ends[keep]
        content.refuse_records(bad)
    return _columns(content, read, batch, (starts, ends), at)


def _columns(
    content: Content,
    read: Fields,
    batch: Int64Array,
    span: tuple[Int64Array, Int64Array],
    at: int,
) -> Columns:
    heads = content.heads
    attributes = heads["attributes"].astype(np.int64)
    append_time = (attributes & APPEND_TIME_BIT) != 0
    base_offset = heads["base_offset"].astype(np.int64)
    newest = heads["max_timestamp"].astype(np.int64)
    timestamp = np.repeat(heads["base_timestamp"].astype(np.int64), content.count)
    timestamp += read.timestamp_delta
    if append_time.any():
        timestamp = np.where(append_time[batch], newest[batch], timestamp)
    control = (attributes & CONTROL_BIT) != 0
    batches = Batches(
        position=content.position + at,
        size=content.size,
        base_offset=base_offset,
        last_offset=base_offset + heads["last_offset_delta"],
        count=content.count,
        leader_epoch=heads["leader_epoch"].astype(np.int64),
        codec=attributes & CODEC_BITS,
        append_time=append_time,
        max_timestamp=newest,
        transactional=(attributes & TRANSACTIONAL_BIT) != 0,
        control=control,
        marker=_markers(content, read, control),
        producer_id=heads["producer_id"].astype(np.int64),
        producer_epoch=heads["producer_epoch"].astype(np.int64),
        base_sequence=heads["base_sequence"].astype(np.int64),
    )
    problems = sorted(content.problems, key=lambda problem: problem.position)
    return Columns(
        buffer=content.buffer,
        start=span[0],
        end=span[1],
        offset=np.repeat(base_offset, content.count) + read.offset_delta,
        timestamp=timestamp,
        key_start=read.key_start,
        key_size=read.key_size,
        value_start=read.value_start,
        value_size=read.value_size,
        headers_start=read.headers_start,
        headers=read.headers,
        batch=batch,
        batches=batches,
        problems=tuple([replace(each, position=each.position + at) for each in problems]),
        upto=content.upto + at,
    )


def _markers(content: Content, read: Fields, control: BoolArray) -> Int64Array:
    """The type in the key of the first record of each control batch."""
    marker = np.full(len(control), NO_MARKER)
    if not control.any():
        return marker
    some = np.flatnonzero(control & (content.count > 0))
    first = (np.cumsum(content.count) - content.count)[some]
    told = read.key_size[first] >= MARKER_KEY
    marker[some[told]] = content.buffer.int16[read.key_start[first[told]] + 2]
    return marker
