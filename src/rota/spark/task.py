"""What a task is given, and gives back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from rota.spark.plan import Task
from rota.spark.query import Options

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """What a task reads."""

    def __init__(self, ranges: Task) -> None:
        """Takes ranges of partitions."""
        super().__init__(None)
        self.ranges = ranges

    def __repr__(self) -> str:
        return f"TaskPartition({self.ranges!r})"


def rows(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Spark makes a task without a plan of its own where there is none."""
    if not isinstance(partition, TaskPartition):
        return iter(())
    from rota.spark.reading.read import read  # noqa: PLC0415 (the driver reads nothing)

    return read(partition.ranges, options)
