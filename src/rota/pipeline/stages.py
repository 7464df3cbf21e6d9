"""The stages of a run: DataFrames in, tables out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rota.errors import InputError
from rota.pipeline import (
    account,
    decode,
    ingest,
    lag,
    lookup,
    rebalance,
    sample,
    unread,
    whatif,
)
from rota.pipeline.cluster import Cluster
from rota.pipeline.evidence import Evidence, Found, Options, window
from rota.pipeline.lookup import Looked
from rota.pipeline.redact import Redaction
from rota.pipeline.sample import Sampled
from rota.pipeline.segment import Segments
from rota.pipeline.stage import Progress, Stage, stage
from rota.pipeline.store import Store
from rota.pipeline.summary import Summary
from rota.pipeline.unread import SHOWN, Unread
from rota.replay.lag import REACH
from rota.tables import (
    COMMITS,
    ENDS,
    EVIDENCE,
    GENERATIONS,
    JOURNAL,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SAMPLES,
    SERVERLOG,
    STATUS,
)


class Stages:
    """The stages of a run, over what was found."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Store,
        options: Options,
        progress: Progress,
        found: Found,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._options = options
        self._progress = progress
        self._found = found.segments
        self._live = found.live
        self.summary = Summary(out=str(tables.out), live=found.live, polled=found.polled)
        self.summary.complete = found.segments.complete
        self.summary.unread += _flaws(found.segments)
        self._begin, self._until = window(options, found.last)
        self.summary.since, self.summary.until = self._begin, self._until
        self._redaction = Redaction(options.key) if options.redact else None
        self._sampled = None if found.polled is None else Sampled(spark, found.polled, self._until)
        for what, count, examples in () if found.polled is None else found.polled.missing():
            self._unread(what, count, examples[:SHOWN])
        self._given = found.given
        self.names = dict(found.given.names) if found.given is not None else {}
        """Topics by id."""
        self._whole: DataFrame | None = None
        """The journal of a cluster, where bronze has only a part of it."""

    def all(self, evidence: Evidence) -> None:
        """Every stage."""
        self.compute(evidence)
        with stage(self._progress, Stage.PUBLISH):
            self._tables.publish()

    def compute(self, evidence: Evidence) -> None:
        """Every stage but the last: the tables are there, and not shown."""
        self._evidence(evidence)
        self._journal()
        counting = decode.counting(self._tables.read(self._spark, JOURNAL))
        self._commits(counting)
        self._ends(evidence)
        self._groups(counting)
        if self._options.groups and self._is_empty():
            raise InputError(f"--group {' '.join(self._options.groups)}: no such group in it")
        self._rebalances()
        self._lag()
        self._whatif()
        self._tables.put(EVIDENCE, account.account(self.summary, evidence))

    def _is_empty(self) -> bool:
        summary = self.summary
        found = summary.commits or summary.windows or summary.generations
        return not found and self._given is None

    def _evidence(self, evidence: Evidence) -> None:
        spark, summary = self._spark, self.summary
        counts = {"times": fn.sum("times"), "first": fn.min("problem")}
        with stage(self._progress, Stage.EVIDENCE) as note:
            if self._given is not None and self._given.lines is not None:
                summary.lines = self._tables.write(SERVERLOG, self._given.lines)["rows"]
            elif evidence.server_logs:
                lines = ingest.server_log(
                    spark, evidence.server_logs, evidence.zone, self._redaction
                )
                lines = self._within(ingest.once_each(lines))
                counted = self._tables.write(SERVERLOG, lines, **counts)
                summary.lines, summary.logs = counted["rows"], len(evidence.server_logs)
                self._strange(unread.LINES, counted)
            else:
                self._tables.write_nothing(SERVERLOG)
            note.append(f"{summary.lines:,} lines about groups")
            if self._sampled is None:
                self._tables.write_nothing(SAMPLES)
            else:
                self._tables.write(SAMPLES, self._sampled.samples())

    def _ends(self, evidence: Evidence) -> None:
        """Samples of ends: those that were given, and what a cluster says of what was committed."""
        tables, spark, summary = self._tables, self._spark, self.summary
        with stage(self._progress, Stage.ENDS) as note:
            samples = ingest.ends(spark, evidence.ends).distinct() if evidence.ends else None
            if self._sampled is not None:
                asked = self._sampled.ends()
                samples = asked if samples is None else samples.unionByName(asked)
            if evidence.cluster is not None and evidence.cluster.lookups:
                summary.looked = self._look_up(evidence.cluster)
                note.append(f"{summary.looked.made:,} look-ups")
                asked = lookup.samples(spark, summary.looked)
                samples = asked if samples is None else samples.unionByName(asked, True)
            if self._given is not None and self._given.samples is not None:
                wide = self._given.samples.selectExpr(
                    "*", "cast(null as string) problem", "cast(null as bigint) times"
                )
                samples = wide if samples is None else samples.unionByName(wide).distinct()
            if samples is None:
                tables.write_nothing(ENDS)
                return
            counts = {"times": fn.sum("times"), "first": fn.min("problem")}
            counted = tables.write(ENDS, samples, **counts)
            summary.samples = counted["rows"]
            self._strange(unread.ENDS, counted)
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
        with stage(self._progress, Stage.JOURNAL) as note:
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
                **unread.counting("file"),
            )
            summary = self.summary
            summary.records = counts["rows"]
            times: list[int | None] = [counts["first"], counts["last"]]
            if summary.polled is not None:
                times += [summary.polled.first, summary.polled.last]
            known = [at for at in times if at is not None]
            summary.first, summary.last = min(known, default=None), max(known, default=None)
            what = unread.BATCHES if self._redaction is None else unread.BATCHES_REDACTED
            self.summary.unread += unread.counted(what, counts)
            self._complete()
            note.append(f"{summary.records:,} records")

    def _every(self) -> DataFrame:
        """All records of the journal that there are, whatever the user wants to see of them."""
        if self._given is not None:
            self._whole = self._given.journal
            return self._given.journal
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
        # who gives the records tells how far they go
        ends = self._live.ends if self._given is None else {}
        self.summary.complete = ingest.complete(rows, ends)

    def _commits(self, counting: DataFrame) -> None:
        with stage(self._progress, Stage.COMMITS) as note:
            place = "concat('partition ', journal_partition, ' offset ', journal_offset, ':')"
            found = decode.commits(counting)
            if self._sampled is not None:
                sampled = self._sampled.commits(self._besides(counting))
                found = found.unionByName(sampled, allowMissingColumns=True)
            counts = self._tables.write(COMMITS, found, **unread.counting(place))
            self.summary.commits = counts["rows"]
            self.summary.unread += unread.counted(unread.OFFSETS, counts)
            note.append(f"{self.summary.commits:,} commits")

    def _groups(self, counting: DataFrame) -> None:
        tables, spark = self._tables, self._spark
        with stage(self._progress, Stage.GROUPS) as note:
            for topic_id, topic in decode.topic_names(self._namers()).items():
                self.names[topic_id] = max(topic, self.names.get(topic_id, topic))
            read = decode.timelines(counting, self.names)
            if self._sampled is not None:
                samples = tables.read(spark, SAMPLES)
                read = read.unionByName(sample.timelines(samples, self._besides(counting)))
            found = tables.keep(spark, "timelines", read)
            made = found.where("generation is not null").select("generation.*")
            owners = found.where("owner is not null").select("owner.*")
            self.summary.generations, _ = tables.write_all(
                (GENERATIONS, made), (OWNERSHIP, self._since(owners, "until"))
            )
            self._rest(found)
            groups = len(self.summary.windows)
            if self.summary.polled is not None:
                groups += len(self.summary.polled.groups)
            note.append(f"{self.summary.generations:,} generations; {groups:,} groups")

    def _besides(self, counting: DataFrame) -> DataFrame | None:
        """The journal, where there is one: it comes before what was sampled."""
        return counting if self._found.pieces or self._live is not None else None

    def _namers(self) -> DataFrame:
        """Commits that tell which topic has which id: those of other groups do, too."""
        if not self._options.groups or self._sampled is not None:
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
            self._unread(unread.GROUPS, number, _places(bad))
        told = rest.where("problem is null")
        rows = told.withColumn("complete_from", fn.unix_millis("complete_from")).collect()
        foreign: dict[str, int] = {}
        for row in rows:
            if row.foreign is not None:
                foreign[row.foreign] = foreign.get(row.foreign, 0) + row.records
        self.summary.unread += unread.foreign(foreign)
        windows = [row for row in rows if row.whole is not None]
        self.summary.windows = sorted((row.group, row.complete_from, row.whole) for row in windows)

    def _rebalances(self) -> None:
        tables, spark = self._tables, self._spark
        with stage(self._progress, Stage.REBALANCES) as note:
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
            note.append(f"{self.summary.rebalances:,} rebalances")

    def _lag(self) -> None:
        tables, spark = self._tables, self._spark
        with stage(self._progress, Stage.LAG) as note:
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
        with stage(self._progress, Stage.WHATIF) as note:
            # of a topic that was made anew, always the same one of its ids
            ids = {topic: topic_id for topic_id, topic in sorted(self.names.items())}
            found = whatif.alternatives(
                tables.read(spark, GENERATIONS),
                tables.read(spark, REBALANCES) if self._begin is None else self._history,
                topic_ids=ids,
                since=self._begin,
            )
            found = tables.keep(spark, "whatif", found)
            made = (
                (table, found.where(f"{name} is not null").select(f"{name}.*"))
                for name, table in whatif.COLUMNS.items()
            )
            count, *_ = tables.write_all(*made)
            note.append(f"{count:,} rebalances under a policy")

    def _since(self, rows: DataFrame, column: str) -> DataFrame:
        """Rows that are not over before the time that the user asked for."""
        if self._begin is None:
            return rows
        over = fn.unix_millis(f"`{column}`") < self._begin
        return rows.where(~fn.coalesce(over, fn.lit(False)))

    def _unread(self, what: str, count: int, examples: Sequence[str]) -> None:
        self.summary.unread.append(Unread(what=what, count=count, examples=tuple(examples)))


def _flaws(found: Segments) -> Iterator[Unread]:
    kinds: dict[str, list[str]] = {}
    for flaw in found.flaws:
        kinds.setdefault(flaw.problem.flaw, []).append(f"{flaw.path} {flaw.problem}")
    for kind, places in sorted(kinds.items()):
        what = f"stretches of bytes that are no batch ({kind})"
        yield Unread(what=what, count=len(places), examples=tuple(places[:SHOWN]))


def _places(bad: DataFrame) -> list[str]:
    order = ("journal_partition", "journal_offset")
    first = bad.select(*order, "problem").sort(*order).limit(SHOWN).collect()
    return [unread.place(*row) for row in first]
