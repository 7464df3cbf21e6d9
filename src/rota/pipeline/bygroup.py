"""All rows of a group in one place and in order, for Python to go through."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

Group: TypeAlias = tuple[object, Iterator[pa.RecordBatch]]


def spread(rows: DataFrame, key: str, *order: str) -> DataFrame:
    """The rows over tasks by their key, within each ordered by it first.

    The number of tasks is given, so that Spark does not put little data with much work into one.
    """
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return rows.repartition(tasks, key).sortWithinPartitions(key, *order)


def by_group(batches: Iterable[pa.RecordBatch], key: str) -> Iterator[Group]:
    """The rows of each key, in pieces: a group may be larger than memory."""
    parts = (part for batch in batches for part in _parts(batch, key))
    for value, group in itertools.groupby(parts, lambda part: part[0]):
        yield value, (piece for _, piece in group)


def _parts(batch: pa.RecordBatch, key: str) -> Iterator[tuple[object, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    column = batch.column(key)
    changes = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
    cuts = np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1
    for begin, end in itertools.pairwise([0, *cuts.tolist(), batch.num_rows]):
        yield column[begin].as_py(), batch.slice(begin, end - begin)
