"""What polling has written down, into the tables that the journal makes otherwise.

A group that is in the journal is told of by it alone: it knows more, and nothing is told twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rota.pipeline import decode, generation, schema, spool
from rota.pipeline.bygroup import by_key, spread
from rota.pipeline.ingest import GROUP
from rota.pipeline.poll import Polled
from rota.replay.fact import Generation, Kind
from rota.replay.sample import Sample
from rota.replay.sampled import SampleReading
from rota.tables import COMMITS, ENDS, SAMPLES, Table


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was written down, for one run."""

    spark: SparkSession
    polled: Polled
    until: int | None
    """Nothing later, in milliseconds since 1970."""

    def samples(self) -> DataFrame:
        """bronze/samples."""
        return self._rows(SAMPLES)

    def ends(self) -> DataFrame:
        """bronze/ends; as lines of files, some of which have a problem."""
        none = fn.lit(None)
        return self._rows(ENDS).withColumns(
            {"problem": none.cast("string"), "times": none.cast("bigint")}
        )

    def commits(self, journal: DataFrame | None) -> DataFrame:
        """silver/commits, without those of groups that the journal has."""
        return _besides(self._rows(COMMITS), journal)

    def _rows(self, table: Table) -> DataFrame:
        path = spool.path(Path(self.polled.folder).absolute(), table)
        rows = self.spark.read.schema(schema.ddl(table)).parquet(path)
        return rows if self.until is None else rows.where(fn.unix_millis("at") <= self.until)


def timelines(samples: DataFrame, journal: DataFrame | None) -> DataFrame:
    """What became of groups, out of bronze/samples, as far as the journal does not have them:
    :data:`.decode.TIMELINES`.
    """
    rows = spread(_besides(samples, journal), "group", "at")
    return rows.mapInArrow(_timelines, decode.TIMELINES)


def _besides(rows: DataFrame, journal: DataFrame | None) -> DataFrame:
    if journal is None:
        return rows
    known = journal.select(fn.expr(GROUP).cast("string").alias("group")).distinct()
    return rows.join(known, "group", "left_anti").select(*rows.columns)


def _timelines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for group, parts in by_key(batches, "group"):
        reading = SampleReading(str(group))
        made: list[Generation] = []
        members = 0
        for one in reading.generations(read_samples(parts)):
            made.append(one)
            members += 1 + len(one.members)
            if members >= decode.PIECE:
                yield decode.generation_rows(made)
                made, members = [], 0
        if made:
            yield decode.generation_rows(made)
        if rest := reading.rest():
            yield decode.owner_rows(rest)


def read_samples(parts: Iterable[pa.RecordBatch]) -> Iterator[Sample]:
    """Samples out of rows of bronze/samples."""
    reader = generation.Reader()
    for part in parts:
        columns = {
            name: generation.values(part.column(name))
            for name in part.schema.names
            if name != "members"
        }
        columns["kind"] = list(map(Kind, columns["kind"]))
        columns["members"] = reader.members(part.column("members"))
        for row in zip(*columns.values(), strict=True):
            yield Sample(**dict(zip(columns, row, strict=True)))
