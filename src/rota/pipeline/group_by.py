"""Calls a Python function with all rows of a group.

A shuffle costs by the row, and a journal has millions of commits of few groups. So rows of one
group in one batch become one row of bytes, which Spark shuffles, and are unpacked at the
destination.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

Batches: TypeAlias = Iterable[pa.RecordBatch]
TablePart: TypeAlias = tuple[str, pa.RecordBatch]  # the name of a table, and rows of it
_PACKED_SCHEMA = pa.schema([("group", pa.string()), ("rank", pa.int32()), ("packed", pa.binary())])
_PACKED_DDL = "`group` string, rank int, packed binary"


def apply_by_group(
    read: Callable[[str, Iterator[TablePart]], Batches], schema: str, **tables: DataFrame
) -> DataFrame:
    """Calls a function with each group's name and rows, in the order of the tables."""
    names = list(tables)
    packed = [
        frame.mapInArrow(_make_packer(rank), _PACKED_DDL)
        for rank, frame in enumerate(tables.values())
    ]

    def unpacked(batches: Batches) -> Iterator[pa.RecordBatch]:
        for group, packed_batches in split_by_key(batches, "group"):
            yield from read(str(group), _unpack_parts(packed_batches, names))

    rows = reduce(DataFrame.unionByName, packed)
    return repartition_by_key(rows, "group", "rank").mapInArrow(unpacked, schema)


def _make_packer(rank: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = batch.take(pc.sort_indices(batch.column("group")))
            packed_rows = [
                (group, _to_ipc_bytes(part)) for group, part in _split_batch_by_key(rows, "group")
            ]
            groups, packed = zip(*packed_rows, strict=True)
            ranks = pa.repeat(pa.scalar(rank, pa.int32()), len(packed_rows))
            yield pa.record_batch(
                [pa.array(groups), ranks, pa.array(packed)], schema=_PACKED_SCHEMA
            )

    return pack


def _to_ipc_bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _unpack_parts(packed_batches: Batches, names: list[str]) -> Iterator[TablePart]:
    for packed_batch in packed_batches:
        ranks = packed_batch.column("rank").to_pylist()
        for rank, packed in zip(ranks, packed_batch.column("packed"), strict=True):
            with pa.ipc.open_stream(packed.as_buffer()) as stream:
                for batch in stream:
                    yield names[rank], batch


def repartition_by_key(rows: DataFrame, key: str, *order: str) -> DataFrame:
    """Repartitions and sorts rows; little data with much work needs several tasks too."""
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return rows.repartition(tasks, key).sortWithinPartitions(key, *order)


def split_by_key(batches: Batches, key: str) -> Iterator[tuple[object, Iterator[pa.RecordBatch]]]:
    """Yields the adjacent rows of each key in pieces: all may not fit into memory."""
    slices = (pair for batch in batches for pair in _split_batch_by_key(batch, key))
    for value, group in itertools.groupby(slices, lambda pair: pair[0]):
        yield value, (rows for _, rows in group)


def _split_batch_by_key(batch: pa.RecordBatch, key: str) -> Iterator[tuple[object, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    column = batch.column(key)
    changes = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
    # a comparison with null is null: the key changes if only one of the two is null
    null = column.is_null()
    edges = pc.xor(null.slice(1), null.slice(0, len(column) - 1))
    changes = pc.or_(pc.fill_null(changes, fill_value=False), edges)
    cuts = np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1
    for begin, end in itertools.pairwise([0, *cuts.tolist(), batch.num_rows]):
        yield column[begin].as_py(), batch.slice(begin, end - begin)
