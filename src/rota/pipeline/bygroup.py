"""All rows of a group in one place, for Python to go through.

A shuffle costs by the row, and a journal has millions of commits of few groups. So rows are packed
first: those of one group in one batch become one row of bytes, which Spark moves about, and are
unpacked where the group's other rows are.
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
Part: TypeAlias = tuple[str, pa.RecordBatch]
"""The name of a table, and rows of it."""

_PACKED = pa.schema([("group", pa.string()), ("rank", pa.int32()), ("packed", pa.binary())])
_DDL = "`group` string, rank int, packed binary"


def each_group(
    read: Callable[[str, Iterator[Part]], Batches], made: str, **tables: DataFrame
) -> DataFrame:
    """What comes of calling a function for every group.

    :param read: gets the group's name, and its rows of every table, the tables in the order given
    :param made: the schema of what it makes
    :param tables: all have a column ``group``
    """
    names = list(tables)
    packed = [frame.mapInArrow(_packer(rank), _DDL) for rank, frame in enumerate(tables.values())]

    def unpacked(batches: Batches) -> Iterator[pa.RecordBatch]:
        for group, pieces in by_key(batches, "group"):
            yield from read(str(group), _parts(pieces, names))

    rows = reduce(DataFrame.unionByName, packed)
    return spread(rows, "group", "rank").mapInArrow(unpacked, made)


def _packer(rank: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = batch.take(pc.sort_indices(batch.column("group")))
            found = [(group, _bytes(part)) for group, part in _runs(rows, "group")]
            groups, packed = zip(*found, strict=True)
            ranks = pa.repeat(pa.scalar(rank, pa.int32()), len(found))
            yield pa.record_batch([pa.array(groups), ranks, pa.array(packed)], schema=_PACKED)

    return pack


def _bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _parts(pieces: Batches, names: list[str]) -> Iterator[Part]:
    for piece in pieces:
        ranks = piece.column("rank").to_pylist()
        for rank, packed in zip(ranks, piece.column("packed"), strict=True):
            with pa.ipc.open_stream(packed.as_buffer()) as stream:
                for batch in stream:
                    yield names[rank], batch


def spread(rows: DataFrame, key: str, *order: str) -> DataFrame:
    """The rows over tasks by their key, within each ordered by it first.

    The number of tasks is given, so that Spark does not put little data with much work into one.
    """
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return rows.repartition(tasks, key).sortWithinPartitions(key, *order)


def by_key(batches: Batches, key: str) -> Iterator[tuple[object, Iterator[pa.RecordBatch]]]:
    """The rows of each key, which come together, in pieces: all of them may not fit into memory."""
    parts = (part for batch in batches for part in _runs(batch, key))
    for value, group in itertools.groupby(parts, lambda part: part[0]):
        yield value, (piece for _, piece in group)


def _runs(batch: pa.RecordBatch, key: str) -> Iterator[tuple[object, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    column = batch.column(key)
    changes = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
    # beside a null the answer is null: there it changes, unless both are
    null = column.is_null()
    edges = pc.xor(null.slice(1), null.slice(0, len(column) - 1))
    changes = pc.or_(pc.fill_null(changes, fill_value=False), edges)
    cuts = np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1
    for begin, end in itertools.pairwise([0, *cuts.tolist(), batch.num_rows]):
        yield column[begin].as_py(), batch.slice(begin, end - begin)
