"""The topics that both sources are asked about."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.kafka import KafkaBroker
from tests.support.waiting import wait_until

WAIT = 30
SETTINGS = {
    "log.retention.ms": "-1",  # records of these tests are of old times
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "transaction.state.log.num.partitions": "1",
}
#: Connections that end with the broker are not worth a line.
QUIET = {"log_level": 0}
#: The time of the first record; the following ones are a second apart.
START = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class KafkaTopics:
    """A broker, and the methods that create and fill its topics."""

    def __init__(self, broker: KafkaBroker, folder: Path) -> None:
        self.servers = f"127.0.0.1:{broker.port}"
        self._data = folder / "data"
        self._admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        self._producer = self.producer()

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 5, **QUIET, **settings})

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        config_texts = {key.replace("_", "."): value for key, value in config.items()}
        wait_for_all(
            self._admin.create_topics([NewTopic(topic, partitions, 1, config=config_texts)])
        )
        return topic

    def delete(self, topic: str) -> None:
        wait_for_all(self._admin.delete_topics([topic]))
        wait_until("deletion", lambda: topic not in self._admin.list_topics(timeout=WAIT).topics)

    def grow(self, topic: str, partitions: int) -> None:
        wait_for_all(self._admin.create_partitions([NewPartitions(topic, partitions)]))
        self._producer = self.producer()  # one that knows a topic learns of a partition much later

    def expire(self, topic: str, before: int, partition: int = 0) -> None:
        """Retention has taken what was before."""
        wait_for_all(self._admin.delete_records([Partition(topic, partition, before)]))

    def fill(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        at: int = START,
        step: int = 1_000,
        name: str = "",
        producer: Producer | None = None,
    ) -> None:
        """Records with numbers for values, of times that are apart."""
        producer = producer or self._producer
        for number in range(count):
            producer.produce(
                topic, f"{name}{number}", f"k{number}", partition, timestamp=at + number * step
            )
        assert producer.flush(WAIT) == 0

    def send(self, topic: str, records: Sequence[dict[str, Any]]) -> None:
        """Records of any form, all into the first partition."""
        for number, record in enumerate(records):
            fields = {"timestamp": START + number, **record}
            self._producer.produce(topic, partition=0, **fields)
        assert self._producer.flush(WAIT) == 0

    def transact(self, topic: str, *ends: str, count: int = 3) -> None:
        """Transactions, one after the other, each ended as told or left open."""
        producer = self.producer(
            # an open one is to stay so for as long as the tests run
            **{"transactional.id": f"{topic}-{'-'.join(ends)}", "transaction.timeout.ms": 900_000}
        )
        producer.init_transactions(WAIT)
        for number, end in enumerate(ends):
            producer.begin_transaction()
            self.fill(topic, count, name=f"{end} {number}.", producer=producer)
            match end:
                case "commit":
                    producer.commit_transaction(WAIT)
                case "abort":
                    producer.abort_transaction(WAIT)
                case _:
                    self.left_open = producer

    def compact(self, topic: str) -> None:
        """Rounds of records of the same keys, of which the last of each is kept."""
        apart = 10_000
        for number in range(4):
            at = int(time.time() * 1_000) + number * apart
            self.send(
                topic,
                [
                    {"key": key, "value": f"{key}{number}", "timestamp": at}
                    for key in ("a", f"kept {number}", "b", "a")
                ],
            )
        # the last segment is never compacted, and is of the last round alone
        wait_until("compaction", lambda: self._cleaned(topic) >= 12)

    def _cleaned(self, topic: str) -> int:
        lines = (self._data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        points = {line.split()[0]: int(line.split()[2]) for line in lines}
        return points.get(topic, 0)

    def commit(self, group: str, *offsets: Partition) -> None:
        """A group has committed; for that the broker has an internal topic."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        consumer.commit(offsets=list(offsets), asynchronous=False)
        consumer.close()


def create_all_topics(kafka_topics: KafkaTopics) -> None:
    """Creates the topics that tests only read."""
    kafka_topics.create("orders", 3)
    kafka_topics.fill("orders", 10)
    kafka_topics.fill("orders", 4, partition=1)
    kafka_topics.fill(kafka_topics.create("returns"), 3)
    kafka_topics.create("timed", 2)
    kafka_topics.fill("timed", 10)
    kafka_topics.fill("timed", 5, partition=1, step=2_000)
    kafka_topics.create("skewed", 3)
    for partition, count in enumerate((100, 10, 1)):
        kafka_topics.fill("skewed", count, partition=partition)
    kafka_topics.create("empty", 2)
    kafka_topics.create("codecs", len(CODECS))
    for partition, codec in enumerate(CODECS):
        squeezed = kafka_topics.producer(**{"compression.type": codec})
        kafka_topics.fill("codecs", 30, partition=partition, producer=squeezed, name="much alike ")
    kafka_topics.fill(kafka_topics.create("appended", message_timestamp_type="LogAppendTime"), 5)
    kafka_topics.send(kafka_topics.create("kinds"), KINDS)
    kafka_topics.create("ledger")
    kafka_topics.transact("ledger", "commit", "abort", "commit", "abort")
    kafka_topics.create("pending")
    kafka_topics.fill("pending", 2)
    kafka_topics.transact("pending", "open")
    kafka_topics.fill("pending", 2)
    kafka_topics.create("aged", 2)
    kafka_topics.fill("aged", 10)
    kafka_topics.fill("aged", 10, partition=1)
    kafka_topics.expire("aged", 6)
    kafka_topics.create(
        "compacted",
        cleanup_policy="compact",
        segment_ms="5000",
        min_cleanable_dirty_ratio="0.0",
    )
    kafka_topics.compact("compacted")
    kafka_topics.commit("seen", Partition("orders", 0, 4))


KINDS: list[dict[str, Any]] = [
    {"key": None, "value": "no key"},
    {"key": "", "value": "an empty key"},
    {"key": "no value", "value": None},
    {"key": "an empty value", "value": ""},
    {"key": None, "value": None},
    {"key": b"\x00\xff", "value": bytes(range(256))},
    {"key": "é", "value": "naïve ☕"},
    {"value": "one", "headers": [("name", b"value")]},
    {"value": "the same twice", "headers": [("name", b"1"), ("other", b"2"), ("name", b"3")]},
    {"value": "a header without a value", "headers": [("name", None)]},
    {"value": "a header with an empty value", "headers": [("name", b"")]},
    {"value": "a header without a name", "headers": [("", b"value")]},
    {"value": "x" * 100_000, "headers": [("é", bytes(300))]},
]


def wait_for_all(futures: dict[Any, Future[Any]]) -> None:
    for each in futures.values():
        each.result(WAIT)
