"""Ends of the past, by the times of records: what a look-up proves, and what it does not."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import rota
from rota.client.offsets import ListedOffset
from rota.engine.model.topic import TopicPartition
from rota.pipeline.cluster import (
    MIN_LOOKUPS,
    EndSample,
    LiveCluster,
    LookupPlan,
    PartitionBounds,
    look_up_ends,
    past_samples,
    plan_lookups,
)

PLACE = TopicPartition("orders", 0)
HOUR = 1_700_000_000_000
NOW = HOUR + 1_000


@st.composite
def draw_record_times(draw: st.DrawFn) -> tuple[list[int], int]:
    """The times of a partition's records, as their broker has set them; how many are deleted."""
    gaps = draw(st.lists(st.integers(0, 40), max_size=20))
    times, at = [], HOUR
    for gap in gaps:
        at += gap
        times.append(at)
    return times, draw(st.integers(0, len(times)))


@given(draw_record_times(), st.lists(st.integers(HOUR - 50, NOW - 1), max_size=12))
def test_ends_of_the_past_are_those_that_were(log: tuple[list[int], int], asked: list[int]) -> None:
    times, begin = log

    def younger(at: int) -> ListedOffset | None:
        """What a broker finds for the millisecond after."""
        offset = max(bisect_right(times, at), begin)
        return ListedOffset(offset, times[offset]) if offset < len(times) else None

    found = {at: younger(at) for at in asked}
    known = PartitionBounds(begin, len(times), NOW, younger(0))
    told = {sample.at: sample.end for sample in past_samples(PLACE, known, found)}
    for at, end in told.items():
        if at in found:
            assert end == bisect_right(times, at)
        else:  # a record's own time: others may be of the same millisecond
            assert bisect_right(times, at - 1) <= end <= bisect_right(times, at)
    if not begin:
        assert set(asked) <= set(told), "all of the past is there"
    ends = [end for _, end in sorted(told.items())]
    assert ends == sorted(ends)


def test_what_is_deleted_proves_nothing() -> None:
    first = ListedOffset(50, HOUR + 500)
    samples = past_samples(
        PLACE, PartitionBounds(50, 80, NOW, first), {HOUR: first, HOUR + 999: None}
    )
    assert [(each.at - HOUR, each.end) for each in samples] == [(500, 51), (999, 80)]
    assert past_samples(PLACE, PartitionBounds(80, 80, NOW, None), {HOUR: None}) == []


def test_a_record_from_the_future_is_no_sample() -> None:
    far = ListedOffset(3, NOW + 10**9)
    samples = past_samples(PLACE, PartitionBounds(0, 10, NOW, None), {HOUR: far})
    assert samples == [EndSample("orders", 0, HOUR, None, 3)]


@pytest.fixture
def broker() -> rota.Broker:
    return rota.Broker()


def test_a_live_cluster_is_asked(broker: rota.Broker) -> None:
    with broker:
        broker.create_topic("orders", 2)
        broker.create_topic("quiet", 1)
        for number in range(10):
            at = HOUR + 1_000 * number
            broker.produce("orders", f"{number}", partition=0, timestamp=at)
        cluster = LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers}, lookups=1)
        wanted = LookupPlan(
            times={
                PLACE: [HOUR + 500, HOUR + 4_000, HOUR + 60_000],
                TopicPartition("orders", 1): [],
                TopicPartition("orders", 7): [HOUR],
                TopicPartition("quiet", 0): [HOUR],
                TopicPartition("gone", 0): [HOUR],
            }
        )
        looked = look_up_ends(cluster, wanted)
    assert looked.skipped == {"that no longer exist": {"gone", "orders-7"}}
    assert looked.partitions == 3
    assert looked.lookups == 3 * MIN_LOOKUPS + 4
    mine = {each.at - HOUR: each.end for each in looked.samples if each[:2] == PLACE}
    assert mine[500] == 1
    assert mine[4_000] == 5, "records of a millisecond are there by its end"
    assert mine[60_000] == 10
    assert mine[-1] == 0
    assert mine[0] == 1
    (quiet,) = {each.end for each in looked.samples if each.topic == "quiet"}
    assert quiet == 0
    now = [each for each in looked.samples if each.beginning is not None]
    assert {(each.topic, each.partition, each.end) for each in now} == {
        ("orders", 0, 10),
        ("orders", 1, 0),
        ("quiet", 0, 0),
    }


def test_one_topic_that_refuses_costs_itself_alone(broker: rota.Broker) -> None:
    with broker:
        for name in ("a", "b"):
            broker.create_topic(name)
        cluster = LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers}, lookups=1)
        # the question for all, and then those for the first topic alone
        broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=6)
        times: dict[TopicPartition, list[int]] = {TopicPartition(name, 0): [] for name in "ab"}
        looked = look_up_ends(cluster, LookupPlan(times=times))
        assert broker.clear_faults() == 0
    ((why, names),) = looked.skipped.items()
    assert "no permission to read topic 'a'" in why
    assert names == {"a"}
    assert [each.topic for each in looked.samples] == ["b"]


def test_times_are_chosen_among_those_of_commits(spark: SparkSession) -> None:
    start = datetime(2026, 11, 15, tzinfo=UTC)

    def at(second: int) -> datetime:
        return start + timedelta(seconds=second)

    rows: list[tuple[str, int, datetime, int | None]]
    rows = [("many", 0, at(second), second) for second in range(100) for _ in range(2)]
    rows += [("few", 3, at(second), 1) for second in (200, 300)]
    rows += [("old", 0, at(-1_000), 1), ("deleted", 0, at(400), None)]
    columns = "topic string, partition int, at timestamp, offset bigint"
    commits = spark.createDataFrame(rows, columns)

    def seconds(found: LookupPlan) -> dict[str, list[int]]:
        zero = int(start.timestamp() * 1000)
        return {
            place.topic: [(time - zero) // 1000 for time in times]
            for place, times in found.times.items()
        }

    some = seconds(plan_lookups(commits, 3 * (MIN_LOOKUPS + 5)))
    assert some == {"few": [200, 300], "many": [0, 25, 50, 75, 99], "old": [-1000]}
    late = seconds(
        plan_lookups(commits, 3 * (MIN_LOOKUPS + 2), since=int(at(50).timestamp() * 1000))
    )
    assert late == {"few": [200, 300], "many": [50, 99], "old": []}
    scarce = plan_lookups(commits, 2 * MIN_LOOKUPS + 1)
    assert seconds(scarce) == {"few": [], "many": []}
    assert scarce.left_out == (TopicPartition("old", 0),), "those committed last come first"
    assert plan_lookups(commits, MIN_LOOKUPS - 1).times == {}
