"""confluent-kafka's members, noted."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.clients.driver.base import run
from tests.support.clients.driver.confluent import Confluent
from tests.system.consumer.driver.reporting_member import (
    TURN,
    FetchedRecord,
    Place,
    ReportingMember,
)

#: How librdkafka's opaque group metadata begins; the generation follows, in the machine's order.
MAGIC = b"CGMDv2:"
MOST = 500


class ReportingConfluentMember(ReportingMember):
    """A member of a group."""

    def open(self) -> None:
        self._found: list[FetchedRecord] = []
        settings = dict(self.settings)
        if self.strategies is not None:
            settings["partition.assignment.strategy"] = ",".join(self.strategies)
        self._consumer = Consumer(settings)
        topics = self.topics if self.pattern is None else [f"^{self.pattern}$"]
        self._consumer.subscribe(
            topics,
            on_assign=lambda _, given: self.assigned(map(place, given)),
            on_revoke=lambda _, taken: self.revoked(map(place, taken)),
            on_lost=lambda _, taken: self.revoked(map(place, taken), lost=True),
        )

    def fetch(self) -> list[FetchedRecord]:
        message = self._consumer.poll(TURN)  # one by one: a rebalance may come between two
        while message is not None:
            error = message.error()
            if error is None:
                self._found.append(fetched_record(message))
            elif error.fatal():
                raise KafkaException(error)
            message = self._consumer.poll(0) if len(self._found) < MOST else None
        found, self._found = self._found, []
        return found

    def revoked(self, partitions: Iterable[Place], *, lost: bool = False) -> None:
        found, self._found = self._found, []  # they came before the rebalance
        self.deliver_records(found)
        super().revoked(partitions, lost=lost)

    def store(self, offsets: dict[Place, int]) -> None:
        wanted = [TopicPartition(*where, offset) for where, offset in offsets.items()]
        for each in self._consumer.commit(offsets=wanted, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)

    def generation(self) -> int:
        metadata: bytes = self._consumer.consumer_group_metadata()
        if not metadata.startswith(MAGIC):
            return -1
        (found,) = struct.unpack_from("=i", metadata, len(MAGIC))
        return int(found)

    def close(self) -> None:
        self._consumer.close()


def fetched_record(message: Any) -> FetchedRecord:
    return FetchedRecord(
        message.topic(), message.partition(), message.offset(), (message.value() or b"").decode()
    )


def place(partition: Any) -> Place:
    return (partition.topic, partition.partition)


class ReportingConfluent(Confluent):
    """confluent-kafka with members that tell."""

    def join(self, member: str, **wanted: Any) -> None:
        own = {**wanted.pop("settings"), **self.settings()}
        self.members[member] = ReportingConfluentMember(member, own, **wanted).start()


if __name__ == "__main__":
    run(ReportingConfluent)
