"""How far streaming queries are in Kafka: from Spark's query events, and from checkpoints.

Spark keeps two files for each batch: ``offsets/7`` is written before batch 7 runs and holds its
end, ``commits/7`` is written after the batch has finished. A file of offsets begins with its
version and a line about the query; then each source has a line (``v1``: its offset, ``-`` if it has
none yet; ``v2``, for queries whose sources have names: ``name:`` and its offset).

A query keeps its id as long as its checkpoint, and gets a new run id with every start. Within a run
batch numbers only go up; a new run may begin lower, where someone has set the checkpoint back. Each
topic belongs to one query: the first that has finished a batch of it, until that query ends.

Spark waits while it calls listeners, so a listener only queues events; a worker thread reads files
and runs jobs, in the order of events.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

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
from rota.spark.query import LOGGER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

OffsetsByPartition: TypeAlias = Mapping[TopicPartition, int]
COMMIT_DURATION: Final = "commitOffsets"  # only if the batch is in the commit log
#: Descriptions of Spark's own source. Other sources may have offsets of the same form.
KAFKA_DESCRIPTIONS: Final = ("KafkaV1[", "KafkaV2[")
#: Part of the description of every source in Python; Spark does not report their names.
PYTHON_DESCRIPTION: Final = ".PythonMicroBatchStream"


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch that is in the checkpoint's commit log, and its ending offsets in Kafka."""

    query: str  # the query's id, which stays the same as long as the checkpoint
    run: str  # the run's id; empty: unknown
    batch: int
    offsets: OffsetsByPartition


def read_progress(progress: StreamingQueryProgress) -> FinishedBatch | None:
    """Returns the finished batch that a progress event reports; None if it has none of Kafka."""
    if COMMIT_DURATION not in progress.durationMs:
        return None
    ends = [
        each.endOffset
        for each in progress.sources
        if each.description.startswith(KAFKA_DESCRIPTIONS) or PYTHON_DESCRIPTION in each.description
    ]
    offsets = lowest_offsets(filter(None, map(parse_source_offsets, ends)))
    if not offsets:
        return None
    return FinishedBatch(str(progress.id), str(progress.runId), progress.batchId, offsets)


def parse_source_offsets(text: str | None) -> OffsetsByPartition | None:
    """Parses ``{"topic": {"0": 5}}`` without negative numbers; None if it has another form."""
    try:
        parsed = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            return None
        for number, offset in partitions.items():
            if not (number.isascii() and number.isdecimal()) or type(offset) is not int:
                return None
            if offset >= 0:
                offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def lowest_offsets(several: Iterable[OffsetsByPartition]) -> dict[TopicPartition, int]:
    """Merges the offsets of a query's sources; the lower one counts if two read a partition."""
    merged: dict[TopicPartition, int] = {}
    for offsets in several:
        for partition, offset in offsets.items():
            merged[partition] = min(offset, merged.get(partition, offset))
    return dict(sorted(merged.items()))


FILE_SCHEME: Final = "file:"
OFFSET_LOG_VERSIONS: Final = ("v1", "v2")
_SOURCE_NAME = re.compile(r"\w+:")
PATH_NOT_FOUND: Final = "PATH_NOT_FOUND"  # of Spark's error for a path that does not exist


class LocalCheckpoint:
    def __init__(self, root: Path) -> None:
        self._root = root

    def list_files(self, folder: str) -> list[str]:
        """Returns the files of a folder; an empty list if it does not exist."""
        with suppress(FileNotFoundError):
            return [each.name for each in (self._root / folder).iterdir()]
        return []

    def read_file(self, file: str) -> str | None:
        """Returns the text of a file; None if it does not exist."""
        with suppress(FileNotFoundError):
            return (self._root / file).read_text("utf-8")
        return None


class RemoteCheckpoint:
    """A checkpoint on any file system that Spark can read; each call is a small Spark job."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")

    def list_files(self, folder: str) -> list[str]:
        read = self._spark.read.format("binaryFile").option("pathGlobFilter", "[0-9]*")
        try:
            rows = read.load(f"{self._root}/{folder}").select("path").collect()
        except AnalysisException as error:
            if error.getCondition() != PATH_NOT_FOUND:
                raise
            return []
        return [row.path.rpartition("/")[2] for row in rows]

    def read_file(self, file: str) -> str | None:
        try:
            rows = self._spark.read.text(f"{self._root}/{file}", wholetext=True).collect()
        except AnalysisException as error:
            if error.getCondition() != PATH_NOT_FOUND:
                raise
            return None
        return None if not rows else str(rows[0].value)


Checkpoint: TypeAlias = LocalCheckpoint | RemoteCheckpoint


def read_query_id(checkpoint: Checkpoint) -> str | None:
    """Returns the id of the query that the checkpoint belongs to; None if it has none yet."""
    if (text := checkpoint.read_file("metadata")) is None:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"metadata has no query id: {text[:80]!r}") from error


def read_last_finished(checkpoint: Checkpoint) -> tuple[int, OffsetsByPartition] | None:
    """Returns the last finished batch and its ending offsets in Kafka; None if none is finished."""
    names = checkpoint.list_files("commits")
    batches = [int(name) for name in names if name.isascii() and name.isdecimal()]
    if not batches:
        return None
    batch = max(batches)
    text = checkpoint.read_file(f"offsets/{batch}")
    if text is None:
        raise FormatError(f"commits/{batch} exists, but offsets/{batch} does not")
    return batch, parse_offset_log(text)


def parse_offset_log(text: str) -> OffsetsByPartition:
    """Returns the ending offsets of a batch in Kafka, from its file in ``offsets``."""
    version, *lines = text.splitlines() or [""]
    if version not in OFFSET_LOG_VERSIONS:
        raise FormatError(f"offsets of version {version[:20]!r} are not supported")
    sources = [
        line if version == "v1" else _SOURCE_NAME.sub("", line, count=1) for line in lines[1:]
    ]
    return lowest_offsets(filter(None, map(parse_source_offsets, sources)))


@dataclass(frozen=True, slots=True)
class TopicConflict:
    topic: str
    query: str
    owner: str


class TargetOffsets:
    """The offsets that a group should have committed: those of each query's newest batch."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}  # the newest run of each query
        self._newest: dict[str, FinishedBatch] = {}
        self._owners: dict[str, str] = {}
        self._ended: set[str] = set()

    def query_started(self, query: str, run: str) -> None:
        self._runs[query] = run
        self._ended.discard(query)

    def query_ended(self, query: str, run: str) -> None:
        if self._runs.get(query) == run:
            self._ended.add(query)

    def batch_finished(self, done: FinishedBatch) -> list[TopicConflict] | None:
        """Returns the topics of a batch that other queries own; None if a newer batch is known."""
        if not self._is_newer(done):
            return None
        self._newest[done.query] = done
        self._runs.setdefault(done.query, done.run)
        conflicts = []
        for topic in sorted({each.topic for each in done.offsets}):
            owner = self._owners.setdefault(topic, done.query)
            if self._is_inactive(owner):
                self._owners[topic] = done.query
            elif owner != done.query:
                conflicts.append(TopicConflict(topic, done.query, owner))
        self._drop_replaced_queries()
        return conflicts

    def _is_newer(self, done: FinishedBatch) -> bool:
        newest = self._newest.get(done.query)
        if newest is None:
            return True
        if newest.run == done.run:
            return done.batch > newest.batch
        # the last events of a run may come after the first of the next
        return done.run == self._runs.get(done.query)

    def _is_inactive(self, query: str) -> bool:
        """The query has ended, or only its checkpoint is known."""
        return query in self._ended or not self._runs.get(query)

    def _drop_replaced_queries(self) -> None:
        """Drops inactive queries whose topics all belong to other queries now."""
        for query in self._newest.keys() - self._owners.values():
            if self._is_inactive(query):
                del self._newest[query]
                self._runs.pop(query, None)
                self._ended.discard(query)

    def offsets(self) -> dict[TopicPartition, int]:
        return {
            partition: offset
            for query, done in self._newest.items()
            for partition, offset in done.offsets.items()
            if self._owners[partition.topic] == query
        }


class WorkerThread:
    """A thread that runs callables in order. An exception is logged, and the next callable runs."""

    def __init__(self, name: str, about: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._about = about
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[[], object]) -> None:
        self._queue.put(function)

    def wait(self, timeout: float) -> bool:
        """Waits until all submitted callables have run; False after the timeout."""
        done = threading.Event()
        self._queue.put(done.set)
        return done.wait(max(0.0, timeout))

    def stop(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            try:
                function()
            except Exception as error:  # noqa: BLE001 (the next callable runs)
                first = next(iter(str(error).strip().splitlines()), "")
                LOGGER.warning("%s: %s: %s", self._about, type(error).__name__, first)
                LOGGER.debug("%s: in full", self._about, exc_info=True)


#: The engine of ``asyncProgressTrackingEnabled`` reports batches before they are in its commit log.
ASYNC_ENGINE = "Async"
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class QueryFilter:
    """Which queries to follow: by name or by id; without both, all."""

    name: str | None = None
    id: str | None = None

    def matches(self, query: object, name: str | None) -> bool:
        return self.name in {None, name} and self.id in {None, str(query)}

    def __str__(self) -> str:
        return f"named {self.name!r}" if self.id is None else f"of id {self.id}"


class QueryFollower(StreamingQueryListener):
    """Follows the wanted queries of a session and reports how far they are."""

    def __init__(  # noqa: PLR0913 (several ways to name a query)
        self,
        spark: SparkSession,
        query_filter: QueryFilter,
        set_target: Callable[..., None],
        *,
        about: str,
        query: StreamingQuery | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self._spark = spark
        self._query_filter = query_filter
        self._set_target = set_target  # as :meth:`rota.spark.commit.GroupCommitter.set_target`
        self._about = about
        #: The query to follow, and the path of its checkpoint, if they are known.
        self._query, self._checkpoint = query, checkpoint
        self._is_classic = isinstance(spark, Classic)
        self._worker = WorkerThread("rota-spark", about)
        self._changed = threading.Condition()
        self.is_exiting = False  # the program ends, so that Spark Connect does not respond any more
        self._stopped = False
        self._listening = False
        self._running: dict[str, str] = {}
        self._other_names: set[str] = set()  # names of queries that are not followed
        self._found = False
        #: Runs that have ended while active queries are listed; None: not listing.
        self._ended: set[str] | None = None
        #: The newest finished batch of each run that the worker has not taken yet.
        self._newest: dict[str, FinishedBatch] = {}
        # only the worker thread uses these
        self._targets = TargetOffsets()
        self._checkpoints: dict[str, Checkpoint] = {}
        self._async_runs: set[str] = set()
        self._logged_conflicts: set[TopicConflict] = set()

    @property
    def has_running_query(self) -> bool:
        return bool(self._running)

    def start(self) -> None:
        if self._checkpoint is not None:
            self._worker.submit(partial(self._catch_up_before, self._checkpoint))
        self._listening, self._ended = True, set()
        self._spark.streams.addListener(self)
        streams, wanted = self._spark.streams, self._query_filter
        active = [each for each in streams.active if wanted.matches(each.id, each.name)]
        for each in active:
            self._start(str(each.id), str(each.runId))
        with self._changed:
            ended, self._ended = self._ended, None
        for run in ended & {str(each.runId) for each in active}:
            self._worker.submit(partial(self._close_run, run))
        if self._query is not None and not active:
            run = str(self._query.runId)
            self._start(str(self._query.id), run)
            self._worker.submit(partial(self._close_run, run))

    def catch_up(self, until: float) -> bool:
        """Waits until all events of ended queries are processed; False if time runs out."""
        ended: set[str] = set()
        if self._is_classic or not self.is_exiting:
            ended |= self._running.keys()
            streams = self._spark.streams
            self._worker.submit(
                lambda: ended.difference_update(str(each.runId) for each in streams.active)
            )
        if not self._worker.wait(until - time.monotonic()):
            return False
        # a query counts as ended before Spark has called its listeners for the last time
        with self._changed:
            has_all = self._changed.wait_for(
                lambda: not self._running.keys() & ended, max(0.0, until - time.monotonic())
            )
        return self._worker.wait(until - time.monotonic()) and has_all

    def stop(self, until: float) -> bool:
        """Returns False if the listener could not be removed."""
        if not self._stopped and self._other_names and not self._found:
            LOGGER.warning(
                "%s: nothing was committed: no query is %s; these queries ran: %s",
                *(self._about, self._query_filter, ", ".join(sorted(self._other_names))),
            )
        self._stopped = True
        if not self._listening:
            return True
        self._worker.submit(self._remove_listener)
        self._worker.wait(until - time.monotonic())
        if not self._listening:
            self._worker.stop()
        return not self._listening

    def _remove_listener(self) -> None:
        # PySpark's client holds a lock while it waits for the thread that receives events, and
        # that thread needs the lock for the next event; without queries there is none. At exit
        # the session may block, because nothing needs it any more
        if self._is_classic or self.is_exiting or not self._spark.streams.active:
            self._listening = False
            self._spark.streams.removeListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 Spark's names
        self._handle(self._started, event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self._handle(self._progressed, event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._handle(self._terminated, event)

    def _handle(self, handle: Callable[[E], None], event: E) -> None:
        if self._stopped:  # the listener could not be removed
            return
        try:
            handle(event)
        except Exception:  # noqa: BLE001 (Spark would log it, but not name the listener)
            LOGGER.exception("an event of a streaming query cannot be processed")

    def _started(self, event: QueryStartedEvent) -> None:
        if self._query_filter.matches(event.id, event.name):
            self._start(str(event.id), str(event.runId))
        else:
            self._other_names.add(event.name or "a query without a name")

    def _progressed(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if not self._query_filter.matches(progress.id, progress.name):
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

    def _terminated(self, event: QueryTerminatedEvent) -> None:
        run = str(event.runId)
        with self._changed:
            if self._ended is not None:
                self._ended.add(run)
            was_running = run in self._running
        if was_running:
            self._worker.submit(partial(self._close_run, run))

    def _start(self, query: str, run: str) -> None:
        with self._changed:
            if run in self._running:
                return
            self._running[run] = query
            self._found = True
        self._worker.submit(partial(self._catch_up, query, run))

    def _open_checkpoint(self, root: str) -> Checkpoint:
        # a path without file: may belong to another file system, which Spark knows
        if self._is_classic and root.startswith(FILE_SCHEME):
            return LocalCheckpoint(Path("/" + root.removeprefix(FILE_SCHEME).lstrip("/")))
        return RemoteCheckpoint(self._spark, root)

    def _catch_up_before(self, root: str) -> None:
        checkpoint = self._open_checkpoint(root)
        query = read_query_id(checkpoint)
        if query is not None and self._is_owner(root, query, self._query_filter.id):
            self._read_checkpoint(checkpoint, query, "")

    def _is_owner(self, root: str, owner: str, query: str | None) -> bool:
        if query in {None, owner}:
            return True
        text = "%s: the checkpoint %s belongs to query %s, not to %s: it is ignored"
        LOGGER.warning(text, self._about, root, owner, query)
        return False

    def _catch_up(self, query: str, run: str) -> None:
        """Reads the checkpoint of a query that has started."""
        self._targets.query_started(query, run)
        handle = self._spark.streams.get(query) or self._query
        checkpoint = self._find_checkpoint(handle, query, run)
        if checkpoint is not None:
            self._checkpoints[run] = checkpoint
            self._read_checkpoint(checkpoint, query, run)
        elif handle is not None and (last := handle.lastProgress) is not None:
            done = read_progress(last)
            if done is not None:
                self._take_finished_batch(done, anew=True)

    def _find_checkpoint(
        self, handle: StreamingQuery | None, query: str, run: str
    ) -> Checkpoint | None:
        """Finds the checkpoint, and the engine's class, in Classic Spark's object of the query."""
        engine = None if handle is None else getattr(handle, "_jsq", None)
        if engine is not None:
            execution = engine.streamingQuery()
            if execution.getClass().getSimpleName().startswith(ASYNC_ENGINE):
                self._async_runs.add(run)
            return self._open_checkpoint(execution.resolvedCheckpointRoot())
        if self._checkpoint is None:
            return None
        checkpoint = self._open_checkpoint(self._checkpoint)
        owner = read_query_id(checkpoint) or query
        return checkpoint if self._is_owner(self._checkpoint, owner, query) else None

    def _read_checkpoint(
        self, checkpoint: Checkpoint, query: str, run: str, *, anew: bool = True
    ) -> None:
        if (last := read_last_finished(checkpoint)) is not None:
            self._take_finished_batch(FinishedBatch(query, run, *last), anew=anew)

    def _take_newest(self, run: str) -> None:
        with self._changed:
            done = self._newest.pop(run)
        if run not in self._async_runs:
            self._take_finished_batch(done, anew=False)
            return
        found = self._spark.streams.get(done.query)
        checkpoint = self._checkpoints.get(run) or self._find_checkpoint(found, done.query, run)
        if checkpoint is not None:
            self._checkpoints[run] = checkpoint
            self._read_checkpoint(checkpoint, done.query, run, anew=False)

    def _take_finished_batch(self, done: FinishedBatch, *, anew: bool) -> None:
        conflicts = self._targets.batch_finished(done)
        if conflicts is None:
            return
        for each in set(conflicts) - self._logged_conflicts:
            self._logged_conflicts.add(each)
            LOGGER.warning(
                "%s: topic %r of query %s is not committed: query %s commits it already; "
                "give each query a group of its own",
                *(self._about, each.topic, each.query, each.owner),
            )
        self._set_target(self._targets.offsets(), anew=anew)

    def _close_run(self, run: str) -> None:
        try:
            query, checkpoint = self._running.get(run), self._checkpoints.pop(run, None)
            if query is None:
                return
            if run in self._async_runs and checkpoint is not None:
                self._read_checkpoint(checkpoint, query, run, anew=False)
            self._targets.query_ended(query, run)
            self._async_runs.discard(run)
        finally:
            with self._changed:
                self._running.pop(run, None)
                self._changed.notify_all()
