"""Rota's strategies inside aiokafka.

::

    from aiokafka import AIOKafkaConsumer
    from rota.adapters.aiokafka import adapt

    AIOKafkaConsumer("orders", group_id="g", partition_assignment_strategy=adapt("sticky"))

aiokafka's consumer is eager, and passes a strategy neither static ids nor generations, owned
partitions or racks: Range and RoundRobin order members by member id, and a claim of Sticky has no
generation. Strategies that may run cooperatively are refused: as leader of a group with other
clients they could not see what those still own, and would assign it to others. With several
strategies in the list aiokafka (up to 0.14) joins once for each of them, so that every rebalance
runs as many times: name one, unless the group is just being moved from one to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.adapters.leader import assign_as_leader
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import StrategyList, resolve_strategies
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS
from rota.engine.model.member import NO_GENERATION, Assignment, RebalanceProtocol, Subscription
from rota.engine.model.topic import Cluster, Partitions
from rota.engine.plan import TimeBudget
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

#: Of subscriptions and assignments: the only one whose fields aiokafka has.
PROTOCOL_VERSION = 0


def adapt(
    *strategies: StrategyList,
    solver: str = "exact",
    budget_ms: int = DEFAULT_BUDGET_MS,
) -> list[AbstractPartitionAssignor]:
    """The value for ``partition_assignment_strategy``, strategies in order of preference.

    A strategy is named by its wire name, ``package.module:Class`` or Java class name, or given as
    a class or instance of :class:`rota.Assignor`. Sticky remembers what its consumer owns: call
    this once for each consumer.
    """
    found = resolve_strategies(strategies, solver=solver, budget=TimeBudget(budget_ms))
    for assignor in found:
        if RebalanceProtocol.COOPERATIVE in assignor.protocols:
            raise InputError(
                f"strategy {assignor.name!r} cannot run in aiokafka, whose consumer is eager and "
                "does not show the leader what others own; 'sticky' places the same way"
            )
    return [_AdaptedAssignor(assignor) for assignor in found]


class _AdaptedAssignor(AbstractPartitionAssignor):
    """A strategy as aiokafka calls it, for one consumer.

    aiokafka's own strategies are classes with class methods, so that consumers of a process share
    what sticky remembers; it calls an object just as well.
    """

    name = "adapted"

    def __init__(self, assignor: Assignor) -> None:
        self.name = assignor.name
        self._assignor = assignor

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:  # type: ignore[override]
        """What this member tells the leader."""
        wanted = sorted(topics)
        user_data = self._assignor.subscription_user_data(wanted)
        return ConsumerProtocolMemberMetadata(PROTOCOL_VERSION, wanted, user_data)

    def assign(  # type: ignore[override]
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """On the leader: what every member is given."""
        group = {
            member: Subscription(
                topics=tuple(stated.subscription), user_data=stated.user_data or None
            )
            for member, stated in members.items()
        }
        topics = sorted({topic for stated in group.values() for topic in stated.topics})
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        given = assign_as_leader(self._assignor, Cluster(counts), group)
        return {member: _to_library_assignment(given[member]) for member in given}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:  # type: ignore[override]
        """Remembers what this member owns now."""
        owned = Partitions.of(assignment.partitions())
        self._assignor.on_assignment(Assignment(owned, assignment.user_data), NO_GENERATION)


def _to_library_assignment(given: Assignment) -> ConsumerProtocolMemberAssignment:
    partitions = [(topic, list(numbers)) for topic, numbers in given.partitions.by_topic().items()]
    return ConsumerProtocolMemberAssignment(PROTOCOL_VERSION, partitions, given.user_data)
