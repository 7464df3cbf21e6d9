"""Reads topics in triggers, for ``spark.readStream``.

Spark's checkpoint has the offsets, in the same JSON as those of Spark's own Kafka source.

Where a query begins is not in the checkpoint, and Spark tells a source in Python not where that is:
after a kill in its first batch a query asks again. So where the answer may have changed by then
(``latest``, ``committed``), the first batch is an empty one, up to the place that was meant.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rota.model.topic import TopicPartition
from rota.spark import limit, option, plan, spec
from rota.spark.lookup import Lookup
from rota.spark.loss import lost
from rota.spark.option import Options
from rota.spark.plan import Range
from rota.spark.task import TaskPartition, rows

if TYPE_CHECKING:
    import pyarrow as pa

Offsets = dict[TopicPartition, int]
MEANT: Final[dict[str, dict[str, int]]] = {"": {}}
"""Stands for the beginning where that may have changed when it is asked for again. No topic has
this name, so it is none of the offsets that a batch can end at; those may be none at all."""
BACKWARD_TRIES = 3
"""How often ends are asked for that are before the start: a broker may be behind for a moment."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the batches of a stream. Its copies on executors only read."""

    def __init__(self, options: Options, parallelism: int) -> None:
        """Asks nothing yet.

        :param parallelism: how many tasks run at a time
        """
        self._options = options
        self._parallelism = parallelism
        self._lookup: Lookup | None = None
        self._first: Offsets | None = None
        self._latest: Offsets | None = None
        self._available_now = False
        self._delay = limit.Delay(options.least_offsets or 0, options.longest_delay)

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self._options, "parallelism": self._parallelism}

    def __setstate__(self, state: dict[str, Any]) -> None:
        StreamReader.__init__(self, **state)

    @property
    def _cluster(self) -> Lookup:
        if self._lookup is None:
            self._lookup = Lookup(self._options)
        return self._lookup

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 Spark's names
        """Where the query begins, if it has no checkpoint."""
        if self._first is None:
            self._first = self._cluster.offsets(self._options.start, self._cluster.partitions())
        return MEANT if self._may_move() else spec.to_json(self._first)

    def _may_move(self) -> bool:
        """Whether the beginning, asked for later, may be another one."""
        match self._options.start:
            case option.Latest() | option.Committed():
                return True
            case option.Given(_, given):
                return spec.LATEST in given.values()
            case _:
                return self._options.late_is_latest

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say of a trigger."""
        options = self._options
        if options.least_offsets is not None:
            return ReadMinRows(options.least_offsets)
        if options.most_offsets is not None:
            return ReadMaxRows(options.most_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on there is nothing new."""
        self._available_now = True

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """How far the next batch reads."""
        begin = spec.from_json(start)
        # not before it is known where to begin: records that come meanwhile would be behind it
        if self._latest is None or not self._available_now:
            self._latest = self._ends(begin)
        if start == MEANT and self._first is not None:
            return spec.to_json(self._first)
        if isinstance(limit, ReadAllAvailable):
            return spec.to_json(self._latest)
        return spec.to_json(self._limited(begin, self._latest))

    def _limited(self, start: Offsets, end: Offsets) -> Offsets:
        options = self._options
        if options.least_offsets is not None and self._delay.holds(
            start, end, int(time.time() * 1000)
        ):
            return start
        if options.most_offsets is None:
            return end
        new = [each for each in end if each not in start]
        return limit.prorated(options.most_offsets, start | self._cluster.earliest(new), end)

    def _ends(self, start: Offsets) -> Offsets:
        every = self._cluster.partitions()
        for attempt in range(1, BACKWARD_TRIES + 1):
            ends = self._cluster.latest(every)
            if attempt == BACKWARD_TRIES or all(ends[at] >= start.get(at, 0) for at in ends):
                break
            time.sleep(self._options.pause / 1000)
        return ends

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """How far the topics went when they were last looked at."""
        return None if self._latest is None else spec.to_json(self._latest)

    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> list[InputPartition]:
        """The tasks of a batch."""
        if start == MEANT:
            return []
        options = self._options
        planned = plan.tasks(
            self._ranges(spec.from_json(start), spec.from_json(end)),
            slots=options.slots or self._parallelism,
            least=options.least_tasks,
            most_records=options.most_records,
        )
        return [TaskPartition(each) for each in planned]

    def _ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What to read; says what cannot be read any more."""
        gone = start.keys() - end.keys()
        if gone:
            self._lost(f"{spec.named(gone)} are gone")
        new = end.keys() - start.keys()
        begin = start | (self._cluster.earliest(new) if new else {})
        for each in sorted(new):
            if begin[each] != 0:
                self._lost(f"{each} is new, and begins at offset {begin[each]}, not at 0")
        for each in sorted(end):
            if end[each] < begin[each]:
                self._lost(f"{each} went back from offset {begin[each]} to {end[each]}")
        return [Range(each, begin[each], end[each]) for each in sorted(end)]

    def _lost(self, what: str) -> None:
        lost(what, fail=self._options.fail_on_loss)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return rows(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it comes a batch late; see :func:`rota.spark.commit_to_group`."""

    def stop(self) -> None:
        """Closes the connections."""
        if self._lookup is not None:
            self._lookup.close()
            self._lookup = None
