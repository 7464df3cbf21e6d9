"""What polling sees, written down as it comes: rows of tables, in a folder that a run reads.

Memory holds what the last round saw, and some rows that are not written yet, however long it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from rota.model.offset import NO_EPOCH
from rota.pipeline import generation, schema
from rota.pipeline.redact import Redaction
from rota.pipeline.survey import Survey
from rota.replay.sample import CommitSeen, Sample, Seen
from rota.tables import COMMITS, ENDS, SAMPLES, Table

SAMPLED = -1
"""In the place of a partition of the journal."""
TABLES = (SAMPLES, COMMITS, ENDS)
PILE = 20_000
"""Rows that are written together."""


class Spool:
    """A file for each of the tables."""

    def __init__(self, folder: Path, redaction: Redaction | None) -> None:
        self._redaction = redaction
        self._writers = {
            table: parquet.ParquetWriter(
                path(folder, table), schema.arrow(table), compression="zstd"
            )
            for table in TABLES
        }
        self._piles: dict[Table, list[pa.RecordBatch]] = {table: [] for table in TABLES}
        self._commits = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for table, writer in self._writers.items():
            self._flush(table)
            writer.close()

    def add(self, survey: Survey, seen: Seen) -> None:
        """Writes a round down."""
        self._pile(SAMPLES, sample_rows(list(map(self._sample, seen.samples))))
        commits = [self._commit(each, survey.topic_ids) for each in seen.commits]
        self._pile(COMMITS, schema.batch(COMMITS, commits))
        self._pile(ENDS, schema.batch(ENDS, _ends(survey)))

    def _sample(self, sample: Sample) -> Sample:
        return sample if self._redaction is None else self._redaction.sample(sample)

    def _commit(self, seen: CommitSeen, ids: Mapping[str, bytes]) -> dict[str, Any]:
        self._commits += 1
        found: dict[str, Any] = dict.fromkeys(column.name for column in COMMITS.columns)
        found |= {
            "journal_partition": SAMPLED,
            "journal_offset": self._commits,
            "at": seen.at,
            "group": seen.group,
            "topic": seen.partition.topic,
            "partition": seen.partition.partition,
            "topic_id": ids.get(seen.partition.topic),
            "not_before": seen.not_before,
        }
        if seen.committed is None:
            return found
        metadata, epoch = seen.committed.metadata, seen.committed.leader_epoch
        if self._redaction is not None:
            metadata = self._redaction.metadata(metadata)
        return found | {
            "offset": seen.committed.offset,
            "leader_epoch": None if epoch == NO_EPOCH else epoch,
            "metadata": metadata,
        }

    def _pile(self, table: Table, rows: pa.RecordBatch) -> None:
        pile = self._piles[table]
        if rows.num_rows:
            pile.append(rows)
        if sum(each.num_rows for each in pile) >= PILE:
            self._flush(table)

    def _flush(self, table: Table) -> None:
        if self._piles[table]:
            self._writers[table].write_table(pa.Table.from_batches(self._piles[table]))
        self._piles[table] = []


def path(folder: Path, table: Table) -> str:
    """Where the rows of a table are."""
    return str(folder / f"{table.name.replace('/', '-')}.parquet")


def sample_rows(samples: list[Sample]) -> pa.RecordBatch:
    """Samples as rows of bronze/samples."""
    columns = [
        generation.members([each.members for each in samples])
        if column.name == "members"
        else schema.array(column, [getattr(each, column.name) for each in samples])
        for column in SAMPLES.columns
    ]
    return pa.record_batch(columns, schema=schema.arrow(SAMPLES))


def _ends(survey: Survey) -> Iterable[dict[str, Any]]:
    for place, (beginning, end) in sorted(survey.ends.items()):
        yield {
            "topic": place.topic,
            "partition": place.partition,
            "at": survey.look.at,
            "beginning": beginning,
            "end": end,
        }
