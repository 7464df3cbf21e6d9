"""Reads the tables of a run with Arrow: gold, and the parts of bronze and silver that lag is
computed from.

gold/lag has no row for a commit before the first sample of a partition's end, or before
``--since``. A partition without commits since then has no row in gold/lag, so the
last commit before is read from silver/commits: it is the position at which the group waits. There
are millions of commits; they are read in batches, and only the last commit of each group and
partition is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import compute, dataset, parquet

from rota.errors import InputError, Unreachable
from rota.pipeline.arrow import to_milliseconds
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    COMMITS,
    ENDS,
    EVIDENCE,
    LAG,
    OWNERSHIP,
    REBALANCES,
    STATUS,
    WHATIF,
    Table,
)

#: Link to the published run: see :mod:`rota.pipeline.store`.
CURRENT_LINK = ".current"
#: Key of a commit.
COMMIT_COLUMNS = {"group", "topic", "partition", "at", "journal_offset"}

#: Columns of large tables that the report does not need.
SKIPPED_COLUMNS = {
    LAG: {"end", "evidence", "member_id"},
    COMMITS: {column.name for column in COMMITS.columns} - COMMIT_COLUMNS,
}

#: Rows of large tables that the report needs.
ROW_FILTERS = {COMMITS: compute.field("offset").is_null()}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTables:
    """The tables of one run that the report reads."""

    out: str
    rebalances: pa.Table
    ownership: pa.Table
    lag: pa.Table
    status: pa.Table
    whatif: pa.Table
    advice: pa.Table
    advised: pa.Table
    #: One row.
    evidence: pa.Table
    #: bronze/ends.
    ends: pa.Table
    #: Rows of silver/commits that delete an offset.
    deletions: pa.Table
    #: The last commits before those of gold/lag: see :mod:`rota.report.gold_tables`.
    prior_commits: pa.Table


def read_gold_tables(out: str) -> GoldTables:
    """Reads the tables of the current run of a folder.

    :raises Unreachable: the folder has no tables
    :raises InputError: another version of Rota wrote them
    """
    if not Path(out, CURRENT_LINK).exists():
        raise Unreachable(f"{out} has no tables; rota run --out {out} writes them")
    run = Path(out, CURRENT_LINK).resolve()  # another run may replace it at any time
    names: dict[str, Table] = {
        "rebalances": REBALANCES,
        "ownership": OWNERSHIP,
        "lag": LAG,
        "status": STATUS,
        "whatif": WHATIF,
        "advice": ADVICE,
        "advised": ADVISED,
        "evidence": EVIDENCE,
        "ends": ENDS,
        "deletions": COMMITS,
    }
    try:
        tables = {name: _read_table(run, table) for name, table in names.items()}
        tables["prior_commits"] = _read_prior_commits(run, tables["ends"], tables["evidence"])
    except _UnreadableTable as other:
        raise InputError(
            f"{out}: another version of Rota wrote {other} ({other.why}); "
            f"rota run --out {out} writes it again"
        ) from None
    return GoldTables(out=out, **tables)


class _UnreadableTable(Exception):
    """A table that cannot be read; its text is the table's name."""

    def __init__(self, table: Table, why: str) -> None:
        super().__init__(table.name)
        self.why = why


def _read_table(run: Path, table: Table) -> pa.Table:
    """Reads the declared columns of a table, without SKIPPED_COLUMNS, and only the rows that
    ROW_FILTERS lets through.
    """
    names = [
        column.name for column in table.columns if column.name not in SKIPPED_COLUMNS.get(table, ())
    ]
    try:
        found = parquet.ParquetDataset(
            run / table.name, partitioning=None, filters=ROW_FILTERS.get(table)
        )
        missing = set(names) - set(found.schema.names)
        if missing:
            raise _UnreadableTable(table, f"it has no column {', '.join(sorted(missing))}")
        return found.read(columns=names)
    except FileNotFoundError:
        raise _UnreadableTable(table, "it does not exist") from None
    except pa.ArrowException as error:
        raise _UnreadableTable(table, str(error)) from None


def _read_prior_commits(run: Path, ends: pa.Table, evidence: pa.Table) -> pa.Table:
    since = compute.max(to_milliseconds(evidence["since"])).as_py()
    try:
        return last_commits_before_lag(run / COMMITS.name, ends, since)
    except (KeyError, pa.ArrowException) as error:
        raise _UnreadableTable(COMMITS, str(error)) from None


PARTITION_KEY = ["group", "topic", "partition"]
PRIOR_COMMIT_COLUMNS = [*PARTITION_KEY, "at", "journal_offset", "offset"]
#: Number of rows in memory.
ROWS_PER_PASS = 1 << 20


def last_commits_before_lag(folder: Path, ends: pa.Table, since: int | None) -> pa.Table:
    """Returns, for each group and partition, the last commit before the first sample of its end, or
    before ``since`` if that is later.

    :param folder: folder of silver/commits
    :param ends: bronze/ends
    :param since: the time of ``--since``, in milliseconds since 1970
    """
    found = dataset.dataset(folder, format="parquet", partitioning=None)
    kept = _last_commits(
        pa.schema([found.schema.field(name) for name in PRIOR_COMMIT_COLUMNS]).empty_table()
    )
    if not ends.num_rows:
        return kept
    bounds = _first_lag_times(ends, since)
    asked = compute.field("offset").is_valid()
    asked &= compute.field("at") < compute.max(bounds["before"])
    asked &= compute.field("topic").isin(compute.unique(bounds["topic"]))
    pending, rows = [kept], 0
    for batch in found.to_batches(columns=PRIOR_COMMIT_COLUMNS, filter=asked):
        pending.append(_commits_before(pa.Table.from_batches([batch]), bounds))
        rows += pending[-1].num_rows
        if rows >= ROWS_PER_PASS:
            pending, rows = [_last_commits(pa.concat_tables(pending))], 0
    return _last_commits(pa.concat_tables(pending))


def _first_lag_times(ends: pa.Table, since: int | None) -> pa.Table:
    """Returns, for each partition, the time from which gold/lag has its commits (column
    ``before``).
    """
    firsts = ends.group_by(["topic", "partition"]).aggregate([("at", "min")])
    before = firsts["at_min"]
    if since is not None:
        begin = pa.scalar(since, pa.timestamp("ms", tz="UTC")).cast(before.type)
        before = compute.if_else(compute.less(before, begin), begin, before)
    return firsts.drop_columns("at_min").append_column("before", before)


def _commits_before(rows: pa.Table, bounds: pa.Table) -> pa.Table:
    bounded = rows.join(bounds, keys=["topic", "partition"], join_type="inner")
    return bounded.filter(compute.less(bounded["at"], bounded["before"])).select(
        PRIOR_COMMIT_COLUMNS
    )


def _last_commits(rows: pa.Table) -> pa.Table:
    """Returns the last row of each group and partition in the order of the journal."""
    rest = PRIOR_COMMIT_COLUMNS[len(PARTITION_KEY) :]
    ordered = rows.sort_by("journal_offset").group_by(PARTITION_KEY, use_threads=False)
    found = ordered.aggregate([(name, "last") for name in rest])
    return found.select([*PARTITION_KEY, *(f"{name}_last" for name in rest)]).rename_columns(
        PRIOR_COMMIT_COLUMNS
    )
