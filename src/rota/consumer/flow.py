"""Records on their way to the application.

What is taken from the fetcher flows through here, and counts as handed out when it leaves: a loop
takes record by record, a poll all at once. So a commit covers what the application has seen, a loop
that is left and entered again goes on where it stopped, and what an exception stops on its way (a
Ctrl-C, an interceptor) is there for the next call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import length_hint

from rota.client.batch import Batch
from rota.consumer.record import ConsumerRecord, Records
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

NOTHING: Mapping[TopicPartition, list[ConsumerRecord]] = {}


class Flow:
    """What was taken from the fetcher and is not handed out yet."""

    __slots__ = ("_batches", "_records", "_taken", "rest")

    def __init__(self) -> None:
        self._taken = NOTHING
        """What was there when the flow was filled; positions are behind it."""
        self._records: list[ConsumerRecord] = []
        """The same in a row, that alone of what was handed out which must be known."""
        self.rest: Iterator[ConsumerRecord] = iter(self._records)
        """Those that are not handed out yet. Who takes one has it: that its iterator knows how many
        are left says which was the last, and takes no time of a loop's turn.
        """
        self._batches: Sequence[Batch] = ()

    @property
    def _left(self) -> int:
        return length_hint(self.rest)

    @property
    def _handed(self) -> ConsumerRecord | None:
        """The last that was handed out."""
        count = len(self._records) - self._left
        return self._records[count - 1] if count else None

    @property
    def is_empty(self) -> bool:
        """Nothing is left; columns do not count."""
        return not self._left

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
        self._set(list(records))
        self._batches = ()

    def _set(self, records: list[ConsumerRecord]) -> None:
        self._records = records
        self.rest = iter(records)

    def fill_with_batches(self, batches: Sequence[Batch]) -> None:
        """The next records, as columns."""
        self.fill(Records({}))
        self._batches = batches

    def take(self, most: int) -> Records:
        """Hands out what is left, but not more than so many."""
        if self._left == len(self._records) <= most:
            whole = self.whole
            self.fill(Records({}))
            return whole
        return _grouped(islice(self.rest, most))

    def take_batches(self) -> list[Batch]:
        """Hands out what is left, as columns."""
        taken, self._batches = list(self._batches), ()
        return taken

    def unread(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where those begin that are left."""
        left = _grouped(self._records[len(self._records) - self._left :])
        found = {name: _start(each) for name, each in left.by_partition.items()}
        for batch in reversed(self._batches):
            found[batch.source] = OffsetAndMetadata(int(batch.offsets[0]))
        return found

    def stop(self) -> None:
        """Hands out no more, to a loop that is under way neither; positions stay behind what was
        handed out.
        """
        self._end()

    def _end(self) -> list[ConsumerRecord]:
        """Ends the iterator, for those too who have it; gives what is left."""
        count = len(self._records) - self._left
        left = self._records[count:]
        del self._records[count:]
        return left

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What is left of these is not handed out: the application reads elsewhere."""
        gone = frozenset(partitions)
        self._batches = [batch for batch in self._batches if batch.source not in gone]
        if gone.isdisjoint(self._taken):
            return
        left, handed, names = self._end(), self._handed, list(self._taken)
        if handed is not None and (current := _partition(handed)) in gone:
            names = names[names.index(current) + 1 :]  # those before it are through
            handed = None
        kept = [record for record in left if _partition(record) not in gone]
        self._set(kept if handed is None else [handed, *kept])
        if handed is not None:
            next(self.rest)
        self._taken = {name: self._taken[name] for name in names if name not in gone}

    def correct(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Takes positions back to what was handed out."""
        handed = self._handed
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


def _grouped(records: Iterable[ConsumerRecord]) -> Records:
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    for record in records:
        found.setdefault(_partition(record), []).append(record)
    return Records(found)


def _partition(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
