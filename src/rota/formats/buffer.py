"""Bytes that are readable as numbers at any offset, aligned or not, for many offsets at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Byte strings as one, with room behind the last so that a number may be read at any offset.

    A single one that has such room behind it (:func:`roomy`) is read where it is.
    """

    __slots__ = ("_base", "_begin", "data", "size", "view", *KINDS)
    data: bytes
    """All of it, and the room."""
    uint8: npt.NDArray[np.uint8]
    int16: npt.NDArray[np.int16]
    int32: npt.NDArray[np.int32]
    int64: Int64Array
    word: npt.NDArray[np.uint64]
    little: npt.NDArray[np.uint64]
    pair: npt.NDArray[np.uint16]

    def __init__(self, pieces: Sequence[Bytes]) -> None:
        found = _placed(pieces[0]) if len(pieces) == 1 else None
        if found is not None:
            self._base, self._begin = found
            self.size = len(pieces[0])
        else:
            self.data = b"".join([*pieces, bytes(ROOM)])
            self._base, self._begin = np.frombuffer(self.data, np.uint8), 0
            self.size = len(self.data) - ROOM
        self.view = self._base.data[self._begin : self._begin + self.size + ROOM]
        """The same where it is."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 bytes, or numbers of a kind
        """What is made when it is first asked for."""
        made: bytes | npt.NDArray[Any]
        if name == "data":
            made = bytes(self.view)
        elif name in KINDS:
            made = self._at_any_offset(KINDS[name])
        else:
            raise AttributeError(name)
        setattr(self, name, made)
        return made

    def _at_any_offset(self, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """A value of this kind for every offset at which one fits."""
        rows = self.size + ROOM - np.dtype(kind).itemsize + 1
        return np.ndarray((rows,), kind, self._base, offset=self._begin, strides=(1,))


def roomy(size: int) -> memoryview:
    """So many bytes, whatever they are, with room behind them."""
    return np.empty(size + ROOM, np.uint8).data[:size]


def _placed(piece: Bytes) -> tuple[npt.NDArray[np.uint8], int] | None:
    """The memory that some bytes are in, if it is such as :func:`roomy` makes, and where they begin
    there.
    """
    base = piece.obj if isinstance(piece, memoryview) else None
    if not isinstance(base, np.ndarray) or not len(piece):
        return None
    if base.dtype != np.uint8 or base.ndim != 1 or not base.flags.c_contiguous:
        return None
    begin = _address(np.frombuffer(piece, np.uint8)) - _address(base)
    return (base, begin) if begin + len(piece) + ROOM <= base.nbytes else None


def _address(array: npt.NDArray[Any]) -> int:
    found: int = array.__array_interface__["data"][0]
    return found
