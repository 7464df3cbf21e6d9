"""Reads a topic once, for ``spark.read``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rota.errors import InputError
from rota.model.topic import TopicPartition
from rota.spark import plan, query, spec
from rota.spark.lookup import Lookup
from rota.spark.loss import lost
from rota.spark.plan import Range
from rota.spark.query import Options, Where
from rota.spark.task import TaskPartition, rows

if TYPE_CHECKING:
    import pyarrow as pa

Offsets = Mapping[TopicPartition, int]


class BatchReader(DataSourceReader):
    """Plans and reads a batch query."""

    def __init__(self, options: Options, parallelism: int) -> None:
        """Checks what only batch queries cannot do.

        :param parallelism: how many tasks run at a time
        """
        self._options = options
        self._parallelism = parallelism
        _check_open(options)
        _check_times(options.start, options.end)

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        options = self._options
        with Lookup(options) as lookup:
            every = lookup.partitions()
            start = lookup.offsets(options.start, every)
            until = lookup.offsets(options.end, every, ending=True)
        planned = plan.tasks(
            _ranges(options, every, start, until),
            slots=options.slots or self._parallelism,
            least=options.least_tasks,
            most_records=options.most_records,
        )
        return [TaskPartition(each) for each in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return rows(partition, self._options)


def _ranges(
    options: Options, every: list[TopicPartition], start: Offsets, until: Offsets
) -> Iterator[Range]:
    """What to read; says what cannot be read any more.

    :raises InputError: it is to end before it begins
    """
    gone = [each for each in every if each not in start or each not in until]
    if gone:
        lost(f"{spec.named(gone)}: deleted in this moment", fail=options.fail_on_loss)
    for each in sorted(start.keys() & until.keys()):
        begin, end = start[each], until[each]
        if begin <= end:
            yield Range(each, begin, end)
        elif _is_found(options.start, each):
            lost(
                f"{each}: was to be read from offset {begin}, and {_end(options.end)} is {end}",
                fail=options.fail_on_loss,
            )
        else:
            raise InputError(
                f"{each}: was to be read from offset {begin}, which is behind {_end(options.end)}, "
                f"{end}"
            )


def _is_found(where: Where, partition: TopicPartition) -> bool:
    """Whether nobody has named the offset: it is where the log begins, or what was committed."""
    match where:
        case query.Earliest() | query.Committed():
            return True
        case query.Given(_, given):
            return given[partition] == spec.EARLIEST
        case _:
            return False


def _end(where: Where) -> str:
    match where:
        case query.Given(name, _) | query.At(name, _) | query.AtEach(name, _):
            return f"the end that {name} gives"
        case _:
            return "the end of the log"


def _check_open(options: Options) -> None:
    if isinstance(options.start, query.Latest):
        raise InputError("startingOffsets: latest leaves nothing to read for a batch query")
    if isinstance(options.end, query.Earliest):
        raise InputError("endingOffsets: earliest leaves nothing to read")
    for where, open_one, word in (
        (options.start, spec.LATEST, "latest"),
        (options.end, spec.EARLIEST, "earliest"),
    ):
        if isinstance(where, query.Given):
            bad = [each for each, offset in where.offsets.items() if offset == open_one]
            if bad:
                raise InputError(
                    f"{where.option}: {open_one} ({word}) for {spec.named(bad)} leaves nothing "
                    "to read for a batch query"
                )


def _check_times(start: Where, end: Where) -> None:
    """A query does not end before it begins."""
    match start, end:
        case query.At(name, begin), query.At(other, until) if begin > until >= 0:
            raise InputError(f"{name}: {begin} is later than {other}, which is {until}")
        case query.AtEach(name, begins), query.AtEach(other, ends):
            bad = [each for each in begins if each in ends and begins[each] > ends[each] >= 0]
            if bad:
                raise InputError(f"{name}: later than {other} for {spec.named(bad)}")
        case _:
            pass
