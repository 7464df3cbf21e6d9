"""``format("rota")``: Kafka's records as rows, with the columns of Spark's own Kafka source.

:class:`BatchReader` serves ``spark.read``, :class:`StreamReader` serves ``spark.readStream``: they
plan tasks on the driver and read them on executors (:mod:`rota.spark.task`).

Spark's checkpoint keeps the offsets of a stream, in the same JSON as those of Spark's own Kafka
source. The starting offsets of a query are not in the checkpoint: after a kill in its first batch,
Spark calls a source in Python for them once more, and they may have changed. So the reader returns
a marker for the beginning (:data:`BEGINNING`). The first batch, whose end is in the checkpoint,
begins for each partition of that end where the options say. If an option names a moving position
(``latest``, ``committed``), the first batch reads nothing of the partition and ends at that
position: so the position is in the checkpoint before any record is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

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
from rota.spark.plan import OffsetLookup, OffsetRange, TaskRanges
from rota.spark.query import LOGGER, OffsetRangeLimit, SourceOptions, report_data_loss

if TYPE_CHECKING:
    import pyarrow as pa

#: Names and types of Spark's own source.
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
    parallelism: ClassVar[int] = 2  # tasks at a time; set by :func:`rota.spark.register`

    @classmethod
    def name(cls) -> str:
        return "rota"

    def schema(self) -> str:
        """Returns the columns, and checks the options before any job runs."""
        options = option.parse_options(self.options)
        _log_warnings(options.warnings)
        return ", ".join(f"{name} {kind}" for name, kind in _list_columns(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = option.parse_options(self.options, streaming=False)
        _check_columns(schema, options)
        _log_warnings(options.batch_warnings)
        return BatchReader(options, self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's
        try:
            options = option.parse_options(self.options, streaming=True)
            _check_columns(schema, options)
        except RotaError as error:
            return InvalidStreamReader(error)  # PySpark hides an error that is raised here
        return StreamReader(options, self.parallelism)


def _list_columns(options: SourceOptions) -> tuple[tuple[str, str], ...]:
    headers = HEADER_COLUMNS if options.include_headers else ()
    return COLUMNS + headers + (BATCH_INFO_COLUMNS if options.include_batch_info else ())


def _check_columns(schema: StructType, options: SourceOptions) -> None:
    """Checks a schema of the user: with one, Spark does not call :meth:`schema`."""
    names = [name for name, _ in _list_columns(options)]
    if schema.fieldNames() != names:
        raise InputError(
            f"schema(...): the columns are fixed ({', '.join(names)}): leave it out, and select "
            "after load()"
        )


def _log_warnings(warnings: tuple[str, ...]) -> None:
    for each in warnings:
        LOGGER.warning('format("rota"): %s', each)


def make_source_class(parallelism: int) -> type[RotaDataSource]:
    """Returns a source class for sessions of this parallelism; Spark sends the class itself."""
    fields = {"__module__": "rota.spark", "parallelism": parallelism}
    return type("Source", (RotaDataSource,), fields)


def session_parallelism(spark: SparkSession) -> int:
    """How many tasks the session runs at a time: now or, if more, by its configuration."""
    if isinstance(spark, SparkSession):
        current = int(spark.sparkContext.defaultParallelism)
    else:  # Spark Connect has no context; a range has a partition for each task
        numbers = spark.range(1 << 20).select(fn.spark_partition_id().alias("number"))
        current = int(numbers.agg(fn.max("number")).collect()[0][0]) + 1
    is_dynamic = (spark.conf.get("spark.dynamicAllocation.enabled", "false") or "").lower()
    name = "spark.executor.instances"
    if is_dynamic == "true":
        name = "spark.dynamicAllocation.maxExecutors"
    configured = _int_setting(spark, name) * (_int_setting(spark, "spark.executor.cores") or 1)
    return max(current, configured or _int_setting(spark, "spark.cores.max"))


def _int_setting(spark: SparkSession, name: str) -> int:
    text = spark.conf.get(name, "0") or ""
    number = int(text) if text.isascii() and text.isdecimal() else 0
    return number if number < 2**31 - 1 else 0  # that is the default of maxExecutors: no limit


class TaskPartition(InputPartition):
    def __init__(self, ranges: TaskRanges) -> None:
        super().__init__(None)
        self.ranges = ranges

    def __repr__(self) -> str:
        return f"TaskPartition({self.ranges!r})"


def read_task_rows(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Returns the rows of a task. For a plan without tasks Spark starts one, which has no rows."""
    if not isinstance(partition, TaskPartition):
        return iter(())
    from rota.spark.task import read_ranges  # noqa: PLC0415 (the driver reads nothing)

    return read_ranges(partition.ranges, options)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, parallelism: int) -> None:
        """``parallelism`` is how many tasks run at a time. InputError for a wrong option."""
        self._options = options
        self._parallelism = parallelism
        _check_not_empty(options)
        _check_time_order(options.starting, options.ending)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with OffsetLookup(options) as lookup:
            every = lookup.partitions()
            start = lookup.resolve_offsets(options.starting, every)
            until = lookup.resolve_offsets(options.ending, every, ending=True)
        ranges = _batch_ranges(options, every, start, until)
        return _plan_partitions(ranges, options, self._parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task_rows(partition, self._options)


def _plan_partitions(
    ranges: Iterable[OffsetRange], options: SourceOptions, parallelism: int
) -> list[InputPartition]:
    planned = plan.plan_tasks(
        ranges,
        slots=options.slots or parallelism,
        least=options.min_partitions,
        most_records=options.max_records_per_partition,
    )
    return [TaskPartition(each) for each in planned]


def _batch_ranges(
    options: SourceOptions,
    every: list[TopicPartition],
    start: Offsets,
    until: Offsets,
) -> Iterator[OffsetRange]:
    """Yields the ranges to read; reports lost records. InputError if one ends before its start."""
    fail, end_option = options.fail_on_data_loss, getattr(options.ending, "option", None)
    end_name = f"the end by {end_option}" if end_option else "the end of the log"
    deleted = [each for each in every if each not in start or each not in until]
    if deleted:
        report_data_loss(f"{query.format_partitions(deleted)}: deleted at this moment", fail=fail)
    for each in sorted(start.keys() & until.keys()):
        begin, end = start[each], until[each]
        if begin <= end:
            yield OffsetRange(each, begin, end)
        elif _is_looked_up(options.starting, each):
            text = f"{each}: reading should start at offset {begin}, and {end_name} is {end}"
            report_data_loss(text, fail=fail)
        else:
            raise InputError(f"{each}: the starting offset {begin} is after {end_name}, {end}")


def _is_looked_up(where: OffsetRangeLimit, partition: TopicPartition) -> bool:
    """Returns whether the start is the log start or a committed offset, not the user's number."""
    if isinstance(where, query.SpecificOffsets):
        return where.offsets[partition] == query.EARLIEST_OFFSET
    return isinstance(where, query.EarliestOffsets | query.CommittedOffsets)


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
                    "leaves nothing to read for a batch query"
                )


def _check_time_order(start: OffsetRangeLimit, end: OffsetRangeLimit) -> None:
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
#: Stands for the beginning of a query: no topic has this name. Never in a checkpoint.
BEGINNING: Final[Mapping[str, Mapping[str, int]]] = {"": {}}


class InvalidStreamReader(DataSourceStreamReader):
    """Replaces a reader when the options are wrong: raises the error as soon as Spark calls it."""

    def __init__(self, error: RotaError) -> None:
        self._error = error

    def _fail(self, *_: object, **__: object) -> NoReturn:
        raise self._error

    initialOffset = getDefaultReadLimit = latestOffset = read = _fail  # noqa: N815 Spark's names


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the batches of a stream. Its copies on executors only read."""

    def __init__(self, options: SourceOptions, parallelism: int) -> None:
        self._options = options
        self._parallelism = parallelism
        self._lookup: OffsetLookup | None = None
        self._beginning_offsets: Offsets | None = None
        self._latest: Offsets | None = None
        self._available_now_ends: Offsets | None = None  # where the trigger ``availableNow`` stops
        least = options.min_offsets_per_trigger or 0
        self._delay = plan.TriggerDelay(least, options.max_trigger_delay)

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions, int]]:
        return StreamReader, (self._options, self._parallelism)

    @property
    def _offset_lookup(self) -> OffsetLookup:
        if self._lookup is None:
            self._lookup = OffsetLookup(self._options)
        return self._lookup

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 Spark's names
        """Returns a marker; planning the first batch looks up the offsets."""
        return {topic: dict(each) for topic, each in BEGINNING.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns the limit of a trigger. Spark itself sets ``ReadAllAvailable``, for ``once``."""
        options = self._options
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadMaxRows(options.max_offsets_per_trigger or query.MAX_OFFSET)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fixes the ends: later records are not read."""
        lookup = self._offset_lookup
        self._available_now_ends = lookup.latest_offsets(lookup.partitions())

    def latestOffset(  # noqa: N802
        self, start: OffsetJson, limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        begin = self._resolve_beginning() if start == BEGINNING else query.offsets_from_json(start)
        everything = isinstance(limit, ReadAllAvailable)
        unread = self._partitions_not_read(begin, once=everything) if start == BEGINNING else {}
        reads_nothing = begin and len(unread) == len(begin)
        self._latest = unread if reads_nothing else self._trigger_ends(begin) | unread
        end = self._latest if everything else self._limit_ends(begin, self._latest)
        return query.offsets_to_json(end)

    def _resolve_beginning(self) -> Offsets:
        if self._beginning_offsets is None:
            lookup, starting = self._offset_lookup, self._options.starting
            self._beginning_offsets = lookup.resolve_offsets(starting, lookup.partitions())
        return self._beginning_offsets

    def _partitions_not_read(self, first: Offsets, *, once: bool) -> Offsets:
        """Returns partitions whose starting position moves: the first batch does not read them."""
        late = self._options.missing_timestamp_is_latest and not once
        not_read = {each: first[each] for each in first if late or self._is_moving_position(each)}
        if once and not_read and isinstance(self._options.starting, query.CommittedOffsets):
            LOGGER.warning(
                "startingOffsets: committed: the first batch only stores where the query begins, "
                "and trigger(once=True) runs no second batch: use availableNow=True"
            )
        return not_read

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
        if self._available_now_ends is None:
            return self._latest_ends(begin, self._offset_lookup.partitions())
        # the ends may be older than the beginning, or from a leader that is behind
        ends = self._available_now_ends
        late = [each for each, offset in begin.items() if ends.get(each, -1) < offset]
        if late:
            for each, until in self._latest_ends(begin, late).items():
                ends[each] = max(ends.get(each, 0), min(begin[each], until))
        return ends

    def _limit_ends(self, start: Offsets, end: Offsets) -> Offsets:
        options = self._options
        # with availableNow, too, as in Spark's own source: the rest waits for the next run
        now = int(time.time() * 1000)
        if options.min_offsets_per_trigger is not None and self._delay.should_wait(start, end, now):
            return start
        if options.max_offsets_per_trigger is None:
            return end
        new = [each for each in end if each not in start]
        begin = start | self._offset_lookup.earliest_offsets(new)
        existing = {each: until for each, until in end.items() if each in begin}
        return plan.limit_offsets(options.max_offsets_per_trigger, begin, existing)

    def _latest_ends(self, start: Offsets, partitions: Iterable[TopicPartition]) -> Offsets:
        """Looks up ends before the start again: a broker may be behind for a moment."""
        every = list(partitions)
        ends = self._offset_lookup.latest_offsets(every)
        for _ in range(1, self._options.lookup_attempts):
            if all(until >= start.get(each, 0) for each, until in ends.items()):
                break
            time.sleep(self._options.lookup_retry_interval / 1000)
            ends = self._offset_lookup.latest_offsets(every)
        return ends

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """Returns the ends of the topics when they were last looked up."""
        return None if self._latest is None else query.offsets_to_json(self._latest)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        until, is_first = query.offsets_from_json(end), start == BEGINNING
        begin = self._first_batch_start(until) if is_first else query.offsets_from_json(start)
        ranges = self._stream_ranges(begin, until)
        return _plan_partitions(ranges, self._options, self._parallelism)

    def _first_batch_start(self, end: Offsets) -> Offsets:
        """Returns where the first batch begins, whose end is known: also after a restart."""
        beginning = self._beginning_offsets
        if beginning is None:
            moving = {each: until for each, until in end.items() if self._is_moving_position(each)}
            fixed = end.keys() - moving.keys()
            where = _restrict_limit(self._options.starting, fixed)
            beginning = moving | self._offset_lookup.resolve_offsets(*where)
        # a record with the starting time may exist by now, after the end of the first batch
        most = end if self._options.missing_timestamp_is_latest else beginning
        return {each: min(beginning[each], most[each]) for each in beginning.keys() & end.keys()}

    def _stream_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Returns the ranges to read; reports records that can no longer be read."""
        report = partial(report_data_loss, fail=self._options.fail_on_data_loss)
        deleted = start.keys() - end.keys()
        if deleted:
            report(f"{query.format_partitions(deleted)}: gone")
        new = end.keys() - start.keys()
        begin = start | self._offset_lookup.earliest_offsets(new)
        missing = end.keys() - begin.keys()
        if missing:
            report(f"{query.format_partitions(missing)}: created and deleted again")
        for each in sorted(new - missing):
            if begin[each] != 0:
                report(f"{each}: new, and begins at offset {begin[each]}, not at 0")
        existing = sorted(end.keys() - missing)
        for each in existing:
            if end[each] < begin[each]:
                text = f"{each}: went back from offset {begin[each]} to {end[each]}"
                report(text)
        return [OffsetRange(each, begin[each], end[each]) for each in existing]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task_rows(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: Spark calls it one batch late. See :func:`rota.spark.commit_to_group`."""

    def stop(self) -> None:
        if self._lookup is not None:
            self._lookup.close()
            self._lookup = None


def _restrict_limit(
    where: OffsetRangeLimit, partitions: Iterable[TopicPartition]
) -> tuple[OffsetRangeLimit, list[TopicPartition]]:
    """Restricts a limit that names partitions to these; returns the partitions it is for."""
    selected = set(partitions)
    match where:
        case query.SpecificOffsets(name, given):
            offsets = {each: given[each] for each in given if each in selected}
            return query.SpecificOffsets(name, offsets), sorted(offsets)
        case query.SpecificTimestamps(name, given):
            times = {each: given[each] for each in given if each in selected}
            return query.SpecificTimestamps(name, times), sorted(times)
        case _:
            return where, sorted(selected)
