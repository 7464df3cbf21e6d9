"""Columns of Arrow out of positions in a buffer, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rota.formats.buffer import BoolArray, Buffer, Int64Array
from rota.formats.journal.column import Slices
from rota.pipeline.schema import TIME

EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, which every reader of Parquet understands."""
UUID_SIZE = 16


def times(milliseconds: Int64Array, null: BoolArray | None = None) -> pa.Array:
    """Milliseconds since 1970 as times; impossible ones as the nearest that there is."""
    return pa.array(np.clip(milliseconds, EARLIEST, LATEST) * 1000, mask=null).cast(TIME)


def numbers(values: npt.NDArray[Any], kind: pa.DataType, null: BoolArray | None = None) -> pa.Array:
    """Numbers of a type; where ``null``, nothing."""
    return pa.array(values, mask=null).cast(kind)


def names(codes: npt.NDArray[np.int32], known: Sequence[str]) -> pa.Array:
    """Strings, by their positions in a list."""
    listed = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(known, pa.string()))
    return listed.cast(pa.string())


def strings(data: bytes, parts: Sequence[Slices], kind: pa.DataType) -> list[pa.Array]:
    """Stretches of a buffer as columns; a size below zero is null.

    Each row's parts follow each other in the buffer. So the whole buffer is taken for one column of
    byte strings, of which every second is a part and the others are what is between; Arrow then
    copies those that are wanted.
    """
    if not len(parts[0].start):
        return [pa.array([], kind) for _ in parts]
    order = np.argsort(parts[0].start, kind="stable")
    bounds: list[Int64Array] = []
    for part in parts:
        start = np.where(part.size < 0, bounds[-1] if bounds else part.start, part.start)
        bounds += [start, start + np.maximum(part.size, 0)]
    flat = np.stack(bounds, axis=1)[order].ravel()
    offsets = np.append(flat, flat[-1]).astype(np.int32)
    whole = pa.Array.from_buffers(
        kind, len(flat), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) * len(bounds)
    return [
        whole.take(pa.array(place + 2 * number, mask=part.size < 0))
        for number, part in enumerate(parts)
    ]


def identifiers(buffer: Buffer, starts: Int64Array) -> pa.Array:
    """The 16 bytes at each position; null where it is below zero."""
    there = starts >= 0
    found = buffer.uint8[starts[there][:, None] + np.arange(UUID_SIZE)]
    offsets = np.concatenate([[0], np.cumsum(there)]).astype(np.int32) * UUID_SIZE
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(starts), [valid, pa.py_buffer(offsets), pa.py_buffer(found.tobytes())]
    )


def buffer_of(*columns: pa.Array) -> tuple[Buffer, list[Slices]]:
    """Columns of byte strings as one buffer, and where in it each row is."""
    pieces, slices, before = [], [], 0
    for column in columns:
        _, offset_bytes, data = column.buffers()
        every = np.frombuffer(offset_bytes, np.int32)
        offsets = every[column.offset : column.offset + len(column) + 1].astype(np.int64)
        sizes = np.diff(offsets)
        null = column.is_null().to_numpy(zero_copy_only=False)
        slices.append(Slices(offsets[:-1] + before, np.where(null, -1, sizes)))
        pieces.append(memoryview(data) if data is not None else b"")
        before += len(pieces[-1])
    return Buffer(pieces), slices
