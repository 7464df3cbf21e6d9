"""Rota's strategies inside kafka-python 3.x.

::

    from kafka import KafkaConsumer
    from rota.adapters.kafka_python import adapt

    KafkaConsumer("orders", group_id="g", partition_assignment_strategy=adapt("cooperative-sticky"))

kafka-python passes everything on that Java's consumer sends: static ids, owned partitions, their
generation, the rack.

The library has one gap: it does not tell a strategy that a member was removed from its group and
lost its partitions. Such a member still claims them when it joins again. It claims them with an old
generation, so newer claims win; only where nobody else was assigned them in between can a partition
that moves stay unread until the next rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rota.adapters.leader import assign_as_leader
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import (
    StrategyList,
    StrategySpec,
    common_protocol,
    resolve_strategies,
    resolve_strategy,
    split_strategies,
)
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS
from rota.engine.model.member import NO_GENERATION, Assignment, RebalanceProtocol, Subscription
from rota.engine.model.topic import NO_PARTITIONS, Cluster, Partitions
from rota.engine.plan import TimeBudget
from rota.errors import InputError

try:
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
    from kafka.coordinator.assignors.abstract import RebalanceProtocol as LibraryProtocol
    from kafka.protocol.consumer.group import JoinGroupResponse
    from kafka.protocol.consumer.metadata import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )
    from kafka.structs import TopicPartition as LibraryPartition
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: pip install 'rota[kafka-python]'") from error

#: Of subscriptions and assignments: the first that has owned partitions, generation and rack.
PROTOCOL_VERSION = 3


class LibraryBroker(Protocol):
    """A broker, as kafka-python knows it."""

    node_id: int
    rack: str | None


class LibraryTopicPartitions(Protocol):
    """Partitions of one topic, as kafka-python decodes them."""

    topic: str
    partitions: list[int]


class LibraryMetadata(Protocol):
    """What is asked of kafka-python's ``ClusterMetadata``, which has no types."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; None if it is not known."""

    def brokers(self) -> Iterable[LibraryBroker]:
        """All brokers known."""

    def is_replica_node(self, partition: LibraryPartition, node_id: int) -> LibraryBroker | None:
        """The broker, if it has a replica of the partition."""


def adapt(
    *strategies: StrategyList,
    solver: str = "exact",
    budget_ms: int = DEFAULT_BUDGET_MS,
    rack: str | None = None,
) -> list[type[AbstractPartitionAssignor]]:
    """The value for ``partition_assignment_strategy``, strategies in order of preference.

    A strategy is named by its wire name, ``package.module:Class`` or Java class name, or given as
    a class or instance of :class:`rota.Assignor`. ``rack`` is where this consumer runs (its
    ``client_rack``), for strategies that place by rack.

    The whole list comes from one call, because it decides the protocol: cooperative-sticky
    beside an eager strategy runs eager. kafka-python makes its own objects of the classes, so
    consumers that are given the same list share nothing; a strategy given as an instance is
    theirs in common.
    """
    budget = TimeBudget(budget_ms)
    wanted = split_strategies(strategies)
    found = resolve_strategies(wanted, solver=solver, budget=budget)
    protocol = common_protocol(found)
    if protocol is RebalanceProtocol.COOPERATIVE and len(found) > 1:
        # the others would state that this member owns nothing, and what it keeps be given away
        raise InputError(
            "kafka-python tells a strategy nothing of what another one of the list assigned: "
            "a cooperative strategy must be alone in it, or beside an eager one"
        )

    def adapted(strategy: StrategySpec, wire_name: str) -> type[AbstractPartitionAssignor]:
        class Adapted(_AdaptedAssignor):
            name = wire_name

            def __init__(self) -> None:
                assignor = resolve_strategy(strategy, solver=solver, budget=budget)
                super().__init__(assignor, protocol, rack)

        return Adapted

    return [
        adapted(strategy, assignor.name) for strategy, assignor in zip(wanted, found, strict=True)
    ]


class _AdaptedAssignor(AbstractPartitionAssignor):
    """A strategy as kafka-python calls it, for one consumer."""

    name = "adapted"

    def __init__(self, assignor: Assignor, protocol: RebalanceProtocol, rack: str | None) -> None:
        self._assignor = assignor
        self._protocol = protocol
        self._rack = rack
        self._owned = NO_PARTITIONS
        self._generation = NO_GENERATION

    def supported_protocols(self) -> list[LibraryProtocol]:
        """The one protocol that the whole list runs."""
        return [LibraryProtocol(self._protocol)]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """What this member tells the leader."""
        wanted = sorted(topics)
        return ConsumerProtocolSubscription(
            version=PROTOCOL_VERSION,
            topics=wanted,
            user_data=self._assignor.subscription_user_data(wanted),
            owned_partitions=self._still_owned(wanted),
            generation_id=self._generation,
            rack_id=self._rack,
        )

    def _still_owned(
        self, topics: Sequence[str]
    ) -> list[ConsumerProtocolSubscription.TopicPartition]:
        """Returns the owned partitions to claim: under the eager protocol none, because all
        were revoked before the join; under the cooperative one those of topics still
        subscribed to.
        """
        if self._protocol is RebalanceProtocol.EAGER:
            return []
        entry = ConsumerProtocolSubscription.TopicPartition
        return [
            entry(topic=topic, partitions=list(numbers))
            for topic, numbers in self._owned.by_topic().items()
            if topic in topics
        ]

    def assign(
        self,
        cluster: LibraryMetadata,
        members: Sequence[JoinGroupResponse.JoinGroupResponseMember],
    ) -> dict[str, ConsumerProtocolAssignment]:
        """On the leader: what every member is given."""
        group = {member.member_id: _to_subscription(member) for member in members}
        given = assign_as_leader(self._assignor, _to_cluster(cluster, group), group)
        return {member: _to_library_assignment(given[member]) for member in given}

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Remembers what this member owns now, and since when."""
        self._owned = _to_partitions(assignment.assigned_partitions)
        self._generation = generation
        user_data = _user_data_or_none(assignment.user_data)
        self._assignor.on_assignment(Assignment(self._owned, user_data), generation)


def _to_partitions(entries: Iterable[LibraryTopicPartitions]) -> Partitions:
    return Partitions.of((entry.topic, number) for entry in entries for number in entry.partitions)


def _user_data_or_none(user_data: object) -> bytes | None:
    """kafka-python's own strategies write empty user data where they have none."""
    return user_data if isinstance(user_data, bytes) and user_data else None


def _to_subscription(member: JoinGroupResponse.JoinGroupResponseMember) -> Subscription:
    stated = member.metadata
    assert isinstance(stated, ConsumerProtocolSubscription), "kafka-python decodes before it asks"
    return Subscription(
        topics=tuple(stated.topics),
        user_data=_user_data_or_none(stated.user_data),
        owned=_to_partitions(stated.owned_partitions),
        generation=stated.generation_id if stated.generation_id >= 0 else None,
        rack=stated.rack_id or None,
        group_instance_id=member.group_instance_id,
    )


def _to_cluster(metadata: LibraryMetadata, group: Mapping[str, Subscription]) -> Cluster:
    topics = sorted({topic for subscription in group.values() for topic in subscription.topics})
    counts = {topic: len(metadata.partitions_for_topic(topic) or ()) for topic in topics}
    if not any(subscription.rack for subscription in group.values()):
        return Cluster(counts)
    brokers = [(broker.node_id, broker.rack) for broker in metadata.brokers() if broker.rack]

    def racks(topic: str, number: int) -> list[str]:
        partition = LibraryPartition(topic, number)
        return [rack for node, rack in brokers if metadata.is_replica_node(partition, node)]

    return Cluster(counts, {t: [racks(t, p) for p in range(n)] for t, n in counts.items()})


def _to_library_assignment(given: Assignment) -> ConsumerProtocolAssignment:
    partitions = [(topic, list(numbers)) for topic, numbers in given.partitions.by_topic().items()]
    return ConsumerProtocolAssignment(PROTOCOL_VERSION, partitions, given.user_data)
