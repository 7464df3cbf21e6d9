"""Decodes all records of all batches of a buffer as NumPy columns.

`decode_batches` checks the checksums, decompresses, finds all records (record_batch_scan.py) and
then reads each field for all records at once. A batch that is damaged has no rows and is one of
``columns.problems``; the reader of single batches describes the problem.

`RecordColumns` has a row per record: ``offset``, ``timestamp``, ``key_start``, ``key_size`` (-1:
null), ``value_start``, ``value_size`` (-1: null), ``headers_start``, ``headers`` (their number),
``batch`` (row of ``columns.batches``). Starts are positions in ``columns.buffer.data``.
`BatchColumns` has a row per batch. `iterate_records` gives the records one by one as `BatchRecord`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from rota.engine.formats import record_batch
from rota.engine.formats.buffer import (
    VARINT_LIMIT,
    BoolArray,
    ByteBuffer,
    Bytes,
    Int64Array,
    decode_leading_varints,
    decode_zigzag,
    read_unsigned_varints,
    read_varlongs,
)
from rota.engine.formats.record_batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_CODEC_MASK,
    CONTROL_FLAG_MASK,
    HEADER,
    HEADER_DTYPE,
    MAX_DECOMPRESSED_SIZE,
    SMALLEST_RECORD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_FLAG_MASK,
    BatchProblem,
    BatchProblemKind,
    BatchRecord,
    CompressionType,
    DecompressedTooLarge,
    RecordReader,
    decompress,
    read_record_headers,
)
from rota.engine.formats.record_batch_scan import find_batches, find_records
from rota.errors import FormatError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_TOTAL_DECOMPRESSED_SIZE = 1 << 30  # decompressed bytes of all batches of one buffer
MAX_EXPLAINED_RECORDS = 10_000  # larger batches are not read one by one to describe a problem


class BatchContents:
    """The batches of a buffer without a problem so far, one row each."""

    def __init__(
        self, view: memoryview, chunk_bytes: int | None = None, *, may_end_cut: bool = False
    ) -> None:
        """The parameters are those of :func:`decode_batches`."""
        found = find_batches(view, may_end_cut=may_end_cut)
        self.view = view
        self.end_position = len(view)
        self.problems = list(found.problems)
        self.position = found.positions
        self.size = found.sizes
        self._chunk_bytes = chunk_bytes
        rows = max(len(view) - HEADER.size + 1, 0)
        self.headers = np.ndarray((rows,), HEADER_DTYPE, view, strides=(1,))[found.positions]
        self.count: Int64Array = self.headers["record_count"].astype(np.int64)
        self.start: Int64Array = self.position + HEADER.size
        #: The end of the records: in the view, and in the buffer after :meth:`decompress_all`.
        self.limit: Int64Array = self.position + self.size
        if chunk_bytes is not None and len(view) > chunk_bytes:
            self._end_before(max(int(np.searchsorted(self.size.cumsum(), chunk_bytes, "right")), 1))
            self.view = view[: self.end_position]

    def check_checksums(self) -> None:
        crc, view = record_batch.load_crc32c(), self.view
        begins = (self.position + ATTRIBUTES_OFFSET).tolist()
        made = [crc(view[a:b]) for a, b in zip(begins, self.limit.tolist(), strict=True)]
        stored = self.headers["checksum"]
        bad = np.flatnonzero(np.array(made, dtype=np.uint32) != stored)
        texts = {
            row: f"checksum {made[row]:08x}, but the header has {stored[row]:08x}"
            for row in bad.tolist()
        }
        self._reject({row: (BatchProblemKind.CHECKSUM, text) for row, text in texts.items()})

    def decompress_all(self, max_batch_bytes: int, max_bytes: int) -> None:
        """Decompresses; afterwards the records of all batches are in one buffer."""
        pieces: list[memoryview | bytes] = [self.view]
        size = len(self.view)
        left = max_bytes
        found = {}
        compressed = (
            self.headers["attributes"] & COMPRESSION_CODEC_MASK != CompressionType.NONE
        ) & (self.count > 0)
        for row in np.flatnonzero(compressed).tolist():
            data = self.view[int(self.start[row]) : int(self.limit[row])]
            codec = int(self.headers["attributes"][row]) & COMPRESSION_CODEC_MASK
            limit = min(max_batch_bytes, left)
            chunk_limit = limit
            if row and self._chunk_bytes is not None:
                chunk_limit = min(limit, max(self._chunk_bytes - (size - len(self.view)), 0))
            try:
                piece = decompress(codec, data, chunk_limit)
            except FormatError as error:
                found[row] = BatchProblemKind.CODEC, str(error)
            except DecompressedTooLarge:
                if chunk_limit < limit:
                    self._end_before(row)
                    break
                found[row] = BatchProblemKind.SIZE, f"decompresses to more than {limit} bytes"
            else:
                pieces.append(piece)
                self.start[row], self.limit[row] = size, size + len(piece)
                size += len(piece)
                left -= len(piece)
        self.limit = np.where(self.count == 0, self.start, self.limit)
        room = (self.limit - self.start) // SMALLEST_RECORD
        for row in np.flatnonzero((self.count < 0) | (self.count > room)).tolist():
            size = self.limit[row] - self.start[row]
            text = f"impossible count {self.count[row]}, {size} bytes left"
            found.setdefault(row, (BatchProblemKind.RECORDS, text))
        self._reject(found)
        self.buffer = ByteBuffer(pieces)

    def _end_before(self, row: int) -> None:
        """Leaves this batch and all later ones to a later call."""
        if row < len(self.position):
            self.end_position = int(self.position[row])
            self.problems = [each for each in self.problems if each.position < self.end_position]
            self._keep(np.arange(len(self.position)) < row)

    def reject_bad_records(self, bad: BoolArray) -> None:
        rows = np.flatnonzero(bad).tolist()
        self._reject({row: (BatchProblemKind.RECORDS, self._reason(row)) for row in rows})

    def _reason(self, row: int) -> str:
        if self.count[row] > MAX_EXPLAINED_RECORDS:
            return "its records do not follow the format"
        body = RecordReader(self.buffer.data[int(self.start[row]) : int(self.limit[row])])
        try:
            body.read_records(int(self.count[row]), 0, 0)
        except FormatError as error:
            return str(error)
        raise AssertionError("the readers of one and of many batches do not agree")

    def _reject(self, found: dict[int, tuple[BatchProblemKind, str]]) -> None:
        if not found:
            return
        for row, (flaw, text) in found.items():
            position, size = int(self.position[row]), int(self.size[row])
            self.problems.append(BatchProblem(position, size, flaw, text))
        keep = np.ones(len(self.position), dtype=np.bool_)
        keep[list(found)] = False
        self._keep(keep)

    def _keep(self, rows: BoolArray) -> None:
        self.headers, self.count = self.headers[rows], self.count[rows]
        self.position, self.size = self.position[rows], self.size[rows]
        self.start, self.limit = self.start[rows], self.limit[rows]


RECORDS_PER_CHUNK = 1 << 13  # records that are read together
WORD_BITS = 64
FEW_RECORDS_WITH_HEADERS = 48  # with fewer that have more headers, these are read singly


#: Columns: deltas of timestamp and offset, ``key_start``, ``key_size``, ``value_start``,
#: ``value_size``, ``headers_start``, ``headers`` (the count), and ``bad``: a malformed record,
#: whose other fields are invalid.
RecordFields: TypeAlias = dict[str, npt.NDArray[Any]]
RECORD_FIELDS = (
    *("timestamp_delta", "offset_delta", "key_start", "key_size", "value_start", "value_size"),
    *("headers_start", "headers", "bad"),
)


def read_record_fields(buffer: ByteBuffer, starts: Int64Array, ends: Int64Array) -> RecordFields:
    """Reads all fields of these records, in chunks that fit the processor's cache."""
    if len(starts) <= RECORDS_PER_CHUNK:
        return _read_chunk(buffer, starts, ends)
    chunks = [
        _read_chunk(
            buffer,
            starts[begin : begin + RECORDS_PER_CHUNK],
            ends[begin : begin + RECORDS_PER_CHUNK],
        )
        for begin in range(0, len(starts), RECORDS_PER_CHUNK)
    ]
    return {name: np.concatenate([each[name] for each in chunks]) for name in chunks[0]}


def _read_chunk(buffer: ByteBuffer, starts: Int64Array, ends: Int64Array) -> RecordFields:
    """Limits offsets to their record: one that is limited too early does not arrive at its end."""
    found, at, odd = _read_common_records(buffer, starts, ends)
    rows = np.flatnonzero(odd)
    if len(rows):
        known, at[rows] = _read_any_records(buffer, starts[rows], ends[rows])
        for name, column in known.items():
            found[name][rows] = column
    bad, headers = found["bad"], found["headers"]
    bad |= starts >= ends
    if headers.any():
        bad |= (headers < 0) | (headers > ends - at)
        some = np.flatnonzero((headers > 0) & ~bad)
        if len(some):
            at[some] = _skip_headers(buffer, at[some], ends[some], headers[some])
    bad |= at != ends
    return found


def _read_common_records(
    buffer: ByteBuffer, starts: Int64Array, ends: Int64Array
) -> tuple[RecordFields, Int64Array, BoolArray]:
    """Reads records with short numbers; the last column is set where the numbers are longer."""
    at = starts + 1
    word = buffer.little[at]
    timestamp_delta, before, odd = decode_leading_varints(word)
    word >>= before
    offset_delta, bits, long = decode_leading_varints(word)
    odd |= long
    before += bits
    word >>= bits
    key_size, bits, long = decode_leading_varints(word)
    odd |= long
    before += bits  # three times 65 at most
    odd |= before > WORD_BITS
    key_start = at + (before >> 3)
    np.maximum(key_size, -1, out=key_size)  # any negative length is null
    at = np.minimum(key_start + np.maximum(key_size, 0), ends)
    value_size, bits, long = decode_leading_varints(buffer.little[at])
    odd |= long
    value_start = at + (bits >> 3)
    np.maximum(value_size, -1, out=value_size)
    at = np.minimum(value_start + np.maximum(value_size, 0), ends)
    headers = buffer.uint8[at].astype(np.int64)
    odd |= (headers & 0x81) != 0
    headers >>= 1
    at += 1
    bad = np.zeros(len(starts), dtype=np.bool_)
    fields = (timestamp_delta, offset_delta, key_start, key_size, value_start, value_size)
    return dict(zip(RECORD_FIELDS, (*fields, at.copy(), headers, bad), strict=True)), at, odd


def _read_any_records(
    buffer: ByteBuffer, starts: Int64Array, ends: Int64Array
) -> tuple[RecordFields, Int64Array]:
    at = np.minimum(starts + 1, ends)
    timestamp_delta, at, bad = read_varlongs(buffer, at)
    offset_delta, at = _read_varints(buffer, np.minimum(at, ends), bad)
    key_start, key_size, at = _read_sized_bytes(buffer, np.minimum(at, ends), bad)
    value_start, value_size, at = _read_sized_bytes(buffer, np.minimum(at, ends), bad)
    headers, at = _read_varints(buffer, np.minimum(at, ends), bad)
    fields = (timestamp_delta, offset_delta, key_start, key_size, value_start, value_size)
    return dict(zip(RECORD_FIELDS, (*fields, at, headers, bad), strict=True)), at


def _read_varints(
    buffer: ByteBuffer, at: Int64Array, bad: BoolArray
) -> tuple[Int64Array, Int64Array]:
    value, after = read_unsigned_varints(buffer, at)
    bad |= value >= VARINT_LIMIT
    return decode_zigzag(value), after


def _read_sized_bytes(
    buffer: ByteBuffer, at: Int64Array, bad: BoolArray
) -> tuple[Int64Array, Int64Array, Int64Array]:
    size, start = _read_varints(buffer, at, bad)
    size = np.maximum(size, -1)  # any negative length is null
    return start, size, start + np.maximum(size, 0)


def _skip_headers(
    buffer: ByteBuffer, at: Int64Array, ends: Int64Array, count: Int64Array
) -> Int64Array:
    """Returns where the headers of each record end; past the record's end if they are malformed."""
    order, going = _order_by_headers(count)
    place, end = at[order], ends[order]
    bad = np.zeros(len(at), dtype=np.bool_)
    step = 0
    while (live := int(going[step])) >= FEW_RECORDS_WITH_HEADERS:
        refused = bad[:live]
        _, name_size, after = _read_sized_bytes(buffer, place[:live], refused)
        refused |= name_size < 0
        _, _, after = _read_sized_bytes(buffer, np.minimum(after, end[:live]), refused)
        refused |= after > end[:live]
        place[:live] = np.minimum(after, end[:live])
        step += 1
    for each in range(live):
        left = int(count[order[each]]) - step
        place[each] = _skip_headers_one_by_one(buffer.data, int(place[each]), int(end[each]), left)
    result = np.empty_like(at)
    result[order] = np.where(bad, end + 1, place)
    return result


def _order_by_headers(count: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Rows by descending header count, and how many have more than 0, 1, 2 ... headers."""
    order = np.argsort(-count, kind="stable")
    steps = np.arange(1, int(count.max(initial=0)) + 2)
    return order, np.searchsorted(-count[order], -steps, "right")


def _skip_headers_one_by_one(data: bytes, at: int, end: int, count: int) -> int:
    body = RecordReader(data, at, end)
    try:
        read_record_headers(body, count)
    except FormatError:
        return end + 1
    return body.at


NO_MARKER = -1
MARKER_KEY_SIZE = 4  # bytes of a control record's key that are known: version and type

ColumnsT = TypeVar("ColumnsT", bound="DataclassInstance")


@cache
def _field_names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def select_rows(columns: ColumnsT, rows: BoolArray | slice) -> ColumnsT:
    """Returns some rows of all arrays of a dataclass."""
    values = ((name, getattr(columns, name)) for name in _field_names(type(columns)))
    chosen = {name: value[rows] for name, value in values if isinstance(value, np.ndarray)}
    return replace(columns, **chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchColumns:
    position: Int64Array
    size: Int64Array
    base_offset: Int64Array
    last_offset: Int64Array  # the last offset of the batch, also if compaction removed its record
    count: Int64Array
    leader_epoch: Int64Array
    codec: Int64Array
    append_time: BoolArray
    max_timestamp: Int64Array
    transactional: BoolArray
    control: BoolArray
    marker: Int64Array  # type in a control batch's key, if it ends a transaction; else -1
    producer_id: Int64Array
    producer_epoch: Int64Array
    base_sequence: Int64Array

    def __len__(self) -> int:
        return len(self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The decoded records, one row each; starts are positions in the buffer's data."""

    buffer: ByteBuffer  # the input, then the decompressed bytes
    start: Int64Array  # where the record begins, after its length
    end: Int64Array
    offset: Int64Array
    timestamp: Int64Array
    key_start: Int64Array
    key_size: Int64Array  # -1: null
    value_start: Int64Array
    value_size: Int64Array  # -1: null
    headers_start: Int64Array
    headers: Int64Array
    batch: Int64Array
    batches: BatchColumns
    problems: tuple[BatchProblem, ...]  # the bytes that were not read, in the order of the file
    end_position: int  # where to continue in the file: the end of the input, or of the chunk

    def __len__(self) -> int:
        return len(self.offset)

    def select(self, rows: BoolArray) -> RecordColumns:
        return select_rows(self, rows)

    def first_batches(self, count: int) -> RecordColumns:
        kept = select_rows(self, slice(int(self.batches.count[:count].sum())))
        return replace(kept, batches=select_rows(self.batches, slice(count)))

    def key(self, row: int) -> bytes | None:
        return self._bytes(self.key_start, self.key_size, row)

    def value(self, row: int) -> bytes | None:
        return self._bytes(self.value_start, self.value_size, row)

    def _bytes(self, starts: Int64Array, sizes: Int64Array, row: int) -> bytes | None:
        start, size = int(starts[row]), int(sizes[row])
        return None if size < 0 else self.buffer.data[start : start + size]


def iterate_records(
    columns: RecordColumns, first: int = 0, end: int | None = None
) -> Iterator[BatchRecord]:
    """Yields the records as values, all or those of a range of rows."""
    data = columns.buffer.data
    names = ("offset", "timestamp", "key_start", "key_size", "value_start", "value_size")
    wanted = [getattr(columns, name) for name in (*names, "headers_start", "headers")]
    lists = [each[first:end].tolist() for each in wanted]
    for offset, at, key, key_size, value, value_size, start, count in zip(*lists, strict=True):
        yield BatchRecord(
            offset,
            at,
            None if key_size < 0 else data[key : key + key_size],
            None if value_size < 0 else data[value : value + value_size],
            read_record_headers(RecordReader(data, start), count) if count else (),
        )


def decode_batches(  # noqa: PLR0913, limits of several kinds
    data: Bytes,
    *,
    at: int = 0,
    check: bool = True,
    max_batch_bytes: int = MAX_DECOMPRESSED_SIZE,
    max_bytes: int = MAX_TOTAL_DECOMPRESSED_SIZE,
    chunk_bytes: int | None = None,
    may_end_cut: bool = False,
) -> RecordColumns:
    """Decodes the records of all batches of a buffer that begins with a batch.

    :param at: where the buffer begins in its file
    :param check: compare checksums
    :param max_batch_bytes: limit of a batch's decompressed bytes; a larger one is a problem
    :param max_bytes: the same limit for all batches together
    :param chunk_bytes: stop before the batch that exceeds this many decompressed bytes, but decode
        at least one; ``columns.end_position`` is where to continue
    :param may_end_cut: as in :func:`rota.engine.formats.record_batch_scan.find_batches`
    """
    content = BatchContents(memoryview(data), chunk_bytes, may_end_cut=may_end_cut)
    if check:
        content.check_checksums()
    content.decompress_all(max_batch_bytes, max_bytes)
    buffer = content.buffer
    starts, ends, batch, bad = find_records(buffer, content.start, content.limit, content.count)
    read = read_record_fields(buffer, starts, ends)
    bad[batch[read["bad"]]] = True
    if bad.any():
        keep = ~bad[batch]
        batch = (np.cumsum(~bad) - 1)[batch[keep]]
        read = {name: column[keep] for name, column in read.items()}
        starts, ends = starts[keep], ends[keep]
        content.reject_bad_records(bad)
    return _build_columns(content, read, batch, (starts, ends), at)


def _build_columns(
    content: BatchContents,
    read: RecordFields,
    batch: Int64Array,
    span: tuple[Int64Array, Int64Array],
    at: int,
) -> RecordColumns:
    headers = content.headers
    attributes = headers["attributes"].astype(np.int64)
    append_time = (attributes & TIMESTAMP_TYPE_MASK) != 0
    numbers = {
        name: headers[name].astype(np.int64)
        for name in (
            *("base_offset", "leader_epoch", "max_timestamp"),
            *("producer_id", "producer_epoch", "base_sequence"),
        )
    }
    base_offset = numbers["base_offset"]
    timestamp = np.repeat(headers["base_timestamp"].astype(np.int64), content.count)
    timestamp += read["timestamp_delta"]
    if append_time.any():
        timestamp = np.where(append_time[batch], numbers["max_timestamp"][batch], timestamp)
    control = (attributes & CONTROL_FLAG_MASK) != 0
    batches = BatchColumns(
        position=content.position + at,
        size=content.size,
        last_offset=base_offset + headers["last_offset_delta"],
        count=content.count,
        codec=attributes & COMPRESSION_CODEC_MASK,
        append_time=append_time,
        transactional=(attributes & TRANSACTIONAL_FLAG_MASK) != 0,
        control=control,
        marker=_read_markers(content, read, control),
        **numbers,
    )
    problems = sorted(content.problems, key=lambda problem: problem.position)
    return RecordColumns(
        buffer=content.buffer,
        start=span[0],
        end=span[1],
        offset=np.repeat(base_offset, content.count) + read["offset_delta"],
        timestamp=timestamp,
        **{name: read[name] for name in RECORD_FIELDS[2:-1]},
        batch=batch,
        batches=batches,
        problems=tuple([replace(each, position=each.position + at) for each in problems]),
        end_position=content.end_position + at,
    )


def _read_markers(content: BatchContents, read: RecordFields, control: BoolArray) -> Int64Array:
    """Returns the type in the key of the first record of each control batch, else -1."""
    marker = np.full(len(control), NO_MARKER)
    if not control.any():
        return marker
    some = np.flatnonzero(control & (content.count > 0))
    first = (np.cumsum(content.count) - content.count)[some]
    typed = read["key_size"][first] >= MARKER_KEY_SIZE
    marker[some[typed]] = content.buffer.int16[read["key_start"][first[typed]] + 2]
    return marker


FEW_RECORDS = 12  # the same for headers whose names and values are read


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderColumns:
    """Names and values of headers; starts are positions in the buffer's data."""

    name_start: Int64Array
    name_size: Int64Array
    value_start: Int64Array
    value_size: Int64Array  # -1: null

    def __len__(self) -> int:
        return len(self.name_start)


def read_header_columns(buffer: ByteBuffer, start: Int64Array, count: Int64Array) -> HeaderColumns:
    """Reads the headers of records whose header start and count are known and valid."""
    total = int(count.sum())
    fields = np.empty((4, total), dtype=np.int64)
    order, going = _order_by_headers(count)
    at, row = start[order], (np.cumsum(count) - count)[order]
    step = 0
    while (live := int(going[step])) >= FEW_RECORDS:
        rows = row[:live] + step
        for field in (0, 2):
            number, begin = read_unsigned_varints(buffer, at[:live])
            size = np.maximum(decode_zigzag(number), -1)  # any negative length is null
            fields[field, rows], fields[field + 1, rows] = begin, size
            at[:live] = begin + np.maximum(size, 0)
        step += 1
    for each in range(live):
        body = RecordReader(buffer.data, int(at[each]))
        for place in range(int(row[each]) + step, int(row[each] + count[order[each]])):
            fields[:, place] = body.locate_header()
    names = ("name_start", "name_size", "value_start", "value_size")
    return HeaderColumns(**dict(zip(names, fields, strict=True)))
