"""The state of a partition's producers: epochs, sequences, transactions.

A producer with an id numbers the records that it sends to a partition. The log appends a batch
whose numbers follow those of the batch before. For a batch that it already has (a retry after a
lost response) it returns the offsets of that batch. It refuses all others: no record is stored
twice, and none is left out. The last five batches are remembered, as many as a client may have in
flight.

All of this can be replayed from the log. A snapshot, ``{offset:020}.snapshot``, only saves time. It
is Kafka's version 1: version (int16), checksum (uint32, CRC-32C of all that follows), count
(int32), and for each producer, of its last batch: id (int64), epoch (int16), last sequence (int32),
last offset (int64), offset delta (int32), timestamp (int64), coordinator epoch (int32), first
offset of the open transaction (int64). A field without a value is -1 (the offset delta: 0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.broker.storage.checkpoint import read_file
from rota.broker.storage.disk import Disk, Report
from rota.broker.storage.file_records import CorruptBatchError, StoredBatch
from rota.broker.storage.index import AbortedTransaction
from rota.broker.storage.log_segment import LogSegment, segment_path
from rota.engine.formats import record_batch
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch_columns import decode_batches
from rota.engine.model.config import DAY, MAX_INT
from rota.errors import Code, DiskError, FormatError, Refused

BATCHES_TO_RETAIN = 5  # largest ``max.in.flight.requests.per.connection`` with idempotence
NO_EPOCH = NO_SEQUENCE = NO_TIMESTAMP = -1


class BatchMetadata(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class EndTransactionMarker(NamedTuple):
    kind: int  # A :class:`~rota.engine.formats.record_batch.ControlRecordType`
    coordinator_epoch: int
    timestamp: int


@dataclass(slots=True, kw_only=True)
class ProducerStateEntry:
    epoch: int = NO_EPOCH
    timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    open_transaction_offset: int | None = None
    batches: list[BatchMetadata] = field(default_factory=list)


class ProducerStateManager:
    def __init__(self, expiration: int = DAY) -> None:
        """:param expiration: ``producer.id.expiration.ms``."""
        #: All batches before this offset were added.
        self.end_offset = 0
        self.expiration = expiration
        self._entries: dict[int, ProducerStateEntry] = {}
        #: Producer ids of open transactions by their first offsets, ascending.
        self._open_transactions: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        return iter(sorted(self._entries.items()))

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._entries.get(producer_id)

    def put(self, producer_id: int, producer: ProducerStateEntry) -> None:
        self._entries[producer_id] = producer
        if producer.open_transaction_offset is not None:
            self._open_transactions[producer.open_transaction_offset] = producer_id
            self._open_transactions = dict(sorted(self._open_transactions.items()))

    def check_batch(self, header: record_batch.BatchHeader) -> BatchMetadata | None:
        """Returns the first copy of a duplicate batch; raises Refused for a wrong batch."""
        producer = self._entries.get(header.producer_id)
        if producer is None:
            # All it wrote was deleted or has expired, or it is new: any sequence may come first.
            if header.transactional:
                raise _refused(header, Code.INVALID_TXN_STATE, TRANSACTION_NOT_OPEN)
            return None
        epoch = header.producer_epoch
        if epoch == producer.epoch:
            first, last = header.base_sequence, _last_sequence(header)
            for earlier in producer.batches:
                if earlier.first_sequence == first and earlier.last_sequence == last:
                    return earlier
        elif epoch < producer.epoch:
            text = f"epoch {epoch} is over, the current one is {producer.epoch}"
            raise _refused(header, Code.INVALID_PRODUCER_EPOCH, text)
        if header.transactional and (
            producer.open_transaction_offset is None or epoch != producer.epoch
        ):
            raise _refused(header, Code.INVALID_TXN_STATE, TRANSACTION_NOT_OPEN)
        _check_sequence(header, producer)
        if producer.open_transaction_offset is not None and not header.transactional:
            since = f"which is open since offset {producer.open_transaction_offset}"
            text = f"a batch outside its transaction, {since}"
            raise _refused(header, Code.INVALID_TXN_STATE, text)
        return None

    def add_batch(
        self, header: record_batch.BatchHeader, end: EndTransactionMarker | None = None
    ) -> AbortedTransaction | None:
        """Adds a batch of the log, unchecked; returns the transaction that it aborted."""
        if header.control:  # compaction may have removed the marker
            return self._end_transaction(header, end) if end else None
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._entries.get(producer_id)
        if producer is None:
            producer = self._entries[producer_id] = ProducerStateEntry(epoch=epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        elif len(producer.batches) == BATCHES_TO_RETAIN:
            del producer.batches[0]
        first, last = header.base_offset, header.last_offset
        producer.timestamp = header.max_timestamp
        producer.batches.append(
            BatchMetadata(
                header.base_sequence, _last_sequence(header), first, last, header.max_timestamp
            )
        )
        if header.transactional and producer.open_transaction_offset is None:
            producer.open_transaction_offset = first
            self._open_transactions[first] = producer_id
        return None

    def _end_transaction(
        self, header: record_batch.BatchHeader, end: EndTransactionMarker
    ) -> AbortedTransaction | None:
        producer = self._entries.setdefault(header.producer_id, ProducerStateEntry())
        first, last = producer.open_transaction_offset, header.base_offset
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = end.coordinator_epoch
        producer.timestamp = end.timestamp
        producer.open_transaction_offset = None
        if first is None:  # a transaction without records does not hold back the stable offset
            return None
        self._open_transactions.pop(first, None)
        if end.kind != record_batch.ControlRecordType.ABORT:
            return None
        return AbortedTransaction(
            header.producer_id, first, last, self.last_stable_offset(last + 1)
        )

    def last_stable_offset(self, end: int) -> int:
        """Returns the offset before which all transactions have ended, of a log with this end."""
        return min(next(iter(self._open_transactions), end), end)

    def remove_expired(self, now: int) -> None:
        """Removes the producers that have expired and have no open transaction."""
        limit = now - self.expiration
        expired = [key for key, each in self._entries.items() if each.timestamp <= limit]
        for key in expired:
            if self._entries[key].open_transaction_offset is None:
                del self._entries[key]


def read_marker(batch: Bytes) -> EndTransactionMarker | None:
    """Returns None if the batch has no marker; raises FormatError if the marker cannot be read."""
    columns = decode_batches(batch, check=False)
    if columns.problems:
        raise FormatError(f"control batch: {columns.problems[0].text}")
    if not len(columns) or columns.batches.marker[0] not in set(record_batch.ControlRecordType):
        return None
    value = columns.value(0) or b""
    if len(value) < record_batch.MARKER_VALUE.size:
        raise FormatError(f"control batch: {len(value)} bytes are too few for a marker")
    _, epoch = record_batch.MARKER_VALUE.unpack_from(value)
    return EndTransactionMarker(int(columns.batches.marker[0]), epoch, int(columns.timestamp[0]))


def _check_sequence(header: record_batch.BatchHeader, producer: ProducerStateEntry) -> None:
    first = header.base_sequence
    last = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
    text = None
    if producer.epoch != header.producer_epoch:
        if first and producer.epoch != NO_EPOCH:
            text = f"epoch {header.producer_epoch} begins with sequence {first}, not 0"
    elif first != last + 1 and not (first == 0 and last == MAX_INT):
        text = f"sequence {first} after {last}"
    if text is not None:
        raise _refused(header, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def _last_sequence(header: record_batch.BatchHeader) -> int:
    """The sequence of the last record; the highest number is followed by 0."""
    first = header.base_sequence
    return first if first == NO_SEQUENCE else (first + header.last_offset_delta) & MAX_INT


TRANSACTION_NOT_OPEN = "a batch of a transaction that is not open"


def _refused(header: record_batch.BatchHeader, code: Code, text: str) -> Refused:
    return Refused(code, f"producer {header.producer_id}: {text}")


SNAPSHOT_VERSION = 1
SNAPSHOT_HEADER = struct.Struct(">hI")
SNAPSHOT_COUNT = struct.Struct(">i")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
SNAPSHOT_SUFFIX = ".snapshot"


def pack_snapshot(producers: ProducerStateManager) -> bytes:
    entries = [SNAPSHOT_COUNT.pack(len(producers))]
    for producer_id, each in producers:
        sequence, offset, delta = NO_SEQUENCE, -1, 0
        if each.batches:
            last = each.batches[-1]
            sequence, offset = last.last_sequence, last.last_offset
            delta = offset - last.first_offset
        open_at = -1 if each.open_transaction_offset is None else each.open_transaction_offset
        fields = (sequence, offset, delta, each.timestamp, each.coordinator_epoch, open_at)
        entries.append(SNAPSHOT_ENTRY.pack(producer_id, each.epoch, *fields))
    body = b"".join(entries)
    return SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, record_batch.compute_crc32c(body)) + body


def unpack_snapshot(data: Bytes, expiration: int = DAY) -> ProducerStateManager:
    """:raises FormatError: the content is damaged, or of another version"""
    if len(data) < SNAPSHOT_HEADER.size + SNAPSHOT_COUNT.size:
        raise FormatError(f"{len(data)} bytes are too few for a snapshot")
    version, stored = SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise FormatError(f"version {version}, expected {SNAPSHOT_VERSION}")
    body = memoryview(data)[SNAPSHOT_HEADER.size :]
    computed = record_batch.compute_crc32c(body)
    if computed != stored:
        raise FormatError(f"checksum {computed:08x}, but its header has {stored:08x}")
    (count,) = SNAPSHOT_COUNT.unpack_from(body)
    entries = body[SNAPSHOT_COUNT.size :]
    if count < 0 or len(entries) != count * SNAPSHOT_ENTRY.size:
        raise FormatError(f"{count} producers in {len(entries)} bytes")
    producers = ProducerStateManager(expiration)
    for entry in SNAPSHOT_ENTRY.iter_unpack(entries):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, open_at = entry
        producer = ProducerStateEntry(
            epoch=epoch,
            timestamp=timestamp,
            coordinator_epoch=coordinator_epoch,
            open_transaction_offset=open_at if open_at >= 0 else None,
        )
        if offset >= 0:
            first = sequence if sequence == NO_SEQUENCE else (sequence - delta) & MAX_INT
            producer.batches.append(
                BatchMetadata(first, sequence, offset - delta, offset, timestamp)
            )
        producers.put(producer_id, producer)
    return producers


def save_snapshot(
    disk: Disk, folder: str, producers: ProducerStateManager, *, durable: bool = True
) -> None:
    """Writes a snapshot of the current state; a durable one survives a loss of power."""
    path = snapshot_path(folder, producers.end_offset)
    if durable:
        disk.replace(path, pack_snapshot(producers))
        return
    disk.remove(f"{path}.tmp")
    disk.append(f"{path}.tmp", pack_snapshot(producers))
    disk.rename(f"{path}.tmp", path)


def load_snapshot(  # noqa: PLR0913, bounds of the search
    disk: Disk,
    folder: str,
    *,
    start: int,
    end: int,
    now: int,
    report: Report,
    expiration: int = DAY,
) -> ProducerStateManager:
    """Loads the newest valid snapshot, or an empty state that begins at the log's start. Other
    snapshots are removed; damage is reported. Batches from the returned state's end offset on must
    still be replayed.
    """
    for offset in sorted(list_snapshot_offsets(disk, folder), reverse=True):
        path = snapshot_path(folder, offset)
        if start < offset <= end:
            try:
                producers = unpack_snapshot(read_file(disk, path) or b"", expiration)
            except (FormatError, DiskError) as error:
                problem = str(error).removeprefix(f"{path}: ")
                report(f"{path}: {problem}; the producers are read from the log instead")
            else:
                producers.end_offset = offset
                producers.remove_expired(now)
                return producers
        disk.remove(path)
    empty = ProducerStateManager(expiration)
    empty.end_offset = start
    return empty


def list_snapshot_offsets(disk: Disk, folder: str) -> list[int]:
    offsets = []
    for name in disk.list_names(folder):
        stem, dot, suffix = name.partition(".")
        if dot + suffix == SNAPSHOT_SUFFIX:
            with suppress(ValueError):
                offsets.append(int(stem))
    return offsets


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020}{SNAPSHOT_SUFFIX}"


def replay_batch(
    producers: ProducerStateManager, batch: StoredBatch, report: Report
) -> AbortedTransaction | None:
    """Updates the state with a batch of the log; returns the transaction that it aborted."""
    header = batch.header
    producers.end_offset = header.last_offset + 1
    if header.producer_id < 0:
        return None
    marker = None
    if header.control:
        try:
            marker = read_marker(batch.data)
        except FormatError as error:
            report(f"offset {header.base_offset}: {error}; the marker is skipped")
    return producers.add_batch(header, marker)


def aborted_transactions(segments: Sequence[LogSegment], row: int) -> list[AbortedTransaction]:
    """Returns the transactions that were aborted in a segment. The transaction index has no
    checksum, and with a wrong entry aborted records would be consumed. So if there is an index, the
    log is read once, and a wrong index is rewritten.
    """
    segment = segments[row]
    if segment.aborted is None:
        path = segment_path(segment.folder, segment.base_offset, "txnindex")
        size = segment.disk.size(path)
        segment.aborted = _read_aborted_transactions(segments, row) if size else []
        if size:
            content = b"".join(each.pack() for each in segment.aborted)
            if content != segment.disk.read(path, 0, size):
                segment.report(f"{path}: it does not match the log; rewritten")
                segment.disk.replace(path, content)
    return segment.aborted


def _read_aborted_transactions(
    segments: Sequence[LogSegment], row: int
) -> list[AbortedTransaction]:
    """Replays from the snapshot at the segment's base offset on, or else from the log's start."""
    disk, path = segments[row].disk, snapshot_path(segments[row].folder, segments[row].base_offset)
    first, producers = 0, ProducerStateManager()
    if snapshot := read_file(disk, path):
        with suppress(FormatError):
            producers, first = unpack_snapshot(snapshot), row
    found: list[AbortedTransaction] = []
    for segment in segments[first : row + 1]:
        found.clear()
        try:
            for batch in segment.scan():
                ended = replay_batch(producers, batch, segment.report)
                if ended is not None:
                    found.append(ended)
        except CorruptBatchError as damage:
            segment.report_damage(damage)
    return found
