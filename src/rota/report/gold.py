"""The gold tables of a folder, as Arrow's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from rota.errors import InputError, Unreachable
from rota.tables import (
    ADVICE,
    ADVISED,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """The gold tables of one run."""

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


def read(out: str) -> Gold:
    """The tables of the run that is shown.

    :raises Unreachable: there are none
    :raises InputError: they are of another version of Rota
    """
    if not Path(out, CURRENT).exists():
        raise Unreachable(f"{out}: no tables here; rota run --out {out} makes them")
    run = Path(out, CURRENT).resolve()  # another run may take its place at any time
    return Gold(
        out=out,
        rebalances=_table(run, REBALANCES),
        ownership=_table(run, OWNERSHIP),
        lag=_table(run, LAG),
        status=_table(run, STATUS),
        whatif=_table(run, WHATIF),
        advice=_table(run, ADVICE),
        advised=_table(run, ADVISED),
        evidence=_table(run, EVIDENCE),
    )


def _table(run: Path, table: Table) -> pa.Table:
    """All columns that a table has by its declaration."""
    names = [column.name for column in table.columns]
    try:
        return parquet.read_table(run / table.name, columns=names, partitioning=None)
    except (FileNotFoundError, pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise InputError(
            f"{run / table.name}: not as this version of Rota writes it ({error}); run rota run "
            "again"
        ) from None


def milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as numbers: milliseconds since 1970."""
    return times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
