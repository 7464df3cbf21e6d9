"""A live cluster as evidence: what of its journal there is to read, and what that needs.

Everything here only asks: no group is joined, no topic is made, nothing is written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rota.client import fetch, missing, setting
from rota.client.cluster import Client
from rota.client.metadata import Topic
from rota.client.offset import EARLIEST, LATEST, list_offsets
from rota.client.race import run_all
from rota.client.refusal import refusal
from rota.errors import AuthorizationFailed, Code, Refused, RotaError, Unreachable
from rota.model.client import ReadConfig
from rota.model.topic import TopicPartition
from rota.wire.api import Api
from rota.wire.message import DescribeLogDirsRequest, Message

T = TypeVar("T")

JOURNAL = "__consumer_offsets"
TIMEOUT = 30.0
CONNECT = 10.0
"""Seconds for the first answer: an address that is wrong should be said soon."""
RECORD = 100
"""Bytes of a record of the journal, about: most are commits."""
ACLS = (
    f"Describe and Read on topic {JOURNAL}",
    "Describe on the topics that groups have committed",
)
"""What a user of a secured cluster must be allowed: for the journal, and for lag."""
DEFAULTS: Mapping[str, object] = {
    "client.id": "rota",
    "socket.connection.setup.timeout.ms": 5_000,
}
"""Where the user's settings say nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a cluster is, and how to ask it."""

    settings: Mapping[str, object] = field(repr=False)
    """Under Kafka's names, ``bootstrap.servers`` among them; passwords, too."""
    timeout: float = TIMEOUT
    """Seconds for each question."""
    lookups: int = 0
    """How often it may be asked for an end; 0: never."""

    @property
    def servers(self) -> str:
        """The addresses that were given."""
        return str(self.settings.get("bootstrap.servers", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What there is to read in a cluster."""

    cluster: Cluster
    begins: Mapping[int, int]
    """By partition of the journal, its first offset; none: the cluster has no journal yet."""
    ends: Mapping[int, int]
    """Where reading stops: what is written later is for the next run."""
    size: int | None
    """Bytes on the leaders' disks, about; None: it may not be asked for."""
    at: int
    """When it was so, in milliseconds since 1970."""
    name: str | None = None
    """What the cluster calls itself: its id."""

    @property
    def records(self) -> int:
        """How many there are at most: compaction has taken some."""
        return sum(self.ends.values()) - sum(self.begins.values())

    @property
    def weight(self) -> int:
        """About how many bytes reading it takes; where nobody tells, by the number of records."""
        return self.records * RECORD if self.size is None else self.size

    def options(self) -> dict[str, str]:
        """The options with which ``format("rota")`` reads the whole journal."""
        # a file for consumers has settings of theirs; here nobody joins, commits or deserializes
        from rota.spark.option import REFUSED  # noqa: PLC0415 (needs pyspark)

        patience = {"default.api.timeout.ms": int(self.cluster.timeout * 1000)}
        settings = {
            key: value
            for key, value in {**DEFAULTS, **patience, **self.cluster.settings}.items()
            if key not in REFUSED and key != "group.id"
        }
        ends = {str(partition): end for partition, end in sorted(self.ends.items())}
        return {f"kafka.{key}": str(value) for key, value in settings.items()} | {
            "kafka.isolation.level": "read_uncommitted",
            "subscribe": JOURNAL,
            "startingOffsets": "earliest",
            "endingOffsets": json.dumps({JOURNAL: ends}),
            "includeBatchInfo": "true",
            "fetchOffset.numRetries": "1",
        }

    def __str__(self) -> str:
        place = f"{self.cluster.servers}: {JOURNAL}"
        if not self.ends:
            return f"{place} does not exist: no group has ever been here"
        size = "" if self.size is None else f", about {self.size / 1e6:,.1f} MB"
        return f"{place}, {len(self.ends)} partitions, at most {self.records:,} records{size}"


def asked(cluster: Cluster, ask: Callable[[Client], Awaitable[T]]) -> T:
    """What comes of asking a cluster; all connections are closed then.

    :raises Unreachable: it cannot be reached, or what a client needs is not installed
    :raises InputError: a setting is wrong
    """
    if (problem := missing()) is not None:
        raise Unreachable(problem)
    # a failure that lasts is raised as an error; one that passes is not logged
    logging.getLogger("rota.client").addHandler(logging.NullHandler())
    config = setting.read({**DEFAULTS, **cluster.settings}).client

    async def run() -> T:
        client = Client(config, quiet=True)
        try:
            await client.refresh((), deadline=client.deadline(min(cluster.timeout, CONNECT)))
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(run())


def look(cluster: Cluster) -> Live:
    """What of the journal there is, and whether it may be read.

    :raises Unreachable: it cannot be reached, or the journal may not be read
    """

    async def ask(client: Client) -> Live:
        return await _look(client, cluster)

    try:
        return asked(cluster, ask)
    except AuthorizationFailed as error:
        raise Unreachable(
            f"{cluster.servers}: {error}. To read the journal a user needs {ACLS[0]}. Where that "
            "is not to be had, --poll asks for the groups as they are instead, which takes "
            "Describe on groups and topics"
        ) from error


async def _look(client: Client, cluster: Cluster) -> Live:
    metadata = await client.refresh((JOURNAL,), deadline=client.deadline(cluster.timeout))
    topic = metadata.topics.get(JOURNAL)
    partitions = _partitions(topic)
    begins, ends = await run_all(
        _bounds(client, partitions, which, cluster.timeout) for which in (EARLIEST, LATEST)
    )
    at = time.time_ns() // 1_000_000
    size = None
    if topic is not None and partitions:
        await _try(client, topic, ends, cluster.timeout)
        size = await _size(client, topic, cluster.timeout)
    name = metadata.cluster_id
    return Live(cluster=cluster, begins=begins, ends=ends, size=size, at=at, name=name)


def _partitions(topic: Topic | None) -> list[TopicPartition]:
    code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if topic is None or code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        raise refusal(code, TopicPartition(JOURNAL, 0), "to look at")
    return [TopicPartition(JOURNAL, number) for number in range(len(topic.partitions))]


async def _bounds(
    client: Client, partitions: list[TopicPartition], which: int, timeout: float
) -> dict[int, int]:
    if not partitions:
        return {}
    deadline = client.deadline(timeout)
    found = await list_offsets(client, dict.fromkeys(partitions, which), deadline=deadline)
    return {place.partition: each.offset for place, each in found.items() if each is not None}


async def _try(client: Client, topic: Topic, ends: Mapping[int, int], timeout: float) -> None:
    """Fetches nothing from the end of a partition: whether reading is allowed, too, is better said
    now than by a task.
    """
    partition, end = min(ends.items())
    place = TopicPartition(JOURNAL, partition)
    deadline = client.deadline(timeout)
    leader = await client.leader(place, deadline)
    asking = fetch.request(
        [fetch.Wanted(place, topic.id, end)], ReadConfig(), max_bytes=1, max_wait=0
    )
    answer = await client.send(
        Api.FETCH, asking.message, node=leader, deadline=deadline, most=asking.most
    )
    for found in asking.parse(answer):
        if found.code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise refusal(found.code, place, "to fetch from")


async def _size(client: Client, topic: Topic, timeout: float) -> int | None:
    """What the leaders' disks say; None where one of them does not tell."""
    led: dict[int, list[int]] = {}
    for number, partition in enumerate(topic.partitions):
        led.setdefault(partition.leader, []).append(number)
    made = DescribeLogDirsRequest.DescribableLogDirTopic

    async def of(node: int, numbers: list[int]) -> int:
        request = DescribeLogDirsRequest(topics=[made(topic=JOURNAL, partitions=numbers)])
        answer = await client.send(
            Api.DESCRIBE_LOG_DIRS, request, node=node, deadline=client.deadline(timeout)
        )
        return _bytes(answer)

    try:
        sizes = await run_all(of(node, numbers) for node, numbers in led.items())
    except RotaError:  # it is good to know, and no more
        return None
    return sum(sizes)


def _bytes(answer: Message) -> int:
    codes = [answer.error_code, *(each.error_code for each in answer.results)]
    if any(codes) or not answer.results:
        raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "no permission to describe log dirs")
    return sum(
        int(partition.partition_size)
        for folder in answer.results
        for topic in folder.topics
        for partition in topic.partitions
        if not partition.is_future_key
    )
