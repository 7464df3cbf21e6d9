"""Compaction of one log: of every key only the last record is kept.

The part of a log that was not compacted before is dirty. A first pass finds the last offset of
each key in it. A second pass rewrites all segments up to its end without the superseded records,
small segments together as one. The active segment is never touched, nor is what the topic's
configuration or an open transaction still protects. Compaction runs in steps; between two steps
the log can be appended to and read. :mod:`rota.broker.storage.swap` puts the new files in place.

Of each key the last record is kept. If it is a tombstone (a record without a value), it goes after
``delete.retention.ms``. Offsets, timestamps and the codec stay as they were. What else is kept:

- of each producer the last batch, even without records: it has the epoch, and the sequence that
  comes before the next one;
- the last batch of the cleaned part, for its offset;
- a transaction's marker, until nothing is left of the transaction, and then as long as tombstones.
  The records of an aborted transaction go at once, so a compacted segment needs no transaction
  index.

Compaction writes the time from which on tombstones or the marker may go into the batch itself
("delete horizon", KIP-534).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop
from typing import NamedTuple, TypeAlias

from rota.broker.storage import log_segment, producer_state, swap
from rota.broker.storage.file_records import (
    CorruptBatchError,
    DecodeBudget,
    StoredBatch,
    read_header_at,
)
from rota.broker.storage.index import AbortedTransaction, IndexBuilder
from rota.broker.storage.log import Log
from rota.broker.storage.log_segment import SEGMENT_FILE_KINDS, LogSegment, segment_path
from rota.broker.storage.producer_state import ProducerStateManager
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import (
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

#: So many keys are known at a time, in some 80 MB; what is behind them waits for the next pass.
MAX_KEYS = 500_000

#: Gives way after each slice; in the end the offset up to which the log is compacted now, or None:
#: segments were deleted meanwhile, and it should be begun anew.
CompactionSteps: TypeAlias = Generator[None, None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """The part of a log that can be cleaned."""

    #: The first offset that is dirty.
    first_dirty_offset: int
    #: The first that may not be compacted yet, where a segment begins.
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: Something is dirty for longer than ``max.compaction.lag.ms``.
    overdue: bool

    @property
    def cleanable_ratio(self) -> float:
        """How much of what may be compacted is dirty."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def needs_cleaning(self, least: float) -> bool:
        """Whether the log should be compacted now, given ``min.cleanable.dirty.ratio``."""
        return self.dirty_bytes > 0 and (self.overdue or self.cleanable_ratio > least)


def inspect_log(log: Log, point: int | None, now: int) -> LogToClean:
    """Finds the part of a log that can be cleaned.

    :param point: the offset up to which the log was compacted, according to the checkpoint
    :raises FormatError: the log is damaged
    """
    first = (
        log.log_start_offset
        if point is None or not log.log_start_offset <= point <= log.log_end_offset
        else point
    )
    bases = [each.base_offset for each in log.segments]
    closed = log.segments[:-1]
    dirty = closed[max(bisect_right(bases, first) - 1, 0) :]
    allowed = min(log.last_stable_offset, bases[-1])
    lag = log.config.min_compaction_lag
    try:
        if lag:
            young = [each for each in dirty if log_segment.find_max_timestamp(each)[0] > now - lag]
            allowed = min([allowed, *(each.base_offset for each in young)])
        overdue = log.config.max_compaction_lag < MAX_LONG and any(
            0 < _first_timestamp(each) < now - log.config.max_compaction_lag for each in dirty
        )
    except CorruptBatchError as damage:
        raise FormatError(str(damage)) from None
    limit = bases[max(bisect_right(bases, max(first, allowed)) - 1, 0)]
    return LogToClean(
        first_dirty_offset=first,
        first_uncleanable_offset=limit,
        clean_bytes=sum(each.size for each in closed if each.base_offset < first),
        dirty_bytes=sum(each.size for each in dirty if each.base_offset < limit),
        overdue=overdue,
    )


def _first_timestamp(segment: LogSegment) -> int:
    head = read_header_at(segment.disk, segment.log_path, 0)
    return -1 if head is None else head.max_timestamp


def compact_log(
    log: Log, dirt: LogToClean, now: int, *, most_keys: int = MAX_KEYS
) -> CompactionSteps:
    """Compacts a log in steps.

    Closing the generator stops it at once; segments that were already replaced stay replaced.

    :raises FormatError: the log is damaged; nothing after that is touched
    :raises DiskError: the operating system refused; the log is as it was, or is ``failed``
    """
    work = _run_passes(log, dirt, now, most_keys)
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                return int(done.value)
            first = log.segments[0]
            yield
            if log.segments[0] is not first:
                return None
    except CorruptBatchError as damage:
        raise FormatError(str(damage)) from None
    finally:
        work.close()


def _run_passes(log: Log, dirt: LogToClean, now: int, most_keys: int) -> Generator[None, None, int]:
    aborted = _list_aborted(log)
    newest = OffsetMap()
    yield from _build_offset_map(log, dirt, CleanedTransactions(aborted), newest, most_keys)
    end = newest.latest_offset + 1
    if end <= dirt.first_dirty_offset:
        return dirt.first_dirty_offset
    sieve = RecordFilter(
        newest,
        CleanedTransactions(aborted),
        limit=dirt.first_uncleanable_offset,
        now=now,
        delete_retention=log.config.delete_retention,
    )
    wanted = [each for each in log.segments[:-1] if each.base_offset < end]
    for group in _group_segments(log, wanted):
        yield from _clean_segments(log, group, sieve)
    return end


def _list_aborted(log: Log) -> list[AbortedTransaction]:
    rows = range(len(log.segments))
    return [each for row in rows for each in producer_state.aborted_transactions(log.segments, row)]


def _build_offset_map(
    log: Log, dirt: LogToClean, transactions: CleanedTransactions, newest: OffsetMap, most_keys: int
) -> Generator[None]:
    """Reads the dirty part, or as much of it as ``most_keys`` allows, into the offset map."""
    bases = [each.base_offset for each in log.segments]
    begin = max(bisect_right(bases, dirt.first_dirty_offset) - 1, 0)
    for segment in log.segments[begin:-1]:
        if segment.base_offset >= dirt.first_uncleanable_offset:
            return
        for portion in read_batch_groups(segment):
            for number, head, first, behind in portion:
                if head.control:
                    transactions.on_control_batch_read(head, portion.marker[number])
                elif (
                    not transactions.on_batch_read(head)
                    and head.last_offset >= dirt.first_dirty_offset
                ):
                    found = _last_offsets_of_keys(portion, first, behind, dirt.first_dirty_offset)
                    if newest.offsets and len(newest.offsets) + len(found) > most_keys:
                        return
                    newest.offsets.update(found)
                newest.latest_offset = max(newest.latest_offset, head.last_offset)
            yield
        newest.latest_offset = (
            segment.end_offset - 1
        )  # offsets that are missing at its end count too


def _last_offsets_of_keys(
    portion: BatchGroup, first: int, behind: int, least: int
) -> dict[bytes, int]:
    """The keys of a batch, with the last offset of each."""
    data = portion.data
    rows = zip(
        portion.offset[first:behind],
        portion.key_start[first:behind],
        portion.key_size[first:behind],
        strict=True,
    )
    return {
        digest_key(data[start : start + size]): offset
        for offset, start, size in rows
        if size >= 0 and offset >= least
    }


def _group_segments(log: Log, segments: Sequence[LogSegment]) -> list[list[LogSegment]]:
    """Neighbours that are no larger together than a segment may be."""
    groups: list[list[LogSegment]] = []
    size = index = times = 0
    for segment in segments:
        of_index, of_times = _index_sizes(log, segment)
        size, index, times = size + segment.size, index + of_index, times + of_times
        fits = (
            bool(groups)
            and size <= log.config.segment_bytes
            and max(index, times) <= log.config.segment_index_bytes
            and segment.end_offset - 1 - groups[-1][0].base_offset <= MAX_INT
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index, times = segment.size, of_index, of_times
    return groups


def _index_sizes(log: Log, segment: LogSegment) -> tuple[int, int]:
    of_index, of_times = (
        log.disk.size(segment_path(log.folder, segment.base_offset, kind)) or 0
        for kind in ("index", "timeindex")
    )
    return of_index, of_times


class _CleanedSegment:
    """The files of the new segment while they are written."""

    def __init__(self, log: Log, base: int) -> None:
        self.size = 0
        self._disk = log.disk
        self._files = {
            kind: segment_path(log.folder, base, kind, swap.CLEANED) for kind in SEGMENT_FILE_KINDS
        }
        self._indexer = IndexBuilder(base, log.config.index_interval)
        self._unwritten: dict[str, bytearray] = {kind: bytearray() for kind in self._files}
        for name in self._files.values():
            self._disk.append(name, b"")

    def add_batch(self, kept: RetainedBatch) -> None:
        """A batch."""
        size = len(kept.data)
        of_offset, of_time = self._indexer.add_batch(
            self.size, size, kept.last_offset, kept.max_timestamp
        )
        self._unwritten["log"] += kept.data
        self._unwritten["index"] += of_offset
        self._unwritten["timeindex"] += of_time
        self.size += size

    def write(self) -> None:
        """Writes what has come."""
        for kind, waiting in self._unwritten.items():
            if waiting:
                self._disk.append(self._files[kind], waiting)
                self._unwritten[kind] = bytearray()

    def close(self) -> Generator[None]:
        """All of it outlives a loss of power."""
        self._unwritten["timeindex"] += self._indexer.last_time_entry()
        self.write()
        for name in self._files.values():
            yield
            self._disk.sync(name)
        yield


def _clean_segments(log: Log, group: Sequence[LogSegment], sieve: RecordFilter) -> Generator[None]:
    """Writes some segments anew as one."""
    bases = [each.base_offset for each in group]
    swap.remove_cleaned_files(log.disk, log.folder, bases[0])
    try:
        cleaned = _CleanedSegment(log, bases[0])
        sieve.set_producers(log.producers)
        for segment in group:
            for portion in read_batch_groups(segment):
                for kept in sieve.filter_batches(portion):
                    cleaned.add_batch(kept)
                cleaned.write()
                yield
        yield from cleaned.close()
        _swap_in(log, bases)
    except BaseException:
        with suppress(DiskError):
            swap.remove_cleaned_files(log.disk, log.folder, bases[0])
        raise
    log.replace_segments(bases)


def _swap_in(log: Log, bases: list[int]) -> None:
    try:
        swap.swap_segments(log.disk, log.folder, bases)
    except DiskError as error:
        if swap.is_swap_begun(log.disk, log.folder, bases[0]):
            log.mark_failed(f"compaction was stopped in the middle: {error}")
        raise


#: From so many bytes on a key is known by a digest of as many.
KEY_DIGEST_SIZE = 16

NO_OFFSET = -1


def digest_key(key: bytes) -> bytes:
    """The key of a record in the offset map: long keys are replaced by a digest."""
    return key if len(key) < KEY_DIGEST_SIZE else blake2b(key, digest_size=KEY_DIGEST_SIZE).digest()


@dataclass(slots=True)
class OffsetMap:
    """The last offset of each key in the part of the log that was read."""

    offsets: dict[bytes, int] = field(default_factory=dict)
    #: The last offset that was looked at.
    latest_offset: int = NO_OFFSET


class CleanedTransactions:
    """Follows the transactions while the log is read in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming_aborted = [(each.first_offset, each.producer_id) for each in aborted]
        heapify(self._upcoming_aborted)
        #: The producers of those that have begun; was a batch of them seen?
        self._aborted: dict[int, bool] = {}
        #: Producers of which a batch was seen that will be, or is, committed.
        self._committed: set[int] = set()

    def on_batch_read(self, head: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction, and can go."""
        self._advance_to(head.last_offset)
        if not head.transactional:
            return False
        producer = head.producer_id
        if producer in self._aborted:
            self._aborted[producer] = True
            return True
        self._committed.add(producer)
        return False

    def on_control_batch_read(self, head: BatchHeader, kind: int) -> bool:
        """Whether a marker can go, because nothing was left of its transaction.

        :param kind: the marker's type; -1 if the batch is empty
        """
        self._advance_to(head.last_offset)
        producer = head.producer_id
        if kind == ControlRecordType.ABORT:
            return not self._aborted.pop(producer, False)
        if kind == ControlRecordType.COMMIT:
            left = producer in self._committed
            self._committed.discard(producer)
            return not left
        return head.record_count == 0

    def _advance_to(self, offset: int) -> None:
        while self._upcoming_aborted and self._upcoming_aborted[0][0] <= offset:
            _, producer = heappop(self._upcoming_aborted)
            self._aborted.setdefault(producer, False)


class RetainedBatch(NamedTuple):
    """What is left of a batch."""

    data: Bytes
    last_offset: int
    #: Its newest timestamp.
    max_timestamp: int


class RecordFilter:
    """Decides what is kept of each batch, in the order of the log."""

    def __init__(
        self,
        newest: OffsetMap,
        transactions: CleanedTransactions,
        *,
        limit: int,
        now: int,
        delete_retention: int,
    ) -> None:
        """:param limit: the offset behind the last batch that will be looked at
        :param delete_retention: ``delete.retention.ms``
        """
        self._offset_map = newest
        self._transactions = transactions
        self._limit = limit
        self._now = now
        self._delete_retention = delete_retention
        #: Of each producer the last offset of its data, and its epoch.
        self._last_of_producer: Mapping[int, tuple[int | None, int]] = {}

    def set_producers(self, producers: ProducerStateManager) -> None:
        """Sets the last batch and the epoch of each producer, as of now."""
        self._last_of_producer = {
            key: (each.batches[-1].last_offset if each.batches else None, each.epoch)
            for key, each in producers
        }

    def filter_batches(self, portion: BatchGroup) -> Iterator[RetainedBatch]:
        """Yields what is kept of some batches; a batch that goes completely yields nothing."""
        for number, head, first, behind in portion:
            data = portion.batches[number].data
            if head.control:
                kept = self._retain_marker(portion, number, data)
            elif self._transactions.on_batch_read(head):
                kept = self._retain_empty_batch(head)
            else:
                rows = self._retained_rows(portion, head, first, behind)
                kept = (
                    self._retain_records(portion, head, rows, data)
                    if rows
                    else self._retain_empty_batch(head)
                )
            if kept is not None:
                yield kept

    def _retained_rows(
        self, portion: BatchGroup, head: BatchHeader, first: int, behind: int
    ) -> list[int]:
        """The rows of the records that stay."""
        upto, last_of, data = (
            self._offset_map.latest_offset,
            self._offset_map.offsets.get,
            portion.data,
        )
        expired = head.delete_horizon is not None and head.delete_horizon <= self._now
        if head.base_offset > upto:
            return list(range(first, behind))
        found = []
        rows = zip(
            range(first, behind),
            portion.offset[first:behind],
            portion.key_start[first:behind],
            portion.key_size[first:behind],
            portion.value_size[first:behind],
            strict=True,
        )
        for row, offset, start, size, value_size in rows:
            if offset <= upto:
                if size < 0 or (expired and value_size < 0):
                    continue
                key = data[start : start + size]
                if offset < last_of(key if size < KEY_DIGEST_SIZE else digest_key(key), NO_OFFSET):
                    continue
            found.append(row)
        return found

    def _retain_records(
        self, portion: BatchGroup, head: BatchHeader, rows: list[int], data: Bytes
    ) -> RetainedBatch:
        horizon = head.delete_horizon
        if horizon is None and any(portion.value_size[row] < 0 for row in rows):
            kept = _select_records(portion, rows)
            return _encode_batch(head, kept, self._now + self._delete_retention)
        if len(rows) == head.record_count:
            return RetainedBatch(data, head.last_offset, head.max_timestamp)
        newest = int(portion.columns.timestamp[rows].max())
        body = _copy_records(portion, rows)
        anew = reencode_batch(head, body, count=len(rows), newest=newest)
        return RetainedBatch(
            anew, head.last_offset, head.max_timestamp if head.append_time else newest
        )

    def _retain_marker(self, portion: BatchGroup, number: int, data: Bytes) -> RetainedBatch | None:
        head = portion.headers[number]
        useless = self._transactions.on_control_batch_read(head, portion.marker[number])
        horizon = head.delete_horizon
        if not head.record_count or (useless and horizon is not None and horizon <= self._now):
            return self._retain_empty_batch(head)
        if useless and horizon is None:
            rows = list(range(portion.first_row[number], portion.first_row[number + 1]))
            return _encode_batch(
                head, _select_records(portion, rows), self._now + self._delete_retention
            )
        return RetainedBatch(data, head.last_offset, head.max_timestamp)

    def _retain_empty_batch(self, head: BatchHeader) -> RetainedBatch | None:
        """A batch of which no record stays."""
        if head.last_offset + 1 == self._limit or self._is_last_of_producer(head):
            return _encode_batch(head, [], None)
        return None

    def _is_last_of_producer(self, head: BatchHeader) -> bool:
        if head.producer_id not in self._last_of_producer:
            return False
        offset, epoch = self._last_of_producer[head.producer_id]
        if offset is None:
            return head.control and head.producer_epoch == epoch
        return head.last_offset == offset


def _copy_records(portion: BatchGroup, rows: list[int]) -> bytes:
    """Some records of a batch, encoded as they were: neighbours are copied together."""
    columns, data = portion.columns, portion.data
    starts, ends = columns.start[rows].tolist(), columns.end[rows].tolist()
    pieces: list[bytes] = []
    run = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[place - 1] + 1:
            pieces.append(encode_varint(ends[run] - starts[run]))
            pieces.append(data[starts[run] : ends[place - 1]])
            run = place
    return b"".join(pieces)


def _select_records(portion: BatchGroup, rows: list[int]) -> list[BatchRecord]:
    """Some records of a batch as values."""
    first, wanted = rows[0], set(rows)
    every = iterate_records(portion.columns, first, rows[-1] + 1)
    return [record for row, record in enumerate(every, start=first) if row in wanted]


def _encode_batch(head: BatchHeader, kept: list[BatchRecord], horizon: int | None) -> RetainedBatch:
    data = encode_batch(
        kept,
        base_offset=head.base_offset,
        last_offset=head.last_offset,
        codec=CompressionType(head.codec),
        append_time=head.max_timestamp if head.append_time else None,
        leader_epoch=head.leader_epoch,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        transactional=head.transactional,
        control=head.control,
        delete_horizon=horizon,
        newest=None if kept else head.max_timestamp,
    )
    newest = max((each.timestamp for each in kept), default=head.max_timestamp)
    return RetainedBatch(data, head.last_offset, head.max_timestamp if head.append_time else newest)


#: Bytes that are read together, unless a batch has more.
GROUP_BYTES = 1 << 17

#: Batches, likewise.
GROUP_BATCHES = 64

#: Bytes that they may have together, decompressed; if they have more, each is read alone.
GROUP_DECOMPRESSED_BYTES = 1 << 23

#: Records, likewise.
GROUP_RECORDS = 1 << 16


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """Some batches of a segment, decoded together, with their records as columns."""

    batches: Sequence[StoredBatch]
    headers: Sequence[BatchHeader]
    columns: RecordColumns
    #: All starts and ends are positions in it.
    data: bytes
    #: Of each batch the row of its first record; then the number of all records.
    first_row: Sequence[int]
    offset: Sequence[int]
    key_start: Sequence[int]
    key_size: Sequence[int]
    value_size: Sequence[int]
    #: Of each batch.
    marker: Sequence[int]

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, int, int]]:
        """Each batch: its number, its head, its first row and the row behind its last."""
        return zip(
            range(len(self.headers)), self.headers, self.first_row, self.first_row[1:], strict=False
        )


def read_batch_groups(segment: LogSegment) -> Iterator[BatchGroup]:
    """Decodes a whole segment, some batches at a time, which is much faster than one by one.

    :raises CorruptBatchError: a batch is corrupt
    :raises FormatError: a batch's records cannot be decoded, or decoding exceeds the budget
    """
    found: list[StoredBatch] = []
    size = 0
    for batch in segment.scan(window=GROUP_BYTES):
        if found and (size + batch.header.size > GROUP_BYTES or len(found) == GROUP_BATCHES):
            yield from _decode_batches(segment, found)
            found, size = [], 0
        found.append(batch)
        size += batch.header.size
    if found:
        yield from _decode_batches(segment, found)


def _decode_batches(segment: LogSegment, batches: list[StoredBatch]) -> Iterator[BatchGroup]:
    """Together if they are as small as they look, else one by one."""
    if len(batches) > 1 and sum(each.header.record_count for each in batches) <= GROUP_RECORDS:
        joined = b"".join([each.data for each in batches])
        columns = decode_batches(
            joined, check=False, most_in_all=GROUP_DECOMPRESSED_BYTES
        )  # whoever scans has checked it
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
    counts = columns.batches.count.cumsum().tolist()
    return BatchGroup(
        batches=batches,
        headers=[each.header for each in batches],
        columns=columns,
        data=columns.buffer.data,
        first_row=[0, *counts],
        offset=columns.offset.tolist(),
        key_start=columns.key_start.tolist(),
        key_size=columns.key_size.tolist(),
        value_size=columns.value_size.tolist(),
        marker=columns.batches.marker.tolist(),
    )
