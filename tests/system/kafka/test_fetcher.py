"""Reading from a real Kafka, where it does what Rota's broker does not, or may do it otherwise."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import NoOffset
from tests.support.fetching import Reader, record_values
from tests.support.kafka import KafkaBroker


class Topic:
    """A topic of a test's own."""

    def __init__(self, broker: KafkaBroker, partitions: int = 1, **config: str) -> None:
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self.name = f"fetched-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.partitions, self.config = partitions, config
        self.create()
        self.producer = Producer({"bootstrap.servers": self.bootstrap})

    def __getitem__(self, number: int) -> TopicPartition:
        return TopicPartition(self.name, number)

    def create(self) -> None:
        made = NewTopic(self.name, self.partitions, 1, config=self.config)
        wait_for_all(self.admin.create_topics([made]))

    def delete(self) -> None:
        wait_for_all(self.admin.delete_topics([self.name]))

    def grow(self, partitions: int) -> None:
        wait_for_all(self.admin.create_partitions([NewPartitions(self.name, partitions)]))

    def delete_records(self, before: int) -> None:
        wait_for_all(self.admin.delete_records([Partition(self.name, 0, before)]))

    def fill(self, *texts: str, partition: int = 0) -> None:
        """One batch for each text."""
        for text in texts:
            self.producer.produce(self.name, text, partition=partition)
            assert self.producer.flush(20) == 0


def wait_for_all(futures: dict[Any, Future[Any]]) -> None:
    for each in futures.values():
        each.result(20)


def run_transactions(topic: Topic) -> None:
    """One that is committed, and one that is aborted."""
    own = {"bootstrap.servers": topic.bootstrap, "transactional.id": f"{topic.name}-1"}
    producer = Producer(own)
    producer.init_transactions(20)
    for text, end in (
        ("kept", producer.commit_transaction),
        ("dropped", producer.abort_transaction),
    ):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic.name, f"{text} {number}", partition=0)
        producer.flush(20)
        end(20)


def test_only_what_is_committed(broker: KafkaBroker) -> None:
    topic = Topic(broker)
    run_transactions(topic)
    topic.fill("plain")
    still = Producer({"bootstrap.servers": topic.bootstrap, "transactional.id": f"{topic.name}-2"})
    still.init_transactions(20)
    still.begin_transaction()
    still.produce(topic.name, "open", partition=0)
    assert still.flush(20) == 0
    topic.fill("behind it")

    async def read(isolation: str, count: int) -> tuple[list[str], int]:
        async with Reader(topic.bootstrap, isolation=isolation) as reader:
            reader.fetcher.assign([topic[0]])
            found = record_values(await reader.read(count))
            assert await reader.poll(0.6) == []
            assert reader.fetcher.lag(topic[0]) == 0
            return found, reader.fetcher.consumed_positions()[topic[0]].offset

    kept = [f"kept {number}" for number in range(3)]
    found, behind = asyncio.run(read("read_committed", 4))
    assert found == [*kept, "plain"]
    assert behind == 9  # three and a marker, twice, and one
    dropped = [f"dropped {number}" for number in range(3)]
    found, behind = asyncio.run(read("read_uncommitted", 9))
    assert found == [*kept, *dropped, "plain", "open", "behind it"]
    assert behind == 11
    still.abort_transaction(20)


def test_records_deleted_past_the_position(broker: KafkaBroker) -> None:
    topic = Topic(broker)
    topic.fill(*(str(number) for number in range(10)))

    async def read(reset: str) -> list[str]:
        async with Reader(topic.bootstrap, auto_offset_reset=reset) as reader:
            reader.fetcher.assign([topic[0]])
            reader.fetcher.seek(topic[0], OffsetAndMetadata(2))
            return record_values(await reader.read(4))

    topic.delete_records(6)
    assert asyncio.run(read("earliest")) == ["6", "7", "8", "9"]
    with pytest.raises(NoOffset, match=f"offset 2 of {topic[0]} is out of range"):
        asyncio.run(read("none"))


def test_an_epoch_that_the_log_does_not_have_is_a_truncation(broker: KafkaBroker) -> None:
    topic = Topic(broker)
    topic.fill("a", "b", "c")

    async def read(reset: str, at: OffsetAndMetadata) -> list[str]:
        async with Reader(topic.bootstrap, auto_offset_reset=reset) as reader:
            reader.fetcher.assign([topic[0]])
            reader.fetcher.seek(topic[0], at)
            return record_values(await reader.poll())

    assert asyncio.run(read("none", OffsetAndMetadata(1, "", 0))) == ["b", "c"]
    # epoch 0 ends at 3: what was read up to 5 in it is not in this log
    with pytest.raises(NoOffset, match="below offset 5.*at offset 3 of epoch 0"):
        asyncio.run(read("none", OffsetAndMetadata(5, "", 0)))


def test_partitions_that_are_added(broker: KafkaBroker) -> None:
    topic = Topic(broker)

    async def read() -> None:
        async with Reader(topic.bootstrap) as reader:
            reader.fetcher.assign([topic[0], topic[1]])
            assert await reader.poll(0.2) == []
            await asyncio.to_thread(topic.grow, 2)
            await asyncio.to_thread(topic.fill, "new", partition=1)
            assert record_values(await reader.read(1)) == ["new"]

    asyncio.run(read())


def test_a_topic_that_is_deleted_and_made_again(broker: KafkaBroker) -> None:
    topic = Topic(broker)
    topic.fill("a", "b", "c")

    async def read() -> None:
        async with Reader(topic.bootstrap, client={"create_topics": False}) as reader:
            reader.fetcher.assign([topic[0]])
            assert len(await reader.read(3)) == 3
            await asyncio.to_thread(topic.delete)
            assert await reader.poll(0.5) == []
            await asyncio.to_thread(topic.create)
            await asyncio.to_thread(topic.fill, "again")
            assert record_values(await reader.read(1)) == ["again"]

    asyncio.run(read())


def test_batches_larger_than_the_limits_come_one_by_one(broker: KafkaBroker) -> None:
    topic = Topic(broker, 2)
    texts = [str(number) * 50_000 for number in range(6)]
    for partition in (0, 1):
        topic.fill(*texts, partition=partition)

    async def read() -> None:
        async with Reader(
            topic.bootstrap, max_partition_bytes=1_000, fetch_max_bytes=1_000
        ) as reader:
            reader.fetcher.assign([topic[0], topic[1]])
            found = await reader.read(12)
            for number in (0, 1):
                assert record_values(each for each in found if each.partition == number) == texts

    asyncio.run(read())


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_and_answers_cut_at_their_end(broker: KafkaBroker, codec: str) -> None:
    topic = Topic(broker, 1)
    producer = Producer(
        {"bootstrap.servers": topic.bootstrap, "compression.type": codec, "linger.ms": 50}
    )
    texts = [f"{number} {uuid.uuid4()}" for number in range(3_000)]
    for text in texts:
        producer.produce(topic.name, text, partition=0)
    assert producer.flush(20) == 0

    async def read() -> None:
        async with Reader(topic.bootstrap, max_partition_bytes=10_000) as reader:
            reader.fetcher.assign([topic[0]])
            assert record_values(await reader.read(3_000)) == texts

    asyncio.run(read())
