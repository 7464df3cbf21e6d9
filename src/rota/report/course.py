"""What came of a group's rebalances, under each policy and over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute

from rota.replay.advice import CHANGE
from rota.report.gold import milliseconds
from rota.report.shelf import PLACE, placed, whole
from rota.report.story import Group

LAG_POINTS = 600
"""Lag is drawn as the most of each of so many stretches of time."""
SUMMED = ("rebalances", "stopped", "moved", "moved_min", "needless", "idle_members", "spread")


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a group's charts show, in milliseconds."""

    begin: int
    end: int

    @property
    def step(self) -> int:
        """The width of a stretch of lag."""
        return -(-(self.end - self.begin + 1) // LAG_POINTS)


@dataclass(frozen=True, slots=True)
class Course:
    """The most lag of a group's partitions, for each stretch of time in which any is known."""

    step: int
    buckets: list[int]
    """Which stretch, from 0."""
    records: list[int]
    seconds: list[float | None]


def under_advice(whatif: pa.Table, groups: Sequence[Group]) -> pa.Table:
    """The rebalances that there would be under the policies that are advised; ``at``: when."""
    advised = [group.policy if group.verdict == CHANGE else None for group in groups]
    found = placed(whatif, [group.name for group in groups])
    policies = pa.array(advised, pa.string()).take(whole(found[PLACE]))
    wanted = compute.equal(whole(found["policy"]), policies)
    happening = found.filter(compute.and_(whole(found["happens"]), wanted))
    return happening.drop_columns([PLACE, "at"]).rename_columns({"happens_at": "at"})


def totals(whatif: pa.Table, names: Sequence[str]) -> dict[int, list[list[Any]]]:
    """What each policy costs a group, by the group's place: the policy in use first, then the least
    damage. A row is the policy, whether it is the one in use, and :data:`SUMMED`, summed as
    :func:`rota.replay.advice.totals` does.
    """
    rows = placed(whatif, names)
    happens = compute.cast(rows["happens"], pa.int64())
    numbers = {
        name: compute.multiply(compute.cast(rows[name], pa.int64()), happens)
        for name in ("moved", "moved_min", "stopped", "idle_members", "spread")
    }
    more = compute.subtract(numbers["moved"], numbers["moved_min"])
    numbers |= {"rebalances": happens, "needless": compute.max_element_wise(more, 0)}
    keys = {name: rows[name] for name in (PLACE, "policy", "actual")}
    sums = pa.table(keys | numbers).group_by(list(keys))
    found = sums.aggregate([(name, "sum") for name in SUMMED])
    columns = [found[name] for name in (*keys, *(f"{name}_sum" for name in SUMMED))]
    told: dict[int, list[list[Any]]] = {}
    for place, *row in sorted(zip(*(one.to_pylist() for one in columns), strict=True), key=_rank):
        told.setdefault(place, []).append(row)
    return told


def _rank(row: tuple[Any, ...]) -> tuple[Any, ...]:
    place, policy, actual, rebalances, stopped, _, _, needless, *_ = row
    return (place, not actual, stopped + needless, rebalances, policy)


def lags(lag: pa.Table, names: Sequence[str], spans: Sequence[Span]) -> dict[int, Course]:
    """The lag of each group that has any, by the group's place."""
    rows = placed(lag.select(["group", "at", "lag", "lag_seconds"]), names)
    places = whole(rows[PLACE])
    begins = pa.array([span.begin for span in spans], pa.int64()).take(places)
    steps = pa.array([span.step for span in spans], pa.int64()).take(places)
    since = compute.subtract(whole(milliseconds(rows["at"])), begins)
    buckets = compute.divide(since, steps)
    shown = compute.and_(compute.greater_equal(since, 0), compute.less(buckets, LAG_POINTS))
    most = (
        pa.table([places, buckets, rows["lag"], rows["lag_seconds"]], [PLACE, "bucket", "n", "s"])
        .filter(shown)
        .group_by([PLACE, "bucket"])
        .aggregate([("n", "max"), ("s", "max")])
        .sort_by([(PLACE, "ascending"), ("bucket", "ascending")])
    )
    told: dict[int, Course] = {}
    for place, bucket, records, seconds in zip(
        *(most[name].to_pylist() for name in (PLACE, "bucket", "n_max", "s_max")), strict=True
    ):
        course = told.setdefault(place, Course(spans[place].step, [], [], []))
        course.buckets.append(bucket)
        course.records.append(records)
        course.seconds.append(None if seconds is None else round(seconds, 3))
    return told
