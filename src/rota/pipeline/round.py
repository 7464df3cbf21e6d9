"""One round after the other of a run that follows: new records in, a new set of tables shown.

A round that is small is done in this process (:mod:`rota.pipeline.touched`), and what it does not
change is links to the files of the last one. A large one, as the first is, is done as a whole run
is, on Spark. Both write the same tables.

A round's folder also has, beside the tables, what the next one needs and no table tells::

    .runs/7/follow.json          whose round it is, and which batch of records it ends with
    .runs/7/state/entries/       the records of groups that count, by group
    .runs/7/state/pending.parquet    records of transactions that are open
    .runs/7/state/names.json     topics by id
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from rota.pipeline import account, decode, ingest, schema, segment, touched, unread
from rota.pipeline.account import Growth
from rota.pipeline.cluster import Live
from rota.pipeline.evidence import Evidence, Found, Given, Options
from rota.pipeline.ingest import GROUP
from rota.pipeline.lagging import Lagging, New
from rota.pipeline.layer import by_bucket
from rota.pipeline.redact import Redaction
from rota.pipeline.sampling import Sampling
from rota.pipeline.segment import Edge
from rota.pipeline.stage import Progress
from rota.pipeline.stages import Stages
from rota.pipeline.store import WORK, Shelf, Store, failures
from rota.pipeline.touched import STATE, Known, Read, Touched
from rota.pipeline.unread import Unread
from rota.tables import (
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

SMALL = 500_000
"""So many new records are done in this process."""
FEW = 500
"""So many groups are."""
MARK = "follow.json"
_WIDE = f"{schema.ddl(JOURNAL)}, file string, problem string, wanted boolean"
_NAME = f"coalesce(make_valid_utf8(cast({GROUP} as string)), '') `group`"


COUNTED = {
    "records": JOURNAL,
    "commits": COMMITS,
    "generations": GENERATIONS,
    "rebalances": REBALANCES,
    "samples": ENDS,
}
"""Columns of gold/evidence that count the rows of a table."""
COLUMNS = zlib.crc32(" ".join(schema.ddl(table) for table in TABLES).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a round says of itself."""

    follow: str
    """The name of the checkpoint that it belongs to."""
    cluster: str | None
    """The id of the cluster."""
    groups: list[str]
    """What was asked for."""
    since: int | None
    batch: int = -1
    """The last batch of records that is in the tables."""
    last: int = 0
    """The time of the last record."""
    rebalances: int = 0
    tables: int = COLUMNS
    """Which columns the tables have: another version of Rota may have others."""

    @classmethod
    def read(cls, run: Path | None) -> Mark | None:
        """What the folder of a run says; None: it is none of a run that follows, or of one with
        other columns.
        """
        if run is None or not (run / MARK).exists():
            return None
        told = json.loads((run / MARK).read_text(encoding="utf-8"))
        return cls(**told) if told.get("tables") == COLUMNS else None

    def write(self, run: Path) -> None:
        """Marks the folder of a round."""
        (run / MARK).write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round did."""

    seconds: float
    records: int
    groups: int
    """Those that new records are about."""
    rebalances: int
    """New ones."""
    happened: tuple[tuple[str, str], ...] = ()
    """The group and the cause of each, where they are few: of a large round the tables tell."""
    unread: int = 0
    """New records that could not be read."""


class Listener(Progress, Protocol):
    """Who is told what happens."""

    def round(self, done: Round) -> None:
        """A round is shown."""


@dataclass(slots=True)
class _Memory:
    """What is known from one round to the next; it follows from the tables."""

    known: Known
    lagging: Lagging


class Rounds:
    """Takes batches of records, and shows tables."""

    def __init__(
        self,
        spark: SparkSession,
        shelf: Shelf,
        told: tuple[Evidence, Options, Live],
        mark: Mark,
        listener: Listener,
    ) -> None:
        """:param mark: of the round that is shown, or of one before the first"""
        self._spark = spark
        self._shelf = shelf
        self._evidence, self._options, self._live = told
        self._mark = mark
        self._listener = listener
        redact = self._options.redact
        self._redaction = Redaction(self._options.key) if redact else None
        self._sampling = Sampling(self._live.cluster)
        self._memory: _Memory | None = None

    def take(self, frame: DataFrame, batch: int) -> None:
        """Puts a batch of rows of ``format("rota")`` into the tables; a second time nothing."""
        if batch <= self._mark.batch:
            return
        began = time.monotonic()
        with self._shelf.begin(layered=True) as tables, failures(self._shelf.out):
            counts = self._read(frame, tables)
            if not counts["every"]:
                return
            mark = replace(self._mark, batch=batch, last=max(self._mark.last, counts["last"] or 0))
            new = self._small(tables, counts)
            if new is None:
                done, mark = self._whole(tables, mark)
            else:
                done, mark = self._part(tables, mark, new, self._bad(counts))
            mark.write(tables.path)
            tables.publish()
        self._mark = mark
        self._shelf.sweep()
        seconds = time.monotonic() - began
        self._listener.round(replace(done, seconds=seconds, records=counts["records"]))

    def _read(self, frame: DataFrame, tables: Store) -> dict[str, Any]:
        """Writes new records down, once, for whoever works with them."""
        rows = ingest.from_source(frame, self._live, self._redaction)
        wanted = ingest.is_wanted(rows, until=None, groups=self._options.groups)
        good = wanted & rows["problem"].isNull()
        found = Observation()
        rows = rows.withColumn("wanted", wanted).observe(
            found,
            # other groups' records may name topics
            fn.count(fn.when(good, 1) if not self._options.groups else fn.lit(1)).alias("every"),
            fn.count(fn.when(good, 1)).alias("records"),
            *(count.alias(name) for name, count in unread.counting("file").items()),
            fn.max(fn.when(good, fn.unix_millis("at"))).alias("last"),
        )
        rows.write.parquet(str(_new(tables)))
        return dict(found.get)

    def _bad(self, counts: Mapping[str, Any]) -> list[Unread]:
        """What :func:`rota.pipeline.unread.counting` has counted."""
        what = unread.BATCHES if self._redaction is None else unread.BATCHES_REDACTED
        return unread.counted(what, counts)

    def _small(self, tables: Store, counts: Mapping[str, Any]) -> _Few | None:
        """The new records, if they are few and of few groups."""
        if self._mark.batch < 0 or counts["every"] > SMALL:
            return None
        rows = parquet.read_table(_new(tables), partitioning=None)
        rows = rows.filter(pc.is_null(rows.column("problem")))
        journal = schema.arrow(JOURNAL)
        if self._memory is None:
            self._memory = self._load(self._shown())
        every = rows.select(journal.names).cast(journal)
        wanted = every.filter(rows.column("wanted"))
        others = every if self._options.groups else None
        read = touched.read(wanted, self._memory.known.pending, others)
        return None if len(read.groups) > FEW else _Few(wanted, read, _edges(every))

    def _shown(self) -> Store:
        found = self._shelf.open()
        assert found is not None, "the first round is never small"
        return found

    def _load(self, tables: Store) -> _Memory:
        state = tables.path / STATE
        names = json.loads((state / "names.json").read_text(encoding="utf-8"))
        known = Known.load(
            tables,
            {bytes.fromhex(topic_id): topic for topic_id, topic in names.items()},
            parquet.read_table(state / "pending.parquet").cast(schema.arrow(JOURNAL)),
        )
        return _Memory(known, Lagging.load(tables, self._mark.last))

    def _part(self, tables: Store, mark: Mark, new: _Few, bad: list[Unread]) -> tuple[Round, Mark]:
        """A small round."""
        journal, read, edges = new
        memory = self._memory
        assert memory is not None, "a small round has looked at it"
        old = self._shown()
        for table in TABLES:
            tables.layers(table).link(old.path / table.name)
        touched.entries(tables).link(old.path / STATE / "entries")
        tables.layers(JOURNAL).append(journal)
        told = Touched(tables, memory.known, mark.since).take(read)
        samples = self._sampling.samples(memory.known, memory.lagging)
        lags = New(commits=read.commits, changed=told.groups, samples=samples, last=mark.last)
        memory.lagging.round(tables, memory.known, lags, mark.since)
        for table in (JOURNAL, COMMITS, ENDS, LAG):
            tables.layers(table).settle(bucketed=table in {COMMITS, LAG})
        touched.entries(tables).settle(bucketed=True)
        self._save(tables, memory.known.names, memory.known.pending)
        problems = [*bad, *read.unread]
        growth = Growth(
            times=tuple(pc.min_max(schema.milliseconds(journal.column("at"))).as_py().values()),
            counts={name: tables.layers(table).count() for name, table in COUNTED.items()},
            windows=told.windows,
            edges=edges,
            unread=problems,
        )
        tables.put(EVIDENCE, account.grown(old.row(EVIDENCE), growth))
        seen = read.groups | set(pc.unique(read.commits.column("group")).to_pylist())
        done = Round(
            seconds=0.0,
            records=journal.num_rows,
            groups=len(seen),
            rebalances=len(told.happened),
            happened=told.happened,
            unread=sum(one.count for one in problems),
        )
        return done, replace(mark, rebalances=mark.rebalances + len(told.happened))

    def _whole(self, tables: Store, mark: Mark) -> tuple[Round, Mark]:
        """A large round: a run over all that there is."""
        spark = self._spark
        new = spark.read.schema(_WIDE).parquet(str(_new(tables))).drop("wanted")
        evidence, given = self._evidence, Given(journal=new)
        if self._mark.batch >= 0:
            old = self._shown()
            names = (self._memory or self._load(old)).known.names
            evidence = replace(evidence, server_logs=(), ends=())  # it has been read
            nothing = [fn.lit(None).cast("string").alias(name) for name in ("file", "problem")]
            given = Given(
                journal=old.read(spark, JOURNAL).select("*", *nothing).unionByName(new),
                names=names,
                samples=old.read(spark, ENDS),
                lines=old.read(spark, SERVERLOG),
            )
        found = Found(segments=segment.find(()), live=self._live, given=given)
        stages = Stages(spark, tables, self._options, self._listener, found)
        stages.compute(evidence)
        unread = self._account(tables)
        self._save_whole(tables, stages.names)
        self._memory = None
        summary = stages.summary
        done = Round(
            seconds=0.0,
            records=0,
            groups=len({group for group, _, _ in summary.windows}),
            rebalances=max(summary.rebalances - mark.rebalances, 0),
            unread=unread,
        )
        return done, replace(mark, rebalances=summary.rebalances)

    def _account(self, tables: Store) -> int:
        """Adds what earlier rounds have read to the account of a whole one; how many records more
        there are that could not be read.
        """
        row = tables.row(EVIDENCE)
        before = 0
        if self._mark.batch >= 0:
            old = self._shown().row(EVIDENCE)
            row = account.continued(old, row)
            tables.put(EVIDENCE, row)
            before = sum(one.count for one in account.unread(old))
        now = sum(one.count for one in account.unread(row))
        return max(now - before, 0)

    def _save_whole(self, tables: Store, names: Mapping[bytes, str]) -> None:
        journal = tables.read(self._spark, JOURNAL)
        kept = decode.counting(journal).where(decode.ENTRY).selectExpr(_NAME, "*")
        by_bucket(kept).write.parquet(str(tables.path / STATE / "entries"))
        touched.entries(tables).adopt(bucketed=True)
        pending = decode.pending(journal).select(*schema.arrow(JOURNAL).names).toArrow()
        self._save(tables, names, pending.cast(schema.arrow(JOURNAL)))

    def _save(self, tables: Store, names: Mapping[bytes, str], pending: pa.Table) -> None:
        state = tables.path / STATE
        told = {topic_id.hex(): topic for topic_id, topic in sorted(names.items())}
        (state / "names.json").write_text(json.dumps(told), encoding="utf-8")
        parquet.write_table(pending, state / "pending.parquet")


class _Few(NamedTuple):
    """What is new, where it is little."""

    journal: pa.Table
    read: Read
    edges: dict[int, Edge]
    """The first record of each partition of the journal."""


def _edges(rows: pa.Table) -> dict[int, Edge]:
    ordered = rows.sort_by([("journal_partition", "ascending"), ("journal_offset", "ascending")])
    firsts = ordered.group_by("journal_partition", use_threads=False).aggregate(
        [("journal_offset", "first"), ("at", "first")]
    )
    columns = (
        firsts.column("journal_partition"),
        firsts.column("journal_offset_first"),
        schema.milliseconds(firsts.column("at_first")),
    )
    each = zip(*(column.to_pylist() for column in columns), strict=True)
    return {partition: Edge(offset, at) for partition, offset, at in each}


def _new(tables: Store) -> Path:
    return tables.path / WORK / "new"
