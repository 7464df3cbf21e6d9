"""Runs of the pipeline, and their tables as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import parquet
from pyspark.sql import SparkSession

from rota.pipeline.stages import (
    EvidenceSources,
    PipelineStage,
    RunOptions,
    RunSummary,
    run_pipeline,
)
from rota.pipeline.tables import EVIDENCE, TABLES, Table
from tests.support.recorded_segment import RECORDED, journal_segments

LOG = RECORDED / "coordinator.jsonl.gz"
ENDS = RECORDED / "logends.jsonl.gz"

#: Spark's defaults, which tests/support/spark_start.py changes.
CODE_GENERATION = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}

Row = dict[str, Any]


@dataclass(frozen=True)
class PipelineRun:
    """The output folder and the summary of a finished run."""

    out: Path
    summary: RunSummary

    def rows(self, table: Table) -> list[Row]:
        return read_rows(self.out, table)


class SilentProgress:
    """Progress that nobody looks at; may do something when a stage begins."""

    def __init__(self, at: Callable[[PipelineStage], None] | None = None) -> None:
        self._at = at

    def began(self, stage: PipelineStage) -> None:
        if self._at is not None:
            self._at(stage)

    def ended(self, stage: PipelineStage, note: str) -> None:
        pass


@contextmanager
def code_generation(spark: SparkSession) -> Iterator[None]:
    """Let Spark generate code for its queries, as it does by default."""
    before = {name: str(spark.conf.get(name)) for name in CODE_GENERATION}
    for name, value in CODE_GENERATION.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def write_recorded_segments(folder: Path) -> Path:
    for partition, data in journal_segments().items():
        write_segment(folder, partition, data)
    return folder


def write_segment(folder: Path, partition: int, data: bytes, offset: int = 0) -> Path:
    into = folder / f"__consumer_offsets-{partition}"
    into.mkdir(parents=True, exist_ok=True)
    file = into / f"{offset:020}.log"
    file.write_bytes(data)
    return file


def run_recorded(
    spark: SparkSession, segments: Path, out: Path, *, log: bool = False, ends: bool = False
) -> PipelineRun:
    evidence = EvidenceSources(
        segments=(str(segments),),
        server_logs=(str(LOG),) if log else (),
        ends=(str(ENDS),) if ends else (),
    )
    return run_evidence(spark, evidence, out)


def run_evidence(
    spark: SparkSession, evidence: EvidenceSources, out: Path, options: RunOptions | None = None
) -> PipelineRun:
    return PipelineRun(
        out, run_pipeline(evidence, str(out), options or RunOptions(), SilentProgress(), spark)
    )


def read_rows(out: Path, table: Table) -> list[Row]:
    """A table's rows, in the order of its key; of one round, whatever follows while it is read."""
    names = [column.name for column in table.columns]
    folder = (out / table.name).resolve()
    found: list[Row] = parquet.read_table(folder).select(names).to_pylist()
    return sorted(found, key=lambda row: [str(row[name]) for name in table.key] + [repr(row)])


def check_table(ran: PipelineRun, table: Table) -> None:
    """It has rows, with all that they must have, and each once."""
    found = ran.rows(table)
    assert found, table.name
    required = [column.name for column in table.columns if column.required]
    for row in found:
        assert all(row[name] is not None for name in required), (table.name, row)
    keys = Counter(tuple(row[name] for name in table.key) for row in found)
    assert keys.most_common(1)[0][1] == 1, (table.name, keys.most_common(1))


#: Columns of gold/evidence that tell on which way the evidence came.
WAYS = ("cluster", "lookups")
#: What a cluster could not be asked for.
LOOKED_UP = "ends of topics"


def read_all_tables(out: Path, tables: Sequence[Table] = TABLES) -> dict[str, list[Row]]:
    """All that tables say, but for the way on which their evidence came."""
    found = {table.name: read_rows(out, table) for table in tables}
    for row in found.get(EVIDENCE.name, ()):
        for name in WAYS:
            del row[name]
        row["unread"] = [one for one in row["unread"] if not one["what"].startswith(LOOKED_UP)]
    return found
