"""``format("rota")``: Kafka's records as rows, with the columns of Spark's own Kafka source.

Spark asks the data source for its columns and for a reader. :class:`BatchReader` serves
``spark.read``, :class:`StreamReader` serves ``spark.readStream``: they plan tasks on the driver and
read them on executors. What a task does is in :mod:`rota.spark.task`.

Spark's checkpoint keeps the offsets of a stream, in the same JSON as those of Spark's own Kafka
source. The offsets at which a query begins are not in the checkpoint: after a kill in its first
batch, Spark asks a source in Python for them once more, and the answer may differ by then. So the
reader gives Spark a marker (:data:`BEGINNING`) that only says "the beginning". The first batch,
whose end is in the checkpoint, begins for each partition of that end where the options say. Where
the options name a moving position (``latest``, ``committed``), the first batch reads nothing of the
partition and ends at that position: so the position is in the checkpoint before anything is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rota.engine.model.topic import TopicPartition
from rota.errors import InputError, RotaError
from rota.spark import option, plan, query
from rota.spark.lookup import OffsetLookup
from rota.spark.plan import OffsetRange, TaskRanges
from rota.spark.query import LOGGER, OffsetRangeLimit, SourceOptions, report_data_loss

if TYPE_CHECKING:
    import pyarrow as pa

#: Names and types, as those of Spark's own source.
COLUMNS: Final = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)

HEADER_COLUMNS: Final = (("headers", "array<struct<key: string, value: binary>>"),)

BATCH_INFO_COLUMNS: Final = (
    ("control", "boolean"),
    ("transactional", "boolean"),
    ("producerId", "bigint"),
    ("producerEpoch", "smallint"),
)


class RotaDataSource(DataSource):
    """The data source that Spark creates for ``format("rota")``."""

    #: How many tasks the session runs at a time; :func:`rota.spark.register` knows.
    parallelism: ClassVar[int] = 2

    @classmethod
    def name(cls) -> str:
        """Returns the name for ``format(...)``."""
        return "rota"

    def schema(self) -> str:
        """Returns the columns. Also checks the options, so that errors are raised before
        anything runs.
        """
        options = option.parse_options(self.options)
        _log_warnings(options.warnings)
        return ", ".join(f"{name} {kind}" for name, kind in _list_columns(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader for ``spark.read``."""
        options = option.parse_options(self.options, streaming=False)
        _check_columns(schema, options)
        _log_warnings(options.batch_warnings)
        return BatchReader(options, self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's
        """Returns the reader for ``spark.readStream``."""
        try:
            options = option.parse_options(self.options, streaming=True)
            _check_columns(schema, options)
        except RotaError as error:
            return InvalidStreamReader(
                error
            )  # what is raised here, PySpark covers with an error of its own
        return StreamReader(options, self.parallelism)


def _list_columns(options: SourceOptions) -> tuple[tuple[str, str], ...]:
    headers = HEADER_COLUMNS if options.include_headers else ()
    return COLUMNS + headers + (BATCH_INFO_COLUMNS if options.include_batch_info else ())


def _check_columns(given: StructType, options: SourceOptions) -> None:
    """Checks the columns of a schema that the user has given: then Spark does not ask for ours."""
    names = [name for name, _ in _list_columns(options)]
    if given.fieldNames() != names:
        raise InputError(
            f"schema(...): the columns are fixed ({', '.join(names)}): leave it out, and select "
            "behind load()"
        )


def _log_warnings(warnings: tuple[str, ...]) -> None:
    for each in warnings:
        LOGGER.warning('format("rota"): %s', each)


def make_source_class(parallelism: int) -> type[RotaDataSource]:
    """Returns a source class for a session that runs this many tasks at a time.

    The class cannot be imported by name, so Spark sends the class itself, which is small.
    """
    return type(
        "Source", (RotaDataSource,), {"__module__": "rota.spark", "parallelism": parallelism}
    )


def session_parallelism(spark: SparkSession) -> int:
    """Returns how many tasks the session runs at a time: the current number, or the
    configured one if that is larger, because right after the start of a session not all
    executors are there yet.
    """
    return max(_current_parallelism(spark), _configured_parallelism(spark))


def _current_parallelism(spark: SparkSession) -> int:
    if isinstance(spark, SparkSession):
        return int(spark.sparkContext.defaultParallelism)
    # over Spark Connect there is no context to ask; a range has a partition for each
    every = spark.range(1 << 20)
    numbers = every.select(fn.spark_partition_id().alias("number"))
    return int(numbers.agg(fn.max("number")).collect()[0][0]) + 1


def _configured_parallelism(spark: SparkSession) -> int:
    cores = _int_setting(spark, "spark.executor.cores") or 1
    if (spark.conf.get("spark.dynamicAllocation.enabled", "false") or "").lower() == "true":
        executors = _int_setting(spark, "spark.dynamicAllocation.maxExecutors")
    else:
        executors = _int_setting(spark, "spark.executor.instances")
    return executors * cores or _int_setting(spark, "spark.cores.max")


def _int_setting(spark: SparkSession, name: str) -> int:
    text = spark.conf.get(name, "0") or ""
    found = int(text) if text.isascii() and text.isdecimal() else 0
    return found if found < 2**31 - 1 else 0  # the default of maxExecutors is no number to plan by


class TaskPartition(InputPartition):
    """The ranges that one task reads, as Spark sends them to it."""

    def __init__(self, ranges: TaskRanges) -> None:
        """Takes ranges of partitions."""
        super().__init__(None)
        self.ranges = ranges

    def __repr__(self) -> str:
        return f"TaskPartition({self.ranges!r})"


def read_task_rows(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Returns the rows of a task. Where a plan has no tasks, Spark starts one with a
    partition of its own, which has no rows.
    """
    if not isinstance(partition, TaskPartition):
        return iter(())
    from rota.spark.task import read_ranges  # noqa: PLC0415 (the driver reads nothing)

    return read_ranges(partition.ranges, options)


OffsetsByPartition = Mapping[TopicPartition, int]


class BatchReader(DataSourceReader):
    """Plans and reads a batch query."""

    def __init__(self, options: SourceOptions, parallelism: int) -> None:
        """Checks what only batch queries cannot do.

        :param parallelism: how many tasks run at a time
        """
        self._options = options
        self._parallelism = parallelism
        _check_not_empty(options)
        _check_time_order(options.starting, options.ending)

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks of the query."""
        options = self._options
        with OffsetLookup(options) as lookup:
            every = lookup.partitions()
            start = lookup.resolve_offsets(options.starting, every)
            until = lookup.resolve_offsets(options.ending, every, ending=True)
        planned = plan.plan_tasks(
            _batch_ranges(options, every, start, until),
            slots=options.slots or self._parallelism,
            least=options.min_partitions,
            most_records=options.max_records_per_partition,
        )
        return [TaskPartition(each) for each in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Returns the rows of a task."""
        return read_task_rows(partition, self._options)


def _batch_ranges(
    options: SourceOptions,
    every: list[TopicPartition],
    start: OffsetsByPartition,
    until: OffsetsByPartition,
) -> Iterator[OffsetRange]:
    """Yields the ranges to read; reports records that can no longer be read.

    :raises InputError: a range would end before it begins
    """
    gone = [each for each in every if each not in start or each not in until]
    if gone:
        report_data_loss(
            f"{query.format_partitions(gone)}: deleted in this moment",
            fail=options.fail_on_data_loss,
        )
    for each in sorted(start.keys() & until.keys()):
        begin, end = start[each], until[each]
        if begin <= end:
            yield OffsetRange(each, begin, end)
        elif _is_looked_up(options.starting, each):
            report_data_loss(
                f"{each}: was to be read from offset {begin}, and "
                f"{_describe_end(options.ending)} is {end}",
                fail=options.fail_on_data_loss,
            )
        else:
            raise InputError(
                f"{each}: was to be read from offset {begin}, which is behind "
                f"{_describe_end(options.ending)}, "
                f"{end}"
            )


def _is_looked_up(where: OffsetRangeLimit, partition: TopicPartition) -> bool:
    """Returns whether the start was looked up (the log start, or a committed offset) and not
    named by the user.
    """
    match where:
        case query.EarliestOffsets() | query.CommittedOffsets():
            return True
        case query.SpecificOffsets(_, given):
            return given[partition] == query.EARLIEST_OFFSET
        case _:
            return False


def _describe_end(where: OffsetRangeLimit) -> str:
    match where:
        case (
            query.SpecificOffsets(name, _)
            | query.GlobalTimestamp(name, _)
            | query.SpecificTimestamps(name, _)
        ):
            return f"the end that {name} gives"
        case _:
            return "the end of the log"


def _check_not_empty(options: SourceOptions) -> None:
    if isinstance(options.starting, query.LatestOffsets):
        raise InputError("startingOffsets: latest leaves nothing to read for a batch query")
    if isinstance(options.ending, query.EarliestOffsets):
        raise InputError("endingOffsets: earliest leaves nothing to read")
    for where, open_one, word in (
        (options.starting, query.LATEST_OFFSET, "latest"),
        (options.ending, query.EARLIEST_OFFSET, "earliest"),
    ):
        if isinstance(where, query.SpecificOffsets):
            bad = [each for each, offset in where.offsets.items() if offset == open_one]
            if bad:
                raise InputError(
                    f"{where.option}: {open_one} ({word}) for {query.format_partitions(bad)} "
                    "leaves nothing "
                    "to read for a batch query"
                )


def _check_time_order(start: OffsetRangeLimit, end: OffsetRangeLimit) -> None:
    """A query does not end before it begins."""
    match start, end:
        case query.GlobalTimestamp(name, begin), query.GlobalTimestamp(other, until) if (
            begin > until >= 0
        ):
            raise InputError(f"{name}: {begin} is later than {other}, which is {until}")
        case query.SpecificTimestamps(name, begins), query.SpecificTimestamps(other, ends):
            bad = [each for each in begins if each in ends and begins[each] > ends[each] >= 0]
            if bad:
                raise InputError(f"{name}: later than {other} for {query.format_partitions(bad)}")
        case _:
            pass


Offsets = dict[TopicPartition, int]

OffsetJson = Mapping[str, Mapping[str, int]]

#: What stands for the beginning of a query: no topic has this name. Never in a checkpoint.
BEGINNING: Final[Mapping[str, Mapping[str, int]]] = {"": {}}


class InvalidStreamReader(DataSourceStreamReader):
    """Stands in for a reader when the options are wrong: raises the error as soon as Spark
    calls it.
    """

    def __init__(self, error: RotaError) -> None:
        """Takes what is wrong."""
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's names
        """Where nothing begins."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much is not read."""
        raise self._error

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """And of what."""
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the batches of a stream. Its copies on executors only read."""

    def __init__(self, options: SourceOptions, parallelism: int) -> None:
        """Asks nothing yet.

        :param parallelism: how many tasks run at a time
        """
        self._options = options
        self._parallelism = parallelism
        self._lookup: OffsetLookup | None = None
        self._beginning_offsets: Offsets | None = None
        self._latest: Offsets | None = None
        #: Where to stop, with the trigger ``availableNow``.
        self._available_now_ends: Offsets | None = None
        self._delay = plan.TriggerDelay(
            options.min_offsets_per_trigger or 0, options.max_trigger_delay
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self._options, "parallelism": self._parallelism}

    def __setstate__(self, state: dict[str, Any]) -> None:
        StreamReader.__init__(self, **state)

    @property
    def _offset_lookup(self) -> OffsetLookup:
        if self._lookup is None:
            self._lookup = OffsetLookup(self._options)
        return self._lookup

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 Spark's names
        """Returns a marker; the offsets are looked up when the first batch is planned."""
        return {topic: dict(each) for topic, each in BEGINNING.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns the limit that the options set for a trigger. Only Spark itself asks for
        everything, for ``once``.
        """
        options = self._options
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadMaxRows(options.max_offsets_per_trigger or query.MAX_OFFSET)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fixes the ends: later records are not read."""
        self._available_now_ends = self._offset_lookup.latest_offsets(
            self._offset_lookup.partitions()
        )

    def latestOffset(  # noqa: N802
        self, start: OffsetJson, limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """How far the next batch reads."""
        begin = self._resolve_beginning() if start == BEGINNING else query.offsets_from_json(start)
        everything = isinstance(limit, ReadAllAvailable)
        still = self._partitions_not_read(begin, once=everything) if start == BEGINNING else {}
        if begin and len(still) == len(begin):
            self._latest = still
        else:
            self._latest = self._trigger_ends(begin) | still
        if everything:
            return query.offsets_to_json(self._latest)
        return query.offsets_to_json(self._limit_ends(begin, self._latest))

    def _resolve_beginning(self) -> Offsets:
        """Where the query begins."""
        if self._beginning_offsets is None:
            every = self._offset_lookup.partitions()
            self._beginning_offsets = self._offset_lookup.resolve_offsets(
                self._options.starting, every
            )
        return self._beginning_offsets

    def _partitions_not_read(self, first: Offsets, *, once: bool) -> Offsets:
        """Returns partitions of which the first batch reads nothing, because their starting
        position moves.
        """
        late = self._options.missing_timestamp_is_latest and not once
        found = {
            each: offset for each, offset in first.items() if late or self._is_moving_position(each)
        }
        if once and found and isinstance(self._options.starting, query.CommittedOffsets):
            LOGGER.warning(
                "startingOffsets: committed: the first batch only keeps where the query begins, "
                "and trigger(once=True) has no second one: use availableNow=True"
            )
        return found

    def _is_moving_position(self, partition: TopicPartition) -> bool:
        """Returns whether the starting position would differ if it were looked up later."""
        match self._options.starting:
            case query.LatestOffsets() | query.CommittedOffsets():
                return True
            case query.SpecificOffsets(_, given):
                return given.get(partition) == query.LATEST_OFFSET
            case query.GlobalTimestamp(_, moment):
                return moment == query.LATEST_OFFSET
            case query.SpecificTimestamps(_, times):
                return times.get(partition) == query.LATEST_OFFSET
            case query.EarliestOffsets():
                return False

    def _trigger_ends(self, begin: Offsets) -> Offsets:
        """With ``availableNow``, those that there were; else those that there are."""
        if self._available_now_ends is None:
            return self._latest_ends(begin, self._offset_lookup.partitions())
        # it was taken a moment before the beginning was, or by a leader that is behind
        late = [
            each
            for each, offset in begin.items()
            if self._available_now_ends.get(each, -1) < offset
        ]
        if late:
            now = self._latest_ends(begin, late)
            for each, until in now.items():
                known = self._available_now_ends.get(each, 0)
                self._available_now_ends[each] = max(known, min(begin[each], until))
        return self._available_now_ends

    def _limit_ends(self, start: Offsets, end: Offsets) -> Offsets:
        options = self._options
        # with availableNow, too, as in Spark's own: what is left then waits for the next run
        if options.min_offsets_per_trigger is not None and self._delay.should_wait(
            start, end, _now_ms()
        ):
            return start
        if options.max_offsets_per_trigger is None:
            return end
        new = [each for each in end if each not in start]
        begin = start | self._offset_lookup.earliest_offsets(new)
        there = {each: until for each, until in end.items() if each in begin}
        return plan.limit_offsets(options.max_offsets_per_trigger, begin, there)

    def _latest_ends(self, start: Offsets, partitions: Iterable[TopicPartition]) -> Offsets:
        """Ends before the start are asked for again: a broker may be behind for a moment."""
        every = list(partitions)
        for attempt in range(1, self._options.lookup_attempts + 1):
            ends = self._offset_lookup.latest_offsets(every)
            if all(until >= start.get(each, 0) for each, until in ends.items()):
                break
            if attempt < self._options.lookup_attempts:
                time.sleep(self._options.lookup_retry_interval / 1000)
        return ends

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """How far the topics went when they were last looked at."""
        return None if self._latest is None else query.offsets_to_json(self._latest)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The tasks of a batch."""
        until = query.offsets_from_json(end)
        begin = (
            self._first_batch_start(until) if start == BEGINNING else query.offsets_from_json(start)
        )
        options = self._options
        planned = plan.plan_tasks(
            self._stream_ranges(begin, until),
            slots=options.slots or self._parallelism,
            least=options.min_partitions,
            most_records=options.max_records_per_partition,
        )
        return [TaskPartition(each) for each in planned]

    def _first_batch_start(self, end: Offsets) -> Offsets:
        """Where the first batch begins, whose end is known: after a restart, too."""
        known = self._beginning_offsets
        if known is None:
            still = {each: until for each, until in end.items() if self._is_moving_position(each)}
            fixed = end.keys() - still.keys()
            where = _restrict_limit(self._options.starting, fixed)
            known = still | self._offset_lookup.resolve_offsets(
                where, _limit_partitions(where, fixed)
            )
        if (
            self._options.missing_timestamp_is_latest
        ):  # what was none then may be one now, behind the end
            return {each: min(known[each], end[each]) for each in known.keys() & end.keys()}
        return {each: known[each] for each in known.keys() & end.keys()}

    def _stream_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What to read; says what cannot be read any more."""
        gone = start.keys() - end.keys()
        if gone:
            self._report_data_loss(f"{query.format_partitions(gone)}: gone")
        new = end.keys() - start.keys()
        begin = start | self._offset_lookup.earliest_offsets(new)
        missing = end.keys() - begin.keys()
        if missing:
            self._report_data_loss(f"{query.format_partitions(missing)}: came, and is gone again")
        for each in sorted(new - missing):
            if begin[each] != 0:
                self._report_data_loss(
                    f"{each}: is new, and begins at offset {begin[each]}, not at 0"
                )
        there = sorted(end.keys() - missing)
        for each in there:
            if end[each] < begin[each]:
                self._report_data_loss(
                    f"{each}: went back from offset {begin[each]} to {end[each]}"
                )
        return [OffsetRange(each, begin[each], end[each]) for each in there]

    def _report_data_loss(self, what: str) -> None:
        report_data_loss(what, fail=self._options.fail_on_data_loss)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return read_task_rows(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: Spark calls it one batch late. See :func:`rota.spark.commit_to_group`."""

    def stop(self) -> None:
        """Closes the connections."""
        if self._lookup is not None:
            self._lookup.close()
            self._lookup = None


def _restrict_limit(
    where: OffsetRangeLimit, partitions: Iterable[TopicPartition]
) -> OffsetRangeLimit:
    """Returns the limit for these partitions only, as far as it names partitions."""
    wanted = set(partitions)
    match where:
        case query.SpecificOffsets(name, given):
            return query.SpecificOffsets(
                name, {each: given[each] for each in given if each in wanted}
            )
        case query.SpecificTimestamps(name, times):
            return query.SpecificTimestamps(
                name, {each: times[each] for each in times if each in wanted}
            )
        case _:
            return where


def _limit_partitions(
    where: OffsetRangeLimit, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Those that it says something of."""
    match where:
        case query.SpecificOffsets(_, named) | query.SpecificTimestamps(_, named):
            return sorted(named)
        case _:
            return sorted(partitions)


def _now_ms() -> int:
    return int(time.time() * 1000)
