"""A batch query's plan, against a broker and without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

import rota
from rota import Broker
from rota.errors import InputError, UnknownTopic
from rota.spark.plan import OffsetRange
from rota.spark.query import DataLost
from rota.spark.source import BatchReader, RotaDataSource
from tests.support.spark_query import (
    FAST,
    commit_offsets,
    delete_records_before,
    p,
    produce_records,
    source_options,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker() as started:
        yield started


def plan_ranges(broker: Broker, **given: str) -> list[OffsetRange]:
    named = {name.replace("__", "."): value for name, value in given.items()}
    tasks = BatchReader(source_options(broker, FAST | named), 2).partitions()
    return sorted(each for task in tasks for each in task.ranges)  # type: ignore[attr-defined]


def test_all_that_there_is(broker: Broker) -> None:
    produce_records(broker, 3, 0, 2)
    assert plan_ranges(broker) == [OffsetRange(p(0), 0, 3), OffsetRange(p(2), 0, 2)]


def test_between_offsets(broker: Broker) -> None:
    produce_records(broker, 9, 9)
    given = {
        "startingOffsets": '{"orders": {"0": 2, "1": -2}}',
        "endingOffsets": '{"orders": {"0": 5, "1": -1}}',
    }
    assert plan_ranges(broker, **given) == [OffsetRange(p(0), 2, 5), OffsetRange(p(1), 0, 9)]


def test_between_times(broker: Broker) -> None:
    broker.create_topic("orders")
    for time in (1_000, 2_000, 3_000):
        broker.produce("orders", "x", timestamp=time)
    assert plan_ranges(broker, startingTimestamp="2000", endingTimestamp="2500") == [
        OffsetRange(p(0), 1, 2)
    ]
    assert plan_ranges(broker, startingTimestamp="2000", endingTimestamp="9000") == [
        OffsetRange(p(0), 1, 3)
    ]
    times = {
        "startingOffsetsByTimestamp": '{"orders": {"0": 1500}}',
        "endingOffsetsByTimestamp": '{"orders": {"0": 1500}}',
    }
    assert plan_ranges(broker, **times) == []


def test_from_what_a_group_has_read(broker: Broker) -> None:
    produce_records(broker, 9)
    commit_offsets(broker, "billing", {p(0): 4})
    given = {"startingOffsets": "committed", "kafka__group__id": "billing"}
    assert plan_ranges(broker, **given) == [OffsetRange(p(0), 4, 9)]


def test_nothing_matches(broker: Broker) -> None:
    assert plan_ranges(broker, subscribePattern="orders") == []
    assert plan_ranges(broker, assign="{}") == []


def test_a_topic_that_is_missing_is_named(broker: Broker) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic 'orders'"):
        plan_ranges(broker)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: latest leaves nothing to read"),
        ({"endingOffsets": "earliest"}, "endingOffsets: earliest leaves nothing to read"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets: -1 .* for orders-0"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets: -2 .* for orders-0"),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "startingTimestamp: 9 is later than endingTimestamp, which is 8",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders": {"0": 9}}',
                "endingOffsetsByTimestamp": '{"orders": {"0": 8}}',
            },
            "startingOffsetsByTimestamp: later than endingOffsetsByTimestamp for orders-0",
        ),
        (
            {
                "startingOffsets": '{"orders": {"0": 5}}',
                "endingOffsets": '{"orders": {"0": 4}}',
                "failOnDataLoss": "false",
            },
            "orders-0: the starting offset 5 is after the end by endingOffsets",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 50}}', "failOnDataLoss": "false"},
            "orders-0: the starting offset 50 is after the end of the log, 9",
        ),
    ],
)
def test_a_query_that_cannot_be_meant_is_refused(
    broker: Broker, given: dict[str, str], message: str
) -> None:
    produce_records(broker, 9)
    with pytest.raises(InputError, match=message):
        plan_ranges(broker, **given)


def test_a_range_that_is_gone_is_lost(broker: Broker) -> None:
    produce_records(broker, 9, 9)
    delete_records_before(broker, p(0), 6)
    given = {"endingOffsets": '{"orders": {"0": 4, "1": 4}}'}
    with pytest.raises(DataLost, match="reading should start at offset 6, and the end by"):
        plan_ranges(broker, **given)
    assert plan_ranges(broker, failOnDataLoss="false", **given) == [OffsetRange(p(1), 0, 4)]


def test_commits_behind_the_end_are_lost(broker: Broker) -> None:
    produce_records(broker, 9)
    commit_offsets(broker, "billing", {p(0): 30})
    given = {"startingOffsets": "committed", "kafka__group__id": "billing"}
    with pytest.raises(DataLost, match="reading should start at offset 30, and the end of"):
        plan_ranges(broker, **given)
    assert plan_ranges(broker, failOnDataLoss="false", **given) == []


def test_columns_cannot_be_chosen(broker: Broker) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    chosen = StructType().add("value", "string")
    message = r"schema\(...\): the columns are fixed"
    with pytest.raises(InputError, match=message):
        RotaDataSource(given).reader(chosen)
    with pytest.raises(InputError, match=message):
        RotaDataSource(given).streamReader(chosen).initialOffset()
