"""Finds every record of many batches: the k-th records of all of them in one step."""

from __future__ import annotations

import numpy as np

from rota.formats.batch.varint import unsigned_varints
from rota.formats.buffer import BoolArray, Buffer, Int64Array

FEW = 150
"""With fewer batches than this still going, a step costs more than going on one by one."""


def find_records(
    buffer: Buffer, start: Int64Array, limit: Int64Array, count: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, BoolArray]:
    """For each record where it starts (behind its length), where it ends, and its batch's row.

    Then for each batch whether its records do not fill it exactly; their rows mean nothing, but lie
    within the buffer.
    """
    total = int(count.sum())
    starts = np.empty(total, dtype=np.int64)
    ends = np.empty(total, dtype=np.int64)
    first = np.cumsum(count) - count
    # from the one with most records to the one with fewest: those still going are the first ones
    order = np.argsort(-count, kind="stable")
    going = np.searchsorted(-count[order], -np.arange(1, int(count.max(initial=0)) + 2), "right")
    at, end, row = start[order], limit[order], first[order]
    step = 0
    while (live := int(going[step])) >= FEW:
        length, after = unsigned_varints(buffer, at[:live])
        rows = row[:live] + step
        starts[rows] = after
        after += (length >> 1) + (length & 1) * _NEVER  # an odd one is negative
        ends[rows] = after
        at[:live] = np.minimum(after, end[:live])
        step += 1
    for each in range(live):
        rest = slice(int(row[each]) + step, int(row[each] + count[order[each]]))
        _one_by_one(buffer.data, int(at[each]), int(end[each]), starts[rest], ends[rest])
    batch = np.repeat(np.arange(len(count)), count)
    limits = limit[batch]
    beyond = (ends > limits) | (starts > limits)
    bad = np.zeros(len(count), dtype=np.bool_)
    bad[batch[beyond]] = True
    filled = np.flatnonzero(count)
    bad[filled] |= ends[first[filled] + count[filled] - 1] != limit[filled]
    np.minimum(starts, limits, out=starts)
    np.minimum(ends, limits, out=ends)
    return starts, ends, batch, bad


_NEVER = 1 << 40
"""Further than any buffer goes."""


def _one_by_one(data: bytes, at: int, limit: int, starts: Int64Array, ends: Int64Array) -> None:
    found: list[int] = []
    lasts: list[int] = []
    for _ in range(len(starts)):
        length = data[at]
        at += 1
        if length > 127:
            length = (length & 127) + (data[at] << 7)
            at += 1
            if length >= 1 << 14:
                length, at = _longer(data, at - 2)
        if length & 1:
            length = _NEVER
        found.append(at)
        at += length >> 1
        lasts.append(at)
        if at >= limit:
            break
    starts[: len(found)] = found
    ends[: len(lasts)] = lasts
    starts[len(found) :] = ends[len(found) :] = _NEVER


def _longer(data: bytes, at: int) -> tuple[int, int]:
    """A varint of any size, and the offset behind it."""
    value = 0
    for place, byte in enumerate(data[at : at + 5]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    return _NEVER, at
