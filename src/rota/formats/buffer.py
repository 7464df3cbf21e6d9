"""Bytes that are readable as numbers at any offset, aligned or not, for many offsets at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = bytes | bytearray | memoryview

ROOM = 16
"""Behind the last byte: for a word and two bytes more, the longest varint."""


KINDS: Mapping[str, npt.DTypeLike] = {
    "uint8": np.uint8,
    "int16": ">i2",
    "int32": ">i4",
    "int64": ">i8",
    "word": ">u8",
    "little": "<u8",
    "pair": "<u2",
}


class Buffer:
    """Byte strings as one, with room behind the last so that a number may be read at any offset."""

    __slots__ = ("data", "size", *KINDS)
    uint8: npt.NDArray[np.uint8]
    int16: npt.NDArray[np.int16]
    int32: npt.NDArray[np.int32]
    int64: Int64Array
    word: npt.NDArray[np.uint64]
    little: npt.NDArray[np.uint64]
    pair: npt.NDArray[np.uint16]

    def __init__(self, pieces: Iterable[Bytes]) -> None:
        self.data = b"".join([*pieces, bytes(ROOM)])
        self.size = len(self.data) - ROOM

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        """The numbers of a kind, when they are first asked for."""
        if name not in KINDS:
            raise AttributeError(name)
        made = self.at_any_offset(KINDS[name])
        setattr(self, name, made)
        return made

    def at_any_offset(self, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """A value of this kind for every offset at which one fits."""
        rows = max(len(self.data) - np.dtype(kind).itemsize + 1, 0)
        return np.ndarray((rows,), kind, self.data, strides=(1,))
