"""The lengths of records: how far it is from where one begins to where the next does.

A length is a varint, nearly always of one byte or two. What two bytes say is looked up.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from rota.formats.batch.scalar import SMALLEST_RECORD
from rota.formats.batch.varint import unsigned_varints
from rota.formats.buffer import Buffer, Bytes, Int64Array

NEVER = 1 << 40
"""Further than any buffer goes: a length that no record has, or of more than two bytes."""
LEAST_RUN = 64
"""Records of one size from which on they are found faster together than one by one."""
SHORT_RUNS = 4
"""With so many shorter ones there are no runs to be expected."""


@functools.cache
def strides() -> Int64Array:
    """By the first two bytes of a record: how many bytes it has, its length included."""
    first, second = np.arange(1 << 16) & 255, np.arange(1 << 16) >> 8
    short = first < 128
    number = np.where(short, first, first & 127 | second << 7)
    found = (number >> 1) + np.where(short, 1, 2)
    wrong = (number & 1).astype(np.bool_) | (~short & (second > 127))
    wrong |= number >> 1 < SMALLEST_RECORD - 1
    found[wrong] = NEVER
    return found


def measured(buffer: Buffer, at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Of records at these offsets: where they begin behind their length, and where they end."""
    pair = buffer.pair[at]
    end = strides()[pair]
    start = at + 1
    start += pair >> 7 & 1
    unknown = np.flatnonzero(end == NEVER)
    end += at
    if len(unknown):
        number, after = unsigned_varints(buffer, at[unknown])
        start[unknown] = after
        end[unknown] = after + (number >> 1) + (number & 1) * NEVER  # an odd one is negative
    return start, end


def in_turn(buffer: Buffer, at: int, limit: int) -> Int64Array:
    """Where records begin, from an offset on; ends before the limit where they go astray.

    Often many that follow each other have one size: such runs are found at once.
    """
    found = []
    short = 0
    pair, stride = buffer.pair, strides()
    while at < limit and short < SHORT_RUNS:
        size = int(stride[pair[at]])
        end = at + size * _run(pair[at:limit:size])
        if end > limit:  # the last one goes further, or all of it is no run
            break
        found.append(np.arange(at, end, size))
        short += end - at < LEAST_RUN * size
        at = end
    if at < limit:
        found.append(np.array(_one_by_one(buffer.view, at, limit), dtype=np.int64))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _run(lengths: npt.NDArray[np.uint16]) -> int:
    """How many are equal at the beginning, in a time that is theirs."""
    known, window = 0, LEAST_RUN
    while known < len(lengths):
        others = np.flatnonzero(lengths[known : known + window] != lengths[0])
        if len(others):
            return known + int(others[0])
        known += window
        window *= 4
    return len(lengths)


def _one_by_one(data: Bytes, at: int, limit: int) -> list[int]:
    low, high = _halves()
    found: list[int] = []
    add = found.append
    while at < limit:
        while at < limit:
            add(at)
            first = data[at]
            at += low[first] if first < 128 else low[first] + high[data[at + 1]]
        if at > limit:
            at = found[-1]
            at += _long(data, at)
    return found


@functools.cache
def _halves() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the first byte says of a record's size, and what is to be added for the second."""
    small = strides()[:128].tolist()
    low = [2 + (byte >> 1) if byte % 2 == 0 else NEVER for byte in range(128)]
    return (*small, *low), (*range(0, 64 * 128, 64), *[NEVER] * 128)


def _long(data: Bytes, at: int) -> int:
    """How many bytes a record has whose length may be a varint of any size."""
    number = 0
    for place, byte in enumerate(data[at : at + 5]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return NEVER if number & 1 else place + 1 + (number >> 1)
    return NEVER
