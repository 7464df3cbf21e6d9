"""A run of the pipeline, stage by stage: evidence in, tables out.

:func:`run_pipeline` is the entry point; :meth:`PipelineStages.compute_tables` lists the stages in
their order. The last stage writes gold/evidence, which describes the run.
"""

from __future__ import annotations

import enum
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial, reduce
from operator import itemgetter
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rota.engine.history.facts import GroupType
from rota.engine.history.lag import MAX_SAMPLE_AGE
from rota.engine.history.timing import ASSIGNMENT_INTERVAL
from rota.engine.model.text import suggest_or_list_names
from rota.errors import InputError
from rota.pipeline import cluster, decode, ingest, lag, poll, rebalances, store
from rota.pipeline.arrow import TableRow
from rota.pipeline.cluster import (
    JOURNAL_ACLS,
    JOURNAL_TOPIC,
    LiveCluster,
    LiveJournal,
    LookupResult,
)
from rota.pipeline.decode import COUNTED_ONCE, MAX_EXAMPLES, Unread, merge_unread
from rota.pipeline.ingest import JournalPosition, Segments
from rota.pipeline.poll import PollResult, PollTables
from rota.pipeline.redaction import Redaction
from rota.pipeline.session import LOCAL_MASTER, open_session
from rota.pipeline.store import TableStore
from rota.pipeline.tables import (
    COMMITS,
    ENDS,
    EVIDENCE,
    GENERATIONS,
    HEALTH,
    JOURNAL,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SAMPLES,
    SERVERLOG,
    STATUS,
    Table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSources:
    """The input: segments, a cluster, polled samples, broker logs, samples of log ends."""

    segments: tuple[str, ...] = ()
    cluster: LiveCluster | None = None
    polled: PollResult | None = None
    server_logs: tuple[str, ...] = ()
    zone: int = 0  # time zone of the logs, in minutes ahead of UTC
    ends: tuple[str, ...] = ()
    demo: bool = False


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """A time before the last record, or before now when a cluster is read."""

    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    master: str = LOCAL_MASTER
    since: int | BeforeEnd | None = None  # milliseconds since 1970, or a time before the end
    until: int | BeforeEnd | None = None
    groups: tuple[str, ...] = ()
    redact: bool = False
    strategies: tuple[str, ...] = ()  # custom strategies to replay, as ``package.module:Class``
    #: The broker's ``consumer.assignment.interval.ms`` (KIP-1263), in milliseconds.
    assignment_interval: int = ASSIGNMENT_INTERVAL
    #: Key of the hashes of ``redact``; polling for this run uses the same key.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFrames:
    """DataFrames that the caller has read, instead of sources."""

    journal: DataFrame  # as of :func:`rota.pipeline.ingest.read_segment_journal`
    names: Mapping[bytes, str] = field(default_factory=dict)  # topic names by topic id
    samples: DataFrame | None = None  # rows of bronze/ends
    lines: DataFrame | None = None  # rows of bronze/serverlog


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvidence:
    """The input that a run found."""

    segments: Segments
    live: LiveJournal | None
    polled: PollResult | None = None
    given: InputFrames | None = None

    @property
    def last(self) -> int:
        """Time of the last record; on a live cluster, now."""
        sampled = self.polled.last or 0 if self.polled is not None else 0
        return max(self.segments.last_timestamp, 0 if self.live is None else self.live.at, sampled)

    @property
    def size(self) -> int:
        """Estimated number of bytes."""
        return self.segments.size + (self.live.estimated_bytes if self.live is not None else 0)

    def __str__(self) -> str:
        parts = [] if self.live is None else [str(self.live)]
        if self.polled is not None:
            parts.append(f"{len(self.polled.groups):,} groups sampled")
        if self.segments.files or not parts:
            size, partitions = self.segments.size / 1e6, self.segments.partitions
            parts.append(f"{size:,.1f} MB in {partitions} partitions")
        return "; ".join(parts)


def time_window(options: RunOptions, last: int) -> tuple[int | None, int | None]:
    """Returns ``--since`` and ``--until`` in milliseconds; raises InputError if no record fits."""
    since, until = (
        last - when.milliseconds if isinstance(when, BeforeEnd) else when
        for when in (options.since, options.until)
    )
    if since is not None and until is not None and since > until:
        raise InputError("--since is later than --until")
    if since is not None and since > last:
        raise InputError("--since is later than the last record")
    return since, until


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """Counts and times of what a run read."""

    out: str
    records: int = 0
    commits: int = 0
    generations: int = 0
    rebalances: int = 0
    first: int | None = None  # times of the first and the last record
    last: int | None = None
    since: int | None = None  # the options ``--since`` and ``--until``
    until: int | None = None
    lines: int = 0
    logs: int = 0  # number of broker log files
    samples: int = 0
    polled: PollResult | None = None
    live: LiveJournal | None = None
    lookups: LookupResult | None = None
    #: By partition of the journal, the position from which on its records are complete.
    complete: Mapping[int, JournalPosition] = field(default_factory=dict)
    #: Group, time from which on its records are complete, and whether its first record is there.
    windows: list[tuple[str, int, bool]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)


class PipelineStage(enum.StrEnum):
    """The stages of a run, in their order."""

    FIND = "finding the journal"
    START = "starting Spark"
    EVIDENCE = "reading logs"
    JOURNAL = "reading the journal"
    COMMITS = "decoding commits"
    ENDS = "reading log ends"
    GROUPS = "decoding groups"
    LAG = "computing lag"
    REBALANCES = "explaining rebalances"
    PUBLISH = "publishing the tables"


class StageListener(Protocol):
    """Receives progress."""

    def began(self, stage: PipelineStage) -> None:
        """Called when a stage begins."""

    def ended(self, stage: PipelineStage, note: str) -> None:
        """Called when a stage ends, with its result in words."""


@contextmanager
def report_stage(progress: StageListener, stage: PipelineStage) -> Iterator[list[str]]:
    """Reports a stage to the listener; the block appends its result to the list."""
    progress.began(stage)
    note: list[str] = []
    yield note
    progress.ended(stage, "; ".join(note))


#: Columns of gold/evidence that count the rows of a table.
COUNTED_TABLES = {
    "records": JOURNAL,
    "commits": COMMITS,
    "generations": GENERATIONS,
    "rebalances": REBALANCES,
    "samples": ENDS,
}

LARGE_RUN_BYTES = 256 << 20  # size of the journal from which on Java's optimizing compiler pays off


def run_pipeline(
    evidence: EvidenceSources,
    out: str,
    options: RunOptions,
    progress: StageListener,
    spark: SparkSession | None = None,
) -> RunSummary:
    """Reads the evidence and writes every table; opens a session unless one is given."""
    with report_stage(progress, PipelineStage.FIND) as note:
        ingest.check_text_files(evidence.server_logs, evidence.ends)
        found = FoundEvidence(
            segments=ingest.find_segments(evidence.segments),
            live=None if evidence.cluster is None else cluster.find_journal(evidence.cluster),
            polled=evidence.polled,
        )
        time_window(options, found.last)
        if evidence.cluster is not None and not evidence.segments and not evidence.demo:
            cluster.check_groups_exist(evidence.cluster, options.groups)
        note.append(str(found))
    with ExitStack() as stack:
        tables = stack.enter_context(store.begin_run(out))
        with report_stage(progress, PipelineStage.START):
            if spark is None:
                large = found.size > LARGE_RUN_BYTES
                spark = stack.enter_context(open_session(options.master, large=large))
        stages = PipelineStages(spark, tables, options, progress, found)
        with store.translate_spark_errors(tables.out):
            stages.compute_tables(evidence)
            with report_stage(progress, PipelineStage.PUBLISH):
                tables.publish()
        return stages.summary


def unique_topic_ids(names: Mapping[bytes, str]) -> dict[str, bytes]:
    """Returns the id of each topic; the largest if the topic was created again."""
    return {topic: topic_id for topic_id, topic in sorted(names.items())}


class PipelineStages:
    """Runs the stages over the input that was found."""

    def __init__(
        self,
        spark: SparkSession,
        tables: TableStore,
        options: RunOptions,
        progress: StageListener,
        found: FoundEvidence,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._options = options
        self._progress = progress
        self._segments, self._live, self._given = found.segments, found.live, found.given
        self._begin, self._until = time_window(options, found.last)
        self.summary = RunSummary(
            out=str(tables.out),
            since=self._begin,
            until=self._until,
            live=found.live,
            polled=found.polled,
            complete=found.segments.complete,
            unread=list(_unread_damaged_bytes(found.segments)),
        )
        self._redaction = Redaction(options.key) if options.redact else None
        self._sampled: PollTables | None = None
        if found.polled is not None:
            self._sampled = PollTables(spark, found.polled, self._until)
            for unread in found.polled.not_sampled():
                self._unread(*unread)
        #: Topic names by topic id.
        self.names = dict(found.given.names) if found.given is not None else {}
        #: All records of a cluster's journal, if bronze/journal has only some of them.
        self._whole: DataFrame | None = None

    def compute_tables(self, evidence: EvidenceSources) -> None:
        """Runs all stages without publishing the tables."""
        self._evidence(evidence)
        self._journal()
        committed = decode.keep_committed_records(self._tables.read(self._spark, JOURNAL))
        self._commits(committed)
        self._ends(evidence)
        self._groups(committed)
        found = self.summary.commits or self.summary.windows or self.summary.generations
        if self._options.groups and not found and self._given is None:
            names = " ".join(self._options.groups)
            near = suggest_or_list_names(self._options.groups, self._read_group_names())
            raise InputError(f"--group {names}: the input has no such group{near}")
        self._lag()
        self._rebalances()
        self._tables.write_row(EVIDENCE, evidence_row(self.summary, evidence))

    def _evidence(self, evidence: EvidenceSources) -> None:
        spark, summary = self._spark, self.summary
        with report_stage(self._progress, PipelineStage.EVIDENCE) as note:
            if self._given is not None and self._given.lines is not None:
                summary.lines = self._tables.write(SERVERLOG, self._given.lines)["rows"]
            elif evidence.server_logs:
                lines = ingest.read_server_logs(
                    spark, evidence.server_logs, evidence.zone, self._redaction
                )
                lines = self._within(ingest.drop_duplicate_lines(lines))
                summary.lines = self._write_parsed(SERVERLOG, lines, decode.UNREAD_LOG_LINES)
                summary.logs = len(evidence.server_logs)
            else:
                self._tables.write_empty(SERVERLOG)
            note.append(f"{summary.lines:,} lines about groups")
            if self._sampled is None:
                self._tables.write_empty(SAMPLES)
            else:
                self._tables.write(SAMPLES, self._sampled.rows(SAMPLES))

    def _ends(self, evidence: EvidenceSources) -> None:
        tables, spark, summary = self._tables, self._spark, self.summary
        with report_stage(self._progress, PipelineStage.ENDS) as note:
            sources = []
            if evidence.ends:
                sources.append(ingest.read_end_samples(spark, evidence.ends).distinct())
            if self._sampled is not None:
                sources.append(self._sampled.rows(ENDS))
            if evidence.cluster is not None and evidence.cluster.lookups:
                summary.lookups = self._look_up(evidence.cluster)
                note.append(f"{summary.lookups.lookups:,} lookups")
                sources.append(cluster.end_samples_frame(spark, summary.lookups))
            earlier = None if self._given is None else self._given.samples
            if earlier is not None:
                sources.append(earlier)
            if not sources:
                tables.write_empty(ENDS)
                return
            samples = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), sources)
            if earlier is not None and len(sources) > 1:
                samples = samples.distinct()
            if evidence.ends:
                summary.samples = self._write_parsed(ENDS, samples, decode.UNREAD_END_SAMPLES)
            else:
                summary.samples = tables.write(ENDS, samples)["rows"]
            note.append(f"{summary.samples:,} samples")

    def _look_up(self, live: LiveCluster) -> LookupResult:
        commits = self._tables.read(self._spark, COMMITS)
        plan = cluster.plan_lookups(commits, live.lookups, self._begin)
        lookups = cluster.look_up_ends(live, plan)
        for why, names in sorted(lookups.skipped.items()):
            self._unread(f"ends of topics or partitions {why}", len(names), sorted(names))
        return lookups

    def _write_parsed(self, table: Table, rows: DataFrame, what: str) -> int:
        """Writes rows that were read from text files, and counts the lines that are not valid."""
        counts = self._tables.write(table, rows, times=fn.sum("times"), first=fn.min("problem"))
        if counts["times"]:
            self._unread(what, counts["times"], [counts["first"]])
        return int(counts["rows"])

    def _within(self, lines: DataFrame) -> DataFrame:
        """Applies ``--group`` and ``--until``; unknown lines have no group and are kept."""
        if self._options.groups:
            wanted = ingest.matches_globs(lines["group"], self._options.groups)
            lines = lines.where(fn.coalesce(wanted, fn.lit(True)))
        if self._until is not None:
            late = fn.unix_millis("at") > self._until
            lines = lines.where(~fn.coalesce(late, fn.lit(False)))
        return lines

    def _journal(self) -> None:
        with report_stage(self._progress, PipelineStage.JOURNAL) as note:
            every = self._read_whole_journal()
            wanted = ingest.is_wanted(every, until=self._until, groups=self._options.groups)
            counts = self._tables.write(
                JOURNAL,
                every.where(wanted),
                first=fn.min(fn.unix_millis("at")),
                last=fn.max(fn.unix_millis("at")),
                **decode.unread_aggregates("file"),
            )
            summary = self.summary
            summary.records = counts["rows"]
            times: list[int | None] = [counts["first"], counts["last"]]
            if summary.polled is not None:
                times += [summary.polled.first, summary.polled.last]
            known = [at for at in times if at is not None]
            summary.first, summary.last = min(known, default=None), max(known, default=None)
            summary.unread += decode.unread_batches(counts, redacted=self._redaction is not None)
            self._complete()
            note.append(f"{summary.records:,} records")

    def _read_whole_journal(self) -> DataFrame:
        if self._given is not None:
            self._whole = self._given.journal
            return self._given.journal
        if self._live is None:
            return ingest.read_segment_journal(self._spark, self._segments, self._redaction)
        every = ingest.read_live_journal(self._spark, self._live, self._redaction)
        if self._segments.pieces:
            own = ingest.read_segment_journal(self._spark, self._segments, self._redaction)
            every = ingest.drop_duplicate_records(every.unionByName(own))
        if self._options.groups or self._until is not None or self._redaction is not None:
            # bronze/journal will have only some records; read the cluster only once
            every = self._whole = self._tables.materialize(self._spark, "journal", every)
        return every

    def _complete(self) -> None:
        """Finds where a cluster's records become complete; segments showed it already."""
        if self._live is None:
            return
        whole = self._whole
        rows = self._tables.read(self._spark, JOURNAL) if whole is None else whole
        # records that the caller has read reach as far as the caller says
        ends = self._live.log_ends if self._given is None else {}
        self.summary.complete = ingest.find_complete_positions(rows, ends)

    def _read_group_names(self) -> list[str]:
        every = self._whole
        if every is None:
            every = ingest.read_segment_journal(self._spark, self._segments)
        names = every.where("not control and key is not null").select(
            fn.expr(ingest.GROUP_SQL).cast("string").alias("name")
        )
        return [row.name for row in names.where("name != ''").distinct().collect()]

    def _commits(self, committed: DataFrame) -> None:
        with report_stage(self._progress, PipelineStage.COMMITS) as note:
            place = "concat('partition ', journal_partition, ' offset ', journal_offset, ':')"
            found = decode.decode_commits(committed)
            if self._sampled is not None:
                sampled = self._sampled.commits(self._journal_if_read(committed))
                found = found.unionByName(sampled, allowMissingColumns=True)
            counts = self._tables.write(COMMITS, found, **decode.unread_aggregates(place))
            self.summary.commits = counts["rows"]
            self.summary.unread += decode.unread_from_aggregates(decode.UNREAD_OFFSETS, counts)
            note.append(f"{self.summary.commits:,} commits")

    def _groups(self, committed: DataFrame) -> None:
        tables, spark = self._tables, self._spark
        with report_stage(self._progress, PipelineStage.GROUPS) as note:
            for topic_id, topic in decode.collect_topic_names(
                self._commits_with_topic_ids()
            ).items():
                self.names[topic_id] = max(topic, self.names.get(topic_id, topic))
            read = decode.decode_timelines(committed, self.names)
            if self._sampled is not None:
                samples = tables.read(spark, SAMPLES)
                read = read.unionByName(
                    poll.sampled_timelines(samples, self._journal_if_read(committed))
                )
            found = tables.materialize(spark, "timelines", read)
            made = found.where("generation is not null").select("generation.*")
            owners = self._owners = found.where("owner is not null").select("owner.*")
            self._overviews = found.where("overview is not null").select("overview.*")
            self.summary.generations, _ = tables.write_all(
                (GENERATIONS, made), (OWNERSHIP, self._since(owners, "until"))
            )
            self._read_other_timeline_rows(found)
            groups = len(self.summary.windows)
            if self.summary.polled is not None:
                groups += len(self.summary.polled.groups)
            note.append(f"{self.summary.generations:,} generations; {groups:,} groups")

    def _journal_if_read(self, committed: DataFrame) -> DataFrame | None:
        """Returns the journal if there is one; its groups are not taken from samples."""
        return committed if self._segments.pieces or self._live is not None else None

    def _commits_with_topic_ids(self) -> DataFrame:
        """Returns commits of all groups, which have topic ids and topic names."""
        if not self._options.groups or self._sampled is not None:
            return self._tables.read(self._spark, COMMITS)
        every = self._whole
        if every is None:
            every = ingest.read_segment_journal(self._spark, self._segments)
        return decode.decode_commits(every.where("not control")).where("problem is null")

    def _read_other_timeline_rows(self, found: DataFrame) -> None:
        """Reads the rows about undecoded records, other record types and complete times."""
        others = ("generation", "owner", "overview")
        rest = found.where(" and ".join(f"{name} is null" for name in others)).drop(*others)
        bad = rest.where("problem is not null")
        if number := bad.count():
            order = ("journal_partition", "journal_offset")
            first = bad.select(*order, "problem").sort(*order).limit(MAX_EXAMPLES).collect()
            examples = [decode.format_example(*row) for row in first]
            self._unread(decode.UNREAD_GROUPS, number, examples)
        good = rest.where("problem is null")
        rows = good.withColumn("complete_from", fn.unix_millis("complete_from")).collect()
        foreign: Counter[int] = Counter()
        for row in rows:
            if row.foreign is not None:
                foreign[row.foreign] += row.records
        self.summary.unread += decode.unread_foreign(foreign)
        windows = [row for row in rows if row.whole is not None]
        self.summary.windows = sorted((row.group, row.complete_from, row.whole) for row in windows)

    def _lag(self) -> None:
        tables, spark = self._tables, self._spark
        with report_stage(self._progress, PipelineStage.LAG) as note:
            commits = tables.read(spark, COMMITS)
            if not self.summary.samples:
                commits = commits.dropDuplicates(["group"])  # only the names of the groups
            found = lag.compute_lag(
                commits,
                tables.read(spark, GENERATIONS),
                tables.read(spark, OWNERSHIP),
                tables.read(spark, ENDS),
                as_of=self._end,
            )
            found = tables.materialize(spark, "lag", found)
            health = HEALTH, found.where("health is not null").select("health.*")
            if not self.summary.samples:
                tables.write_empty(LAG, STATUS)
                tables.write_all(health)
                note.append("none: there are no samples of log ends")
                return
            lags = self._since(found.where("lag is not null").select("lag.*"), "at")
            verdicts = found.where("status is not null").select("status.*")
            rows, *_ = tables.write_all((LAG, lags), (STATUS, verdicts), health)
            note.append(f"{rows:,} commits")

    @cached_property
    def _end(self) -> int:
        """The time of the verdicts: near the last sample, as a record may be from the future."""
        latest = self.summary.last or 0
        if self.summary.samples:
            ends = self._tables.read(self._spark, ENDS).agg(fn.max(fn.unix_millis("at")))
            sampled = int(ends.collect()[0][0])
            latest = min(max(latest, sampled), sampled + MAX_SAMPLE_AGE)
        return latest if self._until is None else min(latest, self._until)

    def _rebalances(self) -> None:
        tables, spark = self._tables, self._spark
        with report_stage(self._progress, PipelineStage.REBALANCES) as note:
            generations = tables.read(spark, GENERATIONS)
            consumer = generations.where(fn.col("kind") == GroupType.CONSUMER)
            options = rebalances.GroupOptions(
                until=self._end,
                since=self._begin,
                topic_ids=unique_topic_ids(self.names),
                strategies=self._options.strategies,
                assignment_interval=self._options.assignment_interval,
                # commits have topic ids since Kafka 4.1, which has the protocol
                has_consumer_protocol=bool(self.names) or not consumer.isEmpty(),
            )
            found = rebalances.compute_groups(
                self._overviews,
                generations,
                tables.read(spark, SERVERLOG),
                tables.read(spark, OWNERSHIP) if self._begin is None else self._owners,
                tables.read(spark, HEALTH),
                tables.read(spark, ENDS) if self.summary.samples else None,
                tables.read(spark, COMMITS),
                options,
            )
            found = tables.materialize(spark, "rebalances", found)
            made = (
                (table, found.where(f"{name} is not null").select(f"{name}.*"))
                for name, table in rebalances.GROUP_TABLES.items()
            )
            _, self.summary.rebalances, _, count, *_ = tables.write_all(*made)
            note.append(f"{self.summary.rebalances:,} rebalances; {count:,} under a policy")

    def _since(self, rows: DataFrame, column: str) -> DataFrame:
        if self._begin is None:
            return rows
        over = fn.unix_millis(f"`{column}`") < self._begin
        return rows.where(~fn.coalesce(over, fn.lit(False)))

    def _unread(self, what: str, count: int, examples: Sequence[str]) -> None:
        shown = tuple(examples[:MAX_EXAMPLES])
        self.summary.unread.append(Unread(what=what, count=count, examples=shown))


def _unread_damaged_bytes(found: Segments) -> Iterator[Unread]:
    kinds = defaultdict(list)
    for damaged in found.damaged:
        kinds[damaged.problem.kind].append(f"{damaged.path} {damaged.problem}")
    for kind, places in sorted(kinds.items()):
        what = f"byte ranges that are not a valid batch ({kind})"
        yield Unread(what=what, count=len(places), examples=tuple(places[:MAX_EXAMPLES]))


def evidence_row(found: RunSummary, evidence: EvidenceSources) -> dict[str, Any]:
    """Returns the row of gold/evidence; times are in milliseconds."""
    same = ("first", "last", "since", "until", *COUNTED_TABLES, "logs", "lines")
    return {name: getattr(found, name) for name in same} | {
        "demo": evidence.demo,
        "cluster": None if found.live is None else _cluster_value(found.live),
        "lookups": _lookups_value(found.live, found.lookups),
        "polled": None if found.polled is None else _polled_value(found.polled),
        "windows": window_values(found.windows),
        "complete": complete_values(found.complete),
        "unread": [asdict(one) for one in found.unread],
    }


def _cluster_value(live: LiveJournal) -> dict[str, Any]:
    return {
        "bootstrap_servers": live.cluster.servers,
        "topic": JOURNAL_TOPIC,
        "partitions": len(live.log_ends),
        "max_records": live.records,
        "bytes": live.size,
        "acls": list(JOURNAL_ACLS if live.cluster.lookups else JOURNAL_ACLS[:1]),
    }


def _lookups_value(live: LiveJournal | None, looked: LookupResult | None) -> dict[str, Any] | None:
    if live is None or looked is None:
        return None
    return {
        "allowed": live.cluster.lookups,
        "made": looked.lookups,
        "partitions": looked.partitions,
        "skipped_partitions": [str(tp) for tp in looked.left_out],
        "before_log_start": looked.deleted,
        "failed": {why: sorted(names) for why, names in looked.skipped.items()},
    }


def _polled_value(polled: PollResult) -> dict[str, Any]:
    same = ("first", "last", "every", "rounds")
    return {name: getattr(polled, name) for name in same} | {
        "groups": sorted(polled.groups),
        "gaps": [asdict(gap) for gap in polled.gaps],
    }


def window_values(windows: Iterable[tuple[str, int, bool]]) -> list[TableRow]:
    return [{"group": group, "at": at, "whole": whole} for group, at, whole in windows]


def complete_values(complete: Mapping[int, JournalPosition]) -> list[dict[str, Any]]:
    return [
        {"journal_partition": partition, "offset": edge.offset, "at": edge.at}
        for partition, edge in sorted(complete.items())
    ]


def unread_from_row(row: TableRow) -> list[Unread]:
    return [Unread(**one | {"examples": tuple(one["examples"])}) for one in row["unread"]]


def continue_evidence_row(before: TableRow, now: TableRow) -> dict[str, Any]:
    """Returns gold/evidence after all tables were computed on Spark from new input."""
    once = [one for one in unread_from_row(before) if one.what in COUNTED_ONCE]
    return {
        **now,
        "logs": before["logs"],
        "lookups": _sum_lookups(before["lookups"], now["lookups"]),
        "complete": _merge_complete(before["complete"], now["complete"]),
        "unread": [asdict(one) for one in merge_unread(once, unread_from_row(now))],
    }


def _sum_lookups(before: TableRow | None, now: TableRow | None) -> TableRow | None:
    """Adds the numbers of lookups; the partitions are those of the last micro-batch."""
    if before is None or now is None:
        return now or before
    more = {name: before[name] + now[name] for name in ("made", "before_log_start")}
    return {**now, **more}


def extend_evidence_row(before: TableRow, now: TableRow) -> dict[str, Any]:
    """Returns gold/evidence after a small micro-batch; ``now`` has the changed columns."""
    named = {window["group"] for window in now["windows"]}
    kept = [window for window in before["windows"] if window["group"] not in named]
    bounds = [row[name] for row in (before, now) for name in ("first", "last")]
    known = [at for at in bounds if at is not None]
    unread = merge_unread(unread_from_row(before), unread_from_row(now))
    return {
        **before,
        **now,
        "first": min(known, default=None),
        "last": max(known, default=None),
        "windows": sorted([*kept, *now["windows"]], key=itemgetter("group", "at")),
        "complete": _merge_complete(before["complete"], now["complete"]),
        "unread": [asdict(one) for one in unread],
    }


def _merge_complete(before: Iterable[TableRow], now: Iterable[TableRow]) -> list[TableRow]:
    """Keeps the position that each partition of the journal already had."""
    by_partition = {edge["journal_partition"]: edge for edge in (*now, *before)}
    return [edge for _, edge in sorted(by_partition.items())]
