"""Custom strategies for the tests: a simple one, and one that does not do its duty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.engine.assignors.interface import PartitionAssignor
from rota.engine.model.member import RebalanceProtocol, Subscription
from rota.engine.model.topic import TopicPartition


class FirstTakesAll(PartitionAssignor):
    """Everything to the first member."""

    name = "first-takes-all"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        everything = [TopicPartition(t, p) for t, n in partitions.items() for p in range(n)]
        first, *others = subscriptions
        return {first: everything, **{member: [] for member in others}}


class Forgetful(FirstTakesAll):
    """Forgets all members but the first."""

    name = "forgetful"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        placed = super().assign_partitions(partitions, subscriptions)
        return {member: given for member, given in placed.items() if given}


class CooperativeFirst(FirstTakesAll):
    """Names the cooperative protocol too."""

    name = "cooperative-first"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
