"""The worst lag of every group.

There is a row of gold/lag for every commit, so millions of them: Arrow looks through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute

from rota.report.gold import milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far behind a group was; always sampled."""

    most: int
    """How many records were still to be read then."""
    most_seconds: float | None
    """The oldest that a record was that was still to be read."""
    most_at: int
    """When that was, in milliseconds since 1970; and where."""
    most_topic: str
    most_partition: int


def worst(lag: pa.Table) -> dict[str, Lag]:
    """The worst lag of each group that has any, out of gold/lag: the oldest record, or the most
    records where no age is known; of equals the first.
    """
    aged = lag.filter(compute.is_valid(lag["lag_seconds"]))
    known = compute.unique(aged["group"])
    ageless = lag.filter(compute.invert(compute.is_in(lag["group"], value_set=known)))
    return {
        row["group"]: Lag(
            most=row["lag"],
            most_seconds=row["lag_seconds"],
            most_at=row["at"],
            most_topic=row["topic"],
            most_partition=row["partition"],
        )
        for rows, measure in ((aged, "lag_seconds"), (ageless, "lag"))
        for row in _first(rows, measure)
    }


def _first(rows: pa.Table, measure: str) -> list[dict[str, Any]]:
    """For each group the first of its rows with the largest measure."""
    columns = ("group", "topic", "partition", "lag_seconds", "lag")
    found = rows.select(columns).append_column("at", milliseconds(rows["at"]))
    narrower = (
        (measure, "max"),
        ("at", "min"),
        ("topic", "min"),
        ("partition", "min"),
        ("lag", "max"),
    )
    for column, which in narrower:
        found = _those(found, column, which)
    same = found.group_by([*columns, "at"]).aggregate([])
    listed: list[dict[str, Any]] = same.sort_by("group").to_pylist()
    return listed


def _those(rows: pa.Table, column: str, which: str) -> pa.Table:
    """The rows that have their group's largest, or smallest, value of a column."""
    limits = rows.group_by("group").aggregate([(column, which)])
    place = compute.index_in(rows["group"], value_set=limits["group"])
    return rows.filter(compute.equal(rows[column], limits[f"{column}_{which}"].take(place)))
