"""The fields of records whose places are known, each for all records at once."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from rota.errors import FormatError
from rota.formats.batch.scalar import Body, read_headers
from rota.formats.batch.varint import first_numbers, signed, unsigned_varints, varlongs
from rota.formats.buffer import BoolArray, Buffer, Int64Array

STRETCH = 1 << 13
"""Records that are read together."""
PAST_32 = 1 << 32
WORD = 64
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
        return Fields(**{name: getattr(self, name)[rows] for name in NAMES})


NAMES = tuple(each.name for each in fields(Fields))


def read_fields(buffer: Buffer, starts: Int64Array, ends: Int64Array) -> Fields:
    """All fields of records between these offsets.

    In stretches: what a processor keeps at hand it need not fetch for each of a hundred steps.
    """
    if len(starts) <= STRETCH:
        return _read(buffer, starts, ends)
    parts = [
        _read(buffer, starts[begin : begin + STRETCH], ends[begin : begin + STRETCH])
        for begin in range(0, len(starts), STRETCH)
    ]
    return Fields(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in NAMES})


def _read(buffer: Buffer, starts: Int64Array, ends: Int64Array) -> Fields:
    """Offsets are kept from leaving their record. Every field has a byte at least, so a record that
    was held back at its end before the last field does not come out at its end.
    """
    found, at, odd = _plain(buffer, starts, ends)
    rows = np.flatnonzero(odd)
    if len(rows):
        known, at[rows] = _any(buffer, starts[rows], ends[rows])
        for name in NAMES:
            getattr(found, name)[rows] = getattr(known, name)
    bad, headers = found.bad, found.headers
    bad |= starts >= ends
    if headers.any():
        bad |= (headers < 0) | (headers > ends - at)
        some = np.flatnonzero((headers > 0) & ~bad)
        if len(some):
            at[some] = _skip_headers(buffer, at[some], ends[some], headers[some])
    bad |= at != ends
    return found


def _plain(
    buffer: Buffer, starts: Int64Array, ends: Int64Array
) -> tuple[Fields, Int64Array, BoolArray]:
    """Of records whose numbers have four bytes at most, and those before the key eight together.

    Nearly all are such; where one is not, its row means nothing, and the last column is set.
    """
    at = starts + 1
    word = buffer.little[at]
    timestamp_delta, before, odd = first_numbers(word)
    word >>= before
    offset_delta, bits, long = first_numbers(word)
    odd |= long
    before += bits
    word >>= bits
    key_size, bits, long = first_numbers(word)
    odd |= long
    before += bits  # three times 65 at most
    odd |= before > WORD
    key_start = at + (before >> 3)
    np.maximum(key_size, -1, out=key_size)  # any negative length is null
    at = np.minimum(key_start + np.maximum(key_size, 0), ends)
    value_size, bits, long = first_numbers(buffer.little[at])
    odd |= long
    value_start = at + (bits >> 3)
    np.maximum(value_size, -1, out=value_size)
    at = np.minimum(value_start + np.maximum(value_size, 0), ends)
    headers = buffer.uint8[at].astype(np.int64)
    odd |= (headers & 0x81) != 0
    headers >>= 1
    at += 1
    found = Fields(
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
        headers_start=at.copy(),
        headers=headers,
        bad=np.zeros(len(starts), dtype=np.bool_),
    )
    return found, at, odd


def _any(buffer: Buffer, starts: Int64Array, ends: Int64Array) -> tuple[Fields, Int64Array]:
    """Of any records, one number after the other."""
    at = np.minimum(starts + 1, ends)
    timestamp_delta, at, bad = varlongs(buffer, at)
    offset_delta, at = _varint(buffer, np.minimum(at, ends), bad)
    key_start, key_size, at = _bytes(buffer, np.minimum(at, ends), bad)
    value_start, value_size, at = _bytes(buffer, np.minimum(at, ends), bad)
    headers, at = _varint(buffer, np.minimum(at, ends), bad)
    found = Fields(
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_start=key_start,
        key_size=key_size,
        value_start=value_start,
        value_size=value_size,
        headers_start=at,
        headers=headers,
        bad=bad,
    )
    return found, at


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
