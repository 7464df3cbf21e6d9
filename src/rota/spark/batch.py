"""Reads a topic once, for ``spark.read``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rota.errors import InputError
from rota.spark import option, plan, spec
from rota.spark.lookup import Lookup
from rota.spark.option import Options
from rota.spark.plan import Range
from rota.spark.task import TaskPartition, rows

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Plans and reads a batch query."""

    def __init__(self, options: Options, parallelism: int) -> None:
        """Checks what only batch queries cannot do.

        :param parallelism: how many tasks run at a time
        """
        self._options = options
        self._parallelism = parallelism
        _check(options)

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        options = self._options
        with Lookup(options) as lookup:
            every = lookup.partitions()
            start = lookup.offsets(options.start, every)
            until = lookup.offsets(options.end, every, ending=True)
        for each in every:
            if start[each] > until[each]:
                raise InputError(
                    f"{each}: it would be read from offset {start[each]} to {until[each]}, which "
                    "is before"
                )
        ranges = [Range(each, start[each], until[each]) for each in every]
        planned = plan.tasks(
            ranges,
            slots=options.slots or self._parallelism,
            least=options.least_tasks,
            most_records=options.most_records,
        )
        return [TaskPartition(each) for each in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return rows(partition, self._options)


def _check(options: Options) -> None:
    if isinstance(options.start, option.Latest):
        raise InputError("startingOffsets: latest leaves nothing to read for a batch query")
    if isinstance(options.end, option.Earliest):
        raise InputError("endingOffsets: earliest leaves nothing to read")
    for where, open_one, word in (
        (options.start, spec.LATEST, "latest"),
        (options.end, spec.EARLIEST, "earliest"),
    ):
        if isinstance(where, option.Given):
            bad = [each for each, offset in where.offsets.items() if offset == open_one]
            if bad:
                raise InputError(
                    f"{where.option}: {open_one} ({word}) for {spec.named(bad)} leaves nothing "
                    "to read for a batch query"
                )
    _check_times(options)


def _check_times(options: Options) -> None:
    match options.start, options.end:
        case option.AtEach(name, begin), option.AtEach(other, end):
            bad = [each for each, moment in begin.items() if moment > end.get(each, moment)]
            if bad:
                raise InputError(f"{name}: later than {other} for {spec.named(bad)}")
        case _:
            return
