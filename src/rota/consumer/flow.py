"""Records on their way to the application.

What is taken from the fetcher flows through here, and counts as handed out when it leaves: a loop
takes record by record, a poll all at once. So a commit covers what the application has seen, a loop
that is left and entered again goes on where it stopped, and what an exception stops on its way (a
Ctrl-C, an interceptor) is there for the next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from rota.client.batch import Batch
from rota.consumer.record import ConsumerRecord, Records
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

NOTHING: Mapping[TopicPartition, list[ConsumerRecord]] = {}


class Flow:
    """What was taken from the fetcher and is not handed out yet."""

    __slots__ = ("_batches", "_taken", "handed", "rest")

    def __init__(self) -> None:
        self.rest: Iterator[ConsumerRecord] = iter(())
        """Not handed out yet. Who takes one sets :attr:`handed`."""
        self.handed: ConsumerRecord | None = None
        """The last of them that was."""
        self._taken = NOTHING
        """What was there when the flow was filled; positions are behind it."""
        self._batches: Sequence[Batch] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing is left; columns do not count."""
        first = next(self.rest, None)
        if first is not None:
            self.rest = chain((first,), self.rest)
        return first is None

    @property
    def has_batches(self) -> bool:
        """Columns are left."""
        return bool(self._batches)

    @property
    def whole(self) -> Records:
        """All that it was filled with."""
        return Records(self._taken)

    def fill(self, records: Records) -> None:
        """The next records. What was there before is forgotten."""
        self._taken = records.by_partition
        self.rest = iter(records)
        self.handed = None
        self._batches = ()

    def fill_with_batches(self, batches: Sequence[Batch]) -> None:
        """The next records, as columns."""
        self.fill(Records({}))
        self._batches = batches

    def take(self, most: int) -> Records:
        """Hands out what is left, but not more than so many."""
        if self.handed is None and len(whole := self.whole) <= most:
            self.fill(Records({}))
            return whole
        taken = list(islice(self.rest, most))
        if taken:
            self.handed = taken[-1]
        return _grouped(taken)

    def take_batches(self) -> list[Batch]:
        """Hands out what is left, as columns."""
        taken, self._batches = list(self._batches), ()
        return taken

    def unread(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where those begin that are left."""
        left = list(self.rest)
        self.rest = iter(left)
        found = {name: _start(each) for name, each in _grouped(left).by_partition.items()}
        for batch in reversed(self._batches):
            found[batch.source] = OffsetAndMetadata(int(batch.offsets[0]))
        return found

    def stop(self) -> None:
        """Hands out no more, to a loop that is under way neither; positions stay behind what was
        handed out.
        """
        deque(self.rest, maxlen=0)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What is left of these is not handed out: the application reads elsewhere."""
        gone = frozenset(partitions)
        self._batches = [batch for batch in self._batches if batch.source not in gone]
        if gone.isdisjoint(self._taken):
            return
        handed, names = self.handed, list(self._taken)
        if handed is not None and (current := _partition(handed)) in gone:
            names = names[names.index(current) + 1 :]  # those before it are through
            self.handed = None
        self.rest = iter(_grouped(self.rest, without=gone))
        self._taken = {name: self._taken[name] for name in names if name not in gone}

    def correct(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Takes positions back to what was handed out."""
        handed = self.handed
        current = None if handed is None else _partition(handed)
        is_through = current is not None
        for partition, records in self._taken.items():
            if partition == current:
                is_through = False
                if handed is not None and handed is not records[-1]:
                    behind = OffsetAndMetadata(handed.offset + 1, "", handed.leader_epoch)
                    _set_back(positions, partition, behind)
            elif not is_through and records:
                _set_back(positions, partition, _start(records))
        for batch in reversed(self._batches):
            _set_back(positions, batch.source, OffsetAndMetadata(int(batch.offsets[0])))


def _set_back(
    positions: dict[TopicPartition, OffsetAndMetadata],
    partition: TopicPartition,
    offset: OffsetAndMetadata,
) -> None:
    if partition in positions:
        positions[partition] = offset


def _start(records: list[ConsumerRecord]) -> OffsetAndMetadata:
    return OffsetAndMetadata(records[0].offset, "", records[0].leader_epoch)


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
