"""Numbers, varints and names read at many offsets of a buffer at once, with NumPy.

`ByteBuffer` gives a number at any offset, aligned or not. A varint has seven bits to the byte, the
lowest first, and zigzag encoding for signed numbers. A name follows its 16-bit length.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rota.engine.model.topic import IntArray

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = bytes | bytearray | memoryview
PADDING = 16  # bytes after the last byte: for a word and two bytes more, the longest varint

NUMBER_TYPES: Mapping[str, npt.DTypeLike] = {
    "uint8": np.uint8,
    "int16": ">i2",
    "int32": ">i4",
    "int64": ">i8",
    "word": ">u8",
    "little": "<u8",
    "pair": "<u2",
}


class ByteBuffer:
    """Byte strings as one, with padding after the last, so that any offset has a whole number."""

    __slots__ = ("_base", "_begin", "data", "size", "view", *NUMBER_TYPES)
    data: bytes  # all bytes, and the padding
    uint8: npt.NDArray[np.uint8]
    int16: npt.NDArray[np.int16]
    int32: npt.NDArray[np.int32]
    int64: Int64Array
    word: npt.NDArray[np.uint64]
    little: npt.NDArray[np.uint64]
    pair: npt.NDArray[np.uint16]

    def __init__(self, pieces: Sequence[Bytes]) -> None:
        found = _find_padded_memory(pieces[0]) if len(pieces) == 1 else None
        if found is not None:
            self._base, self._begin = found
            self.size = len(pieces[0])
        else:
            self.data = b"".join([*pieces, bytes(PADDING)])
            self._base, self._begin = np.frombuffer(self.data, np.uint8), 0
            self.size = len(self.data) - PADDING
        #: The same bytes as a view, without a copy.
        self.view = self._base.data[self._begin : self._begin + self.size + PADDING]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 bytes, or numbers of a kind
        made: bytes | npt.NDArray[Any]
        if name == "data":
            made = bytes(self.view)
        elif name in NUMBER_TYPES:
            made = self._at_any_offset(NUMBER_TYPES[name])
        else:
            raise AttributeError(name)
        setattr(self, name, made)
        return made

    def _at_any_offset(self, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """Returns a value for every offset at which one fits."""
        rows = self.size + PADDING - np.dtype(kind).itemsize + 1
        return np.ndarray((rows,), kind, self._base, offset=self._begin, strides=(1,))


def allocate_padded(size: int) -> memoryview:
    """Returns ``size`` uninitialized bytes with padding after them."""
    return np.empty(size + PADDING, np.uint8).data[:size]


def _find_padded_memory(piece: Bytes) -> tuple[npt.NDArray[np.uint8], int] | None:
    """The padded memory of these bytes, and where they begin in it; None without padding."""
    base = piece.obj if isinstance(piece, memoryview) else None
    if not isinstance(base, np.ndarray) or not len(piece):
        return None
    if base.dtype != np.uint8 or base.ndim != 1 or not base.flags.c_contiguous:
        return None
    begin = _memory_address(np.frombuffer(piece, np.uint8)) - _memory_address(base)
    return (base, begin) if begin + len(piece) + PADDING <= base.nbytes else None


def _memory_address(array: npt.NDArray[Any]) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


#: The highest bit of each byte that a varint of 32 bits can have; it is clear in the last.
LAST_BYTE_BITS_32 = 0x80_8080_8080
VARINT_LIMIT = 1 << 32
LAST_BYTE_BITS_64 = 0x8080_8080_8080_8080
TABLE_BITS = 16  # bits of the numbers that are looked up


def read_unsigned_varints(buffer: ByteBuffer, at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Returns 32-bit numbers and the offsets after them; 2^32 or more: too many bytes or bits."""
    value = buffer.uint8[at].astype(np.int64)
    after = at + 1
    more = np.flatnonzero(value > 127)
    if len(more):
        word = buffer.little[at[more]]
        stops = ~word & LAST_BYTE_BITS_32
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


def decode_zigzag(value: Int64Array) -> Int64Array:
    return (value >> 1) ^ -(value & 1)


def decode_leading_varints(
    word: npt.NDArray[np.uint64],
) -> tuple[Int64Array, npt.NDArray[np.uint8], BoolArray]:
    """The signed numbers that begin these words, their bits, and which take more than 32."""
    numbers, sizes = _short_varint_table()
    low = word.view(np.int64) & 0xFFFF
    number, bits = numbers[low], sizes[low]
    more = np.flatnonzero(bits > TABLE_BITS)
    if len(more):
        number[more], bits[more] = _decode_any_leading_varints(word[more])
    return number, bits, bits > 32


@functools.cache
def _short_varint_table() -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Returns number and bits by the first two bytes of a varint; 255 bits if it is longer."""
    first, second = np.arange(1 << 16) & 255, np.arange(1 << 16) >> 8
    one = first < 128
    number = decode_zigzag(np.where(one, first, first & 127 | second << 7))
    bits = np.where(one, 8, np.where(second < 128, TABLE_BITS, 255))
    return number, bits.astype(np.uint8)


def _decode_any_leading_varints(
    word: npt.NDArray[np.uint64],
) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    stops = ~word & LAST_BYTE_BITS_64
    kept = stops & np.negative(stops)
    kept -= 1  # all bits before that which says that the number ends
    bits = np.bitwise_count(kept)
    bits += 1
    kept &= word
    found = kept & 0x7F
    for place in range(1, min(int(bits.max()), 32) // 8):
        found |= kept >> place & 0x7F << 7 * place
    return decode_zigzag(found.view(np.int64)), bits


def read_varlongs(buffer: ByteBuffer, at: Int64Array) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Returns the signed 64-bit numbers, the offsets after them, and which are invalid."""
    value = buffer.uint8[at].astype(np.uint64)
    after = at + 1
    bad = np.zeros(len(at), dtype=np.bool_)
    more = np.flatnonzero(value > 127)
    if len(more):
        word = buffer.little[at[more]]
        stops = ~word & LAST_BYTE_BITS_64
        longer = stops == 0
        lowest = stops & -stops
        kept = lowest ^ (lowest - 1)
        word &= kept
        found = word & 0x7F
        for place in range(1, 8):
            found |= word >> place & 0x7F << 7 * place
        value[more] = found
        after[more] += (np.bitwise_count(kept) >> 3) - 1
        for row in more[longer].tolist():  # 57 bits or more: practically never
            value[row], after[row], bad[row] = _read_long_varlong(buffer, int(at[row]))
    return (value >> 1).astype(np.int64) ^ -(value & 1).astype(np.int64), after, bad


def _read_long_varlong(buffer: ByteBuffer, at: int) -> tuple[int, int, bool]:
    value = 0
    for place, byte in enumerate(buffer.data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 128:
            return value & (1 << 64) - 1, at + place + 1, value >= 1 << 64
    return 0, at + 10, True


WordArray: TypeAlias = npt.NDArray[np.uint64]
WORD_SIZE = 8
LONGEST_COMPARED_NAME = 256  # names up to here are compared as columns; topics have 249 bytes
ROWS_PER_CHUNK = 1 << 17  # rows whose names are resolved together: they fit into the cache
SLOT_BITS = 16
#: An odd number with evenly distributed bits: a product with it mixes the upper bits.
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def find_distinct_names(
    buffer: ByteBuffer, name_at: Int64Array, name_size: Int64Array
) -> tuple[tuple[str, ...], IntArray]:
    """Returns the distinct names and each row's position in them (-1: not UTF-8)."""
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
    for begin in range(0, len(code), ROWS_PER_CHUNK):
        rows = slice(begin, begin + ROWS_PER_CHUNK)
        like = _find_equal_names(buffer, name_at[rows], name_size[rows])
        chosen = np.zeros(len(like), dtype=np.bool_)
        chosen[like] = True
        distinct = np.flatnonzero(chosen)
        position = np.empty(len(like), dtype=np.int32)
        position[distinct] = [number(begin + row) for row in distinct.tolist()]
        code[rows] = position[like]
    return tuple(names), code


def _find_equal_names(buffer: ByteBuffer, name_at: Int64Array, name_size: Int64Array) -> Int64Array:
    """Returns for each row one with the same name, mostly the same: equal to the last byte."""
    size = np.minimum(name_size, LONGEST_COMPARED_NAME)
    words = range(-(-int(size.max(initial=0)) // WORD_SIZE))
    mixed = np.zeros(len(name_at), dtype=np.uint64)
    for word in words:
        mixed ^= _read_name_word(buffer, name_at, size, word)
        mixed *= HASH_MULTIPLIER
        mixed ^= mixed >> np.uint64(32)
    slot = mixed & np.uint64((1 << SLOT_BITS) - 1)
    rows = np.arange(len(name_at))
    table = np.empty(1 << SLOT_BITS, dtype=np.int64)
    table[slot] = rows
    like = table[slot]
    same = name_size <= LONGEST_COMPARED_NAME
    for word in words:
        mine = _read_name_word(buffer, name_at, size, word)
        same &= mine == mine[like]
    return np.where(same, like, rows)


def _read_name_word(
    buffer: ByteBuffer, at: Int64Array, size: Int64Array, position: int
) -> WordArray:
    """Returns the position-th eight bytes of each name with its length, zeros past its end."""
    offset = WORD_SIZE * position
    word = buffer.word[np.minimum(at + offset, len(buffer.word) - 1)].astype(np.uint64)
    beyond = np.clip(offset + WORD_SIZE - size, 0, WORD_SIZE).astype(np.uint64)
    return word >> (beyond * np.uint64(8))
