"""The last commits before lag is told: what gold/lag has no row of.

A partition that stands still since before its end was first sampled, or since before the time that
was asked for, has no commit in gold/lag. The last one before says from which record on it waits.

There are millions of commits: they are gone through in pieces, of which the last of each group and
partition are kept.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import compute, dataset

KEY = ["group", "topic", "partition"]
COLUMNS = [*KEY, "at", "journal_offset", "offset"]
PIECE = 1 << 20
"""Rows that are gone through at a time."""


def commits(folder: Path, ends: pa.Table, since: int | None) -> pa.Table:
    """Of each group and partition the last commit before the first sample of its end, or before a
    time that is later: :data:`COLUMNS`.

    :param folder: of silver/commits
    :param ends: bronze/ends
    :param since: what was asked for, in milliseconds since 1970
    """
    found = dataset.dataset(folder, format="parquet", partitioning=None)
    kept = _last(pa.schema([found.schema.field(name) for name in COLUMNS]).empty_table())
    if not ends.num_rows:
        return kept
    bounds = _bounds(ends, since)
    asked = compute.field("offset").is_valid()
    asked &= compute.field("at") < compute.max(bounds["before"])
    asked &= compute.field("topic").isin(compute.unique(bounds["topic"]))
    pending, rows = [kept], 0
    for batch in found.to_batches(columns=COLUMNS, filter=asked):
        pending.append(_before(pa.Table.from_batches([batch]), bounds))
        rows += pending[-1].num_rows
        if rows >= PIECE:
            pending, rows = [_last(pa.concat_tables(pending))], 0
    return _last(pa.concat_tables(pending))


def _bounds(ends: pa.Table, since: int | None) -> pa.Table:
    """Of each partition from when on gold/lag has its commits (``before``)."""
    firsts = ends.group_by(["topic", "partition"]).aggregate([("at", "min")])
    before = firsts["at_min"]
    if since is not None:
        begin = pa.scalar(since, pa.timestamp("ms", tz="UTC")).cast(before.type)
        before = compute.if_else(compute.less(before, begin), begin, before)
    return firsts.drop_columns("at_min").append_column("before", before)


def _before(rows: pa.Table, bounds: pa.Table) -> pa.Table:
    """The commits before each partition's bound."""
    bounded = rows.join(bounds, keys=["topic", "partition"], join_type="inner")
    return bounded.filter(compute.less(bounded["at"], bounded["before"])).select(COLUMNS)


def _last(rows: pa.Table) -> pa.Table:
    """The last row of each group and partition, in the journal's order."""
    rest = COLUMNS[len(KEY) :]
    ordered = rows.sort_by("journal_offset").group_by(KEY, use_threads=False)
    found = ordered.aggregate([(name, "last") for name in rest])
    return found.select([*KEY, *(f"{name}_last" for name in rest)]).rename_columns(COLUMNS)
