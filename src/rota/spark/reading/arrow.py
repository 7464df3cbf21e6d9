"""Batches of records as the rows of the source."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rota.client import arrow
from rota.client.batch import Batch
from rota.formats.buffer import BoolArray

BATCH_INFO = (
    pa.field("control", pa.bool_()),
    pa.field("transactional", pa.bool_()),
    pa.field("producerId", pa.int64()),
    pa.field("producerEpoch", pa.int16()),
)


def record_batch(batch: Batch, *, headers: bool, batch_info: bool) -> pa.RecordBatch:
    """Records as Spark's own Kafka source has them: no timestamp is -1 there, not null."""
    fields = list(arrow.SCHEMA)
    arrays = arrow.arrays(batch, headers=headers, absent_time_is_null=False)
    if not headers:
        fields.pop()
    if batch_info:
        of, batches = batch.columns.batch[batch.rows], batch.columns.batches
        fields += BATCH_INFO
        arrays += [
            _flags(batches.control[of]),
            _flags(batches.transactional[of]),
            arrow.numbers(batches.producer_id[of], pa.int64()),
            arrow.numbers(batches.producer_epoch[of].astype(np.int16), pa.int16()),
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _flags(values: BoolArray) -> pa.Array:
    data = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, data])
