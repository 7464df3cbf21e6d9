"""Records on their way to the application.

What is taken from the fetcher flows through here, and counts as handed out when it leaves: a loop
takes record by record, a poll all at once. So a commit covers what the application has seen, a loop
that is left and entered again goes on where it stopped, and what an exception stops on its way (a
Ctrl-C, an interceptor) is there for the next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import length_hint
from typing import NamedTuple

from rota.client.batch import Batch
from rota.consumer.record import ConsumerRecord, Records
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

NOTHING: Mapping[TopicPartition, list[ConsumerRecord]] = {}


class _State(NamedTuple):
    """What a flow was filled with, and how far it is."""

    taken: Mapping[TopicPartition, list[ConsumerRecord]]
    """By partition; positions are behind it."""
    records: list[ConsumerRecord]
    """In a row. Never changed: the member's thread may look at it."""
    rest: Iterator[ConsumerRecord]
    """Those that are left: an iterator of that list, so that it knows how many."""

    @property
    def at(self) -> int:
        """How many were handed out."""
        return len(self.records) - length_hint(self.rest)

    @property
    def handed(self) -> ConsumerRecord | None:
        """The last that was."""
        at = self.at
        return self.records[at - 1] if at else None


class Flow:
    """What was taken from the fetcher and is not handed out yet.

    Who takes a record from :attr:`rest` has it: that is known without a line of Python for each.
    Another thread may ask at any moment what was handed out; so while records are left, the rest is
    changed under the driver's lock only.
    """

    __slots__ = ("_batches", "_state", "rest")

    def __init__(self) -> None:
        self._state = _State(NOTHING, [], iter(()))
        self.rest = self._state.rest
        """Those that are not handed out yet."""
        self._batches: Sequence[Batch] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing is left; columns do not count."""
        return not length_hint(self.rest)

    @property
    def has_batches(self) -> bool:
        """Columns are left."""
        return bool(self._batches)

    @property
    def whole(self) -> Records:
        """All that it was filled with."""
        return Records(self._state.taken)

    def fill(self, records: Records) -> None:
        """The next records. What was there before is forgotten."""
        self._set(records.by_partition, list(records))
        self._batches = ()

    def _set(
        self,
        taken: Mapping[TopicPartition, list[ConsumerRecord]],
        records: list[ConsumerRecord],
        handed: int = 0,
    ) -> None:
        """Takes the place of what was there, for a loop that is under way, too.

        :param handed: how many of the records were handed out
        """
        before, rest = self.rest, iter(records)
        _pass(rest, handed)
        self._state = _State(taken, records, rest)
        self.rest = rest
        _pass(before)

    def fill_with_batches(self, batches: Sequence[Batch]) -> None:
        """The next records, as columns."""
        self.fill(Records({}))
        self._batches = batches

    def take(self, most: int) -> Records:
        """Hands out what is left, but not more than so many."""
        _, records, rest = self._state
        at = self._state.at
        if not at and len(records) <= most:
            whole = self.whole
            self.fill(Records({}))
            return whole
        taken = _grouped(records[at : at + most])
        _pass(rest, most)  # at once: a Ctrl-C before it leaves all of them
        return taken

    def take_batches(self) -> list[Batch]:
        """Hands out what is left, as columns."""
        taken, self._batches = list(self._batches), ()
        return taken

    def unread(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where those begin that are left."""
        left = _grouped(self._state.records[self._state.at :])
        found = {name: _start(each) for name, each in left.by_partition.items()}
        for batch in reversed(self._batches):
            found[batch.source] = OffsetAndMetadata(int(batch.offsets[0]))
        return found

    def stop(self) -> None:
        """Hands out no more, to a loop that is under way neither; positions stay behind what was
        handed out.
        """
        at = self._state.at
        self._set(self._state.taken, self._state.records[:at], at)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What is left of these is not handed out: the application reads elsewhere."""
        gone = frozenset(partitions)
        self._batches = [batch for batch in self._batches if batch.source not in gone]
        taken, records, _ = self._state
        if gone.isdisjoint(taken):
            return
        left = [each for each in records[self._state.at :] if _partition(each) not in gone]
        handed, names = self._state.handed, list(taken)
        if handed is not None and (current := _partition(handed)) in gone:
            names = names[names.index(current) + 1 :]  # those before it are through
            handed = None
        kept = {name: taken[name] for name in names if name not in gone}
        if handed is None:
            self._set(kept, left)
        else:
            self._set(kept, [handed, *left], 1)

    def correct(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Takes positions back to what was handed out."""
        state = self._state
        handed = state.handed
        current = None if handed is None else _partition(handed)
        is_through = current is not None
        for partition, records in state.taken.items():
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


def _pass(rest: Iterator[object], most: int | None = None) -> None:
    """Goes past so many, or all, in one step."""
    deque(islice(rest, most), maxlen=0)


def _grouped(records: Iterable[ConsumerRecord]) -> Records:
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    for record in records:
        found.setdefault(_partition(record), []).append(record)
    return Records(found)


def _partition(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
