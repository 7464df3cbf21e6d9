"""Records as values, and batches written of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.errors import FormatError
from rota.formats.batch import codec as codecs
from rota.formats.batch.checksum import checksum
from rota.formats.batch.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CHECKSUM,
    CHECKSUM_AT,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEAD,
    MAGIC,
    PREFIX,
    TRANSACTIONAL_BIT,
    Codec,
    Header,
    Marker,
)

NO_TIMESTAMP = -1
LARGEST = (1 << 63) - 1
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_SHORT = 1 << 13
"""Numbers from 0 to here are looked up: two bytes each at most."""


class Record(NamedTuple):
    """A record of a batch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    """Names are UTF-8 as a rule; Kafka does not check."""


def encode(  # noqa: PLR0913, each is a field of the head
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    append_time: int | None = None,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
    newest: int | None = None,
) -> bytes:
    """One batch of records in the order of their offsets.

    Offsets may have gaps, as compaction leaves them; ``base_offset`` and ``last_offset`` are those
    of the batch where its first or last record is gone. With ``append_time`` that is what readers
    get as every record's timestamp. From ``delete_horizon`` on compaction may drop tombstones.
    Without records, ``newest`` is what the batch's max timestamp was.

    :raises FormatError: a number does not fit, or offsets do not ascend
    """
    kept = list(records)
    first, last = _bounds(kept, base_offset, last_offset)
    timestamps = [record.timestamp for record in kept]
    base_timestamp = timestamps[0] if timestamps else NO_TIMESTAMP
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    last_time = max(timestamps, default=NO_TIMESTAMP if newest is None else newest)
    if last_time - min(timestamps, default=last_time) >= LARGEST:
        raise FormatError(f"batch at offset {first}: timestamps are too far apart")
    body = b"".join([_encoded(record, first, base_timestamp) for record in kept])
    if not kept:  # by Kafka too such batches are written without a codec
        codec = Codec.NONE
    if codec is not Codec.NONE:
        body = codecs.compress(codec, body)
    attributes = (
        int(codec)
        | (APPEND_TIME_BIT if append_time is not None else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon is not None else 0)
    )
    length = HEAD.size - PREFIX + len(body)
    fields = (
        *(first, length, leader_epoch, MAGIC, 0, attributes, last - first, base_timestamp),
        *(last_time if append_time is None else append_time, producer_id, producer_epoch),
        *(base_sequence, len(kept)),
    )
    return _sealed(fields, body)


def encode_anew(head: Header, body: bytes, *, count: int, newest: int) -> bytes:
    """A batch with some of its records only, as they were encoded; all else is as it was.

    :param body: the records, not compressed
    :param newest: the newest of their timestamps; it does not count where the broker's do
    """
    codec = Codec(head.codec)
    if codec is not Codec.NONE:
        body = codecs.compress(codec, body)
    fields = (
        *(head.base_offset, HEAD.size - PREFIX + len(body), head.leader_epoch, MAGIC, 0),
        *(head.attributes, head.last_offset_delta, head.base_timestamp),
        *(head.max_timestamp if head.append_time else newest, head.producer_id),
        *(head.producer_epoch, head.base_sequence, count),
    )
    return _sealed(fields, body)


def _sealed(fields: tuple[int, ...], body: bytes) -> bytes:
    """Head and body with their checksum."""
    try:
        batch = bytearray(HEAD.pack(*fields))
    except struct.error as error:
        raise FormatError(f"batch at offset {fields[0]}: a field does not fit: {error}") from None
    batch += body
    CHECKSUM.pack_into(batch, CHECKSUM_AT, checksum(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def marker(  # noqa: PLR0913, as above
    kind: Marker,
    *,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction."""
    record = Record(
        offset, timestamp, _MARKER_KEY.pack(0, kind), _MARKER_VALUE.pack(0, coordinator_epoch)
    )
    return encode(
        [record],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def _bounds(
    records: Sequence[Record], base_offset: int | None, last_offset: int | None
) -> tuple[int, int]:
    """The first and the last offset that are the batch's."""
    if base_offset is None:
        if not records:
            raise FormatError("batch: without records it needs a base offset")
        base_offset = records[0].offset
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    before = base_offset - 1
    for record in records:
        if record.offset <= before:
            raise FormatError(f"batch: offset {record.offset} after {before}")
        before = record.offset
    if last_offset < max(before, base_offset):
        raise FormatError(f"batch: last offset {last_offset} before {max(before, base_offset)}")
    if last_offset > LARGEST:
        raise FormatError(f"batch: offset {last_offset} does not fit 64 bits")
    return base_offset, last_offset


def _encoded(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    parts = [
        b"\0",  # attributes, none of which is in use
        varint(record.timestamp - base_timestamp),
        varint(record.offset - base_offset),
        *_sized(record.key),
        *_sized(record.value),
        varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts += [*_sized(name), *_sized(value)]
    body = b"".join(parts)
    return varint(len(body)) + body


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if data is None else (varint(len(data)), data)


def varint(value: int) -> bytes:
    """A signed number, seven bits to the byte, the lowest first; the sign is the lowest bit."""
    return _SHORT_VARINTS[value] if 0 <= value < _SHORT else _any_varint(value)


def _any_varint(value: int) -> bytes:
    left = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


_SHORT_VARINTS = [
    *(bytes((value << 1,)) for value in range(1 << 6)),
    *(bytes((value << 1 & 127 | 128, value >> 6)) for value in range(1 << 6, _SHORT)),
]
_NULL = _any_varint(-1)
