"""Compaction of one log: of every key only the last record is kept.

The part of a log that was not compacted before is dirty. A first pass finds the last offset of each
key in it. A second pass rewrites all segments up to its end without the superseded records, small
segments together as one. It leaves out the active segment, and records that the topic's
configuration or an open transaction still protects. Compaction runs in steps; between two steps the
log can be appended to and read. :func:`~.recovery.swap_segments` puts the new files in place.

The last record of a key is kept; a tombstone (a record without a value) is removed after
``delete.retention.ms``. Offsets, timestamps and the codec stay as they were. Also kept are:

- the last batch of each producer, even without records: it has the epoch and the last sequence;
- the last batch of the cleaned part, for its offset;
- a transaction's marker, until no record of the transaction is left, and then as long as
  tombstones. The records of an aborted transaction are removed at once, so a compacted segment
  needs no transaction index.

Compaction stores the time after which tombstones or the marker may be removed in the batch itself
("delete horizon", KIP-534).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rota.broker.storage import log_segment, producer_state, recovery
from rota.broker.storage.file_records import (
    CorruptBatchError,
    DecodeBudget,
    StoredBatch,
)
from rota.broker.storage.index import AbortedTransaction, IndexBuilder
from rota.broker.storage.log import Log
from rota.broker.storage.log_segment import SEGMENT_FILE_KINDS, LogSegment, segment_path
from rota.broker.storage.producer_state import ProducerStateManager
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import (
    HEADER,
    BatchHeader,
    BatchProblemKind,
    BatchRecord,
    CompressionType,
    ControlRecordType,
    encode_batch,
    encode_varint,
    reencode_batch,
)
from rota.engine.formats.record_batch_columns import RecordColumns, decode_batches, iterate_records
from rota.engine.model.config import MAX_INT, MAX_LONG
from rota.errors import DiskError, FormatError, Refused

MAX_KEYS = 500_000  # keys in the offset map (80 MB); the next run compacts the rest of the log

#: Yields after each step; returns the offset up to which the log is compacted, or None if segments
#: were deleted meanwhile: then start again.
CompactionSteps: TypeAlias = Generator[None, None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    first_dirty_offset: int
    first_uncleanable_offset: int  # base offset of the first segment not to compact yet
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # a record is dirty for longer than ``max.compaction.lag.ms``

    @property
    def cleanable_ratio(self) -> float:
        """The dirty part of the bytes that may be compacted."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def needs_cleaning(self, min_ratio: float) -> bool:
        """Whether the log should be compacted now, given ``min.cleanable.dirty.ratio``."""
        return self.dirty_bytes > 0 and (self.overdue or self.cleanable_ratio > min_ratio)


def inspect_log(log: Log, checkpoint: int | None, now: int) -> LogToClean:
    """Finds the part of a log after the checkpoint that can be cleaned; raises FormatError."""
    first = log.log_start_offset
    if checkpoint is not None and first <= checkpoint <= log.log_end_offset:
        first = checkpoint
    segments, inactive = log.segments, log.segments[:-1]
    dirty = inactive[log_segment.find_row(segments, first) :]
    allowed = min(log.last_stable_offset, segments[-1].base_offset)
    lag = log.config.min_compaction_lag
    try:
        if lag:
            young = [each for each in dirty if log_segment.find_max_timestamp(each)[0] > now - lag]
            allowed = min([allowed, *(each.base_offset for each in young)])
        overdue = log.config.max_compaction_lag < MAX_LONG and any(
            0 < each.first_timestamp() < now - log.config.max_compaction_lag for each in dirty
        )
    except CorruptBatchError as damage:
        raise FormatError(str(damage)) from None
    limit = segments[log_segment.find_row(segments, max(first, allowed))].base_offset
    return LogToClean(
        first_dirty_offset=first,
        first_uncleanable_offset=limit,
        clean_bytes=sum(each.size for each in inactive if each.base_offset < first),
        dirty_bytes=sum(each.size for each in dirty if each.base_offset < limit),
        overdue=overdue,
    )


def compact_log(
    log: Log, to_clean: LogToClean, now: int, *, max_keys: int = MAX_KEYS
) -> CompactionSteps:
    """Compacts a log in steps; closed early, it keeps the segments that it replaced."""
    steps = _run_passes(log, to_clean, now, max_keys)
    try:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return int(done.value)
            first = log.segments[0]
            yield
            if log.segments[0] is not first:
                return None
    except CorruptBatchError as damage:
        raise FormatError(str(damage)) from None
    finally:
        steps.close()


def _run_passes(
    log: Log, to_clean: LogToClean, now: int, max_keys: int
) -> Generator[None, None, int]:
    aborted = [
        each
        for row in range(len(log.segments))
        for each in producer_state.aborted_transactions(log.segments, row)
    ]
    offset_map = OffsetMap()
    transactions = CleanedTransactions(aborted)
    yield from _build_offset_map(log, to_clean, transactions, offset_map, max_keys)
    end = offset_map.latest_offset + 1
    if end <= to_clean.first_dirty_offset:
        return to_clean.first_dirty_offset
    record_filter = RecordFilter(
        offset_map,
        CleanedTransactions(aborted),
        limit=to_clean.first_uncleanable_offset,
        now=now,
        delete_retention=log.config.delete_retention,
    )
    segments = [each for each in log.segments[:-1] if each.base_offset < end]
    for group in _group_segments(log, segments):
        yield from _clean_segments(log, group, record_filter)
    return end


def _build_offset_map(
    log: Log,
    to_clean: LogToClean,
    transactions: CleanedTransactions,
    offset_map: OffsetMap,
    max_keys: int,
) -> Generator[None]:
    first_dirty = to_clean.first_dirty_offset
    for segment in log.segments[log_segment.find_row(log.segments, first_dirty) : -1]:
        if segment.base_offset >= to_clean.first_uncleanable_offset:
            return
        for group in read_batch_groups(segment):
            for batch, rows, marker in group:
                header = batch.header
                if header.control:
                    transactions.on_control_batch_read(header, marker)
                elif not transactions.on_batch_read(header) and header.last_offset >= first_dirty:
                    offsets = _last_offsets_of_keys(group, rows, first_dirty)
                    if offset_map.offsets and len(offset_map.offsets) + len(offsets) > max_keys:
                        return
                    offset_map.offsets.update(offsets)
                offset_map.latest_offset = max(offset_map.latest_offset, header.last_offset)
            yield
        offset_map.latest_offset = segment.end_offset - 1  # with offsets missing at its end


def _last_offsets_of_keys(group: BatchGroup, rows: slice, min_offset: int) -> dict[bytes, int]:
    data = group.data
    keys = zip(group.offset[rows], group.key_start[rows], group.key_size[rows], strict=True)
    return {
        digest_key(data[start : start + size]): offset
        for offset, start, size in keys
        if size >= 0 and offset >= min_offset
    }


def _group_segments(log: Log, segments: Sequence[LogSegment]) -> list[list[LogSegment]]:
    groups: list[list[LogSegment]] = []
    index_bytes = log.config.segment_index_bytes
    limits = np.array([log.config.segment_bytes, index_bytes, index_bytes])
    total = np.zeros(3, dtype=np.int64)
    for segment in segments:
        paths = (segment.log_path, segment.offset_index.path, segment.time_index.path)
        sizes = np.array([log.disk.size(path) or 0 for path in paths])
        total = total + sizes
        last = segment.end_offset - 1
        if groups and (total <= limits).all() and last - groups[-1][0].base_offset <= MAX_INT:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            total = sizes
    return groups


class _CleanedSegment:
    def __init__(self, log: Log, base: int) -> None:
        self.size = 0
        self._disk = log.disk
        self._files = {
            kind: segment_path(log.folder, base, kind, recovery.CLEANED)
            for kind in SEGMENT_FILE_KINDS
        }
        self._indexer = IndexBuilder(base, log.config.index_interval)
        self._unwritten: dict[str, bytearray] = {kind: bytearray() for kind in self._files}
        for path in self._files.values():
            self._disk.append(path, b"")

    def add_batch(self, data: Bytes) -> None:
        header = BatchHeader._make(HEADER.unpack_from(data))
        offset_entry, time_entry = self._indexer.add_batch(
            self.size, len(data), header.last_offset, header.max_timestamp
        )
        self._unwritten["log"] += data
        self._unwritten["index"] += offset_entry
        self._unwritten["timeindex"] += time_entry
        self.size += len(data)

    def write(self) -> None:
        for kind, data in self._unwritten.items():
            if data:
                self._disk.append(self._files[kind], data)
                self._unwritten[kind] = bytearray()

    def close(self) -> Generator[None]:
        """Writes the rest and syncs the files, one in each step."""
        self._unwritten["timeindex"] += self._indexer.last_time_entry()
        self.write()
        for path in self._files.values():
            yield
            self._disk.sync(path)
        yield


def _clean_segments(
    log: Log, segments: Sequence[LogSegment], record_filter: RecordFilter
) -> Generator[None]:
    bases = [each.base_offset for each in segments]
    recovery.remove_cleaned_files(log.disk, log.folder, bases[0])
    try:
        cleaned = _CleanedSegment(log, bases[0])
        record_filter.set_producers(log.producers)
        for segment in segments:
            for group in read_batch_groups(segment):
                for batch in record_filter.filter_batches(group):
                    cleaned.add_batch(batch)
                cleaned.write()
                yield
        yield from cleaned.close()
        _swap_in(log, bases)
    except BaseException:
        with suppress(DiskError):
            recovery.remove_cleaned_files(log.disk, log.folder, bases[0])
        raise
    log.replace_segments(bases)


def _swap_in(log: Log, bases: list[int]) -> None:
    try:
        recovery.swap_segments(log.disk, log.folder, bases)
    except DiskError as error:
        if recovery.is_swap_begun(log.disk, log.folder, bases[0]):
            log.mark_failed(f"compaction failed while it replaced segments: {error}")
        raise


KEY_DIGEST_SIZE = 16  # the offset map has a digest of this size in place of longer keys
NO_OFFSET = -1


def digest_key(key: bytes) -> bytes:
    return key if len(key) < KEY_DIGEST_SIZE else blake2b(key, digest_size=KEY_DIGEST_SIZE).digest()


@dataclass(slots=True)
class OffsetMap:
    offsets: dict[bytes, int] = field(default_factory=dict)
    latest_offset: int = NO_OFFSET


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming_aborted = [(each.first_offset, each.producer_id) for each in aborted]
        heapify(self._upcoming_aborted)
        #: Producers of aborted transactions that have begun, and whether a batch was read.
        self._aborted: dict[int, bool] = {}
        #: Producers of which a batch was read that is not aborted.
        self._committed: set[int] = set()

    def on_batch_read(self, header: BatchHeader) -> bool:
        """Returns whether a data batch belongs to an aborted transaction, so can be removed."""
        self._advance_to(header.last_offset)
        if not header.transactional:
            return False
        producer = header.producer_id
        if producer in self._aborted:
            self._aborted[producer] = True
            return True
        self._committed.add(producer)
        return False

    def on_control_batch_read(self, header: BatchHeader, kind: int) -> bool:
        """Returns whether no record of the transaction is left; kind -1: the batch is empty."""
        self._advance_to(header.last_offset)
        producer = header.producer_id
        if kind == ControlRecordType.ABORT:
            return not self._aborted.pop(producer, False)
        if kind == ControlRecordType.COMMIT:
            left = producer in self._committed
            self._committed.discard(producer)
            return not left
        return header.record_count == 0

    def _advance_to(self, offset: int) -> None:
        while self._upcoming_aborted and self._upcoming_aborted[0][0] <= offset:
            _, producer = heappop(self._upcoming_aborted)
            self._aborted.setdefault(producer, False)


class RecordFilter:
    """Decides which records of each batch are kept, in the order of the log."""

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        *,
        limit: int,
        now: int,
        delete_retention: int,
    ) -> None:
        """:param limit: the offset after the last batch to filter"""
        self._offset_map = offset_map
        self._transactions = transactions
        self._limit = limit
        self._now = now
        self._delete_retention = delete_retention
        #: The last data offset and the epoch by producer id.
        self._last_of_producer: Mapping[int, tuple[int | None, int]] = {}

    def set_producers(self, producers: ProducerStateManager) -> None:
        self._last_of_producer = {
            key: (each.batches[-1].last_offset if each.batches else None, each.epoch)
            for key, each in producers
        }

    def filter_batches(self, group: BatchGroup) -> Iterator[Bytes]:
        for batch, rows, marker in group:
            header = batch.header
            if header.control:
                batch_bytes = self._retain_marker(group, batch, rows, marker)
            elif not self._transactions.on_batch_read(header) and (
                retained := self._retained_rows(group, header, rows)
            ):
                batch_bytes = self._retain_records(group, batch, retained)
            else:
                batch_bytes = self._retain_empty_batch(header)
            if batch_bytes is not None:
                yield batch_bytes

    def _retained_rows(self, group: BatchGroup, header: BatchHeader, rows: slice) -> list[int]:
        latest, last_offset_of = self._offset_map.latest_offset, self._offset_map.offsets.get
        data = group.data
        expired = header.delete_horizon is not None and header.delete_horizon <= self._now
        numbers = range(rows.start, rows.stop)
        if header.base_offset > latest:
            return list(numbers)
        found = []
        columns = (group.offset, group.key_start, group.key_size, group.value_size)
        fields = zip(numbers, *(column[rows] for column in columns), strict=True)
        for row, offset, start, size, value_size in fields:
            if offset <= latest:
                if size < 0 or (expired and value_size < 0):
                    continue
                key = data[start : start + size]
                if size >= KEY_DIGEST_SIZE:
                    key = digest_key(key)
                if offset < last_offset_of(key, NO_OFFSET):
                    continue
            found.append(row)
        return found

    def _retain_records(self, group: BatchGroup, batch: StoredBatch, rows: list[int]) -> Bytes:
        header = batch.header
        if header.delete_horizon is None and any(group.value_size[row] < 0 for row in rows):
            records = _select_records(group, rows)
            return _encode_batch(header, records, self._now + self._delete_retention)
        if len(rows) == header.record_count:
            return batch.data
        timestamp = header.max_timestamp
        if not header.append_time:
            timestamp = int(group.columns.timestamp[rows].max())
        body = _copy_records(group, rows)
        return reencode_batch(header, body, record_count=len(rows), max_timestamp=timestamp)

    def _retain_marker(
        self, group: BatchGroup, batch: StoredBatch, rows: slice, marker: int
    ) -> Bytes | None:
        header = batch.header
        removable = self._transactions.on_control_batch_read(header, marker)
        horizon = header.delete_horizon
        if not header.record_count or (removable and horizon is not None and horizon <= self._now):
            return self._retain_empty_batch(header)
        if removable and horizon is None:
            records = _select_records(group, list(range(rows.start, rows.stop)))
            return _encode_batch(header, records, self._now + self._delete_retention)
        return batch.data

    def _retain_empty_batch(self, header: BatchHeader) -> bytes | None:
        if header.last_offset + 1 == self._limit or self._is_last_of_producer(header):
            return _encode_batch(header, [], None)
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id not in self._last_of_producer:
            return False
        offset, epoch = self._last_of_producer[header.producer_id]
        if offset is None:
            return header.control and header.producer_epoch == epoch
        return header.last_offset == offset


def _copy_records(group: BatchGroup, rows: list[int]) -> bytes:
    """Returns some records of a batch as they were encoded; adjacent ones are copied together."""
    columns, data = group.columns, group.data
    starts, ends = columns.start[rows].tolist(), columns.end[rows].tolist()
    pieces: list[bytes] = []
    run = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[place - 1] + 1:
            pieces.append(encode_varint(ends[run] - starts[run]))
            pieces.append(data[starts[run] : ends[place - 1]])
            run = place
    return b"".join(pieces)


def _select_records(group: BatchGroup, rows: list[int]) -> list[BatchRecord]:
    first, selected = rows[0], set(rows)
    records = iterate_records(group.columns, first, rows[-1] + 1)
    return [record for row, record in enumerate(records, start=first) if row in selected]


def _encode_batch(header: BatchHeader, records: list[BatchRecord], horizon: int | None) -> bytes:
    return encode_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        codec=CompressionType(header.codec),
        append_time=header.max_timestamp if header.append_time else None,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.transactional,
        control=header.control,
        delete_horizon=horizon,
        max_timestamp=None if records else header.max_timestamp,
    )


#: Limits of a group of batches that are decoded together: bytes and batches (a larger batch is a
#: group by itself), then decompressed bytes and records (beyond these, each is decoded alone).
GROUP_BYTES, GROUP_BATCHES = 1 << 17, 64
GROUP_DECOMPRESSED_BYTES, GROUP_RECORDS = 1 << 23, 1 << 16


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """Some batches of a segment, decoded together, with their records as columns."""

    batches: Sequence[StoredBatch]
    columns: RecordColumns
    data: bytes  # the bytes in which all starts and ends are positions
    rows: Sequence[slice]
    offset: Sequence[int]
    key_start: Sequence[int]
    key_size: Sequence[int]
    value_size: Sequence[int]
    marker: Sequence[int]

    def __iter__(self) -> Iterator[tuple[StoredBatch, slice, int]]:
        return zip(self.batches, self.rows, self.marker, strict=True)


def read_batch_groups(segment: LogSegment) -> Iterator[BatchGroup]:
    """Decodes a segment some batches at a time, which is faster; raises errors for damage."""
    batches: list[StoredBatch] = []
    size = 0
    for batch in segment.scan(window=GROUP_BYTES):
        if batches and (size + batch.header.size > GROUP_BYTES or len(batches) == GROUP_BATCHES):
            yield from _decode_batches(segment, batches)
            batches, size = [], 0
        batches.append(batch)
        size += batch.header.size
    if batches:
        yield from _decode_batches(segment, batches)


def _decode_batches(segment: LogSegment, batches: list[StoredBatch]) -> Iterator[BatchGroup]:
    """Decodes the batches together if they are small, else one by one; a scan has checked them."""
    if len(batches) > 1 and sum(each.header.record_count for each in batches) <= GROUP_RECORDS:
        joined = b"".join([each.data for each in batches])
        columns = decode_batches(joined, check=False, max_bytes=GROUP_DECOMPRESSED_BYTES)
        if not any(each.kind is BatchProblemKind.SIZE for each in columns.problems):
            yield _make_batch_group(segment, batches, columns)
            return
    for batch in batches:
        try:
            columns = DecodeBudget(batch.header.size).decode_batch(batch.data, batch.header)
        except Refused as error:
            raise FormatError(f"{segment.log_path}: byte {batch.position}: {error}") from None
        yield _make_batch_group(segment, [batch], columns)


def _make_batch_group(
    segment: LogSegment, batches: list[StoredBatch], columns: RecordColumns
) -> BatchGroup:
    if columns.problems:
        problem = columns.problems[0]
        raise FormatError(
            f"{segment.log_path}: byte {batches[0].position + problem.position}: {problem.text}"
        )
    ends = columns.batches.count.cumsum().tolist()
    return BatchGroup(
        batches=batches,
        columns=columns,
        data=columns.buffer.data,
        rows=[slice(first, end) for first, end in pairwise([0, *ends])],
        offset=columns.offset.tolist(),
        key_start=columns.key_start.tolist(),
        key_size=columns.key_size.tolist(),
        value_size=columns.value_size.tolist(),
        marker=columns.batches.marker.tolist(),
    )
