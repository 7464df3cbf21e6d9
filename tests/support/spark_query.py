"""What tests of the Spark source share: its options for a broker, and what is done to topics."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from rota import Broker
from rota.client import config
from rota.client.admin import Admin
from rota.client.cluster import ClusterClient
from rota.engine.model.topic import TopicPartition
from rota.errors import Unreachable
from rota.spark import option
from rota.spark.query import SourceOptions
from tests.support.waiting import wait_until

T = TypeVar("T")

#: For queries that may fail.
FAST = {"fetchOffset.retryIntervalMs": "0"}
#: For a broker that is down. A broker that is up may need more time, on a busy machine.
SHORT = {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "300"}

p = partial(TopicPartition, "orders")


def source_options(
    broker: Broker, given: Mapping[str, str] | None = None, *, streaming: bool = False
) -> SourceOptions:
    """Options of a query of "orders", unless they name something else."""
    whole = {"kafka.bootstrap.servers": broker.bootstrap_servers} | dict(given or {})
    if not {"subscribe", "subscribePattern", "assign"} & whole.keys():
        whole["subscribe"] = "orders"
    return option.parse_options(whole, streaming=streaming)


def retry_until_reachable(ask: Callable[[], T]) -> T:
    """Repeats a lookup until the broker is reachable, and returns its result."""
    answers: list[T] = []

    def asked() -> bool:
        try:
            answers.append(ask())
        except Unreachable:
            return False
        return True

    wait_until("the broker answers", asked)
    return answers[0]


def produce_records(broker: Broker, *counts: int, topic: str = "orders") -> None:
    """So many records in each partition; the topic is made if it is missing."""
    if topic not in broker.topics:
        broker.create_topic(topic, len(counts))
    for number, count in enumerate(counts):
        if count:
            broker.produce(topic, *(f"{number}-{each}" for each in range(count)), partition=number)


def delete_records_before(broker: Broker, partition: TopicPartition, offset: int) -> None:
    """The log begins there now."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([Place(*partition, offset)]).values():
        done.result()


def commit_offsets(broker: Broker, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """As a group that has read so far."""

    async def run() -> None:
        client = ClusterClient(
            config.read_settings({"bootstrap.servers": broker.bootstrap_servers}).client
        )
        try:
            await Admin(client, 10.0).commit_offsets(group, offsets)
        finally:
            await client.close()

    asyncio.run(run())


def count_open_connections(broker: Broker) -> int:
    """How many connections to the broker this process has open."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    sockets = [each for each in gc.get_objects() if isinstance(each, socket.socket)]
    return sum(each.fileno() >= 0 and _peer(each) == port for each in sockets)


def _peer(each: socket.socket) -> int | None:
    try:
        return int(each.getpeername()[1])
    except (OSError, IndexError, TypeError, ValueError):
        return None
