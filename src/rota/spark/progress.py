"""How far streaming queries are in Kafka: from Spark's query events, and from checkpoints.

Spark keeps two files for each batch: ``offsets/7`` is written before batch 7 runs and holds its
end, ``commits/7`` is written after the batch has finished. A file of offsets begins with its
version and a line about the query; then each source has a line (``v1``: its offset, ``-`` if it has
none yet; ``v2``, for queries whose sources have names: ``name:`` and its offset).

A query keeps its id as long as its checkpoint, and gets a new run id with every start. Within a run
batch numbers only go up; a new run may begin lower, where someone has set the checkpoint back. Each
topic belongs to one query: the first that has finished a batch of it, until that query ends.

Spark waits while it calls listeners: at a start the query waits, else all other listeners. So a
listener only queues what it hears; a worker thread reads files and runs jobs, in the order of the
events.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql.session import SparkSession as Classic
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rota.engine.model.topic import TopicPartition
from rota.errors import FormatError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

OffsetsByPartition: TypeAlias = Mapping[TopicPartition, int]

#: A time that only a batch has which was written to the commit log; a progress without it tells of
#: a trigger that had nothing to do.
COMMIT_DURATION: Final = "commitOffsets"

#: How Spark's own source describes itself. Others with offsets of the same form are not Kafka's.
KAFKA_DESCRIPTIONS: Final = ("KafkaV1[", "KafkaV2[")

#: What the description of any source in Python has in it: their names are not told.
PYTHON_DESCRIPTION: Final = ".PythonMicroBatchStream"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBatch:
    """A batch that is in the checkpoint's commit log, and its ending offsets in Kafka."""

    #: Its id, which stays the same as long as the checkpoint.
    query: str
    #: The id of this start of it; empty: of none that is known.
    run: str
    batch: int
    offsets: OffsetsByPartition


def read_progress(progress: StreamingQueryProgress) -> FinishedBatch | None:
    """Returns the finished batch that a progress event reports; None if no batch was
    finished, or none that reads Kafka.
    """
    if COMMIT_DURATION not in progress.durationMs:
        return None
    ends = [each.endOffset for each in progress.sources if _may_be_kafka(each.description)]
    offsets = lowest_offsets(filter(None, map(parse_source_offsets, ends)))
    if not offsets:
        return None
    return FinishedBatch(
        query=str(progress.id), run=str(progress.runId), batch=progress.batchId, offsets=offsets
    )


def _may_be_kafka(description: str) -> bool:
    return description.startswith(KAFKA_DESCRIPTIONS) or PYTHON_DESCRIPTION in description


def parse_source_offsets(text: str | None) -> OffsetsByPartition | None:
    """Parses ``{"topic": {"0": 5}}``; None if the text has another form, and so comes from another
    source.

    Negative numbers stand for the ends of a log and are left out.
    """
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            return None
        for number, offset in partitions.items():
            if not (number.isascii() and number.isdecimal()) or type(offset) is not int:
                return None
            if offset >= 0:
                offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def lowest_offsets(several: Iterable[OffsetsByPartition]) -> dict[TopicPartition, int]:
    """Merges the offsets of all sources of a query: a partition that two sources read is done
    up to the lower offset.
    """
    merged: dict[TopicPartition, int] = {}
    for offsets in several:
        for place, offset in offsets.items():
            merged[place] = min(offset, merged.get(place, offset))
    return dict(sorted(merged.items()))


FILE_SCHEME: Final = "file:"

OFFSET_LOG_VERSIONS: Final = ("v1", "v2")

_SOURCE_NAME = re.compile(r"\w+:")

T = TypeVar("T")


class CheckpointFiles(Protocol):
    """The files of a checkpoint."""

    def list_files(self, folder: str) -> list[str]:
        """The files of one of its folders; none if there is no such folder."""

    def read_file(self, file: str) -> str | None:
        """What one of its files has; None if there is no such file."""


class LocalCheckpoint:
    """A checkpoint in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def list_files(self, folder: str) -> list[str]:
        """As :class:`Place` has it."""
        try:
            return [each.name for each in (self._root / folder).iterdir()]
        except FileNotFoundError:
            return []

    def read_file(self, file: str) -> str | None:
        """As :class:`Place` has it."""
        try:
            return (self._root / file).read_text("utf-8")
        except FileNotFoundError:
            return None


class RemoteCheckpoint:
    """A checkpoint on any file system that Spark can read; each call is a small Spark job."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")

    def list_files(self, folder: str) -> list[str]:
        """As :class:`Place` has it."""
        read = self._spark.read.format("binaryFile").option("pathGlobFilter", "[0-9]*")
        try:
            rows = read.load(f"{self._root}/{folder}").select("path").collect()
        except AnalysisException as error:
            return _default_if_missing(error, [])
        return [row.path.rpartition("/")[2] for row in rows]

    def read_file(self, file: str) -> str | None:
        """As :class:`Place` has it."""
        try:
            rows = self._spark.read.text(f"{self._root}/{file}", wholetext=True).collect()
        except AnalysisException as error:
            return _default_if_missing(error, None)
        return None if not rows else str(rows[0].value)


def _default_if_missing(error: AnalysisException, nothing: T) -> T:
    if error.getCondition() != "PATH_NOT_FOUND":
        raise error
    return nothing


def open_checkpoint(spark: SparkSession, root: str, *, here: bool) -> CheckpointFiles:
    """Where a checkpoint is.

    :param here: the driver runs in this process, so that its files are this machine's. A path
        without ``file:`` may be meant for another file system, which Spark knows
    """
    if here and root.startswith(FILE_SCHEME):
        return LocalCheckpoint(Path("/" + root.removeprefix(FILE_SCHEME).lstrip("/")))
    return RemoteCheckpoint(spark, root)


def read_query_id(at: CheckpointFiles) -> str | None:
    """Returns the id of the query that the checkpoint belongs to; None if it has none yet."""
    text = at.read_file("metadata")
    if text is None:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"metadata: no id of a query: {text[:80]!r}") from error


def read_last_finished(at: CheckpointFiles) -> tuple[int, OffsetsByPartition] | None:
    """The number of the last finished batch and where it ends in Kafka; None: none is finished."""
    batches = [
        int(name) for name in at.list_files("commits") if name.isascii() and name.isdecimal()
    ]
    if not batches:
        return None
    batch = max(batches)
    text = at.read_file(f"offsets/{batch}")
    if text is None:
        raise FormatError(f"commits/{batch} is there, but not offsets/{batch}")
    return batch, parse_offset_log(text)


def parse_offset_log(text: str) -> OffsetsByPartition:
    """Where a batch ends in Kafka, by its file of offsets."""
    version, *lines = text.splitlines() or [""]
    if version not in OFFSET_LOG_VERSIONS:
        raise FormatError(f"offsets of version {version[:20]!r} are not known")
    sources = [
        line if version == "v1" else _SOURCE_NAME.sub("", line, count=1) for line in lines[1:]
    ]
    return lowest_offsets(filter(None, map(parse_source_offsets, sources)))


@dataclass(frozen=True, slots=True)
class TopicConflict:
    """A query reads a topic whose offsets another one commits."""

    topic: str
    query: str
    owner: str


class TargetOffsets:
    """The offsets that a group should have committed: the newest finished batch of each
    query, and the query that owns each topic.
    """

    def __init__(self) -> None:
        #: The newest run of each query.
        self._runs: dict[str, str] = {}
        self._newest: dict[str, FinishedBatch] = {}
        self._owners: dict[str, str] = {}
        self._ended: set[str] = set()

    def query_started(self, query: str, run: str) -> None:
        """A query runs, now or again."""
        self._runs[query] = run
        self._ended.discard(query)

    def query_ended(self, query: str, run: str) -> None:
        """It does not run any more; its topics are free for others."""
        if self._runs.get(query) == run:
            self._ended.add(query)

    def batch_finished(self, done: FinishedBatch) -> list[TopicConflict] | None:
        """Takes a finished batch. Returns the topics of it that other queries own, or None if
        the batch is older than a known one.
        """
        if not self._is_news(done):
            return None
        self._newest[done.query] = done
        self._runs.setdefault(done.query, done.run)
        conflicts = []
        for topic in sorted({place.topic for place in done.offsets}):
            holder = self._owners.setdefault(topic, done.query)
            if self._is_free(holder):
                self._owners[topic] = done.query
            elif holder != done.query:
                conflicts.append(TopicConflict(topic, done.query, holder))
        self._drop_replaced_queries()
        return conflicts

    def _is_news(self, done: FinishedBatch) -> bool:
        known = self._newest.get(done.query)
        if known is None:
            return True
        if known.run == done.run:
            return done.batch > known.batch
        # the last words of a run may come after the first of the next
        return done.run == self._runs.get(done.query)

    def _is_free(self, query: str) -> bool:
        """Does it hold on to nothing? It has ended, or nothing but its checkpoint was seen."""
        return query in self._ended or not self._runs.get(query)

    def _drop_replaced_queries(self) -> None:
        """Queries that hold on to nothing, and have nothing that is not another's by now."""
        owners = set(self._owners.values())
        for query in [each for each in self._newest if self._is_free(each) and each not in owners]:
            del self._newest[query]
            self._runs.pop(query, None)
            self._ended.discard(query)

    def offsets(self) -> dict[TopicPartition, int]:
        """What the group is to have."""
        return {
            place: offset
            for query, done in self._newest.items()
            for place, offset in done.offsets.items()
            if self._owners[place.topic] == query
        }


_WORKER_LOGGER = logging.getLogger("rota.spark")


class WorkerThread:
    """A thread that runs callables in order. An exception is logged, and the next callable runs."""

    def __init__(self, name: str, about: str) -> None:
        """With the thread's name, and what log lines are about."""
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._about = about
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, act: Callable[[], object]) -> None:
        """To be done after all that was given before."""
        self._queue.put(act)

    def wait(self, timeout: float) -> bool:
        """Waits until all is done that was given up to now; False if it is not in these seconds."""
        done = threading.Event()
        self._queue.put(done.set)
        return done.wait(max(0.0, timeout))

    def stop(self) -> None:
        """The thread ends once all is done; nothing is given to it any more."""
        self._queue.put(None)

    def _run(self) -> None:
        while (act := self._queue.get()) is not None:
            try:
                act()
            except Exception as error:
                first = next(iter(str(error).strip().splitlines()), "")
                _WORKER_LOGGER.warning("%s: %s: %s", self._about, type(error).__name__, first)
                _WORKER_LOGGER.debug("%s: in full", self._about, exc_info=True)


LOGGER = logging.getLogger("rota.spark")

#: How the engine's name begins that writes its logs when it finds the time
#: (``asyncProgressTrackingEnabled``): it tells of batches before they are in its commit log.
ASYNC_ENGINE = "Async"

E = TypeVar("E")


class SetTarget(Protocol):
    """Is told what the group is to have."""

    def __call__(self, offsets: OffsetsByPartition, *, anew: bool) -> None:
        """See :meth:`rota.spark.commit.GroupCommitter.set_target`."""


@dataclass(frozen=True, slots=True)
class QueryFilter:
    """Which queries to follow: by name or by id; without both, all."""

    name: str | None = None
    id: str | None = None

    def matches(self, query: object, name: str | None) -> bool:
        """Is this one of them?"""
        return self.name in {None, name} and self.id in {None, str(query)}

    def __str__(self) -> str:
        return f"named {self.name!r}" if self.id is None else f"of id {self.id}"


class QueryFollower:
    """Follows the wanted queries of a session and reports how far they are."""

    def __init__(  # noqa: PLR0913 what a query may be known by
        self,
        spark: SparkSession,
        wanted: QueryFilter,
        aim: SetTarget,
        *,
        about: str,
        given: StreamingQuery | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Nothing happens yet.

        :param about: what log lines are about
        :param given: the query that is wanted, if it is known
        :param checkpoint: where its checkpoint is, if that is known
        """
        self._spark = spark
        self._wanted = wanted
        self._set_target = aim
        self._about = about
        self._given = given
        self._checkpoint = checkpoint
        self._is_classic = isinstance(spark, Classic)
        self._worker = WorkerThread("rota-spark", about)
        self._listener = QueryListener(self)
        self._changed = threading.Condition()
        self._stopped = False
        self._listening = False
        #: Queries by their runs.
        self._running: dict[str, str] = {}
        #: Names of queries that are not wanted.
        self._other_names: set[str] = set()
        #: One was that is.
        self._found = False
        #: Runs that have ended while those were listed that are active.
        self._ended: set[str] | None = None
        #: The newest finished batch of a run that nobody has looked at yet.
        self._newest: dict[str, FinishedBatch] = {}
        # only the errands' thread uses these
        self._ledger = TargetOffsets()
        self._places: dict[str, CheckpointFiles] = {}
        self._async_runs: set[str] = set()
        self._logged_conflicts: set[TopicConflict] = set()

    @property
    def has_running_query(self) -> bool:
        """Is one of the queries running?"""
        return bool(self._running)

    def start(self) -> None:
        """From now on."""
        if self._checkpoint is not None:
            self._worker.submit(partial(self._catch_up_before, self._checkpoint))
        self._listening, self._ended = True, set()
        self._spark.streams.addListener(self._listener)
        active = [each for each in self._spark.streams.active if self._takes(each)]
        for each in active:
            self._start(str(each.id), str(each.runId))
        with self._changed:
            ended, self._ended = self._ended, None
        for run in ended & {str(each.runId) for each in active}:
            self._end(run)
        if self._given is not None and not active:
            query, run = str(self._given.id), str(self._given.runId)
            self._start(query, run)
            self._end(run)

    def _takes(self, query: StreamingQuery) -> bool:
        return self._wanted.matches(query.id, query.name)

    def catch_up(self, until: float, *, at_exit: bool = False) -> bool:
        """Waits until all events of queries that have ended are received and processed; False if
        time runs out.

        :param at_exit: the program ends, and Spark Connect cannot be asked any more
        """
        ended = set(self._running)
        if self._is_classic or not at_exit:
            self._worker.submit(partial(self._drop_active_runs, ended))
        else:
            ended.clear()
        if not self._worker.wait(until - time.monotonic()):
            return False
        # Spark says that a query has ended before its listeners have heard all of it
        with self._changed:
            heard = self._changed.wait_for(
                lambda: not self._running.keys() & ended, max(0.0, until - time.monotonic())
            )
        return self._worker.wait(until - time.monotonic()) and heard

    def _drop_active_runs(self, runs: set[str]) -> None:
        """Leaves of these only what has ended."""
        runs.difference_update(str(each.runId) for each in self._spark.streams.active)

    def stop(self, until: float, *, surely: bool = False) -> bool:
        """Stops listening; False if the listener could not be removed.

        :param surely: tries it even where it might block the session, because nobody needs the
            session any more
        """
        if not self._stopped and self._other_names and not self._found:
            LOGGER.warning(
                "%s: nothing was committed: no query was %s; those that ran: %s",
                *(self._about, self._wanted, ", ".join(sorted(self._other_names))),
            )
        self._stopped = True
        if not self._listening:
            return True
        self._worker.submit(partial(self._remove_listener, surely=surely))
        self._worker.wait(until - time.monotonic())
        if not self._listening:
            self._worker.stop()
        return not self._listening

    def _remove_listener(self, *, surely: bool) -> None:
        # PySpark's client holds a lock while it waits for the thread that hears of events, and
        # that thread wants the lock for the next event: without queries there is none
        if self._is_classic or surely or not self._spark.streams.active:
            self._listening = False
            self._spark.streams.removeListener(self._listener)

    # As the listener hears it

    def started(self, event: QueryStartedEvent) -> None:
        """A query has started."""
        if self._wanted.matches(event.id, event.name):
            self._start(str(event.id), str(event.runId))
        else:
            self._other_names.add(event.name or "one without a name")

    def progressed(self, event: QueryProgressEvent) -> None:
        """A trigger is over."""
        progress = event.progress
        if not self._wanted.matches(progress.id, progress.name):
            return
        done = read_progress(progress)
        if done is None:
            return
        self._start(done.query, done.run)
        with self._changed:
            is_first = done.run not in self._newest
            self._newest[done.run] = done
        if is_first:
            self._worker.submit(partial(self._take_newest, done.run))

    def terminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended."""
        run = str(event.runId)
        with self._changed:
            if self._ended is not None:
                self._ended.add(run)
            known = run in self._running
        if known:
            self._end(run)

    @property
    def is_stopped(self) -> bool:
        """It has ended, and only could not be taken off."""
        return self._stopped

    def _start(self, query: str, run: str) -> None:
        with self._changed:
            if run in self._running:
                return
            self._running[run] = query
            self._found = True
        self._worker.submit(partial(self._catch_up, query, run))

    def _end(self, run: str) -> None:
        self._worker.submit(partial(self._close_run, run))

    # In the errands' thread

    def _catch_up_before(self, root: str) -> None:
        """What the checkpoint has that was given, before any query has started."""
        place = open_checkpoint(self._spark, root, here=self._is_classic)
        query = read_query_id(place)
        if query is None:
            return
        if self._wanted.id not in {None, query}:
            LOGGER.warning(
                "%s: the checkpoint %s is of query %s, not of %s: it is not looked at",
                *(self._about, root, query, self._wanted.id),
            )
            return
        self._read_checkpoint(place, query, "")

    def _catch_up(self, query: str, run: str) -> None:
        """What the checkpoint of a query has that has started."""
        self._ledger.query_started(query, run)
        found = self._spark.streams.get(query) or self._given
        place = self._find_checkpoint(found, query, run)
        if place is not None:
            self._places[run] = place
            self._read_checkpoint(place, query, run)
        elif found is not None and (last := found.lastProgress) is not None:
            done = read_progress(last)
            if done is not None:
                self._take_finished_batch(done, anew=True)

    def _find_checkpoint(
        self, found: StreamingQuery | None, query: str, run: str
    ) -> CheckpointFiles | None:
        """Where the checkpoint is. Classic Spark's own object of the query knows; its class, too,
        is told nowhere else.
        """
        engine = None if found is None else getattr(found, "_jsq", None)
        if engine is not None:
            execution = engine.streamingQuery()
            if execution.getClass().getSimpleName().startswith(ASYNC_ENGINE):
                self._async_runs.add(run)
            root = execution.resolvedCheckpointRoot()
            return open_checkpoint(self._spark, root, here=self._is_classic)
        if self._checkpoint is None:
            return None
        place = open_checkpoint(self._spark, self._checkpoint, here=self._is_classic)
        owner = read_query_id(place)
        if owner in {None, query}:
            return place
        LOGGER.warning(
            "%s: the checkpoint %s is of query %s, not of %s: it is not looked at",
            *(self._about, self._checkpoint, owner, query),
        )
        return None

    def _read_checkpoint(
        self, place: CheckpointFiles, query: str, run: str, *, anew: bool = True
    ) -> None:
        last = read_last_finished(place)
        if last is not None:
            batch, offsets = last
            self._take_finished_batch(
                FinishedBatch(query=query, run=run, batch=batch, offsets=offsets), anew=anew
            )

    def _take_newest(self, run: str) -> None:
        with self._changed:
            done = self._newest.pop(run)
        if run in self._async_runs:
            place = self._places.get(run) or self._find_checkpoint(
                self._spark.streams.get(done.query), done.query, run
            )
            if place is not None:
                self._places[run] = place
                self._read_checkpoint(place, done.query, run, anew=False)
        else:
            self._take_finished_batch(done, anew=False)

    def _take_finished_batch(self, done: FinishedBatch, *, anew: bool) -> None:
        conflicts = self._ledger.batch_finished(done)
        if conflicts is None:
            return
        for each in set(conflicts) - self._logged_conflicts:
            self._logged_conflicts.add(each)
            LOGGER.warning(
                "%s: topic %r of query %s is not committed: query %s commits it already; "
                "give each query a group of its own",
                *(self._about, each.topic, each.query, each.owner),
            )
        self._set_target(self._ledger.offsets(), anew=anew)

    def _close_run(self, run: str) -> None:
        try:
            query, place = self._running.get(run), self._places.pop(run, None)
            if query is None:
                return
            if run in self._async_runs and place is not None:
                self._read_checkpoint(place, query, run, anew=False)
            self._ledger.query_ended(query, run)
            self._async_runs.discard(run)
        finally:
            with self._changed:
                self._running.pop(run, None)
                self._changed.notify_all()


class QueryListener(StreamingQueryListener):
    """Forwards Spark's query events, and never raises."""

    def __init__(self, follower: QueryFollower) -> None:
        self._follower = follower

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 Spark's names
        """A query has started."""
        self._forward(self._follower.started, event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A trigger is over."""
        self._forward(self._follower.progressed, event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query has ended."""
        self._forward(self._follower.terminated, event)

    def _forward(self, hear: Callable[[E], None], event: E) -> None:
        if self._follower.is_stopped:
            return
        try:
            hear(event)
        except Exception:  # Spark would log it, too, but not say whose it is
            LOGGER.exception("an event of a query was not understood")
