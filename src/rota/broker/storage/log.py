"""The log of a partition: segments one after another, with append, read, retention and flush.

A batch is stored as its producer sent it, except for its offset and leader epoch (and the time, if
the topic uses LogAppendTime). An append that fails leaves nothing behind: the bytes that it wrote
are cut off again. If even that fails, the log takes no more appends until it is opened again.

A partition has no files before its first record, so a topic with thousands of partitions is created
at once. Files of deleted segments are removed at once: no one reads them meanwhile, so
``file.delete.delay.ms`` has nothing to wait for. Each file gets the suffix ``.deleted`` first, as a
crash may come in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias

from rota.broker.storage import checkpoint, index, log_segment, producer_state, recovery, validation
from rota.broker.storage.checkpoint import LeaderEpochs
from rota.broker.storage.disk import Disk
from rota.broker.storage.file_records import CorruptBatchError, DecodeBudget
from rota.broker.storage.log_segment import LogSegment, SegmentRead
from rota.broker.storage.producer_state import ProducerStateManager
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import HEADER, BatchHeader, BatchRecord, encode_batch
from rota.engine.model.config import DAY, TopicConfig
from rota.errors import Code, DiskError, Refused

#: What a partition's folder may have before its first record.
EMPTY_PARTITION_FILES = frozenset(
    {
        checkpoint.PARTITION_METADATA_FILE,
        checkpoint.LEADER_EPOCH_FILE,
        f"{checkpoint.PARTITION_METADATA_FILE}.tmp",
        f"{checkpoint.LEADER_EPOCH_FILE}.tmp",
    }
)

#: A record's key and value.
KeyValue: TypeAlias = tuple[bytes | None, bytes | None]

Report: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The result of an append: where the batch is now, or was already."""

    base_offset: int
    #: The broker's time, where that is what counts, else -1; of a duplicate its newest record's.
    append_time: int
    log_start_offset: int
    duplicate: bool = False


class Log:
    """The log of one partition, made by one of the class methods."""

    def __init__(  # noqa: PLR0913, what a folder holds
        self,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        *,
        segments: list[LogSegment],
        epochs: LeaderEpochs,
        producers: ProducerStateManager,
        start: int,
        recovery_point: int,
        report: Report,
        segment_bytes: int | None = None,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.config = config
        self.epochs = epochs
        self.producers = producers
        #: The first offset that is served.
        self.log_start_offset = start
        #: All before this offset outlives a loss of power.
        self.recovery_point = recovery_point
        #: Why nothing more is taken.
        self.failed: str | None = None
        #: Why nothing is served: its folder is not this partition's.
        self.offline: str | None = None
        self.report = report
        #: The topic's id, while the files are not there.
        self._topic_id_without_files: bytes | None = None
        self._segment_bytes = segment_bytes
        self._log_segments = LogSegments(segments)
        #: When the first record was appended that is not flushed.
        self._unflushed_since: int | None = None
        #: The folder and its names are durable: only by the first flush, as a topic may have many
        #: partitions.
        self._names_synced = recovery_point > 0

    @classmethod
    def create(  # noqa: PLR0913, as above
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
    ) -> Log:
        """Creates a partition with its folder and an empty first segment.

        The parameters are those of :meth:`create_without_files`.
        """
        log = cls.create_without_files(
            disk,
            folder,
            topic_id,
            config,
            now=now,
            report=report,
            expiration=expiration,
            segment_bytes=segment_bytes,
        )
        log._make_files(now)
        return log

    @classmethod
    def create_without_files(  # noqa: PLR0913, as above
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
    ) -> Log:
        """Creates a partition whose files are made with the first record.

        :param folder: its name is the topic's name, a minus and the partition's number
        :param segment_bytes: replaces the topic's ``segment.bytes``, which has a minimum
        """
        epochs = LeaderEpochs()
        first = LogSegment(
            disk, folder, 0, epochs=epochs, interval=config.index_interval, report=report
        )
        first.begin_empty(now)
        log = cls(
            disk,
            folder,
            config,
            segments=[first],
            epochs=epochs,
            producers=ProducerStateManager(expiration),
            start=0,
            recovery_point=0,
            report=report,
            segment_bytes=segment_bytes,
        )
        log._topic_id_without_files = topic_id
        return log

    @classmethod
    def open(  # noqa: PLR0913, as above
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

        :param recovery_point: all before this offset was flushed, according to the checkpoint
        :param clean: the broker was shut down cleanly, so nothing needs to be read
        :param log_start: the first offset that is served, according to the checkpoint
        :raises DiskError: the operating system refused
        """
        found = recovery.load_log(
            disk,
            folder,
            recovery.LoadOptions(
                recovery_point=recovery_point,
                clean_shutdown=clean,
                log_start_offset=log_start,
                now=now,
                index_interval=config.index_interval,
                compacted=config.is_compacted,
                producer_expiration=expiration,
            ),
            report,
        )
        return cls(
            disk,
            folder,
            config,
            segments=found.segments,
            epochs=found.epochs,
            producers=found.producers,
            start=found.log_start_offset,
            recovery_point=found.recovery_point,
            report=report,
            segment_bytes=segment_bytes,
        )

    @property
    def has_files(self) -> bool:
        """Whether the partition's files exist."""
        return self._topic_id_without_files is None

    @property
    def segments(self) -> list[LogSegment]:
        """At least one segment; the last one is the active segment."""
        return self._log_segments.segments

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record; also the high watermark, as there are no replicas."""
        return self.segments[-1].end_offset

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: no transaction that began before it is still open."""
        return max(self.log_start_offset, self.producers.last_stable_offset(self.log_end_offset))

    @property
    def size(self) -> int:
        """Size of all batches in bytes."""
        return sum(each.size for each in self.segments)

    def append(
        self, batch: Bytes, now: int, allowance: DecodeBudget | None = None
    ) -> LogAppendInfo:
        """Appends one batch as a producer sent it.

        :param allowance: budget for decoding its records; by default that of the batch alone
        :raises Refused: the topic does not accept the batch, or the producer should not send it now
        :raises DiskError: it could not be written; nothing of it is in the log
        """
        self._check_writable()
        head = validation.validate_batch(
            batch, self.config, now, allowance or DecodeBudget(len(batch))
        )
        end = self.segments[-1].end_offset
        by_append_time = self.config.timestamp_type == "LogAppendTime"
        if head.producer_id >= 0:
            known = self.producers.check_batch(head._replace(base_offset=end))
            if known is not None:
                return LogAppendInfo(
                    known.first_offset, known.timestamp, self.log_start_offset, True
                )
        append_time = now if by_append_time else None
        stored, head = validation.assign_offset(batch, head, end, self.epochs.latest, append_time)
        self._append_batch(stored, head, now)
        return LogAppendInfo(end, -1 if append_time is None else now, self.log_start_offset)

    def append_records(self, pairs: Iterable[KeyValue], now: int) -> LogAppendInfo:
        """Appends the broker's own records as one batch.

        :raises Refused: the batch is larger than the topic allows
        :raises DiskError: it could not be written; nothing of it is in the log
        """
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
        """Makes the folder and its files.

        :raises Refused: the folder has files that an empty partition does not have
        :raises DiskError: the operating system refused; the next append tries again
        """
        if self._topic_id_without_files is None:
            return
        there = self.disk.list_names(self.folder)
        if any(
            self.disk.size(f"{self.folder}/{name}")
            for name in there
            if name not in EMPTY_PARTITION_FILES
        ):
            raise Refused(
                Code.KAFKA_STORAGE_ERROR,
                f"the folder {self.folder} is in the way: it has files of its own",
            )
        checkpoint.create_partition_folder(self.disk, self.folder, self._topic_id_without_files)
        self.disk.remove(f"{self.folder}/{checkpoint.LEADER_EPOCH_FILE}")
        self.disk.append(
            f"{self.folder}/{checkpoint.LEADER_EPOCH_FILE}", checkpoint.pack_leader_epochs()
        )
        self.segments[0].create(now)
        self._topic_id_without_files = None

    def _check_writable(self) -> None:
        self.check_online()
        if self.failed is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.folder}: {self.failed}")

    def check_online(self) -> None:
        """Raises Refused if the partition is offline."""
        if self.offline is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.folder}: {self.offline}")

    def _append_batch(self, batch: bytes | bytearray, head: BatchHeader, now: int) -> None:
        if self._topic_id_without_files is not None:
            self._make_files(now)
        segment = self.segments[-1]
        if self._is_full(segment, len(batch), head, now):
            segment = self.roll(now)
        next_offset = head.last_offset + 1
        try:
            self.disk.append(segment.log_path, batch)
            if next_offset - self.recovery_point >= self.config.flush_messages:
                self._sync(segment.log_path)
                self.recovery_point = next_offset
        except DiskError:
            self._undo_append(segment)
            raise
        segment.on_batch_appended(head, now)
        if head.producer_id >= 0:
            self.producers.add_batch(head)
        self.producers.end_offset = next_offset
        if self._unflushed_since is None and self.recovery_point < next_offset:
            self._unflushed_since = now

    def _is_full(self, segment: LogSegment, size: int, head: BatchHeader, now: int) -> bool:
        config = self.config
        most = self._segment_bytes or config.segment_bytes
        if not segment.has_room(size, head.last_offset, most, config.segment_index_bytes):
            return segment.size > 0
        # of a compacted topic nothing may stay dirty longer (KIP-354)
        lag = config.max_compaction_lag if config.is_compacted else config.segment_ms
        return segment.time_since_first_batch(head.max_timestamp, now) > min(config.segment_ms, lag)

    def _sync(self, name: str) -> None:
        """Syncs a file. After one failure the log takes no more appends.

        The operating system may have dropped the pages that it could not write, and report success
        the next time.
        """
        try:
            self.disk.sync(name)
            if not self._names_synced:
                self._sync_names()
        except DiskError as error:
            self.mark_failed(f"not synced: {error}")
            raise

    def _sync_names(self) -> None:
        """Syncs the folder and its parent.

        The other files can be rebuilt, so a loss of power may take them.
        """
        self.disk.sync(self.folder)
        self.disk.sync(self.folder.rpartition("/")[0])
        self._names_synced = True

    def _undo_append(self, segment: LogSegment) -> None:
        """Removes the bytes that a failed append left in the file."""
        try:
            self.disk.truncate(segment.log_path, segment.size)
        except DiskError as error:
            self.mark_failed(f"a failed append could not be taken back: {error}")

    def mark_failed(self, reason: str) -> None:
        """Refuses all appends from now on."""
        if self.failed is None:
            self.failed = reason
            self.report(f"{self.folder}: {reason}; it takes nothing more until it is opened anew")

    def roll(self, now: int) -> LogSegment:
        """Starts a new segment, and syncs the old one.

        :raises DiskError: it could not; the old segment stays active
        """
        old = self.segments[-1]
        if not old.size:
            return old
        old.save_indexes()
        for name in (old.log_path, old.offset_index.path, old.time_index.path):
            self._sync(name)
        self._save_snapshot(durable=True)
        new = self._make_segment(old.end_offset)
        new.create(now)
        self.disk.sync(self.folder)
        old.close_for_writes()
        self._log_segments.add(new)
        self.recovery_point = old.end_offset
        self._unflushed_since = None
        return new

    def _make_segment(self, base_offset: int) -> LogSegment:
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
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.folder}: offset {offset} is outside {self.log_start_offset} to "
                f"{self.log_end_offset}",
            )
        until = self.log_end_offset if to is None else min(to, self.log_end_offset)
        return self._log_segments.read(offset, until, max_bytes, at_least_one=at_least_one)

    def find_timestamp(
        self, timestamp: int, allowance: DecodeBudget | None = None
    ) -> tuple[int, int] | None:
        """Returns offset and timestamp of the first record not older; None if all are older.

        :param allowance: budget for decoding; by default that of a batch of the largest size
        :raises Refused: a batch that must be read is corrupt, or decoding exceeds the budget
        """
        return self._log_segments.find_timestamp(
            timestamp, self.log_start_offset, allowance or self.decode_budget()
        )

    def find_newest_record(self, allowance: DecodeBudget | None = None) -> tuple[int, int] | None:
        """Returns offset and timestamp of the first record with the newest timestamp, if any.

        :param allowance: budget for decoding; by default that of a batch of the largest size
        :raises Refused: a batch that must be read is corrupt, or decoding exceeds the budget
        """
        return self._log_segments.find_newest_record(allowance or self.decode_budget())

    def decode_budget(self) -> DecodeBudget:
        """Returns a budget that is enough to decode any batch that the topic accepts."""
        return DecodeBudget(self.config.max_message_bytes)

    def aborted_transactions(self, first: int, last: int) -> list[tuple[int, int]]:
        """Finds the aborted transactions with records in ``[first, last)``.

        :return: their producer ids and first offsets, in the order in which they ended
        """
        return self._log_segments.aborted_transactions(first, last)

    def advance_log_start(self, offset: int) -> None:
        """Moves the log start offset forward; :meth:`delete_old_segments` removes the files.

        :raises Refused: the offset is after the end of the log
        """
        if not 0 <= offset <= self.log_end_offset:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.folder}: offset {offset} is behind {self.log_end_offset}",
            )
        self.log_start_offset = max(self.log_start_offset, offset)

    def delete_old_segments(self, now: int) -> int:
        """Removes the segments that retention no longer keeps; returns how many.

        :raises DiskError: a segment could not be removed; it is no longer served all the same
        """
        self.producers.remove_expired(now)
        gone = find_expired_segments(self.segments, self.config, self.log_start_offset, now)
        if len(gone) == len(self.segments):
            self.roll(now)
        for segment in gone:
            self._log_segments.drop_first()
            self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
            segment.remove()
            producer_state.remove_snapshots(self.disk, self.folder, [segment.base_offset])
        return len(gone)

    def replace_segments(self, bases: Sequence[int]) -> None:
        """Replaces these segments by the compacted one, whose files are those of the first."""
        self._log_segments.replace(bases, self._make_segment(bases[0]))

    def end_offset_for_epoch(self, asked: int) -> tuple[int, int] | None:
        """Returns the largest leader epoch up to this one, and its end offset."""
        return self.epochs.end_offset_for(asked, self.log_end_offset)

    def flush(self) -> None:
        """Syncs all appended batches to the disk.

        :raises DiskError: they may be lost with a loss of power
        """
        end = self.log_end_offset
        if self.recovery_point < end:
            self._sync(self.segments[-1].log_path)
            self.recovery_point = end
        self._unflushed_since = None

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
        self._unflushed_since = None

    def flush_if_due(self, now: int) -> None:
        """Flushes if an append is older than ``flush.ms``."""
        since = self._unflushed_since
        if since is not None and now - since >= self.config.flush_interval:
            self.flush()

    def close(self) -> None:
        """Flushes, and saves indexes and producer state, so that opening needs no scan."""
        if self.failed is not None:
            return
        self.flush()
        self.segments[-1].save_indexes()
        self._save_snapshot(durable=False)  # if it is lost with the power, the log is read

    def _save_snapshot(self, *, durable: bool) -> None:
        """Saves a snapshot of the producer state."""
        end = self.producers.end_offset
        if end and end not in producer_state.list_snapshot_offsets(self.disk, self.folder):
            producer_state.save_snapshot(self.disk, self.folder, self.producers, durable=durable)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


class LogSegments:
    """The segments of a log, at least one, in the order of their offsets.

    An offset belongs to the last segment that begins at or before it.
    """

    def __init__(self, segments: list[LogSegment]) -> None:
        self.segments = segments
        self._bases = [each.base_offset for each in segments]

    def add(self, segment: LogSegment) -> None:
        """One more at the end."""
        self.segments.append(segment)
        self._bases.append(segment.base_offset)

    def drop_first(self) -> None:
        """The first is gone."""
        del self.segments[0], self._bases[0]

    def replace(self, bases: Sequence[int], new: LogSegment) -> None:
        """Replaces neighbouring segments by a new one whose files are in place."""
        row = self._bases.index(bases[0])
        behind = row + len(bases)
        new.size = new.disk.size(new.log_path) or 0
        new.end_offset = self._bases[behind]
        new.created_at, new.last_written_at = (
            self.segments[row].created_at,
            self.segments[behind - 1].last_written_at,
        )
        self.segments[row:behind] = [new]
        self._bases[row:behind] = [new.base_offset]

    def read(self, offset: int, until: int, budget: int, *, at_least_one: bool) -> Bytes:
        """Returns whole batches from an offset on, none that begins at or after ``until``.

        :raises Refused: the first batch is corrupt
        """
        pieces: list[Bytes] = []
        row = bisect_right(self._bases, offset) - 1
        while offset < until and row < len(self.segments):
            segment = self.segments[row]
            stretch = _read_segment(segment, offset, budget, until, at_least_one and not pieces)
            if stretch.data:
                pieces.append(stretch.data)
                budget -= len(stretch.data)
            if stretch.damage is not None and not pieces:
                raise _corrupt_message_error(segment, stretch.damage)
            offset = stretch.next_offset
            if stretch.damage is not None or offset < segment.end_offset:
                break
            row += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def find_timestamp(
        self, timestamp: int, start: int, allowance: DecodeBudget
    ) -> tuple[int, int] | None:
        """The offset and timestamp of the first record, from an offset on, that is not older.

        :raises Refused: what must be read for that is damaged, or is too much work
        """
        for segment in self.segments:
            try:
                found = log_segment.find_timestamp(segment, timestamp, start, allowance)
            except CorruptBatchError as damage:
                raise _corrupt_message_error(segment, damage) from None
            if found is not None:
                return found
        return None

    def find_newest_record(self, allowance: DecodeBudget) -> tuple[int, int] | None:
        """The offset and timestamp of the first record with the newest timestamp; None: no record.

        :raises Refused: what must be read for that is damaged, or is too much work
        """
        best, newest = self.segments[0], -1
        for segment in self.segments:
            try:
                found, _ = log_segment.find_max_timestamp(segment)
                if found > newest:
                    best, newest = segment, found
            except CorruptBatchError as damage:
                raise _corrupt_message_error(segment, damage) from None
        try:
            return log_segment.find_newest_record(best, allowance)
        except CorruptBatchError as damage:
            raise _corrupt_message_error(best, damage) from None

    def aborted_transactions(self, first: int, last: int) -> list[tuple[int, int]]:
        """Aborted transactions with records from one offset to before another."""
        found: list[tuple[int, int]] = []
        for row in range(max(bisect_right(self._bases, first) - 1, 0), len(self.segments)):
            entries = index.select_overlapping(
                producer_state.aborted_transactions(self.segments, row), first, last
            )
            found += [(each.producer_id, each.first_offset) for each in entries]
        return found


def _read_segment(
    segment: LogSegment, offset: int, budget: int, until: int, at_least_one: bool
) -> SegmentRead:
    try:
        place = log_segment.find_offset(segment, offset)
    except CorruptBatchError as damage:
        return SegmentRead(b"", offset, damage)
    if place is None:  # compaction has left nothing behind it
        return SegmentRead(b"", segment.end_offset, None)
    return segment.read(place, budget, min(until, segment.end_offset), at_least_one=at_least_one)


def _corrupt_message_error(segment: LogSegment, damage: CorruptBatchError) -> Refused:
    segment.report_damage(damage)
    return Refused(Code.CORRUPT_MESSAGE, str(damage))


def find_expired_segments(
    segments: list[LogSegment], config: TopicConfig, start: int, now: int
) -> list[LogSegment]:
    """Returns the segments to delete, oldest first; an empty active segment stays."""
    found: list[LogSegment] = []
    over = sum(each.size for each in segments) - config.retention_bytes
    for row, segment in enumerate(segments):
        last = row == len(segments) - 1
        if last and not segment.size:
            break
        passed = not last and segment.end_offset <= start
        if not passed and config.deletes_old_segments:
            too_large = config.retention_bytes >= 0 and over >= segment.size
            passed = too_large or _is_too_old(segment, config, now)
        if not passed:
            break
        over -= segment.size
        found.append(segment)
    return found


def _is_too_old(segment: LogSegment, config: TopicConfig, now: int) -> bool:
    if config.retention < 0:
        return False
    try:
        newest, _ = log_segment.find_max_timestamp(segment)
    except CorruptBatchError as damage:  # nobody can tell how old it is
        segment.report_damage(damage)
        return False
    return now - (newest if newest >= 0 else segment.last_written_at) > config.retention
