"""Records on their way to the application, one by one.

A loop over the consumer takes a poll's records at once but hands them out singly. So a commit in
the middle of the loop covers those that were handed out, and a loop that is left and entered again
goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rota.consumer.record import ConsumerRecord, Records
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition


class Flow:
    """What a poll gave and the loop has not handed out yet."""

    __slots__ = ("_taken", "handed", "rest")

    def __init__(self) -> None:
        self.rest: Iterator[ConsumerRecord] = iter(())
        """Not handed out yet. Who takes one sets :attr:`handed`."""
        self.handed: ConsumerRecord | None = None
        """The last one that was."""
        self._taken: Mapping[TopicPartition, list[ConsumerRecord]] = {}

    def refill(self, records: Records) -> None:
        """The next poll's."""
        self._taken = records.by_partition
        self.rest = iter(records)
        self.handed = None

    def drain(self, *, without: Iterable[TopicPartition] = ()) -> Records:
        """All that is left, handed out at once; but for some partitions, whose are dropped."""
        unwanted = set(without)
        left: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in self.rest:
            partition = TopicPartition(record.topic, record.partition)
            if partition not in unwanted:
                left.setdefault(partition, []).append(record)
        self.refill(Records({}))
        return Records(left)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What is left of these is not handed out: the application reads elsewhere."""
        handed, taken = self.handed, self._taken
        gone = set(partitions)
        if gone.isdisjoint(taken):
            return
        self.refill(self.drain(without=gone))
        self.handed = handed
        self._taken = {name: each for name, each in taken.items() if name not in gone}

    def correct(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Takes positions back to what was handed out."""
        handed = self.handed
        current = None if handed is None else TopicPartition(handed.topic, handed.partition)
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
