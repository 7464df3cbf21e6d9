"""What the pipeline computes of one group, without Spark: rows of gold tables from facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from rota.engine.history.causes import CommitTimes
from rota.engine.history.facts import Generation, LogLine, PartitionOwnership
from rota.pipeline import arrow, rebalances
from rota.pipeline.group_by import TablePart
from rota.pipeline.rebalances import GroupOptions
from rota.pipeline.tables import GENERATIONS, OWNERSHIP, SERVERLOG

Row: TypeAlias = dict[str, Any]


def commit_rows(group: str, commits: CommitTimes) -> pa.RecordBatch:
    listed = [(*pair, at * 1_000) for pair, times in commits.items() for at in times.tolist()]
    topics, partitions, times = zip(*listed, strict=True) if listed else ((), (), ())
    columns = {
        "group": pa.array([group] * len(listed), pa.string()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(partitions, pa.int32()),
        "committed_at": pa.array(times, pa.int64()).cast(arrow.TIME_TYPE),
        "at": pa.nulls(len(listed), arrow.TIME_TYPE),
    }
    return pa.record_batch(columns)


def list_parts(
    generations: Sequence[Generation],
    lines: Sequence[LogLine],
    commits: CommitTimes,
    ownership: Iterable[PartitionOwnership] = (),
) -> list[TablePart]:
    """Returns the rows from which the pipeline computes the tables of a group."""
    line_rows = [
        {name: getattr(line, name, None) for name in arrow.arrow_schema(SERVERLOG).names}
        | {"file": "server.log", "line": number}
        for number, line in enumerate(lines)
    ]
    return [
        ("generations", arrow.facts_to_batch(GENERATIONS, generations)),
        ("lines", arrow.rows_to_batch(SERVERLOG, line_rows)),
        ("ownership", arrow.facts_to_batch(OWNERSHIP, list(ownership))),
        ("commits", commit_rows(generations[0].group, commits)),
    ]


def compute_rows(parts: Iterable[TablePart], options: GroupOptions) -> dict[str, list[Row]]:
    """Returns the rows of each table."""
    found: dict[str, list[Row]] = {name: [] for name in rebalances.GROUP_TABLES}
    for name, rows in rebalances.compute_group(parts, options):
        found[name] += arrow.batch_to_rows(rows)
    return found
