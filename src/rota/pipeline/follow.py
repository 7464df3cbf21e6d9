"""``rota run --follow``: reads new records of a live journal, and publishes new tables.

Spark's streaming reads the journal in micro-batches and keeps its position in a checkpoint. Each
micro-batch gets a folder of tables, which holds the number of the batch. After a kill Spark repeats
the last batch with the same records, and the runner skips it if its tables are published. So a
record is in the tables once.

A small micro-batch is computed in this process (:mod:`rota.pipeline.incremental`); tables that do
not change are links to the files of the last one. A large one, such as the first, is computed on
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

from rota.engine.history.timing import ASSIGNMENT_INTERVAL
from rota.engine.model.topic import TopicPartition
from rota.errors import InputError, RotaError
from rota.pipeline import arrow, cluster, decode, incremental, ingest, stages, store
from rota.pipeline.cluster import MIN_LOOKUPS, LiveCluster, LiveJournal, LookupPlan
from rota.pipeline.decode import Unread
from rota.pipeline.incremental import (
    STATE_FOLDER,
    DecodedRecords,
    GroupMemory,
    IncrementalGroups,
    IncrementalLag,
    LagInput,
)
from rota.pipeline.ingest import GROUP_SQL, JournalPosition
from rota.pipeline.rebalances import GroupOptions
from rota.pipeline.redaction import Redaction
from rota.pipeline.session import CONNECT_SCHEME, open_session
from rota.pipeline.stages import (
    LARGE_RUN_BYTES,
    BeforeEnd,
    EvidenceSources,
    FoundEvidence,
    InputFrames,
    PipelineStage,
    PipelineStages,
    RunOptions,
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
from rota.pipeline.tables import COMMITS, ENDS, EVIDENCE, JOURNAL, LAG, SERVERLOG, TABLES

SAMPLE_INTERVAL = 30.0  # seconds between two ListOffsets requests for the same partition


class EndSampler:
    """Samples committed partitions once per interval, the one sampled longest ago first."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self._sampled_at: dict[tuple[str, int], float] = {}

    def samples(self, memory: GroupMemory, lag: IncrementalLag) -> pa.Table:
        """Returns new samples; without a response, the lag waits for a later micro-batch."""
        now = time.monotonic()
        partitions = {pair for group in memory.groups.values() for pair in group.partitions}
        last = {pair: self._sampled_at.get(pair, -SAMPLE_INTERVAL) for pair in partitions}
        due = sorted((at, pair) for pair, at in last.items() if now - at >= SAMPLE_INTERVAL)
        chosen = [pair for _, pair in due[: self._cluster.lookups // MIN_LOOKUPS]]
        self._sampled_at |= dict.fromkeys(chosen, now)
        plan = LookupPlan(times={TopicPartition(*pair): () for pair in chosen})
        try:
            samples = cluster.look_up_ends(self._cluster, plan).samples
        except RotaError:
            samples = []
        rows = [each._asdict() for each in samples if each.at > lag.last_sample(each[:2])]
        return pa.Table.from_batches([arrow.rows_to_batch(ENDS, rows)])


MAX_SMALL_RECORDS = 500_000  # with more records or groups, Spark computes the micro-batch
MAX_SMALL_GROUPS = 500
FOLLOW_FILE = "follow.json"
_JOURNAL_SCHEMA = arrow.arrow_schema(JOURNAL)
_NEW_RECORDS_DDL = f"{ingest.JOURNAL_WITH_PROBLEM_DDL}, wanted boolean"
_GROUP_COLUMN_SQL = f"coalesce(make_valid_utf8(cast({GROUP_SQL} as string)), '') `group`"

TABLES_CHECKSUM = zlib.crc32(" ".join(arrow.spark_ddl(table) for table in TABLES).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowState:
    """The content of ``follow.json``: which micro-batch the published tables include."""

    follow: str  # name of the checkpoint folder
    cluster: str | None  # cluster id
    groups: list[str]  # ``--group``, ``--since``, ``--assignment-interval`` of the first run
    since: int | None
    assignment_interval: int = ASSIGNMENT_INTERVAL
    batch: int = -1  # number of the last micro-batch in the tables; -1 before the first
    last: int = 0  # time of the last record, in milliseconds since 1970
    rebalances: int = 0
    tables: int = TABLES_CHECKSUM  # of the columns: another version of Rota has other ones

    @classmethod
    def read(cls, run: Path | None) -> FollowState | None:
        """Returns None if ``--follow`` did not write the folder, or wrote other columns."""
        if run is None or not (run / FOLLOW_FILE).exists():
            return None
        fields = json.loads((run / FOLLOW_FILE).read_text(encoding="utf-8"))
        return cls(**fields) if fields.get("tables") == TABLES_CHECKSUM else None

    def write(self, run: Path) -> None:
        (run / FOLLOW_FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchResult:
    """Counts of one micro-batch, for the terminal."""

    seconds: float = 0.0
    records: int = 0
    groups: int  # number of groups with new records
    rebalances: int
    #: Group and cause of each new rebalance; empty for a micro-batch computed on Spark.
    happened: tuple[tuple[str, str], ...] = ()
    unread: int = 0  # new records that could not be decoded


class FollowListener(StageListener, Protocol):
    """Receives progress."""

    def waiting(self, why: str) -> None:
        """Called while the cluster has no journal yet."""

    def round(self, done: MicroBatchResult) -> None:
        """Called when the tables of a micro-batch are published."""


class MicroBatchRunner:
    """Adds micro-batches to the tables and publishes them."""

    def __init__(
        self,
        spark: SparkSession,
        output: OutputFolder,
        request: tuple[EvidenceSources, RunOptions, LiveJournal],
        state: FollowState,
        listener: FollowListener,
    ) -> None:
        self._spark = spark
        self._output = output
        self._evidence, self._options, self._live = request
        self._state = state
        self._listener = listener
        self._redaction = Redaction(self._options.key) if self._options.redact else None
        self._sampling = EndSampler(self._live.cluster)
        #: State kept between micro-batches; the tables contain all of it.
        self._memory: tuple[GroupMemory, IncrementalLag] | None = None

    def process_batch(self, frame: DataFrame, batch: int) -> None:
        """Adds rows of ``format("rota")`` to the tables, unless they include the batch."""
        if batch <= self._state.batch:
            return
        began = time.monotonic()
        with (
            self._output.begin_run(layered=True) as tables,
            translate_spark_errors(self._output.out),
        ):
            counts = self._write_new_records(frame, tables)
            if not counts["every"]:
                return
            last = max(self._state.last, counts["last"] or 0)
            state = replace(self._state, batch=batch, last=last)
            new = self._decode_if_small(tables, counts)
            if new is None:
                done, state = self._compute_all(tables, state)
            else:
                damaged = decode.unread_batches(counts, redacted=self._options.redact)
                done, state = self._compute_incrementally(tables, state, new, damaged)
            state.write(tables.path)
            tables.publish()
        self._state = state
        self._output.remove_replaced()
        seconds = time.monotonic() - began
        self._listener.round(replace(done, seconds=seconds, records=counts["records"]))

    def _write_new_records(self, frame: DataFrame, tables: TableStore) -> dict[str, Any]:
        """Writes the new records to a file, which both ways of computing read; returns counts."""
        rows = ingest.to_journal_columns(frame, self._live, self._redaction)
        is_selected = ingest.is_wanted(rows, until=None, groups=self._options.groups)
        good = is_selected & rows["problem"].isNull()
        counts = Observation()
        rows = rows.withColumn("wanted", is_selected).observe(
            counts,
            # records of other groups may give names of topic ids
            fn.count(fn.when(good, 1) if not self._options.groups else fn.lit(1)).alias("every"),
            fn.count(fn.when(good, 1)).alias("records"),
            *(count.alias(name) for name, count in decode.unread_aggregates("file").items()),
            fn.max(fn.when(good, fn.unix_millis("at"))).alias("last"),
        )
        rows.write.parquet(str(_new_records_path(tables)))
        return dict(counts.get)

    def _decode_if_small(self, tables: TableStore, counts: Mapping[str, Any]) -> _SmallBatch | None:
        if self._state.batch < 0 or counts["every"] > MAX_SMALL_RECORDS:
            return None
        rows = parquet.read_table(_new_records_path(tables), partitioning=None)
        rows = rows.filter(pc.is_null(rows.column("problem")))
        if self._memory is None:
            self._memory = self._load(self._published())
        memory, _ = self._memory
        every = rows.select(_JOURNAL_SCHEMA.names).cast(_JOURNAL_SCHEMA)
        selected = every.filter(rows.column("wanted"))
        others = every if self._options.groups else None
        decoded = incremental.decode_records(selected, memory.pending, others)
        if len(decoded.groups) > MAX_SMALL_GROUPS:
            return None
        return _SmallBatch(selected, decoded, _first_positions(every))

    def _published(self) -> TableStore:
        tables = self._output.open_published()
        assert tables is not None, "the first micro-batch is computed on Spark"
        return tables

    def _load(self, tables: TableStore) -> tuple[GroupMemory, IncrementalLag]:
        state = tables.path / STATE_FOLDER
        names = json.loads((state / "names.json").read_text(encoding="utf-8"))
        lag = IncrementalLag.load(tables, self._state.last)
        memory = GroupMemory.load(
            tables,
            {bytes.fromhex(topic_id): topic for topic_id, topic in names.items()},
            parquet.read_table(state / "pending.parquet").cast(_JOURNAL_SCHEMA),
            lag,
        )
        return memory, lag

    def _compute_incrementally(
        self, tables: TableStore, state: FollowState, new: _SmallBatch, damaged: list[Unread]
    ) -> tuple[MicroBatchResult, FollowState]:
        journal, decoded, first_positions = new
        assert self._memory is not None, "_decode_if_small loaded it"
        memory, lag = self._memory
        old = self._published()
        for table in TABLES:
            tables.bucket_files(table).link_files(old.path / table.name)
        incremental.group_record_files(tables).link_files(old.path / STATE_FOLDER / "entries")
        tables.bucket_files(JOURNAL).append(journal)
        groups = IncrementalGroups(tables, memory, state.since)
        changes = groups.add_records(decoded)
        samples = self._sampling.samples(memory, lag)
        lag_input = LagInput(
            commits=decoded.commits, changed=changes.groups, samples=samples, last=state.last
        )
        lag.add_micro_batch(tables, memory, lag_input, state.since)
        options = GroupOptions(
            until=lag.as_of(state.last),
            since=state.since,
            topic_ids=stages.unique_topic_ids(memory.names),
            assignment_interval=state.assignment_interval,
            has_consumer_protocol=bool(memory.names) or memory.has_consumer_groups,
        )
        new_rebalances = groups.compute_groups(changes.groups, lag, options)
        for table in (JOURNAL, COMMITS, ENDS, LAG):
            tables.bucket_files(table).merge_small_files(bucketed=table in {COMMITS, LAG})
        incremental.group_record_files(tables).merge_small_files(bucketed=True)
        self._save(tables, memory.names, memory.pending)
        unread = [*damaged, *decoded.unread]
        times = pc.min_max(arrow.to_milliseconds(journal.column("at"))).as_py()
        row = {
            "first": times["min"],
            "last": times["max"],
            "windows": stages.window_values(changes.windows),
            "complete": stages.complete_values(first_positions),
            "unread": [asdict(each) for each in unread],
        }
        for name, table in stages.COUNTED_TABLES.items():
            row[name] = tables.bucket_files(table).count()
        tables.write_row(EVIDENCE, stages.extend_evidence_row(old.read_row(EVIDENCE), row))
        named = decoded.groups | set(pc.unique(decoded.commits.column("group")).to_pylist())
        done = MicroBatchResult(
            groups=len(named),
            rebalances=len(new_rebalances),
            happened=new_rebalances,
            unread=sum(each.count for each in unread),
        )
        return done, replace(state, rebalances=state.rebalances + len(new_rebalances))

    def _compute_all(
        self, tables: TableStore, state: FollowState
    ) -> tuple[MicroBatchResult, FollowState]:
        spark = self._spark
        rows = spark.read.schema(_NEW_RECORDS_DDL).parquet(str(_new_records_path(tables)))
        new = rows.drop("wanted")
        evidence, frames = self._evidence, InputFrames(journal=new)
        if self._state.batch >= 0:
            old = self._published()
            memory, _ = self._memory or self._load(old)
            evidence = replace(evidence, server_logs=(), ends=())  # the first micro-batch read them
            frames = InputFrames(
                journal=old.read(spark, JOURNAL).unionByName(new, allowMissingColumns=True),
                names=memory.names,
                samples=old.read(spark, ENDS),
                lines=old.read(spark, SERVERLOG),
            )
        found = FoundEvidence(segments=ingest.find_segments(()), live=self._live, given=frames)
        stages = PipelineStages(spark, tables, self._options, self._listener, found)
        stages.compute_tables(evidence)
        unread = self._add_earlier_evidence(tables)
        self._save_all(tables, stages.names)
        self._memory = None
        summary = stages.summary
        done = MicroBatchResult(
            groups=len({group for group, _, _ in summary.windows}),
            rebalances=max(summary.rebalances - state.rebalances, 0),
            unread=unread,
        )
        return done, replace(state, rebalances=summary.rebalances)

    def _add_earlier_evidence(self, tables: TableStore) -> int:
        """Adds earlier evidence; returns the number of new records that were not decoded."""
        row = tables.read_row(EVIDENCE)
        before = 0
        if self._state.batch >= 0:
            old = self._published().read_row(EVIDENCE)
            row = stages.continue_evidence_row(old, row)
            tables.write_row(EVIDENCE, row)
            before = sum(each["count"] for each in old["unread"])
        return max(int(sum(each["count"] for each in row["unread"])) - before, 0)

    def _save_all(self, tables: TableStore, names: Mapping[bytes, str]) -> None:
        journal = tables.read(self._spark, JOURNAL)
        entries = decode.keep_committed_records(journal).where(decode.IS_GROUP_RECORD_SQL)
        entries = entries.selectExpr(_GROUP_COLUMN_SQL, "*")
        repartition_by_bucket(entries).write.parquet(str(tables.path / STATE_FOLDER / "entries"))
        incremental.group_record_files(tables).rename_spark_files(bucketed=True)
        pending = decode.keep_pending_records(journal).select(*_JOURNAL_SCHEMA.names).toArrow()
        self._save(tables, names, pending.cast(_JOURNAL_SCHEMA))

    def _save(self, tables: TableStore, names: Mapping[bytes, str], pending: pa.Table) -> None:
        state = tables.path / STATE_FOLDER
        by_id = {topic_id.hex(): topic for topic_id, topic in sorted(names.items())}
        (state / "names.json").write_text(json.dumps(by_id), encoding="utf-8")
        parquet.write_table(pending, state / "pending.parquet")


class _SmallBatch(NamedTuple):
    journal: pa.Table
    decoded: DecodedRecords
    first_positions: dict[int, JournalPosition]  # of the first new record, by journal partition


def _first_positions(rows: pa.Table) -> dict[int, JournalPosition]:
    ordered = rows.sort_by([("journal_partition", "ascending"), ("journal_offset", "ascending")])
    firsts = ordered.group_by("journal_partition", use_threads=False).aggregate(
        [("journal_offset", "first"), ("at", "first")]
    )
    return {
        row["journal_partition"]: JournalPosition(row["journal_offset_first"], row["at_first"])
        for row in arrow.table_to_rows(firsts)
    }


def _new_records_path(tables: TableStore) -> Path:
    return tables.path / WORK_FOLDER / "new"


TRIGGER_SECONDS = 2.0
STATUS_CHECK_SECONDS = 0.2
CHECKPOINT_FOLDER = ".follow"


class FollowStopped(Exception):
    """Raised in a micro-batch that starts after the user stopped the run."""


def follow_cluster(  # noqa: PLR0913 (the arguments of a run, and a stop event)
    evidence: EvidenceSources,
    out: str,
    options: RunOptions,
    listener: FollowListener,
    spark: SparkSession | None = None,
    *,
    stop: threading.Event | None = None,
) -> None:
    """Publishes a cluster's tables again and again until ``stop`` is set."""
    requested = check_followable(evidence, options)
    stop = stop or threading.Event()
    with ExitStack() as stack:
        with report_stage(listener, PipelineStage.FIND) as note:
            ingest.check_text_files(evidence.server_logs, evidence.ends)
            output = stack.enter_context(store.lock_output(out))
            live = _wait_for_journal(requested, listener, stop)
            if live is None:
                return
            state = _load_follow_state(output, live, options)
            note.append(str(live) if state.batch < 0 else f"{live}; continues the last run")
        with report_stage(listener, PipelineStage.START):
            if spark is None:
                large = state.batch < 0 and live.estimated_bytes > LARGE_RUN_BYTES
                spark = stack.enter_context(open_session(options.master, large=large))
        runner = MicroBatchRunner(spark, output, (evidence, options, live), state, listener)
        checkpoint = output.out / CHECKPOINT_FOLDER / state.follow
        _FollowQuery(runner, output.out, stop).run(spark, live, checkpoint)


def check_followable(evidence: EvidenceSources, options: RunOptions) -> LiveCluster:
    """Returns the cluster to follow; raises InputError if the options do not allow that."""
    if evidence.cluster is None:
        raise InputError("--follow needs --bootstrap-servers: it reads a live cluster")
    refused = {
        "reads a live cluster: leave out --segments": evidence.segments,
        "cannot be combined with --strategy": options.strategies,
        "runs until you stop it: leave out --until": options.until is not None,
        "needs a point in time after --since, for example 2026-11-15T06:00Z": isinstance(
            options.since, BeforeEnd
        ),
        f"does not work with Spark Connect ({options.master}): it writes its tables to a local "
        "folder; give a Spark master": options.master.startswith(CONNECT_SCHEME),
    }
    for why, applies in refused.items():
        if applies:
            raise InputError(f"--follow {why}")
    return evidence.cluster


def _wait_for_journal(
    requested: LiveCluster, listener: FollowListener, stop: threading.Event
) -> LiveJournal | None:
    """Waits until the cluster has a journal; returns None if the user stops the run."""
    while not (live := cluster.find_journal(requested)).log_ends:
        listener.waiting(str(live))
        if stop.wait(TRIGGER_SECONDS):
            return None
    return live


def _load_follow_state(output: OutputFolder, live: LiveJournal, options: RunOptions) -> FollowState:
    """Returns the published state, or a new one; raises InputError for other options."""
    new = FollowState(
        follow=secrets.token_hex(8),
        cluster=live.cluster_id,
        groups=sorted(options.groups),
        since=options.since if isinstance(options.since, int) else None,
        assignment_interval=options.assignment_interval,
    )
    state, old = new, FollowState.read(output.published)
    checkpoints = output.out / CHECKPOINT_FOLDER
    if old is not None and (checkpoints / old.follow).is_dir():
        _check_same_options(old, new, output.out)
        if not options.redact:  # the key of the old hashes was never stored
            state = old
    for folder in checkpoints.glob("*"):
        if folder.name != state.follow:
            shutil.rmtree(folder, ignore_errors=True)
    return state


def _check_same_options(old: FollowState, new: FollowState, out: Path) -> None:
    options = {
        "the cluster": (old.cluster, new.cluster),
        "--group": (" ".join(old.groups), " ".join(new.groups)),
        "--since": (old.since, new.since),
        "--assignment-interval": (old.assignment_interval, new.assignment_interval),
    }
    for option, (before, now) in options.items():
        if before != now:
            raise InputError(
                f"--out {out} holds tables of a run in which {option} was {before or 'not given'}; "
                f"now it is {now or 'not given'}: give another folder"
            )


class _FollowQuery:
    def __init__(self, runner: MicroBatchRunner, out: Path, stop: threading.Event) -> None:
        self._runner = runner
        self._out = out
        self._stop = stop
        self._busy = threading.Lock()
        self._problem: BaseException | None = None

    def run(self, spark: SparkSession, live: LiveJournal, checkpoint: Path) -> None:
        from rota.spark import register  # noqa: PLC0415 (only --follow needs the Spark source)

        register(spark)
        options = live.source_options()
        options.pop("endingOffsets", None)
        rows = spark.readStream.format("rota").options(**options).load()
        writer = rows.writeStream.foreachBatch(self._process_batch).trigger(
            processingTime=f"{TRIGGER_SECONDS} seconds"
        )
        with store.translate_spark_errors(self._out):
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            try:
                self._wait(query)
            finally:
                self._end(query)

    def _process_batch(self, frame: DataFrame, batch: int) -> None:
        with self._busy:
            if self._stop.is_set():
                raise FollowStopped  # a return would mark the batch as done
            try:
                self._runner.process_batch(frame, batch)
            except BaseException as error:
                # Spark's own exception shows this one only inside a long Java text
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
        with self._busy:  # wait for the running micro-batch
            pass
