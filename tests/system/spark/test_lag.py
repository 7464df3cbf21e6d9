"""gold/lag and gold/status of the captured run: what the pure functions say, and Kafka's tools."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from rota.engine.history.lag import compute_lags
from rota.engine.history.verdicts import DELETED_OFFSET
from rota.report import story
from tests.support.captured_lag import end_offsets, group_commits, group_history, partitions
from tests.system.spark.pipeline_run import PipelineRun


def read_group_rows(logged: PipelineRun, name: str, group: str) -> list[dict[str, Any]]:
    table = pq.read_table(logged.out / name, filters=[("group", "=", group)])
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def to_milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@pytest.mark.parametrize("group", ["a-range", "a-stall", "a-deloff", "a-next", "a-migrate"])
def test_every_commit_has_its_lag_and_its_owner(logged_run: PipelineRun, group: str) -> None:
    made = group_commits()[group]
    kept = made.offset != DELETED_OFFSET
    partition, at, offset = (column[kept] for column in made)
    found = compute_lags(partition, at, offset, end_offsets())
    owners = {
        (span.topic, span.partition, span.since): (span.until, span.member_id)
        for span in group_history(group).ownership
    }
    expected = {
        (
            *partitions()[partition[n]],
            int(at[n]),
            int(offset[n]),
            int(lag),
            round(float(seconds), 3),
        )
        for n, lag, seconds in zip(found.row, found.lag, found.seconds, strict=True)
    }
    rows = read_group_rows(logged_run, "gold/lag", group)
    seen = {
        (
            row["topic"],
            row["partition"],
            to_milliseconds(row["at"]),
            row["offset"],
            row["lag"],
            round(row["lag_seconds"], 3),
        )
        for row in rows
    }
    assert expected <= seen, "commits after the reader stopped are in the segments as well"
    assert len(seen - expected) < 20
    for row in rows:
        owner = next(
            (
                member
                for (topic, number, since), (until, member) in owners.items()
                if (topic, number) == (row["topic"], row["partition"])
                and since <= to_milliseconds(row["at"])
                and (until is None or to_milliseconds(row["at"]) < until)
            ),
            None,
        )
        assert row["member_id"] == owner


def test_the_groups_that_stopped_are_told_at_the_end(logged_run: PipelineRun) -> None:
    """a-early ended after 36 s; a-deloff after 78 s, with two offsets deleted and a topic left."""
    table = pq.read_table(logged_run.out / "gold/status").to_pylist()
    whole = {row["group"]: row["verdict"] for row in table if row["topic"] is None}
    assert {group for group, verdict in whole.items() if verdict != "OK"} == {
        "a-early",
        "a-deloff",
    }
    stopped = {(row["topic"], row["partition"]) for row in table if row["verdict"] == "STOP"}
    assert {("payments", n) for n in range(6)} <= stopped
    deloff = {(row["topic"], row["partition"]) for row in table if row["group"] == "a-deloff"}
    assert deloff == {("payments", n) for n in (2, 3, 4, 5)} | {(None, None)}
    assert len({row["at"] for row in table}) == 1


def test_verdicts_have_the_lag_that_there_was(logged_run: PipelineRun) -> None:
    table = pq.read_table(logged_run.out / "gold/status").to_pylist()
    at = np.int64(to_milliseconds(table[0]["at"]))
    for group in ("a-early", "a-range", "a-next"):
        made = group_commits()[group]
        of_group = {
            (r["topic"], r["partition"]): r for r in table if r["group"] == group and r["topic"]
        }
        for (topic, number), row in of_group.items():
            code = partitions().index((topic, number))
            end = end_offsets().at_times(np.array([code]), np.array([at])).end[0]
            latest = made.offset[made.partition == code][-1]
            assert row["lag"] <= end - latest + 5, "the segments go on for a moment"


@pytest.mark.parametrize(
    ("group", "at_commits", "between"),
    [("a-poison", 0.4, 112.2), ("a-static", 0.7, 14.2), ("a-slow", 1.0, 20.3)],
)
def test_the_report_tells_how_long_a_partition_stood_still(
    logged_run: PipelineRun, group: str, at_commits: float, between: float
) -> None:
    """a-poison: nothing is committed in payments-2 from second 90.8 to 203.1, as `commits` says."""
    found = read_group_rows(logged_run, "gold/lag", group)
    assert round(max(row["lag_seconds"] for row in found), 1) == at_commits
    (group_story,) = story.build_story(story.read_gold_tables(str(logged_run.out)), [group]).groups
    assert group_story.lag is not None
    assert group_story.lag.most_seconds == pytest.approx(between, abs=0.1)
    assert not group_story.lag.at_least
    made, where = (
        group_commits()[group],
        partitions().index((group_story.lag.most_topic, group_story.lag.most_partition)),
    )
    times = made.at[made.partition == where]
    place = int(np.searchsorted(times, group_story.lag.most_at))
    assert times[place] == group_story.lag.most_at, "it is worst just before a commit"
    still = (times[place] - times[place - 1]) / 1000
    assert still - 2 < group_story.lag.most_seconds < still + 2


def test_a_group_that_was_deleted_was_not_waiting_meanwhile(logged_run: PipelineRun) -> None:
    """Deleted at second 64.8, and there again at 155.5."""
    (group_story,) = story.build_story(
        story.read_gold_tables(str(logged_run.out)), ["a-deleted"]
    ).groups
    assert group_story.lag is not None
    assert group_story.lag.most_seconds is not None
    assert group_story.lag.most_seconds < 10


def test_every_group_has_a_health(logged_run: PipelineRun) -> None:
    """Four minutes are too short for a problem; a-deleted, a-prime and a-share have no offsets."""
    health = {
        row["group"]: row for row in pq.read_table(logged_run.out / "gold/health").to_pylist()
    }
    groups = {
        group
        for name in ("silver/commits", "silver/generations")
        for group in pq.read_table(logged_run.out / name, columns=["group"])["group"].to_pylist()
    }
    assert health.keys() == groups
    unknown = {group for group, row in health.items() if row["health"] == "unknown"}
    assert unknown == {"a-deleted", "a-prime", "a-share"}
    assert {row["worst"] for row in health.values()} == {"OK", "unknown"}
    status = pq.read_table(logged_run.out / "gold/status").to_pylist()
    for row in status:
        if row["topic"] is None:
            assert health[row["group"]]["lag"] == row["lag"]
