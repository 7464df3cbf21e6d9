"""Record batches in a file, each checked before a caller gets it, and a budget for decoding.

The checksum of a batch covers all but its first 21 bytes. The length and the magic cannot be wrong
without the checksum being wrong too. The base offset is right if it follows the batch before; where
compaction has left a gap, the batch must end before the next one begins. The leader epoch must be
the one that the partition had at that offset.

A few bytes can decompress to very many, or hold millions of records, while all other requests wait.
So code that decodes records has a :class:`DecodeBudget`. It grows with the size of the request, and
is far more than honest records need.
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

SCAN_WINDOW_BYTES = 1 << 22  # bytes of a file in memory, unless a batch is larger
BASE_OFFSET_SIZE = 8
MAX_TIMESTAMP_FIELD, MAX_TIMESTAMP_OFFSET = struct.Struct(">q"), 35


class CorruptBatchError(Exception):
    """No valid batch begins at this position."""

    def __init__(self, path: str, position: int, text: str) -> None:
        super().__init__(f"{path}: byte {position}: {text}")
        self.path = path
        self.position = position


class StoredBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview


class BatchFile:
    __slots__ = ("crc", "disk", "epochs", "has_gaps", "max_offset", "next_offset", "path", "size")

    def __init__(
        self, disk: Disk, path: str, size: int, epochs: LeaderEpochs | None, after: int | None
    ) -> None:
        """:param after: the first offset of the next segment; None if unknown"""
        self.disk = disk
        self.path = path
        self.size = size
        self.epochs = epochs
        self.next_offset = after
        #: A gap was seen, so the file was compacted.
        self.has_gaps = False
        self.max_offset = (1 << 63) - 1
        self.crc: Callable[..., int] = load_crc32c()

    def check_batch(
        self, view: memoryview, at: int, origin: int, min_offset: int | None
    ) -> BatchHeader | None:
        """Returns the header of the batch at a position of a window; None if the window cuts it.

        :param origin: where the window begins in the file
        :param min_offset: the offset after the batch before; None if an index confirms this batch
        :raises CorruptBatchError: no valid batch begins there
        """
        if len(view) - at < HEADER.size:
            left = self.size - origin - at
            if left < HEADER.size:
                text = f"a batch is cut, {left} bytes left"
                raise CorruptBatchError(self.path, origin + at, text)
            return None
        header = BatchHeader._make(HEADER.unpack_from(view, at))
        end = at + LOG_OVERHEAD + header.length
        length = header.length
        if header.magic != MAGIC or length < SHORTEST_BATCH_LENGTH or origin + end > self.size:
            text = self._describe_bad_header(header, origin + at)
            raise CorruptBatchError(self.path, origin + at, text)
        if end > len(view):
            return None
        computed = self.crc(view[at + ATTRIBUTES_OFFSET : end])
        if computed != header.checksum:
            raise CorruptBatchError(self.path, origin + at, describe_mismatch(header, computed))
        self.check_offsets(header, origin + at, min_offset)
        return header

    def check_offsets(self, header: BatchHeader, position: int, min_offset: int | None) -> None:
        """Raises CorruptBatchError for wrong offsets or epochs, which no checksum covers."""
        base = header.base_offset
        if base != min_offset and min_offset is not None:
            after = self._base_offset_at(position + header.size)
            # if no batch follows, the segment is active, and was never compacted
            if base < min_offset or (after is None and not self.has_gaps):
                text = f"offset {base} after {min_offset - 1}"
                raise CorruptBatchError(self.path, position, text)
            if after is not None and header.last_offset >= after:
                span = f"offsets {base} to {header.last_offset}"
                raise CorruptBatchError(self.path, position, f"{span}, and {after} comes next")
            self.has_gaps = True
        if header.last_offset_delta < 0 or base < 0 or header.last_offset > self.max_offset:
            raise CorruptBatchError(self.path, position, f"offsets {base} to {header.last_offset}")
        epochs = self.epochs
        if epochs is not None and header.leader_epoch != epochs.single_epoch:
            expected = epochs.epoch_at(base)
            if header.leader_epoch != expected:
                text = f"leader epoch {header.leader_epoch}, it was {expected}"
                raise CorruptBatchError(self.path, position, text)

    def check_large_batch(self, position: int, header: BatchHeader) -> None:
        """Raises CorruptBatchError if the checksum of a batch larger than a window is wrong."""
        computed = 0
        at, end = position + ATTRIBUTES_OFFSET, position + header.size
        while at < end:
            piece = self.disk.read(self.path, at, min(SCAN_WINDOW_BYTES, end - at))
            if not piece:
                raise CorruptBatchError(self.path, position, f"a batch is cut at byte {at}")
            computed = self.crc(piece, computed)
            at += len(piece)
        if computed != header.checksum:
            raise CorruptBatchError(self.path, position, describe_mismatch(header, computed))

    def _base_offset_at(self, position: int) -> int | None:
        if position >= self.size:
            return self.next_offset
        data = self.disk.read(self.path, position, BASE_OFFSET_SIZE)
        return int.from_bytes(data, signed=True) if len(data) == BASE_OFFSET_SIZE else None

    def _describe_bad_header(self, header: BatchHeader, position: int) -> str:
        if header.magic != MAGIC:
            return describe_magic(header.magic)
        if header.length < SHORTEST_BATCH_LENGTH:
            return f"impossible length {header.length}"
        return f"a batch of {header.size} bytes is cut, {self.size - position} left"


def scan_batches(
    file: BatchFile, begin: int, min_offset: int | None, window: int = SCAN_WINDOW_BYTES
) -> Iterator[StoredBatch]:
    """Yields every batch; ``min_offset`` is None if an index confirms the first batch."""
    at = begin
    while at < file.size:
        view = memoryview(file.disk.read(file.path, at, min(window, file.size - at)))
        inside = 0
        while inside < len(view):
            header = file.check_batch(view, inside, at, min_offset)
            if header is None:
                break
            size = header.size
            yield StoredBatch(at + inside, header, view[inside : inside + size])
            min_offset = header.last_offset + 1
            inside += size
        if not inside:
            large = _read_large_batch(file, at, view, min_offset)
            yield large
            min_offset = large.header.last_offset + 1
            inside = large.header.size
        at += inside


def scan_max_timestamp(file: BatchFile, begin: int, window: int = 1 << 18) -> int | None:
    """Returns the newest timestamp from headers only, fast; None if a header is wrong."""
    at, newest, size = begin, -1, file.size
    unpack_length, unpack_timestamp = LENGTH_FIELD.unpack_from, MAX_TIMESTAMP_FIELD.unpack_from
    while at < size:
        view = file.disk.read(file.path, at, min(window, size - at))
        inside, last = 0, len(view) - HEADER.size
        if last < 0:
            return None
        while inside <= last:
            (length,) = unpack_length(view, inside + LENGTH_OFFSET)
            (timestamp,) = unpack_timestamp(view, inside + MAX_TIMESTAMP_OFFSET)
            if length < SHORTEST_BATCH_LENGTH:
                return None
            newest = max(newest, timestamp)
            inside += LOG_OVERHEAD + length
        at += inside
    return newest if at == size else None


def read_header_at(disk: Disk, path: str, position: int) -> BatchHeader | None:
    """Reads the header at a position, unchecked; None if the file ends before."""
    data = disk.read(path, position, HEADER.size)
    return BatchHeader._make(HEADER.unpack(data)) if len(data) == HEADER.size else None


def _read_large_batch(file: BatchFile, at: int, view: Bytes, min_offset: int | None) -> StoredBatch:
    """Reads a batch larger than the window, after its checksum was verified piece by piece."""
    if len(view) < HEADER.size:
        text = f"the file ends {file.size - at - len(view)} bytes early"
        raise CorruptBatchError(file.path, at, text)
    header = BatchHeader._make(HEADER.unpack_from(view))
    file.check_large_batch(at, header)
    file.check_offsets(header, at, min_offset)
    return StoredBatch(at, header, memoryview(file.disk.read(file.path, at, header.size)))


def describe_mismatch(header: BatchHeader, computed: int) -> str:
    return f"checksum {computed:08x}, but the header has {header.checksum:08x}"


BASE_BUDGET_BYTES = 64 << 20  # bytes that may be decompressed in any case: a fraction of a second
BUDGET_RATIO = 32  # further bytes for each byte of the request
RECORD_COST_BYTES = 128  # reading a record takes as long as decompressing this many bytes


class DecodeBudget:
    """The bytes that may still be decoded for one request, or for one batch."""

    def __init__(self, size: int) -> None:
        """:param size: of the request, or of the batch, in bytes"""
        self.remaining = self._initial = BASE_BUDGET_BYTES + BUDGET_RATIO * size

    @property
    def used(self) -> int:
        return self._initial - self.remaining

    def decode_batch(self, batch: Bytes, header: BatchHeader) -> RecordColumns:
        """Decodes one batch of a right checksum; raises Refused if that exceeds the budget."""
        budget = min(self.remaining, BASE_BUDGET_BYTES + BUDGET_RATIO * header.size)
        record_cost = RECORD_COST_BYTES * max(header.record_count, 0)
        max_bytes = min(budget - record_cost, MAX_DECOMPRESSED_SIZE)
        if max_bytes < 0:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"{header.record_count} records in {header.size} bytes exceed the decoding limit",
            )
        columns = decode_batches(batch, check=False, max_batch_bytes=max_bytes)
        problem = columns.problems[0].kind if columns.problems else None
        size_known = problem not in {BatchProblemKind.SIZE, BatchProblemKind.CODEC}
        spent = columns.buffer.size - len(batch) if size_known else max_bytes
        self.remaining -= spent + record_cost
        if problem is BatchProblemKind.SIZE:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"a batch of {header.size} bytes decompresses to more than the limit, {max_bytes}",
            )
        return columns
