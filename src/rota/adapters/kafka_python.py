"""Rota's strategies inside kafka-python 3.x.

::

    from kafka import KafkaConsumer
    from rota.adapters.kafka_python import adapt

    KafkaConsumer("orders", group_id="g", partition_assignment_strategy=adapt("cooperative-sticky"))

kafka-python passes all fields of Java's consumer to a strategy: group instance ids, owned
partitions, their generation, the rack.

It has one gap: it does not call the strategy when a member is removed from its group and loses its
partitions. Such a member still claims them when it joins again, with an old generation, so newer
claims win. If no other member owned a partition in between and the partition moves, it may stay
unread until the next rebalance.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from rota.adapters.leader import assign_as_leader, count_partitions
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import (
    StrategyList,
    StrategySpec,
    common_protocol,
    resolve_strategies,
    resolve_strategy,
    split_strategies,
)
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS, TimeBudget
from rota.engine.model.member import NO_GENERATION, Assignment, RebalanceProtocol, Subscription
from rota.engine.model.topic import NO_PARTITIONS, Cluster, Partitions
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

ClusterMetadata: TypeAlias = Any  # kafka-python's class has no types
PROTOCOL_VERSION = 3  # version of subscriptions and assignments; it has generation and rack


def adapt(
    *strategies: StrategyList,
    solver: str = "exact",
    budget_ms: int = DEFAULT_BUDGET_MS,
    rack: str | None = None,
) -> list[type[AbstractPartitionAssignor]]:
    """Returns the value for ``partition_assignment_strategy``, in order of preference.

    A strategy is a wire name, ``package.module:Class``, a Java class name, or a class or instance
    of :class:`rota.Assignor`. ``rack`` is the consumer's ``client_rack``, for strategies that use
    racks.

    Pass all strategies in one call, because together they decide the protocol: cooperative-sticky
    beside an eager strategy runs eager. kafka-python makes an object of each class for each
    consumer, so consumers with the same list share only strategies passed as instances.
    """
    budget = TimeBudget(budget_ms, time.monotonic)
    specs = split_strategies(strategies)
    assignors = resolve_strategies(specs, solver=solver, budget=budget)
    protocol = common_protocol(assignors)
    if protocol is RebalanceProtocol.COOPERATIVE and len(assignors) > 1:
        # other strategies would claim nothing: the kept partitions would be assigned twice
        raise InputError(
            "kafka-python does not show a strategy the partitions that another one of the list "
            "assigned: use a cooperative strategy alone, or beside an eager one"
        )

    def adapted(strategy: StrategySpec, wire_name: str) -> type[AbstractPartitionAssignor]:
        class Adapted(_AdaptedAssignor):
            name = wire_name

            def __init__(self) -> None:
                assignor = resolve_strategy(strategy, solver=solver, budget=budget)
                super().__init__(assignor, protocol, rack)

        return Adapted

    return [adapted(spec, assignor.name) for spec, assignor in zip(specs, assignors, strict=True)]


class _AdaptedAssignor(AbstractPartitionAssignor):
    name = "adapted"

    def __init__(self, assignor: Assignor, protocol: RebalanceProtocol, rack: str | None) -> None:
        self._assignor = assignor
        self._protocol = protocol
        self._rack = rack
        self._owned = NO_PARTITIONS
        self._generation = NO_GENERATION

    def supported_protocols(self) -> list[LibraryProtocol]:
        return [LibraryProtocol(self._protocol)]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        names = sorted(topics)
        # an eager member has given up all its partitions before it joins.
        eager = self._protocol is RebalanceProtocol.EAGER
        owned = {} if eager else self._owned.by_topic()
        entry = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=PROTOCOL_VERSION,
            topics=names,
            user_data=self._assignor.subscription_user_data(names),
            owned_partitions=[
                entry(topic=topic, partitions=list(numbers))
                for topic, numbers in owned.items()
                if topic in names
            ],
            generation_id=self._generation,
            rack_id=self._rack,
        )

    def assign(
        self,
        cluster: ClusterMetadata,
        members: Sequence[JoinGroupResponse.JoinGroupResponseMember],
    ) -> dict[str, ConsumerProtocolAssignment]:
        group = {member.member_id: _to_subscription(member) for member in members}
        encode = partial(ConsumerProtocolAssignment, PROTOCOL_VERSION)
        return assign_as_leader(self._assignor, _to_cluster(cluster, group), group, encode)

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        self._owned = _to_partitions(assignment.assigned_partitions)
        self._generation = generation
        user_data = _user_data_or_none(assignment.user_data)
        self._assignor.on_assignment(Assignment(self._owned, user_data), generation)


def _to_partitions(entries: Iterable[Any]) -> Partitions:
    return Partitions.of((entry.topic, number) for entry in entries for number in entry.partitions)


def _user_data_or_none(user_data: object) -> bytes | None:
    # kafka-python's own strategies send empty user data instead of none
    return user_data if isinstance(user_data, bytes) and user_data else None


def _to_subscription(member: JoinGroupResponse.JoinGroupResponseMember) -> Subscription:
    metadata = member.metadata
    assert isinstance(metadata, ConsumerProtocolSubscription), "kafka-python decodes it before"
    return Subscription(
        topics=tuple(metadata.topics),
        user_data=_user_data_or_none(metadata.user_data),
        owned=_to_partitions(metadata.owned_partitions),
        generation=metadata.generation_id if metadata.generation_id >= 0 else None,
        rack=metadata.rack_id or None,
        group_instance_id=member.group_instance_id,
    )


def _to_cluster(metadata: ClusterMetadata, group: Mapping[str, Subscription]) -> Cluster:
    counts = count_partitions(metadata, group)
    if not any(subscription.rack for subscription in group.values()):
        return Cluster(counts)
    brokers = [(broker.node_id, broker.rack) for broker in metadata.brokers() if broker.rack]

    def racks(topic: str, number: int) -> list[str]:
        partition = LibraryPartition(topic, number)
        return [rack for node, rack in brokers if metadata.is_replica_node(partition, node)]

    return Cluster(counts, {t: [racks(t, p) for p in range(n)] for t, n in counts.items()})
