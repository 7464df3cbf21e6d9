"""Batches of records as Arrow record batches, with the columns of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rota.client.fetch import Batch, slice_buffer
from rota.engine.formats import record_batch_columns
from rota.engine.formats.buffer import BoolArray, ByteBuffer, Int64Array
from rota.engine.formats.record_batch import load_optional_library
from rota.errors import InputError, RecordError

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = load_optional_library("pyarrow", "records as Arrow", "arrow")

MICROS_PER_MILLI = 1_000
MAX_TIMESTAMP = (1 << 63) // MICROS_PER_MILLI - 1  # last millisecond that microseconds can count
NO_TIMESTAMP = -1
MAX_COLUMN_BYTES = (1 << 31) - 1  # bytes of a column of texts
HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

RECORD_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)


def make_record_batch(batch: Batch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(make_arrays(batch), schema=RECORD_SCHEMA)


def make_arrays(
    batch: Batch, *, headers: bool = True, absent_time_is_null: bool = True
) -> list[Any]:
    """The columns of :data:`RECORD_SCHEMA`; a record without a time has null, or else -1."""
    columns, rows, count = batch.columns, batch.rows, len(batch)
    arrays = [
        _bytes_array(columns.buffer, columns.key_start[rows], columns.key_size[rows]),
        _bytes_array(columns.buffer, columns.value_start[rows], columns.value_size[rows]),
        _repeat_text(batch.topic, count),
        number_array(np.full(count, batch.partition, dtype=np.int32), pa.int32()),
        number_array(batch.offsets, pa.int64()),
        _timestamp_array(batch, absent_is_null=absent_time_is_null),
        number_array(batch.timestamp_types, pa.int32()),
    ]
    return [*arrays, _header_array(batch)] if headers else arrays


def _bytes_array(buffer: ByteBuffer, start: Int64Array, size: Int64Array) -> Any:  # noqa: ANN401 Arrow's
    """Pieces of some bytes, copied next to each other; null where a size is negative."""
    null = size < 0
    if null.all():
        return pa.nulls(len(size), pa.binary())
    end = np.maximum(size, 0) + start
    if (start[1:] < end[:-1]).any():  # compressed batches and others in turns
        return pa.array(slice_buffer(buffer, start, size), pa.binary())
    # every second element is a value, the others are the bytes between two values
    bounds = np.empty(2 * len(size), dtype=np.int32)
    bounds[::2], bounds[1::2] = start, end
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(buffer.view)]
    every = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return every.take(number_array(np.arange(0, len(bounds), 2), pa.int64(), null))


def number_array(values: npt.NDArray[Any], kind: Any, null: BoolArray | None = None) -> Any:  # noqa: ANN401
    """Numbers as they are in memory. ``pa.array`` would first load pandas, where there is one."""
    valid = None
    if null is not None and null.any():
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def _repeat_text(text: str, count: int) -> Any:  # noqa: ANN401 as above
    data = text.encode()
    if count * len(data) > MAX_COLUMN_BYTES:
        raise InputError(f"{count} rows are too many for one Arrow batch: take some of them")
    bounds = np.arange(count + 1, dtype=np.int32) * len(data)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _timestamp_array(batch: Batch, *, absent_is_null: bool) -> Any:  # noqa: ANN401 as above
    given = batch.timestamps
    far = np.flatnonzero((given > MAX_TIMESTAMP) | (given < -MAX_TIMESTAMP))
    if len(far):
        offset, at = int(batch.offsets[far[0]]), int(given[far[0]])
        problem = f"its timestamp {at} cannot be counted in microseconds, as Arrow's are here"
        raise RecordError(*batch.source, offset, problem, next_offset=offset + 1)
    absent = given == NO_TIMESTAMP if absent_is_null else None
    return number_array(given * MICROS_PER_MILLI, pa.timestamp("us", "UTC"), absent)


def _header_array(batch: Batch) -> Any:  # noqa: ANN401 as above
    counts = batch.columns.headers[batch.rows]
    if not counts.any():
        return pa.nulls(len(counts), pa.list_(HEADER_TYPE))
    buffer, start = batch.columns.buffer, batch.columns.headers_start[batch.rows]
    columns = record_batch_columns.read_header_columns(buffer, start, counts)
    names = _bytes_array(buffer, columns.name_start, columns.name_size)
    values = _bytes_array(buffer, columns.value_start, columns.value_size)
    pairs = pa.StructArray.from_arrays([_decode_names(names), values], fields=list(HEADER_TYPE))
    bounds = np.append(0, np.cumsum(counts)).astype(np.int32)
    none = np.append(counts == 0, False)  # null, as in Spark
    return pa.ListArray.from_arrays(number_array(bounds, pa.int32(), none), pairs)


def _decode_names(names: Any) -> Any:  # noqa: ANN401 as above
    """Decodes names; replaces invalid UTF-8 as Kafka does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        given = names.to_pylist()
        return pa.array([str(name, "utf-8", "replace") for name in given], pa.string())
