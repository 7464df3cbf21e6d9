"""A strategy of the application's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota import PartitionAssignor, Subscription, TopicPartition


class FirstMemberTwice(PartitionAssignor):
    """Twice as much to the first member as to each of the others: none of Kafka's own does that."""

    name = "blocks"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        first, *_ = members = sorted(subscriptions)
        turns = [first, *members]
        places = [TopicPartition(t, n) for t, count in partitions.items() for n in range(count)]
        return {
            member: [each for n, each in enumerate(places) if turns[n % len(turns)] == member]
            for member in members
        }
