"""A run of the pipeline: evidence in, tables out, and what is worth saying about both."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from rota.errors import InputError
from rota.pipeline import cluster, decode, ingest, lag, lookup, rebalance, segment, store, whatif
from rota.pipeline.cluster import Cluster, Live
from rota.pipeline.lookup import Looked
from rota.pipeline.redact import Redaction
from rota.pipeline.segment import Edge, Segments
from rota.pipeline.session import LOCAL, session
from rota.pipeline.store import Store
from rota.replay.lag import REACH
from rota.tables import (
    ADVICE,
    COMMITS,
    ENDS,
    GENERATIONS,
    JOURNAL,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SERVERLOG,
    STATUS,
    WHATIF,
)

LARGE = 256 << 20
"""Bytes of segments from which on Java's better compiler pays."""
SHOWN = 20
"""Examples of each thing that could not be read."""


class Stage(enum.StrEnum):
    """What a run does, in this order."""

    FIND = "finding the journal"
    START = "starting Spark"
    EVIDENCE = "reading logs"
    JOURNAL = "reading the journal"
    COMMITS = "decoding commits"
    ENDS = "reading log ends"
    GROUPS = "decoding groups"
    REBALANCES = "explaining rebalances"
    LAG = "computing lag"
    WHATIF = "replaying other policies"
    PUBLISH = "showing the tables"


class Progress(Protocol):
    """Who is told how far a run is."""

    def began(self, stage: Stage) -> None:
        """The stage begins."""

    def ended(self, stage: Stage, note: str) -> None:
        """The stage is done; what came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What to read."""

    segments: tuple[str, ...] = ()
    cluster: Cluster | None = None
    """A live one: its journal, and the ends of what groups have committed."""
    server_logs: tuple[str, ...] = ()
    zone: int = 0
    """Minutes that the logs' clock is ahead of UTC."""
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Back:
    """A time so many milliseconds before the end of the evidence: the last record of folders, or
    now, where a cluster is asked.
    """

    milliseconds: int


Moment: TypeAlias = int | Back | None
"""Milliseconds since 1970, or before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, and what to look at."""

    master: str = LOCAL
    since: Moment = None
    until: Moment = None
    groups: tuple[str, ...] = ()
    redact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something that could not be read."""

    what: str
    count: int
    examples: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Summary:
    """What a run found."""

    out: str
    records: int = 0
    commits: int = 0
    generations: int = 0
    rebalances: int = 0
    first: int | None = None
    """The first record's time, and the last one's."""
    last: int | None = None
    since: int | None = None
    """What was asked for."""
    until: int | None = None
    lines: int = 0
    logs: int = 0
    """Files of brokers' logs that were given."""
    samples: int = 0
    live: Live | None = None
    """What there was to read in a cluster."""
    looked: Looked | None = None
    """What came of look-ups."""
    causes: list[tuple[str, str, int]] = field(default_factory=list)
    """Cause, evidence, how many rebalances."""
    groups: list[Row] = field(default_factory=list)
    """gold/advice, the worst group first."""
    complete: Mapping[int, Edge] = field(default_factory=dict)
    """By partition of the journal, from where on all its records are there."""
    windows: list[tuple[str, int, bool]] = field(default_factory=list)
    """Each group, from when on its records are all there, and whether its first one is."""
    unread: list[Unread] = field(default_factory=list)


def run(
    evidence: Evidence,
    out: str,
    options: Options,
    progress: Progress,
    spark: SparkSession | None = None,
) -> Summary:
    """Reads the evidence and writes every table.

    :param spark: a session to use; one is started, and ended, where none is given
    """
    with _stage(progress, Stage.FIND) as note:
        ingest.check(evidence.server_logs, evidence.ends)
        found = _Found(
            segments=segment.find(evidence.segments),
            live=None if evidence.cluster is None else cluster.look(evidence.cluster),
        )
        _window(options, found.last)
        note.append(str(found))
    with ExitStack() as stack:
        tables = stack.enter_context(store.begin(out))
        with _stage(progress, Stage.START):
            if spark is None:
                large = found.size > LARGE
                spark = stack.enter_context(session(options.master, large=large))
        this = _Run(spark, tables, options, progress, found)
        with store.failures(tables.out):
            this.all(evidence)
        return this.summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What there is of the journal."""

    segments: Segments
    live: Live | None

    @property
    def last(self) -> int:
        """The end of the evidence: on a live cluster, now."""
        return self.segments.last if self.live is None else max(self.segments.last, self.live.at)

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.segments.size + (self.live.weight if self.live is not None else 0)

    def __str__(self) -> str:
        parts = [] if self.live is None else [str(self.live)]
        if self.segments.files or self.live is None:
            size, partitions = self.segments.size / 1e6, self.segments.partitions
            parts.append(f"{size:,.1f} MB in {partitions} partitions")
        return "; ".join(parts)


def _window(options: Options, last: int) -> tuple[int | None, int | None]:
    """What the user wants to see, in milliseconds since 1970.

    :raises InputError: nothing can be in it
    """
    since, until = (
        last - when.milliseconds if isinstance(when, Back) else when
        for when in (options.since, options.until)
    )
    if since is not None and until is not None and since > until:
        raise InputError("--since is later than --until")
    if since is not None and since > last:
        raise InputError("--since is later than the last record of the evidence")
    return since, until


@contextmanager
def _stage(progress: Progress, stage: Stage) -> Iterator[list[str]]:
    progress.began(stage)
    note: list[str] = []
    yield note
    progress.ended(stage, "; ".join(note))


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        tables: Store,
        options: Options,
        progress: Progress,
        found: _Found,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._options = options
        self._progress = progress
        self._found = found.segments
        self._live = found.live
        self.summary = Summary(out=str(tables.out), live=found.live)
        self.summary.complete = found.segments.complete
        self.summary.unread += _flaws(found.segments)
        self._begin, self._until = _window(options, found.last)
        self.summary.since, self.summary.until = self._begin, self._until
        self._redaction = Redaction(secrets.token_bytes(32)) if options.redact else None
        self._names: dict[bytes, str] = {}
        """Topics by id."""
        self._whole: DataFrame | None = None
        """The journal of a cluster, where bronze has only a part of it."""

    def all(self, evidence: Evidence) -> None:
        """Every stage."""
        self._evidence(evidence)
        self._journal()
        counting = decode.counting(self._tables.read(self._spark, JOURNAL))
        self._commits(counting)
        self._ends(evidence)
        self._groups(counting)
        if self._options.groups and not self.summary.commits and not self.summary.windows:
            raise InputError(f"--group {' '.join(self._options.groups)}: no such group in it")
        self._rebalances()
        self._lag()
        self._whatif()
        with _stage(self._progress, Stage.PUBLISH):
            self._tables.publish()

    def _evidence(self, evidence: Evidence) -> None:
        spark, summary = self._spark, self.summary
        counts = {"times": fn.sum("times"), "first": fn.min("problem")}
        with _stage(self._progress, Stage.EVIDENCE) as note:
            if evidence.server_logs:
                lines = ingest.server_log(
                    spark, evidence.server_logs, evidence.zone, self._redaction
                )
                lines = self._within(ingest.once_each(lines))
                counted = self._tables.write(SERVERLOG, lines, **counts)
                summary.lines, summary.logs = counted["rows"], len(evidence.server_logs)
                self._strange("log lines about a group, but not understood", counted)
            else:
                self._tables.write_nothing(SERVERLOG)
            note.append(f"{summary.lines:,} lines about groups")

    def _ends(self, evidence: Evidence) -> None:
        """Samples of ends: those that were given, and what a cluster says of what was committed."""
        tables, spark, summary = self._tables, self._spark, self.summary
        with _stage(self._progress, Stage.ENDS) as note:
            samples = ingest.ends(spark, evidence.ends).distinct() if evidence.ends else None
            if evidence.cluster is not None and evidence.cluster.lookups:
                summary.looked = self._look_up(evidence.cluster)
                note.append(f"{summary.looked.made:,} look-ups")
                asked = lookup.samples(spark, summary.looked)
                samples = asked if samples is None else samples.unionByName(asked, True)
            if samples is None:
                tables.write_nothing(ENDS)
                return
            counts = {"times": fn.sum("times"), "first": fn.min("problem")}
            counted = tables.write(ENDS, samples, **counts)
            summary.samples = counted["rows"]
            self._strange("lines that are no samples of ends", counted)
            note.append(f"{summary.samples:,} samples")

    def _look_up(self, asked: Cluster) -> Looked:
        commits = self._tables.read(self._spark, COMMITS)
        looked = lookup.look_up(asked, lookup.plan(commits, asked.lookups, self._begin))
        for why, names in sorted(looked.skipped.items()):
            self._unread(f"ends of topics or partitions {why}", len(names), sorted(names)[:SHOWN])
        return looked

    def _strange(self, what: str, counted: Mapping[str, Any]) -> None:
        if counted["times"]:
            self._unread(what, counted["times"], [counted["first"]])

    def _within(self, lines: DataFrame) -> DataFrame:
        """Lines of what the user asked for; those that were not understood name no group."""
        if self._options.groups:
            wanted = ingest.named_like(lines["group"], self._options.groups)
            lines = lines.where(fn.coalesce(wanted, fn.lit(True)))
        if self._until is not None:
            late = fn.unix_millis("at") > self._until
            lines = lines.where(~fn.coalesce(late, fn.lit(False)))
        return lines

    def _journal(self) -> None:
        with _stage(self._progress, Stage.JOURNAL) as note:
            every = self._every()
            wanted = ingest.wanted(
                every,
                until=self._until,
                groups=self._options.groups,
            )
            counts = self._tables.write(
                JOURNAL,
                wanted,
                first=fn.min(fn.unix_millis("at")),
                last=fn.max(fn.unix_millis("at")),
                **_bad("file"),
            )
            summary = self.summary
            summary.records = counts["rows"]
            summary.first, summary.last = counts["first"], counts["last"]
            what = "damaged batches"
            if self._redaction is not None:
                what += ", and records that could not be redacted"
            self._problems(what, counts)
            self._complete()
            note.append(f"{summary.records:,} records")

    def _every(self) -> DataFrame:
        """All records of the journal that there are, whatever the user wants to see of them."""
        if self._live is None:
            return ingest.journal(self._spark, self._found, self._redaction)
        every = ingest.live_journal(self._spark, self._live, self._redaction)
        if self._found.pieces:
            own = ingest.journal(self._spark, self._found, self._redaction)
            every = ingest.together(every, own)
        if self._options.groups or self._until is not None or self._redaction is not None:
            # bronze has not all of it, and a cluster is read once, whatever it is needed for
            every = self._whole = self._tables.keep(self._spark, "journal", every)
        return every

    def _complete(self) -> None:
        """From where on all records are there: folders tell by their batches, a cluster by what was
        read.
        """
        if self._live is None:
            return
        rows = self._whole
        if rows is None:
            rows = self._tables.read(self._spark, JOURNAL)
        self.summary.complete = ingest.complete(rows, self._live.ends)

    def _commits(self, counting: DataFrame) -> None:
        with _stage(self._progress, Stage.COMMITS) as note:
            place = "concat('partition ', journal_partition, ' offset ', journal_offset, ':')"
            counts = self._tables.write(COMMITS, decode.commits(counting), **_bad(place))
            self.summary.commits = counts["rows"]
            self._problems("records of offsets", counts)
            note.append(f"{self.summary.commits:,} commits")

    def _groups(self, counting: DataFrame) -> None:
        tables, spark = self._tables, self._spark
        with _stage(self._progress, Stage.GROUPS) as note:
            self._names = decode.topic_names(self._namers())
            found = tables.keep(spark, "timelines", decode.timelines(counting, self._names))
            made = found.where("generation is not null").select("generation.*")
            owners = found.where("owner is not null").select("owner.*")
            self.summary.generations, _ = tables.write_all(
                (GENERATIONS, made), (OWNERSHIP, self._since(owners, "until"))
            )
            self._rest(found)
            groups = len(self.summary.windows)
            note.append(f"{self.summary.generations:,} generations of {groups:,} groups")

    def _namers(self) -> DataFrame:
        """Commits that tell which topic has which id: those of other groups do, too."""
        if not self._options.groups:
            return self._tables.read(self._spark, COMMITS)
        every = self._whole
        if every is None:
            every = ingest.journal(self._spark, self._found)
        return decode.commits(every.where("not control")).where("problem is null")

    def _rest(self, found: DataFrame) -> None:
        """What else the groups' records told."""
        rest = found.where("generation is null and owner is null").drop("generation", "owner")
        bad = rest.where("problem is not null")
        number = bad.count()
        if number:
            self._unread("records of groups", number, _places(bad))
        told = rest.where("problem is null")
        rows = told.withColumn("complete_from", fn.unix_millis("complete_from")).collect()
        foreign: dict[str, int] = {}
        for row in rows:
            if row.foreign is not None:
                foreign[row.foreign] = foreign.get(row.foreign, 0) + row.records
        if foreign:
            named = ", ".join(f"{name} {count:,}" for name, count in sorted(foreign.items()))
            self._unread("records of kinds that are not decoded", sum(foreign.values()), [named])
        windows = [row for row in rows if row.whole is not None]
        self.summary.windows = sorted((row.group, row.complete_from, row.whole) for row in windows)

    def _rebalances(self) -> None:
        tables, spark = self._tables, self._spark
        with _stage(self._progress, Stage.REBALANCES) as note:
            found = rebalance.rebalances(
                tables.read(spark, GENERATIONS),
                tables.read(spark, COMMITS),
                tables.read(spark, SERVERLOG),
            )
            if self._begin is not None:
                # what is not shown is still history to other policies
                found = tables.keep(spark, "rebalances", found)
            self._history = found
            self.summary.rebalances = tables.write(REBALANCES, self._since(found, "at"))["rows"]
            causes = tables.read(spark, REBALANCES).groupBy("cause", "evidence").count()
            self.summary.causes = sorted(tuple(row) for row in causes.collect())
            note.append(f"{self.summary.rebalances:,} rebalances")

    def _lag(self) -> None:
        tables, spark = self._tables, self._spark
        with _stage(self._progress, Stage.LAG) as note:
            if not self.summary.samples:
                tables.write_nothing(LAG, STATUS)
                note.append("no samples of ends: none")
                return
            found = lag.lag(
                tables.read(spark, COMMITS),
                tables.read(spark, GENERATIONS),
                tables.read(spark, OWNERSHIP),
                tables.read(spark, ENDS),
                as_of=self._end(),
            )
            found = tables.keep(spark, "lag", found)
            lags = self._since(found.where("lag is not null").select("lag.*"), "at")
            verdicts = found.where("status is not null").select("status.*")
            rows, _ = tables.write_all((LAG, lags), (STATUS, verdicts))
            note.append(f"{rows:,} commits")

    def _end(self) -> int:
        """The time of the verdicts: the end of all evidence, or the one that the user asked for.

        It is never later than ends are known: a record from the future must not spoil it for all.
        """
        ends = self._tables.read(self._spark, ENDS).agg(fn.max(fn.unix_millis("at")))
        sampled = int(ends.collect()[0][0])
        latest = min(max(self.summary.last or 0, sampled), sampled + REACH)
        return latest if self._until is None else min(latest, self._until)

    def _whatif(self) -> None:
        tables, spark = self._tables, self._spark
        with _stage(self._progress, Stage.WHATIF) as note:
            # of a topic that was made anew, always the same one of its ids
            ids = {topic: topic_id for topic_id, topic in sorted(self._names.items())}
            found = whatif.alternatives(
                tables.read(spark, GENERATIONS),
                tables.read(spark, REBALANCES) if self._begin is None else self._history,
                topic_ids=ids,
                since=self._begin,
            )
            found = tables.keep(spark, "whatif", found)
            rows = found.where("whatif is not null").select("whatif.*")
            count = tables.write(WHATIF, rows)["rows"]
            tables.write(ADVICE, found.where("advice is not null").select("advice.*"))
            self.summary.groups = (
                tables.read(spark, ADVICE).sort(fn.desc("damage"), "group").collect()
            )
            note.append(f"{count:,} rebalances under a policy")

    def _since(self, rows: DataFrame, column: str) -> DataFrame:
        """Rows that are not over before the time that the user asked for."""
        if self._begin is None:
            return rows
        over = fn.unix_millis(f"`{column}`") < self._begin
        return rows.where(~fn.coalesce(over, fn.lit(False)))

    def _problems(self, what: str, counted: Mapping[str, Any]) -> None:
        """Says what :func:`_bad` has counted."""
        if counted["bad"]:
            shown = dict.fromkeys((counted["least"], counted["most"]))
            self._unread(what, counted["bad"], list(shown))

    def _unread(self, what: str, count: int, examples: Sequence[str]) -> None:
        self.summary.unread.append(Unread(what=what, count=count, examples=tuple(examples)))


def _bad(place: str) -> dict[str, Column]:
    """Counts problems while a table is written, with two examples: nothing is read again for it."""
    text = fn.when(fn.col("problem").isNotNull(), fn.concat_ws(" ", fn.expr(place), "problem"))
    return {"bad": fn.count("problem"), "least": fn.min(text), "most": fn.max(text)}


def _flaws(found: Segments) -> Iterator[Unread]:
    kinds: dict[str, list[str]] = {}
    for flaw in found.flaws:
        kinds.setdefault(flaw.problem.flaw, []).append(f"{flaw.path} {flaw.problem}")
    for kind, places in sorted(kinds.items()):
        what = f"stretches of bytes that are no batch ({kind})"
        yield Unread(what=what, count=len(places), examples=tuple(places[:SHOWN]))


def _places(bad: DataFrame) -> list[str]:
    order = ("journal_partition", "journal_offset")
    return [
        _place(row) for row in bad.select(*order, "problem").sort(*order).limit(SHOWN).collect()
    ]


def _place(row: Row) -> str:
    return f"partition {row.journal_partition} offset {row.journal_offset}: {row.problem}"
