"""confluent-kafka (librdkafka), told what to do; old versions of it too."""

# mypy: disable-error-code="no-untyped-call,no-any-return,import-untyped,attr-defined,unused-ignore"
# (old versions have no types)
from __future__ import annotations

import functools
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.support.clients.driver.base import PATIENCE, Library, Member, deadline, run

EARLIEST = confluent_kafka.OFFSET_BEGINNING


class Confluent(Library):
    """confluent-kafka."""

    def hello(self) -> str:
        found = confluent_kafka.version()
        own = found if isinstance(found, str) else found[0]  # a pair before 2.12
        return f"{own}, librdkafka {confluent_kafka.libversion()[0]}"

    def settings(self) -> dict[str, Any]:
        given: dict[str, Any] = {"bootstrap.servers": self.servers}
        if self.security is not None:
            given["security.protocol"] = self.security["protocol"]
            if "ca" in self.security:
                given["ssl.ca.location"] = self.security["ca"]
            if "mechanism" in self.security:
                given["sasl.mechanisms"] = self.security["mechanism"]
                given["sasl.username"] = self.security["username"]
                given["sasl.password"] = self.security["password"]
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
        settings = self.settings()
        trouble: list[str] = []
        settings["error_cb"] = lambda error: trouble.append(error.str())
        if codec is not None:
            settings["compression.type"] = codec
        if idempotent:
            settings["enable.idempotence"] = True
        producer = Producer(settings)
        placed: list[list[int]] = [[-1, -1] for _ in records]
        waiting = len(records)

        def told(number: int, error: Any, message: Any) -> None:
            nonlocal waiting
            if error is not None:
                raise KafkaException(error)
            placed[number] = [message.partition(), message.offset()]
            waiting -= 1

        for number, record in enumerate(records):
            place = {} if record["partition"] is None else {"partition": record["partition"]}
            producer.produce(
                topic,
                key=record["key"],
                value=record["value"],
                headers=[tuple(header) for header in record["headers"]],
                timestamp=record["timestamp"] or 0,
                on_delivery=partial(told, number),
                **place,
            )
        in_time = deadline()
        while waiting:
            producer.poll(0.1)
            refused = [text for text in trouble if "uthentication" in text]
            if refused:  # it goes on trying; a user sees this in the log and in error_cb
                raise RuntimeError(refused[0])
            in_time()
        return placed

    def read(self, topic: str, partitions: int, count: int) -> list[dict[str, Any]]:
        consumer = Consumer({**self.settings(), "group.id": f"read-{topic}"})
        consumer.assign([TopicPartition(topic, number, EARLIEST) for number in range(partitions)])
        found: list[dict[str, Any]] = []
        in_time = deadline()
        try:
            while len(found) < count:
                in_time()
                found += [
                    record_json(check_message(each)) for each in consumer.consume(500, timeout=0.1)
                ]
        finally:
            consumer.close()
        return found

    def member_of(self, **wanted: Any) -> Member:
        return ConfluentMember(self.settings(), **wanted).start()

    @functools.cached_property
    def admin(self) -> AdminClient:
        # kept: what it was asked for is dropped when it is
        return AdminClient(self.settings())

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
        wait_for_results(self.admin.create_topics([new]))

    def delete_topic(self, topic: str) -> None:
        wait_for_results(self.admin.delete_topics([topic]))

    def grow_topic(self, topic: str, count: int) -> None:
        wait_for_results(self.admin.create_partitions([NewPartitions(topic, count)]))

    def topics(self) -> list[str]:
        return list(self.admin.list_topics(timeout=PATIENCE).topics)

    def partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)

    def describe_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (found,) = wait_for_results(self.admin.describe_configs([resource]))
        return {key: entry.value for key, entry in found.items()}

    def alter_config(self, topic: str, key: str, value: str) -> None:
        if not hasattr(AdminClient, "incremental_alter_configs"):
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={key: value})
            wait_for_results(self.admin.alter_configs([resource]))
            return
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        wait_for_results(self.admin.incremental_alter_configs([resource]))

    def groups(self) -> list[str]:
        admin = self.admin
        if not hasattr(admin, "list_consumer_groups"):
            return [str(group.id) for group in admin.list_groups(timeout=PATIENCE)]
        found = admin.list_consumer_groups().result(PATIENCE)
        if found.errors:
            raise found.errors[0]
        return [group.group_id for group in found.valid]

    def group(self, group: str) -> dict[str, Any]:
        admin = self.admin
        if not hasattr(admin, "describe_consumer_groups"):
            (found,) = admin.list_groups(group, timeout=PATIENCE)
            return {"state": found.state, "members": len(found.members)}
        (described,) = wait_for_results(admin.describe_consumer_groups([group]))
        state = described.state.name.title().replace("_", "")
        return {"state": state, "members": len(described.members)}

    def delete_group(self, group: str) -> None:
        wait_for_results(self.admin.delete_consumer_groups([group]))

    def offsets(self, group: str, topic: str) -> list[list[int]]:
        from confluent_kafka import ConsumerGroupTopicPartitions

        wanted = [ConsumerGroupTopicPartitions(group)]
        (found,) = wait_for_results(self.admin.list_consumer_group_offsets(wanted))
        return [[each.partition, each.offset] for each in found.topic_partitions]

    def alter_offsets(self, group: str, topic: str, offsets: list[list[int]]) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions

        places = [TopicPartition(topic, number, offset) for number, offset in offsets]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        wait_for_results(self.admin.alter_consumer_group_offsets(wanted))

    def delete_records(self, topic: str, offsets: list[list[int]]) -> None:
        places = [TopicPartition(topic, number, offset) for number, offset in offsets]
        wait_for_results(self.admin.delete_records(places))

    def cluster(self) -> dict[str, Any]:
        found = self.admin.describe_cluster().result(PATIENCE)
        return {
            "id": found.cluster_id,
            "brokers": [f"{each.host}:{each.port}" for each in found.nodes],
        }

    def log_offsets(self, topic: str, partitions: int, at: str | int) -> list[list[int]]:
        from confluent_kafka.admin import OffsetSpec

        named = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}
        spec = named.get(str(at)) or OffsetSpec.for_timestamp(int(at))
        wanted = {TopicPartition(topic, number): spec for number in range(partitions)}
        found = self.admin.list_offsets(wanted)
        return [[each.partition, future.result(PATIENCE).offset] for each, future in found.items()]


class ConfluentMember(Member):
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
        self._settings = {**settings, "group.id": group, "auto.offset.reset": "earliest"}
        if strategy is not None:
            self._settings["partition.assignment.strategy"] = strategy
        if instance is not None:
            self._settings["group.instance.id"] = instance
        if session is not None:
            self._settings["session.timeout.ms"] = session
        if heartbeat is not None:
            self._settings["heartbeat.interval.ms"] = heartbeat
        if manual:
            self._settings["enable.auto.commit"] = False
        self._committed: list[Any] = []
        self._settings["on_commit"] = lambda error, _: self._committed.append(error)

    def open(self) -> None:
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe([self._topic], on_assign=self._assigned)

    def _assigned(self, *_: Any) -> None:
        self.seen.rebalances += 1

    def poll(self) -> None:
        for message in self._consumer.consume(500, timeout=0.1):
            record = check_message(message)
            self.seen.handle(record.partition(), record.offset(), record.value())
        self.seen.assigned = [each.partition for each in self._consumer.assignment()]

    def commit_now(self) -> None:
        self._consumer.commit(asynchronous=False)

    def commit_later(self) -> None:
        self._committed.clear()
        self._consumer.commit(asynchronous=True)
        in_time = deadline()
        while not self._committed:
            in_time()
            self.poll()
        if self._committed[0] is not None:
            raise KafkaException(self._committed[0])

    def close(self) -> None:
        self._consumer.close()


def check_message(message: Any) -> Any:
    if message.error():
        raise KafkaException(message.error())
    return message


def wait_for_results(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(PATIENCE) for future in futures.values()]


def record_json(message: Any) -> dict[str, Any]:
    headers = [[n, None if v is None else v.decode()] for n, v in message.headers() or []]
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "key": None if message.key() is None else message.key().decode(),
        "value": None if message.value() is None else message.value().decode(),
        "headers": headers,
        "timestamp": message.timestamp()[1],
    }


if __name__ == "__main__":
    run(Confluent)
