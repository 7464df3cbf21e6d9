"""A task of the Spark source reads from a real Kafka: transactions, compaction, retention, a topic
made again, and a broker that is killed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from rota.engine.model.topic import TopicPartition
from rota.spark.plan import OffsetLookup, OffsetRange
from rota.spark.query import DataLost
from rota.spark.task import read_ranges
from tests.support.kafka import KafkaBroker
from tests.support.spark_topic import close_client_pool, read_rows, source_options
from tests.support.waiting import wait_until
from tests.system.kafka.test_fetcher import Topic

COMMITTED: dict[str, object] = {"kafka.isolation.level": "read_committed"}
GO_ON: dict[str, object] = {"failOnDataLoss": "false"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
    running = KafkaBroker(tmp_path_factory.mktemp("spark-read"), settings)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def close_kept_readers() -> Iterator[None]:
    yield
    close_client_pool()


def end_offset(topic: Topic, given: dict[str, object] | None = None) -> int:
    """Where a query would stop now."""
    with OffsetLookup(
        source_options(topic.bootstrap, {"subscribe": topic.name, **(given or {})})
    ) as lookup:
        return lookup.latest_offsets([topic[0]])[topic[0]]


def read_texts(
    topic: Topic, start: int, until: int, given: dict[str, object] | None = None
) -> list[str]:
    found = read_rows(topic.bootstrap, (topic[0], start, until), given=given)
    assert [row["offset"] for row in found] == sorted({row["offset"] for row in found})
    assert all(start <= row["offset"] < until for row in found)
    return [row["value"].decode() for row in found]


def write_transaction(topic: Topic, producer: Producer, text: str, *, commit: bool) -> None:
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic.name, f"{text} {number}", partition=0)
        producer.flush(20)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def transactional_producer(topic: Topic, name: str) -> Producer:
    made = Producer(
        {"bootstrap.servers": topic.bootstrap, "transactional.id": f"{topic.name}-{name}"}
    )
    made.init_transactions(20)
    return made


def test_transactions_end_a_range_wherever_it_ends(kafka: KafkaBroker) -> None:
    """Markers at 3 and 7; then an open transaction from 9 on."""
    topic = Topic(kafka)
    producer = transactional_producer(topic, "ended")
    write_transaction(topic, producer, "kept", commit=True)
    write_transaction(topic, producer, "dropped", commit=False)
    wait_until("the marker of the abort", lambda: end_offset(topic, COMMITTED) == 8)
    own = {at: f"kept {at}" for at in range(3)}
    for start, end in itertools.combinations(range(9), 2):
        found = read_texts(topic, start, end, COMMITTED)
        assert found == [own[at] for at in range(start, end) if at in own]
    topic.fill("plain")
    still = transactional_producer(topic, "open")
    still.begin_transaction()
    still.produce(topic.name, "open", partition=0)
    assert still.flush(20) == 0
    assert (end_offset(topic, COMMITTED), end_offset(topic)) == (9, 10)
    assert read_texts(topic, 0, 9, COMMITTED) == [*own.values(), "plain"]
    assert read_texts(topic, 4, 10) == ["dropped 0", "dropped 1", "dropped 2", "plain", "open"]
    still.abort_transaction(20)
    wait_until("the marker of the last one", lambda: end_offset(topic, COMMITTED) == 11)
    assert read_texts(topic, 4, 11, COMMITTED) == ["plain"]
    info: dict[str, object] = {"includeBatchInfo": "true"}
    every = read_rows(topic.bootstrap, (topic[0], 0, 11), given=info)
    assert [row["offset"] for row in every if row["control"]] == [3, 7, 10]


def test_compaction_leaves_gaps(kafka: KafkaBroker) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.0",
        "delete.retention.ms": "0",
    }
    topic = Topic(kafka, 1, **config)
    for number in range(20):
        topic.producer.produce(topic.name, f"{number}", key=f"{number % 2}", partition=0)
        assert topic.producer.flush(20) == 0
    time.sleep(0.6)  # the next begins a new segment
    topic.producer.produce(topic.name, "last", key="last", partition=0)
    assert topic.producer.flush(20) == 0
    wait_until("compaction", lambda: read_texts(topic, 0, 21) == ["18", "19", "last"])
    for start, end in ((0, 18), (0, 1), (5, 9), (17, 18)):
        assert read_texts(topic, start, end) == []
    assert read_texts(topic, 3, 19) == ["18"]


def test_records_that_are_deleted(kafka: KafkaBroker) -> None:
    topic = Topic(kafka)
    topic.fill(*(str(number) for number in range(10)))
    topic.delete_records(6)
    with pytest.raises(DataLost, match="from offset 2 to 10: the log now begins at 6"):
        read_texts(topic, 2, 10)
    assert read_texts(topic, 2, 10, GO_ON) == ["6", "7", "8", "9"]
    assert read_texts(topic, 2, 5, GO_ON) == []


def test_a_topic_that_is_deleted_and_made_again(kafka: KafkaBroker) -> None:
    topic = Topic(kafka)
    topic.fill("a", "b", "c")
    assert read_texts(topic, 0, 3) == ["a", "b", "c"]
    topic.delete()
    gone: dict[str, object] = {"kafkaConsumer.pollTimeoutMs": 2_000}
    with pytest.raises(DataLost, match="the partition does not exist"):
        read_texts(topic, 0, 3, gone)
    assert read_texts(topic, 0, 3, gone | GO_ON) == []
    topic.create()
    topic.fill("again")
    with pytest.raises(DataLost, match="the log now ends at 1"):
        read_texts(topic, 1, 3)
    assert read_texts(topic, 0, 3, GO_ON) == ["again"]


def test_a_broker_that_is_killed_and_comes_back(kafka: KafkaBroker) -> None:
    """The rest of a task is read from it after that."""
    topic = Topic(kafka, 2)
    for partition in (0, 1):
        topic.fill(*(str(number) for number in range(30)), partition=partition)
    given: dict[str, object] = {"kafka.max.partition.fetch.bytes": 200}
    task = tuple(OffsetRange(TopicPartition(topic.name, number), 0, 30) for number in (0, 1))
    reading = read_ranges(task, source_options(topic.bootstrap, given))
    found = next(reading).to_pylist()
    back = threading.Thread(target=kafka.restart)
    back.start()
    try:
        found += [row for batch in reading for row in batch.to_pylist()]
    finally:
        back.join()
    places = sorted((row["partition"], int(row["value"])) for row in found)
    assert places == [(number, at) for number in (0, 1) for at in range(30)]
