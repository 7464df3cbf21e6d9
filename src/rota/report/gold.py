"""The gold tables of a folder, and what of bronze and silver lag rests on, as Arrow's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import compute, parquet

from rota.errors import InputError, Unreachable
from rota.report import earlier
from rota.tables import (
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

CURRENT = ".current"
"""The run that is shown: see :mod:`rota.pipeline.store`."""

COMMIT = {"group", "topic", "partition", "at", "journal_offset"}
"""What tells commits apart."""
UNASKED = {
    LAG: {"end", "evidence", "member_id"},
    COMMITS: {column.name for column in COMMITS.columns} - COMMIT,
}
"""Columns of large tables that the report does without."""
ASKED = {COMMITS: compute.field("offset").is_null()}
"""The rows of large tables that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """The gold tables of one run, and what lag rests on."""

    out: str
    """The folder that was given."""
    rebalances: pa.Table
    ownership: pa.Table
    lag: pa.Table
    status: pa.Table
    whatif: pa.Table
    advice: pa.Table
    advised: pa.Table
    evidence: pa.Table
    """One row."""
    ends: pa.Table
    """bronze/ends."""
    deletions: pa.Table
    """Where offsets were deleted, of silver/commits."""
    earlier: pa.Table
    """The last commits before those of gold/lag: see :mod:`rota.report.earlier`."""


def read(out: str) -> Gold:
    """The tables of the run that is shown.

    :raises Unreachable: there are none
    :raises InputError: they are of another version of Rota
    """
    if not Path(out, CURRENT).exists():
        raise Unreachable(f"{out}: no tables here; rota run --out {out} makes them")
    run = Path(out, CURRENT).resolve()  # another run may take its place at any time
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
        tables = {name: _table(run, table) for name, table in names.items()}
        tables["earlier"] = _earlier(run, tables["ends"], tables["evidence"])
    except _Other as other:
        raise InputError(
            f"{out}: {other} is not as this version of Rota writes it ({other.why}); "
            f"rota run --out {out} makes it anew"
        ) from None
    return Gold(out=out, **tables)


class _Other(Exception):
    """A table that cannot be read, by its name."""

    def __init__(self, table: Table, why: str) -> None:
        super().__init__(table.name)
        self.why = why


def _table(run: Path, table: Table) -> pa.Table:
    """The columns that a table has by its declaration, but for those that nobody asks for; of some
    only a few rows.
    """
    names = [column.name for column in table.columns if column.name not in UNASKED.get(table, ())]
    try:
        found = parquet.ParquetDataset(
            run / table.name, partitioning=None, filters=ASKED.get(table)
        )
        missing = set(names) - set(found.schema.names)
        if missing:
            raise _Other(table, f"it has no column {', '.join(sorted(missing))}")
        return found.read(columns=names)
    except FileNotFoundError:
        raise _Other(table, "it is not there") from None
    except pa.ArrowException as error:
        raise _Other(table, str(error)) from None


def _earlier(run: Path, ends: pa.Table, evidence: pa.Table) -> pa.Table:
    since = compute.max(milliseconds(evidence["since"])).as_py()
    try:
        return earlier.commits(run / COMMITS.name, ends, since)
    except (KeyError, pa.ArrowException) as error:
        raise _Other(COMMITS, str(error)) from None


def milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as numbers: milliseconds since 1970."""
    return times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
