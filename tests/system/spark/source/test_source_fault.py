"""Queries of ``format("rota")`` while brokers fail, and records are lost."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import rota
import rota.spark
from tests.support.waiting import wait_until
from tests.system.spark.source.held_fetches import HeldFetches

Given = dict[str, object]
GO_ON: Given = {"failOnDataLoss": "false"}
SOON: Given = {
    "kafka.default.api.timeout.ms": 700,
    "kafka.request.timeout.ms": 600,
    "fetchOffset.numRetries": 1,
    "kafkaConsumer.pollTimeoutMs": 700,
}


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    """Ten records in each of two partitions."""
    with rota.Broker() as running:
        running.create_topic("t", 2)
        fill(running, 10)
        yield running


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    rota.spark.register(spark)
    return spark


def fill(broker: rota.Broker, count: int, partitions: int = 2) -> None:
    for partition in range(partitions):
        for row in range(count):
            broker.produce("t", f"{row}", partition=partition)


def load_rows(spark: SparkSession, servers: str, given: Given | None = None) -> DataFrame:
    asked: Given = {"kafka.bootstrap.servers": servers, "subscribe": "t", **(given or {})}
    return spark.read.format("rota").options(**asked).load()  # type: ignore[arg-type]


def row_offsets(rows: DataFrame) -> list[tuple[int, int]]:
    found = rows.select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in found)


def stream_rows(spark: SparkSession, servers: str, folder: Path, **given: object) -> list[Any]:
    """The rows that a query reads, from its checkpoint on to what there is now."""
    found: list[Any] = []
    rows = (
        spark.readStream.format("rota")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .options(**given)  # type: ignore[arg-type]
        .load()
    )
    query = (
        rows.writeStream.option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .foreachBatch(lambda batch, _: found.extend(row_offsets(batch)))
        .start()
    )
    query.awaitTermination()
    return sorted(found)


def expected_offsets(count: int, *, start: int = 0, partitions: int = 2) -> list[tuple[int, int]]:
    return [(number, at) for number in range(partitions) for at in range(start, count)]


def delete_records_before(broker: rota.Broker, partition: int, before: int) -> None:
    broker._call(
        lambda node, now: node.context.topics.delete_records_before({("t", partition): before})
    )


# A batch query


@pytest.mark.parametrize("back", [True, False])
def test_a_broker_ends_while_a_task_reads(
    spark: SparkSession, broker: rota.Broker, *, back: bool
) -> None:
    servers, held = broker.bootstrap_servers, HeldFetches(broker, 4)

    def act() -> None:
        if not held.wait():
            return
        if back:
            broker.restart()
        else:
            broker.stop()

    acting = threading.Thread(target=act)
    acting.start()
    given: Given = {"slots": 1, "kafka.max.partition.fetch.bytes": 100}
    rows = load_rows(spark, servers, given if back else given | SOON)
    try:
        if back:
            assert row_offsets(rows) == expected_offsets(10)
        else:
            missing = "no progress from offset"
            with pytest.raises(PySparkException, match=missing) as caught:
                row_offsets(rows)
            text = str(caught.value)
            assert "(kafkaConsumer.pollTimeoutMs)" in text
            assert servers in text
    finally:
        held.ended = True
        acting.join()


def test_what_a_task_refuses_reaches_the_user(spark: SparkSession, broker: rota.Broker) -> None:
    servers = broker.bootstrap_servers
    broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(PySparkException, match="no permission to read topic 't'"):
        row_offsets(load_rows(spark, servers))
    delete_records_before(broker, 0, 4)
    given: Given = {"startingOffsets": '{"t": {"0": 2, "1": 0}}'}
    with pytest.raises(PySparkException, match="t-0 .*begins at 4"):
        row_offsets(load_rows(spark, servers, given))
    assert row_offsets(load_rows(spark, servers, given | GO_ON)) == expected_offsets(10)[4:]
    broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=3)
    assert len(load_rows(spark, servers).limit(1).collect()) == 1
    assert row_offsets(load_rows(spark, servers)) == expected_offsets(10)[4:]


# A stream


def test_partitions_come_and_records_go(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    assert stream_rows(spark, servers, tmp_path) == expected_offsets(10)
    broker.create_partitions("t", 3)
    broker.produce("t", "new", partition=2)
    assert stream_rows(spark, servers, tmp_path) == [(2, 0)]
    fill(broker, 10)
    delete_records_before(broker, 0, 15)
    with pytest.raises(
        PySparkException, match="t-0 from offset 10 to 20: the log now begins at 15"
    ):
        stream_rows(spark, servers, tmp_path)
    left = expected_offsets(20, start=10)[5:]
    assert stream_rows(spark, servers, tmp_path, **GO_ON) == left
    assert stream_rows(spark, servers, tmp_path) == []


def test_a_topic_is_deleted_and_made_again(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    assert stream_rows(spark, servers, tmp_path) == expected_offsets(10)
    broker.delete_topic("t")
    broker.create_topic("t", 2)
    fill(broker, 4)
    with pytest.raises(PySparkException, match="t-0: went back from offset 10 to 4"):
        stream_rows(spark, servers, tmp_path)
    assert stream_rows(spark, servers, tmp_path, **GO_ON) == []
    fill(broker, 2)
    assert stream_rows(spark, servers, tmp_path) == expected_offsets(6, start=4)


def test_a_broker_is_down_while_a_stream_looks_for_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[tuple[int, int]] = []
    with rota.Broker(tmp_path / "data") as broker:
        broker.create_topic("t", 2)
        fill(broker, 5)
        servers = broker.bootstrap_servers
        rows = (
            spark.readStream.format("rota")
            .options(**{"kafka.bootstrap.servers": servers, "subscribe": "t"})
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda batch, _: found.extend(row_offsets(batch)))
            .start()
        )
        try:
            wait_for(query, lambda: len(found) >= 10)
            broker.restart()
            fill(broker, 3)
            wait_for(query, lambda: len(found) >= 16)
        finally:
            query.stop()
        assert sorted(found) == expected_offsets(8)
    with pytest.raises(PySparkException, match=re.escape(servers)):
        stream_rows(spark, servers, tmp_path / "checkpoint", **SOON)


def wait_for(query: Any, done: Any, what: str = "the query has read this") -> None:
    """Wait for something that a query does. Raise the query's error if it ends with one."""
    wait_until(
        what,
        lambda: done() or not query.isActive,
        lambda: query.status,
        seconds=120,
    )
    if (error := query.exception()) is not None:
        raise error
