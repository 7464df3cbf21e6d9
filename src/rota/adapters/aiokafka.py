"""Rota's strategies inside aiokafka.

::

    from aiokafka import AIOKafkaConsumer
    from rota.adapters.aiokafka import adapt

    AIOKafkaConsumer("orders", group_id="g", partition_assignment_strategy=adapt("sticky"))

aiokafka's consumer is eager. It passes no group instance ids, generations, owned partitions or
racks to a strategy: Range and RoundRobin order members by member id, and Sticky's claims have no
generation. Cooperative strategies are refused: the leader could not see the partitions that other
clients of the group still own, and would assign them twice. aiokafka (up to 0.14) joins once for
each strategy of the list, and every join is a rebalance: name one strategy, unless the group is
being moved from one to another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial

from rota.adapters.leader import assign_as_leader, count_partitions
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import StrategyList, resolve_strategies
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS, TimeBudget
from rota.engine.model.member import NO_GENERATION, Assignment, RebalanceProtocol, Subscription
from rota.engine.model.topic import Cluster, Partitions
from rota.errors import InputError

try:
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
    from aiokafka.coordinator.protocol import (
        ConsumerProtocolMemberAssignment,
        ConsumerProtocolMemberMetadata,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: pip install 'rota[aiokafka]'") from error

PROTOCOL_VERSION = 0  # version of subscriptions and assignments; aiokafka has no other


def adapt(
    *strategies: StrategyList,
    solver: str = "exact",
    budget_ms: int = DEFAULT_BUDGET_MS,
) -> list[AbstractPartitionAssignor]:
    """Returns the value for ``partition_assignment_strategy``, in order of preference. A strategy
    is a wire name, ``package.module:Class``, a Java class name, or a class or instance of
    :class:`rota.Assignor`. Call this once for each consumer, because Sticky remembers the
    partitions that its consumer owns.
    """
    budget = TimeBudget(budget_ms, time.monotonic)
    assignors = resolve_strategies(strategies, solver=solver, budget=budget)
    for assignor in assignors:
        if RebalanceProtocol.COOPERATIVE in assignor.protocols:
            raise InputError(
                f"strategy {assignor.name!r} cannot run in aiokafka, whose consumer is eager and "
                "does not show owned partitions to the leader; use 'sticky', which places alike"
            )
    return [_AdaptedAssignor(assignor) for assignor in assignors]


class _AdaptedAssignor(AbstractPartitionAssignor):
    """The strategy of one consumer. aiokafka's own strategies are classes with class methods, so
    that all consumers of a process share Sticky's memory; aiokafka calls an object just as well.
    """

    name = "adapted"

    def __init__(self, assignor: Assignor) -> None:
        self.name = assignor.name
        self._assignor = assignor

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:  # type: ignore[override]
        names = sorted(topics)
        user_data = self._assignor.subscription_user_data(names)
        return ConsumerProtocolMemberMetadata(PROTOCOL_VERSION, names, user_data)

    def assign(  # type: ignore[override]
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        group = {
            member: Subscription(topics=tuple(sent.subscription), user_data=sent.user_data or None)
            for member, sent in members.items()
        }
        encode = partial(ConsumerProtocolMemberAssignment, PROTOCOL_VERSION)
        counts = count_partitions(cluster, group)
        return assign_as_leader(self._assignor, Cluster(counts), group, encode)

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:  # type: ignore[override]
        owned = Partitions.of(assignment.partitions())
        self._assignor.on_assignment(Assignment(owned, assignment.user_data), NO_GENERATION)
