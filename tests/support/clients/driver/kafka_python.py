"""kafka-python, told what to do."""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# (the library has no types)
from __future__ import annotations

import threading
import time
from importlib.metadata import version
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaTimeoutError, NoError
from kafka.structs import OffsetAndMetadata

from tests.support.clients.driver.base import PATIENCE, Library, LogCapture, Member, deadline, run

STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}

#: Seconds without partitions after which a member subscribes anew. In kafka-python 3.0 a poll that
#: times out just as the answer to its SyncGroup comes leaves the consumer without what it was
#: given, for good: it polls and sends no heartbeats. It does so with a Kafka too.
LOST = 12
#: Milliseconds of a poll of a member without partitions. A poll that times out between JoinGroup
#: and SyncGroup gives up, and the next one joins again. If that is the leader of the group, which
#: is back with its static id, all members must rebalance.
JOINING = 5_000


class KafkaPython(Library):
    """kafka-python."""

    def hello(self) -> str:
        return version("kafka-python")

    def settings(self) -> dict[str, Any]:
        given: dict[str, Any] = {"bootstrap_servers": self.servers}
        if self.security is not None:
            given["security_protocol"] = self.security["protocol"]
            if "ca" in self.security:
                given["ssl_cafile"] = self.security["ca"]
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
        if hurry:  # else it tries for half a minute before it says what was wrong
            chosen["bootstrap_timeout_ms"] = 3_000
        with LogCapture("kafka") as said:
            try:
                producer = KafkaProducer(**self.settings(), **chosen)
            except KafkaTimeoutError as error:
                raise RuntimeError(f"{error}; logged: {said}") from error
        try:
            sent = [
                producer.send(
                    topic,
                    key=encode_text(record["key"]),
                    value=encode_text(record["value"]),
                    headers=[(name, encode_text(value)) for name, value in record["headers"]],
                    partition=record["partition"],
                    timestamp_ms=record["timestamp"],
                )
                for record in records
            ]
            done = [future.get(PATIENCE) for future in sent]
            return [[each.partition, each.offset] for each in done]
        finally:
            producer.close()

    def read(self, topic: str, partitions: int, count: int) -> list[dict[str, Any]]:
        consumer = KafkaConsumer(**self.settings(), auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        found: list[dict[str, Any]] = []
        in_time = deadline()
        try:
            while len(found) < count:
                in_time()
                for records in consumer.poll(100).values():
                    found += map(record_json, records)
        finally:
            consumer.close()
        return found

    def member_of(self, **wanted: Any) -> Member:
        return KafkaPythonMember(self.settings(), **wanted).start()

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(**self.settings())

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        with ClosingAdmin(self.admin()) as admin:
            admin.create_topics({topic: {"num_partitions": partitions, "configs": configs}})

    def delete_topic(self, topic: str) -> None:
        with ClosingAdmin(self.admin()) as admin:
            admin.delete_topics([topic])

    def grow_topic(self, topic: str, count: int) -> None:
        with ClosingAdmin(self.admin()) as admin:
            admin.create_partitions({topic: count})

    def topics(self) -> list[str]:
        with ClosingAdmin(self.admin()) as admin:
            return admin.list_topics()

    def partitions(self, topic: str) -> int:
        with ClosingAdmin(self.admin()) as admin:
            return len(admin.describe_topics([topic])[0]["partitions"])

    def describe_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with ClosingAdmin(self.admin()) as admin:
            found = admin.describe_configs([resource], config_filter="all")["topic"][topic]
            return {key: entry["value"] for key, entry in found.items()}

    def alter_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        with ClosingAdmin(self.admin()) as admin:
            admin.alter_configs([resource])

    def groups(self) -> list[str]:
        with ClosingAdmin(self.admin()) as admin:
            return [group["group_id"] for group in admin.list_groups()]

    def group(self, group: str) -> dict[str, Any]:
        with ClosingAdmin(self.admin()) as admin:
            found = admin.describe_groups([group])[group]
            if found["error"]:
                raise RuntimeError(found["error"])
            return {"state": found["group_state"], "members": len(found["members"])}

    def delete_group(self, group: str) -> None:
        with ClosingAdmin(self.admin()) as admin:
            check_errors(admin.delete_groups([group]))

    def offsets(self, group: str, topic: str) -> list[list[int]]:
        with ClosingAdmin(self.admin()) as admin:
            found = admin.list_group_offsets({group: None})[group]
            return [[at.partition, entry.offset] for at, entry in found.items()]

    def alter_offsets(self, group: str, topic: str, offsets: list[list[int]]) -> None:
        wanted = {
            TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1)
            for number, offset in offsets
        }
        with ClosingAdmin(self.admin()) as admin:
            check_errors(admin.alter_group_offsets(group, wanted))

    def delete_offsets(self, group: str, topic: str, partitions: list[int]) -> None:
        with ClosingAdmin(self.admin()) as admin:
            wanted = [TopicPartition(topic, number) for number in partitions]
            check_errors(admin.delete_group_offsets(group, wanted))

    def delete_records(self, topic: str, offsets: list[list[int]]) -> None:
        with ClosingAdmin(self.admin()) as admin:
            admin.delete_records({TopicPartition(topic, n): offset for n, offset in offsets})

    def cluster(self) -> dict[str, Any]:
        with ClosingAdmin(self.admin()) as admin:
            found = admin.describe_cluster()
            brokers = [f"{each['host']}:{each['port']}" for each in found["brokers"]]
            return {"id": found["cluster_id"], "brokers": brokers}

    def log_offsets(self, topic: str, partitions: int, at: str | int) -> list[list[int]]:
        spec = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}.get(str(at), at)
        wanted = {TopicPartition(topic, number): spec for number in range(partitions)}
        with ClosingAdmin(self.admin()) as admin:
            found = admin.list_partition_offsets(wanted)
            return [[place.partition, entry.offset] for place, entry in found.items()]


class ClosingAdmin:
    """Closes an admin client at the end."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def __enter__(self) -> Any:
        return self._admin

    def __exit__(self, *_: object) -> None:
        self._admin.close()


class KafkaPythonMember(Member):
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
        super().__init__()
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

    def open(self) -> None:
        self._consumer = KafkaConsumer(**self._settings)
        self._subscribe()

    def _subscribe(self) -> None:
        self._consumer.subscribe([self._topic], listener=Listener(self))
        self._idle_since = time.monotonic()

    def poll(self) -> None:
        for records in self._consumer.poll(100 if self.seen.assigned else JOINING).values():
            for record in records:
                self.seen.handle(record.partition, record.offset, record.value)
        self.assigned()
        if self.seen.assigned:
            self._idle_since = time.monotonic()
        elif time.monotonic() > self._idle_since + LOST:
            self._consumer.unsubscribe()
            self._subscribe()

    def assigned(self) -> None:
        """Record the assignment; called during a poll too, which may last for seconds after it."""
        self.seen.assigned = [each.partition for each in self._consumer.assignment()]

    def commit_now(self) -> None:
        self._consumer.commit()

    def commit_later(self) -> None:
        done = threading.Event()
        answers: list[Any] = []

        def told(_: Any, answer: Any) -> None:
            answers.append(answer)
            done.set()

        self._consumer.commit_async(callback=told)
        in_time = deadline()
        while not done.is_set():
            in_time()
            self.poll()
        if isinstance(answers[0], Exception):
            raise answers[0]

    def close(self) -> None:
        self._consumer.close()


class Listener(kafka.ConsumerRebalanceListener):
    """Counts rebalances."""

    def __init__(self, group_member: KafkaPythonMember) -> None:
        self._seat = group_member

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing to do."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._seat.seen.rebalances += 1
        self._seat.assigned()


def check_errors(answer: Any) -> None:
    """Raise what the broker refused."""
    for place, error in answer.items() if isinstance(answer, dict) else answer:
        if error not in {None, NoError, "OK"}:
            raise RuntimeError(f"{place}: {error}")


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
    run(KafkaPython)
