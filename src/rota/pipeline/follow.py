"""``rota run --follow``: reads what is new in a live journal, and publishes new tables.

Spark's streaming reads the journal in micro-batches and keeps its position in a checkpoint. Each
micro-batch gets a folder of tables, which holds the number of the batch. After a kill Spark gives
the last batch again, with the same records: if its tables are published, nothing is left to do, and
if not, nothing is left of them. So a record is in the tables once.

A small micro-batch is computed in this process (:mod:`rota.pipeline.incremental`); tables that do
not change are links to the files of the last one. A large one, as the first is, is computed on
Spark like a whole run. Both write the same tables::

    OUT/.follow/1f0c9a77/            Spark's checkpoint; the published follow.json names it
    .runs/7/follow.json              the checkpoint's name, and the last batch that is in the tables
    .runs/7/state/entries/           the group records that count, by group
    .runs/7/state/pending.parquet    records of open transactions
    .runs/7/state/names.json         topics by id

A folder whose tables were not written by ``--follow``, or whose checkpoint is gone, is started from
the beginning.
"""

from __future__ import annotations

import json
import secrets
import shutil
import threading
import time
import zlib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from rota.engine.model.topic import TopicPartition
from rota.errors import InputError, RotaError
from rota.pipeline import arrow, cluster, decode, incremental, ingest, stages, store
from rota.pipeline.cluster import MIN_LOOKUPS, LiveCluster, LiveJournal, LookupPlan
from rota.pipeline.decode import Unread
from rota.pipeline.evidence import (
    BeforeEnd,
    EvidenceSources,
    FoundEvidence,
    InputFrames,
    RunOptions,
)
from rota.pipeline.incremental import (
    STATE_FOLDER,
    DecodedRecords,
    GroupMemory,
    IncrementalGroups,
    IncrementalLag,
    LagInput,
)
from rota.pipeline.ingest import GROUP_SQL, JournalPosition
from rota.pipeline.redaction import Redaction
from rota.pipeline.session import CONNECT_SCHEME, open_session
from rota.pipeline.stages import (
    LARGE_RUN_BYTES,
    EvidenceGrowth,
    PipelineStage,
    PipelineStages,
    StageListener,
    report_stage,
)
from rota.pipeline.store import (
    WORK_FOLDER,
    OutputFolder,
    TableStore,
    repartition_by_bucket,
    translate_spark_errors,
)
from rota.pipeline.tables import (
    COMMITS,
    ENDS,
    EVIDENCE,
    GENERATIONS,
    JOURNAL,
    LAG,
    REBALANCES,
    SERVERLOG,
    TABLES,
)

# Samples of ends in a run that follows: where the partitions that groups commit end now.
#
# A partition is looked at now and then, not in every round, and no more of them in a round than the
# user has allowed look-ups for; those that were looked at longest ago come first.

#: Seconds between two looks at a partition.
SAMPLE_INTERVAL = 30.0


class EndSampler:
    """Asks a cluster for log ends: each partition at most once per interval, those asked
    longest ago first, and no more than the allowed lookups.
    """

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        #: When, by partition.
        self._asked: dict[tuple[str, int], float] = {}

    def samples(self, known: GroupMemory, lagging: IncrementalLag) -> pa.Table:
        """New samples of what groups have committed, each later than the last of its partition.

        A cluster that does not answer now is asked again later: lag waits for that long.
        """
        now = time.monotonic()
        every = {pair for group in known.groups.values() for pair in group.partitions}
        due = [
            pair
            for pair in every
            if now - self._asked.get(pair, -SAMPLE_INTERVAL) >= SAMPLE_INTERVAL
        ]
        due.sort(key=lambda pair: (self._asked.get(pair, -SAMPLE_INTERVAL), pair))
        due = due[: self._cluster.lookups // MIN_LOOKUPS]
        self._asked |= dict.fromkeys(due, now)
        plan = LookupPlan(times={TopicPartition(*pair): () for pair in due})
        try:
            found = cluster.look_up_ends(self._cluster, plan).samples
        except RotaError:
            found = []
        rows = [
            sample._asdict()
            for sample in found
            if sample.at > lagging.last_sample((sample.topic, sample.partition))
        ]
        return pa.Table.from_batches([arrow.rows_to_batch(ENDS, rows)])


#: So many new records are done in this process.
MAX_SMALL_RECORDS = 500_000

#: So many groups are.
MAX_SMALL_GROUPS = 500

FOLLOW_FILE = "follow.json"

_NEW_RECORDS_DDL = f"{arrow.spark_ddl(JOURNAL)}, file string, problem string, wanted boolean"

_GROUP_COLUMN_SQL = f"coalesce(make_valid_utf8(cast({GROUP_SQL} as string)), '') `group`"

#: Columns of gold/evidence that count the rows of a table.
COUNTED_TABLES = {
    "records": JOURNAL,
    "commits": COMMITS,
    "generations": GENERATIONS,
    "rebalances": REBALANCES,
    "samples": ENDS,
}

TABLES_CHECKSUM = zlib.crc32(" ".join(arrow.spark_ddl(table) for table in TABLES).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowState:
    """What a round says of itself."""

    #: The name of the checkpoint that it belongs to.
    follow: str
    #: The id of the cluster.
    cluster: str | None
    #: What was asked for.
    groups: list[str]
    since: int | None
    #: The last batch of records that is in the tables.
    batch: int = -1
    #: The time of the last record.
    last: int = 0
    rebalances: int = 0
    #: Which columns the tables have: another version of Rota may have others.
    tables: int = TABLES_CHECKSUM

    @classmethod
    def read(cls, run: Path | None) -> FollowState | None:
        """What the folder of a run says; None: it is none of a run that follows, or of one with
        other columns.
        """
        if run is None or not (run / FOLLOW_FILE).exists():
            return None
        told = json.loads((run / FOLLOW_FILE).read_text(encoding="utf-8"))
        return cls(**told) if told.get("tables") == TABLES_CHECKSUM else None

    def write(self, run: Path) -> None:
        """Marks the folder of a round."""
        (run / FOLLOW_FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchResult:
    """What a round did."""

    seconds: float
    records: int
    #: Those that new records are about.
    groups: int
    #: New ones.
    rebalances: int
    #: The group and the cause of each, where they are few: of a large round the tables tell.
    happened: tuple[tuple[str, str], ...] = ()
    #: New records that could not be read.
    unread: int = 0


class MicroBatchListener(StageListener, Protocol):
    """Who is told what happens."""

    def round(self, done: MicroBatchResult) -> None:
        """A round is shown."""


@dataclass(slots=True)
class _Memory:
    """What is known from one round to the next; it follows from the tables."""

    known: GroupMemory
    lagging: IncrementalLag


class MicroBatchRunner:
    """Takes batches of records, and publishes tables."""

    def __init__(
        self,
        spark: SparkSession,
        shelf: OutputFolder,
        told: tuple[EvidenceSources, RunOptions, LiveJournal],
        mark: FollowState,
        listener: MicroBatchListener,
    ) -> None:
        """:param mark: of the round that is shown, or of one before the first"""
        self._spark = spark
        self._output = shelf
        self._evidence, self._options, self._live = told
        self._state = mark
        self._listener = listener
        redact = self._options.redact
        self._redaction = Redaction(self._options.key) if redact else None
        self._sampling = EndSampler(self._live.cluster)
        self._memory: _Memory | None = None

    def process_batch(self, frame: DataFrame, batch: int) -> None:
        """Adds a batch of rows of ``format("rota")`` to the tables; does nothing if the batch
        is already in them.
        """
        if batch <= self._state.batch:
            return
        began = time.monotonic()
        with (
            self._output.begin_run(layered=True) as tables,
            translate_spark_errors(self._output.out),
        ):
            counts = self._read(frame, tables)
            if not counts["every"]:
                return
            mark = replace(
                self._state, batch=batch, last=max(self._state.last, counts["last"] or 0)
            )
            new = self._decode_if_small(tables, counts)
            if new is None:
                done, mark = self._compute_all(tables, mark)
            else:
                done, mark = self._compute_incrementally(tables, mark, new, self._bad(counts))
            mark.write(tables.path)
            tables.publish()
        self._state = mark
        self._output.remove_replaced()
        seconds = time.monotonic() - began
        self._listener.round(replace(done, seconds=seconds, records=counts["records"]))

    def _read(self, frame: DataFrame, tables: TableStore) -> dict[str, Any]:
        """Writes new records down, once, for whoever works with them."""
        rows = ingest.to_journal_columns(frame, self._live, self._redaction)
        wanted = ingest.is_wanted(rows, until=None, groups=self._options.groups)
        good = wanted & rows["problem"].isNull()
        found = Observation()
        rows = rows.withColumn("wanted", wanted).observe(
            found,
            # other groups' records may name topics
            fn.count(fn.when(good, 1) if not self._options.groups else fn.lit(1)).alias("every"),
            fn.count(fn.when(good, 1)).alias("records"),
            *(count.alias(name) for name, count in decode.unread_aggregates("file").items()),
            fn.max(fn.when(good, fn.unix_millis("at"))).alias("last"),
        )
        rows.write.parquet(str(_new_records_path(tables)))
        return dict(found.get)

    def _bad(self, counts: Mapping[str, Any]) -> list[Unread]:
        """What :func:`rota.pipeline.decode.unread_aggregates` has counted."""
        what = decode.DAMAGED_BATCHES if self._redaction is None else decode.DAMAGED_OR_UNREDACTED
        return decode.unread_from_aggregates(what, counts)

    def _decode_if_small(self, tables: TableStore, counts: Mapping[str, Any]) -> _SmallBatch | None:
        """The new records, if they are few and of few groups."""
        if self._state.batch < 0 or counts["every"] > MAX_SMALL_RECORDS:
            return None
        rows = parquet.read_table(_new_records_path(tables), partitioning=None)
        rows = rows.filter(pc.is_null(rows.column("problem")))
        journal = arrow.arrow_schema(JOURNAL)
        if self._memory is None:
            self._memory = self._load(self._shown())
        every = rows.select(journal.names).cast(journal)
        wanted = every.filter(rows.column("wanted"))
        others = every if self._options.groups else None
        read = incremental.decode_records(wanted, self._memory.known.pending, others)
        return (
            None
            if len(read.groups) > MAX_SMALL_GROUPS
            else _SmallBatch(wanted, read, _first_positions(every))
        )

    def _shown(self) -> TableStore:
        found = self._output.open_published()
        assert found is not None, "the first round is never small"
        return found

    def _load(self, tables: TableStore) -> _Memory:
        state = tables.path / STATE_FOLDER
        names = json.loads((state / "names.json").read_text(encoding="utf-8"))
        known = GroupMemory.load(
            tables,
            {bytes.fromhex(topic_id): topic for topic_id, topic in names.items()},
            parquet.read_table(state / "pending.parquet").cast(arrow.arrow_schema(JOURNAL)),
        )
        return _Memory(known, IncrementalLag.load(tables, self._state.last))

    def _compute_incrementally(
        self, tables: TableStore, mark: FollowState, new: _SmallBatch, bad: list[Unread]
    ) -> tuple[MicroBatchResult, FollowState]:
        """A small round."""
        journal, read, edges = new
        memory = self._memory
        assert memory is not None, "a small round has looked at it"
        old = self._shown()
        for table in TABLES:
            tables.bucket_files(table).link_files(old.path / table.name)
        incremental.group_record_files(tables).link_files(old.path / STATE_FOLDER / "entries")
        tables.bucket_files(JOURNAL).append(journal)
        told = IncrementalGroups(tables, memory.known, mark.since).add_records(read)
        samples = self._sampling.samples(memory.known, memory.lagging)
        lags = LagInput(commits=read.commits, changed=told.groups, samples=samples, last=mark.last)
        memory.lagging.add_micro_batch(tables, memory.known, lags, mark.since)
        for table in (JOURNAL, COMMITS, ENDS, LAG):
            tables.bucket_files(table).merge_small_files(bucketed=table in {COMMITS, LAG})
        incremental.group_record_files(tables).merge_small_files(bucketed=True)
        self._save(tables, memory.known.names, memory.known.pending)
        problems = [*bad, *read.unread]
        growth = EvidenceGrowth(
            times=tuple(pc.min_max(arrow.to_milliseconds(journal.column("at"))).as_py().values()),
            counts={
                name: tables.bucket_files(table).count() for name, table in COUNTED_TABLES.items()
            },
            windows=told.windows,
            edges=edges,
            unread=problems,
        )
        tables.write_row(EVIDENCE, stages.extend_evidence_row(old.read_row(EVIDENCE), growth))
        seen = read.groups | set(pc.unique(read.commits.column("group")).to_pylist())
        done = MicroBatchResult(
            seconds=0.0,
            records=journal.num_rows,
            groups=len(seen),
            rebalances=len(told.new_rebalances),
            happened=told.new_rebalances,
            unread=sum(one.count for one in problems),
        )
        return done, replace(mark, rebalances=mark.rebalances + len(told.new_rebalances))

    def _compute_all(
        self, tables: TableStore, mark: FollowState
    ) -> tuple[MicroBatchResult, FollowState]:
        """A large round: a run over all that there is."""
        spark = self._spark
        new = (
            spark.read.schema(_NEW_RECORDS_DDL)
            .parquet(str(_new_records_path(tables)))
            .drop("wanted")
        )
        evidence, given = self._evidence, InputFrames(journal=new)
        if self._state.batch >= 0:
            old = self._shown()
            names = (self._memory or self._load(old)).known.names
            evidence = replace(evidence, server_logs=(), ends=())  # it has been read
            nothing = [fn.lit(None).cast("string").alias(name) for name in ("file", "problem")]
            given = InputFrames(
                journal=old.read(spark, JOURNAL).select("*", *nothing).unionByName(new),
                names=names,
                samples=old.read(spark, ENDS),
                lines=old.read(spark, SERVERLOG),
            )
        found = FoundEvidence(segments=ingest.find_segments(()), live=self._live, given=given)
        stages = PipelineStages(spark, tables, self._options, self._listener, found)
        stages.compute_tables(evidence)
        unread = self._account(tables)
        self._save_whole(tables, stages.names)
        self._memory = None
        summary = stages.summary
        done = MicroBatchResult(
            seconds=0.0,
            records=0,
            groups=len({group for group, _, _ in summary.windows}),
            rebalances=max(summary.rebalances - mark.rebalances, 0),
            unread=unread,
        )
        return done, replace(mark, rebalances=summary.rebalances)

    def _account(self, tables: TableStore) -> int:
        """Adds what earlier rounds have read to the account of a whole one; how many records more
        there are that could not be read.
        """
        row = tables.read_row(EVIDENCE)
        before = 0
        if self._state.batch >= 0:
            old = self._shown().read_row(EVIDENCE)
            row = stages.continue_evidence_row(old, row)
            tables.write_row(EVIDENCE, row)
            before = sum(one.count for one in stages.unread_from_row(old))
        now = sum(one.count for one in stages.unread_from_row(row))
        return max(now - before, 0)

    def _save_whole(self, tables: TableStore, names: Mapping[bytes, str]) -> None:
        journal = tables.read(self._spark, JOURNAL)
        kept = (
            decode.keep_committed_records(journal)
            .where(decode.IS_GROUP_RECORD_SQL)
            .selectExpr(_GROUP_COLUMN_SQL, "*")
        )
        repartition_by_bucket(kept).write.parquet(str(tables.path / STATE_FOLDER / "entries"))
        incremental.group_record_files(tables).rename_spark_files(bucketed=True)
        pending = (
            decode.keep_pending_records(journal)
            .select(*arrow.arrow_schema(JOURNAL).names)
            .toArrow()
        )
        self._save(tables, names, pending.cast(arrow.arrow_schema(JOURNAL)))

    def _save(self, tables: TableStore, names: Mapping[bytes, str], pending: pa.Table) -> None:
        state = tables.path / STATE_FOLDER
        told = {topic_id.hex(): topic for topic_id, topic in sorted(names.items())}
        (state / "names.json").write_text(json.dumps(told), encoding="utf-8")
        parquet.write_table(pending, state / "pending.parquet")


class _SmallBatch(NamedTuple):
    """What is new, where it is little."""

    journal: pa.Table
    read: DecodedRecords
    #: The first record of each partition of the journal.
    edges: dict[int, JournalPosition]


def _first_positions(rows: pa.Table) -> dict[int, JournalPosition]:
    ordered = rows.sort_by([("journal_partition", "ascending"), ("journal_offset", "ascending")])
    firsts = ordered.group_by("journal_partition", use_threads=False).aggregate(
        [("journal_offset", "first"), ("at", "first")]
    )
    columns = (
        firsts.column("journal_partition"),
        firsts.column("journal_offset_first"),
        arrow.to_milliseconds(firsts.column("at_first")),
    )
    each = zip(*(column.to_pylist() for column in columns), strict=True)
    return {partition: JournalPosition(offset, at) for partition, offset, at in each}


def _new_records_path(tables: TableStore) -> Path:
    return tables.path / WORK_FOLDER / "new"


#: Seconds from one look for new records to the next, at least.
TRIGGER_SECONDS = 2.0

#: Seconds from one look at the query to the next.
STATUS_CHECK_SECONDS = 0.2

CHECKPOINT_FOLDER = ".follow"


class FollowStopped(Exception):
    """Following was stopped."""


class FollowListener(MicroBatchListener, Protocol):
    """Who is told what happens."""

    def waiting(self, why: str) -> None:
        """There is nothing to do yet, for this reason."""


def follow_cluster(  # noqa: PLR0913 (a run's, and how it ends)
    evidence: EvidenceSources,
    out: str,
    options: RunOptions,
    listener: FollowListener,
    spark: SparkSession | None = None,
    *,
    stop: threading.Event | None = None,
) -> None:
    """Shows the tables of a live cluster, and new ones whenever its journal has grown.

    :param evidence: a cluster; logs and samples of others' are read once, at the beginning
    :param spark: a session to use; one is started, and ended, where none is given
    :param stop: who sets it ends it; a round that has begun is dropped
    :raises InputError: what was asked for cannot be followed
    """
    asked = check_followable(evidence, options)
    stop = stop or threading.Event()
    with ExitStack() as stack:
        with report_stage(listener, PipelineStage.FIND) as note:
            ingest.check_files_exist(evidence.server_logs, evidence.ends)
            shelf = stack.enter_context(store.lock_output(out))
            live = _wait_for_journal(asked, listener, stop)
            if live is None:
                return
            mark = _load_follow_state(shelf, live, options)
            note.append(str(live) if mark.batch < 0 else f"{live}; goes on where it was")
        with report_stage(listener, PipelineStage.START):
            if spark is None:
                large = mark.batch < 0 and live.estimated_bytes > LARGE_RUN_BYTES
                spark = stack.enter_context(open_session(options.master, large=large))
        rounds = MicroBatchRunner(spark, shelf, (evidence, options, live), mark, listener)
        checkpoint = shelf.out / CHECKPOINT_FOLDER / mark.follow
        _FollowQuery(rounds, shelf.out, stop).run(spark, live, checkpoint)


def check_followable(evidence: EvidenceSources, options: RunOptions) -> LiveCluster:
    """The cluster to follow.

    :raises InputError: what was asked for cannot be followed
    """
    if evidence.cluster is None:
        raise InputError("--follow needs --bootstrap-servers: a folder of files does not go on")
    if evidence.segments:
        raise InputError("--follow reads a live cluster: it does not go with --segments")
    if options.until is not None:
        raise InputError("--follow has no end: it does not go with --until")
    if isinstance(options.since, BeforeEnd):
        raise InputError("--follow goes on: --since takes a time with it, like 2026-11-15T06:00Z")
    if options.master.startswith(CONNECT_SCHEME):
        raise InputError(
            "--follow keeps its tables in this process's folder: it does not go with Spark Connect "
            f"({options.master}); a Spark master does"
        )
    return evidence.cluster


def _wait_for_journal(
    asked: LiveCluster, listener: FollowListener, stop: threading.Event
) -> LiveJournal | None:
    """The cluster, once it has a journal; None: nobody wants to wait any more."""
    live = cluster.find_journal(asked)
    while not live.log_ends:
        listener.waiting(str(live))
        if stop.wait(TRIGGER_SECONDS):
            return None
        live = cluster.find_journal(asked)
    return live


def _load_follow_state(shelf: OutputFolder, live: LiveJournal, options: RunOptions) -> FollowState:
    """Where to go on; old checkpoints are removed.

    :raises InputError: the folder is of another cluster, or of other groups
    """
    new = FollowState(
        follow=secrets.token_hex(8),
        cluster=live.cluster_id,
        groups=sorted(options.groups),
        since=options.since if isinstance(options.since, int) else None,
    )
    found = FollowState.read(shelf.published)
    checkpoints = shelf.out / CHECKPOINT_FOLDER
    if found is not None and not (checkpoints / found.follow).is_dir():
        found = None
    if found is not None:
        _check_same_request(found, new, shelf.out)
        if options.redact:
            found = None  # the key of its hashes was never kept
    mark = new if found is None else found
    for folder in checkpoints.glob("*"):
        if folder.name != mark.follow:
            shutil.rmtree(folder, ignore_errors=True)
    return mark


def _check_same_request(found: FollowState, new: FollowState, out: Path) -> None:
    told = {
        "the cluster": (found.cluster, new.cluster),
        "--group": (" ".join(found.groups), " ".join(new.groups)),
        "--since": (found.since, new.since),
    }
    for what, (before, now) in told.items():
        if before != now:
            raise InputError(
                f"--out {out}: it goes on with what it was begun with: {what} was "
                f"{before or 'not given'}, and is {now or 'not given'} now; give another folder"
            )


class _FollowQuery:
    """Spark's query, from its start to its end."""

    def __init__(self, rounds: MicroBatchRunner, out: Path, stop: threading.Event) -> None:
        self._rounds = rounds
        self._out = out
        self._stop = stop
        self._busy = threading.Lock()
        self._problem: BaseException | None = None

    def run(self, spark: SparkSession, live: LiveJournal, checkpoint: Path) -> None:
        """Until it is stopped, or something is wrong."""
        from rota.spark import register  # noqa: PLC0415 (only who follows needs a client in Spark)

        register(spark)
        told = {
            name: value for name, value in live.source_options().items() if name != "endingOffsets"
        }
        rows = spark.readStream.format("rota").options(**told).load()
        writer = rows.writeStream.foreachBatch(self._take).trigger(
            processingTime=f"{TRIGGER_SECONDS} seconds"
        )
        with store.translate_spark_errors(self._out):
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            try:
                self._wait(query)
            finally:
                self._end(query)

    def _take(self, frame: DataFrame, batch: int) -> None:
        with self._busy:
            if self._stop.is_set():
                raise FollowStopped  # if it returned, Spark would take the batch for done
            try:
                self._rounds.process_batch(frame, batch)
            except BaseException as error:
                # the query dies of it, and tells of it in many lines
                self._problem = error
                raise

    def _wait(self, query: StreamingQuery) -> None:
        while not self._stop.wait(STATUS_CHECK_SECONDS):
            if not query.isActive:
                problem = self._problem or query.exception()
                if problem is not None:
                    raise problem
                return

    def _end(self, query: StreamingQuery) -> None:
        self._stop.set()
        with suppress(PySparkException):
            query.stop()
        with self._busy:  # what it was at is dropped, or done
            pass
