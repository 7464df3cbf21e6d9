"""Bytes that are readable as numbers at any offset, aligned or not, for many offsets at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = bytes | bytearray | memoryview

ROOM = 16
"""Behind the last byte: for a word and two bytes more, the longest varint."""


class Buffer:
    """Byte strings as one, with room behind the last so that a number may be read at any offset."""

    __slots__ = ("data", "int16", "int32", "int64", "little", "pair", "size", "uint8", "word")

    def __init__(self, pieces: Iterable[Bytes]) -> None:
        self.data = b"".join([*pieces, bytes(ROOM)])
        self.size = len(self.data) - ROOM
        self.uint8: npt.NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)
        self.int16: npt.NDArray[np.int16] = self.at_any_offset(">i2")
        self.int32: npt.NDArray[np.int32] = self.at_any_offset(">i4")
        self.int64: Int64Array = self.at_any_offset(">i8")
        self.word: npt.NDArray[np.uint64] = self.at_any_offset(">u8")
        self.little: npt.NDArray[np.uint64] = self.at_any_offset("<u8")
        self.pair: npt.NDArray[np.uint16] = self.at_any_offset("<u2")

    def at_any_offset(self, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """A value of this kind for every offset at which one fits."""
        rows = max(len(self.data) - np.dtype(kind).itemsize + 1, 0)
        return np.ndarray((rows,), kind, self.data, strides=(1,))
