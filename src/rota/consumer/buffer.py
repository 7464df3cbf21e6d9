"""What was fetched and waits to be handed out, in the order in which it came.

An answer is decoded when its turn comes, and handed out to its end before the next: at most one is
decoded at a time. What belongs to a partition that is paused, withheld or validated is laid aside;
what belongs to one that was revoked or sought in is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rota.client.answer import PORTION, read
from rota.client.batch import Batch
from rota.client.fetch import Fetched
from rota.consumer.entry import Position
from rota.consumer.making import Deserializer, make
from rota.consumer.position import Positions
from rota.consumer.record import ConsumerRecord, Records
from rota.consumer.verdict import missing
from rota.errors import RecordError
from rota.model.client import ReadConfig
from rota.model.offset import NO_EPOCH
from rota.model.topic import TopicPartition


class Waiting:
    """One partition's answer."""

    __slots__ = ("_batches", "_error", "_fetched", "_row", "_rows", "partition", "size", "stamp")

    def __init__(self, fetched: Fetched, stamp: int) -> None:
        self.partition = fetched.partition
        self.stamp = stamp
        self.size = len(fetched.records)
        self._fetched = fetched
        self._batches: Iterator[Batch] | None = None
        """None: nothing was decoded yet."""
        self._error: RecordError | None = None
        """What comes next cannot be read."""
        self._rows: Batch | None = None
        """The portion that is being handed out."""
        self._row = 0

    def next(self, most: int | None, config: ReadConfig) -> Batch | None:
        """The next rows, not more than these; None: that was all.

        They count as handed out once :meth:`advance` says so: nothing is lost if they cannot be
        made into records.

        :raises RecordError: what comes next cannot be read; it is raised each time
        """
        if self._error is not None:
            raise self._error
        if self._batches is None:
            check, committed_only = config.check_crcs, config.committed_only
            self._batches = read(self._fetched, check=check, committed_only=committed_only)
        if self._rows is None:
            try:
                self._rows, self._row = next(self._batches, None), 0
            except RecordError as error:
                self._error = error
                raise
        if self._rows is None:
            return None
        stop = len(self._rows) if most is None else self._row + most
        return self._rows[self._row : stop]

    def advance(self, rows: int) -> None:
        """So many rows were handed out."""
        self._row += rows
        if self._rows is not None and self._row >= len(self._rows):
            self._rows = None

    def part(self) -> None:
        """Keeps its own bytes alone: it may be here for long, and the frame has others' too."""
        if self._batches is None:
            own = memoryview(bytes(self._fetched.records))
            self._fetched = self._fetched._replace(records=own)


@dataclass(slots=True)
class Trouble:
    """An error that is raised when its turn comes."""

    error: Exception | None
    """None: no offset is committed for the partitions, and there is no policy."""
    stamps: dict[TopicPartition, int]
    """Whom it concerns; nobody: the consumer as a whole."""
    lasting: bool = False
    """It is raised again and again, until the application seeks elsewhere."""


class Buffer:
    """Answers and errors, first come, first served."""

    def __init__(
        self,
        positions: Positions,
        config: ReadConfig,
        *,
        drained: Callable[[], None],
        key: Deserializer | None = None,
        value: Deserializer | None = None,
    ) -> None:
        """An empty one.

        :param drained: called when a partition has room for more, before the next is decoded
        """
        self._positions = positions
        self._config = config
        self._drained = drained
        self._key, self._value = key, value
        self._queue: deque[Waiting | Trouble] = deque()
        self._aside: dict[TopicPartition, list[Waiting]] = {}

    def __bool__(self) -> bool:
        """There is something to be handed out, or raised."""
        return bool(self._queue)

    def add(self, fetched: Fetched) -> None:
        """An answer with records."""
        stamp = self._positions[fetched.partition].stamp
        self._queue.append(Waiting(fetched, stamp))

    def add_trouble(
        self, error: Exception | None, *concerned: TopicPartition, lasting: bool = False
    ) -> None:
        """An error, to be raised behind what is there; the same one waits only once."""
        stamps = {each: self._positions[each].stamp for each in concerned}
        for each in self._queue:
            if isinstance(each, Trouble) and each.stamps == stamps and _same(each.error, error):
                return
        self._queue.append(Trouble(error, stamps, lasting))

    def trouble_of(self, partitions: frozenset[TopicPartition]) -> Exception | None:
        """The first error that concerns one of these, or all; it is not raised again by others,
        unless it lasts.
        """
        self.tidy()
        for each in list(self._queue):
            if not isinstance(each, Trouble):
                continue
            if not each.stamps or not partitions.isdisjoint(each.stamps):
                if not each.lasting:
                    self._queue.remove(each)
                return self._error(each)
        return None

    def tidy(self) -> None:
        """Drops what is of the past, and brings back what may be handed out again."""
        back = [tp for tp in self._aside if (e := self._positions.get(tp)) is None or e.gives]
        for partition in back:
            self._queue.extendleft(reversed(self._aside.pop(partition)))
        self._queue = deque([each for each in self._queue if self._stands(each)])
        for partition, items in list(self._aside.items()):
            self._aside[partition] = [each for each in items if self._stands(each)]

    # Handing out

    def take(self, most: int) -> Records:
        """Up to so many records.

        :raises Exception: an error whose turn has come; there are no records before it
        """
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = most
        while left > 0 and (waiting := self._first(bool(found))) is not None:
            try:
                rows = waiting.next(left, self._config)
                if rows is None:
                    self._finish(waiting)
                    continue
                records, error = make(rows, self._key, self._value)
                if error is not None and not records:
                    raise error
            except RecordError:
                if found:
                    break
                self._stumble(waiting)
                raise
            if error is not None:
                rows = rows[: len(records)]
            self._hand(waiting, rows)
            left -= len(records)
            if records:
                known = found.get(waiting.partition)
                if known is None:
                    found[waiting.partition] = records
                else:
                    known += records
        return Records(found)

    def take_batches(self, most: int = PORTION) -> list[Batch]:
        """Answers as columns, until they have so many bytes; one at least.

        :raises Exception: an error whose turn has come; there are no records before it
        """
        found: list[Batch] = []
        left = most
        while left > 0 and (waiting := self._first(bool(found))) is not None:
            try:
                rows = waiting.next(None, self._config)
            except RecordError:
                if found:
                    break
                self._stumble(waiting)
                raise
            if rows is None:
                left -= waiting.size
                self._finish(waiting)
                continue
            self._hand(waiting, rows)
            if len(rows):
                found.append(rows)
        return found

    def _first(self, some: bool) -> Waiting | None:
        """Whose turn it is; None: nobody's, or that of an error that must wait."""
        while self._queue:
            item = self._queue[0]
            if isinstance(item, Trouble):
                if not self._stands(item):
                    self._queue.popleft()
                    continue
                if some:
                    return None
                self._queue.popleft()
                if item.lasting:
                    self._queue.append(item)
                raise self._error(item)
            entry = self._positions.get(item.partition)
            if entry is not None and entry.stamp == item.stamp:
                if entry.gives and item.partition not in self._aside:
                    return item
                item.part()
                self._aside.setdefault(item.partition, []).append(item)
            self._queue.popleft()
        return None

    def _hand(self, waiting: Waiting, rows: Batch) -> None:
        epoch = None if rows.next_epoch == NO_EPOCH else rows.next_epoch
        position = Position(rows.next_offset, epoch)
        self._positions.hand(waiting.partition, waiting.stamp, position)
        waiting.advance(len(rows))

    def _finish(self, waiting: Waiting) -> None:
        self._queue.popleft()
        self._positions.drained(waiting.partition, waiting.stamp, waiting.size)
        self._drained()

    def _stumble(self, waiting: Waiting) -> None:
        """Lets the others go on, for this one waits for the application."""
        partition = waiting.partition
        own = [each for each in self._queue if getattr(each, "partition", None) == partition]
        others = [each for each in self._queue if getattr(each, "partition", None) != partition]
        self._queue = deque(others + own)

    def _stands(self, item: Waiting | Trouble) -> bool:
        if isinstance(item, Waiting):
            return self._stamped(item.partition, item.stamp)
        return not item.stamps or any(self._stamped(*each) for each in item.stamps.items())

    def _stamped(self, partition: TopicPartition, stamp: int) -> bool:
        entry = self._positions.get(partition)
        return entry is not None and entry.stamp == stamp

    def _error(self, trouble: Trouble) -> Exception:
        if trouble.error is not None:
            return trouble.error
        return missing(
            [each for each, stamp in trouble.stamps.items() if self._stamped(each, stamp)]
        )


def _same(one: Exception | None, other: Exception | None) -> bool:
    return type(one) is type(other) and str(one) == str(other)
