"""Records on their way to the application, one by one.

A loop over the consumer takes a poll's records at once but hands them out singly. So a commit in
the middle of the loop covers those that were handed out, and a loop that is left and entered again
goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from rota.consumer.record import ConsumerRecord, Records
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition


class Flow:
    """What a poll gave and the loop has not handed out yet."""

    __slots__ = ("_taken", "handed", "left", "rest")

    def __init__(self) -> None:
        self.rest: Iterator[ConsumerRecord] = iter(())
        """Not handed out yet. Who takes one sets :attr:`handed`."""
        self.handed: ConsumerRecord | None = None
        """The last one that was."""
        self.left = Records({})
        """What a poll was given of it last."""
        self._taken: Mapping[TopicPartition, list[ConsumerRecord]] = {}

    def refill(self, records: Records) -> None:
        """The next poll's."""
        self._taken = records.by_partition
        self.rest = iter(records)
        self.handed = None

    def take(self, most: int) -> Records:
        """What is left, handed out at once, but not more than so many."""
        taken = list(islice(self.rest, most))
        if taken:
            self.handed = taken[-1]
        self.left = _grouped(taken)
        return self.left

    def drain(self, *, without: Iterable[TopicPartition] = ()) -> Records:
        """All that is left; but for some partitions, whose are dropped."""
        left = _grouped(self.rest, without=frozenset(without))
        self.refill(Records({}))
        return left

    def unread(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where those begin that are left."""
        left = list(self.rest)
        self.rest = iter(left)
        return {
            partition: OffsetAndMetadata(records[0].offset, "", records[0].leader_epoch)
            for partition, records in _grouped(left).by_partition.items()
        }

    def stop(self) -> None:
        """Hands out no more; positions stay behind what was handed out."""
        self.rest = iter(())

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What is left of these is not handed out: the application reads elsewhere."""
        handed, taken = self.handed, self._taken
        gone = set(partitions)
        if gone.isdisjoint(taken):
            return
        self.refill(self.drain(without=gone))
        names = list(taken)
        if handed is not None and (current := _partition(handed)) in gone:
            names = names[names.index(current) + 1 :]  # those before it are through
        else:
            self.handed = handed
        self._taken = {name: taken[name] for name in names if name not in gone}

    def correct(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Takes positions back to what was handed out."""
        handed = self.handed
        current = None if handed is None else _partition(handed)
        done = current is not None
        for partition, records in self._taken.items():
            if partition not in positions or not records:
                continue
            if partition == current:
                done = False
                assert handed is not None
                if handed is not records[-1]:
                    positions[partition] = OffsetAndMetadata(
                        handed.offset + 1, "", handed.leader_epoch
                    )
            elif not done:
                first = records[0]
                positions[partition] = OffsetAndMetadata(first.offset, "", first.leader_epoch)


def _grouped(
    records: Iterable[ConsumerRecord], *, without: frozenset[TopicPartition] = frozenset()
) -> Records:
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    for record in records:
        partition = _partition(record)
        if partition not in without:
            found.setdefault(partition, []).append(record)
    return Records(found)


def _partition(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
