"""Rota's members, noted: of both consumers."""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import signal
import threading
from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

import rota
from rota import TopicPartition
from rota.consumer.records import RebalanceListener, Records
from rota.engine.model.topic import OffsetAndMetadata
from tests.support.clients.driver.base import PATIENCE, Library, run
from tests.system.consumer.driver.reporting_member import (
    TURN,
    FetchedRecord,
    Place,
    ReportingMember,
)

T = TypeVar("T")


class Listener(RebalanceListener):
    """Pass the callback to the member."""

    def __init__(self, group_member: RotaMember) -> None:
        self._seat = group_member

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._seat.revoked(partitions)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._seat.assigned(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._seat.revoked(partitions, lost=True)


class RotaMember(ReportingMember):
    """What the members of both consumers have in common."""

    def config(self) -> dict[str, object]:
        """For the consumer. A strategy with a colon is a class of the application's own."""
        if self.strategies is None:
            return dict(self.settings)
        chosen = [load_class(each) if ":" in each else each for each in self.strategies]
        return {**self.settings, "partition.assignment.strategy": chosen}

    @property
    @abstractmethod
    def consumer(self) -> Any:
        """The consumer that was opened."""

    def subscribe(self) -> None:
        """To topics or to a pattern."""
        self.consumer.subscribe(self.topics, pattern=self.pattern, listener=Listener(self))

    def generation(self) -> int:
        return int(self.consumer.group_metadata.generation)

    def poll(self) -> None:
        super().poll()
        held = {(each.topic, each.partition) for each in self.consumer.assignment}
        if held != self.owned:
            owned = sorted(self.owned)
            raise AssertionError(f"it has {sorted(held)}, and its listener was told {owned}")


class BlockingMember(RotaMember):
    """A member of ``rota.Consumer``."""

    def open(self) -> None:
        self._consumer = rota.Consumer(self.config())
        self.subscribe()

    @property
    def consumer(self) -> rota.Consumer:
        return self._consumer

    def fetch(self) -> list[FetchedRecord]:
        return fetched_records(self._consumer.poll(timeout=TURN))

    def store(self, offsets: dict[Place, int]) -> None:
        self._consumer.commit(offsets_to_commit(offsets))

    def close(self) -> None:
        self._consumer.close()


class AsyncMember(RotaMember):
    """A member of ``rota.AsyncConsumer``, on a loop that always runs, as an application's."""

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._turning = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._turning.start()
        self._wait(self._open())

    async def _open(self) -> None:
        self._consumer = rota.AsyncConsumer(self.config())
        self.subscribe()

    @property
    def consumer(self) -> rota.AsyncConsumer:
        return self._consumer

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def fetch(self) -> list[FetchedRecord]:
        return fetched_records(self._wait(self._consumer.poll(timeout=TURN)))

    def store(self, offsets: dict[Place, int]) -> None:
        self._wait(self._consumer.commit(offsets_to_commit(offsets)))

    def close(self) -> None:
        self._wait(self._consumer.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._turning.join(PATIENCE)
        self._loop.close()


def offsets_to_commit(offsets: dict[Place, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*place): OffsetAndMetadata(offset) for place, offset in offsets.items()}


def fetched_records(records: Records | Iterable[Any]) -> list[FetchedRecord]:
    return [
        FetchedRecord(each.topic, each.partition, each.offset, each.value.decode())
        for each in records
    ]


def load_class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class ReportingRota(Library):
    """Rota's consumers."""

    def hello(self) -> str:
        return version("rota")

    def member_of(self, **wanted: Any) -> Any:
        raise NotImplementedError("members are noted, and need their name")

    def settings(self) -> dict[str, Any]:
        """Where to connect to, and how."""
        given: dict[str, Any] = {"bootstrap.servers": self.servers}
        if self.security is not None:
            given["security.protocol"] = self.security["protocol"]
            if "ca" in self.security:
                given["ssl.truststore.type"] = "PEM"
                given["ssl.truststore.location"] = self.security["ca"]
            if "mechanism" in self.security:
                mechanism = self.security["mechanism"]
                module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
                given["sasl.mechanism"] = mechanism
                given["sasl.jaas.config"] = (
                    f"org.apache.kafka.common.security.{module}LoginModule required "
                    f'username="{self.security["username"]}" '
                    f'password="{self.security["password"]}";'
                )
        return given

    def join(self, member: str, **wanted: Any) -> None:
        group_member = BlockingMember if wanted.pop("blocking") else AsyncMember
        own = {**wanted.pop("settings"), **self.settings()}
        self.members[member] = group_member(member, own, **wanted).start()


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # where every thread is, to who wonders
    run(ReportingRota)
