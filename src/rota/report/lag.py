"""The worst lag of every group, out of the stretches from commit to commit.

There is a stretch for every commit, so millions of them: Arrow looks through them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far behind a group was; always sampled."""

    most: int
    """How many records were not yet committed as read then."""
    most_seconds: float | None
    """The oldest that one of them was."""
    most_at: int
    """When that was, in milliseconds since 1970: just before a commit, or at the last sample; and
    where."""
    most_topic: str
    most_partition: int
    at_least: bool = False
    """It was there before the first sample of the end: it may have been older."""
    after_rebalance: float | None = None
    """Seconds since the group's last rebalance then; None: there was none before."""


def worst(stretches: pa.Table, rebalances: Mapping[str, Sequence[int]]) -> dict[str, Lag]:
    """The worst lag of each group that has any: the oldest record, or the most records where no
    record is known to have waited; of equals the first.

    :param stretches: :data:`rota.report.between.STRETCHES`
    :param rebalances: when each group had one, rising
    """
    seconds, records = stretches["lag_seconds"], stretches["lag"]
    waited = stretches.filter(compute.greater(seconds, 0))
    ageless = stretches.filter(compute.and_(compute.is_null(seconds), compute.greater(records, 0)))
    ageless = _besides(ageless, waited)
    none = _besides(_besides(stretches, waited), ageless)
    still = none.filter(compute.is_valid(none["lag_seconds"]))
    return {
        row["group"]: Lag(
            most=row["lag"],
            most_seconds=row["lag_seconds"],
            most_at=row["until"],
            most_topic=row["topic"],
            most_partition=row["partition"],
            at_least=row["at_least"],
            after_rebalance=_since_last(rebalances.get(row["group"], ()), row["until"]),
        )
        for rows, measure in (
            (waited, "lag_seconds"),
            (ageless, "lag"),
            (still, "lag_seconds"),
            (_besides(none, still), "lag"),
        )
        for row in _first(rows, measure)
    }


def _besides(rows: pa.Table, others: pa.Table) -> pa.Table:
    """The rows of groups of which the others have none."""
    known = compute.unique(others["group"])
    return rows.filter(compute.invert(compute.is_in(rows["group"], value_set=known)))


def _since_last(rebalances: Sequence[int], at: int) -> float | None:
    place = bisect_right(rebalances, at)
    return (at - rebalances[place - 1]) / 1000 if place else None


def _first(rows: pa.Table, measure: str) -> list[dict[str, Any]]:
    """For each group the first of its rows with the largest measure."""
    columns = ("group", "topic", "partition", "lag_seconds", "lag", "until", "at_least")
    found = rows.select(columns)
    narrower = (
        (measure, "max"),
        ("until", "min"),
        ("topic", "min"),
        ("partition", "min"),
        ("lag", "max"),
        ("at_least", "min"),
    )
    for column, which in narrower:
        found = _those(found, column, which)
    same = found.group_by(list(columns)).aggregate([])
    listed: list[dict[str, Any]] = same.sort_by("group").to_pylist()
    return listed


def _those(rows: pa.Table, column: str, which: str) -> pa.Table:
    """The rows that have their group's largest, or smallest, value of a column."""
    limits = rows.group_by("group").aggregate([(column, which)])
    place = compute.index_in(rows["group"], value_set=limits["group"])
    return rows.filter(compute.equal(rows[column], limits[f"{column}_{which}"].take(place)))
