"""The fields of records whose places are known, each for all records at once."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from rota.errors import FormatError
from rota.formats.batch.scalar import Body, read_headers
from rota.formats.batch.varint import signed, unsigned_varints, varlongs
from rota.formats.buffer import BoolArray, Buffer, Int64Array

PAST_32 = 1 << 32
FEW = 48
"""With fewer records than this that have more headers, they are read one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A row for each record."""

    timestamp_delta: Int64Array
    offset_delta: Int64Array
    key_start: Int64Array
    key_size: Int64Array
    value_start: Int64Array
    value_size: Int64Array
    headers_start: Int64Array
    headers: Int64Array
    bad: BoolArray
    """The record does not follow the format; the row's other fields mean nothing."""

    def only(self, rows: BoolArray) -> Fields:
        """Some of the records."""
        return Fields(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


def read_fields(buffer: Buffer, starts: Int64Array, ends: Int64Array) -> Fields:
    """All fields of records between these offsets.

    Offsets are kept from leaving their record. Every field has a byte at least, so a record that
    was held back at its end before the last field does not come out at its end.
    """
    at = np.minimum(starts + 1, ends)
    timestamp_delta, at, bad = varlongs(buffer, at)
    offset_delta, at = _varint(buffer, np.minimum(at, ends), bad)
    key_start, key_size, at = _bytes(buffer, np.minimum(at, ends), bad)
    value_start, value_size, at = _bytes(buffer, np.minimum(at, ends), bad)
    headers, at = _varint(buffer, np.minimum(at, ends), bad)
    headers_start = at
    bad |= (headers < 0) | (headers > ends - at) | (starts >= ends)
    some = np.flatnonzero((headers > 0) & ~bad)
    if len(some):
        at = at.copy()
        at[some] = _skip_headers(buffer, at[some], ends[some], headers[some])
    bad |= at != ends
    return Fields(
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
        headers_start=headers_start,
        headers=headers,
        bad=bad,
    )


def _varint(buffer: Buffer, at: Int64Array, bad: BoolArray) -> tuple[Int64Array, Int64Array]:
    value, after = unsigned_varints(buffer, at)
    bad |= value >= PAST_32
    return signed(value), after


def _bytes(
    buffer: Buffer, at: Int64Array, bad: BoolArray
) -> tuple[Int64Array, Int64Array, Int64Array]:
    size, start = _varint(buffer, at, bad)
    size = np.maximum(size, -1)  # any negative length is null
    return start, size, start + np.maximum(size, 0)


def _skip_headers(
    buffer: Buffer, at: Int64Array, ends: Int64Array, count: Int64Array
) -> Int64Array:
    """Where the headers of each record end; past the record's end where they are wrong."""
    order = np.argsort(-count, kind="stable")
    going = np.searchsorted(-count[order], -np.arange(1, int(count.max()) + 2), "right")
    place, end = at[order], ends[order]
    bad = np.zeros(len(at), dtype=np.bool_)
    step = 0
    while (live := int(going[step])) >= FEW:
        refused = bad[:live]
        _, name_size, after = _bytes(buffer, place[:live], refused)
        refused |= name_size < 0
        _, _, after = _bytes(buffer, np.minimum(after, end[:live]), refused)
        refused |= after > end[:live]
        place[:live] = np.minimum(after, end[:live])
        step += 1
    for each in range(live):
        left = int(count[order[each]]) - step
        place[each] = _skip_one_by_one(buffer.data, int(place[each]), int(end[each]), left)
    result = np.empty_like(at)
    result[order] = np.where(bad, end + 1, place)
    return result


def _skip_one_by_one(data: bytes, at: int, end: int, count: int) -> int:
    body = Body(data, at, end)
    try:
        read_headers(body, count)
    except FormatError:
        return end + 1
    return body.at
