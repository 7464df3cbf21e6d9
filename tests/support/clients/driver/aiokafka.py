"""aiokafka, told what to do: everything runs on one event loop, in a thread of its own."""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# (the library has no types)
from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaConnectionError, for_code

from tests.support.clients.driver.base import (
    PATIENCE,
    Library,
    LogCapture,
    MemberState,
    deadline,
    describe,
    run,
)

STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
LOOP = asyncio.new_event_loop()


def wait(work: Coroutine[Any, Any, Any]) -> Any:
    """Have the loop do it."""
    return asyncio.run_coroutine_threadsafe(work, LOOP).result(PATIENCE)


class AioKafka(Library):
    """aiokafka."""

    def hello(self) -> str:
        return str(aiokafka.__version__)

    def settings(self) -> dict[str, Any]:
        given: dict[str, Any] = {"bootstrap_servers": self.servers}
        if self.security is not None:
            given["security_protocol"] = self.security["protocol"]
            if "ca" in self.security:
                given["ssl_context"] = ssl.create_default_context(cafile=self.security["ca"])
            if "mechanism" in self.security:
                given["sasl_mechanism"] = self.security["mechanism"]
                given["sasl_plain_username"] = self.security["username"]
                given["sasl_plain_password"] = self.security["password"]
        return given

    def produce(
        self,
        topic: str,
        records: list[dict[str, Any]],
        codec: str | None = None,
        idempotent: bool = False,
        create: bool = False,
        hurry: bool = False,
    ) -> list[list[int]]:
        chosen: dict[str, Any] = {}
        if codec not in {None, "none"}:
            chosen["compression_type"] = codec
        if idempotent:
            chosen["enable_idempotence"] = True
        return wait(self._produce(topic, records, chosen))

    async def _produce(
        self, topic: str, records: list[dict[str, Any]], chosen: dict[str, Any]
    ) -> list[list[int]]:
        producer = AIOKafkaProducer(**self.settings(), **chosen)
        try:
            with LogCapture("aiokafka") as said:
                try:
                    await producer.start()
                except KafkaConnectionError as error:
                    raise RuntimeError(f"{error}; logged: {said}") from error
            sent = [
                await producer.send(
                    topic,
                    key=encode_text(record["key"]),
                    value=encode_text(record["value"]),
                    headers=[(name, encode_text(value)) for name, value in record["headers"]],
                    partition=record["partition"],
                    timestamp_ms=record["timestamp"],
                )
                for record in records
            ]
            done = [await future for future in sent]
            return [[each.partition, each.offset] for each in done]
        finally:
            await producer.stop()

    def read(self, topic: str, partitions: int, count: int) -> list[dict[str, Any]]:
        return wait(self._read(topic, partitions, count))

    async def _read(self, topic: str, partitions: int, count: int) -> list[dict[str, Any]]:
        consumer = AIOKafkaConsumer(**self.settings(), auto_offset_reset="earliest")
        found: list[dict[str, Any]] = []
        in_time = deadline()
        try:
            await consumer.start()
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            while len(found) < count:
                in_time()
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found += map(record_json, records)
        finally:
            await consumer.stop()
        return found

    def member_of(self, **wanted: Any) -> AioKafkaMember:
        return AioKafkaMember(self.settings(), **wanted)

    async def _ask(self, what: str, *args: Any) -> Any:
        admin = AIOKafkaAdminClient(**self.settings())
        try:
            await admin.start()
            return await getattr(admin, what)(*args)
        finally:
            await admin.close()

    def ask(self, what: str, *args: Any) -> Any:
        return wait(self._ask(what, *args))

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=configs)
        check_errors(self.ask("create_topics", [new]).topic_errors)

    def delete_topic(self, topic: str) -> None:
        check_errors(self.ask("delete_topics", [topic]).topic_error_codes)

    def grow_topic(self, topic: str, count: int) -> None:
        self.ask("create_partitions", {topic: NewPartitions(count)})

    def topics(self) -> list[str]:
        return self.ask("list_topics")

    def partitions(self, topic: str) -> int:
        return len(self.ask("describe_topics", [topic])[0]["partitions"])

    def describe_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self.ask("describe_configs", [resource])
        code, text, _, _, entries = answer.resources[0]
        check_errors([(text, code)])
        return {entry[0]: entry[1] for entry in entries}

    def alter_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        (answer,) = self.ask("alter_configs", [resource])
        check_errors([(text, code) for code, text, *_ in answer.resources])

    def groups(self) -> list[str]:
        return [found[0] for found in self.ask("list_consumer_groups")]

    def group(self, group: str) -> dict[str, Any]:
        (answer,) = self.ask("describe_consumer_groups", [group])
        code, _, state, _, _, members, *_ = answer.groups[0]
        check_errors([(group, code)])
        return {"state": state, "members": len(members)}

    def offsets(self, group: str, topic: str) -> list[list[int]]:
        found = self.ask("list_consumer_group_offsets", group)
        return [[at.partition, entry.offset] for at, entry in found.items()]

    def delete_records(self, topic: str, offsets: list[list[int]]) -> None:
        wanted = {TopicPartition(topic, n): RecordsToDelete(offset) for n, offset in offsets}
        self.ask("delete_records", wanted)

    def cluster(self) -> dict[str, Any]:
        found = self.ask("describe_cluster")
        brokers = [f"{each['host']}:{each['port']}" for each in found["brokers"]]
        return {"id": found["cluster_id"], "brokers": brokers}

    def log_offsets(self, topic: str, partitions: int, at: str | int) -> list[list[int]]:
        return wait(self._log_offsets(topic, partitions, at))

    async def _log_offsets(self, topic: str, partitions: int, at: str | int) -> list[list[int]]:
        consumer = AIOKafkaConsumer(**self.settings())
        places = [TopicPartition(topic, number) for number in range(partitions)]
        try:
            await consumer.start()
            if at == "earliest":
                found = await consumer.beginning_offsets(places)
            elif at == "latest":
                found = await consumer.end_offsets(places)
            else:
                timed = await consumer.offsets_for_times(dict.fromkeys(places, int(at)))
                found = {place: -1 if e is None else e.offset for place, e in timed.items()}
        finally:
            await consumer.stop()
        return [[place.partition, offset] for place, offset in found.items()]


class AioKafkaMember(ConsumerRebalanceListener):
    """A member of a group."""

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        group: str,
        topic: str,
        strategy: str | None = None,
        instance: str | None = None,
        session: int | None = None,
        heartbeat: int | None = None,
        manual: bool = False,
    ) -> None:
        self.seen = MemberState()
        self._topic = topic
        self._settings = {**settings, "group_id": group, "auto_offset_reset": "earliest"}
        if strategy is not None:
            self._settings["partition_assignment_strategy"] = [STRATEGIES[strategy]]
        if instance is not None:
            self._settings["group_instance_id"] = instance
        if session is not None:
            self._settings["session_timeout_ms"] = session
        if heartbeat is not None:
            self._settings["heartbeat_interval_ms"] = heartbeat
        if manual:
            self._settings["enable_auto_commit"] = False
        self._leaving = False
        self._ended = threading.Event()
        asyncio.run_coroutine_threadsafe(self._run(), LOOP)

    async def _run(self) -> None:
        try:
            self._consumer = AIOKafkaConsumer(**self._settings)
            self._consumer.subscribe([self._topic], listener=self)
            await self._consumer.start()
            while not self._leaving:
                for records in (await self._consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        self.seen.handle(record.partition, record.offset, record.value or b"")
                self.seen.assigned = [each.partition for each in self._consumer.assignment()]
            await self._consumer.stop()
        except Exception as error:  # noqa: BLE001 - told to whom asks
            self.seen.error = describe(error)
        finally:
            self._ended.set()

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing to do."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.seen.rebalances += 1

    def commit(self, how: str) -> None:
        """Commit where it is; both ways are the same call here."""
        wait(self._consumer.commit())

    def leave(self) -> None:
        """Stop the consumer."""
        self._leaving = True
        if not self._ended.wait(PATIENCE):
            raise TimeoutError("the member did not stop")
        if self.seen.error is not None:
            raise RuntimeError(self.seen.error)


def check_errors(errors: Any) -> None:
    """Raise what the broker refused."""
    for name, code, *_ in errors:
        if code:
            raise for_code(code)(name)


def encode_text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def record_json(record: Any) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "key": None if record.key is None else record.key.decode(),
        "value": None if record.value is None else record.value.decode(),
        "headers": [[n, None if v is None else v.decode()] for n, v in record.headers],
        "timestamp": record.timestamp,
    }


if __name__ == "__main__":
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    run(AioKafka)
