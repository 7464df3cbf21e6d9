"""Record batches in a file: each is checked before a caller sees it. And a budget for decoding.

The checksum of a batch covers all but its first 21 bytes. The length and the magic cannot be wrong
without the checksum being wrong too. The base offset is right if it follows the batch before; where
compaction has left a gap, the batch must end before the next one begins. The leader epoch must be
the one that the partition had at that offset.

A few bytes can decompress to very many, or hold millions of records, while all other requests wait.
So code that decodes records has a :class:`DecodeBudget`. It grows with the size of what was sent,
and is far more than honest records need.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rota.broker.storage.checkpoint import LeaderEpochs
from rota.broker.storage.disk import Disk
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import (
    ATTRIBUTES_OFFSET,
    HEADER,
    LENGTH_FIELD,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAX_DECOMPRESSED_SIZE,
    SHORTEST_BATCH_LENGTH,
    BatchHeader,
    BatchProblemKind,
    describe_magic,
    load_crc32c,
)
from rota.engine.formats.record_batch_columns import RecordColumns, decode_batches
from rota.errors import Code, Refused

#: So much of a file is in memory at a time, unless a batch is larger.
SCAN_WINDOW_BYTES = 1 << 22

#: Bytes of a base offset.
BASE_OFFSET_SIZE = 8

TIMESTAMP_FORMAT = struct.Struct(">q")

MAX_TIMESTAMP_AT = 35


class CorruptBatchError(Exception):
    """No valid batch begins at this position."""

    def __init__(self, path: str, position: int, text: str) -> None:
        super().__init__(f"{path}: byte {position}: {text}")
        self.path = path
        self.position = position


class StoredBatch(NamedTuple):
    """A valid batch in a file."""

    position: int
    header: BatchHeader
    data: memoryview


class BatchFile:
    """A file of batches, and what must hold for them."""

    __slots__ = ("crc", "disk", "epochs", "has_gaps", "max_offset", "next_offset", "path", "size")

    def __init__(
        self, disk: Disk, path: str, size: int, epochs: LeaderEpochs | None, after: int | None
    ) -> None:
        """:param epochs: None: not known
        :param after: the offset of what follows the file; None: not known
        """
        self.disk = disk
        self.path = path
        self.size = size
        self.epochs = epochs
        self.next_offset = after
        #: A gap was seen: the file has been compacted.
        self.has_gaps = False
        #: The highest offset.
        self.max_offset = (1 << 63) - 1
        self.crc: Callable[..., int] = load_crc32c()

    def check_batch(
        self, view: memoryview, at: int, origin: int, floor: int | None
    ) -> BatchHeader | None:
        """Returns the header of the batch at a position of a window; None if it is cut there.

        :param origin: where the window begins in the file
        :param floor: the offset after the batch before; None if this one is known to be in place
        :raises CorruptBatchError: no valid batch is there
        """
        if len(view) - at < HEADER.size:
            if self.size - origin - at < HEADER.size:
                raise CorruptBatchError(
                    self.path, origin + at, f"a batch is cut, {self.size - origin - at} bytes left"
                )
            return None
        head = BatchHeader._make(HEADER.unpack_from(view, at))
        end = at + LOG_OVERHEAD + head.length
        if head.magic != MAGIC or head.length < SHORTEST_BATCH_LENGTH or origin + end > self.size:
            raise CorruptBatchError(
                self.path, origin + at, self._describe_bad_header(head, origin + at)
            )
        if end > len(view):
            return None
        made = self.crc(view[at + ATTRIBUTES_OFFSET : end])
        if made != head.checksum:
            raise CorruptBatchError(self.path, origin + at, _describe_mismatch(head, made))
        self.check_offsets(head, origin + at, floor)
        return head

    def check_offsets(self, head: BatchHeader, position: int, floor: int | None) -> None:
        """Checks that offsets rise and that the leader epoch is right; no checksum covers either.

        :raises CorruptBatchError: one of them is wrong
        """
        base = head.base_offset
        if base != floor and floor is not None:
            if base < floor:
                raise CorruptBatchError(self.path, position, f"offset {base} after {floor - 1}")
            after = self._base_offset_at(position + head.size)
            if after is None and not self.has_gaps:
                # nothing follows, and nobody compacts what is written to
                raise CorruptBatchError(self.path, position, f"offset {base} after {floor - 1}")
            if after is not None and head.last_offset >= after:
                span = f"offsets {base} to {head.last_offset}"
                raise CorruptBatchError(self.path, position, f"{span}, and {after} comes next")
            self.has_gaps = True
        if head.last_offset_delta < 0 or base < 0 or head.last_offset > self.max_offset:
            raise CorruptBatchError(self.path, position, f"offsets {base} to {head.last_offset}")
        epochs = self.epochs
        if epochs is not None and head.leader_epoch != epochs.single_epoch:
            expected = epochs.epoch_at(base)
            if head.leader_epoch != expected:
                text = f"leader epoch {head.leader_epoch}, it was {expected}"
                raise CorruptBatchError(self.path, position, text)

    def check_large_batch(self, position: int, head: BatchHeader) -> None:
        """Compares the checksum of a batch that is larger than a window, piece by piece.

        :raises Damage: it is wrong
        """
        made = 0
        at, end = position + ATTRIBUTES_OFFSET, position + head.size
        while at < end:
            piece = self.disk.read(self.path, at, min(SCAN_WINDOW_BYTES, end - at))
            if not piece:
                raise CorruptBatchError(self.path, position, f"a batch is cut at byte {at}")
            made = self.crc(piece, made)
            at += len(piece)
        if made != head.checksum:
            raise CorruptBatchError(self.path, position, _describe_mismatch(head, made))

    def _base_offset_at(self, position: int) -> int | None:
        """The base offset of the batch at a position, or of what follows the file."""
        if position >= self.size:
            return self.next_offset
        found = self.disk.read(self.path, position, BASE_OFFSET_SIZE)
        return int.from_bytes(found, signed=True) if len(found) == BASE_OFFSET_SIZE else None

    def _describe_bad_header(self, head: BatchHeader, position: int) -> str:
        if head.magic != MAGIC:
            return describe_magic(head.magic)
        left = self.size - position
        if head.length < SHORTEST_BATCH_LENGTH:
            return f"impossible length {head.length}"
        return f"a batch of {head.size} bytes is cut, {left} left"


def scan_batches(
    frame: BatchFile, begin: int, floor: int | None, window: int = SCAN_WINDOW_BYTES
) -> Iterator[StoredBatch]:
    """Yields every batch from a position on, at which a batch begins.

    :param floor: the offset after the batch before; None if the first is known to be in place
    :raises CorruptBatchError: at the first batch that is not valid
    """
    at = begin
    while at < frame.size:
        view = memoryview(frame.disk.read(frame.path, at, min(window, frame.size - at)))
        inside = 0
        while inside < len(view):
            head = frame.check_batch(view, inside, at, floor)
            if head is None:
                break
            size = head.size
            yield StoredBatch(at + inside, head, view[inside : inside + size])
            floor = head.last_offset + 1
            inside += size
        if not inside:
            large = _read_large_batch(frame, at, view, floor)
            yield large
            floor = large.header.last_offset + 1
            inside = large.header.size
        at += inside


def scan_max_timestamp(frame: BatchFile, begin: int, window: int = 1 << 18) -> int | None:
    """Returns the newest timestamp from a batch on, from headers only; None if one is wrong.

    Many times faster than :func:`scan_batches`, for callers that check what they find.
    """
    at, found, size = begin, -1, frame.size
    length_of, time_of = LENGTH_FIELD.unpack_from, TIMESTAMP_FORMAT.unpack_from
    while at < size:
        view = frame.disk.read(frame.path, at, min(window, size - at))
        inside, last = 0, len(view) - HEADER.size
        if last < 0:
            return None
        while inside <= last:
            (length,) = length_of(view, inside + LENGTH_OFFSET)
            (timestamp,) = time_of(view, inside + MAX_TIMESTAMP_AT)
            if length < SHORTEST_BATCH_LENGTH:
                return None
            found = max(found, timestamp)
            inside += LOG_OVERHEAD + length
        at += inside
    return found if at == size else None


def read_header_at(disk: Disk, path: str, position: int) -> BatchHeader | None:
    """Reads the header at a position, unchecked; None if the file ends before."""
    data = disk.read(path, position, HEADER.size)
    return BatchHeader._make(HEADER.unpack(data)) if len(data) == HEADER.size else None


def _read_large_batch(frame: BatchFile, at: int, view: Bytes, floor: int | None) -> StoredBatch:
    """Reads a batch larger than the window, after its checksum was verified piece by piece."""
    if len(view) < HEADER.size:
        raise CorruptBatchError(
            frame.path, at, f"the file ends {frame.size - at - len(view)} bytes early"
        )
    head = BatchHeader._make(HEADER.unpack_from(view))
    frame.check_large_batch(at, head)
    frame.check_offsets(head, at, floor)
    return StoredBatch(at, head, memoryview(frame.disk.read(frame.path, at, head.size)))


def _describe_mismatch(head: BatchHeader, made: int) -> str:
    return f"checksum {made:08x}, the batch says {head.checksum:08x}"


#: Bytes that may be unpacked in any case: a fraction of a second.
BASE_BUDGET_BYTES = 64 << 20

#: Beyond that, so many times what was sent.
BUDGET_RATIO = 32

#: To read a record takes as long as to unpack so many bytes.
RECORD_COST_BYTES = 128


class DecodeBudget:
    """What may still be decoded for one request, or for one batch."""

    def __init__(self, size: int) -> None:
        """:param size: of what is looked into, in bytes."""
        self.remaining = self._initial = BASE_BUDGET_BYTES + BUDGET_RATIO * size

    @property
    def used(self) -> int:
        """The part of the budget that was used."""
        return self._initial - self.remaining

    def decode_batch(self, batch: Bytes, head: BatchHeader) -> RecordColumns:
        """Decodes one batch whose checksum was verified; the result has the records or the problem.

        :raises Refused: decoding would exceed the budget
        """
        most = min(self.remaining, BASE_BUDGET_BYTES + BUDGET_RATIO * head.size)
        room = min(most - RECORD_COST_BYTES * max(head.record_count, 0), MAX_DECOMPRESSED_SIZE)
        if room < 0:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"{head.record_count} records in {head.size} bytes are more than is looked at "
                "at once",
            )
        columns = decode_batches(batch, check=False, most=room)
        flaw = columns.problems[0].kind if columns.problems else None
        known = flaw not in {BatchProblemKind.SIZE, BatchProblemKind.CODEC}
        spent = columns.buffer.size - len(batch) if known else room
        self.remaining -= spent + RECORD_COST_BYTES * max(head.record_count, 0)
        if flaw is BatchProblemKind.SIZE:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"a batch of {head.size} bytes unpacks to more than {room}, which is more than is "
                "looked at at once",
            )
        return columns
