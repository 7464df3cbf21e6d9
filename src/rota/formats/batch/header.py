"""The head of a batch: 61 bytes, never compressed.

::

    base offset         int64   offset of the first record; compaction may have removed that one
    length              int32   of what follows
    leader epoch        int32   the only field behind the length that the checksum leaves out
    magic               int8    2
    checksum            uint32  CRC-32C from the attributes to the end
    attributes          int16   bits 0-2 codec, 3 timestamps are the broker's, 4 transactional,
                                5 control, 6 the base timestamp is when tombstones may go
    last offset delta   int32   kept by compaction, so that offsets never look missing
    base timestamp      int64
    max timestamp       int64   with the broker's timestamps: that of every record
    producer id         int64   -1: none
    producer epoch      int16
    base sequence       int32
    count               int32   of the records that are there; 0 where compaction left none
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

import numpy as np

from rota.errors import FormatError
from rota.formats.buffer import Bytes

MAGIC = 2
HEAD = struct.Struct(">qiibIhiqqqhii")
LENGTH = struct.Struct(">i")
CHECKSUM = struct.Struct(">I")
LENGTH_AT, MAGIC_AT, CHECKSUM_AT, ATTRIBUTES_AT = 8, 16, 17, 21
PREFIX = 12
"""Bytes that the length does not count."""
SHORTEST = HEAD.size - PREFIX
"""The least length: an empty batch."""
SHORTEST_OLD = 14
"""The least length of a message of magic 0."""
CODEC_BITS = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

FIELDS = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("checksum", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""The same for many batches at once."""


class Codec(enum.IntEnum):
    """How a batch's records are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Marker(enum.IntEnum):
    """How a transaction ended: the type in its control record's key."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A batch's head."""

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
    count: int

    @property
    def size(self) -> int:
        """All bytes of the batch."""
        return PREFIX + self.length

    @property
    def last_offset(self) -> int:
        """The last offset that is the batch's, whether its record is still there or not."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """A :class:`Codec`, or a number that none has."""
        return self.attributes & CODEC_BITS

    @property
    def append_time(self) -> bool:
        """The broker's time counts for all records: the max timestamp."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def transactional(self) -> bool:
        """Part of a transaction; so are its markers."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        """Holds a marker, not data."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may drop the batch's tombstones, once it has set that."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def read_header(data: Bytes, position: int = 0) -> Header:
    """The head at a position.

    :raises FormatError: it is cut, or not of magic 2
    """
    if not 0 <= position <= len(data) - HEAD.size:
        left = max(len(data) - position, 0)
        raise FormatError(f"batch at byte {position}: {HEAD.size} bytes needed, {left} left")
    names = Header.__dataclass_fields__
    header = Header(**dict(zip(names, HEAD.unpack_from(data, position), strict=True)))
    if header.magic != MAGIC:
        raise FormatError(f"batch at byte {position}: {magic_problem(header.magic)}")
    return header


def magic_problem(magic: int) -> str:
    """What is wrong with a magic other than 2."""
    if magic in {0, 1}:
        return f"message format {magic}, as before Kafka 0.11; only format 2 is read"
    return f"magic {magic} is none that is known"
