"""Real clients at work while a broker suffers, and a note of all they see."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.system.crash.history import (
    NEVER,
    CommitAttempt,
    Final,
    History,
    OffsetLookup,
    ReadValue,
    SentValue,
)

TOPIC, GROUP = "t", "g"
PATIENCE = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "socket.timeout.ms": 5_000,
    "log_level": 0,
}


def create_topic(servers: str, partitions: int, topic: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": servers, **PATIENCE})
    for future in admin.create_topics([NewTopic(topic, partitions)]).values():
        future.result(20)


class Client(threading.Thread):
    """Runs until :meth:`end`; ``.failures`` lists unexpected results."""

    def __init__(self, number: int, seed: int, history: History) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.number = number
        self.chance = random.Random(f"{seed}/{number}")
        self.history = history
        self.failures: list[str] = []
        self._told = threading.Event()

    def end(self) -> None:
        self._told.set()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 it is told, at the end
            self.failures.append(f"{self.name}: {type(error).__name__}: {error}")

    def work(self) -> None:
        raise NotImplementedError


class Writer(Client):
    """An idempotent producer with many batches under way."""

    def __init__(
        self,
        number: int,
        seed: int,
        history: History,
        *,
        servers: str,
        partitions: int,
        topic: str = TOPIC,
    ) -> None:
        super().__init__(number, seed, history)
        self.acknowledged = 0
        self._topic = topic
        self._partitions = partitions
        self._open: dict[int, SentValue] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                **PATIENCE,
            }
        )

    def work(self) -> None:
        number = 0
        while not self._told.is_set():
            for _ in range(self.chance.choice((1, 5, 50))):
                self._send(number)
                number += 1
            self._producer.poll(self.chance.choice((0, 0.01, 0.05)))
            time.sleep(0.01)
        self._producer.flush(60)
        self.history.written.extend(self._open.values())

    def _send(self, number: int) -> None:
        value = f"{self.number}-{number}"
        partition = self.chance.randrange(self._partitions)
        size = self.chance.choices((10, 100, 1_000, 50_000), weights=(30, 60, 9, 1))[0]
        self._open[number] = SentValue(
            self.number, number, value, partition, began=time.monotonic()
        )
        try:
            self._producer.produce(
                self._topic,
                value.ljust(size),
                partition=partition,
                on_delivery=partial(self._delivered, number),
            )
        except BufferError:  # its queue is full: the broker was away for long
            del self._open[number]
            self._producer.poll(0.05)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        sent = self._open.pop(number)
        if error is not None:
            self.failures.append(f"{self.name}: {sent.value} was not delivered: {error}")
            self.history.written.append(sent)
            return
        self.acknowledged += 1
        self.history.written.append(
            SentValue(
                sent.writer,
                sent.number,
                sent.value,
                sent.partition,
                sent.began,
                time.monotonic(),
                message.offset(),
            )
        )


class Reader(Client):
    """A member of the group: reads, commits what it has read, and asks now and then."""

    def __init__(self, number: int, seed: int, history: History, *, servers: str) -> None:
        super().__init__(number, seed, history)
        self.committed = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 10,
                **PATIENCE,
            }
        )

    def work(self) -> None:
        self._consumer.subscribe([TOPIC])
        try:
            while not self._told.is_set():
                self._read()
                if self.chance.random() < 0.2:
                    self._ask()
        finally:
            self._consumer.close()

    def _read(self) -> None:
        positions: dict[int, int] = {}
        for message in self._consumer.consume(200, 0.03):
            error = message.error()
            if error is not None:
                if error.fatal():
                    self.failures.append(f"{self.name}: {error}")
                continue
            partition, offset, value = message_position(message)
            self.history.read.append(
                ReadValue(self.number, partition, offset, value, time.monotonic())
            )
            positions[partition] = offset + 1
        if positions:
            self._commit(positions)

    def _commit(self, positions: dict[int, int]) -> None:
        began = time.monotonic()
        offsets = [TopicPartition(TOPIC, each, offset) for each, offset in positions.items()]
        done: set[int] = set()
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
            done = {each.partition for each in answers or () if each.error is None}
        except KafkaException:
            pass  # it may have been stored or not
        self.committed += len(done)
        ended = time.monotonic()
        self.history.committed.extend(
            CommitAttempt(self.number, each, offset, began, ended if each in done else NEVER)
            for each, offset in positions.items()
        )

    def _ask(self) -> None:
        for own in self._consumer.assignment():
            partition = own.partition
            self._note("end", partition, partial(self._end, own))
            self._note("committed", partition, partial(self._group_offset, own))

    def _note(self, what: str, partition: int, ask: Callable[[], int]) -> None:
        began = time.monotonic()
        try:
            offset = ask()
        except KafkaException:
            return
        asked = OffsetLookup(what, partition, offset, began, time.monotonic())
        self.history.asked.append(asked)

    def _end(self, partition: TopicPartition) -> int:
        end: int = self._consumer.get_watermark_offsets(partition, timeout=1)[1]
        return end

    def _group_offset(self, partition: TopicPartition) -> int:
        (found,) = self._consumer.committed([partition], timeout=1)
        if found.error is not None:
            raise KafkaException(found.error)
        return max(found.offset, -1)


def read_all(servers: str, partitions: int, topic: str = TOPIC) -> Final:
    """Everything that is there, by a consumer that belongs to no group."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **PATIENCE,
        }
    )
    found: dict[int, list[tuple[int, str]]] = {each: [] for each in range(partitions)}
    left = set(found)
    consumer.assign([TopicPartition(topic, each, 0) for each in found])
    try:
        end = time.monotonic() + 60
        while left and time.monotonic() < end:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    partition, offset, value = message_position(message)
                    found[partition].append((offset, value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left -= {message.partition() or 0}
    finally:
        consumer.close()
    assert not left, f"partitions {sorted(left)} could not be read to their end"
    return found


def message_position(message: Message) -> tuple[int, int, str]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    return partition, offset, "" if value is None else value.decode().rstrip()
