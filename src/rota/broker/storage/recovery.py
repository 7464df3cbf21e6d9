"""Loads a partition's log from its folder, and repairs what a crash left (Kafka's ``LogLoader``).

After a clean shutdown all files are taken as they are, except for the end of the last segment. Else
every segment from the recovery point on is read from its first byte: the log ends before the first
corrupt batch, the rest is removed and reported, and indexes and producer state are rebuilt from the
batches that were read.

Compaction replaces segments by a new one so that a crash leaves the old ones or the new one. As in
Kafka, a new segment is written as ``.log.cleaned`` and so on, and is synced. Then its files are
renamed to ``.swap``, the log last: from then on the new segment is valid. The old segments are
removed, and the new files get their final names, the log last again. A file ``rota.swap`` in the
folder lists the replaced segments. Kafka concludes them from the new segment's offsets; so does
Rota without that file.

So a start removes ``.deleted`` (of a deleted segment), ``.tmp`` (new content of a file) and
``.cleaned`` (of an unfinished compaction); ``.swap`` (of a finished one) replaces the old segments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from rota.broker.storage import checkpoint, log_segment, producer_state
from rota.broker.storage.checkpoint import LeaderEpochs, read_file
from rota.broker.storage.disk import Disk, Report
from rota.broker.storage.file_records import (
    BatchFile,
    CorruptBatchError,
    read_header_at,
    scan_batches,
)
from rota.broker.storage.index import AbortedTransaction, IndexBuilder
from rota.broker.storage.log_segment import (
    MAX_RELATIVE_OFFSET,
    SEGMENT_FILE_KINDS,
    LogSegment,
    segment_path,
)
from rota.broker.storage.producer_state import ProducerStateManager
from rota.engine.formats.record_batch import BatchHeader, compute_crc32c
from rota.errors import DiskError

if TYPE_CHECKING:
    from rota.broker.storage.log import Log


class LogLoader:
    def __init__(self, log: Log, *, now: int, clean_shutdown: bool) -> None:
        """:param log: without segments, but with recovery point and start of the checkpoints"""
        self.log = log
        self.segments = log.segments
        self.disk = log.disk
        self.folder = log.folder
        self.report = log.report
        self.now = now
        self.clean_shutdown = clean_shutdown
        #: The log does not end as the last shutdown left it.
        self.damaged = False

    def load(self) -> None:
        remove_crash_files(self.disk, self.folder, self.report)
        epochs = checkpoint.load_leader_epochs(self.disk, self.folder, self.report)
        self._open_segments(epochs)
        if epochs is None or not self._epochs_match_log(epochs):
            epochs = self._rebuild_epochs(epochs)
        self.log.epochs = epochs
        for segment in self.segments:
            segment.epochs = epochs
        self._load_segments()
        if not self.log.config.is_compacted:
            self._report_gaps()
        self.log.log_start_offset = max(self.log.log_start_offset, self.segments[0].base_offset)
        if self.log.log_start_offset > self.segments[-1].end_offset:
            self._restart_at_log_start()
        end = self.segments[-1].end_offset
        clean = self.clean_shutdown and not self.damaged
        self.log.recovery_point = end if clean else min(self.log.recovery_point, end)

    def _open_segments(self, epochs: LeaderEpochs | None) -> None:
        segments = self.segments
        for base in list_base_offsets(self.disk, self.folder):
            segment = self.log.new_segment(base)
            segment.epochs = epochs
            segment.size = self.disk.size(segment.log_path) or 0
            segment.created_at = segment.last_written_at = self.now
            if (written := self.disk.modified_at(segment.log_path)) is not None:
                segment.last_written_at = min(written, self.now)
            if segments:
                segments[-1].end_offset = base
            segments.append(segment)
        if not segments:
            start = self.log.log_start_offset
            self.report(f"{self.folder}: it has no segment; the log starts anew at offset {start}")
            self.disk.make_folder(self.folder)
            segment = self.log.new_segment(start)
            segment.create(self.now)
            segments.append(segment)

    def _load_segments(self) -> None:
        first = len(self.segments) - 1
        if self.clean_shutdown:
            problem = self._resume_after_clean_shutdown()
            if problem is None:
                self._load_producers(self.segments[-1].end_offset)
                return
            self.report(f"{problem}; the segment is read again")
            self.damaged = True
        else:
            first = log_segment.find_row(self.segments, self.log.recovery_point)
        self._load_producers(self.segments[first].base_offset)
        self._recover_segments(first)

    def _restart_at_log_start(self) -> None:
        end, start = self.segments[-1].end_offset, self.log.log_start_offset
        self.report(f"{self.folder}: ends at {end}, before its start {start}; it starts anew there")
        for segment in reversed(self.segments):
            segment.remove()
        new = self.log.new_segment(start)
        new.create(self.now)
        self.segments[:] = [new]
        self.log.producers = ProducerStateManager(self.log.producers.expiration)
        self.log.producers.end_offset = start

    def _resume_after_clean_shutdown(self) -> str | None:
        """Resumes the last segment after a clean shutdown; returns the reason if it cannot."""
        segment, end = self.segments[-1], self.log.recovery_point
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
        """Keeps a damaged segment whose end is known, and starts a new one; else returns why not.
        Records after the damage were flushed, and offsets must not be assigned twice: consumers
        would take other records for those that they have.
        """
        segment, end = self.segments[-1], self.log.recovery_point
        if end <= segment.base_offset:
            return str(damage)
        self.report(f"{damage}; reads of this batch fail, and the log continues at offset {end}")
        segment.end_offset = end
        segment.close_for_writes()
        new = self.log.new_segment(end)
        new.create(self.now)
        self.segments.append(new)
        return None

    def _resume_segment(self, segment: LogSegment) -> str | None:
        """Makes a segment active; returns an index problem, or raises CorruptBatchError."""
        segment.indexer = IndexBuilder(segment.base_offset, self.log.config.index_interval)
        for index, limit in (
            (segment.offset_index, max(segment.size - 1, 0)),
            (segment.time_index, MAX_RELATIVE_OFFSET),
        ):
            problem = index.load(hold=True, limit=limit)
            if problem is not None:
                return f"{index.path}: {problem}"
        position = 0
        if len(segment.offset_index):
            relative, position = segment.offset_index[-1]
            header = read_header_at(self.disk, segment.log_path, position)
            if header is None or header.last_offset != segment.base_offset + relative:
                return f"{segment.offset_index.path}: its last entry does not match the log"
        timestamp, at = segment.time_index[-1] if len(segment.time_index) else (-1, 0)
        segment.indexer.resume(timestamp, segment.base_offset + at, segment.size - position)
        segment.indexes_checked = True
        segment.time_index_checked = False
        return self._find_end_offset(segment, position, timestamp)

    def _find_end_offset(self, segment: LogSegment, position: int, timestamp: int) -> str | None:
        """Finds the end from the last index entry on; raises CorruptBatchError for damage."""
        expected = self.log.recovery_point
        after = expected if expected > segment.base_offset else None
        file = BatchFile(self.disk, segment.log_path, segment.size, segment.epochs, after)
        end = segment.base_offset
        for batch in scan_batches(file, position, None if position else end):
            end = batch.header.last_offset + 1
            if batch.header.max_timestamp > timestamp:
                return f"{segment.time_index.path}: its last entry is not of the newest batch"
        if end < expected:
            text = f"ends at offset {end}, but {expected} was flushed"
            raise CorruptBatchError(segment.log_path, segment.size, text)
        segment.end_offset = end
        return None

    def _load_producers(self, end: int) -> None:
        """Loads the newest snapshot up to an offset, and replays the batches from there to it."""
        self.log.producers = producer_state.load_snapshot(
            self.disk,
            self.folder,
            start=max(self.log.log_start_offset, self.segments[0].base_offset),
            end=end,
            now=self.now,
            report=self.report,
            expiration=self.log.producers.expiration,
        )
        to_keep = {each.base_offset for each in self.segments} | {self.log.producers.end_offset}
        stray = set(producer_state.list_snapshot_offsets(self.disk, self.folder)) - to_keep
        for offset in sorted(stray):
            self.disk.remove(producer_state.snapshot_path(self.folder, offset))
        for segment in self.segments:
            if segment.end_offset <= self.log.producers.end_offset or segment.base_offset >= end:
                continue
            try:
                place = log_segment.find_offset(segment, self.log.producers.end_offset)
                if place is not None:
                    for batch in scan_batches(segment.batch_file(), *place):
                        if batch.header.base_offset >= end:
                            break
                        producer_state.replay_batch(self.log.producers, batch, self.report)
            except CorruptBatchError as damage:
                segment.report_damage(damage)
            self.log.producers.end_offset = min(segment.end_offset, end)
        self.log.producers.end_offset = end

    def _recover_segments(self, first: int) -> None:
        segments = self.segments
        before: LogSegment | None = None
        row = first
        while row < len(segments):
            segment = segments[row]
            if before is not None:
                if segment.base_offset < self.log.producers.end_offset:
                    self._remove_segments(row, self.log.producers.end_offset - 1, row + 1)
                    continue
                self._close_segment(before, segment.base_offset)
            damage = self._recover_segment(segment, last=row == len(segments) - 1)
            if damage is not None:
                self._remove_segments(row + 1, segment.end_offset - 1)
                self._truncate_segment(segment, damage)
            before = segment
            row += 1
        last, expected = segments[-1], self.log.recovery_point
        last.end_offset = self.log.producers.end_offset
        if last.end_offset < expected:
            self.report(
                f"{last.log_path}: ends at offset {last.end_offset}, but {expected} was flushed"
            )

    def _recover_segment(self, segment: LogSegment, *, last: bool) -> CorruptBatchError | None:
        base = segment.base_offset
        indexer = segment.indexer = IndexBuilder(base, self.log.config.index_interval)
        segment.offset_index.clear()
        segment.time_index.clear()
        segment.indexes_checked = segment.time_index_checked = True
        aborted: list[AbortedTransaction] = []
        self.log.producers.end_offset = base
        after = None if last else segment.end_offset
        file = BatchFile(self.disk, segment.log_path, segment.size, segment.epochs, after)
        file.max_offset = base + MAX_RELATIVE_OFFSET
        try:
            for batch in scan_batches(file, 0, base):
                segment.index_batch(indexer, batch.header, batch.position)
                ended = producer_state.replay_batch(self.log.producers, batch, self.report)
                if ended is not None:
                    aborted.append(ended)
        except CorruptBatchError as damage:
            segment.end_offset = self.log.producers.end_offset
            return damage
        finally:
            self._save_aborted(segment, aborted)
        return None

    def _save_aborted(self, segment: LogSegment, aborted: list[AbortedTransaction]) -> None:
        path = segment_path(self.folder, segment.base_offset, "txnindex")
        if aborted:
            self.disk.replace(path, b"".join(each.pack() for each in aborted))
        else:
            self.disk.remove(path)
        segment.aborted = aborted

    def _close_segment(self, segment: LogSegment, end: int) -> None:
        if self.log.producers.end_offset < end and not self.log.config.is_compacted:
            gap = f"offsets {self.log.producers.end_offset} to {end - 1} are missing after it"
            self.report(f"{segment.log_path}: {gap}")
        segment.end_offset = end
        segment.save_indexes()
        segment.close_for_writes()
        self.log.producers.end_offset = end
        producer_state.save_snapshot(self.disk, self.folder, self.log.producers)

    def _truncate_segment(self, segment: LogSegment, damage: CorruptBatchError) -> None:
        lost = segment.size - damage.position
        self.report(f"{damage}; the file is cut there, {lost} bytes removed")
        self.disk.truncate(segment.log_path, damage.position)
        self.disk.sync(segment.log_path)
        segment.size = damage.position

    def _remove_segments(self, row: int, last_offset: int, end: int | None = None) -> None:
        """Removes segments from the last on backwards, so that a crash leaves no gap."""
        for segment in reversed(self.segments[row:end]):
            self.report(
                f"{segment.log_path}: offset {segment.base_offset}, {segment.size} bytes: removed, "
                f"because the segment before it ends at offset {last_offset}"
            )
            segment.remove()
        del self.segments[row:end]

    def _report_gaps(self) -> None:
        """Reports missing segments among those that were not read just now."""
        first = self.segments[0].base_offset
        if self.clean_shutdown and self.log.log_start_offset < first:
            start = self.log.log_start_offset
            self.report(f"{self.folder}: begins at offset {first}, but its start was {start}")
        for before, after in pairwise(self.segments):
            if not self.clean_shutdown and after.base_offset > self.log.recovery_point:
                break
            last = after.base_offset - 1
            with suppress(CorruptBatchError):  # a read of that batch reports it
                if log_segment.find_offset(before, last) is None:
                    self.report(f"{before.log_path}: ends before offset {last}; a gap follows")

    def _epochs_match_log(self, epochs: LeaderEpochs) -> bool:
        """Whether the log has the leader epochs of the file, which no checksum covers."""
        for epoch, start in epochs.entries:
            for segment in self.segments[log_segment.find_row(self.segments, start) :]:
                if start <= segment.base_offset:
                    header = read_header_at(self.disk, segment.log_path, 0)
                else:
                    header = next(_scan_headers(segment, start), None)
                if header is not None:
                    if header.leader_epoch != epoch:
                        return False
                    break
        return True

    def _rebuild_epochs(self, listed: LeaderEpochs | None) -> LeaderEpochs:
        """Finds and saves the epochs, which only rise: a single higher one is damaged."""
        entries: list[tuple[int, int]] = []
        alone = False
        for header in (each for segment in self.segments for each in _scan_headers(segment, 0)):
            if alone and header.leader_epoch < entries[-1][0]:
                entries.pop()
            alone = not entries or header.leader_epoch > entries[-1][0]
            if alone:
                entries.append((header.leader_epoch, header.base_offset))
        if alone and listed is not None and entries[-1][0] > listed.latest:
            entries.pop()  # the last batch alone contradicts the file
        epochs = LeaderEpochs(entries or [(0, self.segments[0].base_offset)])
        path = f"{self.folder}/{checkpoint.LEADER_EPOCH_FILE}"
        if listed is not None:
            if all(epochs.epoch_at(start) == epoch for epoch, start in listed.entries):
                return listed
            self.report(f"{path}: {listed.entries}, but the log has {epochs.entries}; rewritten")
        self.disk.replace(path, checkpoint.pack_leader_epochs(epochs.entries))
        return epochs


def _scan_headers(segment: LogSegment, start: int) -> Iterator[BatchHeader]:
    """Yields the headers of batches that end at or after an offset, up to the first damage."""
    file = BatchFile(segment.disk, segment.log_path, segment.size, None, None)
    with suppress(CorruptBatchError):  # recovery reports it
        for batch in scan_batches(file, 0, segment.base_offset):
            if batch.header.last_offset >= start:
                yield batch.header


CLEANED, SWAP = ".cleaned", ".swap"
LOG_KIND, *INDEX_KINDS = SEGMENT_FILE_KINDS
SWAP_NOTE_FILE = "rota.swap"
OFFSET_DIGITS = 20


def base_offset_of_name(name: str) -> int | None:
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == OFFSET_DIGITS and digits.isdecimal() else None


def swap_segments(disk: Disk, folder: str, bases: list[int]) -> None:
    """Replaces these segments by the cleaned files of the first, which exist and are synced."""
    base = bases[0]
    body = json.dumps({"base": base, "replaced": bases}).encode()
    disk.replace(f"{folder}/{SWAP_NOTE_FILE}", b"%08x %s" % (compute_crc32c(body), body))
    path = partial(segment_path, folder, base)
    for kind in (*INDEX_KINDS, LOG_KIND):
        if disk.size(path(kind, CLEANED)) is not None:
            disk.rename(path(kind, CLEANED), path(kind, SWAP))
    disk.sync(folder)
    _finish_swap(disk, folder, base, bases)


def is_swap_begun(disk: Disk, folder: str, base: int) -> bool:
    """Whether a new segment is valid already, though not all files have their final names."""
    return disk.size(segment_path(folder, base, LOG_KIND, SWAP)) is not None


def remove_cleaned_files(disk: Disk, folder: str, base: int) -> None:
    """Removes the new files of a segment, unless they are valid already."""
    if not is_swap_begun(disk, folder, base):
        # a start would use .swap files that have no .cleaned file beside them: remove them first
        for kind in INDEX_KINDS:
            disk.remove(segment_path(folder, base, kind, SWAP))
        for kind in SEGMENT_FILE_KINDS:
            disk.remove(segment_path(folder, base, kind, CLEANED))


def finish_swaps(disk: Disk, folder: str, report: Report) -> None:
    """Finishes swaps that a crash interrupted: with the old segments, or with the new one."""
    bases = {name: base_offset_of_name(name) for name in disk.list_names(folder)}
    found = {name: base for name, base in bases.items() if base is not None}
    cleaned = {name: base for name, base in found.items() if name.endswith(CLEANED)}
    swaps = {name: base for name, base in found.items() if name.endswith(SWAP)}
    if cleaned:  # not all files were renamed: the old segments are valid
        first = min(cleaned.values())
        for name in [*(name for name, base in swaps.items() if base >= first), *cleaned]:
            disk.remove(f"{folder}/{name}")
        swaps = {name: base for name, base in swaps.items() if base < first}
    for name, base in swaps.items():
        if name == f"{base:020}.{LOG_KIND}{SWAP}":
            report(f"{folder}/{name}: an interrupted compaction is finished")
            _finish_swap(disk, folder, base, _list_replaced(disk, folder, base, report))
    for name in swaps:  # Kafka renames the log first
        if disk.size(f"{folder}/{name}") is not None:
            disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    if SWAP_NOTE_FILE in bases:
        disk.remove(f"{folder}/{SWAP_NOTE_FILE}")


def _finish_swap(disk: Disk, folder: str, base: int, replaced: Iterable[int]) -> None:
    path = partial(segment_path, folder, base)
    for old in replaced:
        if old != base:
            for kind in (LOG_KIND, *INDEX_KINDS):
                disk.remove(segment_path(folder, old, kind))
            disk.remove(producer_state.snapshot_path(folder, old))
    swaps = [kind for kind in INDEX_KINDS if disk.size(path(kind, SWAP)) is not None]
    if swaps and "txnindex" not in swaps:  # Kafka makes no empty transaction index
        disk.remove(path("txnindex"))
    for kind in swaps:
        disk.rename(path(kind, SWAP), path(kind))
    disk.sync(folder)
    disk.rename(path(LOG_KIND, SWAP), path(LOG_KIND))
    with suppress(DiskError):  # the swap is complete; the remaining files do no harm
        disk.sync(folder)
        if disk.size(path("txnindex")) == 0:
            disk.remove(path("txnindex"))
        disk.remove(f"{folder}/{SWAP_NOTE_FILE}")


def _list_replaced(disk: Disk, folder: str, base: int, report: Report) -> list[int]:
    path = f"{folder}/{SWAP_NOTE_FILE}"
    data = read_file(disk, path)
    if data is not None:
        stored, _, body = data.partition(b" ")
        if stored == b"%08x" % compute_crc32c(body):
            note = json.loads(body)
            if note["base"] == base:
                return list(note["replaced"])
        report(f"{path}: damaged; the replaced segments are concluded from the offsets")
    end = _end_of_new_segment(disk, folder, base)
    logs = [name for name in disk.list_names(folder) if name.endswith(f".{LOG_KIND}")]
    return [
        old for name in logs if (old := base_offset_of_name(name)) is not None and base <= old < end
    ]


def _end_of_new_segment(disk: Disk, folder: str, base: int) -> int:
    path = segment_path(folder, base, LOG_KIND, SWAP)
    file = BatchFile(disk, path, disk.size(path) or 0, None, None)
    file.has_gaps = True
    end = base
    with suppress(CorruptBatchError):
        for batch in scan_batches(file, 0, base):
            end = batch.header.last_offset + 1
    return end


def list_base_offsets(disk: Disk, folder: str) -> list[int]:
    names = disk.list_names(folder)
    offsets = [base_offset_of_name(name) for name in names if name.endswith(".log")]
    return sorted(base for base in offsets if base is not None)


def remove_crash_files(disk: Disk, folder: str, report: Report) -> None:
    """Removes the files that a crash left, so that only whole segments remain."""
    for name in disk.list_names(folder):
        if name.endswith((".deleted", ".tmp")):
            disk.remove(f"{folder}/{name}")
    finish_swaps(disk, folder, report)
    bases = set(list_base_offsets(disk, folder))
    suffixes = tuple(f".{kind}" for kind in INDEX_KINDS)
    for name in disk.list_names(folder):
        if name.endswith(suffixes) and base_offset_of_name(name) not in bases:
            report(f"{folder}/{name}: its log is missing; removed")
            disk.remove(f"{folder}/{name}")
