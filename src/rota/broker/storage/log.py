"""The log of a partition: segments one after another, with append, read, retention and flush.

A batch is stored as its producer sent it, except for its offset and leader epoch (and the time, if
the topic uses LogAppendTime). An append that fails leaves nothing behind: the bytes that it wrote
are cut off again. If even that fails, the log takes no more appends until it is opened again.

Before an append, the batch's header and checksum are checked (Kafka's ``LogValidator``). Records
are decoded only if a compacted topic needs their keys, or a timestamp is out of bounds.

A partition has no files before its first record, so a topic with thousands of partitions is created
at once. Files of deleted segments are removed at once: no one reads them meanwhile, so
``file.delete.delay.ms`` has nothing to wait for. Each file gets the suffix ``.deleted`` first, as a
crash may come in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from rota.broker.storage import checkpoint, index, log_segment, producer_state
from rota.broker.storage.checkpoint import LeaderEpochs
from rota.broker.storage.disk import Disk, Report
from rota.broker.storage.file_records import CorruptBatchError, DecodeBudget, describe_mismatch
from rota.broker.storage.log_segment import LogSegment, SegmentRead
from rota.broker.storage.producer_state import ProducerStateManager
from rota.broker.storage.recovery import LogLoader
from rota.engine.formats import record_batch
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import HEADER, BatchHeader, BatchRecord, encode_batch
from rota.engine.model.config import DAY, TopicConfig
from rota.errors import Code, DiskError, Refused

#: The files that a partition's folder may have before its first record.
EMPTY_PARTITION_FILES = frozenset(
    f"{name}{suffix}"
    for name in (checkpoint.PARTITION_METADATA_FILE, checkpoint.LEADER_EPOCH_FILE)
    for suffix in ("", ".tmp")
)

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """Where an appended batch is in the log; of a duplicate, where the first copy is."""

    base_offset: int
    append_time: int  # the broker's time with LogAppendTime, else -1; duplicate: max timestamp
    log_start_offset: int
    duplicate: bool = False


class Log:
    """The log of one partition. Use :meth:`create` or :meth:`open` to get one."""

    def __init__(  # noqa: PLR0913, the settings of a log
        self,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        *,
        report: Report,
        expiration: int,
        segment_bytes: int | None,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.config = config
        self.report = report
        self.epochs = LeaderEpochs()
        self.producers = ProducerStateManager(expiration)
        #: At least one segment, by offset. The last that begins at or before an offset has it.
        self.segments: list[LogSegment] = []
        self.log_start_offset = 0
        #: All records before this offset are synced.
        self.recovery_point = 0
        #: Why the log takes no more appends.
        self.failed: str | None = None
        #: Why the partition is not served: its folder belongs to another topic.
        self.offline: str | None = None
        self._topic_id_without_files: bytes | None = None
        self._segment_bytes = segment_bytes
        #: The first flush also syncs the folder and its names: a topic may have many partitions.
        self._names_synced = False

    @classmethod
    def create(  # noqa: PLR0913, see above
        cls,
        disk: Disk,
        folder: str,
        topic_id: bytes,
        config: TopicConfig,
        *,
        now: int = 0,
        report: Report = lambda _: None,
        expiration: int = DAY,
        segment_bytes: int | None = None,
        make_files: bool = True,
    ) -> Log:
        """Creates an empty partition.

        :param folder: the topic's name, a minus and the partition's number
        :param segment_bytes: replaces the topic's ``segment.bytes``, which has a minimum
        :param make_files: make folder and files now, not with the first record
        """
        log = cls(
            disk, folder, config, report=report, expiration=expiration, segment_bytes=segment_bytes
        )
        log.segments.append(log.new_segment(0))
        log.segments[0].begin_empty(now)
        log._topic_id_without_files = topic_id
        if make_files:
            log._make_files(now)
        return log

    @classmethod
    def open(  # noqa: PLR0913, see above
        cls,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        *,
        recovery_point: int,
        clean: bool,
        report: Report,
        now: int,
        log_start: int = 0,
        expiration: int = DAY,
        segment_bytes: int | None = None,
    ) -> Log:
        """Opens the log in a folder, and repairs what a crash left; see :mod:`.recovery`.

        :param recovery_point: all records before this offset are synced, says the checkpoint
        :param clean: the broker was shut down cleanly, so nothing needs to be read
        :param log_start: the first offset that is served, says the checkpoint
        """
        log = cls(
            disk, folder, config, report=report, expiration=expiration, segment_bytes=segment_bytes
        )
        log.recovery_point, log.log_start_offset = recovery_point, log_start
        LogLoader(log, now=now, clean_shutdown=clean).load()
        log._names_synced = log.recovery_point > 0
        return log

    @property
    def has_files(self) -> bool:
        return self._topic_id_without_files is None

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record; also the high watermark, as there are no replicas."""
        return self.segments[-1].end_offset

    @property
    def last_stable_offset(self) -> int:
        """No transaction that began before this offset is still open."""
        return max(self.log_start_offset, self.producers.last_stable_offset(self.log_end_offset))

    @property
    def size(self) -> int:
        return sum(each.size for each in self.segments)

    def append(self, batch: Bytes, now: int, budget: DecodeBudget | None = None) -> LogAppendInfo:
        """Appends a producer's batch whole or not at all; raises Refused or DiskError."""
        self._check_writable()
        header = validate_batch(batch, self.config, now, budget or DecodeBudget(len(batch)))
        end = self.segments[-1].end_offset
        if header.producer_id >= 0:
            first = self.producers.check_batch(header)
            if first is not None:
                start = self.log_start_offset
                return LogAppendInfo(first.first_offset, first.timestamp, start, duplicate=True)
        append_time = now if self.config.timestamp_type == "LogAppendTime" else None
        stored, header = assign_offset(batch, header, end, self.epochs.latest, append_time)
        self._append_batch(stored, header, now)
        return LogAppendInfo(end, -1 if append_time is None else now, self.log_start_offset)

    def append_records(self, pairs: Iterable[KeyValue], now: int) -> LogAppendInfo:
        """Appends the broker's own records as one batch; raises Refused or DiskError."""
        self._check_writable()
        end = self.log_end_offset
        records = [BatchRecord(offset, now, *pair) for offset, pair in enumerate(pairs, start=end)]
        batch = encode_batch(records, leader_epoch=self.epochs.latest)
        if len(batch) > self.config.max_message_bytes:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"{self.folder}: a batch of {len(batch)} bytes, max.message.bytes is "
                f"{self.config.max_message_bytes}",
            )
        self._append_batch(batch, BatchHeader._make(HEADER.unpack_from(batch)), now)
        return LogAppendInfo(end, -1, self.log_start_offset)

    def _make_files(self, now: int) -> None:
        """Makes the files; raises Refused if the folder has others. An append tries again."""
        assert self._topic_id_without_files is not None
        names = set(self.disk.list_names(self.folder)) - EMPTY_PARTITION_FILES
        if any(self.disk.size(f"{self.folder}/{name}") for name in names):
            raise Refused(
                Code.KAFKA_STORAGE_ERROR,
                f"the folder {self.folder} is in the way: it already has other files",
            )
        checkpoint.create_partition_folder(self.disk, self.folder, self._topic_id_without_files)
        epochs_path = f"{self.folder}/{checkpoint.LEADER_EPOCH_FILE}"
        self.disk.remove(epochs_path)
        self.disk.append(epochs_path, checkpoint.pack_leader_epochs())
        self.segments[0].create(now)
        self._topic_id_without_files = None

    def _check_writable(self) -> None:
        self.check_online()
        if self.failed is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.folder}: {self.failed}")

    def check_online(self) -> None:
        if self.offline is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.folder}: {self.offline}")

    def _append_batch(self, batch: bytes | bytearray, header: BatchHeader, now: int) -> None:
        if self._topic_id_without_files is not None:
            self._make_files(now)
        segment = self.segments[-1]
        if self._is_full(segment, len(batch), header, now):
            segment = self.roll(now)
        next_offset = header.last_offset + 1
        try:
            self.disk.append(segment.log_path, batch)
            if next_offset - self.recovery_point >= self.config.flush_messages:
                self._sync(segment.log_path)
                self.recovery_point = next_offset
        except DiskError:
            self._undo_append(segment)
            raise
        segment.on_batch_appended(header, now)
        if header.producer_id >= 0:
            self.producers.add_batch(header)
        self.producers.end_offset = next_offset

    def _is_full(self, segment: LogSegment, size: int, header: BatchHeader, now: int) -> bool:
        config = self.config
        max_bytes = self._segment_bytes or config.segment_bytes
        if not segment.has_room(size, header.last_offset, max_bytes, config.segment_index_bytes):
            return segment.size > 0
        # in a compacted topic no record may stay dirty longer (KIP-354)
        lag = config.max_compaction_lag if config.is_compacted else config.segment_ms
        age = segment.time_since_first_batch(header.max_timestamp, now)
        return age > min(config.segment_ms, lag)

    def _sync(self, path: str) -> None:
        """Syncs a file, the first time also the folder and its parent: the other files can be
        rebuilt, so a loss of power may take them. After one failure the log takes no more appends:
        the operating system may have dropped the pages that it could not write, and report success
        the next time.
        """
        try:
            self.disk.sync(path)
            if not self._names_synced:
                self.disk.sync(self.folder)
                self.disk.sync(self.folder.rpartition("/")[0])
                self._names_synced = True
        except DiskError as error:
            self.mark_failed(f"not synced: {error}")
            raise

    def _undo_append(self, segment: LogSegment) -> None:
        try:
            self.disk.truncate(segment.log_path, segment.size)
        except DiskError as error:
            self.mark_failed(f"a failed append could not be undone: {error}")

    def mark_failed(self, reason: str) -> None:
        if self.failed is None:
            self.failed = reason
            self.report(f"{self.folder}: {reason}; the log takes no appends until it is reopened")

    def roll(self, now: int) -> LogSegment:
        """Starts a new segment after a sync of the old one, which stays active on a DiskError."""
        old = self.segments[-1]
        if not old.size:
            return old
        old.save_indexes()
        for path in (old.log_path, old.offset_index.path, old.time_index.path):
            self._sync(path)
        self._save_snapshot(durable=True)
        new = self.new_segment(old.end_offset)
        new.create(now)
        self.disk.sync(self.folder)
        old.close_for_writes()
        self.segments.append(new)
        self.recovery_point = old.end_offset
        return new

    def new_segment(self, base_offset: int) -> LogSegment:
        return LogSegment(
            self.disk,
            self.folder,
            base_offset,
            epochs=self.epochs,
            interval=self.config.index_interval,
            report=self.report,
        )

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, to: int | None = None
    ) -> Bytes:
        """Returns whole batches, from the one that has the offset; each one's checksum is verified.

        :param at_least_one: the first batch may be larger than ``max_bytes``
        :param to: return no batch that begins at or after this offset
        :raises Refused: the offset is outside the log, or its batch is corrupt
        """
        self.check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            served = f"{self.log_start_offset} to {self.log_end_offset}"
            text = f"{self.folder}: offset {offset} is outside {served}"
            raise Refused(Code.OFFSET_OUT_OF_RANGE, text)
        until = self.log_end_offset if to is None else min(to, self.log_end_offset)
        batches: list[Bytes] = []
        row = log_segment.find_row(self.segments, offset)
        while offset < until and row < len(self.segments):
            segment = self.segments[row]
            whole_first = at_least_one and not batches
            segment_read = _read_segment(segment, offset, max_bytes, until, whole_first)
            if segment_read.data:
                batches.append(segment_read.data)
                max_bytes -= len(segment_read.data)
            if segment_read.damage is not None and not batches:
                segment.report_damage(segment_read.damage)
                raise Refused(Code.CORRUPT_MESSAGE, str(segment_read.damage))
            offset = segment_read.next_offset
            if segment_read.damage is not None or offset < segment.end_offset:
                break
            row += 1
        return batches[0] if len(batches) == 1 else b"".join(batches)

    def find_timestamp(
        self, timestamp: int, budget: DecodeBudget | None = None
    ) -> tuple[int, int] | None:
        """Returns offset and timestamp of the first record not older; raises Refused."""
        budget = budget or self.decode_budget()
        for segment in self.segments:
            with _refuse_damage(segment):
                start = self.log_start_offset
                record = log_segment.find_timestamp(segment, timestamp, start, budget)
                if record is not None:
                    return record
        return None

    def find_newest_record(self, budget: DecodeBudget | None = None) -> tuple[int, int] | None:
        """Returns offset and timestamp of the newest record, if any; raises Refused."""
        best, max_timestamp = self.segments[0], -1
        for segment in self.segments:
            with _refuse_damage(segment):
                found, _ = log_segment.find_max_timestamp(segment)
                if found > max_timestamp:
                    best, max_timestamp = segment, found
        with _refuse_damage(best):
            return log_segment.find_newest_record(best, budget or self.decode_budget())

    def decode_budget(self) -> DecodeBudget:
        """Returns a budget that is enough to decode any batch that the topic accepts."""
        return DecodeBudget(self.config.max_message_bytes)

    def aborted_transactions(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns producer ids and first offsets of transactions in ``[first, last)``."""
        transactions: list[tuple[int, int]] = []
        for row in range(log_segment.find_row(self.segments, first), len(self.segments)):
            aborted = producer_state.aborted_transactions(self.segments, row)
            entries = index.select_overlapping(aborted, first, last)
            transactions += [(each.producer_id, each.first_offset) for each in entries]
        return transactions

    def advance_log_start(self, offset: int) -> None:
        """Moves the log start offset forward; raises Refused if the log ends before that offset."""
        if not 0 <= offset <= self.log_end_offset:
            text = f"{self.folder}: offset {offset} is after the log's end {self.log_end_offset}"
            raise Refused(Code.OFFSET_OUT_OF_RANGE, text)
        self.log_start_offset = max(self.log_start_offset, offset)

    def delete_old_segments(self, now: int) -> int:
        """Removes the segments that retention no longer keeps; returns how many."""
        self.producers.remove_expired(now)
        expired = find_expired_segments(self.segments, self.config, self.log_start_offset, now)
        if len(expired) == len(self.segments):
            self.roll(now)
        for segment in expired:
            del self.segments[0]
            self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
            segment.remove()
            self.disk.remove(producer_state.snapshot_path(self.folder, segment.base_offset))
        return len(expired)

    def replace_segments(self, base_offsets: Sequence[int]) -> None:
        """Replaces adjacent segments by the compacted one, whose files are those of the first."""
        new = self.new_segment(base_offsets[0])
        row = log_segment.find_row(self.segments, base_offsets[0])
        assert self.segments[row].base_offset == base_offsets[0], "the first segment is gone"
        end = row + len(base_offsets)
        new.size = self.disk.size(new.log_path) or 0
        new.end_offset = self.segments[end].base_offset
        new.created_at = self.segments[row].created_at
        new.last_written_at = self.segments[end - 1].last_written_at
        self.segments[row:end] = [new]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Returns the largest leader epoch up to this one, and its end offset."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def flush(self) -> None:
        """Syncs all appended batches; after a DiskError a loss of power may take them."""
        end = self.log_end_offset
        if self.recovery_point < end:
            self._sync(self.segments[-1].log_path)
            self.recovery_point = end

    def paths_to_sync(self) -> list[str]:
        """The paths to sync, beside the parent folder, before :meth:`on_paths_synced`."""
        if self.failed is not None or self.recovery_point >= self.log_end_offset:
            return []
        return [self.segments[-1].log_path, *([] if self._names_synced else [self.folder])]

    def on_paths_synced(self, problems: Sequence[DiskError] = ()) -> None:
        """Records that the :meth:`paths_to_sync` and the parent folder were synced, or why not."""
        if problems:
            self.mark_failed(f"not synced: {problems[0]}")
            return
        self.recovery_point = self.log_end_offset
        self._names_synced = True

    def close(self) -> None:
        """Flushes, and saves indexes and producer state, so that opening needs no scan."""
        if self.failed is not None:
            return
        self.flush()
        self.segments[-1].save_indexes()
        self._save_snapshot(durable=False)  # without it, the next start reads the log

    def _save_snapshot(self, *, durable: bool) -> None:
        end = self.producers.end_offset
        if end and end not in producer_state.list_snapshot_offsets(self.disk, self.folder):
            producer_state.save_snapshot(self.disk, self.folder, self.producers, durable=durable)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _read_segment(
    segment: LogSegment, offset: int, max_bytes: int, until: int, at_least_one: bool
) -> SegmentRead:
    try:
        place = log_segment.find_offset(segment, offset)
    except CorruptBatchError as damage:
        return SegmentRead(b"", offset, damage)
    if place is None:  # compaction removed all batches from this offset on
        return SegmentRead(b"", segment.end_offset, None)
    return segment.read(place, max_bytes, min(until, segment.end_offset), at_least_one=at_least_one)


@contextmanager
def _refuse_damage(segment: LogSegment) -> Iterator[None]:
    try:
        yield
    except CorruptBatchError as damage:
        segment.report_damage(damage)
        raise Refused(Code.CORRUPT_MESSAGE, str(damage)) from None


def find_expired_segments(
    segments: list[LogSegment], config: TopicConfig, log_start: int, now: int
) -> list[LogSegment]:
    """Returns the segments to delete, oldest first; an empty active segment stays."""
    to_delete: list[LogSegment] = []
    excess = sum(each.size for each in segments) - config.retention_bytes
    for row, segment in enumerate(segments):
        active = row == len(segments) - 1
        if active and not segment.size:
            break
        expired = not active and segment.end_offset <= log_start
        if not expired and config.deletes_old_segments:
            too_large = config.retention_bytes >= 0 and excess >= segment.size
            expired = too_large or _is_too_old(segment, config, now)
        if not expired:
            break
        excess -= segment.size
        to_delete.append(segment)
    return to_delete


def _is_too_old(segment: LogSegment, config: TopicConfig, now: int) -> bool:
    if config.retention < 0:
        return False
    try:
        timestamp, _ = log_segment.find_max_timestamp(segment)
    except CorruptBatchError as damage:  # its age is unknown
        segment.report_damage(damage)
        return False
    return now - (timestamp if timestamp >= 0 else segment.last_written_at) > config.retention


KNOWN_CODECS = frozenset(record_batch.CompressionType)
MAX_RECORD_ERRORS = 1_000


def validate_batch(
    batch: Bytes, config: TopicConfig, now: int, budget: DecodeBudget
) -> BatchHeader:
    """Returns the header of a producer's batch; raises Refused if the topic does not accept it."""
    if len(batch) < HEADER.size:
        raise Refused(
            Code.CORRUPT_MESSAGE,
            f"{len(batch)} bytes are too few, a batch has {HEADER.size}",
        )
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if header.magic != record_batch.MAGIC:
        raise Refused(Code.INVALID_RECORD, record_batch.describe_magic(header.magic))
    _check_size(header, len(batch), config)
    computed = record_batch.load_crc32c()(memoryview(batch)[record_batch.ATTRIBUTES_OFFSET :])
    if computed != header.checksum:
        raise Refused(Code.CORRUPT_MESSAGE, describe_mismatch(header, computed))
    _check_header(header, len(batch))
    _check_timestamps(batch, header, config, now, budget)
    if config.is_compacted:
        _check_keys(batch, header, budget)
    return header


def assign_offset(
    batch: Bytes, header: BatchHeader, offset: int, epoch: int, append_time: int | None
) -> tuple[bytearray, BatchHeader]:
    """Returns the batch as it is stored: with offset and epoch; with LogAppendTime the time."""
    header = header._replace(base_offset=offset, leader_epoch=epoch)
    stored = bytearray(batch)
    if append_time is None:
        HEADER.pack_into(stored, 0, *header)
        return stored, header
    attributes = header.attributes | record_batch.TIMESTAMP_TYPE_MASK
    header = header._replace(attributes=attributes, max_timestamp=append_time)
    HEADER.pack_into(stored, 0, *header)
    header = header._replace(
        checksum=record_batch.load_crc32c()(memoryview(stored)[record_batch.ATTRIBUTES_OFFSET :])
    )
    record_batch.CRC_FIELD.pack_into(stored, record_batch.CRC_OFFSET, header.checksum)
    return stored, header


def _check_size(header: BatchHeader, size: int, config: TopicConfig) -> None:
    if header.size > size:
        raise Refused(Code.CORRUPT_MESSAGE, f"the batch is cut: {size} bytes of {header.size}")
    if header.size < size:
        raise Refused(Code.INVALID_RECORD, f"the batch has {header.size} bytes of {size} sent")
    if size > config.max_message_bytes:
        raise Refused(
            Code.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise Refused(
            Code.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes, segment.bytes is {config.segment_bytes}",
        )


def _check_header(header: BatchHeader, size: int) -> None:
    codec = header.attributes & record_batch.COMPRESSION_CODEC_MASK
    problem = None
    if codec not in KNOWN_CODECS:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is unknown")
    if header.base_offset:
        problem = f"base offset {header.base_offset}, but a producer sends 0"
    elif header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        problem = f"{header.record_count} records, but offsets 0 to {header.last_offset_delta}"
    elif (
        codec == record_batch.CompressionType.NONE
        and header.record_count * record_batch.SMALLEST_RECORD > size - HEADER.size
    ):
        problem = f"{header.record_count} records in {size - HEADER.size} bytes"
    elif header.attributes & record_batch.CONTROL_FLAG_MASK:
        problem = "a client may not write control records"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        problem = f"producer {header.producer_id} without a sequence"
    if problem is not None:
        raise Refused(Code.INVALID_RECORD, problem)


def _check_timestamps(
    batch: Bytes,
    header: BatchHeader,
    config: TopicConfig,
    now: int,
    budget: DecodeBudget,
) -> None:
    if header.attributes & record_batch.TIMESTAMP_TYPE_MASK:
        raise Refused(Code.INVALID_TIMESTAMP, "a producer may not set LogAppendTime")
    if config.timestamp_type == "LogAppendTime":
        return
    earliest, latest = now - config.timestamp_before_max, now + config.timestamp_after_max
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != -1 and not earliest <= timestamp <= latest:
            timestamps = budget.decode_batch(batch, header).timestamp
            outside = (timestamps < earliest) | (timestamps > latest)
            rows = ((timestamps != -1) & outside).nonzero()[0]
            problem = f"is not between {earliest} and {latest}"
            raise Refused(
                Code.INVALID_TIMESTAMP,
                f"timestamp {timestamp} {problem}",
                records=tuple(
                    (row, f"timestamp {timestamps[row]} {problem}")
                    for row in rows[:MAX_RECORD_ERRORS].tolist()
                ),
            )


def _check_keys(batch: Bytes, header: BatchHeader, budget: DecodeBudget) -> None:
    columns = budget.decode_batch(batch, header)
    if columns.problems:
        raise Refused(Code.CORRUPT_MESSAGE, columns.problems[0].text)
    rows = (columns.key_size < 0).nonzero()[0][:MAX_RECORD_ERRORS].tolist()
    if rows:
        raise Refused(
            Code.INVALID_RECORD,
            f"record {rows[0]} has no key, but a compacted topic needs one",
            records=tuple((row, "no key") for row in rows),
        )
