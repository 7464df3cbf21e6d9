"""Varints at many offsets at once: seven bits to the byte, the lowest first, zigzag for signs."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from rota.formats.buffer import BoolArray, Buffer, Int64Array

STOPS_32 = 0x80_8080_8080
"""The highest bit of each byte that a varint of 32 bits can have; it is clear in the last."""
PAST_32 = 1 << 32
STOPS_64 = 0x8080_8080_8080_8080
SHORT = 16
"""Bits of the numbers that are looked up."""


def unsigned_varints(buffer: Buffer, at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The numbers of 32 bits at these offsets, and the offsets behind them.

    Where there is none, because it has too many bytes or bits, the number is 2^32 or more.
    """
    value = buffer.uint8[at].astype(np.int64)
    after = at + 1
    more = np.flatnonzero(value > 127)
    if len(more):
        word = buffer.little[at[more]]
        stops = ~word & STOPS_32
        stops |= (stops == 0).astype(np.uint64) << 47  # none: take six bytes, more than 32 bits
        lowest = stops & -stops
        kept = lowest ^ (lowest - 1)
        word &= kept
        found = word & 0x7F
        for place in range(1, 5):
            found |= word >> place & 0x7F << 7 * place
        found |= (lowest >> 47) << 40
        value[more] = found
        after[more] += (np.bitwise_count(kept) >> 3) - 1
    return value, after


def signed(value: Int64Array) -> Int64Array:
    """Out of the zigzag form: 0, -1, 1, -2, ..."""
    return (value >> 1) ^ -(value & 1)


def first_numbers(
    word: npt.NDArray[np.uint64],
) -> tuple[Int64Array, npt.NDArray[np.uint8], BoolArray]:
    """The signed numbers that begin these words, their bits there, and which have more than 32.

    Of those the number is wrong.
    """
    numbers, sizes = _short_numbers()
    low = word.view(np.int64) & 0xFFFF
    number, bits = numbers[low], sizes[low]
    more = np.flatnonzero(bits > SHORT)
    if len(more):
        number[more], bits[more] = _any_first_numbers(word[more])
    return number, bits, bits > 32


@functools.cache
def _short_numbers() -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """By the first two bytes: the number that they begin with, and its bits if those are all."""
    first, second = np.arange(1 << 16) & 255, np.arange(1 << 16) >> 8
    one = first < 128
    number = signed(np.where(one, first, first & 127 | second << 7))
    bits = np.where(one, 8, np.where(second < 128, SHORT, 255))
    return number, bits.astype(np.uint8)


def _any_first_numbers(
    word: npt.NDArray[np.uint64],
) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    stops = ~word & STOPS_64
    kept = stops & np.negative(stops)
    kept -= 1  # all bits before that which says that the number ends
    bits = np.bitwise_count(kept)
    bits += 1
    kept &= word
    found = kept & 0x7F
    for place in range(1, min(int(bits.max()), 32) // 8):
        found |= kept >> place & 0x7F << 7 * place
    return signed(found.view(np.int64)), bits


def varlongs(buffer: Buffer, at: Int64Array) -> tuple[Int64Array, Int64Array, BoolArray]:
    """The signed numbers of 64 bits, the offsets behind them, and where there is none."""
    value = buffer.uint8[at].astype(np.uint64)
    after = at + 1
    bad = np.zeros(len(at), dtype=np.bool_)
    more = np.flatnonzero(value > 127)
    if len(more):
        word = buffer.little[at[more]]
        stops = ~word & STOPS_64
        longer = stops == 0
        lowest = stops & -stops
        kept = lowest ^ (lowest - 1)
        word &= kept
        found = word & 0x7F
        for place in range(1, 8):
            found |= word >> place & 0x7F << 7 * place
        value[more] = found
        after[more] += (np.bitwise_count(kept) >> 3) - 1
        for row in more[longer].tolist():  # 57 bits or more: as good as never
            value[row], after[row], bad[row] = _long(buffer, int(at[row]))
    return (value >> 1).astype(np.int64) ^ -(value & 1).astype(np.int64), after, bad


def _long(buffer: Buffer, at: int) -> tuple[int, int, bool]:
    value = 0
    for place, byte in enumerate(buffer.data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 128:
            return value & (1 << 64) - 1, at + place + 1, value >= 1 << 64
    return 0, at + 10, True
