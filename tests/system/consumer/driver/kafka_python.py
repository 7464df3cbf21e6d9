"""kafka-python's members, noted."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import time
from typing import Any

import kafka
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.support.clients.driver.base import run
from tests.support.clients.driver.kafka_python import JOINING, LOST, STRATEGIES, KafkaPython
from tests.system.consumer.driver.reporting_member import (
    TURN,
    FetchedRecord,
    Place,
    ReportingMember,
)


class ReportingKafkaPythonMember(ReportingMember):
    """A member of a group."""

    def open(self) -> None:
        settings = {key.replace(".", "_"): value for key, value in self.settings.items()}
        if self.strategies is not None:
            chosen = [STRATEGIES[name] for name in self.strategies]
            settings["partition_assignment_strategy"] = chosen
        self._consumer = KafkaConsumer(**settings)
        self._subscribe()

    def _subscribe(self) -> None:
        self._consumer.subscribe(self.topics or (), pattern=self.pattern, listener=Listener(self))
        self._idle_since = time.monotonic()

    def fetch(self) -> list[FetchedRecord]:
        found = self._consumer.poll(int(TURN * 1_000) if self.owned else JOINING)
        if self.owned:
            self._idle_since = time.monotonic()
        elif time.monotonic() > self._idle_since + LOST:
            self._consumer.unsubscribe()
            self._subscribe()
        return [
            FetchedRecord(each.topic, each.partition, each.offset, each.value.decode())
            for records in found.values()
            for each in records
        ]

    def store(self, offsets: dict[Place, int]) -> None:
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        self._consumer.commit(wanted)

    def generation(self) -> int:
        return int(self._consumer.group_metadata().generation_id)

    def close(self) -> None:
        self._consumer.close()


class Listener(kafka.ConsumerRebalanceListener):
    """Pass the callback to the member."""

    def __init__(self, group_member: ReportingKafkaPythonMember) -> None:
        self._seat = group_member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._seat.revoked(map(tuple, revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._seat.assigned(map(tuple, assigned))

    def on_partitions_lost(self, lost: Any) -> None:
        self._seat.revoked(map(tuple, lost), lost=True)


class ReportingKafkaPython(KafkaPython):
    """kafka-python with members that tell."""

    def join(self, member: str, **wanted: Any) -> None:
        own = {**wanted.pop("settings"), **self.settings()}
        self.members[member] = ReportingKafkaPythonMember(member, own, **wanted).start()


if __name__ == "__main__":
    run(ReportingKafkaPython)
