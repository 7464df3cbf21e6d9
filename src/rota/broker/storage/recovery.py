"""Loads a partition's log from its folder, and repairs what a crash left (Kafka's ``LogLoader``).

After a clean shutdown all files are taken as they are, except for the end of the last segment. Else
every segment from the recovery point on is read from its first byte: the log ends before the first
corrupt batch, the rest is removed and reported, and indexes and producer state are rebuilt from
what was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from rota.broker.storage import checkpoint, log_segment, producer_state, swap
from rota.broker.storage.checkpoint import LeaderEpochs
from rota.broker.storage.disk import Disk
from rota.broker.storage.file_records import (
    BatchFile,
    CorruptBatchError,
    read_header_at,
    scan_batches,
)
from rota.broker.storage.index import DEFAULT_INDEX_INTERVAL, AbortedTransaction, IndexBuilder
from rota.broker.storage.log_segment import MAX_RELATIVE_OFFSET, LogSegment, segment_path
from rota.broker.storage.producer_state import ProducerStateManager
from rota.engine.formats.record_batch import BatchHeader
from rota.engine.model.config import DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the caller knows of a partition before its folder is opened."""

    recovery_point: int
    clean_shutdown: bool
    log_start_offset: int
    now: int
    index_interval: int = DEFAULT_INDEX_INTERVAL
    compacted: bool = False
    producer_expiration: int = DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A log as it was found and repaired."""

    segments: list[LogSegment]
    epochs: LeaderEpochs
    producers: ProducerStateManager
    log_start_offset: int
    recovery_point: int


def load_log(
    disk: Disk, folder: str, known: LoadOptions, report: Callable[[str], None]
) -> LoadedLog:
    """Loads the log in a folder.

    :param report: receives everything that was damaged, and what was done about it
    """
    swap.remove_crash_files(disk, folder, report)
    epochs = checkpoint.load_leader_epochs(disk, folder, report)
    segments = _open_segments(disk, folder, epochs, known, report)
    if epochs is None or not _epochs_match_log(epochs, segments):
        epochs = _rebuild_epochs(disk, folder, epochs, segments, report)
        for each in segments:
            each.epochs = epochs
    loading = _LogLoader(disk, folder, segments, known, report)
    loading.run()
    if not known.compacted:
        _report_gaps(folder, segments, known, report)
    start = max(known.log_start_offset, segments[0].base_offset)
    if start > segments[-1].end_offset:
        loading.start_anew_at(start)
    end = segments[-1].end_offset
    point = end if known.clean_shutdown and not loading.damaged else min(known.recovery_point, end)
    return LoadedLog(
        segments=segments,
        epochs=epochs,
        producers=loading.producers,
        log_start_offset=start,
        recovery_point=point,
    )


def _open_segments(
    disk: Disk,
    folder: str,
    epochs: LeaderEpochs | None,
    known: LoadOptions,
    report: Callable[[str], None],
) -> list[LogSegment]:
    """Every segment there is, unread, in order; an empty one if there is none."""
    found: list[LogSegment] = []
    for base in swap.list_base_offsets(disk, folder):
        segment = LogSegment(
            disk, folder, base, epochs=epochs, interval=known.index_interval, report=report
        )
        segment.size = disk.size(segment.log_path) or 0
        segment.created_at = segment.last_written_at = known.now
        if (written := disk.modified_at(segment.log_path)) is not None:
            segment.last_written_at = min(written, known.now)
        if found:
            found[-1].end_offset = base
        found.append(segment)
    if not found:
        report(f"{folder}: no segment is there; begun anew at offset {known.log_start_offset}")
        disk.make_folder(folder)
        segment = LogSegment(
            disk,
            folder,
            known.log_start_offset,
            epochs=epochs,
            interval=known.index_interval,
            report=report,
        )
        segment.create(known.now)
        found.append(segment)
    return found


class _LogLoader:
    """Loads the segments of one folder."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segments: list[LogSegment],
        known: LoadOptions,
        report: Callable[[str], None],
    ) -> None:
        self.producers = ProducerStateManager(known.producer_expiration)
        #: The end is not what the last one to write left.
        self.damaged = False
        self._disk = disk
        self._folder = folder
        self._segments = segments
        self._options = known
        self._report = report

    def run(self) -> None:
        """Finds the end, and what is known of producers there."""
        last = len(self._segments) - 1
        first = last
        if self._options.clean_shutdown:
            problem = self._resume_after_clean_shutdown()
            if problem is None:
                self._load_producers(self._segments[-1].end_offset)
                self._replay_producers(self._segments[-1].end_offset)
                return
            self._report(f"{problem}; the segment is read anew")
            self.damaged = True
        else:
            bases = [each.base_offset for each in self._segments]
            first = max(bisect_right(bases, self._options.recovery_point) - 1, 0)
        base = self._segments[first].base_offset
        self._load_producers(base)
        self._replay_producers(base)
        self._recover_segments(first)

    def start_anew_at(self, offset: int) -> None:
        """Nothing of the log is served any more: it begins anew."""
        end = self._segments[-1].end_offset
        self._report(f"{self._folder}: it ends at {end}, before its start {offset}; begun anew")
        for segment in reversed(self._segments):
            segment.remove()
        new = LogSegment(
            self._disk,
            self._folder,
            offset,
            epochs=self._segments[0].epochs,
            interval=self._options.index_interval,
            report=self._report,
        )
        new.create(self._options.now)
        self._segments[:] = [new]
        self.producers = ProducerStateManager(self._options.producer_expiration)
        self.producers.end_offset = offset

    def _resume_after_clean_shutdown(self) -> str | None:
        """Resumes the last segment after a clean shutdown; returns the reason if it cannot."""
        segment, end = self._segments[-1], self._options.recovery_point
        try:
            problem = self._resume_segment(segment)
            if problem is None or end <= segment.base_offset:
                return problem
            segment.end_offset = end
            log_segment.rebuild_indexes(segment, problem)
            segment.save_indexes()
            return self._resume_segment(segment)
        except CorruptBatchError as damage:
            return self._start_segment_after_damage(damage)

    def _start_segment_after_damage(self, damage: CorruptBatchError) -> str | None:
        """Keeps a damaged segment whose end is known, and starts a new one; else says why not.

        What follows the damage was flushed, and offsets must not be assigned twice: consumers would
        take other records for those that they have.
        """
        segment, end = self._segments[-1], self._options.recovery_point
        if end <= segment.base_offset:
            return str(damage)
        self._report(f"{damage}; nothing of it is served, and the log goes on at offset {end}")
        segment.end_offset = end
        segment.close_for_writes()
        new = LogSegment(
            self._disk,
            self._folder,
            end,
            epochs=segment.epochs,
            interval=self._options.index_interval,
            report=self._report,
        )
        new.create(self._options.now)
        self._segments.append(new)
        return None

    def _resume_segment(self, segment: LogSegment) -> str | None:
        """Goes on writing a segment, of which only the end is read.

        Tells what is wrong with its indexes.

        :raises Damage: its end is not sound, or not there
        """
        segment.indexer = IndexBuilder(segment.base_offset, self._options.index_interval)
        problem = segment.offset_index.load(hold=True, limit=max(segment.size - 1, 0))
        if problem is not None:
            return f"{segment.offset_index.path}: {problem}"
        problem = segment.time_index.load(hold=True, limit=MAX_RELATIVE_OFFSET)
        if problem is not None:
            return f"{segment.time_index.path}: {problem}"
        position = 0
        if len(segment.offset_index):
            relative, position = segment.offset_index[-1]
            head = read_header_at(self._disk, segment.log_path, position)
            if head is None or head.last_offset != segment.base_offset + relative:
                return f"{segment.offset_index.path}: its last entry is not what the log has"
        newest, at = segment.time_index[-1] if len(segment.time_index) else (-1, 0)
        segment.indexer.resume(newest, segment.base_offset + at, segment.size - position)
        segment.indexes_checked = True
        segment.time_index_checked = False
        return self._find_end_offset(segment, position, newest)

    def _find_end_offset(self, segment: LogSegment, position: int, newest: int) -> str | None:
        """Finds the end of a segment from its last entry on.

        :raises Damage: it is not sound, or ends early
        """
        expected = self._options.recovery_point
        after = expected if expected > segment.base_offset else None
        frame = BatchFile(self._disk, segment.log_path, segment.size, segment.epochs, after)
        end = segment.base_offset
        for batch in scan_batches(frame, position, None if position else end):
            end = batch.header.last_offset + 1
            if batch.header.max_timestamp > newest:
                return f"{segment.time_index.path}: its last entry is not of the newest batch"
        if end < expected:
            text = f"ends at offset {end}, {expected} was flushed"
            raise CorruptBatchError(segment.log_path, segment.size, text)
        segment.end_offset = end
        return None

    def _load_producers(self, end: int) -> None:
        self.producers = producer_state.load_snapshot(
            self._disk,
            self._folder,
            start=max(self._options.log_start_offset, self._segments[0].base_offset),
            end=end,
            now=self._options.now,
            report=self._report,
            expiration=self._options.producer_expiration,
        )
        kept = {each.base_offset for each in self._segments} | {self.producers.end_offset}
        stray = set(producer_state.list_snapshot_offsets(self._disk, self._folder)) - kept
        producer_state.remove_snapshots(self._disk, self._folder, sorted(stray))

    def _replay_producers(self, end: int) -> None:
        """Tells the producers of what is between their snapshot and an offset."""
        for segment in self._segments:
            if segment.end_offset <= self.producers.end_offset or segment.base_offset >= end:
                continue
            try:
                place = log_segment.find_offset(segment, self.producers.end_offset)
                if place is not None:
                    for batch in scan_batches(segment.batch_file(), *place):
                        if batch.header.base_offset >= end:
                            break
                        producer_state.replay_batch(self.producers, batch, self._report)
            except CorruptBatchError as damage:
                segment.report_damage(damage)
            self.producers.end_offset = min(segment.end_offset, end)
        self.producers.end_offset = end

    def _recover_segments(self, first: int) -> None:
        """Reads all segments from one on, and ends the log at the first corrupt batch."""
        segments = self._segments
        before: LogSegment | None = None
        row = first
        while row < len(segments):
            segment = segments[row]
            if before is not None:
                if segment.base_offset < self.producers.end_offset:
                    reason = f"the one before it ends at offset {self.producers.end_offset - 1}"
                    self._remove_segments(row, reason, row + 1)
                    continue
                self._close_segment(before, segment.base_offset)
            damage = self._recover_segment(segment, last=row == len(segments) - 1)
            if damage is not None:
                self._remove_segments(
                    row + 1, f"the one before it ends at offset {segment.end_offset - 1}"
                )
                self._truncate_segment(segment, damage)
            before = segment
            row += 1
        last = segments[-1]
        last.end_offset = self.producers.end_offset
        if last.end_offset < self._options.recovery_point:
            expected = self._options.recovery_point
            self._report(
                f"{last.log_path}: ends at offset {last.end_offset}, {expected} was flushed"
            )

    def _recover_segment(self, segment: LogSegment, *, last: bool) -> CorruptBatchError | None:
        """Reads a segment, and makes its indexes; tells where it stops to be sound."""
        base = segment.base_offset
        indexer = segment.indexer = IndexBuilder(base, self._options.index_interval)
        segment.offset_index.clear()
        segment.time_index.clear()
        segment.indexes_checked = segment.time_index_checked = True
        aborted: list[AbortedTransaction] = []
        self.producers.end_offset = base
        after = None if last else segment.end_offset
        frame = BatchFile(self._disk, segment.log_path, segment.size, segment.epochs, after)
        frame.max_offset = base + MAX_RELATIVE_OFFSET
        try:
            for batch in scan_batches(frame, 0, base):
                head = batch.header
                of_offset, of_time = indexer.add_batch(
                    batch.position, head.size, head.last_offset, head.max_timestamp
                )
                segment.offset_index.add(of_offset)
                segment.time_index.add(of_time)
                ended = producer_state.replay_batch(self.producers, batch, self._report)
                if ended is not None:
                    aborted.append(ended)
        except CorruptBatchError as damage:
            segment.end_offset = self.producers.end_offset
            return damage
        finally:
            self._save_aborted(segment, aborted)
        return None

    def _save_aborted(self, segment: LogSegment, aborted: list[AbortedTransaction]) -> None:
        name = segment_path(self._folder, segment.base_offset, "txnindex")
        if aborted:
            self._disk.replace(name, b"".join(each.pack() for each in aborted))
        else:
            self._disk.remove(name)
        segment.aborted = aborted

    def _close_segment(self, segment: LogSegment, end: int) -> None:
        """A segment is whole, and another follows."""
        if self.producers.end_offset < end and not self._options.compacted:
            gap = f"offsets {self.producers.end_offset} to {end - 1} are missing behind it"
            self._report(f"{segment.log_path}: {gap}")
        segment.end_offset = end
        segment.save_indexes()
        segment.close_for_writes()
        self.producers.end_offset = end
        producer_state.save_snapshot(self._disk, self._folder, self.producers)

    def _truncate_segment(self, segment: LogSegment, damage: CorruptBatchError) -> None:
        lost = segment.size - damage.position
        self._report(f"{damage}; cut there, {lost} bytes removed")
        self._disk.truncate(segment.log_path, damage.position)
        self._disk.sync(segment.log_path)
        segment.size = damage.position

    def _remove_segments(self, row: int, reason: str, end: int | None = None) -> None:
        """Removes segments from the last on backwards, so that a crash leaves no gap."""
        for segment in reversed(self._segments[row:end]):
            offset, size = segment.base_offset, segment.size
            self._report(
                f"{segment.log_path}: offset {offset}, {size} bytes: removed, for {reason}"
            )
            segment.remove()
        del self._segments[row:end]


def _report_gaps(
    folder: str, segments: Sequence[LogSegment], known: LoadOptions, report: Callable[[str], None]
) -> None:
    """Says where segments are gone that were not read just now."""
    first = segments[0].base_offset
    if known.clean_shutdown and known.log_start_offset < first:
        report(f"{folder}: begins at offset {first}, {known.log_start_offset} was its start")
    for before, after in pairwise(segments):
        if not known.clean_shutdown and after.base_offset > known.recovery_point:
            break
        with suppress(CorruptBatchError):  # it is told of when it is asked for
            if log_segment.find_offset(before, after.base_offset - 1) is None:
                report(
                    f"{before.log_path}: ends before offset {after.base_offset - 1}; a gap follows"
                )


def _epochs_match_log(epochs: LeaderEpochs, segments: Sequence[LogSegment]) -> bool:
    """Whether the log has the leader epochs of the list, which no checksum covers."""
    bases = [each.base_offset for each in segments]
    for known, start in epochs.entries:
        for segment in segments[max(bisect_right(bases, start) - 1, 0) :]:
            if start <= segment.base_offset:
                head = read_header_at(segment.disk, segment.log_path, 0)
            else:
                head = next(_scan_headers(segment, start), None)
            if head is not None:
                if head.leader_epoch != known:
                    return False
                break
    return True


def _rebuild_epochs(
    disk: Disk,
    folder: str,
    listed: LeaderEpochs | None,
    segments: Sequence[LogSegment],
    report: Callable[[str], None],
) -> LeaderEpochs:
    """The leader epochs, from every batch there is; saved for the next time.

    They only rise. So one batch alone that has a higher one than those behind it is damaged.
    """
    entries: list[tuple[int, int]] = []
    alone = False
    for head in (head for segment in segments for head in _scan_headers(segment, 0)):
        if alone and head.leader_epoch < entries[-1][0]:
            entries.pop()
        alone = not entries or head.leader_epoch > entries[-1][0]
        if alone:
            entries.append((head.leader_epoch, head.base_offset))
    if alone and listed is not None and entries[-1][0] > listed.latest:
        entries.pop()  # the last batch alone against the list
    found = LeaderEpochs(entries or [(0, segments[0].base_offset)])
    if listed is not None:
        if all(found.epoch_at(start) == known for known, start in listed.entries):
            return listed
        report(
            f"{folder}/{checkpoint.LEADER_EPOCH_FILE}: {listed.entries}, the log has "
            f"{found.entries}; made anew"
        )
    disk.replace(
        f"{folder}/{checkpoint.LEADER_EPOCH_FILE}", checkpoint.pack_leader_epochs(found.entries)
    )
    return found


def _scan_headers(segment: LogSegment, start: int) -> Iterator[BatchHeader]:
    """Of the batches that reach an offset or go beyond it, up to the first that is damaged."""
    frame = BatchFile(segment.disk, segment.log_path, segment.size, None, None)
    with suppress(CorruptBatchError):  # of that, others tell
        for batch in scan_batches(frame, 0, segment.base_offset):
            if batch.header.last_offset >= start:
                yield batch.header
