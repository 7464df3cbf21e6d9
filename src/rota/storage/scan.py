"""Batches in a file, each checked before anybody gets to see it.

The checksum of a batch covers all but its first 21 bytes. The length and the magic cannot be wrong
without the checksum being wrong too. The base offset is right if it follows the batch before; where
compaction has left a gap, the batch must end before the next one begins. The leader epoch is the
one that the partition had at that offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rota.formats.batch import Header
from rota.formats.batch.checksum import function
from rota.formats.batch.header import (
    ATTRIBUTES_AT,
    HEAD,
    LENGTH,
    LENGTH_AT,
    MAGIC,
    PREFIX,
    SHORTEST,
    magic_problem,
)
from rota.formats.buffer import Bytes
from rota.storage.disk import Disk
from rota.storage.epoch import Epochs

WINDOW = 1 << 22
"""So much of a file is in memory at a time, unless a batch is larger."""
BASE = 8
"""Bytes of a base offset."""
TIMESTAMP = struct.Struct(">q")
MAX_TIMESTAMP_AT = 35


class Damage(Exception):
    """No sound batch begins here."""

    def __init__(self, path: str, position: int, text: str) -> None:
        super().__init__(f"{path}: byte {position}: {text}")
        self.path = path
        self.position = position


class Head(NamedTuple):
    """A batch's head; see :mod:`rota.formats.batch.header`. Made often, so no more than a tuple."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size(self) -> int:
        """All bytes of the batch."""
        return PREFIX + self.length

    @property
    def last_offset(self) -> int:
        """The last offset that is the batch's."""
        return self.base_offset + self.last_offset_delta

    @property
    def full(self) -> Header:
        """The same with all that can be asked of it."""
        return Header(**dict(zip(Header.__dataclass_fields__, self, strict=True)))


class Batch(NamedTuple):
    """A sound batch in a file."""

    position: int
    head: Head
    data: memoryview


class Frame:
    """What must hold for the batches of a file."""

    __slots__ = ("after", "crc", "disk", "epochs", "gaps", "most", "path", "size")

    def __init__(
        self, disk: Disk, path: str, size: int, epochs: Epochs | None, after: int | None
    ) -> None:
        """:param epochs: None: not known
        :param after: the offset of what follows the file; None: not known
        """
        self.disk = disk
        self.path = path
        self.size = size
        self.epochs = epochs
        self.after = after
        self.gaps = False
        """A gap was seen: the file has been compacted."""
        self.most = (1 << 63) - 1
        """The highest offset."""
        self.crc: Callable[..., int] = function()

    def check(self, view: memoryview, at: int, origin: int, floor: int | None) -> Head | None:
        """The head of the batch at a place of a window; None: the window has not all of it.

        :param origin: where the window begins in the file
        :param floor: the offset behind the batch before; None: this one is known to be in place
        :raises Damage: there is none that is sound
        """
        if len(view) - at < HEAD.size:
            if self.size - origin - at < HEAD.size:
                raise Damage(
                    self.path, origin + at, f"a batch is cut, {self.size - origin - at} bytes left"
                )
            return None
        head = Head._make(HEAD.unpack_from(view, at))
        end = at + PREFIX + head.length
        if head.magic != MAGIC or head.length < SHORTEST or origin + end > self.size:
            raise Damage(self.path, origin + at, self._misfit(head, origin + at))
        if end > len(view):
            return None
        made = self.crc(view[at + ATTRIBUTES_AT : end])
        if made != head.checksum:
            raise Damage(self.path, origin + at, _mismatch(head, made))
        self.check_place(head, origin + at, floor)
        return head

    def check_place(self, head: Head, position: int, floor: int | None) -> None:
        """Offsets rise, and the leader epoch is the one of the time; no checksum covers either.

        :raises Damage: it is not so
        """
        base = head.base_offset
        if base != floor and floor is not None:
            if base < floor:
                raise Damage(self.path, position, f"offset {base} after {floor - 1}")
            after = self._base_at(position + head.size)
            if after is None and not self.gaps:
                # nothing follows, and nobody compacts what is written to
                raise Damage(self.path, position, f"offset {base} after {floor - 1}")
            if after is not None and head.last_offset >= after:
                span = f"offsets {base} to {head.last_offset}"
                raise Damage(self.path, position, f"{span}, and {after} comes next")
            self.gaps = True
        if head.last_offset_delta < 0 or base < 0 or head.last_offset > self.most:
            raise Damage(self.path, position, f"offsets {base} to {head.last_offset}")
        epochs = self.epochs
        if epochs is not None and head.leader_epoch != epochs.only:
            expected = epochs.at(base)
            if head.leader_epoch != expected:
                text = f"leader epoch {head.leader_epoch}, it was {expected}"
                raise Damage(self.path, position, text)

    def check_large(self, position: int, head: Head) -> None:
        """Compares the checksum of a batch that is larger than a window, piece by piece.

        :raises Damage: it is wrong
        """
        made = 0
        at, end = position + ATTRIBUTES_AT, position + head.size
        while at < end:
            piece = self.disk.read(self.path, at, min(WINDOW, end - at))
            if not piece:
                raise Damage(self.path, position, f"a batch is cut at byte {at}")
            made = self.crc(piece, made)
            at += len(piece)
        if made != head.checksum:
            raise Damage(self.path, position, _mismatch(head, made))

    def _base_at(self, position: int) -> int | None:
        """The base offset of the batch there, or of what follows the file."""
        if position >= self.size:
            return self.after
        found = self.disk.read(self.path, position, BASE)
        return int.from_bytes(found, signed=True) if len(found) == BASE else None

    def _misfit(self, head: Head, position: int) -> str:
        if head.magic != MAGIC:
            return magic_problem(head.magic)
        left = self.size - position
        if head.length < SHORTEST:
            return f"impossible length {head.length}"
        return f"a batch of {head.size} bytes is cut, {left} left"


def scan(frame: Frame, begin: int, floor: int | None, window: int = WINDOW) -> Iterator[Batch]:
    """Every batch from a position on, at which one begins.

    :param floor: the offset behind the batch before; None: the first is known to be in place
    :raises Damage: at the first that is not sound
    """
    at = begin
    while at < frame.size:
        view = memoryview(frame.disk.read(frame.path, at, min(window, frame.size - at)))
        inside = 0
        while inside < len(view):
            head = frame.check(view, inside, at, floor)
            if head is None:
                break
            size = head.size
            yield Batch(at + inside, head, view[inside : inside + size])
            floor = head.last_offset + 1
            inside += size
        if not inside:
            large = _large(frame, at, view, floor)
            yield large
            floor = large.head.last_offset + 1
            inside = large.head.size
        at += inside


def newest(frame: Frame, begin: int, window: int = 1 << 18) -> int | None:
    """The newest timestamp from a batch on, by the heads alone; None: one leads astray.

    Many times faster than :func:`scan`, for those who check what they find.
    """
    at, found, size = begin, -1, frame.size
    length_of, time_of = LENGTH.unpack_from, TIMESTAMP.unpack_from
    while at < size:
        view = frame.disk.read(frame.path, at, min(window, size - at))
        inside, last = 0, len(view) - HEAD.size
        if last < 0:
            return None
        while inside <= last:
            (length,) = length_of(view, inside + LENGTH_AT)
            (timestamp,) = time_of(view, inside + MAX_TIMESTAMP_AT)
            if length < SHORTEST:
                return None
            found = max(found, timestamp)
            inside += PREFIX + length
        at += inside
    return found if at == size else None


def read_head(disk: Disk, path: str, position: int) -> Head | None:
    """The head at a position, unchecked; None if the file ends before."""
    data = disk.read(path, position, HEAD.size)
    return Head._make(HEAD.unpack(data)) if len(data) == HEAD.size else None


def _large(frame: Frame, at: int, view: Bytes, floor: int | None) -> Batch:
    """A batch that is larger than the window: it is read whole only once it is known to be one."""
    if len(view) < HEAD.size:
        raise Damage(frame.path, at, f"the file ends {frame.size - at - len(view)} bytes early")
    head = Head._make(HEAD.unpack_from(view))
    frame.check_large(at, head)
    frame.check_place(head, at, floor)
    return Batch(at, head, memoryview(frame.disk.read(frame.path, at, head.size)))


def _mismatch(head: Head, made: int) -> str:
    return f"checksum {made:08x}, the batch says {head.checksum:08x}"
