"""Which partitions have moved during a reassignment, so that opposite moves can be undone."""

from __future__ import annotations

from rota.assignors.kafka.hashing import PartitionSet
from rota.formats.javahash import java_hash
from rota.model.topic import Layout


class Movements:
    """For each topic and pair of members, the partitions that went from the first to the second.

    The first member is where a partition was at the start, however often it moved since.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._topic_of = layout.topic_of.tolist()
        self._starts = layout.starts.tolist()
        self._origin: dict[int, int] = {}
        self._pairs: dict[tuple[int, int, int], PartitionSet] = {}

    def instead(self, partition: int, owner: int, taker: int) -> int:
        """The partition to move in place of this one: one that went the opposite way, if any.

        Where ``partition`` itself has moved, Kafka looks from its first owner, not its present.
        """
        topic = self._topic_of[partition]
        origin = self._origin.get(partition, owner)
        opposite = self._pairs.get((topic, taker, origin))
        return partition if opposite is None else self._starts[topic] + opposite.first()

    def record(self, partition: int, owner: int, taker: int) -> None:
        """A partition goes from its owner to the taker."""
        topic = self._topic_of[partition]
        number = partition - self._starts[topic]
        origin = self._origin.pop(partition, None)
        if origin is not None:
            moved = self._pairs[topic, origin, owner]
            moved.remove(number)
            if not moved:
                del self._pairs[topic, origin, owner]
            if origin == taker:
                return
        else:
            origin = owner
        self._origin[partition] = origin
        pair = (topic, origin, taker)
        if pair not in self._pairs:
            self._pairs[pair] = PartitionSet(java_hash(self._layout.topics[topic]))
        self._pairs[pair].add(number)
