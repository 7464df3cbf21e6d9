"""Reads topics in triggers, for ``spark.readStream``.

Spark's checkpoint has the offsets, in the same JSON as those of Spark's own Kafka source.

Where a query begins is not in the checkpoint: after a kill in its first batch, Spark asks a source
in Python for it once more, and the answer may be another one by then. So the beginning goes to
Spark as a mark (:data:`BEGINNING`), which says that it is the beginning and no more. The first
batch, whose end the checkpoint has, begins for each partition of that end where the options say.
Where those say something that moves (``latest``, ``committed``), the first batch reads nothing of
the partition, up to the place that was meant: so it is in the checkpoint before anything is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rota.errors import RotaError
from rota.model.topic import TopicPartition
from rota.spark import limit, plan, query, spec
from rota.spark.lookup import Lookup
from rota.spark.loss import LOGGER, lost
from rota.spark.plan import Range
from rota.spark.query import Options, Where
from rota.spark.task import TaskPartition, rows

if TYPE_CHECKING:
    import pyarrow as pa

Offsets = dict[TopicPartition, int]
Json = Mapping[str, Mapping[str, int]]
BEGINNING: Final[Mapping[str, Mapping[str, int]]] = {"": {}}
"""What stands for the beginning of a query: no topic has this name. Never in a checkpoint."""


class Refusal(DataSourceStreamReader):
    """In place of a reader, where the options are wrong: says so as soon as it is asked."""

    def __init__(self, error: RotaError) -> None:
        """Takes what is wrong."""
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's names
        """Where nothing begins."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much is not read."""
        raise self._error

    def latestOffset(self, start: Json, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """And of what."""
        raise self._error


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
        self._target: Offsets | None = None
        """Where to stop, with the trigger ``availableNow``."""
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
        """A mark; where that is, is looked up when the first batch is planned."""
        return {topic: dict(each) for topic, each in BEGINNING.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say of a trigger. To read all is said by Spark only, for ``once``."""
        options = self._options
        if options.least_offsets is not None:
            return ReadMinRows(options.least_offsets)
        return ReadMaxRows(options.most_offsets or spec.LARGEST)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on there is nothing new."""
        self._target = self._cluster.latest(self._cluster.partitions())

    def latestOffset(  # noqa: N802
        self, start: Json, limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """How far the next batch reads."""
        begin = self._beginning() if start == BEGINNING else spec.from_json(start)
        everything = isinstance(limit, ReadAllAvailable)
        still = self._still(begin, once=everything) if start == BEGINNING else {}
        if begin and len(still) == len(begin):
            self._latest = still
        else:
            self._latest = self._known_ends(begin) | still
        if everything:
            return spec.to_json(self._latest)
        return spec.to_json(self._limited(begin, self._latest))

    def _beginning(self) -> Offsets:
        """Where the query begins."""
        if self._first is None:
            every = self._cluster.partitions()
            self._first = self._cluster.offsets(self._options.start, every)
        return self._first

    def _still(self, first: Offsets, *, once: bool) -> Offsets:
        """Partitions of which the first batch reads nothing: their beginning moves."""
        late = self._options.late_is_latest and not once
        found = {each: offset for each, offset in first.items() if late or self._moves(each)}
        if once and found and isinstance(self._options.start, query.Committed):
            LOGGER.warning(
                "startingOffsets: committed: the first batch only keeps where the query begins, "
                "and trigger(once=True) has no second one: use availableNow=True"
            )
        return found

    def _moves(self, partition: TopicPartition) -> bool:
        """Whether its beginning, asked for later, would be another one."""
        match self._options.start:
            case query.Latest() | query.Committed():
                return True
            case query.Given(_, given):
                return given.get(partition) == spec.LATEST
            case query.At(_, moment):
                return moment == spec.LATEST
            case query.AtEach(_, times):
                return times.get(partition) == spec.LATEST
            case query.Earliest():
                return False

    def _known_ends(self, begin: Offsets) -> Offsets:
        """With ``availableNow``, those that there were; else those that there are."""
        if self._target is None:
            return self._ends(begin, self._cluster.partitions())
        # it was taken a moment before the beginning was, or by a leader that is behind
        late = [each for each, offset in begin.items() if self._target.get(each, -1) < offset]
        if late:
            now = self._ends(begin, late)
            for each, until in now.items():
                known = self._target.get(each, 0)
                self._target[each] = max(known, min(begin[each], until))
        return self._target

    def _limited(self, start: Offsets, end: Offsets) -> Offsets:
        options = self._options
        # with availableNow, too, as in Spark's own: what is left then waits for the next run
        if options.least_offsets is not None and self._delay.holds(start, end, _now()):
            return start
        if options.most_offsets is None:
            return end
        new = [each for each in end if each not in start]
        begin = start | self._cluster.earliest(new)
        there = {each: until for each, until in end.items() if each in begin}
        return limit.prorated(options.most_offsets, begin, there)

    def _ends(self, start: Offsets, partitions: Iterable[TopicPartition]) -> Offsets:
        """Ends before the start are asked for again: a broker may be behind for a moment."""
        every = list(partitions)
        for attempt in range(1, self._options.tries + 1):
            ends = self._cluster.latest(every)
            if all(until >= start.get(each, 0) for each, until in ends.items()):
                break
            if attempt < self._options.tries:
                time.sleep(self._options.pause / 1000)
        return ends

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """How far the topics went when they were last looked at."""
        return None if self._latest is None else spec.to_json(self._latest)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch."""
        until = spec.from_json(end)
        begin = self._begin_of(until) if start == BEGINNING else spec.from_json(start)
        options = self._options
        planned = plan.tasks(
            self._ranges(begin, until),
            slots=options.slots or self._parallelism,
            least=options.least_tasks,
            most_records=options.most_records,
        )
        return [TaskPartition(each) for each in planned]

    def _begin_of(self, end: Offsets) -> Offsets:
        """Where the first batch begins, whose end is known: after a restart, too."""
        known = self._first
        if known is None:
            still = {each: until for each, until in end.items() if self._moves(each)}
            fixed = end.keys() - still.keys()
            where = _narrowed(self._options.start, fixed)
            known = still | self._cluster.offsets(where, _named(where, fixed))
        if self._options.late_is_latest:  # what was none then may be one now, behind the end
            return {each: min(known[each], end[each]) for each in known.keys() & end.keys()}
        return {each: known[each] for each in known.keys() & end.keys()}

    def _ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What to read; says what cannot be read any more."""
        gone = start.keys() - end.keys()
        if gone:
            self._lost(f"{spec.named(gone)}: gone")
        new = end.keys() - start.keys()
        begin = start | self._cluster.earliest(new)
        missing = end.keys() - begin.keys()
        if missing:
            self._lost(f"{spec.named(missing)}: came, and is gone again")
        for each in sorted(new - missing):
            if begin[each] != 0:
                self._lost(f"{each}: is new, and begins at offset {begin[each]}, not at 0")
        there = sorted(end.keys() - missing)
        for each in there:
            if end[each] < begin[each]:
                self._lost(f"{each}: went back from offset {begin[each]} to {end[each]}")
        return [Range(each, begin[each], end[each]) for each in there]

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


def _narrowed(where: Where, partitions: Iterable[TopicPartition]) -> Where:
    """The same for these partitions only, as far as it names them."""
    wanted = set(partitions)
    match where:
        case query.Given(name, given):
            return query.Given(name, {each: given[each] for each in given if each in wanted})
        case query.AtEach(name, times):
            return query.AtEach(name, {each: times[each] for each in times if each in wanted})
        case _:
            return where


def _named(where: Where, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those that it says something of."""
    match where:
        case query.Given(_, named) | query.AtEach(_, named):
            return sorted(named)
        case _:
            return sorted(partitions)


def _now() -> int:
    return int(time.time() * 1000)
