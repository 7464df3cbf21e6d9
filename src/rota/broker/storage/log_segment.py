"""A segment: a ``.log`` file of batches and its indexes, and the search for offsets and times.

Index entries are kept in memory while the segment is written, and saved when it is full, flushed or
closed: after a crash they are rebuilt from the log anyway, and an append is one write.

The log must confirm what an index says. An offset entry is believed if the batch at its position
ends with its offset, a time entry if the batch at its offset has its timestamp. A wrong entry costs
a scan of the segment, which rebuilds both indexes; that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rota.broker.storage.checkpoint import LeaderEpochs
from rota.broker.storage.disk import Disk
from rota.broker.storage.file_records import (
    SCAN_WINDOW_BYTES,
    BatchFile,
    CorruptBatchError,
    DecodeBudget,
    StoredBatch,
    read_header_at,
    scan_batches,
)
from rota.broker.storage.file_records import scan_max_timestamp as newest_head
from rota.broker.storage.index import (
    DEFAULT_INDEX_INTERVAL,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    IndexBuilder,
    IndexFile,
)
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import HEADER, TIMESTAMP_TYPE_MASK, BatchHeader

SEGMENT_FILE_KINDS = ("log", "index", "timeindex", "txnindex")

#: The highest offset in a segment, less its base: indexes have 32 bits for it.
MAX_RELATIVE_OFFSET = (1 << 31) - 1

#: So many readers may follow a segment, each going on where it stopped, without a look-up.
MAX_READ_POSITIONS = 32


def segment_path(folder: str, base_offset: int, kind: str, suffix: str = "") -> str:
    """The path of a segment's file."""
    return f"{folder}/{base_offset:020}.{kind}{suffix}"


class BatchPosition(NamedTuple):
    """The position of a batch in the file, and the offset after the batch before it.

    The offset is None if the position comes from the index, which confirms the batch's place.
    """

    position: int
    min_offset: int | None


class SegmentRead(NamedTuple):
    """Whole batches as they are in the file."""

    data: Bytes
    next_offset: int
    #: What ended it.
    damage: CorruptBatchError | None


class LogSegment:
    """A segment's files, named by the base offset."""

    def __init__(  # noqa: PLR0913, where it is and what it must know
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        epochs: LeaderEpochs | None = None,
        interval: int = DEFAULT_INDEX_INTERVAL,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """:param epochs: the partition's leader epochs, if they are known
        :param interval: bytes between two entries of an index, ``index.interval.bytes``
        :param report: is told of damage that was found
        """
        self.base_offset = base_offset
        self.size = 0
        #: The next offset: while it is written, behind its last; else the next segment's first.
        self.end_offset = base_offset
        self.interval = interval
        self.epochs = epochs
        self.report = report
        self.disk = disk
        self.folder = folder
        self.log_path = segment_path(folder, base_offset, "log")
        self.offset_index = IndexFile(
            disk, segment_path(folder, base_offset, "index"), OFFSET_ENTRY
        )
        self.time_index = IndexFile(
            disk, segment_path(folder, base_offset, "timeindex"), TIME_ENTRY
        )
        #: There while it is written.
        self.indexer: IndexBuilder | None = None
        #: The indexes were looked at.
        self.indexes_checked = False
        #: Nothing newer is behind the last entry of times.
        self.time_index_checked = True
        #: The newest timestamp and the last offset of its batch, once looked for.
        self.max_timestamp_and_offset: tuple[int, int] | None = None
        #: Of its first batch; that is what it ages from.
        self.first_timestamp: int | None = None
        #: When it was made and last written to, as far as is known: for records without times.
        self.created_at = self.last_written_at = 0
        #: The transactions that were aborted in it, once looked for.
        self.aborted: list[AbortedTransaction] | None = None
        #: Positions by the offset behind the batch before: where readers go on.
        self.read_positions: dict[int, int] = {}
        #: Positions of damage that was told of.
        self._reported_positions: set[int] = set()

    def create(self, now: int = 0) -> None:
        """Makes its files; those that are there are replaced."""
        self.disk.remove(self.log_path)
        self.disk.append(self.log_path, b"")
        self.offset_index.create()
        self.time_index.create()
        self.begin_empty(now)

    def begin_empty(self, now: int = 0) -> None:
        """Initialises a new, empty segment; its files may be made later."""
        self.indexer = IndexBuilder(self.base_offset, self.interval)
        self.indexes_checked = True
        self.created_at = self.last_written_at = now

    def append(self, batch: bytes | bytearray, head: BatchHeader, now: int = 0) -> None:
        """Writes a batch whose offsets are set."""
        self.disk.append(self.log_path, batch)
        self.on_batch_appended(head, now)

    def on_batch_appended(self, head: BatchHeader, now: int) -> None:
        """Updates indexes and offsets after a batch was appended to the file."""
        indexer = self.indexer
        assert indexer is not None, f"{self.log_path} is full"
        size, last_offset = head.size, head.last_offset
        of_offset, of_time = indexer.add_batch(self.size, size, last_offset, head.max_timestamp)
        if of_offset:
            self.offset_index.add(of_offset)
            self.time_index.add(of_time)
        if not self.size:
            self.first_timestamp = head.max_timestamp
        self.size += size
        self.end_offset = last_offset + 1
        self.last_written_at = now

    def time_since_first_batch(self, timestamp: int, now: int) -> int:
        """How much newer this timestamp is than the segment's first batch, in milliseconds."""
        if not self.size:
            return 0
        if self.first_timestamp is None:
            head = read_header_at(self.disk, self.log_path, 0)
            self.first_timestamp = -1 if head is None else head.max_timestamp
        return (
            timestamp - self.first_timestamp if self.first_timestamp >= 0 else now - self.created_at
        )

    def has_room(self, size: int, last_offset: int, most: int, index_bytes: int) -> bool:
        """May a batch of this size be appended?

        :param most: bytes of the log
        :param index_bytes: of either index
        """
        return (
            self.size + size <= most
            and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and self.offset_index.has_room(index_bytes)
            and self.time_index.has_room(index_bytes)
        )

    def save_indexes(self) -> None:
        """Saves the indexes, with a last time entry, so that the segment may be closed."""
        if self.indexer is not None:
            self.time_index.add(self.indexer.last_time_entry())
            self.offset_index.save()
            self.time_index.save()

    def sync(self) -> None:
        """Saves the indexes, and syncs all files."""
        self.save_indexes()
        for name in (self.log_path, self.offset_index.path, self.time_index.path):
            self.disk.sync(name)

    def close_for_writes(self) -> None:
        """Makes the segment inactive: nothing more is written to it. Its indexes were saved."""
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
        there = [
            name
            for kind in SEGMENT_FILE_KINDS
            if self.disk.size(name := segment_path(self.folder, self.base_offset, kind)) is not None
        ]
        for name in there:
            self.disk.rename(name, f"{name}.deleted")
        for name in there:
            self.disk.remove(f"{name}.deleted")

    def batch_file(self) -> BatchFile:
        """The segment's file, with what must hold for its batches."""
        return BatchFile(self.disk, self.log_path, self.size, self.epochs, self.end_offset)

    def scan(self, begin: int = 0, window: int = SCAN_WINDOW_BYTES) -> Iterator[StoredBatch]:
        """Every batch from the first on, or from a position at which one is known to begin.

        :raises Damage: at the first that is not sound
        """
        return scan_batches(self.batch_file(), begin, None if begin else self.base_offset, window)

    def read(
        self, place: BatchPosition, budget: int, until: int, *, at_least_one: bool
    ) -> SegmentRead:
        """Returns whole batches from a position on, of at most ``budget`` bytes.

        :param until: return no batch that begins at or after this offset
        :param at_least_one: the first batch may be larger than the budget
        """
        position, floor = place
        frame = self.batch_file()
        wanted = min(max(budget, HEADER.size), self.size - position)
        data = self.disk.read(self.log_path, position, wanted)
        view = memoryview(data)
        at = 0
        damage: CorruptBatchError | None = None
        try:
            while at < len(view):
                head = frame.check_batch(view, at, position, floor)
                if head is None:
                    if at or not at_least_one:
                        break
                    data = self._read_first_batch(frame, view, position)
                    view = memoryview(data)
                    continue
                if head.base_offset >= until or (
                    at + head.size > budget and (at or not at_least_one)
                ):
                    break
                at += head.size
                floor = head.last_offset + 1
        except CorruptBatchError as found:
            damage = found
            self.report_damage(found)
        if at:
            self._remember_position(floor, position + at)
        return SegmentRead(
            data if at == len(data) else view[:at],
            self.base_offset if floor is None else floor,
            damage,
        )

    def _read_first_batch(self, frame: BatchFile, view: memoryview, position: int) -> bytes:
        """A first batch that is larger than what was asked for."""
        head = BatchHeader._make(HEADER.unpack_from(view))
        if head.size > SCAN_WINDOW_BYTES:  # a wrong length must not cost memory
            frame.check_large_batch(position, head)
        data = self.disk.read(self.log_path, position, head.size)
        if len(data) < head.size:
            raise CorruptBatchError(
                self.log_path, position, f"the file ends {head.size - len(data)} bytes early"
            )
        return data

    def _remember_position(self, offset: int | None, position: int) -> None:
        if offset is None:
            return
        if len(self.read_positions) >= MAX_READ_POSITIONS:
            del self.read_positions[next(iter(self.read_positions))]
        self.read_positions[offset] = position

    def report_damage(self, damage: CorruptBatchError) -> None:
        """Reports a corrupt batch, once for each position."""
        if damage.position not in self._reported_positions:
            self._reported_positions.add(damage.position)
            self.report(f"{damage}; nothing of it is served")


#: The window of a look-up: a few entries' distance.
LOOKUP_WINDOW_BYTES = 1 << 16

#: So much of a segment is looked through, if need be; of more only samples are taken.
FULL_CHECK_BYTES = 1 << 20

CHECK_SAMPLES = 64


def find_offset(segment: LogSegment, offset: int) -> BatchPosition | None:
    """Finds the batch that has an offset, or the next one after it; None if all batches are before.

    :raises CorruptBatchError: a batch on the way to it is corrupt
    """
    position = segment.read_positions.get(offset)
    if position is not None:
        return BatchPosition(position, offset) if position < segment.size else None
    check_indexes(segment)
    row = segment.offset_index.find_at_or_below(offset - segment.base_offset)
    nearest = row
    place = _position_of_entry(segment, row)
    while place is None:  # the index is wrong here, or the batch: from farther back it will show
        row = max(row // 2 - 1, -1) if row else -1
        place = _position_of_entry(segment, row)
    position, floor = place
    for batch in scan_batches(segment.batch_file(), position, floor, LOOKUP_WINDOW_BYTES):
        if batch.header.last_offset >= offset:
            if row != nearest:
                rebuild_indexes(segment, "an entry is not what the log has")
            return BatchPosition(batch.position, floor)
        floor = batch.header.last_offset + 1
    return None


def _position_of_entry(segment: LogSegment, row: int) -> BatchPosition | None:
    """The position that an offset entry points to, if that batch is there.

    Row -1 is the start of the segment.
    """
    if row < 0:
        return BatchPosition(0, segment.base_offset)
    relative, position = segment.offset_index[row]
    head = read_header_at(segment.disk, segment.log_path, position) if position >= 0 else None
    if head is None or head.last_offset != segment.base_offset + relative:
        return None
    return BatchPosition(position, None)


def find_timestamp(
    segment: LogSegment, timestamp: int, start: int, allowance: DecodeBudget
) -> tuple[int, int] | None:
    """Returns offset and timestamp of the first record, from an offset on, that is not older.

    :raises CorruptBatchError: a batch on the way to it is corrupt
    :raises Refused: decoding a batch exceeds the budget
    """
    if find_max_timestamp(segment)[0] < timestamp:
        return None
    place = _position_before_timestamp(segment, timestamp)
    for batch in scan_batches(segment.batch_file(), *place, LOOKUP_WINDOW_BYTES):
        head = batch.header
        if head.max_timestamp >= timestamp and head.last_offset >= start:
            found = _find_record_in_batch(batch, timestamp, start, allowance)
            if found is not None:
                return found
    return None


def _position_before_timestamp(segment: LogSegment, timestamp: int) -> BatchPosition:
    """The position of a batch before which all batches are older."""
    place = _position_by_time_index(segment, timestamp)
    if place is None:
        rebuild_indexes(segment, "an entry of times is not what the log has")
        place = _position_by_time_index(segment, timestamp)
    return BatchPosition(0, segment.base_offset) if place is None else place


def _position_by_time_index(segment: LogSegment, timestamp: int) -> BatchPosition | None:
    """The same according to the index; None if the log does not confirm it.

    Each offset entry comes with a time entry if there was a newer timestamp. So of the batches
    between two time entries, those up to the last offset entry are no newer than the first: where
    timestamps do not rise for long, they need not be read.
    """
    row = segment.time_index.find_at_or_below(timestamp - 1)
    place: BatchPosition | None = BatchPosition(0, segment.base_offset)
    if row >= 0:
        place = _find_indexed_batch(segment, *segment.time_index[row])
    if row + 1 < len(segment.time_index):
        when, relative = segment.time_index[row + 1]
        if _find_indexed_batch(segment, when, relative) is None:
            return None
    else:
        relative = find_max_timestamp(segment)[1] - segment.base_offset
    later = _position_of_entry(segment, segment.offset_index.find_at_or_below(relative - 1))
    if place is None or later is None:
        return None
    return max(place, later, key=lambda each: each.position)


def _find_indexed_batch(segment: LogSegment, when: int, relative: int) -> BatchPosition | None:
    """The batch with this last offset, if it has this timestamp."""
    last_offset = segment.base_offset + relative
    place = find_offset(segment, last_offset)
    if place is None:
        return None
    head = read_header_at(segment.disk, segment.log_path, place.position)
    if head is None or (head.max_timestamp, head.last_offset) != (when, last_offset):
        return None
    return place


def _find_record_in_batch(
    batch: StoredBatch, timestamp: int, start: int, allowance: DecodeBudget
) -> tuple[int, int] | None:
    head = batch.header
    if head.attributes & TIMESTAMP_TYPE_MASK and head.record_count == head.last_offset_delta + 1:
        return max(head.base_offset, start), head.max_timestamp
    columns = allowance.decode_batch(batch.data, head)
    rows = (columns.timestamp >= timestamp) & (columns.offset >= start)
    if not rows.any():
        return None
    row = int(rows.argmax())
    return int(columns.offset[row]), int(columns.timestamp[row])


def find_max_timestamp(segment: LogSegment) -> tuple[int, int]:
    """Returns the newest timestamp and the last offset of its batch; -1 if none has one.

    :raises CorruptBatchError: a batch that must be read is corrupt
    """
    check_indexes(segment)
    indexer = segment.indexer
    if indexer is not None:
        claim = indexer.max_timestamp, indexer.offset_of_max_timestamp
        if segment.time_index_checked:
            return claim
    elif segment.max_timestamp_and_offset is not None:
        return segment.max_timestamp_and_offset
    else:
        when, relative = segment.time_index[-1] if len(segment.time_index) else (-1, 0)
        claim = when, segment.base_offset + relative
    if not _is_max_timestamp(segment, *claim):
        made = rebuild_indexes(segment, "its last entry of times is not of the newest batch")
        claim = made.max_timestamp, made.offset_of_max_timestamp
    segment.max_timestamp_and_offset = claim if indexer is None else None
    segment.time_index_checked = True
    return claim


def _is_max_timestamp(segment: LogSegment, when: int, at: int) -> bool:
    """Whether the batch with this offset has this timestamp, and no later batch a newer one.

    The last entry says so; it is missing only if the file was cut. Where timestamps rise, that
    shows at once. Where they do not, much of the segment may follow: samples of it are checked, and
    its end.
    """
    place: BatchPosition | None = BatchPosition(0, segment.base_offset)
    if when >= 0:
        place = _find_indexed_batch(segment, when, at - segment.base_offset)
    if place is not None and segment.size - place.position > FULL_CHECK_BYTES:
        place = _check_samples(segment, place, when, at)
        if place is not None and segment.size - place.position > FULL_CHECK_BYTES:
            return True  # a batch or two, or entries are far apart
    if place is None:
        return False
    found = newest_head(segment.batch_file(), place.position)
    return found is not None and found <= when


def _check_samples(
    segment: LogSegment, place: BatchPosition, when: int, at: int
) -> BatchPosition | None:
    """Checks samples of later indexed batches; returns the last, or None if one is newer."""
    first = segment.offset_index.find_at_or_below(at - segment.base_offset) + 1
    rows = range(first, len(segment.offset_index))
    for row in (*rows[:: len(rows) // CHECK_SAMPLES + 1], *rows[-1:]):
        sample = _position_of_entry(segment, row)
        if sample is None:
            return None
        place = sample
        head = read_header_at(segment.disk, segment.log_path, place.position)
        if head is None or head.max_timestamp > when:
            return None
    return place


def find_newest_record(segment: LogSegment, allowance: DecodeBudget) -> tuple[int, int] | None:
    """The offset and timestamp of the first record with the newest timestamp.

    :raises Damage: its batch is not sound
    :raises Refused: it is too much work to look into it
    """
    when, last_offset = find_max_timestamp(segment)
    if when < 0:
        return None
    place = find_offset(segment, last_offset)
    if place is None:
        return None
    batch = next(scan_batches(segment.batch_file(), *place, LOOKUP_WINDOW_BYTES))
    return _find_record_in_batch(batch, when, batch.header.base_offset, allowance)


def check_indexes(segment: LogSegment) -> None:
    """Checks the index files before their first use."""
    if segment.indexes_checked:
        return
    hold = segment.indexer is not None
    problem = segment.offset_index.load(hold=hold, limit=segment.size - 1)
    what = "index"
    if problem is None:
        what = "timeindex"
        farthest = max(segment.end_offset - segment.base_offset - 1, 0)
        problem = segment.time_index.load(hold=hold, limit=farthest)
        if (
            problem is None
            and segment.size
            and not len(segment.time_index)
            and len(segment.offset_index)
        ):
            first: BatchHeader | None = read_header_at(segment.disk, segment.log_path, 0)
            problem = "empty" if first is not None and first.max_timestamp >= 0 else None
    if problem is not None:
        rebuild_indexes(segment, f"{what}: {problem}")
    segment.indexes_checked = True


def rebuild_indexes(segment: LogSegment, reason: str) -> IndexBuilder:
    """Rebuilds both indexes from the log, up to the first corrupt batch."""
    segment.report(f"{segment.offset_index.path}: {reason}; indexes made anew")
    indexer = IndexBuilder(segment.base_offset, segment.interval)
    segment.offset_index.clear()
    segment.time_index.clear()
    try:
        for batch in segment.scan():
            head = batch.header
            of_offset, of_time = indexer.add_batch(
                batch.position, head.size, head.last_offset, head.max_timestamp
            )
            segment.offset_index.add(of_offset)
            segment.time_index.add(of_time)
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
