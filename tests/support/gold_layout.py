"""Gold tables as Rota's store lays them out in a folder, with what their lag rests on, and what
a run says of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from rota.pipeline import arrow
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    COMMITS,
    DOWNTIME,
    ENDS,
    EVIDENCE,
    GROUPS,
    HEALTH,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SERVERLOG,
    STATUS,
    WHATIF,
    Table,
)

GOLD = (
    *(REBALANCES, DOWNTIME, HEALTH, OWNERSHIP, LAG, STATUS, WHATIF, ADVICE, ADVISED),
    *(GROUPS, EVIDENCE, ENDS, COMMITS, SERVERLOG),
)
#: 2026-11-15 06:00 UTC.
MORNING = 1_794_722_400_000
MINUTE = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run says of itself: the row of gold/evidence, as far as it is not counted."""

    demo: bool = False
    #: What could not be read, how many, examples.
    unread: Sequence[tuple[str, int, Sequence[str]]] = ()
    #: Some of it was asked for from outside.
    polled: bool = False
    #: Groups whose first record is not there.
    partial: Sequence[str] = ()


@dataclass(slots=True)
class Tables:
    """Rows of every gold table, of bronze, and of what lag needs of silver/commits."""

    parts: dict[Table, list[pa.RecordBatch]] = field(
        default_factory=lambda: {table: [] for table in GOLD}
    )

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        self.parts[table].append(rows)

    def table(self, table: Table) -> pa.Table:
        return pa.Table.from_batches(self.parts[table], arrow.arrow_schema(table))

    def write(self, folder: Path, run: Run | None = None) -> Path:
        """Writes them as a run that is shown; the folder."""
        self.parts[EVIDENCE] = [self._evidence(run or Run())]
        gold = folder / ".runs" / "1"
        for table in GOLD:
            place = gold / table.name
            place.mkdir(parents=True)
            parquet.write_table(self.table(table), place / "part-0.parquet")
        (folder / ".current").symlink_to(Path(".runs", "1"))
        for level in ("gold", "silver", "bronze"):
            (folder / level).symlink_to(Path(".current", level))
        return folder

    def _evidence(self, run: Run) -> pa.RecordBatch:
        """Counts are those of the tables; a commit for every row of gold/lag."""
        rebalances = self.table(REBALANCES)
        times = arrow.to_milliseconds(rebalances.column("at").combine_chunks())
        at = times.to_numpy(zero_copy_only=False)
        first, last = (int(at.min()), int(at.max())) if len(at) else (None, None)
        names = sorted(self.table(HEALTH).column("group").to_pylist())
        lags = self.table(LAG).num_rows
        polled = {
            "first": first or MORNING,
            "last": last or MORNING,
            "every": 30.0,
            "rounds": 120,
            "groups": names[:3],
            "gaps": [
                {
                    "begin": (first or MORNING) + MINUTE,
                    "end": (first or MORNING) + 2 * MINUTE,
                    "why": "the broker did not answer",
                }
            ],
        }
        row = {
            "demo": run.demo,
            "first": first,
            "last": last,
            "since": None,
            "until": None,
            "records": lags + 3 * len(at) + sum(count for _, count, _ in run.unread),
            "commits": lags,
            "generations": len(at),
            "rebalances": len(at),
            "logs": 1,
            "lines": 2 * rebalances.column("evidence").to_pylist().count("stated"),
            "samples": self.table(ENDS).num_rows,
            "cluster": None,
            "lookups": None,
            "polled": polled if run.polled else None,
            "windows": [
                {
                    "group": name,
                    "at": first or MORNING,
                    "whole": name not in run.partial,
                }
                for name in names
            ],
            "complete": [{"journal_partition": 0, "offset": 0, "at": first or MORNING}],
            "unread": [
                {"what": what, "count": count, "examples": list(examples)}
                for what, count, examples in run.unread
            ],
        }
        return arrow.rows_to_batch(EVIDENCE, [row])
