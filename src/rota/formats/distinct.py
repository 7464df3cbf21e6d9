"""Names that stand many times in a buffer, told apart as columns.

A name is bytes behind their 16-bit length, as Kafka writes text.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rota.formats.buffer import Buffer, Int64Array
from rota.model.topic import IntArray

WordArray: TypeAlias = npt.NDArray[np.uint64]

WORD = 8
LONGEST = 256
"""Names up to here are compared as columns; a legal topic name has at most 249 bytes."""
CHUNK = 1 << 17
"""Rows whose names are resolved together: small enough for the processor's cache."""
SLOT_BITS = 16
MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with its bits spread evenly: multiplying by it stirs the upper bits."""


def distinct_names(
    buffer: Buffer, name_at: Int64Array, name_size: Int64Array
) -> tuple[tuple[str, ...], IntArray]:
    """The distinct names, and for each row the position of its name; -1 where it is no text.

    Sizes count the two bytes of the length.
    """
    index: dict[bytes, int] = {}
    names: list[str] = []

    def number(row: int) -> int:
        at = int(name_at[row])
        raw = buffer.data[at + 2 : at + int(name_size[row])]
        found = index.get(raw)
        if found is None:
            try:
                names.append(raw.decode())
                found = len(names) - 1
            except UnicodeDecodeError:
                found = -1
            index[raw] = found
        return found

    code = np.empty(len(name_at), dtype=np.int32)
    for begin in range(0, len(code), CHUNK):
        rows = slice(begin, begin + CHUNK)
        like = _equal_names(buffer, name_at[rows], name_size[rows])
        chosen = np.zeros(len(like), dtype=np.bool_)
        chosen[like] = True
        distinct = np.flatnonzero(chosen)
        position = np.empty(len(like), dtype=np.int32)
        position[distinct] = [number(begin + row) for row in distinct.tolist()]
        code[rows] = position[like]
    return tuple(names), code


def _equal_names(buffer: Buffer, name_at: Int64Array, name_size: Int64Array) -> Int64Array:
    """For each row one that has the same name, the same for nearly all rows with that name.

    Rows meet by a hash and are then compared to the last byte; a row that meets another name, or
    whose name is long, stands for itself.
    """
    size = np.minimum(name_size, LONGEST)
    words = range(-(-int(size.max(initial=0)) // WORD))
    mixed = np.zeros(len(name_at), dtype=np.uint64)
    for word in words:
        mixed ^= _word(buffer, name_at, size, word)
        mixed *= MIX
        mixed ^= mixed >> np.uint64(32)
    slot = mixed & np.uint64((1 << SLOT_BITS) - 1)
    rows = np.arange(len(name_at))
    table = np.empty(1 << SLOT_BITS, dtype=np.int64)
    table[slot] = rows
    like = table[slot]
    same = name_size <= LONGEST
    for word in words:
        mine = _word(buffer, name_at, size, word)
        same &= mine == mine[like]
    return np.where(same, like, rows)


def _word(buffer: Buffer, at: Int64Array, size: Int64Array, position: int) -> WordArray:
    """The position-th eight bytes of each name with its length in front, zeros past its end."""
    offset = WORD * position
    word = buffer.word[np.minimum(at + offset, len(buffer.word) - 1)].astype(np.uint64)
    beyond = np.clip(offset + WORD - size, 0, WORD).astype(np.uint64)
    return word >> (beyond * np.uint64(8))
