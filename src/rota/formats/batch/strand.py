"""Where in the middle of a large batch a record begins.

A record begins where the one before it ends, so that those of one batch are found one after the
other. With a record known here and there, several can go on from there at once. What is found here
is likely, not certain: whoever goes on from one must arrive exactly at the next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rota.formats.batch.length import strides
from rota.formats.batch.scalar import SMALLEST_RECORD
from rota.formats.batch.varint import first_numbers
from rota.formats.buffer import Buffer, Int64Array

HOPS = 2
"""Records that must follow each that is found."""
LARGEST_GAP = 64
"""Between their offsets: compaction may have removed some."""
WINDOW = 1.5
"""Where a record is looked for: so many times the records' mean size."""
LARGEST = 512
"""Beyond this mean size it takes longer to look for records than to go through all."""
LEAST = 2 * (SMALLEST_RECORD - 1)
"""The first byte of a length, if that is one that a record can have."""
MOST_LIKELY = 32
"""If more places than this look like a record, in the mean, they all do."""


def likely_records(buffer: Buffer, start: int, limit: int, count: int, parts: int) -> Int64Array:
    """About as many places as parts, but one, ascending; or none."""
    nothing = np.empty(0, dtype=np.int64)
    mean = (limit - start) // count
    apart = (limit - start) // parts
    window = int(WINDOW * mean)
    if not 0 < window < apart or mean > LARGEST:
        return nothing
    rows, wide = parts - 1, window + 2
    near = np.ndarray(
        (rows, wide), np.uint8, buffer.uint8, offset=start + apart, strides=(apart, 1)
    ).ravel()
    row, column = np.divmod(np.flatnonzero(_begins(near)), wide)
    inside = column < window
    row, column = row[inside], column[inside]
    if len(row) > MOST_LIKELY * rows:
        return nothing
    found = start + apart + row * apart + column
    held = _held(buffer, found, limit)
    row, found = row[held], found[held]
    first = np.ones(len(row), dtype=np.bool_)
    first[1:] = row[1:] != row[:-1]
    return found[first]


def _begins(near: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Where there is an even length of one byte or two, then attributes: a zero."""
    here, zero = near[:-2], near == 0
    long = here > 127
    looks: npt.NDArray[np.bool_] = zero[1:-1] & ~long
    looks |= zero[2:] & long
    looks &= here & 1 == 0
    looks &= here >= LEAST
    return looks


def _held(buffer: Buffer, at: Int64Array, limit: int) -> Int64Array:
    """Which of them are followed by what looks like records, or by the end; offsets ascend.

    Without the offsets one in a few hundred would be wrong: any length may lead to a record.
    """
    rows = np.arange(len(at))
    stride, _, before = _looked_at(buffer, at)
    for _ in range(HOPS):
        at = np.where(at < limit, at + stride, at)
        keep = at <= limit
        rows, at, before = rows[keep], at[keep], before[keep]
        stride, attributes, offset = _looked_at(buffer, at)
        step = offset - before
        keep = (attributes == 0) & (step > 0) & (step <= LARGEST_GAP)
        keep |= at == limit
        rows, at, before, stride = rows[keep], at[keep], offset[keep], stride[keep]
    return rows


def _looked_at(
    buffer: Buffer, at: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.uint8], Int64Array]:
    """What would be the size of a record, its attributes, and its offset in its batch."""
    pair = buffer.pair[at]
    behind = at + 1 + (pair >> 7 & 1)
    word = buffer.little[behind + 1]
    _, bits, _ = first_numbers(word)
    return strides()[pair], buffer.uint8[behind], first_numbers(word >> bits)[0]
