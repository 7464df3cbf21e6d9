"""A segment: a ``.log`` file of batches and its indexes, and the search for offsets and times.

Index entries are kept in memory while the segment is active, and saved when it is full, flushed or
closed: after a crash they are rebuilt from the log anyway, and an append is one write.

The log must confirm an index entry. An offset entry is used if the batch at its position ends with
its offset, a time entry if the batch at its offset has its timestamp. A wrong entry is reported and
costs a scan of the segment, which rebuilds both indexes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from rota.broker.storage import index
from rota.broker.storage.checkpoint import LeaderEpochs
from rota.broker.storage.disk import Disk, Report
from rota.broker.storage.file_records import (
    SCAN_WINDOW_BYTES,
    BatchFile,
    CorruptBatchError,
    DecodeBudget,
    StoredBatch,
    read_header_at,
    scan_batches,
    scan_max_timestamp,
)
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import HEADER, BatchHeader

SEGMENT_FILE_KINDS = ("log", "index", "timeindex", "txnindex")
MAX_RELATIVE_OFFSET = (1 << 31) - 1  # indexes have 32 bits relative to the base offset
MAX_READ_POSITIONS = 32  # readers that can continue where their last read stopped, without a lookup


def segment_path(folder: str, base_offset: int, kind: str, suffix: str = "") -> str:
    return f"{folder}/{base_offset:020}.{kind}{suffix}"


class BatchPosition(NamedTuple):
    """Where a batch is, and the end of the one before; None if the index confirms the place."""

    position: int
    min_offset: int | None


class SegmentRead(NamedTuple):
    data: Bytes
    next_offset: int
    damage: CorruptBatchError | None


class LogSegment:
    def __init__(  # noqa: PLR0913, the place and the settings of a segment
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        epochs: LeaderEpochs | None = None,
        interval: int = index.DEFAULT_INDEX_INTERVAL,
        report: Report = lambda _: None,
    ) -> None:
        self.base_offset = base_offset
        self.size = 0
        #: The offset after the last batch; of an inactive segment the next segment's base offset.
        self.end_offset = base_offset
        self.interval = interval
        self.epochs = epochs
        self.report = report
        self.disk = disk
        self.folder = folder
        self.log_path = segment_path(folder, base_offset, "log")
        index_path = segment_path(folder, base_offset, "index")
        time_index_path = segment_path(folder, base_offset, "timeindex")
        self.offset_index = index.IndexFile(disk, index_path, index.OFFSET_ENTRY)
        self.time_index = index.IndexFile(disk, time_index_path, index.TIME_ENTRY)
        self.indexer: index.IndexBuilder | None = None
        self.indexes_checked = False
        #: No batch after the last time entry has a newer timestamp.
        self.time_index_checked = True
        self.max_timestamp_and_offset: tuple[int, int] | None = None
        self._first_timestamp: int | None = None
        #: Used for records without timestamps.
        self.created_at = self.last_written_at = 0
        self.aborted: list[index.AbortedTransaction] | None = None
        #: Where readers continue: positions by the offset after the batch before.
        self.read_positions: dict[int, int] = {}
        self._reported_positions: set[int] = set()

    def create(self, now: int = 0) -> None:
        """Makes the segment's files, and replaces existing ones."""
        self.disk.remove(self.log_path)
        self.disk.append(self.log_path, b"")
        self.offset_index.create()
        self.time_index.create()
        self.begin_empty(now)

    def begin_empty(self, now: int = 0) -> None:
        """Initialises a new, empty segment; its files may be made later."""
        self.indexer = index.IndexBuilder(self.base_offset, self.interval)
        self.indexes_checked = True
        self.created_at = self.last_written_at = now

    def on_batch_appended(self, header: BatchHeader, now: int) -> None:
        """Updates indexes and offsets after a batch was appended to the file."""
        indexer = self.indexer
        assert indexer is not None, f"{self.log_path} is not active"
        self.index_batch(indexer, header, self.size)
        if not self.size:
            self._first_timestamp = header.max_timestamp
        self.size += header.size
        self.end_offset = header.last_offset + 1
        self.last_written_at = now

    def index_batch(self, indexer: index.IndexBuilder, header: BatchHeader, position: int) -> None:
        """Adds the index entries of a batch at a position of the file, if it gets any."""
        offset_entry, time_entry = indexer.add_batch(
            position, header.size, header.last_offset, header.max_timestamp
        )
        if offset_entry:
            self.offset_index.add(offset_entry)
            self.time_index.add(time_entry)

    def time_since_first_batch(self, timestamp: int, now: int) -> int:
        """How much newer this timestamp is than the segment's first batch, in milliseconds."""
        if not self.size:
            return 0
        first = self.first_timestamp()
        return timestamp - first if first >= 0 else now - self.created_at

    def first_timestamp(self) -> int:
        """The max timestamp of the first batch; -1 if it has none."""
        if self._first_timestamp is None:
            header = read_header_at(self.disk, self.log_path, 0)
            self._first_timestamp = -1 if header is None else header.max_timestamp
        return self._first_timestamp

    def has_room(self, size: int, last_offset: int, max_bytes: int, index_bytes: int) -> bool:
        return (
            self.size + size <= max_bytes
            and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and self.offset_index.has_room(index_bytes)
            and self.time_index.has_room(index_bytes)
        )

    def save_indexes(self) -> None:
        if self.indexer is not None:
            self.time_index.add(self.indexer.last_time_entry())
            self.offset_index.save()
            self.time_index.save()

    def close_for_writes(self) -> None:
        if self.indexer is not None:
            self.max_timestamp_and_offset = (
                self.indexer.max_timestamp,
                self.indexer.offset_of_max_timestamp,
            )
        self.indexer = None
        self.offset_index.release()
        self.time_index.release()

    def remove(self) -> None:
        """Removes the files. A crash on the way leaves none that look like a segment's."""
        paths = [
            path
            for kind in SEGMENT_FILE_KINDS
            if self.disk.size(path := segment_path(self.folder, self.base_offset, kind)) is not None
        ]
        for path in paths:
            self.disk.rename(path, f"{path}.deleted")
        for path in paths:
            self.disk.remove(f"{path}.deleted")

    def batch_file(self) -> BatchFile:
        return BatchFile(self.disk, self.log_path, self.size, self.epochs, self.end_offset)

    def scan(self, window: int = SCAN_WINDOW_BYTES) -> Iterator[StoredBatch]:
        """Yields every batch; raises CorruptBatchError at the first corrupt one."""
        return scan_batches(self.batch_file(), 0, self.base_offset, window)

    def read(
        self, place: BatchPosition, max_bytes: int, until: int, *, at_least_one: bool
    ) -> SegmentRead:
        """Returns whole batches from a position on, none that begins at or after the offset
        ``until``. With ``at_least_one`` the first batch may be larger than ``max_bytes``.
        """
        position, min_offset = place
        file = self.batch_file()
        size = min(max(max_bytes, HEADER.size), self.size - position)
        data = self.disk.read(self.log_path, position, size)
        view = memoryview(data)
        at = 0
        damage: CorruptBatchError | None = None
        try:
            while at < len(view):
                header = file.check_batch(view, at, position, min_offset)
                if header is None:
                    if at or not at_least_one:
                        break
                    data = self._read_first_batch(file, view, position)
                    view = memoryview(data)
                    continue
                if header.base_offset >= until or (
                    at + header.size > max_bytes and (at or not at_least_one)
                ):
                    break
                at += header.size
                min_offset = header.last_offset + 1
        except CorruptBatchError as error:
            damage = error
            self.report_damage(error)
        if at and min_offset is not None:
            if len(self.read_positions) >= MAX_READ_POSITIONS:
                del self.read_positions[next(iter(self.read_positions))]
            self.read_positions[min_offset] = position + at
        return SegmentRead(
            data if at == len(data) else view[:at],
            self.base_offset if min_offset is None else min_offset,
            damage,
        )

    def _read_first_batch(self, file: BatchFile, view: memoryview, position: int) -> bytes:
        """Reads a first batch that is larger than the requested bytes."""
        header = BatchHeader._make(HEADER.unpack_from(view))
        if header.size > SCAN_WINDOW_BYTES:  # a wrong length must not cost memory
            file.check_large_batch(position, header)
        data = self.disk.read(self.log_path, position, header.size)
        if len(data) < header.size:
            text = f"the file ends {header.size - len(data)} bytes early"
            raise CorruptBatchError(self.log_path, position, text)
        return data

    def report_damage(self, damage: CorruptBatchError) -> None:
        """Reports a corrupt batch, once for each position."""
        if damage.position not in self._reported_positions:
            self._reported_positions.add(damage.position)
            self.report(f"{damage}; reads of this batch fail")


def find_row(segments: Sequence[LogSegment], offset: int) -> int:
    """Returns the row of the last segment that begins at or before an offset, or else 0."""
    return max(bisect_right(segments, offset, key=attrgetter("base_offset")) - 1, 0)


# searches raise CorruptBatchError for a corrupt batch, Refused above the budget

LOOKUP_WINDOW_BYTES = 1 << 16  # the window of a lookup: the distance of a few index entries
FULL_CHECK_BYTES = 1 << 20  # so many bytes are read to check a timestamp; of more, samples
CHECK_SAMPLES = 64


def find_offset(segment: LogSegment, offset: int) -> BatchPosition | None:
    """Finds the batch that has an offset, or else the next one; None if all batches are before."""
    position = segment.read_positions.get(offset)
    if position is not None:
        return BatchPosition(position, offset) if position < segment.size else None
    check_indexes(segment)
    row = segment.offset_index.find_at_or_below(offset - segment.base_offset)
    nearest = row
    place = _position_of_entry(segment, row)
    while place is None:  # the index or the batch is wrong: a scan from farther back will show
        row = max(row // 2 - 1, -1) if row else -1
        place = _position_of_entry(segment, row)
    position, min_offset = place
    for batch in scan_batches(segment.batch_file(), position, min_offset, LOOKUP_WINDOW_BYTES):
        if batch.header.last_offset >= offset:
            if row != nearest:
                rebuild_indexes(segment, "an entry does not match the log")
            return BatchPosition(batch.position, min_offset)
        min_offset = batch.header.last_offset + 1
    return None


def _position_of_entry(segment: LogSegment, row: int) -> BatchPosition | None:
    """The position of an offset entry, if its batch is there; row -1 is the segment's start."""
    if row < 0:
        return BatchPosition(0, segment.base_offset)
    relative, position = segment.offset_index[row]
    header = read_header_at(segment.disk, segment.log_path, position) if position >= 0 else None
    if header is None or header.last_offset != segment.base_offset + relative:
        return None
    return BatchPosition(position, None)


def find_timestamp(
    segment: LogSegment, timestamp: int, start: int, budget: DecodeBudget
) -> tuple[int, int] | None:
    """Returns offset and timestamp of the first record, from an offset on, that is not older."""
    if find_max_timestamp(segment)[0] < timestamp:
        return None
    place = _position_by_time_index(segment, timestamp)
    if place is None:
        rebuild_indexes(segment, "a time entry does not match the log")
        place = _position_by_time_index(segment, timestamp) or BatchPosition(0, segment.base_offset)
    for batch in scan_batches(segment.batch_file(), *place, LOOKUP_WINDOW_BYTES):
        header = batch.header
        if header.max_timestamp >= timestamp and header.last_offset >= start:
            record = _find_record_in_batch(batch, timestamp, start, budget)
            if record is not None:
                return record
    return None


def _position_by_time_index(segment: LogSegment, timestamp: int) -> BatchPosition | None:
    """Returns a position before which all batches are older; None if the log denies the index. Each
    offset entry comes with a time entry if there was a newer timestamp. So of the batches between
    two time entries, those up to the last offset entry are no newer than the first: where
    timestamps do not rise for long, they need not be read.
    """
    row = segment.time_index.find_at_or_below(timestamp - 1)
    place: BatchPosition | None = BatchPosition(0, segment.base_offset)
    if row >= 0:
        place = _find_indexed_batch(segment, *segment.time_index[row])
    if row + 1 < len(segment.time_index):
        indexed, relative = segment.time_index[row + 1]
        if _find_indexed_batch(segment, indexed, relative) is None:
            return None
    else:
        relative = find_max_timestamp(segment)[1] - segment.base_offset
    later = _position_of_entry(segment, segment.offset_index.find_at_or_below(relative - 1))
    if place is None or later is None:
        return None
    return max(place, later, key=lambda each: each.position)


def _find_indexed_batch(segment: LogSegment, timestamp: int, relative: int) -> BatchPosition | None:
    last_offset = segment.base_offset + relative
    place = find_offset(segment, last_offset)
    if place is None:
        return None
    header = read_header_at(segment.disk, segment.log_path, place.position)
    if header is None or (header.max_timestamp, header.last_offset) != (timestamp, last_offset):
        return None
    return place


def _find_record_in_batch(
    batch: StoredBatch, timestamp: int, start: int, budget: DecodeBudget
) -> tuple[int, int] | None:
    header = batch.header
    if header.append_time and header.record_count == header.last_offset_delta + 1:
        return max(header.base_offset, start), header.max_timestamp
    columns = budget.decode_batch(batch.data, header)
    rows = (columns.timestamp >= timestamp) & (columns.offset >= start)
    if not rows.any():
        return None
    row = int(rows.argmax())
    return int(columns.offset[row]), int(columns.timestamp[row])


def find_max_timestamp(segment: LogSegment) -> tuple[int, int]:
    """Returns the newest timestamp and the last offset of its batch; -1 if none has one."""
    check_indexes(segment)
    indexer = segment.indexer
    if indexer is not None:
        claim = indexer.max_timestamp, indexer.offset_of_max_timestamp
        if segment.time_index_checked:
            return claim
    elif segment.max_timestamp_and_offset is not None:
        return segment.max_timestamp_and_offset
    else:
        timestamp, relative = segment.time_index[-1] if len(segment.time_index) else (-1, 0)
        claim = timestamp, segment.base_offset + relative
    if not _is_max_timestamp(segment, *claim):
        rebuilt = rebuild_indexes(segment, "its last time entry is not of the newest batch")
        claim = rebuilt.max_timestamp, rebuilt.offset_of_max_timestamp
    segment.max_timestamp_and_offset = claim if indexer is None else None
    segment.time_index_checked = True
    return claim


def _is_max_timestamp(segment: LogSegment, timestamp: int, at: int) -> bool:
    """Whether the batch with this offset has this timestamp, and no later batch a newer one. That
    holds for the last time entry, unless the index was cut. If timestamps rise, few batches follow
    it. If not, much of the segment may follow: then samples and the end are checked.
    """
    place: BatchPosition | None = BatchPosition(0, segment.base_offset)
    if timestamp >= 0:
        place = _find_indexed_batch(segment, timestamp, at - segment.base_offset)
    if place is not None and segment.size - place.position > FULL_CHECK_BYTES:
        place = _check_samples(segment, place, timestamp, at)
        if place is not None and segment.size - place.position > FULL_CHECK_BYTES:
            return True  # large batches, or entries far apart
    if place is None:
        return False
    found = scan_max_timestamp(segment.batch_file(), place.position)
    return found is not None and found <= timestamp


def _check_samples(
    segment: LogSegment, place: BatchPosition, timestamp: int, at: int
) -> BatchPosition | None:
    """Checks samples of later indexed batches; returns the last, or None if one is newer."""
    first = segment.offset_index.find_at_or_below(at - segment.base_offset) + 1
    rows = range(first, len(segment.offset_index))
    for row in (*rows[:: len(rows) // CHECK_SAMPLES + 1], *rows[-1:]):
        sample = _position_of_entry(segment, row)
        if sample is None:
            return None
        place = sample
        header = read_header_at(segment.disk, segment.log_path, place.position)
        if header is None or header.max_timestamp > timestamp:
            return None
    return place


def find_newest_record(segment: LogSegment, budget: DecodeBudget) -> tuple[int, int] | None:
    """Returns offset and timestamp of the first record with the newest timestamp."""
    timestamp, last_offset = find_max_timestamp(segment)
    if timestamp < 0:
        return None
    place = find_offset(segment, last_offset)
    if place is None:
        return None
    batch = next(scan_batches(segment.batch_file(), *place, LOOKUP_WINDOW_BYTES))
    return _find_record_in_batch(batch, timestamp, batch.header.base_offset, budget)


def check_indexes(segment: LogSegment) -> None:
    if segment.indexes_checked:
        return
    hold = segment.indexer is not None
    problem = segment.offset_index.load(hold=hold, limit=segment.size - 1)
    index_name = "index"
    if problem is None:
        index_name = "timeindex"
        farthest = max(segment.end_offset - segment.base_offset - 1, 0)
        problem = segment.time_index.load(hold=hold, limit=farthest)
        no_times = segment.size and len(segment.offset_index) and not len(segment.time_index)
        if problem is None and no_times and segment.first_timestamp() >= 0:
            problem = "empty"
    if problem is not None:
        rebuild_indexes(segment, f"{index_name}: {problem}")
    segment.indexes_checked = True


def rebuild_indexes(segment: LogSegment, reason: str) -> index.IndexBuilder:
    """Rebuilds both indexes from the log, up to the first corrupt batch."""
    segment.report(f"{segment.offset_index.path}: {reason}; the indexes are rebuilt")
    indexer = index.IndexBuilder(segment.base_offset, segment.interval)
    segment.offset_index.clear()
    segment.time_index.clear()
    try:
        for batch in segment.scan():
            segment.index_batch(indexer, batch.header, batch.position)
    except CorruptBatchError as damage:
        segment.report_damage(damage)
    if segment.indexer is not None:
        segment.indexer = indexer
    else:
        segment.time_index.add(indexer.last_time_entry())
        segment.max_timestamp_and_offset = indexer.max_timestamp, indexer.offset_of_max_timestamp
    segment.offset_index.save()
    segment.time_index.save()
    if segment.indexer is None:
        segment.offset_index.release()
        segment.time_index.release()
    segment.indexes_checked = segment.time_index_checked = True
    return indexer
