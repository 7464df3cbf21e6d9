"""A real Kafka's folder is taken over by Rota, and given back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

import rota
from rota.broker.storage.log_directory import DirectoryLock
from rota.errors import InputError, Unreachable
from tests.support.kafka import KafkaBroker
from tests.support.waiting import wait_until

MONTH = 30 * 86_400 * 1_000
WAIT = 60
TOPICS = {"kept": 3, "latest": 1}
COUNT = 50


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    # what its server.properties say is in no folder
    running = KafkaBroker(tmp_path, {"log.retention.ms": "-1"})
    yield running
    running.stop()


def client(port: int) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": f"127.0.0.1:{port}"}


def produce_and_commit(port: int) -> None:
    """Topics with records of a month ago, and a group that has read some of them."""
    topics = [NewTopic(name, count, 1) for name, count in TOPICS.items()]
    topics[1].config = {"cleanup.policy": "compact"}
    admin = AdminClient(client(port))
    for made in admin.create_topics(topics).values():
        made.result(WAIT)
    producer = Producer({**client(port), "enable.idempotence": True})
    old = int(time.time() * 1_000) - MONTH
    for topic, partitions in TOPICS.items():
        for row in range(COUNT):
            producer.produce(topic, str(row), "same", row % partitions, timestamp=old)
    assert producer.flush(WAIT) == 0
    consumer = Consumer({**client(port), "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("kept", 1, 7)], asynchronous=False)
    consumer.close()


def count_records(port: int) -> dict[str, int]:
    """How many records a client gets of each topic."""
    consumer = Consumer(
        {
            **client(port),
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found = {}
    for topic, partitions in TOPICS.items():
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        ended, found[topic] = 0, 0
        while ended < partitions:
            message = consumer.poll(WAIT)
            assert message is not None
            ended += message.error() is not None
            found[topic] += message.error() is None
    consumer.close()
    return found


def wait_for_unlock(data: Path) -> Path:
    """The folder, once the Kafka that has ended has no lock on it any more."""

    def free() -> bool:
        try:
            DirectoryLock(data).release()
        except Unreachable:
            return False
        return True

    wait_until("Kafka has no lock on its folder", free, seconds=WAIT)
    return data


def test_a_kafkas_folder_there_and_back(kafka: KafkaBroker, tmp_path: Path) -> None:
    data = tmp_path / "data"
    produce_and_commit(kafka.port)
    with pytest.raises(Unreachable, match="in use by another process"):
        rota.Broker(data, adopt=True).start()
    kafka.shut_down()
    meta = (data / "meta.properties").read_bytes()
    with rota.Broker(wait_for_unlock(data), adopt=True) as broker:
        assert broker.topics == TOPICS
        assert broker.committed("billing") == {("kept", 1): 7}
        broker.clock.advance(301)
        assert {topic: len(broker.read(topic)) for topic in TOPICS} == dict.fromkeys(TOPICS, COUNT)
        broker.produce("kept", "of Rota's")
        broker.create_topic("new")
    assert (data / "meta.properties").read_bytes() == meta
    kafka.restart()
    assert count_records(kafka.port) == {"kept": COUNT + 1, "latest": COUNT}
    admin = AdminClient(client(kafka.port))
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")])
    offsets = asked["billing"]
    assert [each.offset for each in offsets.result(WAIT).topic_partitions] == [7]
    admin.create_topics([NewTopic("later", 2, 1)])["later"].result(WAIT)
    assert not (data / "new-0").exists()  # a Kafka sets aside what it does not know
    kafka.shut_down()
    with pytest.raises(InputError, match="was last used by Kafka"):
        rota.Broker(wait_for_unlock(data)).start()
    with rota.Broker(data, adopt=True) as broker:
        assert broker.topics == {**TOPICS, "later": 2}


def test_a_kafka_that_was_killed_keeps_its_folder(kafka: KafkaBroker, tmp_path: Path) -> None:
    produce_and_commit(kafka.port)
    kafka.kill()
    with pytest.raises(InputError, match="runs or was not stopped cleanly"):
        rota.Broker(wait_for_unlock(tmp_path / "data"), adopt=True).start()
    kafka.restart()
    assert count_records(kafka.port) == dict.fromkeys(TOPICS, COUNT)
