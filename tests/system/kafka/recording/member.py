"""One member by a Python library, in a process of its own, told what to do by lines.

    python -m tests.system.kafka.recording.member kafka-python|aiokafka NAME key=value ...

As ``GroupFleet.java``: ``slow MS``, ``close``; and tells the same on standard output.
"""

# mypy: disable-error-code="no-untyped-call"
# (the libraries have no types)
from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AioListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

STRATEGIES: dict[str, dict[str, Any]] = {
    "kafka-python": {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    },
    "aiokafka": {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky},
}


def print_event(name: str, what: str, partitions: Iterable[Any] = ()) -> None:
    shown = ",".join(sorted(f"{one.topic}-{one.partition}" for one in partitions))
    print(int(time.time() * 1000), name, what, shown, flush=True)


def read_commands() -> queue.SimpleQueue[list[str]]:
    """Lines of standard input, as they come."""
    found: queue.SimpleQueue[list[str]] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            found.put(line.split())

    threading.Thread(target=read, daemon=True).start()
    return found


def common_settings(library: str, name: str, settings: dict[str, str]) -> dict[str, Any]:
    return {
        "bootstrap_servers": settings["bootstrap.servers"],
        "group_id": settings["group.id"],
        "client_id": name,
        "session_timeout_ms": int(settings["session.timeout.ms"]),
        "heartbeat_interval_ms": int(settings["heartbeat.interval.ms"]),
        "max_poll_interval_ms": int(settings["max.poll.interval.ms"]),
        "enable_auto_commit": settings.get("enable.auto.commit", "true") == "true",
        "auto_commit_interval_ms": int(settings.get("auto.commit.interval.ms", "5000")),
        "partition_assignment_strategy": [STRATEGIES[library][settings["strategy"]]],
    }


def kafka_python(name: str, settings: dict[str, str]) -> None:
    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Any) -> None:
            print_event(name, "assigned", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            print_event(name, "revoked", revoked)

    commands = read_commands()
    consumer = KafkaConsumer(**common_settings("kafka-python", name, settings))
    consumer.subscribe(settings["topics"].split(","), listener=Listener())
    while True:
        consumer.poll(timeout_ms=100)
        if commands.empty():
            continue
        match commands.get():
            case ["slow", time_ms]:
                time.sleep(int(time_ms) / 1000)
            case ["close"]:
                consumer.close()
                print_event(name, "closed")
                return


async def aiokafka(name: str, settings: dict[str, str]) -> None:
    class Listener(AioListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            print_event(name, "assigned", assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            print_event(name, "revoked", revoked)

    commands = read_commands()
    consumer = AIOKafkaConsumer(**common_settings("aiokafka", name, settings))
    consumer.subscribe(settings["topics"].split(","), listener=Listener())
    await consumer.start()
    while True:
        await consumer.getmany(timeout_ms=100)
        if commands.empty():
            continue
        match commands.get():
            case ["slow", time_ms]:
                await asyncio.sleep(int(time_ms) / 1000)
            case ["close"]:
                await consumer.stop()
                print_event(name, "closed")
                return


def main() -> None:
    library, name, *pairs = sys.argv[1:]
    settings = dict(pair.split("=", 1) for pair in pairs)
    if library == "kafka-python":
        kafka_python(name, settings)
    else:
        asyncio.run(aiokafka(name, settings))


if __name__ == "__main__":
    main()
