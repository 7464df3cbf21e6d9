"""What is known of a cluster: brokers, topics, leaders. A snapshot never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from rota.errors import Code
from rota.model.client import Address
from rota.model.topic import Cluster, TopicPartition
from rota.wire.message import NO_ID, Message

NOBODY: Final = -1
"""The leader of a partition that has none, and the epoch of one who does not say."""


class Node(NamedTuple):
    """A broker, where it says it is (``advertised.listeners``)."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """Where it says it is."""
        return Address(self.host, self.port)


class Partition(NamedTuple):
    """Who has a partition. Its number is its place in the topic."""

    leader: int
    leader_epoch: int = NOBODY
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    error: int = Code.NONE


class Topic(NamedTuple):
    """A topic as a broker has told of it."""

    name: str
    id: bytes = NO_ID
    internal: bool = False
    partitions: tuple[Partition, ...] = ()
    error: int = Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """All that is known at one moment."""

    cluster_id: str | None = None
    controller: int = NOBODY
    brokers: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    """Those that were asked for, with the error of each that cannot be told of."""

    def partition(self, tp: TopicPartition) -> Partition | None:
        """What is known of a partition; None if that is nothing."""
        topic = self.topics.get(tp.topic)
        known = topic is not None and 0 <= tp.partition < len(topic.partitions)
        return topic.partitions[tp.partition] if topic is not None and known else None

    def leader(self, tp: TopicPartition) -> int | None:
        """The broker that leads a partition, if one is known that is there."""
        found = self.partition(tp)
        return found.leader if found is not None and found.leader in self.brokers else None

    def cluster(self) -> Cluster:
        """What assignors need: how many partitions each topic has, and their replicas' racks."""
        good = {name: each for name, each in self.topics.items() if not each.error}
        racks = {node.id: node.rack for node in self.brokers.values() if node.rack}
        placed: dict[str, list[list[str]]] = {}
        for topic in good.values() if racks else ():
            replicas = [each.replicas for each in topic.partitions]
            placed[topic.name] = [[racks[at] for at in each if at in racks] for each in replicas]
        return Cluster({name: len(each.partitions) for name, each in good.items()}, placed)


def merged(old: Metadata, response: Message, *, whole: bool) -> Metadata:
    """What is known after a response.

    :param whole: it tells of all topics, so that those it does not tell of are gone
    """
    topics = {} if whole else dict(old.topics)
    for told in response.topics:
        if told.name is not None:
            topics[told.name] = _topic(told, old.topics.get(told.name))
    brokers = {
        each.node_id: Node(each.node_id, each.host, each.port, each.rack)
        for each in response.brokers
    }
    return Metadata(
        cluster_id=response.cluster_id or old.cluster_id,
        controller=response.controller_id,
        # a broker that has just started may not know any yet: those known are better than none
        brokers=MappingProxyType(brokers) if brokers else old.brokers,
        topics=MappingProxyType(topics),
    )


def without(metadata: Metadata, topics: frozenset[str]) -> Metadata:
    """The same without some topics."""
    left = {name: each for name, each in metadata.topics.items() if name not in topics}
    return replace(metadata, topics=MappingProxyType(left))


def _topic(told: Message, old: Topic | None) -> Topic:
    # a topic that was deleted and made anew begins with its epochs at 0 again
    same = old is not None and old.id == told.topic_id
    known = old.partitions if old is not None and same else ()
    found = [Partition(NOBODY, error=Code.LEADER_NOT_AVAILABLE)] * len(told.partitions)
    for each in told.partitions:
        number = each.partition_index
        if not 0 <= number < len(found):
            continue  # they are numbered without gaps: no Kafka says this
        found[number] = Partition(
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            each.error_code,
        )
        if number < len(known) and NOBODY < each.leader_epoch < known[number].leader_epoch:
            # a broker that lags behind: its leader was followed by the one known (KIP-320)
            found[number] = known[number]
    return Topic(told.name, told.topic_id, told.is_internal, tuple(found), told.error_code)
